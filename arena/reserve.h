/* Pages from the system: one anonymous reservation for a run, and read-only maps of files.
 *
 * A reservation is touched in full when it is made (`touch`): after that no page fault can fail, and what the
 * plan announced is what the process holds. Sizes are rounded up to whole pages by the caller's plan
 * (reserve_round), so that said == used holds to the byte. */
#ifndef STINT_ARENA_RESERVE_H
#define STINT_ARENA_RESERVE_H

#include <stdbool.h>
#include <stddef.h>

#include "arena/status.h"

enum { RESERVE_PAGE_BYTES = 4096, ARENA_ALIGN = 64 };

typedef struct reservation {
  unsigned char *base; /* page-aligned, zeroed */
  size_t bytes;
} reservation;

size_t reserve_round(size_t bytes); /* up to a whole page; SIZE_MAX when that would wrap */

stint_status reserve_take(size_t bytes, bool touch, reservation *out, stint_error *error);
void reserve_release(reservation *r);

typedef struct file_map {
  const unsigned char *base; /* NULL for an empty file */
  size_t bytes;
} file_map;

/* Maps a regular file read-only and shared. A directory, a missing or unreadable file: BAD_INPUT or IO, with
 * the path in the text. */
stint_status file_map_open(const char *path, file_map *out, stint_error *error);
void file_map_close(file_map *m);

#endif
