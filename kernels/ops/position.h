/* Operands of rope (Su et al. 2021): rotary positions over any frequency table.
 *
 * src0 x F32[head_size*n_heads, rows], src1 pos I32[rows] (0 <= pos < 2^24), src2 turns F32[n_rot/2, 2]; dst0 y as x.
 * turns holds each pair's frequency in turns per position (frequency / 2 pi) as an unevaluated sum of two
 * floats: row 0 high parts, row 1 low parts. The angle's turn pos*turns is reduced exactly (two-product by
 * fma, minus the nearest integer), so the error does not grow with pos; every scaling scheme (linear, YaRN,
 * frequency factors) is a table and `magnitude`.
 * y0 = x0*c - x1*s, y1 = x0*s + x1*c with c = magnitude*cos, s = magnitude*sin (inverse: s = -s); both as
 * fma(x0, c, -(x1*s)) and fma(x0, s, x1*c). Elements past n_rot of each head are copied. */
#ifndef STINT_KERNELS_OPS_POSITION_H
#define STINT_KERNELS_OPS_POSITION_H

#include "kernels/ops/op.h"

typedef struct op_rope_args {
  const float *x;
  const int32_t *pos;
  const float *turns;
  float *y;
  int64_t ldx, ldy, n, rows;
  int32_t head_size, n_rot, neox, inverse;
  float magnitude;
} op_rope_args;

#endif
