/* The inner kernel of the product: a tile of C, up to GEMM_MR rows by NV registers of columns, over k.
 *
 * The vector runs along n, so a register of C is contiguous in memory and each lane is one element's chain. For
 * each k: NV loads of B, and for each row one broadcast of A and NV fused multiply-adds. All accumulators stay in registers
 * (14 x 2 of 32 with AVX-512, 6 x 2 of 16 with AVX2; the shape is that of Goto and van de Geijn 2008 and BLIS). There is one
 * function for each (rows, NV, way of addressing A), made from one source by constant arguments. */
#ifndef STINT_KERNELS_CPU_GEMM_TILE_H
#define STINT_KERNELS_CPU_GEMM_TILE_H

#include "kernels/cpu/vec.h"

enum { GEMM_MR = VW == 16 ? 14 : 6, GEMM_NR = 2 * VW };

typedef struct gemm_tile {
  const float *a, *b, *c0; /* c0 NULL: from zero */
  float *c;
  int64_t a_step; /* by k: floats between k; by row: floats between rows */
  int64_t b_step; /* floats between k */
  int64_t k, ldc0, ldc;
  int64_t columns; /* of C that exist: in (0, NV*VW] */
  /* Fetched while this tile computes: the C of the next tile, and stored rows of B that will be packed next. */
  const float *next;
  int64_t ldnext;
  const unsigned char *warm;
  int64_t warm_rows, warm_row_lines, ldwarm; /* ldwarm in bytes */
} gemm_tile;

typedef void gemm_tile_kernel(const gemm_tile *t);

#define GEMM_INLINE static inline __attribute__((always_inline))

/* The lanes of register v that exist, once a tile; loads and stores of C are masked always. */
GEMM_INLINE int gemm_lanes(const int64_t columns, const int v) {
  const int64_t n = columns - v * VW;
  return n >= VW ? VW : n > 0 ? (int)n : 0;
}
#if defined(__AVX512F__)
typedef __mmask16 gemm_mask;
GEMM_INLINE gemm_mask gemm_mask_of(const int lanes) { return (gemm_mask)((1u << lanes) - 1); }
GEMM_INLINE vf gemm_load(const float *const p, const gemm_mask m) { return _mm512_maskz_loadu_ps(m, p); }
GEMM_INLINE void gemm_store(float *const p, const gemm_mask m, const vf a) { _mm512_mask_storeu_ps(p, m, a); }
#else
typedef __m256i gemm_mask;
GEMM_INLINE gemm_mask gemm_mask_of(const int lanes) { return vf_mask_(lanes); }
GEMM_INLINE vf gemm_load(const float *const p, const gemm_mask m) { return _mm256_maskload_ps(p, m); }
GEMM_INLINE void gemm_store(float *const p, const gemm_mask m, const vf a) { _mm256_maskstore_ps(p, m, a); }
#endif

/* One k for a tile. a0: the element of row 0; row i is at a0[i] (by k) or at a0 + i*a_step (by row). */
#define GEMM_STEP(at)                                                                                        \
  do {                                                                                                       \
    vf b[2];                                                                                                 \
    _Pragma("GCC unroll 2") for (int v = 0; v < nv; v++) b[v] = vf_load(bp + v * VW);                        \
    _Pragma("GCC unroll 16") for (int i = 0; i < mr; i++) {                                                  \
      const vf ai = vf_set1(at);                                                                             \
      _Pragma("GCC unroll 2") for (int v = 0; v < nv; v++) acc[i][v] = vf_fma(ai, b[v], acc[i][v]);          \
    }                                                                                                        \
    bp += b_step;                                                                                            \
  } while (0)

GEMM_INLINE void gemm_tile_body(const gemm_tile *const t, const int mr, const int nv, const int by_row) {
  vf acc[GEMM_MR][2];
  const int64_t a_step = t->a_step, b_step = t->b_step, columns = t->columns;
  const gemm_mask mask[2] = {gemm_mask_of(gemm_lanes(columns, 0)), gemm_mask_of(gemm_lanes(columns, 1))};
  const float *bp = t->b;
  if (t->c0) {
#pragma GCC unroll 16
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 2
      for (int v = 0; v < nv; v++) acc[i][v] = gemm_load(t->c0 + i * t->ldc0 + v * VW, mask[v]);
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 2
      for (int v = 0; v < nv; v++) acc[i][v] = vf_zero();
  }
  if (by_row) {
    const float *p[(GEMM_MR + 2) / 3]; /* every third row; two more are reached from it by the index */
#pragma GCC unroll 16
    for (int g = 0; g < (mr + 2) / 3; g++) p[g] = t->a + 3 * g * a_step;
    for (int64_t k = t->k; k > 0; k--) {
      GEMM_STEP(p[i / 3][i % 3 * a_step]);
#pragma GCC unroll 16
      for (int g = 0; g < (mr + 2) / 3; g++) p[g]++;
    }
  } else {
    const float *ap = t->a, *next = t->next;
    const unsigned char *warm = t->warm;
    int64_t k = t->k, left = t->warm_row_lines, first = k < mr ? k : mr, then = t->warm_rows * left;
    k -= first;
    then = then < k ? then : k;
    k -= then;
    for (; first > 0; first--) {
      __builtin_prefetch(next, 0, 3);
      __builtin_prefetch(next + nv * VW - 1, 0, 3);
      next += t->ldnext;
      GEMM_STEP(ap[i]);
      ap += a_step;
    }
    for (; then > 0; then--) {
      __builtin_prefetch(warm, 0, 2);
      warm += 64;
      if (--left == 0) {
        left = t->warm_row_lines;
        warm += t->ldwarm - 64 * left;
      }
      GEMM_STEP(ap[i]);
      ap += a_step;
    }
#pragma GCC unroll 4
    for (; k > 0; k--) {
      GEMM_STEP(ap[i]);
      ap += a_step;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < mr; i++)
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) gemm_store(t->c + i * t->ldc + v * VW, mask[v], acc[i][v]);
}

#if defined(__AVX512F__)
#define GEMM_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#else
#define GEMM_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

#define X(mr)                                                                                                \
  static void gemm_tile_##mr##x1_by_k(const gemm_tile *t) { gemm_tile_body(t, mr, 1, 0); }                   \
  static void gemm_tile_##mr##x2_by_k(const gemm_tile *t) { gemm_tile_body(t, mr, 2, 0); }                   \
  static void gemm_tile_##mr##x1_by_row(const gemm_tile *t) { gemm_tile_body(t, mr, 1, 1); }                 \
  static void gemm_tile_##mr##x2_by_row(const gemm_tile *t) { gemm_tile_body(t, mr, 2, 1); }
GEMM_ROWS(X)
#undef X

/* [by row][NV - 1][rows - 1] */
static gemm_tile_kernel *const gemm_tiles[2][2][GEMM_MR] = {
#define X1K(mr) gemm_tile_##mr##x1_by_k,
#define X2K(mr) gemm_tile_##mr##x2_by_k,
#define X1R(mr) gemm_tile_##mr##x1_by_row,
#define X2R(mr) gemm_tile_##mr##x2_by_row,
    {{GEMM_ROWS(X1K)}, {GEMM_ROWS(X2K)}},
    {{GEMM_ROWS(X1R)}, {GEMM_ROWS(X2R)}},
};
#undef X1K
#undef X2K
#undef X1R
#undef X2R

#endif
