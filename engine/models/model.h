/* An opened model: its file, its family, its hyper-parameters; and what a family is.
 *
 * A family is one file and one row of the table in model.c. It reads hyper-parameters from the header, builds the graph
 * of any purpose through engine/models/build.h, and fills the constant tables that its graph reads. */
#ifndef STINT_ENGINE_MODELS_MODEL_H
#define STINT_ENGINE_MODELS_MODEL_H

#include "engine/formats/gguf.h"
#include "engine/stint.h"

/* Rotary scaling, as GGUF states it. Frequencies of every scheme end in one table (kernels/ops/position.h). */
typedef struct rope_params {
  int64_t n_rot;
  double freq_base, factor; /* factor: the context is stretched by it; 1: none */
  bool yarn;
  double ext_factor, attn_factor, beta_fast, beta_slow;
  int64_t original_ctx;
  bool neox;
} rope_params;

typedef struct llama_params {
  int64_t n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_size;
  double norm_eps;
  rope_params rope;
  bool tied;
} llama_params;

typedef struct model_builder model_builder;
typedef struct model_family model_family;

struct stint_model {
  bump memory;
  gguf_file file;
  const model_family *family;
  llama_params llama;
  int64_t n_vocab, ctx_trained;
  bool *tensor_used; /* by the family; a tensor that no family code asked for is refused */
  stint_model_info info;
};

struct model_family {
  const char *architecture;        /* general.architecture */
  const char *const *linear_kinds; /* what "all-linear" means; NULL-terminated */
  stint_status (*read)(stint_model *model, stint_error *error);
  void (*build)(model_builder *b);
  /* Fills constant `index` (in the order in which the build added them). */
  stint_status (*fill_constant)(const stint_model *model, int index, float *out, stint_error *error);
};

extern const model_family model_family_llama;

/* The tensor `name`, marked as used; NULL when absent. */
const gguf_tensor *model_tensor(const stint_model *model, const char *name);

#endif
