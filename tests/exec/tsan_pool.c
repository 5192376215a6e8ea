/* The pool under ThreadSanitizer: a plain main, for Criterion cannot start there. The same program runs in ordinary
 * builds too, as a quick stress of the barrier. Prints what broke and ends with 1, or ends with 0. */
#include "engine/exec/pool.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

enum { MOST = 8, PHASES = 300, JOBS = 20 };

typedef struct relay { /* plain memory, ordered by nothing but the barrier */
  pool *p;
  uint64_t slot[2][MOST];
  uint64_t wrong;
} relay;

/* In each phase a worker reads what all the others wrote in the phase before. */
static void run_relay(void *const context, const int worker, const int workers) {
  relay *const r = context;
  uint64_t mine = 1;
  for (int phase = 0; phase < PHASES; phase++) {
    r->slot[phase & 1][worker] = mine;
    pool_barrier(r->p);
    uint64_t sum = 0;
    for (int w = 0; w < workers; w++) sum += r->slot[phase & 1][w];
    if (sum != mine * (uint64_t)workers) r->wrong = 1 + (uint64_t)phase;
    mine = sum % 1000003 + 1;
  }
}

int main(void) {
  for (int workers = 1; workers <= MOST; workers = workers < 3 ? workers + 1 : workers + 5) {
    const size_t bytes = pool_bytes(workers);
    void *const buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED) return perror("mmap"), 1;
    stint_error error;
    relay r = {0};
    if (pool_start(buffer, workers, &r.p, &error) != STINT_OK) return fprintf(stderr, "%s\n", error.text), 1;
    for (int job = 0; job < JOBS; job++) pool_run(r.p, run_relay, &r);
    pool_stop(r.p);
    munmap(buffer, bytes);
    if (r.wrong) {
      fprintf(stderr, "%d workers: a phase saw stale data (phase %llu)\n", workers,
              (unsigned long long)r.wrong - 1);
      return 1;
    }
  }
  return 0;
}
