/* Where the fast CUDA products put dequantized weights: a slab of whole rows of W as float32, as many as 16 MiB hold (it then
 * stays in the device's L2 between the kernel that writes it and the product that reads it), in the op's workspace.
 * One rule, for the workspace and for the launch. */
#ifndef STINT_KERNELS_OPS_FAST_SLAB_H
#define STINT_KERNELS_OPS_FAST_SLAB_H

#include "kernels/quant/dtype.h"

enum { FAST_SLAB_BYTES = 16 << 20, FAST_SLAB_ROWS = 32768 };

/* Floats between two rows: 16-byte aligned, as tensor cores like it. */
static inline int64_t fast_slab_ld(const int64_t k) { return (k + 3) & ~(int64_t)3; }

/* Rows of W [k, n] that are dequantized at once: at least 1; a multiple of 64 where W does not fit whole. */
static inline int64_t fast_slab_rows(const int64_t k, const int64_t n) {
  int64_t rows = FAST_SLAB_ROWS;
  if (k > 0 && FAST_SLAB_BYTES / 4 / fast_slab_ld(k) < rows) rows = FAST_SLAB_BYTES / 4 / fast_slab_ld(k);
  if (rows >= n) return n > 0 ? n : 1;
  return rows >= 64 ? rows / 64 * 64 : rows > 0 ? rows : 1;
}

/* A multiple of 256; none for F32, which cuBLAS reads where it lies. */
static inline size_t fast_slab_bytes(const dtype w_type, const int64_t k, const int64_t n) {
  if (w_type == DTYPE_F32) return 0;
  return ((size_t)(fast_slab_rows(k, n) * fast_slab_ld(k)) * 4 + 255) / 256 * 256;
}

#endif
