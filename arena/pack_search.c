/* The search for a packing of a given capacity.
 *
 * The frame is that of M. D. Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated
 * Machine Learning", ASPLOS 2023: depth first over placements in which each buffer lies as low as those under it
 * allow, lowest offset first. A node takes the unplaced buffer of the lowest offset and either places it there or
 * *passes it over*: it then can only lie on top of a buffer that is still to come and that keeps it from falling back
 * (any packing can be pushed down until this holds, so nothing is lost). Pruned by
 *   - sections: where the lowest offset still possible, plus the bytes not yet placed, passes the capacity;
 *   - passing over: a buffer that nothing can keep from falling, or that has no room above what could;
 *   - decomposition: where no unplaced lifetime crosses a time, both sides are solved apart;
 *   - blame (conflict-directed backjumping: P. Prosser, "Hybrid Algorithms for the Constraint Satisfaction Problem", 1993).
 *     Every failure comes with the set of placements that it follows from. A placement that is not in the set is
 *     taken back without trying its alternative, which would fail in the same way. Without this, choices in one
 *     part of the time are tried again and again for a failure in another.
 * Some static orders, which break ties of the offset, and one that learns which buffers are blamed most, take
 * turns under node limits that double. The capacity is first the target; when that is not met, the gap to the best
 * known packing is bisected. Sizes are counted in units of their common divisor and fit 32 bits.
 *
 * Recursion: a level for each placed buffer, at most PACK_SEARCH_MAX, of some 150 bytes.
 *
 * Invariant: off[i] of an unplaced buffer is the highest top among the placed ones that live with it, off_why[i] the
 * placements that keep it from lying lower; every change to them is on the trail until the level that made it returns. */
#include "arena/pack_parts.h"

#include <string.h>

/* All limits are in nodes, for up to FULL_BUDGET_MAX buffers; the nodes of more take longer, and so are fewer. */
enum {
  PACK_SEARCH_MAX = 2048,
  FULL_BUDGET_MAX = 400,
  NODES_FOR_TARGET = 45000, /* before the bisection */
  NODES_FOR_STEP = 6000,    /* of the bisection */
  GAP_PARTS = 1024,         /* it ends when less than this part of the height is open */
  FIRST_LIMIT = 1000,       /* of the first turn of an order */
  FIRST_RESTART = 300,      /* before the learning order starts anew; each time 3/10 more */
  TRAIL_ENTRIES = 1 << 16,
};

typedef struct change {
  uint32_t value;
  uint16_t id;
  bool passed; /* passed_at and passed_why, else off and off_why */
} change;

typedef enum outcome { SOLVED, FAILED, OUT_OF_NODES } outcome;

typedef struct search {
  const pack_span *spans;
  int32_t n, words; /* of a set */
  uint32_t *size, *off, *low;
  uint32_t *passed_at; /* offset + 1 at which a buffer was passed over; 0: never */
  uint64_t *with;      /* sets: who lives with it */
  uint64_t *off_why, *passed_why;
  uint64_t *placed, *why, *seen; /* one set each */
  uint16_t *rank, *queue;
  uint32_t *unplaced, *lowest; /* for each section; good within one node only */
  uint16_t *lists;             /* a stack of lists of unplaced buffers */
  change *trail;               /* a stack, with a set for each entry */
  uint64_t *trail_sets;
  size_t n_lists, n_trail;
  uint32_t capacity;
  uint64_t nodes, limit;
  double *weight, step; /* how often a buffer was blamed, lately more than long ago */
} search;

static void set_add(uint64_t *const set, const uint32_t id) { set[id / 64] |= UINT64_C(1) << id % 64; }
static void set_drop(uint64_t *const set, const uint32_t id) { set[id / 64] &= ~(UINT64_C(1) << id % 64); }
static bool set_has(const uint64_t *const set, const uint32_t id) { return set[id / 64] >> id % 64 & 1; }
static void set_join(const search *const s, uint64_t *const set, const uint64_t *const other) {
  for (int32_t w = 0; w < s->words; w++) set[w] |= other[w];
}
static uint64_t *set_of(const search *const s, uint64_t *const sets, const size_t i) {
  return sets + i * (size_t)s->words;
}

static bool passed_over(const search *const s, const uint32_t id) {
  return s->passed_at[id] == s->off[id] + 1;
}

/* Adds to `why` the placements from which low[id] follows. `seen` holds who is in `why` already. */
static void explain(search *const s, const uint32_t id, uint64_t *const why) {
  int32_t n = 0;
  if (set_has(s->seen, id)) return;
  set_add(s->seen, id);
  s->queue[n++] = (uint16_t)id;
  while (n) {
    const uint32_t j = s->queue[--n];
    set_join(s, why, set_of(s, s->off_why, j));
    if (!passed_over(s, j)) continue;
    set_join(s, why, set_of(s, s->passed_why, j));
    const uint64_t *const with = set_of(s, s->with, j);
    for (int32_t w = 0; w < s->words; w++) {
      for (uint64_t bits = with[w] & ~s->seen[w]; bits; bits &= bits - 1) {
        const uint32_t k = (uint32_t)w * 64 + (uint32_t)__builtin_ctzll(bits);
        s->seen[w] |= bits & -bits;
        if (set_has(s->placed, k)) {
          set_join(s, why, set_of(s, s->off_why, k));
          set_add(why, k);
        } else {
          s->queue[n++] = (uint16_t)k;
        }
      }
    }
  }
}

static void start_why(search *const s, uint64_t *const why) {
  memset(why, 0, (size_t)s->words * sizeof *why);
  memset(s->seen, 0, (size_t)s->words * sizeof *s->seen);
}

/* The whole state of a part, for failures that follow from the order of placement itself. */
static void explain_all(search *const s, const uint16_t *const items, const int32_t n, uint64_t *const why) {
  for (int32_t i = 0; i < n; i++) {
    const uint32_t j = items[i];
    explain(s, j, why);
    if (passed_over(s, j)) continue;
    const uint64_t *const with = set_of(s, s->with, j);
    for (int32_t w = 0; w < s->words; w++) {
      for (uint64_t bits = with[w] & s->placed[w] & ~s->seen[w]; bits; bits &= bits - 1) {
        const uint32_t k = (uint32_t)w * 64 + (uint32_t)__builtin_ctzll(bits);
        s->seen[w] |= bits & -bits;
        set_join(s, why, set_of(s, s->off_why, k));
        set_add(why, k);
      }
    }
  }
}

/* The lowest offset still possible for each buffer; false, with `why`, when one has no place left. */
static bool find_lows(search *const s, const uint16_t *const items, const int32_t n) {
  for (int32_t i = 0; i < n; i++) s->low[items[i]] = s->off[items[i]];
  for (int32_t i = 0; i < n; i++) {
    const uint32_t j = items[i];
    uint32_t low = s->off[j];
    if (passed_over(s, j)) {
      const pack_span *const span = &s->spans[j];
      const uint32_t top = s->off[j] + s->size[j];
      low = UINT32_MAX;
      for (int32_t k = 0; k < n && s->spans[items[k]].lower < span->upper; k++) {
        const uint32_t other = items[k];
        if (k == i || s->spans[other].upper <= span->lower || s->low[other] >= top) continue;
        const uint32_t on = s->low[other] + s->size[other];
        if (on < low) low = on;
      }
      if (low <= s->off[j]) low = s->off[j] + 1;
    }
    if (low > s->capacity || s->size[j] > s->capacity - low) {
      start_why(s, s->why);
      explain(s, j, s->why);
      return false;
    }
    s->low[j] = low;
  }
  return true;
}

static bool sections_hold(search *const s, const uint16_t *const items, const int32_t n) {
  const int32_t first = s->spans[items[0]].lower;
  int32_t end = first;
  for (int32_t i = 0; i < n; i++) {
    const pack_span *const span = &s->spans[items[i]];
    if (span->upper > end) end = span->upper;
  }
  for (int32_t t = first; t < end; t++) {
    s->unplaced[t] = 0;
    s->lowest[t] = UINT32_MAX;
  }
  for (int32_t i = 0; i < n; i++) {
    const uint32_t id = items[i], size = s->size[id], low = s->low[id];
    uint32_t *const unplaced = s->unplaced, *const lowest = s->lowest;
    for (int32_t t = s->spans[id].lower; t < s->spans[id].upper; t++) {
      unplaced[t] += size;
      lowest[t] = low < lowest[t] ? low : lowest[t];
    }
  }
  for (int32_t t = first; t < end; t++) {
    if (!s->unplaced[t]) continue;
    if (s->unplaced[t] <= s->capacity && s->lowest[t] <= s->capacity - s->unplaced[t]) continue;
    start_why(s, s->why);
    for (int32_t i = 0; i < n; i++) {
      const pack_span *const span = &s->spans[items[i]];
      if (span->lower <= t && t < span->upper) explain(s, items[i], s->why);
    }
    return false;
  }
  return true;
}

static bool remember(search *const s, const uint16_t id, const bool passed) {
  if (s->n_trail == TRAIL_ENTRIES) return false;
  s->trail[s->n_trail] =
      (change){.value = passed ? s->passed_at[id] : s->off[id], .id = id, .passed = passed};
  memcpy(set_of(s, s->trail_sets, s->n_trail), set_of(s, passed ? s->passed_why : s->off_why, id),
         (size_t)s->words * 8);
  s->n_trail++;
  return true;
}

static void undo(search *const s, const size_t trail) {
  while (s->n_trail > trail) {
    s->n_trail--;
    const change *const c = &s->trail[s->n_trail];
    *(c->passed ? &s->passed_at[c->id] : &s->off[c->id]) = c->value;
    memcpy(set_of(s, c->passed ? s->passed_why : s->off_why, c->id), set_of(s, s->trail_sets, s->n_trail),
           (size_t)s->words * 8);
  }
}

static outcome solve(search *s, const uint16_t *items, int32_t n);

/* Places `id` at its offset and solves each part of what is left. */
static outcome descend(search *const s, const uint16_t *const items, const int32_t n, const uint16_t id) {
  const uint32_t level = s->off[id], top = level + s->size[id];
  const pack_span *const span = &s->spans[id];
  uint16_t *const rest = s->lists + s->n_lists;
  int32_t n_rest = 0;
  for (int32_t i = 0; i < n; i++) { /* reasons first: they read the state as it is */
    const uint16_t other = items[i];
    if (other == id) continue;
    rest[n_rest++] = other;
    if (s->spans[other].lower >= span->upper || s->spans[other].upper <= span->lower || s->off[other] >= top)
      continue;
    if (!remember(s, other, false)) return OUT_OF_NODES;
    uint64_t *const why = set_of(s, s->off_why, other);
    if (s->off[other] + s->size[other] > level) continue; /* it never fitted below */
    start_why(s, s->why);
    if (s->low[other] + s->size[other] > level) {
      explain(s, other, s->why);
    } else {
      explain_all(s, items, n, s->why);
    }
    set_join(s, why, s->why);
  }
  for (int32_t i = 0; i < n_rest; i++) {
    const uint16_t other = rest[i];
    if (s->spans[other].lower >= span->upper || s->spans[other].upper <= span->lower || s->off[other] >= top)
      continue;
    s->off[other] = top;
    set_join(s, set_of(s, s->off_why, other), set_of(s, s->off_why, id));
    set_add(set_of(s, s->off_why, other), id);
  }
  set_add(s->placed, id);
  s->n_lists += (size_t)n_rest;
  outcome out = SOLVED;
  for (int32_t start = 0, end; start < n_rest && out == SOLVED; start = end) {
    int32_t reach = s->spans[rest[start]].upper;
    for (end = start + 1; end < n_rest && s->spans[rest[end]].lower < reach; end++) {
      if (s->spans[rest[end]].upper > reach) reach = s->spans[rest[end]].upper;
    }
    out = solve(s, rest + start, end - start);
  }
  s->n_lists -= (size_t)n_rest;
  if (out != SOLVED) set_drop(s->placed, id);
  return out;
}

/* Raises the weight of those in `why`; what is added grows, which lets the older ones fade. */
static void blame(search *const s) {
  s->step *= 1.005;
  if (s->step > 1e100) {
    for (int32_t i = 0; i < s->n; i++) s->weight[i] *= 1e-100;
    s->step *= 1e-100;
  }
  for (int32_t w = 0; w < s->words; w++) {
    for (uint64_t bits = s->why[w]; bits; bits &= bits - 1)
      s->weight[w * 64 + __builtin_ctzll(bits)] += s->step;
  }
}

/* items: unplaced buffers that hang together, by birth. On FAILED, `why` holds the placements to blame. */
static outcome solve(search *const s, const uint16_t *const items, const int32_t n) {
  const size_t trail = s->n_trail;
  for (;;) {
    if (s->nodes >= s->limit) return OUT_OF_NODES;
    s->nodes++;
    if (!find_lows(s, items, n) || !sections_hold(s, items, n)) break;
    uint64_t best = UINT64_MAX;
    uint16_t chosen = 0;
    for (int32_t i = 0; i < n; i++) {
      const uint64_t key = (uint64_t)s->off[items[i]] << 16 | s->rank[items[i]];
      if (key < best && !passed_over(s, items[i])) {
        best = key;
        chosen = items[i];
      }
    }
    if (best == UINT64_MAX) {
      start_why(s, s->why);
      explain_all(s, items, n, s->why);
      break;
    }
    const size_t before = s->n_trail;
    const outcome out = descend(s, items, n, chosen);
    if (out != FAILED) return out;
    undo(s, before);
    if (!set_has(s->why, chosen)) break;
    if (!remember(s, chosen, true)) return OUT_OF_NODES;
    set_drop(s->why, chosen);
    memcpy(set_of(s, s->passed_why, chosen), s->why, (size_t)s->words * 8);
    s->passed_at[chosen] = s->off[chosen] + 1;
  }
  undo(s, trail);
  blame(s);
  return FAILED;
}

/* One search from the start under `order`, until node number `end` at most. */
static outcome search_from_start(search *const s, const pack_component *const c, pack_work *const w,
                                 const uint16_t *const all, const char *const order, const uint64_t end) {
  const size_t n = (size_t)c->n, set_bytes = (size_t)s->words * sizeof *s->placed;
  pack_rank(c, w, order);
  for (size_t r = 0; r < n; r++) s->rank[w->by_rank[r]] = (uint16_t)r;
  memset(s->off, 0, n * sizeof *s->off);
  memset(s->passed_at, 0, n * sizeof *s->passed_at);
  memset(s->off_why, 0, n * set_bytes);
  memset(s->placed, 0, set_bytes);
  s->n_trail = 0;
  s->n_lists = n;
  s->limit = end;
  return solve(s, all, c->n);
}

/* The orders take turns, each limit twice the last, until one answers or `budget` is spent. */
static outcome try_capacity(search *const s, const pack_component *const c, pack_work *const w,
                            const uint16_t *const all, const uint64_t budget) {
  static const char *const orders[] = {"A", "WAT", "TC", "Lw"};
  const uint64_t end = s->nodes + budget;
  uint64_t restart = FIRST_RESTART;
  memset(w->weight, 0, (size_t)c->n * sizeof *w->weight);
  s->step = 1;
  for (uint64_t turn = FIRST_LIMIT; s->nodes < end; turn *= 2) {
    s->weight = w->weight;
    for (const uint64_t stop = s->nodes + turn < end ? s->nodes + turn : end; s->nodes < stop;
         restart += restart * 3 / 10) {
      const uint64_t pause = s->nodes + restart < end ? s->nodes + restart : end; /* not cut by the turn */
      const outcome out = search_from_start(s, c, w, all, "XLw", pause);
      if (out != OUT_OF_NODES) return out;
    }
    for (size_t o = 0; o < sizeof orders / sizeof *orders && s->nodes < end; o++) {
      const uint64_t stop = s->nodes + turn < end ? s->nodes + turn : end;
      s->weight = w->untaught;
      const outcome out = search_from_start(s, c, w, all, orders[o], stop);
      if (out != OUT_OF_NODES) return out;
    }
  }
  return OUT_OF_NODES;
}

static size_t common_divisor(size_t a, size_t b) {
  while (b) {
    const size_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static bool take_search(search *const s, const pack_component *const c, bump *const scratch,
                        uint16_t **const all) {
  const size_t n = (size_t)c->n, sections = (size_t)c->n_sections, words = (n + 63) / 64;
  s->spans = c->spans;
  s->n = c->n;
  s->words = (int32_t)words;
  s->size = BUMP_ARRAY(scratch, uint32_t, n);
  s->off = BUMP_ARRAY(scratch, uint32_t, n);
  s->low = BUMP_ARRAY(scratch, uint32_t, n);
  s->passed_at = BUMP_ARRAY(scratch, uint32_t, n);
  s->with = BUMP_ARRAY(scratch, uint64_t, n * words);
  s->off_why = BUMP_ARRAY(scratch, uint64_t, n * words);
  s->passed_why = BUMP_ARRAY(scratch, uint64_t, n * words);
  s->placed = BUMP_ARRAY(scratch, uint64_t, words);
  s->why = BUMP_ARRAY(scratch, uint64_t, words);
  s->seen = BUMP_ARRAY(scratch, uint64_t, words);
  s->rank = BUMP_ARRAY(scratch, uint16_t, n);
  s->queue = BUMP_ARRAY(scratch, uint16_t, n);
  s->unplaced = BUMP_ARRAY(scratch, uint32_t, sections);
  s->lowest = BUMP_ARRAY(scratch, uint32_t, sections);
  s->lists = BUMP_ARRAY(scratch, uint16_t, n * n / 2 + n);
  s->trail = BUMP_ARRAY(scratch, change, TRAIL_ENTRIES);
  s->trail_sets = BUMP_ARRAY(scratch, uint64_t, TRAIL_ENTRIES * words);
  if (!s->size || !s->off || !s->low || !s->passed_at || !s->with || !s->off_why || !s->passed_why ||
      !s->placed || !s->why || !s->seen || !s->rank || !s->queue || !s->unplaced || !s->lowest || !s->lists ||
      !s->trail || !s->trail_sets) {
    return false;
  }
  for (int32_t i = 0; i < c->n; i++) {
    for (int32_t j = i + 1; j < c->n && c->spans[j].lower < c->spans[i].upper; j++) {
      set_add(set_of(s, s->with, (size_t)i), (uint32_t)j);
      set_add(set_of(s, s->with, (size_t)j), (uint32_t)i);
    }
  }
  *all = s->lists;
  s->n_lists = n;
  return true;
}

size_t pack_search(const pack_component *const c, pack_work *const w, bump *const scratch,
                   const size_t target, size_t height, size_t *const best, uint64_t *const nodes) {
  if (c->n > PACK_SEARCH_MAX || height <= target) return height;
  size_t unit = 0;
  for (int32_t i = 0; i < c->n; i++) unit = common_divisor(c->spans[i].bytes, unit);
  size_t sum = 0;
  for (int32_t i = 0; i < c->n; i++) sum += c->spans[i].bytes / unit;
  search s = {0};
  uint16_t *all;
  if (sum > UINT32_MAX / 2 || !take_search(&s, c, scratch, &all)) return height;
  for (int32_t i = 0; i < c->n; i++) {
    all[i] = (uint16_t)i;
    s.size[i] = (uint32_t)(c->spans[i].bytes / unit);
  }

  uint32_t low = (uint32_t)(target / unit); /* no packing below is wanted, or was found */
  const uint64_t scale = (uint64_t)(c->n > FULL_BUDGET_MAX ? c->n : FULL_BUDGET_MAX);
  uint64_t budget = (uint64_t)NODES_FOR_TARGET * FULL_BUDGET_MAX / scale;
  s.capacity = low;
  for (uint32_t high = (uint32_t)(height / unit); low < high; s.capacity = low + (high - low) / 2) {
    const outcome out = try_capacity(&s, c, w, all, budget);
    if (out == SOLVED) {
      high = 0;
      for (int32_t i = 0; i < c->n; i++) {
        const uint32_t top = s.off[i] + s.size[i];
        if (top > high) high = top;
        best[i] = (size_t)s.off[i] * unit;
      }
      height = (size_t)high * unit;
    } else {
      low = s.capacity + 1;
    }
    budget = (uint64_t)NODES_FOR_STEP * FULL_BUDGET_MAX / scale;
    if (out == OUT_OF_NODES && high - low < high / GAP_PARTS) break;
  }
  *nodes += s.nodes;
  return height;
}
