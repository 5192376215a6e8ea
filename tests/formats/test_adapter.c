/* LoRA adapters: written, read back, made by another program, and every way in which one can fail to fit its base. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>

#include "engine/formats/adapter.h"
#include "tests/formats/gguf_bytes.h"

/* The base: a header alone, as planning reads it. */
static bytes base_bytes;
static bump memory;
static gguf_file base;

static void open_base(const char *const architecture) {
  bytes *const b = &base_bytes;
  header(b, 3, 9, 1);
  key_text(b, "general.architecture", architecture);
  tensor(b, "token_embd.weight", 0, 2, NE(8, 32), 0);
  tensor(b, "output.weight", 2, 2, NE(32, 32), 1024);
  tensor(b, "blk.0.attn_q.weight", 0, 2, NE(8, 8), 2048);
  tensor(b, "blk.0.attn_k.weight", 1, 2, NE(8, 4), 2304);
  tensor(b, "blk.0.ffn_up_exps.weight", 0, 3, NE(8, 12, 3), 2560);
  tensor(b, "blk.0.attn_norm.weight", 0, 1, NE(8), 4096);
  tensor(b, "blk.0.attn_q.bias", 0, 1, NE(8), 4160);
  tensor(b, "blk.0.ssm_conv1d.weight", 0, 2, NE(4, 8), 4192);
  tensor(b, "blk.0.ffn_norm.weight", 0, 1, NE(8), 4352);
  stint_error error = {0};
  bump_init(&memory, 0);
  cr_assert_eq(gguf_parse("base.gguf", b->at, b->n, &memory, &base, &error), STINT_OK, "%s", error.text);
}

static void finish(void) {
  bump_free(&memory);
  sweep();
}

static float a_q[8 * 2], b_q[2 * 8], a_e[2 * 32], b_e[2 * 8], a_x[8 * 4 * 3], b_x[4 * 12 * 3];

static void fill(float *const x, const int n, const float from) {
  for (int i = 0; i < n; i++) x[i] = from + (float)i * 0.125f;
}

static const adapter_note notes[] = {{"stint.base_digest", "0123456789abcdef"}, {"stint.version", "0.1.0"}};
static adapter_facts facts = {
    .architecture = "llama", .alpha = 6, .name = "a test", .step = 400, .notes = notes, .n_notes = 2};
static adapter_pair pairs[] = {
    {"blk.0.attn_q.weight", {8, 8, 1}, 2, a_q, b_q},
    {"token_embd.weight", {8, 32, 1}, 2, a_e, b_e},
    {"blk.0.ffn_up_exps.weight", {8, 12, 3}, 4, a_x, b_x},
};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

static void fill_pairs(void) {
  fill(a_q, 16, -1), fill(b_q, 16, 2), fill(a_e, 64, 3), fill(b_e, 16, 4), fill(a_x, 96, 5),
      fill(b_x, 144, 6);
  a_q[3] = -0.0f;     /* a bit that no == sees */
  b_q[0] = 0x1p-149f; /* the smallest subnormal */
}

Test(adapter, written_opened_and_verified) {
  open_base("llama");
  fill_pairs();
  const char *const path = in_folder("adapter.gguf");
  stint_error error = {0};
  cr_assert_eq(adapter_write(path, &facts, pairs, N_PAIRS, &memory, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(adapter_verify(path, &facts, pairs, N_PAIRS, &base, &memory, &error), STINT_OK, "%s",
               error.text);
  adapter_file f;
  cr_assert_eq(adapter_open(path, &base, &memory, &f, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(f.alpha, 6.0f);
  cr_assert_eq(f.n_entries, N_PAIRS);
  const adapter_entry *const q = adapter_find(&f, "blk.0.attn_q.weight"),
                             *const e = adapter_find(&f, "token_embd.weight"),
                             *const x = adapter_find(&f, "blk.0.ffn_up_exps.weight");
  cr_assert(q && e && x);
  cr_assert_null(adapter_find(&f, "output.weight"));
  cr_assert(q->rank == 2 && q->scale == 3.0f && !q->flipped &&
            q->base == gguf_find_tensor(&base, "blk.0.attn_q.weight"));
  cr_assert(x->rank == 4 && x->scale == 1.5f && x->a->ne[2] == 3 && x->b->ne[1] == 12 && x->b->n_dims == 3);
  cr_assert(e->flipped && e->a->ne[0] == 2 && e->a->ne[1] == 32 && e->b->ne[0] == 2 && e->b->ne[1] == 8);
  float values[144];
  cr_assert_eq(adapter_copy(&f, x->b, values, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(memcmp(values, b_x, sizeof b_x), 0);
  gguf_text t;
  cr_assert_eq(gguf_get_text(&f.file, "adapter.type", &t, &error), STINT_OK, "%s", error.text);
  cr_assert(gguf_text_is(t, "lora"));
  cr_assert_eq(gguf_get_text(&f.file, "stint.base_digest", &t, &error), STINT_OK, "%s", error.text);
  cr_assert(gguf_text_is(t, "0123456789abcdef"));
  adapter_close(&f);
  cr_assert_not(is_mapped(path));
  finish();
}

/* Every bit of the file, flipped on disk: verify must see each one that a reader would see (padding it need not). */
Test(adapter, verify_sees_every_flipped_bit) {
  open_base("llama");
  fill_pairs();
  const char *const path = in_folder("adapter.gguf");
  static unsigned char file[8192];
  stint_error error = {0};
  cr_assert_eq(adapter_write(path, &facts, pairs, 1, &memory, &error), STINT_OK, "%s", error.text);
  const size_t n = fetch(path, file, sizeof file);
  adapter_file f;
  cr_assert_eq(adapter_open(path, &base, &memory, &f, &error), STINT_OK, "%s", error.text);
  const size_t data = f.file.data_offset, infos_end = data - 31; /* at most 31 bytes of padding */
  adapter_close(&f);
  cr_assert_eq(n, data + 128); /* two tensors of 64 bytes, no padding between */
  const int fd = open(path, O_WRONLY);
  cr_assert_geq(fd, 0);
  for (size_t bit = 0; bit < 8 * n; bit++) {
    if (bit / 8 >= infos_end && bit / 8 < data) continue;
    bump space;
    bump_init(&space, 0);
    const unsigned char flipped = file[bit / 8] ^ (unsigned char)(1 << bit % 8);
    cr_assert_eq(pwrite(fd, &flipped, 1, (off_t)(bit / 8)), 1);
    const stint_status status = adapter_verify(path, &facts, pairs, 1, &base, &space, &error);
    /* version 2 instead of 3 is as good */
    if (status == STINT_OK) cr_expect_eq(bit, 8 * 4, "bit %zu of byte %zu passed", bit % 8, bit / 8);
    cr_assert_eq(pwrite(fd, &file[bit / 8], 1, (off_t)(bit / 8)), 1);
    bump_free(&space);
  }
  close(fd);
  cr_expect_not(is_mapped(path));
  finish();
}

Test(adapter, verify_sees_memory_that_differs) {
  open_base("llama");
  fill_pairs();
  const char *const path = in_folder("adapter.gguf");
  stint_error error = {0};
  cr_assert_eq(adapter_write(path, &facts, pairs, N_PAIRS, &memory, &error), STINT_OK, "%s", error.text);
  a_q[3] = 0.0f; /* was -0 */
  cr_expect_eq(adapter_verify(path, &facts, pairs, N_PAIRS, &base, &memory, &error), STINT_IO);
  cr_expect(strstr(error.text, path) && strstr(error.text, "blk.0.attn_q.weight.lora_a"), "%s", error.text);
  a_q[3] = -0.0f;
  adapter_facts other = facts;
  other.step = 401;
  cr_expect_eq(adapter_verify(path, &other, pairs, N_PAIRS, &base, &memory, &error), STINT_IO);
  cr_expect(strstr(error.text, "stint.step"), "%s", error.text);
  other = facts, other.alpha = 7;
  cr_expect_eq(adapter_verify(path, &other, pairs, N_PAIRS, &base, &memory, &error), STINT_IO);
  other = facts, other.name = "b test";
  cr_expect_eq(adapter_verify(path, &other, pairs, N_PAIRS, &base, &memory, &error), STINT_IO);
  cr_expect_eq(adapter_verify(path, &facts, pairs, N_PAIRS - 1, &base, &memory, &error), STINT_IO);
  cr_expect_eq(adapter_verify(path, &facts, pairs, N_PAIRS, &base, &memory, &error), STINT_OK, "%s",
               error.text);
  finish();
}

/* tests/oracles/gguf_files.py: F32 and F16 factors, by the package `gguf`. */
Test(adapter, adapter_of_the_gguf_package) {
  open_base("llama");
  char path[1024];
  snprintf(path, sizeof path, "%s/tests/formats/data/lora.gguf",
           getenv("STINT_SOURCE") ? getenv("STINT_SOURCE") : ".");
  stint_error error = {0};
  adapter_file f;
  cr_assert_eq(adapter_open(path, &base, &memory, &f, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(f.n_entries, 2);
  const adapter_entry *const q = adapter_find(&f, "blk.0.attn_q.weight"), *const x = adapter_find(
                                                                              &f, "blk.0.ffn_up_exps.weight");
  cr_assert(q && x && q->scale == 3.0f && x->scale == 1.5f && x->a->type == DTYPE_F16);
  float values[144];
  cr_assert_eq(adapter_copy(&f, q->b, values, &error), STINT_OK);
  for (int i = 0; i < 16; i++) cr_assert_eq(values[i], (float)(i - 8) * 0.25f);
  cr_assert_eq(adapter_copy(&f, x->a, values, &error), STINT_OK);
  for (int i = 0; i < 96; i++) cr_assert_eq(values[i], (float)(i - 48) * 0.5f);
  cr_assert_eq(adapter_copy(&f, x->b, values, &error), STINT_OK);
  for (int i = 0; i < 144; i++) cr_assert_eq(values[i], (float)(i - 72) * 0.5f);
  adapter_close(&f);
  finish();
}

/* ---- what must be refused ---- */

typedef enum alpha_kind {
  ALPHA_GOOD,
  ALPHA_NONE,
  ALPHA_U32,
  ALPHA_0,
  ALPHA_NAN,
  ALPHA_NEGATIVE,
  ALPHA_INF
} alpha_kind;

typedef struct refusal {
  const char *name;
  const char *type, *lora, *architecture; /* NULL: good */
  alpha_kind alpha;
  struct {
    const char *name;
    dtype type;
    int n_dims;
    int64_t ne[4];
  } t[3];
  const char *fragments[3];
} refusal;

#define Q_A                                                                                                  \
  {                                                                                                          \
    "blk.0.attn_q.weight.lora_a", DTYPE_F32, 2, { 8, 2 }                                                     \
  }
#define Q_B                                                                                                  \
  {                                                                                                          \
    "blk.0.attn_q.weight.lora_b", DTYPE_F32, 2, { 2, 8 }                                                     \
  }
#define X_A                                                                                                  \
  {                                                                                                          \
    "blk.0.ffn_up_exps.weight.lora_a", DTYPE_F32, 3, { 8, 4, 3 }                                             \
  }
#define X_B                                                                                                  \
  {                                                                                                          \
    "blk.0.ffn_up_exps.weight.lora_b", DTYPE_F32, 3, { 4, 12, 3 }                                            \
  }

static const refusal refusals[] = {
    {.name = "a model",
     .type = "model",
     .t = {Q_A, Q_B},
     .fragments = {"'general.type'", "'model'", "'adapter' is needed"}},
    {.name = "no general.type", .type = "", .t = {Q_A, Q_B}, .fragments = {"'general.type' is missing"}},
    {.name = "a control vector",
     .lora = "control",
     .t = {Q_A, Q_B},
     .fragments = {"'adapter.type'", "'lora' is needed"}},
    {.name = "another family",
     .architecture = "mamba",
     .t = {Q_A, Q_B},
     .fragments = {"'general.architecture'", "'mamba'", "'llama' is needed"}},
    {.name = "no alpha",
     .alpha = ALPHA_NONE,
     .t = {Q_A, Q_B},
     .fragments = {"'adapter.lora.alpha' is missing"}},
    {.name = "alpha as u32",
     .alpha = ALPHA_U32,
     .t = {Q_A, Q_B},
     .fragments = {"'adapter.lora.alpha'", "type is u32", "f32 is needed"}},
    {.name = "alpha 0", .alpha = ALPHA_0, .t = {Q_A, Q_B}, .fragments = {"'adapter.lora.alpha'", "above 0"}},
    {.name = "alpha NaN",
     .alpha = ALPHA_NAN,
     .t = {Q_A, Q_B},
     .fragments = {"'adapter.lora.alpha'", "above 0"}},
    {.name = "alpha negative",
     .alpha = ALPHA_NEGATIVE,
     .t = {Q_A, Q_B},
     .fragments = {"'adapter.lora.alpha'", "-6"}},
    {.name = "alpha infinite",
     .alpha = ALPHA_INF,
     .t = {Q_A, Q_B},
     .fragments = {"'adapter.lora.alpha'", "finite"}},
    {.name = "no tensors", .fragments = {"holds no tensor data"}},
    {.name = "A alone",
     .t = {Q_A},
     .fragments = {"'blk.0.attn_q.weight.lora_a'", "'blk.0.attn_q.weight.lora_b', is missing"}},
    {.name = "B alone",
     .t = {Q_B},
     .fragments = {"'blk.0.attn_q.weight.lora_b'", "'blk.0.attn_q.weight.lora_a', is missing"}},
    {.name = "one and a half pairs",
     .t = {Q_A, Q_B, X_B},
     .fragments = {"'blk.0.ffn_up_exps.weight.lora_b'", "is missing"}},
    {.name = "a tensor of another kind",
     .t = {Q_A, Q_B, {"blk.0.attn_norm.weight", DTYPE_F32, 1, {8}}},
     .fragments = {"'blk.0.attn_norm.weight'", "only '.lora_a' and '.lora_b'"}},
    {.name = "not in the base",
     .t = {{"blk.7.attn_q.weight.lora_a", DTYPE_F32, 2, {8, 2}},
           {"blk.7.attn_q.weight.lora_b", DTYPE_F32, 2, {2, 8}}},
     .fragments = {"base.gguf has no tensor 'blk.7.attn_q.weight'"}},
    {.name = "suffix without a name",
     .t = {{".lora_a", DTYPE_F32, 2, {8, 2}}, {".lora_b", DTYPE_F32, 2, {2, 8}}},
     .fragments = {"no tensor ''"}},
    {.name = "a norm",
     .t = {{"blk.0.attn_norm.weight.lora_a", DTYPE_F32, 2, {8, 2}},
           {"blk.0.attn_norm.weight.lora_b", DTYPE_F32, 2, {2, 1}}},
     .fragments = {"'blk.0.attn_norm.weight' is no matrix"}},
    {.name = "a convolution",
     .t = {{"blk.0.ssm_conv1d.weight.lora_a", DTYPE_F32, 2, {4, 2}},
           {"blk.0.ssm_conv1d.weight.lora_b", DTYPE_F32, 2, {2, 8}}},
     .fragments = {"'blk.0.ssm_conv1d.weight' is no matrix"}},
    {.name = "n_in differs",
     .t = {{"blk.0.attn_q.weight.lora_a", DTYPE_F32, 2, {9, 2}}, Q_B},
     .fragments = {".lora_a'", "[9, 2, 1, 1]", "[8, 2, 1, 1]"}},
    {.name = "n_out differs",
     .t = {Q_A, {"blk.0.attn_q.weight.lora_b", DTYPE_F32, 2, {2, 4}}},
     .fragments = {".lora_b'", "[2, 4, 1, 1]", "[2, 8, 1, 1]"}},
    {.name = "ranks differ within a pair",
     .t = {Q_A, {"blk.0.attn_q.weight.lora_b", DTYPE_F32, 2, {3, 8}}},
     .fragments = {".lora_a'", "[8, 2, 1, 1]", "[8, 3, 1, 1]"}},
    {.name = "A transposed",
     .t = {{"blk.0.attn_q.weight.lora_a", DTYPE_F32, 2, {2, 8}}, Q_B},
     .fragments = {".lora_a'", "[2, 8, 1, 1]"}},
    {.name = "embedding not flipped",
     .t = {{"token_embd.weight.lora_a", DTYPE_F32, 2, {8, 2}},
           {"token_embd.weight.lora_b", DTYPE_F32, 2, {2, 32}}},
     .fragments = {"'token_embd.weight.lora_a'", "[2, 32, 1, 1]"}},
    {.name = "too few experts in A",
     .t = {{"blk.0.ffn_up_exps.weight.lora_a", DTYPE_F32, 3, {8, 4, 2}}, X_B},
     .fragments = {".lora_a'", "[8, 4, 2, 1]", "[8, 4, 3, 1]"}},
    {.name = "too few experts in B",
     .t = {X_A, {"blk.0.ffn_up_exps.weight.lora_b", DTYPE_F32, 2, {4, 12}}},
     .fragments = {".lora_b'", "[4, 12, 1, 1]"}},
    {.name = "a third size on a matrix",
     .t = {{"blk.0.attn_q.weight.lora_a", DTYPE_F32, 3, {8, 2, 2}}, Q_B},
     .fragments = {".lora_a'", "[8, 2, 2, 1]"}},
    {.name = "a fourth size",
     .t = {{"blk.0.attn_q.weight.lora_a", DTYPE_F32, 4, {8, 2, 1, 2}}, Q_B},
     .fragments = {".lora_a'", "[8, 2, 1, 2]"}},
    {.name = "quantized factor",
     .t = {Q_A, {"blk.0.attn_q.weight.lora_b", DTYPE_Q8_0, 2, {32, 8}}},
     .fragments = {".lora_", "F32, F16 and BF16 are read"}},
    {.name = "integers",
     .t = {{"blk.0.attn_q.weight.lora_a", DTYPE_I32, 2, {8, 2}}, Q_B},
     .fragments = {".lora_a'", "I32"}},
};

static void write_refusal(const char *const path, const refusal *const r, const bool alora) {
  gguf_writer *w;
  stint_error error = {0};
  cr_assert_eq(gguf_write_open(path, &memory, &w, &error), STINT_OK, "%s", error.text);
  const char *const type = r->type ? r->type : "adapter", *const lora = r->lora ? r->lora : "lora",
                    *const architecture = r->architecture ? r->architecture : "llama";
  if (*type) gguf_write_text(w, "general.type", type, strlen(type));
  gguf_write_text(w, "general.architecture", architecture, strlen(architecture));
  gguf_write_text(w, "adapter.type", lora, strlen(lora));
  const float alphas[] = {6, 6, 6, 0, NAN, -6, INFINITY};
  if (r->alpha == ALPHA_U32) {
    gguf_write_u32(w, "adapter.lora.alpha", 6);
  } else if (r->alpha != ALPHA_NONE) {
    gguf_write_f32(w, "adapter.lora.alpha", alphas[r->alpha]);
  }
  if (alora) gguf_write_i32_array(w, "adapter.alora.invocation_tokens", (const int32_t[]){1, 2}, 2);
  static const float values[1024];
  for (int i = 0; i < 3 && r->t[i].name; i++)
    gguf_write_tensor(w, r->t[i].name, r->t[i].type, r->t[i].n_dims, r->t[i].ne);
  for (int i = 0; i < 3 && r->t[i].name; i++) {
    int64_t n = 1;
    for (int d = 0; d < r->t[i].n_dims; d++) n *= r->t[i].ne[d];
    gguf_write_data(w, values, dtype_bytes(r->t[i].type, n));
  }
  cr_assert_eq(gguf_write_close(w, &error), STINT_OK, "%s: %s", r->name, error.text);
}

static void expect_refused(const char *const path, const char *const name,
                           const char *const *const fragments) {
  adapter_file f;
  stint_error error = {0};
  const stint_status status = adapter_open(path, &base, &memory, &f, &error);
  cr_expect(status == STINT_BAD_INPUT || status == STINT_UNSUPPORTED, "%s: status %d %s", name, status,
            error.text);
  cr_expect(strstr(error.text, path) && strchr(error.text, ';'), "%s: no file or no remedy in: %s", name,
            error.text);
  for (int k = 0; k < 3 && fragments[k]; k++)
    cr_expect(strstr(error.text, fragments[k]), "%s: '%s' is not in: %s", name, fragments[k], error.text);
  cr_expect_not(is_mapped(path), "%s: still mapped", name);
}

Test(adapter, what_does_not_fit_the_base_is_refused) {
  open_base("llama");
  const char *const path = in_folder("wrong.gguf");
  const refusal good = {.name = "good", .t = {Q_A, Q_B}};
  adapter_file f;
  stint_error error = {0};
  write_refusal(path, &good, false);
  cr_assert_eq(adapter_open(path, &base, &memory, &f, &error), STINT_OK, "the case that all others vary: %s",
               error.text);
  adapter_close(&f);
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    write_refusal(path, &refusals[i], false);
    expect_refused(path, refusals[i].name, refusals[i].fragments);
  }
  write_refusal(path, &good, true);
  expect_refused(path, "aLoRA", (const char *const[]){"invocation", NULL, NULL});
  finish();
}

Test(adapter, a_header_without_data_is_refused) {
  open_base("llama");
  fill_pairs();
  const char *const path = in_folder("adapter.gguf");
  static unsigned char file[8192];
  stint_error error = {0};
  cr_assert_eq(adapter_write(path, &facts, pairs, 1, &memory, &error), STINT_OK, "%s", error.text);
  const size_t n = fetch(path, file, sizeof file);
  store(path, file, n - 128);
  expect_refused(path, "header", (const char *const[]){"holds no tensor data", NULL, NULL});
  store(path, file, n - 1);
  expect_refused(path, "cut", (const char *const[]){"truncated", NULL, NULL});
  finish();
}

Test(adapter, values_that_are_not_finite) {
  open_base("llama");
  const char *const path = in_folder("adapter.gguf");
  const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
  for (int i = 0; i < 4; i++) {
    fill_pairs();
    b_x[143] = bad[i];
    stint_error error = {0};
    cr_expect_eq(adapter_write(path, &facts, pairs, N_PAIRS, &memory, &error), STINT_NOT_FINITE);
    cr_expect(strstr(error.text, "element 143 of blk.0.ffn_up_exps.weight.lora_b"), "%s", error.text);
    cr_expect_not(exists(path));
    /* one from elsewhere */
    const refusal q = {.name = "q", .t = {Q_A, Q_B}};
    write_refusal(path, &q, false);
    static unsigned char file[8192];
    const size_t n = fetch(path, file, sizeof file);
    memcpy(file + n - 4, &bad[i], 4);
    store(path, file, n);
    adapter_file f;
    cr_assert_eq(adapter_open(path, &base, &memory, &f, &error), STINT_OK, "%s", error.text);
    float values[16];
    cr_expect_eq(adapter_copy(&f, f.entries[0].a, values, &error), STINT_OK);
    cr_expect_eq(adapter_copy(&f, f.entries[0].b, values, &error), STINT_BAD_INPUT);
    cr_expect(strstr(error.text, "element 15"), "%s", error.text);
    adapter_close(&f);
    unlink(path);
  }
  finish();
}

Test(adapter, a_name_too_long_for_the_format) {
  open_base("llama");
  fill_pairs();
  adapter_pair p = pairs[0];
  p.target = "blk.0.a_name_of_fifty_seven_bytes_to_which_seven_make_64.x";
  cr_assert_gt(strlen(p.target) + 7, 63);
  stint_error error = {0};
  cr_expect_eq(adapter_write(in_folder("a.gguf"), &facts, &p, 1, &memory, &error), STINT_UNSUPPORTED);
  cr_expect(strstr(error.text, "63 bytes"), "%s", error.text);
  finish();
}

/* What the planner is told is what a write and a verify need; a third of it is refused, not overrun. */
Test(adapter, scratch_suffices) {
  open_base("llama");
  fill_pairs();
  const char *const path = in_folder("adapter.gguf");
  const size_t said = adapter_scratch(path, &facts, pairs, N_PAIRS);
  unsigned char *const space = malloc(said);
  stint_error error = {0};
  bump b;
  bump_init_over(&b, space, said);
  cr_expect_eq(adapter_write(path, &facts, pairs, N_PAIRS, &b, &error), STINT_OK, "%s", error.text);
  bump_init_over(&b, space, said);
  cr_expect_eq(adapter_verify(path, &facts, pairs, N_PAIRS, &base, &b, &error), STINT_OK, "%s", error.text);
  bump_init_over(&b, space, 512);
  cr_expect_eq(adapter_write(path, &facts, pairs, N_PAIRS, &b, &error), STINT_NO_MEMORY);
  bump_init_over(&b, space, 512);
  cr_expect_eq(adapter_verify(path, &facts, pairs, N_PAIRS, &base, &b, &error), STINT_NO_MEMORY);
  cr_expect_not(is_mapped(path));
  free(space);
  finish();
}

Test(adapter, scratch_of_a_large_model) {
  enum { N = 32 * 7 };
  static adapter_pair many[N];
  static char names[N][64];
  static const char *const kinds[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                      "ffn_gate", "ffn_up", "ffn_down"};
  static float a[16], b[16];
  bytes *const bb = &base_bytes;
  header(bb, 3, N, 1);
  key_text(bb, "general.architecture", "llama");
  for (int i = 0; i < N; i++) {
    snprintf(names[i], sizeof names[i], "blk.%d.%s.weight", i / 7, kinds[i % 7]);
    many[i] = (adapter_pair){names[i], {8, 8, 1}, 2, a, b};
    tensor(bb, names[i], 0, 2, NE(8, 8), (uint64_t)i * 256);
  }
  bump_init(&memory, 0);
  stint_error error = {0};
  cr_assert_eq(gguf_parse("base.gguf", bb->at, bb->n, &memory, &base, &error), STINT_OK, "%s", error.text);
  const char *const path = in_folder("adapter.gguf");
  const size_t said = adapter_scratch(path, &facts, many, N);
  cr_expect_leq(said, 256 * 1024, "%zu", said); /* a line of the plan, not a burden */
  unsigned char *const space = malloc(said);
  bump s;
  bump_init_over(&s, space, said);
  cr_expect_eq(adapter_write(path, &facts, many, N, &s, &error), STINT_OK, "%s", error.text);
  bump_init_over(&s, space, said);
  cr_expect_eq(adapter_verify(path, &facts, many, N, &base, &s, &error), STINT_OK, "%s", error.text);
  free(space);
  finish();
}

Test(adapter, what_can_be_adapted) {
  const struct {
    const char *name;
    int n_dims;
    int64_t ne[4];
    bool can;
  } cases[] = {{"blk.0.attn_q.weight", 2, {8, 8, 1, 1}, true},
               {"blk.31.attn_output.weight", 2, {8, 8, 1, 1}, true},
               {"blk.0.attn_qkv.weight", 2, {8, 24, 1, 1}, true},
               {"blk.0.ffn_down.weight", 2, {8, 8, 1, 1}, true},
               {"blk.0.ffn_gate_inp.weight", 2, {8, 4, 1, 1}, true},
               {"blk.0.ffn_gate_exps.weight", 3, {8, 8, 4, 1}, true},
               {"blk.0.ssm_in.weight", 2, {8, 8, 1, 1}, true},
               {"output.weight", 2, {8, 8, 1, 1}, true},
               {"token_embd.weight", 2, {8, 8, 1, 1}, true},
               {"blk.0.attn_norm.weight", 1, {8, 1, 1, 1}, false},
               {"blk.0.ffn_norm.weight", 2, {8, 8, 1, 1}, false},
               {"blk.0.attn_q_norm.weight", 2, {8, 8, 1, 1}, false},
               {"output_norm.weight", 1, {8, 1, 1, 1}, false},
               {"blk.0.attn_q.bias", 1, {8, 1, 1, 1}, false},
               {"blk.0.ssm_conv1d.weight", 2, {4, 8, 1, 1}, false},
               {"blk.0.ssm_a", 2, {16, 8, 1, 1}, false},
               {"blk.0.attn_q.weight", 3, {8, 8, 2, 1}, false},
               {"blk.0.ffn_up.weight", 3, {8, 8, 2, 1}, false},
               {"blk.0.attn_q", 2, {8, 8, 1, 1}, false},
               {"rope_freqs.weight", 1, {8, 1, 1, 1}, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    gguf_tensor t = {.name = cases[i].name, .n_dims = cases[i].n_dims};
    memcpy(t.ne, cases[i].ne, sizeof t.ne);
    cr_expect_eq(adapter_can_target(&t), cases[i].can, "%s, %d dimensions", t.name, t.n_dims);
  }
}
