/* The op table, and the questions that are answered the same way for every row. */
#include "kernels/ops/table.h"

const op_row *const op_table[OP_COUNT] = {
#define X(id, name) [OP_##id] = &op_row_##name,
    OP_LIST(X)
#undef X
};

op_tensor op_tensor_make(const dtype type, const int64_t ne0, const int64_t ne1) {
  const size_t row_bytes = dtype_bytes(type, ne0);
  op_tensor t = {.type = type, .ne = {ne0, ne1, 1, 1}};
  t.nb[0] = dtype_find(type)->block_bytes;
  t.nb[1] = row_bytes;
  t.nb[2] = t.nb[3] = row_bytes * (size_t)ne1;
  return t;
}

op_tensor op_tensor_none(void) { return (op_tensor){.type = DTYPE_NONE}; }

int64_t op_rows(const op_tensor *const t) { return t->ne[1] * t->ne[2] * t->ne[3]; }

bool op_rows_strided(const op_tensor *const t) {
  const dtype_row *const d = dtype_find(t->type);
  if (!d || t->nb[0] != d->block_bytes || t->nb[1] < dtype_bytes(t->type, t->ne[0])) return false;
  if (t->nb[1] % t->nb[0] != 0) return false;
  return (t->ne[2] == 1 || t->nb[2] == t->nb[1] * (size_t)t->ne[1]) &&
         (t->ne[3] == 1 || t->nb[3] == t->nb[2] * (size_t)t->ne[2]);
}

bool op_contiguous(const op_tensor *const t) {
  return op_rows_strided(t) && t->nb[1] == dtype_bytes(t->type, t->ne[0]);
}

size_t op_span_bytes(const op_tensor *const t) {
  size_t bytes = dtype_bytes(t->type, t->ne[0]);
  for (int i = 1; i < 4; i++) {
    if (t->ne[i] == 0) return 0;
    bytes += (size_t)(t->ne[i] - 1) * t->nb[i];
  }
  return bytes;
}

const char *op_check(const op_id id, const op_case *const c) {
  const op_row *const row = op_table[id];
  for (int i = 0; i < OP_MAX_SRC; i++) {
    if ((row->src_required >> i & 1) && !op_present(&c->src[i])) return "a required source is absent";
    if (!row->src_names[i] && op_present(&c->src[i])) return "a source that the op does not have";
  }
  for (int i = 0; i < OP_MAX_DST; i++) {
    if ((row->dst_required >> i & 1) && !op_present(&c->dst[i])) return "a required destination is absent";
    if (!row->dst_names[i] && op_present(&c->dst[i])) return "a destination that the op does not have";
  }
  return row->check(c);
}

size_t op_workspace(const op_id id, const op_case *const c, const op_backend backend, const int workers) {
  const op_row *const row = op_table[id];
  if (backend != BACKEND_CPU)
    return row->cuda_workspace ? row->cuda_workspace(c, backend == BACKEND_CUDA_FAST) : 0;
  return row->workspace ? row->workspace(c, workers) : 0;
}

int op_phases(const op_id id, const op_case *const c) {
  return op_table[id]->phases ? op_table[id]->phases(c) : 1;
}

double op_flops(const op_id id, const op_case *const c) {
  return op_table[id]->flops ? op_table[id]->flops(c) : 0;
}
