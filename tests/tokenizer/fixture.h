/* Tokenizers for tests: GGUF metadata built key by key, so that a test can also build what no writer would.
 *
 * fixture_spm and fixture_bpe start sound ones; the put functions replace a key or add one; fixture_open writes the
 * file, reads it back with the project's reader and makes the tokenizer in a buffer of exactly the stated size,
 * with marked bytes behind it. */
#ifndef STINT_TESTS_TOKENIZER_FIXTURE_H
#define STINT_TESTS_TOKENIZER_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/formats/gguf.h"
#include "engine/tokenizer/tokenizer.h"

enum { FIXTURE_KEYS = 32, FIXTURE_MARGIN = 256 };

typedef struct fixture {
  gguf_key keys[FIXTURE_KEYS];
  size_t n_keys;
  /* once open */
  char path[64];
  bump memory;
  gguf_file file;
  unsigned char *buffer;
  size_t bytes;
  tokenizer *t;
} fixture;

__attribute__((unused)) static void fixture_put(fixture *f, const char *name, gguf_type type,
                                                gguf_type element, uint64_t count, const void *value,
                                                size_t bytes) {
  size_t i = 0;
  while (i < f->n_keys && !gguf_text_is(f->keys[i].name, name)) i++;
  if (i == f->n_keys)
    f->n_keys++;
  else
    free((void *)f->keys[i].value);
  unsigned char *copy = malloc(bytes + 1); /* until fixture_close */
  memcpy(copy, value, bytes);
  f->keys[i] = (gguf_key){.name = {name, strlen(name)},
                          .type = type,
                          .element = element,
                          .count = count,
                          .value = copy,
                          .value_bytes = bytes};
}

__attribute__((unused)) static void fixture_drop(fixture *f, const char *name) {
  size_t kept = 0;
  for (size_t i = 0; i < f->n_keys; i++)
    if (!gguf_text_is(f->keys[i].name, name))
      f->keys[kept++] = f->keys[i];
    else
      free((void *)f->keys[i].value);
  f->n_keys = kept;
}

__attribute__((unused)) static void fixture_text(fixture *f, const char *name, const char *text) {
  fixture_put(f, name, GGUF_STRING, GGUF_STRING, 1, text, strlen(text));
}
__attribute__((unused)) static void fixture_u32(fixture *f, const char *name, uint32_t value) {
  fixture_put(f, name, GGUF_U32, GGUF_U32, 1, &value, 4);
}
__attribute__((unused)) static void fixture_bool(fixture *f, const char *name, bool value) {
  const unsigned char byte = value;
  fixture_put(f, name, GGUF_BOOL, GGUF_BOOL, 1, &byte, 1);
}
__attribute__((unused)) static void fixture_texts(fixture *f, const char *name, const char *const *texts,
                                                  size_t n) {
  size_t bytes = 0;
  for (size_t i = 0; i < n; i++) bytes += 8 + strlen(texts[i]);
  unsigned char *value = malloc(bytes + 1), *at = value;
  for (size_t i = 0; i < n; i++) {
    const uint64_t length = strlen(texts[i]);
    memcpy(at, &length, 8);
    memcpy(at + 8, texts[i], length);
    at += 8 + length;
  }
  fixture_put(f, name, GGUF_ARRAY, GGUF_STRING, n, value, bytes);
  free(value);
}

/* A vocabulary under construction. */
typedef struct fixture_vocab {
  char text[4096][64];
  const char *pointer[4096];
  int32_t type[4096];
  float score[4096];
  size_t n;
} fixture_vocab;

__attribute__((unused)) static int32_t fixture_add(fixture_vocab *v, const char *text, int32_t type,
                                                   float score) {
  snprintf(v->text[v->n], sizeof v->text[0], "%s", text);
  v->pointer[v->n] = v->text[v->n];
  v->type[v->n] = type;
  v->score[v->n] = score;
  return (int32_t)v->n++;
}

/* <unk>, <s>, </s>, then the 256 bytes: ids 3 + byte. */
__attribute__((unused)) static void fixture_spm_base(fixture_vocab *v) {
  v->n = 0;
  fixture_add(v, "<unk>", 2, 0);
  fixture_add(v, "<s>", 3, 0);
  fixture_add(v, "</s>", 3, 0);
  for (unsigned byte = 0; byte < 256; byte++) {
    char text[8];
    snprintf(text, sizeof text, "<0x%02X>", byte);
    fixture_add(v, text, 6, 0);
  }
}

/* The alphabet of bytes, written here a second time from its definition: ids are the bytes. */
__attribute__((unused)) static void fixture_bpe_base(fixture_vocab *v) {
  v->n = 0;
  for (unsigned byte = 0, shifted = 256; byte < 256; byte++) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const unsigned code = printable ? byte : shifted++;
    char text[3] = {(char)code, 0, 0};
    if (code >= 0x80) text[0] = (char)(0xC0 | code >> 6), text[1] = (char)(0x80 | (code & 63));
    fixture_add(v, text, 1, 0);
  }
}

__attribute__((unused)) static void fixture_vocab_keys(fixture *f, const fixture_vocab *v) {
  fixture_texts(f, "tokenizer.ggml.tokens", v->pointer, v->n);
  fixture_put(f, "tokenizer.ggml.token_type", GGUF_ARRAY, GGUF_I32, v->n, v->type, v->n * 4);
}

__attribute__((unused)) static void fixture_spm(fixture *f, const fixture_vocab *v) {
  *f = (fixture){0};
  fixture_text(f, "general.architecture", "llama");
  fixture_text(f, "tokenizer.ggml.model", "llama");
  fixture_vocab_keys(f, v);
  fixture_put(f, "tokenizer.ggml.scores", GGUF_ARRAY, GGUF_F32, v->n, v->score, v->n * 4);
}

__attribute__((unused)) static void fixture_bpe(fixture *f, const fixture_vocab *v, const char *pre,
                                                const char *const *merges, size_t n_merges) {
  *f = (fixture){0};
  fixture_text(f, "general.architecture", "llama");
  fixture_text(f, "tokenizer.ggml.model", "gpt2");
  fixture_text(f, "tokenizer.ggml.pre", pre);
  fixture_vocab_keys(f, v);
  fixture_texts(f, "tokenizer.ggml.merges", merges, n_merges);
}

/* Makes a tokenizer of an open file, in exactly the bytes that it said. */
__attribute__((unused)) static stint_status fixture_make(fixture *f, stint_error *error) {
  STINT_TRY(tokenizer_bytes(&f->file, &f->bytes, error));
  f->buffer = aligned_alloc(64, (f->bytes + FIXTURE_MARGIN + 63) / 64 * 64);
  memset(f->buffer, 0xA5, f->bytes + FIXTURE_MARGIN);
  return tokenizer_make(&f->file, f->buffer, f->bytes, &f->t, error);
}

__attribute__((unused)) static stint_status fixture_open(fixture *f, stint_error *error) {
  static int count;
  snprintf(f->path, sizeof f->path, "tokenizer-%d-%d.gguf", (int)getpid(), count++);
  bump scratch;
  bump_init(&scratch, 0);
  gguf_writer *w;
  STINT_TRY(gguf_write_open(f->path, &scratch, &w, error));
  for (size_t i = 0; i < f->n_keys; i++) gguf_write_key(w, &f->keys[i]);
  const stint_status written = gguf_write_close(w, error);
  bump_free(&scratch);
  bump_init(&f->memory, 0);
  stint_status status = written != STINT_OK ? written : gguf_open(f->path, &f->memory, &f->file, error);
  (void)unlink(f->path); /* the map keeps it */
  if (status == STINT_OK) status = fixture_make(f, error);
  return status;
}

/* True while nothing was written behind the stated size. */
__attribute__((unused)) static bool fixture_in_bounds(const fixture *f) {
  for (size_t i = 0; i < FIXTURE_MARGIN; i++)
    if (f->buffer[f->bytes + i] != 0xA5) return false;
  return true;
}

__attribute__((unused)) static void fixture_close(fixture *f) {
  free(f->buffer);
  for (size_t i = 0; i < f->n_keys; i++) free((void *)f->keys[i].value);
  if (f->file.map.base) gguf_close(&f->file);
  bump_free(&f->memory);
}

/* Ids, collected. */
typedef struct fixture_ids {
  int32_t *id;
  size_t n, room;
} fixture_ids;

__attribute__((unused)) static bool fixture_sink(void *context, const int32_t *ids, size_t n) {
  fixture_ids *out = context;
  if (out->n + n > out->room) {
    out->room = 2 * out->room + n;
    out->id = realloc(out->id, out->room * sizeof *out->id);
  }
  memcpy(out->id + out->n, ids, n * sizeof *ids);
  out->n += n;
  return true;
}

#endif
