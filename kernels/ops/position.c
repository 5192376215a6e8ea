/* The row of rope. */
#include "kernels/ops/position.h"

#include "kernels/ops/rule.h"
#include "kernels/ops/table.h"

static const char *rope_check(const op_case *const c) {
  const op_tensor *const x = &c->src[0];
  const int64_t n = x->ne[0], rows = op_rows(x), head = c->params.rope.head_size, rot = c->params.rope.n_rot;
  if (!rule_matrix(x)) return "x is not an F32 matrix";
  if (head < 1 || n % head != 0) return "x's rows are not whole heads";
  if (rot < 2 || rot > head || rot % 2 != 0) return "n_rot is not even, 2 or more, within the head";
  if (!rule_vector_of(&c->src[1], DTYPE_I32, rows)) return "pos is not I32[rows]";
  const op_tensor *const turns = &c->src[2];
  if (turns->type != DTYPE_F32 || turns->ne[0] != rot / 2 || op_rows(turns) != 2 || !op_contiguous(turns))
    return "turns is not F32[n_rot/2, 2]";
  return rule_matrix_of(&c->dst[0], n, rows) ? NULL : "y is not of x's shape";
}

static double rope_flops(const op_case *const c) {
  const double rows = (double)op_rows(&c->src[0]),
               heads = (double)(c->src[0].ne[0] / c->params.rope.head_size);
  return rows * c->params.rope.n_rot *
         (3 * heads + 20); /* a pair is 6; its angle about 40, once for all heads */
}

static void rope_bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                      void *const work, const int workers) {
  (void)work, (void)workers;
  *(op_rope_args *)args = (op_rope_args){.x = src[0],
                                         .pos = src[1],
                                         .turns = src[2],
                                         .y = dst[0],
                                         .ldx = op_ld(&c->src[0]),
                                         .ldy = op_ld(&c->dst[0]),
                                         .n = c->src[0].ne[0],
                                         .rows = op_rows(&c->src[0]),
                                         .head_size = c->params.rope.head_size,
                                         .n_rot = c->params.rope.n_rot,
                                         .neox = c->params.rope.neox,
                                         .inverse = c->params.rope.inverse,
                                         .magnitude = c->params.rope.magnitude};
}

const op_row op_row_rope = {.name = "rope",
                            .src_names = {"x", "pos", "turns"},
                            .dst_names = {"y"},
                            .src_required = 7,
                            .dst_required = 1,
                            .alias = {1},
                            .args_bytes = sizeof(op_rope_args),
                            .check = rope_check,
                            .flops = rope_flops,
                            .bind = rope_bind};
