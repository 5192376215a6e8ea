/* Threads of a block as fibers of one host thread.
 *
 * A thread runs until it waits. A block barrier opens when every live thread of the block waits at the same one (same
 * source position); a warp operation completes when all lanes of its mask wait with the same operation and mask. Whatever
 * cannot complete is a fault that names who waits where. Woken threads are put in the order of the seed, as the threads
 * and blocks of a launch are: a kernel whose bits depend on it is wrong.
 *
 * A fault leaves through the main fiber, never by unwinding: the block's other fibers are dropped where they stand. */
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#include "tests/cuemu/internal.h"

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace cuemu {

thread_id *current;
uint3 block_index;
dim3 block_size, grid_size;
alignas(1024) unsigned char dynamic_shared[MAX_SHARED_BYTES];
cuemu_counts counts;
unsigned seed;

struct fiber {
  void *sp;
  char *stack;
#ifndef __x86_64__
  ucontext_t context;
#endif
};

namespace {

struct warp {
  unsigned waiting, done; /* lane masks */
};
struct pending_copy {
  thread *by;
  void *to;
  const void *from;
  size_t bytes;
};

thread threads[MAX_THREADS];
warp warps[MAX_THREADS / 32];
thread *ready[MAX_THREADS];
unsigned n_threads, ready_first, ready_n, live, n_at_barrier;
fiber main_fiber, fibers[MAX_THREADS];
fiber *free_fibers[MAX_THREADS];
unsigned n_fibers, n_free_fibers;
char *stacks;
kernel_call *body;
const char *kernel_name;
bool failed;
std::string fault;
std::vector<pending_copy> pending;
uint64_t random_state = 1;

const char *op_text(const thread &t) {
  static const char *const warp_text[] = {"__shfl_sync",     "__shfl_up_sync", "__shfl_down_sync",
                                          "__shfl_xor_sync", "__ballot_sync",  "__syncwarp",
                                          "a warp gather"};
  static const char *const block_text[] = {"__syncthreads", "__syncthreads_or", "__syncthreads_and",
                                           "__syncthreads_count"};
  return t.at_block_op ? block_text[(int)t.barrier] : warp_text[(int)t.collective];
}

/* ---- context switch -------------------------------------------------------------------------------------- */

void fiber_main();

#ifdef __x86_64__
extern "C" void cuemu_switch(void **save, void *to);
asm(".text\n.type cuemu_switch,@function\ncuemu_switch:\n"
    " pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    " movq %rsp,(%rdi)\n movq %rsi,%rsp\n"
    " popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n"
    ".size cuemu_switch,.-cuemu_switch\n");
void jump(fiber *const from, fiber *const to) { cuemu_switch(&from->sp, to->sp); }
void arm(fiber *const f) {
  const size_t color =
      ((size_t)(f - fibers) * 320 & 4095) & ~(size_t)63; /* stacks spread over the cache sets */
  void **s =
      (void **)(f->stack + STACK_BYTES - color) - 1; /* (rsp + 8) % 16 == 0 on entry, as after a call */
  *--s = (void *)fiber_main;
  s -= 6;
  memset(s, 0, 6 * sizeof *s);
  f->sp = s;
}
#else
void jump(fiber *const from, fiber *const to) { swapcontext(&from->context, &to->context); }
void arm(fiber *const f) {
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = f->stack;
  f->context.uc_stack.ss_size = STACK_BYTES;
  f->context.uc_link = nullptr;
  makecontext(&f->context, fiber_main, 0);
}
#endif

fiber *take_fiber() {
  if (n_free_fibers) return free_fibers[--n_free_fibers];
  const size_t slot = STACK_BYTES + STACK_GUARD_BYTES;
  if (!stacks) {
    stacks = (char *)mmap(nullptr, slot * MAX_THREADS, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                          -1, 0);
    if (stacks == (char *)MAP_FAILED) abort();
  }
  fiber *const f = &fibers[n_fibers];
  f->stack = stacks + slot * n_fibers++ + STACK_GUARD_BYTES; /* below it a page that faults */
  if (mprotect(f->stack, STACK_BYTES, PROT_READ | PROT_WRITE)) abort();
  arm(f);
  return f;
}

/* ---- faults ---------------------------------------------------------------------------------------------- */

std::string format_text(const char *const format, va_list list) {
  char text[1024];
  vsnprintf(text, sizeof text, format, list);
  return text;
}

[[noreturn]] void leave() {
  failed = true;
  jump(self()->on, &main_fiber);
  abort();
}

std::string where() {
  char text[256];
  snprintf(text, sizeof text, "%s, block (%u,%u,%u), thread (%u,%u,%u): ", kernel_name, block_index.x,
           block_index.y, block_index.z, current->index.x, current->index.y, current->index.z);
  return text;
}

bool same_wait(const thread &a, const thread &b) {
  if (a.state != b.state) return false;
  if (a.state != thread_state::at_barrier && a.state != thread_state::at_warp_op) return true;
  return a.site == b.site && a.line == b.line && a.at_block_op == b.at_block_op && a.mask == b.mask &&
         a.collective == b.collective;
}

const std::string &waiters() { /* static: a fault leaves without unwinding */
  static std::string s;
  s.clear();
  for (unsigned i = 0, j; i < n_threads; i = j) {
    for (j = i + 1; j < n_threads && same_wait(threads[i], threads[j]);) j++;
    const thread &t = threads[i];
    char text[512];
    const bool waits = t.state == thread_state::at_barrier || t.state == thread_state::at_warp_op;
    if (waits)
      snprintf(text, sizeof text, "\n    threads %u..%u wait at %s:%d in %s (mask %08x)", i, j - 1, t.file,
               t.line, op_text(t), t.mask);
    else
      snprintf(text, sizeof text, "\n    threads %u..%u %s", i, j - 1,
               t.state == thread_state::done ? "have exited" : "can run");
    s += text;
  }
  return s;
}

/* ---- scheduling ------------------------------------------------------------------------------------------ */

void wake(thread **const list, const unsigned n) {
  arrange(list, list + n);
  for (unsigned i = 0; i < n; i++) {
    list[i]->state = thread_state::ready;
    ready[(ready_first + ready_n++) % MAX_THREADS] = list[i];
  }
}

thread *next_ready() {
  if (!ready_n) return nullptr;
  thread *const t = ready[ready_first];
  ready_first = (ready_first + 1) % MAX_THREADS;
  ready_n--;
  return t;
}

void run_next(fiber *const here) { /* leaves this fiber for the next ready thread; back when woken */
  thread *const next = next_ready();
  if (!next) fail("deadlock, no thread can run:%s", waiters().c_str());
  if (!next->on) next->on = take_fiber();
  current = next;
  next->state = thread_state::running;
  if (next->on != here) jump(here, next->on);
}

void open_barrier() { /* if every live thread waits at it */
  if (!live || n_at_barrier != live) return;
  if (live != n_threads) fail("a barrier that exited threads do not reach:%s", waiters().c_str());
  const thread &first = threads[0];
  thread *list[MAX_THREADS];
  unsigned n_true = 0;
  for (unsigned i = 0; i < n_threads; i++) {
    if (threads[i].site != first.site || threads[i].file != first.file)
      fail("divergent barrier:%s", waiters().c_str());
    n_true += threads[i].value != 0;
    list[i] = &threads[i];
  }
  for (unsigned i = 0; i < n_threads; i++)
    threads[i].result = first.barrier == block_op::any   ? n_true > 0
                        : first.barrier == block_op::all ? n_true == n_threads
                                                         : n_true;
  n_at_barrier = 0;
  memory_block_barrier();
  wake(list, n_threads);
}

unsigned shuffle_source(const thread &t) {
  const int lane = (int)(t.linear & 31), width = (int)t.width, low = lane & ~(width - 1),
            high = low + width - 1;
  const int a = (int)t.argument;
  switch (t.collective) {
  case warp_op::shfl:
    return (unsigned)(low + (a & (width - 1)));
  case warp_op::shfl_up:
    return (unsigned)(lane - a < low ? lane : lane - a);
  case warp_op::shfl_down:
    return (unsigned)(lane + a > high ? lane : lane + a);
  default:
    return (unsigned)((lane ^ a) > high ? lane : lane ^ a);
  }
}

void complete_warp(thread *const me) { /* if all lanes of my mask wait with my operation */
  const unsigned base = me->linear & ~31u, m = me->mask, index = me->linear >> 5;
  warp &w = warps[index];
  if (m & w.done)
    fail("%s:%d: %s with mask %08x names exited or absent lanes %08x", me->file, me->line, op_text(*me), m,
         m & w.done);
  if ((w.waiting & m) != m) return;
  thread *list[32];
  unsigned n = 0, votes = 0;
  for (unsigned lane = 0; lane < 32; lane++) {
    if (!(m >> lane & 1)) continue;
    thread &o = threads[base + lane];
    if (o.mask != m || o.collective != me->collective)
      fail("lanes of a warp in different operations:%s", waiters().c_str());
    votes |= (unsigned)(o.value != 0) << lane;
    list[n++] = &o;
  }
  for (unsigned i = 0; i < n; i++) {
    thread &t = *list[i];
    if (t.collective <= warp_op::shfl_xor) {
      const unsigned source = shuffle_source(t);
      if (!(m >> source & 1))
        fail("%s:%d: %s: lane %u reads lane %u, which is not in mask %08x", t.file, t.line, op_text(t),
             t.linear & 31, source, m);
      t.result = threads[base + source].value;
    } else if (t.collective == warp_op::ballot) {
      t.result = votes;
    } else if (t.collective == warp_op::gather) {
      for (unsigned j = 0; j < n; j++)
        memcpy((char *)t.taken + (list[j]->linear & 31) * t.taken_bytes, list[j]->given, t.taken_bytes);
    }
  }
  w.waiting &= ~m;
  if (me->collective == warp_op::sync || me->collective == warp_op::gather) memory_warp_sync(index);
  wake(list, n);
}

void finish_thread(thread *const t) {
  for (const pending_copy &c : pending)
    if (c.by == t) fail("exits with an asynchronous copy that it has not waited for");
  t->state = thread_state::done;
  live--;
  counts.threads++;
  warps[t->linear >> 5].done |= 1u << (t->linear & 31);
  open_barrier();
}

void fiber_main() {
  for (;;) {
    body->run();
    thread *const t = self();
    fiber *const f = t->on;
    finish_thread(t);
    thread *const next = next_ready();
    if (!next && live) fail("deadlock, no thread can run:%s", waiters().c_str());
    t->on = nullptr;
    if (next) {
      current = next;
      next->state = thread_state::running;
      if (!next->on) { /* the next thread begins here, on this stack */
        next->on = f;
        continue;
      }
    }
    free_fibers[n_free_fibers++] = f;
    jump(f, next ? next->on : &main_fiber);
  }
}

void drop_fibers() {
  n_free_fibers = 0;
  for (unsigned i = 0; i < n_fibers; i++) {
    arm(&fibers[i]);
    free_fibers[n_free_fibers++] = &fibers[i];
  }
}

void run_block(const launch &l) {
  const unsigned odd = n_threads & 31, n_warps = (n_threads + 31) / 32;
  memset(warps, 0, sizeof warps);
  if (odd) warps[n_warps - 1].done = ~0u << odd;
  ready_first = ready_n = n_at_barrier = 0;
  live = n_threads;
  pending.clear();
  memory_begin_block(l.shared_bytes);
  thread *order[MAX_THREADS];
  for (unsigned i = 0; i < n_threads; i++) {
    thread &t = threads[i];
    t = thread();
    t.index = {i % l.block.x, i / l.block.x % l.block.y, i / (l.block.x * l.block.y)};
    t.linear = i;
    order[i] = &t;
  }
  wake(order, n_threads);
  thread *const first = next_ready();
  first->on = take_fiber();
  first->state = thread_state::running;
  current = first;
  jump(&main_fiber, first->on);
  current = nullptr;
  counts.blocks++;
}

} // namespace

unsigned random_below(const unsigned n) { /* Knuth's MMIX generator */
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)((random_state >> 33) % n);
}

void fail(const char *const format, ...) {
  va_list list;
  va_start(list, format);
  fault = where() + format_text(format, list);
  va_end(list);
  leave();
}

void fail_at(const void *const pc, const void *const other_pc, const char *const other,
             const char *const format, ...) {
  va_list list;
  va_start(list, format);
  fault = where() + format_text(format, list);
  va_end(list);
  fault += "\n    at " + source_line(pc);
  if (other_pc) fault += std::string("\n    ") + other + source_line(other_pc);
  leave();
}

bool on_stack(const void *const p) {
  return stacks && (char *)p >= stacks && (char *)p < stacks + (STACK_BYTES + STACK_GUARD_BYTES) * n_fibers;
}

int block_barrier(const block_op op, const bool predicate, const char *const file, const int line,
                  const int site) {
  thread *const t = self();
  t->at_block_op = true;
  t->barrier = op;
  t->file = file;
  t->line = line;
  t->site = site;
  t->mask = 0;
  t->value = predicate;
  t->state = thread_state::at_barrier;
  n_at_barrier++;
  counts.barriers++;
  open_barrier();
  run_next(t->on);
  return (int)t->result;
}

uint64_t warp_collective(const warp_op op, const unsigned mask, const uint64_t value, const unsigned argument,
                         const unsigned width, const char *const file, const int line) {
  thread *const t = self();
  t->at_block_op = false;
  t->collective = op;
  t->file = file;
  t->line = line;
  t->site = -1;
  t->mask = mask;
  t->value = value;
  t->argument = argument;
  t->width = width;
  counts.warp_ops++;
  if (!(mask >> (t->linear & 31) & 1))
    fail("%s:%d: %s by lane %u, which is not in mask %08x", file, line, op_text(*t), t->linear & 31, mask);
  if (width == 0 || width > 32 || (width & (width - 1)))
    fail("%s:%d: %s of width %u", file, line, op_text(*t), width);
  t->state = thread_state::at_warp_op;
  warps[t->linear >> 5].waiting |= 1u << (t->linear & 31);
  complete_warp(t);
  run_next(t->on);
  return t->result;
}

void warp_gather(const void *const in, void *const out, const size_t bytes, const char *const file,
                 const int line) {
  thread *const t = self();
  t->given = in;
  t->taken = out;
  t->taken_bytes = bytes;
  warp_collective(warp_op::gather, ~0u, 0, 0, 32, file, line);
}

void async_copy(void *const to, const void *const from, const size_t bytes) {
  check_range(from, bytes, false, __builtin_return_address(0));
  pending.push_back({self(), to, from, bytes});
}

void async_copy_wait() {
  size_t kept = 0;
  for (const pending_copy &c : pending) {
    if (c.by != self()) {
      pending[kept++] = c;
      continue;
    }
    check_range(c.to, c.bytes, true, __builtin_return_address(0));
    memcpy(c.to, c.from, c.bytes);
  }
  pending.resize(kept);
}

bool run(const launch &l) {
  kernel_name = l.name;
  body = l.call.get();
  block_size = l.block;
  grid_size = l.grid;
  n_threads = l.block.x * l.block.y * l.block.z;
  random_state = seed;
  failed = false;
  counts.launches++;
  memory_begin_launch(l);
  std::vector<uint32_t> blocks(l.grid.x * l.grid.y * l.grid.z);
  for (size_t i = 0; i < blocks.size(); i++) blocks[i] = (uint32_t)i;
  arrange(blocks.begin(), blocks.end());
  for (const uint32_t b : blocks) {
    block_index = {b % l.grid.x, b / l.grid.x % l.grid.y, b / (l.grid.x * l.grid.y)};
    run_block(l);
    if (failed) break;
  }
  memory_end_launch();
  if (!failed) return true;
  drop_fibers();
  report_fault(fault);
  return false;
}

} // namespace cuemu
