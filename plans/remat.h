/* Rematerialization: tensors that are made again instead of kept.
 *
 * Which ones is a choice (tensor.recompute), made here from a policy; the rewrite is the same for every choice: a
 * backward node that reads such a tensor gets, just before it, a second run of the forward node that made it (and
 * of whatever that needs in turn), on the same inputs, so with the same bits. The copy serves every later reader. */
#ifndef STINT_PLANS_REMAT_H
#define STINT_PLANS_REMAT_H

#include "plans/graph.h"

typedef enum remat_policy {
  REMAT_NOTHING, /* keep all */
  REMAT_CHEAP,   /* outputs of ops that only move or scale: norms, gates, dropout */
  REMAT_LAYERS,  /* everything inside a layer but its input: one segment a layer */
  REMAT_POLICIES
} remat_policy;

const char *remat_policy_name(remat_policy policy);
void graph_mark_recompute(graph *g, remat_policy policy);
/* Rewrites the nodes; the graph must hold forward and backward. */
stint_status graph_rematerialize(graph *g);

#endif
