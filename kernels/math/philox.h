/* Philox4x32-10: the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
 * 1, 2, 3" (2011). A pure function of key and counter; integers only, so its bits are the same everywhere. */
#ifndef STINT_KERNELS_MATH_PHILOX_H
#define STINT_KERNELS_MATH_PHILOX_H

#include "kernels/math/fma.h"

M_FN void philox4x32(const uint32_t key0, const uint32_t key1, const uint32_t counter[4], uint32_t out[4]) {
  uint32_t k0 = key0, k1 = key1, x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
  for (int round = 0; round < 10; round++) {
    const uint64_t a = (uint64_t)0xd2511f53u * x0, b = (uint64_t)0xcd9e8d57u * x2;
    const uint32_t y0 = (uint32_t)(b >> 32) ^ x1 ^ k0, y2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
    x1 = (uint32_t)b;
    x3 = (uint32_t)a;
    x0 = y0;
    x2 = y2;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  out[0] = x0;
  out[1] = x1;
  out[2] = x2;
  out[3] = x3;
}

/* A word as a float in [0, 1), a multiple of 2^-24. */
M_FN float philox_unit(const uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

#endif
