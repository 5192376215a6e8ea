/* Making a plan: candidates, graphs, schedules, layout, and the report of it all. */
#include "engine/train/plan.h"

#include "engine/data/data.h"
#include "engine/exec/program.h"
#include "engine/train/choose_token.h"
#include "engine/train/machine.h"
#include "engine/train/save.h"
#include "engine/tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

const char *stint_category_name(const stint_category category) {
  static const char *const names[STINT_CATEGORIES] = {"weights",     "adapter",   "gradients",  "optimizer",
                                                      "activations", "workspace", "batch",      "cache",
                                                      "runtime",     "loading",   "evaluation", "saving"};
  return (unsigned)category < STINT_CATEGORIES ? names[category] : "unknown";
}

static stint_status build_program(stint_plan *const plan, const stint_purpose purpose,
                                  plan_program *const out, stint_error *const error) {
  const stint_options *const o = &plan->options;
  const bool sample = purpose == STINT_SAMPLE;
  out->want = (build_request){
      .purpose = purpose,
      .options = o,
      .adapted = plan->purpose == STINT_TRAIN ? !o->full : o->adapter != NULL,
      .adapter = o->adapter ? &plan->adapter : NULL,
      .rank = o->rank,
      .alpha = o->alpha,
      .targets = o->targets,
      .rows = sample ? 1 : o->ctx * o->batch,
      .cache_rows = o->ctx,
      .loss_chunk = plan->choice.loss_chunk,
      .attention_chunk = sample ? 1 : plan->choice.attention_chunk,
  };
  STINT_TRY(
      model_build(plan->model, &out->want, plan->choice.remat, &out->g, &plan->programs, &out->b, error));
  bump scratch;
  bump_init(&scratch, 0);
  const stint_status status =
      schedule_make(&out->g, BACKEND_CPU, o->threads, &plan->programs, &scratch, &out->s, error);
  bump_free(&scratch);
  out->present = status == STINT_OK;
  return status;
}

static stint_status loading_sizes(stint_plan *const plan, stint_error *const error) {
  STINT_TRY(tokenizer_bytes(&plan->model->file, &plan->tokenizer_bytes, error));
  plan->tokenizer_bytes = (plan->tokenizer_bytes + 63) & ~(size_t)63;
  plan->prepare_bytes = plan->purpose == STINT_SAMPLE ? 0 : data_prepare_bytes();
  return STINT_OK;
}

static size_t larger(const size_t a, const size_t b) { return a > b ? a : b; }

/* Everything that has been decided becomes addresses. */
static stint_status lay_out(stint_plan *const plan, stint_error *const error) {
  const plan_program *const main = &plan->main, *const eval = &plan->eval;
  size_t home[HOME_COUNT];
  for (int h = 0; h < HOME_COUNT; h++) home[h] = main->g.home_bytes[h];
  size_t step = main->s.packing.height_bytes;
  size_t runtime = program_bytes(&main->s) + pool_bytes(plan->options.threads) + PLAN_HOST_BYTES;
  if (eval->present) {
    for (int h = HOME_PARAM; h <= HOME_CACHE; h++)
      if (eval->g.home_bytes[h] > home[h] || (h == HOME_PARAM && eval->g.home_bytes[h] != home[h]))
        return stint_fail(error, STINT_INTERNAL, "training and evaluation disagree about the arena");
    step = larger(step, eval->s.packing.height_bytes);
    runtime += program_bytes(&eval->s);
  }
  size_t loading = 0;
  if (plan->purpose == STINT_SAMPLE) {
    loading = plan->tokenizer_bytes + sizeof(token_choice) * (size_t)plan->model->n_vocab;
  } else {
    step = larger(step, plan->tokenizer_bytes + plan->prepare_bytes);
  }
  if (plan->purpose == STINT_TRAIN) {
    plan->saving_bytes = save_scratch_bytes(plan);
    step = larger(step, plan->saving_bytes);
  }
  home[HOME_STEP] = step;
  arena_lay_out(home, runtime, loading, &plan->layout);
  return STINT_OK;
}

/* ---- the report ---- */

static const char *node_label(stint_plan *const plan, const graph_node *const n) {
  static const char *const passes[] = {"begin", "forward", "backward", "update"};
  return bump_printf(&plan->programs, "%s: %s of %s", n->recomputed ? "recompute" : passes[n->pass],
                     op_table[n->op]->name, n->name);
}

/* Which category a buffer of the step region belongs to. */
static stint_category buffer_category(const schedule_buffer *const b) {
  return b->tensor == GRAPH_NONE ? STINT_WORKSPACE : STINT_ACTIVATIONS;
}

static void report_step(stint_plan *const plan, stint_plan_report *const r) {
  const schedule *const s = &plan->main.s;
  const int32_t at = (int32_t)s->packing.bound_time;
  int32_t n_alive = 0;
  for (int32_t i = 0; i < s->n_buffers; i++) {
    if (s->buffers[i].born > at || s->buffers[i].dies < at) continue;
    r->bytes[buffer_category(&s->buffers[i])] += s->buffers[i].bytes;
    n_alive++;
  }
  /* what packing and turns on the region add beyond the live bytes is workspace that no step uses */
  r->bytes[STINT_WORKSPACE] += plan->layout.home_bytes[HOME_STEP] - s->packing.lower_bound_bytes;
  r->step_bytes = plan->layout.home_bytes[HOME_STEP];
  r->packed_bytes = s->packing.height_bytes;
  r->lower_bound_bytes = s->packing.lower_bound_bytes;
  r->packing_optimal = s->packing.optimal;
  r->peak_step = at;
  r->n_steps = plan->main.g.n_nodes;
  r->n_tensors_at_peak = n_alive;
}

static uint64_t planning_bytes(const stint_plan *const plan) {
  return plan->memory.taken_bytes + plan->programs.taken_bytes + plan->model->memory.taken_bytes;
}

/* Of the file, or of the one whose header this is. */
static uint64_t whole_file_bytes(const gguf_file *const file) {
  uint64_t end = file->map.bytes;
  for (size_t i = 0; i < file->n_tensors; i++)
    if (file->tensors[i].offset + file->tensors[i].bytes > end)
      end = file->tensors[i].offset + file->tensors[i].bytes;
  return end;
}

static void report(stint_plan *const plan, const uint64_t budget) {
  const stint_options *const o = &plan->options;
  const arena_layout *const l = &plan->layout;
  stint_plan_report *const r = &plan->report;
  const char *const peak_step_name = r->peak_step_name, *const chosen = r->choice;
  *r = (stint_plan_report){.budget_bytes = budget, .peak_step_name = peak_step_name, .choice = chosen};
  report_step(plan, r);
  const bool train = plan->purpose == STINT_TRAIN;
  /* A fully trained model's values are its weights; its file is read once, while loading. */
  const bool weights_in_arena = train && o->full;
  r->mapped_bytes = whole_file_bytes(&plan->model->file);
  r->bytes[STINT_WEIGHTS] = r->mapped_bytes + (weights_in_arena ? l->home_bytes[HOME_PARAM] : 0);
  r->bytes[STINT_ADAPTER] = weights_in_arena ? 0 : l->home_bytes[HOME_PARAM];
  r->bytes[STINT_GRADIENTS] = l->home_bytes[HOME_GRAD];
  r->bytes[STINT_OPTIMIZER] = l->home_bytes[HOME_MOMENT1] + l->home_bytes[HOME_MOMENT2];
  r->bytes[STINT_BATCH] = l->home_bytes[HOME_BATCH];
  r->bytes[STINT_CACHE] = l->home_bytes[HOME_CACHE];
  r->bytes[STINT_LOADING] =
      plan->purpose == STINT_SAMPLE ? l->loading_bytes : plan->tokenizer_bytes + plan->prepare_bytes;
  r->overlaid_bytes[STINT_LOADING] = plan->purpose == STINT_SAMPLE ? 0 : r->bytes[STINT_LOADING];
  r->bytes[STINT_EVALUATION] = r->overlaid_bytes[STINT_EVALUATION] =
      plan->eval.present ? plan->eval.s.packing.height_bytes : 0;
  r->bytes[STINT_SAVING] = r->overlaid_bytes[STINT_SAVING] = plan->saving_bytes;
  r->arena_bytes = l->total_bytes;
  r->planning_bytes = planning_bytes(plan);
  r->peak_bytes = r->mapped_bytes + r->arena_bytes + r->planning_bytes;
  uint64_t named = 0;
  for (int c = 0; c < STINT_CATEGORIES; c++)
    if (c != STINT_RUNTIME) named += r->bytes[c] - r->overlaid_bytes[c];
  r->bytes[STINT_RUNTIME] = r->peak_bytes - named; /* constants, bound schedules, stacks, the planner's own */
  const schedule *const s = &plan->main.s;
  r->flops_per_step = s->flops_begin + s->flops_micro * (double)o->accum + s->flops_update;
  r->tokens_per_step = plan->purpose == STINT_SAMPLE ? 1 : o->ctx * o->batch * (train ? o->accum : 1);
  r->n_targets = plan->main.b.n_targets;
  for (int32_t i = 0; i < plan->main.b.n_targets; i++) r->n_trainable += plan->main.b.targets[i].n_trained;
  r->fits = r->peak_bytes <= budget;
}

/* The report's texts, made before its numbers: they are part of what is counted. */
static stint_status report_texts(stint_plan *const plan, stint_error *const error) {
  char choice[160];
  choice_describe(&plan->choice, choice, sizeof choice);
  plan->report.choice = bump_text(&plan->programs, choice, strlen(choice));
  plan->report.peak_step_name = node_label(plan, &plan->main.g.nodes[plan->main.s.packing.bound_time]);
  if (!plan->report.choice || !plan->report.peak_step_name)
    return stint_fail(error, STINT_NO_MEMORY, "no memory for the plan's report");
  return STINT_OK;
}

/* ---- candidates ---- */

static stint_status try_candidate(stint_plan *const plan, const uint64_t budget, stint_error *const error) {
  plan->main.present = plan->eval.present = false;
  STINT_TRY(build_program(plan, plan->purpose, &plan->main, error));
  if (plan->purpose == STINT_TRAIN) STINT_TRY(build_program(plan, STINT_EVALUATE, &plan->eval, error));
  STINT_TRY(lay_out(plan, error));
  STINT_TRY(report_texts(plan, error));
  report(plan, budget);
  return STINT_OK;
}

static stint_status choose(stint_plan *const plan, stint_error *const error) {
  const stint_options *const o = &plan->options;
  const bool asked = o->budget_bytes != 0;
  const uint64_t budget = asked ? o->budget_bytes : machine_memory_bytes();
  const int64_t rows = plan->purpose == STINT_SAMPLE ? 1 : o->ctx * o->batch;
  plan_choice smallest = {0};
  uint64_t smallest_bytes = UINT64_MAX;
  for (int i = 0;; i++) {
    plan_choice candidate;
    const bool last = !choice_candidate(i, rows, o->loss_chunk, o->attention_chunk, &candidate);
    if (last) candidate = smallest; /* none fits: the report is of the smallest */
    plan->choice = candidate;
    bump_free(&plan->programs);
    STINT_TRY(try_candidate(plan, budget, error));
    if (plan->report.fits) return STINT_OK;
    if (last) break;
    if (plan->report.peak_bytes >= smallest_bytes) continue;
    smallest_bytes = plan->report.peak_bytes;
    smallest = candidate;
  }
  const stint_plan_report *const r = &plan->report;
  return stint_fail(error, STINT_DOES_NOT_FIT,
                    "%s: the smallest plan takes %llu bytes (%.1f MiB: weights mapped %.1f, arena %.1f, "
                    "planning %.1f), %llu more "
                    "than %s of %llu; raise it, or lower --ctx, --batch or --rank",
                    plan->model->file.path, (unsigned long long)r->peak_bytes, (double)r->peak_bytes / 0x1p20,
                    (double)r->mapped_bytes / 0x1p20, (double)r->arena_bytes / 0x1p20,
                    (double)r->planning_bytes / 0x1p20, (unsigned long long)(r->peak_bytes - budget),
                    asked ? "the budget" : "this machine's available memory", (unsigned long long)budget);
}

stint_status stint_plan_make(stint_model *const model, const stint_options *const options,
                             const stint_purpose purpose, stint_plan **const out, stint_error *const error) {
  *out = NULL;
  bump memory;
  bump_init(&memory, 0);
  stint_plan *const plan = BUMP_NEW(&memory, stint_plan);
  if (!plan) return stint_fail(error, STINT_NO_MEMORY, "%s: no memory to plan", model->file.path);
  plan->model = model;
  plan->purpose = purpose;
  plan->options = *options;
  bump_init(&plan->programs, 0);
  plan->memory = memory;
  stint_status status = options_complete(model, purpose, &plan->options, error);
  if (status == STINT_OK && plan->options.targets)
    plan->options.targets = bump_text(&plan->memory, plan->options.targets, strlen(plan->options.targets));
  if (status == STINT_OK && plan->options.adapter) {
    plan->options.adapter = bump_text(&plan->memory, options->adapter, strlen(options->adapter));
    status = adapter_open(plan->options.adapter, &model->file, &plan->memory, &plan->adapter, error);
    if (status != STINT_OK) plan->options.adapter = NULL;
  }
  if (status == STINT_OK) status = loading_sizes(plan, error);
  if (status == STINT_OK) status = choose(plan, error);
  if (status != STINT_OK && status != STINT_DOES_NOT_FIT) {
    stint_plan_close(plan);
    return status;
  }
  *out = plan;
  return status;
}

void stint_plan_close(stint_plan *const plan) {
  if (!plan) return;
  if (plan->options.adapter) adapter_close(&plan->adapter);
  bump_free(&plan->programs);
  bump memory = plan->memory; /* the plan lies in its own memory */
  bump_free(&memory);
}

void stint_plan_describe(const stint_plan *const plan, stint_plan_report *const out) { *out = plan->report; }

bool stint_plan_peak_tensor(const stint_plan *const plan, const int64_t i, stint_plan_tensor *const out) {
  const schedule *const s = &plan->main.s;
  const int32_t at = (int32_t)s->packing.bound_time;
  /* the buffer with exactly i alive ones before it in the order (bytes falling, index rising) */
  for (int32_t k = 0; k < s->n_buffers; k++) {
    const schedule_buffer *const b = &s->buffers[k];
    if (b->born > at || b->dies < at) continue;
    int64_t before = 0;
    for (int32_t j = 0; j < s->n_buffers; j++) {
      const schedule_buffer *const other = &s->buffers[j];
      if (other->born > at || other->dies < at) continue;
      before += other->bytes > b->bytes || (other->bytes == b->bytes && j < k);
    }
    if (before != i) continue;
    const char *const name = b->tensor == GRAPH_NONE ? "workspace" : graph_at(s->g, b->tensor)->name;
    *out = (stint_plan_tensor){
        name,    b->bytes, plan->layout.home_offset[HOME_STEP] + b->offset, buffer_category(b),
        b->born, b->dies};
    return true;
  }
  return false;
}

bool stint_plan_target(const stint_plan *const plan, const int64_t i, const char **const name,
                       int64_t *const n_in, int64_t *const n_out, int64_t *const n_trained) {
  if (i < 0 || i >= plan->main.b.n_targets) return false;
  const build_target *const t = &plan->main.b.targets[i];
  *name = t->name;
  *n_in = t->n_in;
  *n_out = t->n_out;
  *n_trained = t->n_trained;
  return true;
}
