/* The allocation trap: stand-ins for the allocators that count while armed and hand on to glibc's own.
 *
 * glibc exports its allocator a second time under __libc_ names, so the stand-ins need no dlsym, which itself
 * allocates. mmap, mremap and brk go to the kernel directly. */
#undef _FILE_OFFSET_BITS /* it would rename mmap to mmap64, and both are defined here */
#include "tests/support/alloc_trap.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TRAP_API __attribute__((visibility("default")))
#define SEEN(what, bytes)                                                                                    \
  do {                                                                                                       \
    if (atomic_load_explicit(&armed, memory_order_relaxed))                                                  \
      record((what), (bytes), __builtin_return_address(0));                                                  \
  } while (0)

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void *__libc_valloc(size_t);
extern void *__libc_pvalloc(size_t);
extern void __libc_free(void *);
extern void *__sbrk(intptr_t);

enum { KEPT = 16 };

typedef struct trapped {
  const char *what;
  size_t bytes;
  void *caller;
} trapped;

static atomic_int armed;
static atomic_uint armings;
static atomic_ullong calls;
static trapped kept[KEPT];

static void record(const char *const what, const size_t bytes, void *const caller) {
  const unsigned long long at = atomic_fetch_add(&calls, 1);
  if (at < KEPT) kept[at] = (trapped){what, bytes, caller};
}

TRAP_API void alloc_trap_arm(void) {
  atomic_fetch_add(&armings, 1);
  atomic_store(&armed, 1);
}

TRAP_API uint64_t alloc_trap_disarm(void) {
  atomic_store(&armed, 0);
  return atomic_load(&calls);
}

TRAP_API void alloc_trap_reset(void) {
  atomic_store(&armed, 0);
  atomic_store(&armings, 0);
  atomic_store(&calls, 0);
}

TRAP_API unsigned alloc_trap_armings(void) { return atomic_load(&armings); }

static void append(char *const text, const size_t bytes, const char *const format, ...) {
  const size_t used = strlen(text);
  va_list args;
  va_start(args, format);
  vsnprintf(text + used, bytes - used, format, args);
  va_end(args);
}

TRAP_API char *alloc_trap_report(char *const text, const size_t bytes) {
  const unsigned long long n = atomic_load(&calls);
  text[0] = 0;
  append(text, bytes, "alloc-trap: %llu calls in %u armings\n", n, atomic_load(&armings));
  for (unsigned long long i = 0; i < n && i < KEPT; i++) {
    Dl_info from = {0};
    dladdr(kept[i].caller, &from);
    append(text, bytes, "  %s(%zu) from %s in %s+%#zx\n", kept[i].what, kept[i].bytes,
           from.dli_sname ? from.dli_sname : "?", from.dli_fname ? from.dli_fname : "?",
           (size_t)((char *)kept[i].caller - (char *)from.dli_fbase));
  }
  return text;
}

/* ---- the stand-ins ---- */

TRAP_API void *malloc(const size_t bytes) {
  SEEN("malloc", bytes);
  return __libc_malloc(bytes);
}

TRAP_API void *calloc(const size_t n, const size_t bytes) {
  SEEN("calloc", n * bytes);
  return __libc_calloc(n, bytes);
}

TRAP_API void *realloc(void *const block, const size_t bytes) {
  SEEN("realloc", bytes);
  return __libc_realloc(block, bytes);
}

TRAP_API void *reallocarray(void *const block, const size_t n, const size_t size) {
  SEEN("reallocarray", n * size);
  size_t bytes;
  if (__builtin_mul_overflow(n, size, &bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  return __libc_realloc(block, bytes);
}

TRAP_API void free(void *const block) {
  if (block) SEEN("free", 0);
  __libc_free(block);
}

TRAP_API void *memalign(size_t align, size_t bytes);
TRAP_API void *memalign(const size_t align, const size_t bytes) {
  SEEN("memalign", bytes);
  return __libc_memalign(align, bytes);
}

TRAP_API void *aligned_alloc(const size_t align, const size_t bytes) {
  SEEN("aligned_alloc", bytes);
  return __libc_memalign(align, bytes);
}

TRAP_API int posix_memalign(void **const out, const size_t align, const size_t bytes) {
  SEEN("posix_memalign", bytes);
  if (!align || align % sizeof(void *) || (align & (align - 1))) return EINVAL;
  void *const block = __libc_memalign(align, bytes);
  if (!block) return ENOMEM;
  *out = block;
  return 0;
}

TRAP_API void *valloc(const size_t bytes) {
  SEEN("valloc", bytes);
  return __libc_valloc(bytes);
}

TRAP_API void *pvalloc(size_t bytes);
TRAP_API void *pvalloc(const size_t bytes) {
  SEEN("pvalloc", bytes);
  return __libc_pvalloc(bytes);
}

static void *map(void *const at, const size_t bytes, const int protection, const int flags, const int fd,
                 const off_t offset) {
  return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

TRAP_API void *mmap(void *const at, const size_t bytes, const int protection, const int flags, const int fd,
                    const off_t offset) {
  if (flags & MAP_ANONYMOUS) SEEN("mmap", bytes);
  return map(at, bytes, protection, flags, fd, offset);
}

TRAP_API void *mmap64(void *const at, const size_t bytes, const int protection, const int flags, const int fd,
                      const off64_t offset) {
  if (flags & MAP_ANONYMOUS) SEEN("mmap64", bytes);
  return map(at, bytes, protection, flags, fd, offset);
}

TRAP_API void *mremap(void *const old, const size_t old_bytes, const size_t bytes, const int flags, ...) {
  SEEN("mremap", bytes);
  va_list args;
  va_start(args, flags);
  void *const at = flags & MREMAP_FIXED ? va_arg(args, void *) : NULL;
  va_end(args);
  return (void *)syscall(SYS_mremap, old, old_bytes, bytes, flags, at);
}

TRAP_API void *sbrk(const intptr_t step) {
  if (step) SEEN("sbrk", (size_t)step);
  return __sbrk(step);
}

TRAP_API int brk(void *const end) {
  SEEN("brk", 0);
  int (*const next)(void *) = (int (*)(void *))(uintptr_t)dlsym(RTLD_NEXT, "brk");
  return next ? next(end) : -1;
}

typedef int create_thread(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

TRAP_API int pthread_create(pthread_t *const thread, const pthread_attr_t *const attributes,
                            void *(*const start)(void *), void *const argument) {
  SEEN("pthread_create", 0);
  create_thread *const next = (create_thread *)(uintptr_t)dlsym(RTLD_NEXT, "pthread_create");
  return next ? next(thread, attributes, start, argument) : EAGAIN;
}
