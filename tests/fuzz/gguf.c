/* libFuzzer target: any bytes as a GGUF file and as a line of JSON.
 *
 * What must hold, beyond no report of the sanitizers: the parser's memory is bounded by the input; a refusal has a
 * message with place and remedy; what is accepted can be walked in full. The corpus (corpus/gguf) is replayed by
 * tests/formats/test_fuzz_replay.c in every run of the tests.
 * How to build and run: meson.build beside this file. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/formats/gguf.h"
#include "engine/formats/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(condition)                                                                                      \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                        \
      abort();                                                                                               \
    }                                                                                                        \
  } while (0)

static uint64_t walk(const gguf_file *const f) {
  uint64_t sum = 0;
  for (size_t i = 0; i < f->n_keys; i++) {
    const gguf_key *const k = &f->keys[i];
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(k->name.bytes < 63 ? k->name.bytes : 63), k->name.data);
    if (k->name.bytes < 63) MUST(gguf_find_key(f, name) == k);
    for (size_t j = 0; j < k->value_bytes; j++) sum += k->value[j];
    gguf_strings strings = {.key = k};
    gguf_text t;
    uint64_t n = 0;
    while (gguf_next_string(&strings, &t)) {
      n++;
      for (size_t j = 0; j < t.bytes; j++) sum += (unsigned char)t.data[j];
    }
    if (k->type == GGUF_ARRAY && k->element == GGUF_STRING) MUST(n == k->count);
    if (k->type == GGUF_ARRAY && k->element != GGUF_STRING && k->count)
      sum += (uint64_t)gguf_array_int(k, k->count - 1) + (gguf_array_float(k, k->count - 1) > 0);
    int64_t v;
    double x;
    bool flag;
    if (gguf_get_int(f, name, -5, 5, &v, NULL) == STINT_OK) MUST(v >= -5 && v <= 5);
    if (gguf_get_float_or(f, name, 1, &x, NULL) == STINT_OK) MUST(__builtin_isfinite(x));
    (void)gguf_get_bool_or(f, name, true, &flag, NULL);
    if (gguf_get_text(f, name, &t, NULL) == STINT_OK) MUST(t.data);
  }
  size_t end = 0;
  for (size_t i = 0; i < f->n_tensors; i++) {
    const gguf_tensor *const t = &f->tensors[i];
    MUST(gguf_find_tensor(f, t->name) == t && strlen(t->name) < 64);
    int64_t n = 1;
    for (int d = 0; d < 4; d++) n *= t->ne[d];
    MUST(n > 0 && dtype_bytes(t->type, n) == t->bytes &&
         t->offset % f->alignment == f->data_offset % f->alignment);
    if (f->header_only) continue;
    end = t->offset + t->bytes;
    MUST(end <= f->map.bytes);
    for (size_t j = 0; j < t->bytes; j++) sum += ((const unsigned char *)t->data)[j];
  }
  return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *const data, const size_t n) {
  bump memory;
  bump_init(&memory, 0);
  gguf_file f;
  stint_error error = {0};
  const stint_status status = gguf_parse("f", data, n, &memory, &f, &error);
  MUST(memory.used_bytes <= 8 * n + 1024);
  if (status == STINT_OK) {
    (void)walk(&f);
    gguf_close(&f);
  } else {
    MUST(error.status == status && !strncmp(error.text, "f: byte ", 8) && strchr(error.text, ';'));
  }
  bump_free(&memory);

  static _Alignas(16) unsigned char space[1 << 16];
  json_text t;
  const stint_status read =
      json_read_member((const char *)data, n, "text", "f", 1, space, sizeof space, &t, &error);
  if (read == STINT_OK) {
    char out[256];
    json_out o;
    json_out_open(&o, out, sizeof out);
    json_out_text_n(&o, t.data, t.bytes);
    (void)json_out_close(&o);
    MUST(o.used < sizeof out);
  } else {
    MUST(!t.data && !strncmp(error.text, "f:1: ", 5) && strchr(error.text, ';'));
  }
  return 0;
}
