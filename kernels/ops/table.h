/* The rows, family by family: each family file defines the rows of its ops, table.c lays them out. */
#ifndef STINT_KERNELS_OPS_TABLE_H
#define STINT_KERNELS_OPS_TABLE_H

#include "kernels/ops/op.h"

#define X(id, name) extern const op_row op_row_##name;
OP_LIST(X)
#undef X

#endif
