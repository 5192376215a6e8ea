/* Merging neighbours, best pair first: what SPM and BPE share.
 *
 * The symbols of a stretch form a list. Pairs that would make a token wait in a binary heap, ordered by priority and
 * then by place, left first. The best is taken, its right symbol is swallowed by its left one, and the two new
 * neighbourhoods are queued. A pair whose symbols have changed since is known by its length and dropped. Each merge
 * queues at most two pairs, so the heap never holds 2n and the time is O(n log n). Kudo and Richardson's
 * SentencePiece (2018) works so. Few symbols are cheaper to scan than to queue; both give the same list, because
 * both always take the least (priority, place). */
#include "engine/tokenizer/parts.h"

#include <string.h>

enum { SCAN_MAX = 16 };

/* A float's order as an unsigned's, reversed: the highest score is the lowest number. */
static uint32_t score_priority(const float score) {
  const float value = score + 0.0f; /* -0 as 0 */
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits >> 31 ? bits : ~bits & 0x7FFFFFFFu;
}

static bool find_pair(const tokenizer *t, const tok_symbol *left, const tok_symbol *right, uint32_t *priority,
                      int32_t *result) {
  if (t->kind == TOK_BPE) return tok_pair_find_bpe(t, left->id, right->id, priority, result);
  const int32_t id = tok_vocab_find(t, t->window + left->at, (size_t)left->n + right->n);
  if (id < 0) return false;
  *priority = score_priority(tok_score(t, id));
  *result = id;
  return true;
}

static void join(tok_symbol *s, const int32_t left, const int32_t result) {
  tok_symbol *const l = &s[left], *const r = &s[l->next];
  l->n += r->n;
  l->id = result;
  l->next = r->next;
  r->n = 0;
  if (l->next >= 0) s[l->next].prev = left;
}

static void merge_scan(tokenizer *t, const uint32_t n) {
  tok_symbol *const s = t->symbols;
  uint32_t priority[SCAN_MAX];
  int32_t result[SCAN_MAX]; /* of a symbol and its next; -1: none */
  for (uint32_t i = 0; i + 1 < n; i++)
    if (!find_pair(t, &s[i], &s[i + 1], &priority[i], &result[i])) result[i] = -1;
  result[n - 1] = -1;
  for (;;) {
    int32_t best = -1;
    for (int32_t i = 0; i >= 0; i = s[i].next)
      if (result[i] >= 0 && (best < 0 || priority[i] < priority[best])) best = i;
    if (best < 0) return;
    join(s, best, result[best]);
    const int32_t around[2] = {best, s[best].prev};
    for (int k = 0; k < 2; k++) {
      const int32_t i = around[k];
      if (i < 0) continue;
      if (s[i].next < 0 || !find_pair(t, &s[i], &s[s[i].next], &priority[i], &result[i])) result[i] = -1;
    }
  }
}

static void push(tokenizer *t, const int32_t left) {
  if (left < 0 || t->symbols[left].next < 0) return;
  const tok_symbol *l = &t->symbols[left], *r = &t->symbols[l->next];
  uint32_t priority;
  tok_pair pair;
  if (!find_pair(t, l, r, &priority, &pair.result)) return;
  pair.key = (uint64_t)priority << 32 | (uint32_t)left;
  pair.n = l->n + r->n;
  uint32_t i = t->n_heap++;
  for (; i && t->heap[(i - 1) / 2].key > pair.key; i = (i - 1) / 2) t->heap[i] = t->heap[(i - 1) / 2];
  t->heap[i] = pair;
}

static tok_pair pop(tokenizer *t) {
  const tok_pair top = t->heap[0], moved = t->heap[--t->n_heap];
  uint32_t i = 0;
  for (;;) {
    uint32_t child = 2 * i + 1;
    if (child >= t->n_heap) break;
    if (child + 1 < t->n_heap && t->heap[child + 1].key < t->heap[child].key) child++;
    if (t->heap[child].key >= moved.key) break;
    t->heap[i] = t->heap[child];
    i = child;
  }
  t->heap[i] = moved;
  return top;
}

void tok_merge_all(tokenizer *t, const uint32_t n) {
  if (n < 2) return;
  if (n <= SCAN_MAX) {
    merge_scan(t, n);
    return;
  }
  tok_symbol *const s = t->symbols;
  t->n_heap = 0;
  for (uint32_t i = 0; i + 1 < n; i++) push(t, (int32_t)i);
  while (t->n_heap) {
    const tok_pair best = pop(t);
    const int32_t left = (int32_t)(uint32_t)best.key;
    if (s[left].n == 0 || s[left].next < 0 || s[left].n + s[s[left].next].n != best.n) continue;
    join(s, left, best.result);
    push(t, s[left].prev);
    push(t, left);
  }
}
