/* The fused multiply-add that every kernel uses, on every path with the same bits.
 *
 * Where the target has the instruction it is that. Elsewhere it is computed in float64: the product of two floats
 * is exact there, the sum is rounded to odd (Boldo and Melquiond 2008: a sum rounded to odd with at least two more
 * bits than the result rounds to the result once), and the conversion rounds once. */
#ifndef STINT_KERNELS_MATH_FMA_H
#define STINT_KERNELS_MATH_FMA_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define M_FN static __host__ __device__ __forceinline__
#else
#define M_FN static inline __attribute__((always_inline, unused))
#endif

M_FN float m_fma(const float a, const float b, const float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#elif defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  const double p = (double)a * (double)b, z = (double)c;
  double s = p + z;
  const double bb = s - p; /* two-sum: the error of s */
  const double err = (p - (s - bb)) + (z - bb);
  uint64_t bits;
  memcpy(&bits, &s, sizeof bits);
  if (err != 0 && (bits & 1) == 0 && s - s == 0) { /* inexact and even: step towards the error, to odd */
    bits += ((err > 0) == (s > 0)) ? 1 : (uint64_t)-1;
    memcpy(&s, &bits, sizeof s);
  }
  return (float)s;
#endif
}

#endif
