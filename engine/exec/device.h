/* A device that runs schedules, as the engine sees it: one structure of calls, exported by a module that is loaded when
 * the device is asked for. The real module is libstint-cuda; tests link the same sources over an emulated device.
 *
 * Order of calls: open, take (the only allocation on the device and the only pinned one), upload, capture each range once,
 * then only run and copies; close. Everything is on one stream; every call but a launch inside a capture waits until
 * the device is done. */
#ifndef STINT_ENGINE_EXEC_DEVICE_H
#define STINT_ENGINE_EXEC_DEVICE_H

#include "arena/status.h"
#include "kernels/cuda/launch.h"

enum { DEVICE_MODULE_VERSION = 1 };

typedef struct device device;
typedef struct device_graph device_graph;

typedef struct device_info {
  char name[128];
  size_t total_bytes, free_bytes; /* free: after the context and the libraries were loaded */
  size_t context_bytes; /* what context, kernels and libraries took: measured, apart from the plan */
  double peak_flops;    /* float32 operations a second that the hardware can do */
} device_info;

/* What a launch may touch. */
typedef struct device_operand {
  const void *address; /* on the device */
  size_t bytes;
  bool written;
} device_operand;

typedef struct device_module {
  int version; /* DEVICE_MODULE_VERSION */
  /* Creates context, stream and (fast) the cuBLAS handle, loads every kernel. BAD_INPUT: no device or no driver, with the remedy. */
  stint_status (*open)(bool fast, device **out, device_info *info, stint_error *error);
  /* One reservation on the device (256-byte aligned) and one pinned on the host. `blas_workspace` is the part of the device's
   * reservation, by offset and size, that cuBLAS may use (size 0: none). NO_MEMORY with the numbers. */
  stint_status (*take)(device *d, size_t device_bytes, size_t pinned_bytes, size_t blas_offset,
                       size_t blas_bytes, void **device_base, void **pinned_base, stint_error *error);
  stint_status (*upload)(device *d, void *to_device, const void *from_host, size_t bytes, stint_error *error);
  stint_status (*download)(device *d, void *to_host, const void *from_device, size_t bytes,
                           stint_error *error);
  cuda_launch *const *(*launches)(device *d); /* [OP_COUNT]; NULL entries: unsupported */
  cuda_queue *(*queue)(device *d);
  /* Between begin and end every launch on the queue is recorded. end instantiates and uploads the graph, and refuses one
   * that holds an allocation node. */
  stint_status (*capture_begin)(device *d, stint_error *error);
  stint_status (*capture_end)(device *d, device_graph **out, stint_error *error);
  stint_status (*run)(device *d, device_graph *graph, stint_error *error); /* returns when it is done */
  stint_status (*wait)(device *d, stint_error *error); /* for launches outside a capture */
  void (*close)(device *d);                            /* graphs, memory, stream, handle; NULL: nothing */
  /* Optional (NULL on a real device): told before each launch which ranges are its operands; an emulated device makes
   * everything else unreachable for it, in a captured launch too. NULL and 0: everything is reachable. */
  void (*operands)(const device_operand *list, int n);
} device_module;

/* The symbol that a module exports. */
#define DEVICE_MODULE_SYMBOL "stint_cuda_module"
extern const device_module stint_cuda_module;

#endif
