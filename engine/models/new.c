/* A llama of any size with seeded random weights and a byte-level tokenizer, as a GGUF that any reader takes.
 *
 * Weights are normal with deviation 0.02, those that write to the residual stream scaled by 1/sqrt(2 n_layers) (Radford et
 * al. 2019); norms are 1. Every value is a function of seed, tensor and element (Philox, Box and Muller 1958).
 * The tokenizer is SPM's kind with 256 byte tokens, a space mark and no merges: one token a byte. */
#include "engine/models/model.h"

#include "kernels/math/hostmath.h"
#include "kernels/math/philox.h"

#include <stdio.h>
#include <string.h>

enum { N_SPECIAL = 3, N_TOKENS = N_SPECIAL + 256 + 1, MAX_DIMS = 1 << 20 };

void stint_new_options_default(stint_new_options *const o) {
  *o = (stint_new_options){.architecture = "llama",
                           .n_embd = 128,
                           .n_layers = 4,
                           .n_heads = 4,
                           .n_kv_heads = 2,
                           .n_ff = 352,
                           .ctx = 256};
}

static void write_tokenizer(gguf_writer *const w, bump *const b) {
  gguf_text texts[N_TOKENS];
  float scores[N_TOKENS];
  int32_t types[N_TOKENS];
  enum { UNKNOWN = 2, NORMAL = 1, CONTROL = 3, BYTE = 6 };
  static const char *const special[N_SPECIAL] = {"<unk>", "<s>", "</s>"};
  for (int i = 0; i < N_TOKENS; i++) {
    const char *text = i < N_SPECIAL ? special[i] : i == N_TOKENS - 1 ? "\xe2\x96\x81" : NULL;
    types[i] = i == 0 ? UNKNOWN : i < N_SPECIAL ? CONTROL : text ? NORMAL : BYTE;
    if (!text) text = bump_printf(b, "<0x%02X>", i - N_SPECIAL);
    if (!text) text = "";
    texts[i] = (gguf_text){text, strlen(text)};
    scores[i] = 0;
  }
  gguf_write_text(w, "tokenizer.ggml.model", "llama", 5);
  gguf_write_text_array(w, "tokenizer.ggml.tokens", texts, N_TOKENS);
  gguf_write_f32_array(w, "tokenizer.ggml.scores", scores, N_TOKENS);
  gguf_write_i32_array(w, "tokenizer.ggml.token_type", types, N_TOKENS);
  gguf_write_u32(w, "tokenizer.ggml.unknown_token_id", 0);
  gguf_write_u32(w, "tokenizer.ggml.bos_token_id", 1);
  gguf_write_u32(w, "tokenizer.ggml.eos_token_id", 2);
  gguf_write_bool(w, "tokenizer.ggml.add_bos_token", true);
  gguf_write_bool(w, "tokenizer.ggml.add_eos_token", false);
  gguf_write_bool(w, "tokenizer.ggml.add_space_prefix", false);
}

/* Tensors are walked twice: declared, then written. */
typedef struct new_writer {
  gguf_writer *w;
  uint64_t seed;
  uint32_t tensor;
  bool data;
} new_writer;

static void fill_normal(const new_writer *const n, const int64_t first, const int64_t count,
                        const double deviation, float *const out) {
  for (int64_t i = 0; i < count; i += 2) {
    const uint64_t pair = (uint64_t)(first + i) / 2;
    const uint32_t counter[4] = {(uint32_t)pair, (uint32_t)(pair >> 32), n->tensor, 0x6e6f726du};
    uint32_t word[4];
    philox4x32((uint32_t)n->seed, (uint32_t)(n->seed >> 32), counter, word);
    const double u = ((double)word[0] + 1) * 0x1p-32, angle = 6.283185307179586 * ((double)word[1] * 0x1p-32);
    const double radius = __builtin_sqrt(-2 * h_log(u)) * deviation;
    double sine, cosine;
    h_sincos(angle, &sine, &cosine);
    out[i] = (float)(radius * cosine);
    if (i + 1 < count) out[i + 1] = (float)(radius * sine);
  }
}

/* deviation 0: ones */
static void tensor(new_writer *const n, const char *const name, const int64_t ne0, const int64_t ne1,
                   const double deviation) {
  const int64_t ne[2] = {ne0, ne1};
  if (!n->data) {
    gguf_write_tensor(n->w, name, DTYPE_F32, ne1 == 1 ? 1 : 2, ne);
    return;
  }
  enum { PIECE = 2048 };
  float piece[PIECE];
  for (int64_t at = 0; at < ne0 * ne1; at += PIECE) {
    const int64_t count = ne0 * ne1 - at < PIECE ? ne0 * ne1 - at : PIECE;
    if (deviation == 0) {
      for (int64_t i = 0; i < count; i++) piece[i] = 1.0f;
    } else {
      fill_normal(n, at, count, deviation, piece);
    }
    gguf_write_data(n->w, piece, (size_t)count * sizeof(float));
  }
  n->tensor++;
}

static void tensors(new_writer *const n, const stint_new_options *const o) {
  const double plain = 0.02, residual = 0.02 / __builtin_sqrt(2.0 * (double)o->n_layers);
  const int64_t kv = o->n_embd / o->n_heads * o->n_kv_heads;
  char name[64];
#define BLK(kind) (snprintf(name, sizeof name, "blk.%d." kind ".weight", (int)i), name)
  tensor(n, "token_embd.weight", o->n_embd, N_TOKENS, plain);
  for (int64_t i = 0; i < o->n_layers; i++) {
    tensor(n, BLK("attn_norm"), o->n_embd, 1, 0);
    tensor(n, BLK("attn_q"), o->n_embd, o->n_embd, plain);
    tensor(n, BLK("attn_k"), o->n_embd, kv, plain);
    tensor(n, BLK("attn_v"), o->n_embd, kv, plain);
    tensor(n, BLK("attn_output"), o->n_embd, o->n_embd, residual);
    tensor(n, BLK("ffn_norm"), o->n_embd, 1, 0);
    tensor(n, BLK("ffn_gate"), o->n_embd, o->n_ff, plain);
    tensor(n, BLK("ffn_up"), o->n_embd, o->n_ff, plain);
    tensor(n, BLK("ffn_down"), o->n_ff, o->n_embd, residual);
  }
#undef BLK
  tensor(n, "output_norm.weight", o->n_embd, 1, 0);
  if (!o->tied) tensor(n, "output.weight", o->n_embd, N_TOKENS, plain);
}

static stint_status check(const stint_new_options *const o, stint_error *const error) {
  if (!o->architecture || strcmp(o->architecture, "llama") != 0)
    return stint_fail(error, STINT_UNSUPPORTED, "architecture '%s' cannot be made (llama can)",
                      o->architecture ? o->architecture : "");
  if (o->n_embd < 2 || o->n_embd > MAX_DIMS || o->n_layers < 1 || o->n_layers > 4096 || o->n_ff < 1 ||
      o->n_ff > MAX_DIMS || o->n_heads < 1 || o->n_kv_heads < 1 || o->ctx < 2 || o->ctx > INT32_MAX)
    return stint_fail(
        error, STINT_BAD_INPUT,
        "a size of the new model is out of range: every one must be positive, widths at most %d", MAX_DIMS);
  if (o->n_embd % o->n_heads != 0 || o->n_embd / o->n_heads % 2 != 0 || o->n_heads % o->n_kv_heads != 0)
    return stint_fail(
        error, STINT_BAD_INPUT,
        "--heads %lld must divide --embd %lld into even heads, and --kv-heads %lld must divide --heads",
        (long long)o->n_heads, (long long)o->n_embd, (long long)o->n_kv_heads);
  return STINT_OK;
}

stint_status stint_new_model(const char *const path, const stint_new_options *const o,
                             stint_error *const error) {
  STINT_TRY(check(o, error));
  bump b;
  bump_init(&b, 0);
  gguf_writer *w;
  stint_status status = gguf_write_open(path, &b, &w, error);
  if (status == STINT_OK) {
    gguf_write_text(w, "general.architecture", "llama", 5);
    gguf_write_text(w, "general.name", "stint new", 9);
    gguf_write_u32(w, "llama.block_count", (uint32_t)o->n_layers);
    gguf_write_u32(w, "llama.context_length", (uint32_t)o->ctx);
    gguf_write_u32(w, "llama.embedding_length", (uint32_t)o->n_embd);
    gguf_write_u32(w, "llama.feed_forward_length", (uint32_t)o->n_ff);
    gguf_write_u32(w, "llama.attention.head_count", (uint32_t)o->n_heads);
    gguf_write_u32(w, "llama.attention.head_count_kv", (uint32_t)o->n_kv_heads);
    gguf_write_u32(w, "llama.rope.dimension_count", (uint32_t)(o->n_embd / o->n_heads));
    gguf_write_u32(w, "llama.vocab_size", N_TOKENS);
    gguf_write_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_write_f32(w, "llama.rope.freq_base", 10000.0f);
    write_tokenizer(w, &b);
    new_writer n = {.w = w, .seed = o->seed};
    tensors(&n, o);
    n.data = true;
    tensors(&n, o);
    status = gguf_write_close(w, error);
  }
  bump_free(&b);
  return status;
}
