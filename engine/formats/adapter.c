/* LoRA adapters in GGUF form: one table of rules, applied when writing, opening and reading back.
 *
 * Algorithm: opening pairs each `.lora_a` with its `.lora_b` by name, finds the base tensor, and compares the sizes of both
 * with adapter_shapes, the rule that the writer uses too. Reading back is opening plus memcmp.
 *
 * Invariant: an adapter_file that opened has only complete pairs of the right sizes for its base, and data for all of
 * them. Source: the adapter form as llama.cpp's loader and its conversion script define it; what that loader does not
 * check (third sizes, a missing alpha, element types) is checked here. */
#include "engine/formats/adapter.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/formats/gguf_text.h"

enum { NAME_BYTES = 64, NAME_LIMIT = 63, SUFFIX_BYTES = 7 };

static const char suffix_a[] = ".lora_a", suffix_b[] = ".lora_b";
static const char key_alpha[] = "adapter.lora.alpha", key_step[] = "stint.step";

/* ---- shapes ---- */

static bool starts(const char *const s, const char *const with) { return !strncmp(s, with, strlen(with)); }

static bool ends(const char *const s, const char *const with) {
  const size_t n = strlen(s), m = strlen(with);
  return n >= m && !memcmp(s + n - m, with, m);
}

/* "blk.12.attn_q.weight" -> "attn_q.weight" */
static const char *kind_of(const char *const name) {
  if (!starts(name, "blk.")) return name;
  const char *const dot = strchr(name + 4, '.');
  return dot ? dot + 1 : name;
}

bool adapter_can_target(const gguf_tensor *const base) {
  static const char *const linear[] = {"attn_q",     "attn_k", "attn_v", "attn_qkv", "attn_output", "output",
                                       "token_embd", "ssm_in", "ssm_x",  "ssm_dt",   "ssm_out"};
  const char *const kind = kind_of(base->name);
  if (base->ne[0] < 2 || base->ne[1] < 2 || base->ne[3] != 1 || !ends(kind, ".weight")) return false;
  const bool stack = base->ne[2] != 1 || base->n_dims > 2;
  if (starts(kind, "ffn_")) return !ends(kind, "norm.weight") && (!stack || ends(kind, "_exps.weight"));
  if (stack) return false;
  for (size_t i = 0; i < sizeof linear / sizeof *linear; i++) {
    const size_t n = strlen(linear[i]);
    if (!strncmp(kind, linear[i], n) && !strcmp(kind + n, ".weight")) return true;
  }
  return false;
}

bool adapter_is_flipped(const char *const target) { return !strcmp(target, "token_embd.weight"); }

void adapter_shapes(const char *const target, const int64_t ne[const 3], const int64_t rank,
                    int64_t a[const 3], int64_t b[const 3]) {
  const bool flipped = adapter_is_flipped(target);
  a[0] = flipped ? rank : ne[0];
  a[1] = flipped ? ne[1] : rank;
  b[0] = rank;
  b[1] = flipped ? ne[0] : ne[1];
  a[2] = b[2] = ne[2];
}

/* ---- writing ---- */

static int64_t count(const int64_t ne[const 3]) { return ne[0] * ne[1] * ne[2]; }

static stint_status check_finite(const char *const path, const adapter_pair *const p, const char which,
                                 const float *const x, const int64_t n, stint_error *const error) {
  for (int64_t i = 0; i < n; i++) {
    if (!__builtin_isfinite(x[i]))
      return stint_fail(
          error, STINT_NOT_FINITE,
          "%s: element %lld of %s.lora_%c is %s; the adapter is not written; look for the first step whose "
          "gradient norm is not finite, and lower the learning rate",
          path, (long long)i, p->target, which, x[i] != x[i] ? "NaN" : "infinite");
  }
  return STINT_OK;
}

static stint_status check_pair(const char *const path, const adapter_pair *const p,
                               stint_error *const error) {
  int64_t a[3], b[3];
  if (strlen(p->target) > NAME_LIMIT - SUFFIX_BYTES)
    return stint_fail(error, STINT_UNSUPPORTED,
                      "%s: the name '%s' with '.lora_a' passes the %d bytes that GGUF allows; leave it "
                      "out of the targets",
                      path, p->target, NAME_LIMIT);
  adapter_shapes(p->target, p->ne, p->rank, a, b);
  if (p->rank < 1 || p->ne[0] < 1 || p->ne[1] < 1 || p->ne[2] < 1)
    return stint_fail(error, STINT_INTERNAL, "%s: a pair of '%s' with a size below 1; report this", path,
                      p->target);
  STINT_TRY(check_finite(path, p, 'a', p->a, count(a), error));
  return check_finite(path, p, 'b', p->b, count(b), error);
}

static void declare(gguf_writer *const w, const char *const target, const char *const suffix,
                    const int64_t ne[const 3]) {
  char name[NAME_BYTES];
  snprintf(name, sizeof name, "%s%s", target, suffix);
  gguf_write_tensor(w, name, DTYPE_F32, ne[2] > 1 ? 3 : 2, ne);
}

static void write_string(gguf_writer *const w, const char *const key, const char *const text) {
  gguf_write_text(w, key, text, strlen(text));
}

stint_status adapter_write(const char *const path, const adapter_facts *const facts,
                           const adapter_pair *const pairs, const size_t n, bump *const b,
                           stint_error *const error) {
  if (!(facts->alpha > 0) || !__builtin_isfinite(facts->alpha) || !n)
    return stint_fail(error, STINT_INTERNAL, "%s: an adapter of %zu pairs with alpha %g; report this", path,
                      n, (double)facts->alpha);
  for (size_t i = 0; i < n; i++) STINT_TRY(check_pair(path, &pairs[i], error));
  gguf_writer *w;
  STINT_TRY(gguf_write_open(path, b, &w, error));
  write_string(w, "general.type", "adapter");
  write_string(w, "general.architecture", facts->architecture);
  if (facts->name) write_string(w, "general.name", facts->name);
  write_string(w, "adapter.type", "lora");
  gguf_write_f32(w, key_alpha, facts->alpha);
  if (facts->step >= 0) gguf_write_u64(w, key_step, (uint64_t)facts->step);
  for (size_t i = 0; i < facts->n_notes; i++) write_string(w, facts->notes[i].key, facts->notes[i].text);
  int64_t a[3], bb[3];
  for (size_t i = 0; i < n; i++) {
    adapter_shapes(pairs[i].target, pairs[i].ne, pairs[i].rank, a, bb);
    declare(w, pairs[i].target, suffix_a, a);
    declare(w, pairs[i].target, suffix_b, bb);
  }
  for (size_t i = 0; i < n; i++) {
    adapter_shapes(pairs[i].target, pairs[i].ne, pairs[i].rank, a, bb);
    gguf_write_data(w, pairs[i].a, (size_t)count(a) * sizeof(float));
    gguf_write_data(w, pairs[i].b, (size_t)count(bb) * sizeof(float));
  }
  return gguf_write_close(w, error);
}

size_t adapter_scratch(const char *const path, const adapter_facts *const facts,
                       const adapter_pair *const pairs, const size_t n) {
  const size_t n_keys = 6 + facts->n_notes;
  size_t header = n_keys * 64 + strlen(facts->architecture) + (facts->name ? strlen(facts->name) : 0);
  for (size_t i = 0; i < facts->n_notes; i++)
    header += strlen(facts->notes[i].key) + strlen(facts->notes[i].text);
  for (size_t i = 0; i < n; i++) header += 2 * (strlen(pairs[i].target) + SUFFIX_BYTES + 48);
  const size_t write = gguf_write_scratch(header, 2 * n, 0, strlen(path));
  const size_t verify = strlen(path) + n_keys * (sizeof(gguf_key) + sizeof(size_t)) +
                        2 * n * (sizeof(gguf_tensor) + sizeof(size_t) + NAME_BYTES) +
                        n * sizeof(adapter_entry) + 512;
  return write > verify ? write : verify;
}

/* ---- reading ---- */

STINT_PRINTF(5, 6)
static stint_status reject(const gguf_file *const f, const gguf_tensor *const t, const stint_status status,
                           stint_error *const error, const char *const format, ...) {
  char what[400], name[GGUF_QUOTE_BYTES];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  return stint_fail(error, status, "%s: byte %zu, tensor %s: %s", f->path, t->offset,
                    gguf_quote(name, gguf_text_of(t->name)), what);
}

static stint_status check_text(const gguf_file *const f, const char *const key, const char *const wanted,
                               const char *const remedy, stint_error *const error) {
  gguf_text text;
  STINT_TRY(gguf_get_text(f, key, &text, error));
  if (gguf_text_is(text, wanted)) return STINT_OK;
  char shown[GGUF_QUOTE_BYTES];
  return stint_fail(error, STINT_BAD_INPUT, "%s: byte %zu, key '%s': the value is %s, and '%s' is needed; %s",
                    f->path, gguf_find_key(f, key)->offset, key, gguf_quote(shown, text), wanted, remedy);
}

static stint_status check_keys(const gguf_file *const f, const gguf_file *const base, float *const alpha,
                               stint_error *const error) {
  STINT_TRY(check_text(f, "general.type", "adapter", "give a LoRA adapter in GGUF form", error));
  STINT_TRY(check_text(f, "adapter.type", "lora", "only LoRA adapters are read", error));
  gguf_text of_base;
  char architecture[NAME_BYTES];
  STINT_TRY(gguf_get_text(base, "general.architecture", &of_base, error));
  if (of_base.bytes >= sizeof architecture)
    return stint_fail(error, STINT_UNSUPPORTED,
                      "%s: key 'general.architecture': a name of %zu bytes is none that is known; use "
                      "another base model",
                      base->path, of_base.bytes);
  memcpy(architecture, of_base.data, of_base.bytes);
  architecture[of_base.bytes] = 0;
  STINT_TRY(check_text(f, "general.architecture", architecture,
                       "use the base model that the adapter was made for", error));

  const gguf_key *const invocation = gguf_find_key(f, "adapter.alora.invocation_tokens");
  if (invocation)
    return stint_fail(error, STINT_UNSUPPORTED,
                      "%s: byte %zu, key 'adapter.alora.invocation_tokens': adapters that wait for an "
                      "invocation are not read; use a plain LoRA adapter",
                      f->path, invocation->offset);

  const gguf_key *const k = gguf_find_key(f, key_alpha);
  if (!k)
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s: the key '%s' is missing, without it the scale alpha / rank is unknown; write the "
                      "adapter again with its alpha",
                      f->path, key_alpha);
  if (k->type != GGUF_F32)
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s: byte %zu, key '%s': its type is %s, and f32 is needed; write the adapter again",
                      f->path, k->offset, key_alpha, gguf_type_name(k->type));
  *alpha = (float)gguf_array_float(k, 0);
  if (!(*alpha > 0) || !__builtin_isfinite(*alpha))
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s: byte %zu, key '%s': the value is %g, and a finite number above 0 is needed; write "
                      "the adapter again with its alpha",
                      f->path, k->offset, key_alpha, (double)*alpha);
  return STINT_OK;
}

static stint_status check_type(const gguf_file *const f, const gguf_tensor *const t,
                               stint_error *const error) {
  if (t->type == DTYPE_F32 || t->type == DTYPE_F16 || t->type == DTYPE_BF16) return STINT_OK;
  return reject(f, t, STINT_UNSUPPORTED, error,
                "its type is %s, and F32, F16 and BF16 are read; write the adapter in one of these",
                dtype_name(t->type));
}

static stint_status check_sizes(const gguf_file *const f, const gguf_tensor *const t,
                                const int64_t wanted[const 3], const gguf_tensor *const base,
                                stint_error *const error) {
  const int64_t *const ne = t->ne;
  if (ne[0] == wanted[0] && ne[1] == wanted[1] && ne[2] == wanted[2] && ne[3] == 1) return STINT_OK;
  return reject(f, t, STINT_BAD_INPUT, error,
                "its sizes are [%lld, %lld, %lld, %lld], and [%lld, %lld, %lld, 1] go with the base's [%lld, "
                "%lld, %lld] and the "
                "rank of the pair; use the base model that the adapter was made for",
                (long long)ne[0], (long long)ne[1], (long long)ne[2], (long long)ne[3], (long long)wanted[0],
                (long long)wanted[1], (long long)wanted[2], (long long)base->ne[0], (long long)base->ne[1],
                (long long)base->ne[2]);
}

/* The factor that goes with `t`; both names end alike but for the last letter. */
static stint_status find_half(const gguf_file *const f, const gguf_tensor *const t,
                              const gguf_tensor **const half, stint_error *const error) {
  char name[NAME_BYTES];
  const size_t n = strlen(t->name);
  memcpy(name, t->name, n + 1);
  name[n - 1] = name[n - 1] == 'a' ? 'b' : 'a';
  *half = gguf_find_tensor(f, name);
  return *half ? STINT_OK
               : reject(f, t, STINT_BAD_INPUT, error,
                        "its other half, '%s', is missing; write the adapter again", name);
}

static stint_status pair_up(const adapter_file *const out, const gguf_tensor *const a,
                            const gguf_tensor *const b, const gguf_file *const base, adapter_entry *const e,
                            stint_error *const error) {
  const gguf_file *const f = &out->file;
  char name[NAME_BYTES];
  const size_t n = strlen(a->name) - SUFFIX_BYTES;
  memcpy(name, a->name, n);
  name[n] = 0;
  e->a = a;
  e->b = b;
  e->base = gguf_find_tensor(base, name);
  if (!e->base)
    return reject(f, a, STINT_BAD_INPUT, error,
                  "the base model %s has no tensor '%s'; use the one that the adapter was made for",
                  base->path, name);
  if (!adapter_can_target(e->base))
    return reject(f, a, STINT_UNSUPPORTED, error,
                  "'%s' is no matrix that can be adapted (norms, biases and convolutions can not); "
                  "write the adapter without it",
                  name);
  e->flipped = adapter_is_flipped(name);
  e->rank = e->b->ne[0];
  e->scale = out->alpha / (float)e->rank;
  STINT_TRY(check_type(f, a, error));
  STINT_TRY(check_type(f, b, error));
  int64_t ne_a[3], ne_b[3];
  adapter_shapes(name, e->base->ne, e->rank, ne_a, ne_b);
  STINT_TRY(check_sizes(f, a, ne_a, e->base, error));
  return check_sizes(f, b, ne_b, e->base, error);
}

static stint_status pair_all(const gguf_file *const base, bump *const b, adapter_file *const out,
                             stint_error *const error) {
  const gguf_file *const f = &out->file;
  STINT_TRY(check_keys(f, base, &out->alpha, error));
  if (!f->n_tensors || f->header_only)
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s: byte %zu: it holds no tensor data; copy or write the adapter again", f->path,
                      f->data_offset);
  adapter_entry *const entries = BUMP_ARRAY(b, adapter_entry, f->n_tensors / 2);
  if (!entries)
    return stint_fail(error, STINT_NO_MEMORY,
                      "%s: the index of %zu tensors does not fit the memory for loading; allow more", f->path,
                      f->n_tensors);
  out->entries = entries;
  for (size_t i = 0; i < f->n_tensors; i++) {
    const gguf_tensor *const t = &f->tensors[i];
    const bool is_a = ends(t->name, suffix_a), is_b = ends(t->name, suffix_b);
    if (!is_a && !is_b)
      return reject(f, t, STINT_UNSUPPORTED, error,
                    "only '.lora_a' and '.lora_b' are read; write the adapter without it");
    const gguf_tensor *half;
    STINT_TRY(find_half(f, t, &half, error));
    if (is_b) continue;
    /* every lora_a so far has a lora_b of its own: there are at most n_tensors / 2 of them */
    STINT_ASSERT(out->n_entries < f->n_tensors / 2);
    STINT_TRY(pair_up(out, t, half, base, &entries[out->n_entries], error));
    out->n_entries++;
  }
  return STINT_OK;
}

stint_status adapter_open(const char *const path, const gguf_file *const base, bump *const b,
                          adapter_file *const out, stint_error *const error) {
  *out = (adapter_file){0};
  STINT_TRY(gguf_open(path, b, &out->file, error));
  const stint_status status = pair_all(base, b, out, error);
  if (status != STINT_OK) adapter_close(out);
  return status;
}

void adapter_close(adapter_file *const f) {
  gguf_close(&f->file);
  *f = (adapter_file){0};
}

const adapter_entry *adapter_find(const adapter_file *const f, const char *const target) {
  for (size_t i = 0; i < f->n_entries; i++) {
    if (!strcmp(f->entries[i].base->name, target)) return &f->entries[i];
  }
  return NULL;
}

stint_status adapter_copy(const adapter_file *const f, const gguf_tensor *const factor, float *const dst,
                          stint_error *const error) {
  const int64_t n = factor->ne[0] * factor->ne[1] * factor->ne[2];
  dequantize_row(factor->type, factor->data, dst, n);
  for (int64_t i = 0; i < n; i++) {
    if (!__builtin_isfinite(dst[i]))
      return reject(&f->file, factor, STINT_BAD_INPUT, error,
                    "element %lld is no finite number; the adapter is of no use, make it again",
                    (long long)i);
  }
  return STINT_OK;
}

/* ---- reading back ---- */

static stint_status differs(const char *const path, const char *const what, const char *const name,
                            stint_error *const error) {
  return stint_fail(error, STINT_IO,
                    "%s: read back, the %s '%s' differs from what was written; the disk or another program "
                    "changed it: write to another disk",
                    path, what, name);
}

static stint_status compare_text(const gguf_file *const f, const char *const key, const char *const wanted,
                                 stint_error *const error) {
  gguf_text text;
  STINT_TRY(gguf_get_text(f, key, &text, error));
  return gguf_text_is(text, wanted) ? STINT_OK : differs(f->path, "key", key, error);
}

static stint_status compare_factor(const gguf_file *const f, const gguf_tensor *const t,
                                   const float *const wanted, stint_error *const error) {
  const bool same = t->type == DTYPE_F32 && !memcmp(t->data, wanted, t->bytes);
  return same ? STINT_OK : differs(f->path, "tensor", t->name, error);
}

static stint_status compare(const adapter_file *const file, const adapter_facts *const facts,
                            const adapter_pair *const pairs, const size_t n, stint_error *const error) {
  const gguf_file *const f = &file->file;
  STINT_TRY(compare_text(f, "general.architecture", facts->architecture, error));
  if (facts->name) STINT_TRY(compare_text(f, "general.name", facts->name, error));
  if (memcmp(&file->alpha, &facts->alpha, sizeof file->alpha))
    return differs(f->path, "key", key_alpha, error);
  const gguf_key *const step = gguf_find_key(f, key_step);
  const bool same_step = facts->step < 0 ? !step
                                         : step && step->type == GGUF_U64 &&
                                               !memcmp(step->value, &facts->step, sizeof facts->step);
  if (!same_step) return differs(f->path, "key", key_step, error);
  for (size_t i = 0; i < facts->n_notes; i++)
    STINT_TRY(compare_text(f, facts->notes[i].key, facts->notes[i].text, error));
  for (size_t i = 0; i < n; i++) {
    const adapter_entry *const e = i < file->n_entries ? &file->entries[i] : NULL;
    if (!e || strcmp(e->base->name, pairs[i].target) || e->rank != pairs[i].rank)
      return differs(f->path, "pair", pairs[i].target, error);
    STINT_TRY(compare_factor(f, e->a, pairs[i].a, error));
    STINT_TRY(compare_factor(f, e->b, pairs[i].b, error));
  }
  return file->n_entries == n ? STINT_OK : differs(f->path, "pair", file->entries[n].base->name, error);
}

stint_status adapter_verify(const char *const path, const adapter_facts *const facts,
                            const adapter_pair *const pairs, const size_t n, const gguf_file *const base,
                            bump *const b, stint_error *const error) {
  adapter_file file;
  STINT_TRY(adapter_open(path, base, b, &file, error));
  const stint_status status = compare(&file, facts, pairs, n, error);
  adapter_close(&file);
  return status;
}
