/* Keys say their unit; sizes are bytes; schedule steps count from 0. */
#include "engine/train/plan_json.h"

#include "engine/data/digest.h"

void plan_write_options(const stint_plan *const plan, json_out *const o) {
  static const char *const schedules[] = {"constant", "linear", "cosine"};
  const stint_options *const p = &plan->options;
  json_out_object(o);
  json_put_int(o, "ctx_tokens", p->ctx);
  json_put_int(o, "batch_rows", p->batch);
  json_put_int(o, "threads", p->threads);
  json_put_text(o, "device", p->device == STINT_CUDA ? "cuda" : "cpu");
  json_put_text(o, "numerics", p->device == STINT_CUDA && p->numerics == STINT_FAST ? "fast" : "strict");
  if (plan->purpose == STINT_TRAIN) {
    json_put_int(o, "accum", p->accum);
    json_put_bool(o, "full", p->full);
    if (!p->full) {
      json_put_text(o, "adapter", p->adapter);
      json_put_int(o, "rank", p->rank);
      json_put_double(o, "alpha", p->alpha);
      json_put_double(o, "dropout", p->dropout);
      json_put_text(o, "targets", p->targets);
    }
    json_put_text(o, "optimizer", p->optimizer == STINT_ADAMW ? "adamw" : "sgd");
    json_put_text(o, "schedule", schedules[p->schedule]);
    json_put_double(o, "lr", p->lr);
    json_put_double(o, "lr_floor", p->lr_floor);
    json_put_int(o, "warmup_steps", p->warmup);
    json_put_double(o, "weight_decay", p->weight_decay);
    json_put_double(o, "clip", p->clip);
    if (p->optimizer == STINT_ADAMW) {
      json_put_double(o, "beta1", p->beta1);
      json_put_double(o, "beta2", p->beta2);
      json_put_double(o, "epsilon", p->epsilon);
    } else {
      json_put_double(o, "momentum", p->momentum);
    }
    json_put_uint(o, "seed", p->seed);
  }
  json_out_end(o);
}

static void write_model(const stint_plan *const plan, json_out *const o) {
  const stint_model_info *const m = &plan->model->info;
  json_out_key(o, "model");
  json_out_object(o);
  json_put_text(o, "architecture", m->architecture);
  json_put_text(o, "weight_types", m->weight_types);
  json_put_int(o, "parameters", m->n_params);
  json_put_int(o, "layers", m->n_layers);
  json_put_int(o, "vocabulary_tokens", m->n_vocab);
  json_out_end(o);
}

static void write_categories(const stint_plan *const plan, json_out *const o) {
  json_out_key(o, "categories");
  json_out_object(o);
  for (int c = 0; c < STINT_CATEGORIES; c++) {
    json_out_key(o, stint_category_name((stint_category)c));
    json_out_object(o);
    json_put_uint(o, "bytes", plan->report.bytes[c]);
    json_put_uint(o, "on_step_region_bytes", plan->report.overlaid_bytes[c]);
    json_out_end(o);
  }
  json_out_end(o);
}

static void write_peak(const stint_plan *const plan, json_out *const o) {
  const stint_plan_report *const r = &plan->report;
  json_out_key(o, "peak");
  json_out_object(o);
  json_put_int(o, "step", r->peak_step);
  json_put_text(o, "name", r->peak_step_name);
  json_put_uint(o, "lower_bound_bytes", r->lower_bound_bytes);
  json_put_uint(o, "packed_bytes", plan->main.s.packing.height_bytes);
  json_put_bool(o, "packing_optimal", r->packing_optimal);
  json_out_key(o, "tensors");
  json_out_array(o);
  stint_plan_tensor t;
  for (int64_t i = 0; i < r->n_tensors_at_peak && stint_plan_peak_tensor(plan, i, &t); i++) {
    json_out_object(o);
    json_put_text(o, "name", t.name);
    json_put_text(o, "category", stint_category_name(t.category));
    json_put_uint(o, "bytes", t.bytes);
    json_put_uint(o, "offset_bytes", t.offset);
    json_put_int(o, "born_step", t.born);
    json_put_int(o, "dies_step", t.dies);
    json_out_end(o);
  }
  json_out_end(o);
  json_out_end(o);
}

static void write_targets(const stint_plan *const plan, json_out *const o) {
  json_out_key(o, "trained");
  json_out_array(o);
  const char *name;
  int64_t n_in, n_out, n_trained;
  for (int64_t i = 0; stint_plan_target(plan, i, &name, &n_in, &n_out, &n_trained); i++) {
    json_out_object(o);
    json_put_text(o, "name", name);
    json_put_int(o, "inputs", n_in);
    json_put_int(o, "outputs", n_out);
    json_put_int(o, "trained_parameters", n_trained);
    json_out_end(o);
  }
  json_out_end(o);
}

void plan_write_json(const stint_plan *const plan, json_out *const o) {
  static const char *const purposes[] = {"train", "evaluate", "sample"};
  const stint_plan_report *const r = &plan->report;
  json_out_object(o);
  json_put_int(o, "plan_version", 1);
  json_put_text(o, "purpose", purposes[plan->purpose]);
  json_put_bool(o, "fits", r->fits);
  json_put_uint(o, "peak_bytes", r->peak_bytes);
  json_put_uint(o, "mapped_bytes", r->mapped_bytes);
  json_put_uint(o, "arena_bytes", r->arena_bytes);
  json_put_uint(o, "planning_bytes", r->planning_bytes);
  json_put_uint(o, "device_bytes", r->device_bytes);
  json_put_uint(o, "pinned_bytes", r->pinned_bytes);
  json_put_uint(o, "step_region_bytes", r->step_bytes);
  json_put_uint(o, "budget_bytes", r->budget_bytes);
  json_put_text(o, "choice", r->choice);
  json_put_double(o, "operations_per_step", r->flops_per_step);
  json_put_int(o, "tokens_per_step", r->tokens_per_step);
  json_put_int(o, "schedule_steps", r->n_steps);
  json_put_int(o, "trained_parameters", r->n_trainable);
  write_model(plan, o);
  json_out_key(o, "options");
  plan_write_options(plan, o);
  write_categories(plan, o);
  write_peak(plan, o);
  write_targets(plan, o);
  json_out_end(o);
}

size_t stint_plan_json(const stint_plan *const plan, char *const out, const size_t room) {
  char none[1];
  json_out o;
  json_out_open(&o, room ? out : none, room ? room : sizeof none);
  o.indent = 2;
  plan_write_json(plan, &o);
  json_out_close_line(&o);
  return o.used + o.lost_bytes;
}

static bool digest_flush(void *const context, const char *const data, const size_t bytes) {
  digest_add(context, data, bytes);
  return true;
}

uint64_t plan_digest(const stint_plan *const plan) {
  char window[1024];
  digest d;
  digest_start(&d);
  json_out o;
  json_out_open(&o, window, sizeof window);
  o.flush = digest_flush;
  o.flush_context = &d;
  plan_write_json(plan, &o);
  json_out_close(&o);
  return digest_end(&d);
}
