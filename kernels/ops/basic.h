/* Operands of the row and elementwise ops: get_rows, set_rows, add, scale, dropout.
 * Matrices are [n, rows]: n contiguous floats a row, rows at a stride of ld* floats. */
#ifndef STINT_KERNELS_OPS_BASIC_H
#define STINT_KERNELS_OPS_BASIC_H

#include "kernels/ops/op.h"
#include "kernels/ops/step.h"

/* get_rows: src0 table (any weight type) [n, n_table], src1 index I32[rows] (each in [0, n_table): the data
 * loader has checked); dst0 y F32[n, rows]. */
typedef struct op_get_rows_args {
  const void *table;
  dtype table_type;
  size_t table_row_bytes;
  const int32_t *index;
  float *y;
  int64_t ldy;
  int64_t n, rows;
} op_get_rows_args;

/* get_rows_back: src0 dy F32[n, rows], src1 index; dst0 dtable F32[n, n_table] (inout): dtable[index[r]] += dy[r],
 * r ascending (rule 4). Workers own columns. */
typedef struct op_get_rows_back_args {
  const float *dy;
  int64_t lddy;
  const int32_t *index;
  float *dtable;
  int64_t ld_table;
  int64_t n, rows;
} op_get_rows_back_args;

/* set_rows: src0 x F32[n, rows], src1 index I32[rows] (distinct); dst0 table F32[n, n_table] (inout):
 * table[index[r]] = x[r]. */
typedef struct op_set_rows_args {
  const float *x;
  int64_t ldx;
  const int32_t *index;
  float *table;
  int64_t ld_table;
  int64_t n, rows;
} op_set_rows_args;

/* add: y = a + b. */
typedef struct op_add_args {
  const float *a, *b;
  float *y;
  int64_t lda, ldb, ldy, n, rows;
} op_add_args;

/* scale: y = s*x. */
typedef struct op_scale_args {
  const float *x;
  float *y;
  int64_t ldx, ldy, n, rows;
  float s;
} op_scale_args;

/* dropout: src0 x, src1 step block (I32[16]); y = x * (keep ? 1/(1-p) : 0). keep of element (row, i) is drawn from
 * Philox4x32-10 (Salmon et al. 2011) with key = seed and counter words (low and high half of element index / 4, tensor
 * number, low half of step), word (element index % 4), where element index = (row_offset + row)*n + i: so the draws do
 * not depend on how a step is cut into microbatches, and the backward is the same op on dy.
 * keep <=> word >= floor(p * 2^32). */
typedef struct op_dropout_args {
  const float *x;
  float *y;
  int64_t ldx, ldy, n, rows;
  float p;
  uint32_t tensor;
  const step_block *step;
} op_dropout_args;

#endif
