/* From a finished graph to steps with addresses: lifetimes, in-place, workspaces, packing.
 *
 * The order of the nodes is the order of the steps. A STEP tensor is alive from the node that writes it to the last
 * that touches it. A destination takes over a dying source's bytes where the op's alias rule allows it.
 * A node's workspace is one more buffer, alive at that node only. arena_pack turns lifetimes into offsets. */
#ifndef STINT_PLANS_SCHEDULE_H
#define STINT_PLANS_SCHEDULE_H

#include "arena/pack.h"
#include "plans/graph.h"

typedef struct schedule_buffer {
  graph_id tensor;    /* the first that lies here; GRAPH_NONE: the workspace of node `born` */
  int32_t born, dies; /* nodes; alive in [born, dies] */
  size_t bytes, offset;
} schedule_buffer;

typedef struct schedule {
  const graph *g;
  op_backend backend;
  int32_t workers;
  int32_t *buffer_of;       /* of each tensor, -1 when it has another home */
  size_t *workspace_offset; /* of each node, in the step region; SIZE_MAX: none */
  schedule_buffer *buffers;
  int32_t n_buffers;
  pack_result packing; /* bound_time is a node */
  int32_t first_micro,
      first_update; /* nodes [0, first_micro) run once before, [first_update, n) once after the microbatches */
  double flops_begin, flops_micro, flops_update;
} schedule;

/* Memory for the result comes from `keep`, everything temporary from `scratch`. Sets the offsets of STEP tensors. */
stint_status schedule_make(graph *g, op_backend backend, int workers, bump *keep, bump *scratch,
                           schedule *out, stint_error *error);

/* Bytes alive at a node, and how many buffers. */
size_t schedule_live_bytes(const schedule *s, int32_t node, int32_t *n_buffers);

#endif
