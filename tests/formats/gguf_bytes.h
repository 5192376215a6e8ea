/* GGUF files as bytes, laid out by hand: the tests' own writer, which knows nothing of the library's and will write
 * anything, right or wrong. Also: temporary folders, and whether a path is still mapped. */
#ifndef STINT_TESTS_FORMATS_GGUF_BYTES_H
#define STINT_TESTS_FORMATS_GGUF_BYTES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { T_U8, T_I8, T_U16, T_I16, T_U32, T_I32, T_F32, T_BOOL, T_STRING, T_ARRAY, T_U64, T_I64, T_F64 };

typedef struct bytes {
  unsigned char at[1 << 16];
  size_t n;
} bytes;

static inline void raw(bytes *const b, const void *const data, const size_t n) {
  if (b->n + n > sizeof b->at) abort();
  memcpy(b->at + b->n, data, n);
  b->n += n;
}

static inline void u8(bytes *const b, const unsigned v) { raw(b, &(unsigned char){(unsigned char)v}, 1); }
static inline void u32(bytes *const b, const uint32_t v) { raw(b, &v, sizeof v); }
static inline void u64(bytes *const b, const uint64_t v) { raw(b, &v, sizeof v); }
static inline void f32(bytes *const b, const float v) { raw(b, &v, sizeof v); }
static inline void text(bytes *const b, const char *const s) {
  u64(b, strlen(s));
  raw(b, s, strlen(s));
}

static inline void header(bytes *const b, const uint32_t version, const uint64_t n_tensors,
                          const uint64_t n_keys) {
  b->n = 0;
  raw(b, "GGUF", 4);
  u32(b, version);
  u64(b, n_tensors);
  u64(b, n_keys);
}

static inline void key(bytes *const b, const char *const name, const uint32_t type) {
  text(b, name);
  u32(b, type);
}

static inline void key_u32(bytes *const b, const char *const name, const uint32_t v) {
  key(b, name, T_U32);
  u32(b, v);
}

static inline void key_text(bytes *const b, const char *const name, const char *const v) {
  key(b, name, T_STRING);
  text(b, v);
}

static inline void array(bytes *const b, const char *const name, const uint32_t element, const uint64_t n) {
  key(b, name, T_ARRAY);
  u32(b, element);
  u64(b, n);
}

static inline void tensor(bytes *const b, const char *const name, const uint32_t type, const uint32_t n_dims,
                          const int64_t *const ne, const uint64_t offset) {
  text(b, name);
  u32(b, n_dims);
  raw(b, ne, n_dims * sizeof *ne);
  u32(b, type);
  u64(b, offset);
}
#define NE(...) ((const int64_t[]){__VA_ARGS__})

static inline void pad(bytes *const b, const size_t to) {
  while (b->n % to) u8(b, 0);
}

static inline void ramp_f32(bytes *const b, const int n) {
  for (int i = 0; i < n; i++) f32(b, (float)(i - n / 2));
}

/* A small file with one of everything, version 3, alignment 32. Its infos end at *header_bytes. */
static inline void good_file(bytes *const b, size_t *const header_bytes) {
  header(b, 3, 3, 7);
  key_text(b, "general.architecture", "test");
  key_u32(b, "n", 7);
  key(b, "x", T_F32);
  f32(b, 0.5f);
  key(b, "flag", T_BOOL);
  u8(b, 1);
  array(b, "texts", T_STRING, 3);
  text(b, "one"), text(b, ""), text(b, "three");
  array(b, "ints", T_I32, 2);
  u32(b, 1), u32(b, (uint32_t)-2);
  array(b, "flags", T_BOOL, 2);
  u8(b, 0), u8(b, 1);
  tensor(b, "a", 0, 2, NE(3, 2), 0);
  tensor(b, "b.weight", 8, 1, NE(32), 32);
  tensor(b, "c", 0, 1, NE(1), 96);
  *header_bytes = b->n;
  pad(b, 32);
  ramp_f32(b, 6);
  pad(b, 32);
  for (int i = 0; i < 34; i++) u8(b, (unsigned)i);
  pad(b, 32);
  f32(b, 42);
  pad(b, 32);
}

/* ---- files ---- */

static inline const char *folder(void) {
  static char name[] = "/tmp/stint-formats-XXXXXX";
  static int made;
  if (!made && !mkdtemp(name)) abort();
  made = 1;
  return name;
}

/* Paths live until the test ends. */
static inline const char *in_folder(const char *const name) {
  static char paths[8][256];
  static int next;
  char *const p = paths[next++ % 8];
  snprintf(p, sizeof paths[0], "%s/%s", folder(), name);
  return p;
}

static inline void store(const char *const path, const void *const data, const size_t n) {
  FILE *const f = fopen(path, "wb");
  if (!f || fwrite(data, 1, n, f) != n || fclose(f)) abort();
}

static inline size_t fetch(const char *const path, unsigned char *const data, const size_t room) {
  FILE *const f = fopen(path, "rb");
  if (!f) return 0;
  const size_t n = fread(data, 1, room, f);
  fclose(f);
  return n;
}

static inline int exists(const char *const path) { return !access(path, F_OK); }

static inline int is_mapped(const char *const path) {
  char line[1024];
  int found = 0;
  FILE *const f = fopen("/proc/self/maps", "r");
  while (f && fgets(line, sizeof line, f)) found |= strstr(line, path) != NULL;
  if (f) fclose(f);
  return found;
}

static inline void sweep(void) {
  char command[300];
  snprintf(command, sizeof command, "rm -rf '%s'", folder());
  if (system(command)) abort();
}

#endif
