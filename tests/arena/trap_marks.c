/* Stands for libstint in the self-test of the preloaded trap: a shared library that calls its own two marks. */
#include "tests/arena/trap_marks.h"

#define MARK __attribute__((visibility("default"), noinline))

MARK void stint_mark_first_step(void) { __asm__ volatile(""); }
MARK void stint_mark_last_step(void) { __asm__ volatile(""); }

__attribute__((visibility("default"))) void marks_around(void (*const body)(void)) {
  stint_mark_first_step();
  body();
  stint_mark_last_step();
}
