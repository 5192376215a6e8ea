/* Rows of get_rows, get_rows_back, set_rows, add, scale, dropout. */
#include "kernels/ops/basic.h"

#include "kernels/ops/rule.h"
#include "kernels/ops/table.h"

static double elements(const op_tensor *const t) { return (double)t->ne[0] * (double)op_rows(t); }

static const char *get_rows_check(const op_case *const c) {
  const op_tensor *const table = &c->src[0], *const index = &c->src[1], *const y = &c->dst[0];
  const dtype_row *const d = dtype_find(table->type);
  if (!d || !d->weight) return "the table's type is not a weight's";
  if (table->ne[0] < 1 || op_rows(table) < 1 || table->ne[0] % d->block_elements != 0 ||
      !op_rows_strided(table))
    return "the table is not rows of whole blocks";
  if (!rule_vector_of(index, DTYPE_I32, op_rows(y))) return "the index is not one I32 for each row of y";
  if (!rule_matrix_of(y, table->ne[0], op_rows(y))) return "y is not F32 of the table's row length";
  return NULL;
}

static void get_rows_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                          void *const work, const int workers) {
  (void)work, (void)workers;
  *(op_get_rows_args *)args = (op_get_rows_args){.table = src[0],
                                                 .table_type = c->src[0].type,
                                                 .table_row_bytes = c->src[0].nb[1],
                                                 .index = src[1],
                                                 .y = dst[0],
                                                 .ldy = op_ld(&c->dst[0]),
                                                 .n = c->dst[0].ne[0],
                                                 .rows = op_rows(&c->dst[0])};
}

const op_row op_row_get_rows = {.name = "get_rows",
                                .src_names = {"table", "index"},
                                .dst_names = {"y"},
                                .src_required = 3,
                                .dst_required = 1,
                                .args_bytes = sizeof(op_get_rows_args),
                                .check = get_rows_check,
                                .bind = get_rows_bind};

/* get_rows_back and set_rows: rows of src 0 go to the rows of dst 0 that src 1 names. */
static const char *scatter_check(const op_case *const c) {
  const op_tensor *const x = &c->src[0], *const index = &c->src[1], *const table = &c->dst[0];
  if (!rule_matrix(x)) return "the rows are not an F32 matrix";
  if (!rule_vector_of(index, DTYPE_I32, op_rows(x))) return "the index is not one I32 for each row";
  if (!rule_matrix_of(table, x->ne[0], op_rows(table))) return "the table is not F32 of the same row length";
  return NULL;
}

static double get_rows_back_flops(const op_case *const c) { return elements(&c->src[0]); }

static void get_rows_back_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                               void *const work, const int workers) {
  (void)work, (void)workers;
  *(op_get_rows_back_args *)args = (op_get_rows_back_args){.dy = src[0],
                                                           .lddy = op_ld(&c->src[0]),
                                                           .index = src[1],
                                                           .dtable = dst[0],
                                                           .ld_table = op_ld(&c->dst[0]),
                                                           .n = c->src[0].ne[0],
                                                           .rows = op_rows(&c->src[0])};
}

const op_row op_row_get_rows_back = {.name = "get_rows_back",
                                     .src_names = {"dy", "index"},
                                     .dst_names = {"dtable"},
                                     .src_required = 3,
                                     .dst_required = 1,
                                     .inout = 1,
                                     .args_bytes = sizeof(op_get_rows_back_args),
                                     .check = scatter_check,
                                     .flops = get_rows_back_flops,
                                     .bind = get_rows_back_bind};

static void set_rows_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                          void *const work, const int workers) {
  (void)work, (void)workers;
  *(op_set_rows_args *)args = (op_set_rows_args){.x = src[0],
                                                 .ldx = op_ld(&c->src[0]),
                                                 .index = src[1],
                                                 .table = dst[0],
                                                 .ld_table = op_ld(&c->dst[0]),
                                                 .n = c->src[0].ne[0],
                                                 .rows = op_rows(&c->src[0])};
}

const op_row op_row_set_rows = {.name = "set_rows",
                                .src_names = {"x", "index"},
                                .dst_names = {"table"},
                                .src_required = 3,
                                .dst_required = 1,
                                .inout = 1,
                                .args_bytes = sizeof(op_set_rows_args),
                                .check = scatter_check,
                                .bind = set_rows_bind};

/* Elementwise: every F32 operand of dst 0's shape. */
static double one_each_flops(const op_case *const c) { return elements(&c->dst[0]); }

static const char *add_check(const op_case *const c) {
  const op_tensor *const y = &c->dst[0];
  if (!rule_matrix(y)) return "y is not an F32 matrix";
  for (int i = 0; i < 2; i++)
    if (!rule_matrix_of(&c->src[i], y->ne[0], op_rows(y))) return "the terms are not of y's shape";
  return NULL;
}

static void add_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                     void *const work, const int workers) {
  (void)work, (void)workers;
  *(op_add_args *)args = (op_add_args){.a = src[0],
                                       .b = src[1],
                                       .y = dst[0],
                                       .lda = op_ld(&c->src[0]),
                                       .ldb = op_ld(&c->src[1]),
                                       .ldy = op_ld(&c->dst[0]),
                                       .n = c->dst[0].ne[0],
                                       .rows = op_rows(&c->dst[0])};
}

const op_row op_row_add = {.name = "add",
                           .src_names = {"a", "b"},
                           .dst_names = {"y"},
                           .src_required = 3,
                           .dst_required = 1,
                           .alias = {3},
                           .args_bytes = sizeof(op_add_args),
                           .check = add_check,
                           .flops = one_each_flops,
                           .bind = add_bind};

static const char *scale_check(const op_case *const c) {
  const op_tensor *const y = &c->dst[0];
  if (!rule_matrix(y)) return "y is not an F32 matrix";
  return rule_matrix_of(&c->src[0], y->ne[0], op_rows(y)) ? NULL : "x is not of y's shape";
}

static void scale_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                       void *const work, const int workers) {
  (void)work, (void)workers;
  *(op_scale_args *)args = (op_scale_args){.x = src[0],
                                           .y = dst[0],
                                           .ldx = op_ld(&c->src[0]),
                                           .ldy = op_ld(&c->dst[0]),
                                           .n = c->dst[0].ne[0],
                                           .rows = op_rows(&c->dst[0]),
                                           .s = c->params.scale.s};
}

const op_row op_row_scale = {.name = "scale",
                             .src_names = {"x"},
                             .dst_names = {"y"},
                             .src_required = 1,
                             .dst_required = 1,
                             .alias = {1},
                             .args_bytes = sizeof(op_scale_args),
                             .check = scale_check,
                             .flops = one_each_flops,
                             .bind = scale_bind};

static const char *dropout_check(const op_case *const c) {
  const char *const wrong = scale_check(c);
  if (wrong) return wrong;
  if (!rule_step(&c->src[1])) return "the step block is not I32[16]";
  return c->params.dropout.p >= 0.0f && c->params.dropout.p < 1.0f ? NULL : "p is not in [0, 1)";
}

static void dropout_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                         void *const work, const int workers) {
  (void)work, (void)workers;
  *(op_dropout_args *)args = (op_dropout_args){.x = src[0],
                                               .y = dst[0],
                                               .ldx = op_ld(&c->src[0]),
                                               .ldy = op_ld(&c->dst[0]),
                                               .n = c->dst[0].ne[0],
                                               .rows = op_rows(&c->dst[0]),
                                               .p = c->params.dropout.p,
                                               .tensor = c->params.dropout.tensor,
                                               .step = src[1]};
}

const op_row op_row_dropout = {.name = "dropout",
                               .src_names = {"x", "step"},
                               .dst_names = {"y"},
                               .src_required = 3,
                               .dst_required = 1,
                               .alias = {1},
                               .args_bytes = sizeof(op_dropout_args),
                               .check = dropout_check,
                               .flops = one_each_flops,
                               .bind = dropout_bind};
