/* The properties. See harness.h. */
#include "tests/ops/harness.h"

#include <math.h>
#include <string.h>

#include "tests/ops/values.h"

int64_t ht_comparisons;
ht_suite *ht_covered[OP_COUNT];

void ht_covers(const op_id id, ht_suite *const suite) { ht_covered[id] = suite; }

enum { MAX_CASES = 10000 };
static const int worker_counts[] = {1, 2, 3, 8};

typedef struct outputs {
  unsigned char *raw[OP_MAX_DST];
} outputs;

static outputs outputs_take(const ht_case *const t) {
  outputs o = {0};
  for (int j = 0; j < OP_MAX_DST; j++)
    if (op_present(&t->c.dst[j])) o.raw[j] = malloc(ht_raw_bytes(&t->c.dst[j]) + 1);
  return o;
}

static void outputs_free(outputs *const o) {
  for (int j = 0; j < OP_MAX_DST; j++) free(o->raw[j]);
}

/* Bit for bit; any NaN equals any NaN. */
static void same_bits(const ht_case *const t, const ht_config *const g, const outputs *const a,
                      const outputs *const b) {
  for (int j = 0; j < OP_MAX_DST; j++) {
    if (!a->raw[j]) continue;
    const op_tensor *const d = &t->c.dst[j];
    for (int64_t e = 0; e < ht_elements(d); e++) {
      uint32_t x, y;
      memcpy(&x, a->raw[j] + 4 * e, 4);
      memcpy(&y, b->raw[j] + 4 * e, 4);
      ht_comparisons++;
      const bool nans =
          d->type == DTYPE_F32 && (x & 0x7fffffffu) > 0x7f800000u && (y & 0x7fffffffu) > 0x7f800000u;
      if (x == y || nans) continue;
      float fx, fy;
      memcpy(&fx, &x, 4);
      memcpy(&fy, &y, 4);
      cr_assert_fail("%s: dst %d element %lld (row %lld, column %lld) is %a (%08x), should be %a (%08x): %s",
                     t->name, j, (long long)e, (long long)(e / d->ne[0]), (long long)(e % d->ne[0]), fx, x,
                     fy, y, ht_config_text(g));
    }
  }
}

static void call(const ht_case *const t, const ht_values *const v, const ht_config *const g,
                 outputs *const o) {
  ht_call(t, v, g, o->raw);
}

/* All the runs of one path against the bits of `expect`. */
static void all_runs(const ht_case *const t, const ht_values *const v, const unsigned mask,
                     const outputs *const expect) {
  outputs got = outputs_take(t);
  for (int w = 0; w < 4; w++)
    for (int form = 0; form < 4; form++) {
      ht_config g = ht_plain(mask, worker_counts[w]);
      g.reverse = form & 1;
      g.strided = form & 2;
      if (g.reverse && g.workers == 1) continue;
      call(t, v, &g, &got);
      same_bits(t, &g, &got, expect);
    }
  outputs_free(&got);
}

static void bits_of_path(ht_suite *const suite, const op_id id, const unsigned mask) {
  const int64_t before = ht_comparisons;
  ht_case t;
  for (int i = 0; i < MAX_CASES && suite(id, i, &t); i++) {
    const int64_t before_case = ht_comparisons;
    ht_values v = ht_values_make(&t, (uint64_t)i + 1);
    outputs expect = outputs_take(&t);
    const ht_config g = ht_plain(CPU_REFERENCE, 1);
    call(&t, &v, &g, &expect);
    all_runs(&t, &v, mask, &expect);
    cr_assert(ht_comparisons > before_case, "%s: nothing was compared", t.name);
    outputs_free(&expect);
    ht_values_free(&v);
  }
  cr_assert(ht_comparisons > before, "%s: the suite has no case", op_table[id]->name);
}

void ht_reference(ht_suite *const suite, const op_id id) { bits_of_path(suite, id, CPU_REFERENCE); }

void ht_path(ht_suite *const suite, const op_id id, const unsigned path) {
  if (!(cpu_paths() & path))
    cr_skip("this processor or build has no %s", path == CPU_AVX512 ? "AVX-512" : "AVX2");
  bits_of_path(suite, id, path);
}

/* Every choice of one source (or none) for each dst, each source taken once. */
static void aliases_of_case(const ht_case *const t, const ht_device *const device,
                            uint32_t done[OP_MAX_DST]) {
  const op_row *const row = op_table[t->id];
  ht_values v = ht_values_make(t, 99);
  outputs expect = outputs_take(t), got = outputs_take(t);
  const ht_config plain = ht_plain(CPU_REFERENCE, 1);
  call(t, &v, &plain, &expect);
  int choice[OP_MAX_DST] = {0}; /* 0: none, 1 + i: source i */
  for (;;) {
    int j = 0;
    while (j < OP_MAX_DST && ++choice[j] > OP_MAX_SRC) choice[j++] = 0;
    if (j == OP_MAX_DST) break;
    bool valid = true;
    uint32_t taken = 0;
    ht_config g = plain;
    for (j = 0; j < OP_MAX_DST && valid; j++) {
      if (choice[j] == 0) continue;
      const int i = choice[j] - 1;
      const op_tensor *const d = &t->c.dst[j], *const s = &t->c.src[i];
      valid = op_present(d) && op_present(s) && (row->alias[j] >> i & 1) && !(taken >> i & 1) &&
              d->type == s->type && memcmp(d->ne, s->ne, sizeof d->ne) == 0 && !(t->exact_alias_off >> j & 1);
      taken |= 1u << i;
      g.alias[j] = i;
    }
    if (!valid) continue;
    g.device = device;
    for (unsigned path = 0; path < (device ? 1 : 3); path++)
      for (int form = 0; form < 4; form++) {
        if (device && (form & 1)) continue;
        g.seed = (unsigned)form;
        g.mask = path == 0 ? CPU_REFERENCE : path == 1 ? CPU_AVX2 : CPU_AVX512;
        if (path && !(cpu_paths() & g.mask)) continue;
        g.workers = form & 1 ? 3 : 1;
        g.strided = form & 2;
        call(t, &v, &g, &got);
        same_bits(t, &g, &got, &expect);
      }
    for (j = 0; j < OP_MAX_DST; j++)
      if (g.alias[j] >= 0) done[j] |= 1u << g.alias[j];
  }
  outputs_free(&expect);
  outputs_free(&got);
  ht_values_free(&v);
}

void ht_alias(ht_suite *const suite, const op_id id) {
  uint32_t done[OP_MAX_DST] = {0};
  ht_case t;
  for (int i = 0; i < MAX_CASES && suite(id, i, &t); i++) {
    bool any = false;
    for (int j = 0; j < OP_MAX_DST; j++) any |= op_table[id]->alias[j] != 0;
    if (any) aliases_of_case(&t, NULL, done);
  }
  for (int j = 0; j < OP_MAX_DST; j++)
    cr_assert(done[j] == op_table[id]->alias[j], "%s: dst %d may lie on sources %x, cases tried %x",
              op_table[id]->name, j, op_table[id]->alias[j], done[j]);
}

static double size_of(const ht_case *const t) {
  const double flops = op_flops(t->id, &t->c);
  double elements = 0;
  for (int k = 0; k < HT_OPERANDS; k++)
    if (op_present(ht_operand(&t->c, k))) elements += (double)ht_elements(ht_operand(&t->c, k));
  return flops > elements ? flops : elements;
}

void ht_on_device(ht_suite *const suite, const op_id id, const ht_device *const device, const double most) {
  const int64_t before = ht_comparisons;
  uint32_t aliases[OP_MAX_DST] = {0};
  bool any_alias = false;
  for (int j = 0; j < OP_MAX_DST; j++) any_alias |= op_table[id]->alias[j] != 0;
  int n_run = 0, n_left_out = 0;
  ht_case t;
  for (int i = 0; i < MAX_CASES && suite(id, i, &t); i++) {
    if (size_of(&t) > most) {
      n_left_out++;
      continue;
    }
    n_run++;
    ht_values v = ht_values_make(&t, (uint64_t)i + 1);
    outputs expect = outputs_take(&t), got = outputs_take(&t);
    const ht_config plain = ht_plain(CPU_REFERENCE, 1);
    call(&t, &v, &plain, &expect);
    for (unsigned seed = 0; seed < 4; seed++) {
      ht_config g = plain;
      g.device = device;
      g.seed = seed;
      g.strided = seed & 1;
      call(&t, &v, &g, &got);
      same_bits(&t, &g, &got, &expect);
    }
    outputs_free(&expect);
    outputs_free(&got);
    ht_values_free(&v);
    if (any_alias) aliases_of_case(&t, device, aliases);
  }
  if (getenv("HT_MEASURE"))
    fprintf(stderr, "%-20s %d cases, %d left out\n", op_table[id]->name, n_run, n_left_out);
  cr_assert(ht_comparisons > before, "%s: nothing was compared", op_table[id]->name);
  for (int j = 0; j < OP_MAX_DST; j++)
    cr_assert(aliases[j] == op_table[id]->alias[j], "%s: dst %d may lie on sources %x, cases tried %x",
              op_table[id]->name, j, op_table[id]->alias[j], aliases[j]);
}

void ht_near_device(ht_suite *const suite, const op_id id, const ht_device *const device, const double most,
                    const double bound) {
  const int64_t before = ht_comparisons;
  ht_case t;
  for (int i = 0; i < MAX_CASES && suite(id, i, &t); i++) {
    if (size_of(&t) > most) continue;
    ht_values v = ht_values_make(&t, (uint64_t)i + 1);
    outputs expect = outputs_take(&t), first = outputs_take(&t), got = outputs_take(&t);
    ht_config g = ht_plain(CPU_REFERENCE, 1);
    call(&t, &v, &g, &expect);
    g.device = device;
    for (g.seed = 0; g.seed < 2; g.seed++) {
      call(&t, &v, &g, g.seed ? &got : &first);
      if (g.seed) same_bits(&t, &g, &got, &first);
    }
    for (int j = 0; j < OP_MAX_DST; j++) {
      if (!got.raw[j]) continue;
      const op_tensor *const d = &t.c.dst[j];
      const size_t bytes = (size_t)ht_elements(d) * sizeof(double);
      double *const a = malloc(bytes + 1), *const b = malloc(bytes + 1);
      ht_raw_to_dense(d, got.raw[j], a);
      ht_raw_to_dense(d, expect.raw[j], b);
      const double error = ht_error(a, b, d->ne[0], op_rows(d), true);
      if (getenv("HT_MEASURE"))
        fprintf(stderr, "%-16s %-48s dst %d  %.3g of the reference, bound %.3g\n", op_table[id]->name, t.name,
                j, error, bound);
      cr_assert(error <= bound, "%s (%s): dst %d errs by %.3g, bound %.3g", t.name, device->name, j, error,
                bound);
      free(a);
      free(b);
    }
    outputs_free(&expect);
    outputs_free(&first);
    outputs_free(&got);
    ht_values_free(&v);
  }
  cr_assert(ht_comparisons > before, "%s: nothing was compared", op_table[id]->name);
}

double ht_error(const double *const a, const double *const b, const int64_t n, const int64_t rows,
                const bool row_metric) {
  double worst = 0;
  const int64_t span = n < 8 ? n * rows : n; /* a short row has no mean worth the name: the whole tensor's */
  for (int64_t first = 0; first < n * rows; first += span) {
    double mean = 0;
    for (int64_t e = first; e < first + span; e++) mean += (fabs(a[e]) + fabs(b[e])) / (double)span;
    for (int64_t e = first; e < first + span; e++) {
      const double size = fabs(a[e]) + fabs(b[e]);
      ht_comparisons++;
      if (isnan(a[e]) || isnan(b[e])) return INFINITY;
      if (a[e] == b[e]) continue; /* zeros of either sign, equal infinities */
      const double error = fabs(a[e] - b[e]) / (row_metric && mean > size ? mean : size);
      if (!(error <= worst)) worst = error;
    }
  }
  return worst;
}

static void dense_copy(double *const to[], double *const from[], const op_tensor *const t, const int count) {
  for (int k = 0; k < count; k++)
    if (from[k]) memcpy(to[k], from[k], (size_t)ht_elements(&t[k]) * sizeof(double));
}

typedef struct dense {
  double *p[OP_MAX_DST];
} dense;

static dense dense_take(const ht_case *const t) {
  dense d = {0};
  for (int j = 0; j < OP_MAX_DST; j++)
    if (op_present(&t->c.dst[j])) d.p[j] = calloc((size_t)ht_elements(&t->c.dst[j]), sizeof(double));
  return d;
}

static void dense_free(dense *const d) {
  for (int j = 0; j < OP_MAX_DST; j++) free(d->p[j]);
}

/* The case's float64 implementation on v; inout destinations start from v's. */
static void run_float64(const ht_case *const t, const ht_values *const v, dense *const d) {
  cr_assert(t->float64 != NULL, "%s: no float64 implementation", t->name);
  dense_copy(d->p, (double *const *)v->dense + OP_MAX_SRC, t->c.dst, OP_MAX_DST);
  t->float64(t, (const double *const *)v->dense, d->p);
}

void ht_float64(ht_suite *const suite, const op_id id) {
  const int64_t before = ht_comparisons;
  const bool measure = getenv("HT_MEASURE") != NULL;
  ht_case t;
  for (int i = 0; i < MAX_CASES && suite(id, i, &t); i++) {
    const int64_t before_case = ht_comparisons;
    const int seeds = measure ? 100 : t.seeds ? t.seeds : 4;
    double worst[OP_MAX_DST] = {0};
    for (int seed = 0; seed < seeds; seed++) {
      ht_values v = ht_values_make(&t, 1000u + (uint64_t)seed);
      outputs got = outputs_take(&t);
      dense expect = dense_take(&t), value = dense_take(&t);
      const ht_config g = ht_plain(CPU_REFERENCE, 1);
      call(&t, &v, &g, &got);
      run_float64(&t, &v, &expect);
      for (int j = 0; j < OP_MAX_DST; j++) {
        const op_tensor *const d = &t.c.dst[j];
        if (!op_present(d) || (t.bits_only >> j & 1)) continue;
        ht_raw_to_dense(d, got.raw[j], value.p[j]);
        const double error = ht_error(value.p[j], expect.p[j], d->ne[0], op_rows(d), t.row_metric >> j & 1);
        worst[j] = error > worst[j] ? error : worst[j];
        if (!measure)
          cr_assert(error <= t.bound[j], "%s: dst %d seed %d: error %.3g, bound %.3g", t.name, j, seed, error,
                    t.bound[j]);
      }
      outputs_free(&got);
      dense_free(&expect);
      dense_free(&value);
      ht_values_free(&v);
    }
    if (measure)
      for (int j = 0; j < OP_MAX_DST; j++)
        if (op_present(&t.c.dst[j]) && !(t.bits_only >> j & 1))
          fprintf(stderr, "%-16s %-48s dst %d  error %.3g  bound %.3g%s\n", op_table[id]->name, t.name, j,
                  worst[j], t.bound[j], worst[j] > t.bound[j] ? "  ABOVE" : "");
    cr_assert(ht_comparisons > before_case, "%s: nothing was compared", t.name);
  }
  cr_assert(ht_comparisons > before, "%s: the suite has no case", op_table[id]->name);
}

static double objective_value(const ht_case *const t, const ht_values *const v, dense *const d,
                              const dense *const u) {
  run_float64(t, v, d);
  double sum = 0;
  for (int j = 0; j < OP_MAX_DST; j++)
    if (d->p[j])
      for (int64_t e = 0; e < ht_elements(&t->c.dst[j]); e++) sum += u->p[j][e] * d->p[j][e];
  return sum;
}

void ht_gradient(ht_suite *const suite, const op_id id, const int wrt, const uint32_t objective,
                 ht_gradient_fn *const gradient, const double step, const double bound) {
  const int64_t before = ht_comparisons;
  const double h = step > 0 ? step : 1e-3;
  ht_case t;
  for (int i = 0; i < MAX_CASES && suite(id, i, &t); i++) {
    if (!op_present(&t.c.src[wrt])) continue;
    ht_values v = ht_values_make(&t, 7u + (uint64_t)i);
    dense d = dense_take(&t), u = dense_take(&t);
    ht_rng r = {.state = 31337u + (uint64_t)i};
    for (int j = 0; j < OP_MAX_DST; j++)
      if (u.p[j] && (objective >> j & 1))
        for (int64_t e = 0; e < ht_elements(&t.c.dst[j]); e++) u.p[j][e] = ht_normal(&r);
    run_float64(&t, &v, &d);
    const int64_t n = ht_elements(&t.c.src[wrt]), count = n < 48 ? n : 48;
    double *const analytic = calloc((size_t)n, sizeof(double)), *const x = v.dense[wrt];
    gradient(&t, (const double *const *)v.dense, (const double *const *)d.p, (const double *const *)u.p,
             analytic);
    double a[48], b[48];
    for (int64_t s = 0; s < count; s++) {
      const int64_t e = n <= 48 ? s : ht_below(&r, (int)n);
      const double keep = x[e];
      double f[4];
      static const int at[4] = {1, -1, 2, -2};
      for (int k = 0; k < 4; k++) {
        x[e] = keep + at[k] * h;
        f[k] = objective_value(&t, &v, &d, &u);
      }
      x[e] = keep;
      a[s] = analytic[e];
      b[s] = (8 * (f[0] - f[1]) - (f[2] - f[3])) / (12 * h);
    }
    const double error = ht_error(a, b, count, 1, true);
    if (getenv("HT_MEASURE"))
      fprintf(stderr, "%-16s %-48s d/d src %d  error %.3g  bound %.3g\n", op_table[id]->name, t.name, wrt,
              error, bound);
    cr_assert(error <= bound, "%s: gradient by src %d: error %.3g, bound %.3g", t.name, wrt, error, bound);
    free(analytic);
    dense_free(&d);
    dense_free(&u);
    ht_values_free(&v);
  }
  cr_assert(ht_comparisons > before, "%s: no gradient was compared", op_table[id]->name);
}

bool ht_run(const ht_case *const t, const unsigned mask, const int workers, const double *const src[],
            double *const dst[]) {
  ht_values v = ht_values_from(t, src, dst);
  outputs o = outputs_take(t);
  const ht_config g = ht_plain(mask, workers);
  call(t, &v, &g, &o);
  for (int j = 0; j < OP_MAX_DST; j++)
    if (o.raw[j] && dst[j]) ht_raw_to_dense(&t->c.dst[j], o.raw[j], dst[j]);
  outputs_free(&o);
  ht_values_free(&v);
  return true;
}

void ht_linear(ht_suite *const suite, const op_id id, const uint32_t src_mask, const uint32_t dst_mask,
               const double bound) {
  const int64_t before = ht_comparisons;
  ht_case t;
  for (int i = 0; i < MAX_CASES && suite(id, i, &t); i++) {
    ht_values x[4]; /* u, v, u + v, 2u: on a coarse grid, so that sums are exact */
    for (int k = 0; k < 4; k++) x[k] = ht_values_make(&t, 17u + (uint64_t)i);
    ht_values other = ht_values_make(&t, 18u + (uint64_t)i);
    for (int k = 0; k < OP_MAX_SRC; k++)
      if ((src_mask >> k & 1) && op_present(&t.c.src[k]))
        for (int64_t e = 0; e < ht_elements(&t.c.src[k]); e++) {
          const double u = rint(x[0].dense[k][e] * 1024) / 1024, w = rint(other.dense[k][e] * 1024) / 1024;
          x[0].dense[k][e] = u;
          x[1].dense[k][e] = w;
          x[2].dense[k][e] = u + w;
          x[3].dense[k][e] = 2 * u;
        }
    dense y[4];
    for (int k = 0; k < 4; k++) {
      y[k] = dense_take(&t); /* zeros: where inout destinations start */
      ht_run(&t, CPU_ALL, 2, (const double *const *)x[k].dense, y[k].p);
    }
    for (int j = 0; j < OP_MAX_DST; j++) {
      if (!(dst_mask >> j & 1) || !y[0].p[j]) continue;
      const op_tensor *const d = &t.c.dst[j];
      for (int64_t e = 0; e < ht_elements(d); e++) {
        ht_comparisons++;
        cr_assert(y[3].p[j][e] == 2 * y[0].p[j][e], "%s: dst %d element %lld: not twice at twice the sources",
                  t.name, j, (long long)e);
        y[1].p[j][e] += y[0].p[j][e];
      }
      const double error = ht_error(y[2].p[j], y[1].p[j], d->ne[0], op_rows(d), true);
      if (getenv("HT_MEASURE"))
        fprintf(stderr, "%-16s %-48s dst %d  additive to %.3g  bound %.3g\n", op_table[id]->name, t.name, j,
                error, bound);
      cr_assert(error <= bound, "%s: dst %d: op(u+v) is not op(u)+op(v): %.3g, bound %.3g", t.name, j, error,
                bound);
    }
    for (int k = 0; k < 4; k++) {
      dense_free(&y[k]);
      ht_values_free(&x[k]);
    }
    ht_values_free(&other);
  }
  cr_assert(ht_comparisons > before, "%s: no linearity was compared", op_table[id]->name);
}

void ht_refuses(const ht_case *const t, const char *const why) {
  ht_comparisons++;
  cr_assert(op_check(t->id, &t->c) != NULL, "%s: op_check accepts %s", t->name, why);
}
