/* Rotary frequencies from hyper-parameters: every scaling scheme becomes one table of turns per position. */
#ifndef STINT_ENGINE_MODELS_ROPE_H
#define STINT_ENGINE_MODELS_ROPE_H

#include "engine/models/model.h"

/* Reads <arch>.rope.*; head_size is the default of n_rot. UNSUPPORTED names a scaling type that is not known. */
stint_status rope_read(const gguf_file *file, const char *arch, int64_t head_size, int64_t ctx_trained,
                       bool neox, rope_params *out, stint_error *error);
/* out[0..n_rot/2): high parts, then as many low parts. `factors` [n_rot/2] divides each frequency; may be NULL. */
void rope_turns(const rope_params *rope, const float *factors, float *out);
/* The factor on cos and sin (YaRN's attention factor). */
double rope_magnitude(const rope_params *rope);

#endif
