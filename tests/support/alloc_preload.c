/* The allocation trap for a program that is not linked with it:
 *
 *   STINT_ALLOC_TRAP=report.txt LD_PRELOAD=./liballoc_preload.so stint train ...
 *
 * libstint calls two empty public functions, stint_mark_first_step before the first step of a run and
 * stint_mark_last_step after the last one. This library defines them too, and a preloaded library's definition wins: the
 * first arms the trap, the second disarms it. At the end of the process a report is appended to the named file; a
 * process that was never armed appends nothing, so a test must find a report with at least one arming.
 *
 * The marks are found only if the call goes through the dynamic linker: the program must use libstint.so (in a program
 * that links the objects statically its own definition comes first), the functions must have default visibility, must
 * not be inlined (so: defined in another source than their caller), and libstint must not be linked with -Bsymbolic
 * or -Bsymbolic-functions. A test that finds no report has met one of these. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/alloc_trap.h"

#define PRELOAD_API __attribute__((visibility("default")))

PRELOAD_API void stint_mark_first_step(void);
PRELOAD_API void stint_mark_last_step(void);

PRELOAD_API void stint_mark_first_step(void) { alloc_trap_arm(); }

PRELOAD_API void stint_mark_last_step(void) { (void)alloc_trap_disarm(); }

__attribute__((destructor)) static void write_report(void) {
  static char text[8192];
  const char *const path = getenv("STINT_ALLOC_TRAP");
  (void)alloc_trap_disarm();
  if (!path || !alloc_trap_armings()) return;
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return;
  alloc_trap_report(text, sizeof text);
  const ssize_t written = write(fd, text, strlen(text));
  (void)written; /* a test that finds no report fails */
  close(fd);
}
