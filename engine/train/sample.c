/* Token by token: one row through the model, keys and values of earlier rows from the cache, a draw from the logits.
 *
 * Draws are by Philox, keyed by seed and position. Probabilities are computed in float64 by the project's own
 * functions and ordered by (probability falling, id rising), so a seed gives the same text on every machine. */
#include "engine/train/choose_token.h"
#include "engine/train/session.h"

#include <string.h>

struct stint_sampler {
  session s;
  tokenizer *t;
  stint_sample_options options;
  token_choice *scratch; /* [n_vocab] */
  int64_t position;      /* of the next token to feed */
  bool overflow, fed;
};

/* One token through the model; its logits are then in place. */
static void feed(stint_sampler *const p, const int32_t id) {
  session *const s = &p->s;
  if (p->position == s->plan->options.ctx) {
    p->overflow = true;
    return;
  }
  s->batch.token[0] = id;
  s->batch.position[0] = (int32_t)p->position;
  s->batch.span[0] = 0;
  s->batch.span[1] = (int32_t)p->position;
  session_run(s, &s->main, s->main.plan->first_micro, s->main.n_steps, NULL, NULL);
  p->position++;
  p->fed = true;
}

static bool feed_sink(void *const context, const int32_t *const ids, const size_t n) {
  stint_sampler *const p = context;
  for (size_t i = 0; i < n && !p->overflow; i++) feed(p, ids[i]);
  return !p->overflow;
}

stint_status stint_sampler_open(stint_plan *const plan, const stint_sample_options *const options,
                                stint_sampler **const out, stint_error *const error) {
  *out = NULL;
  if (plan->purpose != STINT_SAMPLE)
    return stint_fail(error, STINT_BAD_INPUT, "sampling needs a plan made for it");
  if (!(options->temperature >= 0) || !(options->top_p > 0 && options->top_p <= 1) || options->top_k < 0)
    return stint_fail(error, STINT_BAD_INPUT,
                      "--temperature and --top-k must be at least 0, --top-p in (0, 1]");
  session s;
  STINT_TRY(session_open(plan, &s, error));
  stint_sampler *const p = BUMP_NEW(&s.host, stint_sampler);
  stint_status status =
      p ? STINT_OK : stint_fail(error, STINT_INTERNAL, "the plan's own part of the arena is too small");
  if (status == STINT_OK) {
    p->s = s;
    p->options = *options;
    p->scratch = (token_choice *)(s.arena.base + plan->layout.loading_offset + plan->tokenizer_bytes);
    status = session_tokenizer(&p->s, &p->t, error);
  }
  if (status != STINT_OK) {
    session_close(&s);
    return status;
  }
  *out = p;
  return STINT_OK;
}

stint_status stint_sampler_prompt(stint_sampler *const p, const char *const text, const size_t bytes,
                                  stint_error *const error) {
  const stint_status status = tokenizer_encode(p->t, text, bytes, p->position == 0, feed_sink, p, error);
  if (p->overflow)
    return stint_fail(error, STINT_BAD_INPUT, "the prompt is longer than --ctx %lld tokens; raise --ctx",
                      (long long)p->s.plan->options.ctx);
  STINT_TRY(status);
  STINT_TRY(session_check(&p->s, error));
  if (!p->fed)
    return stint_fail(error, STINT_BAD_INPUT,
                      "the prompt is empty and the model has no BOS token: give a --prompt");
  return STINT_OK;
}

stint_status stint_sampler_next(stint_sampler *const p, char *const out, const size_t room, size_t *const n,
                                bool *const end, stint_error *const error) {
  *n = 0;
  *end = true;
  if (!p->fed) return stint_fail(error, STINT_BAD_INPUT, "sampling begins with a prompt");
  const float *const logits = program_tensor(&p->s.main, p->s.plan->main.b.in.logits);
  const int32_t id =
      choose_token(logits, tokenizer_n_vocab(p->t), &p->options, (uint64_t)p->position, p->scratch);
  if (id < 0)
    return stint_fail(error, STINT_NOT_FINITE, "%s: the logits are not finite", p->s.plan->model->file.path);
  if (id == tokenizer_eos(p->t)) return STINT_OK;
  const size_t full = tokenizer_decode(p->t, id, out, room);
  *n = full < room ? full : room;
  feed(p, id);
  *end = p->overflow;
  return session_check(&p->s, error);
}

void stint_sampler_close(stint_sampler *const p) {
  if (!p) return;
  session s = p->s; /* the sampler lies in the session's arena */
  session_close(&s);
}
