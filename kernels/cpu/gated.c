/* Vector kernels of swiglu and its gradient: plain loops that become vectors. */
#include "kernels/ops/gated.h"

#include "kernels/cpu/register.h"
#include "kernels/math/math.h"
#include "kernels/ops/split.h"

static void swiglu(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_swiglu_args *const a = args;
  const op_range own = op_split(a->rows, worker, workers);
  for (int64_t r = own.first; r < own.last; r++) {
    const float *const gate = a->gate + r * a->ldg, *const up = a->up + r * a->ldu;
    float *const h = a->h + r * a->ldh;
    VEC_LOOP
    for (int64_t i = 0; i < a->n; i++) h[i] = m_silu(gate[i]) * up[i];
  }
}

static void swiglu_back(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_swiglu_back_args *const a = args;
  const op_range own = op_split(a->rows, worker, workers);
  for (int64_t r = own.first; r < own.last; r++) {
    const float *const dh = a->dh + r * a->lddh, *const gate = a->gate + r * a->ldg,
                       *const up = a->up + r * a->ldu;
    float *const dgate = a->dgate + r * a->lddg, *const dup = a->dup + r * a->lddu;
    VEC_LOOP
    for (int64_t i = 0; i < a->n; i++) {
      const float d = dh[i], g = gate[i], u = up[i], s = m_sigmoid(g);
      dup[i] = d * (g * s);
      dgate[i] = (d * u) * (s * m_fma(g, 1.0f - s, 1.0f));
    }
  }
}

void PATH_NAME(register_gated)(op_kernel *table[OP_COUNT]) {
  table[OP_SWIGLU] = swiglu;
  table[OP_SWIGLU_BACK] = swiglu_back;
}
