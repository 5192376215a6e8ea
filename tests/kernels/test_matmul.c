/* The ops matmul, matmul_dx and matmul_dw: the plain reference against float64, every path and every number of workers against
 * the plain reference bit for bit (through check, workspace and bind of the op table), and large shapes by random
 * projection. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/ops/matmul.h"
#include "tests/kernels/guarded.h"

static const dtype weight_types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1};
enum { N_WEIGHT_TYPES = sizeof weight_types / sizeof *weight_types };

typedef enum c0_mode { C0_NONE, C0_APART, C0_IS_Y } c0_mode;

typedef struct product {
  op_id op;
  int64_t rows, k, n, pad_x, pad_y, pad_w; /* pads: elements between rows */
  dtype type;
  c0_mode c0;
} product;

typedef struct operands {
  op_case c;
  guarded src[3], dst;
} operands;

static op_tensor matrix(const dtype type, const int64_t ne0, const int64_t rows, const int64_t pad) {
  op_tensor t = op_tensor_make(type, ne0, rows);
  t.nb[1] += dtype_bytes(type, pad);
  t.nb[2] = t.nb[3] = t.nb[1] * (size_t)rows;
  return t;
}

static guarded fill(const op_tensor *const t, uint64_t *const s) {
  guarded g = guarded_new(op_span_bytes(t));
  float *const row = malloc(4 * (size_t)t->ne[0]);
  for (int64_t r = 0; r < op_rows(t); r++) {
    for (int64_t i = 0; i < t->ne[0]; i++) row[i] = draw_float(s);
    quantize_row(t->type, row, g.data + (size_t)r * t->nb[1], t->ne[0]);
  }
  free(row);
  return g;
}

static operands make(const product *const p, uint64_t seed) {
  operands o = {0};
  for (int i = 0; i < OP_MAX_SRC; i++) o.c.src[i] = op_tensor_none();
  for (int i = 0; i < OP_MAX_DST; i++) o.c.dst[i] = op_tensor_none();
  const int64_t in = p->op == OP_MATMUL ? p->k : p->n, out = p->op == OP_MATMUL ? p->n : p->k;
  o.c.src[0] = matrix(DTYPE_F32, in, p->rows, p->pad_x);
  if (p->op == OP_MATMUL_DW) {
    o.c.src[1] = matrix(DTYPE_F32, p->k, p->rows, p->pad_y);
    o.c.dst[0] = matrix(DTYPE_F32, p->k, p->n, p->pad_w);
  } else {
    o.c.src[1] = matrix(p->type, p->k, p->n, p->pad_w);
    o.c.dst[0] = matrix(DTYPE_F32, out, p->rows, p->pad_y);
    if (p->c0 == C0_APART) o.c.src[2] = matrix(DTYPE_F32, out, p->rows, p->pad_x);
    if (p->c0 == C0_IS_Y) o.c.src[2] = o.c.dst[0];
  }
  for (int i = 0; i < 2; i++) o.src[i] = fill(&o.c.src[i], &seed);
  if (p->c0 == C0_APART && op_present(&o.c.src[2])) o.src[2] = fill(&o.c.src[2], &seed);
  o.dst = fill(&o.c.dst[0], &seed);
  return o;
}

static void release(operands *const o) {
  for (int i = 0; i < 3; i++)
    if (o->src[i].base) guarded_free(&o->src[i]);
  guarded_free(&o->dst);
}

/* Fresh operands from `seed`, run with `workers`; the bytes of dst to the caller (malloc). */
static unsigned char *run(const product *const p, op_kernel *const *const kernels, const int workers,
                          const uint64_t seed, size_t *const bytes) {
  operands o = make(p, seed);
  const char *const wrong = op_check(p->op, &o.c);
  cr_assert_null(wrong, "%s", wrong);
  const size_t work_bytes = op_workspace(p->op, &o.c, BACKEND_CPU, workers);
  cr_assert_eq(work_bytes % 64, 0);
  cr_assert_leq(work_bytes, (size_t)workers * gemm_scratch_bytes());
  guarded work = guarded_new(work_bytes);
  void *const src[OP_MAX_SRC] = {o.src[0].data, o.src[1].data, p->c0 == C0_IS_Y ? o.dst.data : o.src[2].data};
  void *const dst[OP_MAX_DST] = {o.dst.data};
  _Alignas(16) unsigned char args[256];
  cr_assert_leq(op_table[p->op]->args_bytes, sizeof args);
  op_table[p->op]->bind(args, &o.c, src, dst, work.data, workers);
  for (int worker = workers; worker-- > 0;) kernels[p->op](args, 0, worker, workers); /* any order will do */
  unsigned char *const out = malloc(o.dst.bytes);
  memcpy(out, o.dst.data, *bytes = o.dst.bytes);
  guarded_free(&work);
  release(&o);
  return out;
}

static product draw_product(const op_id op, const int i, uint64_t *const s) {
  static const int64_t size[] = {1, 2, 3, 7, 8, 13, 14, 15, 16, 17, 28, 31, 32, 33, 64, 65, 100, 172};
  enum { N = sizeof size / sizeof *size };
  const dtype type = op == OP_MATMUL_DW ? DTYPE_F32 : weight_types[i % N_WEIGHT_TYPES];
  const int64_t block = dtype_find(type)->block_elements;
  product p = {.op = op,
               .rows = size[draw_to(s, N)],
               .k = size[draw_to(s, N)],
               .n = size[draw_to(s, N)],
               .type = type};
  p.k = (p.k + block - 1) / block * block;
  p.c0 = op == OP_MATMUL_DW ? C0_NONE : (c0_mode)draw_to(s, 3);
  if (draw_to(s, 2)) {
    p.pad_x = draw_to(s, 20);
    p.pad_y = draw_to(s, 20);
    p.pad_w = draw_to(s, 3) * block;
  }
  return p;
}

static const char *name_of(const product *const p, char text[160]) {
  snprintf(text, 160, "%s rows=%ld k=%ld n=%ld %s c0=%d pads %ld %ld %ld", op_table[p->op]->name,
           (long)p->rows, (long)p->k, (long)p->n, dtype_name(p->type), (int)p->c0, (long)p->pad_x,
           (long)p->pad_y, (long)p->pad_w);
  return text;
}

static void same_bits(const op_id op, const unsigned path, const int cases) {
  if (path && !(cpu_paths() & path)) cr_skip("this processor does not have the path");
  op_kernel *plain[OP_COUNT], *kernels[OP_COUNT];
  cpu_kernels(CPU_REFERENCE, plain);
  cpu_kernels(path, kernels);
  if (path) cr_assert_neq(plain[op], kernels[op], "the path has no kernel of its own");
  uint64_t s = 7 + (uint64_t)op;
  char text[160];
  for (int i = 0; i < cases; i++) {
    const product p = draw_product(op, i, &s);
    size_t bytes, bytes_again;
    unsigned char *const want = run(&p, plain, 1, (uint64_t)i, &bytes);
    static const int workers[] = {1, 2, 3, 8};
    for (int w = 0; w < 4; w++) {
      unsigned char *const got = run(&p, kernels, workers[w], (uint64_t)i, &bytes_again);
      cr_assert(bytes == bytes_again && memcmp(want, got, bytes) == 0, "%s, %d workers: bits differ",
                name_of(&p, text), workers[w]);
      free(got);
    }
    free(want);
  }
}

#define SAME_BITS(op, id)                                                                                    \
  Test(op, reference_same_bits_for_workers) { same_bits(id, CPU_REFERENCE, 12); }                            \
  Test(op, avx2_same_bits) { same_bits(id, CPU_AVX2, 60); }                                                  \
  Test(op, avx512_same_bits) { same_bits(id, CPU_AVX512, 60); }
SAME_BITS(matmul, OP_MATMUL)
SAME_BITS(matmul_dx, OP_MATMUL_DX)
SAME_BITS(matmul_dw, OP_MATMUL_DW)

/* The plain reference against float64. A chain of L fused operations on terms of total magnitude M is within L*2^-24*M of
 * exact (to first order). The smallest defect that this should find, one product left out, moves an element by about M/L:
 * for L <= 172 a thousand times the bound. */
static void against_float64(const op_id op) {
  op_kernel *plain[OP_COUNT];
  cpu_kernels(CPU_REFERENCE, plain);
  uint64_t s = 99;
  char text[160];
  double worst = 0;
  for (int i = 0; i < 24; i++) {
    const product p = draw_product(op, i, &s);
    operands o = make(&p, (uint64_t)i);
    size_t bytes;
    unsigned char *const got = run(&p, plain, 1, (uint64_t)i, &bytes);
    const int64_t depth = op == OP_MATMUL ? p.k : op == OP_MATMUL_DX ? p.n : p.rows;
    const op_tensor *const w = &o.c.src[1];
    float *const wf = malloc(4 * (size_t)(w->ne[0] * w->ne[1])); /* W, or x of dw, as floats */
    for (int64_t r = 0; r < w->ne[1]; r++)
      dequantize_row(w->type, o.src[1].data + (size_t)r * w->nb[1], wf + r * w->ne[0], w->ne[0]);
    const float *const x = (const float *)(void *)o.src[0].data;
    const int64_t ldx = op_ld(&o.c.src[0]), out = o.c.dst[0].ne[0];
    for (int64_t r = 0; r < o.c.dst[0].ne[1]; r++)
      for (int64_t j = 0; j < out; j++) {
        const size_t at = (size_t)r * o.c.dst[0].nb[1] + 4 * (size_t)j;
        float start = 0, y;
        if (op == OP_MATMUL_DW || p.c0 == C0_IS_Y)
          memcpy(&start, o.dst.data + at, 4);
        else if (p.c0 == C0_APART)
          memcpy(&start, o.src[2].data + (size_t)r * o.c.src[2].nb[1] + 4 * (size_t)j, 4);
        memcpy(&y, got + at, 4);
        double sum = (double)start, magnitude = fabs((double)start);
        for (int64_t l = 0; l < depth; l++) {
          const double a = (double)(op == OP_MATMUL_DW ? x[l * ldx + r] : x[r * ldx + l]);
          const double b = (double)(op == OP_MATMUL ? wf[j * p.k + l] : wf[l * p.k + j]);
          sum += a * b;
          magnitude += fabs(a * b);
        }
        const double bound = ((double)depth * 0x1p-24 + 1e-12) * magnitude, off = fabs((double)y - sum);
        cr_assert(off <= bound, "%s: row %ld element %ld is %.9g, not %.9g", name_of(&p, text), (long)r,
                  (long)j, (double)y, sum);
        worst = off / bound > worst ? off / bound : worst;
      }
    free(wf);
    free(got);
    release(&o);
  }
  cr_expect_gt(worst, 0, "nothing was rounded: nothing was compared");
}

Test(matmul, reference_against_float64) { against_float64(OP_MATMUL); }
Test(matmul_dx, reference_against_float64) { against_float64(OP_MATMUL_DX); }
Test(matmul_dw, reference_against_float64) { against_float64(OP_MATMUL_DW); }

/* Large shapes: for a random vector v, y v = x (W' v) in float64 (dx v = dy (W v); dw v = dw0 v + dy' (x v)), so a product
 * of 2 GFLOP is checked by a few matrix-vector products. Bound: 2^-14 of the projection's own scale sqrt(rows*terms)/3;
 * the worst measured is 2^-19.1 of it. An element off by its own size moves a row's projection by about 2^-6 of its scale, one
 * product of it left out by about 2^-13. */
static void projection(const op_id op, const dtype type) {
  op_kernel *kernels[OP_COUNT];
  cpu_kernels(CPU_ALL, kernels);
  const product p = {.op = op, .rows = 512, .k = 2048, .n = 1504, .type = type, .pad_x = 4, .pad_y = 12};
  operands o = make(&p, 5);
  size_t bytes;
  unsigned char *const got = run(&p, kernels, 2, 5, &bytes);
  const op_tensor *const w = &o.c.src[1], *const y = &o.c.dst[0];
  const float *const x = (const float *)(void *)o.src[0].data;
  const int64_t ldx = op_ld(&o.c.src[0]), in = o.c.src[0].ne[0];
  double *const v = malloc(8 * 4096), *const u = calloc(4096, 8);
  float *const row = malloc(4 * 4096);
  uint64_t s = 1;
  for (int64_t j = 0; j < y->ne[0]; j++) v[j] = (double)draw_float(&s);
  for (int64_t r = 0; r < w->ne[1]; r++) { /* u = W' v, W v, or x v */
    dequantize_row(w->type, o.src[1].data + (size_t)r * w->nb[1], row, w->ne[0]);
    for (int64_t i = 0; i < w->ne[0]; i++)
      if (op == OP_MATMUL)
        u[i] += (double)row[i] * v[r];
      else
        u[r] += (double)row[i] * v[i];
  }
  const int64_t depth = op == OP_MATMUL_DW ? p.rows : in;
  const double scale = sqrt((double)depth * (double)y->ne[0]) / 3;
  double worst = 0;
  for (int64_t r = 0; r < y->ne[1]; r++) {
    double want = 0, have = 0;
    for (int64_t l = 0; l < depth; l++)
      want += (double)(op == OP_MATMUL_DW ? x[l * ldx + r] : x[r * ldx + l]) * u[l];
    for (int64_t j = 0; j < y->ne[0]; j++) {
      float value, start = 0;
      memcpy(&value, got + (size_t)r * y->nb[1] + 4 * (size_t)j, 4);
      if (op == OP_MATMUL_DW) memcpy(&start, o.dst.data + (size_t)r * y->nb[1] + 4 * (size_t)j, 4);
      have += (double)value * v[j];
      want += (double)start * v[j];
    }
    const double off = fabs(have - want) / scale;
    cr_assert(off < 0x1p-14, "%s: row %ld: projection off by %g of its scale", op_table[op]->name, (long)r,
              off);
    worst = off > worst ? off : worst;
  }
  cr_log_info("%s: worst projection 2^%.1f of its scale", op_table[op]->name, log2(worst));
  cr_expect_gt(worst, 0);
  free(v);
  free(u);
  free(row);
  free(got);
  release(&o);
}

Test(matmul, large_by_projection) { projection(OP_MATMUL, DTYPE_Q4_1); }
Test(matmul_dx, large_by_projection) { projection(OP_MATMUL_DX, DTYPE_Q8_0); }
Test(matmul_dw, large_by_projection) { projection(OP_MATMUL_DW, DTYPE_F32); }

/* What the kernels cannot do, the shape rule refuses. */
Test(matmul, check_refuses) {
  const product p = {.op = OP_MATMUL, .rows = 3, .k = 64, .n = 5, .type = DTYPE_Q4_0, .c0 = C0_APART};
  operands o = make(&p, 1);
  cr_assert_null(op_check(OP_MATMUL, &o.c));
  for (int fault = 0; fault < 10; fault++) {
    op_case c = o.c;
    switch (fault) {
    case 0:
      c.src[0].ne[0] = 63;
      break;
    case 1:
      c.src[0].type = DTYPE_F16;
      break;
    case 2:
      c.src[1].type = (dtype)12;
      break; /* Q4_K: known, not read */
    case 3:
      c.src[1].type = (dtype)77;
      break;
    case 4:
      c.dst[0].ne[1] = 4;
      break;
    case 5:
      c.dst[0].nb[0] = 8;
      break;
    case 6:
      c.src[2].ne[0] = 6;
      break;
    case 7:
      c.src[1].ne[2] = 2;
      break;
    case 8:
      c.src[0] = op_tensor_none();
      break;
    default:
      c.src[1].nb[1] = 18;
      break; /* rows overlap */
    }
    cr_expect_not_null(op_check(OP_MATMUL, &c), "fault %d was taken", fault);
  }
  release(&o);
}

/* The parts of workers tile the output: every element in exactly one. */
Test(matmul, parts_tile_the_output) {
  static const int64_t size[] = {1, 3, 8, 16, 31, 32, 33, 64, 100, 192, 300};
  enum { N = sizeof size / sizeof *size };
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++)
      for (int workers = 1; workers <= 9; workers++) {
        const int64_t m = size[i], n = size[j];
        unsigned char *const owned = calloc(1, (size_t)(m * n));
        const int parts = matmul_parts(m, n, workers);
        cr_assert(parts >= 1 && parts <= workers);
        for (int w = 0; w < workers; w++) {
          matmul_part part;
          if (!matmul_part_of(m, n, w, workers, &part)) continue;
          cr_assert_lt(w, parts);
          cr_assert_eq(part.n_first % 32, 0);
          for (int64_t r = part.m_first; r < part.m_last; r++)
            for (int64_t c = part.n_first; c < part.n_last; c++) owned[r * n + c]++;
        }
        for (int64_t e = 0; e < m * n; e++)
          cr_assert_eq(owned[e], 1, "m=%ld n=%ld workers=%d: element %ld has %d owners", (long)m, (long)n,
                       workers, (long)e, owned[e]);
        free(owned);
      }
}
