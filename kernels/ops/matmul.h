/* Operands of the three matrix products. W is [k, n] in GGUF order: n rows of k contiguous elements.
 * Every element is one fma chain over the reduced index, ascending, from c0 (or 0) (rule 2).
 *
 * matmul     y[r][j]  = c0[r][j] + sum_i x[r][i] * W[j][i]      src0 x F32[k, rows], src1 W [k, n], src2 c0 F32[n, rows] optional
 * matmul_dx  dx[r][i] = c0[r][i] + sum_j dy[r][j] * W[j][i]     src0 dy F32[n, rows], src1 W [k, n], src2 c0 F32[k, rows] optional
 * matmul_dw  dw[j][i] += sum_r dy[r][j] * x[r][i]               src0 dy F32[n, rows], src1 x F32[k, rows]; dst0 dw F32[k, n] inout
 *
 * W of any weight type is dequantized inside the packing; no copy of it is made. */
#ifndef STINT_KERNELS_OPS_MATMUL_H
#define STINT_KERNELS_OPS_MATMUL_H

#include "kernels/ops/op.h"

typedef struct op_matmul_args {
  const float *x;
  const void *w;
  const float *c0;
  float *y;
  int64_t ldx, ldc0, ldy; /* floats */
  size_t w_row_bytes;
  dtype w_type;
  int64_t rows, k, n;
  void *work;
  size_t slab_bytes; /* scratch of worker i: work + i*slab_bytes */
} op_matmul_args;    /* matmul_dx: x is dy [rows][n], y is dx [rows][k] */

typedef struct op_matmul_dw_args {
  const float *dy, *x;
  float *dw;
  int64_t lddy, ldx, lddw, rows, k, n;
  void *work;
  size_t slab_bytes;
} op_matmul_dw_args;

/* Scratch of one worker for any product, on any path: a constant, a multiple of 64 (kernels/cpu/gemm.h takes it). */
size_t gemm_scratch_bytes(void);

/* How workers share an output of m rows and n columns: a grid of row parts and column parts, column boundaries at
 * multiples of 32, chosen from (m, n, workers) alone. Parts never share an element. */
typedef struct matmul_part {
  int64_t m_first, m_last, n_first, n_last;
} matmul_part;
int matmul_parts(int64_t m, int64_t n,
                 int workers); /* at most `workers`; workers at or above it have nothing */
bool matmul_part_of(int64_t m, int64_t n, int worker, int workers,
                    matmul_part *part); /* false: nothing to do */

#endif
