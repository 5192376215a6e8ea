/* Hostile and unlucky metadata: each ends in one error that names the key; said bytes are used bytes. */
#include <criterion/criterion.h>

#include "engine/tokenizer/parts.h"
#include "tests/tokenizer/fixture.h"

static fixture_vocab vocab;

static void sound_spm(fixture *f) {
  fixture_spm_base(&vocab);
  fixture_add(&vocab, "a", 1, -1);
  fixture_spm(f, &vocab);
}

static void sound_bpe(fixture *f) {
  static const char *const merges[] = {"a b"};
  fixture_bpe_base(&vocab);
  fixture_add(&vocab, "ab", 1, 0);
  fixture_bpe(f, &vocab, "gpt-2", merges, 1);
}

#define ARRAY(f, key, element, n, size)                                                                      \
  fixture_put(f, "tokenizer.ggml." key, GGUF_ARRAY, element, n, zeros, (size_t)(n) * (size))
static const unsigned char zeros[8192];

static void no_model(fixture *f) { sound_spm(f), fixture_drop(f, "tokenizer.ggml.model"); }
static void other_model(fixture *f) { sound_spm(f), fixture_text(f, "tokenizer.ggml.model", "rwkv"); }
static void model_number(fixture *f) { sound_spm(f), fixture_u32(f, "tokenizer.ggml.model", 1); }
static void no_tokens(fixture *f) { sound_spm(f), fixture_drop(f, "tokenizer.ggml.tokens"); }
static void tokens_numbers(fixture *f) { sound_spm(f), ARRAY(f, "tokens", GGUF_I32, 260, 4); }
static void tokens_none(fixture *f) { sound_spm(f), ARRAY(f, "tokens", GGUF_STRING, 0, 0); }
static void tokens_text(fixture *f) { sound_spm(f), fixture_text(f, "tokenizer.ggml.tokens", "a"); }
static void types_u8(fixture *f) { sound_spm(f), ARRAY(f, "token_type", GGUF_U8, 260, 1); }
static void types_few(fixture *f) { sound_spm(f), ARRAY(f, "token_type", GGUF_I32, 259, 4); }
static void scores_f64(fixture *f) { sound_spm(f), ARRAY(f, "scores", GGUF_F64, 260, 8); }
static void scores_many(fixture *f) { sound_spm(f), ARRAY(f, "scores", GGUF_F32, 261, 4); }
static void scores_nan(fixture *f) {
  sound_spm(f);
  vocab.score[7] = __builtin_nanf("");
  fixture_put(f, "tokenizer.ggml.scores", GGUF_ARRAY, GGUF_F32, vocab.n, vocab.score, vocab.n * 4);
}
static void bos_outside(fixture *f) { sound_spm(f), fixture_u32(f, "tokenizer.ggml.bos_token_id", 260); }
static void eos_outside(fixture *f) {
  sound_spm(f), fixture_u32(f, "tokenizer.ggml.eos_token_id", 0xFFFFFFFF);
}
static void bos_text(fixture *f) { sound_spm(f), fixture_text(f, "tokenizer.ggml.bos_token_id", "<s>"); }
static void add_bos_number(fixture *f) { sound_spm(f), fixture_u32(f, "tokenizer.ggml.add_bos_token", 1); }
static void bos_missing(fixture *f) { sound_bpe(f), fixture_bool(f, "tokenizer.ggml.add_bos_token", true); }
static void eos_missing(fixture *f) { sound_bpe(f), fixture_bool(f, "tokenizer.ggml.add_eos_token", true); }
static void no_pre(fixture *f) { sound_bpe(f), fixture_drop(f, "tokenizer.ggml.pre"); }
static void other_pre(fixture *f) { sound_bpe(f), fixture_text(f, "tokenizer.ggml.pre", "gpt-9"); }
static void no_merges(fixture *f) { sound_bpe(f), fixture_drop(f, "tokenizer.ggml.merges"); }
static void merges_numbers(fixture *f) { sound_bpe(f), ARRAY(f, "merges", GGUF_I32, 3, 4); }
static void put_merge(fixture *f, const char *merge) {
  sound_bpe(f);
  const char *const merges[] = {"a b", merge};
  fixture_texts(f, "tokenizer.ggml.merges", merges, 2);
}
static void merge_left(fixture *f) { put_merge(f, "abc b"); }
static void merge_right(fixture *f) { put_merge(f, "a bcd"); }
static void merge_result(fixture *f) { put_merge(f, "a c"); }
static void merge_one(fixture *f) { put_merge(f, "ab"); }
static void merge_empty(fixture *f) { put_merge(f, ""); }
static void merge_space(fixture *f) { put_merge(f, " "); }
static void merge_half(fixture *f) { put_merge(f, "a "); }
static void no_bytes(fixture *f) {
  fixture_spm_base(&vocab);
  vocab.n = 3;
  snprintf(vocab.text[0], 8, "zzz");
  vocab.type[0] = 1;
  fixture_spm(f, &vocab);
}

static const struct {
  const char *name;
  void (*build)(fixture *);
  stint_status status;
  const char *says; /* in the message */
} cases[] = {
#define CASE(build, status, says)                                                                            \
  { #build, build, STINT_##status, says }
    CASE(no_model, BAD_INPUT, "tokenizer.ggml.model"),
    CASE(other_model, UNSUPPORTED, "llama (SPM)"),
    CASE(model_number, BAD_INPUT, "tokenizer.ggml.model"),
    CASE(no_tokens, BAD_INPUT, "tokenizer.ggml.tokens"),
    CASE(tokens_numbers, BAD_INPUT, "tokenizer.ggml.tokens"),
    CASE(tokens_none, BAD_INPUT, "tokenizer.ggml.tokens"),
    CASE(tokens_text, BAD_INPUT, "tokenizer.ggml.tokens"),
    CASE(types_u8, BAD_INPUT, "tokenizer.ggml.token_type"),
    CASE(types_few, BAD_INPUT, "tokenizer.ggml.token_type"),
    CASE(scores_f64, BAD_INPUT, "tokenizer.ggml.scores"),
    CASE(scores_many, BAD_INPUT, "tokenizer.ggml.scores"),
    CASE(scores_nan, BAD_INPUT, "tokenizer.ggml.scores"),
    CASE(bos_outside, BAD_INPUT, "tokenizer.ggml.bos_token_id"),
    CASE(eos_outside, BAD_INPUT, "tokenizer.ggml.eos_token_id"),
    CASE(bos_text, BAD_INPUT, "tokenizer.ggml.bos_token_id"),
    CASE(add_bos_number, BAD_INPUT, "tokenizer.ggml.add_bos_token"),
    CASE(bos_missing, BAD_INPUT, "tokenizer.ggml.bos_token_id"),
    CASE(eos_missing, BAD_INPUT, "tokenizer.ggml.eos_token_id"),
    CASE(no_pre, BAD_INPUT, "tokenizer.ggml.pre"),
    CASE(other_pre, UNSUPPORTED, "qwen2"),
    CASE(no_merges, BAD_INPUT, "tokenizer.ggml.merges"),
    CASE(merges_numbers, BAD_INPUT, "tokenizer.ggml.merges"),
    CASE(merge_left, BAD_INPUT, "merge 1"),
    CASE(merge_right, BAD_INPUT, "merge 1"),
    CASE(merge_result, BAD_INPUT, "merge 1"),
    CASE(merge_one, BAD_INPUT, "merge 1"),
    CASE(merge_empty, BAD_INPUT, "merge 1"),
    CASE(merge_space, BAD_INPUT, "merge 1"),
    CASE(merge_half, BAD_INPUT, "merge 1"),
    CASE(no_bytes, BAD_INPUT, "tokenizer.ggml.tokens"),
};

Test(metadata, hostile) {
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
    fixture f;
    stint_error error = {0};
    cases[c].build(&f);
    const stint_status status = fixture_open(&f, &error);
    cr_assert_eq(status, cases[c].status, "%s: status %d, '%s'", cases[c].name, (int)status, error.text);
    cr_assert(strstr(error.text, cases[c].says), "%s: '%s' does not name %s", cases[c].name, error.text,
              cases[c].says);
    cr_assert(strstr(error.text, f.path), "%s: '%s' does not name the file", cases[c].name, error.text);
    cr_assert_null(f.t);
    fixture_close(&f);
  }
}

/* A buffer of the stated size is enough, its last byte is not to spare, and a smaller one is refused. */
Test(metadata, said_is_used) {
  void (*const sound[])(fixture *) = {sound_spm, sound_bpe};
  for (int kind = 0; kind < 2; kind++) {
    fixture f;
    stint_error error = {0};
    sound[kind](&f);
    cr_assert_eq(fixture_open(&f, &error), STINT_OK, "%s", error.text);
    cr_assert(fixture_in_bounds(&f));
    cr_assert_neq(f.buffer[f.bytes - 1], 0xA5, "the last byte was never written");
    tokenizer *t;
    cr_assert_eq(tokenizer_make(&f.file, f.buffer, f.bytes - 1, &t, &error), STINT_NO_MEMORY);
    cr_assert_null(t);
    fixture_close(&f);
  }
}

/* The digest follows what decides ids, and nothing else. */
Test(metadata, digest) {
  fixture f, g;
  stint_error error = {0};
  sound_spm(&f);
  cr_assert_eq(fixture_open(&f, &error), STINT_OK);
  const uint64_t first = tokenizer_digest(f.t);
  fixture_close(&f);
  sound_spm(&g);
  fixture_text(&g, "general.name", "other");
  fixture_text(&g, "tokenizer.chat_template", "{}");
  cr_assert_eq(fixture_open(&g, &error), STINT_OK);
  cr_assert_eq(tokenizer_digest(g.t), first);
  fixture_close(&g);
  sound_spm(&g);
  vocab.score[200] = 4;
  fixture_put(&g, "tokenizer.ggml.scores", GGUF_ARRAY, GGUF_F32, vocab.n, vocab.score, vocab.n * 4);
  cr_assert_eq(fixture_open(&g, &error), STINT_OK);
  cr_assert_neq(tokenizer_digest(g.t), first);
  fixture_close(&g);
}
