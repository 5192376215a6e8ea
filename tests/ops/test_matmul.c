/* matmul, matmul_dx, matmul_dw: weights of every type, with and without c0, shapes beside every tile edge.
 *
 * Bound against float64 3e-6 by the row metric (largest over 100 seeds: 1.4e-6, at k 544); a lost element of a chain
 * stands at 1e-2, a dropped c0 at 1e-1, and what only changes the order of a chain is for the bit tests. */
#include "tests/ops/harness.h"

#include <math.h>

#include "kernels/ops/matmul.h"

static const dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1};
enum { N_TYPES = sizeof types / sizeof *types };
static const struct {
  int64_t rows, k, n;
} shapes[] = {{1, 32, 1}, {3, 64, 17}, {7, 96, 33}, {17, 160, 50}, {2, 544, 96}};
/* plain types take any k */
static const struct {
  int64_t rows, k, n;
} odd[] = {{1, 1, 1}, {5, 7, 3}, {13, 33, 31}, {9, 130, 65}, {25, 19, 129}};
enum {
  N_SHAPES = sizeof shapes / sizeof *shapes,
  N_ODD = sizeof odd / sizeof *odd,
  N_CASES = N_TYPES * N_SHAPES + 2 * N_ODD
};

static void matmul64(const ht_case *const t, const double *const src[], double *const dst[]) {
  const int64_t rows = t->c.src[0].ne[1], k = t->c.src[1].ne[0], n = t->c.src[1].ne[1];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < n; j++) {
      double sum = src[2] ? src[2][r * n + j] : 0;
      for (int64_t i = 0; i < k; i++) sum += src[0][r * k + i] * src[1][j * k + i];
      dst[0][r * n + j] = sum;
    }
}

static void matmul_dx64(const ht_case *const t, const double *const src[], double *const dst[]) {
  const int64_t rows = t->c.src[0].ne[1], k = t->c.src[1].ne[0], n = t->c.src[1].ne[1];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < k; i++) {
      double sum = src[2] ? src[2][r * k + i] : 0;
      for (int64_t j = 0; j < n; j++) sum += src[0][r * n + j] * src[1][j * k + i];
      dst[0][r * k + i] = sum;
    }
}

static void matmul_dw64(const ht_case *const t, const double *const src[], double *const dst[]) {
  const int64_t rows = t->c.src[0].ne[1], n = t->c.src[0].ne[0], k = t->c.src[1].ne[0];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = 0; i < k; i++) dst[0][j * k + i] += src[0][r * n + j] * src[1][r * k + i];
}

static bool suite_matmul(const op_id id, const int i, ht_case *const t) {
  *t = ht_make(id);
  if (i >= (id == OP_MATMUL_DW ? N_SHAPES + N_ODD : N_CASES)) return false;
  dtype type = DTYPE_F32;
  int64_t rows, k, n;
  if (id == OP_MATMUL_DW) {
    rows = i < N_SHAPES ? shapes[i].rows : odd[i - N_SHAPES].rows;
    k = i < N_SHAPES ? shapes[i].k : odd[i - N_SHAPES].k;
    n = i < N_SHAPES ? shapes[i].n : odd[i - N_SHAPES].n;
  } else if (i < N_TYPES * N_SHAPES) {
    type = types[i % N_TYPES];
    rows = shapes[i / N_TYPES].rows;
    k = shapes[i / N_TYPES].k;
    n = shapes[i / N_TYPES].n;
  } else {
    const int o = i - N_TYPES * N_SHAPES;
    type = o % 2 ? DTYPE_BF16 : DTYPE_F32;
    rows = odd[o / 2].rows;
    k = odd[o / 2].k;
    n = odd[o / 2].n;
  }
  const bool c0 = (i / 2) % 2;
  ht_name(t, "%s rows %lld k %lld n %lld%s", dtype_name(type), (long long)rows, (long long)k, (long long)n,
          c0 ? " c0" : "");
  t->row_metric = 1;
  t->bound[0] = rows * n * k == 32 ? 1e-3 : 3e-6; /* one output alone may cancel to nothing */
  switch (id) {
  case OP_MATMUL:
    t->c.src[0] = ht_f32(k, rows);
    t->c.src[1] = op_tensor_make(type, k, n);
    if (c0) t->c.src[2] = ht_f32(n, rows);
    t->c.dst[0] = ht_f32(n, rows);
    t->float64 = matmul64;
    return true;
  case OP_MATMUL_DX:
    t->c.src[0] = ht_f32(n, rows);
    t->c.src[1] = op_tensor_make(type, k, n);
    if (c0) t->c.src[2] = ht_f32(k, rows);
    t->c.dst[0] = ht_f32(k, rows);
    t->float64 = matmul_dx64;
    return true;
  case OP_MATMUL_DW:
    t->c.src[0] = ht_f32(n, rows);
    t->c.src[1] = ht_f32(k, rows);
    t->c.dst[0] = ht_f32(k, n);
    t->float64 = matmul_dw64;
    return true;
  default:
    return false;
  }
}

HT_OP_TESTS(suite_matmul, MATMUL, matmul)
HT_OP_TESTS(suite_matmul, MATMUL_DX, matmul_dx)
HT_OP_TESTS(suite_matmul, MATMUL_DW, matmul_dw)

Test(matmul, linear) { ht_linear(suite_matmul, OP_MATMUL, 1 | 4, 1, 1e-5); }
Test(matmul_dx, linear) { ht_linear(suite_matmul, OP_MATMUL_DX, 1 | 4, 1, 2e-6); }
Test(matmul_dw, linear) { ht_linear(suite_matmul, OP_MATMUL_DW, 1, 1, 2e-6); }
Test(matmul_dw, linear_x) { ht_linear(suite_matmul, OP_MATMUL_DW, 2, 1, 2e-6); }

static void gradient_x(const ht_case *const f, const double *const src[], const double *const dst[],
                       const double *const u[], double *const gradient) {
  (void)dst;
  ht_case back = *f;
  back.c.src[0] = f->c.dst[0];
  matmul_dx64(&back, (const double *const[OP_MAX_SRC]){u[0], src[1]}, (double *const[]){gradient});
}

static void gradient_w(const ht_case *const f, const double *const src[], const double *const dst[],
                       const double *const u[], double *const gradient) {
  (void)dst;
  ht_case back = *f;
  back.c.src[0] = f->c.dst[0];
  back.c.src[1] = f->c.src[0];
  matmul_dw64(&back, (const double *const[OP_MAX_SRC]){u[0], src[0]}, (double *const[]){gradient});
}

static void gradient_c0(const ht_case *const f, const double *const src[], const double *const dst[],
                        const double *const u[], double *const gradient) {
  (void)src, (void)dst;
  for (int64_t e = 0; e < f->c.dst[0].ne[0] * f->c.dst[0].ne[1]; e++) gradient[e] = u[0][e];
}

/* Linear in each operand: a central difference is exact to rounding. */
Test(matmul, gradient_x) { ht_gradient(suite_matmul, OP_MATMUL, 0, 1, gradient_x, 0, 1e-8); }
Test(matmul, gradient_w) { ht_gradient(suite_matmul, OP_MATMUL, 1, 1, gradient_w, 0, 1e-8); }
Test(matmul, gradient_c0) { ht_gradient(suite_matmul, OP_MATMUL, 2, 1, gradient_c0, 0, 1e-8); }

/* Rule 9: two calls of half the rows give dw the bits of one call of all. */
Test(matmul_dw, microbatches) {
  enum { ROWS = 10, K = 45, N = 37 };
  static double dy[N * ROWS], x[K * ROWS], whole[K * N], parts[K * N];
  ht_rng r = {8};
  for (int e = 0; e < N * ROWS; e++) dy[e] = (double)(float)ht_normal(&r);
  for (int e = 0; e < K * ROWS; e++) x[e] = (double)(float)ht_normal(&r);
  ht_case t = ht_make(OP_MATMUL_DW);
  ht_name(&t, "microbatches");
  for (unsigned mask = 0; mask <= CPU_ALL; mask++) {
    for (int e = 0; e < K * N; e++) whole[e] = parts[e] = 0.5;
    t.c.src[0] = ht_f32(N, ROWS);
    t.c.src[1] = ht_f32(K, ROWS);
    t.c.dst[0] = ht_f32(K, N);
    ht_run(&t, mask, 2, (const double *[OP_MAX_SRC]){dy, x}, (double *[OP_MAX_DST]){whole});
    t.c.src[0].ne[1] = t.c.src[1].ne[1] = ROWS / 2;
    for (int half = 0; half < 2; half++)
      ht_run(&t, mask, 3, (const double *[OP_MAX_SRC]){dy + half * N * ROWS / 2, x + half * K * ROWS / 2},
             (double *[OP_MAX_DST]){parts});
    for (int e = 0; e < K * N; e++) cr_assert(whole[e] == parts[e], "element %d, mask %u", e, mask);
  }
}

Test(matmul, refuses) {
  ht_case t;
  cr_assert(suite_matmul(OP_MATMUL, 9, &t)); /* Q8_0 rows 3 k 64 n 17 */
  ht_case bad = t;
  bad.c.src[0].ne[0] = 32;
  ht_refuses(&bad, "another k");
  bad = t;
  bad.c.dst[0].ne[1]++;
  ht_refuses(&bad, "a y of more rows");
  bad = t;
  bad.c.src[1].type = DTYPE_I32;
  ht_refuses(&bad, "a W that is not a weight");
}
