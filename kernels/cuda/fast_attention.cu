/* attention, attention_dq and attention_dkv on CUDA, fast: products in TF32 on tensor cores, sums in float32.
 *
 * FlashAttention's algorithm (Dao et al. 2022; one warp has whole rows, as in FlashAttention-2, Dao 2023): the forward
 * keeps a running maximum and rescales what it has when that grows; the backward computes probabilities again from
 * stats. A block is 4 warps, a warp has 16 own rows and sees all columns of a tile. One owner for each result, no atomics: the
 * same bits from run to run. Head sizes above 128 go to the strict kernels (their tiles would not fit).
 *
 * Fragments of mma.m16n8k8 (PTX ISA), lane = 4 g + t: A (16 x 8) holds rows g, g+8 at k = t, t+4; B (8 x 8) k = t, t+4 of
 * column g; C (16 x 8) rows g, g+8 at columns 2t, 2t+1. A product's weights are a C that becomes an A: its columns
 * 2t, 2t+1 are taken as k = t, t+4, and B's rows are read in the same order, so nothing is moved between lanes.
 *
 * What a row does not see has weight 0 in the products, and 0 times a NaN would enter: keys that no row of the block
 * sees are loaded as zeros. A value that is not finite does reach rows that do not see it but have it in a tile of theirs. */
#include "kernels/cuda/attention_tile.cuh"

constexpr int FA_WARPS = 4, FA_THREADS = 32 * FA_WARPS, FA_OWN = 16 * FA_WARPS, FA_MAX_HEAD = 128;

/* To TF32, nearest, ties away; NaN stays. */
CU_FN float fa_round(const float x) { return x == x ? m_float((m_bits(x) + 0x1000u) & 0xffffe000u) : x; }

CU_FN float fa_exp(const float x) { return __expf(x); }

/* c += a b */
CU_FN void fa_mma(float (&c)[4], const float (&a)[4], const float b0, const float b1) {
#ifdef STINT_CUEMU
  struct operands {
    float a[4], b[2];
  } mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}}, all[32];
  cuemu::warp_gather(&mine, all, sizeof mine, __FILE__, __LINE__);
  const int g = cu_lane() / 4, t = cu_lane() % 4;
  for (int i = 0; i < 4; i++) {
    const int row = g + 8 * (i / 2), column = 2 * t + i % 2;
    double sum = (double)c[i];
    for (int k = 0; k < 8; k++)
      sum += (double)all[row % 8 * 4 + k % 4].a[row / 8 + 2 * (k / 4)] *
             (double)all[column * 4 + k % 4].b[k / 4];
    c[i] = (float)sum;
  }
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(m_bits(a[0])), "r"(m_bits(a[1])), "r"(m_bits(a[2])), "r"(m_bits(a[3])), "r"(m_bits(b0)),
        "r"(m_bits(b1)));
#endif
}

/* Which keys of a tile are to be loaded: all, or (where the spans of a block leave gaps) those that some row sees. */
typedef struct fa_keys {
  const int32_t *first, *last; /* of the block's rows */
  int64_t rows;
  bool gaps;
} fa_keys;

CU_FN bool fa_seen(const fa_keys &k, const int64_t j) {
  const int64_t r = at_count_below(k.last, k.rows, j);
  return r < k.rows && k.first[r] <= j;
}

/* `count` rows of `n` floats, rounded to TF32, into a tile of ROWS x D; the rest is zero. `at`: the first row's number. */
template <int ROWS, int D>
CU_FN void fa_load(float *const to, const float *const from, const int64_t ld, const int64_t count,
                   const int n, const fa_keys &keys, const int64_t at) {
  const bool fours = n % 4 == 0 && ld % 4 == 0 && (uintptr_t)from % 16 == 0;
  if (fours) {
    AT_UNROLL(4)
    for (int i = (int)threadIdx.x; i < ROWS * D / 4; i += FA_THREADS) {
      const int r = i / (D / 4), e = i % (D / 4) * 4;
      float4 x = {0, 0, 0, 0};
      if (r < count && e < n && (!keys.gaps || fa_seen(keys, at + r)))
        x = *(const float4 *)(from + r * ld + e);
      x.x = fa_round(x.x), x.y = fa_round(x.y), x.z = fa_round(x.z), x.w = fa_round(x.w);
      *(float4 *)(to + r * (D + 4) + e) = x;
    }
  } else {
    AT_UNROLL(4)
    for (int i = (int)threadIdx.x; i < ROWS * D; i += FA_THREADS) {
      const int r = i / D, e = i % D;
      const bool in = r < count && e < n && (!keys.gaps || fa_seen(keys, at + r));
      to[r * (D + 4) + e] = in ? fa_round(from[r * ld + e]) : 0.0f;
    }
  }
}

/* s = own rows of this warp . the other rows, N groups of 8 */
template <int N, int D>
CU_FN void fa_scores(float (&s)[N][4], const float *const own, const float *const other, const int n) {
  const int g = cu_lane() / 4, t = cu_lane() % 4;
  const float *const mine = own + (16 * cu_warp() + g) * (D + 4) + t, *const theirs = other + g * (D + 4) + t;
  CU_UNROLL
  for (int j = 0; j < N; j++) CU_UNROLL
  for (int i = 0; i < 4; i++) s[j][i] = 0;
  AT_UNROLL(2)
  for (int e = 0; e < n; e += 8) {
    const float a[4] = {mine[e], mine[8 * (D + 4) + e], mine[e + 4], mine[8 * (D + 4) + e + 4]};
    CU_UNROLL
    for (int j = 0; j < N; j++) fa_mma(s[j], a, theirs[8 * j * (D + 4) + e], theirs[8 * j * (D + 4) + e + 4]);
  }
}

/* sum += w . the other rows */
template <int N, int D>
CU_FN void fa_add(float (&sum)[D / 8][4], const float (&w)[N][4], const float *const other) {
  const int g = cu_lane() / 4, t = cu_lane() % 4;
  CU_UNROLL
  for (int j = 0; j < N; j++) {
    const float a[4] = {fa_round(w[j][0]), fa_round(w[j][2]), fa_round(w[j][1]), fa_round(w[j][3])};
    const float *const theirs = other + (8 * j + 2 * t) * (D + 4) + g;
    CU_UNROLL
    for (int e = 0; e < D / 8; e++) fa_mma(sum[e], a, theirs[8 * e], theirs[D + 4 + 8 * e]);
  }
}

template <int D> CU_FN void fa_clear(float (&sum)[D / 8][4]) {
  CU_UNROLL
  for (int e = 0; e < D / 8; e++) CU_UNROLL
  for (int i = 0; i < 4; i++) sum[e][i] = 0;
}

/* factor[row half] * sum into rows of `to`, those of this warp that exist */
template <int D>
CU_FN void fa_store(float *const to, const int64_t ld, const int64_t count, const int n,
                    const float (&sum)[D / 8][4], const float f0, const float f1) {
  const int g = cu_lane() / 4, t = cu_lane() % 4, r = 16 * cu_warp() + g;
  CU_UNROLL
  for (int e = 0; e < D / 8; e++) CU_UNROLL
  for (int i = 0; i < 4; i++) {
    const int row = r + 8 * (i / 2), column = 8 * e + 2 * t + i % 2;
    if (row < count && column < n) to[row * ld + column] = sum[e][i] * (i / 2 ? f1 : f0);
  }
}

CU_FN float fa_max4(float x) { /* over the 4 lanes of a row */
  CU_UNROLL
  for (int h = 2; h; h /= 2) {
    const float y = __shfl_xor_sync(CU_FULL, x, h);
    x = y > x ? y : x;
  }
  return x;
}

CU_FN float fa_sum4(float x) {
  CU_UNROLL
  for (int h = 2; h; h /= 2) x = x + __shfl_xor_sync(CU_FULL, x, h);
  return x;
}

/* The keys that the block's rows see, and whether they leave gaps. Meets a barrier. */
CU_FN fa_keys fa_block_keys(const int32_t *const span, const int64_t rows, const at_rows b) {
  fa_keys k = {span + b.r0, span + rows + b.r0, b.count, false};
  bool gap = false;
  for (int64_t r = (int64_t)threadIdx.x + 1; r < b.count; r += FA_THREADS)
    gap |= k.first[r] > (int64_t)k.last[r - 1] + 1;
  k.gaps = __syncthreads_or(gap) != 0;
  return k;
}

template <int D, int KEYS>
static __global__ void __launch_bounds__(FA_THREADS, 2) fast_forward(const op_attention_args a) {
  constexpr int N = KEYS / 8, LD = D + 4;
  CU_DYN_SMEM(float, smem);
  float *const q = smem, *const ks = q + FA_OWN * LD, *const vs = ks + KEYS * LD;
  const int g = cu_lane() / 4, t = cu_lane() % 4, n = a.head_size;
  const at_rows b = at_block_rows(a.rows, a.n_heads, a.n_kv_heads, FA_OWN);
  const float *const k = a.k + (int64_t)b.kv * n, *const v = a.v + (int64_t)b.kv * n;
  const fa_keys keys = fa_block_keys(a.span, a.rows, b), every = {0, 0, 0, false};
  const int64_t begin = keys.first[0], end = (int64_t)keys.last[b.count - 1] + 1;

  int first[2], last[2];
  float m[2], z[2] = {0, 0}, sum[D / 8][4];
  fa_clear<D>(sum);
  CU_UNROLL
  for (int i = 0; i < 2; i++) {
    const int r = 16 * cu_warp() + g + 8 * i;
    first[i] = r < b.count ? keys.first[r] : 1;
    last[i] = r < b.count ? keys.last[r] : 0;
    m[i] = -m_inf();
  }
  fa_load<FA_OWN, D>(q, a.q + b.r0 * a.ldq + (int64_t)b.h * n, a.ldq, b.count, n, every, 0);

  for (int64_t j0 = begin; j0 < end; j0 += KEYS) {
    float s[N][4];
    __syncthreads();
    fa_load<KEYS, D>(ks, k + j0 * a.ldk, a.ldk, end - j0, n, keys, j0);
    fa_load<KEYS, D>(vs, v + j0 * a.ldv, a.ldv, end - j0, n, keys, j0);
    __syncthreads();
    fa_scores<N, D>(s, q, ks, n);
    CU_UNROLL
    for (int i = 0; i < 2; i++) {
      const at_interval seen = at_clip(first[i], last[i], j0);
      float most = m[i];
      CU_UNROLL
      for (int j = 0; j < N; j++) CU_UNROLL
      for (int c = 0; c < 2; c++) {
        float *const x = &s[j][2 * i + c];
        *x = *x * a.scale;
        most = at_sees(seen, 8 * j + 2 * t + c) && *x > most ? *x : most;
      }
      most = fa_max4(most);
      const float from = most == -m_inf() ? 0.0f : most; /* nothing seen yet: any number does */
      const float shrink = fa_exp(m[i] - from);
      float add = 0;
      CU_UNROLL
      for (int j = 0; j < N; j++) CU_UNROLL
      for (int c = 0; c < 2; c++) {
        float *const x = &s[j][2 * i + c];
        *x = at_sees(seen, 8 * j + 2 * t + c) ? fa_exp(*x - from) : 0.0f;
        add = add + *x;
      }
      m[i] = most;
      z[i] = z[i] * shrink + add;
      CU_UNROLL
      for (int e = 0; e < D / 8; e++) {
        sum[e][2 * i] *= shrink;
        sum[e][2 * i + 1] *= shrink;
      }
    }
    fa_add<N, D>(sum, s, vs);
  }

  const float z0 = fa_sum4(z[0]), z1 = fa_sum4(z[1]);
  CU_UNROLL
  for (int i = 0; i < 2; i++) {
    const int64_t r = 16 * cu_warp() + g + 8 * i;
    if (t == 0 && r < b.count) {
      a.stats[(int64_t)b.h * a.rows + b.r0 + r] = m[i] + 0.0f;
      a.stats[(int64_t)(a.n_heads + b.h) * a.rows + b.r0 + r] = i ? z1 : z0;
    }
  }
  fa_store<D>(a.o + b.r0 * a.ldo + (int64_t)b.h * n, a.ldo, b.count, n, sum, 1.0f / z0, 1.0f / z1);
}

template <int D, int KEYS>
static __global__ void __launch_bounds__(FA_THREADS, 2) fast_dq(const op_attention_back_args a) {
  constexpr int N = KEYS / 8, LD = D + 4;
  CU_DYN_SMEM(float, smem);
  float *const q = smem, *const dout = q + FA_OWN * LD, *const ks = dout + FA_OWN * LD,
               *const vs = ks + KEYS * LD;
  const int g = cu_lane() / 4, t = cu_lane() % 4, n = a.head_size;
  const at_rows b = at_block_rows(a.rows, a.n_heads, a.n_kv_heads, FA_OWN);
  const float *const k = a.k + (int64_t)b.kv * n, *const v = a.v + (int64_t)b.kv * n;
  const fa_keys keys = fa_block_keys(a.span, a.rows, b), every = {0, 0, 0, false};
  const int64_t begin = keys.first[0], end = (int64_t)keys.last[b.count - 1] + 1;
  const int64_t at = (int64_t)b.h * a.rows + b.r0;

  int first[2], last[2];
  float m[2], inverse[2], d[2], sum[D / 8][4];
  fa_clear<D>(sum);
  CU_UNROLL
  for (int i = 0; i < 2; i++) { /* d in float32, from what is stored: 4 lanes a row */
    const int r = 16 * cu_warp() + g + 8 * i;
    const bool in = r < b.count;
    const float *const x = a.dout + (b.r0 + r) * a.lddo + (int64_t)b.h * n;
    const float *const y = a.o + (b.r0 + r) * a.ldo + (int64_t)b.h * n;
    float part = 0;
    for (int e = t; e < n && in; e += 4) part = m_fma(x[e], y[e], part);
    d[i] = fa_sum4(part);
    first[i] = in ? keys.first[r] : 1;
    last[i] = in ? keys.last[r] : 0;
    m[i] = in ? a.stats[at + r] : 0.0f;
    inverse[i] = in ? 1.0f / a.stats[(int64_t)a.n_heads * a.rows + at + r] : 0.0f;
    if (in && t == 0) a.d[at + r] = d[i];
  }
  fa_load<FA_OWN, D>(q, a.q + b.r0 * a.ldq + (int64_t)b.h * n, a.ldq, b.count, n, every, 0);
  fa_load<FA_OWN, D>(dout, a.dout + b.r0 * a.lddo + (int64_t)b.h * n, a.lddo, b.count, n, every, 0);

  for (int64_t j0 = begin; j0 < end; j0 += KEYS) {
    float s[N][4], dp[N][4];
    __syncthreads();
    fa_load<KEYS, D>(ks, k + j0 * a.ldk, a.ldk, end - j0, n, keys, j0);
    fa_load<KEYS, D>(vs, v + j0 * a.ldv, a.ldv, end - j0, n, keys, j0);
    __syncthreads();
    fa_scores<N, D>(s, q, ks, n);
    fa_scores<N, D>(dp, dout, vs, n);
    CU_UNROLL
    for (int i = 0; i < 2; i++) {
      const at_interval seen = at_clip(first[i], last[i], j0);
      CU_UNROLL
      for (int j = 0; j < N; j++) CU_UNROLL
      for (int c = 0; c < 2; c++) {
        const float p = fa_exp(a.scale * s[j][2 * i + c] - m[i]) * inverse[i];
        s[j][2 * i + c] = at_sees(seen, 8 * j + 2 * t + c) ? p * (dp[j][2 * i + c] - d[i]) : 0.0f;
      }
    }
    fa_add<N, D>(sum, s, ks);
  }
  __syncthreads(); /* dq may lie on o, of which other warps' rows are their own: all have read */
  fa_store<D>(a.dq + b.r0 * a.lddq + (int64_t)b.h * n, a.lddq, b.count, n, sum, a.scale, a.scale);
}

template <int D, int ROWS>
static __global__ void __launch_bounds__(FA_THREADS, 2) fast_dkv(const op_attention_back_args a) {
  constexpr int N = ROWS / 8, LD = D + 4;
  CU_DYN_SMEM(float, smem);
  float *const ks = smem, *const vs = ks + FA_OWN * LD, *const q = vs + FA_OWN * LD,
               *const dout = q + ROWS * LD;
  const int g = cu_lane() / 4, t = cu_lane() % 4, n = a.head_size;
  const int kv = (int)((int64_t)blockIdx.x % a.n_kv_heads), group = a.n_heads / a.n_kv_heads;
  const int64_t j0 = (int64_t)blockIdx.x / a.n_kv_heads * FA_OWN;
  const int64_t count = a.keys - j0 < FA_OWN ? a.keys - j0 : FA_OWN;
  const fa_keys every = {0, 0, 0, false};
  const int64_t begin = at_count_below(a.span + a.rows, a.rows, j0),
                end = at_count_below(a.span, a.rows, j0 + count);

  int first[2], last[2];
  float sum_k[D / 8][4], sum_v[D / 8][4];
  fa_clear<D>(sum_k);
  fa_clear<D>(sum_v);
  CU_UNROLL
  for (int i = 0; i < 2; i++) {
    const int64_t j = j0 + 16 * cu_warp() + g + 8 * i;
    first[i] = j < a.keys ? (int)at_count_below(a.span + a.rows, a.rows, j) : 1;
    last[i] = j < a.keys ? (int)at_count_below(a.span, a.rows, j + 1) - 1 : 0;
  }
  fa_load<FA_OWN, D>(ks, a.k + j0 * a.ldk + (int64_t)kv * n, a.ldk, count, n, every, 0);
  fa_load<FA_OWN, D>(vs, a.v + j0 * a.ldv + (int64_t)kv * n, a.ldv, count, n, every, 0);

  for (int h = kv * group; h < (kv + 1) * group; h++)
    for (int64_t r0 = begin; r0 < end; r0 += ROWS) {
      const int64_t at = (int64_t)h * a.rows + r0, left = end - r0;
      float p[N][4], ds[N][4];
      __syncthreads();
      fa_load<ROWS, D>(q, a.q + r0 * a.ldq + (int64_t)h * n, a.ldq, left, n, every, 0);
      fa_load<ROWS, D>(dout, a.dout + r0 * a.lddo + (int64_t)h * n, a.lddo, left, n, every, 0);
      __syncthreads();
      fa_scores<N, D>(p, ks, q, n);
      fa_scores<N, D>(ds, vs, dout, n);
      const at_interval seen[2] = {at_clip(first[0], last[0], r0), at_clip(first[1], last[1], r0)};
      CU_UNROLL
      for (int j = 0; j < N; j++) CU_UNROLL
      for (int c = 0; c < 2; c++) {
        const int column = 8 * j + 2 * t + c;
        const bool in = column < left;
        const float m = in ? a.stats[at + column] : 0.0f, d = in ? a.d[at + column] : 0.0f;
        const float inverse = in ? 1.0f / a.stats[(int64_t)a.n_heads * a.rows + at + column] : 0.0f;
        CU_UNROLL
        for (int i = 0; i < 2; i++) {
          float *const x = &p[j][2 * i + c], *const y = &ds[j][2 * i + c];
          *x = at_sees(seen[i], column) ? fa_exp(a.scale * *x - m) * inverse : 0.0f;
          *y = at_sees(seen[i], column) ? *x * (*y - d) : 0.0f;
        }
      }
      fa_add<N, D>(sum_v, p, dout);
      fa_add<N, D>(sum_k, ds, q);
    }
  fa_store<D>(a.dk + j0 * a.lddk + (int64_t)kv * n, a.lddk, count, n, sum_k, a.scale, a.scale);
  fa_store<D>(a.dv + j0 * a.lddv + (int64_t)kv * n, a.lddv, count, n, sum_v, 1.0f, 1.0f);
}

/* ---- launches; at most 99 KiB of shared memory ---- */

template <int D, int KEYS>
static void launch_forward(const op_attention_args *const a, cuda_queue *const queue) {
  const size_t bytes = sizeof(float) * (FA_OWN + 2 * KEYS) * (D + 4);
  CU_SHARED(queue, "attention", (fast_forward<D, KEYS>), bytes);
  CU_LAUNCH(queue, "attention", (fast_forward<D, KEYS>),
            dim3((unsigned)at_row_blocks(a->rows, a->n_heads, FA_OWN)), dim3(FA_THREADS), bytes, *a);
}

static void cuda_fast_attention(const void *const args, cuda_queue *const queue) {
  const op_attention_args *const a = (const op_attention_args *)args;
  if (a->head_size > FA_MAX_HEAD)
    cuda_strict_attention(args, queue);
  else if (a->head_size > 64)
    launch_forward<128, 32>(a, queue);
  else
    launch_forward<64, 64>(a, queue);
}

template <int D> static void launch_dq(const op_attention_back_args *const a, cuda_queue *const queue) {
  const size_t bytes = sizeof(float) * 2 * (FA_OWN + 32) * (D + 4);
  CU_SHARED(queue, "attention_dq", (fast_dq<D, 32>), bytes);
  CU_LAUNCH(queue, "attention_dq", (fast_dq<D, 32>),
            dim3((unsigned)at_row_blocks(a->rows, a->n_heads, FA_OWN)), dim3(FA_THREADS), bytes, *a);
}

static void cuda_fast_attention_dq(const void *const args, cuda_queue *const queue) {
  const op_attention_back_args *const a = (const op_attention_back_args *)args;
  if (a->head_size > FA_MAX_HEAD)
    cuda_strict_attention_dq(args, queue);
  else if (a->head_size > 64)
    launch_dq<128>(a, queue);
  else
    launch_dq<64>(a, queue);
}

template <int D> static void launch_dkv(const op_attention_back_args *const a, cuda_queue *const queue) {
  const size_t bytes = sizeof(float) * 2 * (FA_OWN + 32) * (D + 4);
  CU_SHARED(queue, "attention_dkv", (fast_dkv<D, 32>), bytes);
  CU_LAUNCH(queue, "attention_dkv", (fast_dkv<D, 32>),
            dim3((unsigned)at_row_blocks(a->keys, a->n_kv_heads, FA_OWN)), dim3(FA_THREADS), bytes, *a);
}

static void cuda_fast_attention_dkv(const void *const args, cuda_queue *const queue) {
  const op_attention_back_args *const a = (const op_attention_back_args *)args;
  if (a->head_size > FA_MAX_HEAD)
    cuda_strict_attention_dkv(args, queue);
  else if (a->head_size > 64)
    launch_dkv<128>(a, queue);
  else
    launch_dkv<64>(a, queue);
}

void cuda_register_fast_attention(cuda_launch *table[OP_COUNT]) {
  table[OP_ATTENTION] = cuda_fast_attention;
  table[OP_ATTENTION_DQ] = cuda_fast_attention_dq;
  table[OP_ATTENTION_DKV] = cuda_fast_attention_dkv;
}
