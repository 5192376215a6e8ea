/* See trap_marks.c. */
#ifndef STINT_TESTS_ARENA_TRAP_MARKS_H
#define STINT_TESTS_ARENA_TRAP_MARKS_H

void stint_mark_first_step(void);
void stint_mark_last_step(void);
void marks_around(void (*body)(void));

#endif
