/* swiglu and its gradient.
 *
 * Bounds: h and dup 2.5e-7 (100 seeds: 1.14e-7); dgate by the row metric 1e-6 (5.0e-7; 2.0e-6 for one element alone, beside the
 * derivative's zero). Smallest injected defect: gate*(1-s) rounded before the sum instead of fused is for the bit tests;
 * a lost gate*(1-s) stands at 1e-1. */
#include "tests/ops/harness.h"

#include <math.h>

#include "kernels/ops/gated.h"

static const struct {
  int64_t n, rows;
  double size;
} shapes[] = {{1, 1, 1}, {17, 3, 3}, {32, 8, 1}, {63, 2, 12}, {129, 5, 2}, {640, 2, 1}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static double sigmoid(const double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }

static void fill(const ht_case *const t, const bool is_dst, const int index, double *const x,
                 ht_rng *const r) {
  (void)r;
  if (is_dst || index != (t->id == OP_SWIGLU ? 0 : 1)) return;
  for (int64_t e = 0; e < t->c.src[0].ne[0] * t->c.src[0].ne[1]; e++) x[e] *= *(const double *)t->user;
}

static void swiglu64(const ht_case *const t, const double *const src[], double *const dst[]) {
  for (int64_t e = 0; e < t->c.src[0].ne[0] * t->c.src[0].ne[1]; e++)
    dst[0][e] = src[0][e] * sigmoid(src[0][e]) * src[1][e];
}

static void swiglu_back64(const ht_case *const t, const double *const src[], double *const dst[]) {
  for (int64_t e = 0; e < t->c.src[0].ne[0] * t->c.src[0].ne[1]; e++) {
    const double dh = src[0][e], g = src[1][e], up = src[2][e], s = sigmoid(g);
    dst[0][e] = dh * up * s * (1 + g * (1 - s));
    dst[1][e] = dh * g * s;
  }
}

static bool suite_gated(const op_id id, const int i, ht_case *const t) {
  *t = ht_make(id);
  if (i >= N_SHAPES || (id != OP_SWIGLU && id != OP_SWIGLU_BACK)) return false;
  const op_tensor x = ht_f32(shapes[i].n, shapes[i].rows);
  t->user = (void *)(uintptr_t)&shapes[i].size;
  t->fill = fill;
  t->c.src[0] = t->c.src[1] = t->c.dst[0] = x;
  t->bound[0] = 2.5e-7;
  t->float64 = swiglu64;
  ht_name(t, "[%lld, %lld] gate of size %g", (long long)shapes[i].n, (long long)shapes[i].rows,
          shapes[i].size);
  if (id == OP_SWIGLU_BACK) {
    t->c.src[2] = t->c.dst[1] = x;
    t->float64 = swiglu_back64;
    t->bound[0] = i == 0 ? 1e-5 : 1e-6; /* the derivative's zero at gate = -1.28: by the row's size */
    t->bound[1] = 2.5e-7;
    t->row_metric = 1;
  }
  return true;
}

HT_OP_TESTS(suite_gated, SWIGLU, swiglu)
HT_OP_TESTS(suite_gated, SWIGLU_BACK, swiglu_back)

Test(swiglu_back, linear) { ht_linear(suite_gated, OP_SWIGLU_BACK, 1, 3, 1e-6); }

static void back(const ht_case *const f, const double *const src[], const double *const u[],
                 double *const dgate, double *const dup) {
  ht_case b = *f;
  b.id = OP_SWIGLU_BACK;
  swiglu_back64(&b, (const double *const[OP_MAX_SRC]){u[0], src[0], src[1]}, (double *const[]){dgate, dup});
}

static void gradient_gate(const ht_case *const f, const double *const src[], const double *const dst[],
                          const double *const u[], double *const gradient) {
  (void)dst;
  double *const other = calloc((size_t)(f->c.src[0].ne[0] * f->c.src[0].ne[1]), sizeof(double));
  back(f, src, u, gradient, other);
  free(other);
}

static void gradient_up(const ht_case *const f, const double *const src[], const double *const dst[],
                        const double *const u[], double *const gradient) {
  (void)dst;
  double *const other = calloc((size_t)(f->c.src[0].ne[0] * f->c.src[0].ne[1]), sizeof(double));
  back(f, src, u, other, gradient);
  free(other);
}

Test(swiglu, gradient_gate) { ht_gradient(suite_gated, OP_SWIGLU, 0, 1, gradient_gate, 0, 1e-8); }
Test(swiglu, gradient_up) { ht_gradient(suite_gated, OP_SWIGLU, 1, 1, gradient_up, 0, 1e-8); }

/* Gates far out: no NaN where the product has a limit (sigmoid does not overflow). */
Test(swiglu, far_gates) {
  enum { N = 64 };
  ht_case t = ht_make(OP_SWIGLU);
  ht_name(&t, "far gates");
  t.c.src[0] = t.c.src[1] = t.c.dst[0] = ht_f32(N, 1);
  double gate[N], up[N], h[N];
  for (int i = 0; i < N; i++) {
    gate[i] = (i - 32) * 100.0;
    up[i] = 1 + i;
  }
  for (unsigned mask = 0; mask <= CPU_ALL; mask++) {
    ht_run(&t, mask, 1, (const double *[OP_MAX_SRC]){gate, up}, (double *[OP_MAX_DST]){h});
    for (int i = 0; i < N; i++) {
      const double expect = gate[i] < -150 ? 0 : gate[i] * sigmoid(gate[i]) * up[i];
      cr_assert(fabs(h[i] - expect) <= 1e-6 * fabs(expect) + 1e-36, "gate %g: %g, not %g", gate[i], h[i],
                expect);
    }
  }
}

Test(gated, refuses) {
  ht_case t;
  cr_assert(suite_gated(OP_SWIGLU_BACK, 1, &t));
  ht_case bad = t;
  bad.c.src[2].ne[1]++;
  ht_refuses(&bad, "an up of more rows");
  bad = t;
  bad.c.dst[1].ne[0]--;
  ht_refuses(&bad, "a dup of shorter rows");
  bad = t;
  bad.c.dst[1] = op_tensor_none();
  ht_refuses(&bad, "an absent dup");
}
