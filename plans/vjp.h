/* The backward of a graph: one rule an op, ordinary nodes out.
 *
 * Gradients of a tensor with several readers are added in graph order, last reader first (the backward walks the
 * forward from its end), by ops that continue from what is there (c0) where they can, else by add. Only what leads to
 * a parameter is differentiated. The graph ends with a linear_cross_entropy node, whose gradients come with
 * its forward; everything before it is walked back. */
#ifndef STINT_PLANS_VJP_H
#define STINT_PLANS_VJP_H

#include "plans/graph.h"

/* Appends the backward nodes (pass BACKWARD). `grad_of` [room_tensors], filled with GRAPH_NONE or the gradient: the
 * family has entered the gradients that the loss node writes. */
stint_status graph_differentiate(graph *g, graph_id *grad_of);

#endif
