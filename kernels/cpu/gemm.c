/* The product on one worker: blocks, packing, and the walk over tiles.
 *
 * The blocking is that of Goto and van de Geijn (2008) with the roles turned: rows in blocks of GEMM_MC and k in blocks of
 * GEMM_KC (A is packed, once when there is one block of rows), columns in blocks of GEMM_NC (B is packed), then tiles of C, a
 * panel of A held in L1 while panels of B pass by from L2. Invariant: a tile continues C's chain from memory, so neither
 * blocks nor tiles nor packing show in a bit.
 */
#include "kernels/cpu/gemm.h"

#include "kernels/cpu/gemm_pack.h"
#include "kernels/cpu/gemm_problem.h"
#include "kernels/cpu/gemm_tile.h"

_Static_assert(GEMM_KC % PACK_UNIT == 0 && GEMM_A_FLOATS / GEMM_MC >= PACK_UNIT,
               "k is cut at whole blocks of weights");
_Static_assert(GEMM_B_FLOATS / GEMM_KC >= PACK_UNIT && PACK_UNIT % GEMM_NR == 0,
               "columns are cut at whole panels");

static int64_t least(const int64_t a, const int64_t b) { return a < b ? a : b; }
static int64_t parts_of(const int64_t n, const int64_t most) { return (n + most - 1) / most; }

/* First row of tile i of `tiles` that share `rows` evenly. */
static int64_t tile_first(const int64_t rows, const int64_t tiles, const int64_t i) {
  const int64_t small = rows / tiles, large = rows % tiles;
  return i * small + least(i, large);
}

/* Rows [m0, m0+rows) of A, k in [k0, k0+kc), as one panel [k][rows of the tile] a tile. Stores are whole registers: the lanes
 * past a tile's rows are written again by the next k, or the next tile, or fall into the slack. */
static void pack_a(const gemm_problem *const p, const int64_t m0, const int64_t rows, const int64_t tiles,
                   const int64_t k0, const int64_t kc, float *const dst) {
  if (!p->a_by_k) {
    for (int64_t t = 0; t < tiles; t++) {
      const int64_t first = tile_first(rows, tiles, t), mr = tile_first(rows, tiles, t + 1) - first;
      const unsigned char *const from = (const unsigned char *)(p->a + (m0 + first) * p->lda + k0);
      pack_transpose_as(DTYPE_F32, from, p->lda * 4, p->m - m0 - first, kc, dst + first * kc, mr);
    }
    return;
  }
  for (int64_t t = 0; t < tiles; t++) {
    const int64_t first = tile_first(rows, tiles, t), mr = tile_first(rows, tiles, t + 1) - first;
    const float *from = p->a + k0 * p->lda + m0 + first;
    float *to = dst + first * kc;
    const gemm_mask mask = gemm_mask_of((int)mr);
    for (int64_t k = 0; k < kc; k++, from += p->lda, to += mr) vf_store(to, gemm_load(from, mask));
  }
}

/* Columns [n0, n0+nc) of B, k in [k0, k0+kc), as panels [k][GEMM_NR]. */
static void pack_b(const gemm_problem *const p, const int64_t n0, const int64_t nc, const int64_t k0,
                   const int64_t kc, float *const dst) {
  const unsigned char *const b = p->b;
  const int64_t ld = (int64_t)p->b_row_bytes;
  if (!p->b_by_n) {
    const unsigned char *const from = b + k0 * ld + dtype_bytes(p->b_type, n0);
    PACK_FOR_TYPE(p->b_type, pack_copy_as, from, ld, kc, nc, dst, GEMM_NR * kc)
    return;
  }
  for (int64_t n = 0; n < nc; n += VW) {
    float *const to = dst + n / GEMM_NR * GEMM_NR * kc + n % GEMM_NR;
    const unsigned char *const from = b + (n0 + n) * ld + dtype_bytes(p->b_type, k0);
    PACK_FOR_TYPE(p->b_type, pack_transpose_as, from, ld, nc - n, kc, to, GEMM_NR)
  }
}

/* A block of the product: rows, columns and k of it. */
typedef struct block {
  int64_t m0, rows, tiles, n0, nc, k0, kc;
} block;

/* The stored rows of B that the block after this one packs: none (rows 0) after the last. */
typedef struct ahead {
  const unsigned char *first;
  int64_t rows, row_lines;
} ahead;

static ahead ahead_of(const gemm_problem *const p, const int64_t n0, const int64_t nc, const int64_t k0,
                      const int64_t kc) {
  const int64_t row = p->b_by_n ? n0 : k0, at = p->b_by_n ? k0 : n0, length = p->b_by_n ? kc : nc;
  const dtype_row *const type = dtype_find(p->b_type);
  const int64_t bytes = parts_of(length, type->block_elements) * (int64_t)type->block_bytes;
  return (ahead){(const unsigned char *)p->b + row * (int64_t)p->b_row_bytes + dtype_bytes(p->b_type, at),
                 p->b_by_n ? nc : kc, bytes / 64 + 1};
}

/* The tiles of a block, from packed A and B, or from A as it lies (a_direct). */
static void run_tiles(const gemm_problem *const p, const block *const c, const float *const a,
                      const float *const b, const bool a_direct, const ahead *const then) {
  gemm_tile g = {.b_step = GEMM_NR, .k = c->kc, .ldc = p->ldc, .ldc0 = c->k0 > 0 ? p->ldc : p->ldc0};
  const float *const from = c->k0 > 0 ? p->c : p->c0;
  const int64_t across = parts_of(c->nc, GEMM_NR), all = across * c->tiles;
  g.warm_row_lines = then->row_lines;
  g.ldwarm = (int64_t)p->b_row_bytes;
  int64_t done = 0;
  for (int64_t t = 0; t < c->tiles; t++) {
    const int64_t first = tile_first(c->rows, c->tiles, t), mr = tile_first(c->rows, c->tiles, t + 1) - first;
    const int64_t m = c->m0 + first;
    g.a = a + first * c->kc;
    if (a_direct) g.a = p->a_by_k ? p->a + c->k0 * p->lda + m : p->a + m * p->lda + c->k0;
    g.a_step = a_direct ? p->lda : mr;
    for (int64_t n = 0; n < c->nc; n += GEMM_NR, done++) {
      g.columns = least(c->nc - n, GEMM_NR);
      g.b = b + n * c->kc;
      g.c = p->c + m * p->ldc + c->n0 + n;
      g.c0 = from ? from + m * g.ldc0 + c->n0 + n : NULL;
      g.ldnext = from ? g.ldc0 : g.ldc;
      g.next = (from ? g.c0 : g.c) + (n + GEMM_NR < c->nc ? GEMM_NR : mr * g.ldnext - n);
      const int64_t warm = tile_first(then->rows, all, done);
      g.warm = then->first + warm * g.ldwarm;
      g.warm_rows = tile_first(then->rows, all, done + 1) - warm;
      gemm_tiles[a_direct && !p->a_by_k][g.columns > VW][mr - 1](&g);
    }
  }
}

static void no_terms(const gemm_problem *const p, const int64_t n_first, const int64_t n_last) {
  for (int64_t m = 0; m < p->m; m++)
    for (int64_t n = n_first; n < n_last; n++) p->c[m * p->ldc + n] = p->c0 ? p->c0[m * p->ldc0 + n] : 0.0f;
}

void PATH_NAME(gemm_columns)(const gemm_problem *const p, const int64_t n_first, const int64_t n_last,
                             void *const scratch) {
  if (p->m <= 0 || n_first >= n_last) return;
  if (p->k <= 0) {
    no_terms(p, n_first, n_last);
    return;
  }
  float *const b_packed = scratch, *const a_packed = b_packed + GEMM_B_FLOATS;
  const int64_t m_parts = parts_of(p->m, GEMM_MC), m_most = parts_of(p->m, m_parts);
  const int64_t k_most = least(GEMM_KC, GEMM_A_FLOATS / m_most / PACK_UNIT * PACK_UNIT);
  const int64_t k_step = parts_of(parts_of(p->k, parts_of(p->k, k_most)), PACK_UNIT) * PACK_UNIT;
  const int64_t n_step = least(GEMM_NC, GEMM_B_FLOATS / k_step / PACK_UNIT * PACK_UNIT);
  /* A is read once when the columns are one panel: packing it would cost more than it saves. */
  const bool a_direct = n_last - n_first <= GEMM_NR && p->lda % 1024 != 0;
  for (int64_t i = 0; i < m_parts; i++) {
    block c = {.m0 = tile_first(p->m, m_parts, i)};
    c.rows = tile_first(p->m, m_parts, i + 1) - c.m0;
    c.tiles = parts_of(c.rows, GEMM_MR);
    for (c.k0 = 0; c.k0 < p->k; c.k0 += k_step) {
      c.kc = least(p->k - c.k0, k_step);
      if (!a_direct) pack_a(p, c.m0, c.rows, c.tiles, c.k0, c.kc, a_packed);
      for (c.n0 = n_first; c.n0 < n_last; c.n0 += n_step) {
        c.nc = least(n_last - c.n0, n_step);
        const int64_t n_then = c.n0 + c.nc, k_then = c.k0 + c.kc;
        ahead then = {p->b, 0, 1};
        if (n_then < n_last)
          then = ahead_of(p, n_then, least(n_last - n_then, n_step), c.k0, c.kc);
        else if (k_then < p->k)
          then = ahead_of(p, n_first, least(n_last - n_first, n_step), k_then, least(p->k - k_then, k_step));
        pack_b(p, c.n0, c.nc, c.k0, c.kc, b_packed);
        run_tiles(p, &c, a_packed, b_packed, a_direct, &then);
      }
    }
  }
}
