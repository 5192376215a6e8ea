/* A schedule with addresses: operand structs filled once, then run as often as wanted.
 *
 * Say, then place: program_bytes is the memory of the bound steps; program_bind fills it and chooses kernels. An op
 * without a kernel is UNSUPPORTED here, before anything runs. program_run walks a range of steps: every worker runs
 * every phase of every step on its own units and meets the others at a barrier; nothing is allocated. */
#ifndef STINT_ENGINE_EXEC_PROGRAM_H
#define STINT_ENGINE_EXEC_PROGRAM_H

#include "engine/exec/pool.h"
#include "plans/schedule.h"

typedef struct program_step {
  op_kernel *kernel;
  void *args;
  int32_t phases;
} program_step;

typedef struct program {
  const schedule *plan;
  program_step *steps;
  int32_t n_steps;
  unsigned char *base[HOME_COUNT];
} program;

/* Called by worker 0 after a step, while the others wait: timing, checks, dumps. */
typedef void program_hook(void *context, const program *p, int32_t step);

size_t program_bytes(const schedule *plan);
/* base[home]: where each home begins (64-byte aligned; FILE: the mapped file). */
stint_status program_bind(const schedule *plan, unsigned char *const base[HOME_COUNT],
                          op_kernel *const kernels[OP_COUNT], void *buffer, program *out, stint_error *error);
void program_run(const program *p, pool *workers, int32_t first, int32_t end, program_hook *hook,
                 void *context);

/* Address of a tensor. */
void *program_tensor(const program *p, graph_id id);

#endif
