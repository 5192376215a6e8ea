/* BPE: within each word of the pre-tokenizer, bytes merge to tokens, the lowest rank first.
 *
 * A merge is kept as (left id, right id) -> (rank, result id) in a hash with open addressing; of equal merges the
 * first counts. A byte for which the vocabulary has no token yields nothing, as in the other readers of these files.
 * Words are found in a window of text that has been made valid UTF-8, so memory is bounded whatever the text. */
#include "engine/tokenizer/parts.h"

#include <string.h>

static uint32_t merge_slot(const tokenizer *t, const int32_t left, const int32_t right) {
  uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0xD6E8FEB86659FD93u;
  h ^= h >> 32;
  h *= 0xD6E8FEB86659FD93u;
  uint32_t i = (uint32_t)(h >> 32) & t->merge_mask;
  while (t->merges[i].left >= 0 && (t->merges[i].left != left || t->merges[i].right != right))
    i = (i + 1) & t->merge_mask;
  return i;
}

bool tok_pair_find_bpe(const tokenizer *t, const int32_t left, const int32_t right, uint32_t *rank,
                       int32_t *result) {
  if (left < 0 || right < 0) return false;
  const tok_merge *m = &t->merges[merge_slot(t, left, right)];
  *rank = m->rank;
  *result = m->result;
  return m->left >= 0;
}

stint_status tok_bpe_load(tokenizer *t, const gguf_key *merges, stint_error *error) {
  for (uint32_t i = 0; i <= t->merge_mask; i++) t->merges[i].left = -1;
  gguf_strings walk = {.key = merges};
  gguf_text text;
  for (uint32_t rank = 0; gguf_next_string(&walk, &text); rank++) {
    /* left, a space, right; the space is never the first byte */
    const char *space = text.bytes > 2 ? memchr(text.data + 1, ' ', text.bytes - 1) : NULL;
    const size_t n_left = space ? (size_t)(space - text.data) : 0,
                 n_right = space ? text.bytes - n_left - 1 : 0;
    const size_t n = n_left + n_right;
    int32_t left = -1, right = -1, result = -1;
    if (n_left && n_right && n <= t->max_token_bytes && n <= 2 * (size_t)TOK_WINDOW_BYTES) {
      memcpy(t->mapped, text.data, n_left);
      memcpy(t->mapped + n_left, space + 1, n_right);
      left = tok_vocab_find(t, t->mapped, n_left);
      right = tok_vocab_find(t, t->mapped + n_left, n_right);
      result = tok_vocab_find(t, t->mapped, n);
    }
    if (left < 0 || right < 0 || result < 0)
      return stint_fail(error, STINT_BAD_INPUT,
                        "%s: key tokenizer.ggml.merges, byte %zu: merge %u is not two tokens, a space "
                        "between, that make a third; "
                        "convert the model again",
                        t->path, merges->offset, rank);
    tok_merge *m = &t->merges[merge_slot(t, left, right)];
    if (m->left < 0) *m = (tok_merge){left, right, result, rank};
  }
  return STINT_OK;
}

/* The word in the alphabet of the vocabulary, if that is a token; -1 if not. */
static int32_t whole_word(const tokenizer *t, const char *word, const size_t n) {
  if (n > t->max_token_bytes) return -1;
  size_t bytes = 0;
  for (size_t i = 0; i < n; i++)
    bytes += tok_put_utf8(tok_byte_to_code((unsigned char)word[i]), t->mapped + bytes);
  return tok_vocab_find(t, t->mapped, bytes);
}

static bool encode_word(tokenizer *t, const char *word, const size_t n) {
  if (t->pre->ignore_merges) {
    const int32_t id = whole_word(t, word, n);
    if (id >= 0) return tok_emit(t, id);
  }
  for (size_t i = 0; i < n; i++)
    t->symbols[i] =
        (tok_symbol){(int32_t)i - 1, (int32_t)i + 1, (uint32_t)i, 1, t->byte_id[(unsigned char)word[i]]};
  t->symbols[n - 1].next = -1;
  tok_merge_all(t, (uint32_t)n);
  for (int32_t i = 0; i >= 0; i = t->symbols[i].next)
    if (t->symbols[i].id >= 0 && !tok_emit(t, t->symbols[i].id)) return false;
  return true;
}

stint_status tok_bpe_encode(tokenizer *t, const char *text, const size_t n, const size_t at,
                            stint_error *error) {
  size_t read = 0, filled = 0;
  for (;;) {
    while (read < n && filled + 4 <= t->window_bytes) {
      if (!(text[read] & '\x80')) {
        t->window[filled++] = text[read++];
        continue;
      }
      size_t used;
      filled += tok_put_utf8(tok_get_utf8(text + read, n - read, &used), t->window + filled);
      read += used;
    }
    const bool last = read == n;
    size_t from = 0;
    while (from < filled) {
      const size_t end = tok_pre_word(t, from, filled, last);
      if (!end) break;
      if (!encode_word(t, t->window + from, end - from)) return tok_stopped(error);
      from = end;
    }
    if (last && from == filled) return STINT_OK;
    if (from == 0) return tok_too_long(t, at + read, error);
    memmove(t->window, t->window + from, filled - from);
    filled -= from;
  }
}
