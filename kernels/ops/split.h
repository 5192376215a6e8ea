/* Which units are a worker's own: contiguous ranges, the first ones longer by one where they do not divide. A pure
 * function of (units, worker, workers); results never depend on it (numerics.md rule 1). */
#ifndef STINT_KERNELS_OPS_SPLIT_H
#define STINT_KERNELS_OPS_SPLIT_H

#include <stdint.h>

typedef struct op_range {
  int64_t first, last;
} op_range; /* [first, last), empty when a worker has none */

static inline op_range op_split(const int64_t units, const int worker, const int workers) {
  const int64_t each = units / workers, more = units % workers;
  const int64_t first = each * worker + (worker < more ? worker : more);
  return (op_range){first, first + each + (worker < more)};
}

/* n floats in pieces of whole cache lines (16 floats), so that two workers write no common line. */
static inline op_range op_split_floats(const int64_t n, const int worker, const int workers) {
  const op_range lines = op_split((n + 15) / 16, worker, workers);
  return (op_range){lines.first * 16 < n ? lines.first * 16 : n, lines.last * 16 < n ? lines.last * 16 : n};
}

#endif
