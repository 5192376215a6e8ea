/* Operands of rms_norm (Zhang and Sennrich 2019) and its gradients.
 *   r = 1 / sqrt(sum(x^2)/n + eps)      the sum by rule 3, fma(x, x, lane)
 *   y = (x*r) * w
 * dx = c0 + r*(dy*w - x * (((r*r) * sum(dy*w*x))/n)), the sum by rule 3, fma(dy*w, x, lane)
 * dw[i] += dy[i]*(x[i]*r), rows ascending, one fma chain from memory (rule 4). */
#ifndef STINT_KERNELS_OPS_NORM_H
#define STINT_KERNELS_OPS_NORM_H

#include "kernels/ops/op.h"

/* src0 x F32[n, rows], src1 w F32[n]; dst0 y F32[n, rows], dst1 r F32[rows]. */
typedef struct op_rms_norm_args {
  const float *x, *w;
  float *y, *r;
  int64_t ldx, ldy, n, rows;
  float eps;
} op_rms_norm_args;

/* src0 dy, src1 x, src2 w, src3 r, src4 c0 F32[n, rows] (optional: the gradient that x has so far); dst0 dx. */
typedef struct op_rms_norm_dx_args {
  const float *dy, *x, *w, *r, *c0;
  float *dx;
  int64_t lddy, ldx, ldc0, lddx, n, rows;
} op_rms_norm_dx_args;

/* src0 dy, src1 x, src2 r; dst0 dw F32[n] (inout). Workers own columns. */
typedef struct op_rms_norm_dw_args {
  const float *dy, *x, *r;
  float *dw;
  int64_t lddy, ldx, n, rows;
} op_rms_norm_dw_args;

#endif
