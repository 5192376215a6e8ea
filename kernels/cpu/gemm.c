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

_Static_assert(GEMM_KC % PACK_UNIT == 0 && GEMM_NC % PACK_UNIT == 0, "blocks of weights are cut by a panel");
_Static_assert(GEMM_NC % GEMM_NR == 0, "a block of columns is whole panels");

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
static void pack_b(const gemm_problem *const p, const int64_t n0, const int64_t nc, const int64_t k0, const int64_t kc,
                   float *const dst) {
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

/* Rows [m0, m0+rows) and columns [n0, n0+nc) of C, from packed blocks, or from A as it lies (a_direct). */
static void run_tiles(const gemm_problem *const p, const int64_t m0, const int64_t rows, const int64_t tiles,
                      const int64_t n0, const int64_t nc, const int64_t k0, const int64_t kc, const float *const a,
                      const float *const b, const bool a_direct) {
  gemm_tile g = {.b_step = GEMM_NR, .k = kc, .ldc = p->ldc, .ldc0 = k0 > 0 ? p->ldc : p->ldc0};
  const float *const from = k0 > 0 ? p->c : p->c0;
  for (int64_t t = 0; t < tiles; t++) {
    const int64_t first = tile_first(rows, tiles, t), mr = tile_first(rows, tiles, t + 1) - first, m = m0 + first;
    g.a = a_direct ? p->a + m * p->lda + k0 : a + first * kc;
    g.a_step = a_direct ? p->lda : mr;
    for (int64_t n = 0; n < nc; n += GEMM_NR) {
      g.columns = least(nc - n, GEMM_NR);
      g.b = b + n * kc;
      g.c = p->c + m * p->ldc + n0 + n;
      g.c0 = from ? from + m * g.ldc0 + n0 + n : NULL;
      g.ldnext = from ? g.ldc0 : g.ldc;
      g.next = (from ? g.c0 : g.c) + (n + GEMM_NR < nc ? GEMM_NR : mr * g.ldnext - n);
      gemm_tiles[a_direct][g.columns > VW][mr - 1](&g);
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
  float *const b_packed = scratch, *const a_packed = b_packed + GEMM_KC * GEMM_NC;
  const int64_t m_parts = parts_of(p->m, GEMM_MC), k_parts = parts_of(p->k, GEMM_KC);
  const int64_t k_step = parts_of(parts_of(p->k, k_parts), PACK_UNIT) * PACK_UNIT;
  /* A is read once when the columns are one panel: packing it would cost more than it saves. */
  const bool a_direct = !p->a_by_k && n_last - n_first <= GEMM_NR && p->lda % 1024 != 0;
  for (int64_t i = 0; i < m_parts; i++) {
    const int64_t m0 = tile_first(p->m, m_parts, i), rows = tile_first(p->m, m_parts, i + 1) - m0;
    const int64_t tiles = parts_of(rows, GEMM_MR);
    for (int64_t k0 = 0; k0 < p->k; k0 += k_step) {
      const int64_t kc = least(p->k - k0, k_step);
      if (!a_direct) pack_a(p, m0, rows, tiles, k0, kc, a_packed);
      for (int64_t n0 = n_first; n0 < n_last; n0 += GEMM_NC) {
        const int64_t nc = least(n_last - n0, GEMM_NC);
        pack_b(p, n0, nc, k0, kc, b_packed);
        run_tiles(p, m0, rows, tiles, n0, nc, k0, kc, a_packed, b_packed, a_direct);
      }
    }
  }
}
