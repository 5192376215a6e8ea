/* get_rows, get_rows_back, set_rows, add, scale, dropout.
 *
 * Bounds. get_rows, set_rows copy: 0. add, scale and dropout round once: |a-b|/(|a|+|b|) is at most 2^-25 = 3.0e-8 (measured
 * over 100 seeds: 2.98e-8); get_rows_back adds up to `rows` terms (measured 1.1e-7 at 40 rows, row metric). The smallest
 * injected defects stand at 1e-2 and above (a factor 1 for 1/(1-p), a - b, a row that is skipped). */
#include "tests/ops/harness.h"

#include <math.h>

#include "kernels/math/philox.h"
#include "kernels/ops/basic.h"

static const struct { int64_t n, rows; } shapes[] = {{1, 1}, {33, 5}, {64, 1}, {7, 9}, {160, 3}, {515, 4}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void fill_index(const ht_case *const t, const bool is_dst, const int index, double *const x,
                       ht_rng *const r) {
  if (is_dst || index != 1) return;
  const int64_t rows = t->c.src[1].ne[0];
  const int64_t table = t->id == OP_GET_ROWS ? t->c.src[0].ne[1] : t->c.dst[0].ne[1];
  for (int64_t i = 0; i < rows; i++)
    x[i] = t->id == OP_SET_ROWS ? (double)((i * 7 + 3) % table) : ht_below(r, (int)table);
}

static void get_rows64(const ht_case *const t, const double *const src[], double *const dst[]) {
  const int64_t n = t->c.dst[0].ne[0], rows = t->c.dst[0].ne[1];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < n; i++) dst[0][r * n + i] = src[0][(int64_t)src[1][r] * n + i];
}

static void get_rows_back64(const ht_case *const t, const double *const src[], double *const dst[]) {
  const int64_t n = t->c.src[0].ne[0], rows = t->c.src[0].ne[1];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < n; i++) dst[0][(int64_t)src[1][r] * n + i] += src[0][r * n + i];
}

static void set_rows64(const ht_case *const t, const double *const src[], double *const dst[]) {
  const int64_t n = t->c.src[0].ne[0], rows = t->c.src[0].ne[1];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < n; i++) dst[0][(int64_t)src[1][r] * n + i] = src[0][r * n + i];
}

static void add64(const ht_case *const t, const double *const src[], double *const dst[]) {
  for (int64_t e = 0; e < t->c.dst[0].ne[0] * t->c.dst[0].ne[1]; e++) dst[0][e] = src[0][e] + src[1][e];
}

static void scale64(const ht_case *const t, const double *const src[], double *const dst[]) {
  for (int64_t e = 0; e < t->c.dst[0].ne[0] * t->c.dst[0].ne[1]; e++)
    dst[0][e] = (double)t->c.params.scale.s * src[0][e];
}

static void fill_step(const ht_case *const t, const bool is_dst, const int index, double *const x,
                      ht_rng *const r) {
  (void)t;
  if (is_dst || index != 1) return;
  step_block s = {
      .seed = (uint64_t)ht_bits(r) << 32 | 77, .step = ht_bits(r) % 100, .row_offset = ht_bits(r) % 50};
  if (ht_below(r, 2)) s.row_offset += (uint64_t)1 << 33; /* element indices past 32 bits */
  ht_step_put(x, &s);
}

/* Element by element from the numbers that name it. */
static void dropout64(const ht_case *const t, const double *const src[], double *const dst[]) {
  const step_block s = ht_step_get(src[1]);
  const double p = (double)t->c.params.dropout.p;
  const int64_t n = t->c.dst[0].ne[0], rows = t->c.dst[0].ne[1];
  for (int64_t row = 0; row < rows; row++)
    for (int64_t i = 0; i < n; i++) {
      const uint64_t e = (s.row_offset + (uint64_t)row) * (uint64_t)n + (uint64_t)i;
      const uint32_t counter[4] = {(uint32_t)(e >> 2), (uint32_t)(e >> 34), t->c.params.dropout.tensor,
                                   (uint32_t)s.step};
      uint32_t w[4];
      philox4x32((uint32_t)s.seed, (uint32_t)(s.seed >> 32), counter, w);
      dst[0][row * n + i] = (double)w[e & 3] >= floor(p * 4294967296.0) ? src[0][row * n + i] / (1 - p) : 0;
    }
}

static bool suite_basic(const op_id id, const int i, ht_case *const t) {
  static const dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1};
  static const struct {
    int64_t n, table, rows;
  } picks[] = {{5, 3, 7}, {32, 11, 1}, {96, 20, 40}, {70, 9, 4}};
  *t = ht_make(id);
  switch (id) {
  case OP_GET_ROWS: {
    if (i >= 4 * 6) return false;
    const dtype type = types[i % 6];
    const int64_t n = dtype_find(type)->block_elements > 1 ? (picks[i / 6].n + 31) / 32 * 32 : picks[i / 6].n;
    t->c.src[0] = op_tensor_make(type, n, picks[i / 6].table);
    t->c.src[1] = ht_i32(picks[i / 6].rows);
    t->c.dst[0] = ht_f32(n, picks[i / 6].rows);
    t->fill = fill_index;
    t->float64 = get_rows64;
    ht_name(t, "%s [%lld, %lld] rows %lld", dtype_name(type), (long long)n, (long long)picks[i / 6].table,
            (long long)picks[i / 6].rows);
    return true;
  }
  case OP_GET_ROWS_BACK:
  case OP_SET_ROWS: {
    if (i >= 4) return false;
    const int64_t table =
        id == OP_SET_ROWS && picks[i].table < picks[i].rows ? picks[i].rows + 1 : picks[i].table;
    t->c.src[0] = ht_f32(picks[i].n, picks[i].rows);
    t->c.src[1] = ht_i32(picks[i].rows);
    t->c.dst[0] = ht_f32(picks[i].n, table);
    t->fill = fill_index;
    t->float64 = id == OP_SET_ROWS ? set_rows64 : get_rows_back64;
    t->bound[0] = id == OP_SET_ROWS ? 0 : 5e-7;
    t->row_metric = 1;
    ht_name(t, "[%lld, %lld] rows %lld", (long long)picks[i].n, (long long)table, (long long)picks[i].rows);
    return true;
  }
  case OP_ADD:
  case OP_SCALE:
  case OP_DROPOUT:
    if (i >= N_SHAPES) return false;
    t->c.src[0] = t->c.dst[0] = ht_f32(shapes[i].n, shapes[i].rows);
    t->bound[0] = 3.1e-8;
    ht_name(t, "[%lld, %lld]", (long long)shapes[i].n, (long long)shapes[i].rows);
    if (id == OP_ADD) {
      t->c.src[1] = t->c.src[0];
      t->float64 = add64;
    } else if (id == OP_SCALE) {
      t->c.params.scale.s = -1.7f;
      t->float64 = scale64;
    } else {
      t->c.src[1] = ht_i32(16);
      t->c.params.dropout.p = i % 3 == 0 ? 0.0f : i % 3 == 1 ? 0.1f : 0.75f;
      t->c.params.dropout.tensor = 9 + (uint32_t)i;
      t->fill = fill_step;
      t->float64 = dropout64;
      t->bound[0] = 7e-8; /* 1/(1-p), then the product */
    }
    return true;
  default:
    return false;
  }
}

HT_OP_TESTS(suite_basic, GET_ROWS, get_rows)
HT_OP_TESTS(suite_basic, GET_ROWS_BACK, get_rows_back)
HT_OP_TESTS(suite_basic, SET_ROWS, set_rows)
HT_OP_TESTS(suite_basic, ADD, add)
HT_OP_TESTS(suite_basic, SCALE, scale)
HT_OP_TESTS(suite_basic, DROPOUT, dropout)

Test(get_rows_back, linear) { ht_linear(suite_basic, OP_GET_ROWS_BACK, 1, 1, 5e-7); }
Test(dropout, linear) { ht_linear(suite_basic, OP_DROPOUT, 1, 1, 1e-7); }

static void get_rows_gradient(const ht_case *const f, const double *const src[], const double *const dst[],
                              const double *const u[], double *const gradient) {
  (void)dst;
  const int64_t n = f->c.dst[0].ne[0];
  ht_case back = ht_make(OP_GET_ROWS_BACK);
  back.c.src[0] = ht_f32(n, f->c.dst[0].ne[1]);
  const double *const s[OP_MAX_SRC] = {u[0], src[1]};
  double *const d[OP_MAX_DST] = {gradient};
  get_rows_back64(&back, s, d);
}

/* The forward is linear: a central difference is exact to rounding; a lost or doubled row stands at 1e-1. */
Test(get_rows, gradient) { ht_gradient(suite_basic, OP_GET_ROWS, 0, 1, get_rows_gradient, 0, 1e-9); }

static void dropout_gradient(const ht_case *const f, const double *const src[], const double *const dst[],
                             const double *const u[], double *const gradient) {
  (void)dst;
  const double *const s[OP_MAX_SRC] = {u[0], src[1]};
  double *const d[OP_MAX_DST] = {gradient};
  dropout64(f, s, d); /* the backward is the same op on dy */
}
Test(dropout, gradient) { ht_gradient(suite_basic, OP_DROPOUT, 0, 1, dropout_gradient, 0, 1e-9); }

/* Draws belong to (seed, step, tensor, element): another of any gives another mask; two halves of a batch give the
 * bits of the whole; the share that is kept is 1 - p within 5 standard deviations. */
Test(dropout, draws) {
  enum { N = 300, ROWS = 40 };
  ht_case t = ht_make(OP_DROPOUT);
  ht_name(&t, "draws");
  t.c.src[0] = t.c.dst[0] = ht_f32(N, ROWS);
  t.c.src[1] = ht_i32(16);
  t.c.params.dropout.p = 0.3f;
  t.c.params.dropout.tensor = 4;
  static double ones[N * ROWS], y[5][N * ROWS], half[N * ROWS / 2], block[16];
  for (int e = 0; e < N * ROWS; e++) ones[e] = 1;
  for (int variant = 0; variant < 5; variant++) {
    step_block s = {.seed = 42 + ((uint64_t)(variant == 1) << 32),
                    .step = 6 + (variant == 2),
                    .row_offset = (uint64_t)(variant == 3) * 8};
    t.c.params.dropout.tensor = 4 + (variant == 4);
    ht_step_put(block, &s);
    ht_run(&t, CPU_ALL, 2, (const double *[OP_MAX_SRC]){ones, block}, (double *[OP_MAX_DST]){y[variant]});
    int kept = 0, common = 0;
    for (int e = 0; e < N * ROWS; e++) {
      kept += y[variant][e] != 0;
      common += (y[variant][e] != 0) == (y[0][e] != 0);
    }
    const double deviation = sqrt(0.3 * 0.7 * N * ROWS), agree = (0.7 * 0.7 + 0.3 * 0.3) * N * ROWS;
    cr_assert(fabs(kept - 0.7 * N * ROWS) < 5 * deviation, "variant %d keeps %d", variant, kept);
    cr_assert(variant == 0 || fabs(common - agree) < 5 * sqrt(0.58 * 0.42 * N * ROWS),
              "variant %d is like the first: %d", variant, common);
  }
  for (int h = 0; h < 2; h++) {
    ht_case part = t;
    part.c.params.dropout.tensor = 4;
    part.c.src[0] = part.c.dst[0] = ht_f32(N, ROWS / 2);
    step_block s = {.seed = 42, .step = 6, .row_offset = (uint64_t)h * (ROWS / 2)};
    ht_step_put(block, &s);
    ht_run(&part, CPU_ALL, 3, (const double *[OP_MAX_SRC]){ones, block}, (double *[OP_MAX_DST]){half});
    for (int e = 0; e < N * ROWS / 2; e++)
      cr_assert(half[e] == y[0][h * (N * ROWS / 2) + e], "half %d, element %d differs from the whole", h, e);
  }
}

Test(basic, refuses) {
  ht_case t;
  cr_assert(suite_basic(OP_ADD, 1, &t));
  ht_case bad = t;
  bad.c.src[1].ne[0]--;
  ht_refuses(&bad, "terms of another shape");
  bad = t;
  bad.c.src[0] = op_tensor_none();
  ht_refuses(&bad, "an absent source");
  bad = t;
  bad.c.src[0].nb[0] = 8;
  ht_refuses(&bad, "elements that are not neighbours");
  cr_assert(suite_basic(OP_GET_ROWS, 3, &t));
  bad = t;
  bad.c.src[1].ne[0]++;
  ht_refuses(&bad, "an index of another length");
  bad = t;
  bad.c.src[0].type = DTYPE_I32;
  ht_refuses(&bad, "a table that is not a weight");
  cr_assert(suite_basic(OP_DROPOUT, 1, &t));
  bad = t;
  bad.c.params.dropout.p = 1.0f;
  ht_refuses(&bad, "p = 1");
  bad = t;
  bad.c.params.dropout.p = NAN;
  ht_refuses(&bad, "p = NaN");
  bad = t;
  bad.c.src[1].ne[0] = 15;
  ht_refuses(&bad, "a short step block");
}
