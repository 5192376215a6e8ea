/* Elementary functions in float64 for the host: what is computed once, at start-up or once a step (frequency
 * tables, learning rates, bias corrections), and must have the same bits on every platform. Only + - * / and
 * operations on bits; no fma, no libm. Series of Taylor, long enough that the truncation is below 2^-56.
 *
 * Relative error: h_exp, h_log below 4e-16; h_pow below 4e-16 + 3e-16*|y*log x|;
 * h_sin, h_cos absolute error below 4e-16 for |x| <= 1e5. h_powi (repeated squaring) below n * 1.2e-16.
 * Not for NaN, infinities, or results that overflow or are subnormal: h_exp saturates at +-700, h_log wants x > 0
 * and normal. */
#ifndef STINT_KERNELS_MATH_HOSTMATH_H
#define STINT_KERNELS_MATH_HOSTMATH_H

#include <stdint.h>
#include <string.h>

#define H_FN static inline __attribute__((unused))

/* the nearest integer, as a double; |x| < 2^51 */
H_FN double h_round(const double x) { return (x + 6755399441055744.0) - 6755399441055744.0; }

H_FN double h_exp(const double x0) {
  const double x = x0 > 700 ? 700 : (x0 < -700 ? -700 : x0);
  const double k = h_round(x * 0x1.71547652b82fep+0);
  const double r = (x - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33;
  double p = 1.0;
  for (int n = 14; n >= 2; n--) p = 1.0 + p * r / n; /* e^r = 1 + r*p, p = 1 + r/2*(1 + r/3*(...)) */
  const uint64_t bits = (uint64_t)((int64_t)k + 1023) << 52;
  double scale;
  memcpy(&scale, &bits, sizeof scale);
  return (1.0 + r * p) * scale;
}

/* x = 2^e * m, m in [sqrt(1/2), sqrt 2); s = (m-1)/(m+1); log m = 2*(s + s^3/3 + s^5/5 + ...) */
H_FN double h_log(const double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  const int64_t e = (int64_t)(bits - 0x3fe6a09e667f3bcdull) >> 52;
  bits -= (uint64_t)e << 52;
  double m;
  memcpy(&m, &bits, sizeof m);
  const double f = m - 1.0, s = f / (2.0 + f), z = s * s;
  double p = 0;
  for (int n = 25; n >= 3; n -= 2) p = (p + 1.0 / n) * z;
  const double hf = 0.5 * f * f; /* log m = f - (f^2/2 - s*(f^2/2 + 2p)): f is exact */
  const double tail = hf - s * (hf + 2.0 * p);
  return (double)e * 0x1.62e42feep-1 + (f - (tail - (double)e * 0x1.a39ef35793c76p-33));
}

H_FN double h_pow(const double x, const double y) { return h_exp(y * h_log(x)); }

H_FN double h_powi(const double x, const uint64_t n) {
  double result = 1.0, square = x;
  for (uint64_t i = n; i; i >>= 1) {
    if (i & 1) result *= square;
    square *= square;
  }
  return result;
}

#define H_PI 3.14159265358979323846

/* x = q*pi/2 + r, pi/2 in three parts of which two have 33 bits (products by |q| < 2^20 are exact). */
H_FN void h_sincos(const double x, double *const sine, double *const cosine) {
  const double k = h_round(x * 0.63661977236758134308);
  const double r = ((x - k * 0x1.921fb544p+0) - k * 0x1.0b4611a6p-34) - k * 0x1.3198a2e037073p-69;
  const double z = r * r;
  double s = 1.0, c = 1.0;
  for (int n = 20; n >= 2; n -= 2) {
    s = 1.0 - s * z / (n * (n + 1.0));
    c = 1.0 - c * z / (n * (n - 1.0));
  }
  s *= r;
  const int q = (int)((int64_t)k & 3);
  const double ps = q & 1 ? c : s, pc = q & 1 ? s : c;
  *sine = q & 2 ? -ps : ps;
  *cosine = (q + 1) & 2 ? -pc : pc;
}

H_FN double h_sin(const double x) {
  double s, c;
  h_sincos(x, &s, &c);
  return s;
}

H_FN double h_cos(const double x) {
  double s, c;
  h_sincos(x, &s, &c);
  return c;
}

#endif
