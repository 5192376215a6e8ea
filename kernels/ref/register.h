/* The plain reference kernels, one registration a family: every rule of numerics.md written as it reads. */
#ifndef STINT_KERNELS_REF_REGISTER_H
#define STINT_KERNELS_REF_REGISTER_H

#include "kernels/ops/op.h"

void ref_register_basic(op_kernel *table[OP_COUNT]);
void ref_register_norm(op_kernel *table[OP_COUNT]);
void ref_register_position(op_kernel *table[OP_COUNT]);
void ref_register_gated(op_kernel *table[OP_COUNT]);
void ref_register_matmul(op_kernel *table[OP_COUNT]);
void ref_register_attention(op_kernel *table[OP_COUNT]);
void ref_register_loss(op_kernel *table[OP_COUNT]);
void ref_register_step(op_kernel *table[OP_COUNT]);

#endif
