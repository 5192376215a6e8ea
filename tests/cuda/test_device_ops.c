/* Every op on the device that the module finds, on the cases of tests/ops: strict gives the reference's bits, contiguous,
 * strided and aliased; fast lies within a bound of it. Skipped where there is no device: tests/gpu.sh runs it where there is one
 * (DEVICE_TEST_OPS=small leaves the large cases out, for the sanitizer).
 *
 * The harness places operands, workspace and guards in a shadow on the host; a launch uploads all of it, runs, and brings all
 * of it back, so that the harness's own checks see a stray write on the device.
 *
 * Bound of fast: products round their factors to TF32 (11 significant bits, 2^-11 relative each; Ampere white paper), sums
 * are float32: by the row metric errors stay near 2^-10; what follows a product in the same op (exp, a
 * difference of two) multiplies that by a few. 2^-6 holds for all and is broken by a wrong index or a missing term. */
#include <math.h>
#include <string.h>

#include "engine/exec/device_load.h"
#include "tests/ops/values.h"

enum {
  ROOM = 128 << 20,
  ROOM_SMALL = 16 << 20,
  BLAS_BYTES = 32 << 20,
  BLAS_BYTES_SMALL = 1 << 20,
  MOST_GRAPHS = 16
};
static const double FAST_BOUND = 0x1p-6;

static const device_module *module;
static device *the_device;
static device_info info;
static bool fast;
static unsigned char *shadow, *memory; /* `room` bytes on the host; on the device */
static size_t used, room;
static int n_graphs;

static bool small_cases(void) {
  const char *const which = getenv("DEVICE_TEST_OPS");
  return which != NULL && strcmp(which, "small") == 0;
}
static double most_operations(void) { return small_cases() ? 2e5 : INFINITY; }

static void no_device(const char *why) {
  if (getenv("DEVICE_TEST_MUST") != NULL) cr_assert_fail("%s", why);
  cr_skip("%s", why);
}

static void open_device(const bool fast_mode) {
  stint_error failure = {0};
  void *base = NULL, *pinned = NULL;
  fast = fast_mode;
  if (device_load(&module, &failure) != STINT_OK ||
      module->open(fast, &the_device, &info, &failure) != STINT_OK)
    no_device(failure.text);
  const size_t blas = !fast ? 0 : small_cases() ? BLAS_BYTES_SMALL : BLAS_BYTES;
  room = small_cases() ? ROOM_SMALL : ROOM;
  cr_assert_eq(module->take(the_device, room + blas, 4096, room, blas, &base, &pinned, &failure), STINT_OK,
               "%s", failure.text);
  cr_assert(pinned != NULL && (uintptr_t)base % 256 == 0);
  memory = base;
  shadow = aligned_alloc(4096, room);
  used = 0;
}

/* The emulated device tells what was left open (in_process.c); a real one is not asked. */
__attribute__((weak)) void device_released(void);

static void close_device(void) {
  module->close(the_device);
  if (device_released != NULL) device_released();
  free(shadow);
}

static void *take(const size_t bytes) {
  unsigned char *const p = shadow + used;
  used += (bytes + 255) / 256 * 256;
  cr_assert(used <= room, "the case needs more than %zu bytes", room);
  return p;
}

static void release(void) { used = 0; }

static size_t workspace(const op_id id, const op_case *const c) {
  return op_workspace(id, c, fast ? BACKEND_CUDA_FAST : BACKEND_CUDA_STRICT, 1);
}

static void *there(const void *const here) {
  return here != NULL ? memory + ((const unsigned char *)here - shadow) : NULL;
}

static const char *launch(const op_id id, const op_case *const c, void *const src[], void *const dst[],
                          void *const work, const unsigned seed) {
  static stint_error failure;
  unsigned char args[1024] __attribute__((aligned(64)));
  void *device_src[OP_MAX_SRC], *device_dst[OP_MAX_DST];
  for (int i = 0; i < OP_MAX_SRC; i++) device_src[i] = there(src[i]);
  for (int j = 0; j < OP_MAX_DST; j++) device_dst[j] = there(dst[j]);
  cuda_launch *const entry = module->launches(the_device)[id];
  if (entry == NULL) return "no CUDA launch";
  if (op_table[id]->args_bytes > sizeof args) return "an operand struct that is too large for the test";
  op_table[id]->bind(args, c, device_src, device_dst, there(work), 1);
  if (module->upload(the_device, memory, shadow, used, &failure) != STINT_OK) return failure.text;
  if (seed % 2 == 1 && n_graphs < MOST_GRAPHS) { /* some by way of a graph */
    device_graph *graph = NULL;
    n_graphs++;
    if (module->capture_begin(the_device, &failure) != STINT_OK) return failure.text;
    entry(args, module->queue(the_device));
    memset(args, 0xff, sizeof args); /* the launch has read them */
    if (module->capture_end(the_device, &graph, &failure) != STINT_OK) return failure.text;
    if (module->run(the_device, graph, &failure) != STINT_OK) return failure.text;
  } else {
    entry(args, module->queue(the_device));
    memset(args, 0xff, sizeof args);
    if (module->wait(the_device, &failure) != STINT_OK) return failure.text;
  }
  return module->download(the_device, shadow, memory, used, &failure) == STINT_OK ? NULL : failure.text;
}

static const ht_device strict_device = {"cuda strict", take, release, workspace, launch};
static const ht_device fast_device = {"cuda fast", take, release, workspace, launch};

static void within(const ht_case *const t, const int j, const unsigned char *const got,
                   const unsigned char *const expect) {
  const op_tensor *const d = &t->c.dst[j];
  double *const a = calloc((size_t)ht_elements(d) + 1, sizeof *a), *const b = calloc(
                                                                       (size_t)ht_elements(d) + 1, sizeof *b);
  ht_raw_to_dense(d, got, a);
  ht_raw_to_dense(d, expect, b);
  const double error = ht_error(a, b, d->ne[0], op_rows(d), true);
  cr_assert(error <= FAST_BOUND, "%s: dst %d is off by %.3g, bound %.3g", t->name, j, error, FAST_BOUND);
  free(a);
  free(b);
}

static void one_fast(const ht_case *const t, const uint64_t seed) {
  unsigned char *expect[OP_MAX_DST] = {0}, *got[OP_MAX_DST] = {0}, *again[OP_MAX_DST] = {0};
  ht_values v = ht_values_make(t, seed);
  for (int j = 0; j < OP_MAX_DST; j++)
    if (op_present(&t->c.dst[j])) {
      expect[j] = malloc(ht_raw_bytes(&t->c.dst[j]) + 1);
      got[j] = malloc(ht_raw_bytes(&t->c.dst[j]) + 1);
      again[j] = malloc(ht_raw_bytes(&t->c.dst[j]) + 1);
    }
  ht_config g = ht_plain(CPU_ALL, 1); /* vector paths give the reference's bits: tests/ops */
  ht_call(t, &v, &g, expect);
  g.device = &fast_device;
  ht_call(t, &v, &g, got);
  ht_call(t, &v, &g, again);
  for (int j = 0; j < OP_MAX_DST; j++) {
    if (got[j] == NULL) continue;
    within(t, j, got[j], expect[j]);
    cr_assert(memcmp(got[j], again[j], ht_raw_bytes(&t->c.dst[j])) == 0,
              "%s: dst %d differs between two calls", t->name, j);
    free(expect[j]);
    free(got[j]);
    free(again[j]);
  }
  ht_values_free(&v);
}

static void strict_op(const op_id id) {
  open_device(false);
  ht_on_device(ht_covered[id], id, &strict_device, most_operations());
  close_device();
}

static void fast_op(const op_id id) {
  open_device(true);
  ht_case t;
  for (int i = 0; ht_covered[id](id, i, &t); i++)
    if (op_flops(id, &t.c) <= most_operations()) one_fast(&t, (uint64_t)i + 1);
  cr_assert(ht_comparisons > 0);
  close_device();
}

#define X(id, name)                                                                                          \
  Test(device_strict, name) { strict_op(OP_##id); }                                                          \
  Test(device_fast, name) { fast_op(OP_##id); }
OP_LIST(X)
#undef X
