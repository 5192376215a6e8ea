/* The GGUF reader on good files: our bytes, the `gguf` package's files, a real model; lookups and typed reads. */
#include <criterion/criterion.h>
#include <math.h>

#include "engine/formats/gguf.h"
#include "tests/formats/gguf_bytes.h"

static bytes buffer;

static stint_status parse(const bytes *const b, bump *const memory, gguf_file *const out,
                          stint_error *const error) {
  return gguf_parse("t.gguf", b->at, b->n, memory, out, error);
}

Test(gguf_read, index_of_a_small_file) {
  size_t header_bytes;
  good_file(&buffer, &header_bytes);
  const char *const path = in_folder("small.gguf");
  store(path, buffer.at, buffer.n);
  bump memory;
  bump_init(&memory, 0);
  gguf_file f;
  stint_error error = {0};
  cr_assert_eq(gguf_open(path, &memory, &f, &error), STINT_OK, "%s", error.text);
  cr_assert(is_mapped(path));
  cr_assert_str_eq(f.path, path);
  cr_assert_eq(f.version, 3);
  cr_assert_eq(f.n_keys, 7);
  cr_assert_eq(f.n_tensors, 3);
  cr_assert_eq(f.alignment, 32);
  cr_assert_eq(f.data_offset, (header_bytes + 31) / 32 * 32);
  cr_assert_not(f.header_only);
  const gguf_tensor *const a = gguf_find_tensor(&f, "a"), *const b = gguf_find_tensor(&f, "b.weight"),
                           *const c = gguf_find_tensor(&f, "c");
  cr_assert(a && b && c);
  cr_assert_null(gguf_find_tensor(&f, ""));
  cr_assert_null(gguf_find_tensor(&f, "b.weigh"));
  cr_assert_null(gguf_find_tensor(&f, "d"));
  cr_assert_eq(a->n_dims, 2);
  cr_assert(a->ne[0] == 3 && a->ne[1] == 2 && a->ne[2] == 1 && a->ne[3] == 1);
  cr_assert_eq(a->bytes, 24);
  cr_assert_eq(b->type, DTYPE_Q8_0);
  cr_assert_eq(b->bytes, 34);
  cr_assert_eq(b->offset, f.data_offset + 32);
  cr_assert_eq(*(const float *)c->data, 42.0f);
  cr_assert_eq(((const float *)a->data)[0], -3.0f);
  gguf_close(&f);
  cr_assert_not(is_mapped(path));
  gguf_close(&f); /* again: harmless */
  bump_free(&memory);
  sweep();
}

Test(gguf_read, typed_reads) {
  size_t header_bytes;
  good_file(&buffer, &header_bytes);
  bump memory;
  bump_init(&memory, 0);
  gguf_file f;
  stint_error error = {0};
  cr_assert_eq(parse(&buffer, &memory, &f, &error), STINT_OK, "%s", error.text);
  int64_t i;
  double x;
  bool flag;
  gguf_text t;
  cr_assert_eq(gguf_get_int(&f, "n", 1, 7, &i, &error), STINT_OK);
  cr_assert_eq(i, 7);
  cr_assert_eq(gguf_get_int(&f, "n", 1, 6, &i, &error), STINT_BAD_INPUT);
  cr_assert(strstr(error.text, "t.gguf: byte ") && strstr(error.text, "'n'") && strstr(error.text, "is 7") &&
                strstr(error.text, "1 to 6"),
            "%s", error.text);
  cr_assert_eq(gguf_get_int(&f, "n", 8, 9, &i, NULL), STINT_BAD_INPUT);
  cr_assert_eq(gguf_get_int(&f, "m", 0, 9, &i, &error), STINT_BAD_INPUT);
  cr_assert(strstr(error.text, "'m' is missing"), "%s", error.text);
  cr_assert_eq(gguf_get_int_or(&f, "m", 0, 9, 3, &i, &error), STINT_OK);
  cr_assert_eq(i, 3);
  cr_assert_eq(gguf_get_int_or(&f, "x", 0, 9, 3, &i, &error), STINT_BAD_INPUT);
  cr_assert(strstr(error.text, "is f32") && strstr(error.text, "an integer is needed"), "%s", error.text);
  cr_assert_eq(gguf_get_int(&f, "ints", 0, 9, &i, &error), STINT_BAD_INPUT);
  cr_assert(strstr(error.text, "an array of i32"), "%s", error.text);
  cr_assert_eq(gguf_get_float_or(&f, "x", 1, &x, &error), STINT_OK);
  cr_assert_eq(x, 0.5);
  cr_assert_eq(gguf_get_float_or(&f, "y", 1.25, &x, &error), STINT_OK);
  cr_assert_eq(x, 1.25);
  cr_assert_eq(gguf_get_float_or(&f, "n", 1, &x, &error), STINT_BAD_INPUT);
  cr_assert_eq(gguf_get_bool_or(&f, "flag", false, &flag, &error), STINT_OK);
  cr_assert(flag);
  cr_assert_eq(gguf_get_bool_or(&f, "none", true, &flag, &error), STINT_OK);
  cr_assert(flag);
  cr_assert_eq(gguf_get_bool_or(&f, "n", true, &flag, &error), STINT_BAD_INPUT);
  cr_assert_eq(gguf_get_text(&f, "general.architecture", &t, &error), STINT_OK);
  cr_assert(gguf_text_is(t, "test"));
  cr_assert_not(gguf_text_is(t, "tes"));
  cr_assert_eq(gguf_get_text_or(&f, "none", "other", &t, &error), STINT_OK);
  cr_assert(gguf_text_is(t, "other"));
  cr_assert_eq(gguf_get_text_or(&f, "n", "other", &t, &error), STINT_BAD_INPUT);
  cr_assert_eq(gguf_get_text(&f, "texts", &t, &error), STINT_BAD_INPUT);

  gguf_strings walk = {.key = gguf_find_key(&f, "texts")};
  const char *const expected[] = {"one", "", "three"};
  for (int k = 0; k < 3; k++) {
    cr_assert(gguf_next_string(&walk, &t));
    cr_assert(gguf_text_is(t, expected[k]), "text %d", k);
  }
  cr_assert_not(gguf_next_string(&walk, &t));
  walk = (gguf_strings){.key = gguf_find_key(&f, "ints")};
  cr_assert_not(gguf_next_string(&walk, &t));
  walk = (gguf_strings){0};
  cr_assert_not(gguf_next_string(&walk, &t));
  cr_assert_eq(gguf_array_int(gguf_find_key(&f, "ints"), 1), -2);
  cr_assert_eq(gguf_array_int(gguf_find_key(&f, "ints"), 2), 0); /* past the end */
  cr_assert_eq(gguf_array_float(gguf_find_key(&f, "ints"), 1), -2.0);
  bump_free(&memory);
}

Test(gguf_read, a_float_key_must_be_finite) {
  const float bad[] = {NAN, INFINITY, -INFINITY};
  for (int i = 0; i < 3; i++) {
    header(&buffer, 3, 0, 1);
    key(&buffer, "eps", T_F32);
    f32(&buffer, bad[i]);
    bump memory;
    bump_init(&memory, 0);
    gguf_file f;
    stint_error error = {0};
    double x;
    cr_assert_eq(parse(&buffer, &memory, &f, &error), STINT_OK, "%s", error.text);
    cr_assert_eq(gguf_get_float_or(&f, "eps", 1, &x, &error), STINT_BAD_INPUT, "%g", (double)bad[i]);
    cr_assert(strstr(error.text, "'eps'") && strstr(error.text, "finite"), "%s", error.text);
    bump_free(&memory);
  }
}

/* Planning reads a header alone, cut anywhere in its last padding. */
Test(gguf_read, header_only) {
  size_t header_bytes;
  good_file(&buffer, &header_bytes);
  const size_t data = (header_bytes + 31) / 32 * 32;
  cr_assert_gt(data, header_bytes); /* or the loop below is one case */
  for (size_t n = header_bytes; n <= data; n++) {
    bump memory;
    bump_init(&memory, 0);
    gguf_file f;
    stint_error error = {0};
    cr_assert_eq(gguf_parse("t.gguf", buffer.at, n, &memory, &f, &error), STINT_OK, "%zu: %s", n, error.text);
    cr_assert(f.header_only);
    cr_assert_eq(gguf_find_tensor(&f, "b.weight")->offset, data + 32);
    cr_assert_null(gguf_find_tensor(&f, "b.weight")->data);
    bump_free(&memory);
  }
}

Test(gguf_read, version_2_gaps_and_other_alignments) {
  const uint32_t alignments[] = {8, 16, 64, 4096};
  for (int i = 0; i < 4; i++) {
    const uint32_t align = alignments[i];
    header(&buffer, 2, 2, 1);
    key_u32(&buffer, "general.alignment", align);
    tensor(&buffer, "late", 0, 1, NE(1), 4 * align); /* a gap, and out of order: neither overlaps */
    tensor(&buffer, "early", 0, 1, NE(1), 0);
    pad(&buffer, align);
    const size_t data = buffer.n;
    f32(&buffer, 1);
    while (buffer.n < data + 4 * align) u8(&buffer, 0);
    f32(&buffer, 2); /* no padding after the last */
    bump memory;
    bump_init(&memory, 0);
    gguf_file f;
    stint_error error = {0};
    cr_assert_eq(parse(&buffer, &memory, &f, &error), STINT_OK, "%u: %s", align, error.text);
    float value;
    memcpy(&value, gguf_find_tensor(&f, "late")->data, sizeof value);
    cr_assert_eq(value, 2.0f);
    memcpy(&value, gguf_find_tensor(&f, "early")->data, sizeof value);
    cr_assert_eq(value, 1.0f);
    bump_free(&memory);
  }
}

static gguf_file open_data(const char *const name, bump *const memory) {
  char path[1024];
  stint_error error = {0};
  gguf_file f;
  snprintf(path, sizeof path, "%s/tests/formats/data/%s",
           getenv("STINT_SOURCE") ? getenv("STINT_SOURCE") : ".", name);
  cr_assert_eq(gguf_open(path, memory, &f, &error), STINT_OK, "%s", error.text);
  return f;
}

static int64_t int_of(const gguf_file *const f, const char *const name) {
  int64_t v;
  stint_error error = {0};
  cr_assert_eq(gguf_get_int(f, name, INT64_MIN, INT64_MAX, &v, &error), STINT_OK, "%s", error.text);
  return v;
}

/* A file that the Python package wrote (tests/oracles/gguf_files.py): the values are its program's. */
Test(gguf_read, file_of_the_gguf_package) {
  bump memory;
  bump_init(&memory, 0);
  gguf_file f = open_data("types.gguf", &memory);
  stint_error error = {0};
  cr_assert_eq(f.alignment, 64);
  const struct {
    const char *name;
    int64_t value;
  } ints[] = {{"k.u8", 200},
              {"k.i8", -100},
              {"k.u16", 60000},
              {"k.i16", -30000},
              {"k.u32", 4000000000},
              {"k.i32", -2000000000},
              {"k.i64", -((int64_t)1 << 62)},
              {"general.alignment", 64}};
  for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
    cr_assert_eq(int_of(&f, ints[i].name), ints[i].value, "%s", ints[i].name);
  int64_t v;
  cr_assert_eq(gguf_get_int(&f, "k.u64", INT64_MIN, INT64_MAX, &v, &error), STINT_BAD_INPUT); /* 2^63 */
  cr_assert(strstr(error.text, "above 9223372036854775807"), "%s", error.text);
  double x;
  cr_assert_eq(gguf_get_float_or(&f, "k.f32", 0, &x, &error), STINT_OK);
  cr_assert_eq(x, (double)0.1f);
  cr_assert_eq(gguf_get_float_or(&f, "k.f64", 0, &x, &error), STINT_OK);
  cr_assert_eq(x, 0.1);
  bool flag;
  cr_assert_eq(gguf_get_bool_or(&f, "k.true", false, &flag, &error), STINT_OK);
  cr_assert(flag);
  cr_assert_eq(gguf_get_bool_or(&f, "k.false", true, &flag, &error), STINT_OK);
  cr_assert_not(flag);
  gguf_text t;
  cr_assert_eq(gguf_get_text(&f, "k.text", &t, &error), STINT_OK);
  cr_assert(gguf_text_is(t, "gr\xc3\xbc\xc3\x9f"
                            "e, \xe4\xb8\x96\xe7\x95\x8c"));

  const int64_t pi[] = {3, -1, 4, -1, 5}, small[] = {0, 1, 255};
  const double floats[] = {0.5, -0.25, (double)1e30f};
  for (int i = 0; i < 5; i++) cr_assert_eq(gguf_array_int(gguf_find_key(&f, "a.ints"), (uint64_t)i), pi[i]);
  for (int i = 0; i < 3; i++) {
    cr_assert_eq(gguf_array_float(gguf_find_key(&f, "a.floats"), (uint64_t)i), floats[i]);
    cr_assert_eq(gguf_array_int(gguf_find_key(&f, "a.bytes"), (uint64_t)i), small[i]); /* narrower than i32 */
    cr_assert_eq(gguf_array_int(gguf_find_key(&f, "a.bools"), (uint64_t)i), i != 1);
  }
  gguf_strings walk = {.key = gguf_find_key(&f, "a.texts")};
  const size_t lengths[] = {0, 1, 6, 300};
  for (int i = 0; i < 4; i++) {
    cr_assert(gguf_next_string(&walk, &t));
    cr_assert_eq(t.bytes, lengths[i]);
  }

  const gguf_tensor *const plain = gguf_find_tensor(&f, "plain.f32"),
                           *const half = gguf_find_tensor(&f, "plain.f16"),
                           *const block = gguf_find_tensor(&f, "block.q8_0"),
                           *const whole = gguf_find_tensor(&f, "plain.i32");
  cr_assert(plain->ne[0] == 5 && plain->ne[1] == 3 && plain->n_dims == 2);
  cr_assert(half->ne[0] == 7 && half->n_dims == 1);
  cr_assert(block->ne[0] == 64 && block->ne[1] == 2 && block->bytes == 2 * 2 * 34);
  cr_assert(whole->ne[0] == 2 && whole->ne[1] == 1 && whole->ne[2] == 2 && whole->ne[3] == 1 &&
            whole->n_dims == 4);
  float values[128];
  dequantize_row(plain->type, plain->data, values, 15);
  for (int i = 0; i < 15; i++) cr_assert_eq(values[i], (float)(i - 7));
  dequantize_row(half->type, half->data, values, 7);
  for (int i = 0; i < 7; i++) cr_assert_eq(values[i], (float)(i - 3) * 0.5f);
  dequantize_row(block->type, block->data, values, 128);
  for (int i = 0; i < 128; i++) /* half a step of the largest block's scale, 16 / 127 */
    cr_assert_float_eq(values[i], (float)(i - 64) * 0.25f, 16.0f / 127 * 0.51f, "%d", i);
  for (int i = 0; i < 4; i++) cr_assert_eq(((const int32_t *)whole->data)[i], i);
  gguf_close(&f);
  bump_free(&memory);
}

Test(gguf_read, real_models) {
  const char *const shared = getenv("STINT_SHARED");
  if (!shared) cr_skip("STINT_SHARED is unset: set it to the folder with models/stories260K.gguf");
  const struct {
    const char *name;
    size_t n_tensors;
    const char *architecture;
  } models[] = {{"stories260K", 47, "llama"},
                {"ggml-vocab-gpt-2", 0, "gpt2"},
                {"ggml-vocab-qwen2", 0, "qwen2"},
                {"ggml-vocab-llama-bpe", 0, "llama"},
                {"ggml-vocab-llama-spm", 0, "llama"}};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    char path[1024];
    snprintf(path, sizeof path, "%s/models/%s.gguf", shared, models[i].name);
    bump memory;
    bump_init(&memory, 0);
    gguf_file f;
    gguf_text t;
    stint_error error = {0};
    cr_assert_eq(gguf_open(path, &memory, &f, &error), STINT_OK, "%s", error.text);
    cr_assert_eq(f.n_tensors, models[i].n_tensors, "%s: %zu", models[i].name, f.n_tensors);
    cr_assert_not(f.header_only, "%s", models[i].name);
    cr_assert_eq(gguf_get_text(&f, "general.architecture", &t, &error), STINT_OK, "%s", error.text);
    cr_assert(gguf_text_is(t, models[i].architecture), "%s", models[i].name);
    gguf_strings walk = {.key = gguf_find_key(&f, "tokenizer.ggml.tokens")};
    uint64_t n = 0;
    while (gguf_next_string(&walk, &t)) n++;
    cr_assert(n > 0 && n == walk.key->count, "%s", models[i].name);
    for (size_t k = 0; k < f.n_keys; k++) {
      char name[256];
      snprintf(name, sizeof name, "%.*s", (int)f.keys[k].name.bytes, f.keys[k].name.data);
      cr_assert_eq(gguf_find_key(&f, name), &f.keys[k], "%s", name);
    }
    for (size_t k = 0; k < f.n_tensors; k++)
      cr_assert_eq(gguf_find_tensor(&f, f.tensors[k].name), &f.tensors[k]);
    gguf_close(&f);
    bump_free(&memory);
  }
}
