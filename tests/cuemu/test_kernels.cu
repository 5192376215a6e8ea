/* Kernels for the emulation's own tests: some right, one for each kind of defect. See test_cuemu.cpp. */
#include "tests/cuemu/test_kernels.h"

#define CU_TEST(kernel, grid, block, shared, ...)                                                            \
  cuemu::submit_launch(#kernel, kernel, grid, block, shared, stream, __VA_ARGS__)

namespace {

/* ---- right ---- */

__global__ void row_sum(float *const y, const float *const x,
                        const int n) { /* rule 3: 32 lanes, then the fold */
  const int lane = (int)threadIdx.x;
  float s = 0;
  for (int i = lane; i < n; i += 32) s += x[(size_t)blockIdx.x * n + i];
  for (int h = 16; h; h >>= 1) s += __shfl_down_sync(0xffffffffu, s, h);
  if (lane == 0) y[blockIdx.x] = s;
}

__global__ void __launch_bounds__(64) reverse(float *const y, const float *const x) {
  __shared__ float tile[64];
  CU_DYN_SMEM(float, copy);
  const int i = (int)threadIdx.x;
  tile[i] = x[i];
  __syncthreads();
  copy[i] = tile[63 - i];
  __syncthreads();
  const int all = __syncthreads_and(copy[63 - i] == x[i]), n = __syncthreads_count(i < 10);
  y[i] = all && n == 10 ? copy[i] : -1.0f;
}

__global__ void warp_exchange(float *const y) { /* shared memory within a warp, ordered by __syncwarp alone */
  __shared__ float4 cell[64];
  const unsigned i = threadIdx.x;
  cell[i] = make_float4((float)i, 0, 0, 0);
  __syncwarp();
  y[i] = cell[i ^ 1].x + (float)__popc(__ballot_sync(0xffffffffu, i & 1)) +
         __shfl_xor_sync(0xffffffffu, 1.0f, 8, 16);
}

/* ---- wrong ---- */

__global__ void divergent_barrier(float *const y) {
  if (threadIdx.x < 32) {
    y[threadIdx.x] = 1;
    __syncthreads();
  } else {
    y[threadIdx.x] = 2;
    __syncthreads();
  }
}
__global__ void exit_before_barrier(float *const y) {
  if (threadIdx.x >= 40) return;
  y[threadIdx.x] = 1;
  __syncthreads();
}
__global__ void half_warp_shuffle(float *const y) {
  float v = (float)threadIdx.x;
  if (threadIdx.x < 16) v += __shfl_xor_sync(0xffffffffu, v, 1);
  y[threadIdx.x] = v;
}
__global__ void lane_outside_mask(float *const y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_down_sync(0xffffu, 1.0f, 8);
}
__global__ void mixed_waits(float *const y) {
  if (threadIdx.x < 16)
    __syncthreads();
  else
    y[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1.0f, 1);
}
__global__ void missing_barrier(float *const y) {
  __shared__ float s[64];
  s[threadIdx.x] = (float)threadIdx.x;
  y[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void
missing_second_barrier(float *const y) { /* the tile is overwritten while others still read it */
  CU_DYN_SMEM(float, s);
  for (int k = 0; k < 2; k++) {
    s[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = s[(threadIdx.x + 1) & 63];
  }
}
__global__ void missing_syncwarp(float *const y) {
  __shared__ float s[32];
  s[threadIdx.x] = (float)threadIdx.x;
  y[threadIdx.x] = s[threadIdx.x ^ 1];
}
__global__ void uninitialised_shared(float *const y) {
  __shared__ float s[64];
  if (threadIdx.x) s[threadIdx.x] = 0;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}
__global__ void uninitialised_dynamic(float *const y) {
  CU_DYN_SMEM(float, s);
  y[threadIdx.x] = s[threadIdx.x];
}
__global__ void outside_static_shared(float *const y, const int k) {
  __shared__ float s[64];
  __shared__ float t[64];
  s[threadIdx.x + k] = 1;
  t[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x] + t[threadIdx.x];
}
__global__ void outside_dynamic_shared(float *const y, const int k) {
  CU_DYN_SMEM(float, s);
  s[threadIdx.x + k] = 1;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}
__global__ void fill(float *const y, const int n) {
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = (float)i;
}
__global__ void copy(float *const y, const float *const x, const int n) {
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = x[i];
}
__global__ void misaligned(float *const y) {
  if (threadIdx.x == 0) *(float4 *)(y + 1) = make_float4(0, 0, 0, 0);
}
__global__ void early_async(float *const y,
                            const float *const x) { /* reads a copy that it has not waited for */
  __shared__ float s[32];
  cuemu::async_copy(&s[threadIdx.x], x + threadIdx.x, 4);
  y[threadIdx.x] = s[threadIdx.x];
  cuemu::async_copy_wait();
}
__global__ void order_dependent(float *const y, const float *const x) { atomicAdd(y, x[threadIdx.x]); }
template <int N> __global__ void template_static(float *const y) {
  __shared__ float s[N];
  s[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = s[N - 1 - threadIdx.x];
}

} // namespace

void test_launch(const test_kernel which, float *const y, const float *const x, const int n,
                 const cudaStream_t stream) {
  switch (which) {
  case ROW_SUM:
    CU_TEST(row_sum, 3, 32, 0, y, x, n);
    break;
  case REVERSE:
    CU_TEST(reverse, 1, 64, 256, y, x);
    break;
  case WARP_EXCHANGE:
    CU_TEST(warp_exchange, 1, 64, 0, y);
    break;
  case FILL:
    CU_TEST(fill, dim3((unsigned)(n + 63) / 64), 64, 0, y, n);
    break;
  case COPY:
    CU_TEST(copy, dim3((unsigned)(n + 63) / 64), 64, 0, y, x, n);
    break;
  case DIVERGENT_BARRIER:
    CU_TEST(divergent_barrier, 1, 64, 0, y);
    break;
  case EXIT_BEFORE_BARRIER:
    CU_TEST(exit_before_barrier, 1, 64, 0, y);
    break;
  case HALF_WARP_SHUFFLE:
    CU_TEST(half_warp_shuffle, 1, 32, 0, y);
    break;
  case LANE_OUTSIDE_MASK:
    CU_TEST(lane_outside_mask, 1, 32, 0, y);
    break;
  case MIXED_WAITS:
    CU_TEST(mixed_waits, 1, 32, 0, y);
    break;
  case MISSING_BARRIER:
    CU_TEST(missing_barrier, 1, 64, 0, y);
    break;
  case MISSING_SECOND_BARRIER:
    CU_TEST(missing_second_barrier, 1, 64, 256, y);
    break;
  case MISSING_SYNCWARP:
    CU_TEST(missing_syncwarp, 1, 32, 0, y);
    break;
  case UNINITIALISED_SHARED:
    CU_TEST(uninitialised_shared, 1, 64, 0, y);
    break;
  case UNINITIALISED_DYNAMIC:
    CU_TEST(uninitialised_dynamic, 1, 64, 256, y);
    break;
  case OUTSIDE_STATIC_SHARED:
    CU_TEST(outside_static_shared, 1, 64, 0, y, 1);
    break;
  case OUTSIDE_DYNAMIC_SHARED:
    CU_TEST(outside_dynamic_shared, 1, 64, 256, y, 1);
    break;
  case MISALIGNED:
    CU_TEST(misaligned, 1, 32, 0, y);
    break;
  case EARLY_ASYNC:
    CU_TEST(early_async, 1, 32, 0, y, x);
    break;
  case ORDER_DEPENDENT:
    CU_TEST(order_dependent, 1, 64, 0, y, x);
    break;
  case TEMPLATE_STATIC:
    CU_TEST(template_static<32>, 1, 32, 0, y);
    break;
  case TOO_MUCH_SHARED:
    CU_TEST(uninitialised_dynamic, 1, 64, 64 << 10, y);
    break;
  case TOO_LARGE_A_BLOCK:
    CU_TEST(fill, 1, 2048, 0, y, 1);
    break;
  case N_TEST_KERNELS:
    break;
  }
}
