/* linear_cross_entropy, written as kernels/ops/loss.h reads: W a few elements at a time through the formats' plain
 * dequantization. The oracle of the vector paths. */
#include "kernels/ops/loss.h"

#include "kernels/math/fma.h"
#include "kernels/math/math.h"
#include "kernels/ref/register.h"

enum { PIECE = 256 }; /* elements of W dequantized at once: a multiple of every block */

typedef op_linear_cross_entropy_args loss_args;

/* Elements [i, i + n) of row j of W, where i is a multiple of the block. */
static void w_piece(const loss_args *const a, const int64_t j, const int64_t i, const int64_t n,
                    float *const out) {
  dequantize_row(a->w_type, (const char *)a->w + (size_t)j * a->w_row_bytes + dtype_bytes(a->w_type, i), out,
                 n);
}

static int64_t piece_at(const int64_t i, const int64_t end) { return end - i < PIECE ? end - i : PIECE; }

static void logits(const loss_args *const a, const int64_t r0, const int64_t r1, const int64_t j0,
                   const int64_t j1) {
  const int64_t ld = loss_ld(a->n_vocab);
  float w[PIECE];
  for (int64_t j = j0; j < j1; j++) {
    for (int64_t r = r0; r < r1; r++) a->logits[(r - r0) * ld + j] = 0;
    for (int64_t i = 0; i < a->n; i += PIECE) {
      const int64_t n = piece_at(i, a->n);
      w_piece(a, j, i, n, w);
      for (int64_t r = r0; r < r1; r++) {
        float c = a->logits[(r - r0) * ld + j];
        for (int64_t t = 0; t < n; t++) c = m_fma(a->x[r * a->ldx + i + t], w[t], c);
        a->logits[(r - r0) * ld + j] = c;
      }
    }
    for (int64_t r = r0; r < r1; r++) {
      float c = a->logits[(r - r0) * ld + j];
      for (int64_t t = 0; t < a->r; t++) c = m_fma(a->u[r * a->ldu + t], a->b[j * a->ldb + t], c);
      a->logits[(r - r0) * ld + j] = c;
    }
  }
}

static void row(const loss_args *const a, const int64_t r, float *const z) {
  if (a->weight[r] == 0) {
    a->loss[r] = 0;
    for (int64_t j = 0; j < a->n_vocab; j++) z[j] = 0;
    return;
  }
  float m = -__builtin_inff(), lane[32] = {0};
  for (int64_t j = 0; j < a->n_vocab; j++) m = z[j] > m ? z[j] : m;
  m = m + 0.0f;
  for (int64_t j = 0; j < a->n_vocab; j++) lane[j % 32] += m_exp(z[j] - m);
  for (int h = 16; h; h >>= 1)
    for (int l = 0; l < h; l++) lane[l] = lane[l] + lane[l + h];
  const float e = lane[0], factor = a->weight[r] * a->step->loss_scale;
  a->loss[r] = a->weight[r] * ((m + m_log(e)) - z[a->target[r]]);
  for (int64_t j = 0; j < a->n_vocab; j++)
    z[j] = (m_exp(z[j] - m) / e - (j == a->target[r] ? 1.0f : 0.0f)) * factor;
}

static void weights(const loss_args *const a, const int64_t r0, const int64_t r1, const int64_t j0,
                    const int64_t j1) {
  const int64_t ld = loss_ld(a->n_vocab);
  for (int64_t j = j0; j < j1; j++)
    for (int64_t r = r0; r < r1; r++) {
      const float dz = a->logits[(r - r0) * ld + j];
      for (int64_t i = 0; a->dw && i < a->n; i++)
        a->dw[j * a->lddw + i] = m_fma(dz, a->x[r * a->ldx + i], a->dw[j * a->lddw + i]);
      for (int64_t t = 0; a->db && t < a->r; t++)
        a->db[j * a->lddb + t] = m_fma(dz, a->u[r * a->ldu + t], a->db[j * a->lddb + t]);
    }
}

/* Columns [i0, i1) of dx. */
static void inputs_dx(const loss_args *const a, const int64_t r0, const int64_t r1, const int64_t i0,
                      const int64_t i1) {
  const int64_t ld = loss_ld(a->n_vocab);
  float w[PIECE];
  for (int64_t i = i0; i < i1; i += PIECE) {
    const int64_t n = piece_at(i, i1);
    for (int64_t r = r0; r < r1; r++)
      for (int64_t t = 0; t < n; t++) a->dx[r * a->lddx + i + t] = 0;
    for (int64_t j = 0; j < a->n_vocab; j++) {
      w_piece(a, j, i, n, w);
      for (int64_t r = r0; r < r1; r++)
        for (int64_t t = 0; t < n; t++) {
          float *const dx = a->dx + r * a->lddx + i + t;
          *dx = m_fma(a->logits[(r - r0) * ld + j], w[t], *dx);
        }
    }
  }
}

static void inputs_du(const loss_args *const a, const int64_t r0, const int64_t r1, const int64_t r_first,
                      const int64_t r_last) {
  const int64_t ld = loss_ld(a->n_vocab);
  for (int64_t r = r_first; r < r_last && r < r1; r++)
    for (int64_t t = 0; t < a->r; t++) {
      float c = 0;
      for (int64_t j = 0; j < a->n_vocab; j++)
        c = m_fma(a->logits[(r - r0) * ld + j], a->b[j * a->ldb + t], c);
      a->du[r * a->lddu + t] = c;
    }
}

static void ref_linear_cross_entropy(const void *const args, const int phase, const int worker,
                                     const int workers) {
  const loss_args *const a = args;
  const int64_t ld = loss_ld(a->n_vocab);
  int64_t r0, r1, first, last;
  switch (loss_phase(a, phase, &r0, &r1)) {
  case LOSS_LOGITS:
    if (loss_share(a->n_vocab, LOSS_GRAIN, worker, workers, &first, &last)) logits(a, r0, r1, first, last);
    break;
  case LOSS_ROWS:
    for (int64_t r = r0 + worker; r < r1; r += workers) row(a, r, a->logits + (r - r0) * ld);
    break;
  case LOSS_WEIGHTS:
    if (loss_share(a->n_vocab, LOSS_GRAIN, worker, workers, &first, &last)) weights(a, r0, r1, first, last);
    break;
  case LOSS_INPUTS:
    if (a->dx && loss_share(a->n, loss_n_grain(a->w_type), worker, workers, &first, &last))
      inputs_dx(a, r0, r1, first, last);
    if (a->du && loss_share(r1 - r0, 1, worker, workers, &first, &last))
      inputs_du(a, r0, r1, r0 + first, r0 + last);
    break;
  }
}

void ref_register_loss(op_kernel *table[OP_COUNT]) {
  table[OP_LINEAR_CROSS_ENTROPY] = ref_linear_cross_entropy;
}
