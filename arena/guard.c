/* Debug guards: patterns at birth and death, canaries, poisoning by lifetime. See guard.h. */
#include "arena/guard.h"

#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(base, bytes)   __asan_poison_memory_region((base), (bytes))
#define UNPOISON(base, bytes) __asan_unpoison_memory_region((base), (bytes))
#else
#define POISON(base, bytes)   ((void)(base), (void)(bytes))
#define UNPOISON(base, bytes) ((void)(base), (void)(bytes))
#endif

static void fill(unsigned char *const base, const size_t bytes, const uint32_t word) {
  size_t at = 0;
  for (; bytes - at >= sizeof word; at += sizeof word) memcpy(base + at, &word, sizeof word);
  memcpy(base + at, &word, bytes - at);
}

void guard_birth(void *const base, const size_t bytes) {
  UNPOISON(base, bytes);
  fill(base, bytes, GUARD_BORN);
}

void guard_death(void *const base, const size_t bytes) {
  UNPOISON(base, bytes);
  fill(base, bytes, GUARD_DEAD);
  POISON(base, bytes);
}

void guard_lift(void *const base, const size_t bytes) { UNPOISON(base, bytes); }

/* No two neighbours are equal and none is a byte that a float 0, 1 or NaN pattern repeats. */
static unsigned char canary_byte(const int i) { return (unsigned char)(0xa5 ^ (i * 7)); }

void guard_canary_set(void *const at) {
  UNPOISON(at, GUARD_CANARY_BYTES);
  for (int i = 0; i < GUARD_CANARY_BYTES; i++) ((unsigned char *)at)[i] = canary_byte(i);
  POISON(at, GUARD_CANARY_BYTES);
}

int guard_canary_find(const void *const at) {
  int found = -1;
  UNPOISON(at, GUARD_CANARY_BYTES);
  for (int i = GUARD_CANARY_BYTES; i--;) {
    if (((const unsigned char *)at)[i] != canary_byte(i)) found = i;
  }
  POISON(at, GUARD_CANARY_BYTES);
  return found;
}

size_t guard_find(const void *const base, const size_t bytes, const uint32_t word) {
  for (size_t at = 0; bytes - at >= sizeof word; at += sizeof word) {
    if (!memcmp((const unsigned char *)base + at, &word, sizeof word)) return at;
  }
  return SIZE_MAX;
}
