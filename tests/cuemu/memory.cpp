/* Checks of every load and store of a kernel.
 *
 * The compiler calls __tsan_read4(address) and its kin before each access of an instrumented file. An address is of
 *   a fiber's stack            fine (the guard page below a stack faults by itself)
 *   device memory              must lie in a live allocation, or in an operand of the launch (cuemu_operands)
 *   shared memory              must lie in the launch's dynamic bytes or in a variable; a cell a 4-byte word keeps who wrote
 *                              and read it since which barrier: a read of what nothing wrote in this block, and two
 *                              accesses by different threads, one of them a write, with no barrier between, are faults
 *   the program's image        constants may be read
 *   anything else              host memory: a fault
 *
 * Two threads of a warp are ordered by __syncwarp, too; a shuffle orders nothing (CUDA programming guide). A cell
 * remembers the last writer and the last two readers, so a race may be missed under one schedule, never invented. */
#include <cstdio>
#include <cstdlib>

#include "tests/cuemu/internal.h"

extern "C" {
__attribute__((weak)) extern char __start_cushared[], __stop_cushared[];
extern char __executable_start[], _end[];
}

namespace cuemu {
namespace {

enum { STATIC_BYTES = 64 << 10, WORDS = (MAX_SHARED_BYTES + STATIC_BYTES) / 4 };

struct access {
  uint32_t block_clock, warp_clock;
  uint16_t thread;
  uint8_t bytes; /* mask of the word's bytes */
  const void *pc;
};
struct cell {
  uint32_t block; /* serial number of the block that the rest is of */
  uint8_t written;
  access write, reads[2];
};

cell cells[WORDS];
std::vector<bool> pads; /* of the static section, a bit a byte */
uint32_t block_serial, block_clock, warp_clock[MAX_THREADS / 32];
size_t dynamic_bytes;
const launch *now;
const cuemu_operand *last_operand;
const char *call_begin, *call_end;

size_t static_bytes() { return __start_cushared ? (size_t)(__stop_cushared - __start_cushared) : 0; }

/* Pads are found by their text, once, before the section is first overwritten. */
void find_pads() {
  const size_t n = static_bytes(), text = sizeof CUEMU_PAD_TEXT;
  if (n > STATIC_BYTES) {
    fprintf(stderr, "cuemu: %zu bytes of static shared memory in all kernels: raise STATIC_BYTES\n", n);
    abort();
  }
  pads.assign(n, false);
  for (size_t i = 0; i + text <= n; i++)
    if (memcmp(__start_cushared + i, CUEMU_PAD_TEXT, text) == 0)
      for (size_t k = 0; k < text; k++) pads[i + k] = true;
}

bool ordered(const access &a,
             const access &b) { /* a before b, by a barrier or because one thread made both */
  if (a.thread == b.thread || a.block_clock != b.block_clock) return true;
  return a.thread >> 5 == b.thread >> 5 && a.warp_clock != b.warp_clock;
}

void check_word(cell &c, const access &a, const bool write) {
  if (c.block != block_serial) {
    c = cell();
    c.block = block_serial;
  }
  if (!write && (a.bytes & ~c.written))
    fail_at(a.pc, nullptr, "", "reads shared memory that nothing in this block has written");
  if ((c.write.bytes & a.bytes) && !ordered(c.write, a))
    fail_at(a.pc, c.write.pc, "written at ", "%s shared memory that thread %u wrote with no barrier between",
            write ? "writes" : "reads", c.write.thread);
  if (write) {
    for (const access &r : c.reads)
      if ((r.bytes & a.bytes) && !ordered(r, a))
        fail_at(a.pc, r.pc, "read at ", "writes shared memory that thread %u read with no barrier between",
                r.thread);
    c.write = a;
    c.written |= a.bytes;
  } else {
    if (c.reads[0].bytes && c.reads[0].thread != a.thread) c.reads[1] = c.reads[0];
    c.reads[0] = a;
  }
}

void check_shared(const size_t offset, const size_t bytes, const bool write, const void *const pc) {
  const unsigned t = self()->linear;
  access a = {block_clock, warp_clock[t >> 5], (uint16_t)t, 0, pc};
  for (size_t at = offset, end = offset + bytes; at < end;) {
    const size_t word = at / 4, stop = (word + 1) * 4 < end ? (word + 1) * 4 : end;
    a.bytes = (uint8_t)(((1u << (stop - at)) - 1) << (at & 3));
    check_word(cells[word], a, write);
    at = stop;
  }
}

void check_static(const char *const p, const size_t bytes, const bool write, const void *const pc) {
  const size_t offset = (size_t)(p - __start_cushared);
  for (size_t i = offset; i < offset + bytes; i++)
    if (i >= pads.size() || pads[i])
      fail_at(pc, nullptr, "", "%s %zu bytes outside its variable of shared memory",
              write ? "writes" : "reads", bytes);
  check_shared(MAX_SHARED_BYTES + offset, bytes, write, pc);
}

bool in_operand(const cuemu_operand &o, const char *const p, const size_t bytes, const bool write) {
  const char *const begin = (const char *)o.address;
  return p >= begin && p + bytes <= begin + o.bytes && (o.written || !write);
}

void check_device(const char *const p, const size_t bytes, const bool write, const void *const pc) {
  if (last_operand && in_operand(*last_operand, p, bytes, write)) return;
  if (now->operands) {
    for (const cuemu_operand &o : *now->operands)
      if (in_operand(o, p, bytes, write)) {
        last_operand = &o;
        return;
      }
    fail_at(pc, nullptr, "", "%s %zu bytes of device memory at %p, outside the op's %s",
            write ? "writes" : "reads", bytes, (const void *)p,
            write ? "destinations and workspace" : "operands");
  }
  if (!inside_allocation(p, bytes))
    fail_at(pc, nullptr, "", "%s %zu bytes at %p, outside every live device allocation",
            write ? "writes" : "reads", bytes, (const void *)p);
}

inline void check(const void *const address, const size_t bytes, const bool write, const void *const pc) {
  const char *const p = (const char *)address;
  if (!current || on_stack(p)) return;
  counts.accesses++;
  if (in_device_range(p)) {
    check_device(p, bytes, write, pc);
  } else if (p >= (char *)dynamic_shared && p < (char *)dynamic_shared + MAX_SHARED_BYTES) {
    const size_t offset = (size_t)(p - (char *)dynamic_shared);
    if (offset + bytes > dynamic_bytes)
      fail_at(pc, nullptr, "", "%s %zu bytes at %zu of %zu bytes of dynamic shared memory",
              write ? "writes" : "reads", bytes, offset, dynamic_bytes);
    check_shared(offset, bytes, write, pc);
  } else if (__start_cushared && p >= __start_cushared && p < __stop_cushared) {
    check_static(p, bytes, write, pc);
  } else if (p >= __executable_start && p < _end) {
    if (write)
      fail_at(pc, nullptr, "",
              "writes a variable of the program (static shared memory inside a template? use CU_DYN_SMEM)");
  } else if (write || p < call_begin || p + bytes > call_end) {
    fail_at(pc, nullptr, "", "%s %zu bytes of host memory at %p", write ? "writes" : "reads", bytes, address);
  }
}

} // namespace

void memory_begin_launch(const launch &l) {
  if (pads.empty()) find_pads();
  now = &l;
  last_operand = nullptr;
  dynamic_bytes = l.shared_bytes;
  call_begin = (const char *)l.call.get();
  call_end = call_begin + l.call->bytes;
}

void memory_end_launch() { now = nullptr; }

void memory_begin_block(const size_t shared_bytes) {
  block_serial++;
  block_clock++;
  memset(warp_clock, 0, sizeof warp_clock);
  memset(dynamic_shared, 0xff, shared_bytes); /* NaN in every float type */
  if (static_bytes()) memset(__start_cushared, 0xff, static_bytes());
}

void memory_block_barrier() { block_clock++; }
void memory_warp_sync(const unsigned warp) { warp_clock[warp]++; }

void check_range(const void *const p, const size_t bytes, const bool write, const void *const pc) {
  check(p, bytes, write, pc);
}

} // namespace cuemu

/* What instrumented code calls. */
#define CUEMU_HOOKS(n)                                                                                       \
  void __tsan_read##n(void *p) { cuemu::check(p, n, false, __builtin_return_address(0)); }                   \
  void __tsan_write##n(void *p) { cuemu::check(p, n, true, __builtin_return_address(0)); }                   \
  void __tsan_unaligned_read##n(void *p) { cuemu::check(p, n, false, __builtin_return_address(0)); }         \
  void __tsan_unaligned_write##n(void *p) { cuemu::check(p, n, true, __builtin_return_address(0)); }         \
  void __tsan_volatile_read##n(void *p) { cuemu::check(p, n, false, __builtin_return_address(0)); }          \
  void __tsan_volatile_write##n(void *p) { cuemu::check(p, n, true, __builtin_return_address(0)); }
extern "C" {
CUEMU_HOOKS(1)
CUEMU_HOOKS(2)
CUEMU_HOOKS(4)
CUEMU_HOOKS(8)
CUEMU_HOOKS(16)
void __tsan_read_range(void *p, size_t n) { cuemu::check(p, n, false, __builtin_return_address(0)); }
void __tsan_write_range(void *p, size_t n) { cuemu::check(p, n, true, __builtin_return_address(0)); }
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void *__tsan_memcpy(void *to, const void *from, size_t n) {
  cuemu::check(from, n, false, __builtin_return_address(0));
  cuemu::check(to, n, true, __builtin_return_address(0));
  return memcpy(to, from, n);
}
void *__tsan_memset(void *to, int value, size_t n) {
  cuemu::check(to, n, true, __builtin_return_address(0));
  return memset(to, value, n);
}
}

#ifndef CUEMU_NO_ALIGNMENT
/* Of -fsanitize=alignment, linked without its library: what a GPU faults at and the host does not. The layout of the record
 * is that of LLVM's and GCC's runtime: file, line, column, type, log2 of the alignment. */
struct cuemu_mismatch {
  const char *file;
  uint32_t line, column;
  const void *type;
  unsigned char log_alignment, kind;
};
extern "C" {
void __ubsan_handle_type_mismatch_v1(const cuemu_mismatch *m, uintptr_t p);
void __ubsan_handle_type_mismatch_v1(const cuemu_mismatch *const m, const uintptr_t p) {
  if (cuemu::current)
    cuemu::fail("%s:%u: an access at %p, which is not aligned to %u", m->file, m->line, (void *)p,
                1u << m->log_alignment);
}
}
#endif
