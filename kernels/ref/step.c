/* Plain reference of the ops of an update. */
#include "kernels/ops/step.h"

#include "kernels/math/math.h"
#include "kernels/ops/split.h"
#include "kernels/ref/register.h"

static void zero_ref(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_zero_args *const a = args;
  const op_range own = op_split_floats(a->n, worker, workers);
  for (int64_t i = own.first; i < own.last; i++) a->x[i] = 0.0f;
}

static void grad_norm_ref(const void *const args, const int phase, const int worker, const int workers) {
  const op_grad_norm_args *const a = args;
  const int64_t blocks = (a->n + GRAD_NORM_BLOCK - 1) / GRAD_NORM_BLOCK;
  if (phase == 0) {
    const op_range own = op_split(blocks, worker, workers);
    for (int64_t b = own.first; b < own.last; b++) {
      float lane[32] = {0};
      for (int64_t i = b * GRAD_NORM_BLOCK; i < a->n && i < (b + 1) * GRAD_NORM_BLOCK; i++)
        lane[i % 32] = m_fma(a->g[i], a->g[i], lane[i % 32]);
      for (int h = 16; h; h /= 2)
        for (int l = 0; l < h; l++) lane[l] = lane[l] + lane[l + h];
      a->partial[b] = lane[0];
    }
  } else if (worker == 0) {
    float sum = a->partial[0];
    for (int64_t b = 1; b < blocks; b++) sum = sum + a->partial[b];
    step_block *const s = a->step;
    s->grad_norm = m_sqrt(sum);
    const float ratio = s->clip / s->grad_norm; /* NaN stays NaN */
    s->clip_factor = s->clip > 0.0f ? (ratio >= 1.0f ? 1.0f : ratio) : 1.0f;
  }
}

static void adamw_ref(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_adamw_args *const a = args;
  const step_block *const s = a->step;
  const op_range own = op_split_floats(a->n, worker, workers);
  for (int64_t i = own.first; i < own.last; i++) {
    const float g = a->g[i] * s->clip_factor;
    const float m = m_fma(1.0f - a->beta1, g - a->m[i], a->m[i]);
    const float v = m_fma(1.0f - a->beta2, g * g - a->v[i], a->v[i]);
    const float p = a->p[i] - (s->lr * a->weight_decay) * a->p[i];
    a->p[i] = p - (s->lr * (m / s->bias1)) / (m_sqrt(v / s->bias2) + a->eps);
    a->m[i] = m;
    a->v[i] = v;
  }
}

static void sgd_ref(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_sgd_args *const a = args;
  const step_block *const s = a->step;
  const op_range own = op_split_floats(a->n, worker, workers);
  for (int64_t i = own.first; i < own.last; i++) {
    const float g = m_fma(a->weight_decay, a->p[i], a->g[i] * s->clip_factor);
    const float m = a->m ? m_fma(a->momentum, a->m[i], g) : g;
    a->p[i] = a->p[i] - s->lr * m;
    if (a->m) a->m[i] = m;
  }
}

void ref_register_step(op_kernel *table[OP_COUNT]) {
  table[OP_ZERO] = zero_ref;
  table[OP_GRAD_NORM] = grad_norm_ref;
  table[OP_ADAMW] = adamw_ref;
  table[OP_SGD] = sgd_ref;
}
