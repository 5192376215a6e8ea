/* rms_norm and its gradients.
 *
 * Bounds and, over 100 seeds, the noise: y 2.5e-7 (1.1e-7), r 1.5e-7 (6.7e-8); by the row metric dx 1e-6 (3.8e-7) and dw 5e-7
 * (1.7e-7); a row of one element cancels (dx is eps' share only): 1e-3 and 1e-4. Smallest injected defects: eps outside the
 * root 1e-3 (rows of size 3e-3), a lost c0 1e-1, r for r*r 1e-2. */
#include "tests/ops/harness.h"

#include <math.h>

#include "kernels/ops/norm.h"

static const struct {
  int64_t n, rows;
  float eps;
} shapes[] = {{1, 1, 1e-5f},  {31, 2, 1e-6f},  {32, 5, 0.0f},  {33, 9, 1e-5f},
              {64, 3, 0.25f}, {100, 4, 1e-5f}, {576, 2, 1e-5f}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* Rows of very different size (so that eps matters in some), r what the forward gives within a float. */
static double row_size(const int64_t row) { return row % 3 == 0 ? 1 : row % 3 == 1 ? 3e-3 : 40; }

static void fill(const ht_case *const t, const bool is_dst, const int index, double *const x,
                 ht_rng *const r) {
  const int64_t n = t->c.src[t->id == OP_RMS_NORM ? 0 : 1].ne[0],
                rows = t->c.src[t->id == OP_RMS_NORM ? 0 : 1].ne[1];
  if (is_dst) return;
  if (index == (t->id == OP_RMS_NORM ? 0 : 1)) {
    for (int64_t e = 0; e < n * rows; e++) x[e] *= row_size(e / n);
    x[0] = 0.3; /* a row of one element, and eps 0, must not be 0/0 */
  }
  const int r_index = t->id == OP_RMS_NORM_DX ? 3 : t->id == OP_RMS_NORM_DW ? 2 : -1;
  if (index == r_index)
    for (int64_t e = 0; e < rows; e++) x[e] = ht_uniform(r, 0.8, 1.3) / row_size(e);
}

static double inverse_norm(const double *const x, const int64_t n, const double eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
  return 1 / sqrt(sum / (double)n + eps);
}

static void rms_norm64(const ht_case *const t, const double *const src[], double *const dst[]) {
  const int64_t n = t->c.src[0].ne[0], rows = t->c.src[0].ne[1];
  for (int64_t row = 0; row < rows; row++) {
    dst[1][row] = inverse_norm(src[0] + row * n, n, (double)t->c.params.norm.eps);
    for (int64_t i = 0; i < n; i++) dst[0][row * n + i] = src[0][row * n + i] * dst[1][row] * src[1][i];
  }
}

static void rms_norm_dx64(const ht_case *const t, const double *const src[], double *const dst[]) {
  const int64_t n = t->c.src[1].ne[0], rows = t->c.src[1].ne[1];
  for (int64_t row = 0; row < rows; row++) {
    const double *const dy = src[0] + row * n, *const x = src[1] + row * n, r = src[3][row];
    double dot = 0;
    for (int64_t i = 0; i < n; i++) dot += dy[i] * src[2][i] * x[i];
    for (int64_t i = 0; i < n; i++)
      dst[0][row * n + i] =
          (src[4] ? src[4][row * n + i] : 0) + r * (dy[i] * src[2][i] - x[i] * r * r * dot / (double)n);
  }
}

static void rms_norm_dw64(const ht_case *const t, const double *const src[], double *const dst[]) {
  const int64_t n = t->c.src[1].ne[0], rows = t->c.src[1].ne[1];
  for (int64_t row = 0; row < rows; row++)
    for (int64_t i = 0; i < n; i++) dst[0][i] += src[0][row * n + i] * src[1][row * n + i] * src[2][row];
}

static bool suite_norm(const op_id id, const int i, ht_case *const t) {
  *t = ht_make(id);
  if (i >= (id == OP_RMS_NORM_DX ? 2 : 1) * N_SHAPES) return false;
  const int64_t n = shapes[i % N_SHAPES].n, rows = shapes[i % N_SHAPES].rows;
  t->fill = fill;
  t->c.params.norm.eps = shapes[i % N_SHAPES].eps;
  ht_name(t, "[%lld, %lld] eps %g%s", (long long)n, (long long)rows, (double)shapes[i % N_SHAPES].eps,
          i >= N_SHAPES ? " c0" : "");
  switch (id) {
  case OP_RMS_NORM:
    t->c.src[0] = t->c.dst[0] = ht_f32(n, rows);
    t->c.src[1] = ht_f32(n, 1);
    t->c.dst[1] = ht_f32(rows, 1);
    t->float64 = rms_norm64;
    t->bound[0] = 2.5e-7;
    t->bound[1] = 1.5e-7;
    return true;
  case OP_RMS_NORM_DX:
    t->c.src[0] = t->c.src[1] = t->c.dst[0] = ht_f32(n, rows);
    t->c.src[2] = ht_f32(n, 1);
    t->c.src[3] = ht_f32(rows, 1);
    if (i >= N_SHAPES) t->c.src[4] = ht_f32(n, rows);
    t->float64 = rms_norm_dx64;
    t->row_metric = 1;
    t->bound[0] = n == 1 ? 1e-3 : 1e-6;
    return true;
  case OP_RMS_NORM_DW:
    t->c.src[0] = t->c.src[1] = ht_f32(n, rows);
    t->c.src[2] = ht_f32(rows, 1);
    t->c.dst[0] = ht_f32(n, 1);
    t->float64 = rms_norm_dw64;
    t->row_metric = 1;
    t->bound[0] = n == 1 ? 1e-4 : 5e-7;
    return true;
  default:
    return false;
  }
}

HT_OP_TESTS(suite_norm, RMS_NORM, rms_norm)
HT_OP_TESTS(suite_norm, RMS_NORM_DX, rms_norm_dx)
HT_OP_TESTS(suite_norm, RMS_NORM_DW, rms_norm_dw)

/* dy and c0 together; dy alone for dw. */
Test(rms_norm_dx, linear) { ht_linear(suite_norm, OP_RMS_NORM_DX, 1 | 16, 1, 1e-6); }
Test(rms_norm_dw, linear) { ht_linear(suite_norm, OP_RMS_NORM_DW, 1, 1, 5e-7); }

static void gradient_x(const ht_case *const f, const double *const src[], const double *const dst[],
                       const double *const u[], double *const gradient) {
  ht_case back = ht_make(OP_RMS_NORM_DX);
  back.c.src[1] = f->c.src[0];
  rms_norm_dx64(&back, (const double *const[OP_MAX_SRC]){u[0], src[0], src[1], dst[1]},
                (double *const[]){gradient});
}

static void gradient_w(const ht_case *const f, const double *const src[], const double *const dst[],
                       const double *const u[], double *const gradient) {
  ht_case back = ht_make(OP_RMS_NORM_DW);
  back.c.src[1] = f->c.src[0];
  rms_norm_dw64(&back, (const double *const[OP_MAX_SRC]){u[0], src[0], dst[1]}, (double *const[]){gradient});
}

/* Rows 3e-3 in size make the third derivative large: the step is small. */
Test(rms_norm, gradient_x) { ht_gradient(suite_norm, OP_RMS_NORM, 0, 1, gradient_x, 1e-5, 1e-6); }
Test(rms_norm, gradient_w) { ht_gradient(suite_norm, OP_RMS_NORM, 1, 1, gradient_w, 0, 1e-9); }

/* A row's numbers do not depend on the rows beside it. */
Test(rms_norm, rows_alone) {
  enum { N = 70, ROWS = 6 };
  ht_case t = ht_make(OP_RMS_NORM), one = t;
  ht_name(&t, "rows alone");
  t.c.src[0] = t.c.dst[0] = ht_f32(N, ROWS);
  one.c.src[0] = one.c.dst[0] = ht_f32(N, 1);
  t.c.src[1] = one.c.src[1] = ht_f32(N, 1);
  t.c.dst[1] = ht_f32(ROWS, 1);
  one.c.dst[1] = ht_f32(1, 1);
  t.c.params.norm.eps = one.c.params.norm.eps = 1e-5f;
  static double x[N * ROWS], w[N], y[N * ROWS], r[ROWS], y1[N], r1[1];
  ht_rng rng = {3};
  for (int e = 0; e < N * ROWS; e++) x[e] = ht_normal(&rng);
  for (int e = 0; e < N; e++) w[e] = ht_normal(&rng);
  ht_run(&t, CPU_ALL, 3, (const double *[OP_MAX_SRC]){x, w}, (double *[OP_MAX_DST]){y, r});
  for (int row = 0; row < ROWS; row++) {
    ht_run(&one, CPU_ALL, 1, (const double *[OP_MAX_SRC]){x + row * N, w}, (double *[OP_MAX_DST]){y1, r1});
    cr_assert(r1[0] == r[row]);
    for (int i = 0; i < N; i++) cr_assert(y1[i] == y[row * N + i], "row %d column %d", row, i);
  }
}

Test(norm, refuses) {
  ht_case t;
  cr_assert(suite_norm(OP_RMS_NORM, 2, &t));
  ht_case bad = t;
  bad.c.dst[1].ne[0]++;
  ht_refuses(&bad, "an r of another length");
  bad = t;
  bad.c.src[1].ne[0]--;
  ht_refuses(&bad, "a short w");
  bad = t;
  bad.c.params.norm.eps = -1.0f;
  ht_refuses(&bad, "a negative eps");
  bad = t;
  bad.c.src[0].nb[0] = 8;
  ht_refuses(&bad, "elements that are not neighbours");
}
