/* Fills the table of CUDA launches, families in the order of the op table, fast ones last. */
#include "kernels/cuda/register.h"

void cuda_launches(const bool fast, cuda_launch *table[OP_COUNT]) {
  for (int i = 0; i < OP_COUNT; i++) table[i] = nullptr;
  cuda_register_basic(table);
  cuda_register_norm(table);
  cuda_register_position(table);
  cuda_register_matmul(table);
  cuda_register_attention(table);
  cuda_register_gated(table);
  cuda_register_loss(table);
  cuda_register_step(table);
  if (!fast) return;
  cuda_register_fast_matmul(table);
  cuda_register_fast_attention(table);
  cuda_register_fast_loss(table);
}
