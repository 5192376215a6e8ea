/* Operands of swiglu (Shazeer 2020): h = silu(gate)*up, silu(x) = x*sigmoid(x).
 * Backward: dup = dh*silu(gate); dgate = (dh*up) * (s*fma(gate, 1-s, 1)), s = sigmoid(gate). */
#ifndef STINT_KERNELS_OPS_GATED_H
#define STINT_KERNELS_OPS_GATED_H

#include "kernels/ops/op.h"

/* src0 gate, src1 up F32[n, rows]; dst0 h. */
typedef struct op_swiglu_args {
  const float *gate, *up;
  float *h;
  int64_t ldg, ldu, ldh, n, rows;
} op_swiglu_args;

/* src0 dh, src1 gate, src2 up; dst0 dgate, dst1 dup. */
typedef struct op_swiglu_back_args {
  const float *dh, *gate, *up;
  float *dgate, *dup;
  int64_t lddh, ldg, ldu, lddg, lddu, n, rows;
} op_swiglu_back_args;

#endif
