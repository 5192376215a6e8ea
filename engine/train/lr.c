/* Schedules: Loshchilov and Hutter 2017 for the cosine. */
#include "engine/train/lr.h"

#include "kernels/math/hostmath.h"

double lr_at(const stint_options *const o, const int64_t steps, const int64_t step) {
  if (step < o->warmup) return o->lr * (double)(step + 1) / (double)o->warmup;
  if (o->schedule == STINT_LR_CONSTANT || steps <= o->warmup) return o->lr;
  const double progress = (double)(step - o->warmup) / (double)(steps - o->warmup);
  const double share =
      o->schedule == STINT_LR_LINEAR ? 1 - progress : 0.5 * (1 + h_cos(3.14159265358979323846 * progress));
  return o->lr * (o->lr_floor + (1 - o->lr_floor) * share);
}
