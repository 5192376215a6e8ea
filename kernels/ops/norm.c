/* Rows of rms_norm and its gradients. */
#include "kernels/ops/norm.h"

#include "kernels/ops/rule.h"
#include "kernels/ops/table.h"

/* The mean divides by n as a float32: n must be one exactly. */
enum { NORM_MAX_N = 1 << 24 };

static double elements(const op_tensor *const t) { return (double)t->ne[0] * (double)op_rows(t); }

static const char *rms_norm_check(const op_case *const c) {
  const op_tensor *const x = &c->src[0];
  const int64_t rows = op_rows(x);
  if (!rule_matrix(x) || x->ne[0] > NORM_MAX_N) return "x is not an F32 matrix of rows up to 2^24 long";
  if (!rule_vector_of(&c->src[1], DTYPE_F32, x->ne[0])) return "w is not F32[n]";
  if (!rule_matrix_of(&c->dst[0], x->ne[0], rows)) return "y is not of x's shape";
  if (!rule_vector_of(&c->dst[1], DTYPE_F32, rows)) return "r is not F32[rows]";
  return c->params.norm.eps >= 0.0f ? NULL : "eps is negative";
}

static double rms_norm_flops(const op_case *const c) { return 4 * elements(&c->src[0]); }

static void rms_norm_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                          void *const work, const int workers) {
  (void)work, (void)workers;
  *(op_rms_norm_args *)args = (op_rms_norm_args){.x = src[0],
                                                 .w = src[1],
                                                 .y = dst[0],
                                                 .r = dst[1],
                                                 .ldx = op_ld(&c->src[0]),
                                                 .ldy = op_ld(&c->dst[0]),
                                                 .n = c->src[0].ne[0],
                                                 .rows = op_rows(&c->src[0]),
                                                 .eps = c->params.norm.eps};
}

const op_row op_row_rms_norm = {.name = "rms_norm",
                                .src_names = {"x", "w"},
                                .dst_names = {"y", "r"},
                                .src_required = 3,
                                .dst_required = 3,
                                .alias = {1}, /* a row is summed before any of it is written */
                                .args_bytes = sizeof(op_rms_norm_args),
                                .check = rms_norm_check,
                                .flops = rms_norm_flops,
                                .bind = rms_norm_bind};

static const char *rms_norm_dx_check(const op_case *const c) {
  const op_tensor *const x = &c->src[1], *const c0 = &c->src[4];
  const int64_t n = x->ne[0], rows = op_rows(x);
  if (!rule_matrix(x) || n > NORM_MAX_N) return "x is not an F32 matrix of rows up to 2^24 long";
  if (!rule_matrix_of(&c->src[0], n, rows)) return "dy is not of x's shape";
  if (!rule_vector_of(&c->src[2], DTYPE_F32, n)) return "w is not F32[n]";
  if (!rule_vector_of(&c->src[3], DTYPE_F32, rows)) return "r is not F32[rows]";
  if (op_present(c0) && !rule_matrix_of(c0, n, rows)) return "c0 is not of x's shape";
  return rule_matrix_of(&c->dst[0], n, rows) ? NULL : "dx is not of x's shape";
}

static double rms_norm_dx_flops(const op_case *const c) {
  return (op_present(&c->src[4]) ? 8 : 7) * elements(&c->src[1]);
}

static void rms_norm_dx_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                             void *const work, const int workers) {
  (void)work, (void)workers;
  const bool has_c0 = op_present(&c->src[4]);
  *(op_rms_norm_dx_args *)args = (op_rms_norm_dx_args){.dy = src[0],
                                                       .x = src[1],
                                                       .w = src[2],
                                                       .r = src[3],
                                                       .c0 = has_c0 ? src[4] : NULL,
                                                       .dx = dst[0],
                                                       .lddy = op_ld(&c->src[0]),
                                                       .ldx = op_ld(&c->src[1]),
                                                       .ldc0 = has_c0 ? op_ld(&c->src[4]) : 0,
                                                       .lddx = op_ld(&c->dst[0]),
                                                       .n = c->src[1].ne[0],
                                                       .rows = op_rows(&c->src[1])};
}

const op_row op_row_rms_norm_dx = {
    .name = "rms_norm_dx",
    .src_names = {"dy", "x", "w", "r", "c0"},
    .dst_names = {"dx"},
    .src_required = 0xf,
    .dst_required = 1,
    .alias = {1 | 2 | 16}, /* dy, x, c0: the row's sum is done before it is written */
    .args_bytes = sizeof(op_rms_norm_dx_args),
    .check = rms_norm_dx_check,
    .flops = rms_norm_dx_flops,
    .bind = rms_norm_dx_bind};

static const char *rms_norm_dw_check(const op_case *const c) {
  const op_tensor *const x = &c->src[1];
  const int64_t n = x->ne[0], rows = op_rows(x);
  if (!rule_matrix(x)) return "x is not an F32 matrix";
  if (!rule_matrix_of(&c->src[0], n, rows)) return "dy is not of x's shape";
  if (!rule_vector_of(&c->src[2], DTYPE_F32, rows)) return "r is not F32[rows]";
  return rule_vector_of(&c->dst[0], DTYPE_F32, n) ? NULL : "dw is not F32[n]";
}

static double rms_norm_dw_flops(const op_case *const c) { return 3 * elements(&c->src[1]); }

static void rms_norm_dw_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                             void *const work, const int workers) {
  (void)work, (void)workers;
  *(op_rms_norm_dw_args *)args = (op_rms_norm_dw_args){.dy = src[0],
                                                       .x = src[1],
                                                       .r = src[2],
                                                       .dw = dst[0],
                                                       .lddy = op_ld(&c->src[0]),
                                                       .ldx = op_ld(&c->src[1]),
                                                       .n = c->src[1].ne[0],
                                                       .rows = op_rows(&c->src[1])};
}

const op_row op_row_rms_norm_dw = {.name = "rms_norm_dw",
                                   .src_names = {"dy", "x", "r"},
                                   .dst_names = {"dw"},
                                   .src_required = 7,
                                   .dst_required = 1,
                                   .inout = 1,
                                   .args_bytes = sizeof(op_rms_norm_dw_args),
                                   .check = rms_norm_dw_check,
                                   .flops = rms_norm_dw_flops,
                                   .bind = rms_norm_dw_bind};
