/* The token file: a cache of tokenized text, made by data_prepare and mapped by data_open.
 *
 *   [header 128 bytes][ids, i32, n_tokens][0 or 4 zero bytes][starts of documents, u64, n_documents + 1]
 *
 * Little-endian. A document without tokens is not in it. Not part of the interface: only the folder's sources and
 * tests include this. */
#ifndef STINT_ENGINE_DATA_TOKEN_FILE_H
#define STINT_ENGINE_DATA_TOKEN_FILE_H

#include <stdint.h>

#define TOKEN_FILE_MAGIC "stinttok"
enum { TOKEN_FILE_VERSION = 1 };

typedef struct token_header {
  char magic[8];
  uint32_t version, n_vocab;
  uint64_t n_tokens, n_documents, n_text_bytes, text_digest, tokenizer_digest;
  uint64_t reserved[8];
  uint64_t header_digest; /* XXH3 of all before it */
} token_header;
_Static_assert(sizeof(token_header) == 128, "the header is 128 bytes on disk");

/* From the start of the file. */
static inline uint64_t token_file_starts_at(const uint64_t n_tokens) {
  return sizeof(token_header) + (n_tokens + (n_tokens & 1)) * 4;
}

#endif
