/* The cosine and sine of a rotary position, the same on every path: pos times a frequency in turns (high + low
 * float), the product exact (two-product by fma), the whole turns taken off, then the polynomials. */
#ifndef STINT_KERNELS_OPS_ANGLE_H
#define STINT_KERNELS_OPS_ANGLE_H

#include "kernels/math/math.h"

M_FN void rope_angle(const float pos, const float high, const float low, const float magnitude,
                     const float sign, float *const c, float *const s) {
  const float product = pos * high, rest = m_fma(pos, high, -product);
  const float turn = (product - m_round(product)) + m_fma(pos, low, rest);
  float sine, cosine;
  m_sincos_turn(turn, &sine, &cosine);
  *c = magnitude * cosine;
  *s = sign * (magnitude * sine); /* sign: 1, or -1 to rotate back */
}

#endif
