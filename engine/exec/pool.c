/* The workers and their barrier.
 *
 * The barrier counts generations: the last to arrive resets the count and raises the generation, for which the others
 * wait: first by looking at it for a few microseconds, since most steps are balanced, then asleep on a futex, so
 * that a core which something else needs is given away. With more workers than processors nobody looks: the one that
 * is waited for needs the core. A job is handed out through the same barrier, once before and once after it.
 *
 * Invariant: a worker enters the barrier only after it saw the last generation, so `arrived` counts one
 * generation at a time. The futex cannot miss a wake-up: a sleeper raises `sleepers` before the kernel compares the
 * generation, the last to arrive raises the generation before it reads `sleepers`, and both orders are sequentially
 * consistent. */
#include "engine/exec/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

enum {
  PAGE_BYTES = 4096,
  LINE_BYTES = 64,
  LOOKS = 200, /* at the generation before a worker sleeps: 5 to 10 microseconds */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  STACK_BYTES = 8 * POOL_STACK_BYTES, /* their thread-local state and their frames are large */
#else
  STACK_BYTES = POOL_STACK_BYTES,
#endif
};

typedef struct worker_start {
  pool *p;
  int worker;
} worker_start;

struct pool {
  _Alignas(LINE_BYTES) atomic_uint generation; /* also the futex */
  _Alignas(LINE_BYTES) atomic_uint arrived;
  atomic_uint sleepers;
  _Alignas(LINE_BYTES) pool_job *job;
  void *context;
  bool stop;
  int workers;
  unsigned looks;
  unsigned char *stacks;
  pthread_t threads[POOL_MAX_WORKERS];
  worker_start starts[POOL_MAX_WORKERS];
};

static size_t head_bytes(void) { return (sizeof(pool) + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1); }

static size_t slot_bytes(void) { return PAGE_BYTES + STACK_BYTES; }

size_t pool_bytes(const int workers) {
  if (workers < 1 || workers > POOL_MAX_WORKERS) return 0;
  return head_bytes() + (size_t)(workers - 1) * slot_bytes();
}

int pool_workers(const pool *const p) { return p->workers; }

static void relax(void) {
#if defined(__SSE__)
  _mm_pause();
#endif
}

static void wait_for_next(pool *const p, const unsigned generation) {
  for (unsigned i = 0; i < p->looks; i++) {
    if (atomic_load_explicit(&p->generation, memory_order_acquire) != generation) return;
    relax();
  }
  atomic_fetch_add(&p->sleepers, 1);
  while (atomic_load(&p->generation) == generation) {
    syscall(SYS_futex, &p->generation, FUTEX_WAIT_PRIVATE, generation, NULL, NULL,
            0); /* may return for no reason */
  }
  atomic_fetch_sub(&p->sleepers, 1);
}

void pool_barrier(pool *const p) {
  if (p->workers == 1) return;
  const unsigned generation = atomic_load_explicit(&p->generation, memory_order_relaxed);
  if (atomic_fetch_add(&p->arrived, 1) + 1 < (unsigned)p->workers) {
    wait_for_next(p, generation);
    return;
  }
  atomic_store_explicit(&p->arrived, 0, memory_order_relaxed); /* published by the next store */
  atomic_store(&p->generation, generation + 1);
  if (atomic_load(&p->sleepers))
    syscall(SYS_futex, &p->generation, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

#if defined(__SSE__)
typedef unsigned float_state;
static float_state float_state_default(void) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(0x1f80); /* round to nearest, subnormals kept, no traps */
  return before;
}
static void float_state_restore(const float_state before) { _mm_setcsr(before); }
#else
typedef int float_state; /* a thread starts with its creator's; other processors are to be added here */
static float_state float_state_default(void) { return 0; }
static void float_state_restore(const float_state before) { (void)before; }
#endif

static void *work(void *const argument) {
  const worker_start *const start = argument;
  pool *const p = start->p;
  float_state_default();
  wait_for_next(p, 0); /* until all threads exist, or one could not be made */
  if (p->stop) return NULL;
  for (;;) {
    pool_barrier(p);
    if (p->stop) return NULL;
    p->job(p->context, start->worker, p->workers);
    pool_barrier(p);
  }
}

void pool_run(pool *const p, pool_job *const job, void *const context) {
  const float_state before = float_state_default();
  p->job = job;
  p->context = context;
  pool_barrier(p);
  job(context, 0, p->workers);
  pool_barrier(p);
  float_state_restore(before);
}

static unsigned allowed_processors(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set)) return POOL_MAX_WORKERS; /* more than a set holds */
  return (unsigned)CPU_COUNT(&set);
}

/* Blocks what is not a fault of the thread itself; the new threads inherit it. */
static void block_signals(sigset_t *const before) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
  sigset_t set;
  sigfillset(&set);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&set, faults[i]);
  pthread_sigmask(SIG_BLOCK, &set, before);
}

static int create_thread(pool *const p, const int worker) {
  unsigned char *const guard = p->stacks + (size_t)(worker - 1) * slot_bytes();
  (void)mprotect(guard, PAGE_BYTES,
                 PROT_NONE); /* refused: the pool works, a stack that is too deep is not caught */
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  int code = pthread_attr_setstack(&attributes, guard + PAGE_BYTES, STACK_BYTES);
  p->starts[worker] = (worker_start){p, worker};
  if (!code) code = pthread_create(&p->threads[worker], &attributes, work, &p->starts[worker]);
  pthread_attr_destroy(&attributes);
  if (code) return code;
  char name[24];
  snprintf(name, sizeof name, "stint-%d", worker);
  pthread_setname_np(p->threads[worker], name);
  return 0;
}

static void nothing(void *const context, const int worker, const int workers) {
  (void)context;
  (void)worker;
  (void)workers;
}

/* Lets the new threads go on; what was written before is seen by them. */
static void open_gate(pool *const p) {
  atomic_store(&p->generation, 1);
  if (atomic_load(&p->sleepers))
    syscall(SYS_futex, &p->generation, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Waits for threads 1 .. n_threads, which are on their way out; n_slots of the stacks have a guard page. */
static void join(pool *const p, const int n_threads, const int n_slots) {
  for (int i = 1; i <= n_threads; i++) pthread_join(p->threads[i], NULL);
  for (int i = 0; i < n_slots; i++) {
    (void)mprotect(p->stacks + (size_t)i * slot_bytes(), PAGE_BYTES, PROT_READ | PROT_WRITE);
  }
}

stint_status pool_start(void *const buffer, const int workers, pool **const out, stint_error *const error) {
  *out = NULL;
  if (!pool_bytes(workers)) {
    return stint_fail(error, STINT_BAD_INPUT, "%d threads: give a number from 1 to %d", workers,
                      POOL_MAX_WORKERS);
  }
  if (!buffer || (uintptr_t)buffer % PAGE_BYTES) {
    return stint_fail(error, STINT_INTERNAL, "the workers' memory does not begin at a page");
  }
  pool *const p = buffer;
  memset(p, 0, sizeof *p);
  p->workers = workers;
  p->looks = (unsigned)workers <= allowed_processors() ? LOOKS : 0;
  p->stacks = (unsigned char *)buffer + head_bytes();

  sigset_t before;
  block_signals(&before);
  int code = 0, n_threads = 0;
  while (n_threads + 1 < workers && !(code = create_thread(p, n_threads + 1))) n_threads++;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  p->stop = code != 0;
  open_gate(p);
  if (code) {
    join(p, n_threads, n_threads + 1);
    return stint_fail(error, STINT_NO_MEMORY,
                      "thread %d of %d: %s; ask for fewer threads, or raise ulimit -u", n_threads + 1,
                      workers, strerror(code));
  }
  pool_run(p, nothing, NULL); /* every thread has started and has what it needs */
  *out = p;
  return STINT_OK;
}

void pool_stop(pool *const p) {
  if (!p) return;
  p->stop = true;
  pool_barrier(p);
  join(p, p->workers - 1, p->workers - 1);
}
