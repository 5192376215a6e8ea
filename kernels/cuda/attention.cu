/* attention, attention_dq and attention_dkv on CUDA, strict: the bits of kernels/ref/attention.c.
 *
 * One block has one (head, tile of query rows), or for dkv one (kv head, tile of keys), and is the one owner of
 * its results. It walks the other side in ascending order through shared memory, so every chain is continued in
 * registers in the order that rule 2 and 4 ask for. Scores are computed when they are needed and never stored beyond a tile: the
 * forward does so twice, first for the maximum, then for probabilities, which are of the final maximum (no rescaling).
 *
 * Rule 3's lanes: a key's lane is its distance from the row's first key, modulo 32. Tiles are of 32 or 64 keys, so a
 * thread's columns keep their residue as tiles pass by, and it adds up by residue. The fold of 32 lanes gives the same
 * bits when the lanes are rotated (it adds what is 16 apart, then 8, ..., and addition commutes), so that the row's
 * first key need not be known. No workspace. Source of the form: FlashAttention (Dao et al. 2022), with the arithmetic
 * of kernels/ops/attention.h. */
#include "kernels/cuda/attention_tile.cuh"

/* ---- forward ---- */

template <int D, int ROWS, int KEYS>
static __global__ void __launch_bounds__(AT_THREADS, D == 128 ? 1 : 2)
    attention_forward(const op_attention_args a) {
  constexpr int TM = ROWS / AT_SIDE, TN = KEYS / AT_SIDE, G = D / 64, LD = D + 4, LP = KEYS + 4;
  CU_DYN_SMEM(float, smem);
  float *const own = smem, *const other = own + ROWS * LD, *const p = other + KEYS * LD;
  const int tx = (int)threadIdx.x % AT_SIDE, ty = (int)threadIdx.x / AT_SIDE, n = a.head_size;
  const at_rows b = at_block_rows(a.rows, a.n_heads, a.n_kv_heads, ROWS);
  const float *const k = a.k + (int64_t)b.kv * n, *const v = a.v + (int64_t)b.kv * n;
  const int64_t begin = a.span[b.r0], end = (int64_t)a.span[a.rows + b.r0 + b.count - 1] + 1;
  const int64_t all_from = a.span[b.r0 + b.count - 1], all_to = a.span[a.rows + b.r0];

  int first[TM], last[TM]; /* numbers of rows and keys are those of int32 */
  float m[TM], z[TM][2], sum[TM][G][4];
  at_clear<TM, G>(sum);
  CU_UNROLL
  for (int i = 0; i < TM; i++) {
    const int64_t r = ty + AT_SIDE * i;
    first[i] = r < b.count ? a.span[b.r0 + r] : 1;
    last[i] = r < b.count ? a.span[a.rows + b.r0 + r] : 0;
    m[i] = -m_inf();
    z[i][0] = z[i][1] = 0;
  }
  at_load<ROWS, D>(own, a.q + b.r0 * a.ldq + (int64_t)b.h * n, a.ldq, b.count, n);

  for (int64_t j0 = begin; j0 < end; j0 += KEYS) {
    __syncthreads();
    at_load<KEYS, D>(other, k + j0 * a.ldk, a.ldk, end - j0, n);
    __syncthreads();
    float s[TM][TN];
    at_scores<TM, TN, D>(s, own, other, n);
    CU_UNROLL
    for (int i = 0; i < TM; i++) {
      const at_interval seen = at_clip(first[i], last[i], j0);
      CU_UNROLL
      for (int c = 0; c < TN; c++) {
        const float x = a.scale * s[i][c];
        m[i] = at_sees(seen, tx + AT_SIDE * c) && x > m[i] ? x : m[i];
      }
    }
  }
  CU_UNROLL
  for (int i = 0; i < TM; i++) m[i] = at_max16(m[i]) + 0.0f;

  for (int64_t j0 = begin; j0 < end; j0 += KEYS) {
    __syncthreads();
    at_load<KEYS, D>(other, k + j0 * a.ldk, a.ldk, end - j0, n);
    __syncthreads();
    float s[TM][TN];
    at_interval seen[TM];
    at_scores<TM, TN, D>(s, own, other, n);
    CU_UNROLL
    for (int i = 0; i < TM; i++) {
      seen[i] = at_clip(first[i], last[i], j0);
      CU_UNROLL
      for (int c = 0; c < TN; c++) {
        const float x = m_exp(a.scale * s[i][c] - m[i]);
        const bool in = at_sees(seen[i], tx + AT_SIDE * c);
        p[(ty + AT_SIDE * i) * LP + tx + AT_SIDE * c] = in ? x : 0.0f;
        z[i][c % 2] = in ? z[i][c % 2] + x : z[i][c % 2];
      }
    }
    __syncthreads();
    at_load<KEYS, D>(other, v + j0 * a.ldv, a.ldv, end - j0, n);
    __syncthreads();
    at_add<TM, G, D, KEYS>(sum, p, other, seen, all_from <= j0 && all_to >= j0 + KEYS - 1,
                           end - j0 < KEYS ? (int)(end - j0) : KEYS);
  }

  CU_UNROLL
  for (int i = 0; i < TM; i++) {
    const int64_t r = ty + AT_SIDE * i;
    const float total = at_sum16(z[i][0] + z[i][1]);
    if (r >= b.count) continue;
    float *const o = a.o + (b.r0 + r) * a.ldo + (int64_t)b.h * n;
    CU_UNROLL
    for (int g = 0; g < G; g++) CU_UNROLL
    for (int e = 0; e < 4; e++)
      if (64 * g + 4 * tx + e < n) o[64 * g + 4 * tx + e] = (sum[i][g][e] + 0.0f) / total;
    if (tx == 0) {
      a.stats[(int64_t)b.h * a.rows + b.r0 + r] = m[i];
      a.stats[(int64_t)(a.n_heads + b.h) * a.rows + b.r0 + r] = total;
    }
  }
}

/* ---- dq ---- */

template <int D, int ROWS, int KEYS>
static __global__ void __launch_bounds__(AT_THREADS, D == 64 ? 1 : 2)
    attention_dq(const op_attention_back_args a) {
  constexpr int TM = ROWS / AT_SIDE, TN = KEYS / AT_SIDE, G = D / 64, LD = D + 4, LP = KEYS + 4;
  CU_DYN_SMEM(float, smem);
  float *const own_q = smem, *const own_do = own_q + ROWS * LD, *const other = own_do + ROWS * LD;
  float *const ds = other + KEYS * LD, *const row_d = ds + ROWS * LP;
  const int tx = (int)threadIdx.x % AT_SIDE, ty = (int)threadIdx.x / AT_SIDE, n = a.head_size;
  const at_rows b = at_block_rows(a.rows, a.n_heads, a.n_kv_heads, ROWS);
  const float *const k = a.k + (int64_t)b.kv * n, *const v = a.v + (int64_t)b.kv * n;
  const int64_t begin = a.span[b.r0], end = (int64_t)a.span[a.rows + b.r0 + b.count - 1] + 1;
  const int64_t all_from = a.span[b.r0 + b.count - 1], all_to = a.span[a.rows + b.r0];
  const int64_t at = (int64_t)b.h * a.rows + b.r0;

  at_load<ROWS, D>(own_q, a.q + b.r0 * a.ldq + (int64_t)b.h * n, a.ldq, b.count, n);
  at_load<ROWS, D>(own_do, a.dout + b.r0 * a.lddo + (int64_t)b.h * n, a.lddo, b.count, n);
  __syncthreads();
  for (int r = (int)threadIdx.x / 32; r < ROWS; r += AT_THREADS / 32) { /* d: a warp a row */
    const int lane = (int)threadIdx.x % 32;
    const float *const o = a.o + (b.r0 + r) * a.ldo + (int64_t)b.h * n;
    float x = 0;
    for (int e = lane; e < n && r < b.count; e += 32) x = m_fma(own_do[r * LD + e], o[e], x);
    x = cu_fold(x);
    if (lane == 0) row_d[r] = x;
    if (lane == 0 && r < b.count) a.d[at + r] = x;
  }
  __syncthreads();

  int first[TM], last[TM]; /* numbers of rows and keys are those of int32 */
  float m[TM], z[TM], d[TM], sum[TM][G][4];
  at_clear<TM, G>(sum);
  CU_UNROLL
  for (int i = 0; i < TM; i++) {
    const int64_t r = ty + AT_SIDE * i;
    const bool in = r < b.count;
    first[i] = in ? a.span[b.r0 + r] : 1;
    last[i] = in ? a.span[a.rows + b.r0 + r] : 0;
    m[i] = in ? a.stats[at + r] : 0.0f;
    z[i] = in ? a.stats[(int64_t)a.n_heads * a.rows + at + r] : 1.0f;
    d[i] = row_d[r];
  }

  for (int64_t j0 = begin; j0 < end; j0 += KEYS) {
    float s[TM][TN], dp[TM][TN];
    at_interval seen[TM];
    __syncthreads();
    at_load<KEYS, D>(other, v + j0 * a.ldv, a.ldv, end - j0, n);
    __syncthreads();
    at_scores<TM, TN, D>(dp, own_do, other, n);
    __syncthreads();
    at_load<KEYS, D>(other, k + j0 * a.ldk, a.ldk, end - j0, n);
    __syncthreads();
    at_scores<TM, TN, D>(s, own_q, other, n);
    CU_UNROLL
    for (int i = 0; i < TM; i++) {
      seen[i] = at_clip(first[i], last[i], j0);
      CU_UNROLL
      for (int c = 0; c < TN; c++) {
        const float prob = m_exp(a.scale * s[i][c] - m[i]) / z[i];
        ds[(ty + AT_SIDE * i) * LP + tx + AT_SIDE * c] =
            at_sees(seen[i], tx + AT_SIDE * c) ? prob * (dp[i][c] - d[i]) : 0.0f;
      }
    }
    __syncthreads();
    at_add<TM, G, D, KEYS>(sum, ds, other, seen, all_from <= j0 && all_to >= j0 + KEYS - 1,
                           end - j0 < KEYS ? (int)(end - j0) : KEYS);
  }

  CU_UNROLL
  for (int i = 0; i < TM; i++) {
    const int64_t r = ty + AT_SIDE * i;
    if (r >= b.count) continue;
    float *const dq = a.dq + (b.r0 + r) * a.lddq + (int64_t)b.h * n;
    CU_UNROLL
    for (int g = 0; g < G; g++) CU_UNROLL
    for (int e = 0; e < 4; e++)
      if (64 * g + 4 * tx + e < n) dq[64 * g + 4 * tx + e] = a.scale * (sum[i][g][e] + 0.0f);
  }
}

/* ---- dkv: the own rows are keys, the others are query rows ---- */

template <int D, int KEYS, int ROWS>
static __global__ void __launch_bounds__(AT_THREADS, D == 128 ? 2 : 1)
    attention_dkv(const op_attention_back_args a) {
  constexpr int TM = KEYS / AT_SIDE, TN = ROWS / AT_SIDE, G = D / 64, LD = D + 4, LP = ROWS + 4;
  CU_DYN_SMEM(float, smem);
  float *const own_k = smem, *const own_v = own_k + KEYS * LD, *const q = own_v + KEYS * LD,
               *const dout = q + ROWS * LD, *const p = dout + ROWS * LD, *const ds = p + KEYS * LP;
  const int tx = (int)threadIdx.x % AT_SIDE, ty = (int)threadIdx.x / AT_SIDE, n = a.head_size;
  const int kv = (int)((int64_t)blockIdx.x % a.n_kv_heads), group = a.n_heads / a.n_kv_heads;
  const int64_t j0 = (int64_t)blockIdx.x / a.n_kv_heads * KEYS;
  const int64_t count = a.keys - j0 < KEYS ? a.keys - j0 : KEYS;

  /* The rows that see a key: those whose last is not below it, before the first whose first is past it. */
  int first[TM], last[TM]; /* numbers of rows and keys are those of int32 */
  CU_UNROLL
  for (int i = 0; i < TM; i++) {
    const int64_t j = j0 + ty + AT_SIDE * i;
    first[i] = j < a.keys ? (int)at_count_below(a.span + a.rows, a.rows, j) : 1;
    last[i] = j < a.keys ? (int)at_count_below(a.span, a.rows, j + 1) - 1 : 0;
  }
  const int64_t begin = at_count_below(a.span + a.rows, a.rows, j0),
                end = at_count_below(a.span, a.rows, j0 + count);
  const int64_t all_from = at_count_below(a.span + a.rows, a.rows, j0 + KEYS - 1),
                all_to = at_count_below(a.span, a.rows, j0 + 1) - 1;

  float sum_k[TM][G][4], sum_v[TM][G][4];
  at_clear<TM, G>(sum_k);
  at_clear<TM, G>(sum_v);
  at_load<KEYS, D>(own_k, a.k + j0 * a.ldk + (int64_t)kv * n, a.ldk, count, n);
  at_load<KEYS, D>(own_v, a.v + j0 * a.ldv + (int64_t)kv * n, a.ldv, count, n);

  for (int h = kv * group; h < (kv + 1) * group; h++)
    for (int64_t r0 = begin; r0 < end; r0 += ROWS) {
      const int64_t at = (int64_t)h * a.rows + r0, left = end - r0;
      float s[TM][TN], dp[TM][TN];
      at_interval seen[TM];
      __syncthreads();
      at_load<ROWS, D>(q, a.q + r0 * a.ldq + (int64_t)h * n, a.ldq, left, n);
      at_load<ROWS, D>(dout, a.dout + r0 * a.lddo + (int64_t)h * n, a.lddo, left, n);
      __syncthreads();
      at_scores<TM, TN, D>(s, own_k, q, n);
      at_scores<TM, TN, D>(dp, own_v, dout, n);
      CU_UNROLL
      for (int i = 0; i < TM; i++) seen[i] = at_clip(first[i], last[i], r0);
      CU_UNROLL
      for (int c = 0; c < TN; c++) {
        const int col = tx + AT_SIDE * c;
        const bool in = col < left;
        const float m = in ? a.stats[at + col] : 0.0f, d = in ? a.d[at + col] : 0.0f;
        const float z = in ? a.stats[(int64_t)a.n_heads * a.rows + at + col] : 1.0f;
        CU_UNROLL
        for (int i = 0; i < TM; i++) {
          const float prob = m_exp(a.scale * s[i][c] - m) / z;
          const bool sees = at_sees(seen[i], col);
          p[(ty + AT_SIDE * i) * LP + col] = sees ? prob : 0.0f;
          ds[(ty + AT_SIDE * i) * LP + col] = sees ? prob * (dp[i][c] - d) : 0.0f;
        }
      }
      __syncthreads();
      const bool all = count == KEYS && all_from <= r0 && all_to >= r0 + ROWS - 1;
      const int cols = left < ROWS ? (int)left : ROWS;
      at_add<TM, G, D, ROWS>(sum_v, p, dout, seen, all, cols);
      at_add<TM, G, D, ROWS>(sum_k, ds, q, seen, all, cols);
    }

  CU_UNROLL
  for (int i = 0; i < TM; i++) {
    const int64_t j = ty + AT_SIDE * i;
    if (j >= count) continue;
    float *const dk = a.dk + (j0 + j) * a.lddk + (int64_t)kv * n;
    float *const dv = a.dv + (j0 + j) * a.lddv + (int64_t)kv * n;
    CU_UNROLL
    for (int g = 0; g < G; g++) CU_UNROLL
    for (int e = 0; e < 4; e++)
      if (64 * g + 4 * tx + e < n) {
        dk[64 * g + 4 * tx + e] = a.scale * (sum_k[i][g][e] + 0.0f);
        dv[64 * g + 4 * tx + e] = sum_v[i][g][e] + 0.0f;
      }
  }
}

/* ---- launches: tiles by head size, so that none wants more than 99 KiB, the most that every device since 8.0 has ---- */

template <int D, int ROWS, int KEYS>
static void launch_forward(const op_attention_args *const a, cuda_queue *const queue) {
  const size_t bytes = sizeof(float) * ((ROWS + KEYS) * (D + 4) + ROWS * (KEYS + 4));
  CU_SHARED(queue, "attention", (attention_forward<D, ROWS, KEYS>), bytes);
  CU_LAUNCH(queue, "attention", (attention_forward<D, ROWS, KEYS>),
            dim3((unsigned)at_row_blocks(a->rows, a->n_heads, ROWS)), dim3(AT_THREADS), bytes, *a);
}

void cuda_strict_attention(const void *const args, cuda_queue *const queue) {
  const op_attention_args *const a = (const op_attention_args *)args;
  if (a->head_size <= 64)
    a->rows > AT_SIDE ? launch_forward<64, 64, 64>(a, queue) : launch_forward<64, 16, 64>(a, queue);
  else if (a->head_size <= 128)
    a->rows > AT_SIDE ? launch_forward<128, 64, 64>(a, queue) : launch_forward<128, 16, 64>(a, queue);
  else
    a->rows > AT_SIDE ? launch_forward<256, 32, 32>(a, queue) : launch_forward<256, 16, 32>(a, queue);
}

template <int D, int ROWS, int KEYS>
static void launch_dq(const op_attention_back_args *const a, cuda_queue *const queue) {
  const size_t bytes = sizeof(float) * ((2 * ROWS + KEYS) * (D + 4) + ROWS * (KEYS + 4) + ROWS);
  CU_SHARED(queue, "attention_dq", (attention_dq<D, ROWS, KEYS>), bytes);
  CU_LAUNCH(queue, "attention_dq", (attention_dq<D, ROWS, KEYS>),
            dim3((unsigned)at_row_blocks(a->rows, a->n_heads, ROWS)), dim3(AT_THREADS), bytes, *a);
}

void cuda_strict_attention_dq(const void *const args, cuda_queue *const queue) {
  const op_attention_back_args *const a = (const op_attention_back_args *)args;
  if (a->head_size <= 64)
    launch_dq<64, 64, 64>(a, queue);
  else if (a->head_size <= 128)
    launch_dq<128, 32, 64>(a, queue);
  else
    launch_dq<256, 16, 32>(a, queue);
}

template <int D, int KEYS, int ROWS>
static void launch_dkv(const op_attention_back_args *const a, cuda_queue *const queue) {
  const size_t bytes = sizeof(float) * 2 * ((KEYS + ROWS) * (D + 4) + KEYS * (ROWS + 4));
  CU_SHARED(queue, "attention_dkv", (attention_dkv<D, KEYS, ROWS>), bytes);
  CU_LAUNCH(queue, "attention_dkv", (attention_dkv<D, KEYS, ROWS>),
            dim3((unsigned)at_row_blocks(a->keys, a->n_kv_heads, KEYS)), dim3(AT_THREADS), bytes, *a);
}

void cuda_strict_attention_dkv(const void *const args, cuda_queue *const queue) {
  const op_attention_back_args *const a = (const op_attention_back_args *)args;
  if (a->head_size <= 64)
    launch_dkv<64, 64, 32>(a, queue);
  else if (a->head_size <= 128)
    launch_dkv<128, 32, 32>(a, queue);
  else
    launch_dkv<256, 16, 16>(a, queue);
}

void cuda_register_attention(cuda_launch *table[OP_COUNT]) {
  table[OP_ATTENTION] = cuda_strict_attention;
  table[OP_ATTENTION_DQ] = cuda_strict_attention_dq;
  table[OP_ATTENTION_DKV] = cuda_strict_attention_dkv;
}
