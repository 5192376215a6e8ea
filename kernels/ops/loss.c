/* The row of linear_cross_entropy.
 *
 * The workspace is the logits of one chunk and a product's scratch for each worker that has a share of some phase. */
#include "kernels/ops/loss.h"

#include "kernels/cpu/gemm_problem.h"
#include "kernels/ops/fast_slab.h"
#include "kernels/ops/table.h"

enum { SRC_X, SRC_W, SRC_TARGET, SRC_WEIGHT, SRC_STEP, SRC_U, SRC_B };
enum { DST_LOSS, DST_DX, DST_DW, DST_DU, DST_DB };

static int64_t chunk_of(const op_case *const c) {
  const int64_t rows = op_rows(&c->src[SRC_X]);
  return c->params.loss.chunk < rows ? c->params.loss.chunk : rows;
}

static size_t logits_bytes(const op_case *const c) {
  return 4 * (size_t)(chunk_of(c) * loss_ld(op_rows(&c->src[SRC_W])));
}

static size_t workspace(const op_case *const c, const int workers) {
  const int64_t shares[] = {(op_rows(&c->src[SRC_W]) + LOSS_GRAIN - 1) / LOSS_GRAIN,
                            (c->src[SRC_X].ne[0] + 15) / 16, chunk_of(c)};
  int64_t most = 1;
  for (int i = 0; i < 3; i++) most = shares[i] > most ? shares[i] : most;
  return logits_bytes(c) + (size_t)GEMM_SCRATCH_BYTES * (size_t)(workers < most ? workers : most);
}

static size_t cuda_workspace(const op_case *const c, const bool fast) {
  const op_tensor *const w = &c->src[SRC_W];
  return loss_cuda_logits_bytes(chunk_of(c), op_rows(w)) +
         (fast ? fast_slab_bytes(w->type, w->ne[0], op_rows(w)) : 0);
}

static int phases(const op_case *const c) {
  const int64_t chunk = chunk_of(c);
  const int64_t chunks = (op_rows(&c->src[SRC_X]) + chunk - 1) / chunk;
  const int steps = 2 + (op_present(&c->dst[DST_DW]) || op_present(&c->dst[DST_DB])) +
                    (op_present(&c->dst[DST_DX]) || op_present(&c->dst[DST_DU]));
  return (int)(chunks * steps);
}

static double flops(const op_case *const c) {
  const double rows = (double)op_rows(&c->src[SRC_X]), n_vocab = (double)op_rows(&c->src[SRC_W]);
  const double n = (double)c->src[SRC_X].ne[0];
  const double r = op_present(&c->src[SRC_U]) ? (double)c->src[SRC_U].ne[0] : 0;
  const double products_n = 1 + op_present(&c->dst[DST_DX]) + op_present(&c->dst[DST_DW]);
  const double products_r = 1 + op_present(&c->dst[DST_DU]) + op_present(&c->dst[DST_DB]);
  return 2 * rows * n_vocab * (products_n * n + products_r * r);
}

static bool plain_rows(const op_tensor *const t, const int64_t ne0, const int64_t rows) {
  return t->type == DTYPE_F32 && t->ne[0] == ne0 && op_rows(t) == rows && op_rows_strided(t);
}

static bool optional_rows(const op_tensor *const t, const int64_t ne0, const int64_t rows) {
  return !op_present(t) || plain_rows(t, ne0, rows);
}

static bool vector_of(const op_tensor *const t, const dtype type, const int64_t n) {
  return t->type == type && t->ne[0] == n && op_rows(t) == 1 && op_contiguous(t);
}

static const char *check(const op_case *const c) {
  const int64_t n = c->src[SRC_X].ne[0], rows = op_rows(&c->src[SRC_X]), n_vocab = op_rows(&c->src[SRC_W]);
  const dtype_row *const w_row = dtype_find(c->src[SRC_W].type);
  if (c->params.loss.chunk < 1) return "the chunk is below one row";
  if (n < 1 || rows < 1 || n_vocab < 1) return "there are no rows, no columns or no vocabulary";
  if (!plain_rows(&c->src[SRC_X], n, rows)) return "x is not F32 rows";
  if (!w_row || !w_row->weight) return "W's type is not one that a matmul reads";
  if (c->src[SRC_W].ne[0] != n) return "W's rows are not as long as x's";
  if (n % w_row->block_elements != 0 || !op_rows_strided(&c->src[SRC_W]))
    return "W's rows are not whole blocks";
  if (n_vocab > INT32_MAX) return "more vocabulary than a target can number";
  if (!vector_of(&c->src[SRC_TARGET], DTYPE_I32, rows)) return "target is not I32[rows]";
  if (!vector_of(&c->src[SRC_WEIGHT], DTYPE_F32, rows)) return "weight is not F32[rows]";
  if (!vector_of(&c->src[SRC_STEP], DTYPE_I32, 16)) return "the step block is not I32[16]";
  if (op_present(&c->src[SRC_U]) != op_present(&c->src[SRC_B])) return "one of u and B is absent";
  const int64_t r = op_present(&c->src[SRC_U]) ? c->src[SRC_U].ne[0] : 0;
  if (op_present(&c->src[SRC_U]) && r < 1) return "u has no columns";
  if (!optional_rows(&c->src[SRC_U], r, rows)) return "u is not F32 rows";
  if (!optional_rows(&c->src[SRC_B], r, n_vocab)) return "B is not F32[r, n_vocab]";
  if (!vector_of(&c->dst[DST_LOSS], DTYPE_F32, rows)) return "loss is not F32[rows]";
  if (!optional_rows(&c->dst[DST_DX], n, rows)) return "dx does not match x";
  if (!optional_rows(&c->dst[DST_DW], n, n_vocab)) return "dW is not F32[n, n_vocab]";
  if (!r && (op_present(&c->dst[DST_DU]) || op_present(&c->dst[DST_DB]))) return "du or dB without u and B";
  if (!optional_rows(&c->dst[DST_DU], r, rows)) return "du does not match u";
  if (!optional_rows(&c->dst[DST_DB], r, n_vocab)) return "dB does not match B";
  if ((double)rows / (double)chunk_of(c) * 4 > INT32_MAX - 8) return "too many chunks";
  return 0;
}

static int64_t ld_of(const op_tensor *const t) { return op_present(t) ? op_ld(t) : 0; }

static void bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                 void *const work, const int workers) {
  (void)workers;
  *(op_linear_cross_entropy_args *)args =
      (op_linear_cross_entropy_args){.x = src[SRC_X],
                                     .w = src[SRC_W],
                                     .w_row_bytes = c->src[SRC_W].nb[1],
                                     .w_type = c->src[SRC_W].type,
                                     .target = src[SRC_TARGET],
                                     .weight = src[SRC_WEIGHT],
                                     .step = src[SRC_STEP],
                                     .u = src[SRC_U],
                                     .b = src[SRC_B],
                                     .loss = dst[DST_LOSS],
                                     .dx = dst[DST_DX],
                                     .dw = dst[DST_DW],
                                     .du = dst[DST_DU],
                                     .db = dst[DST_DB],
                                     .ldx = op_ld(&c->src[SRC_X]),
                                     .ldu = ld_of(&c->src[SRC_U]),
                                     .ldb = ld_of(&c->src[SRC_B]),
                                     .lddx = ld_of(&c->dst[DST_DX]),
                                     .lddw = ld_of(&c->dst[DST_DW]),
                                     .lddu = ld_of(&c->dst[DST_DU]),
                                     .lddb = ld_of(&c->dst[DST_DB]),
                                     .rows = op_rows(&c->src[SRC_X]),
                                     .n = c->src[SRC_X].ne[0],
                                     .n_vocab = op_rows(&c->src[SRC_W]),
                                     .r = op_present(&c->src[SRC_U]) ? c->src[SRC_U].ne[0] : 0,
                                     .chunk = chunk_of(c),
                                     .logits = work,
                                     .work = (char *)work + logits_bytes(c),
                                     .slab_bytes = (size_t)GEMM_SCRATCH_BYTES};
}

const op_row op_row_linear_cross_entropy = {
    .name = "linear_cross_entropy",
    .src_names = {"x", "w", "target", "weight", "step", "u", "b"},
    .dst_names = {"loss", "dx", "dw", "du", "db"},
    .src_required = 0x1F,
    .dst_required = 0x1,
    .inout = 1 << DST_DW | 1 << DST_DB,
    .alias = {[DST_DX] = 1 << SRC_X, [DST_DU] = 1 << SRC_U},
    .args_bytes = sizeof(op_linear_cross_entropy_args),
    .check = check,
    .workspace = workspace,
    .cuda_workspace = cuda_workspace,
    .phases = phases,
    .flops = flops,
    .bind = bind,
};
