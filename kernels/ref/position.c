/* Plain reference of rope. */
#include "kernels/ops/position.h"

#include "kernels/ops/angle.h"
#include "kernels/ops/split.h"
#include "kernels/ref/register.h"

static void rope_ref(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_rope_args *const a = args;
  const op_range own = op_split(a->rows, worker, workers);
  const int32_t pairs = a->n_rot / 2;
  for (int64_t r = own.first; r < own.last; r++)
    for (int64_t head = 0; head < a->n; head += a->head_size) {
      const float *const x = a->x + r * a->ldx + head;
      float *const y = a->y + r * a->ldy + head;
      for (int32_t i = 0; i < pairs; i++) {
        const int32_t i0 = a->neox ? i : 2 * i, i1 = a->neox ? i + pairs : 2 * i + 1;
        const float x0 = x[i0], x1 = x[i1];
        float c, s;
        rope_angle((float)a->pos[r], a->turns[i], a->turns[pairs + i], a->magnitude,
                   a->inverse ? -1.0f : 1.0f, &c, &s);
        y[i0] = m_fma(x0, c, -(x1 * s));
        y[i1] = m_fma(x0, s, x1 * c);
      }
      for (int32_t i = a->n_rot; i < a->head_size; i++) y[i] = x[i];
    }
}

void ref_register_position(op_kernel *table[OP_COUNT]) { table[OP_ROPE] = rope_ref; }
