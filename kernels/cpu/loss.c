/* linear_cross_entropy on one vector path: the products are the gemm, the loss is three passes over a row of logits.
 *
 * Workers never share an element: columns of the vocabulary (logits), rows of the chunk (maximum, sum, loss, dz), rows of
 * dW and dB, columns of dx and rows of du. W is dequantized inside the product's packing, a worker only its own
 * part. The row's sum keeps rule 3's 32 lanes; its loops are 32 independent elements wide and become vectors. */
#include "kernels/ops/loss.h"

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/register.h"
#include "kernels/math/math.h"

typedef op_linear_cross_entropy_args loss_args;

static void logits(const loss_args *const a, const int64_t r0, const int64_t r1, const int64_t j0,
                   const int64_t j1, void *const scratch) {
  const int64_t ld = loss_ld(a->n_vocab);
  const gemm_problem head = {.m = r1 - r0,
                             .n = a->n_vocab,
                             .k = a->n,
                             .a = a->x + r0 * a->ldx,
                             .lda = a->ldx,
                             .b = a->w,
                             .b_type = a->w_type,
                             .b_row_bytes = a->w_row_bytes,
                             .b_by_n = true,
                             .c = a->logits,
                             .ldc = ld};
  PATH_NAME(gemm_columns)(&head, j0, j1, scratch);
  if (!a->u) return;
  const gemm_problem adapter = {.m = r1 - r0,
                                .n = a->n_vocab,
                                .k = a->r,
                                .a = a->u + r0 * a->ldu,
                                .lda = a->ldu,
                                .b = a->b,
                                .b_type = DTYPE_F32,
                                .b_row_bytes = 4 * (size_t)a->ldb,
                                .b_by_n = true,
                                .c0 = a->logits,
                                .ldc0 = ld,
                                .c = a->logits,
                                .ldc = ld};
  PATH_NAME(gemm_columns)(&adapter, j0, j1, scratch);
}

enum { LANES = 32 };

static float row_max(const float *const z, const int64_t n) {
  float lane[LANES], m = -__builtin_inff();
  for (int l = 0; l < LANES; l++) lane[l] = m;
  const int64_t whole = n / LANES * LANES;
  for (int64_t j = 0; j < whole; j += LANES)
    for (int l = 0; l < LANES; l++) lane[l] = z[j + l] > lane[l] ? z[j + l] : lane[l];
  for (int64_t j = whole; j < n; j++) m = z[j] > m ? z[j] : m;
  for (int l = 0; l < LANES; l++) m = lane[l] > m ? lane[l] : m;
  return m + 0.0f;
}

/* z becomes exp(z - m); the sum of it. */
static float row_exp(float *const z, const int64_t n, const float m) {
  float lane[LANES] = {0};
  const int64_t whole = n / LANES * LANES;
  for (int64_t j = 0; j < whole; j += LANES)
    for (int l = 0; l < LANES; l++) {
      const float p = m_exp(z[j + l] - m);
      z[j + l] = p;
      lane[l] = lane[l] + p;
    }
  for (int64_t j = whole; j < n; j++) {
    z[j] = m_exp(z[j] - m);
    lane[j - whole] = lane[j - whole] + z[j];
  }
  return fold32_sum(lane);
}

static void row(const loss_args *const a, const int64_t r, float *const z) {
  const int64_t n = a->n_vocab;
  if (a->weight[r] == 0) {
    a->loss[r] = 0;
    for (int64_t j = 0; j < n; j++) z[j] = 0;
    return;
  }
  const float m = row_max(z, n), z_target = z[a->target[r]];
  const float e = row_exp(z, n, m), factor = a->weight[r] * a->step->loss_scale;
  const float target = (z[a->target[r]] / e - 1.0f) * factor;
  a->loss[r] = a->weight[r] * ((m + m_log(e)) - z_target);
  for (int64_t j = 0; j < n; j++) z[j] = z[j] / e * factor;
  z[a->target[r]] = target;
}

/* Rows [j0, j1) of dW and dB: A is the logits' columns, k the chunk's rows, continued from memory. */
static void weights(const loss_args *const a, const int64_t r0, const int64_t r1, const int64_t j0,
                    const int64_t j1, void *const scratch) {
  gemm_problem p = {.m = j1 - j0,
                    .k = r1 - r0,
                    .a = a->logits + j0,
                    .lda = loss_ld(a->n_vocab),
                    .a_by_k = true,
                    .b_type = DTYPE_F32};
  if (a->dw) {
    p.n = a->n;
    p.b = a->x + r0 * a->ldx;
    p.b_row_bytes = 4 * (size_t)a->ldx;
    p.c0 = p.c = a->dw + j0 * a->lddw;
    p.ldc0 = p.ldc = a->lddw;
    PATH_NAME(gemm_columns)(&p, 0, p.n, scratch);
  }
  if (a->db) {
    p.n = a->r;
    p.b = a->u + r0 * a->ldu;
    p.b_row_bytes = 4 * (size_t)a->ldu;
    p.c0 = p.c = a->db + j0 * a->lddb;
    p.ldc0 = p.ldc = a->lddb;
    PATH_NAME(gemm_columns)(&p, 0, p.n, scratch);
  }
}

static void inputs(const loss_args *const a, const int64_t r0, const int64_t r1, const int worker,
                   const int workers, void *const scratch) {
  const int64_t ld = loss_ld(a->n_vocab);
  int64_t first, last;
  if (a->dx && loss_share(a->n, loss_n_grain(a->w_type), worker, workers, &first, &last)) {
    const gemm_problem p = {.m = r1 - r0,
                            .n = a->n,
                            .k = a->n_vocab,
                            .a = a->logits,
                            .lda = ld,
                            .b = a->w,
                            .b_type = a->w_type,
                            .b_row_bytes = a->w_row_bytes,
                            .c = a->dx + r0 * a->lddx,
                            .ldc = a->lddx};
    PATH_NAME(gemm_columns)(&p, first, last, scratch);
  }
  if (a->du && loss_share(r1 - r0, 1, worker, workers, &first, &last)) {
    const gemm_problem p = {.m = last - first,
                            .n = a->r,
                            .k = a->n_vocab,
                            .a = a->logits + first * ld,
                            .lda = ld,
                            .b = a->b,
                            .b_type = DTYPE_F32,
                            .b_row_bytes = 4 * (size_t)a->ldb,
                            .c = a->du + (r0 + first) * a->lddu,
                            .ldc = a->lddu};
    PATH_NAME(gemm_columns)(&p, 0, p.n, scratch);
  }
}

static void linear_cross_entropy(const void *const args, const int phase, const int worker,
                                 const int workers) {
  const loss_args *const a = args;
  void *const scratch = (char *)a->work + (size_t)worker * a->slab_bytes;
  int64_t r0, r1, first, last;
  switch (loss_phase(a, phase, &r0, &r1)) {
  case LOSS_LOGITS:
    if (loss_share(a->n_vocab, LOSS_GRAIN, worker, workers, &first, &last))
      logits(a, r0, r1, first, last, scratch);
    break;
  case LOSS_ROWS:
    for (int64_t r = r0 + worker; r < r1; r += workers) row(a, r, a->logits + (r - r0) * loss_ld(a->n_vocab));
    break;
  case LOSS_WEIGHTS:
    if (loss_share(a->n_vocab, LOSS_GRAIN, worker, workers, &first, &last))
      weights(a, r0, r1, first, last, scratch);
    break;
  case LOSS_INPUTS:
    inputs(a, r0, r1, worker, workers, scratch);
    break;
  }
}

void PATH_NAME(register_loss)(op_kernel *table[OP_COUNT]) {
  table[OP_LINEAR_CROSS_ENTROPY] = linear_cross_entropy;
}
