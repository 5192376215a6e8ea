/* gemm_columns of every vector path against the plain chain, bit for bit: ragged shapes, every weight type, every
 * orientation, strides, column ranges, c0 absent, separate or C itself. Operands end at a forbidden page; what lies
 * between C's rows and outside the range of columns must not change; the scratch is NaN before and has a canary. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/gemm_problem.h"
#include "kernels/dispatch.h"
#include "kernels/math/fma.h"
#include "kernels/ops/matmul.h"
#include "tests/kernels/guarded.h"

typedef void gemm_fn(const gemm_problem *p, int64_t n_first, int64_t n_last, void *scratch);
#if defined(__x86_64__)
void gemm_columns_avx2(const gemm_problem *p, int64_t n_first, int64_t n_last, void *scratch);
void gemm_columns_avx512(const gemm_problem *p, int64_t n_first, int64_t n_last, void *scratch);
#endif

static const dtype weight_types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1};
enum { N_WEIGHT_TYPES = sizeof weight_types / sizeof *weight_types, SCRATCH_CANARY = 4096 };

typedef enum c0_mode { C0_NONE, C0_APART, C0_IS_C } c0_mode;

typedef struct gemm_case {
  int64_t m, n, k, n_first, n_last, lda, ldc, ldc0, ldb; /* ldb in elements */
  dtype type;
  bool a_by_k, b_by_n;
  c0_mode c0;
} gemm_case;

static int64_t up(const int64_t n, const int64_t to) { return (n + to - 1) / to * to; }

/* Runs one case on one path. Returns NULL, or what is wrong. */
static const char *run_case(const gemm_case *const t, gemm_fn *const fn, const uint64_t seed,
                            char text[256]) {
  uint64_t s = seed;
  const int64_t b_rows = t->b_by_n ? t->n : t->k, b_columns = t->b_by_n ? t->k : t->n;
  const int64_t a_rows = t->a_by_k ? t->k : t->m, a_columns = t->a_by_k ? t->m : t->k;
  const size_t b_row_bytes = dtype_bytes(t->type, t->ldb), last_row_bytes = dtype_bytes(t->type, b_columns);
  guarded a = guarded_new(a_rows ? 4 * (size_t)((a_rows - 1) * t->lda + a_columns) : 0);
  guarded b = guarded_new(b_rows ? (size_t)(b_rows - 1) * b_row_bytes + last_row_bytes : 0);
  guarded c = guarded_new(4 * (size_t)((t->m - 1) * t->ldc + t->n));
  guarded c0 = guarded_new(4 * (size_t)((t->m - 1) * t->ldc0 + t->n));
  guarded scratch = guarded_new(gemm_scratch_bytes() + SCRATCH_CANARY);
  float *const af = (float *)(void *)a.data, *const cf = (float *)(void *)c.data,
               *const c0f = (float *)(void *)c0.data;
  float *const want = malloc(c.bytes), *const bf = malloc(4 * (size_t)(b_rows * b_columns) + 4);
  float *const row = malloc(4 * (size_t)b_columns + 4);
  for (int64_t i = 0; i < a_rows; i++)
    for (int64_t j = 0; j < a_columns; j++) af[i * t->lda + j] = draw_float(&s);
  for (int64_t i = 0; i < b_rows; i++) {
    for (int64_t j = 0; j < b_columns; j++) row[j] = draw_float(&s);
    quantize_row(t->type, row, b.data + (size_t)i * b_row_bytes, b_columns);
    dequantize_row(t->type, b.data + (size_t)i * b_row_bytes, bf + i * b_columns, b_columns);
  }
  for (int64_t i = 0; i < t->m; i++)
    for (int64_t j = 0; j < t->n; j++) {
      c0f[i * t->ldc0 + j] = draw_float(&s);
      cf[i * t->ldc + j] = draw_float(&s);
    }
  memcpy(want, cf, c.bytes);
  for (int64_t i = 0; i < t->m; i++)
    for (int64_t j = t->n_first; j < t->n_last; j++) {
      float chain = t->c0 == C0_NONE ? 0.0f : t->c0 == C0_APART ? c0f[i * t->ldc0 + j] : cf[i * t->ldc + j];
      for (int64_t l = 0; l < t->k; l++)
        chain = m_fma(t->a_by_k ? af[l * t->lda + i] : af[i * t->lda + l],
                      t->b_by_n ? bf[j * b_columns + l] : bf[l * b_columns + j], chain);
      want[i * t->ldc + j] = chain;
    }
  const gemm_problem p = {.m = t->m,
                          .n = t->n,
                          .k = t->k,
                          .a = af,
                          .lda = t->lda,
                          .a_by_k = t->a_by_k,
                          .b = b.data,
                          .b_type = t->type,
                          .b_row_bytes = b_row_bytes,
                          .b_by_n = t->b_by_n,
                          .c0 = t->c0 == C0_NONE    ? NULL
                                : t->c0 == C0_APART ? c0f
                                                    : cf,
                          .ldc0 = t->c0 == C0_IS_C ? t->ldc : t->ldc0,
                          .c = cf,
                          .ldc = t->ldc};
  fn(&p, t->n_first, t->n_last, scratch.data);
  const char *wrong = NULL;
  for (int64_t i = 0; i < (int64_t)(c.bytes / 4) && !wrong; i++)
    if (memcmp(want + i, cf + i, 4) != 0) {
      snprintf(text, 256,
               "m=%ld n=%ld [%ld,%ld) k=%ld %s a_by_k=%d b_by_n=%d c0=%d lda=%ld ldc=%ld: row %ld column %ld "
               "is %a, not %a",
               (long)t->m, (long)t->n, (long)t->n_first, (long)t->n_last, (long)t->k, dtype_name(t->type),
               t->a_by_k, t->b_by_n, (int)t->c0, (long)t->lda, (long)t->ldc, (long)(i / t->ldc),
               (long)(i % t->ldc), (double)cf[i], (double)want[i]);
      wrong = text;
    }
  for (size_t i = 0; i < SCRATCH_CANARY && !wrong; i++)
    if (scratch.data[gemm_scratch_bytes() + i] != 0xff) wrong = "wrote past the scratch";
  free(want);
  free(bf);
  free(row);
  guarded_free(&a);
  guarded_free(&b);
  guarded_free(&c);
  guarded_free(&c0);
  guarded_free(&scratch);
  return wrong;
}

static gemm_case make_case(const int64_t m, const int64_t n, const int64_t k, const dtype type,
                           const bool a_by_k, const bool b_by_n, uint64_t *const s) {
  const int64_t block = dtype_find(type)->block_elements;
  gemm_case t = {.m = m,
                 .n = b_by_n ? n : up(n, block),
                 .k = b_by_n ? up(k, block) : k,
                 .type = type,
                 .a_by_k = a_by_k,
                 .b_by_n = b_by_n};
  t.c0 = (c0_mode)draw_to(s, 3);
  t.lda = (a_by_k ? t.m : t.k) + (draw_to(s, 2) ? draw_to(s, 9) : 0);
  t.ldb = up((b_by_n ? t.k : t.n) + (draw_to(s, 2) ? draw_to(s, 70) : 0), block);
  t.ldc = t.n + (draw_to(s, 2) ? draw_to(s, 9) : 0);
  t.ldc0 = t.n + draw_to(s, 3);
  t.n_last = t.n;
  if (draw_to(s, 3) == 0) { /* a range of the columns */
    t.n_first = draw_to(s, t.n);
    if (!b_by_n) t.n_first = t.n_first / block * block;
    t.n_last = t.n_first + 1 + draw_to(s, t.n - t.n_first);
  }
  return t;
}

static void run_all(gemm_fn *const fn) {
  static const int64_t small[] = {1,  2,  3,  5,  6,  7,  8,  12, 13, 14, 15,
                                  16, 17, 27, 28, 29, 31, 32, 33, 43, 64, 65};
  static const int64_t depth[] = {1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 64, 67, 100, 128};
  enum { N_SMALL = sizeof small / sizeof *small, N_DEPTH = sizeof depth / sizeof *depth };
  char text[256];
  uint64_t s = 20;
  int compared = 0;
  for (int i = 0; i < 600; i++) {
    const dtype type = weight_types[i % N_WEIGHT_TYPES];
    const gemm_case t =
        make_case(small[draw_to(&s, N_SMALL)], small[draw_to(&s, N_SMALL)], depth[draw_to(&s, N_DEPTH)], type,
                  i / N_WEIGHT_TYPES & 1, i / N_WEIGHT_TYPES >> 1 & 1, &s);
    const char *const wrong = run_case(&t, fn, (uint64_t)i, text);
    cr_assert_null(wrong, "%s", wrong);
    compared++;
  }
  /* over the edges of each block: rows, columns, k */
  enum { DEEP = GEMM_A_FLOATS / GEMM_MC }; /* k of a block of GEMM_MC rows */
  static const int64_t large[][3] = {{GEMM_MC + 5, 40, 33},
                                     {2 * GEMM_MC + 1, 17, 9},
                                     {9, GEMM_NC + 33, 40},
                                     {5, 2 * GEMM_NC + 1, 20},
                                     {17, 35, GEMM_KC + 1},
                                     {29, 8, 2 * GEMM_KC + 31},
                                     {7, GEMM_NC + 1, GEMM_KC + 32},
                                     {GEMM_MC, 5, DEEP + 3},
                                     {GEMM_MC - 12, 5, DEEP + 32},
                                     {GEMM_MC / 2, 33, GEMM_KC},
                                     {3, 5, 1024},
                                     {1, 100, 2048}};
  for (size_t l = 0; l < sizeof large / sizeof *large; l++)
    for (int o = 0; o < 4; o++) {
      const dtype type = weight_types[(l + (size_t)o) % N_WEIGHT_TYPES];
      const gemm_case t = make_case(large[l][0], large[l][1], large[l][2], type, o & 1, o >> 1, &s);
      const char *const wrong = run_case(&t, fn, 1000 + l, text);
      cr_assert_null(wrong, "%s", wrong);
      compared++;
    }
  const gemm_case none = {
      .m = 3, .n = 5, .n_last = 5, .lda = 1, .ldb = 5, .ldc = 6, .ldc0 = 7, .c0 = C0_APART};
  cr_expect_null(run_case(&none, fn, 5, text), "%s", text);
  const gemm_case zero = {
      .m = 3, .n = 5, .n_last = 5, .lda = 1, .ldb = 5, .ldc = 6, .ldc0 = 7, .c0 = C0_NONE};
  cr_expect_null(run_case(&zero, fn, 5, text), "%s", text);
  cr_expect_gt(compared, 600);
}

#if defined(__x86_64__)
Test(gemm, bits_avx2) {
  if (!(cpu_paths() & CPU_AVX2)) cr_skip("this processor has no AVX2, FMA and F16C");
  run_all(gemm_columns_avx2);
}

Test(gemm, bits_avx512) {
  if (!(cpu_paths() & CPU_AVX512)) cr_skip("this processor has no AVX-512 F, BW, DQ and VL");
  run_all(gemm_columns_avx512);
}

/* Stored bytes of every pattern (scales that are subnormal, infinite or NaN too) come out of the packing with the bits
 * of dequantize_row: k = 1 and a = 1, so that y = fma(1, w, -0) = w. Two NaN agree. */
static void stored_patterns(gemm_fn *const fn) {
  void *const scratch = aligned_alloc(64, gemm_scratch_bytes());
  for (int t = 0; t < N_WEIGHT_TYPES; t++) {
    const dtype type = weight_types[t];
    enum { N = 65536 };
    unsigned char *const stored = malloc(dtype_bytes(type, N));
    float *const want = malloc(4 * N), *const got = malloc(4 * N);
    uint64_t s = 3;
    for (size_t i = 0; i < dtype_bytes(type, N); i++) stored[i] = (unsigned char)draw(&s);
    if (type == DTYPE_F16 || type == DTYPE_BF16)
      for (uint32_t i = 0; i < N; i++) memcpy(stored + 2 * i, &(uint16_t){(uint16_t)i}, 2);
    dequantize_row(type, stored, want, N);
    const float one = 1.0f;
    for (int64_t i = 0; i < N; i++) got[i] = -0.0f;
    const gemm_problem across = {.m = 1,
                                 .n = N,
                                 .k = 1,
                                 .a = &one,
                                 .lda = 1,
                                 .b = stored,
                                 .b_type = type,
                                 .b_row_bytes = dtype_bytes(type, N),
                                 .c0 = got,
                                 .ldc0 = N,
                                 .c = got,
                                 .ldc = N};
    fn(&across, 0, N, scratch);
    for (int64_t i = 0; i < N; i++)
      cr_assert(memcmp(got + i, want + i, 4) == 0 || (got[i] != got[i] && want[i] != want[i]),
                "%s, rows over k: element %ld is %a, not %a", dtype_name(type), (long)i, (double)got[i],
                (double)want[i]);
    /* rows over n: row j of 32 elements, times each unit vector */
    float unit[32 * 32] = {0};
    for (int i = 0; i < 32; i++) unit[33 * i] = 1.0f;
    enum { ROWS = N / 32 };
    const gemm_problem down = {.m = 32,
                               .n = ROWS,
                               .k = 32,
                               .a = unit,
                               .lda = 32,
                               .b = stored,
                               .b_type = type,
                               .b_row_bytes = dtype_bytes(type, 32),
                               .b_by_n = true,
                               .c = got,
                               .ldc = ROWS};
    fn(&down, 0, ROWS, scratch);
    for (int64_t j = 0; j < ROWS; j++) {
      bool finite = true;
      for (int i = 0; i < 32; i++) finite = finite && want[32 * j + i] - want[32 * j + i] == 0;
      for (int i = 0; i < 32 && finite; i++) /* adding zeros loses the sign of a zero, nothing else */
        cr_assert(got[i * ROWS + j] == want[32 * j + i], "%s, rows over n: row %ld element %d is %a, not %a",
                  dtype_name(type), (long)j, i, (double)got[i * ROWS + j], (double)want[32 * j + i]);
    }
    free(stored);
    free(want);
    free(got);
  }
  free(scratch);
}

Test(gemm, stored_patterns_avx2) {
  if (!(cpu_paths() & CPU_AVX2)) cr_skip("this processor has no AVX2, FMA and F16C");
  stored_patterns(gemm_columns_avx2);
}

Test(gemm, stored_patterns_avx512) {
  if (!(cpu_paths() & CPU_AVX512)) cr_skip("this processor has no AVX-512 F, BW, DQ and VL");
  stored_patterns(gemm_columns_avx512);
}
#endif
