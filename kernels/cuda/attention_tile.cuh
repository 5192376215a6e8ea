/* What the attention kernels of CUDA share: tiles in shared memory and the two products made of them.
 *
 * A block is 16 x 16 threads over a tile of ROWS "own" rows, which stay, and tiles of COLS "other" rows, which pass
 * by. Thread (ty, tx) has the own rows ty + 16 i. For a score it has the columns tx + 16 n, for a result the elements
 * 4 tx + 64 g .. + 3 of a row of D. Each own row sees one interval of the others (spans do not fall), so a tile
 * is either seen whole by all own rows or masked by comparisons; what is not seen enters no sum (it may be NaN).
 *
 * Rows of a tile are D + 4 floats apart: eight neighbouring rows read as four floats each meet no bank twice. Elements past
 * head_size are zero, which changes no chain but for a zero's sign, and that no result shows (kernels/ops/attention.h). */
#ifndef STINT_KERNELS_CUDA_ATTENTION_TILE_CUH
#define STINT_KERNELS_CUDA_ATTENTION_TILE_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/ops/attention.h"

/* The strict launches (attention.cu), which the fast ones hand the head sizes to that they do not have. */
cuda_launch cuda_strict_attention, cuda_strict_attention_dq, cuda_strict_attention_dkv;

enum { AT_SIDE = 16, AT_THREADS = AT_SIDE * AT_SIDE };

/* Unrolled so many times; the emulation's compiler chooses for itself. */
#ifdef STINT_CUEMU
#define AT_UNROLL(n)
#else
#define AT_PRAGMA_(x) _Pragma(#x)
#define AT_UNROLL(n)  AT_PRAGMA_(unroll n)
#endif

/* `count` rows of `n` floats into a tile of ROWS x D; the rest of the tile is zero. */
template <int ROWS, int D>
CU_FN void at_load(float *const to, const float *const from, const int64_t ld, const int64_t count,
                   const int n) {
  AT_UNROLL(4)
  for (int i = (int)threadIdx.x; i < ROWS * D; i += AT_THREADS) {
    const int r = i / D, e = i % D;
    to[r * (D + 4) + e] = r < count && e < n ? from[r * ld + e] : 0.0f;
  }
}

/* c[i][n] = own row i . other row n: one chain over the elements, ascending (rule 2). */
template <int TM, int TN, int D>
CU_FN void at_scores(float (&c)[TM][TN], const float *const own, const float *const other, const int n) {
  const int tx = (int)threadIdx.x % AT_SIDE, ty = (int)threadIdx.x / AT_SIDE;
  CU_UNROLL
  for (int i = 0; i < TM; i++) CU_UNROLL
  for (int j = 0; j < TN; j++) c[i][j] = 0;
  AT_UNROLL(1)
  for (int e = 0; e < n; e += 4) {
    float4 a[TM], b[TN];
    CU_UNROLL
    for (int i = 0; i < TM; i++) a[i] = *(const float4 *)(own + (ty + AT_SIDE * i) * (D + 4) + e);
    CU_UNROLL
    for (int j = 0; j < TN; j++) b[j] = *(const float4 *)(other + (tx + AT_SIDE * j) * (D + 4) + e);
    CU_UNROLL
    for (int i = 0; i < TM; i++) CU_UNROLL
    for (int j = 0; j < TN; j++) {
      float x = m_fma(a[i].x, b[j].x, c[i][j]);
      x = m_fma(a[i].y, b[j].y, x);
      x = m_fma(a[i].z, b[j].z, x);
      c[i][j] = m_fma(a[i].w, b[j].w, x);
    }
  }
}

/* The columns of a tile that an own row sees: from .. to, inclusive, which may lie outside; none when from > to. */
typedef struct at_interval {
  int from, to;
} at_interval;

/* lo .. hi, counted from the first column of the tile (all of them fit in int32: spans do) */
CU_FN at_interval at_clip(const int lo, const int hi, const int64_t at) {
  at_interval v;
  v.from = lo - (int)at;
  v.to = hi - (int)at;
  return v;
}

CU_FN bool at_sees(const at_interval v, const int c) { return c >= v.from && c <= v.to; }

template <int TM, int G, int D, int COLS, bool MASKED>
CU_FN void at_add_tile(float (&sum)[TM][G][4], const float *const w, const float *const other,
                       const at_interval (&seen)[TM], const int cols) {
  const int tx = (int)threadIdx.x % AT_SIDE, ty = (int)threadIdx.x / AT_SIDE;
  AT_UNROLL(1)
  for (int c = 0; c < cols; c += 4) {
    float f[TM][4];
    CU_UNROLL
    for (int i = 0; i < TM; i++) {
      const float4 x = *(const float4 *)(w + (ty + AT_SIDE * i) * (COLS + 4) + c);
      f[i][0] = x.x, f[i][1] = x.y, f[i][2] = x.z, f[i][3] = x.w;
    }
    CU_UNROLL
    for (int k = 0; k < 4; k++) CU_UNROLL
    for (int g = 0; g < G; g++) {
      const float4 v = *(const float4 *)(other + (c + k) * (D + 4) + 64 * g + 4 * tx);
      CU_UNROLL
      for (int i = 0; i < TM; i++) {
        if (MASKED && !at_sees(seen[i], c + k)) continue;
        float *const s = sum[i][g];
        s[0] = m_fma(f[i][k], v.x, s[0]);
        s[1] = m_fma(f[i][k], v.y, s[1]);
        s[2] = m_fma(f[i][k], v.z, s[2]);
        s[3] = m_fma(f[i][k], v.w, s[3]);
      }
    }
  }
}

/* sum[i] += over the columns that row i sees, ascending: w[i][c] * other row c. `all`: every row sees every column. */
template <int TM, int G, int D, int COLS>
CU_FN void at_add(float (&sum)[TM][G][4], const float *const w, const float *const other,
                  const at_interval (&seen)[TM], const bool all, const int cols) {
  if (all)
    at_add_tile<TM, G, D, COLS, false>(sum, w, other, seen, COLS);
  else
    at_add_tile<TM, G, D, COLS, true>(sum, w, other, seen, cols);
}

template <int TM, int G> CU_FN void at_clear(float (&sum)[TM][G][4]) {
  CU_UNROLL
  for (int i = 0; i < TM; i++) CU_UNROLL
  for (int g = 0; g < G; g++) CU_UNROLL
  for (int k = 0; k < 4; k++) sum[i][g][k] = 0;
}

CU_FN float at_sum16(float x) { /* the fold's halves of 8, 4, 2, 1, in every one of 16 lanes */
  CU_UNROLL
  for (int h = 8; h; h >>= 1) x = x + __shfl_xor_sync(CU_FULL, x, h);
  return x;
}

CU_FN float at_max16(float x) {
  CU_UNROLL
  for (int h = 8; h; h >>= 1) {
    const float y = __shfl_xor_sync(CU_FULL, x, h);
    x = y > x ? y : x;
  }
  return x;
}

/* The tile of rows of a block, and its head: from the last rows to the first, for under a causal span the last see most. */
typedef struct at_rows {
  int64_t r0, count;
  int h, kv;
} at_rows;

CU_FN at_rows at_block_rows(const int64_t rows, const int n_heads, const int n_kv_heads, const int tile) {
  const int64_t tiles = (rows + tile - 1) / tile;
  at_rows b;
  b.r0 = (tiles - 1 - (int64_t)blockIdx.x / n_heads) * tile;
  b.count = rows - b.r0 < tile ? rows - b.r0 : tile;
  b.h = (int)((int64_t)blockIdx.x % n_heads);
  b.kv = b.h / (n_heads / n_kv_heads);
  return b;
}

static inline int64_t at_row_blocks(const int64_t rows, const int n_heads, const int tile) {
  return (rows + tile - 1) / tile * n_heads;
}

/* How many of the n numbers of x, which do not fall, are below j. */
CU_FN int64_t at_count_below(const int32_t *const x, const int64_t n, const int64_t j) {
  int64_t lo = 0, hi = n;
  while (lo < hi) {
    const int64_t mid = (lo + hi) / 2;
    if (x[mid] < j)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

#endif
