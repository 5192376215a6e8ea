/* Bump memory: zeroed, aligned, apart, counted, limited, sealed; over pages of the system and over a caller's buffer. */
#include "arena/bump.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "tests/support/memory.h"

/* A fixed sequence: no two runs differ. */
static uint64_t next(uint64_t *const state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

/* The first byte that is not `value`, or `bytes`. */
static size_t differs(const unsigned char *const at, const size_t bytes, const int value) {
  size_t i = 0;
  while (i < bytes && at[i] == value) i++;
  return i;
}

static void fill_and_check(bump *const b, const size_t most, const int takes) {
  static struct {
    unsigned char *at;
    size_t bytes;
  } taken[2000];
  uint64_t state = 88172645463325252u;
  size_t sum = 0;
  int n = 0;
  for (; n < takes; n++) {
    const size_t bytes = next(&state) % most, align = (size_t)1 << next(&state) % 13;
    unsigned char *const at = bump_take(b, bytes, align);
    if (!at) break;
    cr_assert_eq((uintptr_t)at % align, 0, "take %d of %zu bytes: not aligned to %zu", n, bytes, align);
    cr_assert_eq(differs(at, bytes, 0), bytes, "take %d of %zu bytes: not zero", n, bytes);
    memset(at, n | 1, bytes);
    taken[n].at = at;
    taken[n].bytes = bytes;
    sum += bytes;
    cr_assert_geq(b->used_bytes, sum);
    cr_assert_geq(b->taken_bytes, b->used_bytes);
  }
  cr_assert_gt(n, 10);
  for (int k = 0; k < n; k++) { /* none was written over by a later one */
    const size_t bytes = taken[k].bytes;
    cr_assert_eq(differs(taken[k].at, bytes, (unsigned char)(k | 1)), bytes, "take %d was written over", k);
  }
}

Test(bump, hands_out_zeroed_aligned_memory_that_does_not_overlap) {
  static const size_t most[] = {50, 5000, 300000};
  for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
    bump b;
    bump_init(&b, 0);
    fill_and_check(&b, most[i], i == 2 ? 60 : 2000);
    bump_free(&b);
    cr_assert_eq(b.taken_bytes, 0);
    fill_and_check(&b, most[i], i == 2 ? 60 : 2000); /* usable again */
    bump_free(&b);
  }
}

Test(bump, over_a_dirty_buffer_it_never_leaves_it) {
  static unsigned char buffer[200000];
  for (size_t shift = 0; shift < 9; shift++) {
    memset(buffer, 0xee, sizeof buffer);
    bump b;
    bump_init_over(&b, buffer + shift, 150000);
    fill_and_check(&b, 3000, 2000);
    cr_assert_eq(b.taken_bytes, 150000);
    cr_assert_eq(differs(buffer, shift, 0xee), shift, "wrote before the buffer");
    const size_t rest = sizeof buffer - shift - 150000;
    cr_assert_eq(differs(buffer + shift + 150000, rest, 0xee), rest, "wrote past the buffer");
    bump_free(&b);
    cr_assert_not_null(bump_take(&b, 100000, 64), "a freed buffer is whole again");
  }
  bump b;
  bump_init_over(&b, buffer, 3);
  cr_assert_null(bump_take(&b, 0, 1), "no room for anything");
  bump_init_over(&b, NULL, 0);
  cr_assert_null(bump_take(&b, 1, 1));
}

Test(bump, the_limit_holds_to_the_page) {
  bump b;
  bump_init(&b, 1 << 20);
  size_t taken = 0;
  while (bump_take(&b, 1000, 8)) taken += 1000;
  cr_assert_leq(b.taken_bytes, 1 << 20);
  cr_assert_geq(taken, (1 << 20) - 8192, "only %zu of a limit of 1 MiB could be used", taken);
  bump_free(&b);
  bump_init(&b, 300 * 1024); /* the second chunk must be cut to what is left */
  cr_assert_not_null(bump_take(&b, 200 * 1024, 1));
  cr_assert_not_null(bump_take(&b, 55 * 1024, 1));
  cr_assert_not_null(bump_take(&b, 40 * 1024, 1));
  cr_assert_eq(b.taken_bytes, 300 * 1024);
  cr_assert_null(bump_take(&b, 10 * 1024, 1));
  bump_free(&b);
}

Test(bump, refuses_what_cannot_be) {
  bump b;
  bump_init(&b, 0);
  cr_assert_null(bump_take(&b, SIZE_MAX, 1));
  cr_assert_null(bump_take(&b, SIZE_MAX - 4096, 64));
  cr_assert_null(bump_take_n(&b, SIZE_MAX / 2, 3));
  cr_assert_null(bump_text(&b, "x", SIZE_MAX));
  cr_assert_null(bump_take(&b, 1, 3), "3 is no power of two");
  cr_assert_null(bump_take(&b, 1, 0));
  cr_assert_null(bump_take(&b, 1, 8192));
  cr_assert_not_null(bump_take(&b, 0, 1));
  bump_seal(&b);
  cr_assert_null(bump_take(&b, 1, 1), "sealed");
  cr_assert_null(bump_printf(&b, "x"));
  bump_free(&b);
  cr_assert_not_null(bump_take(&b, 1, 1));
  bump_free(&b);
}

Test(bump, texts) {
  bump b;
  bump_init(&b, 0);
  cr_assert_str_eq(bump_text(&b, "abcdef", 3), "abc");
  cr_assert_str_eq(bump_text(&b, NULL, 0), "");
  cr_assert_str_eq(bump_printf(&b, "blk.%d.%s", 12, "attn_q"), "blk.12.attn_q");
  char *const wide = bump_printf(&b, "%300000d", 7); /* larger than a chunk */
  cr_assert_eq(strlen(wide), 300000);
  cr_assert_eq(wide[299999], '7');
  bump_free(&b);
}

Test(bump, gives_every_page_back) {
  memory_use before, full, after;
  cr_assert(memory_now(&before));
  bump b;
  bump_init(&b, 0);
  for (int i = 0; i < 100; i++) memset(bump_take(&b, 100000, 64), 1, 100000);
  cr_assert(memory_now(&full));
  const size_t taken = b.taken_bytes;
  bump_free(&b);
  cr_assert(memory_now(&after));
  cr_assert_geq(full.anonymous_bytes, before.anonymous_bytes + 100 * 100000);
  cr_assert_leq(full.anonymous_bytes, before.anonymous_bytes + taken + 262144);
  /* the C library may have touched some pages of its own meanwhile; a lost chunk would be 256 KiB */
  cr_assert_lt(after.anonymous_bytes, before.anonymous_bytes + 200000);
}
