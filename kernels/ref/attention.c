/* attention, attention_dq and attention_dkv, written as kernels/ops/attention.h reads: one query row, or one key, at a
 * time. The oracle of the vector paths. */
#include "kernels/ops/attention.h"

#include "kernels/math/fma.h"
#include "kernels/math/math.h"
#include "kernels/ref/register.h"

/* Rule 2: one chain. */
static float dot(const float *const a, const float *const b, const int64_t n) {
  float c = 0;
  for (int64_t i = 0; i < n; i++) c = m_fma(a[i], b[i], c);
  return c;
}

/* Rule 3's fold of 32 lanes. */
static float fold(float lane[32]) {
  for (int h = 16; h; h >>= 1)
    for (int l = 0; l < h; l++) lane[l] = lane[l] + lane[l + h];
  return lane[0];
}

/* Chunks from the last to the first, heads within: under a causal span the last rows see most. */
static void row_unit(const int64_t unit, const int32_t n_heads, const int32_t chunk, const int64_t rows,
                     int64_t *const head, int64_t *const r0, int64_t *const r1) {
  const int64_t at = attention_n_chunks(chunk, rows) - 1 - unit / n_heads;
  *head = unit % n_heads;
  *r0 = at * chunk;
  *r1 = *r0 + chunk < rows ? *r0 + chunk : rows;
}

static void forward_row(const op_attention_args *const a, const int64_t h, const int64_t r, float *const p) {
  const int64_t n = a->head_size, kv = h / (a->n_heads / a->n_kv_heads);
  const int32_t first = a->span[r], last = a->span[a->rows + r];
  const float *const q = a->q + r * a->ldq + h * n;
  float m = -__builtin_inff(), lane[32] = {0}, sum[ATTENTION_MAX_HEAD] = {0};
  for (int32_t j = first; j <= last; j++) {
    p[j] = a->scale * dot(q, a->k + j * a->ldk + kv * n, n);
    m = p[j] > m ? p[j] : m;
  }
  m = m + 0.0f;
  for (int32_t j = first; j <= last; j++) {
    p[j] = m_exp(p[j] - m);
    lane[(j - first) % 32] += p[j];
    for (int64_t e = 0; e < n; e++) sum[e] = m_fma(p[j], a->v[j * a->ldv + kv * n + e], sum[e]);
  }
  const float z = fold(lane);
  for (int64_t e = 0; e < n; e++) a->o[r * a->ldo + h * n + e] = (sum[e] + 0.0f) / z;
  a->stats[h * a->rows + r] = m;
  a->stats[(a->n_heads + h) * a->rows + r] = z;
}

static void ref_attention(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_attention_args *const a = args;
  const int64_t units = a->n_heads * attention_n_chunks(a->chunk, a->rows);
  float *const p = (float *)((char *)a->work + (size_t)worker * a->slab_bytes); /* a score for each key */
  for (int64_t i = 0, unit; (unit = attention_unit(i, worker, workers)), i * workers < units; i++) {
    if (unit >= units) continue;
    int64_t h, r0, r1;
    row_unit(unit, a->n_heads, a->chunk, a->rows, &h, &r0, &r1);
    for (int64_t r = r0; r < r1; r++) forward_row(a, h, r, p);
  }
}

/* P and ds of one (head, row, key). */
static float prob_and_ds(const op_attention_back_args *const a, const int64_t h, const int64_t r,
                         const int64_t j, float *const ds) {
  const int64_t n = a->head_size, kv = h / (a->n_heads / a->n_kv_heads), at = h * a->rows + r;
  const float s = a->scale * dot(a->q + r * a->ldq + h * n, a->k + j * a->ldk + kv * n, n);
  const float p = m_exp(s - a->stats[at]) / a->stats[a->n_heads * a->rows + at];
  const float dp = dot(a->dout + r * a->lddo + h * n, a->v + j * a->ldv + kv * n, n);
  *ds = p * (dp - a->d[at]);
  return p;
}

static void dq_row(const op_attention_back_args *const a, const int64_t h, const int64_t r) {
  const int64_t n = a->head_size, kv = h / (a->n_heads / a->n_kv_heads);
  const float *const dout = a->dout + r * a->lddo + h * n, *const o = a->o + r * a->ldo + h * n;
  float lane[32] = {0}, sum[ATTENTION_MAX_HEAD] = {0};
  for (int64_t e = 0; e < n; e++) lane[e % 32] = m_fma(dout[e], o[e], lane[e % 32]);
  a->d[h * a->rows + r] = fold(lane);
  for (int32_t j = a->span[r]; j <= a->span[a->rows + r]; j++) {
    float ds;
    prob_and_ds(a, h, r, j, &ds);
    for (int64_t e = 0; e < n; e++) sum[e] = m_fma(ds, a->k[j * a->ldk + kv * n + e], sum[e]);
  }
  for (int64_t e = 0; e < n; e++) a->dq[r * a->lddq + h * n + e] = a->scale * (sum[e] + 0.0f);
}

static void ref_attention_dq(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_attention_back_args *const a = args;
  const int64_t units = a->n_heads * attention_n_chunks(a->chunk, a->rows);
  for (int64_t i = 0, unit; (unit = attention_unit(i, worker, workers)), i * workers < units; i++) {
    if (unit >= units) continue;
    int64_t h, r0, r1;
    row_unit(unit, a->n_heads, a->chunk, a->rows, &h, &r0, &r1);
    for (int64_t r = r0; r < r1; r++) dq_row(a, h, r);
  }
}

static void dkv_key(const op_attention_back_args *const a, const int64_t kv, const int64_t j) {
  const int64_t n = a->head_size, group = a->n_heads / a->n_kv_heads;
  float dk[ATTENTION_MAX_HEAD] = {0}, dv[ATTENTION_MAX_HEAD] = {0};
  for (int64_t h = kv * group; h < (kv + 1) * group; h++)
    for (int64_t r = 0; r < a->rows; r++) {
      if (j < a->span[r] || j > a->span[a->rows + r]) continue;
      float ds;
      const float p = prob_and_ds(a, h, r, j, &ds);
      for (int64_t e = 0; e < n; e++) {
        dv[e] = m_fma(p, a->dout[r * a->lddo + h * n + e], dv[e]);
        dk[e] = m_fma(ds, a->q[r * a->ldq + h * n + e], dk[e]);
      }
    }
  for (int64_t e = 0; e < n; e++) {
    a->dv[j * a->lddv + kv * n + e] = dv[e] + 0.0f;
    a->dk[j * a->lddk + kv * n + e] = a->scale * (dk[e] + 0.0f);
  }
}

static void ref_attention_dkv(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_attention_back_args *const a = args;
  const int64_t units = a->n_kv_heads * attention_n_tiles(a->keys);
  for (int64_t i = 0, unit; (unit = attention_unit(i, worker, workers)), i * workers < units; i++) {
    if (unit >= units) continue;
    const int64_t kv = unit % a->n_kv_heads, j0 = unit / a->n_kv_heads * ATTENTION_TILE;
    for (int64_t j = j0; j < j0 + ATTENTION_TILE && j < a->keys; j++) dkv_key(a, kv, j);
  }
}

void ref_register_attention(op_kernel *table[OP_COUNT]) {
  table[OP_ATTENTION] = ref_attention;
  table[OP_ATTENTION_DQ] = ref_attention_dq;
  table[OP_ATTENTION_DKV] = ref_attention_dkv;
}
