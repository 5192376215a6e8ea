/* Adapters through formats/adapter; whole models as a copy of the base's keys with the trained tensors. */
#include "engine/train/save.h"

#include <string.h>

static size_t n_pairs(const stint_plan *const plan) { return (size_t)plan->main.g.n_params / 2; }

/* Parameters come in pairs, A before B (models/build). p == NULL: sizes only. */
static void fill_pairs(const stint_plan *const plan, const program *const p, adapter_pair *const pairs) {
  const graph *const g = &plan->main.g;
  for (size_t i = 0; i < n_pairs(plan); i++) {
    const graph_param *const a = &g->params[2 * i], *const b = &g->params[2 * i + 1];
    const op_tensor *const as = &graph_at(g, a->value)->shape, *const bs = &graph_at(g, b->value)->shape;
    pairs[i] = (adapter_pair){.target = a->base, .ne = {as->ne[0], bs->ne[1], 1}, .rank = as->ne[1]};
    if (!p) continue;
    pairs[i].a = program_tensor(p, a->value);
    pairs[i].b = program_tensor(p, b->value);
  }
}

static float alpha_of(const stint_plan *const plan) {
  return plan->options.adapter ? plan->adapter.alpha : (float)plan->options.alpha;
}

static adapter_facts facts_of(const stint_plan *const plan, const int64_t step) {
  return (adapter_facts){
      .architecture = plan->model->info.architecture, .alpha = alpha_of(plan), .step = step};
}

static size_t align_up(const size_t bytes) { return (bytes + 63) & ~(size_t)63; }

size_t save_scratch_bytes(const stint_plan *const plan) {
  char path[SAVE_PATH_BYTES];
  memset(path, 'p', sizeof path - 1);
  path[sizeof path - 1] = 0;
  const gguf_file *const base = &plan->model->file;
  if (plan->options.full) {
    const size_t write = gguf_write_scratch(base->data_offset, base->n_tensors, base->n_keys, sizeof path);
    const size_t verify = sizeof path + base->n_keys * (sizeof(gguf_key) + 16) +
                          base->n_tensors * (sizeof(gguf_tensor) + 96) + 4096;
    return align_up(write > verify ? write : verify);
  }
  bump scratch;
  bump_init(&scratch, 0);
  adapter_pair *const pairs = BUMP_ARRAY(&scratch, adapter_pair, n_pairs(plan) + 1);
  size_t bytes = 0;
  if (pairs) {
    fill_pairs(plan, NULL, pairs);
    const adapter_facts facts = facts_of(plan, INT64_MAX);
    bytes = align_up(sizeof(adapter_pair) * (n_pairs(plan) + 1) + 64) +
            align_up(adapter_scratch(path, &facts, pairs, n_pairs(plan)));
  }
  bump_free(&scratch);
  return bytes;
}

static stint_status write_model(const stint_plan *const plan, const program *const p, const char *const path,
                                bump *const b, stint_error *const error) {
  const gguf_file *const base = &plan->model->file;
  gguf_writer *w;
  STINT_TRY(gguf_write_open(path, b, &w, error));
  for (size_t i = 0; i < base->n_keys; i++) gguf_write_key(w, &base->keys[i]);
  for (size_t i = 0; i < base->n_tensors; i++) {
    const gguf_tensor *const t = &base->tensors[i];
    gguf_write_tensor(w, t->name, t->type, t->n_dims, t->ne);
  }
  for (size_t i = 0; i < base->n_tensors; i++) {
    const void *data =
        base->tensors[i].data; /* tensors outside the graph (frequency factors) stay as they are */
    for (int32_t k = 0; k < plan->main.g.n_params; k++)
      if (strcmp(plan->main.g.params[k].base, base->tensors[i].name) == 0)
        data = program_tensor(p, plan->main.g.params[k].value);
    gguf_write_data(w, data, base->tensors[i].bytes);
  }
  return gguf_write_close(w, error);
}

static stint_status check_finite(const stint_plan *const plan, const program *const p, const char *const path,
                                 stint_error *const error) {
  const graph *const g = &plan->main.g;
  for (int32_t i = 0; i < g->n_params; i++) {
    const float *const value = program_tensor(p, g->params[i].value);
    const size_t n = op_span_bytes(&graph_at(g, g->params[i].value)->shape) / sizeof(float);
    for (size_t k = 0; k < n; k++)
      if (value[k] - value[k] != 0)
        return stint_fail(error, STINT_NOT_FINITE, "%s is not written: element %zu of %s is not finite", path,
                          k, graph_at(g, g->params[i].value)->name);
  }
  return STINT_OK;
}

stint_status save_trained(const stint_plan *const plan, const program *const p, const char *const path,
                          const int64_t step, void *const scratch, const size_t scratch_bytes,
                          stint_error *const error) {
  bump b;
  bump_init_over(&b, scratch, scratch_bytes);
  STINT_TRY(check_finite(plan, p, path, error));
  if (plan->options.full) return write_model(plan, p, path, &b, error);
  adapter_pair *const pairs = BUMP_ARRAY(&b, adapter_pair, n_pairs(plan) + 1);
  if (!pairs) return stint_fail(error, STINT_INTERNAL, "%s: the plan's saving buffer is too small", path);
  fill_pairs(plan, p, pairs);
  const adapter_facts facts = facts_of(plan, step);
  return adapter_write(path, &facts, pairs, n_pairs(plan), &b, error);
}

static stint_status verify_model(const stint_plan *const plan, const program *const p, const char *const path,
                                 bump *const b, stint_error *const error) {
  gguf_file saved;
  STINT_TRY(gguf_open(path, b, &saved, error));
  stint_status status = STINT_OK;
  for (int32_t k = 0; k < plan->main.g.n_params && status == STINT_OK; k++) {
    const graph_param *const param = &plan->main.g.params[k];
    const gguf_tensor *const t = gguf_find_tensor(&saved, param->base);
    if (!t || !t->data || memcmp(t->data, program_tensor(p, param->value), t->bytes) != 0)
      status = stint_fail(error, STINT_IO,
                          "%s: tensor %s reads back other bytes than were written; check the disk", path,
                          param->base);
  }
  gguf_close(&saved);
  return status;
}

stint_status save_verify(const stint_plan *const plan, const program *const p, const char *const path,
                         const int64_t step, void *const scratch, const size_t scratch_bytes,
                         stint_error *const error) {
  bump b;
  bump_init_over(&b, scratch, scratch_bytes);
  if (plan->options.full) return verify_model(plan, p, path, &b, error);
  adapter_pair *const pairs = BUMP_ARRAY(&b, adapter_pair, n_pairs(plan) + 1);
  if (!pairs) return stint_fail(error, STINT_INTERNAL, "%s: the plan's saving buffer is too small", path);
  fill_pairs(plan, p, pairs);
  const adapter_facts facts = facts_of(plan, step);
  return adapter_verify(path, &facts, pairs, n_pairs(plan), &plan->model->file, &b, error);
}
