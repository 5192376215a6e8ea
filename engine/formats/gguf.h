/* GGUF files, read as hostile and written exactly as readers in the field demand.
 *
 * The reader maps the file and indexes its keys and tensors in the caller's bump; strings and arrays stay in
 * the map. Every count, length and product is checked against the file's size before it is used, so memory
 * is bounded by the file (about five times its header) and not by its claims. A file may end after its header
 * (`header_only`): planning needs no data; tensors then have no data pointer; sizes then are claims, of which no sum
 * wraps. Source: the GGUF specification, version 3 (2 is read). */
#ifndef STINT_ENGINE_FORMATS_GGUF_H
#define STINT_ENGINE_FORMATS_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/bump.h"
#include "arena/reserve.h"
#include "arena/status.h"
#include "kernels/quant/dtype.h"

typedef enum gguf_type {
  GGUF_U8,
  GGUF_I8,
  GGUF_U16,
  GGUF_I16,
  GGUF_U32,
  GGUF_I32,
  GGUF_F32,
  GGUF_BOOL,
  GGUF_STRING,
  GGUF_ARRAY,
  GGUF_U64,
  GGUF_I64,
  GGUF_F64,
  GGUF_TYPES
} gguf_type;

typedef struct gguf_text {
  const char *data;
  size_t bytes;
} gguf_text; /* not NUL-terminated; in the map */

typedef struct gguf_key {
  gguf_text name;
  gguf_type type, element; /* element: of an array */
  uint64_t count;          /* of an array; 1 otherwise */
  const unsigned char
      *value; /* little-endian, unaligned; of a string: its text; of a string array: the first length field */
  size_t value_bytes;
  size_t offset; /* of the value in the file, for messages */
} gguf_key;

typedef struct gguf_tensor {
  const char *name; /* NUL-terminated, in the bump */
  dtype type;
  int n_dims;
  int64_t ne[4];
  size_t offset; /* from the start of the file */
  size_t bytes;
  const void *data; /* in the map; NULL when the file is only a header */
} gguf_tensor;

typedef struct gguf_file {
  const char *path; /* as the caller gave it, copied */
  file_map map;
  uint32_t version;
  size_t alignment, data_offset;
  size_t n_keys, n_tensors;
  gguf_key *keys;
  gguf_tensor *tensors;
  bool header_only;                       /* there are tensors, and their data is absent altogether */
  bool borrowed;                          /* over a caller's bytes (gguf_parse), not over a map */
  const size_t *key_order, *tensor_order; /* by name: lookups are binary searches */
} gguf_file;

/* Opens, checks and indexes. On failure nothing stays mapped. */
stint_status gguf_open(const char *path, bump *b, gguf_file *out, stint_error *error);
/* The same over bytes in memory, which must outlive `out`; `name` stands for the path in messages. */
stint_status gguf_parse(const char *name, const unsigned char *base, size_t bytes, bump *b, gguf_file *out,
                        stint_error *error);
void gguf_close(gguf_file *file); /* safe to repeat, and on a file that never opened if it is zeroed */

const gguf_key *gguf_find_key(const gguf_file *file, const char *name);
const gguf_tensor *gguf_find_tensor(const gguf_file *file, const char *name);

/* Typed reads. Each returns BAD_INPUT with key, file and offset when the key is missing or of another kind, or its value is
 * out of [lowest, highest] (a float: not finite). Integers accept every GGUF integer type, floats F32 and F64. `_or` forms
 * give a default when the key is missing (and still refuse a wrong type). */
stint_status gguf_get_int(const gguf_file *, const char *key, int64_t lowest, int64_t highest, int64_t *out,
                          stint_error *);
stint_status gguf_get_int_or(const gguf_file *, const char *key, int64_t lowest, int64_t highest,
                             int64_t otherwise, int64_t *out, stint_error *);
stint_status gguf_get_float_or(const gguf_file *, const char *key, double otherwise, double *out,
                               stint_error *);
stint_status gguf_get_bool_or(const gguf_file *, const char *key, bool otherwise, bool *out, stint_error *);
stint_status gguf_get_text(const gguf_file *, const char *key, gguf_text *out, stint_error *);
stint_status gguf_get_text_or(const gguf_file *, const char *key, const char *otherwise, gguf_text *out,
                              stint_error *);
bool gguf_text_is(gguf_text t, const char *literal);

/* Walks a string array: start with {.key = key}; returns false past the end, and at once when the key is NULL or no
 * array of strings. Checked at open: no bounds can fail. */
typedef struct gguf_strings {
  const gguf_key *key;
  uint64_t index;
  const unsigned char *at;
} gguf_strings;
bool gguf_next_string(gguf_strings *walk, gguf_text *out);
/* Element i of an array of numbers, widened. */
int64_t gguf_array_int(const gguf_key *key, uint64_t i);
double gguf_array_float(const gguf_key *key, uint64_t i);

/* ---- writing ---- keys, then tensors, then each tensor's data in order, whole or in pieces; the writer emits the
 * header before the first data, pads, and checks that the data is exactly what was declared. The header is staged in
 * the bump (or in the caller's buffer, with bump_init_over: gguf_write_scratch says how much), the file is written
 * through one descriptor to `path.tmp`; gguf_write_close syncs and renames, so that a failure leaves whatever stood
 * at `path` before, and no `path.tmp`. Alignment is 32. The first error is kept and told by close. */
typedef struct gguf_writer gguf_writer;
stint_status gguf_write_open(const char *path, bump *b, gguf_writer **out, stint_error *error);
void gguf_write_text(gguf_writer *, const char *key, const char *text, size_t bytes);
void gguf_write_u32(gguf_writer *, const char *key, uint32_t value);
void gguf_write_u64(gguf_writer *, const char *key, uint64_t value);
void gguf_write_f32(gguf_writer *, const char *key, float value);
void gguf_write_bool(gguf_writer *, const char *key, bool value);
void gguf_write_f32_array(gguf_writer *, const char *key, const float *values, size_t n);
void gguf_write_i32_array(gguf_writer *, const char *key, const int32_t *values, size_t n);
void gguf_write_text_array(gguf_writer *, const char *key, const gguf_text *texts, size_t n);
/* A copy from another file, which must stay open until close: large values are not staged but written from its map.
 * `general.alignment` is left out: the writer has its own. */
void gguf_write_key(gguf_writer *, const gguf_key *key);
void gguf_write_tensor(gguf_writer *, const char *name, dtype type, int n_dims, const int64_t *ne);
void gguf_write_data(gguf_writer *, const void *data, size_t bytes);
stint_status gguf_write_close(gguf_writer *, stint_error *error); /* frees the descriptor in every case */
void gguf_write_abandon(gguf_writer *); /* gives up: removes path.tmp; `path` is untouched */

/* Bytes of bump that a writer uses for a header of that many bytes (keys and tensor infos) with n_tensors and
 * n_keys copied keys, to a path of path_bytes: an upper bound. */
size_t gguf_write_scratch(size_t header_bytes, size_t n_tensors, size_t n_copied_keys, size_t path_bytes);

#endif
