/* The elementary functions, float32, the same bits on every path: only + - * / sqrt, m_fma and integer operations on
 * bits, and no branch (conditions are selections), so that a loop over one of them becomes vectors.
 *
 * Each is a range reduction and a polynomial: the reductions are the usual ones (Cody and Waite 1980; Muller,
 * Elementary Functions), the coefficients minimax (Remez exchange), rounded to float32.
 *
 * Largest error in units in the last place against float64, over the whole range (tests/math/test_math.c):
 *   m_exp 0.9   m_log 0.9   m_log1p 0.95   m_tanh 1.6   m_erf 1.2   m_sigmoid 2.2   m_softplus 1.6
 *   m_sincos_turn 1   m_rsqrt 1.5   m_silu 3.5 where sigmoid(x) is normal (x >= -87.3), else within 2^-142 of the value
 * Subnormal results are rounded like others; NaN comes out as NaN; infinities and signed zeros are the limits (but
 * silu(-inf) is -inf * 0, NaN). */
#ifndef STINT_KERNELS_MATH_MATH_H
#define STINT_KERNELS_MATH_MATH_H

#include "kernels/math/fma.h"

M_FN uint32_t m_bits(const float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

M_FN float m_float(const uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

M_FN float m_inf(void) { return m_float(0x7f800000u); }
M_FN float m_nan(void) { return m_float(0x7fc00000u); }
M_FN float m_abs(const float x) { return m_float(m_bits(x) & 0x7fffffffu); }
/* |a| with the sign of b */
M_FN float m_copysign(const float a, const float b) {
  return m_float((m_bits(a) & 0x7fffffffu) | (m_bits(b) & 0x80000000u));
}

M_FN float m_sqrt(const float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

M_FN float m_rsqrt(const float x) { return 1.0f / m_sqrt(x); }

/* Adding this rounds a float of magnitude up to 2^22 to the nearest integer (even on ties), which then stands in
 * the low bits of the sum. */
#define M_ROUND_SHIFT 12582912.0f /* 1.5 * 2^23 */
#define M_ROUND_BITS  0x4b400000u

M_FN float m_round(const float x) { return (x + M_ROUND_SHIFT) - M_ROUND_SHIFT; }

/* x = k*ln2 + r, |r| <= ln2/2; e^r = 1 + r + r^2*q(r); 2^k in two factors, so that the last product is the only one
 * that can overflow or round into the subnormals. */
M_FN float m_exp(const float x0) {
  const float x1 = x0 > 89.0f ? 89.0f : x0; /* comparisons that let NaN pass */
  const float x = x1 < -104.0f ? -104.0f : x1;
  const float t = m_fma(x, 0x1.715476p+0f, M_ROUND_SHIFT);
  const float k = t - M_ROUND_SHIFT;
  const uint32_t ki = m_bits(t) - M_ROUND_BITS;
  const float r0 = m_fma(k, -0x1.62e4p-1f, x); /* exact: the high part of ln2 is short */
  const float r = m_fma(k, -0x1.7f7d1cp-20f, r0), rest = m_fma(k, -0x1.7f7d1cp-20f, r0 - r);
  float q = 0x1.6a23d6p-10f;
  q = m_fma(q, r, 0x1.123a2p-7f);
  q = m_fma(q, r, 0x1.5558f2p-5f);
  q = m_fma(q, r, 0x1.555492p-3f);
  q = m_fma(q, r, 0x1.fffffcp-2f);
  const float p = 1.0f + (r + m_fma(r * r, q, rest));
  const uint32_t k1 = (uint32_t)((int32_t)ki >> 1), k2 = ki - k1;
  return (p * m_float((k1 + 127u) << 23)) * m_float((k2 + 127u) << 23);
}

/* log(x) + c for x = 2^e * m, m in [sqrt(1/2), sqrt 2), f = m - 1: e*ln2 + f is summed with its error (the high part
 * of ln2 is short, so e*ln2_hi is exact), then f^2*(-1/2 + f*q(f)) and c. x positive, finite. */
M_FN float m_log_plus(const float x, const float c) {
  const float xs = x < 0x1p-126f ? x * 0x1p23f : x;
  const uint32_t ix = m_bits(xs);
  const uint32_t eu = (uint32_t)((int32_t)(ix - 0x3f3504f3u) >> 23);
  const float f = m_float(ix - (eu << 23)) - 1.0f;
  const float e = (float)(int32_t)eu - (x < 0x1p-126f ? 23.0f : 0.0f);
  float q = 0x1.1457a0p-4f;
  q = m_fma(q, f, -0x1.de3c12p-4f);
  q = m_fma(q, f, 0x1.e6f06cp-4f);
  q = m_fma(q, f, -0x1.fc220ap-4f);
  q = m_fma(q, f, 0x1.233766p-3f);
  q = m_fma(q, f, -0x1.555c4ep-3f);
  q = m_fma(q, f, 0x1.99a4b6p-3f);
  q = m_fma(q, f, -0x1.000006p-2f);
  q = m_fma(q, f, 0x1.555548p-2f);
  const float u = m_fma(q, f, -0.5f);
  const float a = e * 0x1.62e4p-1f;
  const float s = a + f, err = f - (s - a); /* |a| >= |f| or a == 0: exact */
  return s + ((m_fma(f * f, u, e * 0x1.7f7d1cp-20f) + err) + c);
}

M_FN float m_log(const float x) {
  const float y = m_log_plus(x, 0.0f);
  const float special = x == 0.0f ? -m_inf() : (x > 0.0f ? x : m_nan()); /* 0, +inf, the rest */
  return ((x > 0.0f) & (x < m_inf())) ? y : special;
}

/* u = fl(1 + x) misses 1 + x by c: log(1 + x) = log u + c/u, to second order. */
M_FN float m_log1p(const float x) {
  const float u = 1.0f + x;
  const float y = m_log_plus(u, (x - (u - 1.0f)) / u);
  const float special = x == -1.0f ? -m_inf() : (x > 0.0f ? x : m_nan());
  const float finite = m_abs(x) < 0x1p-25f ? x : y; /* keeps the sign of zero */
  return ((x > -1.0f) & (x < m_inf())) ? finite : special;
}

/* |x| < 0.55: x + x^3*p(x^2); else 1 - 2/(e^2x + 1). */
M_FN float m_tanh(const float x) {
  const float a = m_abs(x), t = a * a;
  float p = -0x1.963d6ep-8f;
  p = m_fma(p, t, 0x1.58669ep-6f);
  p = m_fma(p, t, -0x1.b90fc2p-5f);
  p = m_fma(p, t, 0x1.110c98p-3f);
  p = m_fma(p, t, -0x1.555548p-2f);
  const float small = m_fma(a * t, p, a);
  const float large = 1.0f - 2.0f / (m_exp(2.0f * a) + 1.0f);
  return m_copysign(a < 0.55f ? small : large, x);
}

/* |x| < 0.9375: x + x*p(x^2); else 1 - exp(g(x)), g the logarithm of erfc. */
M_FN float m_erf(const float x) {
  const float a0 = m_abs(x), a = a0 > 4.0f ? 4.0f : a0, t = a * a;
  float p = 0x1.5a126ep-14f;
  p = m_fma(p, t, -0x1.a968e6p-11f);
  p = m_fma(p, t, 0x1.54afbap-8f);
  p = m_fma(p, t, -0x1.b80c10p-6f);
  p = m_fma(p, t, 0x1.ce2decp-4f);
  p = m_fma(p, t, -0x1.812742p-2f);
  p = m_fma(p, t, 0x1.06eba8p-3f);
  float g = -0x1.63095ep-16f;
  g = m_fma(g, a, 0x1.c85bf2p-12f);
  g = m_fma(g, a, -0x1.1196d0p-8f);
  g = m_fma(g, a, 0x1.9bb50cp-6f);
  g = m_fma(g, a, -0x1.bb926ap-4f);
  g = m_fma(g, a, -0x1.444472p-1f);
  g = m_fma(g, a, -0x1.212846p+0f);
  g = m_fma(g, a, 0x1.70d51ap-13f);
  return m_copysign(a < 0.9375f ? m_fma(a, p, a) : 1.0f - m_exp(g), x);
}

/* 1/(1 + e^-|x|), times e^-|x| for negative x: nothing overflows, small results keep their bits. */
M_FN float m_sigmoid(const float x) {
  const float e = m_exp(-m_abs(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

M_FN float m_silu(const float x) { return x * m_sigmoid(x); }

/* log(1 + e^x) = max(x, 0) + log1p(e^-|x|) */
M_FN float m_softplus(const float x) { return (x < 0.0f ? 0.0f : x) + m_log1p(m_exp(-m_abs(x))); }

/* sin and cos of 2*pi*t, |t| <= 2^19: t = q/4 + r exactly, |r| <= 1/8; 2*pi in two floats. */
M_FN void m_sincos_turn(const float t, float *const sine, float *const cosine) {
  const float shifted = m_fma(t, 4.0f, M_ROUND_SHIFT);
  const uint32_t q = m_bits(shifted);
  const float r = m_fma(shifted - M_ROUND_SHIFT, -0.25f, t), z = r * r;
  float p = 0x1.4bd736p+5f;
  p = m_fma(p, z, -0x1.32caeep+6f);
  p = m_fma(p, z, 0x1.466bbcp+6f);
  p = m_fma(p, z, -0x1.4abbcep+5f);
  const float s = m_fma(r, 0x1.921fb6p+2f, r * m_fma(p, z, -0x1.777a5cp-23f));
  float d = 0x1.d9c4a6p+5f;
  d = m_fma(d, z, -0x1.55c5a6p+6f);
  d = m_fma(d, z, 0x1.03c1dep+6f);
  d = m_fma(d, z, -0x1.3bd3ccp+4f);
  const float c = m_fma(d, z, 1.0f);
  const uint32_t odd = 0u - (q & 1u); /* all ones: a quarter turn more, the two change places */
  const uint32_t bs = (m_bits(c) & odd) | (m_bits(s) & ~odd), bc = (m_bits(s) & odd) | (m_bits(c) & ~odd);
  *sine = m_float(bs ^ ((q & 2u) << 30));
  *cosine = m_float(bc ^ (((q + 1u) & 2u) << 30));
}

#endif
