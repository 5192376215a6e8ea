/* Buffers that end at a page that may not be touched, for kernels that must not read or write past an operand. */
#ifndef STINT_TESTS_KERNELS_GUARDED_H
#define STINT_TESTS_KERNELS_GUARDED_H

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

typedef struct guarded {
  unsigned char *base, *data; /* data + bytes is the first byte of the forbidden page */
  size_t mapped_bytes, bytes;
} guarded;

static inline guarded guarded_new(const size_t bytes) {
  const size_t page = 4096, room = (bytes + page - 1) / page * page;
  guarded g = {.mapped_bytes = room + page, .bytes = bytes};
  g.base = mmap(NULL, g.mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(g.base + room, page, PROT_NONE);
  memset(g.base, 0xff, room); /* NaN wherever nothing was written */
  g.data = g.base + room - bytes;
  return g;
}

static inline void guarded_free(guarded *const g) { munmap(g->base, g->mapped_bytes); }

/* Philox is the library's; the tests draw from this. */
static inline uint32_t draw(uint64_t *const state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

static inline float draw_float(uint64_t *const state) {
  return (float)draw(state) * 0x1p-30f - 1.0f;
} /* [-1, 1) */

static inline int64_t draw_to(uint64_t *const state, const int64_t n) {
  return (int64_t)(draw(state) % (uint64_t)n);
}

#endif
