/* Every kernel file of the vector paths enters its kernels here; one call a file, named by path. */
#ifndef STINT_KERNELS_CPU_REGISTER_H
#define STINT_KERNELS_CPU_REGISTER_H

#include "kernels/cpu/vec.h"
#include "kernels/ops/op.h"

void PATH_NAME(register_basic)(op_kernel *table[OP_COUNT]);
void PATH_NAME(register_norm)(op_kernel *table[OP_COUNT]);
void PATH_NAME(register_position)(op_kernel *table[OP_COUNT]);
void PATH_NAME(register_gated)(op_kernel *table[OP_COUNT]);
void PATH_NAME(register_matmul)(op_kernel *table[OP_COUNT]);
void PATH_NAME(register_attention)(op_kernel *table[OP_COUNT]);
void PATH_NAME(register_loss)(op_kernel *table[OP_COUNT]);
void PATH_NAME(register_step)(op_kernel *table[OP_COUNT]);

#endif
