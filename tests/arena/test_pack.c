/* The packer: no overlap (by the oracle), the optimum where it can be found by trying everything, the capacity or lower
 * bound of public instances, and refusal of what is not a packing problem. */
#include "arena/pack.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t next(uint64_t *const state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

/* The largest sum alive at once, as plainly as it reads. */
static size_t plain_bound(const pack_buffer *const b, const size_t n) {
  size_t most = 0;
  for (size_t i = 0; i < n; i++) { /* it is reached at some birth */
    size_t sum = 0;
    for (size_t k = 0; k < n; k++)
      sum += b[k].lower <= b[i].lower && b[i].lower < b[k].upper ? b[k].bytes : 0;
    if (sum > most) most = sum;
  }
  return most;
}

static pack_result pack(pack_buffer *const b, const size_t n, const char *const name) {
  bump scratch;
  pack_result r;
  stint_error error = {0};
  bump_init(&scratch, 0);
  cr_assert_eq(arena_pack(b, n, &scratch, &r, &error), STINT_OK, "%s: %s", name, error.text);
  bump_free(&scratch);
  const int64_t wrong = arena_pack_check(b, n, r.height_bytes);
  cr_assert_eq(wrong, -1, "%s: buffer %" PRId64 " overlaps another or the end", name, wrong);
  size_t top = 0;
  for (size_t i = 0; i < n; i++) top = b[i].offset + b[i].bytes > top ? b[i].offset + b[i].bytes : top;
  cr_assert_eq(top, r.height_bytes, "%s: the height is not the highest top", name);
  cr_assert_geq(r.height_bytes, r.lower_bound_bytes, "%s", name);
  cr_assert_eq(r.optimal, r.height_bytes == r.lower_bound_bytes, "%s", name);
  return r;
}

static size_t generate(pack_buffer *const b, const size_t n, const int64_t times, const size_t sizes,
                       uint64_t *const state) {
  for (size_t i = 0; i < n; i++) {
    const int64_t lower = (int64_t)(next(state) % (uint64_t)times);
    const int64_t width = 1 + (int64_t)(next(state) % (uint64_t)(next(state) % 4 ? times / 8 + 1 : times));
    b[i] = (pack_buffer){.lower = lower - times / 2,
                         .upper = lower + width - times / 2,
                         .bytes = 64 * (1 + next(state) % sizes)};
  }
  return n;
}

Test(pack, random_lifetimes_never_overlap) {
  static pack_buffer b[400];
  uint64_t state = 42;
  for (int round = 0; round < 120; round++) {
    char name[64];
    const size_t n = 1 + next(&state) % (round % 20 ? 50 : 400);
    snprintf(name, sizeof name, "round %d, %zu buffers", round, n);
    generate(b, n, 2 + (int64_t)(next(&state) % 100), 1 + next(&state) % 50, &state);
    const pack_result r = pack(b, n, name);
    cr_assert_eq(r.lower_bound_bytes, plain_bound(b, n), "%s", name);
    size_t alive = 0;
    for (size_t i = 0; i < n; i++)
      alive += b[i].lower <= r.bound_time && r.bound_time < b[i].upper ? b[i].bytes : 0;
    cr_assert_eq(alive, r.lower_bound_bytes, "%s: bound_time", name);
  }
}

/* Some order of placing each buffer at its lowest fit gives the best packing: an optimal one, pushed down and
 * sorted by offset, is such an order. */
static size_t best_of_all_orders(pack_buffer *const b, const size_t n, const size_t placed, const size_t top,
                                 const size_t bound, size_t best) {
  if (top >= best || best == bound) return best;
  if (placed == n) return top;
  for (size_t i = placed; i < n; i++) {
    const pack_buffer held = b[i];
    b[i] = b[placed];
    b[placed] = held;
    size_t at = 0;
    for (size_t again = 1; again;) {
      again = 0;
      for (size_t k = 0; k < placed; k++) {
        if (b[k].lower < held.upper && held.lower < b[k].upper && b[k].offset < at + held.bytes &&
            at < b[k].offset + b[k].bytes) {
          at = b[k].offset + b[k].bytes;
          again = 1;
        }
      }
    }
    b[placed].offset = at;
    best = best_of_all_orders(b, n, placed + 1, at + held.bytes > top ? at + held.bytes : top, bound, best);
    b[placed] = b[i];
    b[i] = held;
  }
  return best;
}

Test(pack, tiny_instances_reach_the_optimum) {
  pack_buffer b[8];
  uint64_t state = 7;
  for (int round = 0; round < 1500; round++) {
    char name[64];
    const size_t n = 3 + next(&state) % 6;
    snprintf(name, sizeof name, "round %d", round);
    generate(b, n, 3 + (int64_t)(next(&state) % 6), 2 + next(&state) % 5, &state);
    pack_buffer copy[8];
    memcpy(copy, b, sizeof copy);
    const pack_result r = pack(b, n, name);
    const size_t best = best_of_all_orders(copy, n, 0, 0, r.lower_bound_bytes, SIZE_MAX);
    cr_assert_eq(r.height_bytes, best, "%s: %zu where %zu is possible", name, r.height_bytes, best);
  }
}

/* One of the smallest whose optimum is above the lower bound: the search must prove it, not run out. */
Test(pack, a_gap_that_no_packing_closes) {
  pack_buffer b[] = {
      {.lower = 4, .upper = 6, .bytes = 64},  {.lower = 2, .upper = 4, .bytes = 128},
      {.lower = 6, .upper = 7, .bytes = 128}, {.lower = 3, .upper = 5, .bytes = 64},
      {.lower = 6, .upper = 7, .bytes = 128}, {.lower = 3, .upper = 6, .bytes = 64},
      {.lower = 1, .upper = 6, .bytes = 128}, {.lower = 1, .upper = 3, .bytes = 128},
      {.lower = 5, .upper = 7, .bytes = 128},
  };
  enum { N = sizeof b / sizeof *b };
  pack_buffer copy[N];
  memcpy(copy, b, sizeof b);
  const pack_result r = pack(b, N, "the gap");
  cr_assert_not(r.optimal);
  cr_assert_eq(r.height_bytes, best_of_all_orders(copy, N, 0, 0, r.lower_bound_bytes, SIZE_MAX));
  cr_assert_lt(r.nodes, 1000, "%" PRIu64 " nodes for %d buffers", r.nodes, N);
}

/* A rectangle cut into pieces has a packing without a hole; a search that excludes too much does not find it. */
Test(pack, cut_rectangles_are_put_together_again) {
  uint64_t state = 31;
  int searched = 0;
  for (int round = 0; round < 150; round++) {
    enum { MOST = 100 };
    pack_buffer b[MOST] = {{.lower = 0, .upper = 60, .bytes = 200 * 64}};
    char name[64];
    snprintf(name, sizeof name, "round %d", round);
    size_t n = 1;
    const size_t pieces = 20 + next(&state) % (MOST - 19);
    for (int cut = 0; cut < 1000 && n < pieces; cut++) {
      pack_buffer *const whole = &b[next(&state) % n];
      const int64_t width = whole->upper - whole->lower;
      const size_t units = whole->bytes / 64;
      pack_buffer part = *whole;
      if (next(&state) % 2 ? width > 1 : units < 2 && width > 1) {
        const int64_t at = whole->lower + 1 + (int64_t)(next(&state) % (uint64_t)(width - 1));
        whole->upper = part.lower = at;
      } else if (units > 1) {
        part.bytes = 64 * (1 + next(&state) % (units - 1));
        whole->bytes -= part.bytes;
      } else {
        continue;
      }
      b[n++] = part;
    }
    const pack_result r = pack(b, n, name);
    cr_assert_eq(r.lower_bound_bytes, 200 * 64);
    cr_assert(r.optimal, "%s: %zu pieces need %zu instead of %d bytes", name, n, r.height_bytes, 200 * 64);
    searched += r.nodes > 0;
  }
  cr_assert_gt(searched, 20, "only %d rounds needed the search", searched);
}

Test(pack, the_same_input_gives_the_same_offsets) {
  static pack_buffer a[300], b[300];
  uint64_t state = 99;
  generate(a, 300, 60, 40, &state);
  memcpy(b, a, sizeof a);
  pack(a, 300, "first");
  memset(&state, 0, sizeof state);
  pack(b, 300, "second");
  cr_assert_eq(memcmp(a, b, sizeof a), 0);
}

Test(pack, what_never_lives_together_shares_its_place) {
  pack_buffer b[] = {{.lower = 0, .upper = 1, .bytes = 640},
                     {.lower = 1, .upper = 2, .bytes = 64},
                     {.lower = INT64_MIN, .upper = -5, .bytes = 128},
                     {.lower = 2, .upper = INT64_MAX, .bytes = 640}};
  const pack_result r = pack(b, 4, "apart");
  cr_assert_eq(r.height_bytes, 640);
  for (int i = 0; i < 4; i++) cr_assert_eq(b[i].offset, 0, "buffer %d", i);
  pack_result none;
  cr_assert_eq(arena_pack(NULL, 0, NULL, &none, NULL), STINT_OK);
  cr_assert_eq(none.height_bytes, 0);
  cr_assert(none.optimal);
}

Test(pack, refuses_what_is_no_lifetime) {
  bump scratch;
  pack_result r;
  stint_error error;
  bump_init(&scratch, 0);
  const struct {
    pack_buffer second;
    const char *text;
  } bad[] = {
      {{.lower = 3, .upper = 3, .bytes = 64}, "buffer 1 lives from 3 to 3"},
      {{.lower = 4, .upper = 3, .bytes = 64}, "buffer 1 lives from 4 to 3"},
      {{.lower = 3, .upper = 4, .bytes = 0}, "buffer 1 has no bytes"},
      {{.lower = 3, .upper = 4, .bytes = SIZE_MAX - 63}, "pass 2^64"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    pack_buffer b[] = {{.lower = 0, .upper = 1, .bytes = 64}, bad[i].second};
    cr_assert_eq(arena_pack(b, 2, &scratch, &r, &error), STINT_BAD_INPUT, "%zu", i);
    cr_assert_not_null(strstr(error.text, bad[i].text), "%s", error.text);
  }
  bump_free(&scratch);
}

Test(pack, scratch_that_is_too_small_is_said) {
  static unsigned char memory[1 << 18];
  static pack_buffer b[400];
  uint64_t state = 5;
  generate(b, 400, 50, 9, &state);
  int refused = 0, packed = 0;
  for (size_t bytes = 0; bytes <= sizeof memory; bytes += 4096) {
    bump scratch;
    pack_result r;
    stint_error error = {0};
    bump_init_over(&scratch, memory, bytes);
    const stint_status status = arena_pack(b, 400, &scratch, &r, &error);
    if (status == STINT_OK) {
      packed++;
      cr_assert_eq(arena_pack_check(b, 400, r.height_bytes), -1);
    } else {
      refused++;
      cr_assert_eq(status, STINT_NO_MEMORY);
      cr_assert_not_null(strstr(error.text, "400 buffers"), "%s", error.text);
    }
  }
  cr_assert(refused && packed, "%d refused, %d packed", refused, packed);
}

Test(pack, the_oracle_sees_overlap_and_overrun) {
  pack_buffer b[] = {{.lower = 0, .upper = 4, .bytes = 64, .offset = 0},
                     {.lower = 4, .upper = 8, .bytes = 64, .offset = 0},
                     {.lower = 3, .upper = 5, .bytes = 64, .offset = 64}};
  cr_assert_eq(arena_pack_check(b, 3, 128), -1);
  cr_assert_eq(arena_pack_check(b, 3, 127), 2);
  b[2].offset = 63;
  cr_assert_eq(arena_pack_check(b, 3, 128), 2);
  b[2].offset = SIZE_MAX;
  cr_assert_eq(arena_pack_check(b, 3, 128), 2, "an offset that wraps");
  b[2].offset = 64;
  b[1].lower = 3;
  cr_assert_eq(arena_pack_check(b, 3, 128), 1, "alive together for one instant");
}

/* A training step's shape: each layer keeps a few buffers until its backward, and has many short ones in both. */
static size_t training_step(pack_buffer *const b, const int layers, const int kept, const int shorts) {
  uint64_t state = 2024;
  size_t n = 0;
  const int64_t end = (int64_t)layers * (shorts + 1) * 2;
  for (int l = 0; l < layers; l++) {
    const int64_t forward = (int64_t)l * (shorts + 1), backward = end - forward - shorts - 1;
    for (int k = 0; k < kept; k++) {
      const int64_t born = (int64_t)(next(&state) % (uint64_t)shorts),
                    dead = (int64_t)(next(&state) % (uint64_t)shorts);
      b[n++] = (pack_buffer){
          .lower = forward + born, .upper = backward + 1 + dead, .bytes = 64 * (1 + next(&state) % 4096)};
    }
    for (int s = 0; s < shorts; s++) {
      const int64_t at[2] = {forward + s, backward + s};
      for (int half = 0; half < 2; half++) {
        const int64_t width = 1 + (int64_t)(next(&state) % 6);
        b[n++] = (pack_buffer){
            .lower = at[half], .upper = at[half] + width, .bytes = 64 * (1 + next(&state) % 8192)};
      }
    }
  }
  return n;
}

Test(pack, twenty_thousand_buffers_within_one_percent) {
  static pack_buffer b[20000];
  const size_t n = training_step(b, 200, 20, 40);
  cr_assert_eq(n, 20000);
  bump scratch;
  pack_result r;
  bump_init(&scratch, 0);
  cr_assert_eq(arena_pack(b, n, &scratch, &r, NULL), STINT_OK);
  bump_free(&scratch);
  cr_assert_eq(arena_pack_check(b, n, r.height_bytes), -1);
  cr_assert_leq((double)r.height_bytes, 1.01 * (double)r.lower_bound_bytes, "%zu over a bound of %zu",
                r.height_bytes, r.lower_bound_bytes);
}

static size_t read_instance(const char *const path, pack_buffer *const b, const size_t most) {
  FILE *const f = fopen(path, "r");
  cr_assert_not_null(f, "%s", path);
  char line[256];
  size_t n = 0;
  while (fgets(line, sizeof line, f)) { /* id,lower,upper,size under a heading */
    const char *const comma = strchr(line, ',');
    if (!comma || n == most) continue;
    if (sscanf(comma, ",%" SCNd64 ",%" SCNd64 ",%zu", &b[n].lower, &b[n].upper, &b[n].bytes) == 3) n++;
  }
  fclose(f);
  cr_assert_gt(n, 0, "%s holds no buffer", path);
  return n;
}

/* The capacity that must be met: the second part of the name (A.1048576.csv); 0 (llm_*.csv): the lower bound. */
static size_t capacity_of(const char *const path) {
  const char *const dot = strchr(strrchr(path, '/'), '.');
  return strtoull(dot + 1, NULL, 10);
}

static void meet(const char *const pattern, const size_t least_files, const uint64_t most_nodes) {
  const char *const shared = getenv("STINT_SHARED");
  if (!shared) cr_skip("STINT_SHARED is not set: it names the folder that holds packing/*.csv");
  static pack_buffer b[4096];
  char full[4096];
  glob_t files;
  snprintf(full, sizeof full, "%s/packing/%s", shared, pattern);
  cr_assert_eq(glob(full, 0, NULL, &files), 0, "no file is called %s", full);
  cr_assert_geq(files.gl_pathc, least_files);
  uint64_t nodes = 0;
  for (size_t i = 0; i < files.gl_pathc; i++) {
    const char *const path = files.gl_pathv[i];
    const size_t n = read_instance(path, b, sizeof b / sizeof *b), capacity = capacity_of(path);
    const pack_result r = pack(b, n, path);
    nodes += r.nodes;
    const size_t most = capacity ? capacity : r.lower_bound_bytes;
    cr_expect_leq(r.height_bytes, most, "%s: needs %zu bytes, %zu are enough", path, r.height_bytes, most);
  }
  cr_expect_leq(nodes, most_nodes, "%" PRIu64 " nodes", nodes);
  globfree(&files);
}

Test(pack, hard_public_instances_fit_their_capacity) { meet("?.1048576.csv", 7, 200000); }

Test(pack, the_smallest_public_instance_fits) { meet("input.12.csv", 1, 100); }

Test(pack, training_traces_meet_the_lower_bound) { meet("llm_*.csv", 5, 20000); }
