/* What every CUDA kernel file includes: one source for nvcc and for the emulation on the host (STINT_CUEMU).
 *
 * - CU_LAUNCH enqueues a kernel on a cuda_queue's stream and latches the first failure there.
 * - A warp is the 32 lanes of rule 3 (docs/numerics.md): cu_fold ends a row's sum with the same additions as
 *   kernels/ref.
 * - cu_weight<TYPE>(row, i) is element i of a row of weights, with the bits of dequantize_row.
 * - cu_map runs an elementwise op over a matrix of rows at a stride.
 *
 * Files are compiled with -fmad=false: the only fused multiply-adds are those that m_fma writes. */
#ifndef STINT_KERNELS_CUDA_DEVICE_CUH
#define STINT_KERNELS_CUDA_DEVICE_CUH

#include <stdint.h>
#include <string.h>

#ifdef STINT_CUEMU
#include "tests/cuemu/cuemu.h"
#define CU_UNROLL
#else
#include <cuda_runtime.h>
#define CU_UNROLL _Pragma("unroll")
#define CU_DYN_SMEM(T, name)                                                                                 \
  extern __shared__ __align__(16) unsigned char cu_dyn_smem_[];                                              \
  T *const name = reinterpret_cast<T *>(cu_dyn_smem_)
#endif

#include "kernels/cuda/launch.h"
#include "kernels/math/fma.h"
#include "kernels/math/math.h"

#define CU_FN   static __device__ __forceinline__
#define CU_FULL 0xffffffffu /* every lane of a warp */
enum { CU_WARP = 32 };

/* ---- launches ---------------------------------------------------------------------------------------------- */

static inline void cu_latch(cuda_queue *const queue, const cudaError_t error, const char *const where) {
  if (error == cudaSuccess || queue->error) return;
  queue->error = (int)error;
  queue->where = where;
}

/* CU_LAUNCH(queue, "op", kernel, grid, block, shared bytes, arguments...): nothing more is enqueued after a failure.
 * A kernel that is a template with several arguments goes in parentheses. CU_SHARED(queue, "op", kernel, bytes)
 * before it where more than 48 KiB of dynamic shared memory are wanted. */
#undef CU_LAUNCH
#ifdef STINT_CUEMU
#define CU_ENQUEUE_(kernel, grid, block, shared, stream, ...)                                                \
  cuemu::submit_launch(#kernel, kernel, grid, block, shared, stream, __VA_ARGS__)
#else
#define CU_ENQUEUE_(kernel, grid, block, shared, stream, ...)                                                \
  kernel<<<(grid), (block), (shared), (cudaStream_t)(stream)>>>(__VA_ARGS__)
#endif
#define CU_LAUNCH(queue, where, kernel, grid, block, shared, ...)                                            \
  do {                                                                                                       \
    if (!(queue)->error) {                                                                                   \
      CU_ENQUEUE_(kernel, grid, block, shared, (queue)->stream, __VA_ARGS__);                                \
      cu_latch(queue, cudaGetLastError(), where);                                                            \
    }                                                                                                        \
  } while (0)
#define CU_SHARED(queue, where, kernel, bytes)                                                               \
  cu_latch(queue,                                                                                            \
           cudaFuncSetAttribute((const void *)(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,         \
                                (int)(bytes)),                                                               \
           where)

/* Blocks in x for `units` of work, `each` units a block, within the limit of the grid (2^31 - 1): a kernel loops
 * from blockIdx.x by gridDim.x where units may be more. */
static inline unsigned cu_blocks(const int64_t units, const int64_t each) {
  const int64_t blocks = (units + each - 1) / each;
  return (unsigned)(blocks < 1 ? 1 : blocks < 0x7fffffff ? blocks : 0x7fffffff);
}

/* Threads for a row of n: whole warps, at most `most`. */
static inline unsigned cu_threads(const int64_t n, const int64_t most) {
  const int64_t threads = (n + CU_WARP - 1) / CU_WARP * CU_WARP;
  return (unsigned)(threads < most ? threads : most);
}

/* ---- warps ------------------------------------------------------------------------------------------------- */

CU_FN int cu_lane(void) {
  return (int)(threadIdx.x & (CU_WARP - 1));
} /* of a block that is one row of threads */
CU_FN int cu_warp(void) { return (int)(threadIdx.x / CU_WARP); }

/* Rule 3's end, lanes 16, 8, 4, 2, 1 apart. Addition commutes, so that every lane holds the sum that lane 0 would. */
CU_FN float cu_fold(float v) {
  CU_UNROLL
  for (int h = CU_WARP / 2; h; h /= 2) v = v + __shfl_xor_sync(CU_FULL, v, h);
  return v;
}

/* The largest of the lanes (which of equal zeros, is open). */
CU_FN float cu_fold_max(float v) {
  CU_UNROLL
  for (int h = CU_WARP / 2; h; h /= 2) {
    const float o = __shfl_xor_sync(CU_FULL, v, h);
    v = o > v ? o : v;
  }
  return v;
}

/* ---- weights ----------------------------------------------------------------------------------------------- */

/* A half as its float: fractions of 2^-24, or the exponent moved; NaN becomes quiet. No branch. */
CU_FN float cu_f16(const uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, fraction = h & 1023u;
  const uint32_t small = m_bits((float)fraction * 0x1p-24f);
  const uint32_t large = 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0u);
  const uint32_t normal = (exponent + 112) << 23 | fraction << 13;
  return m_float(sign | (exponent == 0 ? small : exponent == 31 ? large : normal));
}

/* 16 bits at an even address (blocks of 18, 20 and 34 bytes are even). */
CU_FN uint16_t cu_u16(const unsigned char *const p) { return *reinterpret_cast<const uint16_t *>(p); }

/* Block types: the bytes of a block of 32, and element j of 32 of the block at p. */
template <int TYPE> struct cu_block;
template <> struct cu_block<DTYPE_Q8_0> {
  enum { BYTES = 34 };
  CU_FN float at(const unsigned char *const p, const int j) {
    return (float)(int8_t)p[2 + j] * cu_f16(cu_u16(p));
  }
};
template <> struct cu_block<DTYPE_Q4_0> {
  enum { BYTES = 18 };
  CU_FN float at(const unsigned char *const p, const int j) {
    const int q = p[2 + (j & 15)] >> (j & 16 ? 4 : 0) & 15;
    return (float)(q - 8) * cu_f16(cu_u16(p));
  }
};
template <> struct cu_block<DTYPE_Q4_1> {
  enum { BYTES = 20 };
  CU_FN float at(const unsigned char *const p, const int j) {
    const int q = p[4 + (j & 15)] >> (j & 16 ? 4 : 0) & 15;
    return (float)q * cu_f16(cu_u16(p)) + cu_f16(cu_u16(p + 2));
  }
};

/* Element i of a row, TYPE a weight's. */
template <int TYPE> CU_FN float cu_weight(const void *const row, const int64_t i) {
  return cu_block<TYPE>::at((const unsigned char *)row + i / 32 * cu_block<TYPE>::BYTES, (int)(i % 32));
}
template <> __device__ __forceinline__ float cu_weight<DTYPE_F32>(const void *const row, const int64_t i) {
  return ((const float *)row)[i];
}
template <> __device__ __forceinline__ float cu_weight<DTYPE_F16>(const void *const row, const int64_t i) {
  return cu_f16(((const uint16_t *)row)[i]);
}
template <> __device__ __forceinline__ float cu_weight<DTYPE_BF16>(const void *const row, const int64_t i) {
  return m_float((uint32_t)((const uint16_t *)row)[i] << 16);
}

/* CU_WEIGHT_SWITCH(type, T, statement): the statement with the constant T the type, for each weight's type. A type that is not
 * in the list latches an error that names the op: the shape rule has refused it before. */
#define CU_WEIGHT_CASE_(value, T, ...)                                                                       \
  case value: {                                                                                              \
    constexpr int T = value;                                                                                 \
    __VA_ARGS__;                                                                                             \
  } break;
#define CU_WEIGHT_SWITCH(queue, where, type, T, ...)                                                         \
  switch ((int)(type)) {                                                                                     \
    CU_WEIGHT_CASE_(DTYPE_F32, T, __VA_ARGS__)                                                               \
    CU_WEIGHT_CASE_(DTYPE_F16, T, __VA_ARGS__)                                                               \
    CU_WEIGHT_CASE_(DTYPE_BF16, T, __VA_ARGS__)                                                              \
    CU_WEIGHT_CASE_(DTYPE_Q8_0, T, __VA_ARGS__)                                                              \
    CU_WEIGHT_CASE_(DTYPE_Q4_0, T, __VA_ARGS__)                                                              \
    CU_WEIGHT_CASE_(DTYPE_Q4_1, T, __VA_ARGS__)                                                              \
  default:                                                                                                   \
    cu_latch(queue, cudaErrorInvalidValue, where);                                                           \
  }

/* ---- elementwise ------------------------------------------------------------------------------------------- */

/* An elementwise op is a struct with a type `value`, value load(row, i) and void store(row, i, value), called once for each
 * element by one thread. A thread loads CU_EACH elements before it stores the first, so the compiler needs no
 * promise about aliases to have several loads under way; an element may be overwritten in place. */
enum { CU_EACH = 4, CU_MAP_THREADS = 256 };

template <class OP>
__global__ void __launch_bounds__(CU_MAP_THREADS)
    cu_map_kernel(const OP op, const int64_t n, const int64_t rows, const int64_t tiles) {
  for (int64_t unit = blockIdx.x; unit < rows * tiles; unit += gridDim.x) {
    const int64_t row = tiles == 1 ? unit : unit / tiles;
    const int64_t first = (unit - row * tiles) * (CU_EACH * blockDim.x) + threadIdx.x;
    typename OP::value v[CU_EACH];
    CU_UNROLL
    for (int k = 0; k < CU_EACH; k++)
      if (first + k * (int64_t)blockDim.x < n) v[k] = op.load(row, first + k * (int64_t)blockDim.x);
    CU_UNROLL
    for (int k = 0; k < CU_EACH; k++)
      if (first + k * (int64_t)blockDim.x < n) op.store(row, first + k * (int64_t)blockDim.x, v[k]);
  }
}

/* Rows that all follow each other without gaps are one long row: `contiguous` says that every operand's do. */
static inline void cu_join(int64_t *const n, int64_t *const rows, const bool contiguous) {
  if (!contiguous) return;
  *n *= *rows;
  *rows = 1;
}

template <class OP>
static inline void cu_map(cuda_queue *const queue, const char *const where, const OP &op, const int64_t n,
                          const int64_t rows) {
  const unsigned threads = cu_threads((n + CU_EACH - 1) / CU_EACH, CU_MAP_THREADS);
  const int64_t tiles = (n + CU_EACH * (int64_t)threads - 1) / (CU_EACH * (int64_t)threads);
  CU_LAUNCH(queue, where, cu_map_kernel<OP>, dim3(cu_blocks(rows * tiles, 1)), dim3(threads), 0, op, n, rows,
            tiles);
}

#endif
