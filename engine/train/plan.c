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

static op_backend plan_backend(const stint_plan *const plan) {
  if (plan->options.device == STINT_CPU) return BACKEND_CPU;
  return plan->options.numerics == STINT_FAST ? BACKEND_CUDA_FAST : BACKEND_CUDA_STRICT;
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
      schedule_make(&out->g, plan_backend(plan), o->device == STINT_CPU ? o->threads : 1, &plan->programs,
                    &scratch, &out->s, error);
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

/* cuBLAS asks for 32 MiB on the newest devices and takes what it is given. */
enum { LIBRARY_WORKSPACE_BYTES = 32 << 20 };

/* The longest of what a schedule puts into the step region. */
static size_t schedule_region(const stint_plan *const plan) {
  return larger(plan->main.s.packing.height_bytes,
                plan->eval.present ? plan->eval.s.packing.height_bytes : 0);
}

static bool reads_the_file(const graph *const g) {
  for (graph_id t = 0; t < g->n_tensors; t++)
    if (g->tensors[t].home == HOME_FILE) return true;
  return false;
}

static void lay_out_device(stint_plan *const plan) {
  size_t home[HOME_COUNT];
  memcpy(home, plan->main.g.home_bytes, sizeof home);
  home[HOME_FILE] =
      reads_the_file(&plan->main.g) ? plan_file_bytes(&plan->model->file) - plan->model->file.data_offset : 0;
  home[HOME_STEP] = schedule_region(plan);
  device_lay_out(home, plan->options.numerics == STINT_FAST ? LIBRARY_WORKSPACE_BYTES : 0, &plan->on_device);
}

/* Everything that has been decided becomes addresses. */
static stint_status lay_out(stint_plan *const plan, stint_error *const error) {
  const plan_program *const main = &plan->main, *const eval = &plan->eval;
  const bool device = plan->options.device == STINT_CUDA;
  for (int h = HOME_PARAM; eval->present && h <= HOME_CACHE; h++)
    if (eval->g.home_bytes[h] > main->g.home_bytes[h] ||
        (h == HOME_PARAM && eval->g.home_bytes[h] != main->g.home_bytes[h]))
      return stint_fail(error, STINT_INTERNAL, "training and evaluation disagree about the arena");
  size_t home[HOME_COUNT] = {0}, step = 0, loading = 0;
  size_t runtime = program_bytes(&main->s) + (eval->present ? program_bytes(&eval->s) : 0) + PLAN_HOST_BYTES;
  if (device) {
    lay_out_device(plan);
  } else {
    memcpy(home, main->g.home_bytes, sizeof home);
    step = schedule_region(plan);
    runtime += pool_bytes(plan->options.threads);
  }
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

/* ---- candidates ---- */

static stint_status try_candidate(stint_plan *const plan, const uint64_t budget, stint_error *const error) {
  plan->main.present = plan->eval.present = false;
  STINT_TRY(build_program(plan, plan->purpose, &plan->main, error));
  if (plan->purpose == STINT_TRAIN) STINT_TRY(build_program(plan, STINT_EVALUATE, &plan->eval, error));
  STINT_TRY(lay_out(plan, error));
  STINT_TRY(plan_report_texts(plan, error));
  plan_report(plan, budget);
  return STINT_OK;
}

/* What the plan is held against, and its name in a sentence. */
static stint_status find_budget(const stint_plan *const plan, uint64_t *const bytes, const char **const name,
                                stint_error *const error) {
  const stint_options *const o = &plan->options;
  *name = "the budget";
  *bytes = o->budget_bytes;
  if (*bytes) return STINT_OK;
  if (o->device == STINT_CPU) {
    *name = "this machine's available memory";
    *bytes = machine_memory_bytes();
    return STINT_OK;
  }
  *name = "the device's memory";
  return machine_device_memory(o, bytes, error);
}

static stint_status fail_to_fit(const stint_plan *const plan, const uint64_t budget, const char *const name,
                                stint_error *const error) {
  const stint_plan_report *const r = &plan->report;
  const unsigned long long peak = r->peak_bytes, more = r->peak_bytes - budget, allowed = budget;
  char parts[128] = "on the device";
  if (plan->options.device == STINT_CPU)
    snprintf(parts, sizeof parts, "weights mapped %.1f, arena %.1f, planning %.1f",
             (double)r->mapped_bytes / 0x1p20, (double)r->arena_bytes / 0x1p20,
             (double)r->planning_bytes / 0x1p20);
  return stint_fail(error, STINT_DOES_NOT_FIT,
                    "%s: the smallest plan takes %llu bytes (%.1f MiB: %s), %llu more than %s of %llu; raise "
                    "it, or lower --ctx, "
                    "--batch or --rank",
                    plan->model->file.path, peak, (double)peak / 0x1p20, parts, more, name, allowed);
}

static stint_status choose(stint_plan *const plan, stint_error *const error) {
  const stint_options *const o = &plan->options;
  const int64_t rows = plan->purpose == STINT_SAMPLE ? 1 : o->ctx * o->batch;
  uint64_t budget;
  const char *name;
  STINT_TRY(find_budget(plan, &budget, &name, error));
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
    if (last) return fail_to_fit(plan, budget, name, error);
    if (plan->report.peak_bytes >= smallest_bytes) continue;
    smallest_bytes = plan->report.peak_bytes;
    smallest = candidate;
  }
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
