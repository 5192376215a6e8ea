/* zero, grad_norm, adamw, sgd on CUDA, with the bits of kernels/ref.
 *
 * grad_norm: a warp sums a block of 4096 (rule 3), then one thread folds the block sums in index order (rule 4), out of
 * shared memory that its block fills ahead of it. What changes from step to step is read from the step block by
 * the kernels, so that a captured launch stays right. */
#include "kernels/cuda/device.cuh"

#include "kernels/ops/step.h"

struct zero_map {
  op_zero_args a;
  struct value {};
  __device__ __forceinline__ value load(int64_t, int64_t) const { return {}; }
  __device__ __forceinline__ void store(int64_t, const int64_t i, value) const { a.x[i] = 0.0f; }
};

static void zero(const void *const args, cuda_queue *const queue) {
  const op_zero_args *const a = (const op_zero_args *)args;
  cu_map(queue, "zero", zero_map{*a}, a->n, 1);
}

enum {
  NORM_WARPS = 4,
  NORM_EACH = 16,
  FOLD_THREADS = 256,
  FOLD_EACH = 8,
  FOLD_TILE = FOLD_THREADS * FOLD_EACH
};

__global__ void __launch_bounds__(NORM_WARPS *CU_WARP)
    grad_norm_blocks_kernel(const op_grad_norm_args a, const int64_t blocks) {
  const int lane = cu_lane();
  for (int64_t b = (int64_t)blockIdx.x * NORM_WARPS + cu_warp(); b < blocks;
       b += (int64_t)gridDim.x * NORM_WARPS) {
    const float *const g = a.g + b * GRAD_NORM_BLOCK;
    const int64_t left = a.n - b * GRAD_NORM_BLOCK;
    const int count = left < GRAD_NORM_BLOCK ? (int)left : (int)GRAD_NORM_BLOCK;
    float sum = 0.0f;
    for (int first = lane; first < count; first += NORM_EACH * CU_WARP) {
      float v[NORM_EACH]; /* past the end: zero, which leaves the sum of squares as it is */
      CU_UNROLL
      for (int k = 0; k < NORM_EACH; k++) v[k] = first + k * CU_WARP < count ? g[first + k * CU_WARP] : 0.0f;
      CU_UNROLL
      for (int k = 0; k < NORM_EACH; k++) sum = m_fma(v[k], v[k], sum);
    }
    const float total = cu_fold(sum);
    if (lane == 0) a.partial[b] = total;
  }
}

__global__ void __launch_bounds__(FOLD_THREADS)
    grad_norm_fold_kernel(const op_grad_norm_args a, const int64_t blocks) {
  __shared__ float part[FOLD_TILE];
  float sum = 0.0f; /* sums of squares have no negative zero: 0 + the first is the first */
  for (int64_t first = 0; first < blocks; first += FOLD_TILE) {
    const int count = blocks - first < FOLD_TILE ? (int)(blocks - first) : (int)FOLD_TILE;
    for (int i = (int)threadIdx.x; i < count; i += FOLD_THREADS) part[i] = a.partial[first + i];
    __syncthreads();
    if (threadIdx.x == 0)
      for (int i = 0; i < count; i++) sum = sum + part[i];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    step_block *const s = a.step;
    const float norm = m_sqrt(sum), clip = s->clip, ratio = clip / norm; /* NaN stays NaN */
    s->grad_norm = norm;
    s->clip_factor = clip > 0.0f ? (ratio >= 1.0f ? 1.0f : ratio) : 1.0f;
  }
}

static void grad_norm(const void *const args, cuda_queue *const queue) {
  const op_grad_norm_args *const a = (const op_grad_norm_args *)args;
  const int64_t blocks = (a->n + GRAD_NORM_BLOCK - 1) / GRAD_NORM_BLOCK;
  CU_LAUNCH(queue, "grad_norm", grad_norm_blocks_kernel, dim3(cu_blocks(blocks, NORM_WARPS)),
            dim3(NORM_WARPS * CU_WARP), 0, *a, blocks);
  CU_LAUNCH(queue, "grad_norm", grad_norm_fold_kernel, dim3(1), dim3(FOLD_THREADS), 0, *a, blocks);
}

struct adamw_map {
  op_adamw_args a;
  struct value {
    float g, p, m, v;
  };
  __device__ __forceinline__ value load(int64_t, const int64_t i) const {
    return {a.g[i], a.p[i], a.m[i], a.v[i]};
  }
  __device__ __forceinline__ void store(int64_t, const int64_t i, const value old) const {
    const step_block *const s = a.step;
    const float g = old.g * s->clip_factor;
    const float m = m_fma(1.0f - a.beta1, g - old.m, old.m);
    const float v = m_fma(1.0f - a.beta2, g * g - old.v, old.v);
    const float p = old.p - (s->lr * a.weight_decay) * old.p;
    a.p[i] = p - (s->lr * (m / s->bias1)) / (m_sqrt(v / s->bias2) + a.eps);
    a.m[i] = m;
    a.v[i] = v;
  }
};

static void adamw(const void *const args, cuda_queue *const queue) {
  const op_adamw_args *const a = (const op_adamw_args *)args;
  cu_map(queue, "adamw", adamw_map{*a}, a->n, 1);
}

struct sgd_map {
  op_sgd_args a;
  struct value {
    float g, p, m;
  };
  __device__ __forceinline__ value load(int64_t, const int64_t i) const {
    return {a.g[i], a.p[i], a.m ? a.m[i] : 0.0f};
  }
  __device__ __forceinline__ void store(int64_t, const int64_t i, const value old) const {
    const step_block *const s = a.step;
    const float g = m_fma(a.weight_decay, old.p, old.g * s->clip_factor);
    const float m = a.m ? m_fma(a.momentum, old.m, g) : g;
    a.p[i] = old.p - s->lr * m;
    if (a.m) a.m[i] = m;
  }
};

static void sgd(const void *const args, cuda_queue *const queue) {
  const op_sgd_args *const a = (const op_sgd_args *)args;
  cu_map(queue, "sgd", sgd_map{*a}, a->n, 1);
}

extern "C" void cuda_register_step(cuda_launch *table[OP_COUNT]) {
  table[OP_ZERO] = zero;
  table[OP_GRAD_NORM] = grad_norm;
  table[OP_ADAMW] = adamw;
  table[OP_SGD] = sgd;
}
