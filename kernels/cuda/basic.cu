/* get_rows, get_rows_back, set_rows, add, scale, dropout on CUDA, with the bits of kernels/ref.
 *
 * All but get_rows_back are elementwise. get_rows_back must add the rows of one index in ascending order, and several
 * threads must not share an element: the first row of each index is its owner, found by a look at the rows before it, and
 * adds those that come after it too. A warp does so for a tile of columns, in registers. */
#include "kernels/cuda/device.cuh"

#include "kernels/math/philox.h"
#include "kernels/ops/basic.h"

template <int TYPE> struct get_rows_map {
  op_get_rows_args a;
  typedef float value;
  __device__ __forceinline__ float load(const int64_t row, const int64_t i) const {
    const size_t at = (size_t)a.index[row] * a.table_row_bytes;
    return cu_weight<TYPE>((const char *)a.table + at, i);
  }
  __device__ __forceinline__ void store(const int64_t row, const int64_t i, const float v) const {
    a.y[row * a.ldy + i] = v;
  }
};

static void get_rows(const void *const args, cuda_queue *const queue) {
  const op_get_rows_args *const a = (const op_get_rows_args *)args;
  CU_WEIGHT_SWITCH(queue, "get_rows", a->table_type, T,
                   cu_map(queue, "get_rows", get_rows_map<T>{*a}, a->n, a->rows))
}

enum { BACK_EACH = 8, BACK_TILE = BACK_EACH * CU_WARP, BACK_WARPS = 4 };

__global__ void __launch_bounds__(BACK_WARPS *CU_WARP)
    get_rows_back_kernel(const op_get_rows_back_args a, const int64_t tiles) {
  const int lane = cu_lane();
  for (int64_t unit = (int64_t)blockIdx.x * BACK_WARPS + cu_warp(); unit < a.rows * tiles;
       unit += (int64_t)gridDim.x * BACK_WARPS) {
    const int64_t row = unit / tiles, column = (unit - row * tiles) * BACK_TILE + lane;
    const int32_t own = a.index[row];
    bool owner = true; /* of all the warp's lanes alike */
    for (int64_t r = 0; r < row && owner; r += CU_WARP)
      owner = __ballot_sync(CU_FULL, r + lane < row && a.index[r + lane] == own) == 0;
    if (!owner) continue;
    float *const table = a.dtable + own * a.ld_table;
    float sum[BACK_EACH];
    CU_UNROLL
    for (int k = 0; k < BACK_EACH; k++)
      sum[k] = column + k * CU_WARP < a.n ? table[column + k * CU_WARP] : 0.0f;
    for (int64_t r = row; r < a.rows; r += CU_WARP) {
      unsigned same = __ballot_sync(CU_FULL, r + lane < a.rows && a.index[r + lane] == own);
      for (; same; same &= same - 1) {
        const float *const dy = a.dy + (r + __ffs((int)same) - 1) * a.lddy;
        CU_UNROLL
        for (int k = 0; k < BACK_EACH; k++)
          if (column + k * CU_WARP < a.n) sum[k] = sum[k] + dy[column + k * CU_WARP];
      }
    }
    CU_UNROLL
    for (int k = 0; k < BACK_EACH; k++)
      if (column + k * CU_WARP < a.n) table[column + k * CU_WARP] = sum[k];
  }
}

static void get_rows_back(const void *const args, cuda_queue *const queue) {
  const op_get_rows_back_args *const a = (const op_get_rows_back_args *)args;
  const int64_t tiles = (a->n + BACK_TILE - 1) / BACK_TILE;
  CU_LAUNCH(queue, "get_rows_back", get_rows_back_kernel, dim3(cu_blocks(a->rows * tiles, BACK_WARPS)),
            dim3(BACK_WARPS * CU_WARP), 0, *a, tiles);
}

struct set_rows_map {
  op_set_rows_args a;
  typedef float value;
  __device__ __forceinline__ float load(const int64_t row, const int64_t i) const {
    return a.x[row * a.ldx + i];
  }
  __device__ __forceinline__ void store(const int64_t row, const int64_t i, const float v) const {
    a.table[a.index[row] * a.ld_table + i] = v;
  }
};

static void set_rows(const void *const args, cuda_queue *const queue) {
  const op_set_rows_args *const a = (const op_set_rows_args *)args;
  cu_map(queue, "set_rows", set_rows_map{*a}, a->n, a->rows);
}

struct add_map {
  op_add_args a;
  struct value {
    float a, b;
  };
  __device__ __forceinline__ value load(const int64_t row, const int64_t i) const {
    return {a.a[row * a.lda + i], a.b[row * a.ldb + i]};
  }
  __device__ __forceinline__ void store(const int64_t row, const int64_t i, const value v) const {
    a.y[row * a.ldy + i] = v.a + v.b;
  }
};

static void add(const void *const args, cuda_queue *const queue) {
  const op_add_args *const a = (const op_add_args *)args;
  int64_t n = a->n, rows = a->rows;
  cu_join(&n, &rows, a->lda == n && a->ldb == n && a->ldy == n);
  cu_map(queue, "add", add_map{*a}, n, rows);
}

struct scale_map {
  op_scale_args a;
  typedef float value;
  __device__ __forceinline__ float load(const int64_t row, const int64_t i) const {
    return a.x[row * a.ldx + i];
  }
  __device__ __forceinline__ void store(const int64_t row, const int64_t i, const float v) const {
    a.y[row * a.ldy + i] = a.s * v;
  }
};

static void scale(const void *const args, cuda_queue *const queue) {
  const op_scale_args *const a = (const op_scale_args *)args;
  int64_t n = a->n, rows = a->rows;
  cu_join(&n, &rows, a->ldx == n && a->ldy == n);
  cu_map(queue, "scale", scale_map{*a}, n, rows);
}

/* Each thread draws the four words of its element's counter and takes its own: the generator is pure, and neighbours
 * that agree on it would need an exchange. An element's number holds when rows are joined: its row 0 starts alike. */
struct dropout_map {
  op_dropout_args a;
  uint32_t threshold;
  float kept;
  typedef float value;
  __device__ __forceinline__ float load(const int64_t row, const int64_t i) const {
    return a.x[row * a.ldx + i];
  }
  __device__ __forceinline__ void store(const int64_t row, const int64_t i, const float v) const {
    const step_block *const s = a.step;
    const uint64_t e = (s->row_offset + (uint64_t)row) * (uint64_t)a.n + (uint64_t)i;
    const uint32_t counter[4] = {(uint32_t)(e / 4), (uint32_t)(e / 4 >> 32), a.tensor, (uint32_t)s->step};
    uint32_t w[4];
    philox4x32((uint32_t)s->seed, (uint32_t)(s->seed >> 32), counter, w);
    const uint32_t low = e & 1 ? w[1] : w[0], high = e & 1 ? w[3] : w[2], word = e & 2 ? high : low;
    a.y[row * a.ldy + i] = v * (word >= threshold ? kept : 0.0f);
  }
};

static void dropout(const void *const args, cuda_queue *const queue) {
  const op_dropout_args *const a = (const op_dropout_args *)args;
  int64_t n = a->n, rows = a->rows;
  cu_join(&n, &rows, a->ldx == n && a->ldy == n);
  const dropout_map map = {*a, (uint32_t)((double)a->p * 4294967296.0), 1.0f / (1.0f - a->p)};
  cu_map(queue, "dropout", map, n, rows);
}

extern "C" void cuda_register_basic(cuda_launch *table[OP_COUNT]) {
  table[OP_GET_ROWS] = get_rows;
  table[OP_GET_ROWS_BACK] = get_rows_back;
  table[OP_SET_ROWS] = set_rows;
  table[OP_ADD] = add;
  table[OP_SCALE] = scale;
  table[OP_DROPOUT] = dropout;
}
