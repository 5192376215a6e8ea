/* Batches against an oracle that lists every prediction of every document in order and cuts the list into rows. */
#include <criterion/criterion.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/data/data.h"
#include "engine/data/digest.h"
#include "engine/data/token_file.h"

enum { MOST_TOKENS = 4096, MOST_DOCUMENTS = 64 };

typedef struct corpus {
  int32_t token[MOST_TOKENS];
  uint64_t start[MOST_DOCUMENTS + 1], n_documents;
} corpus;

static uint64_t state = 88172645463325252u;
static unsigned draw(const unsigned n) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (unsigned)(state >> 11) % n;
}

static void random_corpus(corpus *c, const unsigned n_documents, const unsigned longest) {
  uint64_t n = 0;
  c->n_documents = n_documents;
  for (unsigned d = 0; d < n_documents; d++) {
    c->start[d] = n;
    /* documents of one token, which ask for nothing, among them */
    for (unsigned left = draw(4) == 0 ? 1 : 1 + draw(longest); left; left--) {
      c->token[n] = (int32_t)(n + 1); /* each token tells its place */
      n++;
    }
  }
  c->start[n_documents] = n;
}

static void write_file(const char *path, const corpus *c, const size_t cut, const size_t flip) {
  static unsigned char bytes[sizeof(token_header) + MOST_TOKENS * 4 + 8 + (MOST_DOCUMENTS + 1) * 8];
  const uint64_t n = c->start[c->n_documents];
  token_header h = {.version = TOKEN_FILE_VERSION,
                    .n_vocab = MOST_TOKENS + 1,
                    .n_tokens = n,
                    .n_documents = c->n_documents};
  memcpy(h.magic, TOKEN_FILE_MAGIC, 8);
  h.text_digest = 77, h.tokenizer_digest = 99;
  h.header_digest = digest_of(&h, sizeof h - 8);
  const size_t starts = token_file_starts_at(n), size = starts + (c->n_documents + 1) * 8;
  memset(bytes, 0, sizeof bytes);
  memcpy(bytes, &h, sizeof h);
  memcpy(bytes + sizeof h, c->token, n * 4);
  memcpy(bytes + starts, c->start, (c->n_documents + 1) * 8);
  if (flip < size) bytes[flip] ^= 0x80;
  FILE *out = fopen(path, "wb");
  cr_assert(out);
  cr_assert_eq(fwrite(bytes, 1, size - cut, out), size - cut);
  fclose(out);
}

static data_set open_set(const char *path, const int64_t ctx) {
  data_set set;
  stint_error error = {0};
  cr_assert_eq(data_open(path, ctx, &set, &error), STINT_OK, "%s", error.text);
  return set;
}

typedef struct prediction {
  int32_t token, target;
  uint64_t document;
} prediction;
static prediction list[MOST_TOKENS];

static size_t list_predictions(const corpus *c) {
  size_t n = 0;
  for (uint64_t d = 0; d < c->n_documents; d++)
    for (uint64_t i = c->start[d]; i + 1 < c->start[d + 1]; i++)
      list[n++] = (prediction){c->token[i], c->token[i + 1], d};
  return n;
}

static data_batch take_batch(const int64_t rows) {
  data_batch b;
  b.token = malloc((size_t)rows * 4), b.target = malloc((size_t)rows * 4),
  b.position = malloc((size_t)rows * 4);
  b.span = malloc((size_t)rows * 8), b.weight = malloc((size_t)rows * 4);
  memset(b.token, 0x7E, (size_t)rows * 4), memset(b.target, 0x7E, (size_t)rows * 4);
  memset(b.position, 0x7E, (size_t)rows * 4), memset(b.span, 0x7E, (size_t)rows * 8);
  memset(b.weight, 0x7E, (size_t)rows * 4);
  return b;
}

static void free_batch(data_batch *b) {
  free(b->token), free(b->target), free(b->position), free(b->span), free(b->weight);
}

/* Row `row` of the batch against window `window` of the list (past the end: padding), everything in it. */
static void check_row(const char *what, const data_batch *b, const int64_t rows, const int64_t row,
                      const int64_t ctx, const size_t window, const size_t n_list) {
  int64_t piece = row * ctx;
  for (int64_t i = 0; i < ctx; i++) {
    const int64_t at = row * ctx + i;
    const size_t p = window * (size_t)ctx + (size_t)i;
    const bool real = p < n_list;
    if (!real || (i && list[p].document != list[p - 1].document)) piece = at;
    cr_assert_eq(b->weight[at], real ? 1.0f : 0.0f, "%s: window %zu, place %ld: weight %g", what, window,
                 (long)i, (double)b->weight[at]);
    cr_assert_eq(b->token[at], real ? list[p].token : 0, "%s: window %zu, place %ld: token %d", what, window,
                 (long)i, b->token[at]);
    cr_assert_eq(b->target[at], real ? list[p].target : 0, "%s: window %zu, place %ld: target", what, window,
                 (long)i);
    cr_assert_eq(b->position[at], at - piece, "%s: window %zu, place %ld: position %d", what, window, (long)i,
                 b->position[at]);
    cr_assert_eq(b->span[at], piece, "%s: window %zu, place %ld: first key %d", what, window, (long)i,
                 b->span[at]);
    cr_assert_eq(b->span[rows + at], at, "%s: window %zu, place %ld: last key %d", what, window, (long)i,
                 b->span[rows + at]);
    if (at) cr_assert_geq(b->span[at], b->span[at - 1], "%s: first keys fall", what);
  }
}

/* Every (documents, ctx, rows a batch): file order, then shuffled epochs, each window exactly once. */
Test(batch, rows) {
  char path[64];
  snprintf(path, sizeof path, "batch-%d.tokens", (int)getpid());
  static const int64_t contexts[] = {1, 2, 3, 7, 16, 100};
  size_t n_checked = 0;
  for (int round = 0; round < 30; round++) {
    static corpus c;
    do random_corpus(&c, 1 + draw(MOST_DOCUMENTS - 1), 2 + draw(60));
    while (c.start[c.n_documents] == c.n_documents);
    write_file(path, &c, 0, SIZE_MAX);
    const size_t n_list = list_predictions(&c);
    for (size_t k = 0; k < sizeof contexts / sizeof contexts[0]; k++) {
      const int64_t ctx = contexts[k], n = 1 + (int64_t)draw(4), rows = n * ctx;
      data_set set = open_set(path, ctx);
      cr_assert_eq(set.n_trained, n_list);
      cr_assert_eq(set.n_rows, (n_list + (size_t)ctx - 1) / (size_t)ctx);
      cr_assert_eq(set.text_digest, 77);
      cr_assert_eq(set.tokenizer_digest, 99);
      data_batch b = take_batch(rows);
      for (int shuffle = 0; shuffle < 2; shuffle++) {
        static char seen[MOST_TOKENS];
        memset(seen, 0, sizeof seen);
        double sum = 0;
        uint64_t first = 0;
        for (; first < set.n_rows; first += (uint64_t)n) {
          sum += data_fill(&set, first, n, 5, (uint64_t)round, shuffle, &b);
          for (int64_t row = 0; row < n; row++) {
            const uint64_t place = first + (uint64_t)row;
            size_t window = place;
            if (place >= set.n_rows)
              window = MOST_TOKENS; /* padding */
            else if (shuffle)
              window = data_shuffle(set.n_rows, 5, (uint64_t)round, place);
            if (place < set.n_rows) cr_assert(!seen[window]++, "a window came twice");
            check_row(shuffle ? "shuffled" : "in order", &b, rows, row, ctx, window, n_list);
            n_checked++;
          }
        }
        cr_assert_eq(sum, (double)n_list, "weights sum to %g, and %zu are trained", sum, n_list);
        cr_assert_eq(data_fill(&set, first + 3, n, 5, 0, shuffle, &b), 0.0);
      }
      free_batch(&b);
      data_close(&set);
    }
  }
  (void)unlink(path);
  cr_assert_gt(n_checked, 1000);
}

/* A bijection for every size, seed and epoch; another order for another seed or epoch; no place prefers a row. */
Test(batch, shuffle) {
  static unsigned char seen[5000];
  for (uint64_t n = 1; n < 5000; n = n < 70 ? n + 1 : n * 2 - 7) {
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
      memset(seen, 0, sizeof seen);
      for (uint64_t i = 0; i < n; i++) {
        const uint64_t row = data_shuffle(n, 42, epoch, i);
        cr_assert_lt(row, n);
        cr_assert(!seen[row]++, "%lu rows, epoch %lu: row %lu twice", (unsigned long)n, (unsigned long)epoch,
                  (unsigned long)row);
      }
    }
  }
  const uint64_t large = ((uint64_t)1 << 40) + 12345;
  cr_assert_lt(data_shuffle(large, 1, 0, large - 1), large);
  int same_epoch = 0, same_seed = 0, same_place = 0;
  for (uint64_t i = 0; i < 1000; i++) {
    same_epoch += data_shuffle(1000, 7, 0, i) == data_shuffle(1000, 7, 1, i);
    same_seed += data_shuffle(1000, 7, 0, i) == data_shuffle(1000, 8, 0, i);
    same_place += data_shuffle(1000, 7, 0, i) == i;
  }
  /* Two random orders of 1000 agree in about 1 place (Poisson); 12 would be a chance of 1e-9. */
  cr_assert_lt(same_epoch, 12);
  cr_assert_lt(same_seed, 12);
  cr_assert_lt(same_place, 12);
  /* Where row 0 of 10 lands over 2,000 epochs: 200 a place, 5 standard deviations are 67. */
  int landed[10] = {0};
  for (uint64_t epoch = 0; epoch < 2000; epoch++) landed[data_shuffle(10, 3, epoch, 0)]++;
  for (int k = 0; k < 10; k++)
    cr_assert(landed[k] > 133 && landed[k] < 267, "place %d: %d of 2000", k, landed[k]);
}

/* A damaged cache is refused, whatever bit of the part that is trusted was turned and wherever it was cut. */
Test(batch, damaged) {
  char path[64];
  snprintf(path, sizeof path, "damaged-%d.tokens", (int)getpid());
  static corpus c;
  random_corpus(&c, 9, 20);
  c.start[9] = c.start[8] + 1; /* whatever the draw: at least one is short */
  data_set set;
  stint_error error = {0};
  write_file(path, &c, 0, SIZE_MAX);
  cr_assert_eq(data_open(path, 8, &set, &error), STINT_OK, "%s", error.text);
  data_close(&set);
  const size_t size = token_file_starts_at(c.start[9]) + 10 * 8;
  for (size_t cut = 1; cut <= size; cut += 7) {
    write_file(path, &c, cut, SIZE_MAX);
    const stint_status status = data_open(path, 8, &set, &error);
    cr_assert_eq(status, STINT_BAD_INPUT, "cut by %zu: %s", cut, error.text);
    cr_assert(strstr(error.text, path), "%s", error.text);
    cr_assert_null(set.map.base);
  }
  for (size_t flip = 0; flip < size; flip++) {
    const bool id = flip >= sizeof(token_header) && flip < token_file_starts_at(c.start[9]);
    if (id && flip % 4 != 3) continue; /* another token of the vocabulary: not to be told */
    if (id && flip >= sizeof(token_header) + c.start[9] * 4) continue; /* filling */
    write_file(path, &c, 0, flip);
    cr_assert_eq(data_open(path, 8, &set, &error), STINT_BAD_INPUT, "byte %zu turned", flip);
  }
  write_file(path, &c, 0, SIZE_MAX);
  cr_assert_eq(data_open(path, 0, &set, &error), STINT_BAD_INPUT);
  (void)unlink(path);
  cr_assert_neq(data_open(path, 8, &set, &error), STINT_OK);
  cr_assert_neq(data_open(".", 8, &set, &error), STINT_OK);
  /* documents of one token each: nothing to train on */
  for (uint64_t d = 0; d <= 5; d++) c.start[d] = d;
  c.n_documents = 5;
  write_file(path, &c, 0, SIZE_MAX);
  cr_assert_eq(data_open(path, 8, &set, &error), STINT_BAD_INPUT);
  cr_assert(strstr(error.text, "2 tokens"), "%s", error.text);
  (void)unlink(path);
}
