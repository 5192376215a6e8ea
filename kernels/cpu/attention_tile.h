/* The two products that attention is made of, on tiles in a worker's slab, one fma chain an element (rule 2).
 *
 *   dot:  T[g][c] = sum_d A[g][d] * B[d][c]           a group of 6 rows of A as they lie (keys or query rows), B packed
 *                                                     transposed: the vector runs along c
 *   fold: C[c][e] = C[c][e] + sum_g T[g][c] * A[g][e]  A again as it lies: the vector runs along e
 *
 * The forward and dq let g be keys and c query rows, dkv the other way round, so q, k, v and do are read in place and only
 * the small side of a unit is transposed. T is zero where a row does not see a key. */
#ifndef STINT_KERNELS_CPU_ATTENTION_TILE_H
#define STINT_KERNELS_CPU_ATTENTION_TILE_H

#include "kernels/cpu/vec.h"
#include "kernels/ops/attention.h"

#define TILE_INLINE static inline __attribute__((always_inline))

enum { GROUP = ATTENTION_GROUP, TILE_NV = VW == 16 ? 4 : 2 }; /* 6 x 4 of 32 registers, 6 x 2 of 16 */

TILE_INLINE void dot_body(const float *const a[GROUP], const float *bt, const int64_t ldb, const int64_t n,
                          float *const t, const int64_t ldt, const int nv) {
  vf acc[GROUP][TILE_NV];
#pragma GCC unroll 6
  for (int i = 0; i < GROUP; i++)
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) acc[i][v] = vf_zero();
  const float *const a0 = a[0], *const a1 = a[1], *const a2 = a[2], *const a3 = a[3], *const a4 = a[4],
                     *const a5 = a[5];
  for (int64_t d = 0; d < n; d++, bt += ldb) {
    vf b[TILE_NV];
    const float x[GROUP] = {a0[d], a1[d], a2[d], a3[d], a4[d], a5[d]};
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) b[v] = vf_load(bt + v * VW);
#pragma GCC unroll 6
    for (int i = 0; i < GROUP; i++) {
      const vf xi = vf_set1(x[i]);
#pragma GCC unroll 4
      for (int v = 0; v < nv; v++) acc[i][v] = vf_fma(xi, b[v], acc[i][v]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < GROUP; i++)
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) vf_store(t + i * ldt + v * VW, acc[i][v]);
}

/* Columns [c0, c1) of T (multiples of VW) for `count` (1..6) rows of A, which lie lda apart; 6 rows of T are written. */
static void dot_group(const float *const a, const int64_t lda, const int64_t count, const float *const bt,
                      const int64_t ldb, const int64_t n, float *const t, const int64_t ldt, const int64_t c0,
                      const int64_t c1) {
  const float *rows[GROUP];
  for (int64_t i = 0; i < GROUP; i++) rows[i] = a + (i < count ? i : count - 1) * lda;
  for (int64_t c = c0; c < c1;) {
    const int64_t left = (c1 - c) / VW;
    const int nv = left > TILE_NV ? TILE_NV : (int)left;
    switch (nv) {
    case 1:
      dot_body(rows, bt + c, ldb, n, t + c, ldt, 1);
      break;
    case 2:
      dot_body(rows, bt + c, ldb, n, t + c, ldt, 2);
      break;
#if defined(__AVX512F__)
    case 3:
      dot_body(rows, bt + c, ldb, n, t + c, ldt, 3);
      break;
    case 4:
      dot_body(rows, bt + c, ldb, n, t + c, ldt, 4);
      break;
#endif
    }
    c += nv * VW;
  }
}

/* tail: lanes of the last register that A has (0: all of them). */
TILE_INLINE void fold_body(const float *t, const int64_t ldt, const float *a, const int64_t lda,
                           const int64_t n, float *const c, const int64_t ldc, const int nv, const int tail) {
  vf acc[GROUP][TILE_NV];
#pragma GCC unroll 6
  for (int i = 0; i < GROUP; i++)
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) acc[i][v] = vf_load(c + i * ldc + v * VW);
  for (int64_t g = 0; g < n; g++, t += ldt, a += lda) {
    vf b[TILE_NV];
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++)
      b[v] = tail && v == nv - 1 ? vf_load_n(a + v * VW, tail) : vf_load(a + v * VW);
#pragma GCC unroll 6
    for (int i = 0; i < GROUP; i++) {
      const vf ti = vf_set1(t[i]);
#pragma GCC unroll 4
      for (int v = 0; v < nv; v++) acc[i][v] = vf_fma(ti, b[v], acc[i][v]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < GROUP; i++)
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) vf_store(c + i * ldc + v * VW, acc[i][v]);
}

/* 6 rows of C, head_size columns, over n rows of T and A. */
static void fold_group(const float *const t, const int64_t ldt, const float *const a, const int64_t lda,
                       const int64_t n, float *const c, const int64_t ldc, const int64_t head_size) {
  for (int64_t e = 0; e < head_size;) {
    const int64_t left = (head_size - e + VW - 1) / VW;
    const int nv = left > TILE_NV ? TILE_NV : (int)left;
    const int64_t width = head_size - e < nv * VW ? head_size - e : nv * VW;
    const int tail = (int)(width % VW);
    switch (tail ? nv : -nv) {
    case -1:
      fold_body(t, ldt, a + e, lda, n, c + e, ldc, 1, 0);
      break;
    case -2:
      fold_body(t, ldt, a + e, lda, n, c + e, ldc, 2, 0);
      break;
    case 1:
      fold_body(t, ldt, a + e, lda, n, c + e, ldc, 1, tail);
      break;
    case 2:
      fold_body(t, ldt, a + e, lda, n, c + e, ldc, 2, tail);
      break;
#if defined(__AVX512F__)
    case -3:
      fold_body(t, ldt, a + e, lda, n, c + e, ldc, 3, 0);
      break;
    case -4:
      fold_body(t, ldt, a + e, lda, n, c + e, ldc, 4, 0);
      break;
    case 3:
      fold_body(t, ldt, a + e, lda, n, c + e, ldc, 3, tail);
      break;
    case 4:
      fold_body(t, ldt, a + e, lda, n, c + e, ldc, 4, tail);
      break;
#endif
    }
    e += width;
  }
}

/* 8 x 8 floats. */
TILE_INLINE void transpose8(const float *const a, const int64_t lda, float *const b, const int64_t ldb) {
  __m256 r[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(a + i * lda);
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xEE);
    r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    _mm256_storeu_ps(b + i * ldb, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(b + (i + 4) * ldb, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

/* B[d][c] = A[c][d] for c < rows, 0 for rows <= c < width; d < n. */
static void pack_transposed(const float *const a, const int64_t lda, const int64_t rows, const int64_t n,
                            float *const b, const int64_t width) {
  const int64_t rows8 = rows & ~(int64_t)7, n8 = n & ~(int64_t)7;
  for (int64_t c = 0; c < rows8; c += 8)
    for (int64_t d = 0; d < n8; d += 8) transpose8(a + c * lda + d, lda, b + d * width + c, width);
  for (int64_t d = 0; d < n; d++)
    for (int64_t c = d < n8 ? rows8 : 0; c < rows; c++) b[d * width + c] = a[c * lda + d];
  for (int64_t d = 0; d < n; d++)
    for (int64_t c = rows; c < width; c++) b[d * width + c] = 0;
}

#endif
