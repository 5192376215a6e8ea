/* Vector kernels of rms_norm: the 32 lanes of rule 3 are registers, what is past the last 32 of a row goes to the
 * lanes one by one. */
#include "kernels/ops/norm.h"

#include "kernels/cpu/register.h"
#include "kernels/math/math.h"
#include "kernels/ops/split.h"

static void rms_norm(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_rms_norm_args *const a = args;
  const op_range own = op_split(a->rows, worker, workers);
  const int64_t n = a->n, whole = n / 32 * 32;
  const float *const w = a->w;
  for (int64_t row = own.first; row < own.last; row++) {
    const float *const x = a->x + row * a->ldx;
    float *const y = a->y + row * a->ldy;
    vf sum[VREGS32];
    for (int j = 0; j < VREGS32; j++) sum[j] = vf_zero();
    for (int64_t i = 0; i < whole; i += 32)
      for (int j = 0; j < VREGS32; j++) {
        const vf v = vf_load(x + i + j * VW);
        sum[j] = vf_fma(v, v, sum[j]);
      }
    float lane[32];
    for (int j = 0; j < VREGS32; j++) vf_store(lane + j * VW, sum[j]);
    for (int64_t i = whole; i < n; i++) lane[i - whole] = m_fma(x[i], x[i], lane[i - whole]);
    const float r = m_rsqrt(fold32_sum(lane) / (float)n + a->eps);
    VEC_LOOP
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] * r) * w[i];
    a->r[row] = r;
  }
}

static void rms_norm_dx(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_rms_norm_dx_args *const a = args;
  const op_range own = op_split(a->rows, worker, workers);
  const int64_t n = a->n, whole = n / 32 * 32;
  const float *const w = a->w;
  for (int64_t row = own.first; row < own.last; row++) {
    const float *const dy = a->dy + row * a->lddy, *const x = a->x + row * a->ldx, r = a->r[row];
    float *const dx = a->dx + row * a->lddx;
    vf sum[VREGS32];
    for (int j = 0; j < VREGS32; j++) sum[j] = vf_zero();
    for (int64_t i = 0; i < whole; i += 32)
      for (int j = 0; j < VREGS32; j++) {
        const int64_t at = i + j * VW;
        sum[j] = vf_fma(vf_load(dy + at) * vf_load(w + at), vf_load(x + at), sum[j]);
      }
    float lane[32];
    for (int j = 0; j < VREGS32; j++) vf_store(lane + j * VW, sum[j]);
    for (int64_t i = whole; i < n; i++) lane[i - whole] = m_fma(dy[i] * w[i], x[i], lane[i - whole]);
    const float q = ((r * r) * fold32_sum(lane)) / (float)n;
    if (a->c0) {
      const float *const c0 = a->c0 + row * a->ldc0;
      VEC_LOOP
      for (int64_t i = 0; i < n; i++) dx[i] = c0[i] + r * (dy[i] * w[i] - x[i] * q);
    } else {
      VEC_LOOP
      for (int64_t i = 0; i < n; i++) dx[i] = r * (dy[i] * w[i] - x[i] * q);
    }
  }
}

static void rms_norm_dw(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_rms_norm_dw_args *const a = args;
  const op_range own = op_split_floats(a->n, worker, workers);
  float *const dw = a->dw;
  for (int64_t row = 0; row < a->rows; row++) {
    const float *const dy = a->dy + row * a->lddy, *const x = a->x + row * a->ldx, r = a->r[row];
    VEC_LOOP
    for (int64_t i = own.first; i < own.last; i++) dw[i] = m_fma(dy[i], x[i] * r, dw[i]);
  }
}

void PATH_NAME(register_norm)(op_kernel *table[OP_COUNT]) {
  table[OP_RMS_NORM] = rms_norm;
  table[OP_RMS_NORM_DX] = rms_norm_dx;
  table[OP_RMS_NORM_DW] = rms_norm_dw;
}
