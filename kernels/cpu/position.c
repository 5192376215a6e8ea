/* Vector kernel of rope: the angles of a block of pairs once, then every head by them. */
#include "kernels/ops/position.h"

#include <string.h>

#include "kernels/cpu/register.h"
#include "kernels/ops/angle.h"
#include "kernels/ops/split.h"

enum { BLOCK_PAIRS = 128 };

static void rope(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_rope_args *const a = args;
  const op_range own = op_split(a->rows, worker, workers);
  const int32_t pairs = a->n_rot / 2;
  const float magnitude = a->magnitude, sign = a->inverse ? -1.0f : 1.0f;
  float c[BLOCK_PAIRS], s[BLOCK_PAIRS];
  for (int64_t r = own.first; r < own.last; r++) {
    const float pos = (float)a->pos[r];
    for (int32_t first = 0; first < pairs; first += BLOCK_PAIRS) {
      const int32_t count = pairs - first < BLOCK_PAIRS ? pairs - first : BLOCK_PAIRS;
      const float *const high = a->turns + first, *const low = high + pairs;
      VEC_LOOP
      for (int32_t i = 0; i < count; i++) rope_angle(pos, high[i], low[i], magnitude, sign, &c[i], &s[i]);
      for (int64_t head = 0; head < a->n; head += a->head_size) {
        const float *const x = a->x + r * a->ldx + head;
        float *const y = a->y + r * a->ldy + head;
        if (a->neox) {
          const float *const xa = x + first, *const xb = xa + pairs;
          float *const ya = y + first, *const yb = ya + pairs;
          VEC_LOOP
          for (int32_t i = 0; i < count; i++) {
            const float x0 = xa[i], x1 = xb[i];
            ya[i] = m_fma(x0, c[i], -(x1 * s[i]));
            yb[i] = m_fma(x0, s[i], x1 * c[i]);
          }
        } else {
          const float *const xp = x + 2 * first;
          float *const yp = y + 2 * first;
          VEC_LOOP
          for (int32_t i = 0; i < count; i++) {
            const float x0 = xp[2 * i], x1 = xp[2 * i + 1];
            yp[2 * i] = m_fma(x0, c[i], -(x1 * s[i]));
            yp[2 * i + 1] = m_fma(x0, s[i], x1 * c[i]);
          }
        }
      }
    }
    if (a->n_rot < a->head_size && a->y != a->x) {
      const size_t bytes = (size_t)(a->head_size - a->n_rot) * sizeof(float);
      for (int64_t rest = a->n_rot; rest < a->n; rest += a->head_size)
        memcpy(a->y + r * a->ldy + rest, a->x + r * a->ldx + rest, bytes);
    }
  }
}

void PATH_NAME(register_position)(op_kernel *table[OP_COUNT]) { table[OP_ROPE] = rope; }
