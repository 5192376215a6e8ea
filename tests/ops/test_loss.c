/* linear_cross_entropy: bits on every path, float64, finite differences, masked rows, quantized heads, chunks.
 *
 * Cases: with and without dx (evaluation), dW, the adapter (u, B) and its gradients; vocabularies that are not whole
 * lanes; every kind of weight that a head has; rows of weight 0 and of other weights than 1.
 *
 * Bounds stand between the noise over 100 seeds and the smallest of the injected defects of tests/mutants/loss.txt (the
 * logarithm wrong by 2e-4 of itself), both measured with HT_MEASURE. The bounds of gradients (1e-7) are those of five-point
 * differences in float64, whose noise is 2.2e-10. */
#include "tests/ops/harness.h"

#include <math.h>
#include <string.h>

enum { X, W, TARGET, WEIGHT, STEP, U, B };
enum { LOSS, DX, DW, DU, DB };

typedef struct shape {
  int n, rows, n_vocab, r, chunk;
  dtype type;
  bool dx, dw, du, db;
} shape;

static const shape shapes[] = {
    {16, 7, 40, 0, 3, DTYPE_F32, true, false, false, false},
    {20, 5, 77, 4, 2, DTYPE_F32, true, true, true, true},
    {64, 20, 200, 0, 16, DTYPE_Q8_0, true, false, false, false},
    {96, 17, 131, 8, 64, DTYPE_Q4_0, true, false, true, true},
    {32, 9, 33, 0, 4, DTYPE_F32, false, false, false, false},
    {64, 6, 100, 3, 1, DTYPE_BF16, false, false, true, false},
    {32, 4, 500, 5, 3, DTYPE_F16, false, false, false, true},
    {33, 3, 31, 0, 2, DTYPE_F32, false, true, false, false},
    {320, 1, 65, 0, 1, DTYPE_Q4_1, true, false, false, false},
    {24, 8, 1, 0, 8, DTYPE_F32, true, true, false, false},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void fill(const ht_case *const t, const bool is_dst, const int index, double *const x,
                 ht_rng *const rng) {
  const shape *const s = t->user;
  if (is_dst) return;
  if (index == W)
    for (int i = 0; i < s->n * s->n_vocab; i++) x[i] *= 0.3;
  if (index == TARGET)
    for (int i = 0; i < s->rows; i++) x[i] = ht_below(rng, s->n_vocab);
  if (index == WEIGHT)
    for (int i = 0; i < s->rows; i++) x[i] = i % 4 == 2 ? 0 : i % 4 == 3 ? 1 : ht_uniform(rng, 0.25, 2);
  if (index == STEP) ht_step_default(x);
}

static const double *sum_of_row(const shape *const s, const double *const src[], const int64_t r,
                                double *const z, double *const m, double *const e) {
  *m = -INFINITY, *e = 0;
  for (int64_t j = 0; j < s->n_vocab; j++) {
    z[j] = 0;
    for (int64_t i = 0; i < s->n; i++) z[j] += src[X][r * s->n + i] * src[W][j * s->n + i];
    for (int64_t i = 0; i < s->r; i++) z[j] += src[U][r * s->r + i] * src[B][j * s->r + i];
    *m = fmax(*m, z[j]);
  }
  for (int64_t j = 0; j < s->n_vocab; j++) *e += exp(z[j] - *m);
  return z;
}

static void loss64(const ht_case *const t, const double *const src[], double *const dst[]) {
  const shape *const s = t->user;
  const double loss_scale = (double)ht_step_get(src[STEP]).loss_scale;
  double *const z = calloc((size_t)s->n_vocab, sizeof *z);
  for (int64_t r = 0; r < s->rows; r++) {
    const double weight = src[WEIGHT][r];
    const int64_t target = (int64_t)src[TARGET][r];
    double m, e;
    sum_of_row(s, src, r, z, &m, &e);
    dst[LOSS][r] = weight == 0 ? 0 : weight * (m + log(e) - z[target]);
    for (int64_t i = 0; dst[DX] && i < s->n; i++) dst[DX][r * s->n + i] = 0;
    for (int64_t i = 0; dst[DU] && i < s->r; i++) dst[DU][r * s->r + i] = 0;
    for (int64_t j = 0; j < s->n_vocab; j++) {
      const double dz = (exp(z[j] - m) / e - (j == target)) * weight * loss_scale;
      for (int64_t i = 0; i < s->n; i++) {
        if (dst[DX]) dst[DX][r * s->n + i] += dz * src[W][j * s->n + i];
        if (dst[DW]) dst[DW][j * s->n + i] += dz * src[X][r * s->n + i];
      }
      for (int64_t i = 0; i < s->r; i++) {
        if (dst[DU]) dst[DU][r * s->r + i] += dz * src[B][j * s->r + i];
        if (dst[DB]) dst[DB][j * s->r + i] += dz * src[U][r * s->r + i];
      }
    }
  }
  free(z);
}

static ht_case make(const shape *const s) {
  ht_case t = ht_make(OP_LINEAR_CROSS_ENTROPY);
  t.user = (void *)s;
  t.fill = fill;
  t.float64 = loss64;
  t.c.params.loss.chunk = s->chunk;
  t.c.src[X] = ht_f32(s->n, s->rows);
  t.c.src[W] = op_tensor_make(s->type, s->n, s->n_vocab);
  t.c.src[TARGET] = ht_i32(s->rows);
  t.c.src[WEIGHT] = ht_f32(s->rows, 1);
  t.c.src[STEP] = ht_i32(16);
  t.c.dst[LOSS] = ht_f32(s->rows, 1);
  if (s->r) t.c.src[U] = ht_f32(s->r, s->rows), t.c.src[B] = ht_f32(s->r, s->n_vocab);
  if (s->dx) t.c.dst[DX] = ht_f32(s->n, s->rows);
  if (s->dw) t.c.dst[DW] = ht_f32(s->n, s->n_vocab);
  if (s->du) t.c.dst[DU] = ht_f32(s->r, s->rows);
  if (s->db) t.c.dst[DB] = ht_f32(s->r, s->n_vocab);
  ht_name(&t, "n %d, %d rows, vocabulary %d, r %d, chunk %d, %s%s%s%s%s", s->n, s->rows, s->n_vocab, s->r,
          s->chunk, dtype_name(s->type), s->dx ? ", dx" : "", s->dw ? ", dW" : "", s->du ? ", du" : "",
          s->db ? ", dB" : "");
  t.row_metric = 0x1F;
  for (int j = 0; j < 5; j++) t.bound[j] = 1.5e-5; /* noise 2.1e-6 loss, 3.9e-6 dx, 1.5e-6 the others */
  return t;
}

static bool suite_loss(const op_id id, const int i, ht_case *const t) {
  if (id != OP_LINEAR_CROSS_ENTROPY || i >= N_SHAPES) return false;
  *t = make(&shapes[i]);
  return true;
}

HT_OP_TESTS(suite_loss, LINEAR_CROSS_ENTROPY, linear_cross_entropy)

/* ---- gradients ---- */

/* The float64 gradients are of sum_r loss_scale*loss[r]; an objective u per row is a weight per row. */
static void gradient_of(const ht_case *const t, const double *const src[], const double *const u,
                        const int wrt, double *const out) {
  shape s = *(const shape *)t->user;
  ht_case one = *t;
  one.user = &s;
  const size_t sizes[] = {(size_t)s.rows, (size_t)(s.rows * s.n), (size_t)(s.n_vocab * s.n),
                          (size_t)(s.rows * s.r), (size_t)(s.n_vocab * s.r)};
  double *dst[5];
  for (int j = 0; j < 5; j++) dst[j] = calloc(sizes[j] + 1, sizeof(double));
  double *const weight = calloc((size_t)s.rows, sizeof(double));
  const double loss_scale = (double)ht_step_get(src[STEP]).loss_scale;
  for (int r = 0; r < s.rows; r++) weight[r] = src[WEIGHT][r] * u[r] / loss_scale;
  const double *changed[OP_MAX_SRC];
  memcpy(changed, src, sizeof changed);
  changed[WEIGHT] = weight;
  loss64(&one, changed, dst);
  memcpy(out, dst[wrt], sizes[wrt] * sizeof *out);
  for (int j = 0; j < 5; j++) free(dst[j]);
  free(weight);
}
static void gradient_x(const ht_case *t, const double *const src[], const double *const dst[],
                       const double *const u[], double *out) {
  (void)dst;
  gradient_of(t, src, u[LOSS], DX, out);
}
static void gradient_w(const ht_case *t, const double *const src[], const double *const dst[],
                       const double *const u[], double *out) {
  (void)dst;
  gradient_of(t, src, u[LOSS], DW, out);
}
static void gradient_u(const ht_case *t, const double *const src[], const double *const dst[],
                       const double *const u[], double *out) {
  (void)dst;
  gradient_of(t, src, u[LOSS], DU, out);
}
static void gradient_b(const ht_case *t, const double *const src[], const double *const dst[],
                       const double *const u[], double *out) {
  (void)dst;
  gradient_of(t, src, u[LOSS], DB, out);
}

static bool suite_adapter(const op_id id, const int i, ht_case *const t) { /* the shapes with u and B */
  for (int k = 0, at = 0; k < N_SHAPES; k++)
    if (shapes[k].r && at++ == i) return suite_loss(id, k, t);
  return false;
}

Test(linear_cross_entropy, gradient_x) {
  ht_gradient(suite_loss, OP_LINEAR_CROSS_ENTROPY, X, 1 << LOSS, gradient_x, 0, 1e-7);
}
Test(linear_cross_entropy, gradient_w) {
  ht_gradient(suite_loss, OP_LINEAR_CROSS_ENTROPY, W, 1 << LOSS, gradient_w, 0, 1e-7);
}
Test(linear_cross_entropy, gradient_u) {
  ht_gradient(suite_adapter, OP_LINEAR_CROSS_ENTROPY, U, 1 << LOSS, gradient_u, 0, 1e-7);
}
Test(linear_cross_entropy, gradient_b) {
  ht_gradient(suite_adapter, OP_LINEAR_CROSS_ENTROPY, B, 1 << LOSS, gradient_b, 0, 1e-7);
}

/* ---- runs of one's own ---- */

typedef struct pass {
  shape s;
  double *src[OP_MAX_SRC], *dst[OP_MAX_DST];
  int64_t n[OP_MAX_DST];
} pass;

static pass pass_new(const shape s, const uint64_t seed) {
  pass p = {.s = s};
  const int64_t n_src[] = {(int64_t)s.n * s.rows, (int64_t)s.n * s.n_vocab, s.rows, s.rows, 16,
                           (int64_t)s.r * s.rows, (int64_t)s.r * s.n_vocab};
  const int64_t n_dst[] = {s.rows, s.dx ? n_src[X] : 0, s.dw ? n_src[W] : 0, s.du ? n_src[U] : 0,
                           s.db ? n_src[B] : 0};
  ht_rng rng = {seed};
  for (int i = 0; i < 7; i++) {
    p.src[i] = n_src[i] ? calloc((size_t)n_src[i], sizeof(double)) : 0;
    for (int64_t k = 0; k < n_src[i]; k++)
      p.src[i][k] = (double)(float)(ht_normal(&rng) * (i == W ? 0.3 : 1));
  }
  const ht_case t = {.user = &p.s};
  for (int i = TARGET; i <= STEP; i++) fill(&t, false, i, p.src[i], &rng);
  for (int r = 0; r < s.rows; r++) p.src[WEIGHT][r] = (double)(float)p.src[WEIGHT][r];
  for (int j = 0; j < 5; j++) {
    p.n[j] = n_dst[j];
    p.dst[j] = n_dst[j] ? calloc((size_t)n_dst[j], sizeof(double)) : 0;
  }
  return p;
}

static void pass_free(pass *const p) {
  for (int i = 0; i < OP_MAX_SRC; i++) free(p->src[i]);
  for (int j = 0; j < OP_MAX_DST; j++) free(p->dst[j]);
}

/* dW and dB start from a pattern, so that a kernel which forgets what was there is seen. */
static void pass_run(pass *const p, const unsigned mask, const int workers, const int chunk) {
  p->s.chunk = chunk;
  const ht_case t = make(&p->s);
  for (int j = DW; j <= DB; j++)
    for (int64_t i = 0; i < p->n[j]; i++) p->dst[j][i] = (double)(i % 7) - 2;
  const double *src[OP_MAX_SRC];
  for (int i = 0; i < OP_MAX_SRC; i++) src[i] = p->src[i];
  cr_assert(ht_run(&t, mask, workers, src, p->dst), "%s", t.name);
}

static bool same(const double *const a, const double *const b, const int64_t n) {
  ht_comparisons += n;
  return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static void expect_same_pass(const pass *const a, const pass *const b, const char *const what) {
  static const char *const names[] = {"loss", "dx", "dW", "du", "dB"};
  for (int j = 0; j < 5; j++) cr_expect(same(a->dst[j], b->dst[j], a->n[j]), "%s: %s", what, names[j]);
}

/* Rules 1, 2, 4: neither the chunk nor the workers show, in the sums that continue across chunks neither. */
Test(linear_cross_entropy, chunks_and_workers) {
  const shape s = {64, 37, 333, 6, 0, DTYPE_Q4_0, true, true, true, true};
  static const int chunks[] = {1, 3, 16, 64}, workers[] = {1, 2, 3, 8};
  pass a = pass_new(s, 1), b = pass_new(s, 1);
  pass_run(&a, CPU_REFERENCE, 1, 16);
  for (int c = 0; c < 4; c++)
    for (int w = 0; w < 4; w++) {
      char what[64];
      snprintf(what, sizeof what, "chunk %d, %d workers", chunks[c], workers[w]);
      pass_run(&b, CPU_ALL, workers[w], chunks[c]);
      expect_same_pass(&a, &b, what);
    }
  pass_run(&b, CPU_REFERENCE, 3, 5);
  expect_same_pass(&a, &b, "the reference, chunk 5");
  pass_free(&a);
  pass_free(&b);
}

/* Rule 9: two calls that share dW and dB give the bits of one over all rows. */
Test(linear_cross_entropy, microbatches_continue) {
  enum { N = 32, ROWS = 10, FIRST = 4, VOCAB = 90, R = 3 };
  const shape s = {N, ROWS, VOCAB, R, 4, DTYPE_F32, true, true, true, true};
  pass whole = pass_new(s, 2);
  pass_run(&whole, CPU_ALL, 2, 4);
  double *dw = calloc(N * VOCAB, sizeof *dw), *db = calloc(R * VOCAB, sizeof *db), loss[ROWS], dx[N * ROWS],
         du[R * ROWS];
  for (int i = 0; i < N * VOCAB; i++) dw[i] = i % 7 - 2;
  for (int i = 0; i < R * VOCAB; i++) db[i] = i % 7 - 2;
  for (int part = 0; part < 2; part++) {
    const int at = part ? FIRST : 0;
    shape half = s;
    half.rows = part ? ROWS - FIRST : FIRST;
    const ht_case t = make(&half);
    const double *const src[OP_MAX_SRC] = {
        whole.src[X] + at * N, whole.src[W], whole.src[TARGET] + at, whole.src[WEIGHT] + at, whole.src[STEP],
        whole.src[U] + at * R, whole.src[B]};
    cr_assert(ht_run(&t, CPU_ALL, 2, src, (double *[]){loss + at, dx + at * N, dw, du + at * R, db}), "%s",
              t.name);
  }
  cr_expect(same(loss, whole.dst[LOSS], ROWS), "loss");
  cr_expect(same(dx, whole.dst[DX], N * ROWS), "dx");
  cr_expect(same(dw, whole.dst[DW], N * VOCAB), "dW");
  cr_expect(same(du, whole.dst[DU], R * ROWS), "du");
  cr_expect(same(db, whole.dst[DB], R * VOCAB), "dB");
  free(dw), free(db);
  pass_free(&whole);
}

/* A row of weight 0 has loss 0 and zero gradients even when its logits are not finite, and the rows beside it
 * do not notice. */
static void masked_rows(const unsigned mask) {
  const shape s = {32, 9, 70, 4, 4, DTYPE_F32, true, false, true, false};
  pass a = pass_new(s, 4), b = pass_new(s, 4);
  for (int r = 2; r < s.rows; r += 4)
    for (int i = 0; i < s.n; i++) b.src[X][r * s.n + i] = i % 2 ? (double)INFINITY : 1e30;
  pass_run(&a, mask, 2, 4);
  pass_run(&b, mask, 2, 4);
  expect_same_pass(&a, &b, "rows of weight 0");
  for (int r = 2; r < s.rows; r += 4) {
    cr_expect(a.src[WEIGHT][r] == 0 && b.dst[LOSS][r] == 0, "loss of row %d", r);
    for (int i = 0; i < s.n; i++) cr_assert(b.dst[DX][r * s.n + i] == 0, "dx of row %d", r);
    for (int i = 0; i < s.r; i++) cr_assert(b.dst[DU][r * s.r + i] == 0, "du of row %d", r);
  }
  pass_free(&a);
  pass_free(&b);
}
Test(linear_cross_entropy, masked_rows_reference) { masked_rows(CPU_REFERENCE); }
Test(linear_cross_entropy, masked_rows_avx2) { masked_rows(CPU_AVX2); }
Test(linear_cross_entropy, masked_rows_avx512) { masked_rows(CPU_AVX512); }

/* A quantized head gives the bits of the head that it dequantizes to. */
Test(linear_cross_entropy, quantized_head) {
  static const dtype types[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_BF16, DTYPE_F16};
  static const unsigned masks[] = {CPU_REFERENCE, CPU_AVX2, CPU_ALL};
  for (int k = 0; k < 5; k++) {
    shape s = {64, 11, 150, 0, 4, types[k], true, false, false, false};
    pass a = pass_new(s, 6), b = pass_new((s.type = DTYPE_F32, s), 6);
    float *const w = calloc((size_t)(s.n * s.n_vocab), sizeof *w);
    unsigned char *const blocks = calloc(1, dtype_bytes(types[k], s.n * s.n_vocab));
    for (int i = 0; i < s.n * s.n_vocab; i++) w[i] = (float)a.src[W][i];
    quantize_row(types[k], w, blocks, s.n * s.n_vocab);
    dequantize_row(types[k], blocks, w, s.n * s.n_vocab);
    for (int i = 0; i < s.n * s.n_vocab; i++) a.src[W][i] = (double)w[i]; /* what a quantizes again */
    quantize_row(types[k], w, blocks, s.n * s.n_vocab);
    dequantize_row(types[k], blocks, w, s.n * s.n_vocab);
    for (int i = 0; i < s.n * s.n_vocab; i++) b.src[W][i] = (double)w[i];
    for (int m = 0; m < 3; m++) {
      pass_run(&a, masks[m], 3, 4);
      pass_run(&b, masks[m], 2, 16);
      expect_same_pass(&a, &b, dtype_name(types[k]));
    }
    free(w), free(blocks);
    pass_free(&a);
    pass_free(&b);
  }
}

Test(linear_cross_entropy, refuses) {
  const shape s = {64, 5, 40, 4, 2, DTYPE_Q8_0, true, true, true, true};
  ht_case t = make(&s);
  cr_expect_null(op_check(t.id, &t.c));
  t.c.params.loss.chunk = 0, ht_refuses(&t, "chunk 0");
  t = make(&s), t.c.src[B] = op_tensor_none(), ht_refuses(&t, "u without B");
  t = make(&s), t.c.src[B] = ht_f32(4, 41), ht_refuses(&t, "B of another vocabulary");
  t = make(&s), t.c.src[W] = op_tensor_make(DTYPE_Q8_0, 32, 40), ht_refuses(&t, "W narrower than x");
  t = make(&s), t.c.src[W] = op_tensor_make(DTYPE_I32, 64, 40), ht_refuses(&t, "W of integers");
  t = make(&s), t.c.src[TARGET] = ht_i32(4), ht_refuses(&t, "fewer targets than rows");
  t = make(&s), t.c.src[WEIGHT] = ht_i32(5), ht_refuses(&t, "weights that are integers");
  t = make(&s), t.c.dst[DX] = ht_f32(64, 6), ht_refuses(&t, "dx of other rows");
  t = make(&s), t.c.dst[DW] = ht_f32(64, 39), ht_refuses(&t, "dW of another vocabulary");
  t = make(&s), t.c.src[U] = t.c.src[B] = op_tensor_none(), ht_refuses(&t, "du without u");
}
