/* What this machine has: memory that a run may take, and its arithmetic limit. */
#ifndef STINT_ENGINE_TRAIN_MACHINE_H
#define STINT_ENGINE_TRAIN_MACHINE_H

#include <stdint.h>

#include "engine/exec/pool.h"
#include "engine/stint.h"

/* Bytes that are available now (MemAvailable, a control group's limit, RLIMIT_AS: the smallest). UINT64_MAX: unknown. */
uint64_t machine_memory_bytes(void);

/* Memory of the device that the options name: as stated, as its table entry says, or as the device that is here reports
 * free. BAD_INPUT when there is none and nothing is stated. */
stint_status machine_device_memory(const stint_options *options, uint64_t *bytes, stint_error *error);

/* Fused multiply-adds that the workers reach together on registers alone, as operations a second (two each); takes some 20 ms. */
double machine_peak_flops(unsigned cpu_mask, pool *workers);

/* Processors that this process may use. */
int machine_processors(void);

/* Seconds of a clock that only goes forward. */
double machine_seconds(void);

#endif
