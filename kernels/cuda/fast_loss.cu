/* linear_cross_entropy, fast: the phases of loss.cu, its kernel for the rows, and products by cuBLAS. The slab of dequantized
 * weights stands behind the logits. */
#include "kernels/cuda/device.cuh"

#include "kernels/cuda/gemm.cuh"

namespace {

void linear_cross_entropy(const void *const args, cuda_queue *const queue) {
  const op_linear_cross_entropy_args *const a = (const op_linear_cross_entropy_args *)args;
  cuda_loss_chunks(a, cuda_gemm_fast,
                   (float *)((char *)a->logits + loss_cuda_logits_bytes(a->chunk, a->n_vocab)), queue);
}

} // namespace

void cuda_register_fast_loss(cuda_launch *table[OP_COUNT]) {
  table[OP_LINEAR_CROSS_ENTROPY] = linear_cross_entropy;
}
