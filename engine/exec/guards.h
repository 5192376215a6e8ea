/* The step region under -Dguard=true: every buffer is NaN at its birth and another NaN after its death, a canary stands behind
 * it, and under AddressSanitizer what is dead cannot be touched. A kernel that reads too early, too late or too far shows. */
#ifndef STINT_ENGINE_EXEC_GUARDS_H
#define STINT_ENGINE_EXEC_GUARDS_H

#include "engine/exec/program.h"

void guards_before(const program *p, int32_t step);
/* Traps on a canary that was written over. */
void guards_after(const program *p, int32_t step);
/* Before the region is used for anything else. */
void guards_lift(const program *p, size_t bytes);

#endif
