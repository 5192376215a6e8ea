/* linear_cross_entropy, strict: the order of phases of kernels/ops/loss.h, a chunk of rows after the other.
 *
 * The products are those of matmul.cu (B continues W's chain through the logits in memory). The rows of a chunk are a block
 * each: the maximum in any order; the sum by the first warp, whose lanes are the lanes of rule 3, over values of exp that all
 * threads compute into shared memory a piece ahead; dz in place of the logits. */
#include "kernels/cuda/device.cuh"

#include "kernels/cuda/gemm.cuh"
#include "kernels/math/math.h"

namespace {

typedef op_linear_cross_entropy_args loss_args;

enum { THREADS = 256, WARPS = THREADS / 32, EACH = 4, PIECE = EACH * THREADS };

/* The largest of `mine`, for every thread; a NaN is passed over, as by the reference. */
__device__ __forceinline__ float block_max(const float mine, float *const of_warp) {
  const float most = cu_fold_max(mine);
  if (cu_lane() == 0) of_warp[cu_warp()] = most;
  __syncthreads();
  float m = of_warp[0];
  for (int w = 1; w < WARPS; w++) m = of_warp[w] > m ? of_warp[w] : m;
  return m;
}

/* Row r0 + blockIdx.x: maximum, sum, loss, and dz over the logits. */
__global__ void __launch_bounds__(THREADS)
    rows_kernel(const loss_args a, const int64_t r0, const int64_t ld) {
  CU_DYN_SMEM(float, shared); /* two pieces; the maximum of each warp; the sum */
  float *const of_warp = shared + 2 * PIECE, *const sum = of_warp + WARPS;
  const int64_t r = r0 + blockIdx.x, n = a.n_vocab;
  float *const z = a.logits + (int64_t)blockIdx.x * ld;
  const float weight = a.weight[r];
  if (weight == 0) { /* the whole block */
    if (threadIdx.x == 0) a.loss[r] = 0;
    for (int64_t j = threadIdx.x; j < n; j += THREADS) z[j] = 0;
    return;
  }
  float m = -m_inf();
  for (int64_t j = threadIdx.x; j < n; j += THREADS) m = z[j] > m ? z[j] : m;
  m = block_max(m, of_warp) + 0.0f;
  float lane = 0;
  int now = 0;
  for (int64_t j0 = 0; j0 < n; j0 += PIECE, now ^= 1) {
    float *const piece = shared + now * PIECE;
    const int count = n - j0 < PIECE ? (int)(n - j0) : PIECE;
    for (int i = (int)threadIdx.x; i < count; i += THREADS) piece[i] = m_exp(z[j0 + i] - m);
    __syncthreads();
    if (threadIdx.x < 32)
      for (int i = (int)threadIdx.x; i < count; i += 32) lane = lane + piece[i];
  }
  if (threadIdx.x < 32) {
    lane = cu_fold(lane);
    if (threadIdx.x == 0) {
      *sum = lane;
      a.loss[r] = weight * ((m + m_log(lane)) - z[a.target[r]]);
    }
  }
  __syncthreads();
  const float e = *sum, factor = weight * a.step->loss_scale;
  const int64_t target = a.target[r];
  for (int64_t j = threadIdx.x; j < n; j += THREADS)
    z[j] = (m_exp(z[j] - m) / e - (j == target ? 1.0f : 0.0f)) * factor;
}

const char NAME[] = "linear_cross_entropy";

void logits(const loss_args *const a, const int64_t r0, const int64_t rows, cuda_gemm *const gemm,
            float *const slab, cuda_queue *const queue) {
  const int64_t ld = loss_ld(a->n_vocab);
  gemm_problem p = cuda_problem(rows, a->n_vocab, a->n);
  cuda_problem_a(&p, a->x + r0 * a->ldx, a->ldx, false);
  cuda_problem_b(&p, a->w, a->w_type, a->w_row_bytes, true);
  cuda_problem_c(&p, NULL, 0, a->logits, ld);
  gemm(&p, slab, NAME, queue);
  if (!a->u) return;
  p.k = a->r;
  cuda_problem_a(&p, a->u + r0 * a->ldu, a->ldu, false);
  cuda_problem_b(&p, a->b, DTYPE_F32, (size_t)a->ldb * 4, true);
  cuda_problem_c(&p, a->logits, ld, a->logits, ld);
  gemm(&p, slab, NAME, queue);
}

/* grad += dz^T in, for dW (in is x) and dB (in is u). */
void weights(const loss_args *const a, const int64_t rows, const int64_t n, const float *const in,
             const int64_t ldin, float *const grad, const int64_t ldgrad, cuda_gemm *const gemm,
             float *const slab, cuda_queue *const queue) {
  gemm_problem p = cuda_problem(a->n_vocab, n, rows);
  cuda_problem_a(&p, a->logits, loss_ld(a->n_vocab), true);
  cuda_problem_b(&p, in, DTYPE_F32, (size_t)ldin * 4, false);
  cuda_problem_c(&p, grad, ldgrad, grad, ldgrad);
  gemm(&p, slab, NAME, queue);
}

/* out = dz m, for dx (m is W) and du (m is B). */
void inputs(const loss_args *const a, const int64_t rows, const int64_t n, const void *const m,
            const dtype type, const size_t row_bytes, float *const out, const int64_t ldout,
            cuda_gemm *const gemm, float *const slab, cuda_queue *const queue) {
  gemm_problem p = cuda_problem(rows, n, a->n_vocab);
  cuda_problem_a(&p, a->logits, loss_ld(a->n_vocab), false);
  cuda_problem_b(&p, m, type, row_bytes, false);
  cuda_problem_c(&p, NULL, 0, out, ldout);
  gemm(&p, slab, NAME, queue);
}

void strict_gemm(const gemm_problem *const p, float *const slab, const char *const where,
                 cuda_queue *const queue) {
  (void)slab;
  cuda_gemm_strict(p, CUDA_TILE_AUTO, where, queue);
}

void linear_cross_entropy(const void *const args, cuda_queue *const queue) {
  cuda_loss_chunks((const loss_args *)args, strict_gemm, NULL, queue);
}

} // namespace

void cuda_loss_chunks(const op_linear_cross_entropy_args *const a, cuda_gemm *const gemm, float *const slab,
                      cuda_queue *const queue) {
  for (int64_t r0 = 0; r0 < a->rows; r0 += a->chunk) {
    const int64_t rows = a->rows - r0 < a->chunk ? a->rows - r0 : a->chunk;
    logits(a, r0, rows, gemm, slab, queue);
    CU_LAUNCH(queue, NAME, rows_kernel, dim3((unsigned)rows), dim3(THREADS),
              (2 * PIECE + WARPS + 1) * sizeof(float), *a, r0, loss_ld(a->n_vocab));
    if (a->dw) weights(a, rows, a->n, a->x + r0 * a->ldx, a->ldx, a->dw, a->lddw, gemm, slab, queue);
    if (a->db) weights(a, rows, a->r, a->u + r0 * a->ldu, a->ldu, a->db, a->lddb, gemm, slab, queue);
    if (a->dx)
      inputs(a, rows, a->n, a->w, a->w_type, a->w_row_bytes, a->dx + r0 * a->lddx, a->lddx, gemm, slab,
             queue);
    if (a->du)
      inputs(a, rows, a->r, a->b, DTYPE_F32, (size_t)a->ldb * 4, a->du + r0 * a->lddu, a->lddu, gemm, slab,
             queue);
  }
}

void cuda_register_loss(cuda_launch *table[OP_COUNT]) {
  table[OP_LINEAR_CROSS_ENTROPY] = linear_cross_entropy;
}
