/* Finding the device module (device_load.h): dlopen, one symbol, one version. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/exec/device_load.h"

#define MODULE_FILE "libstint-cuda.so"

static const device_module *given, *loaded;

void device_load_set(const device_module *module) { given = module; }

/* The file beside the one that holds this function; false when that cannot be told. */
static bool beside_us(char *out, const size_t room) {
  static const char here; /* an address inside that file (of data: a function's is not a data pointer) */
  Dl_info info;
  if (dladdr(&here, &info) == 0 || info.dli_fname == NULL) return false;
  const char *const slash = strrchr(info.dli_fname, '/');
  if (slash == NULL) return false;
  const int n = snprintf(out, room, "%.*s/" MODULE_FILE, (int)(slash - info.dli_fname), info.dli_fname);
  return n > 0 && (size_t)n < room;
}

static stint_status check(const device_module *module, const char *where, stint_error *error) {
  if (module->version == DEVICE_MODULE_VERSION) return STINT_OK;
  return stint_fail(
      error, STINT_BAD_INPUT,
      "--device cuda: %.300s is of version %d and this stint needs %d; install both from one build", where,
      module->version, DEVICE_MODULE_VERSION);
}

/* Why the loader would not: its own words, which name the file. */
static const char *reason(void) {
  const char *const text = dlerror();
  return text != NULL ? text : "the loader gives no reason";
}

static stint_status symbol_of(void *file, const char *where, const device_module **out, stint_error *error) {
  const device_module *const module = dlsym(file, DEVICE_MODULE_SYMBOL);
  stint_status status;
  if (module == NULL)
    status = stint_fail(error, STINT_BAD_INPUT,
                        "--device cuda: %.300s is not a module of stint: it has no symbol %s", where,
                        DEVICE_MODULE_SYMBOL);
  else
    status = check(module, where, error);
  if (status != STINT_OK) {
    dlclose(file);
    return status;
  }
  *out = loaded = module;
  return STINT_OK;
}

stint_status device_load(const device_module **out, stint_error *error) {
  *out = NULL;
  if (given != NULL) {
    STINT_TRY(check(given, "the module in use", error));
    *out = given;
    return STINT_OK;
  }
  if (loaded != NULL) {
    *out = loaded;
    return STINT_OK;
  }
  const char *const named = getenv("STINT_CUDA_MODULE");
  if (named != NULL && named[0] != '\0') {
    void *const file = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (file != NULL) return symbol_of(file, named, out, error);
    return stint_fail(error, STINT_BAD_INPUT, "--device cuda: STINT_CUDA_MODULE: cannot load it: %.400s",
                      reason());
  }
  /* A file that is there and does not load (cuBLAS missing, say) is told; one that is not there, only at the end. */
  char path[4096];
  if (beside_us(path, sizeof path)) {
    void *const file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (file != NULL) return symbol_of(file, path, out, error);
    const char *const why = reason();
    if (strstr(why, MODULE_FILE ": cannot open shared object file") == NULL)
      return stint_fail(error, STINT_BAD_INPUT, "--device cuda: cannot load the module: %.500s", why);
  }
  void *const file = dlopen(MODULE_FILE, RTLD_NOW | RTLD_LOCAL);
  if (file != NULL) return symbol_of(file, MODULE_FILE, out, error);
  return stint_fail(
      error, STINT_BAD_INPUT,
      "--device cuda: no module " MODULE_FILE " beside stint or on the loader's path (%.300s); build stint "
      "where nvcc is, with -Dcuda=enabled, or name the file in STINT_CUDA_MODULE, or run with --device cpu",
      reason());
}
