/* The vector path's entry: every family in turn. */
#include "kernels/cpu/register.h"

void PATH_NAME(cpu_register)(op_kernel *table[OP_COUNT]);

void PATH_NAME(cpu_register)(op_kernel *table[OP_COUNT]) {
  PATH_NAME(register_basic)(table);
  PATH_NAME(register_norm)(table);
  PATH_NAME(register_position)(table);
  PATH_NAME(register_gated)(table);
  PATH_NAME(register_matmul)(table);
  PATH_NAME(register_attention)(table);
  PATH_NAME(register_loss)(table);
  PATH_NAME(register_step)(table);
}
