/* attention, attention_dq, attention_dkv: bits on every path, float64, finite differences, and what a span promises.
 *
 * Cases cover grouped heads (n_kv_heads = n_heads, below it, 1), head sizes of whole and broken registers, chunks that do
 * not divide the rows, and the kinds of span: causal, packed documents, sliding window, key cache, keys that nobody sees.
 *
 * Bounds stand between the noise over 100 seeds and the smallest of the injected defects of tests/mutants/attention.txt,
 * both measured with HT_MEASURE; make() has the figures. The bounds of gradients (1e-7) are those of five-point
 * differences in float64, whose noise is 5e-10; a gradient that misses a factor or a term is wrong by 1e-3 and more. */
#include "tests/ops/harness.h"

#include <math.h>
#include <string.h>

typedef enum span_kind { CAUSAL, PACKED, WINDOW, CACHE, GAPS } span_kind;
static const char *const kind_names[] = {"causal", "packed", "window", "cache", "gaps"};

typedef struct shape {
  int head_size, n_heads, n_kv, rows, keys, chunk;
  span_kind kind;
} shape;

static const shape shapes[] = {
    {8, 2, 1, 20, 20, 16, CAUSAL},  {16, 2, 2, 70, 70, 64, PACKED},    {20, 6, 2, 41, 41, 3, WINDOW},
    {64, 3, 1, 97, 97, 64, CAUSAL}, {64, 2, 2, 1, 90, 64, CACHE},      {36, 4, 1, 5, 150, 64, CACHE},
    {7, 3, 3, 33, 80, 1, PACKED},   {80, 2, 1, 50, 50, 16, WINDOW},    {128, 1, 1, 9, 70, 64, CAUSAL},
    {8, 4, 2, 30, 200, 16, GAPS},   {64, 3, 1, 140, 140, 100, PACKED},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* First and last key of row r. Rows are the last of `keys` (a cache holds more keys than there are rows). */
static void see(const shape *const s, const int r, int *const first, int *const last) {
  *first = 0;
  *last = s->keys - s->rows + r;
  switch (s->kind) {
  case CAUSAL:
  case CACHE:
    break;
  case PACKED:
    *first = *last < 5 ? 0 : *last < 6 ? 5 : *last < 40 ? 6 : *last / 40 * 40;
    break; /* lengths 5, 1, 34, 40 */
  case WINDOW:
    *first = *last > 17 ? *last - 17 : 0;
    break;
  case GAPS: /* each third row begins a document in a cache of 18 keys, of which at most 12 are filled */
    *first = r / 3 * 18;
    *last = *first + 3 * (r / 3 % 4) + r % 3;
    break;
  }
}

static void fill_span(const shape *const s, double *const x) {
  for (int r = 0; r < s->rows; r++) {
    int first, last;
    see(s, r, &first, &last);
    x[r] = first;
    x[s->rows + r] = last;
  }
}

static op_tensor tensor_q(const shape *const s) { return ht_f32(s->head_size * s->n_heads, s->rows); }
static op_tensor tensor_k(const shape *const s) { return ht_f32(s->head_size * s->n_kv, s->keys); }
static op_tensor tensor_d(const shape *const s, const int parts) {
  return ht_f32(s->n_heads * s->rows, parts);
}

/* ---- float64 ---- */

typedef struct geometry {
  int64_t d, h, kv, rows, keys;
  double scale;
} geometry;

static geometry geometry_of(const ht_case *const t) {
  const shape *const s = t->user;
  return (geometry){s->head_size, s->n_heads, s->n_kv, s->rows, s->keys, (double)t->c.params.attention.scale};
}

static const double *q_at(const geometry *const g, const double *const q, const int64_t h, const int64_t r) {
  return q + (r * g->h + h) * g->d;
}
static const double *k_at(const geometry *const g, const double *const k, const int64_t h, const int64_t j) {
  return k + (j * g->kv + h / (g->h / g->kv)) * g->d;
}
static double dot(const double *const a, const double *const b, const int64_t n) {
  double c = 0;
  for (int64_t i = 0; i < n; i++) c += a[i] * b[i];
  return c;
}

static void forward64(const ht_case *const t, const double *const src[], double *const dst[]) {
  const geometry g = geometry_of(t);
  const double *const span = src[3];
  double *const p = calloc((size_t)g.keys, sizeof *p);
  for (int64_t h = 0; h < g.h; h++)
    for (int64_t r = 0; r < g.rows; r++) {
      const int64_t first = (int64_t)span[r], last = (int64_t)span[g.rows + r];
      double m = -INFINITY, z = 0, *const o = dst[0] + (r * g.h + h) * g.d;
      for (int64_t j = first; j <= last; j++) {
        p[j] = g.scale * dot(q_at(&g, src[0], h, r), k_at(&g, src[1], h, j), g.d);
        m = fmax(m, p[j]);
      }
      for (int64_t j = first; j <= last; j++) z += p[j] = exp(p[j] - m);
      for (int64_t e = 0; e < g.d; e++) {
        o[e] = 0;
        for (int64_t j = first; j <= last; j++) o[e] += p[j] / z * k_at(&g, src[2], h, j)[e];
      }
      dst[1][h * g.rows + r] = m;
      dst[1][(g.h + h) * g.rows + r] = z;
    }
  free(p);
}

typedef struct backward {
  const double *dout, *q, *k, *v, *o, *stats, *d, *span;
} backward;

static double ds_at(const geometry *const g, const backward *const b, const double d, const int64_t h,
                    const int64_t r, const int64_t j, double *const p) {
  const double s = g->scale * dot(q_at(g, b->q, h, r), k_at(g, b->k, h, j), g->d);
  *p = exp(s - b->stats[h * g->rows + r]) / b->stats[(g->h + h) * g->rows + r];
  return *p * (dot(q_at(g, b->dout, h, r), k_at(g, b->v, h, j), g->d) - d);
}

static void dq64(const geometry *const g, const backward *const b, double *const dq, double *const d) {
  for (int64_t h = 0; h < g->h; h++)
    for (int64_t r = 0; r < g->rows; r++) {
      double *const out = dq + (r * g->h + h) * g->d;
      const double dd = dot(q_at(g, b->dout, h, r), q_at(g, b->o, h, r), g->d);
      for (int64_t e = 0; e < g->d; e++) out[e] = 0;
      for (int64_t j = (int64_t)b->span[r]; j <= (int64_t)b->span[g->rows + r]; j++) {
        double p;
        const double ds = ds_at(g, b, dd, h, r, j, &p);
        for (int64_t e = 0; e < g->d; e++) out[e] += g->scale * ds * k_at(g, b->k, h, j)[e];
      }
      d[h * g->rows + r] = dd;
    }
}

static void dkv64(const geometry *const g, const backward *const b, double *const dk, double *const dv) {
  for (int64_t i = 0; i < g->keys * g->kv * g->d; i++) dk[i] = dv[i] = 0;
  for (int64_t h = 0; h < g->h; h++)
    for (int64_t r = 0; r < g->rows; r++)
      for (int64_t j = (int64_t)b->span[r]; j <= (int64_t)b->span[g->rows + r]; j++) {
        double p;
        const double ds = ds_at(g, b, b->d[h * g->rows + r], h, r, j, &p);
        const int64_t at = (j * g->kv + h / (g->h / g->kv)) * g->d;
        for (int64_t e = 0; e < g->d; e++) {
          dk[at + e] += g->scale * ds * q_at(g, b->q, h, r)[e];
          dv[at + e] += p * q_at(g, b->dout, h, r)[e];
        }
      }
}

static void dq_case64(const ht_case *const t, const double *const src[], double *const dst[]) {
  const geometry g = geometry_of(t);
  const backward b = {
      .dout = src[0], .q = src[1], .k = src[2], .v = src[3], .o = src[4], .stats = src[5], .span = src[6]};
  dq64(&g, &b, dst[0], dst[1]);
}

static void dkv_case64(const ht_case *const t, const double *const src[], double *const dst[]) {
  const geometry g = geometry_of(t);
  const backward b = {
      .dout = src[0], .q = src[1], .k = src[2], .v = src[3], .stats = src[4], .d = src[5], .span = src[6]};
  dkv64(&g, &b, dst[0], dst[1]);
}

/* ---- cases ---- */

/* Statistics of about the size that the scores have: m in [1, 2], z in [1, 4]. */
static void fill_stats(const shape *const s, double *const x, ht_rng *const rng) {
  const int n = s->n_heads * s->rows;
  for (int i = 0; i < n; i++) x[i] = ht_uniform(rng, 1, 2);
  for (int i = n; i < 2 * n; i++) x[i] = ht_uniform(rng, 1, 4);
}

/* A difference dp - d that happens to cancel would make any bound meaningless, so d (or what makes it: do and o) is
 * filled to lie clear of dp: of every ds, dp is still a good share. */
static void fill(const ht_case *const t, const bool is_dst, const int index, double *const x,
                 ht_rng *const rng) {
  const shape *const s = t->user;
  const int n_q = s->head_size * s->n_heads * s->rows, n_d = s->n_heads * s->rows;
  if (is_dst) return;
  switch (t->id) {
  case OP_ATTENTION:
    if (index == 3) fill_span(s, x);
    break;
  case OP_ATTENTION_DQ:
    for (int i = 0; i < n_q && (index == 0 || index == 4); i++) x[i] = ht_uniform(rng, 0.25, 1.75);
    if (index == 5) fill_stats(s, x, rng);
    if (index == 6) fill_span(s, x);
    break;
  case OP_ATTENTION_DKV:
    for (int i = 0; i < n_q && index == 0; i++) x[i] *= 0.2 / sqrt(s->head_size);
    for (int i = 0; i < n_d && index == 5; i++) x[i] = ht_uniform(rng, 1, 2);
    if (index == 4) fill_stats(s, x, rng);
    if (index == 6) fill_span(s, x);
    break;
  default:
    break;
  }
}

static ht_case make(const op_id id, const shape *const s) {
  ht_case t = ht_make(id);
  const op_tensor q = tensor_q(s), k = tensor_k(s), span = op_tensor_make(DTYPE_I32, s->rows, 2);
  t.user = (void *)s;
  t.fill = fill;
  t.c.params.attention.scale = 0.7f / sqrtf((float)s->head_size);
  t.c.params.attention.head_size = s->head_size;
  t.c.params.attention.n_heads = s->n_heads;
  t.c.params.attention.n_kv_heads = s->n_kv;
  t.c.params.attention.chunk = s->chunk;
  ht_name(&t, "head %d, %d/%d heads, %d rows, %d keys, chunk %d, %s", s->head_size, s->n_heads, s->n_kv,
          s->rows, s->keys, s->chunk, kind_names[s->kind]);
  t.row_metric = 3;
  if (id == OP_ATTENTION) {
    const op_tensor src[] = {q, k, k, span}, dst[] = {q, tensor_d(s, 2)};
    memcpy(t.c.src, src, sizeof src);
    memcpy(t.c.dst, dst, sizeof dst);
    t.float64 = forward64;
    t.bound[0] = 4e-6; /* noise 9.7e-7; the diagonal key dropped: 1 */
    t.bound[1] = 2e-6; /* noise 5.2e-7; z times 1.00002: 1.0e-5 */
  } else if (id == OP_ATTENTION_DQ) {
    const op_tensor src[] = {q, q, k, k, q, tensor_d(s, 2), span}, dst[] = {q, tensor_d(s, 1)};
    memcpy(t.c.src, src, sizeof src);
    memcpy(t.c.dst, dst, sizeof dst);
    t.float64 = dq_case64;
    t.bound[0] = 1e-5; /* noise 2.0e-6; the division by z dropped: 0.6 */
    t.bound[1] = 2e-6; /* noise 2.0e-7; what breaks d breaks dq */
  } else {
    const op_tensor src[] = {q, q, k, k, tensor_d(s, 2), tensor_d(s, 1), span}, dst[] = {k, k};
    memcpy(t.c.src, src, sizeof src);
    memcpy(t.c.dst, dst, sizeof dst);
    t.float64 = dkv_case64;
    t.bound[0] = 1e-5; /* noise 2.0e-6; the scale dropped: 0.6, a head of the group dropped: 1 */
    t.bound[1] = 1e-5; /* noise 1.6e-6 */
  }
  return t;
}

static bool suite_attention(const op_id id, const int i, ht_case *const t) {
  if ((id != OP_ATTENTION && id != OP_ATTENTION_DQ && id != OP_ATTENTION_DKV) || i >= N_SHAPES) return false;
  *t = make(id, &shapes[i]);
  return true;
}

HT_OP_TESTS(suite_attention, ATTENTION, attention)
HT_OP_TESTS(suite_attention, ATTENTION_DQ, attention_dq)
HT_OP_TESTS(suite_attention, ATTENTION_DKV, attention_dkv)

/* ---- gradients: what dq and dkv compute in float64 is the derivative of the float64 forward ---- */

static void gradient_of(const ht_case *const t, const double *const src[], const double *const dst[],
                        const double *const u[], const int wrt, double *const out) {
  const geometry g = geometry_of(t);
  double *const d = calloc((size_t)(g.h * g.rows), sizeof *d), *const dq = calloc(
                                                                   (size_t)(g.h * g.rows * g.d), sizeof *dq);
  const size_t n_kv = (size_t)(g.kv * g.keys * g.d);
  double *const dk = calloc(n_kv, sizeof *dk), *const dv = calloc(n_kv, sizeof *dv);
  const backward b = {.dout = u[0],
                      .q = src[0],
                      .k = src[1],
                      .v = src[2],
                      .o = dst[0],
                      .stats = dst[1],
                      .d = d,
                      .span = src[3]};
  dq64(&g, &b, dq, d);
  dkv64(&g, &b, dk, dv);
  if (wrt == 0) memcpy(out, dq, (size_t)(g.h * g.rows * g.d) * sizeof *out);
  if (wrt == 1) memcpy(out, dk, n_kv * sizeof *out);
  if (wrt == 2) memcpy(out, dv, n_kv * sizeof *out);
  free(d), free(dq), free(dk), free(dv);
}
static void gradient_q(const ht_case *t, const double *const src[], const double *const dst[],
                       const double *const u[], double *out) {
  gradient_of(t, src, dst, u, 0, out);
}
static void gradient_k(const ht_case *t, const double *const src[], const double *const dst[],
                       const double *const u[], double *out) {
  gradient_of(t, src, dst, u, 1, out);
}
static void gradient_v(const ht_case *t, const double *const src[], const double *const dst[],
                       const double *const u[], double *out) {
  gradient_of(t, src, dst, u, 2, out);
}

Test(attention, gradient_q) { ht_gradient(suite_attention, OP_ATTENTION, 0, 1, gradient_q, 0, 1e-7); }
Test(attention, gradient_k) { ht_gradient(suite_attention, OP_ATTENTION, 1, 1, gradient_k, 0, 1e-7); }
Test(attention, gradient_v) { ht_gradient(suite_attention, OP_ATTENTION, 2, 1, gradient_v, 0, 1e-7); }

/* o is linear in v; dq and d in do (o given); dk and dv in (do, d). */
Test(attention, linear) { ht_linear(suite_attention, OP_ATTENTION, 1 << 2, 1 << 0, 1e-5); }
Test(attention_dq, linear) { ht_linear(suite_attention, OP_ATTENTION_DQ, 1 << 0, 3, 1e-4); }
Test(attention_dkv, linear) { ht_linear(suite_attention, OP_ATTENTION_DKV, 1 << 0 | 1 << 5, 3, 1e-4); }

/* ---- one whole forward and backward, through the kernels ---- */

typedef struct pass {
  shape s;
  double *q, *k, *v, *dout, *span;      /* in */
  double *o, *stats, *dq, *d, *dk, *dv; /* out */
} pass;

static double *array(const int64_t n) { return calloc((size_t)n, sizeof(double)); }

static pass pass_new(const shape s, const uint64_t seed) {
  const int64_t nq = (int64_t)s.head_size * s.n_heads * s.rows, nk = (int64_t)s.head_size * s.n_kv * s.keys;
  const int64_t nd = (int64_t)s.n_heads * s.rows;
  pass p = {.s = s,
            .q = array(nq),
            .k = array(nk),
            .v = array(nk),
            .dout = array(nq),
            .span = array(2 * s.rows),
            .o = array(nq),
            .stats = array(2 * nd),
            .dq = array(nq),
            .d = array(nd),
            .dk = array(nk),
            .dv = array(nk)};
  ht_rng rng = {seed};
  for (int64_t i = 0; i < nq; i++)
    p.q[i] = (double)(float)ht_normal(&rng), p.dout[i] = (double)(float)ht_normal(&rng);
  for (int64_t i = 0; i < nk; i++)
    p.k[i] = (double)(float)ht_normal(&rng), p.v[i] = (double)(float)ht_normal(&rng);
  fill_span(&s, p.span);
  return p;
}

static void pass_free(pass *const p) {
  double *const all[] = {p->q, p->k, p->v, p->dout, p->span, p->o, p->stats, p->dq, p->d, p->dk, p->dv};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void pass_run(pass *const p, const unsigned mask, const int workers, const int chunk) {
  p->s.chunk = chunk;
  const ht_case f = make(OP_ATTENTION, &p->s), b = make(OP_ATTENTION_DQ, &p->s),
                c = make(OP_ATTENTION_DKV, &p->s);
  cr_assert(ht_run(&f, mask, workers, (const double *[]){p->q, p->k, p->v, p->span, 0, 0, 0, 0},
                   (double *[]){p->o, p->stats, 0, 0, 0}),
            "%s", f.name);
  cr_assert(ht_run(&b, mask, workers,
                   (const double *[]){p->dout, p->q, p->k, p->v, p->o, p->stats, p->span, 0},
                   (double *[]){p->dq, p->d, 0, 0, 0}),
            "%s", b.name);
  cr_assert(ht_run(&c, mask, workers,
                   (const double *[]){p->dout, p->q, p->k, p->v, p->stats, p->d, p->span, 0},
                   (double *[]){p->dk, p->dv, 0, 0, 0}),
            "%s", c.name);
}

/* Every float is exact as a double, so equal bytes are equal bits. */
static bool same(const double *const a, const double *const b, const int64_t n) {
  ht_comparisons += n;
  return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static void expect_same_pass(const pass *const a, const pass *const b, const char *const what) {
  const shape *const s = &a->s;
  const int64_t nq = (int64_t)s->head_size * s->n_heads * s->rows,
                nk = (int64_t)s->head_size * s->n_kv * s->keys;
  cr_expect(same(a->o, b->o, nq), "%s: o", what);
  cr_expect(same(a->stats, b->stats, 2 * s->n_heads * s->rows), "%s: stats", what);
  cr_expect(same(a->dq, b->dq, nq), "%s: dq", what);
  cr_expect(same(a->dk, b->dk, nk), "%s: dk", what);
  cr_expect(same(a->dv, b->dv, nk), "%s: dv", what);
}

/* Rule 1: neither the chunk nor the workers show. */
Test(attention, chunks_and_workers) {
  static const shape few[] = {{64, 3, 1, 97, 97, 1, CAUSAL},
                              {20, 4, 2, 80, 80, 1, PACKED},
                              {16, 2, 1, 70, 90, 1, WINDOW},
                              {8, 2, 2, 30, 200, 1, GAPS}};
  static const int chunks[] = {1, 3, 16, 64, 1000}, workers[] = {1, 2, 3, 8};
  for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
    pass a = pass_new(few[i], 7 + i), b = pass_new(few[i], 7 + i);
    pass_run(&a, CPU_REFERENCE, 1, 64);
    for (size_t c = 0; c < 5; c++)
      for (size_t w = 0; w < 4; w++) {
        char what[128];
        snprintf(what, sizeof what, "%s, chunk %d, %d workers", kind_names[few[i].kind], chunks[c],
                 workers[w]);
        pass_run(&b, CPU_ALL, workers[w], chunks[c]);
        expect_same_pass(&a, &b, what);
      }
    pass_free(&a);
    pass_free(&b);
  }
}

/* Rule 10: a document's numbers, forward and backward, are the same alone and packed behind another one. */
static void packed_document(const unsigned mask) {
  enum { A = 37, B = 50, D = 20, H = 4, KV = 2 };
  pass both = pass_new((shape){D, H, KV, A + B, A + B, 16, CAUSAL}, 3);
  pass alone = pass_new((shape){D, H, KV, B, B, 64, CAUSAL}, 3);
  for (int r = 0; r < A + B; r++) both.span[r] = r < A ? 0 : A;
  memcpy(alone.q, both.q + A * D * H, sizeof(double) * B * D * H);
  memcpy(alone.dout, both.dout + A * D * H, sizeof(double) * B * D * H);
  memcpy(alone.k, both.k + A * D * KV, sizeof(double) * B * D * KV);
  memcpy(alone.v, both.v + A * D * KV, sizeof(double) * B * D * KV);
  pass_run(&both, mask, 2, 16);
  pass_run(&alone, mask, 1, 64);
  cr_expect(same(both.o + A * D * H, alone.o, B * D * H), "o");
  cr_expect(same(both.dq + A * D * H, alone.dq, B * D * H), "dq");
  cr_expect(same(both.dk + A * D * KV, alone.dk, B * D * KV), "dk");
  cr_expect(same(both.dv + A * D * KV, alone.dv, B * D * KV), "dv");
  for (int h = 0; h < H; h++) {
    cr_expect(same(both.stats + h * (A + B) + A, alone.stats + h * B, B), "m of head %d", h);
    cr_expect(same(both.stats + (H + h) * (A + B) + A, alone.stats + (H + h) * B, B), "z of head %d", h);
  }
  pass_free(&both);
  pass_free(&alone);
}
Test(attention, packed_document_reference) { packed_document(CPU_REFERENCE); }
Test(attention, packed_document_avx2) { packed_document(CPU_AVX2); }
Test(attention, packed_document_avx512) { packed_document(CPU_AVX512); }

/* Decoding one row against a cache gives the row that the whole sequence has. */
Test(attention, cache_is_the_last_row) {
  enum { N = 75, D = 64, H = 3, KV = 1 };
  pass whole = pass_new((shape){D, H, KV, N, N, 64, CAUSAL}, 11);
  pass last = pass_new((shape){D, H, KV, 1, N, 64, CACHE}, 11);
  memcpy(last.q, whole.q + (N - 1) * D * H, sizeof(double) * D * H);
  memcpy(last.k, whole.k, sizeof(double) * N * D * KV);
  memcpy(last.v, whole.v, sizeof(double) * N * D * KV);
  pass_run(&whole, CPU_ALL, 1, 64);
  pass_run(&last, CPU_ALL, 2, 1);
  cr_expect(same(whole.o + (N - 1) * D * H, last.o, D * H), "o");
  pass_free(&whole);
  pass_free(&last);
}

/* What no row sees is not used: NaN there changes nothing, and its gradients are zero. Rows of another document neither
 * change when a document's values are not finite. */
static void unseen_keys(const unsigned mask) {
  enum { D = 16, H = 2, KV = 1 };
  const shape s = {D, H, KV, 30, 200, 16, GAPS};
  pass a = pass_new(s, 5), b = pass_new(s, 5);
  bool seen[200] = {false};
  for (int r = 0; r < s.rows; r++)
    for (int j = (int)a.span[r]; j <= (int)a.span[s.rows + r]; j++) seen[j] = true;
  for (int j = 0; j < s.keys; j++)
    for (int e = 0; e < D && !seen[j]; e++) b.k[j * D + e] = b.v[j * D + e] = (double)NAN;
  pass_run(&a, mask, 2, 16);
  pass_run(&b, mask, 2, 16);
  expect_same_pass(&a, &b, "NaN in keys that no row sees");
  for (int j = 0; j < s.keys; j++)
    for (int e = 0; e < D && !seen[j]; e++)
      cr_assert(b.dk[j * D + e] == 0 && b.dv[j * D + e] == 0, "key %d that no row sees has a gradient", j);
  pass_free(&a);
  pass_free(&b);
}
Test(attention, unseen_keys_reference) { unseen_keys(CPU_REFERENCE); }
Test(attention, unseen_keys_avx2) { unseen_keys(CPU_AVX2); }
Test(attention, unseen_keys_avx512) { unseen_keys(CPU_AVX512); }

/* A NaN that enters comes out, it is not masked away by a comparison. */
Test(attention, nan_comes_out) {
  pass a = pass_new((shape){16, 1, 1, 20, 20, 16, CAUSAL}, 9);
  a.k[7 * 16 + 3] = (double)NAN;
  static const unsigned masks[] = {CPU_REFERENCE, CPU_AVX2, CPU_ALL};
  for (int i = 0; i < 3; i++) {
    pass_run(&a, masks[i], 1, 16);
    for (int r = 7; r < 20; r++) cr_expect(isnan(a.o[r * 16]), "row %d sees a NaN key, path %u", r, masks[i]);
    ht_comparisons += 13;
  }
  pass_free(&a);
}

Test(attention, refuses) {
  const shape s = {8, 4, 2, 6, 9, 4, CAUSAL};
  ht_case t = make(OP_ATTENTION, &s);
  cr_expect_null(op_check(t.id, &t.c));
  t.c.params.attention.n_kv_heads = 3, ht_refuses(&t, "heads that do not divide");
  t = make(OP_ATTENTION, &s), t.c.params.attention.chunk = 0, ht_refuses(&t, "chunk 0");
  t = make(OP_ATTENTION, &s), t.c.params.attention.head_size = 0, ht_refuses(&t, "head size 0");
  t = make(OP_ATTENTION, &s), t.c.src[0] = ht_f32(8 * 3, 6), ht_refuses(&t, "q narrower than its heads");
  t = make(OP_ATTENTION, &s), t.c.src[2] = ht_f32(8 * 2, 8), ht_refuses(&t, "fewer values than keys");
  t = make(OP_ATTENTION, &s), t.c.src[3] = op_tensor_make(DTYPE_I32, 6, 1), ht_refuses(&t, "span of one row");
  t = make(OP_ATTENTION, &s), t.c.src[3] = op_tensor_none(), ht_refuses(&t, "no span");
  t = make(OP_ATTENTION, &s), t.c.dst[1] = ht_f32(24, 1), ht_refuses(&t, "stats of one row");
  t = make(OP_ATTENTION_DQ, &s), t.c.src[4] = ht_f32(8 * 4, 5), ht_refuses(&t, "o of other rows than q");
  t = make(OP_ATTENTION_DQ, &s), t.c.dst[1] = ht_f32(23, 1), ht_refuses(&t, "d of another size");
  t = make(OP_ATTENTION_DKV, &s), t.c.dst[0] = ht_f32(8 * 4, 9), ht_refuses(&t, "dk as wide as q");
  t = make(OP_ATTENTION_DKV, &s), t.c.src[5] = ht_f32(24, 2), ht_refuses(&t, "d of two rows");
}
