/* Lookups and typed reads over a GGUF index: binary search by name, widening reads, range checks.
 *
 * Invariant: the index was checked at open (gguf_read.c), so reads here touch no byte outside of the map. Values lie
 * unaligned in the file and are copied out. */
#include <stdio.h>
#include <string.h>

#include "engine/formats/gguf.h"
#include "engine/formats/gguf_text.h"

const char *gguf_quote(char out[const GGUF_QUOTE_BYTES], const gguf_text t) {
  size_t n = 0;
  out[n++] = '\'';
  const size_t shown = t.bytes < GGUF_QUOTE_SHOWN ? t.bytes : GGUF_QUOTE_SHOWN;
  for (size_t i = 0; i < shown; i++) {
    const char ch = t.data[i];
    out[n++] = ch >= ' ' && ch <= '~' ? ch : '?';
  }
  memcpy(out + n, shown < t.bytes ? "...'" : "'", shown < t.bytes ? 5 : 2);
  return out;
}

const char *gguf_type_name(const gguf_type t) {
  static const char *const names[GGUF_TYPES] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                "bool", "string", "array", "u64", "i64", "f64"};
  return (unsigned)t < GGUF_TYPES ? names[t] : "unknown";
}

bool gguf_text_is(const gguf_text t, const char *const literal) {
  const size_t n = strlen(literal);
  return t.bytes == n && !memcmp(t.data, literal, n);
}

const gguf_key *gguf_find_key(const gguf_file *const file, const char *const name) {
  const gguf_text wanted = gguf_text_of(name);
  for (size_t low = 0, high = file->n_keys; low < high;) {
    const size_t middle = low + (high - low) / 2;
    const gguf_key *const k = &file->keys[file->key_order[middle]];
    const int d = gguf_text_compare(wanted, k->name);
    if (!d) return k;
    if (d < 0) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return NULL;
}

const gguf_tensor *gguf_find_tensor(const gguf_file *const file, const char *const name) {
  for (size_t low = 0, high = file->n_tensors; low < high;) {
    const size_t middle = low + (high - low) / 2;
    const gguf_tensor *const t = &file->tensors[file->tensor_order[middle]];
    const int d = strcmp(name, t->name);
    if (!d) return t;
    if (d < 0) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return NULL;
}

/* ---- elements ---- */

#define LOAD(type, at)                                                                                       \
  (__extension__({                                                                                           \
    type value_;                                                                                             \
    memcpy(&value_, (at), sizeof value_);                                                                    \
    value_;                                                                                                  \
  }))

static bool is_integer(const gguf_type t) { return t <= GGUF_I32 || t == GGUF_U64 || t == GGUF_I64; }

/* True when the value is above INT64_MAX, which only a u64 can be. */
static bool is_beyond(const gguf_type t, const unsigned char *const at) {
  return t == GGUF_U64 && LOAD(int64_t, at) < 0;
}

static int64_t load_int(const gguf_type t, const unsigned char *const base, const uint64_t i) {
  switch (t) {
  case GGUF_BOOL:
  case GGUF_U8:
    return base[i];
  case GGUF_I8:
    return (int8_t)base[i];
  case GGUF_U16:
    return LOAD(uint16_t, base + 2 * i);
  case GGUF_I16:
    return LOAD(int16_t, base + 2 * i);
  case GGUF_U32:
    return LOAD(uint32_t, base + 4 * i);
  case GGUF_I32:
    return LOAD(int32_t, base + 4 * i);
  case GGUF_U64:
    return is_beyond(t, base + 8 * i) ? INT64_MAX : LOAD(int64_t, base + 8 * i);
  case GGUF_I64:
    return LOAD(int64_t, base + 8 * i);
  default:
    return 0;
  }
}

int64_t gguf_array_int(const gguf_key *const key, const uint64_t i) {
  return i < key->count ? load_int(key->element, key->value, i) : 0;
}

double gguf_array_float(const gguf_key *const key, const uint64_t i) {
  if (i >= key->count) return 0;
  if (key->element == GGUF_F32) return (double)LOAD(float, key->value + 4 * i);
  if (key->element == GGUF_F64) return LOAD(double, key->value + 8 * i);
  return (double)load_int(key->element, key->value, i);
}

bool gguf_next_string(gguf_strings *const walk, gguf_text *const out) {
  const gguf_key *const k = walk->key;
  if (!k || k->type != GGUF_ARRAY || k->element != GGUF_STRING || walk->index >= k->count) return false;
  const unsigned char *const at = walk->at ? walk->at : k->value;
  const size_t n = LOAD(uint64_t, at);
  *out = (gguf_text){(const char *)at + 8, n};
  walk->at = at + 8 + n;
  walk->index++;
  return true;
}

/* ---- typed reads ---- */

static stint_status missing(const gguf_file *const f, const char *const name, stint_error *const error) {
  return stint_fail(error, STINT_BAD_INPUT,
                    "%s: the key '%s' is missing among the %zu keys (bytes 24 to %zu); convert the model "
                    "again with a current tool",
                    f->path, name, f->n_keys, f->data_offset);
}

static stint_status wrong_type(const gguf_file *const f, const gguf_key *const k, const char *const wanted,
                               stint_error *const error) {
  char name[GGUF_QUOTE_BYTES];
  const char *const array = k->type == GGUF_ARRAY ? "an array of " : "";
  return stint_fail(
      error, STINT_BAD_INPUT,
      "%s: byte %zu, key %s: its type is %s%s, and %s is needed; convert the model again with a current tool",
      f->path, k->offset, gguf_quote(name, k->name), array, gguf_type_name(k->element), wanted);
}

static stint_status read_int(const gguf_file *const f, const gguf_key *const k, const int64_t lowest,
                             const int64_t highest, int64_t *const out, stint_error *const error) {
  if (!is_integer(k->type)) return wrong_type(f, k, "an integer", error);
  const int64_t value = load_int(k->type, k->value, 0);
  if (value < lowest || value > highest || is_beyond(k->type, k->value)) {
    char name[GGUF_QUOTE_BYTES];
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s: byte %zu, key %s: the value is %s%lld, and %lld to %lld is allowed; convert the "
                      "model again, or use another one",
                      f->path, k->offset, gguf_quote(name, k->name),
                      is_beyond(k->type, k->value) ? "above " : "", (long long)value, (long long)lowest,
                      (long long)highest);
  }
  *out = value;
  return STINT_OK;
}

stint_status gguf_get_int(const gguf_file *const f, const char *const key, const int64_t lowest,
                          const int64_t highest, int64_t *const out, stint_error *const error) {
  *out = 0;
  const gguf_key *const k = gguf_find_key(f, key);
  return k ? read_int(f, k, lowest, highest, out, error) : missing(f, key, error);
}

stint_status gguf_get_int_or(const gguf_file *const f, const char *const key, const int64_t lowest,
                             const int64_t highest, const int64_t otherwise, int64_t *const out,
                             stint_error *const error) {
  *out = otherwise;
  const gguf_key *const k = gguf_find_key(f, key);
  return k ? read_int(f, k, lowest, highest, out, error) : STINT_OK;
}

stint_status gguf_get_float_or(const gguf_file *const f, const char *const key, const double otherwise,
                               double *const out, stint_error *const error) {
  *out = otherwise;
  const gguf_key *const k = gguf_find_key(f, key);
  if (!k) return STINT_OK;
  if (k->type != GGUF_F32 && k->type != GGUF_F64) return wrong_type(f, k, "f32 or f64", error);
  const double value = gguf_array_float(k, 0);
  if (!__builtin_isfinite(value)) {
    char name[GGUF_QUOTE_BYTES];
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s: byte %zu, key %s: the value is not a finite number; convert the model again",
                      f->path, k->offset, gguf_quote(name, k->name));
  }
  *out = value;
  return STINT_OK;
}

stint_status gguf_get_bool_or(const gguf_file *const f, const char *const key, const bool otherwise,
                              bool *const out, stint_error *const error) {
  *out = otherwise;
  const gguf_key *const k = gguf_find_key(f, key);
  if (!k) return STINT_OK;
  if (k->type != GGUF_BOOL) return wrong_type(f, k, "a bool", error);
  *out = k->value[0] != 0;
  return STINT_OK;
}

static stint_status read_text(const gguf_file *const f, const gguf_key *const k, gguf_text *const out,
                              stint_error *const error) {
  if (k->type != GGUF_STRING) return wrong_type(f, k, "a string", error);
  *out = (gguf_text){(const char *)k->value, k->value_bytes};
  return STINT_OK;
}

stint_status gguf_get_text(const gguf_file *const f, const char *const key, gguf_text *const out,
                           stint_error *const error) {
  *out = (gguf_text){0};
  const gguf_key *const k = gguf_find_key(f, key);
  return k ? read_text(f, k, out, error) : missing(f, key, error);
}

stint_status gguf_get_text_or(const gguf_file *const f, const char *const key, const char *const otherwise,
                              gguf_text *const out, stint_error *const error) {
  *out = otherwise ? gguf_text_of(otherwise) : (gguf_text){0};
  const gguf_key *const k = gguf_find_key(f, key);
  return k ? read_text(f, k, out, error) : STINT_OK;
}
