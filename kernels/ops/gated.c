/* Rows of swiglu and its gradient. */
#include "kernels/ops/gated.h"

#include "kernels/ops/rule.h"
#include "kernels/ops/table.h"

/* All F32 operands of one shape. */
static const char *same_shape(const op_case *const c, const int n_src, const int n_dst) {
  const op_tensor *const x = &c->src[0];
  if (!rule_matrix(x)) return "the first source is not an F32 matrix";
  for (int i = 1; i < n_src; i++)
    if (!rule_matrix_of(&c->src[i], x->ne[0], op_rows(x))) return "the sources are not of one shape";
  for (int j = 0; j < n_dst; j++)
    if (!rule_matrix_of(&c->dst[j], x->ne[0], op_rows(x)))
      return "a destination is not of the sources' shape";
  return NULL;
}

static const char *swiglu_check(const op_case *const c) { return same_shape(c, 2, 1); }
static const char *swiglu_back_check(const op_case *const c) { return same_shape(c, 3, 2); }

/* A sigmoid is about 24 operations. */
static double swiglu_flops(const op_case *const c) {
  return 26 * (double)c->src[0].ne[0] * (double)op_rows(&c->src[0]);
}
static double swiglu_back_flops(const op_case *const c) {
  return 32 * (double)c->src[0].ne[0] * (double)op_rows(&c->src[0]);
}

static void swiglu_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                        void *const work, const int workers) {
  (void)work, (void)workers;
  *(op_swiglu_args *)args = (op_swiglu_args){.gate = src[0],
                                             .up = src[1],
                                             .h = dst[0],
                                             .ldg = op_ld(&c->src[0]),
                                             .ldu = op_ld(&c->src[1]),
                                             .ldh = op_ld(&c->dst[0]),
                                             .n = c->src[0].ne[0],
                                             .rows = op_rows(&c->src[0])};
}

static void swiglu_back_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                             void *const work, const int workers) {
  (void)work, (void)workers;
  *(op_swiglu_back_args *)args = (op_swiglu_back_args){.dh = src[0],
                                                       .gate = src[1],
                                                       .up = src[2],
                                                       .dgate = dst[0],
                                                       .dup = dst[1],
                                                       .lddh = op_ld(&c->src[0]),
                                                       .ldg = op_ld(&c->src[1]),
                                                       .ldu = op_ld(&c->src[2]),
                                                       .lddg = op_ld(&c->dst[0]),
                                                       .lddu = op_ld(&c->dst[1]),
                                                       .n = c->src[0].ne[0],
                                                       .rows = op_rows(&c->src[0])};
}

const op_row op_row_swiglu = {.name = "swiglu",
                              .src_names = {"gate", "up"},
                              .dst_names = {"h"},
                              .src_required = 3,
                              .dst_required = 1,
                              .alias = {3},
                              .args_bytes = sizeof(op_swiglu_args),
                              .check = swiglu_check,
                              .flops = swiglu_flops,
                              .bind = swiglu_bind};

/* An element's three sources are read before its two results are written: any of them may carry either. */
const op_row op_row_swiglu_back = {.name = "swiglu_back",
                                   .src_names = {"dh", "gate", "up"},
                                   .dst_names = {"dgate", "dup"},
                                   .src_required = 7,
                                   .dst_required = 3,
                                   .alias = {7, 7},
                                   .args_bytes = sizeof(op_swiglu_back_args),
                                   .check = swiglu_back_check,
                                   .flops = swiglu_back_flops,
                                   .bind = swiglu_back_bind};
