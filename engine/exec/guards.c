/* Walks all buffers at every step: for tests, not for speed. */
#include "engine/exec/guards.h"

#include "arena/guard.h"

static unsigned char *place(const program *const p, const schedule_buffer *const b) {
  return p->base.host[HOME_STEP] + b->offset;
}

void guards_before(const program *const p, const int32_t step) {
  for (int32_t i = 0; i < p->plan->n_buffers; i++) {
    const schedule_buffer *const b = &p->plan->buffers[i];
    if (b->born != step) continue;
    guard_birth(place(p, b), b->bytes - GUARD_CANARY_BYTES);
    guard_canary_set(place(p, b) + b->bytes - GUARD_CANARY_BYTES);
  }
}

void guards_after(const program *const p, const int32_t step) {
  for (int32_t i = 0; i < p->plan->n_buffers; i++) {
    const schedule_buffer *const b = &p->plan->buffers[i];
    if (b->born > step || b->dies < step) continue;
    if (guard_canary_find(place(p, b) + b->bytes - GUARD_CANARY_BYTES) >= 0) __builtin_trap();
    if (b->dies == step) guard_death(place(p, b), b->bytes);
  }
}

void guards_lift(const program *const p, const size_t bytes) { guard_lift(p->base.host[HOME_STEP], bytes); }
