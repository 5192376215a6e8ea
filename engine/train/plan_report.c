/* The numbers and texts of a report, and the walks over a plan that people ask for. */
#include "engine/train/plan.h"

#include <string.h>

const char *stint_category_name(const stint_category category) {
  static const char *const names[STINT_CATEGORIES] = {"weights",     "adapter",   "gradients",  "optimizer",
                                                      "activations", "workspace", "batch",      "cache",
                                                      "runtime",     "loading",   "evaluation", "saving"};
  return (unsigned)category < STINT_CATEGORIES ? names[category] : "unknown";
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

/* Sizes and offsets of the homes, where the schedule runs. */
static const size_t *sizes(const stint_plan *const p) {
  return p->options.device == STINT_CUDA ? p->on_device.home_bytes : p->layout.home_bytes;
}

static const size_t *offsets(const stint_plan *const p) {
  return p->options.device == STINT_CUDA ? p->on_device.home_offset : p->layout.home_offset;
}

static void report_step(const stint_plan *const plan, stint_plan_report *const r) {
  const schedule *const s = &plan->main.s;
  for (int32_t i = 0; i < plan->n_at_peak; i++) {
    const schedule_buffer *const b = &s->buffers[plan->at_peak[i]];
    r->bytes[buffer_category(b)] += b->bytes;
  }
  /* what packing and turns on the region add beyond the live bytes is workspace that no step uses */
  r->bytes[STINT_WORKSPACE] += sizes(plan)[HOME_STEP] - s->packing.lower_bound_bytes;
  r->step_bytes = sizes(plan)[HOME_STEP];
  r->packed_bytes = s->packing.height_bytes;
  r->lower_bound_bytes = s->packing.lower_bound_bytes;
  r->packing_optimal = s->packing.optimal;
  r->peak_step = s->packing.bound_time;
  r->n_steps = plan->main.g.n_nodes;
  r->n_tensors_at_peak = plan->n_at_peak;
}

static uint64_t planning_bytes(const stint_plan *const plan) {
  return plan->memory.taken_bytes + plan->programs.taken_bytes + plan->model->memory.taken_bytes;
}

/* Of the file, or of the one whose header this is. */
uint64_t plan_file_bytes(const gguf_file *const file) {
  uint64_t end = file->map.bytes;
  for (size_t i = 0; i < file->n_tensors; i++)
    if (file->tensors[i].offset + file->tensors[i].bytes > end)
      end = file->tensors[i].offset + file->tensors[i].bytes;
  return end;
}

/* The host's share: loading and saving take turns on the reservation's step region. */
static void report_host(const stint_plan *const plan, stint_plan_report *const r) {
  const bool sample = plan->purpose == STINT_SAMPLE;
  r->bytes[STINT_LOADING] = sample ? plan->layout.loading_bytes : plan->tokenizer_bytes + plan->prepare_bytes;
  r->bytes[STINT_SAVING] = r->overlaid_bytes[STINT_SAVING] = plan->saving_bytes;
  r->overlaid_bytes[STINT_LOADING] = sample ? 0 : r->bytes[STINT_LOADING];
  r->mapped_bytes = plan_file_bytes(&plan->model->file);
  r->arena_bytes = plan->layout.total_bytes;
  r->planning_bytes = planning_bytes(plan);
}

void plan_report(stint_plan *const plan, const uint64_t budget) {
  const stint_options *const o = &plan->options;
  const bool device = o->device == STINT_CUDA, train = plan->purpose == STINT_TRAIN;
  const size_t *const home = sizes(plan);
  stint_plan_report *const r = &plan->report;
  const char *const peak_step_name = r->peak_step_name, *const chosen = r->choice;
  *r = (stint_plan_report){.budget_bytes = budget, .peak_step_name = peak_step_name, .choice = chosen};
  report_step(plan, r);
  report_host(plan, r);
  /* A fully trained model's values are its weights; its file is read once, while loading. */
  r->bytes[STINT_WEIGHTS] = (device ? home[HOME_FILE] : r->mapped_bytes) + (o->full ? home[HOME_PARAM] : 0);
  r->bytes[STINT_ADAPTER] = o->full ? 0 : home[HOME_PARAM];
  r->bytes[STINT_GRADIENTS] = home[HOME_GRAD];
  r->bytes[STINT_OPTIMIZER] = home[HOME_MOMENT1] + home[HOME_MOMENT2];
  r->bytes[STINT_BATCH] = home[HOME_BATCH];
  r->bytes[STINT_CACHE] = home[HOME_CACHE];
  r->bytes[STINT_EVALUATION] = r->overlaid_bytes[STINT_EVALUATION] =
      plan->eval.present ? plan->eval.s.packing.height_bytes : 0;
  if (device) {
    r->overlaid_bytes[STINT_LOADING] = r->bytes[STINT_LOADING]; /* on the host */
    r->device_bytes = r->peak_bytes = plan->on_device.total_bytes;
    r->pinned_bytes = plan->on_device.pinned_bytes;
  } else {
    r->peak_bytes = r->mapped_bytes + r->arena_bytes + r->planning_bytes;
  }
  uint64_t named = 0;
  for (int c = 0; c < STINT_CATEGORIES; c++)
    if (c != STINT_RUNTIME) named += r->bytes[c] - r->overlaid_bytes[c];
  /* constants, bound schedules, stacks, the planner's own; on a device: constants, the library's workspace, alignment */
  r->bytes[STINT_RUNTIME] = r->peak_bytes - named;
  const schedule *const s = &plan->main.s;
  r->flops_per_step = s->flops_begin + s->flops_micro * (double)o->accum + s->flops_update;
  r->tokens_per_step = plan->purpose == STINT_SAMPLE ? 1 : o->ctx * o->batch * (train ? o->accum : 1);
  r->n_targets = plan->main.b.n_targets;
  for (int32_t i = 0; i < plan->main.b.n_targets; i++) r->n_trainable += plan->main.b.targets[i].n_trained;
  r->fits = r->peak_bytes <= budget;
}

/* Buffers alive at the peak: bytes falling, then index rising. */
static stint_status find_peak(stint_plan *const plan, stint_error *const error) {
  const schedule *const s = &plan->main.s;
  const int64_t at = s->packing.bound_time;
  plan->n_at_peak = 0;
  plan->at_peak = BUMP_ARRAY(&plan->programs, int32_t, (size_t)s->n_buffers);
  if (!plan->at_peak) return stint_fail(error, STINT_NO_MEMORY, "no memory for the plan's report");
  for (int32_t i = 0; i < s->n_buffers; i++) {
    if (s->buffers[i].born > at || s->buffers[i].dies < at) continue;
    int32_t k = plan->n_at_peak++;
    for (; k > 0 && s->buffers[plan->at_peak[k - 1]].bytes < s->buffers[i].bytes; k--)
      plan->at_peak[k] = plan->at_peak[k - 1];
    plan->at_peak[k] = i;
  }
  return STINT_OK;
}

stint_status plan_report_texts(stint_plan *const plan, stint_error *const error) {
  char choice[160];
  choice_describe(&plan->choice, choice, sizeof choice);
  plan->report.choice = bump_text(&plan->programs, choice, strlen(choice));
  plan->report.peak_step_name = node_label(plan, &plan->main.g.nodes[plan->main.s.packing.bound_time]);
  if (!plan->report.choice || !plan->report.peak_step_name)
    return stint_fail(error, STINT_NO_MEMORY, "no memory for the plan's report");
  return find_peak(plan, error);
}

void stint_plan_describe(const stint_plan *const plan, stint_plan_report *const out) { *out = plan->report; }

bool stint_plan_peak_tensor(const stint_plan *const plan, const int64_t i, stint_plan_tensor *const out) {
  if (i < 0 || i >= plan->n_at_peak) return false;
  const schedule_buffer *const b = &plan->main.s.buffers[plan->at_peak[i]];
  const char *const name = b->tensor == GRAPH_NONE ? "workspace" : graph_at(plan->main.s.g, b->tensor)->name;
  *out = (stint_plan_tensor){name,    b->bytes, offsets(plan)[HOME_STEP] + b->offset, buffer_category(b),
                             b->born, b->dies};
  return true;
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
