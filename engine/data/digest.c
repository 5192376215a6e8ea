/* XXH3 from libxxhash, compiled in (its streaming state lies in the caller's memory; nothing allocates). */
#include "engine/data/digest.h"

#define XXH_INLINE_ALL
#define XXH_NO_STDLIB
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include <xxhash.h>
#pragma GCC diagnostic pop

_Static_assert(sizeof(XXH3_state_t) <= sizeof(((digest *)0)->state), "the state fits");

void digest_start(digest *d) {
  XXH3_INITSTATE((XXH3_state_t *)d->state);
  (void)XXH3_64bits_reset((XXH3_state_t *)d->state);
}

void digest_add(digest *d, const void *data, const size_t bytes) {
  if (bytes) (void)XXH3_64bits_update((XXH3_state_t *)d->state, data, bytes);
}

uint64_t digest_end(const digest *d) { return XXH3_64bits_digest((const XXH3_state_t *)d->state); }

uint64_t digest_of(const void *data, const size_t bytes) { return XXH3_64bits(data, bytes); }
