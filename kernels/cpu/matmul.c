/* The three matrix products on a vector path: one problem of kernels/cpu/gemm.h each, shared by matmul_part_of. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/register.h"
#include "kernels/ops/matmul.h"

/* Worker's rows of A and C, then its columns. */
static void run_part(gemm_problem *const p, const int worker, const int workers, void *const work,
                     const size_t slab_bytes) {
  matmul_part part;
  if (!matmul_part_of(p->m, p->n, worker, workers, &part)) return;
  p->a += part.m_first * (p->a_by_k ? 1 : p->lda);
  if (p->c0) p->c0 += part.m_first * p->ldc0;
  p->c += part.m_first * p->ldc;
  p->m = part.m_last - part.m_first;
  PATH_NAME(gemm_columns)(p, part.n_first, part.n_last, (char *)work + (size_t)worker * slab_bytes);
}

static void matmul(const void *const args, const int phase, const int worker, const int workers) {
  const op_matmul_args *const a = args;
  (void)phase;
  gemm_problem p = {.m = a->rows,
                    .n = a->n,
                    .k = a->k,
                    .a = a->x,
                    .lda = a->ldx,
                    .b = a->w,
                    .b_type = a->w_type,
                    .b_row_bytes = a->w_row_bytes,
                    .b_by_n = true,
                    .c0 = a->c0,
                    .ldc0 = a->ldc0,
                    .c = a->y,
                    .ldc = a->ldy};
  run_part(&p, worker, workers, a->work, a->slab_bytes);
}

static void matmul_dx(const void *const args, const int phase, const int worker, const int workers) {
  const op_matmul_args *const a = args;
  (void)phase;
  gemm_problem p = {.m = a->rows,
                    .n = a->k,
                    .k = a->n,
                    .a = a->x,
                    .lda = a->ldx,
                    .b = a->w,
                    .b_type = a->w_type,
                    .b_row_bytes = a->w_row_bytes,
                    .c0 = a->c0,
                    .ldc0 = a->ldc0,
                    .c = a->y,
                    .ldc = a->ldy};
  run_part(&p, worker, workers, a->work, a->slab_bytes);
}

static void matmul_dw(const void *const args, const int phase, const int worker, const int workers) {
  const op_matmul_dw_args *const a = args;
  (void)phase;
  gemm_problem p = {.m = a->n,
                    .n = a->k,
                    .k = a->rows,
                    .a = a->dy,
                    .lda = a->lddy,
                    .a_by_k = true,
                    .b = a->x,
                    .b_type = DTYPE_F32,
                    .b_row_bytes = (size_t)a->ldx * sizeof(float),
                    .c0 = a->dw,
                    .ldc0 = a->lddw,
                    .c = a->dw,
                    .ldc = a->lddw};
  run_part(&p, worker, workers, a->work, a->slab_bytes);
}

void PATH_NAME(register_matmul)(op_kernel *table[OP_COUNT]) {
  table[OP_MATMUL] = matmul;
  table[OP_MATMUL_DX] = matmul_dx;
  table[OP_MATMUL_DW] = matmul_dw;
}
