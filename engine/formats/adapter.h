/* LoRA adapters in GGUF form, as the field's loaders read them: written, opened against a base model, and read back.
 *
 * A pair of factors adapts one tensor W of the base (ne = [n_in, n_out], or [n_in, n_out, n_expert] for a stack of
 * experts): y += alpha / rank * B (A x).
 *
 *   tensor               ne                     of
 *   <W's name>.lora_a    [n_in, rank(, n_expert)]   A
 *   <W's name>.lora_b    [rank, n_out(, n_expert)]  B
 *   token_embd.weight is flipped: lora_a [rank, n_vocab], lora_b [rank, n_embd]
 *
 * Keys: general.type = "adapter", general.architecture = the base's, adapter.type = "lora", adapter.lora.alpha f32.
 * rsLoRA is written as alpha * sqrt(rank). Provenance of our own goes into keys "stint.*", which other readers ignore. */
#ifndef STINT_ENGINE_FORMATS_ADAPTER_H
#define STINT_ENGINE_FORMATS_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/bump.h"
#include "arena/status.h"
#include "engine/formats/gguf.h"

/* ---- shapes ---- */

/* Whether the field's loaders take an adapter of this tensor: a matrix or a stack of matrices, and no bias, norm or
 * convolution. "All linear" is every base tensor of which this holds, embedding and head apart. A pair for
 * token_embd.weight belongs only on a base that has an output.weight of its own: where the head is tied to the
 * embedding, llama.cpp aborts when it evaluates with such an adapter. */
bool adapter_can_target(const gguf_tensor *base);

/* token_embd.weight, whose factors are stored the other way round. */
bool adapter_is_flipped(const char *target);

/* Sizes of the two factors of a base tensor with sizes ne[3] (ne[2] = 1 for a matrix). */
void adapter_shapes(const char *target, const int64_t ne[3], int64_t rank, int64_t a[3], int64_t b[3]);

/* ---- writing ---- */

typedef struct adapter_pair {
  const char *target; /* the base tensor's name, ".weight" included */
  int64_t ne[3];      /* the base tensor's sizes, ne[2] = 1 for a matrix */
  int64_t rank;
  const float *a, *b; /* as adapter_shapes lays them out, contiguous, ne[0] fastest */
} adapter_pair;

typedef struct adapter_note {
  const char *key, *text; /* key: "stint.base_digest" and the like */
} adapter_note;

typedef struct adapter_facts {
  const char *architecture; /* general.architecture of the base */
  float alpha;              /* > 0; what is stored: scale = alpha / rank */
  const char *name;         /* general.name; NULL: none */
  int64_t step;             /* stint.step, u64; negative: none */
  const adapter_note *notes;
  size_t n_notes;
} adapter_facts;

/* Writes path.tmp, syncs, renames. NOT_FINITE names the first value that is NaN or infinite, before anything is written;
 * UNSUPPORTED: a name that is too long for the format. Memory: from the bump, at most adapter_scratch. */
stint_status adapter_write(const char *path, const adapter_facts *facts, const adapter_pair *pairs, size_t n,
                           bump *b, stint_error *error);

/* Opens what was written, with every check of adapter_open, and compares keys and data with memory bit for bit. */
stint_status adapter_verify(const char *path, const adapter_facts *facts, const adapter_pair *pairs, size_t n,
                            const gguf_file *base, bump *b, stint_error *error);

/* Bytes of bump (bump_init_over) that suffice for one adapter_write, or for one adapter_verify. */
size_t adapter_scratch(const char *path, const adapter_facts *facts, const adapter_pair *pairs, size_t n);

/* ---- reading ---- */

typedef struct adapter_entry {
  const gguf_tensor *base; /* in the base file */
  const gguf_tensor *a, *b;
  int64_t rank;
  float scale; /* alpha / rank */
  bool flipped;
} adapter_entry;

typedef struct adapter_file {
  gguf_file file;
  float alpha;
  size_t n_entries; /* in the order of their lora_a in the file */
  const adapter_entry *entries;
} adapter_file;

/* Opens and checks against the base (its header is enough): keys, architecture, that every tensor is half of a pair, that
 * the pair's tensor exists in the base and is adaptable, all sizes (the third too) and types (F32, F16, BF16). The
 * ranks of pairs may differ. On failure nothing stays mapped. */
stint_status adapter_open(const char *path, const gguf_file *base, bump *b, adapter_file *out,
                          stint_error *error);
void adapter_close(adapter_file *f);

/* The entry for a base tensor, or NULL. */
const adapter_entry *adapter_find(const adapter_file *f, const char *target);

/* All elements of a factor as float, in the file's order; a NaN or an infinity is BAD_INPUT. */
stint_status adapter_copy(const adapter_file *f, const gguf_tensor *factor, float *dst, stint_error *error);

#endif
