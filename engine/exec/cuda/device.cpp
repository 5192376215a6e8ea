/* The CUDA device module: engine/exec/device.h over the CUDA runtime and cuBLAS.
 *
 * One device, one stream, one reservation on the device and one pinned on the host. Everything that would take memory
 * later is brought about here first: every kernel is loaded at open (engine/exec/cuda/kernels.cpp lists them), every kind of
 * cuBLAS product is run once at take, and a graph is instantiated and uploaded when its capture ends. A graph is walked and
 * refused unless each node is a launch, a copy or a fill, so that a run can neither allocate nor call back.
 *
 * Invariants: the stream of the cuBLAS handle and its workspace are set together (setting the stream alone makes cuBLAS
 * forget the workspace); a range that is copied lies inside the reservation; the first failure of a launch stays
 * in the queue until it has been told. The module keeps its one device in static storage and calls no allocator itself.
 *
 * The same source compiles against tests/cuemu (STINT_CUEMU), whose header stands in for the toolkit's two. */
#ifdef STINT_CUEMU
#include "tests/cuemu/cuemu_api.h"
#include "tests/cuemu/cuemu_control.h"
#else
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#endif

#include <cstdio>

#include "engine/exec/cuda/kernels.h"
#include "engine/exec/device.h"
#include "kernels/cuda/register.h"

enum { MAX_GRAPHS = 32, MAX_NODES = 1 << 17, OLDEST_MAJOR = 8, BLAS_ERRORS = 1000 };
static const size_t ALIGNMENT = 256;

struct device_graph {
  cudaGraphExec_t exec; /* NULL: the slot is free */
};

struct device {
  bool open, fast, capturing;
  cudaStream_t stream;
  cublasHandle_t blas;
  cuda_queue queue;
  cuda_launch *launches[OP_COUNT];
  char *memory, *pinned; /* the two reservations */
  size_t memory_bytes, pinned_bytes, blas_offset, blas_bytes;
  device_graph graphs[MAX_GRAPHS];
};

static device the_device;
static cudaGraphNode_t
    nodes[MAX_NODES]; /* of the graph that is walked; pages that no graph needs stay untouched */

/* ---- failures ---- */

static stint_status runtime_failed(const char *what, const cudaError_t e, stint_error *error) {
  const stint_status status = e == cudaErrorMemoryAllocation ? STINT_NO_MEMORY : STINT_INTERNAL;
  return stint_fail(error, status, "CUDA: %s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

static stint_status blas_failed(const char *what, const cublasStatus_t s, stint_error *error) {
  const stint_status status = s == CUBLAS_STATUS_ALLOC_FAILED ? STINT_NO_MEMORY : STINT_INTERNAL;
  return stint_fail(error, status, "cuBLAS: %s: %s", what, cublasGetStatusString(s));
}

#define RUNTIME(what, call)                                                                                  \
  do {                                                                                                       \
    const cudaError_t e_ = (call);                                                                           \
    if (e_ != cudaSuccess) return runtime_failed(what, e_, error);                                           \
  } while (0)
#define BLAS(what, call)                                                                                     \
  do {                                                                                                       \
    const cublasStatus_t s_ = (call);                                                                        \
    if (s_ != CUBLAS_STATUS_SUCCESS) return blas_failed(what, s_, error);                                    \
  } while (0)

/* What a launch has latched: told once. */
static stint_status launch_failed(device *d, stint_error *error) {
  const int latched = d->queue.error;
  const char *const op = d->queue.where != nullptr ? d->queue.where : "a launch";
  d->queue.error = 0;
  d->queue.where = nullptr;
  if (latched == 0) return STINT_OK;
  cudaGetLastError(); /* the runtime's own latch */
  if (latched >= BLAS_ERRORS) return blas_failed(op, (cublasStatus_t)(latched - BLAS_ERRORS), error);
  return runtime_failed(op, (cudaError_t)latched, error);
}

/* Waits for the stream, and tells the first thing that went wrong on it. */
static stint_status settle(device *d, const char *what, stint_error *error) {
  const cudaError_t e = cudaStreamSynchronize(d->stream);
  STINT_TRY(launch_failed(d, error));
  RUNTIME(what, e);
  return STINT_OK;
}

/* ---- opening ---- */

static stint_status find_device(stint_error *error) {
  int n = 0, driver = 0, runtime = 0;
  const cudaError_t e = cudaGetDeviceCount(&n);
  if (e == cudaSuccess && n > 0) return STINT_OK;
  cudaGetLastError();
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0)
    return stint_fail(
        error, STINT_BAD_INPUT,
        "--device cuda: this machine has no NVIDIA driver; install one, or run with --device cpu");
  if (e == cudaErrorInsufficientDriver)
    return stint_fail(
        error, STINT_BAD_INPUT,
        "--device cuda: the NVIDIA driver offers CUDA %d.%d and stint was built with %d.%d; install a "
        "newer driver, or run with --device cpu",
        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  return stint_fail(
      error, STINT_BAD_INPUT,
      "--device cuda: no usable CUDA device (%s); see nvidia-smi and CUDA_VISIBLE_DEVICES, or run with "
      "--device cpu",
      e == cudaSuccess ? "none is visible" : cudaGetErrorString(e));
}

/* float32 operations that a multiprocessor ends in a clock: two for each of its lanes (CUDA C++ Programming Guide, table
 * "Throughput of Native Arithmetic Instructions"). */
static double flops_per_clock(const int major, const int minor) {
  return major == 8 && minor == 0 ? 2 * 64 : 2 * 128;
}

static stint_status describe(device_info *info, stint_error *error) {
  int major = 0, minor = 0, processors = 0, kilohertz = 0;
  static cudaDeviceProp properties; /* a kilobyte: not for a small stack */
  RUNTIME("reading the device's properties", cudaGetDeviceProperties(&properties, 0));
  RUNTIME("reading the device's generation",
          cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  RUNTIME("reading the device's generation",
          cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  RUNTIME("reading the device's size",
          cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  RUNTIME("reading the device's clock", cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, 0));
  snprintf(info->name, sizeof info->name, "%.120s", properties.name);
  info->peak_flops = flops_per_clock(major, minor) * processors * kilohertz * 1e3;
  if (major >= OLDEST_MAJOR) return STINT_OK;
  return stint_fail(
      error, STINT_UNSUPPORTED,
      "--device cuda: %s has compute capability %d.%d and stint needs %d.0 or newer (Ampere); run with "
      "--device cpu",
      info->name, major, minor, OLDEST_MAJOR);
}

/* Loads every kernel: CUDA loads one when it is first used, which would be inside a step. */
static stint_status load_kernels(const device_info *info, stint_error *error) {
  for (int i = 0; i < cuda_kernels(); i++) {
    cudaFuncAttributes attributes;
    const cudaError_t e = cudaFuncGetAttributes(&attributes, cuda_kernel(i));
    if (e == cudaErrorMemoryAllocation) return runtime_failed(cuda_kernel_name(i), e, error);
    if (e != cudaSuccess)
      return stint_fail(
          error, STINT_UNSUPPORTED,
          "--device cuda: the module's code does not load on %s (%s); build stint with -Dgpu_arch= and "
          "this device's architecture",
          info->name, cudaGetErrorString(e));
  }
  return STINT_OK;
}

/* The one place that sets the handle's stream. */
static stint_status bind_blas(device *d, stint_error *error) {
  if (d->blas == nullptr) return STINT_OK;
  BLAS("setting the stream", cublasSetStream(d->blas, d->stream));
  if (d->blas_bytes > 0)
    BLAS("setting the workspace", cublasSetWorkspace(d->blas, d->memory + d->blas_offset, d->blas_bytes));
  return STINT_OK;
}

static stint_status open_parts(device *d, device_info *info, stint_error *error) {
  STINT_TRY(find_device(error));
  RUNTIME("choosing the device", cudaSetDevice(0));
  STINT_TRY(describe(info, error));
  RUNTIME("making a stream", cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
  if (d->fast) {
    BLAS("opening", cublasCreate(&d->blas));
    BLAS("asking for the same bits every time", cublasSetAtomicsMode(d->blas, CUBLAS_ATOMICS_NOT_ALLOWED));
    STINT_TRY(bind_blas(d, error));
  }
  STINT_TRY(load_kernels(info, error));
  d->queue.stream = d->stream;
  d->queue.blas = d->blas;
  cuda_launches(d->fast, d->launches);
  RUNTIME("reading the free memory", cudaMemGetInfo(&info->free_bytes, &info->total_bytes));
  /* A context has no size before it is there: what is in use now is its own, the kernels', the libraries', and (they cannot
   * be told apart from inside) that of other processes on the device. */
  info->context_bytes = info->total_bytes - info->free_bytes;
  return STINT_OK;
}

static void device_close(device *d) {
  if (d == nullptr || !d->open) return;
  if (d->capturing) {
    cudaGraph_t begun = nullptr;
    cudaStreamEndCapture(d->stream, &begun);
    if (begun != nullptr) cudaGraphDestroy(begun);
  }
  if (d->stream != nullptr) cudaStreamSynchronize(d->stream);
  for (int i = 0; i < MAX_GRAPHS; i++)
    if (d->graphs[i].exec != nullptr) cudaGraphExecDestroy(d->graphs[i].exec);
  if (d->blas != nullptr) cublasDestroy(d->blas);
  if (d->pinned != nullptr) cudaFreeHost(d->pinned);
  if (d->memory != nullptr) cudaFree(d->memory);
  if (d->stream != nullptr) cudaStreamDestroy(d->stream);
  *d = device();
}

static stint_status device_open(const bool fast, device **out, device_info *info, stint_error *error) {
  device *const d = &the_device;
  *out = nullptr;
  *info = device_info();
  if (d->open) return stint_fail(error, STINT_INTERNAL, "CUDA: the device is open already");
  d->open = true;
  d->fast = fast;
  const stint_status status = open_parts(d, info, error);
  if (status != STINT_OK) {
    device_close(d);
    return status;
  }
  *out = d;
  return STINT_OK;
}

/* ---- memory ---- */

/* Whether [p, p + bytes) lies in the reservation. */
static bool on_device(const device *d, const void *p, const size_t bytes) {
  const uintptr_t at = (uintptr_t)p, base = (uintptr_t)d->memory;
  return at >= base && at - base <= d->memory_bytes && bytes <= d->memory_bytes - (at - base);
}

/* A product of each kind once, so that cuBLAS loads its kernels now. The operands lie in the reservation, which nobody
 * has written yet, beside the workspace; it is filled with NaN afterwards. */
static stint_status touch_products(device *d, stint_error *error) {
  enum { N = 128 };
  const size_t one = N * N * sizeof(float), all = 3 * one, after = d->blas_offset + d->blas_bytes;
  if (d->blas == nullptr || d->blas_bytes == 0) return STINT_OK;
  char *at = d->memory;
  if (d->blas_offset < all) at = d->memory_bytes - after >= all ? d->memory + after : nullptr;
  if (at == nullptr) return STINT_OK; /* too small for a model anyway */
  RUNTIME("clearing", cudaMemsetAsync(at, 0, all, d->stream));
  const float alpha = 1, beta = 0;
  static const cublasOperation_t operations[] = {CUBLAS_OP_N, CUBLAS_OP_T};
  for (const cublasOperation_t of_a : operations)
    for (const cublasOperation_t of_b : operations)
      BLAS("a first product", cublasGemmEx(d->blas, of_a, of_b, N, N, N, &alpha, at, CUDA_R_32F, N, at + one,
                                           CUDA_R_32F, N, &beta, at + 2 * one, CUDA_R_32F, N,
                                           CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT));
  RUNTIME("poisoning", cudaMemsetAsync(at, 0xff, all, d->stream));
  return settle(d, "the first products", error);
}

static stint_status take_memory(device *d, const size_t bytes, stint_error *error) {
  if (bytes == 0) return STINT_OK;
  void *base = nullptr;
  const cudaError_t e = cudaMalloc(&base, bytes);
  if (e == cudaErrorMemoryAllocation) {
    size_t free_bytes = 0, total_bytes = 0;
    cudaGetLastError();
    cudaMemGetInfo(&free_bytes, &total_bytes);
    return stint_fail(
        error, STINT_NO_MEMORY,
        "the device refused %zu bytes: %zu of its %zu are free; end what else uses it, or give a smaller "
        "--device-memory",
        bytes, free_bytes, total_bytes);
  }
  RUNTIME("taking the device's memory", e);
  d->memory = (char *)base;
  d->memory_bytes = bytes;
  return (uintptr_t)base % ALIGNMENT == 0
             ? STINT_OK
             : stint_fail(error, STINT_INTERNAL, "CUDA: the reservation is not aligned to %zu bytes",
                          ALIGNMENT);
}

static stint_status take_pinned(device *d, const size_t bytes, stint_error *error) {
  if (bytes == 0) return STINT_OK;
  void *base = nullptr;
  const cudaError_t e = cudaMallocHost(&base, bytes);
  if (e == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return stint_fail(error, STINT_NO_MEMORY,
                      "the system refused %zu bytes of pinned host memory; see `ulimit -l`", bytes);
  }
  RUNTIME("taking pinned host memory", e);
  d->pinned = (char *)base;
  d->pinned_bytes = bytes;
  return STINT_OK;
}

/* A copy back goes through a buffer that the driver makes for the first one: let that be now. */
static stint_status touch_copies(device *d, stint_error *error) {
  char here[64];
  if (d->memory_bytes < sizeof here) return STINT_OK;
  RUNTIME("a first copy", cudaMemsetAsync(d->memory, 0xff, sizeof here, d->stream));
  RUNTIME("a first copy", cudaMemcpyAsync(here, d->memory, sizeof here, cudaMemcpyDeviceToHost, d->stream));
  return settle(d, "a first copy", error);
}

static stint_status device_take(device *d, const size_t device_bytes, const size_t pinned_bytes,
                                const size_t blas_offset, const size_t blas_bytes, void **device_base,
                                void **pinned_base, stint_error *error) {
  *device_base = *pinned_base = nullptr;
  if (d->memory != nullptr || d->pinned != nullptr)
    return stint_fail(error, STINT_INTERNAL, "CUDA: memory was taken already");
  if (blas_offset % ALIGNMENT != 0 || blas_bytes > device_bytes || blas_offset > device_bytes - blas_bytes)
    return stint_fail(error, STINT_INTERNAL, "CUDA: cuBLAS's workspace is outside the reservation");
  STINT_TRY(take_memory(d, device_bytes, error));
  STINT_TRY(take_pinned(d, pinned_bytes, error));
  d->blas_offset = blas_offset;
  d->blas_bytes = blas_bytes;
  STINT_TRY(bind_blas(d, error));
  STINT_TRY(touch_products(d, error));
  STINT_TRY(touch_copies(d, error));
  *device_base = d->memory;
  *pinned_base = d->pinned;
  return STINT_OK;
}

static stint_status copy(device *d, void *to, const void *from, const size_t bytes, const void *there,
                         const cudaMemcpyKind kind, stint_error *error) {
  const char *const what = kind == cudaMemcpyHostToDevice ? "a copy to the device" : "a copy from the device";
  if (d->capturing) return stint_fail(error, STINT_INTERNAL, "CUDA: %s inside a capture", what);
  if (!on_device(d, there, bytes))
    return stint_fail(error, STINT_INTERNAL, "CUDA: %s: %zu bytes at %p are not inside the reservation", what,
                      bytes, there);
  if (bytes == 0) return STINT_OK;
  RUNTIME(what, cudaMemcpyAsync(to, from, bytes, kind, d->stream));
  return settle(d, what, error);
}

static stint_status device_upload(device *d, void *to_device, const void *from_host, const size_t bytes,
                                  stint_error *error) {
  return copy(d, to_device, from_host, bytes, to_device, cudaMemcpyHostToDevice, error);
}

static stint_status device_download(device *d, void *to_host, const void *from_device, const size_t bytes,
                                    stint_error *error) {
  return copy(d, to_host, from_device, bytes, from_device, cudaMemcpyDeviceToHost, error);
}

/* ---- launches and graphs ---- */

static cuda_launch *const *device_launches(device *d) { return d->launches; }
static cuda_queue *device_queue(device *d) { return &d->queue; }

static stint_status device_capture_begin(device *d, stint_error *error) {
  if (d->capturing) return stint_fail(error, STINT_INTERNAL, "CUDA: a capture has begun already");
  STINT_TRY(settle(d, "what ran before the capture", error));
  /* global: a call that may allocate, from any thread, spoils the capture and is seen */
  RUNTIME("beginning a capture", cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeGlobal));
  d->capturing = true;
  return STINT_OK;
}

/* Only what moves or computes bytes of the reservation may be in a graph. */
static stint_status walk(const cudaGraph_t graph, stint_error *error) {
  size_t n = 0;
  RUNTIME("counting a graph's nodes", cudaGraphGetNodes(graph, nullptr, &n));
  if (n > MAX_NODES)
    return stint_fail(error, STINT_UNSUPPORTED, "CUDA: a graph of %zu launches; at most %d are handled", n,
                      (int)MAX_NODES);
  RUNTIME("reading a graph's nodes", cudaGraphGetNodes(graph, nodes, &n));
  for (size_t i = 0; i < n; i++) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    RUNTIME("reading a graph's node", cudaGraphNodeGetType(nodes[i], &type));
    switch (type) {
    case cudaGraphNodeTypeKernel:
    case cudaGraphNodeTypeMemcpy:
    case cudaGraphNodeTypeMemset:
    case cudaGraphNodeTypeEmpty:
      break;
    case cudaGraphNodeTypeMemAlloc:
    case cudaGraphNodeTypeMemFree:
      return stint_fail(error, STINT_INTERNAL, "CUDA: node %zu of the captured graph allocates device memory",
                        i);
    default:
      return stint_fail(error, STINT_INTERNAL,
                        "CUDA: node %zu of the captured graph is of kind %d: neither launch, copy nor fill",
                        i, (int)type);
    }
  }
  return STINT_OK;
}

static stint_status make_exec(device *d, const cudaGraph_t graph, device_graph **out, stint_error *error) {
  STINT_TRY(walk(graph, error));
  device_graph *slot = nullptr;
  for (int i = MAX_GRAPHS; i-- > 0;)
    if (d->graphs[i].exec == nullptr) slot = &d->graphs[i];
  if (slot == nullptr)
    return stint_fail(error, STINT_INTERNAL, "CUDA: more than %d graphs were captured", (int)MAX_GRAPHS);
  cudaGraphExec_t exec = nullptr;
  RUNTIME("instantiating a graph", cudaGraphInstantiate(&exec, graph, 0));
  slot->exec = exec; /* from here on device_close destroys it */
  RUNTIME("uploading a graph", cudaGraphUpload(exec, d->stream));
  STINT_TRY(settle(d, "uploading a graph", error));
  *out = slot;
  return STINT_OK;
}

static stint_status device_capture_end(device *d, device_graph **out, stint_error *error) {
  *out = nullptr;
  if (!d->capturing) return stint_fail(error, STINT_INTERNAL, "CUDA: no capture has begun");
  d->capturing = false;
  cudaGraph_t graph = nullptr;
  const cudaError_t e = cudaStreamEndCapture(d->stream, &graph);
  stint_status status = launch_failed(d, error);
  if (status == STINT_OK && e != cudaSuccess) status = runtime_failed("ending a capture", e, error);
  if (status == STINT_OK) status = make_exec(d, graph, out, error);
  if (graph != nullptr) cudaGraphDestroy(graph);
  return status;
}

static stint_status device_run(device *d, device_graph *graph, stint_error *error) {
  if (d->capturing || graph == nullptr || graph->exec == nullptr)
    return stint_fail(error, STINT_INTERNAL, "CUDA: a run %s",
                      d->capturing ? "inside a capture" : "of no graph");
  RUNTIME("launching a graph", cudaGraphLaunch(graph->exec, d->stream));
  return settle(d, "running a graph", error);
}

static stint_status device_wait(device *d, stint_error *error) {
  if (d->capturing) return stint_fail(error, STINT_INTERNAL, "CUDA: a wait inside a capture");
  return settle(d, "running launches", error);
}

#ifdef STINT_CUEMU
static void device_operands(const device_operand *list, const int n) {
  cuemu_operand ranges[OP_MAX_SRC + OP_MAX_DST + 1];
  for (int i = 0; i < n; i++) ranges[i] = {list[i].address, list[i].bytes, list[i].written};
  if (n)
    cuemu_operands(ranges, (size_t)n);
  else
    cuemu_operands_any();
}
#else
static void (*const device_operands)(const device_operand *, int) = nullptr;
#endif

const device_module stint_cuda_module = {
    DEVICE_MODULE_VERSION, device_open,     device_take,  device_upload,
    device_download,       device_launches, device_queue, device_capture_begin,
    device_capture_end,    device_run,      device_wait,  device_close,
    device_operands,
};
