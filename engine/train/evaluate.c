/* The mean loss of a text. */
#include "engine/train/machine.h"
#include "engine/train/session.h"

#include "kernels/math/hostmath.h"

#include <unistd.h>

static stint_status evaluate(session *const s, const char *const *const data, const size_t n_data,
                             const char *const scratch, stint_evaluation *const out,
                             stint_error *const error) {
  data_prepared prepared;
  data_set set;
  STINT_TRY(session_prepare(s, data, n_data, scratch, &prepared, error));
  const stint_status status = data_open(scratch, s->plan->options.ctx, &set, error);
  unlink(scratch);
  STINT_TRY(status);
  const double start = machine_seconds();
  const session_sum sum = session_evaluate(s, &s->main, &set);
  out->seconds = machine_seconds() - start;
  out->loss_nats_per_token = sum.loss / sum.weight;
  out->perplexity = h_exp(out->loss_nats_per_token);
  out->tokens = set.n_trained;
  out->rows = set.n_rows;
  out->used_bytes = s->arena.bytes;
  data_close(&set);
  STINT_TRY(session_check(s, error));
  if (out->loss_nats_per_token - out->loss_nats_per_token != 0)
    return stint_fail(error, STINT_NOT_FINITE, "%s: the loss is not finite; look at the model's weights",
                      s->plan->model->file.path);
  return STINT_OK;
}

stint_status stint_evaluate(stint_plan *const plan, const char *const *const data, const size_t n_data,
                            const char *const scratch, stint_evaluation *const out,
                            stint_error *const error) {
  *out = (stint_evaluation){0};
  if (plan->purpose != STINT_EVALUATE)
    return stint_fail(error, STINT_BAD_INPUT, "an evaluation needs a plan made for it");
  session s;
  STINT_TRY(session_open(plan, &s, error));
  const stint_status status = evaluate(&s, data, n_data, scratch, out, error);
  session_close(&s);
  return status;
}
