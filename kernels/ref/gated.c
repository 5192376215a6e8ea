/* Plain reference of swiglu and its gradient. */
#include "kernels/ops/gated.h"

#include "kernels/math/math.h"
#include "kernels/ops/split.h"
#include "kernels/ref/register.h"

static void swiglu_ref(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_swiglu_args *const a = args;
  const op_range own = op_split(a->rows, worker, workers);
  for (int64_t r = own.first; r < own.last; r++)
    for (int64_t i = 0; i < a->n; i++)
      a->h[r * a->ldh + i] = m_silu(a->gate[r * a->ldg + i]) * a->up[r * a->ldu + i];
}

static void swiglu_back_ref(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_swiglu_back_args *const a = args;
  const op_range own = op_split(a->rows, worker, workers);
  for (int64_t r = own.first; r < own.last; r++)
    for (int64_t i = 0; i < a->n; i++) {
      const float dh = a->dh[r * a->lddh + i], gate = a->gate[r * a->ldg + i], up = a->up[r * a->ldu + i];
      const float s = m_sigmoid(gate);
      a->dup[r * a->lddu + i] = dh * (gate * s);
      a->dgate[r * a->lddg + i] = (dh * up) * (s * m_fma(gate, 1.0f - s, 1.0f));
    }
}

void ref_register_gated(op_kernel *table[OP_COUNT]) {
  table[OP_SWIGLU] = swiglu_ref;
  table[OP_SWIGLU_BACK] = swiglu_back_ref;
}
