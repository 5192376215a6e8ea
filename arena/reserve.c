/* Pages from the system: anonymous reservations, and read-only maps of files.
 *
 * A touched reservation is populated by madvise(MADV_POPULATE_WRITE), which reports a refusal instead of killing the
 * process in the middle of a store; kernels before 5.14 lack it, and there each page is written once. Huge pages are
 * asked for: every page of the reservation is touched, so they cannot make the process hold more than the
 * reservation, and the flag keeps the kernel from merging it with a neighbouring, half-touched mapping. */
#include "arena/reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static const size_t huge_page_bytes = (size_t)2 << 20;

size_t reserve_round(const size_t bytes) {
  const size_t mask = RESERVE_PAGE_BYTES - 1;
  return bytes > SIZE_MAX - mask ? SIZE_MAX : (bytes + mask) & ~mask;
}

/* Writes every page. 0, or the errno of the refusal. */
static int touch_pages(unsigned char *const base, const size_t bytes) {
  int rc;
  do { rc = madvise(base, bytes, MADV_POPULATE_WRITE); } while (rc && errno == EINTR);
  if (!rc) return 0;
  if (errno == ENOMEM || errno == EFAULT || errno == EHWPOISON) return errno;
  for (size_t i = 0; i < bytes; i += RESERVE_PAGE_BYTES) ((volatile unsigned char *)base)[i] = 0;
  return 0;
}

static stint_status refused(const size_t bytes, const int code, stint_error *const error) {
  return stint_fail(
      error, STINT_NO_MEMORY,
      "the system refused a reservation of %zu bytes (%.1f MiB): %s; give a smaller budget, or raise "
      "the limit on memory (ulimit -v, the container's memory limit)",
      bytes, (double)bytes / 1048576.0, strerror(code));
}

stint_status reserve_take(const size_t bytes, const bool touch, reservation *const out,
                          stint_error *const error) {
  *out = (reservation){0};
  if (!bytes) return STINT_OK;
  const size_t whole = reserve_round(bytes);
  if (whole == SIZE_MAX) return refused(bytes, ENOMEM, error);
  unsigned char *const base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return refused(whole, errno, error);
  if (touch) {
    if (whole >= huge_page_bytes)
      (void)madvise(base, whole, MADV_HUGEPAGE); /* a wish: its refusal changes nothing */
    const int code = touch_pages(base, whole);
    if (code) {
      munmap(base, whole);
      return refused(whole, code, error);
    }
  }
  *out = (reservation){.base = base, .bytes = whole};
  return STINT_OK;
}

void reserve_release(reservation *const r) {
  if (r->base) munmap(r->base, r->bytes);
  *r = (reservation){0};
}

static const char *kind_of(const mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

static stint_status map_descriptor(const int fd, const char *const path, file_map *const out,
                                   stint_error *const error) {
  struct stat st;
  if (fstat(fd, &st))
    return stint_fail(error, STINT_IO, "%s: cannot read its size: %s", path, strerror(errno));
  if (!S_ISREG(st.st_mode)) {
    return stint_fail(error, STINT_BAD_INPUT, "%s: is %s, not a regular file; give the path of a file", path,
                      kind_of(st.st_mode));
  }
  if (!st.st_size) return STINT_OK;
  const size_t bytes = (size_t)st.st_size;
  void *const base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    return stint_fail(error, STINT_IO,
                      "%s: cannot map %zu bytes: %s; copy it to a local file system, or raise the "
                      "limit on address space (ulimit -v)",
                      path, bytes, strerror(errno));
  }
  *out = (file_map){.base = base, .bytes = bytes};
  return STINT_OK;
}

stint_status file_map_open(const char *const path, file_map *const out, stint_error *const error) {
  *out = (file_map){0};
  int fd;
  do {
    fd = open(path,
              O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* NONBLOCK: a pipe without a writer must not hang us */
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    const int code = errno;
    const bool named_wrong =
        code == ENOENT || code == ENOTDIR || code == ENAMETOOLONG || code == ELOOP || code == EISDIR;
    return stint_fail(error, named_wrong ? STINT_BAD_INPUT : STINT_IO,
                      "%s: cannot open: %s; check the path and its permissions", path, strerror(code));
  }
  const stint_status status = map_descriptor(fd, path, out, error);
  close(fd);
  return status;
}

void file_map_close(file_map *const m) {
  if (m->base) munmap((void *)(uintptr_t)m->base, m->bytes);
  *m = (file_map){0};
}
