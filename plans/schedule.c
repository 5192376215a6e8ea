/* Lifetimes and in-place by one walk; packing by arena/pack. */
#include "plans/schedule.h"

#include <string.h>

#include "arena/guard.h"

#ifdef STINT_DEBUG
enum { BEHIND_BYTES = GUARD_CANARY_BYTES }; /* a canary behind each buffer */
#else
enum { BEHIND_BYTES = 0 };
#endif

static size_t buffer_bytes(const size_t bytes) { return ((bytes + 63) & ~(size_t)63) + BEHIND_BYTES; }

/* May destination j of node n lie on source i? Only when that source appears once: a second reading of it in the same
 * node has an alias rule of its own. */
static bool alias_allowed(const graph_node *const n, const int j, const int i) {
  if (!(op_table[n->op]->alias[j] >> i & 1)) return false;
  for (int k = 0; k < OP_MAX_SRC; k++)
    if (k != i && n->src[k] == n->src[i]) return false;
  return true;
}

/* The last node that touches each tensor. */
static void find_deaths(const graph *const g, int32_t *const dies) {
  for (int32_t t = 0; t < g->n_tensors; t++) dies[t] = -1;
  for (int32_t i = 0; i < g->n_nodes; i++) {
    const graph_node *const n = &g->nodes[i];
    for (int s = 0; s < OP_MAX_SRC; s++)
      if (n->src[s] != GRAPH_NONE) dies[n->src[s]] = i;
    for (int d = 0; d < OP_MAX_DST; d++)
      if (n->dst[d] != GRAPH_NONE) dies[n->dst[d]] = i;
  }
}

static int32_t add_buffer(schedule *const s, const graph_id tensor, const int32_t born, const int32_t dies,
                          const size_t bytes) {
  s->buffers[s->n_buffers] = (schedule_buffer){tensor, born, dies, buffer_bytes(bytes), 0};
  return s->n_buffers++;
}

/* The buffer of a dying source that destination j may take over, or -1. */
static int32_t inherit(const schedule *const s, const graph_node *const n, const int32_t node, const int j,
                       const bool *const taken) {
  const graph *const g = s->g;
  const size_t bytes = buffer_bytes(op_span_bytes(&graph_at(g, n->dst[j])->shape));
  for (int i = 0; i < OP_MAX_SRC; i++) {
    if (n->src[i] == GRAPH_NONE || taken[i] || !alias_allowed(n, j, i)) continue;
    const int32_t b = s->buffer_of[n->src[i]];
    if (b < 0 || s->buffers[b].dies != node || s->buffers[b].bytes != bytes) continue;
    return i;
  }
  return -1;
}

static stint_status place(schedule *const s, bump *const scratch, stint_error *const error) {
  pack_buffer *const packed = BUMP_ARRAY(scratch, pack_buffer, (size_t)s->n_buffers + 1);
  if (!packed) return stint_fail(error, STINT_NO_MEMORY, "no memory to pack %d buffers", s->n_buffers);
  for (int32_t i = 0; i < s->n_buffers; i++)
    packed[i] = (pack_buffer){s->buffers[i].born, (int64_t)s->buffers[i].dies + 1, s->buffers[i].bytes, 0};
  STINT_TRY(arena_pack(packed, (size_t)s->n_buffers, scratch, &s->packing, error));
  for (int32_t i = 0; i < s->n_buffers; i++) s->buffers[i].offset = packed[i].offset;
  return STINT_OK;
}

stint_status schedule_make(graph *const g, const op_backend backend, const int workers, bump *const keep,
                           bump *const scratch, schedule *const out, stint_error *const error) {
  if (g->status != STINT_OK) return g->status;
  *out = (schedule){.g = g, .backend = backend, .workers = workers};
  out->buffer_of = BUMP_ARRAY(keep, int32_t, (size_t)g->n_tensors);
  out->workspace_offset = BUMP_ARRAY(keep, size_t, (size_t)g->n_nodes);
  out->buffers = BUMP_ARRAY(keep, schedule_buffer, (size_t)g->n_tensors + (size_t)g->n_nodes);
  int32_t *const dies = BUMP_ARRAY(scratch, int32_t, (size_t)g->n_tensors);
  int32_t *const work_of = BUMP_ARRAY(scratch, int32_t, (size_t)g->n_nodes);
  if (!out->buffer_of || !out->workspace_offset || !out->buffers || !dies || !work_of)
    return stint_fail(error, STINT_NO_MEMORY, "no memory to schedule %d nodes", g->n_nodes);
  memset(out->buffer_of, -1, sizeof(int32_t) * (size_t)g->n_tensors);
  find_deaths(g, dies);

  out->first_micro = out->first_update = g->n_nodes;
  for (int32_t i = 0; i < g->n_nodes; i++) {
    const graph_node *const n = &g->nodes[i];
    if (n->pass != PASS_BEGIN && i < out->first_micro) out->first_micro = i;
    if (n->pass == PASS_UPDATE && i < out->first_update) out->first_update = i;
    bool taken[OP_MAX_SRC] = {false};
    for (int j = 0; j < OP_MAX_DST; j++) {
      const graph_id t = n->dst[j];
      if (t == GRAPH_NONE || graph_at(g, t)->home != HOME_STEP || out->buffer_of[t] >= 0) continue;
      const int from = inherit(out, n, i, j, taken);
      if (from >= 0) {
        taken[from] = true;
        out->buffer_of[t] = out->buffer_of[n->src[from]];
        out->buffers[out->buffer_of[t]].dies = dies[t];
      } else {
        out->buffer_of[t] = add_buffer(out, t, i, dies[t], op_span_bytes(&graph_at(g, t)->shape));
      }
    }
    op_case c;
    graph_case(g, n, &c);
    const size_t work = op_workspace(n->op, &c, backend, workers);
    work_of[i] = work ? add_buffer(out, GRAPH_NONE, i, i, work) : -1;
    const double flops = op_flops(n->op, &c);
    *(n->pass == PASS_BEGIN    ? &out->flops_begin
      : n->pass == PASS_UPDATE ? &out->flops_update
                               : &out->flops_micro) += flops;
  }
  STINT_TRY(place(out, scratch, error));
  for (int32_t t = 0; t < g->n_tensors; t++)
    if (out->buffer_of[t] >= 0) g->tensors[t].offset = out->buffers[out->buffer_of[t]].offset;
  for (int32_t i = 0; i < g->n_nodes; i++)
    out->workspace_offset[i] = work_of[i] < 0 ? SIZE_MAX : out->buffers[work_of[i]].offset;
  return STINT_OK;
}

size_t schedule_live_bytes(const schedule *const s, const int32_t node, int32_t *const n_buffers) {
  size_t bytes = 0;
  int32_t n = 0;
  for (int32_t i = 0; i < s->n_buffers; i++) {
    if (s->buffers[i].born > node || s->buffers[i].dies < node) continue;
    bytes += s->buffers[i].bytes;
    n++;
  }
  if (n_buffers) *n_buffers = n;
  return bytes;
}
