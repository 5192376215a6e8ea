/* What the parts of the emulation share. scheduler: fibers, barriers, warp operations; memory: checks of each access;
 * runtime, streams: the CUDA runtime; blas: cuBLAS. All state is of one host thread. */
#ifndef STINT_TESTS_CUEMU_INTERNAL_H
#define STINT_TESTS_CUEMU_INTERNAL_H

#include <cstdarg>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuemu/cuemu.h"
#include "tests/cuemu/cuemu_control.h"

namespace cuemu {

enum { MAX_THREADS = 1024, MAX_SHARED_BYTES = 227 << 10, DEFAULT_SHARED_BYTES = 48 << 10 };
constexpr size_t STACK_BYTES = 256 << 10, STACK_GUARD_BYTES = 4096;

enum class thread_state { fresh, ready, running, at_barrier, at_warp_op, done };

struct fiber; /* scheduler.cpp */

struct thread : thread_id {
  unsigned linear;
  thread_state state;
  fiber *on;
  bool at_block_op; /* what it waits for: op is a block_op or a warp_op */
  block_op barrier;
  warp_op collective;
  const char *file;
  int line, site;
  unsigned mask, argument, width;
  uint64_t value, result;
  const void *given;
  void *taken;
  size_t taken_bytes;
};

typedef std::vector<cuemu_operand> operand_list;

struct launch {
  const char *name;
  const void *kernel;
  dim3 grid, block;
  size_t shared_bytes;
  std::shared_ptr<kernel_call> call;
  std::shared_ptr<const operand_list> operands; /* null: every allocation */
};

extern cuemu_counts counts;
extern unsigned seed;
unsigned random_below(unsigned n);
template <class It> void arrange(It first, It last) { /* by the seed */
  if (seed == 1) std::reverse(first, last);
  if (seed > 1)
    for (auto n = last - first; n > 1; n--) std::swap(first[n - 1], first[random_below((unsigned)n)]);
}

/* scheduler.cpp */
bool run(const launch &l); /* false: a fault, reported */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2))); /* in a kernel */
[[noreturn]] void fail_at(const void *pc, const void *other_pc, const char *other, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
inline thread *self() { return static_cast<thread *>(current); }
bool on_stack(const void *p); /* of any fiber */

/* memory.cpp */
void memory_begin_block(size_t shared_bytes);
void memory_begin_launch(const launch &l);
void memory_end_launch();
void memory_block_barrier();
void memory_warp_sync(unsigned warp);
void check_range(const void *p, size_t bytes, bool write,
                 const void *pc); /* for what a kernel touches through us */

/* report.cpp */
void report_fault(const std::string &text);
cudaError_t misuse(cudaError_t e, const char *function, const char *why);
extern cudaError_t last_error, sticky_error;
std::string source_line(const void *pc);

/* runtime.cpp */
unsigned live_allocations();
bool in_device_range(const void *p);
bool inside_allocation(const void *p, size_t bytes); /* of one live device allocation */
size_t shared_limit(const void *kernel);
void memory_access(bool open);

/* blas.cpp */
unsigned live_handles();

/* streams.cpp */
enum class node_kind { kernel, copy, set, host, alloc, release };
cudaError_t enqueue(cudaStream_t s, node_kind kind, std::function<void()> f, const char *who);
bool stream_alive(cudaStream_t s);
bool capturing();
cudaError_t refuse_in_capture(const char *function); /* cudaSuccess when nothing is being captured */
void drain_all();

} // namespace cuemu

#endif
