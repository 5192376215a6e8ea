/* Bottom-up descent: the packer's fast pass.
 *
 * Every section has a floor, at first 0. A heap holds every buffer, keyed by (the highest floor over its span, a
 * static rank). The lowest is popped; when its key is stale it goes back under its true key, else it is placed there
 * and the floors of its span rise to its top. Floors only rise, so a key is never too high, and assigning to
 * a range equals taking the maximum: the floors live in a segment tree with tags that are never pushed down.
 * O(n log n) a placement pass but for stale keys; no list of overlaps is made. Several static orders are tried.
 *
 * Invariant: tree[p] = max(tag[p], the tree of both children), and the floor of a section is the largest tag on the
 * way from its leaf to the root. */
#include "arena/pack_parts.h"

#include <string.h>

enum { POPS_ENOUGH = 4000000 }; /* no further order is tried after so many; the first is always finished */

void pack_sort(pack_key *const items, pack_key *const too, const size_t n) {
  pack_key *from = items, *to = too;
  for (size_t width = 1; width < n; width *= 2) {
    for (size_t start = 0; start < n; start += 2 * width) {
      const size_t mid = start + width < n ? start + width : n;
      const size_t end = mid + width < n ? mid + width : n;
      size_t a = start, b = mid;
      for (size_t k = start; k < end; k++) {
        to[k] = a < mid && (b >= end || from[a].key <= from[b].key) ? from[a++] : from[b++];
      }
    }
    pack_key *const swap = from;
    from = to;
    to = swap;
  }
  if (from != items) memcpy(items, from, n * sizeof *items);
}

/* The bits of a double that is not negative rise with its value; inverted, the largest sorts first. */
static uint64_t largest_first(const double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return ~bits;
}

static double measure(const pack_component *const c, const pack_work *const w, const char what,
                      const int32_t i) {
  const pack_span *const s = &c->spans[i];
  const double bytes = (double)s->bytes, width = s->upper - s->lower;
  const double load = w->load_before[s->upper] - w->load_before[s->lower];
  const double conflicts = w->born[s->upper] - w->dead[s->lower];
  switch (what) {
  case 'A':
    return bytes * width;
  case 'W':
    return width;
  case 'Z':
    return bytes;
  case 'T':
    return (double)w->most_load[i];
  case 'S':
    return load;
  case 'C':
    return conflicts;
  case 'L':
    return c->n_sections - s->lower;
  case 'U':
    return s->upper;
  case 'l':
    return s->lower;
  case 'u':
    return c->n_sections - s->upper;
  case 'w':
    return c->n_sections - width;
  case 'P':
    return load * bytes;
  case 'Q':
    return conflicts * bytes;
  case 'D':
    return load / width;
  default:
    return w->weight[i];
  }
}

void pack_rank(const pack_component *const c, pack_work *const w, const char *const order) {
  for (int32_t i = 0; i < c->n; i++) w->keys[i].id = (uint32_t)i;
  for (size_t letter = strlen(order); letter--;) { /* a stable sort, so the weightiest letter comes last */
    for (int32_t i = 0; i < c->n; i++) {
      w->keys[i].key = largest_first(measure(c, w, order[letter], (int32_t)w->keys[i].id));
    }
    pack_sort(w->keys, w->keys_too, (size_t)c->n);
  }
  for (int32_t i = 0; i < c->n; i++) w->by_rank[i] = w->keys[i].id;
}

static size_t max_of(const size_t a, const size_t b) { return a > b ? a : b; }

static size_t floor_over(const pack_work *const w, const size_t leaves, const pack_span *const s) {
  size_t floor = 0;
  const size_t first = leaves + (size_t)s->lower, last = leaves + (size_t)s->upper - 1;
  for (size_t l = first, r = last + 1; l < r; l /= 2, r /= 2) {
    if (l & 1) floor = max_of(floor, w->tree[l++]);
    if (r & 1) floor = max_of(floor, w->tree[--r]);
  }
  for (size_t p = first / 2; p; p /= 2) floor = max_of(floor, w->tag[p]);
  for (size_t p = last / 2; p; p /= 2) floor = max_of(floor, w->tag[p]);
  return floor;
}

static void raise_over(pack_work *const w, const size_t leaves, const pack_span *const s, const size_t top) {
  const size_t first = leaves + (size_t)s->lower, last = leaves + (size_t)s->upper - 1;
  for (size_t l = first, r = last + 1; l < r; l /= 2, r /= 2) {
    if (l & 1) {
      w->tree[l] = w->tag[l] = top;
      l++;
    }
    if (r & 1) {
      r--;
      w->tree[r] = w->tag[r] = top;
    }
  }
  for (size_t p = first / 2; p; p /= 2) {
    w->tree[p] = max_of(w->tag[p], max_of(w->tree[2 * p], w->tree[2 * p + 1]));
  }
  for (size_t p = last / 2; p; p /= 2) {
    w->tree[p] = max_of(w->tag[p], max_of(w->tree[2 * p], w->tree[2 * p + 1]));
  }
}

static bool before(const pack_entry a, const pack_entry b) {
  return a.floor < b.floor || (a.floor == b.floor && a.rank < b.rank);
}

/* Puts `entry` in place of the root and lets it sink. */
static void sink(pack_entry *const heap, const size_t n, const pack_entry entry) {
  size_t at = 0;
  for (size_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && before(heap[child + 1], heap[child])) child++;
    if (!before(heap[child], entry)) break;
    heap[at] = heap[child];
  }
  heap[at] = entry;
}

/* One pass under the order in by_rank. The height, or SIZE_MAX as soon as `limit` is reached. */
static size_t pass(const pack_component *const c, pack_work *const w, const size_t leaves, const size_t limit,
                   uint64_t *const pops) {
  memset(w->tree, 0, 2 * leaves * sizeof *w->tree);
  memset(w->tag, 0, 2 * leaves * sizeof *w->tag);
  size_t left = (size_t)c->n, height = 0;
  for (size_t i = 0; i < left; i++) w->heap[i] = (pack_entry){.rank = (uint32_t)i}; /* sorted, so a heap */
  while (left) {
    (*pops)++;
    pack_entry entry = w->heap[0];
    const uint32_t id = w->by_rank[entry.rank];
    const pack_span *const s = &c->spans[id];
    const size_t floor = floor_over(w, leaves, s);
    if (floor > entry.floor) {
      entry.floor = floor;
      sink(w->heap, left, entry);
      continue;
    }
    const size_t top = floor + s->bytes;
    if (top >= limit) return SIZE_MAX;
    w->offsets[id] = floor;
    raise_over(w, leaves, s, top);
    height = max_of(height, top);
    left--;
    if (left) sink(w->heap, left, w->heap[left]);
  }
  return height;
}

static size_t leaves_for(const pack_component *const c) {
  size_t leaves = 1;
  while (leaves < (size_t)c->n_sections) leaves *= 2;
  return leaves;
}

void pack_measure(const pack_component *const c, pack_work *const w) {
  memset(w->born, 0, ((size_t)c->n_sections + 1) * sizeof *w->born);
  memset(w->dead, 0, ((size_t)c->n_sections + 1) * sizeof *w->dead);
  for (int32_t i = 0; i < c->n; i++) {
    w->born[c->spans[i].lower + 1]++;
    w->dead[c->spans[i].upper]++;
  }
  w->load_before[0] = 0;
  for (int32_t s = 0; s < c->n_sections; s++) {
    w->load_before[s + 1] = w->load_before[s] + (double)c->load[s];
    w->born[s + 1] += w->born[s];
    w->dead[s + 1] += w->dead[s];
  }
  const size_t leaves = leaves_for(c);
  memset(w->tree, 0, 2 * leaves * sizeof *w->tree);
  memset(w->tag, 0, 2 * leaves * sizeof *w->tag);
  memcpy(w->tree + leaves, c->load, (size_t)c->n_sections * sizeof *w->tree);
  for (size_t p = leaves - 1; p; p--) w->tree[p] = max_of(w->tree[2 * p], w->tree[2 * p + 1]);
  for (int32_t i = 0; i < c->n; i++) w->most_load[i] = floor_over(w, leaves, &c->spans[i]);
}

size_t pack_descend(const pack_component *const c, pack_work *const w, const size_t target,
                    size_t *const best) {
  static const char *const orders[] = {"A", "S", "W", "Z", "TWA", "TAW", "WAT", "C",
                                       "L", "U", "P", "Q", "D",   "l",   "u"};
  const size_t leaves = leaves_for(c);
  uint64_t pops = 0;
  size_t height = SIZE_MAX;
  for (size_t o = 0; o < sizeof orders / sizeof *orders && height > target; o++) {
    if (pops > POPS_ENOUGH) break;
    pack_rank(c, w, orders[o]);
    const size_t found = pass(c, w, leaves, height, &pops);
    if (found == SIZE_MAX) continue;
    height = found;
    memcpy(best, w->offsets, (size_t)c->n * sizeof *best);
  }
  return height;
}
