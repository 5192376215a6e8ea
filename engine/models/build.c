/* Inputs, weights, adapters, loss and update nodes: what every family shares. */
#include "engine/models/build.h"
#include "engine/models/rope.h"
#include "plans/vjp.h"

#include "kernels/ops/step.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- names ---- */
static const char *name_of(model_builder *const b, const char *const format, ...)
    __attribute__((format(printf, 2, 3)));

static const char *name_of(model_builder *const b, const char *const format, ...) {
  char text[96];
  va_list args;
  va_start(args, format);
  const int n = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return bump_text(b->g->memory, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
}

static void fail(model_builder *const b, const stint_status status, const char *const text,
                 const char *const name) {
  if (b->g->status == STINT_OK)
    b->g->status = stint_fail(b->g->error, status, "%s: %s: %s", b->model->file.path, name, text);
}

/* A STEP tensor for the output of the layer's `what`. */
static graph_id output(model_builder *const b, const op_tensor shape, const char *const what) {
  const char *const name =
      b->g->layer < 0 ? name_of(b, "%s", what) : name_of(b, "blk.%d.%s", (int)b->g->layer, what);
  return graph_add_tensor(b->g, name, shape, HOME_STEP);
}

static op_tensor rows_of(const model_builder *const b, const int64_t n) {
  return op_tensor_make(DTYPE_F32, n, b->want->rows);
}

static void without_weight(char *const name) {
  char *const dot = strrchr(name, '.');
  if (dot && strcmp(dot, ".weight") == 0) *dot = 0;
}

/* "blk.3.attn_q.weight" -> "attn_q" */
static void kind_of(const char *const name, char *const out, const size_t room) {
  const char *at = name;
  if (strncmp(at, "blk.", 4) == 0) {
    at += 4;
    while (*at >= '0' && *at <= '9') at++;
    if (*at == '.') at++;
  }
  snprintf(out, room, "%s", at);
  without_weight(out);
}

/* ---- targets ---- */
/* By kind ("attn_q") or by place ("blk.3.*"), each with or without ".weight". */
static bool item_matches(const model_builder *const b, const char *const item, const char *const name) {
  char kind[64], place[96], wanted[96];
  kind_of(name, kind, sizeof kind);
  snprintf(place, sizeof place, "%s", name);
  without_weight(place);
  if (strcmp(item, "all-linear") == 0) {
    for (const char *const *k = b->model->family->linear_kinds; *k; k++)
      if (strcmp(*k, kind) == 0) return true;
    return false;
  }
  snprintf(wanted, sizeof wanted, "%s", item);
  without_weight(wanted);
  return fnmatch(wanted, kind, 0) == 0 || fnmatch(wanted, place, 0) == 0;
}

enum { MAX_PATTERNS = 64 };

/* Walks the comma-separated items: item i into `out`; false past the end. */
static bool pattern(const char *const list, const int i, char *const out, const size_t room) {
  const char *at = list;
  for (int k = 0; k < i; k++) {
    at = strchr(at, ',');
    if (!at) return false;
    at++;
  }
  const char *const end = strchrnul(at, ',');
  size_t n = (size_t)(end - at);
  while (n > 0 && *at == ' ') at++, n--;
  while (n > 0 && at[n - 1] == ' ') n--;
  snprintf(out, room, "%.*s", (int)n, at);
  return true;
}

static bool is_target(model_builder *const b, const char *const name) {
  if (!b->want->adapted) return false;
  if (b->want->adapter) return adapter_find(b->want->adapter, name) != NULL;
  bool matched = false;
  char item[96];
  for (int i = 0; i < MAX_PATTERNS && pattern(b->want->targets, i, item, sizeof item); i++) {
    if (!item_matches(b, item, name)) continue;
    b->patterns_used |= 1ull << i;
    matched = true;
  }
  return matched;
}

static void check_patterns(model_builder *const b) {
  if (!b->want->adapted || b->g->status != STINT_OK) return;
  if (b->want->adapter) {
    for (size_t i = 0; i < b->want->adapter->n_entries; i++) {
      const char *const name = b->want->adapter->entries[i].base->name;
      bool built = false;
      for (int32_t t = 0; t < b->n_targets; t++) built |= strcmp(b->targets[t].name, name) == 0;
      if (!built)
        return fail(b, STINT_UNSUPPORTED, "the adapter adapts this tensor, and the family does not", name);
    }
    return;
  }
  char item[96], kinds[256] = "";
  for (const char *const *k = b->model->family->linear_kinds; *k; k++) {
    strncat(kinds, *k, sizeof kinds - strlen(kinds) - 1);
    strncat(kinds, ", ", sizeof kinds - strlen(kinds) - 1);
  }
  for (int i = 0; pattern(b->want->targets, i, item, sizeof item); i++) {
    if (i >= MAX_PATTERNS) {
      b->g->status = stint_fail(b->g->error, STINT_BAD_INPUT, "--targets: more than %d items", MAX_PATTERNS);
      return;
    }
    if (b->patterns_used >> i & 1) continue;
    b->g->status = stint_fail(
        b->g->error, STINT_BAD_INPUT,
        "--targets: '%s' matches no tensor that can be adapted; there are %soutput (an untied head), "
        "and blk.N.KIND for one layer",
        item, kinds);
    return;
  }
}

static void add_target(model_builder *const b, const char *const name, const int64_t n_in,
                       const int64_t n_out, const int64_t n_trained) {
  if (b->n_targets == b->room_targets) return fail(b, STINT_INTERNAL, "no room for another target", name);
  b->targets[b->n_targets++] = (build_target){name_of(b, "%s", name), n_in, n_out, n_trained};
}

/* ---- weights ---- */
graph_id build_weight(model_builder *const b, const char *const name, const int64_t ne0, const int64_t ne1) {
  graph *const g = b->g;
  if (g->status != STINT_OK) return GRAPH_NONE;
  for (int32_t t = 0; t < g->n_tensors; t++) /* a tied head is one tensor */
    if ((g->tensors[t].home == HOME_FILE || g->tensors[t].home == HOME_PARAM) &&
        strcmp(g->tensors[t].name, name) == 0)
      return t;
  const gguf_tensor *const w = model_tensor(b->model, name);
  if (!w) return fail(b, STINT_BAD_INPUT, "the tensor is missing", name), GRAPH_NONE;
  const bool vector = ne1 == 1;
  if (w->ne[0] != ne0 || w->ne[1] != ne1 || w->ne[2] != 1 || w->ne[3] != 1) {
    g->status = stint_fail(
        g->error, STINT_BAD_INPUT, "%s: %s: shape [%lld, %lld], and the hyper-parameters say [%lld, %lld]",
        b->model->file.path, name, (long long)w->ne[0], (long long)w->ne[1], (long long)ne0, (long long)ne1);
    return GRAPH_NONE;
  }
  if (vector ? w->type != DTYPE_F32 : !dtype_find(w->type)->weight) {
    g->status = stint_fail(g->error, STINT_UNSUPPORTED, "%s: %s is %s, which %s", b->model->file.path, name,
                           dtype_name(w->type),
                           vector ? "is not read for a vector (F32 is)"
                                  : "no kernel reads yet (F32, F16, BF16, Q8_0, Q4_0 and Q4_1 are)");
    return GRAPH_NONE;
  }
  const op_tensor shape = op_tensor_make(w->type, ne0, ne1);
  if (b->want->options->full && b->want->purpose != STINT_SAMPLE) {
    if (w->type != DTYPE_F32) {
      g->status = stint_fail(g->error, STINT_UNSUPPORTED,
                             "%s: %s is %s; --full trains F32 models (leave --full out to train an adapter)",
                             b->model->file.path, name, dtype_name(w->type));
      return GRAPH_NONE;
    }
    add_target(b, name, ne0, ne1, ne0 * ne1);
    return graph_add_param(g, w->name, w->name, PARAM_WEIGHT, shape, !vector);
  }
  const graph_id id = graph_add_tensor(g, w->name, shape, HOME_FILE);
  if (id != GRAPH_NONE) graph_at(g, id)->offset = w->offset;
  return id;
}

/* ---- ops ---- */
graph_id build_constant(model_builder *const b, const char *const name, const op_tensor shape) {
  return graph_add_placed(b->g, name, shape, HOME_CONST);
}

graph_id build_embedding(model_builder *const b, const char *const weight, const int64_t n_embd) {
  const graph_id table = build_weight(b, weight, n_embd, b->model->n_vocab);
  const graph_id y = output(b, rows_of(b, n_embd), "embedding");
  graph_add_node(b->g, OP_GET_ROWS, NULL, (graph_id[]){table, b->in.token}, 2, &y, 1);
  return y;
}

graph_id build_rms_norm(model_builder *const b, const graph_id x, const char *const weight,
                        const double eps) {
  if (b->g->status != STINT_OK) return GRAPH_NONE;
  const int64_t n = graph_at(b->g, x)->shape.ne[0];
  const graph_id w = build_weight(b, weight, n, 1);
  char kind[64];
  kind_of(weight, kind, sizeof kind);
  const graph_id y = output(b, rows_of(b, n), kind);
  const graph_id r = output(b, op_tensor_make(DTYPE_F32, b->want->rows, 1), name_of(b, "%s scale", kind));
  const op_params params = {.norm.eps = (float)eps};
  graph_add_node(b->g, OP_RMS_NORM, &params, (graph_id[]){x, w}, 2, (graph_id[]){y, r}, 2);
  return y;
}

graph_id build_rope(model_builder *const b, const graph_id x, const graph_id turns, const int64_t head_size,
                    const rope_params *const rope) {
  if (b->g->status != STINT_OK) return GRAPH_NONE;
  const graph_id y = output(b, graph_at(b->g, x)->shape, name_of(b, "rope of %s", graph_at(b->g, x)->name));
  const op_params params = {.rope = {.head_size = (int32_t)head_size,
                                     .n_rot = (int32_t)rope->n_rot,
                                     .neox = rope->neox,
                                     .magnitude = (float)rope_magnitude(rope)}};
  graph_add_node(b->g, OP_ROPE, &params, (graph_id[]){x, b->in.position, turns}, 3, &y, 1);
  return y;
}

/* Sampling keeps keys and values of earlier tokens: the new row goes into the cache, and attention reads the cache. */
static graph_id cached(model_builder *const b, const graph_id x) {
  if (b->g->status != STINT_OK) return GRAPH_NONE;
  const op_tensor shape = op_tensor_make(DTYPE_F32, graph_at(b->g, x)->shape.ne[0], b->want->cache_rows);
  const graph_id cache =
      graph_add_placed(b->g, name_of(b, "cache of %s", graph_at(b->g, x)->name), shape, HOME_CACHE);
  graph_add_node(b->g, OP_SET_ROWS, NULL, (graph_id[]){x, b->in.position}, 2, &cache, 1);
  return cache;
}

graph_id build_attention(model_builder *const b, const graph_id q, graph_id k, graph_id v,
                         const int64_t head_size, const int64_t n_heads, const int64_t n_kv_heads,
                         const double scale) {
  if (b->g->status != STINT_OK) return GRAPH_NONE;
  if (b->want->purpose == STINT_SAMPLE) k = cached(b, k), v = cached(b, v);
  const graph_id o = output(b, rows_of(b, head_size * n_heads), "attention");
  const graph_id stats =
      output(b, op_tensor_make(DTYPE_F32, n_heads * b->want->rows, 2), "attention statistics");
  const op_params params = {.attention = {.scale = (float)scale,
                                          .head_size = (int32_t)head_size,
                                          .n_heads = (int32_t)n_heads,
                                          .n_kv_heads = (int32_t)n_kv_heads,
                                          .chunk = (int32_t)b->want->attention_chunk}};
  graph_add_node(b->g, OP_ATTENTION, &params, (graph_id[]){q, k, v, b->in.span}, 4, (graph_id[]){o, stats},
                 2);
  return o;
}

graph_id build_swiglu(model_builder *const b, const graph_id gate, const graph_id up) {
  if (b->g->status != STINT_OK) return GRAPH_NONE;
  const graph_id h = output(b, graph_at(b->g, gate)->shape, "ffn_gated");
  graph_add_node(b->g, OP_SWIGLU, NULL, (graph_id[]){gate, up}, 2, &h, 1);
  return h;
}

/* The adapter's inner product u = scale * A dropout(x), and B as *lora_b. */
static graph_id adapter_inner(model_builder *const b, const graph_id x, const char *const weight,
                              const int64_t n_in, const int64_t n_out, graph_id *const lora_b) {
  graph *const g = b->g;
  const build_request *const want = b->want;
  const adapter_entry *const entry = want->adapter ? adapter_find(want->adapter, weight) : NULL;
  const int64_t r = entry ? entry->rank : want->rank;
  const float factor = entry ? entry->scale : (float)(want->alpha / (double)want->rank);
  if (r > n_in || r > n_out) {
    g->status = stint_fail(g->error, STINT_BAD_INPUT, "--rank %lld is above a side of %s (%lld x %lld)",
                           (long long)r, weight, (long long)n_in, (long long)n_out);
    return GRAPH_NONE;
  }
  char kind[64];
  kind_of(weight, kind, sizeof kind);
  const char *const base = name_of(b, "%s", weight);
  const graph_id a = graph_add_param(g, name_of(b, "%s.lora_a", weight), base, PARAM_LORA_A,
                                     op_tensor_make(DTYPE_F32, n_in, r), true);
  *lora_b = graph_add_param(g, name_of(b, "%s.lora_b", weight), base, PARAM_LORA_B,
                            op_tensor_make(DTYPE_F32, r, n_out), true);
  add_target(b, weight, n_in, n_out, r * (n_in + n_out));
  graph_id in = x;
  if (want->purpose == STINT_TRAIN && want->options->dropout > 0) {
    in = output(b, rows_of(b, n_in), name_of(b, "%s dropout", kind));
    const op_params drop = {
        .dropout = {.p = (float)want->options->dropout, .tensor = (uint32_t)b->n_dropouts++}};
    graph_add_node(g, OP_DROPOUT, &drop, (graph_id[]){x, b->in.step}, 2, &in, 1);
  }
  const graph_id inner = output(b, rows_of(b, r), name_of(b, "%s adapter", kind));
  graph_add_node(g, OP_MATMUL, NULL, (graph_id[]){in, a}, 2, &inner, 1);
  const graph_id scaled = output(b, rows_of(b, r), name_of(b, "%s adapter scaled", kind));
  const op_params scale = {.scale.s = factor};
  graph_add_node(g, OP_SCALE, &scale, &inner, 1, &scaled, 1);
  return scaled;
}

graph_id build_linear(model_builder *const b, const graph_id x, const char *const weight, const int64_t n_in,
                      const int64_t n_out, const graph_id c0) {
  graph *const g = b->g;
  const graph_id w = build_weight(b, weight, n_in, n_out);
  char kind[64];
  kind_of(weight, kind, sizeof kind);
  const graph_id y = output(b, rows_of(b, n_out), kind);
  graph_add_node(g, OP_MATMUL, NULL, (graph_id[]){x, w, c0}, 3, &y, 1);
  if (!is_target(b, weight)) return y;
  graph_id lora_b = GRAPH_NONE;
  const graph_id u = adapter_inner(b, x, weight, n_in, n_out, &lora_b);
  const graph_id adapted = output(b, rows_of(b, n_out), name_of(b, "%s adapted", kind));
  graph_add_node(g, OP_MATMUL, NULL, (graph_id[]){u, lora_b, y}, 3, &adapted, 1);
  return adapted;
}

void build_head(model_builder *const b, const graph_id x, const char *const weight, const int64_t n_embd) {
  graph *const g = b->g;
  const int64_t n_vocab = b->model->n_vocab;
  if (b->want->purpose == STINT_SAMPLE) {
    const graph_id logits = build_linear(b, x, weight, n_embd, n_vocab, GRAPH_NONE);
    if (g->status != STINT_OK) return;
    graph_at(g, logits)->home = HOME_BATCH; /* the sampler reads it */
    graph_at(g, logits)->offset = g->home_bytes[HOME_BATCH];
    g->home_bytes[HOME_BATCH] += (op_span_bytes(&graph_at(g, logits)->shape) + 63) & ~(size_t)63;
    b->in.logits = logits;
    return;
  }
  const graph_id w = build_weight(b, weight, n_embd, n_vocab);
  graph_id u = GRAPH_NONE, lora_b = GRAPH_NONE;
  if (strcmp(weight, "output.weight") == 0 && is_target(b, weight))
    u = adapter_inner(b, x, weight, n_embd, n_vocab, &lora_b);
  if (g->status != STINT_OK) return;
  graph_id dst[5] = {b->in.loss, GRAPH_NONE, GRAPH_NONE, GRAPH_NONE, GRAPH_NONE};
  if (b->want->purpose == STINT_TRAIN) {
    dst[1] = output(b, rows_of(b, n_embd), "d of the head's input");
    if (graph_at(g, w)->param != GRAPH_NONE) dst[2] = g->params[graph_at(g, w)->param].grad;
    if (u != GRAPH_NONE) {
      dst[3] = output(b, graph_at(g, u)->shape, "d of the head's adapter");
      dst[4] = g->params[graph_at(g, lora_b)->param].grad;
      b->grad_of[u] = dst[3];
    }
    b->grad_of[x] = dst[1];
  }
  const op_params params = {.loss.chunk = (int32_t)b->want->loss_chunk};
  graph_add_node(g, OP_LINEAR_CROSS_ENTROPY, &params,
                 (graph_id[]){x, w, b->in.target, b->in.weight, b->in.step, u, lora_b}, 7, dst, 5);
}

/* ---- the whole ---- */
static void build_batch(model_builder *const b) {
  graph *const g = b->g;
  const int64_t rows = b->want->rows;
  b->in.token = graph_add_placed(g, "token", op_tensor_make(DTYPE_I32, rows, 1), HOME_BATCH);
  b->in.target = graph_add_placed(g, "target", op_tensor_make(DTYPE_I32, rows, 1), HOME_BATCH);
  b->in.position = graph_add_placed(g, "position", op_tensor_make(DTYPE_I32, rows, 1), HOME_BATCH);
  b->in.span = graph_add_placed(g, "span", op_tensor_make(DTYPE_I32, rows, 2), HOME_BATCH);
  b->in.weight = graph_add_placed(g, "weight", op_tensor_make(DTYPE_F32, rows, 1), HOME_BATCH);
  b->in.step =
      graph_add_placed(g, "step block", op_tensor_make(DTYPE_I32, sizeof(step_block) / 4, 1), HOME_BATCH);
  b->in.loss = graph_add_placed(g, "loss", op_tensor_make(DTYPE_F32, rows, 1), HOME_BATCH);
  b->in.logits = GRAPH_NONE;
}

static int n_moments(const stint_options *const o) {
  return o->optimizer == STINT_ADAMW ? 2 : o->momentum != 0 ? 1 : 0;
}

/* A part of a parameter region as one flat tensor. */
static graph_id flat(graph *const g, const char *const name, const graph_home home, const size_t offset,
                     const size_t bytes) {
  const graph_id id = graph_add_tensor(g, name, op_tensor_make(DTYPE_F32, (int64_t)(bytes / 4), 1), home);
  if (id != GRAPH_NONE) graph_at(g, id)->offset = offset;
  return id;
}

static void build_begin(model_builder *const b, const graph_id grads) {
  graph *const g = b->g;
  g->pass = PASS_BEGIN;
  graph_add_node(g, OP_ZERO, NULL, NULL, 0, &grads, 1);
}

static void build_update(model_builder *const b, const graph_id grads) {
  graph *const g = b->g;
  const stint_options *const o = b->want->options;
  g->pass = PASS_UPDATE;
  graph_add_node(g, OP_GRAD_NORM, NULL, &grads, 1, &b->in.step, 1);
  const size_t total = g->home_bytes[HOME_PARAM];
  for (int decayed = 1; decayed >= 0; decayed--) {
    const size_t at = decayed ? 0 : g->decay_bytes, bytes = decayed ? g->decay_bytes : total - g->decay_bytes;
    if (bytes == 0) continue;
    const char *const which = decayed ? "matrices" : "vectors";
    const graph_id grad = flat(g, name_of(b, "gradients of %s", which), HOME_GRAD, at, bytes);
    const graph_id value = flat(g, name_of(b, "trained %s", which), HOME_PARAM, at, bytes);
    const float decay = decayed ? (float)o->weight_decay : 0.0f;
    op_params params = {0};
    graph_id dst[3] = {value, GRAPH_NONE, GRAPH_NONE};
    if (n_moments(o) >= 1)
      dst[1] = flat(g, name_of(b, "first moments of %s", which), HOME_MOMENT1, at, bytes);
    if (n_moments(o) >= 2)
      dst[2] = flat(g, name_of(b, "second moments of %s", which), HOME_MOMENT2, at, bytes);
    if (o->optimizer == STINT_ADAMW) {
      params.adamw.beta1 = (float)o->beta1, params.adamw.beta2 = (float)o->beta2;
      params.adamw.eps = (float)o->epsilon, params.adamw.weight_decay = decay;
    } else {
      params.sgd.momentum = (float)o->momentum, params.sgd.weight_decay = decay;
    }
    graph_add_node(g, o->optimizer == STINT_ADAMW ? OP_ADAMW : OP_SGD, &params,
                   (graph_id[]){grad, b->in.step}, 2, dst, 3);
  }
}

stint_status model_build(const stint_model *const model, const build_request *const want,
                         const remat_policy policy, graph *const g, bump *const memory,
                         model_builder *const b, stint_error *const error) {
  /* Room: a layer of the widest family has under 160 tensors and 96 nodes, recomputation and gradients included. */
  const int32_t layers = (int32_t)model->llama.n_layers + 2;
  STINT_TRY(graph_init(g, memory, 256 * layers, 128 * layers, 32 * layers, error));
  *b = (model_builder){.model = model, .want = want, .g = g, .room_targets = 16 * layers};
  b->grad_of = BUMP_ARRAY(memory, graph_id, (size_t)g->room_tensors);
  b->targets = BUMP_ARRAY(memory, build_target, (size_t)b->room_targets);
  if (!b->grad_of || !b->targets) return stint_fail(error, STINT_NO_MEMORY, "no memory to build the graph");
  memset(b->grad_of, -1, sizeof(graph_id) * (size_t)g->room_tensors);
  build_batch(b);
  const bool train = want->purpose == STINT_TRAIN;
  graph_id grads = GRAPH_NONE;
  if (train) { /* its size is known when all parameters are */
    grads = flat(g, "gradients", HOME_GRAD, 0, 64);
    build_begin(b, grads);
    g->pass = PASS_FORWARD;
  }
  model->family->build(b);
  check_patterns(b);
  STINT_TRY(g->status);
  graph_lay_out_params(g, train, train ? n_moments(want->options) : 0);
  if (!train) return g->status;
  if (g->n_params == 0) return stint_fail(error, STINT_BAD_INPUT, "nothing would be trained");
  graph_at(g, grads)->shape = op_tensor_make(DTYPE_F32, (int64_t)(g->home_bytes[HOME_GRAD] / 4), 1);
  STINT_TRY(graph_differentiate(g, b->grad_of));
  graph_mark_recompute(g, policy);
  STINT_TRY(graph_rematerialize(g));
  build_update(b, grads);
  return g->status;
}
