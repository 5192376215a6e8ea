/* The llama family (Touvron et al. 2023) and what shares its graph under the same name: mistral, smollm.
 *
 *   x = embed(token)
 *   each layer:  a = rms_norm(x);  q, k = rope(W a);  v = W a;  x += W attention(q, k, v)
 *                f = rms_norm(x);  x += W (silu(W f) * W f)
 *   head(rms_norm(x))
 * Residual additions are the c0 of the matmuls that end a block. */
#include "engine/models/build.h"
#include "engine/models/rope.h"

#include <stdio.h>

static const char *const linear_kinds[] = {"attn_q",   "attn_k", "attn_v",   "attn_output",
                                           "ffn_gate", "ffn_up", "ffn_down", NULL};

static stint_status llama_read(stint_model *const m, stint_error *const error) {
  const gguf_file *const f = &m->file;
  llama_params *const p = &m->llama;
  int64_t experts, key_length, value_length, window;
  enum { DIM_MAX = 1 << 20 };
  STINT_TRY(gguf_get_int(f, "llama.block_count", 1, 4096, &p->n_layers, error));
  STINT_TRY(gguf_get_int(f, "llama.embedding_length", 1, DIM_MAX, &p->n_embd, error));
  STINT_TRY(gguf_get_int(f, "llama.feed_forward_length", 1, DIM_MAX, &p->n_ff, error));
  STINT_TRY(gguf_get_int(f, "llama.attention.head_count", 1, 4096, &p->n_heads, error));
  STINT_TRY(gguf_get_int_or(f, "llama.attention.head_count_kv", 1, 4096, p->n_heads, &p->n_kv_heads, error));
  STINT_TRY(gguf_get_int(f, "llama.context_length", 1, INT32_MAX, &m->ctx_trained, error));
  STINT_TRY(gguf_get_float_or(f, "llama.attention.layer_norm_rms_epsilon", 1e-5, &p->norm_eps, error));
  STINT_TRY(gguf_get_int_or(f, "llama.expert_count", 0, INT32_MAX, 0, &experts, error));
  if (experts > 0)
    return stint_fail(error, STINT_UNSUPPORTED, "%s: a llama with %lld experts; mixtures are not trained yet",
                      f->path, (long long)experts);
  if (p->n_heads % p->n_kv_heads != 0)
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s: llama.attention.head_count %lld is not a multiple of head_count_kv %lld", f->path,
                      (long long)p->n_heads, (long long)p->n_kv_heads);
  STINT_TRY(
      gguf_get_int_or(f, "llama.attention.key_length", 1, 4096, p->n_embd / p->n_heads, &key_length, error));
  STINT_TRY(gguf_get_int_or(f, "llama.attention.value_length", 1, 4096, key_length, &value_length, error));
  if (key_length != value_length)
    return stint_fail(error, STINT_UNSUPPORTED,
                      "%s: keys of %lld and values of %lld elements; equal lengths are supported", f->path,
                      (long long)key_length, (long long)value_length);
  p->head_size = key_length;
  STINT_TRY(gguf_get_int_or(f, "llama.attention.sliding_window", 0, INT32_MAX, 0, &window, error));
  if (window != 0)
    return stint_fail(error, STINT_UNSUPPORTED,
                      "%s: a sliding window of %lld; the llama family sees every earlier token", f->path,
                      (long long)window);
  if (!(p->norm_eps > 0 && p->norm_eps < 1))
    return stint_fail(error, STINT_BAD_INPUT, "%s: llama.attention.layer_norm_rms_epsilon must be in (0, 1)",
                      f->path);
  STINT_TRY(rope_read(f, "llama", p->head_size, m->ctx_trained, false, &p->rope, error));
  const gguf_tensor *const embed = model_tensor(m, "token_embd.weight");
  if (!embed) return stint_fail(error, STINT_BAD_INPUT, "%s: tensor token_embd.weight is missing", f->path);
  m->n_vocab = embed->ne[1];
  p->tied = gguf_find_tensor(f, "output.weight") == NULL;
  const gguf_tensor *const factors = model_tensor(m, "rope_freqs.weight");
  if (factors && (factors->type != DTYPE_F32 || factors->ne[0] != p->rope.n_rot / 2 || factors->n_dims != 1))
    return stint_fail(error, STINT_BAD_INPUT, "%s: tensor rope_freqs.weight must be F32 [%lld]", f->path,
                      (long long)p->rope.n_rot / 2);
  return STINT_OK;
}

static graph_id build_block(model_builder *const b, const graph_id x, const graph_id turns,
                            const int64_t layer) {
  const llama_params *const p = &b->model->llama;
  const int64_t q_size = p->n_heads * p->head_size, kv_size = p->n_kv_heads * p->head_size;
  char name[64];
#define BLK(kind) (snprintf(name, sizeof name, "blk.%d." kind ".weight", (int)layer), name)
  const graph_id a = build_rms_norm(b, x, BLK("attn_norm"), p->norm_eps);
  graph_id q = build_linear(b, a, BLK("attn_q"), p->n_embd, q_size, GRAPH_NONE);
  graph_id k = build_linear(b, a, BLK("attn_k"), p->n_embd, kv_size, GRAPH_NONE);
  const graph_id v = build_linear(b, a, BLK("attn_v"), p->n_embd, kv_size, GRAPH_NONE);
  q = build_rope(b, q, turns, p->head_size, &p->rope);
  k = build_rope(b, k, turns, p->head_size, &p->rope);
  const double scale = 1.0 / __builtin_sqrt((double)p->head_size);
  const graph_id o = build_attention(b, q, k, v, p->head_size, p->n_heads, p->n_kv_heads, scale);
  const graph_id mid = build_linear(b, o, BLK("attn_output"), q_size, p->n_embd, x);
  const graph_id f = build_rms_norm(b, mid, BLK("ffn_norm"), p->norm_eps);
  const graph_id gate = build_linear(b, f, BLK("ffn_gate"), p->n_embd, p->n_ff, GRAPH_NONE);
  const graph_id up = build_linear(b, f, BLK("ffn_up"), p->n_embd, p->n_ff, GRAPH_NONE);
  const graph_id h = build_swiglu(b, gate, up);
  return build_linear(b, h, BLK("ffn_down"), p->n_ff, p->n_embd, mid);
#undef BLK
}

static void llama_build(model_builder *const b) {
  const llama_params *const p = &b->model->llama;
  const graph_id turns = build_constant(b, "rope turns", op_tensor_make(DTYPE_F32, p->rope.n_rot / 2, 2));
  graph_id x = build_embedding(b, "token_embd.weight", p->n_embd);
  for (int64_t layer = 0; layer < p->n_layers; layer++) {
    b->g->layer = (int32_t)layer;
    x = build_block(b, x, turns, layer);
  }
  b->g->layer = -1;
  x = build_rms_norm(b, x, "output_norm.weight", p->norm_eps);
  build_head(b, x, p->tied ? "token_embd.weight" : "output.weight", p->n_embd);
}

static stint_status llama_fill_constant(const stint_model *const m, const int index, float *const out,
                                        stint_error *const error) {
  if (index != 0)
    return stint_fail(error, STINT_INTERNAL, "the llama family has one constant, not %d", index + 1);
  const gguf_tensor *const factors = model_tensor(m, "rope_freqs.weight");
  rope_turns(&m->llama.rope, factors ? factors->data : NULL, out);
  return STINT_OK;
}

const model_family model_family_llama = {
    .architecture = "llama",
    .linear_kinds = linear_kinds,
    .read = llama_read,
    .build = llama_build,
    .fill_constant = llama_fill_constant,
};
