/* Where the first value that is not finite was born: a hook that looks at what each step wrote. */
#ifndef STINT_ENGINE_TRAIN_NONFINITE_H
#define STINT_ENGINE_TRAIN_NONFINITE_H

#include <stdbool.h>

#include "engine/exec/device_run.h"

typedef struct nonfinite_watch {
  device_run *device; /* NULL: the CPU; else tensors come down in pieces through scratch */
  void *scratch;
  size_t scratch_bytes;
  bool found;
  int32_t step; /* of the schedule */
  graph_id tensor;
  int64_t row, column;
} nonfinite_watch;

void nonfinite_hook(void *watch, const program *p, int32_t step); /* a program_hook */
/* "op matmul of blk.3.attn_q: element 7 of row 120 of blk.3.attn_q is not finite" */
void nonfinite_describe(const nonfinite_watch *watch, const program *p, char *out, size_t room);

#endif
