/* A schedule with addresses: operand structs filled once, then run as often as wanted.
 *
 * Say, then place: program_bytes is the memory of the bound steps; program_bind fills it and chooses kernels. An op
 * without a kernel is UNSUPPORTED here, before anything runs. program_run walks a range of steps: every worker runs
 * every phase of every step on its own units and meets the others at a barrier; nothing is allocated. */
#ifndef STINT_ENGINE_EXEC_PROGRAM_H
#define STINT_ENGINE_EXEC_PROGRAM_H

#include "engine/exec/pool.h"
#include "kernels/cuda/launch.h"
#include "plans/schedule.h"

typedef struct program_step {
  op_kernel *kernel;   /* on the CPU */
  cuda_launch *launch; /* on a device */
  void *args;
  int32_t phases;
} program_step;

/* Where each home begins: as the schedule's operands see it, and as the host does (NULL: only the device sees it). */
typedef struct program_bases {
  unsigned char *operand[HOME_COUNT], *host[HOME_COUNT];
} program_bases;

typedef struct program {
  const schedule *plan;
  program_step *steps;
  int32_t n_steps;
  program_bases base;
} program;

/* Called by worker 0 after a step, while the others wait: timing, checks, dumps. */
typedef void program_hook(void *context, const program *p, int32_t step);

size_t program_bytes(const schedule *plan);
/* One of `kernels` (the CPU) and `launches` (a device) is given, [OP_COUNT]; bases are 64-byte aligned (FILE: the mapped file). */
stint_status program_bind(const schedule *plan, const program_bases *base, op_kernel *const *kernels,
                          cuda_launch *const *launches, void *buffer, program *out, stint_error *error);
void program_run(const program *p, pool *workers, int32_t first, int32_t end, program_hook *hook,
                 void *context);

/* The host's address of a tensor; NULL when only the device sees it. */
void *program_tensor(const program *p, graph_id id);

#endif
