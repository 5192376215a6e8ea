/* The packer's oracle: every pair is compared, in the caller's own times and offsets. It shares no code with the
 * packer, so that a mistake there cannot hide here. O(n^2), for tests and debug builds. */
#include "arena/pack.h"

int64_t arena_pack_check(const pack_buffer *const buffers, const size_t n, const size_t height_bytes) {
  for (size_t i = 0; i < n; i++) {
    const pack_buffer *const a = &buffers[i];
    if (a->offset > height_bytes || a->bytes > height_bytes - a->offset) return (int64_t)i;
    for (size_t j = 0; j < i; j++) {
      const pack_buffer *const b = &buffers[j];
      const bool together = a->lower < b->upper && b->lower < a->upper;
      const bool touching = a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
      if (together && touching) return (int64_t)i;
    }
  }
  return -1;
}
