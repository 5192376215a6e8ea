/* Where everything lies in the one reservation of a run.
 *
 *   runtime | PARAM | GRAD | MOMENT1 | MOMENT2 | BATCH | CONST | CACHE | loading | step region
 *
 * The runtime part begins the reservation (workers' stacks want whole pages), each other part at a multiple of 64 bytes; the whole is rounded up to a page, and the rounding belongs to the step
 * region. The step region is as long as the longest of what takes turns on it: a training step, an evaluation,
 * reading text (when the tokenizer is not needed later), saving. */
#ifndef STINT_PLANS_LAYOUT_H
#define STINT_PLANS_LAYOUT_H

#include "plans/graph.h"

typedef struct arena_layout {
  size_t home_offset[HOME_COUNT], home_bytes[HOME_COUNT]; /* FILE: none */
  size_t runtime_bytes;                 /* at 0: workers' stacks, bound schedules, the run's own buffers */
  size_t loading_offset, loading_bytes; /* what loading leaves in place (a sampler's tokenizer) */
  size_t total_bytes;
} arena_layout;

/* `home_bytes` as in graph (STEP: the longest user of the step region). */
void arena_lay_out(const size_t home_bytes[HOME_COUNT], size_t runtime_bytes, size_t loading_bytes,
                   arena_layout *out);

/* On a device: everything that a schedule touches is in one allocation there,
 *
 *   FILE | PARAM | GRAD | MOMENT1 | MOMENT2 | BATCH | CONST | CACHE | STEP | library workspace      parts at multiples of 256 bytes
 *
 * and the host keeps, pinned, a mirror of what it writes and reads: PARAM | BATCH | CONST. */
typedef struct device_layout {
  size_t home_offset[HOME_COUNT], home_bytes[HOME_COUNT];
  size_t workspace_offset, workspace_bytes;
  size_t total_bytes;
  size_t mirror_offset[HOME_COUNT]; /* SIZE_MAX: no mirror */
  size_t pinned_bytes;
} device_layout;

void device_lay_out(const size_t home_bytes[HOME_COUNT], size_t workspace_bytes, device_layout *out);

#endif
