/* The candidates, in order. */
#include "plans/choose.h"

#include <stdio.h>

/* Larger loss chunks read the head's weight fewer times; smaller ones hold fewer logits. */
static const plan_choice menu[] = {
    {REMAT_NOTHING, 256, 64}, {REMAT_CHEAP, 256, 64},  {REMAT_CHEAP, 128, 64},
    {REMAT_CHEAP, 64, 32},    {REMAT_LAYERS, 128, 64}, {REMAT_LAYERS, 64, 32},
    {REMAT_LAYERS, 16, 16},   {REMAT_LAYERS, 4, 8},    {REMAT_LAYERS, 1, 1},
};

static int64_t at_most(const int64_t value, const int64_t limit) { return value < limit ? value : limit; }

bool choice_candidate(const int i, const int64_t rows, const int64_t fixed_loss_chunk,
                      const int64_t fixed_attention_chunk, plan_choice *const out) {
  if (i < 0 || i >= (int)(sizeof menu / sizeof menu[0])) return false;
  *out = menu[i];
  if (fixed_loss_chunk) out->loss_chunk = fixed_loss_chunk;
  if (fixed_attention_chunk) out->attention_chunk = fixed_attention_chunk;
  out->loss_chunk = at_most(out->loss_chunk, rows);
  out->attention_chunk = at_most(out->attention_chunk, rows);
  return true;
}

void choice_describe(const plan_choice *const choice, char *const out, const size_t room) {
  snprintf(out, room, "%s; loss %lld rows, attention %lld rows at a time", remat_policy_name(choice->remat),
           (long long)choice->loss_chunk, (long long)choice->attention_chunk);
}
