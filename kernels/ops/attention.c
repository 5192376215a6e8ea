/* The rows of attention, attention_dq and attention_dkv.
 *
 * A slab holds what one worker needs for one unit (kernels/cpu/attention.c lays it out): for the forward the scores
 * of `chunk` query rows against all keys, so it grows with the context linearly, 4*(chunk + 16) bytes a key; for the
 * backward passes tiles of fixed size. */
#include "kernels/ops/attention.h"

#include "kernels/ops/table.h"

static int64_t min_i64(const int64_t a, const int64_t b) { return a < b ? a : b; }

/* Floats of a slab; see the layouts in kernels/cpu/attention.c. */
static size_t slab_forward(const op_case *const c) {
  const int64_t d = c->params.attention.head_size, rows = op_rows(&c->src[0]), keys = op_rows(&c->src[1]);
  const int64_t cp = attention_up16(attention_chunk(c->params.attention.chunk, rows));
  return 4 * (size_t)(d * cp + (keys + ATTENTION_GROUP) * (cp + 16) + 32 * cp +
                      (cp + 16) * attention_up16(d) + 4 * cp);
}

static size_t slab_dq(const op_case *const c) {
  const int64_t d = c->params.attention.head_size, rows = op_rows(&c->src[1]);
  const int64_t cp = attention_up16(attention_chunk(c->params.attention.chunk, rows));
  return 4 * (size_t)(2 * d * cp + (ATTENTION_TILE + ATTENTION_GROUP) * (cp + 16) + ATTENTION_GROUP * cp +
                      (cp + 16) * attention_up16(d) + 5 * cp);
}

static size_t slab_dkv(const op_case *const c) {
  const int64_t d = c->params.attention.head_size, tile = ATTENTION_TILE;
  return 4 * (size_t)(2 * d * tile + 2 * (tile + ATTENTION_GROUP) * (tile + 16) +
                      2 * (tile + 16) * attention_up16(d));
}

static int64_t units_rows(const op_case *const c, const int64_t rows) {
  return c->params.attention.n_heads * attention_n_chunks(c->params.attention.chunk, rows);
}

static size_t workspace_forward(const op_case *const c, const int workers) {
  return slab_forward(c) * (size_t)min_i64(units_rows(c, op_rows(&c->src[0])), workers);
}
static size_t workspace_dq(const op_case *const c, const int workers) {
  return slab_dq(c) * (size_t)min_i64(units_rows(c, op_rows(&c->src[1])), workers);
}
static size_t workspace_dkv(const op_case *const c, const int workers) {
  const int64_t units = c->params.attention.n_kv_heads * attention_n_tiles(op_rows(&c->src[2]));
  return slab_dkv(c) * (size_t)min_i64(units, workers);
}

/* Multiply-adds of one product over the keys that are seen, were the rows the last of one causal sequence: a row
 * sees keys - (rows-1)/2 on average. The shape does not tell of packed documents or windows, which see less. */
static double product(const op_case *const c, const op_tensor *const q, const op_tensor *const k) {
  const double rows = (double)op_rows(q), keys = (double)op_rows(k);
  const double seen = rows <= keys ? keys - (rows - 1) / 2 : (keys + 1) / 2;
  return (double)c->params.attention.head_size * c->params.attention.n_heads * rows * seen;
}
static double flops_forward(const op_case *const c) { return 2 * 2 * product(c, &c->src[0], &c->src[1]); }
static double flops_dq(const op_case *const c) { return 2 * 3 * product(c, &c->src[1], &c->src[2]); }
static double flops_dkv(const op_case *const c) { return 2 * 4 * product(c, &c->src[1], &c->src[2]); }

static bool plain_rows(const op_tensor *const t, const int64_t ne0, const int64_t rows) {
  return t->type == DTYPE_F32 && t->ne[0] == ne0 && op_rows(t) == rows && op_rows_strided(t);
}

/* What the three have in common: q, k, v, the span, and the heads. */
static const char *check_shared(const op_case *const c, const op_tensor *const q, const op_tensor *const k,
                                const op_tensor *const v, const op_tensor *const span,
                                const op_tensor *const stats) {
  const int64_t d = c->params.attention.head_size, h = c->params.attention.n_heads,
                n_kv = c->params.attention.n_kv_heads;
  const int64_t rows = op_rows(q), keys = op_rows(k);
  if (d < 1 || d > ATTENTION_MAX_HEAD) return "head_size is not in 1..256";
  if (h < 1 || n_kv < 1 || h % n_kv != 0) return "n_heads is not a multiple of n_kv_heads";
  if (c->params.attention.chunk < 1) return "the chunk is below one row";
  if (rows < 1 || keys < 1) return "there are no rows or no keys";
  if (rows > INT32_MAX || keys > INT32_MAX) return "more rows or keys than the span's type can number";
  if (!plain_rows(q, d * h, rows)) return "q is not F32 rows of head_size*n_heads";
  if (!plain_rows(k, d * n_kv, keys)) return "k is not F32 rows of head_size*n_kv_heads";
  if (!plain_rows(v, d * n_kv, keys)) return "v does not match k";
  if (span->type != DTYPE_I32 || span->ne[0] != rows || op_rows(span) != 2 || !op_contiguous(span))
    return "span is not contiguous I32[rows, 2]";
  if (stats->type != DTYPE_F32 || stats->ne[0] != h * rows || op_rows(stats) != 2 || !op_contiguous(stats))
    return "stats is not contiguous F32[n_heads*rows, 2]";
  return 0;
}

static const char *check_d(const op_case *const c, const op_tensor *const d, const int64_t rows) {
  if (d->type != DTYPE_F32 || d->ne[0] != c->params.attention.n_heads * rows || op_rows(d) != 1 ||
      !op_contiguous(d))
    return "d is not contiguous F32[n_heads*rows]";
  return 0;
}

static const char *check_forward(const op_case *const c) {
  const char *const wrong = check_shared(c, &c->src[0], &c->src[1], &c->src[2], &c->src[3], &c->dst[1]);
  if (wrong) return wrong;
  if (!plain_rows(&c->dst[0], c->src[0].ne[0], op_rows(&c->src[0]))) return "o does not match q";
  return 0;
}

static const char *check_dq(const op_case *const c) {
  const char *wrong = check_shared(c, &c->src[1], &c->src[2], &c->src[3], &c->src[6], &c->src[5]);
  if (wrong) return wrong;
  const int64_t n = c->src[1].ne[0], rows = op_rows(&c->src[1]);
  if (!plain_rows(&c->src[0], n, rows)) return "do does not match q";
  if (!plain_rows(&c->src[4], n, rows)) return "o does not match q";
  if (!plain_rows(&c->dst[0], n, rows)) return "dq does not match q";
  return check_d(c, &c->dst[1], rows);
}

static const char *check_dkv(const op_case *const c) {
  const char *wrong = check_shared(c, &c->src[1], &c->src[2], &c->src[3], &c->src[6], &c->src[4]);
  if (wrong) return wrong;
  const int64_t n = c->src[2].ne[0], rows = op_rows(&c->src[1]), keys = op_rows(&c->src[2]);
  if (!plain_rows(&c->src[0], c->src[1].ne[0], rows)) return "do does not match q";
  if (!plain_rows(&c->dst[0], n, keys)) return "dk does not match k";
  if (!plain_rows(&c->dst[1], n, keys)) return "dv does not match v";
  return check_d(c, &c->src[5], rows);
}

static void bind_forward(void *const args, const op_case *const c, void *const src[], void *const dst[],
                         void *const work, const int workers) {
  (void)workers;
  *(op_attention_args *)args = (op_attention_args){.q = src[0],
                                                   .k = src[1],
                                                   .v = src[2],
                                                   .span = src[3],
                                                   .o = dst[0],
                                                   .stats = dst[1],
                                                   .ldq = op_ld(&c->src[0]),
                                                   .ldk = op_ld(&c->src[1]),
                                                   .ldv = op_ld(&c->src[2]),
                                                   .ldo = op_ld(&c->dst[0]),
                                                   .rows = op_rows(&c->src[0]),
                                                   .keys = op_rows(&c->src[1]),
                                                   .head_size = c->params.attention.head_size,
                                                   .n_heads = c->params.attention.n_heads,
                                                   .n_kv_heads = c->params.attention.n_kv_heads,
                                                   .chunk = c->params.attention.chunk,
                                                   .scale = c->params.attention.scale,
                                                   .work = work,
                                                   .slab_bytes = slab_forward(c)};
}

static void bind_dq(void *const args, const op_case *const c, void *const src[], void *const dst[],
                    void *const work, const int workers) {
  (void)workers;
  *(op_attention_back_args *)args = (op_attention_back_args){.dout = src[0],
                                                             .q = src[1],
                                                             .k = src[2],
                                                             .v = src[3],
                                                             .o = src[4],
                                                             .stats = src[5],
                                                             .span = src[6],
                                                             .dq = dst[0],
                                                             .d = dst[1],
                                                             .lddo = op_ld(&c->src[0]),
                                                             .ldq = op_ld(&c->src[1]),
                                                             .ldk = op_ld(&c->src[2]),
                                                             .ldv = op_ld(&c->src[3]),
                                                             .ldo = op_ld(&c->src[4]),
                                                             .lddq = op_ld(&c->dst[0]),
                                                             .rows = op_rows(&c->src[1]),
                                                             .keys = op_rows(&c->src[2]),
                                                             .head_size = c->params.attention.head_size,
                                                             .n_heads = c->params.attention.n_heads,
                                                             .n_kv_heads = c->params.attention.n_kv_heads,
                                                             .chunk = c->params.attention.chunk,
                                                             .scale = c->params.attention.scale,
                                                             .work = work,
                                                             .slab_bytes = slab_dq(c)};
}

static void bind_dkv(void *const args, const op_case *const c, void *const src[], void *const dst[],
                     void *const work, const int workers) {
  (void)workers;
  *(op_attention_back_args *)args = (op_attention_back_args){.dout = src[0],
                                                             .q = src[1],
                                                             .k = src[2],
                                                             .v = src[3],
                                                             .stats = src[4],
                                                             .d = src[5],
                                                             .span = src[6],
                                                             .dk = dst[0],
                                                             .dv = dst[1],
                                                             .lddo = op_ld(&c->src[0]),
                                                             .ldq = op_ld(&c->src[1]),
                                                             .ldk = op_ld(&c->src[2]),
                                                             .ldv = op_ld(&c->src[3]),
                                                             .lddk = op_ld(&c->dst[0]),
                                                             .lddv = op_ld(&c->dst[1]),
                                                             .rows = op_rows(&c->src[1]),
                                                             .keys = op_rows(&c->src[2]),
                                                             .head_size = c->params.attention.head_size,
                                                             .n_heads = c->params.attention.n_heads,
                                                             .n_kv_heads = c->params.attention.n_kv_heads,
                                                             .chunk = c->params.attention.chunk,
                                                             .scale = c->params.attention.scale,
                                                             .work = work,
                                                             .slab_bytes = slab_dkv(c)};
}

const op_row op_row_attention = {
    .name = "attention",
    .src_names = {"q", "k", "v", "span"},
    .dst_names = {"o", "stats"},
    .src_required = 0xF,
    .dst_required = 0x3,
    .alias = {1 << 0},
    .args_bytes = sizeof(op_attention_args),
    .check = check_forward,
    .workspace = workspace_forward,
    .flops = flops_forward,
    .bind = bind_forward,
};

const op_row op_row_attention_dq = {
    .name = "attention_dq",
    .src_names = {"do", "q", "k", "v", "o", "stats", "span"},
    .dst_names = {"dq", "d"},
    .src_required = 0x7F,
    .dst_required = 0x3,
    .alias = {1 << 0 | 1 << 1 | 1 << 4},
    .args_bytes = sizeof(op_attention_back_args),
    .check = check_dq,
    .workspace = workspace_dq,
    .flops = flops_dq,
    .bind = bind_dq,
};

const op_row op_row_attention_dkv = {
    .name = "attention_dkv",
    .src_names = {"do", "q", "k", "v", "stats", "d", "span"},
    .dst_names = {"dk", "dv"},
    .src_required = 0x7F,
    .dst_required = 0x3,
    .alias = {1 << 2, 1 << 3},
    .args_bytes = sizeof(op_attention_back_args),
    .check = check_dkv,
    .workspace = workspace_dkv,
    .flops = flops_dkv,
    .bind = bind_dkv,
};
