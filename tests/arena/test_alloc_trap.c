/* The allocation trap catches what it says that it catches: each allocator, from other threads, through other libraries;
 * and nothing outside its arming. Linked in, and preloaded (STINT_TRAP_PROGRAM and STINT_TRAP_LIBRARY name the two). */
#include "tests/support/alloc_trap.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile sink; /* keeps the compiler from dropping a pair of malloc and free */
static void *volatile old;

static void by_malloc(void) { sink = malloc(10); }
static void by_calloc(void) { sink = calloc(10, 1); }
static void by_realloc(void) { sink = realloc(old, 1000); }
static void by_reallocarray(void) { sink = reallocarray(old, 10, 100); }
static void by_free(void) { free(old); }
static void by_aligned_alloc(void) { sink = aligned_alloc(64, 64); }
static void by_posix_memalign(void) {
  void *block = NULL;
  cr_assert_eq(posix_memalign(&block, 64, 64), 0);
  sink = block;
}
static void by_memalign(void) { sink = memalign(64, 64); }
static void by_valloc(void) { sink = valloc(64); }
static void by_mmap(void) { sink = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static void by_mremap(void) { sink = mremap(old, 4096, 8192, MREMAP_MAYMOVE); }
static void by_sbrk(void) { sink = sbrk(4096); }
static void by_brk(void) { sink = (void *)(intptr_t)brk(sbrk(0)); }
static void by_strdup(void) { sink = strdup("text"); }
static void by_fopen(void) { sink = fopen("/proc/self/maps", "r"); }
static void by_json(void) { sink = json_loads("[1, 2]", 0, NULL); }
static void *thread_body(void *const unused) { return unused; }
static void by_thread(void) {
  pthread_t t;
  cr_assert_eq(pthread_create(&t, NULL, thread_body, NULL), 0);
  pthread_join(t, NULL);
}
static void by_nothing(void) {
  char text[64];
  snprintf(text, sizeof text, "%d", 3);
  free(NULL);
}

static const struct {
  const char *name;
  void (*body)(void);
  int caught;
} cases[] = {
    {"malloc", by_malloc, 1},
    {"calloc", by_calloc, 1},
    {"realloc", by_realloc, 1},
    {"reallocarray", by_reallocarray, 1},
    {"free", by_free, 1},
    {"aligned_alloc", by_aligned_alloc, 1},
    {"posix_memalign", by_posix_memalign, 1},
    {"memalign", by_memalign, 1},
    {"valloc", by_valloc, 1},
    {"mmap", by_mmap, 1},
    {"mremap", by_mremap, 1},
    {"sbrk", by_sbrk, 1},
    {"brk", by_brk, 1},
    {"malloc", by_strdup, 1},
    {"malloc", by_fopen, 1},
    {"malloc", by_json, 1},
    {"pthread_create", by_thread, 1},
    {"nothing", by_nothing, 0},
};

Test(alloc_trap, sees_every_allocator_while_armed_and_none_otherwise) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (cases[i].body == by_mremap) {
      old = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    } else {
      old = malloc(10);
    }
    alloc_trap_reset();
    alloc_trap_arm();
    cases[i].body();
    const uint64_t calls = alloc_trap_disarm();
    char report[4096];
    alloc_trap_report(report, sizeof report);
    if (cases[i].caught) {
      cr_assert_geq(calls, 1, "case %zu, %s, was not seen", i, cases[i].name);
      cr_assert_not_null(strstr(report, cases[i].name), "case %zu, %s: %s", i, cases[i].name, report);
    } else {
      cr_assert_eq(calls, 0, "case %zu, %s: %s", i, cases[i].name, report);
    }
    sink = malloc(10); /* disarmed */
    cr_assert_eq(alloc_trap_disarm(), calls, "case %zu: counted while disarmed", i);
  }
}

static pthread_barrier_t meeting;

static void *allocate_between(void *const unused) {
  pthread_barrier_wait(&meeting);
  sink = malloc(100);
  pthread_barrier_wait(&meeting);
  return unused;
}

Test(alloc_trap, sees_another_thread) {
  pthread_t t;
  pthread_barrier_init(&meeting, NULL, 2);
  cr_assert_eq(pthread_create(&t, NULL, allocate_between, NULL), 0);
  alloc_trap_reset();
  alloc_trap_arm();
  pthread_barrier_wait(&meeting);
  pthread_barrier_wait(&meeting);
  cr_assert_eq(alloc_trap_disarm(), 1);
  pthread_join(t, NULL);
}

/* Runs the program under the preloaded trap; its report, empty when there is none. */
static void run_preloaded(const char *const what, char *const report, const size_t bytes) {
  const char *const program = getenv("STINT_TRAP_PROGRAM"), *const library = getenv("STINT_TRAP_LIBRARY");
  char path[] = "/tmp/stint-trap-XXXXXX", preload[4096], output[4096];
  const int fd = mkstemp(path);
  cr_assert_geq(fd, 0);
  snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library);
  snprintf(output, sizeof output, "STINT_ALLOC_TRAP=%s", path);
  char *const argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)what, NULL};
  char *const environment[] = {preload, output, NULL};
  pid_t child;
  int status;
  cr_assert_eq(posix_spawn(&child, program, NULL, NULL, argv, environment), 0, "cannot start %s", program);
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(WIFEXITED(status) && !WEXITSTATUS(status), "%s %s ended with %#x", program, what, status);
  const ssize_t n = read(fd, report, bytes - 1);
  report[n > 0 ? n : 0] = 0;
  close(fd);
  unlink(path);
}

Test(alloc_trap, preloaded_it_sees_between_the_marks) {
  if (!getenv("STINT_TRAP_PROGRAM") || !getenv("STINT_TRAP_LIBRARY")) {
    cr_skip("STINT_TRAP_PROGRAM and STINT_TRAP_LIBRARY are not set; meson test sets them");
  }
  char report[8192];
  run_preloaded("nothing", report, sizeof report);
  cr_assert_str_eq(report, "alloc-trap: 0 calls in 1 armings\n");
  static const char *const caught[] = {"malloc", "thread", "json", "fopen"};
  for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
    run_preloaded(caught[i], report, sizeof report);
    unsigned long long calls = 0;
    cr_assert_eq(sscanf(report, "alloc-trap: %llu calls in 1 armings\n", &calls), 1, "%s: %s", caught[i],
                 report);
    cr_assert_geq(calls, 1, "%s was not seen", caught[i]);
    cr_assert_not_null(strstr(report, "malloc("), "%s: %s", caught[i], report);
  }
}
