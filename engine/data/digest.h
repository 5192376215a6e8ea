/* Digests of data: XXH3, 64 bits, in pieces. The one place that uses libxxhash. Not a guard against forgery. */
#ifndef STINT_ENGINE_DATA_DIGEST_H
#define STINT_ENGINE_DATA_DIGEST_H

#include <stddef.h>
#include <stdint.h>

typedef struct digest {
  _Alignas(64) unsigned char state[640];
} digest;

void digest_start(digest *d);
void digest_add(digest *d, const void *data, size_t bytes);
uint64_t digest_end(const digest *d);               /* may be called at any time; more may be added after */
uint64_t digest_of(const void *data, size_t bytes); /* the same as start, add, end */

#endif
