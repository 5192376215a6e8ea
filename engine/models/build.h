/* What a family uses to build a graph: the batch's arrays, weights by name, linear layers with their adapters, and the
 * loss. Which tensors are trained, and whether gradients are wanted, is decided here and nowhere else. */
#ifndef STINT_ENGINE_MODELS_BUILD_H
#define STINT_ENGINE_MODELS_BUILD_H

#include "engine/formats/adapter.h"
#include "engine/models/model.h"
#include "plans/graph.h"
#include "plans/remat.h"

/* What a graph is wanted for. */
typedef struct build_request {
  stint_purpose purpose;
  const stint_options *options;
  bool
      adapted; /* adapters are part of the graph: those of `adapter`, or new ones by rank, alpha and targets */
  const adapter_file *adapter;
  int64_t rank;
  double alpha;
  const char *targets;
  int64_t rows;       /* batch*ctx, or 1 for sampling */
  int64_t cache_rows; /* sampling: the context */
  int64_t loss_chunk, attention_chunk;
} build_request;

/* The batch's arrays (data.h) as graph tensors, all with home BATCH. */
typedef struct build_inputs {
  graph_id token, target, weight, position, span, step; /* step: the step block */
  graph_id loss;                                        /* F32[rows], training and evaluation */
  graph_id logits;                                      /* F32[n_vocab], sampling */
} build_inputs;

typedef struct build_target {
  const char *name;
  int64_t n_in, n_out, n_trained;
} build_target;

struct model_builder {
  const stint_model *model;
  const build_request *want;
  graph *g;
  build_inputs in;
  graph_id *grad_of; /* of every tensor; filled by the loss and by differentiation */
  build_target *targets;
  int32_t n_targets, room_targets;
  uint64_t patterns_used; /* bit i: the i-th item of `targets` matched something */
  int32_t n_dropouts;     /* numbers the places of dropout */
};

/* Builds everything: inputs, forward, backward and update as the request asks; recomputation by the policy. */
stint_status model_build(const stint_model *model, const build_request *want, remat_policy policy, graph *g,
                         bump *memory, model_builder *b, stint_error *error);

/* ---- for families ---- */
/* The model's weight [ne0, ne1] (ne1 = 1 and F32: a vector). Missing, of another shape or of a type that no kernel
 * reads: the graph fails with its name. */
graph_id build_weight(model_builder *b, const char *name, int64_t ne0, int64_t ne1);
/* y = c0 + W x, with the adapter of W when it is a target. c0 may be GRAPH_NONE. */
graph_id build_linear(model_builder *b, graph_id x, const char *weight, int64_t n_in, int64_t n_out,
                      graph_id c0);
graph_id build_rms_norm(model_builder *b, graph_id x, const char *weight, double eps);
graph_id build_rope(model_builder *b, graph_id x, graph_id turns, int64_t head_size, const rope_params *rope);
graph_id build_attention(model_builder *b, graph_id q, graph_id k, graph_id v, int64_t head_size,
                         int64_t n_heads, int64_t n_kv_heads, double scale);
graph_id build_swiglu(model_builder *b, graph_id gate, graph_id up);
graph_id build_embedding(model_builder *b, const char *weight, int64_t n_embd);
/* The head: the loss when training or evaluating (gradients into grad_of), logits when sampling. */
void build_head(model_builder *b, graph_id x, const char *weight, int64_t n_embd);
graph_id build_constant(model_builder *b, const char *name, op_tensor shape);

#endif
