/* The inside of a tokenizer: what its sources share. Not part of the interface.
 *
 *   buffer [tokenizer | types | vocabulary hash | user tokens | pairs or merges | PCRE2 pool | scratch ]
 *
 * The tables are written once by tokenizer_make and only read after; the scratch is written before it is read in
 * every call. Token texts and scores stay in the file's map. */
#ifndef STINT_ENGINE_TOKENIZER_PARTS_H
#define STINT_ENGINE_TOKENIZER_PARTS_H

#include "engine/tokenizer/tokenizer.h"

enum {
  TOK_WINDOW_BYTES = 32768,    /* the longest stretch that cannot be cut; also the text held at once */
  TOK_POOL_BYTES = 256 * 1024, /* all that PCRE2 may take */
  TOK_OUT_IDS = 1024,          /* ids handed to the sink at once */
  TOK_MAX_VOCAB = 1 << 24
};

typedef enum tok_kind { TOK_SPM, TOK_BPE } tok_kind;

/* tokenizer.ggml.token_type */
typedef enum tok_type { TOK_NORMAL = 1, TOK_UNKNOWN, TOK_CONTROL, TOK_USER, TOK_UNUSED, TOK_BYTE } tok_type;

/* One rule of splitting, under every name that models give it. */
typedef struct tok_pre_row {
  const char *name, *pattern;
  bool ignore_merges; /* a word that is a token is that token, whatever the merges say */
  bool adds_bos;      /* where the metadata does not say */
} tok_pre_row;

const tok_pre_row *tok_pre_find(gguf_text name); /* NULL: unknown */
size_t tok_pre_names(char *out, size_t room);    /* "default, gpt-2, ..." */

typedef struct tok_slot {
  uint32_t tag, id_plus_1;
} tok_slot; /* 0: empty */
typedef struct tok_merge {
  int32_t left, right, result;
  uint32_t rank;
} tok_merge; /* left -1: empty */

/* A piece of the stretch being merged: bytes [at, at + n) of the window; n = 0: merged away. */
typedef struct tok_symbol {
  int32_t prev, next; /* -1: none */
  uint32_t at, n;
  int32_t id; /* -1: no token */
} tok_symbol;
/* Two neighbours that would make a token: lowest key first, key = priority << 32 | left. */
typedef struct tok_pair {
  uint64_t key;
  uint32_t n;
  int32_t result;
} tok_pair;

struct tokenizer {
  tok_kind kind;
  const char *path; /* of the file, for messages */
  const tok_pre_row *pre;
  int32_t n_vocab, bos, eos, unknown;
  bool adds_bos, adds_eos, space_prefix;
  size_t window_bytes; /* TOK_WINDOW_BYTES; tests make it small */
  uint64_t digest;

  const unsigned char *texts;  /* the value of tokenizer.ggml.tokens */
  const unsigned char *scores; /* f32, unaligned; NULL: all 0 */
  uint32_t *text_at; /* [n_vocab + 1] of a token's bytes in texts; a length field of 8 lies before each */
  uint8_t *type;
  tok_slot *slots;
  uint32_t slot_mask, max_token_bytes;
  int32_t byte_id[256];

  uint64_t *user; /* first byte << 32 | ~length, ascending: so each first byte's lengths descend */
  uint32_t user_at[257], n_user;
  uint32_t *user_lengths, n_user_lengths; /* each once, descending */

  uint64_t *joined; /* SPM: bits of neighbouring symbols found inside a token (tok_joined) */
  uint64_t joined_mask;
  tok_merge *merges; /* BPE */
  uint32_t merge_mask;

  void *pool; /* PCRE2's memory, and what lies in it */
  size_t pool_used;
  void *pattern, *match, *match_context;

  char *window; /* [TOK_WINDOW_BYTES] text under work */
  char *mapped; /* [2*TOK_WINDOW_BYTES] a word in the alphabet of the vocabulary */
  char *mark;   /* [TOK_WINDOW_BYTES] where user tokens win; absent without user tokens */
  tok_symbol *symbols;
  tok_pair *heap;
  uint32_t n_heap;
  int32_t *out;
  size_t n_out;
  token_sink *sink;
  void *sink_context;
};

/* ---- metadata.c: what is read from the header ---- */
typedef struct tok_shape {
  tok_kind kind;
  const tok_pre_row *pre;
  const gguf_key *tokens, *types, *scores, *merges; /* NULL: absent */
  uint64_t n_user;
  int32_t bos, eos, unknown;
  bool adds_bos, adds_eos, space_prefix;
} tok_shape;
stint_status tok_read_shape(const gguf_file *file, tok_shape *out, stint_error *error);
stint_status tok_fill_vocab(tokenizer *t, const gguf_file *file, const tok_shape *shape, stint_error *error);
uint64_t tok_metadata_digest(const gguf_file *file);

/* ---- vocab.c ---- */
static inline const char *tok_text(const tokenizer *t, int32_t id, size_t *bytes) {
  *bytes = t->text_at[id + 1] - 8u - t->text_at[id];
  return (const char *)t->texts + t->text_at[id];
}
float tok_score(const tokenizer *t, int32_t id);
void tok_vocab_add(tokenizer *t, int32_t id); /* a later equal text replaces */
int32_t tok_vocab_find(const tokenizer *t, const char *text,
                       size_t n); /* -1; never a control, unknown or byte token */

/* ---- text.c: UTF-8 and the byte alphabet of BPE vocabularies ---- */
size_t tok_symbol_length(unsigned char lead);  /* 1..4, by the lead byte alone */
size_t tok_put_utf8(uint32_t code, char *out); /* 1..4 bytes */
uint32_t tok_get_utf8(const char *text, size_t n,
                      size_t *used); /* 0xFFFD and 1 for a byte that starts nothing */
uint32_t tok_byte_to_code(unsigned char byte);
int tok_code_to_byte(uint32_t code); /* -1: not of the alphabet */

/* ---- merge.c ---- symbols [0, n) are linked neighbours; merges all that can be. */
void tok_merge_all(tokenizer *t, uint32_t n);

/* ---- output, tokenizer.c ---- */
bool tok_emit(tokenizer *t, int32_t id); /* false: the sink said stop */
stint_status tok_stopped(stint_error *error);
stint_status tok_too_long(const tokenizer *t, size_t at, stint_error *error);

/* ---- one stretch of raw text ---- `at`: of the text in the document, for messages */
stint_status tok_spm_load(tokenizer *t, stint_error *error);
stint_status tok_spm_encode(tokenizer *t, const char *text, size_t n, size_t at, bool prefix,
                            stint_error *error);
stint_status tok_bpe_load(tokenizer *t, const gguf_key *merges, stint_error *error);
stint_status tok_bpe_encode(tokenizer *t, const char *text, size_t n, size_t at, stint_error *error);
bool tok_pair_find_bpe(const tokenizer *t, int32_t left, int32_t right, uint32_t *rank, int32_t *result);

/* ---- pretokenize.c ---- */
stint_status tok_pre_load(tokenizer *t, stint_error *error);
/* The end of the word that starts at `from` of window[0, n); 0: more text must follow to tell (never when `last`). */
size_t tok_pre_word(tokenizer *t, size_t from, size_t n, bool last);

#endif
