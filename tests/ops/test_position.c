/* rope.
 *
 * Bound 5e-7 by the row metric (largest over 100 seeds: 3.1e-7, up to position 2^24 - 1). Smallest injected defect: the low
 * part of the turns left out, 1e-3 at positions of 100,000; a sign stands at 1. */
#include "tests/ops/harness.h"

#include <math.h>
#include <string.h>

#include "kernels/ops/position.h"

static const struct {
  int32_t head_size, n_rot, heads;
  int64_t rows;
  int32_t neox, inverse;
  float magnitude;
  int32_t max_pos;
} shapes[] = {
    {2, 2, 1, 1, 0, 0, 1.0f, 10},           {8, 8, 3, 5, 0, 0, 1.0f, 100},
    {8, 8, 3, 5, 1, 0, 1.0f, 100},          {64, 64, 2, 3, 0, 1, 1.0f, 4096},
    {64, 64, 2, 3, 1, 1, 1.25f, 4096},      {20, 12, 2, 4, 0, 0, 0.8f, 100000},
    {20, 12, 2, 4, 1, 0, 1.0f, 100000},     {128, 96, 1, 9, 0, 1, 1.0f, 16777215},
    {300, 300, 1, 2, 1, 0, 1.0f, 16777215}, {6, 2, 5, 17, 0, 0, 1.0f, 5},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void fill(const ht_case *const t, const bool is_dst, const int index, double *const x,
                 ht_rng *const r) {
  if (is_dst) return;
  const int32_t pairs = t->c.params.rope.n_rot / 2;
  if (index == 1)
    for (int64_t row = 0; row < t->c.src[1].ne[0]; row++)
      x[row] = row == 0 ? *(const int32_t *)t->user : ht_below(r, *(const int32_t *)t->user + 1);
  if (index == 2)
    for (int32_t i = 0; i < pairs; i++) {
      const double turn = pow(10000.0, -(double)i / pairs) / (2 * M_PI);
      x[i] = (double)(float)turn;
      x[pairs + i] = (double)(float)(turn - (double)(float)turn);
    }
}

static void rope64(const ht_case *const t, const double *const src[], double *const dst[]) {
  const int64_t n = t->c.src[0].ne[0], rows = t->c.src[0].ne[1];
  const int32_t head = t->c.params.rope.head_size, pairs = t->c.params.rope.n_rot / 2;
  for (int64_t row = 0; row < rows; row++)
    for (int64_t h = 0; h < n; h += head) {
      const double *const x = src[0] + row * n + h;
      double *const y = dst[0] + row * n + h;
      memcpy(y, x, (size_t)head * sizeof(double));
      for (int32_t i = 0; i < pairs; i++) {
        const long double turn =
            (long double)src[1][row] * ((long double)src[2][i] + (long double)src[2][pairs + i]);
        const double angle = (double)(turn - rintl(turn)) * 2 * M_PI * (t->c.params.rope.inverse ? -1 : 1);
        const double c = (double)t->c.params.rope.magnitude * cos(angle),
                     s = (double)t->c.params.rope.magnitude * sin(angle);
        const int32_t i0 = t->c.params.rope.neox ? i : 2 * i,
                      i1 = t->c.params.rope.neox ? i + pairs : 2 * i + 1;
        y[i0] = x[i0] * c - x[i1] * s;
        y[i1] = x[i0] * s + x[i1] * c;
      }
    }
}

static bool suite_position(const op_id id, const int i, ht_case *const t) {
  *t = ht_make(id);
  if (id != OP_ROPE || i >= N_SHAPES) return false;
  t->c.src[0] = t->c.dst[0] = ht_f32((int64_t)shapes[i].head_size * shapes[i].heads, shapes[i].rows);
  t->c.src[1] = ht_i32(shapes[i].rows);
  t->c.src[2] = ht_f32(shapes[i].n_rot / 2, 2);
  t->c.params.rope.head_size = shapes[i].head_size;
  t->c.params.rope.n_rot = shapes[i].n_rot;
  t->c.params.rope.neox = shapes[i].neox;
  t->c.params.rope.inverse = shapes[i].inverse;
  t->c.params.rope.magnitude = shapes[i].magnitude;
  t->user = (void *)(uintptr_t)&shapes[i].max_pos;
  t->fill = fill;
  t->float64 = rope64;
  t->row_metric = 1;
  t->bound[0] = 5e-7;
  ht_name(t, "head %d rot %d x %d rows %lld%s%s pos <= %d", shapes[i].head_size, shapes[i].n_rot,
          shapes[i].heads, (long long)shapes[i].rows, shapes[i].neox ? " neox" : "",
          shapes[i].inverse ? " inverse" : "", shapes[i].max_pos);
  return true;
}

HT_OP_TESTS(suite_position, ROPE, rope)

Test(rope, linear) { ht_linear(suite_position, OP_ROPE, 1, 1, 5e-7); }

static void gradient(const ht_case *const f, const double *const src[], const double *const dst[],
                     const double *const u[], double *const g) {
  (void)dst;
  ht_case back = *f;
  back.c.params.rope.inverse = !f->c.params.rope.inverse;
  rope64(&back, (const double *const[OP_MAX_SRC]){u[0], src[1], src[2]}, (double *const[]){g});
}
Test(rope, gradient) { ht_gradient(suite_position, OP_ROPE, 0, 1, gradient, 0, 1e-9); }

/* Position 0 turns nothing: the very bits, in every path; and the op undoes its inverse. */
Test(rope, identities) {
  enum { N = 96, ROWS = 4 };
  ht_case t = ht_make(OP_ROPE);
  ht_name(&t, "identities");
  t.c.src[0] = t.c.dst[0] = ht_f32(N, ROWS);
  t.c.src[1] = ht_i32(ROWS);
  t.c.src[2] = ht_f32(24, 2);
  t.c.params.rope.head_size = t.c.params.rope.n_rot = 48;
  t.c.params.rope.magnitude = 1.0f;
  static const int32_t limit = 5000;
  t.user = (void *)(uintptr_t)&limit;
  static double x[N * ROWS], pos[ROWS], zero[ROWS], turns[48], y[N * ROWS], z[N * ROWS];
  ht_rng r = {11};
  for (int e = 0; e < N * ROWS; e++) x[e] = (double)(float)ht_normal(&r);
  fill(&t, false, 1, pos, &r);
  fill(&t, false, 2, turns, &r);
  ht_run(&t, CPU_ALL, 2, (const double *[OP_MAX_SRC]){x, zero, turns}, (double *[OP_MAX_DST]){y});
  for (int e = 0; e < N * ROWS; e++) cr_assert(x[e] == y[e], "element %d moves at position 0", e);
  ht_run(&t, CPU_ALL, 2, (const double *[OP_MAX_SRC]){x, pos, turns}, (double *[OP_MAX_DST]){y});
  t.c.params.rope.inverse = 1;
  ht_run(&t, CPU_ALL, 2, (const double *[OP_MAX_SRC]){y, pos, turns}, (double *[OP_MAX_DST]){z});
  const double error = ht_error(x, z, N, ROWS, true);
  cr_assert(error < 3e-7, "%g", error);
}

Test(position, refuses) {
  ht_case t;
  cr_assert(suite_position(OP_ROPE, 5, &t));
  ht_case bad = t;
  bad.c.params.rope.n_rot = 11;
  ht_refuses(&bad, "an odd n_rot");
  bad = t;
  bad.c.params.rope.n_rot = 22;
  ht_refuses(&bad, "an n_rot past the head");
  bad = t;
  bad.c.params.rope.head_size = 0;
  ht_refuses(&bad, "a head of nothing");
  bad = t;
  bad.c.params.rope.head_size = 21;
  ht_refuses(&bad, "rows that are not whole heads");
  bad = t;
  bad.c.src[2].ne[0]--;
  ht_refuses(&bad, "a short table of turns");
}
