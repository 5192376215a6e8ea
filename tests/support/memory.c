/* Reads /proc/self/smaps_rollup, and asks mincore about a range. */
#include "tests/support/memory.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096 };

static bool field(const char *const text, const char *const name, size_t *const out) {
  const char *const at = strstr(text, name);
  if (!at) return false;
  *out = strtoull(at + strlen(name), NULL, 10) * 1024;
  return true;
}

bool memory_now(memory_use *const out) {
  char text[4096];
  const int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  size_t used = 0;
  for (ssize_t n; used < sizeof text - 1 && (n = read(fd, text + used, sizeof text - 1 - used)) > 0;)
    used += (size_t)n;
  close(fd);
  text[used] = 0;
  return field(text, "\nRss:", &out->rss_bytes) && field(text, "\nAnonymous:", &out->anonymous_bytes) &&
         field(text, "\nAnonHugePages:", &out->anonymous_huge_bytes);
}

size_t memory_resident(const void *const base, const size_t bytes) {
  unsigned char *const first = (unsigned char *)((uintptr_t)base & ~(uintptr_t)(PAGE_BYTES - 1));
  const size_t n_pages =
      ((size_t)((const unsigned char *)base + bytes - first) + PAGE_BYTES - 1) / PAGE_BYTES;
  size_t resident = 0;
  for (size_t at = 0; at < n_pages;) {
    unsigned char pages[1024];
    const size_t n = n_pages - at < sizeof pages ? n_pages - at : sizeof pages;
    if (mincore(first + at * PAGE_BYTES, n * PAGE_BYTES, pages)) return SIZE_MAX;
    for (size_t i = 0; i < n; i++) resident += pages[i] & 1;
    at += n;
  }
  return resident * PAGE_BYTES;
}
