/* Programs on a device: each range of a schedule is captured once as a graph and then launched.
 *
 * Before a range the batch's arrays and the step block go up, after it they come down (losses, norm, logits): one small
 * region each way. A range that is watched by a hook runs step by step instead, outside any graph. */
#ifndef STINT_ENGINE_EXEC_DEVICE_RUN_H
#define STINT_ENGINE_EXEC_DEVICE_RUN_H

#include "engine/exec/device.h"
#include "engine/exec/program.h"

enum { DEVICE_MAX_RANGES = 8 };

typedef struct device_range {
  const schedule *plan;
  int32_t first, end;
  device_graph *graph;
} device_range;

typedef struct device_run {
  const device_module *module;
  device *d;
  void *batch_host, *batch_device;
  size_t batch_bytes;
  device_range ranges[DEVICE_MAX_RANGES];
  int n_ranges;
} device_run;

/* Records steps [first, end) of a bound program; an empty range is nothing. */
stint_status device_run_capture(device_run *r, const program *p, int32_t first, int32_t end,
                                stint_error *error);
stint_status device_run_range(device_run *r, const program *p, int32_t first, int32_t end, program_hook *hook,
                              void *context, stint_error *error);

#endif
