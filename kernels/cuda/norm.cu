/* rms_norm and its gradients on CUDA, with the bits of kernels/ref.
 *
 * A warp is a row's 32 lanes (rule 3): each lane adds its own elements, and writes no others, so that a row may be written
 * on top of what it was summed from. The norm weight's gradient is a chain over rows for each column (rule 4): a thread a
 * column, in blocks of one warp, so that the columns spread over the device; the rows of a group are loaded before the chain
 * goes through them. */
#include "kernels/cuda/device.cuh"

#include "kernels/ops/norm.h"

enum { NORM_WARPS = 4, NORM_EACH = 8, DW_EACH = 16 };

__global__ void __launch_bounds__(NORM_WARPS *CU_WARP) rms_norm_kernel(const op_rms_norm_args a) {
  const int lane = cu_lane();
  for (int64_t row = (int64_t)blockIdx.x * NORM_WARPS + cu_warp(); row < a.rows;
       row += (int64_t)gridDim.x * NORM_WARPS) {
    const float *const x = a.x + row * a.ldx;
    float *const y = a.y + row * a.ldy;
    float sum = 0.0f;
    for (int64_t first = lane; first < a.n; first += NORM_EACH * CU_WARP) {
      float v[NORM_EACH]; /* past the end: zero, which leaves the sum of squares as it is */
      CU_UNROLL
      for (int k = 0; k < NORM_EACH; k++) v[k] = first + k * CU_WARP < a.n ? x[first + k * CU_WARP] : 0.0f;
      CU_UNROLL
      for (int k = 0; k < NORM_EACH; k++) sum = m_fma(v[k], v[k], sum);
    }
    const float r = m_rsqrt(cu_fold(sum) / (float)a.n + a.eps);
    for (int64_t first = lane; first < a.n; first += NORM_EACH * CU_WARP) {
      float v[NORM_EACH];
      CU_UNROLL
      for (int k = 0; k < NORM_EACH; k++) v[k] = first + k * CU_WARP < a.n ? x[first + k * CU_WARP] : 0.0f;
      CU_UNROLL
      for (int k = 0; k < NORM_EACH; k++)
        if (first + k * CU_WARP < a.n) y[first + k * CU_WARP] = (v[k] * r) * a.w[first + k * CU_WARP];
    }
    if (lane == 0) a.r[row] = r;
  }
}

static void rms_norm(const void *const args, cuda_queue *const queue) {
  const op_rms_norm_args *const a = (const op_rms_norm_args *)args;
  CU_LAUNCH(queue, "rms_norm", rms_norm_kernel, dim3(cu_blocks(a->rows, NORM_WARPS)),
            dim3(NORM_WARPS * CU_WARP), 0, *a);
}

__global__ void __launch_bounds__(NORM_WARPS *CU_WARP) rms_norm_dx_kernel(const op_rms_norm_dx_args a) {
  const int lane = cu_lane();
  for (int64_t row = (int64_t)blockIdx.x * NORM_WARPS + cu_warp(); row < a.rows;
       row += (int64_t)gridDim.x * NORM_WARPS) {
    const float *const dy = a.dy + row * a.lddy, *const x = a.x + row * a.ldx, r = a.r[row];
    const float *const c0 = a.c0 ? a.c0 + row * a.ldc0 : nullptr;
    float *const dx = a.dx + row * a.lddx;
    float sum = 0.0f;
    for (int64_t i = lane; i < a.n; i += CU_WARP) sum = m_fma(dy[i] * a.w[i], x[i], sum);
    const float q = ((r * r) * cu_fold(sum)) / (float)a.n;
    for (int64_t first = lane; first < a.n; first += 4 * CU_WARP) {
      float g[4], v[4], c[4];
      CU_UNROLL
      for (int k = 0; k < 4; k++) {
        const int64_t i = first + k * CU_WARP;
        const bool in = i < a.n;
        g[k] = in ? dy[i] * a.w[i] : 0.0f;
        v[k] = in ? x[i] : 0.0f;
        c[k] = in && c0 ? c0[i] : 0.0f;
      }
      CU_UNROLL
      for (int k = 0; k < 4; k++) {
        const float d = r * (g[k] - v[k] * q);
        if (first + k * CU_WARP < a.n) dx[first + k * CU_WARP] = c0 ? c[k] + d : d;
      }
    }
  }
}

static void rms_norm_dx(const void *const args, cuda_queue *const queue) {
  const op_rms_norm_dx_args *const a = (const op_rms_norm_dx_args *)args;
  CU_LAUNCH(queue, "rms_norm_dx", rms_norm_dx_kernel, dim3(cu_blocks(a->rows, NORM_WARPS)),
            dim3(NORM_WARPS * CU_WARP), 0, *a);
}

__global__ void __launch_bounds__(CU_WARP) rms_norm_dw_kernel(const op_rms_norm_dw_args a) {
  for (int64_t i = (int64_t)blockIdx.x * CU_WARP + threadIdx.x; i < a.n; i += (int64_t)gridDim.x * CU_WARP) {
    float sum = a.dw[i];
    int64_t row = 0;
    for (; row + DW_EACH <= a.rows; row += DW_EACH) {
      float g[DW_EACH], v[DW_EACH];
      CU_UNROLL
      for (int k = 0; k < DW_EACH; k++) {
        g[k] = a.dy[(row + k) * a.lddy + i];
        v[k] = a.x[(row + k) * a.ldx + i] * a.r[row + k];
      }
      CU_UNROLL
      for (int k = 0; k < DW_EACH; k++) sum = m_fma(g[k], v[k], sum);
    }
    for (; row < a.rows; row++) sum = m_fma(a.dy[row * a.lddy + i], a.x[row * a.ldx + i] * a.r[row], sum);
    a.dw[i] = sum;
  }
}

static void rms_norm_dw(const void *const args, cuda_queue *const queue) {
  const op_rms_norm_dw_args *const a = (const op_rms_norm_dw_args *)args;
  CU_LAUNCH(queue, "rms_norm_dw", rms_norm_dw_kernel, dim3(cu_blocks(a->n, CU_WARP)), dim3(CU_WARP), 0, *a);
}

extern "C" void cuda_register_norm(cuda_launch *table[OP_COUNT]) {
  table[OP_RMS_NORM] = rms_norm;
  table[OP_RMS_NORM_DX] = rms_norm_dx;
  table[OP_RMS_NORM_DW] = rms_norm_dw;
}
