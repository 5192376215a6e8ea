/* What a CUDA kernel file gives: a launch function an op.
 *
 * launch(args, queue) enqueues everything that the op does, phases in order, on the queue's stream: `args` is the operand
 * struct of the CPU kernels with device addresses in it, read on the host during the call. A launch allocates nothing,
 * waits for nothing and may be captured into a graph; the first failure is latched in the queue and told by
 * whoever enqueues. What changes from step to step is read by kernels from the step block, never from `args`.
 *
 * Strict launches give the bits of kernels/ref. Fast ones (tensor cores, cuBLAS) overwrite table entries where they are
 * faster; what they need beyond the strict ones is in the op's workspace rule for BACKEND_CUDA_FAST. */
#ifndef STINT_KERNELS_CUDA_LAUNCH_H
#define STINT_KERNELS_CUDA_LAUNCH_H

#include "kernels/ops/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_queue {
  void *stream;      /* cudaStream_t */
  void *blas;        /* cublasHandle_t; NULL in strict mode */
  int error;         /* the first cudaError_t (or 1000 + cublasStatus_t) of a launch; 0: none */
  const char *where; /* the op that met it */
} cuda_queue;

typedef void cuda_launch(const void *args, cuda_queue *queue);

/* Enter the strict launches of each family. */
void cuda_register_basic(cuda_launch *table[OP_COUNT]);
void cuda_register_norm(cuda_launch *table[OP_COUNT]);
void cuda_register_position(cuda_launch *table[OP_COUNT]);
void cuda_register_gated(cuda_launch *table[OP_COUNT]);
void cuda_register_step(cuda_launch *table[OP_COUNT]);
void cuda_register_matmul(cuda_launch *table[OP_COUNT]);
void cuda_register_attention(cuda_launch *table[OP_COUNT]);
void cuda_register_loss(cuda_launch *table[OP_COUNT]);
/* Overwrite with the fast ones. */
void cuda_register_fast_matmul(cuda_launch *table[OP_COUNT]);
void cuda_register_fast_attention(cuda_launch *table[OP_COUNT]);
void cuda_register_fast_loss(cuda_launch *table[OP_COUNT]);

#ifdef __cplusplus
}
#endif

#endif
