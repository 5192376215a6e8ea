/* The three matrix products, strict: every element of C is one fma chain, ascending over k, from c0 (rule 2).
 *
 * A block of 256 threads owns a tile of C, a thread 2x2, 4x4 or 8x8 elements of it in registers. 16 of k at a time pass through
 * shared memory, in two buffers: while one is used the next is fetched into registers, W dequantized on the way. A short last
 * piece of k ends the loop early; it isn't filled with zeros, which would turn a -0 into 0. */
#include "kernels/cuda/device.cuh"

#include "kernels/cuda/gemm.cuh"
#include "kernels/ops/matmul.h"

namespace {

enum { SIDE = 16, THREADS = SIDE * SIDE, DEPTH = 16, PAD = 4 };

/* Where thread `side` of SIDE finds its i-th of R rows (or columns): groups of up to 4, a group a vector load. */
template <int R> __device__ __forceinline__ int own(const int side, const int i) {
  constexpr int V = R < 4 ? R : 4;
  return i / V * (SIDE * V) + side * V + i % V;
}

/* A piece is DEPTH of k by T of m (or n). In round e a thread fetches the element `line` + e*LINES of the stored rows, `along` in
 * the row, so that neighbours in memory are fetched by neighbouring threads. BY_K: stored rows run over k's steps. */
template <int T, bool BY_K> struct share {
  static constexpr int LONG = BY_K ? T : DEPTH, LINES = THREADS / LONG;
  static __device__ __forceinline__ int along() { return (int)threadIdx.x % LONG; }
  static __device__ __forceinline__ int line() { return (int)threadIdx.x / LONG; }
};

/* Stored rows [first_line, lines) and elements [first, n) of a matrix, TYPE its type; 0 beyond. */
template <int R, int TYPE, bool BY_K>
__device__ __forceinline__ void fetch(const void *const matrix, const int64_t row_bytes,
                                      const int64_t first_line, const int64_t lines, const int64_t first,
                                      const int64_t n, float out[R]) {
  using S = share<SIDE * R, BY_K>;
  const int64_t i = first + S::along(), line = first_line + S::line();
  const char *row = (const char *)matrix + line * row_bytes;
  const int64_t left = i < n ? lines - line : 0;
  CU_UNROLL
  for (int e = 0; e < R; e++, row += S::LINES * row_bytes)
    out[e] = e * S::LINES < left ? cu_weight<TYPE>(row, i) : 0.0f;
}

template <int R, bool A_BY_K>
__device__ __forceinline__ void fetch_a(const gemm_problem &p, const int64_t m0, const int64_t k0,
                                        float out[R]) {
  if (A_BY_K)
    fetch<R, DTYPE_F32, true>(p.a, p.lda * 4, k0, p.k, m0, p.m, out);
  else
    fetch<R, DTYPE_F32, false>(p.a, p.lda * 4, m0, p.m, k0, p.k, out);
}

template <int R, int TYPE, bool B_BY_N>
__device__ __forceinline__ void fetch_b(const gemm_problem &p, const int64_t n0, const int64_t k0,
                                        float out[R]) {
  if (B_BY_N)
    fetch<R, TYPE, false>(p.b, (int64_t)p.b_row_bytes, n0, p.n, k0, p.k, out);
  else
    fetch<R, TYPE, true>(p.b, (int64_t)p.b_row_bytes, k0, p.k, n0, p.n, out);
}

template <int R, bool BY_K> __device__ __forceinline__ void put(float *const piece, const float in[R]) {
  using S = share<SIDE * R, BY_K>;
  CU_UNROLL
  for (int e = 0; e < R; e++) {
    const int line = S::line() + e * S::LINES;
    piece[BY_K ? line * (SIDE * R + PAD) + S::along() : S::along() * (SIDE * R + PAD) + line] = in[e];
  }
}

template <int R> __device__ __forceinline__ void take(const float *const row, const int side, float out[R]) {
  if constexpr (R >= 4) {
    CU_UNROLL
    for (int i = 0; i < R; i += 4) {
      const float4 v = *(const float4 *)(row + own<R>(side, i));
      out[i] = v.x, out[i + 1] = v.y, out[i + 2] = v.z, out[i + 3] = v.w;
    }
  } else {
    CU_UNROLL
    for (int i = 0; i < R; i++) out[i] = row[own<R>(side, i)];
  }
}

template <int R>
__device__ __forceinline__ void step(const float *const a, const float *const b, const int kk, const int ty,
                                     const int tx, float c[R][R]) {
  float x[R], w[R];
  take<R>(a + kk * (SIDE * R + PAD), ty, x);
  take<R>(b + kk * (SIDE * R + PAD), tx, w);
  CU_UNROLL
  for (int i = 0; i < R; i++) {
    CU_UNROLL
    for (int j = 0; j < R; j++) c[i][j] = m_fma(x[i], w[j], c[i][j]);
  }
}

template <int R, int TYPE, bool A_BY_K, bool B_BY_N>
__global__ void __launch_bounds__(THREADS, R == 8 ? 1 : 2) product_kernel(const gemm_problem p) {
  constexpr int T = SIDE * R, PIECE = DEPTH * (T + PAD);
  CU_DYN_SMEM(float, shared); /* A's pieces, then B's */
  const int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
  const int64_t m0 = (int64_t)blockIdx.y * T, n0 = (int64_t)blockIdx.x * T;
  float c[R][R], a_next[R], b_next[R];
  CU_UNROLL
  for (int i = 0; i < R; i++) {
    CU_UNROLL
    for (int j = 0; j < R; j++) {
      const int64_t m = m0 + own<R>(ty, i), n = n0 + own<R>(tx, j);
      c[i][j] = p.c0 && m < p.m && n < p.n ? p.c0[m * p.ldc0 + n] : 0.0f;
    }
  }
  fetch_a<R, A_BY_K>(p, m0, 0, a_next);
  fetch_b<R, TYPE, B_BY_N>(p, n0, 0, b_next);
  int now = 0;
  for (int64_t k0 = 0; k0 < p.k; k0 += DEPTH, now ^= 1) {
    float *const a = shared + now * PIECE, *const b = shared + (2 + now) * PIECE;
    put<R, A_BY_K>(a, a_next);
    put<R, !B_BY_N>(b, b_next);
    __syncthreads(); /* one is enough: the other buffer's readers passed it before anyone writes there again */
    if (k0 + DEPTH <= p.k) {
      fetch_a<R, A_BY_K>(p, m0, k0 + DEPTH, a_next);
      fetch_b<R, TYPE, B_BY_N>(p, n0, k0 + DEPTH, b_next);
      CU_UNROLL
      for (int kk = 0; kk < DEPTH; kk++) step<R>(a, b, kk, ty, tx, c);
    } else {
      for (int kk = 0; kk < (int)(p.k - k0); kk++) step<R>(a, b, kk, ty, tx, c);
    }
  }
  CU_UNROLL
  for (int i = 0; i < R; i++) {
    CU_UNROLL
    for (int j = 0; j < R; j++) {
      const int64_t m = m0 + own<R>(ty, i), n = n0 + own<R>(tx, j);
      if (m < p.m && n < p.n) p.c[m * p.ldc + n] = c[i][j];
    }
  }
}

template <int R, int TYPE, bool A_BY_K, bool B_BY_N>
void launch(const gemm_problem &p, const char *const where, cuda_queue *const queue) {
  constexpr int T = SIDE * R;
  const dim3 grid((unsigned)((p.n + T - 1) / T), (unsigned)((p.m + T - 1) / T));
  CU_LAUNCH(queue, where, (product_kernel<R, TYPE, A_BY_K, B_BY_N>), grid, dim3(THREADS),
            4 * DEPTH * (T + PAD) * sizeof(float), p);
}

template <int R, int TYPE>
void launch_type(const gemm_problem &p, const char *const where, cuda_queue *const queue) {
  if (p.b_by_n)
    launch<R, TYPE, false, true>(p, where, queue);
  else
    launch<R, TYPE, false, false>(p, where, queue);
}

template <int R> void launch_tile(const gemm_problem &p, const char *const where, cuda_queue *const queue) {
  if (p.a_by_k) { /* a weight's gradient: both are float32 and run over k */
    if (p.b_type != DTYPE_F32 || p.b_by_n)
      cu_latch(queue, cudaErrorInvalidValue, where);
    else
      launch<R, DTYPE_F32, true, false>(p, where, queue);
    return;
  }
  CU_WEIGHT_SWITCH(queue, where, p.b_type, TYPE, launch_type<R, TYPE>(p, where, queue))
}

/* The largest tile of which there is about one for each multiprocessor: below that more of them run at once
 * when tiles are smaller. */
cuda_tile choose(const gemm_problem &p) {
  const auto tiles = [&](const int64_t t) { return ((p.m + t - 1) / t) * ((p.n + t - 1) / t); };
  return tiles(128) >= 96 ? CUDA_TILE_128 : tiles(64) >= 96 ? CUDA_TILE_64 : CUDA_TILE_32;
}

void matmul(const void *const args, cuda_queue *const queue) {
  const gemm_problem p = cuda_matmul_problem((const op_matmul_args *)args);
  cuda_gemm_strict(&p, CUDA_TILE_AUTO, "matmul", queue);
}

void matmul_dx(const void *const args, cuda_queue *const queue) {
  const gemm_problem p = cuda_matmul_dx_problem((const op_matmul_args *)args);
  cuda_gemm_strict(&p, CUDA_TILE_AUTO, "matmul_dx", queue);
}

void matmul_dw(const void *const args, cuda_queue *const queue) {
  const gemm_problem p = cuda_matmul_dw_problem((const op_matmul_dw_args *)args);
  cuda_gemm_strict(&p, CUDA_TILE_AUTO, "matmul_dw", queue);
}

} // namespace

void cuda_gemm_strict(const gemm_problem *const p, const cuda_tile tile, const char *const where,
                      cuda_queue *const queue) {
  if (p->m < 1 || p->n < 1) return;
  switch (tile == CUDA_TILE_AUTO ? choose(*p) : tile) {
  case CUDA_TILE_128:
    launch_tile<8>(*p, where, queue);
    break;
  case CUDA_TILE_64:
    launch_tile<4>(*p, where, queue);
    break;
  default:
    launch_tile<2>(*p, where, queue);
    break;
  }
}

void cuda_register_matmul(cuda_launch *table[OP_COUNT]) {
  table[OP_MATMUL] = matmul;
  table[OP_MATMUL_DX] = matmul_dx;
  table[OP_MATMUL_DW] = matmul_dw;
}
