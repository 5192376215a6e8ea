/* What common GPUs have, so that a run can be planned for one that is not here. */
#ifndef STINT_PLANS_DEVICES_H
#define STINT_PLANS_DEVICES_H

#include <stddef.h>
#include <stdint.h>

typedef struct device_figures {
  const char *name; /* as a person types it; spaces, dashes and case do not matter */
  uint64_t memory_bytes;
  double bytes_per_second;      /* of the device's memory, peak */
  double link_bytes_per_second; /* to the host, one direction, peak */
  double flops; /* float32 operations a second without tensor cores, peak; a fused multiply-add is two */
} device_figures;

/* The i-th device; NULL past the last. */
const device_figures *device_figures_at(size_t i);

/* By a typed name ("rtx 4090", "A100-80GB") or a driver's ("NVIDIA GeForce RTX 4090"); NULL: not in the table. */
const device_figures *device_figures_find(const char *name);

/* What a plan may take of `memory_bytes`: less the context, kernels and libraries, and what the driver keeps. An allowance,
 * since a run measures it on the device itself. */
uint64_t device_plannable_bytes(uint64_t memory_bytes);

#endif
