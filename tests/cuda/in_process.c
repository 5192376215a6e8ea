/* Linked into a test beside the emulated device: device_load gives the module that is linked in, and looks for none. Only
 * here can be asked what the module left behind, and can an allocation be smuggled into a capture. */
#include <criterion/criterion.h>

#include <string.h>

#include "engine/exec/device_load.h"
#include "tests/cuemu/cuemu_control.h"

__attribute__((constructor)) static void in_process(void) { device_load_set(&stint_cuda_module); }

void device_released(void);
void device_released(void) {
  const cuemu_counts c = cuemu_count();
  cr_assert(c.mallocs == 1 && c.pinned_mallocs == 1, "%llu allocations on the device, %llu pinned",
            (unsigned long long)c.mallocs, (unsigned long long)c.pinned_mallocs);
  cr_assert(c.live_allocations == 0 && c.live_streams == 0 && c.live_graphs == 0 && c.live_handles == 0,
            "left open: %u allocations, %u streams, %u graphs, %u handles", c.live_allocations,
            c.live_streams, c.live_graphs, c.live_handles);
  cr_assert(cuemu_misuses() == 0 && cuemu_faults() == 0, "%s", cuemu_text());
}

/* The toolkit's prototypes, as C sees them. */
extern int cudaMallocAsync(void **out, size_t bytes, void *stream);

static const device_module *const m = &stint_cuda_module;

static device *opened(const bool fast, unsigned char **memory) {
  device *d = NULL;
  device_info info;
  stint_error error = {0};
  void *base = NULL, *pinned = NULL;
  cr_assert_eq(m->open(fast, &d, &info, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(m->take(d, 1 << 20, 4096, 0, 0, &base, &pinned, &error), STINT_OK, "%s", error.text);
  *memory = base;
  return d;
}

static void is_defect(const stint_status status, const stint_error *error, const char *told) {
  cr_assert(status == STINT_INTERNAL && strstr(error->text, told), "status %d: %s", (int)status, error->text);
}

Test(device_module, capture_with_an_allocation_is_refused) {
  unsigned char *memory;
  device *const d = opened(false, &memory);
  stint_error error = {0};
  device_graph *graph = (device_graph *)1;
  void *smuggled;
  cr_assert_eq(m->capture_begin(d, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(cudaMallocAsync(&smuggled, 256, m->queue(d)->stream), 0);
  is_defect(m->capture_end(d, &graph, &error), &error, "allocates device memory");
  cr_assert_null(graph);
  m->close(d);
}

Test(device_module, order_of_calls) {
  unsigned char *memory, here[16] = {0};
  device *const d = opened(false, &memory), *second = NULL;
  device_info info;
  stint_error error = {0};
  void *base, *pinned;
  is_defect(m->open(false, &second, &info, &error), &error, "open already");
  is_defect(m->take(d, 256, 0, 0, 0, &base, &pinned, &error), &error, "taken already");
  is_defect(m->upload(d, memory + (1 << 20) - 8, here, 16, &error), &error, "not inside");
  is_defect(m->download(d, here, memory - 1, 1, &error), &error, "not inside");
  is_defect(m->run(d, NULL, &error), &error, "no graph");
  cr_assert_eq(m->capture_begin(d, &error), STINT_OK, "%s", error.text);
  is_defect(m->capture_begin(d, &error), &error, "begun already");
  is_defect(m->upload(d, memory, here, 16, &error), &error, "inside a capture");
  m->close(d); /* inside a capture */
  cr_assert_eq(cuemu_count().live_graphs, 0);
  cr_assert_eq(cuemu_count().live_allocations, 0);
}

/* What a launch latched is told once, with the op's name; then the device goes on. */
Test(device_module, latched_failure) {
  unsigned char *memory;
  device *const d = opened(false, &memory);
  stint_error error = {0};
  m->queue(d)->error = 1;
  m->queue(d)->where = "some_op";
  is_defect(m->wait(d, &error), &error, "some_op");
  cr_assert_eq(m->wait(d, &error), STINT_OK, "%s", error.text);
  m->close(d);
  device_released();
}

Test(device_module, too_large) {
  device *d = NULL;
  device_info info;
  stint_error error = {0};
  void *base, *pinned;
  cuemu_set_memory((size_t)64 << 20);
  cr_assert_eq(m->open(false, &d, &info, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(info.total_bytes, (size_t)64 << 20);
  cr_assert_eq(m->take(d, (size_t)65 << 20, 0, 0, 0, &base, &pinned, &error), STINT_NO_MEMORY);
  cr_assert(strstr(error.text, "68157440 bytes") != NULL, "%s", error.text);
  m->close(d);
}
