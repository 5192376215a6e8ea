/* Native vectors of one vector path: this header is compiled once per path (STINT_PATH is its name), and gives
 * the same few operations at VW floats a register.
 *
 * Arithmetic on vf uses the compiler's vector operators (+ - * /), which are IEEE single operations and are not
 * contracted (-ffp-contract=off); the fused form is vf_fma and only that. */
#ifndef STINT_KERNELS_CPU_VEC_H
#define STINT_KERNELS_CPU_VEC_H

#include <immintrin.h>
#include <stdint.h>

#if defined(__AVX512F__)
enum { VW = 16 };
typedef __m512 vf;
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, const vf a) { _mm512_storeu_ps(p, a); }
static inline vf vf_set1(const float a) { return _mm512_set1_ps(a); }
static inline vf vf_fma(const vf a, const vf b, const vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_max(const vf a, const vf b) { return _mm512_max_ps(a, b); }
/* the first n lanes, the rest zero; n in [0, VW] */
static inline vf vf_load_n(const float *p, const int n) {
  return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
static inline void vf_store_n(float *p, const vf a, const int n) {
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a);
}
#elif defined(__AVX2__)
enum { VW = 8 };
typedef __m256 vf;
static inline __m256i vf_mask_(const int n) {
  static const int32_t ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_loadu_si256((const __m256i *)(ones + 8 - n));
}
static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, const vf a) { _mm256_storeu_ps(p, a); }
static inline vf vf_set1(const float a) { return _mm256_set1_ps(a); }
static inline vf vf_fma(const vf a, const vf b, const vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_max(const vf a, const vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_load_n(const float *p, const int n) { return _mm256_maskload_ps(p, vf_mask_(n)); }
static inline void vf_store_n(float *p, const vf a, const int n) { _mm256_maskstore_ps(p, vf_mask_(n), a); }
#else
#error "kernels/cpu is compiled for a vector path only; the plain reference is kernels/ref"
#endif

static inline vf vf_zero(void) { return vf_set1(0.0f); }

/* The 32 lanes of rule 3 are 32/VW registers. */
enum { VREGS32 = 32 / VW };

/* Folds 32 lanes 16, 8, 4, 2, 1: lane l <- lane l + lane l+h. */
static inline float fold32_sum(float lane[32]) {
  for (int h = 16; h; h >>= 1)
    for (int l = 0; l < h; l++) lane[l] = lane[l] + lane[l + h];
  return lane[0];
}

/* Before a loop whose iterations touch no common memory except an element read and written by the same iteration
 * (a destination exactly on a source): the compiler may make vectors of it without asking whether pointers overlap. */
#if defined(__clang__)
#define VEC_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define VEC_LOOP _Pragma("GCC ivdep")
#endif

/* Names of one path: every kernel file is compiled once per path, and all its functions are static but the
 * one that enters its kernels into the table. */
#define PATH_JOIN_(a, b) a##_##b
#define PATH_JOIN(a, b)  PATH_JOIN_(a, b)
#define PATH_NAME(name)  PATH_JOIN(name, STINT_PATH)

#endif
