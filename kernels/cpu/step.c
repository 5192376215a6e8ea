/* Vector kernels of the ops of an update. */
#include "kernels/ops/step.h"

#include <string.h>

#include "kernels/cpu/register.h"
#include "kernels/math/math.h"
#include "kernels/ops/split.h"

static void zero(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_zero_args *const a = args;
  const op_range own = op_split_floats(a->n, worker, workers);
  if (own.first < own.last) memset(a->x + own.first, 0, (size_t)(own.last - own.first) * sizeof(float));
}

static float block_squares(const float *const g, const int64_t n) {
  const int64_t whole = n / 32 * 32;
  vf sum[VREGS32];
  for (int j = 0; j < VREGS32; j++) sum[j] = vf_zero();
  for (int64_t i = 0; i < whole; i += 32)
    for (int j = 0; j < VREGS32; j++) {
      const vf v = vf_load(g + i + j * VW);
      sum[j] = vf_fma(v, v, sum[j]);
    }
  float lane[32];
  for (int j = 0; j < VREGS32; j++) vf_store(lane + j * VW, sum[j]);
  for (int64_t i = whole; i < n; i++) lane[i - whole] = m_fma(g[i], g[i], lane[i - whole]);
  return fold32_sum(lane);
}

static void grad_norm(const void *const args, const int phase, const int worker, const int workers) {
  const op_grad_norm_args *const a = args;
  const int64_t blocks = (a->n + GRAD_NORM_BLOCK - 1) / GRAD_NORM_BLOCK;
  if (phase == 0) {
    const op_range own = op_split(blocks, worker, workers);
    for (int64_t b = own.first; b < own.last; b++) {
      const int64_t first = b * GRAD_NORM_BLOCK, left = a->n - first;
      a->partial[b] = block_squares(a->g + first, left < GRAD_NORM_BLOCK ? left : GRAD_NORM_BLOCK);
    }
  } else if (worker == 0) {
    float sum = a->partial[0];
    for (int64_t b = 1; b < blocks; b++) sum = sum + a->partial[b];
    step_block *const s = a->step;
    s->grad_norm = m_sqrt(sum);
    const float ratio = s->clip / s->grad_norm;
    s->clip_factor = s->clip > 0.0f ? (ratio >= 1.0f ? 1.0f : ratio) : 1.0f;
  }
}

static void adamw(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_adamw_args *const a = args;
  const op_range own = op_split_floats(a->n, worker, workers);
  const float factor = a->step->clip_factor, lr = a->step->lr, bias1 = a->step->bias1, bias2 = a->step->bias2;
  const float c1 = 1.0f - a->beta1, c2 = 1.0f - a->beta2, decay = lr * a->weight_decay, eps = a->eps;
  const float *const grad = a->g;
  float *const p = a->p, *const m = a->m, *const v = a->v;
  VEC_LOOP
  for (int64_t i = own.first; i < own.last; i++) {
    const float g = grad[i] * factor;
    const float m1 = m_fma(c1, g - m[i], m[i]);
    const float v1 = m_fma(c2, g * g - v[i], v[i]);
    const float p1 = p[i] - decay * p[i];
    p[i] = p1 - (lr * (m1 / bias1)) / (m_sqrt(v1 / bias2) + eps);
    m[i] = m1;
    v[i] = v1;
  }
}

static void sgd(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_sgd_args *const a = args;
  const op_range own = op_split_floats(a->n, worker, workers);
  const float factor = a->step->clip_factor, lr = a->step->lr, decay = a->weight_decay,
              momentum = a->momentum;
  const float *const grad = a->g;
  float *const p = a->p, *const m = a->m;
  if (m) {
    VEC_LOOP
    for (int64_t i = own.first; i < own.last; i++) {
      const float m1 = m_fma(momentum, m[i], m_fma(decay, p[i], grad[i] * factor));
      p[i] = p[i] - lr * m1;
      m[i] = m1;
    }
  } else {
    VEC_LOOP
    for (int64_t i = own.first; i < own.last; i++) p[i] = p[i] - lr * m_fma(decay, p[i], grad[i] * factor);
  }
}

void PATH_NAME(register_step)(op_kernel *table[OP_COUNT]) {
  table[OP_ZERO] = zero;
  table[OP_GRAD_NORM] = grad_norm;
  table[OP_ADAMW] = adamw;
  table[OP_SGD] = sgd;
}
