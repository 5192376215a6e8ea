/* attention, attention_dq and attention_dkv on one vector path: tiles of scores that live in a worker's slab.
 *
 * Forward and dq, unit (head, chunk of query rows): q (and do) are packed transposed, keys are taken in groups of 6 and
 * blocks of ATTENTION_TILE, the vector runs along the query rows. For a group of keys the rows that see any of it are an
 * interval (spans do not fall), so only the registers that hold them are computed; the rest of the tile is zero, and
 * fma(0, v, c) leaves c. dkv, unit (kv head, tile of keys): k and v are packed transposed, query rows are taken in groups of
 * 6, the vector runs along the keys; heads and rows ascend and the sums continue through the slab.
 *
 * A unit's rows are cut where two neighbours see no common key (two documents): what one document computes never
 * meets a number of another, and keys that nobody sees are never read.
 *
 * The sum of a row's probabilities keeps 32 lanes by key % 32, the same for all rows. Rule 3's lane is (key - first) %
 * 32: the same elements in the same order, the lanes turned by first. Each round of the fold adds lanes that lie half of
 * the remaining circle apart, so turning the circle only swaps the two sides of additions: the bits are rule 3's. */
#include "kernels/ops/attention.h"

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/register.h"
#include "kernels/math/math.h"

static int64_t min_i64(const int64_t a, const int64_t b) { return a < b ? a : b; }
static int64_t up_vw(const int64_t n) { return (n + VW - 1) / VW * VW; }
static int64_t down_vw(const int64_t n) { return n / VW * VW; }

/* The rows of a unit, or of the part of it that one document has, and where their scores are. */
typedef struct strip {
  int64_t n, cp, ldt; /* rows; columns of the packed side (up to registers); floats between rows of a tile */
  float *m, *z, *d;   /* [cp] */
  int32_t *first, *last;
} strip;

/* Copies the spans of rows [r0, r0 + n); the columns past n repeat the last row, so that they are harmless. */
static void strip_spans(strip *const s, const int32_t *const span, const int64_t rows, const int64_t r0) {
  for (int64_t c = 0; c < s->cp; c++) {
    const int64_t r = r0 + min_i64(c, s->n - 1);
    s->first[c] = span[r];
    s->last[c] = span[rows + r];
  }
}

/* The registers [*c0, *c1) whose rows see any key of [j0, j1). *from and *to run up with j. */
static void band(const strip *const s, const int64_t j0, const int64_t j1, int64_t *const from,
                 int64_t *const to, int64_t *const c0, int64_t *const c1) {
  while (*from < s->n && s->last[*from] < j0) ++*from;
  while (*to < s->n && s->first[*to] < j1) ++*to;
  *c0 = down_vw(*from);
  *c1 = *from < *to ? up_vw(*to) : *c0;
}

static void clear_outside(float *const t, const int64_t cp, const int64_t c0, const int64_t c1) {
  for (int64_t c = 0; c < c0; c++) t[c] = 0;
  for (int64_t c = c1; c < cp; c++) t[c] = 0;
}

/* C[c] += sum_j T[j][c]*A[j] for the keys [j0, j1) of a tile whose first row is key j0. */
static void fold_keys(const strip *const s, const float *const t, const float *const a, const int64_t lda,
                      const int64_t j0, const int64_t j1, float *const c, const int64_t ldc,
                      const int64_t n) {
  for (int64_t g = 0; g < s->n; g += GROUP) {
    const int64_t end = min_i64(g + GROUP, s->n) - 1;
    const int64_t from = s->first[g] > j0 ? s->first[g] : j0, to = min_i64(s->last[end] + 1, j1);
    if (from < to)
      fold_group(t + (from - j0) * s->ldt + g, s->ldt, a + from * lda, lda, to - from, c + g * ldc, ldc, n);
  }
}

/* Rule 3's fold for every row of the strip. */
static void fold_lanes(const strip *const s, const float *const lanes, float *const out) {
  for (int64_t c = 0; c < s->cp; c += VW) {
    vf lane[32];
    for (int l = 0; l < 32; l++) lane[l] = vf_load(lanes + l * s->cp + c);
    for (int h = 16; h; h >>= 1)
      for (int l = 0; l < h; l++) lane[l] = lane[l] + lane[l + h];
    vf_store(out + c, lane[0]);
  }
}

/* ---- the elementwise loops: one row of a tile, registers [c0, c1) ---- */

/* t = the masked, scaled score (-inf where the row does not see key j); m = max(t, m). */
static void score_row(float *const restrict t, float *const restrict m, const int32_t *const restrict first,
                      const int32_t *const restrict last, const float scale, const int32_t j,
                      const int64_t c0, const int64_t c1) {
  for (int64_t c = c0; c < c1; c++) {
    const float s = scale * t[c];
    t[c] = (first[c] <= j) & (j <= last[c]) ? s : -__builtin_inff();
    m[c] = t[c] > m[c] ? t[c] : m[c];
  }
}

/* t = exp(t - m), 0 where masked; lane += t. */
static void exp_row(float *const restrict t, const float *const restrict m, float *const restrict lane,
                    const int64_t c0, const int64_t c1) {
  for (int64_t b = c0; b < c1; b += VW)
    for (int64_t c = b; c < b + VW; c++) {
      const float p = m_exp(t[c] - m[c]);
      t[c] = t[c] == -__builtin_inff() ? 0.0f : p; /* NaN is not -inf: it stays NaN */
      lane[c] = lane[c] + t[c];
    }
}

/* t = ds, of t = q.k and dp = do.v. */
static void ds_row(float *const restrict t, const float *const restrict dp, const strip *const s,
                   const float scale, const int32_t j, const int64_t c0, const int64_t c1) {
  const float *const restrict m = s->m, *const restrict z = s->z, *const restrict d = s->d;
  const int32_t *const restrict first = s->first, *const restrict last = s->last;
  for (int64_t b = c0; b < c1; b += VW)
    for (int64_t c = b; c < b + VW; c++) {
      const float p = m_exp(scale * t[c] - m[c]) / z[c];
      const float ds = p * (dp[c] - d[c]);
      t[c] = (first[c] <= j) & (j <= last[c]) ? ds : 0.0f;
    }
}

/* t = P and dp = ds of one query row against the keys j0 + c. */
static void p_ds_row(float *const restrict t, float *const restrict dp, const float m, const float z,
                     const float d, const float scale, const int64_t first, const int64_t last,
                     const int64_t c0, const int64_t c1) {
  const int32_t from = (int32_t)first, to = (int32_t)last;
  for (int64_t b = c0; b < c1; b += VW)
    for (int32_t i = 0; i < VW; i++) {
      const int32_t c = (int32_t)b + i;
      const float p = m_exp(scale * t[b + i] - m) / z;
      const float ds = p * (dp[b + i] - d);
      const int seen = (from <= c) & (c <= to);
      t[b + i] = seen ? p : 0.0f;
      dp[b + i] = seen ? ds : 0.0f;
    }
}

/* ---- units of the forward and dq ---- */

/* Chunks from the last to the first, heads within: under a causal span the last rows see most. */
static void row_unit(const int64_t unit, const int32_t n_heads, const int32_t chunk, const int64_t rows,
                     int64_t *const head, int64_t *const r0, int64_t *const r1) {
  *head = unit % n_heads;
  *r0 = (attention_n_chunks(chunk, rows) - 1 - unit / n_heads) * chunk;
  *r1 = min_i64(*r0 + chunk, rows);
}

/* The end of the rows from r0 on whose spans are connected. */
static int64_t connected(const int32_t *const span, const int64_t rows, const int64_t r0, const int64_t r1) {
  int64_t r = r0 + 1;
  while (r < r1 && span[r] <= span[rows + r - 1]) r++;
  return r;
}

static void *take(char **const at, const int64_t n_floats) {
  void *const p = *at;
  *at += 4 * n_floats;
  return p;
}

/* slab: qt [n][cp] | strip [keys + 6][cp + 16] | lanes [32][cp] | c [cp + 16][n up 16] | m z first last [cp] */
static void forward_part(const op_attention_args *const a, const int64_t h, const int64_t r0,
                         const int64_t r1, char *slab) {
  const int64_t n = a->head_size, kv = h / (a->n_heads / a->n_kv_heads), ldc = attention_up16(n);
  const float *const k = a->k + kv * n, *const v = a->v + kv * n;
  strip s = {.n = r1 - r0, .cp = attention_up16(r1 - r0), .ldt = attention_up16(r1 - r0) + 16};
  const int64_t cp = s.cp;
  float *const qt = take(&slab, n * cp), *const t = take(&slab, (a->keys + GROUP) * s.ldt),
               *const lanes = take(&slab, 32 * cp), *const c = take(&slab, (cp + 16) * ldc);
  s.m = take(&slab, cp);
  s.z = take(&slab, cp);
  s.first = take(&slab, cp);
  s.last = take(&slab, cp);
  strip_spans(&s, a->span, a->rows, r0);
  pack_transposed(a->q + r0 * a->ldq + h * n, a->ldq, s.n, n, qt, cp);
  for (int64_t i = 0; i < cp; i++) s.m[i] = -__builtin_inff();
  for (int64_t i = 0; i < 32 * cp; i++) lanes[i] = 0;
  for (int64_t i = 0; i < (cp + 16) * ldc; i++) c[i] = 0;

  const int64_t k0 = s.first[0], k1 = s.last[s.n - 1] + 1;
  int64_t from = 0, to = 0, c0, c1;
  for (int64_t j = k0; j < k1; j += GROUP) {
    const int64_t count = min_i64(GROUP, k1 - j);
    float *const tj = t + (j - k0) * s.ldt;
    band(&s, j, j + count, &from, &to, &c0, &c1);
    dot_group(k + j * a->ldk, a->ldk, count, qt, cp, n, tj, s.ldt, c0, c1);
    for (int64_t i = 0; i < count; i++)
      score_row(tj + i * s.ldt, s.m, s.first, s.last, a->scale, (int32_t)(j + i), c0, c1);
  }
  for (int64_t i = 0; i < cp; i++) s.m[i] = s.m[i] + 0.0f;

  from = to = 0;
  for (int64_t b0 = k0; b0 < k1; b0 += GROUP * 10) {
    const int64_t b1 = min_i64(b0 + GROUP * 10, k1);
    float *const tb = t + (b0 - k0) * s.ldt;
    for (int64_t j = b0; j < b1; j += GROUP) { /* the same groups as above, so the same bands */
      band(&s, j, min_i64(j + GROUP, k1), &from, &to, &c0, &c1);
      for (int64_t i = j; i < min_i64(j + GROUP, k1); i++) {
        exp_row(tb + (i - b0) * s.ldt, s.m, lanes + (i & 31) * cp, c0, c1);
        clear_outside(tb + (i - b0) * s.ldt, cp, c0, c1);
      }
    }
    fold_keys(&s, tb, v, a->ldv, b0, b1, c, ldc, n);
  }
  fold_lanes(&s, lanes, s.z);
  for (int64_t r = 0; r < s.n; r++) {
    float *const o = a->o + (r0 + r) * a->ldo + h * n;
    for (int64_t e = 0; e < n; e++) o[e] = (c[r * ldc + e] + 0.0f) / s.z[r];
    a->stats[h * a->rows + r0 + r] = s.m[r];
    a->stats[(a->n_heads + h) * a->rows + r0 + r] = s.z[r];
  }
}

static void attention(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_attention_args *const a = args;
  const int64_t units = a->n_heads * attention_n_chunks(a->chunk, a->rows);
  char *const slab = (char *)a->work + (size_t)worker * a->slab_bytes;
  for (int64_t i = 0; i * workers < units; i++) {
    const int64_t unit = attention_unit(i, worker, workers);
    int64_t h, r0, r1;
    if (unit >= units) continue;
    row_unit(unit, a->n_heads, a->chunk, a->rows, &h, &r0, &r1);
    for (int64_t r = r0, end; r < r1; r = end) {
      end = connected(a->span, a->rows, r, r1);
      forward_part(a, h, r, end, slab);
    }
  }
}

/* d = sum do*o (rule 3). */
static float row_dot(const float *const x, const float *const y, const int64_t n) {
  float lane[32] = {0};
  for (int64_t e = 0; e < n; e += 32)
    for (int64_t l = 0; l < min_i64(32, n - e); l++) lane[l] = m_fma(x[e + l], y[e + l], lane[l]);
  return fold32_sum(lane);
}

/* slab: qt, dot [n][cp] | tile [TILE + 6][cp + 16] | dp [6][cp] | c [cp + 16][n up 16] | m z d first last [cp] */
static void dq_part(const op_attention_back_args *const a, const int64_t h, const int64_t r0,
                    const int64_t r1, char *slab) {
  const int64_t n = a->head_size, kv = h / (a->n_heads / a->n_kv_heads), ldc = attention_up16(n);
  const float *const k = a->k + kv * n, *const v = a->v + kv * n;
  const float *const dout = a->dout + r0 * a->lddo + h * n, *const o = a->o + r0 * a->ldo + h * n;
  strip s = {.n = r1 - r0, .cp = attention_up16(r1 - r0), .ldt = attention_up16(r1 - r0) + 16};
  const int64_t cp = s.cp;
  float *const qt = take(&slab, n * cp), *const dot = take(&slab, n * cp),
               *const t = take(&slab, (ATTENTION_TILE + GROUP) * s.ldt), *const dp = take(&slab, GROUP * cp),
               *const c = take(&slab, (cp + 16) * ldc);
  s.m = take(&slab, cp);
  s.z = take(&slab, cp);
  s.d = take(&slab, cp);
  s.first = take(&slab, cp);
  s.last = take(&slab, cp);
  strip_spans(&s, a->span, a->rows, r0);
  pack_transposed(a->q + r0 * a->ldq + h * n, a->ldq, s.n, n, qt, cp);
  pack_transposed(dout, a->lddo, s.n, n, dot, cp);
  for (int64_t i = 0; i < cp; i++) {
    const int64_t r = min_i64(i, s.n - 1), at = h * a->rows + r0 + r;
    s.m[i] = a->stats[at];
    s.z[i] = a->stats[a->n_heads * a->rows + at];
    s.d[i] = i < s.n ? row_dot(dout + r * a->lddo, o + r * a->ldo, n) : 0.0f;
    if (i < s.n) a->d[at] = s.d[i];
  }
  for (int64_t i = 0; i < (cp + 16) * ldc; i++) c[i] = 0;

  const int64_t k0 = s.first[0], k1 = s.last[s.n - 1] + 1;
  int64_t from = 0, to = 0, c0, c1;
  for (int64_t b0 = k0; b0 < k1; b0 += GROUP * 10) {
    const int64_t b1 = min_i64(b0 + GROUP * 10, k1);
    for (int64_t j = b0; j < b1; j += GROUP) {
      const int64_t count = min_i64(GROUP, b1 - j);
      float *const tj = t + (j - b0) * s.ldt;
      band(&s, j, j + count, &from, &to, &c0, &c1);
      dot_group(k + j * a->ldk, a->ldk, count, qt, cp, n, tj, s.ldt, c0, c1);
      dot_group(v + j * a->ldv, a->ldv, count, dot, cp, n, dp, cp, c0, c1);
      for (int64_t i = 0; i < count; i++) {
        ds_row(tj + i * s.ldt, dp + i * cp, &s, a->scale, (int32_t)(j + i), c0, c1);
        clear_outside(tj + i * s.ldt, cp, c0, c1);
      }
    }
    fold_keys(&s, t, k, a->ldk, b0, b1, c, ldc, n);
  }
  for (int64_t r = 0; r < s.n; r++) {
    float *const dq = a->dq + (r0 + r) * a->lddq + h * n;
    for (int64_t e = 0; e < n; e++) dq[e] = a->scale * (c[r * ldc + e] + 0.0f);
  }
}

static void attention_dq(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_attention_back_args *const a = args;
  const int64_t units = a->n_heads * attention_n_chunks(a->chunk, a->rows);
  char *const slab = (char *)a->work + (size_t)worker * a->slab_bytes;
  for (int64_t i = 0; i * workers < units; i++) {
    const int64_t unit = attention_unit(i, worker, workers);
    int64_t h, r0, r1;
    if (unit >= units) continue;
    row_unit(unit, a->n_heads, a->chunk, a->rows, &h, &r0, &r1);
    for (int64_t r = r0, end; r < r1; r = end) {
      end = connected(a->span, a->rows, r, r1);
      dq_part(a, h, r, end, slab);
    }
  }
}

/* ---- units of dkv ---- */

/* What a unit holds: a tile of keys [j0, j1) of one kv head. */
typedef struct key_tile {
  int64_t j0, j1, ldc;
  float *kt, *vt, *p, *ds, *dk, *dv;
} key_tile;

enum { LDT = ATTENTION_TILE + 16 };

/* C[j] += sum_r T[r][j]*A[r] over the rows [r0, r1) of a block, for each group of keys over the rows that see it. */
static void fold_rows(const op_attention_back_args *const a, const key_tile *const u, const float *const t,
                      const float *const x, const int64_t ldx, const int64_t r0, const int64_t r1,
                      float *const c) {
  int64_t from = r0, to = r0;
  for (int64_t g = u->j0; g < u->j1; g += GROUP) {
    while (from < r1 && a->span[a->rows + from] < g) from++;
    while (to < r1 && a->span[to] < min_i64(g + GROUP, u->j1)) to++;
    if (from < to)
      fold_group(t + (from - r0) * LDT + (g - u->j0), LDT, x + from * ldx, ldx, to - from,
                 c + (g - u->j0) * u->ldc, u->ldc, a->head_size);
  }
}

/* Rows [r0, r1) of head h. */
static void dkv_block(const op_attention_back_args *const a, const key_tile *const u, const int64_t h,
                      const int64_t r0, const int64_t r1) {
  const int64_t n = a->head_size, tile = ATTENTION_TILE;
  const float *const q = a->q + h * n, *const dout = a->dout + h * n;
  for (int64_t r = r0; r < r1; r += GROUP) {
    const int64_t count = min_i64(GROUP, r1 - r);
    const int64_t from = a->span[r] - u->j0, to = a->span[a->rows + r + count - 1] - u->j0 + 1;
    const int64_t c0 = down_vw(from > 0 ? from : 0), c1 = up_vw(min_i64(to, u->j1 - u->j0));
    float *const p = u->p + (r - r0) * LDT, *const ds = u->ds + (r - r0) * LDT;
    dot_group(q + r * a->ldq, a->ldq, count, u->kt, tile, n, p, LDT, c0, c1);
    dot_group(dout + r * a->lddo, a->lddo, count, u->vt, tile, n, ds, LDT, c0, c1);
    for (int64_t i = 0; i < count; i++) {
      const int64_t at = h * a->rows + r + i;
      p_ds_row(p + i * LDT, ds + i * LDT, a->stats[at], a->stats[a->n_heads * a->rows + at], a->d[at],
               a->scale, a->span[r + i] - u->j0, a->span[a->rows + r + i] - u->j0, c0, c1);
      clear_outside(p + i * LDT, tile, c0, c1);
      clear_outside(ds + i * LDT, tile, c0, c1);
    }
  }
  fold_rows(a, u, u->p, dout, a->lddo, r0, r1, u->dv);
  fold_rows(a, u, u->ds, q, a->ldq, r0, r1, u->dk);
}

/* slab: kt, vt [n][TILE] | p, ds [TILE + 6][TILE + 16] | dk, dv [TILE + 16][n up 16] */
static void dkv_unit(const op_attention_back_args *const a, const int64_t kv, const int64_t j0, char *slab) {
  const int64_t n = a->head_size, group = a->n_heads / a->n_kv_heads, tile = ATTENTION_TILE;
  key_tile u = {.j0 = j0, .j1 = min_i64(j0 + tile, a->keys), .ldc = attention_up16(n)};
  u.kt = take(&slab, n * tile);
  u.vt = take(&slab, n * tile);
  u.p = take(&slab, (tile + GROUP) * LDT);
  u.ds = take(&slab, (tile + GROUP) * LDT);
  u.dk = take(&slab, (tile + 16) * u.ldc);
  u.dv = take(&slab, (tile + 16) * u.ldc);
  pack_transposed(a->k + j0 * a->ldk + kv * n, a->ldk, u.j1 - j0, n, u.kt, tile);
  pack_transposed(a->v + j0 * a->ldv + kv * n, a->ldv, u.j1 - j0, n, u.vt, tile);
  for (int64_t i = 0; i < (tile + 16) * u.ldc; i++) u.dk[i] = u.dv[i] = 0;

  int64_t ra = 0, rb = 0; /* the rows that see the tile */
  while (ra < a->rows && a->span[a->rows + ra] < j0) ra++;
  for (rb = ra; rb < a->rows && a->span[rb] < u.j1;) rb++;
  for (int64_t h = kv * group; h < (kv + 1) * group; h++)
    for (int64_t r = ra; r < rb; r += tile) dkv_block(a, &u, h, r, min_i64(r + tile, rb));

  for (int64_t j = j0; j < u.j1; j++) {
    float *const dk = a->dk + j * a->lddk + kv * n, *const dv = a->dv + j * a->lddv + kv * n;
    const float *const ck = u.dk + (j - j0) * u.ldc, *const cv = u.dv + (j - j0) * u.ldc;
    for (int64_t e = 0; e < n; e++) {
      dv[e] = cv[e] + 0.0f;
      dk[e] = a->scale * (ck[e] + 0.0f);
    }
  }
}

static void attention_dkv(const void *const args, const int phase, const int worker, const int workers) {
  (void)phase;
  const op_attention_back_args *const a = args;
  const int64_t units = a->n_kv_heads * attention_n_tiles(a->keys);
  char *const slab = (char *)a->work + (size_t)worker * a->slab_bytes;
  for (int64_t i = 0; i * workers < units; i++) {
    const int64_t unit = attention_unit(i, worker, workers);
    if (unit < units) dkv_unit(a, unit % a->n_kv_heads, unit / a->n_kv_heads * ATTENTION_TILE, slab);
  }
}

void PATH_NAME(register_attention)(op_kernel *table[OP_COUNT]) {
  table[OP_ATTENTION] = attention;
  table[OP_ATTENTION_DQ] = attention_dq;
  table[OP_ATTENTION_DKV] = attention_dkv;
}
