/* Building a graph: bounded arrays, checked nodes, homes laid out in the order of the calls. */
#include "plans/graph.h"

#include <string.h>

enum { HOME_ALIGN = 64 };

static size_t align_up(const size_t bytes) { return (bytes + HOME_ALIGN - 1) & ~(size_t)(HOME_ALIGN - 1); }

stint_status graph_init(graph *const g, bump *const memory, const int32_t tensors, const int32_t nodes,
                        const int32_t params, stint_error *const error) {
  *g = (graph){.memory = memory,
               .room_tensors = tensors,
               .room_nodes = nodes,
               .room_params = params,
               .layer = -1,
               .pass = PASS_FORWARD,
               .status = STINT_OK,
               .error = error};
  g->tensors = BUMP_ARRAY(memory, graph_tensor, (size_t)tensors);
  g->nodes = BUMP_ARRAY(memory, graph_node, (size_t)nodes);
  g->params = BUMP_ARRAY(memory, graph_param, (size_t)params);
  if (!g->tensors || !g->nodes || !g->params)
    return stint_fail(error, STINT_NO_MEMORY, "no memory for a graph of %d tensors and %d nodes", tensors,
                      nodes);
  return STINT_OK;
}

graph_id graph_add_tensor(graph *const g, const char *const name, const op_tensor shape,
                          const graph_home home) {
  if (g->status != STINT_OK) return GRAPH_NONE;
  if (!name || g->n_tensors == g->room_tensors) {
    g->status = stint_fail(g->error, STINT_INTERNAL, "the graph has no room for more than %d tensors",
                           g->room_tensors);
    return GRAPH_NONE;
  }
  g->tensors[g->n_tensors] =
      (graph_tensor){.name = name, .shape = shape, .home = home, .param = GRAPH_NONE, .original = GRAPH_NONE};
  return g->n_tensors++;
}

graph_id graph_add_placed(graph *const g, const char *const name, const op_tensor shape,
                          const graph_home home) {
  const graph_id id = graph_add_tensor(g, name, shape, home);
  if (id == GRAPH_NONE) return id;
  g->tensors[id].offset = g->home_bytes[home];
  g->home_bytes[home] += align_up(op_span_bytes(&shape));
  return id;
}

graph_id graph_add_param(graph *const g, const char *const name, const char *const base,
                         const param_role role, const op_tensor shape, const bool decay) {
  const graph_id value = graph_add_tensor(g, name, shape, HOME_PARAM);
  const graph_id grad = graph_add_tensor(g, name, shape, HOME_GRAD);
  if (grad == GRAPH_NONE) return GRAPH_NONE;
  if (g->n_params == g->room_params) {
    g->status = stint_fail(g->error, STINT_INTERNAL, "the graph has no room for more than %d parameters",
                           g->room_params);
    return GRAPH_NONE;
  }
  g->tensors[value].param = g->tensors[grad].param = g->n_params;
  g->params[g->n_params++] = (graph_param){base, role, value, grad, decay};
  return value;
}

void graph_lay_out_params(graph *const g, const bool grads, const int moments) {
  size_t at = 0;
  for (int decayed = 1; decayed >= 0; decayed--) {
    for (int32_t i = 0; i < g->n_params; i++) {
      const graph_param *const p = &g->params[i];
      if (p->decay != (decayed == 1)) continue;
      g->tensors[p->value].offset = g->tensors[p->grad].offset = at;
      at += align_up(op_span_bytes(&g->tensors[p->value].shape));
    }
    if (decayed) g->decay_bytes = at;
  }
  g->home_bytes[HOME_PARAM] = at;
  g->home_bytes[HOME_GRAD] = grads ? at : 0;
  g->home_bytes[HOME_MOMENT1] = grads && moments >= 1 ? at : 0;
  g->home_bytes[HOME_MOMENT2] = grads && moments >= 2 ? at : 0;
}

void graph_case(const graph *const g, const graph_node *const node, op_case *const out) {
  for (int i = 0; i < OP_MAX_SRC; i++)
    out->src[i] = node->src[i] == GRAPH_NONE ? op_tensor_none() : g->tensors[node->src[i]].shape;
  for (int i = 0; i < OP_MAX_DST; i++)
    out->dst[i] = node->dst[i] == GRAPH_NONE ? op_tensor_none() : g->tensors[node->dst[i]].shape;
  out->params = node->params;
}

static const char *node_name(const graph *const g, const graph_id *const dst) {
  for (int i = 0; i < OP_MAX_DST; i++)
    if (dst[i] != GRAPH_NONE) return g->tensors[dst[i]].name;
  return "nothing";
}

graph_node *graph_add_node(graph *const g, const op_id op, const op_params *const params,
                           const graph_id *const src, const int n_src, const graph_id *const dst,
                           const int n_dst) {
  if (g->status != STINT_OK) return NULL;
  if (g->n_nodes == g->room_nodes) {
    g->status =
        stint_fail(g->error, STINT_INTERNAL, "the graph has no room for more than %d nodes", g->room_nodes);
    return NULL;
  }
  graph_node *const node = &g->nodes[g->n_nodes];
  *node = (graph_node){.op = op, .pass = g->pass, .layer = g->layer};
  if (params) node->params = *params;
  for (int i = 0; i < OP_MAX_SRC; i++) node->src[i] = i < n_src ? src[i] : GRAPH_NONE;
  for (int i = 0; i < OP_MAX_DST; i++) node->dst[i] = i < n_dst ? dst[i] : GRAPH_NONE;
  node->name = node_name(g, node->dst);
  op_case c;
  graph_case(g, node, &c);
  const char *const wrong = op_check(op, &c);
  if (wrong) {
    g->status = stint_fail(g->error, STINT_UNSUPPORTED, "op %s of %s cannot be built: %s", op_table[op]->name,
                           node->name, wrong);
    return NULL;
  }
  g->n_nodes++;
  return node;
}
