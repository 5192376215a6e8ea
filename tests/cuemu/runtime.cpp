/* Stand-ins for the runtime API: device, memory, functions.
 *
 * Device memory is a reservation of address space; allocations are mapped in it from below, each followed by a gap. The
 * host cannot touch it (it faults, as on a GPU) but while an operation of a stream runs or a test has opened it. A freed
 * address is never given out again. */
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "tests/cuemu/internal.h"

namespace cuemu {
namespace {

constexpr size_t RANGE_BYTES = (size_t)1 << 36, GRAIN_BYTES = 2 << 20, GAP_BYTES = 2 << 20;

struct allocation {
  size_t bytes, mapped_bytes;
};

char *range;
size_t range_used;
size_t device_bytes = (size_t)1 << 30;
size_t mapped_bytes;
std::map<const char *, allocation> device_allocations, pinned_allocations;
std::map<const void *, size_t> shared_limits;
unsigned open_depth;

void protect(const char *const p, const allocation &a) {
  mprotect((void *)p, a.mapped_bytes, open_depth ? PROT_READ | PROT_WRITE : PROT_NONE);
}

bool take_range() {
  if (range) return true;
  range = (char *)mmap(nullptr, RANGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range != (char *)MAP_FAILED) return true;
  range = nullptr;
  return false;
}

const std::pair<const char *const, allocation> *find(const std::map<const char *, allocation> &all,
                                                     const void *const p) {
  auto i = all.upper_bound((const char *)p);
  if (i == all.begin()) return nullptr;
  --i;
  return (const char *)p < i->first + i->second.mapped_bytes ? &*i : nullptr;
}

cudaError_t allocate(void **const p, const size_t n, const char *const who) {
  *p = nullptr;
  counts.mallocs++;
  if (n == 0) return cudaSuccess;
  const size_t mapped = (n + GRAIN_BYTES - 1) / GRAIN_BYTES * GRAIN_BYTES;
  if (mapped < n || mapped_bytes + mapped > device_bytes || !take_range() ||
      range_used + mapped + GAP_BYTES > RANGE_BYTES)
    return misuse(cudaErrorMemoryAllocation, who, "over the device's memory");
  char *const q = range + range_used;
  mprotect(q, mapped, PROT_READ | PROT_WRITE);
  memset(q, 0xff, n); /* NaN until written */
  range_used += mapped + GAP_BYTES;
  mapped_bytes += mapped;
  const allocation a = {n, mapped};
  device_allocations[q] = a;
  protect(q, a);
  counts.bytes += n;
  counts.peak_bytes = std::max(counts.peak_bytes, counts.bytes);
  *p = q;
  return cudaSuccess;
}

cudaError_t release(void *const p, const char *const who) {
  if (!p) return cudaSuccess;
  const auto i = device_allocations.find((const char *)p);
  if (i == device_allocations.end())
    return misuse(cudaErrorInvalidValue, who, "not a live device allocation");
  drain_all();
  mprotect(p, i->second.mapped_bytes, PROT_NONE);
  madvise(p, i->second.mapped_bytes, MADV_DONTNEED);
  counts.bytes -= i->second.bytes;
  mapped_bytes -= i->second.mapped_bytes;
  device_allocations.erase(i);
  return cudaSuccess;
}

} // namespace

unsigned live_allocations() { return (unsigned)(device_allocations.size() + pinned_allocations.size()); }

bool in_device_range(const void *const p) {
  return range && (char *)p >= range && (char *)p < range + RANGE_BYTES;
}

bool inside_allocation(const void *const p, const size_t bytes) {
  const auto *const a = find(device_allocations, p);
  return a && (const char *)p + bytes <= a->first + a->second.bytes;
}

size_t shared_limit(const void *const kernel) {
  const auto i = shared_limits.find(kernel);
  return i == shared_limits.end() ? (size_t)DEFAULT_SHARED_BYTES : i->second;
}

void memory_access(const bool open) {
  const bool before = open_depth > 0;
  open_depth += open ? 1 : -1u;
  if ((open_depth > 0) == before) return;
  for (const auto &a : device_allocations) protect(a.first, a.second);
}

} // namespace cuemu

using namespace cuemu;

#define RETURN_IF(e)                                                                                         \
  do {                                                                                                       \
    const cudaError_t e_ = (e);                                                                              \
    if (e_) return e_;                                                                                       \
  } while (0)

extern "C" {

void cuemu_set_memory(const size_t bytes) { device_bytes = bytes; }
void cuemu_open_memory(void) { memory_access(true); }
void cuemu_close_memory(void) { memory_access(false); }

cudaError_t cudaDriverGetVersion(int *const v) { return *v = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *const v) { return *v = 13000, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *const n) { return *n = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int *const d) { return *d = 0, cudaSuccess; }
cudaError_t cudaSetDevice(const int d) {
  return d ? misuse(cudaErrorInvalidDevice, __func__, "there is one device") : cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *const v, const enum cudaDeviceAttr which, const int d) {
  RETURN_IF(cudaSetDevice(d));
  switch (which) {
  case cudaDevAttrClockRate:
    *v = 1000000;
    break;
  case cudaDevAttrMultiProcessorCount:
    *v = 4;
    break;
  case cudaDevAttrMemoryClockRate:
    *v = 1000000;
    break;
  case cudaDevAttrGlobalMemoryBusWidth:
    *v = 256;
    break;
  case cudaDevAttrL2CacheSize:
    *v = 4 << 20;
    break;
  case cudaDevAttrComputeCapabilityMajor:
    *v = 9;
    break;
  case cudaDevAttrComputeCapabilityMinor:
    *v = 0;
    break;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin:
    *v = MAX_SHARED_BYTES;
    break;
  default:
    return misuse(cudaErrorInvalidValue, __func__, "an attribute that is not emulated");
  }
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *const p, const int d) {
  RETURN_IF(cudaSetDevice(d));
  *p = cudaDeviceProp();
  snprintf(p->name, sizeof p->name, "emulated device");
  p->totalGlobalMem = device_bytes;
  p->sharedMemPerBlock = DEFAULT_SHARED_BYTES;
  p->sharedMemPerBlockOptin = p->sharedMemPerMultiprocessor = MAX_SHARED_BYTES;
  p->regsPerBlock = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = MAX_THREADS;
  p->major = 9;
  p->multiProcessorCount = 4;
  p->l2CacheSize = 4 << 20;
  return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(enum cudaLimit, size_t) { return cudaSuccess; }
cudaError_t cudaDeviceGetLimit(size_t *const n, enum cudaLimit) { return *n = 0, cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *const free_bytes, size_t *const total) {
  *total = device_bytes;
  *free_bytes = device_bytes > mapped_bytes ? device_bytes - mapped_bytes : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceReset(void) {
  drain_all();
  if (!device_allocations.empty())
    return misuse(cudaErrorInvalidValue, __func__, "device memory is still allocated");
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **const p, const size_t n) {
  *p = nullptr;
  RETURN_IF(sticky_error);
  RETURN_IF(refuse_in_capture(__func__));
  return allocate(p, n, __func__);
}
cudaError_t cudaFree(void *const p) {
  RETURN_IF(refuse_in_capture(__func__));
  return release(p, __func__);
}
/* In a capture both become nodes of the graph, and whoever walks it finds them. */
cudaError_t cudaMallocAsync(void **const p, const size_t n, const cudaStream_t s) {
  RETURN_IF(enqueue(
      s, node_kind::alloc, [] {}, __func__));
  return allocate(p, n, __func__);
}
cudaError_t cudaFreeAsync(void *const p, const cudaStream_t s) {
  const bool recorded = capturing();
  RETURN_IF(enqueue(
      s, node_kind::release, [] {}, __func__));
  return recorded ? cudaSuccess : release(p, __func__);
}
cudaError_t cudaMallocHost(void **const p, const size_t n) {
  *p = nullptr;
  RETURN_IF(refuse_in_capture(__func__));
  counts.pinned_mallocs++;
  const size_t mapped = (n + 4095) / 4096 * 4096;
  void *const q =
      mmap(nullptr, mapped ? mapped : 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (q == MAP_FAILED) return misuse(cudaErrorMemoryAllocation, __func__, "no host memory");
  pinned_allocations[(const char *)q] = {n, mapped ? mapped : 4096};
  counts.pinned_bytes += n;
  counts.peak_pinned_bytes = std::max(counts.peak_pinned_bytes, counts.pinned_bytes);
  *p = q;
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **const p, const size_t n, unsigned) { return cudaMallocHost(p, n); }
cudaError_t cudaFreeHost(void *const p) {
  if (!p) return cudaSuccess;
  const auto i = pinned_allocations.find((const char *)p);
  if (i == pinned_allocations.end()) return misuse(cudaErrorInvalidValue, __func__, "not live pinned memory");
  drain_all();
  counts.pinned_bytes -= i->second.bytes;
  munmap(p, i->second.mapped_bytes);
  pinned_allocations.erase(i);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *const to, const void *const from, const size_t n,
                            const enum cudaMemcpyKind kind, const cudaStream_t s) {
  const bool to_device = in_device_range(to), from_device = in_device_range(from);
  const int pair = (to_device ? 1 : 0) + (from_device ? 2 : 0);
  const enum cudaMemcpyKind is =
      (enum cudaMemcpyKind)pair; /* HostToHost, HostToDevice, DeviceToHost, DeviceToDevice */
  if (kind != cudaMemcpyDefault && kind != is)
    return misuse(cudaErrorInvalidMemcpyDirection, __func__, "the direction does not match the pointers");
  if (n && ((to_device && !inside_allocation(to, n)) || (from_device && !inside_allocation(from, n))))
    return misuse(cudaErrorInvalidValue, __func__, "a range that is not inside one live device allocation");
  const char *const a = (const char *)to, *const b = (const char *)from;
  if (a < b + n && b < a + n) return misuse(cudaErrorInvalidValue, __func__, "the ranges overlap");
  /* pageable memory is read before the call returns; pinned memory when the stream gets there */
  if (!from_device && !find(pinned_allocations, from)) {
    if (capturing())
      return misuse(cudaErrorStreamCaptureUnsupported, __func__, "pageable memory in a capture");
    auto copy = std::make_shared<std::vector<char>>(b, b + n);
    return enqueue(
        s, node_kind::copy, [=] { memcpy(to, copy->data(), n); }, __func__);
  }
  return enqueue(
      s, node_kind::copy, [=] { memcpy(to, from, n); }, __func__);
}
cudaError_t cudaMemcpy(void *const to, const void *const from, const size_t n,
                       const enum cudaMemcpyKind kind) {
  RETURN_IF(refuse_in_capture(__func__));
  RETURN_IF(cudaMemcpyAsync(to, from, n, kind, nullptr));
  return cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemsetAsync(void *const p, const int value, const size_t n, const cudaStream_t s) {
  if (n && !inside_allocation(p, n))
    return misuse(cudaErrorInvalidValue, __func__, "a range that is not inside one live device allocation");
  return enqueue(
      s, node_kind::set, [=] { memset(p, value, n); }, __func__);
}
cudaError_t cudaMemset(void *const p, const int value, const size_t n) {
  RETURN_IF(refuse_in_capture(__func__));
  return cudaMemsetAsync(p, value, n, nullptr);
}

cudaError_t cudaFuncSetAttribute(const void *const kernel, const enum cudaFuncAttribute which,
                                 const int value) {
  if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > (int)MAX_SHARED_BYTES)
    return misuse(cudaErrorInvalidValue, __func__, "more shared memory than a block can have (227 KiB)");
  shared_limits[kernel] = (size_t)value;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *const a, const void *const kernel) {
  *a = cudaFuncAttributes();
  a->maxThreadsPerBlock = MAX_THREADS;
  a->maxDynamicSharedSizeBytes = (int)shared_limit(kernel);
  return cudaSuccess;
}
}
