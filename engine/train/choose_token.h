/* From logits to a token: greedy, or a seeded draw by temperature, top-k and top-p (nucleus, Holtzman et al. 2020). */
#ifndef STINT_ENGINE_TRAIN_CHOOSE_TOKEN_H
#define STINT_ENGINE_TRAIN_CHOOSE_TOKEN_H

#include "engine/stint.h"

typedef struct token_choice {
  double p;
  int32_t id;
} token_choice;

/* `position` keys the draw; scratch [n]. The greedy choice is the lowest id of the largest logit. -1: a logit is NaN. */
int32_t choose_token(const float *logits, int32_t n, const stint_sample_options *options, uint64_t position,
                     token_choice *scratch);

#endif
