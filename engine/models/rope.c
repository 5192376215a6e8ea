/* Plain, linear and YaRN (Peng et al. 2023) frequencies, and the factors that a model file may carry.
 *
 * Pair i turns base^(-2i/n_rot) / 2 pi times a position. Linear scaling divides by `factor`. YaRN mixes both by a ramp
 * over the pairs between those that turn beta_fast and beta_slow times within the original context.
 * Computed in float64 by the project's own functions and split into two floats: the same on every machine. */
#include "engine/models/rope.h"

#include <stdio.h>
#include <string.h>

#include "kernels/math/hostmath.h"

#define PI 3.14159265358979323846

static double clamp(const double x, const double lo, const double hi) {
  return x < lo ? lo : x > hi ? hi : x;
}

stint_status rope_read(const gguf_file *const file, const char *const arch, const int64_t head_size,
                       const int64_t ctx_trained, const bool neox, rope_params *const out,
                       stint_error *const error) {
  char key[128];
  *out = (rope_params){.factor = 1, .neox = neox};
#define KEY(suffix) (snprintf(key, sizeof key, "%s.rope." suffix, arch), key)
  STINT_TRY(gguf_get_int_or(file, KEY("dimension_count"), 2, head_size, head_size, &out->n_rot, error));
  if (out->n_rot % 2 != 0)
    return stint_fail(error, STINT_BAD_INPUT, "%s: key %s is %lld, and pairs need an even number", file->path,
                      key, (long long)out->n_rot);
  STINT_TRY(gguf_get_float_or(file, KEY("freq_base"), 10000.0, &out->freq_base, error));
  if (!(out->freq_base > 1 && out->freq_base < 1e15))
    return stint_fail(error, STINT_BAD_INPUT, "%s: key %s must be above 1", file->path, key);
  gguf_text type;
  STINT_TRY(gguf_get_text_or(file, KEY("scaling.type"), "none", &type, error));
  const bool none = gguf_text_is(type, "none");
  out->yarn = gguf_text_is(type, "yarn");
  if (!none && !out->yarn && !gguf_text_is(type, "linear"))
    return stint_fail(error, STINT_UNSUPPORTED,
                      "%s: rope scaling '%.*s' is not known (none, linear and yarn are)", file->path,
                      (int)type.bytes, type.data);
  double factor;
  STINT_TRY(gguf_get_float_or(file, KEY("scale_linear"), 0, &factor, error));
  STINT_TRY(gguf_get_float_or(file, KEY("scaling.factor"), factor, &factor, error));
  if (!none && factor != 0) out->factor = factor;
  if (!(out->factor > 0))
    return stint_fail(error, STINT_BAD_INPUT, "%s: key %s must be above 0", file->path, key);
  STINT_TRY(gguf_get_float_or(file, KEY("scaling.attn_factor"), 1, &out->attn_factor, error));
  STINT_TRY(gguf_get_float_or(file, KEY("scaling.yarn_ext_factor"), -1, &out->ext_factor, error));
  if (out->ext_factor < 0) out->ext_factor = out->yarn ? 1 : 0;
  STINT_TRY(gguf_get_float_or(file, KEY("scaling.yarn_beta_fast"), 32, &out->beta_fast, error));
  STINT_TRY(gguf_get_float_or(file, KEY("scaling.yarn_beta_slow"), 1, &out->beta_slow, error));
  STINT_TRY(gguf_get_int_or(file, KEY("scaling.original_context_length"), 1, INT32_MAX, ctx_trained,
                            &out->original_ctx, error));
#undef KEY
  return STINT_OK;
}

/* The pair (as a real number) that turns `turns` times within the original context. */
static double pair_that_turns(const rope_params *const r, const double turns) {
  return (double)r->n_rot * h_log((double)r->original_ctx / (turns * 2 * PI)) / (2 * h_log(r->freq_base));
}

double rope_magnitude(const rope_params *const rope) {
  if (!rope->yarn || rope->ext_factor == 0) return rope->attn_factor;
  return rope->attn_factor * (1 + 0.1 * h_log(rope->factor));
}

void rope_turns(const rope_params *const rope, const float *const factors, float *const out) {
  const int64_t pairs = rope->n_rot / 2;
  double low = 0, high = 0;
  if (rope->yarn) {
    const double last = (double)rope->n_rot - 1;
    low = clamp(__builtin_floor(pair_that_turns(rope, rope->beta_fast)), 0, last);
    high = clamp(__builtin_ceil(pair_that_turns(rope, rope->beta_slow)), 0, last);
  }
  for (int64_t i = 0; i < pairs; i++) {
    const double plain =
        h_pow(rope->freq_base, -2.0 * (double)i / (double)rope->n_rot) / (factors ? (double)factors[i] : 1);
    double f = plain / rope->factor;
    if (rope->yarn) {
      const double width = high - low > 0.001 ? high - low : 0.001;
      const double mix = (1 - clamp(((double)i - low) / width, 0, 1)) * rope->ext_factor;
      f = f * (1 - mix) + plain * mix;
    }
    const double turns = f / (2 * PI);
    out[i] = (float)turns;
    out[pairs + i] = (float)(turns - (double)out[i]);
  }
}
