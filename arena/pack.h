/* Lifetimes to offsets: the smallest arena found in which no two buffers alive at once overlap.
 *
 * Algorithm: bottom-up descent (a floor for each compressed time section, a lazy heap of buffers keyed by
 * the highest floor over their span, several static ranks), then, for components of up to some 2,000 buffers that
 * are still above the lower bound, the search of the MiniMalloc paper (Moffitt, ASPLOS 2023). Limits are counted in
 * nodes, never in seconds, and ties break by index: the same plan on every machine. */
#ifndef STINT_ARENA_PACK_H
#define STINT_ARENA_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/bump.h"
#include "arena/status.h"

typedef struct pack_buffer {
  int64_t lower, upper; /* alive in [lower, upper), lower < upper */
  size_t bytes;         /* > 0; a multiple of the alignment that the caller wants */
  size_t offset;        /* out */
} pack_buffer;

typedef struct pack_result {
  size_t lower_bound_bytes; /* the largest sum of bytes alive at once */
  size_t height_bytes;      /* what the packing needs */
  int64_t bound_time;       /* a time at which lower_bound_bytes are alive */
  uint64_t nodes;           /* search nodes spent */
  bool optimal;             /* height == lower bound */
} pack_result;

/* Fills every offset. `scratch` is used and not freed (hand a bump of its own). NO_MEMORY when scratch runs out. */
stint_status arena_pack(pack_buffer *buffers, size_t n, bump *scratch, pack_result *result,
                        stint_error *error);

/* The oracle: an independent O(n^2) check. Index of a buffer that overlaps an earlier one, or -1. */
int64_t arena_pack_check(const pack_buffer *buffers, size_t n, size_t height_bytes);

#endif
