/* What memory this process, or a range of it, really holds: to compare what was planned with what is used.
 * Linux; allocates nothing. */
#ifndef STINT_TESTS_SUPPORT_MEMORY_H
#define STINT_TESTS_SUPPORT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct memory_use {
  size_t rss_bytes;            /* all resident pages, files included */
  size_t anonymous_bytes;      /* resident pages that no file backs */
  size_t anonymous_huge_bytes; /* of these, in huge pages */
} memory_use;

/* From /proc/self/smaps_rollup, exact to the page. False when it cannot be read. */
bool memory_now(memory_use *out);

/* Resident bytes of [base, base + bytes), whole pages. SIZE_MAX when the kernel refuses. */
size_t memory_resident(const void *base, size_t bytes);

#endif
