/* The program that test_alloc_trap.c runs under the preloaded trap: argv[1] says what it does between the marks. */
#include <jansson.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/arena/trap_marks.h"

static void *volatile sink;
static sem_t go, done;

static void *on_thread(void *const unused) {
  (void)unused;
  sem_wait(&go);
  sink = malloc(100);
  sem_post(&done);
  sem_wait(&go);
  return NULL;
}

static void does_nothing(void) {}
static void allocates(void) { sink = malloc(100); }
static void another_thread(void) {
  sem_post(&go);
  sem_wait(&done);
}
static void json_library(void) { sink = json_loads("[1, 2]", 0, NULL); }
static void c_library(void) { sink = fopen("/proc/self/maps", "r"); }

int main(const int argc, char **const argv) {
  static const struct {
    const char *name;
    void (*body)(void);
  } bodies[] = {{"nothing", does_nothing},
                {"malloc", allocates},
                {"thread", another_thread},
                {"json", json_library},
                {"fopen", c_library}};
  pthread_t thread;
  sem_init(&go, 0, 0);
  sem_init(&done, 0, 0);
  if (argc != 2 || pthread_create(&thread, NULL, on_thread, NULL)) return 2;
  sink = malloc(100); /* before and after the marks anything may be allocated */
  int found = 0;
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
    if (strcmp(argv[1], bodies[i].name)) continue;
    marks_around(bodies[i].body);
    found = 1;
  }
  sink = malloc(100);
  sem_post(&go);
  sem_post(&go);
  pthread_join(thread, NULL);
  return !found;
}
