/* Plain reference of the row and elementwise ops. */
#include "kernels/ops/basic.h"

#include <string.h>

#include "kernels/math/philox.h"
#include "kernels/ops/split.h"
#include "kernels/ref/register.h"

static void get_rows_ref(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_get_rows_args *const a = args;
  const op_range own = op_split(a->rows, worker, workers);
  for (int64_t r = own.first; r < own.last; r++)
    dequantize_row(a->table_type, (const char *)a->table + (size_t)a->index[r] * a->table_row_bytes,
                   a->y + r * a->ldy, a->n);
}

static void get_rows_back_ref(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_get_rows_back_args *const a = args;
  const op_range own = op_split_floats(a->n, worker, workers);
  for (int64_t r = 0; r < a->rows; r++) {
    float *const row = a->dtable + a->index[r] * a->ld_table;
    for (int64_t i = own.first; i < own.last; i++) row[i] = row[i] + a->dy[r * a->lddy + i];
  }
}

static void set_rows_ref(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_set_rows_args *const a = args;
  const op_range own = op_split(a->rows, worker, workers);
  for (int64_t r = own.first; r < own.last; r++)
    memcpy(a->table + a->index[r] * a->ld_table, a->x + r * a->ldx, (size_t)a->n * sizeof(float));
}

static void add_ref(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_add_args *const a = args;
  const op_range own = op_split(a->rows, worker, workers);
  for (int64_t r = own.first; r < own.last; r++)
    for (int64_t i = 0; i < a->n; i++) a->y[r * a->ldy + i] = a->a[r * a->lda + i] + a->b[r * a->ldb + i];
}

static void scale_ref(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_scale_args *const a = args;
  const op_range own = op_split(a->rows, worker, workers);
  for (int64_t r = own.first; r < own.last; r++)
    for (int64_t i = 0; i < a->n; i++) a->y[r * a->ldy + i] = a->s * a->x[r * a->ldx + i];
}

static void dropout_ref(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_dropout_args *const a = args;
  const step_block *const s = a->step;
  const op_range own = op_split(a->rows, worker, workers);
  const uint32_t threshold = (uint32_t)((double)a->p * 4294967296.0);
  const float kept = 1.0f / (1.0f - a->p);
  for (int64_t r = own.first; r < own.last; r++)
    for (int64_t i = 0; i < a->n; i++) {
      const uint64_t e = (s->row_offset + (uint64_t)r) * (uint64_t)a->n + (uint64_t)i;
      const uint32_t counter[4] = {(uint32_t)(e / 4), (uint32_t)(e / 4 >> 32), a->tensor, (uint32_t)s->step};
      uint32_t words[4];
      philox4x32((uint32_t)s->seed, (uint32_t)(s->seed >> 32), counter, words);
      a->y[r * a->ldy + i] = a->x[r * a->ldx + i] * (words[e % 4] >= threshold ? kept : 0.0f);
    }
}

void ref_register_basic(op_kernel *table[OP_COUNT]) {
  table[OP_GET_ROWS] = get_rows_ref;
  table[OP_GET_ROWS_BACK] = get_rows_back_ref;
  table[OP_SET_ROWS] = set_rows_ref;
  table[OP_ADD] = add_ref;
  table[OP_SCALE] = scale_ref;
  table[OP_DROPOUT] = dropout_ref;
}
