/* The vocabulary: texts in the file's map, found through a hash with open addressing.
 *
 * A slot holds 32 bits of the hash and the id, so that a miss seldom touches the map. At most half of the slots
 * are full. Control, unknown and byte tokens are not in it: text never turns into them. */
#include "engine/tokenizer/parts.h"

#include <string.h>

static uint64_t hash_text(const char *text, size_t n) {
  uint64_t h = 0x9E3779B97F4A7C15u ^ n;
  while (n >= 8) {
    uint64_t word;
    memcpy(&word, text, 8);
    h = (h ^ word) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    text += 8, n -= 8;
  }
  uint64_t word = 0;
  for (size_t i = 0; i < n; i++) word = word << 8 | (unsigned char)text[i];
  h = (h ^ word) * 0xD6E8FEB86659FD93u;
  h ^= h >> 32;
  h *= 0xD6E8FEB86659FD93u;
  return h ^ h >> 32;
}

float tok_score(const tokenizer *t, const int32_t id) {
  float score = 0;
  if (t->scores) memcpy(&score, t->scores + (size_t)id * 4, 4);
  return score;
}

/* The slot of this text, or the empty one where it would stand. */
static tok_slot *find_slot(const tokenizer *t, const char *text, const size_t n, uint32_t *tag) {
  const uint64_t h = hash_text(text, n);
  *tag = (uint32_t)(h >> 32);
  for (uint32_t i = (uint32_t)h & t->slot_mask;; i = (i + 1) & t->slot_mask) {
    tok_slot *slot = &t->slots[i];
    if (!slot->id_plus_1) return slot;
    if (slot->tag != *tag) continue;
    size_t bytes;
    const char *other = tok_text(t, (int32_t)slot->id_plus_1 - 1, &bytes);
    if (bytes == n && memcmp(other, text, n) == 0) return slot;
  }
}

void tok_vocab_add(tokenizer *t, const int32_t id) {
  size_t bytes;
  uint32_t tag;
  const char *text = tok_text(t, id, &bytes);
  if (bytes == 0) return;
  *find_slot(t, text, bytes, &tag) = (tok_slot){tag, (uint32_t)id + 1};
}

int32_t tok_vocab_find(const tokenizer *t, const char *text, const size_t n) {
  uint32_t tag;
  if (n == 0 || n > t->max_token_bytes) return -1;
  return (int32_t)find_slot(t, text, n, &tag)->id_plus_1 - 1;
}
