/* Plain reference of rms_norm and its gradients. */
#include "kernels/ops/norm.h"

#include "kernels/math/math.h"
#include "kernels/ops/split.h"
#include "kernels/ref/register.h"

/* Rule 3's end: lanes fold 16, 8, 4, 2, 1. */
static float fold(float lane[32]) {
  for (int h = 16; h; h /= 2)
    for (int l = 0; l < h; l++) lane[l] = lane[l] + lane[l + h];
  return lane[0];
}

static void rms_norm_ref(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_rms_norm_args *const a = args;
  const op_range own = op_split(a->rows, worker, workers);
  for (int64_t row = own.first; row < own.last; row++) {
    const float *const x = a->x + row * a->ldx;
    float *const y = a->y + row * a->ldy;
    float lane[32] = {0};
    for (int64_t i = 0; i < a->n; i++) lane[i % 32] = m_fma(x[i], x[i], lane[i % 32]);
    const float r = m_rsqrt(fold(lane) / (float)a->n + a->eps);
    for (int64_t i = 0; i < a->n; i++) y[i] = (x[i] * r) * a->w[i];
    a->r[row] = r;
  }
}

static void rms_norm_dx_ref(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_rms_norm_dx_args *const a = args;
  const op_range own = op_split(a->rows, worker, workers);
  for (int64_t row = own.first; row < own.last; row++) {
    const float *const dy = a->dy + row * a->lddy, *const x = a->x + row * a->ldx, r = a->r[row];
    const float *const c0 = a->c0 ? a->c0 + row * a->ldc0 : 0;
    float *const dx = a->dx + row * a->lddx;
    float lane[32] = {0};
    for (int64_t i = 0; i < a->n; i++) lane[i % 32] = m_fma(dy[i] * a->w[i], x[i], lane[i % 32]);
    const float q = ((r * r) * fold(lane)) / (float)a->n;
    for (int64_t i = 0; i < a->n; i++) {
      const float d = r * (dy[i] * a->w[i] - x[i] * q);
      dx[i] = c0 ? c0[i] + d : d;
    }
  }
}

static void rms_norm_dw_ref(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_rms_norm_dw_args *const a = args;
  const op_range own = op_split_floats(a->n, worker, workers);
  for (int64_t row = 0; row < a->rows; row++)
    for (int64_t i = own.first; i < own.last; i++)
      a->dw[i] = m_fma(a->dy[row * a->lddy + i], a->x[row * a->ldx + i] * a->r[row], a->dw[i]);
}

void ref_register_norm(op_kernel *table[OP_COUNT]) {
  table[OP_RMS_NORM] = rms_norm_ref;
  table[OP_RMS_NORM_DX] = rms_norm_dx_ref;
  table[OP_RMS_NORM_DW] = rms_norm_dw_ref;
}
