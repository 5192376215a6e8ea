/* The workers: N threads that run one job together and meet at a barrier inside it.
 *
 *   buffer  [ pool | guard page, stack of worker 1 | guard page, stack of worker 2 | ... ]
 *
 * Worker 0 is the thread that calls pool_run; the others are created once by pool_start, on stacks inside the
 * caller's buffer, and sleep between jobs. Say, then place: pool_bytes is all the memory of the pool; after
 * pool_start nothing is allocated. (The C library takes some hundred bytes of its own for each thread, in pool_start.)
 *
 * The workers block every signal that is not a fault of their own, so that an interrupt goes to the caller's
 * thread. Jobs run under the default floating-point environment whatever the caller's is. */
#ifndef STINT_ENGINE_EXEC_POOL_H
#define STINT_ENGINE_EXEC_POOL_H

#include <stddef.h>

#include "arena/status.h"

enum {
  POOL_MAX_WORKERS = 512,
  POOL_STACK_BYTES = 256 * 1024, /* of a worker; a job must do with some 200 KiB of it */
};

typedef struct pool pool;
typedef void pool_job(void *context, int worker, int workers);

/* Exact bytes for a pool of `workers` (1 to POOL_MAX_WORKERS), a multiple of a page; 0 for any other number. */
size_t pool_bytes(int workers);

/* Starts workers 1 .. workers - 1 and returns when all of them are ready. `buffer` is page-aligned, pool_bytes(workers)
 * large, and belongs to the pool until pool_stop. On failure *out is NULL and no thread is left. */
stint_status pool_start(void *buffer, int workers, pool **out, stint_error *error);

/* Runs job(context, worker, workers) on every worker; returns when all have returned. One caller at a time. */
void pool_run(pool *p, pool_job *job, void *context);

/* Inside a job: returns when every worker has called it. What was written before it is seen after it. */
void pool_barrier(pool *p);

int pool_workers(const pool *p);

/* Ends and joins the threads. NULL: nothing. Not from inside a job. */
void pool_stop(pool *p);

#endif
