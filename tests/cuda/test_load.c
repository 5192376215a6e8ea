/* Finding the device module: what is told when it is absent, is no module, is of another version, or finds no driver. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "engine/exec/device_load.h"

static void refused(const char *told, const char *remedy) {
  const device_module *module = (const device_module *)1;
  stint_error error = {0};
  cr_assert_eq(device_load(&module, &error), STINT_BAD_INPUT);
  cr_assert_null(module);
  cr_assert(strstr(error.text, told), "not told: %s in: %s", told, error.text);
  cr_assert(strstr(error.text, remedy), "no remedy: %s in: %s", remedy, error.text);
}

/* The test's own folder holds no module, and neither does the loader's path. */
Test(device_load, absent) {
  unsetenv("STINT_CUDA_MODULE");
  refused("no module libstint-cuda.so", "--device cpu");
}

Test(device_load, named_file_is_absent) {
  setenv("STINT_CUDA_MODULE", "/nowhere/libstint-cuda.so", 1);
  refused("/nowhere/libstint-cuda.so", "STINT_CUDA_MODULE");
}

Test(device_load, another_library) {
  setenv("STINT_CUDA_MODULE", "libc.so.6", 1);
  refused("libc.so.6 is not a module of stint", DEVICE_MODULE_SYMBOL);
}

Test(device_load, another_version) {
  static const device_module old = {.version = DEVICE_MODULE_VERSION + 1};
  device_load_set(&old);
  refused("version", "from one build");
  device_load_set(NULL);
}

Test(device_load, given) {
  static const device_module mine = {.version = DEVICE_MODULE_VERSION};
  const device_module *module = NULL;
  device_load_set(&mine);
  cr_assert_eq(device_load(&module, NULL), STINT_OK);
  cr_assert_eq(module, &mine);
  device_load_set(NULL);
}

/* The real module, where it was built: loads, is of our version, and opens or says in one sentence why not. */
Test(device_load, real_module) {
  const char *const file = getenv("STINT_BUILT_MODULE");
  if (file == NULL || file[0] == '\0') cr_skip("libstint-cuda was not built (nvcc is not there)");
  setenv("STINT_CUDA_MODULE", file, 1);
  const device_module *module = NULL, *again = NULL;
  stint_error error = {0};
  cr_assert_eq(device_load(&module, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(device_load(&again, &error), STINT_OK);
  cr_assert_eq(module, again);
  for (int fast = 0; fast < 2; fast++) {
    device *d = (device *)1;
    device_info info;
    const stint_status status = module->open(fast != 0, &d, &info, &error);
    if (status == STINT_OK) {
      cr_assert_gt(info.free_bytes, 0);
      cr_assert_gt(info.peak_flops, 0);
      module->close(d);
      continue;
    }
    cr_assert_null(d);
    cr_assert(status == STINT_BAD_INPUT || status == STINT_UNSUPPORTED, "%s", error.text);
    cr_assert(strstr(error.text, "--device cuda: ") == error.text && strstr(error.text, "--device cpu"), "%s",
              error.text);
  }
  module->close(NULL);
}
