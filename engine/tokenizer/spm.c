/* SPM: symbols of a text merge to tokens, the best score first; what fits no token falls back to its bytes.
 *
 * Cutting. A merge yields a symbol that is a token, so two neighbouring symbols a, b of the text can only ever be
 * merged into one if some token holds a and b side by side. tok_spm_load sets a bit for each such pair; where
 * the bit is clear the text is cut, and since no merge crosses, and the order of merges within a piece depends on
 * that piece alone, the pieces give the ids of the whole. (A space mark after anything but a space mark is such a place
 * in the usual vocabularies.) Two pairs that share a bit cost a cut, never a wrong one. A stretch without a cut that
 * is longer than the window is refused. */
#include "engine/tokenizer/parts.h"

#include <string.h>

static const char SPACE_MARK[3] = {'\xE2', '\x96', '\x81'};

static uint64_t joined_bit(const tokenizer *t, const char *a, const size_t n_a, const char *b,
                           const size_t n_b) {
  uint64_t word = 0;
  for (size_t i = 0; i < n_a; i++) word = word << 8 | (unsigned char)a[i];
  for (size_t i = 0; i < n_b; i++) word = word << 8 | (unsigned char)b[i];
  word = (word + n_a * 4 + n_b) * 0xD6E8FEB86659FD93u;
  return word >> 32 & t->joined_mask;
}

stint_status tok_spm_load(tokenizer *t, stint_error *error) {
  (void)error;
  for (int32_t id = 0; id < t->n_vocab; id++) {
    if (t->type[id] == TOK_CONTROL || t->type[id] == TOK_UNKNOWN || t->type[id] == TOK_BYTE) continue;
    size_t n, before = 0, length;
    const char *text = tok_text(t, id, &n);
    for (size_t i = 0; i < n; i += length) {
      length = tok_symbol_length((unsigned char)text[i]);
      if (length > n - i) length = n - i;
      if (before) {
        const uint64_t bit = joined_bit(t, text + i - before, before, text + i, length);
        t->joined[bit >> 6] |= (uint64_t)1 << (bit & 63);
      }
      before = length;
    }
  }
  return STINT_OK;
}

/* Merges symbols [0, n) of the window and hands their tokens on. */
static bool finish_piece(tokenizer *t, const uint32_t n) {
  if (n == 0) return true;
  t->symbols[n - 1].next = -1;
  tok_merge_all(t, n);
  for (int32_t i = 0; i >= 0; i = t->symbols[i].next) {
    const tok_symbol *s = &t->symbols[i];
    const int32_t id = s->id >= 0 ? s->id : tok_vocab_find(t, t->window + s->at, s->n);
    if (id >= 0) {
      if (!tok_emit(t, id)) return false;
      continue;
    }
    for (uint32_t k = 0; k < s->n; k++)
      if (!tok_emit(t, t->byte_id[(unsigned char)t->window[s->at + k]])) return false;
  }
  return true;
}

stint_status tok_spm_encode(tokenizer *t, const char *text, const size_t n, const size_t at,
                            const bool prefix, stint_error *error) {
  size_t read = 0, filled = 0, done = 0; /* of the text; of the window: filled, and walked into symbols */
  uint32_t n_symbols = 0;
  if (prefix) {
    memcpy(t->window, SPACE_MARK, 3);
    filled = 3;
  }
  for (;;) {
    while (read < n && filled + 3 <= t->window_bytes) {
      if (text[read] == ' ') {
        memcpy(t->window + filled, SPACE_MARK, 3);
        filled += 3;
      } else {
        t->window[filled++] = text[read];
      }
      read++;
    }
    const bool last = read == n;
    while (done < filled && (last || filled - done >= 4)) {
      size_t length = tok_symbol_length((unsigned char)t->window[done]);
      if (length > filled - done) length = filled - done;
      if (n_symbols) {
        const tok_symbol *before = &t->symbols[n_symbols - 1];
        const uint64_t bit = joined_bit(t, t->window + before->at, before->n, t->window + done, length);
        if (!(t->joined[bit >> 6] >> (bit & 63) & 1)) {
          if (!finish_piece(t, n_symbols)) return tok_stopped(error);
          n_symbols = 0;
        }
      }
      t->symbols[n_symbols] =
          (tok_symbol){(int32_t)n_symbols - 1, (int32_t)n_symbols + 1, (uint32_t)done, (uint32_t)length, -1};
      n_symbols++;
      done += length;
    }
    if (last) break;
    const size_t start = n_symbols ? t->symbols[0].at : done;
    if (start == 0) return tok_too_long(t, at + read, error);
    memmove(t->window, t->window + start, filled - start);
    for (uint32_t i = 0; i < n_symbols; i++) t->symbols[i].at -= (uint32_t)start;
    filled -= start, done -= start;
  }
  return finish_piece(t, n_symbols) ? STINT_OK : tok_stopped(error);
}
