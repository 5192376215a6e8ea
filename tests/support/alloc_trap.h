/* A trap for allocations: between arm and disarm every call of an allocator, by any thread and any library of
 * the process, is counted, and the first few are written down with their callers.
 *
 * The trap defines malloc and its family itself and so takes the place of the C library's for the whole process, shared
 * libraries and the C library's own calls (fopen, getline, qsort) included. Two ways to use it:
 *   - link alloc_trap.c into a test and call arm and disarm there;
 *   - preload it (alloc_preload.c) into a program that is not linked with it.
 * Seen: malloc, calloc, realloc, reallocarray, free of a block, aligned_alloc, posix_memalign, memalign, valloc,
 * pvalloc, mmap of anonymous memory, mremap, brk, sbrk, pthread_create. Not seen: system calls that the C library makes
 * inside itself; each of those is behind one of the calls above. glibc only; not together with ASan or TSan, which
 * take the same place. */
#ifndef STINT_TESTS_SUPPORT_ALLOC_TRAP_H
#define STINT_TESTS_SUPPORT_ALLOC_TRAP_H

#include <stddef.h>
#include <stdint.h>

void alloc_trap_arm(void); /* counts go on from where they were */

/* Calls counted so far, by all armings. */
uint64_t alloc_trap_disarm(void);

void alloc_trap_reset(void);
unsigned alloc_trap_armings(void);

/* The count and the first callers, as text. Returns `text`. Allocates nothing. */
char *alloc_trap_report(char *text, size_t bytes);

#endif
