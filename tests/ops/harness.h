/* The one harness that every op of the table is tested by.
 *
 * A SUITE is a function that makes the cases of the ops of one family:
 *
 *   bool suite_norm(op_id id, int i, ht_case *t)     fills *t with the i-th case of `id`; false when there is none
 *
 * A CASE is an op, its operand tensors (contiguous; the harness makes strided forms itself), its parameters, a filler
 * of inputs, a float64 implementation and a bound per destination. From it the harness runs, each a Criterion test:
 *
 *   ht_reference  the reference kernel: op_check accepts; workers 1, 2, 3, 8, each phase's workers forward and backward,
 *                 contiguous and strided operands: the same bits; canaries around every operand, NaN in outputs,
 *                 in workspace and in the gaps between rows; sources and gaps unchanged
 *   ht_path       the same runs of a vector path, against the reference's bits (the path must have a kernel for the op
 *                 or dispatch to the reference; skipped, with the reason, on a processor without it)
 *   ht_alias      every permitted alias (dst j on src i), on every path, against the bits without alias
 *   ht_float64    the reference kernel against the float64 implementation, over `seeds` seeds
 *
 * HT_OP_TESTS(suite, ID, name) writes these tests. On a device (tests/cuemu/test_ops_cuda.c) every op's cases run through
 *   ht_on_device  four schedules, contiguous and strided, then every permitted alias: the reference's bits
 *
 * Further properties, called from a test of one's own:
 *
 *   ht_gradient   a float64 gradient against central differences of the float64 forward, random non-uniform objective
 *   ht_linear     the kernel is linear in the sources of a mask: exact under doubling, additive within a bound
 *   ht_refuses    op_check refuses a case (shape rule tests)
 *
 * ERROR METRIC. |a-b| / (|a|+|b|) per element, two exact zeros agree, NaN fails. For sums that may cancel set the
 * destination's bit in `row_metric`: then the denominator is at least the mean of |a|+|b| over the element's row (over the tensor where rows are shorter than 8).
 * The environment variable HT_MEASURE prints the largest error of every case and destination (to measure the noise).
 *
 * COVERAGE. Every comparison is counted; a property that compared nothing fails. tests/ops/test_coverage.c walks
 * op_table and fails for an op that no suite covers; HT_OP_TESTS (or HT_COVERS alone) enters a suite there.
 *
 * Values: a filler and a float64 implementation see each operand as a dense array of doubles, ne[0]*op_rows elements:
 * F32 as its value, a block type as its dequantized values, an I32 as its integer (a step block: 16 of them, see
 * ht_step_get / ht_step_put). Small integers, halves and signs survive; what the filler writes is rounded to float32 (or
 * quantized) first, and the float64 implementation then sees the rounded values. */
#ifndef STINT_TESTS_OPS_HARNESS_H
#define STINT_TESTS_OPS_HARNESS_H

#include <criterion/criterion.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/dispatch.h"
#include "kernels/ops/op.h"
#include "kernels/ops/step.h"

typedef struct ht_case ht_case;

/* Random numbers of a filler: a small state, the same on every machine. */
typedef struct ht_rng {
  uint64_t state;
} ht_rng;
uint32_t ht_bits(ht_rng *r);
double ht_uniform(ht_rng *r, double low, double high);
double ht_normal(ht_rng *r); /* about normal (a sum of uniforms), mean 0, variance 1 */
int ht_below(ht_rng *r, int n);

/* Called for each present operand that is read (sources and inout destinations), with `x` already filled by the
 * default: F32 and weights normal with one element in 16 exactly 0, I32 zero. `is_dst`, `index`: which operand. */
typedef void ht_fill(const ht_case *t, bool is_dst, int index, double *x, ht_rng *r);

/* The op in float64. src[i] / dst[j] are dense (NULL: absent). An inout dst holds its input and is updated in
 * place; any other is to be written. */
typedef void ht_float64_fn(const ht_case *t, const double *const src[], double *const dst[]);

struct ht_case {
  op_id id;
  op_case c;
  char name[96];            /* printed when the case fails */
  ht_fill *fill;            /* NULL: the default only */
  ht_float64_fn *float64;   /* NULL: ht_float64 fails for this case */
  double bound[OP_MAX_DST]; /* of the error metric, per destination */
  uint32_t row_metric;      /* bit j: dst j by the row's mean (sums that cancel) */
  uint32_t bits_only;       /* bit j: dst j is not compared with float64 */
  uint32_t
      exact_alias_off; /* bit j: do not try aliases of dst j in this case (shapes that coincide by accident) */
  int seeds;           /* of ht_float64; 0: 4 */
  void *user;
};

typedef bool ht_suite(op_id id, int i, ht_case *t);

void ht_reference(ht_suite *suite, op_id id);
void ht_path(ht_suite *suite, op_id id, unsigned path);
void ht_alias(ht_suite *suite, op_id id);
void ht_float64(ht_suite *suite, op_id id);

/* Cases of more than `most` operations (op_flops, or elements where those are 0) are left out; at least one must remain. */
struct ht_device;
void ht_on_device(ht_suite *suite, op_id id, const struct ht_device *device, double most);
/* The same for a device with bits of its own: equal under two schedules, within `bound` of the reference (row metric). */
void ht_near_device(ht_suite *suite, op_id id, const struct ht_device *device, double most, double bound);

/* Enters a suite's op into the coverage test's list, before main. */
void ht_covers(op_id id, ht_suite *suite);
#define HT_COVERS(suite, ID)                                                                                 \
  static void __attribute__((constructor)) ht_covers_##ID(void) { ht_covers(OP_##ID, suite); }

#define HT_OP_TESTS(suite, ID, name)                                                                         \
  HT_COVERS(suite, ID)                                                                                       \
  Test(name, reference) { ht_reference(suite, OP_##ID); }                                                    \
  Test(name, avx2) { ht_path(suite, OP_##ID, CPU_AVX2); }                                                    \
  Test(name, avx512) { ht_path(suite, OP_##ID, CPU_AVX512); }                                                \
  Test(name, alias) { ht_alias(suite, OP_##ID); }                                                            \
  Test(name, float64) { ht_float64(suite, OP_##ID); }

/* The gradient of sum over dst j, element e of u[j][e]*dst[j][e] with respect to source `wrt`: `gradient` writes it,
 * dense, from the sources, the forward's destinations and u (usually by calling the backward op's float64
 * implementation). objective: bit j set when dst j counts (its u is random; else u[j] is zeros). Up to 48 elements a
 * case are checked by a five-point difference of step `step` (0: 1e-3), within `bound` by the row metric. */
typedef void ht_gradient_fn(const ht_case *forward, const double *const src[], const double *const dst[],
                            const double *const u[], double *gradient);
void ht_gradient(ht_suite *suite, op_id forward, int wrt, uint32_t objective, ht_gradient_fn *gradient,
                 double step, double bound);

/* dst of dst_mask is linear in all sources of src_mask together (inout destinations of dst_mask start at 0): doubling
 * the sources doubles the bits; op(u+v) = op(u) + op(v) within `bound` (row metric). On the widest path. */
void ht_linear(ht_suite *suite, op_id id, uint32_t src_mask, uint32_t dst_mask, double bound);

/* op_check refuses the case; `why` is printed when it does not. */
void ht_refuses(const ht_case *t, const char *why);

/* One run of a kernel table entry on values of one's own: dst as the harness's float32 results (dense doubles). For
 * tests that the properties above do not cover. src/dst dense as above, dst in and out; returns false on a broken
 * canary. mask: dispatch mask (CPU_REFERENCE, CPU_ALL, ...). */
bool ht_run(const ht_case *t, unsigned mask, int workers, const double *const src[], double *const dst[]);

/* The error metric between two dense arrays of `n` a row. */
double ht_error(const double *a, const double *b, int64_t n, int64_t rows, bool row_metric);

/* Step blocks among operands. */
void ht_step_put(double x[16], const step_block *s);
step_block ht_step_get(const double x[16]);
void ht_step_default(double x[16]); /* seed 42, step 3, row_offset 5, loss_scale 1/8, lr 1e-2, ... */

/* Helpers for cases. */
void ht_name(ht_case *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline op_tensor ht_f32(int64_t n, int64_t rows) { return op_tensor_make(DTYPE_F32, n, rows); }
static inline op_tensor ht_i32(int64_t n) { return op_tensor_make(DTYPE_I32, n, 1); }
ht_case ht_make(op_id id); /* every operand absent, bounds 0 */

extern int64_t ht_comparisons; /* of this process */
extern ht_suite *ht_covered[OP_COUNT];

#endif
