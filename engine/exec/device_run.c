/* Capturing, and the two ways to run. */
#include "engine/exec/device_run.h"

/* The ranges of a step's operands and its workspace. */
static int find_operands(const program *const p, const int32_t step, device_operand *const out) {
  const graph *const g = p->plan->g;
  const graph_node *const node = &g->nodes[step];
  int n = 0;
  for (int i = 0; i < OP_MAX_SRC + OP_MAX_DST; i++) {
    const bool written = i >= OP_MAX_SRC;
    const graph_id id = written ? node->dst[i - OP_MAX_SRC] : node->src[i];
    if (id == GRAPH_NONE) continue;
    const graph_tensor *const t = graph_at(g, id);
    out[n++] = (device_operand){p->base.operand[t->home] + t->offset, op_span_bytes(&t->shape), written};
  }
  op_case c;
  graph_case(g, node, &c);
  const size_t work = op_workspace(node->op, &c, p->plan->backend, p->plan->workers);
  if (work)
    out[n++] = (device_operand){p->base.operand[HOME_STEP] + p->plan->workspace_offset[step], work, true};
  return n;
}

static stint_status enqueue(device_run *const r, const program *const p, const int32_t step,
                            stint_error *const error) {
  cuda_queue *const queue = r->module->queue(r->d);
  if (r->module->operands) {
    device_operand list[OP_MAX_SRC + OP_MAX_DST + 1];
    r->module->operands(list, find_operands(p, step, list));
  }
  p->steps[step].launch(p->steps[step].args, queue);
  if (r->module->operands) r->module->operands(NULL, 0);
  if (!queue->error) return STINT_OK;
  return stint_fail(error, STINT_INTERNAL, "the device refused op %s of %s (error %d)",
                    op_table[p->plan->g->nodes[step].op]->name, p->plan->g->nodes[step].name, queue->error);
}

stint_status device_run_capture(device_run *const r, const program *const p, const int32_t first,
                                const int32_t end, stint_error *const error) {
  if (first >= end) return STINT_OK;
  if (r->n_ranges == DEVICE_MAX_RANGES)
    return stint_fail(error, STINT_INTERNAL, "more than %d captured ranges", DEVICE_MAX_RANGES);
  STINT_TRY(r->module->capture_begin(r->d, error));
  stint_status status = STINT_OK;
  for (int32_t i = first; i < end && status == STINT_OK; i++) status = enqueue(r, p, i, error);
  device_graph *recorded = NULL;
  const stint_status ended = r->module->capture_end(r->d, &recorded, status == STINT_OK ? error : NULL);
  if (status == STINT_OK) status = ended;
  STINT_TRY(status);
  r->ranges[r->n_ranges++] = (device_range){p->plan, first, end, recorded};
  return STINT_OK;
}

static stint_status run_captured(device_run *const r, const program *const p, const int32_t first,
                                 const int32_t end, stint_error *const error) {
  for (int i = 0; i < r->n_ranges; i++)
    if (r->ranges[i].plan == p->plan && r->ranges[i].first == first && r->ranges[i].end == end)
      return r->module->run(r->d, r->ranges[i].graph, error);
  return stint_fail(error, STINT_INTERNAL, "steps %d to %d were not captured", first, end);
}

static stint_status run_watched(device_run *const r, const program *const p, const int32_t first,
                                const int32_t end, program_hook *const hook, void *const context,
                                stint_error *const error) {
  for (int32_t i = first; i < end; i++) {
    STINT_TRY(enqueue(r, p, i, error));
    STINT_TRY(r->module->wait(r->d, error));
    hook(context, p, i);
  }
  return STINT_OK;
}

stint_status device_run_range(device_run *const r, const program *const p, const int32_t first,
                              const int32_t end, program_hook *const hook, void *const context,
                              stint_error *const error) {
  if (first >= end) return STINT_OK;
  STINT_TRY(r->module->upload(r->d, r->batch_device, r->batch_host, r->batch_bytes, error));
  if (hook) {
    STINT_TRY(run_watched(r, p, first, end, hook, context, error));
  } else {
    STINT_TRY(run_captured(r, p, first, end, error));
  }
  return r->module->download(r->d, r->batch_host, r->batch_device, r->batch_bytes, error);
}
