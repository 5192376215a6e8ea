/* Marks and the rewrite. The rewrite walks the backward once; `made[t]` is the tensor that now stands for t. */
#include "plans/remat.h"

#include <string.h>

const char *remat_policy_name(const remat_policy policy) {
  static const char *const names[REMAT_POLICIES] = {"keep all", "recompute norms and gates",
                                                    "recompute every layer"};
  return names[policy];
}

static bool op_is_cheap(const op_id op) { return op == OP_RMS_NORM || op == OP_SWIGLU || op == OP_DROPOUT; }

void graph_mark_recompute(graph *const g, const remat_policy policy) {
  for (int32_t i = 0; i < g->n_nodes && policy != REMAT_NOTHING; i++) {
    const graph_node *const n = &g->nodes[i];
    if (n->pass != PASS_FORWARD || n->layer < 0) continue;
    for (int d = 0; d < OP_MAX_DST; d++) {
      if (n->dst[d] == GRAPH_NONE || graph_at(g, n->dst[d])->home != HOME_STEP) continue;
      graph_at(g, n->dst[d])->recompute = policy == REMAT_LAYERS || (d == 0 && op_is_cheap(n->op));
    }
  }
  if (policy != REMAT_LAYERS) return;
  for (int32_t i = 0; i < g->n_nodes; i++) { /* what crosses a layer's edge is kept */
    const graph_node *const n = &g->nodes[i];
    if (n->pass != PASS_FORWARD) continue;
    for (int s = 0; s < OP_MAX_SRC; s++) {
      if (n->src[s] == GRAPH_NONE) continue;
      graph_tensor *const t = graph_at(g, n->src[s]);
      if (!t->recompute) continue;
      bool inside = false;
      for (int32_t p = i - 1; p >= 0 && g->nodes[p].layer == n->layer && !inside; p--)
        for (int d = 0; d < OP_MAX_DST; d++) inside |= g->nodes[p].dst[d] == n->src[s];
      if (!inside) t->recompute = false;
    }
  }
}

typedef struct rewrite {
  graph *g;
  const graph_node *old;
  int32_t *producer; /* forward node of each tensor, or -1 */
  graph_id *made;
} rewrite;

static graph_id resolve(rewrite *w, graph_id t);

static void run_again(rewrite *const w, const int32_t producer) {
  graph *const g = w->g;
  graph_node n = w->old[producer];
  for (int s = 0; s < OP_MAX_SRC; s++) n.src[s] = resolve(w, n.src[s]);
  for (int d = 0; d < OP_MAX_DST; d++) {
    const graph_id t = n.dst[d];
    if (t == GRAPH_NONE) continue;
    const graph_id again = graph_add_tensor(g, bump_printf(g->memory, "%s again", graph_at(g, t)->name),
                                            graph_at(g, t)->shape, HOME_STEP);
    if (again == GRAPH_NONE) return;
    graph_at(g, again)->original = t;
    if (graph_at(g, t)->recompute) w->made[t] = again;
    n.dst[d] = again;
  }
  if (g->n_nodes == g->room_nodes) {
    g->status = stint_fail(g->error, STINT_INTERNAL, "the graph has no room for recomputed nodes");
    return;
  }
  n.recomputed = true;
  n.pass = PASS_BACKWARD;
  g->nodes[g->n_nodes++] = n;
}

static graph_id resolve(rewrite *const w, const graph_id t) {
  if (t == GRAPH_NONE || !graph_at(w->g, t)->recompute || w->producer[t] < 0) return t;
  if (w->made[t] == GRAPH_NONE && w->g->status == STINT_OK) run_again(w, w->producer[t]);
  return w->made[t];
}

stint_status graph_rematerialize(graph *const g) {
  if (g->status != STINT_OK) return g->status;
  const int32_t n_old = g->n_nodes;
  rewrite w = {.g = g,
               .old = g->nodes,
               .producer = BUMP_ARRAY(g->memory, int32_t, (size_t)g->room_tensors),
               .made = BUMP_ARRAY(g->memory, graph_id, (size_t)g->room_tensors)};
  graph_node *const fresh = BUMP_ARRAY(g->memory, graph_node, (size_t)g->room_nodes);
  if (!w.producer || !w.made || !fresh)
    return g->status = stint_fail(g->error, STINT_NO_MEMORY, "no memory to plan recomputation");
  memset(w.producer, -1, sizeof(int32_t) * (size_t)g->room_tensors);
  memset(w.made, -1, sizeof(graph_id) * (size_t)g->room_tensors);
  g->nodes = fresh;
  g->n_nodes = 0;
  for (int32_t i = 0; i < n_old && g->status == STINT_OK; i++) {
    graph_node n = w.old[i];
    if (n.pass == PASS_FORWARD) {
      for (int d = 0; d < OP_MAX_DST; d++)
        if (n.dst[d] != GRAPH_NONE) w.producer[n.dst[d]] = i;
    } else if (n.pass == PASS_BACKWARD) {
      for (int s = 0; s < OP_MAX_SRC; s++) n.src[s] = resolve(&w, n.src[s]);
    }
    if (g->n_nodes == g->room_nodes)
      return g->status = stint_fail(g->error, STINT_INTERNAL, "the graph has no room for recomputed nodes");
    g->nodes[g->n_nodes++] = n;
  }
  return g->status;
}
