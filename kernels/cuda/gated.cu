/* swiglu and its gradient on CUDA, elementwise, with the bits of kernels/ref. */
#include "kernels/cuda/device.cuh"

#include "kernels/ops/gated.h"

struct swiglu_map {
  op_swiglu_args a;
  struct value {
    float gate, up;
  };
  __device__ __forceinline__ value load(const int64_t row, const int64_t i) const {
    return {a.gate[row * a.ldg + i], a.up[row * a.ldu + i]};
  }
  __device__ __forceinline__ void store(const int64_t row, const int64_t i, const value v) const {
    a.h[row * a.ldh + i] = m_silu(v.gate) * v.up;
  }
};

static void swiglu(const void *const args, cuda_queue *const queue) {
  const op_swiglu_args *const a = (const op_swiglu_args *)args;
  int64_t n = a->n, rows = a->rows;
  cu_join(&n, &rows, a->ldg == n && a->ldu == n && a->ldh == n);
  cu_map(queue, "swiglu", swiglu_map{*a}, n, rows);
}

struct swiglu_back_map {
  op_swiglu_back_args a;
  struct value {
    float dh, gate, up;
  };
  __device__ __forceinline__ value load(const int64_t row, const int64_t i) const {
    return {a.dh[row * a.lddh + i], a.gate[row * a.ldg + i], a.up[row * a.ldu + i]};
  }
  __device__ __forceinline__ void store(const int64_t row, const int64_t i, const value v) const {
    const float s = m_sigmoid(v.gate);
    a.dup[row * a.lddu + i] = v.dh * (v.gate * s);
    a.dgate[row * a.lddg + i] = (v.dh * v.up) * (s * m_fma(v.gate, 1.0f - s, 1.0f));
  }
};

static void swiglu_back(const void *const args, cuda_queue *const queue) {
  const op_swiglu_back_args *const a = (const op_swiglu_back_args *)args;
  int64_t n = a->n, rows = a->rows;
  cu_join(&n, &rows, a->lddh == n && a->ldg == n && a->ldu == n && a->lddg == n && a->lddu == n);
  cu_map(queue, "swiglu_back", swiglu_back_map{*a}, n, rows);
}

extern "C" void cuda_register_gated(cuda_launch *table[OP_COUNT]) {
  table[OP_SWIGLU] = swiglu;
  table[OP_SWIGLU_BACK] = swiglu_back;
}
