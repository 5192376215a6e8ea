/* The three matrix products, fast: cuBLAS, products in TF32 on tensor cores, sums in float32.
 *
 * Everything here lies by rows; to cuBLAS, which reads by columns, that is the transpose, so C^T = B^T A^T is what is asked. F32
 * weights are read where they lie. Others become float32 a slab of rows at a time (F16 and BF16 lose nothing by that, nor by
 * TF32), and slabs over the reduced index accumulate through beta. Reproducible on one device: one stream,
 * one workspace, no atomics (cuBLAS's default), slabs that depend on the shape alone. */
#include "kernels/cuda/device.cuh"

#ifndef STINT_CUEMU
#include <cublas_v2.h>
#endif

#include "kernels/cuda/gemm.cuh"
#include "kernels/ops/fast_slab.h"

namespace {

enum { THREADS = 256, MOST_BLOCKS = 8192 };

template <int TYPE>
__global__ void __launch_bounds__(THREADS)
    dequantize_kernel(const unsigned char *const w, const size_t row_bytes, const int64_t rows,
                      const int64_t k, float *const slab, const int64_t ld) {
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < rows * k;
       i += (int64_t)gridDim.x * THREADS) {
    const int64_t row = i / k, e = i % k;
    slab[row * ld + e] = cu_weight<TYPE>(w + (size_t)row * row_bytes, e);
  }
}

__global__ void __launch_bounds__(THREADS)
    copy_kernel(const float *const from, const int64_t ldfrom, const int64_t rows, const int64_t n,
                float *const to, const int64_t ldto) {
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < rows * n;
       i += (int64_t)gridDim.x * THREADS)
    to[i / n * ldto + i % n] = from[i / n * ldfrom + i % n];
}

dim3 blocks(const int64_t elements) {
  const int64_t b = (elements + THREADS - 1) / THREADS;
  return dim3((unsigned)(b < MOST_BLOCKS ? b : (int64_t)MOST_BLOCKS));
}

template <int TYPE>
void dequantize_type(const unsigned char *const w, const size_t row_bytes, const int64_t rows,
                     const int64_t k, float *const slab, const char *const where, cuda_queue *const queue) {
  CU_LAUNCH(queue, where, (dequantize_kernel<TYPE>), blocks(rows * k), dim3(THREADS), 0, w, row_bytes, rows,
            k, slab, fast_slab_ld(k));
}

void dequantize(const dtype type, const unsigned char *const w, const size_t row_bytes, const int64_t rows,
                const int64_t k, float *const slab, const char *const where, cuda_queue *const queue) {
  CU_WEIGHT_SWITCH(queue, where, type, TYPE, dequantize_type<TYPE>(w, row_bytes, rows, k, slab, where, queue))
}

/* What cuBLAS takes for a matrix of no columns too. */
int leading(const int64_t ld) { return (int)(ld < 1 ? 1 : ld); }

/* C = A B + beta C, B float32 with `ldb` floats between stored rows. */
void product(const gemm_problem &p, const float *const b, const int64_t ldb, const float beta,
             const char *const where, cuda_queue *const queue) {
  static const float one = 1.0f;
  if (queue->error) return;
  if (p.m > INT32_MAX || p.n > INT32_MAX || p.k > INT32_MAX || p.lda > INT32_MAX || ldb > INT32_MAX ||
      p.ldc > INT32_MAX) {
    cu_latch(queue, cudaErrorInvalidValue, where);
    return;
  }
  const cublasStatus_t status = cublasGemmEx(
      (cublasHandle_t)queue->blas, p.b_by_n ? CUBLAS_OP_T : CUBLAS_OP_N, p.a_by_k ? CUBLAS_OP_T : CUBLAS_OP_N,
      (int)p.n, (int)p.m, (int)p.k, &one, b, CUDA_R_32F, leading(ldb), p.a, CUDA_R_32F, leading(p.lda), &beta,
      p.c, CUDA_R_32F, leading(p.ldc), CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT);
  if (status != CUBLAS_STATUS_SUCCESS) {
    queue->error = 1000 + (int)status;
    queue->where = where;
  }
}

/* The part of p whose stored rows of B are [first, first + rows). */
gemm_problem part(const gemm_problem &p, const int64_t first, const int64_t rows) {
  gemm_problem q = p;
  if (p.b_by_n) {
    q.n = rows;
    q.c = p.c + first;
  } else {
    q.k = rows;
    q.a = p.a + (p.a_by_k ? first * p.lda : first);
  }
  return q;
}

/* The slab stands at the start of the op's workspace. */
void matmul(const void *const args, cuda_queue *const queue) {
  const op_matmul_args *const a = (const op_matmul_args *)args;
  const gemm_problem p = cuda_matmul_problem(a);
  cuda_gemm_fast(&p, (float *)a->work, "matmul", queue);
}

void matmul_dx(const void *const args, cuda_queue *const queue) {
  const op_matmul_args *const a = (const op_matmul_args *)args;
  const gemm_problem p = cuda_matmul_dx_problem(a);
  cuda_gemm_fast(&p, (float *)a->work, "matmul_dx", queue);
}

void matmul_dw(const void *const args, cuda_queue *const queue) {
  const gemm_problem p = cuda_matmul_dw_problem((const op_matmul_dw_args *)args);
  cuda_gemm_fast(&p, NULL, "matmul_dw", queue);
}

} // namespace

void cuda_gemm_fast(const gemm_problem *const p, float *const slab, const char *const where,
                    cuda_queue *const queue) {
  if (p->m < 1 || p->n < 1) return;
  if (p->c0 && p->c0 != p->c)
    CU_LAUNCH(queue, where, copy_kernel, blocks(p->m * p->n), dim3(THREADS), 0, p->c0, p->ldc0, p->m, p->n,
              p->c, p->ldc);
  const float beta = p->c0 ? 1.0f : 0.0f;
  if (p->b_type == DTYPE_F32) {
    product(*p, (const float *)p->b, (int64_t)(p->b_row_bytes / 4), beta, where, queue);
    return;
  }
  const int64_t n_stored = p->b_by_n ? p->n : p->k, row = p->b_by_n ? p->k : p->n,
                most = fast_slab_rows(row, n_stored);
  for (int64_t first = 0; first < n_stored; first += most) {
    const int64_t rows = n_stored - first < most ? n_stored - first : most;
    dequantize(p->b_type, (const unsigned char *)p->b + (size_t)first * p->b_row_bytes, p->b_row_bytes, rows,
               row, slab, where, queue);
    product(part(*p, first, rows), slab, fast_slab_ld(row), p->b_by_n || first == 0 ? beta : 1.0f, where,
            queue);
  }
}

void cuda_register_fast_matmul(cuda_launch *table[OP_COUNT]) {
  table[OP_MATMUL] = matmul;
  table[OP_MATMUL_DX] = matmul_dx;
  table[OP_MATMUL_DW] = matmul_dw;
}
