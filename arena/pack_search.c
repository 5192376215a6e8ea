/* The search for a packing of a given capacity, after M. D. Moffitt, "MiniMalloc: A Lightweight Memory
 * Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023.
 *
 * Depth first over *canonical* placements: each buffer lies as low as the buffers already placed under it allow, and
 * buffers are placed in order of (offset, static rank), which loses no packing. Pruned by
 *   - sections: where the lowest offset that is still possible, plus the bytes not yet placed, passes the
 *     capacity, the node fails;
 *   - dominance: no buffer is placed so high that another one would fit whole under it, for that other one could
 *     then be moved down;
 *   - decomposition: where no unplaced lifetime crosses a time, both sides are solved apart, and one that fails,
 *     fails both.
 * Several static orders take turns under node limits that double. The capacity is first the target; when
 * that is not met, the gap to the best known packing is bisected. Sizes are counted in units of their common
 * divisor, so that a section's sums fit 32 bits.
 *
 * Recursion: a level for each placed buffer, at most PACK_SEARCH_MAX, some 150 bytes each.
 *
 * Invariant: off[i] of an unplaced buffer is the highest top among the placed buffers that live with it; every
 * change to it is on the trail until the level that made it returns. */
#include "arena/pack_parts.h"

#include <string.h>

enum {
  PACK_SEARCH_MAX = 2048,
  FIRST_LIMIT = 1000,       /* nodes of the first turn of an order */
  NODES_FOR_TARGET = 60000, /* spent on the target before the bisection */
  NODES_FOR_STEP = 8000,    /* and on each step of the bisection */
  N_SEARCH_ORDERS = 4,
};

typedef struct change {
  uint32_t off;
  uint16_t id;
} change;

typedef enum outcome { SOLVED, FAILED, OUT_OF_NODES } outcome;

typedef struct search {
  const pack_span *spans;
  uint32_t *size, *off;
  uint32_t *low; /* the lowest offset that is still possible; good within one node only */
  uint16_t *rank;
  uint32_t *unplaced, *lowest; /* for each section; good within one node only */
  uint16_t *lists;             /* a stack of lists of unplaced buffers */
  change *trail;               /* a stack */
  size_t n_lists, n_trail;
  uint32_t capacity;
  uint64_t nodes, limit;
} search;

/* What the sections of a part say: false when one of them cannot hold its unplaced bytes any more; else the highest
 * offset at which the next buffer may lie. */
static bool sections_hold(search *const s, const uint16_t *const items, const int32_t n, uint32_t *const highest) {
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
    const uint32_t id = items[i], size = s->size[id];
    const uint32_t low = s->low[id];
    uint32_t *const unplaced = s->unplaced, *const lowest = s->lowest;
    for (int32_t t = s->spans[id].lower; t < s->spans[id].upper; t++) {
      unplaced[t] += size;
      lowest[t] = low < lowest[t] ? low : lowest[t];
    }
  }
  uint32_t most = 0;
  bool holds = true;
  for (int32_t t = first; t < end; t++) {
    if (!s->unplaced[t]) continue;
    if (s->unplaced[t] > s->capacity || s->lowest[t] > s->capacity - s->unplaced[t]) holds = false;
    if (s->unplaced[t] > most) most = s->unplaced[t];
  }
  *highest = holds ? s->capacity - most : 0;
  return holds;
}

/* The lowest offset that is still possible for each buffer. One that was passed over at the offset that it has can only
 * move up, onto another unplaced buffer that lives with it. False when one has no place left. */
static bool raise_passed_over(search *const s, const uint16_t *const items, const int32_t n, const uint32_t level,
                              const int32_t last_rank) {
  for (int32_t i = 0; i < n; i++) s->low[items[i]] = s->off[items[i]] > level ? s->off[items[i]] : level;
  for (int32_t i = 0; i < n; i++) {
    const uint32_t id = items[i];
    if (s->off[id] > level || (s->off[id] == level && s->rank[id] > last_rank)) continue;
    const pack_span *const span = &s->spans[id];
    uint32_t low = UINT32_MAX;
    for (int32_t k = 0; k < n && s->spans[items[k]].lower < span->upper; k++) {
      const uint32_t other = items[k], top = s->low[other] + s->size[other];
      if (k != i && s->spans[other].upper > span->lower && top < low) low = top;
    }
    if (low > s->capacity || s->size[id] > s->capacity - low) return false;
    s->low[id] = low;
  }
  return true;
}

static outcome solve(search *s, const uint16_t *items, int32_t n, uint32_t level, int32_t last_rank);

/* Places `id` at its offset and solves each part of what is left. */
static outcome descend(search *const s, const uint16_t *const items, const int32_t n, const uint16_t id,
                       bool *const bare) {
  const uint32_t level = s->off[id], top = level + s->size[id];
  const pack_span *const span = &s->spans[id];
  uint16_t *const rest = s->lists + s->n_lists;
  int32_t n_rest = 0;
  for (int32_t i = 0; i < n; i++) {
    const uint16_t other = items[i];
    if (other == id) continue;
    rest[n_rest++] = other;
    if (s->spans[other].lower >= span->upper || s->spans[other].upper <= span->lower) continue;
    *bare = false;
    if (s->off[other] >= top) continue;
    s->trail[s->n_trail++] = (change){.off = s->off[other], .id = other};
    s->off[other] = top;
  }
  s->n_lists += (size_t)n_rest;
  outcome out = SOLVED;
  for (int32_t start = 0, end; start < n_rest && out == SOLVED; start = end) {
    int32_t reach = s->spans[rest[start]].upper;
    for (end = start + 1; end < n_rest && s->spans[rest[end]].lower < reach; end++) {
      if (s->spans[rest[end]].upper > reach) reach = s->spans[rest[end]].upper;
    }
    out = solve(s, rest + start, end - start, level, s->rank[id]);
  }
  s->n_lists -= (size_t)n_rest;
  return out;
}

/* items: unplaced buffers that hang together, by birth. The next placement lies at `level` or above; at `level`
 * itself only a buffer of a later rank than `last_rank`. */
static outcome solve(search *const s, const uint16_t *const items, const int32_t n, const uint32_t level,
                     const int32_t last_rank) {
  if (s->nodes >= s->limit) return OUT_OF_NODES;
  s->nodes++;
  uint32_t highest;
  if (!raise_passed_over(s, items, n, level, last_rank)) return FAILED;
  if (!sections_hold(s, items, n, &highest)) return FAILED;
  uint32_t least_top = UINT32_MAX;
  for (int32_t i = 0; i < n; i++) {
    const uint32_t top = s->off[items[i]] + s->size[items[i]];
    if (top < least_top) least_top = top;
  }
  if (least_top > s->capacity) return FAILED;

  const size_t trail = s->n_trail;
  uint64_t after = (uint64_t)level << 16 | (uint64_t)(last_rank + 1); /* keys are (offset, rank + 1) */
  for (;;) {
    uint64_t next = UINT64_MAX;
    uint16_t chosen = 0;
    for (int32_t i = 0; i < n; i++) {
      const uint64_t key = (uint64_t)s->off[items[i]] << 16 | (s->rank[items[i]] + 1u);
      if (key > after && key < next) {
        next = key;
        chosen = items[i];
      }
    }
    const uint64_t offset = next >> 16;
    if (offset >= least_top || offset > highest) return FAILED;
    bool bare = true;
    const outcome out = descend(s, items, n, chosen, &bare);
    if (out != FAILED || bare) return out;
    while (s->n_trail > trail) {
      s->n_trail--;
      s->off[s->trail[s->n_trail].id] = s->trail[s->n_trail].off;
    }
    after = next;
  }
}

/* Orders take turns, each limit twice the last, until one answers or `budget` is spent. */
static outcome try_capacity(search *const s, const pack_component *const c, pack_work *const w,
                            const uint16_t *const all, const uint64_t budget) {
  static const char *const orders[N_SEARCH_ORDERS] = {"TWA", "TAW", "WAT", "A"};
  const uint64_t end = s->nodes + budget;
  for (uint64_t turn = FIRST_LIMIT; s->nodes < end; turn *= 2) {
    for (int o = 0; o < N_SEARCH_ORDERS && s->nodes < end; o++) {
      pack_rank(c, w, orders[o]);
      for (int32_t r = 0; r < c->n; r++) s->rank[w->by_rank[r]] = (uint16_t)r;
      memset(s->off, 0, (size_t)c->n * sizeof *s->off);
      s->n_trail = 0;
      s->limit = s->nodes + turn < end ? s->nodes + turn : end;
      const outcome out = solve(s, all, c->n, 0, -1);
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
  const size_t n = (size_t)c->n, sections = (size_t)c->n_sections;
  size_t pairs = 0; /* that live together: no offset is raised twice by the same buffer */
  for (int32_t i = 0; i < c->n; i++) {
    for (int32_t j = i + 1; j < c->n && c->spans[j].lower < c->spans[i].upper; j++) pairs++;
  }
  s->spans = c->spans;
  s->size = BUMP_ARRAY(scratch, uint32_t, n);
  s->off = BUMP_ARRAY(scratch, uint32_t, n);
  s->low = BUMP_ARRAY(scratch, uint32_t, n);
  s->rank = BUMP_ARRAY(scratch, uint16_t, n);
  s->unplaced = BUMP_ARRAY(scratch, uint32_t, sections);
  s->lowest = BUMP_ARRAY(scratch, uint32_t, sections);
  s->lists = BUMP_ARRAY(scratch, uint16_t, n * n / 2 + n);
  s->trail = BUMP_ARRAY(scratch, change, pairs + 1);
  *all = s->lists;
  s->n_lists = n;
  return s->size && s->off && s->low && s->rank && s->unplaced && s->lowest && s->lists && s->trail;
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

  uint32_t low = (uint32_t)(target / unit); /* no packing below is wanted, or known to exist */
  uint64_t budget = NODES_FOR_TARGET;
  for (uint32_t high = (uint32_t)(height / unit); low < high;) {
    s.capacity = budget == NODES_FOR_TARGET ? low : low + (high - low) / 2;
    if (try_capacity(&s, c, w, all, budget) == SOLVED) {
      high = 0;
      for (int32_t i = 0; i < c->n; i++) {
        const uint32_t top = s.off[i] + s.size[i];
        if (top > high) high = top;
        best[i] = s.off[i] * unit;
      }
      height = high * unit;
    } else {
      low = s.capacity + 1;
    }
    budget = NODES_FOR_STEP;
  }
  *nodes += s.nodes;
  return height;
}
