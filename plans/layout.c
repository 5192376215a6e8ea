/* One pass over the parts, in the order of the picture. */
#include "plans/layout.h"

static size_t take(size_t *const at, const size_t bytes) {
  const size_t offset = *at;
  *at += (bytes + 63) & ~(size_t)63;
  return offset;
}

void arena_lay_out(const size_t home_bytes[HOME_COUNT], const size_t runtime_bytes,
                   const size_t loading_bytes, arena_layout *const out) {
  enum { PAGE = 4096 };
  *out = (arena_layout){.runtime_bytes = runtime_bytes, .loading_bytes = loading_bytes};
  size_t at = (runtime_bytes + 63) & ~(size_t)63;
  for (int h = HOME_PARAM; h <= HOME_CACHE; h++) {
    out->home_offset[h] = take(&at, home_bytes[h]);
    out->home_bytes[h] = home_bytes[h];
  }
  out->loading_offset = take(&at, loading_bytes);
  out->home_offset[HOME_STEP] = take(&at, home_bytes[HOME_STEP]);
  out->total_bytes = (at + PAGE - 1) & ~(size_t)(PAGE - 1);
  out->home_bytes[HOME_STEP] = out->total_bytes - out->home_offset[HOME_STEP];
}
