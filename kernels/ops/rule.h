/* What the shape rules of the rows say again and again. */
#ifndef STINT_KERNELS_OPS_RULE_H
#define STINT_KERNELS_OPS_RULE_H

#include "kernels/ops/op.h"
#include "kernels/ops/step.h"

/* F32 [n, rows], n and rows of 1 or more, each row contiguous, rows at one stride. */
static inline bool rule_matrix(const op_tensor *const t) {
  return t->type == DTYPE_F32 && t->ne[0] >= 1 && op_rows(t) >= 1 && op_rows_strided(t);
}

static inline bool rule_matrix_of(const op_tensor *const t, const int64_t n, const int64_t rows) {
  return rule_matrix(t) && t->ne[0] == n && op_rows(t) == rows;
}

/* One contiguous row of n. */
static inline bool rule_vector_of(const op_tensor *const t, const dtype type, const int64_t n) {
  return t->type == type && t->ne[0] == n && op_rows(t) == 1 && op_contiguous(t);
}

static inline bool rule_step(const op_tensor *const t) {
  return rule_vector_of(t, DTYPE_I32, (int64_t)(sizeof(step_block) / 4));
}

#endif
