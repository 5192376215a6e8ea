/* The rows of the three matrix products, and the rule by which workers share one. */
#include "kernels/ops/matmul.h"

#include "kernels/cpu/gemm_problem.h"
#include "kernels/ops/fast_slab.h"
#include "kernels/ops/table.h"

enum { COLUMN_UNIT = 32, B_PACK_ROWS = 8, A_PACK_COLUMNS = 6 };

static int64_t least(const int64_t a, const int64_t b) { return a < b ? a : b; }
static int64_t ceil_div(const int64_t a, const int64_t b) { return (a + b - 1) / b; }

/* How many row and column parts. Cost of a worker in multiply-adds: its elements of C, and the packing of its
 * columns of B and its rows of A, each worth some rows or columns of work. Ties go to more column parts: those
 * dequantize nothing twice. */
static void grid_of(const int64_t m, const int64_t n, const int workers, int64_t *const row_parts,
                    int64_t *const column_parts) {
  const int64_t units = ceil_div(n, COLUMN_UNIT);
  int64_t best = INT64_MAX;
  *row_parts = *column_parts = 1;
  for (int64_t columns = least(workers, units); columns >= 1; columns--) {
    const int64_t rows = least(workers / columns, m);
    if (rows < 1) continue;
    const int64_t tall = ceil_div(m, rows), wide = least(ceil_div(units, columns) * COLUMN_UNIT, n);
    const int64_t cost = tall * wide + B_PACK_ROWS * wide + A_PACK_COLUMNS * tall;
    if (cost < best) {
      best = cost;
      *row_parts = rows;
      *column_parts = columns;
    }
  }
}

int matmul_parts(const int64_t m, const int64_t n, const int workers) {
  int64_t rows, columns;
  grid_of(m, n, workers, &rows, &columns);
  return (int)(rows * columns);
}

bool matmul_part_of(const int64_t m, const int64_t n, const int worker, const int workers,
                    matmul_part *const part) {
  int64_t rows, columns;
  grid_of(m, n, workers, &rows, &columns);
  if (worker >= rows * columns) return false;
  const int64_t units = ceil_div(n, COLUMN_UNIT), row = worker / columns, column = worker % columns;
  part->m_first = m * row / rows;
  part->m_last = m * (row + 1) / rows;
  part->n_first = units * column / columns * COLUMN_UNIT;
  part->n_last = least(units * (column + 1) / columns * COLUMN_UNIT, n);
  return part->m_first < part->m_last && part->n_first < part->n_last;
}

size_t gemm_scratch_bytes(void) { return GEMM_SCRATCH_BYTES; }

/* A float32 matrix [ne0, rows] as the kernels address it. */
static const char *check_matrix(const op_tensor *const t, const int64_t ne0, const int64_t rows) {
  if (t->type != DTYPE_F32) return "an activation or gradient of a matrix product is not F32";
  if (t->ne[0] != ne0 || op_rows(t) != rows) return "shapes of a matrix product do not agree";
  return op_rows_strided(t) ? NULL : "rows of a matrix product are not contiguous at one stride";
}

static const char *check_weight(const op_tensor *const w) {
  const dtype_row *const d = dtype_find(w->type);
  if (!d || !d->weight) return "a weight type that no matrix product reads";
  if (w->ne[2] != 1 || w->ne[3] != 1) return "a weight matrix has more than two dimensions";
  if (w->ne[0] < 0 || w->ne[0] % d->block_elements) return "a weight's row is not whole blocks";
  return op_rows_strided(w) ? NULL : "a weight's rows are not contiguous at one stride";
}

/* `in` is the length of src0's rows, `out` of dst0's. */
static const char *check_product(const op_case *const c, const int64_t in, const int64_t out) {
  const int64_t rows = op_rows(&c->src[0]);
  const char *wrong = check_weight(&c->src[1]);
  if (!wrong) wrong = check_matrix(&c->src[0], in, rows);
  if (!wrong) wrong = check_matrix(&c->dst[0], out, rows);
  if (!wrong && op_present(&c->src[2])) wrong = check_matrix(&c->src[2], out, rows);
  return wrong;
}

static const char *matmul_check(const op_case *const c) {
  return check_product(c, c->src[1].ne[0], c->src[1].ne[1]);
}

static const char *matmul_dx_check(const op_case *const c) {
  return check_product(c, c->src[1].ne[1], c->src[1].ne[0]);
}

static const char *matmul_dw_check(const op_case *const c) {
  const int64_t rows = op_rows(&c->src[0]), n = c->src[0].ne[0], k = c->src[1].ne[0];
  const char *wrong = check_matrix(&c->src[0], n, rows);
  if (!wrong) wrong = check_matrix(&c->src[1], k, rows);
  if (!wrong) wrong = check_matrix(&c->dst[0], k, n);
  return wrong;
}

static size_t workspace(const op_case *const c, const int workers) {
  return (size_t)matmul_parts(op_rows(&c->dst[0]), c->dst[0].ne[0], workers) * gemm_scratch_bytes();
}

/* Strict: nothing, W is dequantized on the way to a tile. Fast: the slab. */
static size_t cuda_workspace(const op_case *const c, const bool fast) {
  return fast ? fast_slab_bytes(c->src[1].type, c->src[1].ne[0], c->src[1].ne[1]) : 0;
}

static double flops(const op_case *const c) {
  return 2.0 * (double)op_rows(&c->src[0]) * (double)c->src[1].ne[0] * (double)c->src[1].ne[1];
}

static double flops_dw(const op_case *const c) {
  return 2.0 * (double)op_rows(&c->src[0]) * (double)c->src[0].ne[0] * (double)c->src[1].ne[0];
}

static void bind(void *const args, const op_case *const c, void *const src[], void *const dst[],
                 void *const work, const int workers) {
  (void)workers;
  *(op_matmul_args *)args = (op_matmul_args){
      .x = src[0],
      .w = src[1],
      .c0 = op_present(&c->src[2]) ? src[2] : NULL,
      .y = dst[0],
      .ldx = op_ld(&c->src[0]),
      .ldc0 = op_present(&c->src[2]) ? op_ld(&c->src[2]) : 0,
      .ldy = op_ld(&c->dst[0]),
      .w_row_bytes = c->src[1].nb[1],
      .w_type = c->src[1].type,
      .rows = op_rows(&c->src[0]),
      .k = c->src[1].ne[0],
      .n = c->src[1].ne[1],
      .work = work,
      .slab_bytes = gemm_scratch_bytes(),
  };
}

static void bind_dw(void *const args, const op_case *const c, void *const src[], void *const dst[],
                    void *const work, const int workers) {
  (void)workers;
  *(op_matmul_dw_args *)args = (op_matmul_dw_args){
      .dy = src[0],
      .x = src[1],
      .dw = dst[0],
      .lddy = op_ld(&c->src[0]),
      .ldx = op_ld(&c->src[1]),
      .lddw = op_ld(&c->dst[0]),
      .rows = op_rows(&c->src[0]),
      .k = c->src[1].ne[0],
      .n = c->src[0].ne[0],
      .work = work,
      .slab_bytes = gemm_scratch_bytes(),
  };
}

const op_row op_row_matmul = {
    .name = "matmul",
    .src_names = {"x", "w", "c0"},
    .dst_names = {"y"},
    .src_required = 3,
    .dst_required = 1,
    .alias = {1u << 2},
    .args_bytes = sizeof(op_matmul_args),
    .check = matmul_check,
    .workspace = workspace,
    .cuda_workspace = cuda_workspace,
    .flops = flops,
    .bind = bind,
};

const op_row op_row_matmul_dx = {
    .name = "matmul_dx",
    .src_names = {"dy", "w", "c0"},
    .dst_names = {"dx"},
    .src_required = 3,
    .dst_required = 1,
    .alias = {1u << 2},
    .args_bytes = sizeof(op_matmul_args),
    .check = matmul_dx_check,
    .workspace = workspace,
    .cuda_workspace = cuda_workspace,
    .flops = flops,
    .bind = bind,
};

const op_row op_row_matmul_dw = {
    .name = "matmul_dw",
    .src_names = {"dy", "x"},
    .dst_names = {"dw"},
    .src_required = 3,
    .dst_required = 1,
    .inout = 1,
    .args_bytes = sizeof(op_matmul_dw_args),
    .check = matmul_dw_check,
    .workspace = workspace,
    .flops = flops_dw,
    .bind = bind_dw,
};
