/* Operands of attention: grouped heads, each query row seeing one span of keys, no quadratic matrix kept
 * (memory as in FlashAttention, Dao et al. 2022; arithmetic by rules 2 to 4).
 *
 * q F32[head_size*n_heads, rows], k and v F32[head_size*n_kv_heads, keys], span I32[rows, 2]: row 0 the first
 * key that each query row sees, row 1 the last (inclusive); 0 <= first <= last < keys. first and last do not
 * fall from a row to the next. Causal, packed documents, sliding windows and a key cache are all spans. Head h
 * reads kv head h / (n_heads/n_kv_heads).
 *
 *   s[j] = scale * (q.k[j])       one fma chain over head_size, then one multiply
 *   m = max s + 0.0f;  p[j] = exp(s[j] - m);  z = sum p  (rule 3, lanes counted from the row's first key)
 *   o = (sum_j p[j]*v[j]) / z     one fma chain over j ascending, then one division
 * stats F32[n_heads*rows, 2]: row 0 m, row 1 z, element h*rows + r. The + 0.0f makes a zero maximum positive, so
 * that m does not tell in which order the scores were compared.
 *
 * attention      src0 q, src1 k, src2 v, src3 span; dst0 o (may lie on q), dst1 stats
 * attention_dq   src0 do, src1 q, src2 k, src3 v, src4 o, src5 stats, src6 span;
 *                dst0 dq (may lie on do, q or o), dst1 d F32[n_heads*rows]
 *   d = sum_e do[e]*o[e] (rule 3, products by fma);  P = exp(s - m)/z;  ds[j] = P[j]*((do.v[j]) - d)
 *   dq = scale * (sum_j ds[j]*k[j])           chain over j ascending, then one multiply
 * attention_dkv  src0 do, src1 q, src2 k, src3 v, src4 stats, src5 d, src6 span; dst0 dk (may lie on k),
 *                dst1 dv (may lie on v)
 *   dv[j] = sum P[j]*do;  dk[j] = scale * (sum ds[j]*q)   chains over (head of the group, query row) ascending (rule 4)
 * Finished sums get + 0.0f (before the division or the multiply), so that a zero's sign does not tell how keys
 * were tiled. A key that no row sees gets zero gradients, and its k and v are never used. */
#ifndef STINT_KERNELS_OPS_ATTENTION_H
#define STINT_KERNELS_OPS_ATTENTION_H

#include "kernels/ops/op.h"

typedef struct op_attention_args {
  const float *q, *k, *v;
  const int32_t *span;
  float *o, *stats;
  int64_t ldq, ldk, ldv, ldo, rows, keys;
  int32_t head_size, n_heads, n_kv_heads, chunk;
  float scale;
  void *work;
  size_t slab_bytes;
} op_attention_args;

typedef struct op_attention_back_args {
  const float *dout, *q, *k, *v, *o, *stats;
  const int32_t *span;
  float *dq, *d;  /* dq pass: both written. dkv pass: d is read, dq is NULL */
  float *dk, *dv; /* dkv pass only */
  int64_t lddo, ldq, ldk, ldv, ldo, lddq, lddk, lddv, rows, keys;
  int32_t head_size, n_heads, n_kv_heads, chunk;
  float scale;
  void *work;
  size_t slab_bytes;
} op_attention_back_args;

/* The units of work. attention and attention_dq: (head, chunk of query rows); attention_dkv: (kv head, tile of
 * ATTENTION_TILE keys). Neither shows in a bit. */
enum { ATTENTION_TILE = 64, ATTENTION_MAX_HEAD = 256, ATTENTION_GROUP = 6 };

/* Query rows of a chunk: never more than there are. */
static inline int64_t attention_chunk(const int32_t chunk, const int64_t rows) {
  return chunk < rows ? chunk : rows;
}
static inline int64_t attention_n_chunks(const int32_t chunk, const int64_t rows) {
  return rows > 0 ? (rows + chunk - 1) / chunk : 0;
}
static inline int64_t attention_n_tiles(const int64_t keys) {
  return (keys + ATTENTION_TILE - 1) / ATTENTION_TILE;
}

/* Deals `units` to `workers` in a snake: 0 1 2 2 1 0 0 1 2 ... With the heavy units numbered first, no worker gets
 * the heavier one of every round. The i-th unit of a worker; past the end when it has none left. */
static inline int64_t attention_unit(const int64_t i, const int worker, const int workers) {
  return i * workers + (i & 1 ? workers - 1 - worker : worker);
}

/* Floats of each part of a slab, in the order in which they lie; every part is a multiple of 16. */
static inline int64_t attention_up16(const int64_t n) { return (n + 15) & ~(int64_t)15; }

#endif
