/* Bump memory: a list of chunks of whole pages; a take moves one mark forward.
 *
 * Algorithm: the current chunk is `last`. A take that does not fit there asks the system for a chunk of
 * max(256 KiB, the need rounded to pages), cut to what the limit leaves. A need so large that the new chunk would
 * have less room left than the current one gets a chunk of its own at the front of the list, so that the room
 * left in the current chunk is not lost. Fresh anonymous pages are zero; a caller's buffer is zeroed piece by piece
 * as it is handed out.
 *
 * Invariant: header <= used <= size in every chunk, and the sum of size over the chunks is taken_bytes. */
#include "arena/bump.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct bump_chunk {
  bump_chunk *next;
  size_t size; /* of the chunk, this header included */
  size_t used; /* this header included */
};

enum { PAGE_BYTES = 4096, CHUNK_BYTES = 256 * 1024 };

void bump_init(bump *const b, const size_t limit_bytes) { *b = (bump){.limit_bytes = limit_bytes}; }

void bump_init_over(bump *const b, void *const buffer, const size_t bytes) {
  *b = (bump){.limit_bytes = bytes, .taken_bytes = bytes, .borrowed = true};
  const size_t skip = -(uintptr_t)buffer & (_Alignof(bump_chunk) - 1);
  if (!buffer || bytes < skip || bytes - skip < sizeof(bump_chunk)) return; /* every take says NULL */
  bump_chunk *const c = (bump_chunk *)((unsigned char *)buffer + skip);
  *c = (bump_chunk){.size = bytes - skip, .used = sizeof *c};
  b->first = b->last = c;
}

/* Offset in `c` of a place for the request; SIZE_MAX when there is none. */
static size_t place_in(const bump_chunk *const c, const size_t bytes, const size_t align) {
  if (!c) return SIZE_MAX;
  const size_t pad = -((uintptr_t)c + c->used) & (align - 1);
  const size_t left = c->size - c->used;
  return pad > left || bytes > left - pad ? SIZE_MAX : c->used + pad;
}

static bump_chunk *add_chunk(bump *const b, const size_t bytes, const size_t align) {
  const size_t extra = sizeof(bump_chunk) + align + PAGE_BYTES - 1;
  if (b->borrowed || bytes > SIZE_MAX - extra) return NULL;
  const size_t need = (bytes + extra) & ~(size_t)(PAGE_BYTES - 1);
  size_t size = need > CHUNK_BYTES ? need : CHUNK_BYTES;
  if (b->limit_bytes) {
    const size_t left = (b->limit_bytes - b->taken_bytes) & ~(size_t)(PAGE_BYTES - 1);
    if (size > left) size = left;
    if (size < need) return NULL;
  }
  bump_chunk *const c = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (c == MAP_FAILED) return NULL;
  c->size = size;
  c->used = sizeof *c;
  b->taken_bytes += size;

  const bump_chunk *const current = b->last;
  if (current && current->size - current->used > size - need) {
    c->next = b->first;
    b->first = c;
  } else {
    if (b->last) {
      b->last->next = c;
    } else {
      b->first = c;
    }
    b->last = c;
  }
  return c;
}

void *bump_take(bump *const b, const size_t bytes, const size_t align) {
  if (b->sealed || !align || (align & (align - 1)) || align > PAGE_BYTES) return NULL;
  bump_chunk *c = b->last;
  size_t at = place_in(c, bytes, align);
  if (at == SIZE_MAX) {
    c = add_chunk(b, bytes, align);
    at = place_in(c, bytes, align);
    if (at == SIZE_MAX) return NULL;
  }
  b->used_bytes += at + bytes - c->used;
  c->used = at + bytes;
  void *const taken = (unsigned char *)c + at;
  return b->borrowed ? memset(taken, 0, bytes) : taken;
}

void *bump_take_n(bump *const b, const size_t n, const size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(n, size, &bytes)) return NULL;
  return bump_take(b, bytes, _Alignof(max_align_t));
}

char *bump_text(bump *const b, const char *const text, const size_t n) {
  if (n == SIZE_MAX) return NULL;
  char *const copy = bump_take(b, n + 1, 1);
  if (copy && n) memcpy(copy, text, n);
  return copy;
}

char *bump_printf(bump *const b, const char *const format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  const int n = vsnprintf(NULL, 0, format, args);
  char *const text = n < 0 ? NULL : bump_take(b, (size_t)n + 1, 1);
  if (text) vsnprintf(text, (size_t)n + 1, format, again);
  va_end(again);
  va_end(args);
  return text;
}

void bump_seal(bump *const b) { b->sealed = true; }

void bump_free(bump *const b) {
  if (b->borrowed) {
    bump_chunk *const c = b->first;
    if (c) c->used = sizeof *c;
  } else {
    for (bump_chunk *c = b->first, *next; c; c = next) {
      next = c->next;
      munmap(c, c->size);
    }
    b->first = b->last = NULL;
    b->taken_bytes = 0;
  }
  b->used_bytes = 0;
  b->sealed = false;
}
