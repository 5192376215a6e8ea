/* Device functions as plain host code with the same bits (those that CUDA rounds correctly), and the two narrow types.
 *
 * Approximate ones (__expf, rsqrtf, ...) have other bits than a GPU's: strict kernels use none, the PTX check sees to it.
 * Included by cuemu.h alone. */
#ifndef STINT_TESTS_CUEMU_INTRINSICS_H
#define STINT_TESTS_CUEMU_INTRINSICS_H

using std::max;
using std::min;

/* One host thread runs every fiber and none is preempted: plain code is atomic. */
template <class T> static inline T atomicAdd(T *const p, const T v) {
  const T old = *p;
  *p = old + v;
  return old;
}
template <class T> static inline T atomicMax(T *const p, const T v) {
  const T old = *p;
  if (v > old) *p = v;
  return old;
}
template <class T> static inline T atomicMin(T *const p, const T v) {
  const T old = *p;
  if (v < old) *p = v;
  return old;
}
template <class T> static inline T atomicOr(T *const p, const T v) {
  const T old = *p;
  *p = old | v;
  return old;
}
template <class T> static inline T atomicExch(T *const p, const T v) {
  const T old = *p;
  *p = v;
  return old;
}
template <class T> static inline T atomicCAS(T *const p, const T compare, const T v) {
  const T old = *p;
  if (old == compare) *p = v;
  return old;
}

static inline void __threadfence() {}
static inline void __threadfence_block() {}
template <class T> static inline T __ldg(const T *const p) { return *p; }
template <class T> static inline T __ldcs(const T *const p) { return *p; }
template <class T> static inline T __ldcg(const T *const p) { return *p; }
template <class T> static inline T __ldca(const T *const p) { return *p; }
template <class T> static inline void __stcs(T *const p, const T v) { *p = v; }
template <class T> static inline void __stcg(T *const p, const T v) { *p = v; }

static inline float __fmaf_rn(const float a, const float b, const float c) { return fmaf(a, b, c); }
static inline float __fadd_rn(const float a, const float b) { return a + b; }
static inline float __fsub_rn(const float a, const float b) { return a - b; }
static inline float __fmul_rn(const float a, const float b) { return a * b; }
static inline float __fdiv_rn(const float a, const float b) { return a / b; }
static inline float __frcp_rn(const float a) { return 1.0f / a; }
static inline float __fsqrt_rn(const float a) { return sqrtf(a); }
static inline float __frsqrt_rn(const float x) { return (float)(1.0 / sqrt((double)x)); }
static inline double __dadd_rn(const double a, const double b) { return a + b; }
static inline double __dmul_rn(const double a, const double b) { return a * b; }
static inline double __ddiv_rn(const double a, const double b) { return a / b; }
static inline double __dsqrt_rn(const double a) { return sqrt(a); }
static inline double __fma_rn(const double a, const double b, const double c) { return fma(a, b, c); }
static inline float __double2float_rn(const double a) { return (float)a; }
static inline float __int2float_rn(const int a) { return (float)a; }
static inline float __uint2float_rn(const unsigned a) { return (float)a; }
static inline float __ll2float_rn(const long long a) { return (float)a; }
static inline int __float2int_rn(const float a) { return (int)rintf(a); }
static inline int __float2int_rz(const float a) { return (int)a; }
static inline int __float2int_rd(const float a) { return (int)floorf(a); }

static inline float rsqrtf(const float x) { return 1.0f / sqrtf(x); }
#define __expf(x) expf(x) /* macros: libc declares both names */
#define __logf(x) logf(x)
static inline float __fdividef(const float a, const float b) { return a / b; }

static inline int __float_as_int(const float f) {
  int i;
  memcpy(&i, &f, sizeof i);
  return i;
}
static inline unsigned __float_as_uint(const float f) { return (unsigned)__float_as_int(f); }
static inline float __int_as_float(const int i) {
  float f;
  memcpy(&f, &i, sizeof f);
  return f;
}
static inline float __uint_as_float(const unsigned i) { return __int_as_float((int)i); }
static inline int __popc(const unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(const int x) { return __builtin_ffs(x); }
static inline int __clz(const int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline unsigned __umulhi(const unsigned a, const unsigned b) {
  return (unsigned)(((uint64_t)a * (uint64_t)b) >> 32);
}
static inline int __mulhi(const int a, const int b) { return (int)(((int64_t)a * (int64_t)b) >> 32); }

/* bfloat16 and half: only storage and conversion, rounded to nearest even. */
struct __nv_bfloat16 {
  uint16_t bits;
};
struct __half {
  uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
struct alignas(4) __half2 {
  __half x, y;
};
static inline float __bfloat162float(const __nv_bfloat16 h) {
  return __uint_as_float((unsigned)h.bits << 16);
}
static inline __nv_bfloat16 __float2bfloat16_rn(const float f) {
  const unsigned u = __float_as_uint(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {(uint16_t)0x7fff};
  return {(uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16)};
}
static inline __nv_bfloat16 __float2bfloat16(const float f) { return __float2bfloat16_rn(f); }
static inline __nv_bfloat162 __floats2bfloat162_rn(const float a, const float b) {
  return {__float2bfloat16_rn(a), __float2bfloat16_rn(b)};
}
static inline float __half2float(const __half h) {
  const unsigned sign = (unsigned)(h.bits & 0x8000) << 16, exponent = h.bits >> 10 & 31, m = h.bits & 1023;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | m << 13);
  if (exponent) return __uint_as_float(sign | (exponent + 112) << 23 | m << 13);
  const float f = (float)m * 0x1p-24f;
  return sign ? -f : f;
}
static inline __half __float2half_rn(const float f) {
  const unsigned u = __float_as_uint(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return {(uint16_t)0x7fff};
  if (a >= 0x477ff000u) return {(uint16_t)(sign | 0x7c00u)};
  if (a < 0x38800000u) /* below the smallest normal half: the sum rounds at 2^-24 */
    return {(uint16_t)(sign | (__float_as_uint(__uint_as_float(a) + 0.5f) - 0x3f000000u))};
  return {(uint16_t)(sign | ((a + 0xfffu + (a >> 13 & 1) - 0x38000000u) >> 13))};
}
static inline __half __float2half(const float f) { return __float2half_rn(f); }

#endif
