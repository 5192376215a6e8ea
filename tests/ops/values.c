/* Values, guarded memory and one call of an op. Tests may allocate; kernels may not. */
#include "tests/ops/values.h"

#include <stdarg.h>
#include <string.h>

enum { GUARD_BYTES = 128, GUARD = 0xa5 };

uint32_t ht_bits(ht_rng *const r) { /* splitmix64, high half */
  uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (uint32_t)((z ^ (z >> 31)) >> 32);
}

double ht_uniform(ht_rng *const r, const double low, const double high) {
  return low + (high - low) * ((double)ht_bits(r) * 0x1p-32);
}

double ht_normal(ht_rng *const r) {
  double sum = 0;
  for (int i = 0; i < 12; i++) sum += ht_uniform(r, -0.5, 0.5);
  return sum;
}

int ht_below(ht_rng *const r, const int n) { return (int)(((uint64_t)ht_bits(r) * (uint64_t)n) >> 32); }

void ht_step_put(double x[16], const step_block *const s) {
  int32_t words[16];
  memcpy(words, s, sizeof words);
  for (int i = 0; i < 16; i++) x[i] = words[i];
}

step_block ht_step_get(const double x[16]) {
  int32_t words[16];
  for (int i = 0; i < 16; i++) words[i] = (int32_t)x[i];
  step_block s;
  memcpy(&s, words, sizeof s);
  return s;
}

void ht_step_default(double x[16]) {
  const step_block s = {.seed = 0x123456789abcdef0u,
                        .step = 3,
                        .row_offset = 5,
                        .loss_scale = 0.125f,
                        .lr = 1e-2f,
                        .bias1 = 0.3439f,
                        .bias2 = 0.003994f,
                        .clip = 1.0f,
                        .grad_norm = 2.0f,
                        .clip_factor = 0.5f};
  ht_step_put(x, &s);
}

void ht_name(ht_case *const t, const char *const format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(t->name, sizeof t->name, format, list);
  va_end(list);
}

ht_case ht_make(const op_id id) {
  ht_case t = {.id = id};
  for (int i = 0; i < OP_MAX_SRC; i++) t.c.src[i] = op_tensor_none();
  for (int j = 0; j < OP_MAX_DST; j++) t.c.dst[j] = op_tensor_none();
  return t;
}

static void *take(const size_t bytes) {
  void *const p = aligned_alloc(64, (bytes + 127) / 64 * 64);
  cr_assert(p != NULL, "no memory for a test");
  return p;
}

int64_t ht_elements(const op_tensor *const t) { return t->ne[0] * op_rows(t); }
size_t ht_raw_bytes(const op_tensor *const t) { return dtype_bytes(t->type, t->ne[0]) * (size_t)op_rows(t); }

void ht_raw_to_dense(const op_tensor *const t, const unsigned char *const raw, double *const dense) {
  const int64_t n = t->ne[0], rows = op_rows(t);
  const size_t row_bytes = dtype_bytes(t->type, n);
  if (t->type == DTYPE_I32) {
    for (int64_t e = 0; e < n * rows; e++) {
      int32_t x;
      memcpy(&x, raw + 4 * e, 4);
      dense[e] = x;
    }
    return;
  }
  float *const row = take((size_t)n * sizeof(float));
  for (int64_t r = 0; r < rows; r++) {
    dequantize_row(t->type, raw + (size_t)r * row_bytes, row, n);
    for (int64_t i = 0; i < n; i++) dense[r * n + i] = (double)row[i];
  }
  free(row);
}

static void dense_to_raw(const op_tensor *const t, const double *const dense, unsigned char *const raw) {
  const int64_t n = t->ne[0], rows = op_rows(t);
  const size_t row_bytes = dtype_bytes(t->type, n);
  if (t->type == DTYPE_I32) {
    for (int64_t e = 0; e < n * rows; e++) {
      const int32_t x = (int32_t)dense[e];
      memcpy(raw + 4 * e, &x, 4);
    }
    return;
  }
  float *const row = take((size_t)n * sizeof(float));
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < n; i++) row[i] = (float)dense[r * n + i];
    quantize_row(t->type, row, raw + (size_t)r * row_bytes, n);
  }
  free(row);
}

static bool is_read(const ht_case *const t, const int k) {
  return k < OP_MAX_SRC || (op_table[t->id]->inout >> (k - OP_MAX_SRC) & 1);
}

static ht_values values_empty(const ht_case *const t) {
  ht_values v = {0};
  for (int k = 0; k < HT_OPERANDS; k++) {
    const op_tensor *const o = ht_operand(&t->c, k);
    if (!op_present(o)) continue;
    v.raw[k] = take(ht_raw_bytes(o));
    memset(v.raw[k], 0xff, ht_raw_bytes(o));
    v.dense[k] = take((size_t)ht_elements(o) * sizeof(double));
    for (int64_t e = 0; e < ht_elements(o); e++) v.dense[k][e] = 0;
  }
  return v;
}

ht_values ht_values_make(const ht_case *const t, const uint64_t seed) {
  ht_values v = values_empty(t);
  for (int k = 0; k < HT_OPERANDS; k++) {
    if (!v.raw[k] || !is_read(t, k)) continue;
    const op_tensor *const o = ht_operand(&t->c, k);
    ht_rng r = {.state = seed * 1000003u + (uint64_t)k * 7919u + (uint64_t)t->id};
    if (o->type != DTYPE_I32)
      for (int64_t e = 0; e < ht_elements(o); e++) v.dense[k][e] = ht_below(&r, 16) == 0 ? 0 : ht_normal(&r);
    if (t->fill) t->fill(t, k >= OP_MAX_SRC, k < OP_MAX_SRC ? k : k - OP_MAX_SRC, v.dense[k], &r);
    dense_to_raw(o, v.dense[k], v.raw[k]);
    ht_raw_to_dense(o, v.raw[k], v.dense[k]);
  }
  return v;
}

ht_values ht_values_from(const ht_case *const t, const double *const src[], double *const dst[]) {
  ht_values v = values_empty(t);
  for (int k = 0; k < HT_OPERANDS; k++) {
    if (!v.raw[k] || !is_read(t, k)) continue;
    const op_tensor *const o = ht_operand(&t->c, k);
    dense_to_raw(o, k < OP_MAX_SRC ? src[k] : dst[k - OP_MAX_SRC], v.raw[k]);
    ht_raw_to_dense(o, v.raw[k], v.dense[k]);
  }
  return v;
}

void ht_values_free(ht_values *const v) {
  for (int k = 0; k < HT_OPERANDS; k++) {
    free(v->raw[k]);
    free(v->dense[k]);
  }
  *v = (ht_values){0};
}

ht_config ht_plain(const unsigned mask, const int workers) {
  ht_config g = {.mask = mask, .workers = workers};
  for (int j = 0; j < OP_MAX_DST; j++) g.alias[j] = -1;
  return g;
}

const char *ht_config_text(const ht_config *const g) {
  static char text[160];
  int at = snprintf(text, sizeof text, "%s, %s %d%s%s",
                    g->device              ? g->device->name
                    : g->mask & CPU_AVX512 ? "avx512"
                    : g->mask & CPU_AVX2   ? "avx2"
                                           : "reference",
                    g->device ? "seed" : "workers", g->device ? (int)g->seed : g->workers,
                    g->reverse ? " backward" : "", g->strided ? ", strided" : "");
  for (int j = 0; j < OP_MAX_DST; j++)
    if (g->alias[j] >= 0)
      at += snprintf(text + at, sizeof text - (size_t)at, ", dst %d on src %d", j, g->alias[j]);
  return text;
}

/* Rows of a common stride made wider, where the op's rule takes it; another width for each operand. */
static void widen(const op_id id, op_case *const c) {
  for (int k = 0; k < HT_OPERANDS; k++) {
    op_tensor *const o = k < OP_MAX_SRC ? &c->src[k] : &c->dst[k - OP_MAX_SRC];
    if (!op_present(o) || op_rows(o) < 2 || o->type == DTYPE_I32) continue;
    const op_tensor before = *o;
    o->nb[1] += o->nb[0] * (size_t)(dtype_find(o->type)->block_elements > 1 ? 1 : 1 + (3 * k) % 7);
    o->nb[2] = o->nb[1] * (size_t)o->ne[1];
    o->nb[3] = o->nb[2] * (size_t)o->ne[2];
    if (op_check(id, c)) *o = before;
  }
}

static void *take_for(const ht_config *const g, const size_t bytes) {
  return g->device ? g->device->take(bytes) : take(bytes);
}

typedef struct memory {
  unsigned char *base, *data;
  size_t total_bytes;
} memory;

/* Guard bytes everywhere, then the rows. In strided runs float matrices do not start on a cache line either. */
static memory place(const op_tensor *const t, const unsigned char *const raw, const ht_config *const g,
                    const int k) {
  const bool shift = g->strided;
  const size_t off = shift && t->type == DTYPE_F32 && op_rows(t) > 1 ? 4 * (size_t)(1 + k % 15) : 0;
  const size_t before = g->device ? 2 * GUARD_BYTES : GUARD_BYTES;
  memory m = {.total_bytes = op_span_bytes(t) + before + GUARD_BYTES + off};
  m.base = take_for(g, m.total_bytes);
  m.data = m.base + before + off;
  memset(m.base, GUARD, m.total_bytes);
  const size_t row_bytes = dtype_bytes(t->type, t->ne[0]);
  for (int64_t r = 0; r < op_rows(t); r++)
    memcpy(m.data + (size_t)r * t->nb[1], raw + (size_t)r * row_bytes, row_bytes);
  return m;
}

/* Takes the rows out and overwrites them with guard bytes; then everything must be guard bytes. */
static bool collect(const op_tensor *const t, const memory *const m, unsigned char *const raw) {
  const size_t row_bytes = dtype_bytes(t->type, t->ne[0]);
  for (int64_t r = 0; r < op_rows(t); r++) {
    memcpy(raw + (size_t)r * row_bytes, m->data + (size_t)r * t->nb[1], row_bytes);
    memset(m->data + (size_t)r * t->nb[1], GUARD, row_bytes);
  }
  for (size_t i = 0; i < m->total_bytes; i++)
    if (m->base[i] != GUARD) return false;
  return true;
}

static void run_cpu(const ht_case *const t, const op_case *const c, const ht_config *const g,
                    void *const src[], void *const dst[]) {
  const op_row *const row = op_table[t->id];
  const size_t work_bytes = op_workspace(t->id, c, BACKEND_CPU, g->workers);
  cr_assert(work_bytes % 64 == 0, "%s: a workspace of %zu bytes", t->name, work_bytes);
  unsigned char *const work = take(work_bytes + GUARD_BYTES), *const args =
                                                                  take(row->args_bytes + GUARD_BYTES);
  memset(work, 0xff, work_bytes);
  memset(work + work_bytes, GUARD, GUARD_BYTES);
  memset(args, 0xff, row->args_bytes);
  memset(args + row->args_bytes, GUARD, GUARD_BYTES);
  row->bind(args, c, src, dst, work_bytes ? work : NULL, g->workers);

  op_kernel *kernels[OP_COUNT];
  cpu_kernels(g->mask, kernels);
  cr_assert(kernels[t->id] != NULL, "%s: no kernel (%s)", t->name, ht_config_text(g));
  for (int phase = 0; phase < op_phases(t->id, c); phase++)
    for (int i = 0; i < g->workers; i++)
      kernels[t->id](args, phase, g->reverse ? g->workers - 1 - i : i, g->workers);

  for (int i = 0; i < GUARD_BYTES; i++)
    cr_assert(work[work_bytes + (size_t)i] == GUARD && args[row->args_bytes + (size_t)i] == GUARD,
              "%s (%s): written past the workspace or the operands", t->name, ht_config_text(g));
  free(work);
  free(args);
}

static void run_device(const ht_case *const t, const op_case *const c, const ht_config *const g,
                       void *const src[], void *const dst[]) {
  const size_t work_bytes = g->device->workspace(t->id, c);
  cr_assert(work_bytes % 256 == 0, "%s: a workspace of %zu bytes", t->name, work_bytes);
  unsigned char *const work = g->device->take(work_bytes + GUARD_BYTES);
  memset(work, 0xff, work_bytes);
  memset(work + work_bytes, GUARD, GUARD_BYTES);
  const char *const wrong = g->device->launch(t->id, c, src, dst, work_bytes ? work : NULL, g->seed);
  cr_assert(!wrong, "%s (%s): %s", t->name, ht_config_text(g), wrong);
  for (int i = 0; i < GUARD_BYTES; i++)
    cr_assert(work[work_bytes + (size_t)i] == GUARD, "%s (%s): written past the workspace", t->name,
              ht_config_text(g));
}

void ht_call(const ht_case *const t, const ht_values *const v, const ht_config *const g,
             unsigned char *const out[OP_MAX_DST]) {
  op_case c = t->c;
  if (g->strided) widen(t->id, &c);
  for (int j = 0; j < OP_MAX_DST; j++)
    if (g->alias[j] >= 0) memcpy(c.dst[j].nb, c.src[g->alias[j]].nb, sizeof c.dst[j].nb);
  const char *const wrong = op_check(t->id, &c);
  cr_assert(!wrong, "%s (%s): op_check: %s", t->name, ht_config_text(g), wrong);

  memory m[HT_OPERANDS] = {0};
  void *src[OP_MAX_SRC] = {0}, *dst[OP_MAX_DST] = {0};
  for (int k = 0; k < HT_OPERANDS; k++) {
    const op_tensor *const o = ht_operand(&c, k);
    if (!op_present(o) || (k >= OP_MAX_SRC && g->alias[k - OP_MAX_SRC] >= 0)) continue;
    m[k] = place(o, v->raw[k], g, k);
    if (k < OP_MAX_SRC)
      src[k] = m[k].data;
    else
      dst[k - OP_MAX_SRC] = m[k].data;
  }
  for (int j = 0; j < OP_MAX_DST; j++)
    if (g->alias[j] >= 0) dst[j] = src[g->alias[j]];

  if (g->device)
    run_device(t, &c, g, src, dst);
  else
    run_cpu(t, &c, g, src, dst);

  for (int j = 0; j < OP_MAX_DST; j++) {
    const int k = OP_MAX_SRC + j;
    if (g->alias[j] >= 0) {
      cr_assert(collect(&c.dst[j], &m[g->alias[j]], out[j]), "%s (%s): dst %d strayed", t->name,
                ht_config_text(g), j);
    } else if (m[k].base) {
      cr_assert(collect(&c.dst[j], &m[k], out[j]), "%s (%s): dst %d strayed", t->name, ht_config_text(g), j);
    }
  }
  for (int i = 0; i < OP_MAX_SRC; i++) {
    bool aliased = !m[i].base;
    for (int j = 0; j < OP_MAX_DST; j++) aliased |= g->alias[j] == i;
    if (aliased) continue;
    unsigned char *const after = take(ht_raw_bytes(&c.src[i]));
    const bool guards = collect(&c.src[i], &m[i], after);
    cr_assert(guards && memcmp(after, v->raw[i], ht_raw_bytes(&c.src[i])) == 0,
              "%s (%s): source %d was written", t->name, ht_config_text(g), i);
    free(after);
  }
  if (g->device)
    g->device->release();
  else
    for (int k = 0; k < HT_OPERANDS; k++) free(m[k].base);
}
