/* Text to token ids and back, from the metadata of a GGUF alone.
 *
 * Kinds: SPM (tokenizer.ggml.model = "llama": score-driven merges, byte fallback) and BPE ("gpt2": rank-driven
 * merges within the words of a pre-tokenizer). An unknown kind or pre-tokenizer is refused by name.
 *
 * Say, then place: tokenizer_bytes states the memory of the tables from the header alone; tokenizer_make takes exactly that.
 * Encoding is a stream with bounded memory: text is cut where no merge can cross (at pre-tokenizer words
 * for BPE; before a space run for SPM, after a check that no token of the vocabulary spans such a place). */
#ifndef STINT_ENGINE_TOKENIZER_TOKENIZER_H
#define STINT_ENGINE_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/bump.h"
#include "arena/status.h"
#include "engine/formats/gguf.h"

typedef struct tokenizer tokenizer;

/* Bytes that tokenizer_make will take from a buffer (scratch for encoding included). */
stint_status tokenizer_bytes(const gguf_file *file, size_t *bytes, stint_error *error);
/* Builds in `buffer` (64-byte aligned, at least that many bytes). Tables point into the file's map. */
stint_status tokenizer_make(const gguf_file *file, void *buffer, size_t bytes, tokenizer **out,
                            stint_error *error);

int32_t tokenizer_n_vocab(const tokenizer *t);
int32_t tokenizer_bos(const tokenizer *t);   /* -1: none */
int32_t tokenizer_eos(const tokenizer *t);   /* -1: none */
bool tokenizer_adds_bos(const tokenizer *t); /* at the start of a document, as the metadata says */
bool tokenizer_adds_eos(const tokenizer *t);
/* XXH3 of the metadata that decides ids: a cache made under another one is stale. */
uint64_t tokenizer_digest(const tokenizer *t);

/* Receives ids in order; returns false to stop (encode then returns IO). */
typedef bool token_sink(void *context, const int32_t *ids, size_t n);

/* One document, whole: BOS/EOS by the metadata's rule when `special`. Control tokens are never parsed from text.
 * Equal ids however long the text is; BAD_INPUT when a stretch that cannot be cut passes the scratch. */
stint_status tokenizer_encode(tokenizer *t, const char *text, size_t bytes, bool special, token_sink *sink,
                              void *context, stint_error *error);

/* The bytes of one token as text (SPM's space mark becomes a space, byte tokens become their byte, control tokens
 * become nothing). Writes at most `room`, returns the full count. */
size_t tokenizer_decode(const tokenizer *t, int32_t id, char *out, size_t room);

#endif
