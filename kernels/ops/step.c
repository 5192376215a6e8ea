/* Rows of zero, grad_norm, adamw, sgd. */
#include "kernels/ops/step.h"

#include "kernels/ops/rule.h"
#include "kernels/ops/table.h"

static const char *zero_check(const op_case *const c) {
  return rule_matrix(&c->dst[0]) && op_contiguous(&c->dst[0]) ? NULL : "x is not F32 and contiguous";
}

static void zero_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                      void *const work, const int workers) {
  (void)src, (void)work, (void)workers;
  *(op_zero_args *)args = (op_zero_args){.x = dst[0], .n = c->dst[0].ne[0] * op_rows(&c->dst[0])};
}

const op_row op_row_zero = {.name = "zero",
                            .dst_names = {"x"},
                            .dst_required = 1,
                            .args_bytes = sizeof(op_zero_args),
                            .check = zero_check,
                            .bind = zero_bind};

static bool flat(const op_tensor *const t) { return t->ne[0] >= 1 && rule_vector_of(t, DTYPE_F32, t->ne[0]); }

static int64_t norm_blocks(const op_case *const c) {
  return (c->src[0].ne[0] + GRAD_NORM_BLOCK - 1) / GRAD_NORM_BLOCK;
}

static const char *grad_norm_check(const op_case *const c) {
  if (!flat(&c->src[0])) return "g is not F32[n]";
  return rule_step(&c->dst[0]) ? NULL : "the step block is not I32[16]";
}

/* A float for each block, whoever sums it: not a slab a worker. */
static size_t grad_norm_workspace(const op_case *const c, const int workers) {
  (void)workers;
  return ((size_t)norm_blocks(c) * sizeof(float) + 63) / 64 * 64;
}

static size_t grad_norm_cuda_workspace(const op_case *const c, const bool fast) {
  (void)fast;
  return ((size_t)norm_blocks(c) * sizeof(float) + 255) / 256 * 256;
}

static int grad_norm_phases(const op_case *const c) {
  (void)c;
  return 2;
}

static double grad_norm_flops(const op_case *const c) { return 2 * (double)c->src[0].ne[0]; }

static void grad_norm_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                           void *const work, const int workers) {
  (void)workers;
  *(op_grad_norm_args *)args =
      (op_grad_norm_args){.g = src[0], .n = c->src[0].ne[0], .step = dst[0], .partial = work};
}

const op_row op_row_grad_norm = {.name = "grad_norm",
                                 .src_names = {"g"},
                                 .dst_names = {"step"},
                                 .src_required = 1,
                                 .dst_required = 1,
                                 .inout = 1,
                                 .args_bytes = sizeof(op_grad_norm_args),
                                 .check = grad_norm_check,
                                 .workspace = grad_norm_workspace,
                                 .cuda_workspace = grad_norm_cuda_workspace,
                                 .phases = grad_norm_phases,
                                 .flops = grad_norm_flops,
                                 .bind = grad_norm_bind};

static const char *adamw_check(const op_case *const c) {
  const int64_t n = c->src[0].ne[0];
  if (!flat(&c->src[0])) return "g is not F32[n]";
  if (!rule_step(&c->src[1])) return "the step block is not I32[16]";
  for (int j = 0; j < 3; j++)
    if (!rule_vector_of(&c->dst[j], DTYPE_F32, n)) return "p, m, v are not of g's size";
  return NULL;
}

static double adamw_flops(const op_case *const c) { return 17 * (double)c->src[0].ne[0]; }

static void adamw_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                       void *const work, const int workers) {
  (void)work, (void)workers;
  *(op_adamw_args *)args = (op_adamw_args){.g = src[0],
                                           .step = src[1],
                                           .p = dst[0],
                                           .m = dst[1],
                                           .v = dst[2],
                                           .n = c->src[0].ne[0],
                                           .beta1 = c->params.adamw.beta1,
                                           .beta2 = c->params.adamw.beta2,
                                           .eps = c->params.adamw.eps,
                                           .weight_decay = c->params.adamw.weight_decay};
}

const op_row op_row_adamw = {.name = "adamw",
                             .src_names = {"g", "step"},
                             .dst_names = {"p", "m", "v"},
                             .src_required = 3,
                             .dst_required = 7,
                             .inout = 7,
                             .args_bytes = sizeof(op_adamw_args),
                             .check = adamw_check,
                             .flops = adamw_flops,
                             .bind = adamw_bind};

static const char *sgd_check(const op_case *const c) {
  const int64_t n = c->src[0].ne[0];
  if (!flat(&c->src[0])) return "g is not F32[n]";
  if (!rule_step(&c->src[1])) return "the step block is not I32[16]";
  if (!rule_vector_of(&c->dst[0], DTYPE_F32, n)) return "p is not of g's size";
  const bool has_m = op_present(&c->dst[1]);
  if (has_m && !rule_vector_of(&c->dst[1], DTYPE_F32, n)) return "m is not of g's size";
  return has_m == (c->params.sgd.momentum != 0.0f) ? NULL : "momentum and its buffer do not go together";
}

static double sgd_flops(const op_case *const c) {
  return (op_present(&c->dst[1]) ? 7 : 5) * (double)c->src[0].ne[0];
}

static void sgd_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                     void *const work, const int workers) {
  (void)work, (void)workers;
  *(op_sgd_args *)args = (op_sgd_args){.g = src[0],
                                       .step = src[1],
                                       .p = dst[0],
                                       .m = op_present(&c->dst[1]) ? dst[1] : NULL,
                                       .n = c->src[0].ne[0],
                                       .momentum = c->params.sgd.momentum,
                                       .weight_decay = c->params.sgd.weight_decay};
}

const op_row op_row_sgd = {.name = "sgd",
                           .src_names = {"g", "step"},
                           .dst_names = {"p", "m"},
                           .src_required = 3,
                           .dst_required = 1,
                           .inout = 3,
                           .args_bytes = sizeof(op_sgd_args),
                           .check = sgd_check,
                           .flops = sgd_flops,
                           .bind = sgd_bind};
