/* The learning rate of a step: a linear warm-up, then constant, linear or cosine down to a floor. Computed by
 * the project's own functions in float64: the same on every machine. */
#ifndef STINT_ENGINE_TRAIN_LR_H
#define STINT_ENGINE_TRAIN_LR_H

#include "engine/stint.h"

/* step from 0, of `steps`. Warm-up step i has lr*(i + 1)/warmup; afterwards progress runs from 0 towards 1 at the end. */
double lr_at(const stint_options *options, int64_t steps, int64_t step);

#endif
