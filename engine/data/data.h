/* From files of text to the batches of a step.
 *
 * Prepare: text files (raw, one document each; or .jsonl, one document a line with a `text` member) are
 * tokenized once, in bounded memory, to a token file that is then mapped: the size of the data never shows in
 * anonymous memory. Token file: header (magic, version, counts, digests of text and tokenizer), ids, document starts.
 *
 * Batches: rows of `ctx` tokens. Documents are laid one after another into rows with exact boundaries: a
 * document that does not fit the rest of a row is cut there, and its next piece starts the next row (a fresh context,
 * positions from 0). Every token but a document's first is predicted once. A row whose documents ran out is
 * padded with weight 0. Which rows a step holds depends on data, seed and step alone. */
#ifndef STINT_ENGINE_DATA_DATA_H
#define STINT_ENGINE_DATA_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/reserve.h"
#include "arena/status.h"
#include "engine/tokenizer/tokenizer.h"

typedef struct data_prepared {
  uint64_t n_tokens, n_documents, n_text_bytes;
  uint64_t text_digest; /* XXH3 of each document's length (u64) and text, in order */
} data_prepared;

/* Tokenizes `n_paths` files (.jsonl and .json line by line; anything else as one document) to `token_path` (written
 * as token_path.tmp, renamed). Uses `scratch` only. Empty data, a directory, a malformed line (file and line number), a missing `text`
 * member, invalid UTF-8 in JSON: BAD_INPUT. */
stint_status data_prepare(tokenizer *t, const char *const *paths, size_t n_paths, const char *token_path,
                          void *scratch, size_t scratch_bytes, data_prepared *out, stint_error *error);
/* The scratch that it needs: enough for lines of JSON up to some 200 kB; ten more bytes allow a byte more. */
size_t data_prepare_bytes(void);

typedef struct data_set {
  file_map map;
  const int32_t *tokens;          /* all documents, each with the specials that the metadata asks for */
  const uint64_t *document_start; /* n_documents + 1 */
  uint64_t n_tokens, n_documents;
  int64_t ctx;
  uint64_t n_rows;                        /* windows of ctx predictions */
  uint64_t n_trained;                     /* tokens that are predicted in one pass */
  uint64_t text_digest, tokenizer_digest; /* a cache under another tokenizer_digest is stale */
  int32_t n_vocab;                        /* of that tokenizer: every token is below it */
} data_set;

stint_status data_open(const char *token_path, int64_t ctx, data_set *out, stint_error *error);
void data_close(data_set *set);

/* One microbatch's arrays, `rows` = batch*ctx long, in memory that the caller planned. */
typedef struct data_batch {
  int32_t *token, *target, *position;
  int32_t *span; /* [2*rows], first keys then last keys, indices within the microbatch */
  float *weight; /* 0 where nothing is predicted */
} data_batch;

/* Fills row windows [first, first + n) of an epoch's order (`epoch` and `seed` permute rows; shuffle = false: file
 * order, for evaluation). Windows past the end of the set are padding. Returns the sum of weights. */
double data_fill(const data_set *set, uint64_t first, int64_t n, uint64_t seed, uint64_t epoch, bool shuffle,
                 data_batch *out);

/* Where an epoch's order puts things: the row at place `index` of n. A bijection of [0, n) for each seed and epoch. */
uint64_t data_shuffle(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t index);

#endif
