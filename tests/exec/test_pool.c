/* The worker pool: every worker takes part once, the barrier orders plain memory, threads start and end cleanly on the
 * caller's memory, signals stay with the caller, and the floating-point state of a job is the default one. */
#include "engine/exec/pool.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

enum { MOST = 7 };

typedef struct seen {
  pool *p;
  int calls[MOST], workers[MOST];
  uintptr_t stack[MOST];
  uint64_t slot[2][MOST], wrong;
  int blocked[MOST];
  unsigned csr[MOST];
  char name[MOST][16];
} seen;

static void *pages(const size_t bytes) {
  void *const at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(at, MAP_FAILED);
  return at;
}

static int n_threads(void) {
  DIR *const d = opendir("/proc/self/task");
  cr_assert_not_null(d);
  int n = 0;
  for (const struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
  closedir(d);
  return n;
}

static void record(void *const context, const int worker, const int workers) {
  seen *const s = context;
  int here = 0;
  s->calls[worker]++;
  s->workers[worker] = workers;
  s->stack[worker] = (uintptr_t)&here;
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, NULL, &mask);
  s->blocked[worker] = sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM) &&
                       sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGSEGV) &&
                       !sigismember(&mask, SIGBUS);
  pthread_getname_np(pthread_self(), s->name[worker], sizeof s->name[worker]);
#if defined(__SSE__)
  s->csr[worker] = _mm_getcsr() & ~0x3fu; /* without the flags of past operations */
#endif
}

Test(pool, every_worker_runs_a_job_once_on_a_stack_of_the_buffer) {
  for (int workers = 1; workers <= MOST; workers++) {
    const int before = n_threads();
    const size_t bytes = pool_bytes(workers);
    unsigned char *const buffer = pages(bytes);
    seen s = {0};
    stint_error error;
    cr_assert_eq(pool_start(buffer, workers, &s.p, &error), STINT_OK, "%d workers", workers);
    cr_assert_eq(pool_workers(s.p), workers);
    cr_assert_eq(n_threads(), before + workers - 1, "%d workers: threads", workers);
    for (int run = 0; run < 3; run++) pool_run(s.p, record, &s);
    for (int w = 0; w < workers; w++) {
      cr_assert_eq(s.calls[w], 3, "%d workers: worker %d ran %d times", workers, w, s.calls[w]);
      cr_assert_eq(s.workers[w], workers);
      const uintptr_t from = (uintptr_t)buffer;
      const int inside = s.stack[w] >= from && s.stack[w] < from + bytes;
      cr_assert_eq(inside, w > 0, "%d workers: worker %d's stack is %s the buffer", workers, w,
                   inside ? "in" : "not in");
    }
    pool_stop(s.p);
    /* a joined thread may show in /proc for a moment longer */
    for (int i = 0; i < 1000 && n_threads() != before; i++) usleep(1000);
    cr_assert_eq(n_threads(), before, "%d workers: threads after the end", workers);
    memset(buffer, 0x5a, bytes); /* all of it is the caller's again, guard pages too */
    munmap(buffer, bytes);
  }
}

static void relay(void *const context, const int worker, const int workers) {
  seen *const s = context;
  uint64_t mine = 1;
  for (int phase = 0; phase < 1000; phase++) {
    s->slot[phase & 1][worker] = mine;
    pool_barrier(s->p);
    uint64_t sum = 0;
    for (int w = 0; w < workers; w++) sum += s->slot[phase & 1][w];
    if (sum != mine * (uint64_t)workers) s->wrong++;
    mine = sum % 1000003 + 1;
  }
}

Test(pool, what_is_written_before_a_barrier_is_seen_after_it) {
  for (int workers = 1; workers <= MOST; workers += 2) {
    void *const buffer = pages(pool_bytes(workers));
    seen s = {0};
    cr_assert_eq(pool_start(buffer, workers, &s.p, NULL), STINT_OK);
    for (int run = 0; run < 5; run++) pool_run(s.p, relay, &s);
    pool_stop(s.p);
    cr_assert_eq(s.wrong, 0, "%d workers: %llu stale reads", workers, (unsigned long long)s.wrong);
    munmap(buffer, pool_bytes(workers));
  }
}

Test(pool, workers_block_signals_and_keep_their_names) {
  void *const buffer = pages(pool_bytes(3));
  seen s = {0};
  cr_assert_eq(pool_start(buffer, 3, &s.p, NULL), STINT_OK);
  pool_run(s.p, record, &s);
  pool_stop(s.p);
  cr_assert_not(s.blocked[0], "the caller's own mask was changed");
  for (int w = 1; w < 3; w++) cr_assert(s.blocked[w], "worker %d takes signals, or blocks its own faults", w);
  cr_assert_str_eq(s.name[2], "stint-2");
  munmap(buffer, pool_bytes(3));
}

#if defined(__SSE__)
Test(pool, a_job_rounds_to_nearest_and_keeps_subnormals_whatever_the_caller_set) {
  const unsigned before = _mm_getcsr();
  const unsigned odd =
      (before & ~0x3fu) | 0x8040 | 0x6000; /* flush to zero, denormals are zero, round toward zero */
  _mm_setcsr(odd);
  void *const buffer = pages(pool_bytes(3));
  seen s = {0};
  cr_assert_eq(pool_start(buffer, 3, &s.p, NULL), STINT_OK);
  pool_run(s.p, record, &s);
  pool_stop(s.p);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  cr_assert_eq(after & ~0x3fu, odd & ~0x3fu, "the caller's state was not given back");
  for (int w = 0; w < 3; w++) cr_assert_eq(s.csr[w], 0x1f80, "worker %d runs under %#x", w, s.csr[w]);
  munmap(buffer, pool_bytes(3));
}
#endif

Test(pool, refuses_what_it_cannot_do) {
  cr_assert_eq(pool_bytes(0), 0);
  cr_assert_eq(pool_bytes(-1), 0);
  cr_assert_eq(pool_bytes(POOL_MAX_WORKERS + 1), 0);
  cr_assert_neq(pool_bytes(POOL_MAX_WORKERS), 0);
  for (int n = 1; n <= POOL_MAX_WORKERS; n++) cr_assert_eq(pool_bytes(n) % 4096, 0, "%d workers", n);
  unsigned char *const buffer = pages(pool_bytes(2) + 4096);
  pool *p = (pool *)buffer;
  stint_error error = {0};
  cr_assert_eq(pool_start(buffer, 0, &p, &error), STINT_BAD_INPUT);
  cr_assert_null(p);
  cr_assert(strstr(error.text, "0 threads"), "%s", error.text);
  p = (pool *)buffer;
  cr_assert_eq(pool_start(buffer + 64, 2, &p, &error), STINT_INTERNAL, "a buffer that is not page-aligned");
  cr_assert_null(p);
  pool_stop(NULL);
}
