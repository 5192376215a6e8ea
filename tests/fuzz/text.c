/* libFuzzer target: any bytes as a tokenizer's metadata and a text.
 *
 *   [flags][number of tokens] then for each token [type and length][its bytes] then for merges [left][right] until 255
 *   and the rest is the text
 *
 * What must hold, beyond no report of the sanitizers: a refusal has a message; ids are of the vocabulary; a small window
 * gives the ids of the large one or says that the text cannot be cut. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(condition)                                                                                      \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                        \
      abort();                                                                                               \
    }                                                                                                        \
  } while (0)

enum { MOST = 255 + 256, BYTES = 65536 };

typedef struct input {
  const uint8_t *at, *end;
} input;
static unsigned take(input *in) { return in->at < in->end ? *in->at++ : 0; }

typedef struct ids {
  int32_t id[8192];
  size_t n;
  int32_t n_vocab;
} ids;

static bool collect(void *context, const int32_t *id, const size_t n) {
  ids *out = context;
  for (size_t i = 0; i < n; i++) {
    MUST(id[i] >= 0 && id[i] < out->n_vocab);
    if (out->n < sizeof out->id / sizeof out->id[0]) out->id[out->n++] = id[i];
  }
  return true;
}

static size_t put_text(unsigned char *out, const void *text, const uint64_t bytes) {
  memcpy(out, &bytes, 8);
  memcpy(out + 8, text, bytes);
  return 8 + bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, const size_t n) {
  static unsigned char tokens[BYTES], merges[BYTES];
  static int32_t types[MOST];
  static float scores[MOST];
  static const char *const rules[] = {"gpt-2", "smollm", "llama-bpe", "qwen2", "default"};
  if (n > 4096) return 0;
  input in = {data, data + n};
  const unsigned flags = take(&in), n_own = take(&in), n_more = flags & 1 ? 256 : 0;
  const bool bpe = flags & 2;
  size_t n_tokens = 0, token_bytes = 0, n_merges = 0, merge_bytes = 0;
  const uint8_t *own[255];
  size_t own_bytes[255];
  for (unsigned i = 0; i < n_own; i++) {
    const unsigned shape = take(&in);
    size_t length = shape & 15;
    if (length > (size_t)(in.end - in.at)) length = (size_t)(in.end - in.at);
    own[i] = in.at, own_bytes[i] = length;
    in.at += length;
    types[n_tokens] = (int32_t)(shape >> 4 & 7);
    scores[n_tokens++] = (float)(int8_t)(shape * 37) / 4;
    token_bytes += put_text(tokens + token_bytes, own[i], length);
  }
  for (unsigned byte = 0; byte < n_more; byte++) { /* a way to write every byte */
    char text[8];
    const size_t length = bpe ? tok_put_utf8(tok_byte_to_code((unsigned char)byte), text)
                              : (size_t)snprintf(text, sizeof text, "<0x%02X>", byte);
    types[n_tokens] = bpe ? 1 : 6;
    scores[n_tokens++] = 0;
    token_bytes += put_text(tokens + token_bytes, text, length);
  }
  for (unsigned left; n_own && (left = take(&in)) != 255 && in.at < in.end && n_merges < 256; n_merges++) {
    const unsigned right = take(&in) % n_own;
    char text[64];
    left %= n_own;
    memcpy(text, own[left], own_bytes[left]);
    text[own_bytes[left]] = ' ';
    memcpy(text + own_bytes[left] + 1, own[right], own_bytes[right]);
    merge_bytes += put_text(merges + merge_bytes, text, own_bytes[left] + own_bytes[right] + 1);
  }
#define NAME(text)                                                                                           \
  { text, sizeof(text) - 1 }
  const char *rule = rules[(flags >> 2) % 5];
  const unsigned char special = flags >> 5 & 1;
  gguf_key keys[] = {
      /* by name */
      {NAME("tokenizer.ggml.add_eos_token"), GGUF_BOOL, GGUF_BOOL, 1, &special, 1, 0},
      {NAME("tokenizer.ggml.add_space_prefix"), GGUF_BOOL, GGUF_BOOL, 1, &special, 1, 0},
      {NAME("tokenizer.ggml.merges"), GGUF_ARRAY, GGUF_STRING, n_merges, merges, merge_bytes, 0},
      {NAME("tokenizer.ggml.model"), GGUF_STRING, GGUF_STRING, 1,
       (const unsigned char *)(bpe ? "gpt2" : "llama"), bpe ? 4 : 5, 0},
      {NAME("tokenizer.ggml.pre"), GGUF_STRING, GGUF_STRING, 1, (const unsigned char *)rule, strlen(rule), 0},
      {NAME("tokenizer.ggml.scores"), GGUF_ARRAY, GGUF_F32, n_tokens, (const unsigned char *)scores,
       n_tokens * 4, 0},
      {NAME("tokenizer.ggml.token_type"), GGUF_ARRAY, GGUF_I32, n_tokens, (const unsigned char *)types,
       n_tokens * 4, 0},
      {NAME("tokenizer.ggml.tokens"), GGUF_ARRAY, GGUF_STRING, n_tokens, tokens, token_bytes, 0},
  };
  static const size_t order[] = {0, 1, 2, 3, 4, 5, 6, 7};
  const gguf_file file = {.path = "fuzz", .n_keys = 8, .keys = keys, .key_order = order};
  stint_error error = {0};
  size_t bytes;
  tokenizer *t = NULL;
  stint_status status = tokenizer_bytes(&file, &bytes, &error);
  static unsigned char *buffer;
  static size_t room;
  if (status == STINT_OK && bytes > room) {
    free(buffer);
    room = bytes;
    buffer = aligned_alloc(64, bytes);
  }
  if (status == STINT_OK) status = tokenizer_make(&file, buffer, bytes, &t, &error);
  if (status != STINT_OK) {
    MUST(error.text[0] && t == NULL && status != STINT_INTERNAL);
    return 0;
  }
  static ids whole, parts;
  whole.n = parts.n = 0;
  whole.n_vocab = parts.n_vocab = tokenizer_n_vocab(t);
  const char *text = (const char *)in.at;
  const size_t text_bytes = (size_t)(in.end - in.at);
  MUST(tokenizer_encode(t, text, text_bytes, true, collect, &whole, &error) == STINT_OK);
  t->window_bytes = 16 + flags % 32;
  status = tokenizer_encode(t, text, text_bytes, true, collect, &parts, &error);
  MUST(status == STINT_OK || status == STINT_BAD_INPUT);
  if (status == STINT_OK) MUST(whole.n == parts.n && memcmp(whole.id, parts.id, whole.n * 4) == 0);
  char out[64];
  for (int32_t id = 0; id < whole.n_vocab; id++) (void)tokenizer_decode(t, id, out, sizeof out);
  return 0;
}
