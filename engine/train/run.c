/* A training run: data made ready, steps taken, everything recorded, the result saved and read back.
 *
 * A step: zero the gradients; for each microbatch fill the batch and run forward and backward; the norm; the update. The
 * loss is scaled by one over the step's trained tokens, counted before its first microbatch, so that accumulation
 * over uneven rows is exact. From the first step to the last nothing here allocates. */
#include "engine/train/lr.h"
#include "engine/train/machine.h"
#include "engine/train/nonfinite.h"
#include "engine/train/record.h"
#include "engine/train/save.h"
#include "engine/train/session.h"

#include "engine/data/digest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct stint_run {
  session s;
  record r;
  record_facts facts;
  data_set train, valid; /* valid.n_rows == 0: none */
  int64_t steps_per_epoch;
  double beta1_power, beta2_power; /* beta^t of the steps done */
  double train_seconds;            /* of the steps done */
  stint_run_info info;
};

/* ---- opening ---- */

/* Text to a mapped token file that has no name any more: it goes when the map does, whatever ends the run. */
static stint_status open_set(stint_run *const run, const char *const name, const char *const *const paths,
                             const size_t n, data_prepared *const prepared, data_set *const set,
                             stint_error *const error) {
  char path[RECORD_PATH_BYTES];
  STINT_TRY(record_path(&run->r, name, path, error));
  STINT_TRY(session_prepare(&run->s, paths, n, path, prepared, error));
  const stint_status status = data_open(path, run->s.plan->options.ctx, set, error);
  unlink(path);
  return status;
}

static stint_status open_data(stint_run *const run, const stint_files *const files,
                              stint_error *const error) {
  const stint_options *const o = &run->s.plan->options;
  if (files->n_data == 0) return stint_fail(error, STINT_BAD_INPUT, "no training text: --data FILE");
  STINT_TRY(open_set(run, "train.tokens", files->data, files->n_data, &run->facts.train, &run->train, error));
  if (run->train.n_trained < (uint64_t)o->ctx)
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s: %llu tokens, and one row of --ctx %lld needs %lld; bring more text, or lower "
                      "--ctx to at most %llu",
                      files->data[0], (unsigned long long)run->train.n_tokens, (long long)o->ctx,
                      (long long)o->ctx + 1, (unsigned long long)run->train.n_trained);
  if (files->n_valid)
    STINT_TRY(
        open_set(run, "valid.tokens", files->valid, files->n_valid, &run->facts.valid, &run->valid, error));
  const uint64_t rows_per_step = (uint64_t)(o->batch * o->accum);
  run->steps_per_epoch = (int64_t)((run->train.n_rows + rows_per_step - 1) / rows_per_step);
  const double wanted = o->epochs * (double)run->steps_per_epoch;
  run->info.steps = o->steps ? o->steps : wanted < 1 ? 1 : (int64_t)ceil(wanted);
  run->info.train_tokens = run->train.n_trained;
  run->info.train_rows = run->train.n_rows;
  run->info.valid_tokens = run->valid.n_trained;
  run->info.valid_rows = run->valid.n_rows;
  return STINT_OK;
}

static stint_status open_run(stint_run *const run, const stint_files *const files, stint_error *const error) {
  stint_plan *const plan = run->s.plan;
  STINT_TRY(record_open(files->directory, &run->r, error));
  STINT_TRY(open_data(run, files, error));
  run->info.used_bytes = run->s.arena.bytes;
  run->info.peak_flops = run->s.device.module ? run->s.info.peak_flops
                                              : machine_peak_flops(plan->options.cpu_mask, run->s.workers);
  run->facts.command = files->command;
  run->facts.steps = run->info.steps;
  run->facts.peak_flops = run->info.peak_flops;
  run->facts.model_digest = digest_of(plan->model->file.map.base, plan->model->file.map.bytes);
  STINT_TRY(record_facts_write(&run->r, plan, &run->facts, error));
  return record_logs_open(&run->r, error);
}

stint_status stint_run_open(stint_plan *const plan, const stint_files *const files, stint_run **const out,
                            stint_error *const error) {
  *out = NULL;
  if (plan->purpose != STINT_TRAIN)
    return stint_fail(error, STINT_BAD_INPUT, "a run needs a plan made for training");
  session s;
  STINT_TRY(session_open(plan, &s, error));
  stint_run *const run = BUMP_NEW(&s.host, stint_run);
  if (!run) {
    session_close(&s);
    return stint_fail(error, STINT_INTERNAL, "the plan's own part of the arena is too small for a run");
  }
  run->s = s;
  run->r.log_jsonl = run->r.log_csv = -1;
  run->beta1_power = run->beta2_power = 1;
  const stint_status status = open_run(run, files, error);
  if (status != STINT_OK) {
    stint_run_close(run);
    return status;
  }
  *out = run;
  return STINT_OK;
}

void stint_run_describe(const stint_run *const run, stint_run_info *const out) { *out = run->info; }

void stint_run_close(stint_run *const run) {
  if (!run) return;
  record_close(&run->r);
  data_close(&run->train);
  data_close(&run->valid);
  session s = run->s; /* the run lies in the session's arena */
  session_close(&s);
}

/* ---- stepping ---- */

stint_status stint_run_evaluate(stint_run *const run, double *const loss, stint_error *const error) {
  *loss = NAN;
  if (run->valid.n_rows == 0) return stint_fail(error, STINT_BAD_INPUT, "no held-out text: --valid FILE");
  const session_sum sum = session_evaluate(&run->s, &run->s.eval, &run->valid);
  *loss = sum.loss / sum.weight;
  return session_check(&run->s, error);
}

/* The rows of microbatch `micro` of optimizer step `step` (both from 0), into the batch. */
static double fill_microbatch(stint_run *const run, const int64_t step, const int64_t micro) {
  const stint_options *const o = &run->s.plan->options;
  const int64_t epoch = step / run->steps_per_epoch, within = step % run->steps_per_epoch;
  const uint64_t first = (uint64_t)((within * o->accum + micro) * o->batch);
  run->s.step->row_offset = (uint64_t)(micro * o->batch * o->ctx);
  return data_fill(&run->train, first, o->batch, o->seed, (uint64_t)epoch, true, &run->s.batch);
}

static void set_step_block(stint_run *const run, const int64_t step, const double tokens) {
  const stint_options *const o = &run->s.plan->options;
  step_block *const b = run->s.step;
  run->beta1_power *= o->beta1;
  run->beta2_power *= o->beta2;
  b->seed = o->seed;
  b->step = (uint64_t)step;
  b->loss_scale = (float)(1.0 / tokens);
  b->lr = (float)lr_at(o, run->info.steps, step);
  b->bias1 = (float)(1.0 - run->beta1_power);
  b->bias2 = (float)(1.0 - run->beta2_power);
  b->clip = (float)o->clip;
}

/* Trained tensors that get no gradient are told about: an adapter's B is zero in step 1, so its A is judged in step 2. */
static void look_for_silent_tensors(stint_run *const run) {
  const graph *const g = &run->s.plan->main.g;
  const unsigned char *const grads = session_region(&run->s, HOME_GRAD);
  for (int32_t i = 0; grads && i < g->n_params; i++) {
    const float *const grad = (const float *)(grads + graph_at(g, g->params[i].grad)->offset);
    const size_t n = op_span_bytes(&graph_at(g, g->params[i].grad)->shape) / sizeof(float);
    size_t k = 0;
    while (k < n && grad[k] == 0) k++;
    if (k < n) continue;
    if (run->info.n_without_gradient++ == 0)
      run->info.first_without_gradient = graph_at(g, g->params[i].value)->name;
  }
}

/* Runs the microbatches; the sum of the losses in *loss. */
static void accumulate(stint_run *const run, const int64_t step, program_hook *const hook,
                       void *const context, double *const loss) {
  session *const s = &run->s;
  const schedule *const plan = s->main.plan;
  session_run(s, &s->main, 0, plan->first_micro, NULL, NULL);
  *loss = 0;
  for (int64_t micro = 0; micro < s->plan->options.accum; micro++) {
    fill_microbatch(run, step, micro);
    session_run(s, &s->main, plan->first_micro, plan->first_update, hook, context);
    *loss += session_loss_sum(s);
  }
}

/* The step is run once more, watched: everything that it did so far can be repeated, nothing was updated yet. */
static stint_status fail_not_finite(stint_run *const run, const int64_t step, stint_error *const error) {
  nonfinite_watch watch = {.device = run->s.device.module ? &run->s.device : NULL};
  watch.scratch = session_step_region(&run->s, &watch.scratch_bytes);
  double loss;
  accumulate(run, step, nonfinite_hook, &watch, &loss);
  char where[256];
  nonfinite_describe(&watch, &run->s.main, where, sizeof where);
  return stint_fail(
      error, STINT_NOT_FINITE,
      "step %lld: %s; the trained values are those of step %lld; lower --lr, or look at the model's weights",
      (long long)step + 1, where, (long long)step);
}

static stint_status take_step(stint_run *const run, const int64_t step, stint_step_info *const info,
                              stint_error *const error) {
  session *const s = &run->s;
  const schedule *const plan = s->main.plan;
  const stint_options *const o = &s->plan->options;
  const double start = machine_seconds();
  double tokens = 0, loss;
  for (int64_t micro = 0; micro < o->accum; micro++) tokens += fill_microbatch(run, step, micro);
  set_step_block(run, step, tokens);
  accumulate(run, step, NULL, NULL, &loss);
  STINT_TRY(session_check(s, error));
  if (!isfinite(loss)) return fail_not_finite(run, step, error);
  session_run(s, &s->main, plan->first_update, plan->first_update + 1, NULL, NULL); /* the norm */
  STINT_TRY(session_check(s, error));
  if (!isfinite(s->step->grad_norm)) return fail_not_finite(run, step, error);
  session_run(s, &s->main, plan->first_update + 1, s->main.n_steps, NULL, NULL);
  if (step == 1) look_for_silent_tensors(run);
  const void *const trained = session_region(s, HOME_PARAM);
  STINT_TRY(session_check(s, error));
  const double seconds = machine_seconds() - start;
  run->train_seconds += seconds;
  *info = (stint_step_info){
      .step = step + 1,
      .steps = run->info.steps,
      .loss_nats_per_token = loss / tokens,
      .grad_norm = (double)s->step->grad_norm,
      .grad_norm_clipped = (double)(s->step->grad_norm * s->step->clip_factor),
      .lr = (double)s->step->lr,
      .tokens = (int64_t)tokens,
      .seconds = seconds,
      .tokens_per_second = tokens / seconds,
      .peak_share = s->plan->report.flops_per_step / seconds / run->info.peak_flops,
      .eta_seconds = run->train_seconds / (double)(step + 1) * (double)(run->info.steps - step - 1),
      .valid_loss_nats_per_token = NAN,
      .planned_bytes = s->plan->report.arena_bytes,
      .used_bytes = s->arena.bytes,
      .checksum = digest_of(trained, s->plan->main.g.home_bytes[HOME_PARAM]),
  };
  return STINT_OK;
}

static stint_status save(stint_run *const run, const int64_t step, const bool verify,
                         stint_error *const error) {
  char path[RECORD_PATH_BYTES];
  STINT_TRY(record_path(&run->r, run->s.plan->options.full ? "model.gguf" : "adapter.gguf", path, error));
  size_t bytes;
  void *const scratch = session_step_region(&run->s, &bytes);
  STINT_TRY(save_trained(run->s.plan, &run->s.main, path, step, scratch, bytes, error));
  return verify ? save_verify(run->s.plan, &run->s.main, path, step, scratch, bytes, error) : STINT_OK;
}

static bool due(const int64_t every, const int64_t step) { return every > 0 && step % every == 0; }

/* Steps until the end, a failure or the caller's no. *done counts the finished ones. */
static stint_status take_steps(stint_run *const run, stint_step_event *const event, void *const context,
                               int64_t *const done, stint_error *const error) {
  const stint_options *const o = &run->s.plan->options;
  for (int64_t step = 0; step < run->info.steps; step++) {
    stint_step_info info;
    STINT_TRY(take_step(run, step, &info, error));
    *done = step + 1;
    const bool last = step + 1 == run->info.steps;
    if (run->valid.n_rows && (last || due(o->eval_every, step + 1)))
      STINT_TRY(stint_run_evaluate(run, &info.valid_loss_nats_per_token, error));
    STINT_TRY(record_step(&run->r, &info, error));
    if (!last && due(o->save_every, step + 1)) STINT_TRY(save(run, step + 1, false, error));
    if (event && !event(context, &info)) break;
  }
  return STINT_OK;
}

stint_status stint_run_train(stint_run *const run, stint_step_event *const event, void *const context,
                             stint_error *const error) {
  int64_t done = 0;
  stint_mark_first_step();
  const stint_status status = take_steps(run, event, context, &done, error);
  stint_mark_last_step();
  if (status == STINT_OK) return save(run, done, true, error);
  /* what was trained before the failure is whole (a failed step changed nothing): keep it */
  if (done > 0) save(run, done, false, NULL);
  return status;
}
