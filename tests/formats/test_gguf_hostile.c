/* The GGUF reader on hostile files: a table of lies, every truncation, every flipped bit. Each must end in one error that
 * names the file, the byte, the key or tensor and the remedy, with nothing left mapped and memory bounded by
 * the file. The bytes are copied to a block of exactly their size, so that ASan sees a read of one byte too many. */
#include <criterion/criterion.h>

#include "engine/formats/gguf.h"
#include "tests/formats/gguf_bytes.h"

typedef struct lie {
  const char *name;
  stint_status status;
  const char *fragments[4];
  void (*build)(bytes *b);
} lie;

/* ---- headers ---- */
static void empty(bytes *const b) { b->n = 0; }
static void no_magic(bytes *const b) { header(b, 3, 0, 0), memcpy(b->at, "GGML", 4); }
static void version_0(bytes *const b) { header(b, 0, 0, 0); }
static void version_1(bytes *const b) { header(b, 1, 0, 0); }
static void version_4(bytes *const b) { header(b, 4, 0, 0); }
static void big_endian(bytes *const b) { header(b, 0x03000000, 0, 0); }
static void keys_2_63(bytes *const b) { header(b, 3, 0, (uint64_t)1 << 63), pad(b, 512); }
static void keys_one_more(bytes *const b) {
  header(b, 3, 0, 11), pad(b, 10);
  while (b->n < 24 + 10 * 14) u8(b, 0);
}
static void tensors_2_63(bytes *const b) { header(b, 3, INT64_MAX, 0), pad(b, 512); }
static void tensors_one_more(bytes *const b) {
  header(b, 3, 3, 0);
  while (b->n < 24 + 3 * 33 - 1) u8(b, 0);
}
/* wraps when counts are multiplied before they are compared: 2^64 / 14 + 1 */
static void keys_wrap(bytes *const b) { header(b, 3, 0, UINT64_MAX / 14 + 2), pad(b, 512); }
static void tensors_behind_keys(bytes *const b) {
  header(b, 3, 3, 1);
  key(b, "big", T_STRING);
  u64(b, 120);
  for (int i = 0; i < 120; i++) u8(b, 'x');
}

/* ---- keys ---- */
static void key_name_huge(bytes *const b) {
  header(b, 3, 0, 1), u64(b, UINT64_MAX - 8);
  while (b->n < 51) u8(b, 'x');
}
static void key_name_past(bytes *const b) {
  header(b, 3, 0, 1), u64(b, 20);
  while (b->n < 51) u8(b, 'x');
}
static void key_empty(bytes *const b) { header(b, 3, 0, 1), key_u32(b, "", 1); }
static void key_nul(bytes *const b) {
  header(b, 3, 0, 1), u64(b, 5), raw(b, "a\0b.c", 5), u32(b, T_U32), u32(b, 1);
}
static void key_type(bytes *const b) { header(b, 3, 0, 1), key(b, "some.key", 13), u64(b, 0); }
static void key_type_negative(bytes *const b) {
  header(b, 3, 0, 1), key(b, "some.key", UINT32_MAX), u64(b, 0);
}
static void key_twice(bytes *const b) {
  header(b, 3, 0, 3), key_u32(b, "twin", 1), key_u32(b, "other", 2), key_u32(b, "twin", 3);
}
static void key_cut(bytes *const b) { header(b, 3, 0, 1), key(b, "cut", T_U64), u32(b, 1); }
static void value_text_huge(bytes *const b) {
  header(b, 3, 0, 1), key(b, "txt", T_STRING), u64(b, (uint64_t)1 << 62);
}
static void bool_2(bytes *const b) { header(b, 3, 0, 1), key(b, "flag", T_BOOL), u8(b, 2); }
static void bool_in_array(bytes *const b) {
  header(b, 3, 0, 1), array(b, "flags", T_BOOL, 3), u8(b, 1), u8(b, 0), u8(b, 7);
}
static void array_long(bytes *const b) { header(b, 3, 0, 1), array(b, "arr", T_U16, 5), u64(b, 0); }
static void array_2_63(bytes *const b) {
  header(b, 3, 0, 1), array(b, "arr", T_F64, (uint64_t)1 << 61), u64(b, 0);
}
static void array_texts_long(bytes *const b) {
  header(b, 3, 0, 1), array(b, "arr", T_STRING, 3), u64(b, 0), u64(b, 0);
}
static void array_text_huge(bytes *const b) {
  header(b, 3, 0, 1), array(b, "arr", T_STRING, 2), u64(b, 0), u64(b, 1);
}
static void array_of_arrays(bytes *const b) { header(b, 3, 0, 1), array(b, "arr", T_ARRAY, 1), u64(b, 0); }
static void array_element(bytes *const b) { header(b, 3, 0, 1), array(b, "arr", 99, 1), u64(b, 0); }
static void terminal_escape(bytes *const b) { header(b, 3, 0, 1), key(b, "\033[2J\n", 77), u64(b, 0); }

static void alignment(bytes *const b, const uint32_t v) {
  header(b, 3, 0, 1), key_u32(b, "general.alignment", v);
}
static void alignment_0(bytes *const b) { alignment(b, 0); }
static void alignment_3(bytes *const b) { alignment(b, 3); }
static void alignment_4(bytes *const b) { alignment(b, 4); }
static void alignment_2_31(bytes *const b) { alignment(b, (uint32_t)1 << 31); }
static void alignment_u64(bytes *const b) {
  header(b, 3, 0, 1), key(b, "general.alignment", T_U64), u64(b, 32);
}
static void alignment_text(bytes *const b) { header(b, 3, 0, 1), key_text(b, "general.alignment", "32"); }

/* ---- tensors: one, with a page of data behind it ---- */
static void filled(bytes *const b) {
  pad(b, 32);
  for (int i = 0; i < 4096; i++) u8(b, 1);
}
static void one(bytes *const b, const uint32_t type, const uint32_t n_dims, const int64_t *const ne,
                const uint64_t offset) {
  header(b, 3, 1, 0);
  tensor(b, "blk.0.w", type, n_dims, ne, offset);
  filled(b);
}
static void dims_0(bytes *const b) { header(b, 3, 1, 0), tensor(b, "blk.0.w", 0, 0, NE(1), 0), filled(b); }
static void dims_5(bytes *const b) { one(b, 0, 5, NE(1, 1, 1, 1, 1), 0); }
static void dims_huge(bytes *const b) {
  header(b, 3, 1, 0), text(b, "blk.0.w"), u32(b, UINT32_MAX), u64(b, 1), u32(b, 0), u64(b, 0), filled(b);
}
static void ne_0(bytes *const b) { one(b, 0, 2, NE(4, 0), 0); }
static void ne_negative(bytes *const b) { one(b, 0, 2, NE(-4, 4), 0); }
static void ne_wrap_0(bytes *const b) { one(b, 0, 2, NE((int64_t)1 << 32, (int64_t)1 << 32), 0); }
static void ne_wrap_small(bytes *const b) { one(b, 0, 2, NE(INT64_MAX, 2), 0); }
static void ne_wrap_1152(bytes *const b) { one(b, 8, 2, NE(1152, ((int64_t)1 << 42) + 1), 0); }
static void ne_wrap_3(bytes *const b) {
  one(b, 0, 4, NE((int64_t)1 << 20, (int64_t)1 << 20, (int64_t)1 << 20, 16), 0);
}
static void ne_wrap_bytes(bytes *const b) { one(b, 0, 1, NE((int64_t)1 << 62), 0); }
static void block_odd(bytes *const b) { one(b, 2, 2, NE(33, 32), 0); }
static void block_k(bytes *const b) { one(b, 12, 2, NE(128, 2), 0); }
static void type_gone(bytes *const b) { one(b, 4, 1, NE(32), 0); }
static void type_unknown(bytes *const b) { one(b, 1000, 1, NE(32), 0); }
static void type_negative(bytes *const b) { one(b, UINT32_MAX, 1, NE(32), 0); }
static void offset_odd(bytes *const b) { one(b, 0, 1, NE(4), 4); }
static void offset_past(bytes *const b) { one(b, 0, 1, NE(4), 8192); }
static void offset_wrap(bytes *const b) { one(b, 0, 1, NE(4), UINT64_MAX - 31); }
static void offset_2_63(bytes *const b) { one(b, 0, 1, NE(4), (uint64_t)INT64_MAX - 31); }
static void data_short(bytes *const b) { one(b, 0, 1, NE(1025), 0); }
static void data_one_byte(bytes *const b) {
  header(b, 3, 1, 0), tensor(b, "blk.0.w", 0, 1, NE(4), 0), pad(b, 32), u8(b, 0);
}
static void name_64(bytes *const b) {
  char name[65];
  memset(name, 'n', 64), name[64] = 0;
  header(b, 3, 1, 0), tensor(b, name, 0, 1, NE(4), 0), filled(b);
}
static void name_empty(bytes *const b) { header(b, 3, 1, 0), tensor(b, "", 0, 1, NE(4), 0), filled(b); }
static void name_nul(bytes *const b) {
  header(b, 3, 1, 0), u64(b, 3), raw(b, "w\0x", 3), u32(b, 1), u64(b, 4), u32(b, 0), u64(b, 0), filled(b);
}
static void name_huge(bytes *const b) { header(b, 3, 1, 0), u64(b, UINT64_MAX), filled(b); }
static void two(bytes *const b, const char *const second, const uint64_t offset) {
  header(b, 3, 2, 0), tensor(b, "first", 0, 1, NE(16), 0), tensor(b, second, 0, 1, NE(16), offset), filled(b);
}
static void tensor_twice(bytes *const b) { two(b, "first", 64); }
static void overlap(bytes *const b) { two(b, "second", 32); }
static void overlap_same(bytes *const b) { two(b, "second", 0); }
static void overlap_unordered(bytes *const b) {
  header(b, 3, 3, 0);
  tensor(b, "late", 0, 1, NE(8), 96), tensor(b, "mid", 0, 1, NE(8), 32), tensor(b, "early", 0, 1, NE(9), 0),
      filled(b);
}
static void sum_wraps(bytes *const b) { /* a header alone: no data contradicts it */
  header(b, 3, 3, 0);
  for (int i = 0; i < 3; i++) {
    const char name[] = {(char)('a' + i), 0};
    tensor(b, name, 24, 1, NE((int64_t)1 << 62), 0);
  }
}
static void offset_wraps_header_only(bytes *const b) {
  header(b, 3, 1, 0), tensor(b, "far", 24, 1, NE((int64_t)1 << 61), ((uint64_t)3 << 61) - 32);
}
static void tensor_cut(bytes *const b) {
  header(b, 3, 1, 0), tensor(b, "a.tensor.with.a.long.name", 0, 1, NE(4), 0), b->n -= 1;
}

#define DAMAGED "download or convert it again"
static const lie lies[] = {
    {"empty file", STINT_BAD_INPUT, {"byte 0", "header", "the magic takes 4 bytes"}, empty},
    {"no magic", STINT_BAD_INPUT, {"byte 0", "no GGUF file", "give a model in GGUF form"}, no_magic},
    {"version 0", STINT_UNSUPPORTED, {"byte 4", "version 0"}, version_0},
    {"version 1", STINT_UNSUPPORTED, {"byte 4", "version 1", "convert the model"}, version_1},
    {"version 4", STINT_UNSUPPORTED, {"byte 4", "version 4"}, version_4},
    {"big-endian", STINT_UNSUPPORTED, {"byte 4", "big-endian", "convert it to little-endian"}, big_endian},
    {"2^63 keys", STINT_BAD_INPUT, {"byte 16", "9223372036854775808 keys", DAMAGED}, keys_2_63},
    {"11 keys in room for 10", STINT_BAD_INPUT, {"byte 16", "11 keys", "at most 10"}, keys_one_more},
    {"key count that wraps", STINT_BAD_INPUT, {"byte 16", "keys, and"}, keys_wrap},
    {"2^63-1 tensors", STINT_BAD_INPUT, {"byte 8", "9223372036854775807 tensors", DAMAGED}, tensors_2_63},
    {"3 tensors in room for less", STINT_BAD_INPUT, {"byte 8", "3 tensors", "at most 2"}, tensors_one_more},
    {"tensors that the keys left no room for",
     STINT_BAD_INPUT,
     {"header", "3 tensors", "0 bytes left"},
     tensors_behind_keys},
    {"51 bytes, huge key length",
     STINT_BAD_INPUT,
     {"byte 24", "key 0", "18446744073709551607 bytes long", "19 are left"},
     key_name_huge},
    {"key name past the end",
     STINT_BAD_INPUT,
     {"byte 24", "key 0", "20 bytes long", "19 are left"},
     key_name_past},
    {"empty key", STINT_BAD_INPUT, {"byte 24", "key 0", "empty"}, key_empty},
    {"NUL in a key", STINT_BAD_INPUT, {"byte 33", "key 0", "NUL"}, key_nul},
    {"value type 13", STINT_BAD_INPUT, {"byte 40", "'some.key'", "is 13"}, key_type},
    {"value type -1", STINT_BAD_INPUT, {"byte 40", "'some.key'"}, key_type_negative},
    {"duplicate key", STINT_BAD_INPUT, {"key 2 ('twin')", "key 0 has the same name"}, key_twice},
    {"value cut", STINT_BAD_INPUT, {"byte 39", "'cut'", "takes 8 bytes", "after 4"}, key_cut},
    {"huge text",
     STINT_BAD_INPUT,
     {"byte 39", "'txt'", "4611686018427387904 bytes long", "0 are left"},
     value_text_huge},
    {"bool 2", STINT_BAD_INPUT, {"byte 40", "'flag'", "this one is 2"}, bool_2},
    {"bool 7 in an array", STINT_BAD_INPUT, {"byte 55", "'flags'", "this one is 7"}, bool_in_array},
    {"array past the end", STINT_BAD_INPUT, {"byte 43", "'arr'", "5 elements", "hold 4"}, array_long},
    {"array whose bytes wrap",
     STINT_BAD_INPUT,
     {"byte 43", "'arr'", "2305843009213693952 elements"},
     array_2_63},
    {"array of more texts than bytes",
     STINT_BAD_INPUT,
     {"byte 43", "'arr'", "3 elements", "hold 2"},
     array_texts_long},
    {"text in an array past the end",
     STINT_BAD_INPUT,
     {"byte 59", "'arr'", "1 bytes long", "0 are left"},
     array_text_huge},
    {"array of arrays", STINT_UNSUPPORTED, {"byte 39", "'arr'", "arrays of arrays"}, array_of_arrays},
    {"array of an unknown type", STINT_BAD_INPUT, {"byte 39", "'arr'", "is 99"}, array_element},
    {"name with terminal escapes", STINT_BAD_INPUT, {"'?[2J?'"}, terminal_escape},
    {"alignment 0", STINT_BAD_INPUT, {"byte 53", "'general.alignment'", "is 0", "power of two"}, alignment_0},
    {"alignment 3", STINT_BAD_INPUT, {"byte 53", "is 3"}, alignment_3},
    {"alignment 4", STINT_BAD_INPUT, {"byte 53", "is 4", "from 8"}, alignment_4},
    {"alignment 2^31", STINT_BAD_INPUT, {"byte 53", "is 2147483648"}, alignment_2_31},
    {"alignment as u64", STINT_BAD_INPUT, {"byte 53", "type is u64", "u32 is needed"}, alignment_u64},
    {"alignment as text", STINT_BAD_INPUT, {"'general.alignment'", "type is string"}, alignment_text},
    {"0 dimensions", STINT_BAD_INPUT, {"'blk.0.w'", "0 dimensions"}, dims_0},
    {"5 dimensions", STINT_BAD_INPUT, {"byte 39", "'blk.0.w'", "5 dimensions"}, dims_5},
    {"2^32-1 dimensions", STINT_BAD_INPUT, {"'blk.0.w'", "4294967295 dimensions"}, dims_huge},
    {"zero size", STINT_BAD_INPUT, {"byte 51", "'blk.0.w'", "size 1 is 0"}, ne_0},
    {"negative size", STINT_BAD_INPUT, {"byte 43", "'blk.0.w'", "size 0 is -4"}, ne_negative},
    {"2^32 x 2^32", STINT_BAD_INPUT, {"'blk.0.w'", "[4294967296, 4294967296, 1, 1]", "2^63"}, ne_wrap_0},
    {"2^63-1 x 2", STINT_BAD_INPUT, {"'blk.0.w'", "2^63"}, ne_wrap_small},
    {"1152 x 2^42+1", STINT_BAD_INPUT, {"'blk.0.w'", "byte"}, ne_wrap_1152},
    {"2^20 x 2^20 x 2^20 x 16", STINT_BAD_INPUT, {"'blk.0.w'", "2^63"}, ne_wrap_3},
    {"2^62 floats", STINT_BAD_INPUT, {"'blk.0.w'", "2^63"}, ne_wrap_bytes},
    {"Q4_0 rows of 33", STINT_BAD_INPUT, {"'blk.0.w'", "33 elements", "Q4_0", "blocks of 32"}, block_odd},
    {"Q4_K rows of 128", STINT_BAD_INPUT, {"'blk.0.w'", "Q4_K", "blocks of 256"}, block_k},
    {"type 4, withdrawn", STINT_UNSUPPORTED, {"'blk.0.w'", "type 4"}, type_gone},
    {"type 1000", STINT_UNSUPPORTED, {"byte 51", "'blk.0.w'", "type 1000"}, type_unknown},
    {"type -1", STINT_UNSUPPORTED, {"'blk.0.w'", "type 4294967295"}, type_negative},
    {"offset off alignment", STINT_BAD_INPUT, {"'blk.0.w'", "offset 4", "alignment 32"}, offset_odd},
    {"offset past the end", STINT_BAD_INPUT, {"'blk.0.w'", "truncated"}, offset_past},
    {"offset that wraps", STINT_BAD_INPUT, {"'blk.0.w'", "2^63"}, offset_wrap},
    {"offset near 2^63", STINT_BAD_INPUT, {"'blk.0.w'", "byte"}, offset_2_63},
    {"data ends before its tensor",
     STINT_BAD_INPUT,
     {"'blk.0.w'", "truncated", "ends at byte 4164, the file at byte 4160"},
     data_short},
    {"one byte of data", STINT_BAD_INPUT, {"'blk.0.w'", "truncated"}, data_one_byte},
    {"name of 64 bytes", STINT_BAD_INPUT, {"byte 24", "tensor 0", "64 bytes long, at most 63"}, name_64},
    {"empty name", STINT_BAD_INPUT, {"tensor 0", "empty"}, name_empty},
    {"NUL in a tensor's name", STINT_BAD_INPUT, {"tensor 0", "NUL"}, name_nul},
    {"huge name", STINT_BAD_INPUT, {"tensor 0", "18446744073709551615 bytes long"}, name_huge},
    {"duplicate tensor", STINT_BAD_INPUT, {"tensor 1 ('first')", "tensor 0 has the same name"}, tensor_twice},
    {"overlap", STINT_BAD_INPUT, {"tensor 1 ('second')", "overlaps that of tensor 0 ('first')"}, overlap},
    {"same offset", STINT_BAD_INPUT, {"'second'", "overlaps"}, overlap_same},
    {"overlap out of order",
     STINT_BAD_INPUT,
     {"'mid'", "overlaps that of tensor 2 ('early')"},
     overlap_unordered},
    {"sum of sizes wraps", STINT_BAD_INPUT, {"'b'", "pass 2^63"}, sum_wraps},
    {"far offset, header alone", STINT_BAD_INPUT, {"'far'", "pass 2^63"}, offset_wraps_header_only},
    {"tensor info cut",
     STINT_BAD_INPUT,
     {"byte 73", "'a.tensor.with.a.long.name'", "the offset takes 8", "after 7"},
     tensor_cut},
};

static bytes buffer;

/* Touches all that the index points at. */
static uint64_t walk_all(const gguf_file *const f) {
  uint64_t sum = 0;
  for (size_t i = 0; i < f->n_keys; i++) {
    const gguf_key *const k = &f->keys[i];
    for (size_t j = 0; j < k->name.bytes; j++) sum += (unsigned char)k->name.data[j];
    for (size_t j = 0; j < k->value_bytes; j++) sum += k->value[j];
    gguf_strings walk = {.key = k};
    gguf_text t;
    while (gguf_next_string(&walk, &t))
      for (size_t j = 0; j < t.bytes; j++) sum += (unsigned char)t.data[j];
    if (k->type == GGUF_ARRAY && k->element != GGUF_STRING) {
      for (uint64_t j = 0; j < k->count; j++)
        sum += (uint64_t)gguf_array_int(k, j) + (gguf_array_float(k, j) > 0);
    }
  }
  for (size_t i = 0; i < f->n_tensors; i++) {
    const gguf_tensor *const t = &f->tensors[i];
    cr_assert_eq(gguf_find_tensor(f, t->name), t);
    if (!f->header_only)
      for (size_t j = 0; j < t->bytes; j++) sum += ((const unsigned char *)t->data)[j];
  }
  return sum;
}

/* What holds of every parse. Returns whether it was accepted. */
static bool parse_checked(const unsigned char *const data, const size_t n, const char *const what,
                          stint_error *const error) {
  unsigned char *const copy = malloc(n ? n : 1);
  memcpy(copy, data, n);
  bump memory;
  bump_init(&memory, 0);
  gguf_file f;
  memset(error, 0, sizeof *error);
  const stint_status status = gguf_parse("t.gguf", n ? copy : NULL, n, &memory, &f, error);
  cr_expect_leq(memory.used_bytes, 8 * n + 1024, "%s: %zu bytes of memory for a file of %zu", what,
                memory.used_bytes, n);
  if (status == STINT_OK) {
    (void)walk_all(&f);
    gguf_close(&f);
  } else {
    cr_expect_eq(error->status, status, "%s", what);
    cr_expect(!strncmp(error->text, "t.gguf: byte ", 13) && strchr(error->text, ';'),
              "%s: no place or no remedy in: %s", what, error->text);
    cr_expect_null(f.keys, "%s: a failed file is not cleared", what);
  }
  bump_free(&memory);
  free(copy);
  return status == STINT_OK;
}

Test(gguf_hostile, table) {
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    const lie *const l = &lies[i];
    l->build(&buffer);
    stint_error error;
    const bool accepted = parse_checked(buffer.at, buffer.n, l->name, &error);
    cr_expect_not(accepted, "%s: accepted", l->name);
    if (accepted) continue;
    cr_expect_eq(error.status, l->status, "%s: %s", l->name, error.text);
    for (int k = 0; k < 4 && l->fragments[k]; k++)
      cr_expect(strstr(error.text, l->fragments[k]), "%s: '%s' is not in: %s", l->name, l->fragments[k],
                error.text);
  }
}

/* Through files: nothing stays mapped, whatever the failure. */
Test(gguf_hostile, every_truncation) {
  size_t header_bytes;
  good_file(&buffer, &header_bytes);
  const size_t data = (header_bytes + 31) / 32 * 32, last = data + 96 + 4;
  const char *const path = in_folder("cut.gguf");
  for (size_t n = 0; n <= buffer.n; n++) {
    char what[32];
    stint_error error;
    snprintf(what, sizeof what, "cut to %zu", n);
    const bool whole = n >= last, header_alone = n >= header_bytes && n <= data;
    cr_expect_eq(parse_checked(buffer.at, n, what, &error), whole || header_alone, "%s: %s", what,
                 error.text);
    store(path, buffer.at, n);
    bump memory;
    bump_init(&memory, 0);
    gguf_file f;
    const stint_status status = gguf_open(path, &memory, &f, &error);
    cr_expect_eq(status == STINT_OK, whole || header_alone, "%s", what);
    if (status == STINT_OK) gguf_close(&f);
    cr_expect_not(is_mapped(path), "%s: still mapped", what);
    bump_free(&memory);
  }
  sweep();
}

Test(gguf_hostile, every_bit_flipped) {
  size_t header_bytes;
  good_file(&buffer, &header_bytes);
  size_t n_refused = 0;
  for (size_t bit = 0; bit < 8 * buffer.n; bit++) {
    char what[32];
    stint_error error;
    snprintf(what, sizeof what, "bit %zu", bit);
    buffer.at[bit / 8] ^= (unsigned char)(1 << bit % 8);
    n_refused += !parse_checked(buffer.at, buffer.n, what, &error);
    buffer.at[bit / 8] ^= (unsigned char)(1 << bit % 8);
  }
  /* Names, values and data may change unseen; magic, lengths, counts and types may not. */
  cr_expect(n_refused > 1000, "%zu of %zu refused", n_refused, 8 * buffer.n);
}

/* A name of 64 KiB and names that share a long prefix: sorting and messages stay bounded. */
Test(gguf_hostile, many_entries_are_not_quadratic) {
  const size_t n = 200000, name_bytes = 8;
  unsigned char *const data = malloc(24 + n * (8 + name_bytes + 5));
  size_t at = 24;
  memcpy(data, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0", 16);
  memcpy(data + 16, &(uint64_t){n}, 8);
  for (size_t i = 0; i < n; i++) {
    char name[16];
    snprintf(name, sizeof name, "k%07zu", (n - i) * 7919 % 9999991);
    memcpy(data + at, &(uint64_t){name_bytes}, 8);
    memcpy(data + at + 8, name, name_bytes);
    memcpy(data + at + 8 + name_bytes, &(uint32_t){T_U8}, 4);
    data[at + 12 + name_bytes] = 1;
    at += 13 + name_bytes;
  }
  bump memory;
  bump_init(&memory, 0);
  gguf_file f;
  stint_error error = {0};
  cr_assert_eq(gguf_parse("t.gguf", data, at, &memory, &f, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(f.n_keys, n);
  bump_free(&memory);
  free(data);
}

Test(gguf_hostile, memory_for_loading_runs_out) {
  size_t header_bytes;
  good_file(&buffer, &header_bytes);
  size_t n_refused = 0;
  for (size_t room = 0; room < 8192; room += 16) {
    _Alignas(16) static unsigned char space[8192];
    bump memory;
    bump_init_over(&memory, space, room);
    gguf_file f;
    stint_error error = {0};
    const stint_status status = gguf_parse("t.gguf", buffer.at, buffer.n, &memory, &f, &error);
    cr_assert(status == STINT_OK || status == STINT_NO_MEMORY, "%zu: %s", room, error.text);
    if (status == STINT_NO_MEMORY) cr_assert(strstr(error.text, "allow more"), "%s", error.text);
    n_refused += status != STINT_OK;
  }
  cr_assert(n_refused > 10 && n_refused < 500, "%zu", n_refused);
}

Test(gguf_hostile, no_file) {
  bump memory;
  bump_init(&memory, 0);
  gguf_file f;
  stint_error error = {0};
  cr_assert_neq(gguf_open(in_folder("missing.gguf"), &memory, &f, &error), STINT_OK);
  cr_assert(strstr(error.text, "missing.gguf"), "%s", error.text);
  cr_assert_eq(gguf_open(folder(), &memory, &f, &error), STINT_BAD_INPUT);
  cr_assert(strstr(error.text, "directory"), "%s", error.text);
  bump_free(&memory);
  sweep();
}
