/* What a CUDA kernel file includes in place of the toolkit's headers to run on the host (see README.md in this folder).
 *
 * A block's threads are fibers of one host thread (scheduler.cpp). __shared__ variables are statics of one section, each
 * after a pad that no kernel may touch (memory.cpp): files with kernels are compiled with -fsanitize=thread and
 * linked without its library, so that every load and store of a kernel calls a check of ours.
 *
 * Limits: C++17; a static __shared__ variable inside a template is placed elsewhere by the compiler (use CU_DYN_SMEM there; a
 * write to it is an error); a __shared__ declaration is a statement of its own, not the body of an if. */
#ifndef STINT_TESTS_CUEMU_CUEMU_H
#define STINT_TESTS_CUEMU_CUEMU_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include "tests/cuemu/cuemu_api.h"
#include "tests/cuemu/cuemu_types.h"

#undef __shared__
#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __align__
#define CUEMU_PAD_NAME2(n) cuemu_pad_##n
#define CUEMU_PAD_NAME(n)  CUEMU_PAD_NAME2(n)
#define CUEMU_IN_SHARED    __attribute__((section("cushared"), used))
#define __shared__                                                                                           \
  static CUEMU_IN_SHARED __attribute__((aligned(1))) char CUEMU_PAD_NAME(__COUNTER__)[] = CUEMU_PAD_TEXT;    \
  static CUEMU_IN_SHARED __attribute__((aligned(16)))
#define CUEMU_PAD_TEXT "\001stint pad between two variables of shared memory\002\377\177\377"
#define __global__
#define __device__
#define __host__
#define __constant__    static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__    __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n)         __attribute__((aligned(n)))
#define CU_DYN_SMEM(T, name) T *const name = reinterpret_cast<T *>(cuemu::dynamic_shared)

namespace cuemu {

enum class warp_op { shfl, shfl_up, shfl_down, shfl_xor, ballot, sync, gather };
enum class block_op { sync, any, all, count };

/* The running thread, its block and grid. */
struct thread_id {
  uint3 index;
};
extern thread_id *current;
extern uint3 block_index;
extern dim3 block_size, grid_size;
extern unsigned char dynamic_shared[];

int block_barrier(block_op op, bool predicate, const char *file, int line, int site);
uint64_t warp_collective(warp_op op, unsigned mask, uint64_t value, unsigned argument, unsigned width,
                         const char *file, int line);
/* Every lane gives `bytes` at `in` and gets those of all 32 lanes at `out`: what mma.sync is emulated with. */
void warp_gather(const void *in, void *out, size_t bytes, const char *file, int line);
/* A copy that lands when the thread waits for it. */
void async_copy(void *to, const void *from, size_t bytes);
void async_copy_wait();

/* A kernel with its arguments, converted to the parameters' types at the launch. */
struct kernel_call {
  virtual void run() = 0;
  virtual ~kernel_call() = default;
  size_t bytes = 0; /* of the object: what a kernel's first reads may touch */
};
template <class... P> struct bound_call final : kernel_call {
  void (*kernel)(P...);
  std::tuple<P...> arguments;
  template <class... A>
  explicit bound_call(void (*const k)(P...), A &&...a) : kernel(k), arguments(std::forward<A>(a)...) {
    bytes = sizeof *this;
  }
  void run() override { std::apply(kernel, arguments); }
};
void submit(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared_bytes,
            cudaStream_t stream, kernel_call *call); /* takes the call */

template <class... P, class... A>
void submit_launch(const char *const name, void (*const kernel)(P...), const dim3 grid, const dim3 block,
                   const size_t shared_bytes, void *const stream, A &&...a) {
  submit(name, (const void *)kernel, grid, block, shared_bytes, (cudaStream_t)stream,
         new bound_call<P...>(kernel, std::forward<A>(a)...));
}

template <class T>
T shuffle(const warp_op op, const unsigned mask, const T value, const unsigned argument, const unsigned width,
          const char *const file, const int line) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = warp_collective(op, mask, bits, argument, width, file, line);
  T result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

} // namespace cuemu

#define threadIdx (cuemu::current->index)
#define blockIdx  (cuemu::block_index)
#define blockDim  (cuemu::block_size)
#define gridDim   (cuemu::grid_size)
static const int warpSize __attribute__((unused)) = 32;

#define CUEMU_HERE __FILE__, __LINE__
#define CUEMU_BARRIER(op, predicate)                                                                         \
  cuemu::block_barrier(cuemu::block_op::op, predicate, CUEMU_HERE, __COUNTER__)
#define __syncthreads()        ((void)CUEMU_BARRIER(sync, false))
#define __syncthreads_or(p)    CUEMU_BARRIER(any, (p) != 0)
#define __syncthreads_and(p)   CUEMU_BARRIER(all, (p) != 0)
#define __syncthreads_count(p) CUEMU_BARRIER(count, (p) != 0)

#define CUEMU_FIRST(first, ...) (first)
#define CUEMU_SHUFFLE(op, mask, value, argument, ...)                                                        \
  cuemu::shuffle(cuemu::warp_op::op, mask, value, (unsigned)(argument), CUEMU_FIRST(__VA_ARGS__), CUEMU_HERE)
#define __shfl_sync(m, v, ...)      CUEMU_SHUFFLE(shfl, m, v, __VA_ARGS__, 32, 0)
#define __shfl_up_sync(m, v, ...)   CUEMU_SHUFFLE(shfl_up, m, v, __VA_ARGS__, 32, 0)
#define __shfl_down_sync(m, v, ...) CUEMU_SHUFFLE(shfl_down, m, v, __VA_ARGS__, 32, 0)
#define __shfl_xor_sync(m, v, ...)  CUEMU_SHUFFLE(shfl_xor, m, v, __VA_ARGS__, 32, 0)
#define __ballot_sync(m, p)                                                                                  \
  ((unsigned)cuemu::warp_collective(cuemu::warp_op::ballot, m, (p) != 0, 0, 32, CUEMU_HERE))
#define __any_sync(m, p)    (__ballot_sync(m, p) != 0)
#define __all_sync(m, p)    (__ballot_sync(m, p) == (m))
#define CUEMU_SYNCWARP_1(m) ((void)cuemu::warp_collective(cuemu::warp_op::sync, m, 0, 0, 32, CUEMU_HERE))
#define __syncwarp(...)     CUEMU_SYNCWARP_1((cuemu::full_or(__VA_ARGS__)))

namespace cuemu {
inline unsigned full_or(const unsigned mask = 0xffffffffu) { return mask; }
} // namespace cuemu

#include "tests/cuemu/intrinsics.h"

#endif
