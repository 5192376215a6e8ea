/* What a run leaves: adapter.gguf, or model.gguf when every weight was trained; read back before it counts. */
#ifndef STINT_ENGINE_TRAIN_SAVE_H
#define STINT_ENGINE_TRAIN_SAVE_H

#include "engine/exec/program.h"
#include "engine/train/plan.h"

/* Longest path of a saved file. */
enum { SAVE_PATH_BYTES = 1024 };

/* Bytes of scratch that one save (or check) takes; stated by the plan. 0 on failure to find memory. */
size_t save_scratch_bytes(const stint_plan *plan);

/* Writes the trained tensors as they lie in memory to `path` (path.tmp, synced, renamed). Allocates nothing outside of
 * `scratch`. A value that is not finite is refused. */
stint_status save_trained(const stint_plan *plan, const program *p, const char *path, int64_t step,
                          void *scratch, size_t scratch_bytes, stint_error *error);
/* Opens what was written with every check of a reader and compares it with memory, bit for bit. */
stint_status save_verify(const stint_plan *plan, const program *p, const char *path, int64_t step,
                         void *scratch, size_t scratch_bytes, stint_error *error);

#endif
