/* Opening a model: the family table, and the facts that people ask of a file. */
#include "engine/models/model.h"

#include <stdio.h>
#include <string.h>

static const model_family *const families[] = {&model_family_llama};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

const gguf_tensor *model_tensor(const stint_model *const model, const char *const name) {
  const gguf_tensor *const t = gguf_find_tensor(&model->file, name);
  if (t) model->tensor_used[t - model->file.tensors] = true;
  return t;
}

static stint_status find_family(stint_model *const m, stint_error *const error) {
  gguf_text arch;
  STINT_TRY(gguf_get_text(&m->file, "general.architecture", &arch, error));
  for (int i = 0; i < N_FAMILIES; i++) {
    if (!gguf_text_is(arch, families[i]->architecture)) continue;
    m->family = families[i];
    return STINT_OK;
  }
  char known[256] = "";
  for (int i = 0; i < N_FAMILIES; i++) {
    if (i) strncat(known, ", ", sizeof known - strlen(known) - 1);
    strncat(known, families[i]->architecture, sizeof known - strlen(known) - 1);
  }
  return stint_fail(error, STINT_UNSUPPORTED, "%s: architecture '%.*s' is not supported (known: %s)",
                    m->file.path, arch.bytes > 64 ? 64 : (int)arch.bytes, arch.data, known);
}

static const char *describe_types(stint_model *const m) {
  int count[DTYPE_LIMIT] = {0};
  for (size_t i = 0; i < m->file.n_tensors; i++)
    if ((unsigned)m->file.tensors[i].type < DTYPE_LIMIT) count[m->file.tensors[i].type]++;
  char text[256] = "";
  size_t n = 0;
  for (int t = 0; t < DTYPE_LIMIT && n < sizeof text; t++)
    if (count[t])
      n += (size_t)snprintf(text + n, sizeof text - n, "%s%s x %d", n ? ", " : "", dtype_name(t), count[t]);
  return bump_text(&m->memory, text, strlen(text));
}

static stint_status describe(stint_model *const m, stint_error *const error) {
  gguf_text name, arch;
  STINT_TRY(gguf_get_text(&m->file, "general.architecture", &arch, error));
  STINT_TRY(gguf_get_text_or(&m->file, "general.name", "", &name, error));
  int64_t n_params = 0;
  for (size_t i = 0; i < m->file.n_tensors; i++) {
    const gguf_tensor *const t = &m->file.tensors[i];
    n_params += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
  }
  m->info = (stint_model_info){
      .path = m->file.path,
      .architecture = bump_text(&m->memory, arch.data, arch.bytes),
      .name = bump_text(&m->memory, name.data, name.bytes),
      .weight_types = describe_types(m),
      .n_params = n_params,
      .n_vocab = m->n_vocab,
      .n_layers = m->llama.n_layers,
      .n_embd = m->llama.n_embd,
      .ctx_trained = m->ctx_trained,
      .file_bytes = m->file.map.bytes,
      .header_only = m->file.header_only,
      .tied_head = m->llama.tied,
  };
  if (!m->info.architecture || !m->info.name || !m->info.weight_types)
    return stint_fail(error, STINT_NO_MEMORY, "%s: no memory for the model's index", m->file.path);
  return STINT_OK;
}

stint_status stint_model_open(const char *const path, stint_model **const out, stint_error *const error) {
  *out = NULL;
  bump memory;
  bump_init(&memory, 0);
  stint_model *const m = BUMP_NEW(&memory, stint_model);
  if (!m) return stint_fail(error, STINT_NO_MEMORY, "%s: no memory to open the model", path);
  stint_status status = gguf_open(path, &memory, &m->file, error);
  if (status == STINT_OK) {
    m->memory = memory;
    m->tensor_used = BUMP_ARRAY(&m->memory, bool, m->file.n_tensors);
    status = m->tensor_used ? find_family(m, error)
                            : stint_fail(error, STINT_NO_MEMORY, "%s: no memory for the model's index", path);
    if (status == STINT_OK) status = m->family->read(m, error);
    if (status == STINT_OK) status = describe(m, error);
    memory = m->memory;
    if (status != STINT_OK) gguf_close(&m->file);
  }
  if (status != STINT_OK) {
    bump_free(&memory);
    return status;
  }
  *out = m;
  return STINT_OK;
}

void stint_model_describe(const stint_model *const model, stint_model_info *const out) { *out = model->info; }

void stint_model_close(stint_model *const model) {
  if (!model) return;
  gguf_close(&model->file);
  bump memory = model->memory; /* the model lies in its own memory */
  bump_free(&memory);
}
