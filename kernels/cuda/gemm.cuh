/* The one matrix product that the matmul and loss launches enqueue, strict or fast: kernels/cpu/gemm_problem.h says what is
 * asked, with device addresses in it. Both forms start from c0 (0 when NULL); c0 may lie on c, nothing else may. Nothing
 * is enqueued when m or n is 0. */
#ifndef STINT_KERNELS_CUDA_GEMM_CUH
#define STINT_KERNELS_CUDA_GEMM_CUH

#include "kernels/cpu/gemm_problem.h"
#include "kernels/cuda/launch.h"
#include "kernels/ops/loss.h"
#include "kernels/ops/matmul.h"

/* How much of C a block computes: a choice of time, never of a bit. */
typedef enum cuda_tile { CUDA_TILE_32, CUDA_TILE_64, CUDA_TILE_128, CUDA_TILE_AUTO } cuda_tile;

/* Rule 2 to the bit. An A by k (the gradient of a weight) wants a B of float32 whose rows run over k. */
void cuda_gemm_strict(const gemm_problem *p, cuda_tile tile, const char *where, cuda_queue *queue);

/* cuBLAS: TF32 products, float32 sums. A B of another type than F32 is dequantized into `slab`, as many of its rows at a
 * time as kernels/ops/fast_slab.h says. */
void cuda_gemm_fast(const gemm_problem *p, float *slab, const char *where, cuda_queue *queue);

/* How a launch that is made of products is told which form it is to use. */
typedef void cuda_gemm(const gemm_problem *p, float *slab, const char *where, cuda_queue *queue);

/* linear_cross_entropy, chunk after chunk, by that form of product. */
void cuda_loss_chunks(const op_linear_cross_entropy_args *a, cuda_gemm *gemm, float *slab, cuda_queue *queue);

static inline gemm_problem cuda_problem(const int64_t m, const int64_t n, const int64_t k) {
  gemm_problem p = {};
  p.m = m, p.n = n, p.k = k;
  p.b_type = DTYPE_F32;
  return p;
}

static inline void cuda_problem_a(gemm_problem *const p, const float *const a, const int64_t lda,
                                  const bool by_k) {
  p->a = a, p->lda = lda, p->a_by_k = by_k;
}

static inline void cuda_problem_b(gemm_problem *const p, const void *const b, const dtype type,
                                  const size_t row_bytes, const bool by_n) {
  p->b = b, p->b_type = type, p->b_row_bytes = row_bytes, p->b_by_n = by_n;
}

static inline void cuda_problem_c(gemm_problem *const p, const float *const c0, const int64_t ldc0,
                                  float *const c, const int64_t ldc) {
  p->c0 = c0, p->ldc0 = ldc0, p->c = c, p->ldc = ldc;
}

static inline gemm_problem cuda_matmul_problem(const op_matmul_args *const a) {
  gemm_problem p = cuda_problem(a->rows, a->n, a->k);
  cuda_problem_a(&p, a->x, a->ldx, false);
  cuda_problem_b(&p, a->w, a->w_type, a->w_row_bytes, true);
  cuda_problem_c(&p, a->c0, a->ldc0, a->y, a->ldy);
  return p;
}

static inline gemm_problem cuda_matmul_dx_problem(const op_matmul_args *const a) {
  gemm_problem p = cuda_problem(a->rows, a->k, a->n);
  cuda_problem_a(&p, a->x, a->ldx, false);
  cuda_problem_b(&p, a->w, a->w_type, a->w_row_bytes, false);
  cuda_problem_c(&p, a->c0, a->ldc0, a->y, a->ldy);
  return p;
}

static inline gemm_problem cuda_matmul_dw_problem(const op_matmul_dw_args *const a) {
  gemm_problem p = cuda_problem(a->n, a->k, a->rows);
  cuda_problem_a(&p, a->dy, a->lddy, true);
  cuda_problem_b(&p, a->x, DTYPE_F32, (size_t)a->ldx * 4, false);
  cuda_problem_c(&p, a->dw, a->lddw, a->dw, a->lddw);
  return p;
}

#endif
