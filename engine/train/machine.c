/* Asking the system, through small fixed buffers. */
#include "engine/train/machine.h"

#include "engine/exec/device_load.h"
#include "kernels/dispatch.h"
#include "plans/devices.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* A small file of the system as text; false when it cannot be read. */
static bool read_text(const char *const path, char *const text, const size_t room) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t n = read(fd, text, room - 1);
  close(fd);
  if (n <= 0) return false;
  text[n] = 0;
  return true;
}

/* The number behind `key` in a small file (key "": at its start); UINT64_MAX when there is none. */
static uint64_t read_number(const char *const path, const char *const key) {
  char text[4096];
  if (!read_text(path, text, sizeof text)) return UINT64_MAX;
  const char *const at = strstr(text, key);
  if (!at) return UINT64_MAX;
  char *end;
  const char *const digits = at + strlen(key);
  const uint64_t value = strtoull(digits, &end, 10);
  return end == digits ? UINT64_MAX : value; /* "max": no limit */
}

static uint64_t smaller(const uint64_t a, const uint64_t b) { return a < b ? a : b; }

/* What one control group still allows: limit less use. */
static uint64_t group_left(const char *const folder, const char *const limit_name,
                           const char *const use_name) {
  char path[640];
  snprintf(path, sizeof path, "%s/%s", folder, limit_name);
  const uint64_t limit = read_number(path, "");
  if (limit == UINT64_MAX) return UINT64_MAX;
  snprintf(path, sizeof path, "%s/%s", folder, use_name);
  const uint64_t used = read_number(path, "");
  return used == UINT64_MAX ? limit : used > limit ? 0 : limit - used;
}

/* The tightest of this process's memory control group and those above it. `marker` begins the group's path in
 * /proc/self/cgroup ("0::" for version 2, ":memory:" for version 1). */
static uint64_t groups_left(const char *const marker, const char *const mount, const char *const limit_name,
                            const char *const use_name) {
  char text[4096], folder[512];
  if (!read_text("/proc/self/cgroup", text, sizeof text)) return UINT64_MAX;
  const char *const at = strstr(text, marker);
  if (!at) return UINT64_MAX;
  const char *const path = at + strlen(marker);
  snprintf(folder, sizeof folder, "%s%.*s", mount, (int)strcspn(path, "\n"), path);
  uint64_t left = UINT64_MAX;
  for (;;) {
    left = smaller(left, group_left(folder, limit_name, use_name));
    char *const slash = strrchr(folder, '/');
    if (!slash || slash < folder + strlen(mount)) return left;
    *slash = 0;
  }
}

uint64_t machine_memory_bytes(void) {
  uint64_t bytes = read_number("/proc/meminfo", "MemAvailable:");
  if (bytes != UINT64_MAX) bytes *= 1024;
  bytes = smaller(bytes, groups_left("0::", "/sys/fs/cgroup", "memory.max", "memory.current"));
  bytes = smaller(bytes, groups_left(":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                     "memory.usage_in_bytes"));
  struct rlimit address_space;
  if (getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY)
    bytes = smaller(bytes, (uint64_t)address_space.rlim_cur);
  return bytes;
}

static stint_status fail_unknown_device(const char *const name, stint_error *const error) {
  char known[512] = "";
  size_t n = 0;
  for (size_t i = 0; device_figures_at(i) && n < sizeof known; i++)
    n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", device_figures_at(i)->name);
  return stint_fail(error, STINT_BAD_INPUT,
                    "--gpu '%s' is not in the table (%s); state --device-memory instead", name, known);
}

stint_status machine_device_memory(const stint_options *const o, uint64_t *const bytes,
                                   stint_error *const error) {
  *bytes = o->device_memory_bytes;
  if (*bytes) return STINT_OK;
  if (o->device_name) {
    const device_figures *const figures = device_figures_find(o->device_name);
    if (!figures) return fail_unknown_device(o->device_name, error);
    *bytes = device_plannable_bytes(figures->memory_bytes);
    return STINT_OK;
  }
  const device_module *module;
  device *d;
  device_info info;
  STINT_TRY(device_load(&module, error));
  STINT_TRY(module->open(o->numerics == STINT_FAST, &d, &info, error));
  *bytes = info.free_bytes;
  module->close(d);
  return STINT_OK;
}

int machine_processors(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int n = CPU_COUNT(&set);
  return n < 1 ? 1 : n;
}

double machine_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Each worker times itself, so neither waking up nor a neighbour on its core counts; the best of many short trials. */
enum { PEAK_TRIALS = 64, PEAK_ROUNDS = 100000 };

typedef struct peak_job {
  cpu_peak_loop *loop;
  double flops_per_round;
  double best[POOL_MAX_WORKERS];
} peak_job;

static void run_peak(void *const context, const int worker, const int workers) {
  (void)workers;
  peak_job *const job = context;
  for (int i = 0; i < PEAK_TRIALS; i++) {
    const double start = machine_seconds();
    job->loop(PEAK_ROUNDS);
    const double rate = job->flops_per_round * PEAK_ROUNDS / (machine_seconds() - start);
    if (rate > job->best[worker]) job->best[worker] = rate;
  }
}

double machine_peak_flops(const unsigned cpu_mask, pool *const workers) {
  peak_job job = {0};
  job.loop = cpu_peak(cpu_mask, &job.flops_per_round);
  pool_run(workers, run_peak, &job);
  double sum = 0;
  for (int i = 0; i < pool_workers(workers); i++) sum += job.best[i];
  const int processors = machine_processors(), n = pool_workers(workers);
  return n > processors ? sum * processors / n : sum;
}
