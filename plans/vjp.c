/* Rules of differentiation, a function an op, in a table by op id. An op without a rule is refused when a
 * gradient would have to pass through it. */
#include "plans/vjp.h"

typedef struct vjp {
  graph *g;
  graph_id *grad_of;
  bool *wanted; /* leads to a parameter */
  stint_status status;
} vjp;

typedef void vjp_rule(vjp *v, const graph_node *node);

static bool wants(const vjp *const v, const graph_id t) { return t != GRAPH_NONE && v->wanted[t]; }

static graph_id new_gradient(vjp *const v, const graph_id of) {
  graph *const g = v->g;
  if (g->status != STINT_OK) return GRAPH_NONE;
  const graph_tensor *const t = graph_at(g, of);
  const op_tensor shape = op_tensor_make(DTYPE_F32, t->shape.ne[0], op_rows(&t->shape));
  return graph_add_tensor(g, bump_printf(g->memory, "d %s", t->name), shape, HOME_STEP);
}

static void emit(vjp *const v, const op_id op, const op_params *const params, const graph_id *const src,
                 const int n_src, const graph_id *const dst, const int n_dst) {
  graph_add_node(v->g, op, params, src, n_src, dst, n_dst);
}

/* The gradient `from` belongs to `to`: it becomes its gradient, or is added to what is there. */
static void pass_on(vjp *const v, const graph_id from, const graph_id to) {
  if (!wants(v, to)) return;
  if (v->grad_of[to] == GRAPH_NONE) {
    v->grad_of[to] = from;
    return;
  }
  const graph_id sum = new_gradient(v, to);
  emit(v, OP_ADD, NULL, (graph_id[]){v->grad_of[to], from}, 2, &sum, 1);
  v->grad_of[to] = sum;
}

static void vjp_matmul(vjp *const v, const graph_node *const n) {
  graph *const g = v->g;
  const graph_id dy = v->grad_of[n->dst[0]], x = n->src[0], w = n->src[1], c0 = n->src[2];
  pass_on(v, dy, c0);
  const int32_t param = graph_at(g, w)->param;
  if (param != GRAPH_NONE) {
    const graph_id dw = g->params[param].grad;
    emit(v, OP_MATMUL_DW, NULL, (graph_id[]){dy, x}, 2, &dw, 1);
  }
  if (wants(v, x)) {
    const graph_id dx = new_gradient(v, x);
    emit(v, OP_MATMUL_DX, NULL, (graph_id[]){dy, w, v->grad_of[x]}, 3, &dx, 1);
    v->grad_of[x] = dx;
  }
}

static void vjp_rms_norm(vjp *const v, const graph_node *const n) {
  graph *const g = v->g;
  const graph_id dy = v->grad_of[n->dst[0]], r = n->dst[1], x = n->src[0], w = n->src[1];
  const int32_t param = graph_at(g, w)->param;
  if (param != GRAPH_NONE) {
    const graph_id dw = g->params[param].grad;
    emit(v, OP_RMS_NORM_DW, NULL, (graph_id[]){dy, x, r}, 3, &dw, 1);
  }
  if (wants(v, x)) {
    const graph_id dx = new_gradient(v, x);
    emit(v, OP_RMS_NORM_DX, NULL, (graph_id[]){dy, x, w, r, v->grad_of[x]}, 5, &dx, 1);
    v->grad_of[x] = dx;
  }
}

static void vjp_rope(vjp *const v, const graph_node *const n) {
  if (!wants(v, n->src[0])) return;
  op_params back = n->params;
  back.rope.inverse = !back.rope.inverse;
  const graph_id dx = new_gradient(v, n->src[0]);
  emit(v, OP_ROPE, &back, (graph_id[]){v->grad_of[n->dst[0]], n->src[1], n->src[2]}, 3, &dx, 1);
  pass_on(v, dx, n->src[0]);
}

static void vjp_attention(vjp *const v, const graph_node *const n) {
  graph *const g = v->g;
  const graph_id dout = v->grad_of[n->dst[0]], stats = n->dst[1];
  const graph_id q = n->src[0], k = n->src[1], value = n->src[2], span = n->src[3];
  const op_tensor d_shape = op_tensor_make(DTYPE_F32, graph_at(g, stats)->shape.ne[0], 1);
  const graph_id dq = new_gradient(v, q);
  const graph_id d = graph_add_tensor(g, bump_printf(g->memory, "D of %s", n->name), d_shape, HOME_STEP);
  emit(v, OP_ATTENTION_DQ, &n->params, (graph_id[]){dout, q, k, value, n->dst[0], stats, span}, 7,
       (graph_id[]){dq, d}, 2);
  pass_on(v, dq, q);
  if (!wants(v, k) && !wants(v, value)) return;
  const graph_id dk = new_gradient(v, k), dv = new_gradient(v, value);
  emit(v, OP_ATTENTION_DKV, &n->params, (graph_id[]){dout, q, k, value, stats, d, span}, 7,
       (graph_id[]){dk, dv}, 2);
  pass_on(v, dk, k);
  pass_on(v, dv, value);
}

static void vjp_swiglu(vjp *const v, const graph_node *const n) {
  const graph_id dgate = new_gradient(v, n->src[0]), dup = new_gradient(v, n->src[1]);
  emit(v, OP_SWIGLU_BACK, NULL, (graph_id[]){v->grad_of[n->dst[0]], n->src[0], n->src[1]}, 3,
       (graph_id[]){dgate, dup}, 2);
  pass_on(v, dgate, n->src[0]);
  pass_on(v, dup, n->src[1]);
}

static void vjp_scale(vjp *const v, const graph_node *const n) {
  const graph_id dx = new_gradient(v, n->src[0]);
  emit(v, OP_SCALE, &n->params, &v->grad_of[n->dst[0]], 1, &dx, 1);
  pass_on(v, dx, n->src[0]);
}

static void vjp_dropout(vjp *const v, const graph_node *const n) {
  if (!wants(v, n->src[0])) return;
  const graph_id dx = new_gradient(v, n->src[0]);
  emit(v, OP_DROPOUT, &n->params, (graph_id[]){v->grad_of[n->dst[0]], n->src[1]}, 2, &dx, 1);
  pass_on(v, dx, n->src[0]);
}

static void vjp_add(vjp *const v, const graph_node *const n) {
  pass_on(v, v->grad_of[n->dst[0]], n->src[0]);
  pass_on(v, v->grad_of[n->dst[0]], n->src[1]);
}

static void vjp_get_rows(vjp *const v, const graph_node *const n) {
  const int32_t param = graph_at(v->g, n->src[0])->param;
  if (param == GRAPH_NONE) return;
  const graph_id dtable = v->g->params[param].grad;
  emit(v, OP_GET_ROWS_BACK, NULL, (graph_id[]){v->grad_of[n->dst[0]], n->src[1]}, 2, &dtable, 1);
}

/* The loss wrote its own gradients with its forward. */
static void vjp_none(vjp *const v, const graph_node *const n) { (void)v, (void)n; }

static vjp_rule *const rules[OP_COUNT] = {
    [OP_GET_ROWS] = vjp_get_rows, [OP_ADD] = vjp_add,
    [OP_SCALE] = vjp_scale,       [OP_DROPOUT] = vjp_dropout,
    [OP_RMS_NORM] = vjp_rms_norm, [OP_ROPE] = vjp_rope,
    [OP_MATMUL] = vjp_matmul,     [OP_ATTENTION] = vjp_attention,
    [OP_SWIGLU] = vjp_swiglu,     [OP_LINEAR_CROSS_ENTROPY] = vjp_none,
};

/* What leads to a parameter, in one walk forward. */
static void find_wanted(vjp *const v, const int32_t n_forward) {
  const graph *const g = v->g;
  for (int32_t t = 0; t < g->n_tensors; t++) v->wanted[t] = g->tensors[t].param != GRAPH_NONE;
  for (int32_t i = 0; i < n_forward; i++) {
    const graph_node *const n = &g->nodes[i];
    bool any = false;
    for (int s = 0; s < OP_MAX_SRC; s++) any |= wants(v, n->src[s]);
    for (int d = 0; d < OP_MAX_DST && any; d++)
      if (n->dst[d] != GRAPH_NONE) v->wanted[n->dst[d]] = true;
  }
}

stint_status graph_differentiate(graph *const g, graph_id *const grad_of) {
  if (g->status != STINT_OK) return g->status;
  const int32_t n_forward = g->n_nodes;
  vjp v = {.g = g, .grad_of = grad_of, .wanted = BUMP_ARRAY(g->memory, bool, (size_t)g->room_tensors)};
  if (!v.wanted)
    return g->status = stint_fail(g->error, STINT_NO_MEMORY, "no memory to differentiate the graph");
  find_wanted(&v, n_forward);
  g->pass = PASS_BACKWARD;
  for (int32_t i = n_forward - 1; i >= 0 && g->status == STINT_OK; i--) {
    const graph_node n = g->nodes[i]; /* a copy: rules add nodes */
    if (!wants(&v, n.dst[0]) || (grad_of[n.dst[0]] == GRAPH_NONE && n.op != OP_LINEAR_CROSS_ENTROPY))
      continue;
    g->layer = n.layer;
    if (!rules[n.op]) {
      g->status = stint_fail(g->error, STINT_UNSUPPORTED, "op %s of %s has no backward", op_table[n.op]->name,
                             n.name);
      break;
    }
    rules[n.op](&v, &n);
  }
  g->layer = -1;
  return g->status;
}
