/* The first step whose F32 output holds a NaN or an infinity wins; later ones are not looked at. */
#include "engine/train/nonfinite.h"

#include <stdio.h>

/* A row of a tensor where the host can read it; NULL when a device refuses. */
static const float *row_of(const nonfinite_watch *const w, const program *const p, const graph_id id,
                           const int64_t r) {
  const graph_tensor *const t = graph_at(p->plan->g, id);
  const size_t offset = t->offset + (size_t)r * t->shape.nb[1],
               bytes = (size_t)t->shape.ne[0] * sizeof(float);
  if (!w->device) return (const float *)(p->base.host[t->home] + offset);
  if (bytes > w->scratch_bytes) return NULL;
  const stint_status status =
      w->device->module->download(w->device->d, w->scratch, p->base.operand[t->home] + offset, bytes, NULL);
  return status == STINT_OK ? w->scratch : NULL;
}

static void look(nonfinite_watch *const w, const program *const p, const int32_t step, const graph_id id) {
  const op_tensor *const t = &graph_at(p->plan->g, id)->shape;
  if (t->type != DTYPE_F32) return;
  for (int64_t r = 0; r < op_rows(t); r++) {
    const float *const row = row_of(w, p, id, r);
    for (int64_t i = 0; row && i < t->ne[0]; i++) {
      if (row[i] - row[i] == 0) continue;
      w->found = true, w->step = step, w->tensor = id, w->row = r, w->column = i;
      return;
    }
  }
}

void nonfinite_hook(void *const watch, const program *const p, const int32_t step) {
  nonfinite_watch *const w = watch;
  const graph_node *const n = &p->plan->g->nodes[step];
  for (int d = 0; d < OP_MAX_DST && !w->found; d++)
    if (n->dst[d] != GRAPH_NONE) look(w, p, step, n->dst[d]);
}

void nonfinite_describe(const nonfinite_watch *const w, const program *const p, char *const out,
                        const size_t room) {
  if (!w->found) {
    snprintf(out, room, "the sum of the gradients' squares is not finite, though every gradient is");
    return;
  }
  const graph *const g = p->plan->g;
  const graph_node *const n = &g->nodes[w->step];
  const char *const name = graph_at(g, w->tensor)->name;
  snprintf(
      out, room,
      "op %s of %s made the first value that is not finite (%s, row %lld of the microbatch, element %lld)",
      op_table[n->op]->name, n->name, name, (long long)w->row, (long long)w->column);
}
