/* Guards: a buffer is NaN in every float format from birth until it is written, again after its death, and a stray write
 * into a canary is found at its byte. */
#include "arena/guard.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

static _Alignas(64) unsigned char arena[1024];

Test(guard, both_patterns_are_nan_in_every_format_and_differ) {
  static const uint32_t words[] = {GUARD_BORN, GUARD_DEAD};
  cr_assert_neq(words[0], words[1]);
  for (int i = 0; i < 2; i++) {
    float f;
    double d;
    const uint32_t pair[2] = {words[i], words[i]};
    memcpy(&f, pair, sizeof f);
    memcpy(&d, pair, sizeof d);
    cr_assert(isnan(f));
    cr_assert(isnan(d));
    for (int half = 0; half < 2; half++) {
      const uint32_t h = words[i] >> (16 * half) & 0xffff;
      cr_assert((h & 0x7c00) == 0x7c00 && (h & 0x3ff), "f16: %#x", h);
      cr_assert((h & 0x7f80) == 0x7f80 && (h & 0x7f), "bf16: %#x", h);
    }
  }
}

Test(guard, birth_write_death) {
  for (size_t bytes = 0; bytes <= 64; bytes++) {
    memset(arena, 0x11, sizeof arena);
    guard_birth(arena, bytes);
    cr_assert_eq(guard_find(arena, bytes, GUARD_BORN), bytes >= 4 ? 0 : SIZE_MAX, "%zu bytes", bytes);
    cr_assert_eq(arena[bytes], 0x11, "%zu bytes: wrote past the end", bytes);
    memset(arena, 0, bytes & ~(size_t)7);
    if (bytes % 8 >= 4)
      cr_assert_eq(guard_find(arena, bytes, GUARD_BORN), bytes & ~(size_t)7, "the unwritten end of %zu",
                   bytes);
    guard_death(arena, bytes);
    guard_lift(arena, bytes);
    cr_assert_eq(guard_find(arena, bytes, GUARD_DEAD), bytes >= 4 ? 0 : SIZE_MAX);
    cr_assert_eq(arena[bytes], 0x11);
  }
}

Test(guard, a_canary_names_the_first_byte_written_over) {
  guard_canary_set(arena + 128);
  cr_assert_eq(guard_canary_find(arena + 128), -1);
  for (int at = 0; at < GUARD_CANARY_BYTES; at++) {
    guard_canary_set(arena + 128);
    guard_lift(arena + 128, GUARD_CANARY_BYTES);
    arena[128 + at] ^= 1;
    if (at + 9 < GUARD_CANARY_BYTES) arena[128 + at + 9] ^= 1;
    cr_assert_eq(guard_canary_find(arena + 128), at);
  }
  static const unsigned char usual[] = {0, 0xff, 0x7f, 0x3f, 0x80};
  for (size_t i = 0; i < sizeof usual; i++) { /* a whole word of a usual value is always seen */
    for (int at = 0; at < GUARD_CANARY_BYTES; at += 4) {
      guard_canary_set(arena + 128);
      guard_lift(arena + 128, GUARD_CANARY_BYTES);
      memset(arena + 128 + at, usual[i], 4);
      cr_assert_neq(guard_canary_find(arena + 128), -1, "4 bytes of %#x at %d", usual[i], at);
    }
  }
  guard_lift(arena, sizeof arena);
}

#if defined(__SANITIZE_ADDRESS__)
Test(guard, the_dead_are_poisoned) {
  guard_birth(arena, 256);
  guard_canary_set(arena + 256);
  cr_assert_not(__asan_address_is_poisoned(arena + 100));
  cr_assert(__asan_address_is_poisoned(arena + 256));
  guard_death(arena, 256);
  cr_assert(__asan_address_is_poisoned(arena));
  cr_assert(__asan_address_is_poisoned(arena + 255));
  guard_birth(arena, 128);
  cr_assert_not(__asan_address_is_poisoned(arena + 127));
  cr_assert(__asan_address_is_poisoned(arena + 128));
  guard_lift(arena, sizeof arena);
  cr_assert_not(__asan_address_is_poisoned(arena + 128));
}
#endif
