/* The three matrix products, plainly: an output element is one fma chain over the reduced index, ascending
 * (rule 2). W is dequantized by dequantize_row, a block of 32 elements at a time. Workers split the rows of the
 * output. */
#include "kernels/math/fma.h"
#include "kernels/ops/matmul.h"
#include "kernels/quant/dtype.h"
#include "kernels/ref/register.h"

enum { STEP = 32 }; /* a multiple of every weight type's block */

static int64_t first_of(const int64_t n, const int worker, const int workers) { return n * worker / workers; }

/* W[j][i .. i+count) for count <= STEP; i is a multiple of STEP. */
static void weights(const op_matmul_args *const a, const int64_t j, const int64_t i, const int64_t count,
                    float out[STEP]) {
  const unsigned char *const row = (const unsigned char *)a->w + (size_t)j * a->w_row_bytes;
  dequantize_row(a->w_type, row + dtype_bytes(a->w_type, i), out, count);
}

static void matmul(const void *const args, const int phase, const int worker, const int workers) {
  const op_matmul_args *const a = args;
  const int64_t last = first_of(a->rows, worker + 1, workers);
  (void)phase;
  for (int64_t r = first_of(a->rows, worker, workers); r < last; r++) {
    for (int64_t j = 0; j < a->n; j++) {
      float c = a->c0 ? a->c0[r * a->ldc0 + j] : 0.0f;
      for (int64_t i = 0; i < a->k; i += STEP) {
        const int64_t count = a->k - i < STEP ? a->k - i : STEP;
        float w[STEP];
        weights(a, j, i, count, w);
        for (int64_t l = 0; l < count; l++) c = m_fma(a->x[r * a->ldx + i + l], w[l], c);
      }
      a->y[r * a->ldy + j] = c;
    }
  }
}

static void matmul_dx(const void *const args, const int phase, const int worker, const int workers) {
  const op_matmul_args *const a = args;
  const int64_t last = first_of(a->rows, worker + 1, workers);
  (void)phase;
  for (int64_t r = first_of(a->rows, worker, workers); r < last; r++) {
    for (int64_t i = 0; i < a->k; i += STEP) {
      const int64_t count = a->k - i < STEP ? a->k - i : STEP;
      float c[STEP], w[STEP];
      for (int64_t l = 0; l < count; l++) c[l] = a->c0 ? a->c0[r * a->ldc0 + i + l] : 0.0f;
      for (int64_t j = 0; j < a->n; j++) {
        weights(a, j, i, count, w);
        for (int64_t l = 0; l < count; l++) c[l] = m_fma(a->x[r * a->ldx + j], w[l], c[l]);
      }
      for (int64_t l = 0; l < count; l++) a->y[r * a->ldy + i + l] = c[l];
    }
  }
}

static void matmul_dw(const void *const args, const int phase, const int worker, const int workers) {
  const op_matmul_dw_args *const a = args;
  const int64_t last = first_of(a->n, worker + 1, workers);
  (void)phase;
  for (int64_t j = first_of(a->n, worker, workers); j < last; j++) {
    for (int64_t i = 0; i < a->k; i++) {
      float c = a->dw[j * a->lddw + i];
      for (int64_t r = 0; r < a->rows; r++) c = m_fma(a->dy[r * a->lddy + j], a->x[r * a->ldx + i], c);
      a->dw[j * a->lddw + i] = c;
    }
  }
}

void ref_register_matmul(op_kernel *table[OP_COUNT]) {
  table[OP_MATMUL] = matmul;
  table[OP_MATMUL_DX] = matmul_dx;
  table[OP_MATMUL_DW] = matmul_dw;
}
