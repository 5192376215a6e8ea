/* Finding the device module: libstint-cuda, looked for when a device is asked for and never before. */
#ifndef STINT_ENGINE_EXEC_DEVICE_LOAD_H
#define STINT_ENGINE_EXEC_DEVICE_LOAD_H

#include "engine/exec/device.h"

/* The module, loaded once for the process and never unloaded. BAD_INPUT: absent or of another version, with the remedy.
 *
 * Looked for in: the file named by the environment's STINT_CUDA_MODULE and nowhere else when that is set; the folder of
 * the library (or program) that holds this function; the loader's own path. */
stint_status device_load(const device_module **out, stint_error *error);

/* Tests: from now on device_load gives this one (its version is checked all the same). NULL: back to looking. */
void device_load_set(const device_module *module);

#endif
