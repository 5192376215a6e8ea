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

void device_lay_out(const size_t home_bytes[HOME_COUNT], const size_t workspace_bytes,
                    device_layout *const out) {
  enum { DEVICE_ALIGN = 256 };
  size_t at = 0;
  for (int h = 0; h < HOME_COUNT; h++) {
    out->home_offset[h] = at;
    out->home_bytes[h] = home_bytes[h];
    at += (home_bytes[h] + DEVICE_ALIGN - 1) & ~(size_t)(DEVICE_ALIGN - 1);
    out->mirror_offset[h] = SIZE_MAX;
  }
  out->workspace_offset = at;
  out->workspace_bytes = workspace_bytes;
  out->total_bytes = at + workspace_bytes;
  out->pinned_bytes = 0;
  static const graph_home mirrored[] = {HOME_PARAM, HOME_BATCH, HOME_CONST};
  for (size_t i = 0; i < sizeof mirrored / sizeof *mirrored; i++) {
    out->mirror_offset[mirrored[i]] = out->pinned_bytes;
    out->pinned_bytes += (home_bytes[mirrored[i]] + DEVICE_ALIGN - 1) & ~(size_t)(DEVICE_ALIGN - 1);
  }
}
