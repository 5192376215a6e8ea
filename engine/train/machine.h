/* What this machine has: memory that a run may take, and its arithmetic limit. */
#ifndef STINT_ENGINE_TRAIN_MACHINE_H
#define STINT_ENGINE_TRAIN_MACHINE_H

#include <stdint.h>

#include "engine/exec/pool.h"

/* Bytes that are available now (MemAvailable, a control group's limit, RLIMIT_AS: the smallest). UINT64_MAX: unknown. */
uint64_t machine_memory_bytes(void);

/* Fused multiply-adds that the workers reach together on registers alone, as operations a second (two each); takes some 20 ms. */
double machine_peak_flops(unsigned cpu_mask, pool *workers);

/* Processors that this process may use. */
int machine_processors(void);

/* Seconds of a clock that only goes forward. */
double machine_seconds(void);

#endif
