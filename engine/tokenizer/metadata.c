/* What a GGUF says of its tokenizer, checked before anything is built on it.
 *
 * tok_read_shape reads only keys and counts (and the token types, to count the user's tokens); tok_fill_vocab walks the
 * texts into the tables. Each failure names the file, the key and the place. Key names and defaults: the GGUF
 * specification and what its writers do. */
#include "engine/tokenizer/parts.h"

#include <string.h>

#include "engine/data/digest.h"
#include "engine/formats/gguf_text.h"

#define TOKENS "tokenizer.ggml.tokens"
#define TYPES  "tokenizer.ggml.token_type"
#define SCORES "tokenizer.ggml.scores"
#define MERGES "tokenizer.ggml.merges"

/* An array of one of two element types, with `count` elements (0: any number above 0). */
static stint_status get_array(const gguf_file *file, const char *name, const gguf_type type,
                              const gguf_type other, const uint64_t count, const bool required,
                              const gguf_key **out, stint_error *error) {
  const gguf_key *key = *out = gguf_find_key(file, name);
  if (!key && !required) return STINT_OK;
  if (!key)
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s: the key %s is missing; convert the model again, with its tokenizer", file->path,
                      name);
  if (key->type != GGUF_ARRAY || (key->element != type && key->element != other))
    return stint_fail(
        error, STINT_BAD_INPUT, "%s: key %s, byte %zu: it is %s%s, and an array of %s is needed", file->path,
        name, key->offset, key->type == GGUF_ARRAY ? "an array of " : "",
        gguf_type_name(key->type == GGUF_ARRAY ? key->element : key->type), gguf_type_name(type));
  if (key->count == 0 || (count && key->count != count))
    return stint_fail(error, STINT_BAD_INPUT, "%s: key %s, byte %zu: it has %llu elements, and %llu %s",
                      file->path, name, key->offset, (unsigned long long)key->count,
                      (unsigned long long)(count ? count : 1),
                      count ? "tokens need as many" : "is the least");
  *out = key;
  return STINT_OK;
}

static stint_status get_kind(const gguf_file *file, tok_shape *s, stint_error *error) {
  gguf_text model, pre;
  char quoted[GGUF_QUOTE_BYTES];
  STINT_TRY(gguf_get_text(file, "tokenizer.ggml.model", &model, error));
  if (gguf_text_is(model, "llama")) {
    s->kind = TOK_SPM;
    return STINT_OK;
  }
  if (!gguf_text_is(model, "gpt2"))
    return stint_fail(error, STINT_UNSUPPORTED,
                      "%s: key tokenizer.ggml.model: %s is not a kind of tokenizer that stint knows; it "
                      "knows llama (SPM) and "
                      "gpt2 (BPE)",
                      file->path, gguf_quote(quoted, model));
  s->kind = TOK_BPE;
  STINT_TRY(gguf_get_text(file, "tokenizer.ggml.pre", &pre, error));
  s->pre = tok_pre_find(pre);
  if (s->pre) return STINT_OK;
  char names[400];
  tok_pre_names(names, sizeof names);
  return stint_fail(error, STINT_UNSUPPORTED,
                    "%s: key tokenizer.ggml.pre: %s is not a pre-tokenizer that stint knows, and a guess "
                    "would train on wrong "
                    "tokens; it knows %s",
                    file->path, gguf_quote(quoted, pre), names);
}

static stint_status get_special(const gguf_file *file, const char *name, const int32_t n_vocab,
                                const int32_t otherwise, int32_t *out, stint_error *error) {
  int64_t value;
  STINT_TRY(gguf_get_int_or(file, name, 0, n_vocab - 1, otherwise < n_vocab ? otherwise : -1, &value, error));
  *out = (int32_t)value;
  return STINT_OK;
}

stint_status tok_read_shape(const gguf_file *file, tok_shape *s, stint_error *error) {
  *s = (tok_shape){0};
  STINT_TRY(get_kind(file, s, error));
  STINT_TRY(get_array(file, TOKENS, GGUF_STRING, GGUF_STRING, 0, true, &s->tokens, error));
  const uint64_t n = s->tokens->count;
  if (n > TOK_MAX_VOCAB || s->tokens->value_bytes > UINT32_MAX - 8)
    return stint_fail(error, STINT_UNSUPPORTED,
                      "%s: key " TOKENS ": %llu tokens in %zu bytes; at most %d in 4 GiB are supported",
                      file->path, (unsigned long long)n, s->tokens->value_bytes, TOK_MAX_VOCAB);
  STINT_TRY(get_array(file, TYPES, GGUF_I32, GGUF_U32, n, false, &s->types, error));
  STINT_TRY(get_array(file, SCORES, GGUF_F32, GGUF_F32, n, false, &s->scores, error));
  if (s->kind == TOK_BPE) {
    STINT_TRY(get_array(file, MERGES, GGUF_STRING, GGUF_STRING, 0, true, &s->merges, error));
    if (s->merges->count > TOK_MAX_VOCAB)
      return stint_fail(error, STINT_UNSUPPORTED, "%s: key " MERGES ": %llu merges; at most %d are supported",
                        file->path, (unsigned long long)s->merges->count, TOK_MAX_VOCAB);
  }
  for (uint64_t i = 0; s->types && i < n; i++) s->n_user += gguf_array_int(s->types, i) == TOK_USER;

  const bool spm = s->kind == TOK_SPM;
  const int32_t n_vocab = (int32_t)n;
  STINT_TRY(get_special(file, "tokenizer.ggml.unknown_token_id", n_vocab, spm ? 0 : -1, &s->unknown, error));
  STINT_TRY(get_special(file, "tokenizer.ggml.bos_token_id", n_vocab, spm ? 1 : -1, &s->bos, error));
  STINT_TRY(get_special(file, "tokenizer.ggml.eos_token_id", n_vocab, spm ? 2 : -1, &s->eos, error));
  const bool adds_bos = spm || s->pre->adds_bos;
  STINT_TRY(gguf_get_bool_or(file, "tokenizer.ggml.add_bos_token", adds_bos, &s->adds_bos, error));
  STINT_TRY(gguf_get_bool_or(file, "tokenizer.ggml.add_eos_token", false, &s->adds_eos, error));
  STINT_TRY(gguf_get_bool_or(file, "tokenizer.ggml.add_space_prefix", spm, &s->space_prefix, error));
  if (s->adds_bos && s->bos < 0)
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s: the tokenizer starts a text with its BOS token, but the key "
                      "tokenizer.ggml.bos_token_id is missing; "
                      "add it, or set tokenizer.ggml.add_bos_token to false",
                      file->path);
  if (s->adds_eos && s->eos < 0)
    return stint_fail(
        error, STINT_BAD_INPUT,
        "%s: the key tokenizer.ggml.add_eos_token is true, but tokenizer.ggml.eos_token_id is missing",
        file->path);
  return STINT_OK;
}

static int hex_digit(const char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                : -1;
}

/* "<0x0A>" -> 10, anything else -> -1 */
static int byte_token(const char *text, const size_t n) {
  if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* The id of each byte: what falls back when no token fits. */
static stint_status fill_bytes(tokenizer *t, const gguf_file *file, stint_error *error) {
  for (int32_t id = 0; t->kind == TOK_SPM && id < t->n_vocab; id++) {
    size_t n;
    const char *text = tok_text(t, id, &n);
    const int byte = byte_token(text, n);
    if (byte >= 0) t->byte_id[byte] = id;
  }
  for (int byte = 0; byte < 256; byte++) {
    if (t->byte_id[byte] >= 0) continue;
    char text[4] = {(char)byte};
    const size_t n = t->kind == TOK_SPM ? 1 : tok_put_utf8(tok_byte_to_code((unsigned char)byte), text);
    t->byte_id[byte] = tok_vocab_find(t, text, n);
    if (t->byte_id[byte] < 0 && t->kind == TOK_SPM && t->type[t->unknown] == TOK_UNKNOWN)
      t->byte_id[byte] = t->unknown;
    if (t->byte_id[byte] < 0 && t->kind == TOK_SPM)
      return stint_fail(error, STINT_BAD_INPUT,
                        "%s: key " TOKENS ": no token stands for byte 0x%02X and there is no unknown token",
                        file->path, (unsigned)byte);
  }
  return STINT_OK;
}

/* Ascending and each once; the new count. (Shell's sort: the C library's may allocate.) */
static uint32_t sort_once(uint64_t *values, const uint32_t n) {
  for (uint32_t gap = n / 2; gap; gap /= 2)
    for (uint32_t i = gap; i < n; i++) {
      const uint64_t moved = values[i];
      uint32_t j = i;
      for (; j >= gap && values[j - gap] > moved; j -= gap) values[j] = values[j - gap];
      values[j] = moved;
    }
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; i++)
    if (kept == 0 || values[kept - 1] != values[i]) values[kept++] = values[i];
  return kept;
}

static uint32_t add_user(tokenizer *t, const int32_t id, const uint32_t n) {
  size_t bytes;
  const char *text = tok_text(t, id, &bytes);
  if (t->type[id] != TOK_USER || bytes == 0) return n;
  t->user[n] = (uint64_t)(unsigned char)text[0] << 32 | (uint32_t)~bytes;
  return n + 1;
}

/* First byte and length of each user token; and the lengths alone. */
static void fill_user(tokenizer *t) {
  uint32_t n = 0;
  for (int32_t id = 0; id < t->n_vocab; id++) n = add_user(t, id, n);
  for (uint32_t i = 0; i < n; i++) t->user[i] &= UINT32_MAX; /* the lengths first, in the same memory */
  t->n_user_lengths = sort_once(t->user, n);
  for (uint32_t i = 0; i < t->n_user_lengths; i++) t->user_lengths[i] = ~(uint32_t)t->user[i];
  n = 0;
  for (int32_t id = 0; id < t->n_vocab; id++) n = add_user(t, id, n);
  const uint32_t kept = sort_once(t->user, n);
  t->n_user = kept;
  for (uint32_t i = 0, byte = 0; byte <= 256; byte++) {
    while (i < kept && t->user[i] >> 32 < byte) i++;
    t->user_at[byte] = i;
  }
}

stint_status tok_fill_vocab(tokenizer *t, const gguf_file *file, const tok_shape *s, stint_error *error) {
  t->texts = s->tokens->value;
  t->scores = s->scores ? s->scores->value : NULL;
  gguf_strings walk = {.key = s->tokens};
  gguf_text text;
  uint32_t i = 0;
  for (; gguf_next_string(&walk, &text); i++) {
    t->text_at[i] = (uint32_t)((const unsigned char *)text.data - t->texts);
    if (text.bytes > t->max_token_bytes) t->max_token_bytes = (uint32_t)text.bytes;
    const int64_t type = s->types ? gguf_array_int(s->types, i) : TOK_NORMAL;
    t->type[i] = (uint8_t)(type >= TOK_NORMAL && type <= TOK_BYTE ? type : TOK_NORMAL);
    const float score = tok_score(t, (int32_t)i);
    if (score != score)
      return stint_fail(error, STINT_BAD_INPUT, "%s: key " SCORES ", byte %zu: element %u is not a number",
                        file->path, s->scores->offset, i);
  }
  if (i != s->tokens->count)
    return stint_fail(error, STINT_INTERNAL, "%s: key " TOKENS ": its texts end early", file->path);
  t->text_at[i] = (uint32_t)s->tokens->value_bytes + 8;
  for (int32_t id = 0; id < t->n_vocab; id++)
    if (t->type[id] != TOK_CONTROL && t->type[id] != TOK_UNKNOWN && t->type[id] != TOK_BYTE)
      tok_vocab_add(t, id);
  for (int byte = 0; byte < 256; byte++) t->byte_id[byte] = -1;
  fill_user(t);
  return fill_bytes(t, file, error);
}

uint64_t tok_metadata_digest(const gguf_file *file) {
  digest d;
  digest_start(&d);
  for (size_t i = 0; i < file->n_keys; i++) {
    const gguf_key *key = &file->keys[i];
    if (key->name.bytes < 10 || memcmp(key->name.data, "tokenizer.", 10) != 0) continue;
    if (gguf_text_is(key->name, "tokenizer.chat_template")) continue; /* names no token of a text */
    digest_add(&d, key->name.data, key->name.bytes);
    digest_add(&d, key->value, key->value_bytes);
  }
  return digest_end(&d);
}
