/* The two marks, in a source of their own so that no compiler puts them inline: a test interposes them. */
#include "engine/stint.h"

void stint_mark_first_step(void) { __asm__ volatile(""); }
void stint_mark_last_step(void) { __asm__ volatile(""); }
