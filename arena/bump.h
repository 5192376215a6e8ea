/* Bump memory for planning and loading: grows in chunks of whole pages taken from the system, hands out
 * zeroed memory, frees all at once. A chunk never moves, so pointers stay good.
 *
 *   chunk 0 [header | used........|free]   chunk 1 [header | used....|free]  ...
 *
 * Contract: memory is zeroed once, at birth; bytes are counted (`taken_bytes`, whole chunks), so that
 * start-up is a line of the plan; after bump_seal nothing more may be taken (a take then returns NULL).
 * A bump may be laid over a caller's buffer instead (bump_init_over): then it never asks the system. */
#ifndef STINT_ARENA_BUMP_H
#define STINT_ARENA_BUMP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct bump_chunk bump_chunk;

typedef struct bump {
  bump_chunk *first, *last;
  size_t taken_bytes; /* asked of the system, or the size of the caller's buffer */
  size_t used_bytes;  /* handed out, alignment included */
  size_t limit_bytes; /* taken_bytes never passes this; 0: no limit */
  bool borrowed;      /* over a caller's buffer */
  bool sealed;
} bump;

void bump_init(bump *b, size_t limit_bytes);
void bump_init_over(bump *b, void *buffer, size_t bytes);

/* Zeroed bytes at an address that is a multiple of `align` (a power of two, at most 4096), or NULL when the
 * system, the limit or the seal says no. bytes == 0 gives a valid address. */
void *bump_take(bump *b, size_t bytes, size_t align);

/* n elements of `size`, checked for overflow. */
void *bump_take_n(bump *b, size_t n, size_t size);
#define BUMP_NEW(b, type)      ((type *)bump_take((b), sizeof(type), _Alignof(type)))
#define BUMP_ARRAY(b, type, n) ((type *)bump_take_n((b), (n), sizeof(type)))

/* A NUL-terminated copy of n bytes. */
char *bump_text(bump *b, const char *text, size_t n);

/* A formatted string. */
char *bump_printf(bump *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

void bump_seal(bump *b);
void bump_free(bump *b); /* gives every chunk back; the bump is empty and usable again */

#endif
