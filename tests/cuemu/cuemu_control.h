/* What tests set and ask of the emulated device. C and C++. */
#ifndef STINT_TESTS_CUEMU_CUEMU_CONTROL_H
#define STINT_TESTS_CUEMU_CUEMU_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The order in which threads, warps, blocks and streams run: 0 ascending, 1 descending, else pseudo-random by this seed. */
void cuemu_seed(unsigned seed);

/* A device of so many bytes (1 GiB at first); what is taken stays taken. */
void cuemu_set_memory(size_t bytes);

/* A kernel's fault (memory, barriers, shuffles) is printed and aborts the process; when `collect` is set it is only
 * recorded, and the device's error is sticky until cuemu_clear, as on a GPU. A wrong API call is printed unless collected,
 * and returns its error. */
void cuemu_collect(bool collect);
void cuemu_clear(void);
unsigned cuemu_faults(void);  /* of kernels, since the last clear */
unsigned cuemu_misuses(void); /* of the API, since the last clear */
const char *cuemu_text(void); /* of the last of either; "" : none */

/* For the launches enqueued from here on (a captured one keeps it): a kernel may touch these ranges only, and write only
 * those with `written`. With no list (cuemu_operands_any) every live allocation may be touched. */
typedef struct cuemu_operand {
  const void *address;
  size_t bytes;
  bool written;
} cuemu_operand;
void cuemu_operands(const cuemu_operand *list, size_t n);
void cuemu_operands_any(void);

/* Host access to device memory by test code (place and compare without copies); nests. Otherwise it faults. */
void cuemu_open_memory(void);
void cuemu_close_memory(void);

typedef struct cuemu_counts {
  uint64_t launches, blocks, threads, barriers, warp_ops, accesses; /* of kernels */
  uint64_t mallocs, pinned_mallocs;                                 /* calls that allocate */
  size_t bytes, peak_bytes, pinned_bytes, peak_pinned_bytes;        /* as asked for */
  unsigned live_allocations, live_streams, live_events, live_graphs, live_handles;
} cuemu_counts;
cuemu_counts cuemu_count(void);

#ifdef __cplusplus
}
#endif

#endif
