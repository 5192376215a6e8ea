/* Vector kernels of the elementwise and scatter ops. (get_rows and set_rows are the reference's: they copy, or
 * dequantize a few rows a step.) Loops are plain and become vectors; every element's arithmetic is the reference's. */
#include "kernels/ops/basic.h"

#include "kernels/cpu/register.h"
#include "kernels/math/philox.h"
#include "kernels/ops/split.h"

static void get_rows_back(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_get_rows_back_args *const a = args;
  const op_range own = op_split_floats(a->n, worker, workers);
  for (int64_t r = 0; r < a->rows; r++) {
    float *const row = a->dtable + a->index[r] * a->ld_table;
    const float *const dy = a->dy + r * a->lddy;
    VEC_LOOP
    for (int64_t i = own.first; i < own.last; i++) row[i] = row[i] + dy[i];
  }
}

static void add(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_add_args *const p = args;
  const op_range own = op_split(p->rows, worker, workers);
  for (int64_t r = own.first; r < own.last; r++) {
    const float *const a = p->a + r * p->lda, *const b = p->b + r * p->ldb;
    float *const y = p->y + r * p->ldy;
    VEC_LOOP
    for (int64_t i = 0; i < p->n; i++) y[i] = a[i] + b[i];
  }
}

static void scale(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_scale_args *const a = args;
  const op_range own = op_split(a->rows, worker, workers);
  const float s = a->s;
  for (int64_t r = own.first; r < own.last; r++) {
    const float *const x = a->x + r * a->ldx;
    float *const y = a->y + r * a->ldy;
    VEC_LOOP
    for (int64_t i = 0; i < a->n; i++) y[i] = s * x[i];
  }
}

/* The words of DRAW_GROUPS counters at a time, in element order, so that the generator's rounds become vectors; then
 * the elements that these words decide. */
enum { DRAW_GROUPS = 64 };

static void draw(uint32_t words[4 * DRAW_GROUPS], const uint64_t first, const uint64_t seed,
                 const uint32_t tensor, const uint32_t step) {
  VEC_LOOP
  for (int j = 0; j < DRAW_GROUPS; j++) {
    const uint64_t group = first + (uint64_t)j;
    const uint32_t counter[4] = {(uint32_t)group, (uint32_t)(group >> 32), tensor, step};
    uint32_t out[4];
    philox4x32((uint32_t)seed, (uint32_t)(seed >> 32), counter, out);
    for (int k = 0; k < 4; k++) words[4 * j + k] = out[k];
  }
}

static void dropout(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_dropout_args *const a = args;
  const step_block *const s = a->step;
  const op_range own = op_split(a->rows, worker, workers);
  const uint32_t threshold = (uint32_t)((double)a->p * 4294967296.0);
  const float kept = 1.0f / (1.0f - a->p);
  uint32_t words[4 * DRAW_GROUPS];
  for (int64_t r = own.first; r < own.last; r++) {
    const uint64_t e0 = (s->row_offset + (uint64_t)r) * (uint64_t)a->n;
    const float *const x = a->x + r * a->ldx;
    float *const y = a->y + r * a->ldy;
    for (int64_t i = 0; i < a->n;) {
      const uint64_t first = (e0 + (uint64_t)i) / 4;
      const int64_t past =
          (int64_t)((first + DRAW_GROUPS) * 4 - e0); /* the first element of the next draws */
      const int64_t end = past < a->n ? past : a->n;
      draw(words, first, s->seed, a->tensor, (uint32_t)s->step);
      const uint32_t *const own_words = words + (e0 + (uint64_t)i - first * 4);
      const int64_t count = end - i;
      VEC_LOOP
      for (int64_t j = 0; j < count; j++) y[i + j] = x[i + j] * (own_words[j] >= threshold ? kept : 0.0f);
      i = end;
    }
  }
}

void PATH_NAME(register_basic)(op_kernel *table[OP_COUNT]) {
  table[OP_GET_ROWS_BACK] = get_rows_back;
  table[OP_ADD] = add;
  table[OP_SCALE] = scale;
  table[OP_DROPOUT] = dropout;
}
