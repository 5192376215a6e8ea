/* A tokenizer's life: laid out in the caller's buffer, loaded, and asked to encode documents and decode tokens.
 *
 * A document is first split at the user's tokens (tokenizer.ggml.token_type 4), which stand for themselves
 * wherever their text occurs: the longest first over the whole document, of equal lengths the leftmost. The text
 * between them goes to SPM or BPE. Since only tokens whose places overlap can compete, each cluster of
 * overlapping candidates is settled alone. */
#include "engine/tokenizer/parts.h"

#include <string.h>

#include "arena/reserve.h"

/* ---- layout ---- */

/* The next `bytes` of the buffer, or NULL when there is none yet and only the size is asked for. */
static void *place(unsigned char *base, size_t *at, const size_t bytes) {
  void *here = base ? base + *at : NULL;
  *at += (bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
  return here;
}

static uint64_t power_at_least(const uint64_t n) {
  uint64_t p = 64;
  while (p < n) p *= 2;
  return p;
}

static size_t lay_out(tokenizer *t, const tok_shape *s, unsigned char *base) {
  const size_t n = s->tokens->count, n_slots = power_at_least(2 * n);
  size_t at = 0;
  (void)place(base, &at, sizeof(tokenizer));
  t->text_at = place(base, &at, (n + 1) * sizeof *t->text_at);
  t->type = place(base, &at, n);
  t->slots = place(base, &at, n_slots * sizeof *t->slots);
  t->slot_mask = (uint32_t)n_slots - 1;
  t->user = place(base, &at, s->n_user * sizeof *t->user);
  t->user_lengths = place(base, &at, s->n_user * sizeof *t->user_lengths);
  t->mark = place(base, &at, s->n_user ? TOK_WINDOW_BYTES : 0);
  t->out = place(base, &at, TOK_OUT_IDS * sizeof *t->out);
  t->window = place(base, &at, TOK_WINDOW_BYTES);
  t->mapped = place(base, &at, 2 * TOK_WINDOW_BYTES);
  t->symbols = place(base, &at, TOK_WINDOW_BYTES * sizeof *t->symbols);
  t->heap = place(base, &at, 2 * TOK_WINDOW_BYTES * sizeof *t->heap);
  if (s->kind == TOK_SPM) {
    const uint64_t n_bits = power_at_least(8 * s->tokens->value_bytes); /* few share a bit */
    t->joined = place(base, &at, n_bits / 8);
    t->joined_mask = n_bits - 1;
  } else {
    const size_t n_merges = power_at_least(s->merges->count + s->merges->count / 4);
    t->merges = place(base, &at, n_merges * sizeof *t->merges);
    t->merge_mask = (uint32_t)n_merges - 1;
    t->pool = place(base, &at, TOK_POOL_BYTES);
  }
  return at;
}

stint_status tokenizer_bytes(const gguf_file *file, size_t *bytes, stint_error *error) {
  tokenizer t = {0};
  tok_shape shape;
  *bytes = 0;
  STINT_TRY(tok_read_shape(file, &shape, error));
  *bytes = lay_out(&t, &shape, NULL);
  return STINT_OK;
}

stint_status tokenizer_make(const gguf_file *file, void *buffer, const size_t bytes, tokenizer **out,
                            stint_error *error) {
  tok_shape shape;
  tokenizer sizes = {0};
  *out = NULL;
  STINT_TRY(tok_read_shape(file, &shape, error));
  const size_t need = lay_out(&sizes, &shape, NULL);
  if (bytes < need)
    return stint_fail(error, STINT_NO_MEMORY, "%s: the tokenizer needs %zu bytes and was given %zu",
                      file->path, need, bytes);
  memset(buffer, 0, need);
  tokenizer *t = buffer;
  (void)lay_out(t, &shape, buffer);
  t->kind = shape.kind;
  t->path = file->path;
  t->pre = shape.pre;
  t->n_vocab = (int32_t)shape.tokens->count;
  t->bos = shape.bos, t->eos = shape.eos, t->unknown = shape.unknown;
  t->adds_bos = shape.adds_bos, t->adds_eos = shape.adds_eos, t->space_prefix = shape.space_prefix;
  t->window_bytes = TOK_WINDOW_BYTES;
  t->digest = tok_metadata_digest(file);
  STINT_TRY(tok_fill_vocab(t, file, &shape, error));
  if (t->kind == TOK_SPM) {
    STINT_TRY(tok_spm_load(t, error));
  } else {
    STINT_TRY(tok_bpe_load(t, shape.merges, error));
    STINT_TRY(tok_pre_load(t, error));
  }
  *out = t;
  return STINT_OK;
}

int32_t tokenizer_n_vocab(const tokenizer *t) { return t->n_vocab; }
int32_t tokenizer_bos(const tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const tokenizer *t) { return t->eos; }
bool tokenizer_adds_bos(const tokenizer *t) { return t->adds_bos; }
bool tokenizer_adds_eos(const tokenizer *t) { return t->adds_eos; }
uint64_t tokenizer_digest(const tokenizer *t) { return t->digest; }

/* ---- output ---- */

static bool flush(tokenizer *t) {
  const size_t n = t->n_out;
  t->n_out = 0;
  return n == 0 || t->sink(t->sink_context, t->out, n);
}

bool tok_emit(tokenizer *t, const int32_t id) {
  if (t->n_out == TOK_OUT_IDS && !flush(t)) return false;
  t->out[t->n_out++] = id;
  return true;
}

stint_status tok_stopped(stint_error *error) {
  return stint_fail(error, STINT_IO, "encoding was stopped by the receiver of the tokens");
}

stint_status tok_too_long(const tokenizer *t, const size_t at, stint_error *error) {
  return stint_fail(error, STINT_BAD_INPUT,
                    "the text before byte %zu has no place to cut it for %zu bytes; break it up", at,
                    t->window_bytes);
}

/* ---- documents ---- */

static stint_status encode_raw(tokenizer *t, const char *text, const size_t from, const size_t end,
                               const bool after_special, stint_error *error) {
  if (end == from) return STINT_OK;
  if (t->kind == TOK_BPE) return tok_bpe_encode(t, text + from, end - from, from, error);
  return tok_spm_encode(t, text + from, end - from, from, t->space_prefix && after_special, error);
}

/* The user's token of this length at this place, or -1. */
static int32_t user_token(const tokenizer *t, const char *text, const size_t n) {
  const int32_t id = tok_vocab_find(t, text, n);
  return id >= 0 && t->type[id] == TOK_USER ? id : -1;
}

/* The length of the longest user token that starts here; 0: none. */
static size_t longest_user(const tokenizer *t, const char *text, const size_t room) {
  const unsigned char first = (unsigned char)text[0];
  for (uint32_t i = t->user_at[first]; i < t->user_at[first + 1]; i++) {
    const size_t length = (uint32_t)~t->user[i];
    if (length <= room && user_token(t, text, length) >= 0) return length;
  }
  return 0;
}

/* Marks the tokens that win in a cluster of n bytes: 1 at a token's first byte, 2 at its others, 0 elsewhere. */
static void settle(tokenizer *t, const char *text, const size_t n) {
  char *const mark = t->mark;
  memset(mark, 0, n);
  for (uint32_t i = 0; i < t->n_user_lengths; i++) {
    const size_t length = t->user_lengths[i];
    /* tokens marked so far are at least this long: one that overlaps covers an end of this one */
    for (size_t p = 0; p + length <= n; p++) {
      const unsigned char first = (unsigned char)text[p];
      if (mark[p] || mark[p + length - 1] || t->user_at[first] == t->user_at[first + 1]) continue;
      if (user_token(t, text + p, length) < 0) continue;
      memset(mark + p, 2, length);
      mark[p] = 1;
    }
  }
}

static stint_status encode_split(tokenizer *t, const char *text, const size_t bytes, stint_error *error) {
  size_t raw = 0; /* where the text that waits for its end began */
  bool after_special = true;
  for (size_t p = 0; p < bytes;) {
    size_t reach = longest_user(t, text + p, bytes - p);
    if (reach == 0) {
      p++;
      continue;
    }
    size_t end = p + reach;
    for (size_t q = p + 1; q < end; q++) {
      reach = longest_user(t, text + q, bytes - q);
      if (q + reach > end) end = q + reach;
      if (end - p > t->window_bytes) return tok_too_long(t, end, error);
    }
    if (end - p > t->window_bytes) return tok_too_long(t, end, error);
    settle(t, text + p, end - p);
    for (size_t q = p; q < end;) {
      if (t->mark[q - p] != 1) {
        q++;
        continue;
      }
      size_t length = 1;
      while (q + length < end && t->mark[q - p + length] == 2) length++;
      const int32_t id = user_token(t, text + q, length);
      STINT_TRY(encode_raw(t, text, raw, q, after_special, error));
      if (!tok_emit(t, id)) return tok_stopped(error);
      after_special = true;
      q += length;
      raw = q;
    }
    p = end;
  }
  return encode_raw(t, text, raw, bytes, after_special, error);
}

stint_status tokenizer_encode(tokenizer *t, const char *text, const size_t bytes, const bool special,
                              token_sink *sink, void *context, stint_error *error) {
  t->sink = sink, t->sink_context = context;
  t->n_out = 0;
  if (special && t->adds_bos && !tok_emit(t, t->bos)) return tok_stopped(error);
  STINT_TRY(t->n_user ? encode_split(t, text, bytes, error) : encode_raw(t, text, 0, bytes, true, error));
  if (special && t->adds_eos && !tok_emit(t, t->eos)) return tok_stopped(error);
  return flush(t) ? STINT_OK : tok_stopped(error);
}

/* ---- back to text ---- */

typedef struct decoded {
  char *out;
  size_t room, n;
} decoded;

static void put(decoded *d, const char byte) {
  if (d->n < d->room) d->out[d->n] = byte;
  d->n++;
}

size_t tokenizer_decode(const tokenizer *t, const int32_t id, char *out, const size_t room) {
  decoded d = {out, room, 0};
  if (id < 0 || id >= t->n_vocab || t->type[id] == TOK_CONTROL || t->type[id] == TOK_UNKNOWN) return 0;
  size_t n;
  const char *text = tok_text(t, id, &n);
  if (t->type[id] == TOK_BYTE)
    for (int byte = 0; byte < 256; byte++)
      if (t->byte_id[byte] == id) {
        put(&d, (char)byte);
        return d.n;
      }
  for (size_t i = 0; i < n;) {
    if (t->type[id] != TOK_USER && t->kind == TOK_SPM && n - i >= 3 &&
        memcmp(text + i, "\xE2\x96\x81", 3) == 0) {
      put(&d, ' ');
      i += 3;
      continue;
    }
    if (t->type[id] != TOK_USER && t->kind == TOK_BPE) {
      size_t used;
      const int byte = tok_code_to_byte(tok_get_utf8(text + i, n - i, &used));
      if (byte >= 0) {
        put(&d, (char)byte);
        i += used;
        continue;
      }
    }
    put(&d, text[i++]);
  }
  return d.n;
}
