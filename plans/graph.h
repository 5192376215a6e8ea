/* A step as data: tensors and the nodes that make them, in the order in which they run.
 *
 * A tensor has one home, which decides who gives it an address:
 *   FILE    a weight, in the mapped model file            PARAM, GRAD, MOMENT1, MOMENT2  regions of one layout
 *   BATCH   the microbatch's arrays and the step block    CONST  tables made at start-up
 *   CACHE   keys and values kept between sampled tokens   STEP   everything else: packed by lifetime
 * Only STEP tensors have lifetimes; the others are there for the whole run.
 *
 * The graph is built forward by a model family, extended backward by plans/vjp, rewritten by plans/remat, and then
 * read only. Arrays have a fixed room, stated when the graph is made. */
#ifndef STINT_PLANS_GRAPH_H
#define STINT_PLANS_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/bump.h"
#include "arena/status.h"
#include "kernels/ops/op.h"

typedef int32_t graph_id;
enum { GRAPH_NONE = -1 };

typedef enum graph_home {
  HOME_FILE,
  HOME_PARAM,
  HOME_GRAD,
  HOME_MOMENT1,
  HOME_MOMENT2,
  HOME_BATCH,
  HOME_CONST,
  HOME_CACHE,
  HOME_STEP,
  HOME_COUNT
} graph_home;

typedef enum graph_pass { PASS_BEGIN, PASS_FORWARD, PASS_BACKWARD, PASS_UPDATE } graph_pass;

typedef struct graph_tensor {
  const char *name;
  op_tensor shape;
  graph_home home;
  size_t offset;     /* in its home; of a STEP tensor: from packing; of a FILE tensor: in the file */
  graph_id param;    /* FILE or PARAM: index of the trained parameter, or GRAPH_NONE */
  graph_id original; /* the tensor that this one recomputes, or GRAPH_NONE */
  bool recompute;    /* chosen: not kept from forward to backward, made again */
} graph_tensor;

typedef struct graph_node {
  op_id op;
  graph_pass pass;
  int32_t layer;    /* -1 outside the layers */
  bool recomputed;  /* a second run of a forward node */
  const char *name; /* of its main output */
  op_params params;
  graph_id src[OP_MAX_SRC], dst[OP_MAX_DST];
} graph_node;

typedef enum param_role { PARAM_WEIGHT, PARAM_LORA_A, PARAM_LORA_B } param_role;

/* A trained tensor. PARAM and GRAD tensors of one parameter have the same offset in their regions. */
typedef struct graph_param {
  const char *base; /* name of the model's tensor */
  param_role role;
  graph_id value, grad; /* tensors with homes PARAM and GRAD */
  bool decay;           /* weight decay applies (matrices, not norms) */
} graph_param;

typedef struct graph {
  bump *memory;
  graph_tensor *tensors;
  int32_t n_tensors, room_tensors;
  graph_node *nodes;
  int32_t n_nodes, room_nodes;
  graph_param *params;
  int32_t n_params, room_params;
  size_t home_bytes[HOME_COUNT]; /* of PARAM .. CACHE, once laid out */
  size_t decay_bytes;            /* the leading part of PARAM to which decay applies */
  int32_t layer;                 /* given to new nodes */
  graph_pass pass;               /* given to new nodes */
  stint_status status;           /* the first failure of a builder call; later calls do nothing */
  stint_error *error;
} graph;

stint_status graph_init(graph *g, bump *memory, int32_t tensors, int32_t nodes, int32_t params,
                        stint_error *error);

/* Builder calls return GRAPH_NONE after a failure and are safe to go on with; graph.status tells at the end. */
graph_id graph_add_tensor(graph *g, const char *name, op_tensor shape, graph_home home);
/* Takes the next 64-byte-aligned place of a laid-out home (BATCH, CONST, CACHE). */
graph_id graph_add_placed(graph *g, const char *name, op_tensor shape, graph_home home);
/* A parameter: its value, and its gradient when `grad`. Offsets come from graph_lay_out_params. */
graph_id graph_add_param(graph *g, const char *name, const char *base, param_role role, op_tensor shape,
                         bool decay);
void graph_lay_out_params(graph *g, bool grads, int moments);

/* Adds a node after checking it against the op table; UNSUPPORTED with op, tensor and reason when refused. */
graph_node *graph_add_node(graph *g, op_id op, const op_params *params, const graph_id *src, int n_src,
                           const graph_id *dst, int n_dst);
void graph_case(const graph *g, const graph_node *node, op_case *out);

static inline graph_tensor *graph_at(const graph *g, const graph_id id) { return &g->tensors[id]; }

#endif
