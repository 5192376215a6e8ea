/* Token file to batches.
 *
 * Document d of L tokens asks for L - 1 predictions; in order of documents they are numbered 0 .. n_trained - 1, and row
 * r holds numbers [r*ctx, (r+1)*ctx). Since every document has a token, the first number of document d is start[d] - d,
 * so a row finds its documents by bisection and nothing is indexed. Rows are shuffled by a keyed permutation that is
 * computed, not stored: a Feistel network (Luby and Rackoff 1988) whose rounds are Philox of (seed; half, round,
 * epoch), walked until it lands inside the range (Black and Rogaway 2002). */
#include "engine/data/data.h"

#include <string.h>

#include "engine/data/digest.h"
#include "engine/data/token_file.h"
#include "kernels/math/philox.h"

static stint_status stale(const char *path, const char *what, stint_error *error) {
  return stint_fail(error, STINT_BAD_INPUT,
                    "%s: not a token file that stint can use: %s; remove it, and it is made again", path,
                    what);
}

/* Everything that data_fill relies on. */
static stint_status check(const char *path, data_set *s, stint_error *error) {
  token_header h;
  if (s->map.bytes < sizeof h) return stale(path, "it is shorter than a header", error);
  memcpy(&h, s->map.base, sizeof h);
  if (memcmp(h.magic, TOKEN_FILE_MAGIC, sizeof h.magic) != 0)
    return stale(path, "its first bytes are others", error);
  if (h.version != TOKEN_FILE_VERSION) return stale(path, "it is of another version", error);
  if (h.header_digest != digest_of(&h, sizeof h - sizeof h.header_digest))
    return stale(path, "its header is damaged", error);
  const uint64_t bytes = s->map.bytes;
  if (h.n_tokens > bytes / 4 || h.n_documents >= bytes / 8 ||
      token_file_starts_at(h.n_tokens) + (h.n_documents + 1) * 8 != bytes)
    return stale(path, "its length is not what its header says", error);
  s->tokens = (const int32_t *)(const void *)(s->map.base + sizeof h);
  s->document_start = (const uint64_t *)(const void *)(s->map.base + token_file_starts_at(h.n_tokens));
  s->n_tokens = h.n_tokens, s->n_documents = h.n_documents;
  s->text_digest = h.text_digest, s->tokenizer_digest = h.tokenizer_digest;
  s->n_vocab = (int32_t)h.n_vocab;
  if (s->document_start[0] != 0 || s->document_start[h.n_documents] != h.n_tokens)
    return stale(path, "its documents do not cover its tokens", error);
  for (uint64_t d = 0; d < h.n_documents; d++)
    if (s->document_start[d] >= s->document_start[d + 1])
      return stale(path, "its documents are not in order", error);
  for (uint64_t i = 0; i < h.n_tokens; i++)
    if ((uint32_t)s->tokens[i] >= h.n_vocab)
      return stale(path, "a token is outside of the vocabulary", error);
  return STINT_OK;
}

stint_status data_open(const char *token_path, const int64_t ctx, data_set *out, stint_error *error) {
  *out = (data_set){0};
  if (ctx < 1 || ctx > INT32_MAX)
    return stint_fail(error, STINT_BAD_INPUT, "a row of %lld tokens cannot be made; 1 to %d can",
                      (long long)ctx, INT32_MAX);
  STINT_TRY(file_map_open(token_path, &out->map, error));
  const stint_status status = check(token_path, out, error);
  if (status != STINT_OK) {
    data_close(out);
    return status;
  }
  out->ctx = ctx;
  out->n_trained = out->n_tokens - out->n_documents;
  out->n_rows = out->n_trained / (uint64_t)ctx + (out->n_trained % (uint64_t)ctx != 0);
  if (out->n_trained == 0) {
    data_close(out);
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s: no document has the 2 tokens that are needed, one to read and one to predict",
                      token_path);
  }
  return STINT_OK;
}

void data_close(data_set *set) {
  file_map_close(&set->map);
  *set = (data_set){0};
}

enum { SHUFFLE_ROUNDS = 6 };
static const uint32_t SHUFFLE_KEY = 0x73687566; /* apart from every other use of the seed */

uint64_t data_shuffle(const uint64_t n, const uint64_t seed, const uint64_t epoch, const uint64_t index) {
  int half = 0;
  while (half < 32 && (half == 0 ? 1 : (uint64_t)1 << 2 * half) < n) half++;
  if (half == 0) return index;
  const uint32_t mask = (uint32_t)(((uint64_t)1 << half) - 1);
  uint64_t x = index;
  do {
    uint32_t left = (uint32_t)(x >> half), right = (uint32_t)x & mask;
    for (uint32_t round = 0; round < SHUFFLE_ROUNDS; round++) {
      const uint32_t counter[4] = {right, round, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
      uint32_t random[4];
      philox4x32((uint32_t)seed, (uint32_t)(seed >> 32) ^ SHUFFLE_KEY, counter, random);
      const uint32_t swapped = (left ^ random[0]) & mask;
      left = right;
      right = swapped;
    }
    x = (uint64_t)left << half | right;
  } while (x >= n);
  return x;
}

/* The document that holds prediction p < n_trained: the last one whose first number is at most p. */
static uint64_t document_of(const data_set *s, const uint64_t p) {
  uint64_t low = 0, high = s->n_documents; /* start[low] - low <= p < start[high] - high */
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    if (s->document_start[middle] - middle <= p)
      low = middle;
    else
      high = middle;
  }
  return low;
}

static void put(data_batch *b, const int64_t rows, const int64_t at, const int64_t first, const int32_t token,
                const int32_t target, const float weight) {
  b->token[at] = token;
  b->target[at] = target;
  b->weight[at] = weight;
  b->position[at] = (int32_t)(at - first);
  b->span[at] = (int32_t)first;
  b->span[rows + at] = (int32_t)at;
}

double data_fill(const data_set *set, const uint64_t first, const int64_t n, const uint64_t seed,
                 const uint64_t epoch, const bool shuffle, data_batch *out) {
  const int64_t ctx = set->ctx, rows = n * ctx;
  int64_t n_weights = 0;
  for (int64_t w = 0; w < n; w++) {
    const int64_t start = w * ctx, end = start + ctx;
    int64_t at = start;
    const uint64_t window = first + (uint64_t)w;
    if (window < set->n_rows && window >= first) {
      const uint64_t row = shuffle ? data_shuffle(set->n_rows, seed, epoch, window) : window;
      uint64_t p = row * (uint64_t)ctx;
      uint64_t d = document_of(set, p);
      uint64_t token = set->document_start[d] + (p - (set->document_start[d] - d));
      int64_t piece = at; /* where in the batch this document's piece began */
      for (; at < end && p < set->n_trained; at++, p++, token++) {
        while (token + 1 == set->document_start[d + 1]) { /* the document's last token predicts nothing */
          token++, d++;
          piece = at;
        }
        put(out, rows, at, piece, set->tokens[token], set->tokens[token + 1], 1);
      }
      n_weights += at - start;
    }
    for (; at < end; at++) put(out, rows, at, at, 0, 0, 0);
  }
  return (double)n_weights;
}
