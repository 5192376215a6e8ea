/* Debug guards for buffers inside one reservation, where no tool from outside sees a border.
 *
 *   [ buffer A ........... | canary ][ buffer B ...... | canary ] ...
 *
 * An executor built with -Dguard=true calls, for each buffer and each use of its bytes:
 *   guard_birth   before the first write: fills with NaN, so that a read before a write shows in the result;
 *   guard_death   after the last read: fills with another NaN, so that a late read shows;
 *   guard_canary_set behind each buffer at its birth, guard_canary_find after each step: a stray write.
 * Under AddressSanitizer dead bytes and canaries are poisoned too, so that the stray access itself is reported.
 * Planned sizes then include GUARD_CANARY_BYTES behind each buffer. Compiled always, called only in such builds. */
#ifndef STINT_ARENA_GUARD_H
#define STINT_ARENA_GUARD_H

#include <stddef.h>
#include <stdint.h>

enum { GUARD_CANARY_BYTES = 64 };

/* Repeated through a buffer. Read as f16, bf16, f32 or f64 both are NaN; read as an index, out of any range. */
#define GUARD_BORN UINT32_C(0x7ffd7ffd)
#define GUARD_DEAD UINT32_C(0x7ffe7ffe)

void guard_birth(void *base, size_t bytes);
void guard_death(void *base, size_t bytes);

/* Before the bytes go back to the system, or to code without guards. */
void guard_lift(void *base, size_t bytes);

void guard_canary_set(void *at); /* GUARD_CANARY_BYTES at `at` */

/* The first byte of the canary that was written over, or -1. */
int guard_canary_find(const void *at);

/* The first whole word (counted in bytes) that still holds `word`, or SIZE_MAX: what a kernel left unwritten. */
size_t guard_find(const void *base, size_t bytes, uint32_t word);

#endif
