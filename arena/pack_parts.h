/* Private to the packer: a component, what a pass over it may use, and the two passes.
 *
 * Time is compressed to *sections*: a section is a largest set of buffers that are alive together, so two
 * buffers overlap in time exactly when their section spans [lower, upper) overlap. A *component* is a run of sections
 * that no lifetime crosses at either end; its buffers stand in order of `lower`, ties in the caller's order. */
#ifndef STINT_ARENA_PACK_PARTS_H
#define STINT_ARENA_PACK_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/bump.h"

typedef struct pack_span {
  int32_t lower, upper; /* sections, counted from the component's first */
  size_t bytes;
} pack_span;

typedef struct pack_key {
  uint64_t key;
  uint32_t id;
} pack_key;

typedef struct pack_component {
  const pack_span *spans;
  const size_t *load; /* sum of bytes alive, for each section */
  int32_t n, n_sections;
} pack_component;

/* Scratch for one component at a time, sized for the largest. */
typedef struct pack_work {
  pack_key *keys, *keys_too; /* n each: sorting */
  double *load_before;       /* n_sections + 1: prefix sums of load */
  size_t *most_load;         /* n: the largest load over its span */
  double *weight,
      *untaught;           /* n each: of the search's learning order; a place for what is not to be learned */
  int32_t *born, *dead;    /* n_sections + 1: births and deaths before a section */
  uint32_t *by_rank;       /* n: the buffer at each rank */
  size_t *tree, *tag;      /* 2 * a power of two >= n_sections: floors */
  struct pack_entry *heap; /* n */
  size_t *offsets;         /* n: of the attempt in hand */
} pack_work;

typedef struct pack_entry {
  size_t floor;
  uint32_t rank;
} pack_entry;

/* Stable, ascending by key. `too` is as large as `items`. */
void pack_sort(pack_key *items, pack_key *too, size_t n);

/* What orders are made of, largest first: a letter names a measure.
 *   A area (bytes x width)   W width in sections (w: narrowest first)   Z bytes   T the largest load over its span
 *   S the sum of the loads over its span   C how many live with it   P = S x Z   Q = C x Z   D the mean load over its span
 *   L earliest birth (l: latest)   U latest death (u: earliest)   X weight, see above */
void pack_measure(const pack_component *c, pack_work *work); /* once a component, before pack_rank */

/* Fills work->by_rank: by the first letter of `order`, ties by the second and so on, then by index. */
void pack_rank(const pack_component *c, pack_work *work, const char *order);

/* Bottom-up descent. Leaves the best offsets found in `best`, stops at `target`. Returns the height. */
size_t pack_descend(const pack_component *c, pack_work *work, size_t target, size_t *best);

/* Depth-first search for a packing lower than `height`, whose offsets stand in `best`; stops at `target`.
 * Adds what it spends to *nodes. Returns the new height (the old one when nothing better was found, the
 * component is too large for a search, or scratch ran out). */
size_t pack_search(const pack_component *c, pack_work *work, bump *scratch, size_t target, size_t height,
                   size_t *best, uint64_t *nodes);

#endif
