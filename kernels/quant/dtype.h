/* Element types: GGUF's ids, block geometry, and how a row of one becomes float32.
 *
 * A block type stores `block_elements` values in `block_bytes`. Dequantization is exact arithmetic in
 * float32 in the order that the format's reference states it, so its bits are the same everywhere.
 * Source of the layouts: the GGUF specification; the independent oracle is the Python package `gguf`. */
#ifndef STINT_KERNELS_QUANT_DTYPE_H
#define STINT_KERNELS_QUANT_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum dtype {
  DTYPE_F32 = 0,
  DTYPE_F16 = 1,
  DTYPE_Q4_0 = 2,
  DTYPE_Q4_1 = 3,
  DTYPE_Q8_0 = 8,
  DTYPE_I32 = 26,
  DTYPE_I64 = 27,
  DTYPE_BF16 = 30,
  DTYPE_LIMIT = 40, /* ids at or above are not GGUF's of today */
  DTYPE_NONE = 255, /* an absent operand */
} dtype;

typedef struct dtype_row {
  const char *name;       /* "Q4_0"; NULL for an id that GGUF does not know */
  int64_t block_elements; /* 1 for plain types */
  size_t block_bytes;
  bool weight; /* a matmul reads it */
} dtype_row;

/* The row of a GGUF type id (names and geometry are known for every GGUF type, also for those that no kernel
 * reads yet), or NULL for an unknown id. */
const dtype_row *dtype_find(int64_t id);
const char *dtype_name(int64_t id); /* "unknown" for an unknown id */

/* Bytes of n elements; n must be a multiple of the block. 0 for an unknown type. */
size_t dtype_bytes(dtype type, int64_t n);

/* n elements (a multiple of the block) from `src` as float32: the plain reference. */
void dequantize_row(dtype type, const void *src, float *dst, int64_t n);
/* The way back, round to nearest, as the reference quantizers do (used to make models and tests). */
void quantize_row(dtype type, const float *src, void *dst, int64_t n);

#endif
