/* The GGUF reader: one cursor over the mapped bytes, one pass, nothing trusted.
 *
 * Algorithm: header, keys and tensor infos are walked in order; each length is compared with what is left of the
 * file before a byte behind it is touched, each count with (what is left) / (the smallest entry) before an array for it is
 * taken, each product and sum is formed with overflow checks. Names are then sorted as index arrays by heapsort
 * (no scratch, n log n on every input), which finds duplicates and serves the lookups; tensors sorted by offset show
 * overlaps the same way.
 *
 * Invariant: after STINT_OK every pointer in the index plus its length lies within the map, so that no accessor
 * needs a check of bounds. Source: the GGUF specification, versions 2 and 3. */
#include "engine/formats/gguf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/formats/gguf_text.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "values are copied from a little-endian file as they are");

enum {
  NAME_LIMIT = 63,      /* bytes of a tensor's name, as readers in the field demand */
  KEY_LIMIT = 65535,    /* bytes of a key, by the specification */
  KEY_SMALLEST = 14,    /* length, one character, type, one byte */
  TENSOR_SMALLEST = 33, /* length, one character, dimensions, one size, type, offset */
  ALIGNMENT_DEFAULT = 32,
  ALIGNMENT_LIMIT = 1 << 20,
};

#define AGAIN "; the file is damaged or incomplete: download or convert it again"

typedef struct cursor {
  const char *path;
  const unsigned char *base;
  size_t at, bytes;
  /* what is being read, for messages */
  const char *kind; /* "header", "key", "tensor" */
  size_t index;
  gguf_text name; /* empty until it is known */
  stint_error *error;
} cursor;

/* "model.gguf: byte 57, key 3 ('general.alignment'): <what><remedy>" */
STINT_PRINTF(4, 5)
static stint_status reject(const cursor *const c, const stint_status status, const size_t at,
                           const char *const format, ...) {
  char what[400], where[GGUF_QUOTE_BYTES + 48];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  if (c->name.bytes) {
    char name[GGUF_QUOTE_BYTES];
    snprintf(where, sizeof where, "%s %zu (%s)", c->kind, c->index, gguf_quote(name, c->name));
  } else if (c->kind[0] == 'h') {
    snprintf(where, sizeof where, "header");
  } else {
    snprintf(where, sizeof where, "%s %zu", c->kind, c->index);
  }
  return stint_fail(c->error, status, "%s: byte %zu, %s: %s", c->path, at, where, what);
}

static size_t left(const cursor *const c) { return c->bytes - c->at; }

static stint_status take(cursor *const c, const size_t n, const char *const what,
                         const unsigned char **const out) {
  *out = c->base + c->at;
  if (n > left(c))
    return reject(c, STINT_BAD_INPUT, c->at, "%s takes %zu bytes, and the file ends after %zu" AGAIN, what, n,
                  left(c));
  c->at += n;
  return STINT_OK;
}

static stint_status take_u32(cursor *const c, const char *const what, uint32_t *const out) {
  const unsigned char *p = NULL;
  STINT_TRY(take(c, sizeof *out, what, &p));
  memcpy(out, p, sizeof *out);
  return STINT_OK;
}

static stint_status take_u64(cursor *const c, const char *const what, uint64_t *const out) {
  const unsigned char *p = NULL;
  STINT_TRY(take(c, sizeof *out, what, &p));
  memcpy(out, p, sizeof *out);
  return STINT_OK;
}

static stint_status take_text(cursor *const c, const char *const what, gguf_text *const out) {
  const size_t at = c->at;
  uint64_t n;
  STINT_TRY(take_u64(c, what, &n));
  if (n > left(c))
    return reject(c, STINT_BAD_INPUT, at, "%s says that it is %llu bytes long, and %zu are left" AGAIN, what,
                  (unsigned long long)n, left(c));
  *out = (gguf_text){(const char *)c->base + c->at, (size_t)n};
  c->at += (size_t)n;
  return STINT_OK;
}

static stint_status take_name(cursor *const c, const size_t limit, gguf_text *const out) {
  const size_t at = c->at;
  STINT_TRY(take_text(c, "the name", out));
  if (!out->bytes) return reject(c, STINT_BAD_INPUT, at, "the name is empty" AGAIN);
  const char *const nul = memchr(out->data, 0, out->bytes);
  if (nul)
    return reject(c, STINT_BAD_INPUT, at + 8 + (size_t)(nul - out->data), "the name holds a NUL" AGAIN);
  c->name = *out;
  if (out->bytes > limit)
    return reject(c, STINT_BAD_INPUT, at, "the name is %zu bytes long, at most %zu are allowed; rename it",
                  out->bytes, limit);
  return STINT_OK;
}

static void *take_memory(const cursor *const c, bump *const b, const size_t n, const size_t size,
                         stint_status *const s) {
  void *const p = bump_take_n(b, n, size);
  if (!p)
    *s = reject(c, STINT_NO_MEMORY, c->at,
                "the index of %zu entries of %zu bytes does not fit the memory for loading; "
                "allow more",
                n, size);
  return p;
}

/* ---- keys ---- */

static size_t scalar_bytes(const gguf_type t) {
  static const unsigned char bytes[GGUF_TYPES] = {
      [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
      [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};
  return bytes[t];
}

static stint_status take_type(cursor *const c, const char *const what, gguf_type *const out) {
  const size_t at = c->at;
  uint32_t id;
  STINT_TRY(take_u32(c, what, &id));
  if (id >= GGUF_TYPES)
    return reject(c, STINT_BAD_INPUT, at, "%s is %u, and GGUF knows 0 to %d" AGAIN, what, id, GGUF_TYPES - 1);
  *out = (gguf_type)id;
  return STINT_OK;
}

static stint_status check_bools(const cursor *const c, const gguf_key *const k) {
  for (size_t i = 0; i < k->value_bytes; i++) {
    if (k->value[i] > 1)
      return reject(c, STINT_BAD_INPUT, k->offset + i, "a bool is 0 or 1, and this one is %d" AGAIN,
                    k->value[i]);
  }
  return STINT_OK;
}

static stint_status take_array(cursor *const c, gguf_key *const k) {
  STINT_TRY(take_type(c, "the array's element type", &k->element));
  if (k->element == GGUF_ARRAY)
    return reject(c, STINT_UNSUPPORTED, c->at - 4, "arrays of arrays are not read; remove the key");
  const size_t at = c->at;
  STINT_TRY(take_u64(c, "the array's count", &k->count));
  const size_t smallest = k->element == GGUF_STRING ? 8 : scalar_bytes(k->element);
  if (k->count > left(c) / smallest)
    return reject(c, STINT_BAD_INPUT, at,
                  "the array says that it has %llu elements, and the %zu bytes left hold %zu" AGAIN,
                  (unsigned long long)k->count, left(c), left(c) / smallest);
  k->offset = c->at;
  k->value = c->base + c->at;
  if (k->element == GGUF_STRING) {
    gguf_text text;
    for (uint64_t i = 0; i < k->count; i++) STINT_TRY(take_text(c, "a string of the array", &text));
  } else {
    c->at += (size_t)k->count * smallest;
  }
  k->value_bytes = c->at - k->offset;
  return k->element == GGUF_BOOL ? check_bools(c, k) : STINT_OK;
}

static stint_status take_key(cursor *const c, gguf_key *const k) {
  STINT_TRY(take_name(c, KEY_LIMIT, &k->name));
  STINT_TRY(take_type(c, "the value's type", &k->type));
  k->element = k->type;
  k->count = 1;
  if (k->type == GGUF_ARRAY) return take_array(c, k);
  if (k->type == GGUF_STRING) {
    gguf_text text;
    STINT_TRY(take_text(c, "the value", &text));
    k->value = (const unsigned char *)text.data;
    k->value_bytes = text.bytes;
    k->offset = c->at - text.bytes;
    return STINT_OK;
  }
  k->offset = c->at;
  k->value_bytes = scalar_bytes(k->type);
  STINT_TRY(take(c, k->value_bytes, "the value", &k->value));
  return k->type == GGUF_BOOL ? check_bools(c, k) : STINT_OK;
}

/* ---- tensors ---- */

static stint_status measure(const cursor *const c, gguf_tensor *const t, const size_t at) {
  const dtype_row *const row = dtype_find(t->type);
  if (t->ne[0] % row->block_elements)
    return reject(c, STINT_BAD_INPUT, at, "a row has %lld elements, and %s stores blocks of %lld" AGAIN,
                  (long long)t->ne[0], row->name, (long long)row->block_elements);
  int64_t n = 1, bytes;
  for (int i = 0; i < 4; i++) {
    if (__builtin_mul_overflow(n, t->ne[i], &n)) n = -1;
    if (n < 0) break;
  }
  if (n < 0 || __builtin_mul_overflow(n / row->block_elements, (int64_t)row->block_bytes, &bytes))
    return reject(c, STINT_BAD_INPUT, at,
                  "the sizes [%lld, %lld, %lld, %lld] multiply to more than 2^63" AGAIN, (long long)t->ne[0],
                  (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3]);
  t->bytes = (size_t)bytes;
  return STINT_OK;
}

/* t->offset is from the start of the data until place_tensors knows where that is. */
static stint_status take_tensor(cursor *const c, bump *const b, gguf_tensor *const t) {
  gguf_text name;
  STINT_TRY(take_name(c, NAME_LIMIT, &name));
  const size_t at = c->at;
  uint32_t n_dims, type;
  STINT_TRY(take_u32(c, "the number of dimensions", &n_dims));
  if (n_dims < 1 || n_dims > 4)
    return reject(c, STINT_BAD_INPUT, at, "it has %u dimensions, 1 to 4 are allowed" AGAIN, n_dims);
  t->n_dims = (int)n_dims;
  for (int i = 0; i < 4; i++) t->ne[i] = 1;
  for (int i = 0; i < t->n_dims; i++) {
    uint64_t ne;
    STINT_TRY(take_u64(c, "a size", &ne));
    if (ne < 1 || ne > INT64_MAX)
      return reject(c, STINT_BAD_INPUT, c->at - 8, "size %d is %lld, at least 1 is needed" AGAIN, i,
                    (long long)ne);
    t->ne[i] = (int64_t)ne;
  }
  STINT_TRY(take_u32(c, "the type", &type));
  if (!dtype_find(type))
    return reject(c, STINT_UNSUPPORTED, c->at - 4,
                  "type %u is none that this program knows; convert the model to another type", type);
  t->type = (dtype)type;
  STINT_TRY(measure(c, t, at));
  uint64_t offset;
  STINT_TRY(take_u64(c, "the offset", &offset));
  if (offset > INT64_MAX - t->bytes)
    return reject(c, STINT_BAD_INPUT, c->at - 8, "offset %llu and %zu bytes of data pass 2^63" AGAIN,
                  (unsigned long long)offset, t->bytes);
  t->offset = (size_t)offset;
  t->name = bump_text(b, name.data, name.bytes);
  return t->name ? STINT_OK
                 : reject(c, STINT_NO_MEMORY, at, "its name does not fit the memory for loading; allow more");
}

/* ---- sorted indices ---- */

typedef int (*order_of)(const gguf_file *f, size_t a, size_t b); /* total: ties fall to the index */

static int by_key(const gguf_file *const f, const size_t a, const size_t b) {
  const int d = gguf_text_compare(f->keys[a].name, f->keys[b].name);
  return d ? d : a < b ? -1 : a > b;
}

static int by_tensor(const gguf_file *const f, const size_t a, const size_t b) {
  const int d = strcmp(f->tensors[a].name, f->tensors[b].name);
  return d ? d : a < b ? -1 : a > b;
}

static int by_offset(const gguf_file *const f, const size_t a, const size_t b) {
  const size_t x = f->tensors[a].offset, y = f->tensors[b].offset;
  return x != y ? (x < y ? -1 : 1) : a < b ? -1 : a > b;
}

static void sift(const gguf_file *const f, const order_of order, size_t *const heap, const size_t n,
                 size_t at) {
  const size_t moved = heap[at];
  for (size_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && order(f, heap[child], heap[child + 1]) < 0) child++;
    if (order(f, moved, heap[child]) >= 0) break;
    heap[at] = heap[child];
  }
  heap[at] = moved;
}

static void sort(const gguf_file *const f, const order_of order, size_t *const index, const size_t n) {
  for (size_t i = 0; i < n; i++) index[i] = i;
  for (size_t i = n / 2; i--;) sift(f, order, index, n, i);
  for (size_t i = n; i-- > 1;) {
    const size_t top = index[0];
    index[0] = index[i];
    index[i] = top;
    sift(f, order, index, i, 0);
  }
}

/* Names the later of a pair. */
static void point_at(cursor *const c, const char *const kind, const size_t index, const gguf_text name) {
  c->kind = kind;
  c->index = index;
  c->name = name;
}

static stint_status order_keys(cursor *const c, bump *const b, gguf_file *const f) {
  stint_status status = STINT_OK;
  size_t *const order = take_memory(c, b, f->n_keys, sizeof *order, &status);
  if (!order) return status;
  sort(f, by_key, order, f->n_keys);
  f->key_order = order;
  for (size_t i = 1; i < f->n_keys; i++) {
    const gguf_key *const k = &f->keys[order[i]];
    if (gguf_text_compare(f->keys[order[i - 1]].name, k->name)) continue;
    point_at(c, "key", order[i], k->name);
    return reject(c, STINT_BAD_INPUT, k->offset, "key %zu has the same name" AGAIN, order[i - 1]);
  }
  return STINT_OK;
}

static stint_status order_tensors(cursor *const c, bump *const b, gguf_file *const f) {
  stint_status status = STINT_OK;
  size_t *const order = take_memory(c, b, f->n_tensors, sizeof *order, &status);
  if (!order) return status;
  sort(f, by_offset, order, f->n_tensors);
  for (size_t i = 1; i < f->n_tensors; i++) {
    const gguf_tensor *const t = &f->tensors[order[i]], *const before = &f->tensors[order[i - 1]];
    if (before->offset + before->bytes <= t->offset) continue;
    point_at(c, "tensor", order[i], gguf_text_of(t->name));
    return reject(c, STINT_BAD_INPUT, f->data_offset + t->offset,
                  "its data overlaps that of tensor %zu ('%s')" AGAIN, order[i - 1], before->name);
  }
  sort(f, by_tensor, order, f->n_tensors);
  f->tensor_order = order;
  for (size_t i = 1; i < f->n_tensors; i++) {
    const gguf_tensor *const t = &f->tensors[order[i]];
    if (strcmp(f->tensors[order[i - 1]].name, t->name)) continue;
    point_at(c, "tensor", order[i], gguf_text_of(t->name));
    return reject(c, STINT_BAD_INPUT, f->data_offset + t->offset, "tensor %zu has the same name" AGAIN,
                  order[i - 1]);
  }
  return STINT_OK;
}

/* ---- the file ---- */

static stint_status take_header(cursor *const c, gguf_file *const f) {
  const unsigned char *magic = NULL;
  STINT_TRY(take(c, 4, "the magic", &magic));
  if (memcmp(magic, "GGUF", 4))
    return reject(c, STINT_BAD_INPUT, 0,
                  "it does not start with 'GGUF', so it is no GGUF file; give a model in GGUF form");
  STINT_TRY(take_u32(c, "the version", &f->version));
  if (f->version == __builtin_bswap32(2) || f->version == __builtin_bswap32(3))
    return reject(c, STINT_UNSUPPORTED, 4,
                  "this is a big-endian file (version %u, bytes swapped); convert it to little-endian",
                  __builtin_bswap32(f->version));
  if (f->version < 2 || f->version > 3)
    return reject(c, STINT_UNSUPPORTED, 4,
                  "GGUF version %u is not read, 2 and 3 are; convert the model with a current tool",
                  f->version);
  const size_t at = c->at;
  uint64_t n_tensors, n_keys;
  STINT_TRY(take_u64(c, "the count of tensors", &n_tensors));
  STINT_TRY(take_u64(c, "the count of keys", &n_keys));
  if (n_keys > left(c) / KEY_SMALLEST)
    return reject(c, STINT_BAD_INPUT, at + 8,
                  "it says that there are %llu keys, and the %zu bytes left hold at most %zu" AGAIN,
                  (unsigned long long)n_keys, left(c), left(c) / KEY_SMALLEST);
  const size_t room = (left(c) - (size_t)n_keys * KEY_SMALLEST) / TENSOR_SMALLEST;
  if (n_tensors > room)
    return reject(c, STINT_BAD_INPUT, at,
                  "it says that there are %llu tensors, and the %zu bytes left hold at most %zu" AGAIN,
                  (unsigned long long)n_tensors, left(c), room);
  f->n_keys = (size_t)n_keys;
  f->n_tensors = (size_t)n_tensors;
  return STINT_OK;
}

static stint_status find_alignment(cursor *const c, gguf_file *const f) {
  f->alignment = ALIGNMENT_DEFAULT;
  const gguf_key *const k = gguf_find_key(f, "general.alignment");
  if (!k) return STINT_OK;
  point_at(c, "key", (size_t)(k - f->keys), k->name);
  if (k->type != GGUF_U32)
    return reject(c, STINT_BAD_INPUT, k->offset, "its type is %s, u32 is needed" AGAIN,
                  gguf_type_name(k->type));
  uint32_t value;
  memcpy(&value, k->value, sizeof value);
  if (value < 8 || (value & (value - 1)) || value > ALIGNMENT_LIMIT)
    return reject(c, STINT_BAD_INPUT, k->offset,
                  "the alignment is %u, a power of two from 8 to %d is needed" AGAIN, value, ALIGNMENT_LIMIT);
  f->alignment = value;
  return STINT_OK;
}

/* Offsets become places in the file; data becomes pointers, all or none. */
static stint_status place_tensors(cursor *const c, gguf_file *const f) {
  const size_t data_bytes = c->bytes > f->data_offset ? c->bytes - f->data_offset : 0;
  f->header_only = f->n_tensors && !data_bytes;
  size_t total = f->data_offset;
  for (size_t i = 0; i < f->n_tensors; i++) {
    gguf_tensor *const t = &f->tensors[i];
    point_at(c, "tensor", i, gguf_text_of(t->name));
    const size_t mask = f->alignment - 1, padded = (t->bytes + mask) & ~mask;
    if (t->offset & mask)
      return reject(c, STINT_BAD_INPUT, f->data_offset + t->offset,
                    "its offset %zu is not a multiple of the alignment %zu" AGAIN, t->offset, f->alignment);
    if (padded > INT64_MAX - total || t->offset + t->bytes > INT64_MAX - f->data_offset)
      return reject(c, STINT_BAD_INPUT, f->data_offset, "the tensors together pass 2^63 bytes" AGAIN);
    total += padded;
    if (!f->header_only && (t->offset > data_bytes || t->bytes > data_bytes - t->offset))
      return reject(
          c, STINT_BAD_INPUT, f->data_offset + t->offset,
          "the file is truncated: the data of this tensor ends at byte %zu, the file at byte %zu" AGAIN,
          f->data_offset + t->offset + t->bytes, c->bytes);
  }
  return STINT_OK;
}

static stint_status index_file(cursor *const c, bump *const b, gguf_file *const f) {
  stint_status status = STINT_OK;
  STINT_TRY(take_header(c, f));
  f->keys = take_memory(c, b, f->n_keys, sizeof *f->keys, &status);
  if (!f->keys) return status;
  for (size_t i = 0; i < f->n_keys; i++) {
    point_at(c, "key", i, (gguf_text){0});
    STINT_TRY(take_key(c, &f->keys[i]));
  }
  const size_t after_keys = c->at;
  STINT_TRY(order_keys(c, b, f));
  STINT_TRY(find_alignment(c, f));
  point_at(c, "header", 0, (gguf_text){0});
  if (f->n_tensors > left(c) / TENSOR_SMALLEST)
    return reject(c, STINT_BAD_INPUT, after_keys,
                  "it says that there are %zu tensors, and the %zu bytes left hold at most %zu" AGAIN,
                  f->n_tensors, left(c), left(c) / TENSOR_SMALLEST);
  f->tensors = take_memory(c, b, f->n_tensors, sizeof *f->tensors, &status);
  if (!f->tensors) return status;
  for (size_t i = 0; i < f->n_tensors; i++) {
    point_at(c, "tensor", i, (gguf_text){0});
    STINT_TRY(take_tensor(c, b, &f->tensors[i]));
  }
  f->data_offset = (c->at + f->alignment - 1) & ~(f->alignment - 1);
  STINT_TRY(place_tensors(c, f));
  STINT_TRY(order_tensors(c, b, f));
  for (size_t i = 0; i < f->n_tensors; i++) {
    gguf_tensor *const t = &f->tensors[i];
    t->offset += f->data_offset;
    t->data = f->header_only ? NULL : c->base + t->offset;
  }
  return STINT_OK;
}

static stint_status parse(const char *const path, const file_map map, const bool borrowed, bump *const b,
                          gguf_file *const out, stint_error *const error) {
  *out = (gguf_file){.map = map, .borrowed = borrowed};
  out->path = bump_text(b, path, strlen(path));
  cursor c = {.path = path, .base = map.base, .bytes = map.bytes, .kind = "header", .error = error};
  const stint_status status =
      out->path ? index_file(&c, b, out)
                : reject(&c, STINT_NO_MEMORY, 0, "the path does not fit the memory for loading; allow more");
  if (status != STINT_OK) gguf_close(out);
  return status;
}

stint_status gguf_open(const char *const path, bump *const b, gguf_file *const out,
                       stint_error *const error) {
  *out = (gguf_file){0};
  file_map map;
  STINT_TRY(file_map_open(path, &map, error));
  return parse(path, map, false, b, out, error);
}

stint_status gguf_parse(const char *const name, const unsigned char *const base, const size_t bytes,
                        bump *const b, gguf_file *const out, stint_error *const error) {
  return parse(name, (file_map){base, bytes}, true, b, out, error);
}

void gguf_close(gguf_file *const file) {
  if (!file->borrowed) file_map_close(&file->map);
  *file = (gguf_file){0};
}
