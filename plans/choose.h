/* The menu: what a plan may trade for bytes, as candidates from the fastest to the smallest.
 *
 * A candidate changes no bit of the result. Today's menu is a short list of uniform settings; a finer choice
 * (a setting for each layer, prices in time) replaces this file and nothing else. */
#ifndef STINT_PLANS_CHOOSE_H
#define STINT_PLANS_CHOOSE_H

#include <stdbool.h>
#include <stddef.h>

#include "plans/remat.h"

typedef struct plan_choice {
  remat_policy remat;
  int64_t loss_chunk, attention_chunk; /* rows */
} plan_choice;

/* The i-th candidate for a microbatch of `rows`; fixed chunks (not 0) override the menu's. False past the last. */
bool choice_candidate(int i, int64_t rows, int64_t fixed_loss_chunk, int64_t fixed_attention_chunk,
                      plan_choice *out);

/* "keep all; loss 256 rows, attention 64 rows at a time" */
void choice_describe(const plan_choice *choice, char *out, size_t room);

#endif
