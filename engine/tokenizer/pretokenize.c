/* Pre-tokenizers: the patterns that cut text into words, by the names that models give them.
 *
 * Each is one pattern that matches something at every place, so words follow one another without a gap. Where the
 * published rule is several patterns applied in turn (default, smollm), the row is the one pattern with the same words:
 * what a later pattern sees as the end of its text becomes a lookahead here. White space is spelled out, because the
 * regex library's own class holds U+180E too. Sources: the tokenizer.json files of the models, and the names of
 * llama.cpp's converter.
 *
 * Matching is PCRE2's interpreter, never its JIT, in a pool of the tokenizer: nothing is allocated elsewhere. In a
 * window that is not the text's last, a match whose decision looked at the window's end is reported as partial. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string.h>

#include "engine/tokenizer/parts.h"

#define WHITE                                                                                                \
  "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{"   \
  "3000}"
#define MARKS "\\p{P}$+<=>^~|"

#define CONTRACTIONS          "'(?:[stmd]|re|ve|ll)"
#define CONTRACTIONS_ANY_CASE "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"

#define GPT2                                                                                                 \
  CONTRACTIONS "| ?\\p{L}++| ?\\p{N}++| ?[^" WHITE "\\p{L}\\p{N}]++|[" WHITE "]+(?![^" WHITE "])|[" WHITE    \
               "]++"
/* digits one by one first, then GPT2 on what lies between them */
#define SMOLLM                                                                                               \
  "\\p{N}|" CONTRACTIONS "| ?\\p{L}++| ?[^" WHITE "\\p{L}\\p{N}]++|[" WHITE "]+(?![^" WHITE                  \
  "\\p{N}])|[" WHITE "]++"
/* runs of marks first; then GPT2; then digits apart from their space, in threes */
#define DEFAULT                                                                                              \
  "[" MARKS "]++| ?\\p{L}++|[0-9]{3}|(?:(?![0-9]{3})\\p{N})++| ?[^" WHITE "\\p{L}\\p{N}" MARKS "]++"         \
  "|[" WHITE "]+(?![^" WHITE MARKS "])|[" WHITE "]++"
#define LLAMA3_OF(digits)                                                                                    \
  CONTRACTIONS_ANY_CASE "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}++|" digits "| ?[^" WHITE "\\p{L}\\p{N}]++[\\r\\n]*+"  \
                        "|[" WHITE "]*[\\r\\n]++|[" WHITE "]+(?![^" WHITE "])|[" WHITE "]++"
#define LLAMA3 LLAMA3_OF("\\p{N}{1,3}+")
#define QWEN2  LLAMA3_OF("\\p{N}")

/* ignore_merges and adds_bos as those models' own tokenizers do, whose GGUF files do not say it. */
static const tok_pre_row rows[] = {
    {"default", DEFAULT, false, false},   {"gpt-2", GPT2, false, false},
    {"phi-2", GPT2, false, false},        {"olmo", GPT2, false, false},
    {"mpt", GPT2, false, false},          {"jais", GPT2, false, false},
    {"trillion", GPT2, false, false},     {"gigachat", GPT2, false, false},
    {"smollm", SMOLLM, false, false},     {"starcoder", SMOLLM, false, false},
    {"refact", SMOLLM, false, false},     {"command-r", SMOLLM, false, false},
    {"codeshell", SMOLLM, false, false},  {"exaone", SMOLLM, false, false},
    {"minerva-7b", SMOLLM, false, false}, {"llama-bpe", LLAMA3, true, true},
    {"llama3", LLAMA3, true, true},       {"llama-v3", LLAMA3, true, true},
    {"falcon3", LLAMA3, true, true},      {"pixtral", LLAMA3, true, true},
    {"dbrx", LLAMA3, false, false},       {"smaug-bpe", LLAMA3, false, false},
    {"qwen2", QWEN2, false, false},       {"deepseek-r1-qwen", QWEN2, false, false},
    {"megrez", QWEN2, false, false},      {"stablelm2", QWEN2, false, false},
    {"hunyuan", QWEN2, false, false},
};

const tok_pre_row *tok_pre_find(const gguf_text name) {
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (gguf_text_is(name, rows[i].name)) return &rows[i];
  return NULL;
}

size_t tok_pre_names(char *out, const size_t room) {
  size_t n = 0;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const size_t bytes = strlen(rows[i].name);
    if (n + bytes + 3 > room) break;
    if (i) n += 2, memcpy(out + n - 2, ", ", 2);
    memcpy(out + n, rows[i].name, bytes);
    n += bytes;
  }
  out[n] = 0;
  return n;
}

/* PCRE2's memory: upwards in the pool; the last block taken can be given back, others wait for the end. */
static void *pool_take(const PCRE2_SIZE bytes, void *context) {
  tokenizer *t = context;
  const size_t need = (bytes + 16 + 15) & ~(size_t)15;
  if (bytes > TOK_POOL_BYTES || need > TOK_POOL_BYTES - t->pool_used) return NULL;
  unsigned char *block = (unsigned char *)t->pool + t->pool_used;
  memcpy(block, &need, sizeof need);
  t->pool_used += need;
  return block + 16;
}

static void pool_give(void *pointer, void *context) {
  tokenizer *t = context;
  if (!pointer) return;
  unsigned char *block = (unsigned char *)pointer - 16;
  size_t need;
  memcpy(&need, block, sizeof need);
  if (block + need == (unsigned char *)t->pool + t->pool_used) t->pool_used -= need;
}

stint_status tok_pre_load(tokenizer *t, stint_error *error) {
  int code = 0;
  PCRE2_SIZE at = 0;
  pcre2_general_context *general = pcre2_general_context_create(pool_take, pool_give, t);
  pcre2_compile_context *compile = general ? pcre2_compile_context_create(general) : NULL;
  if (compile)
    t->pattern = pcre2_compile((PCRE2_SPTR)t->pre->pattern, PCRE2_ZERO_TERMINATED,
                               PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &code, &at, compile);
  t->match = t->pattern ? pcre2_match_data_create(1, general) : NULL;
  t->match_context = t->match ? pcre2_match_context_create(general) : NULL;
  if (!t->match_context)
    return stint_fail(error, STINT_INTERNAL,
                      "the pattern of pre-tokenizer %s does not compile: PCRE2 error %d at %zu", t->pre->name,
                      code, (size_t)at);
  /* Backtracking at most gives a run back byte by byte, so steps are bounded by the window. */
  (void)pcre2_set_match_limit(t->match_context, 64 * TOK_WINDOW_BYTES);
  /* The first match takes its frames from the pool; done here, so that encoding takes nothing. */
  size_t end = 0;
  t->window[0] = 'a', t->window[1] = ' ';
  end = tok_pre_word(t, 0, 2, true);
  return end == 1 ? STINT_OK
                  : stint_fail(error, STINT_INTERNAL, "the pattern of pre-tokenizer %s does not match",
                               t->pre->name);
}

size_t tok_pre_word(tokenizer *t, const size_t from, const size_t n, const bool last) {
  const uint32_t options = PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK | (last ? 0 : PCRE2_PARTIAL_HARD);
  const int rc = pcre2_match(t->pattern, (PCRE2_SPTR)t->window, n, from, options, t->match, t->match_context);
  if (rc > 0) {
    const size_t end = pcre2_get_ovector_pointer(t->match)[1];
    if (end > from) return end;
  }
  if (rc == PCRE2_ERROR_PARTIAL) return 0;
  if (rc <= 0 && rc != PCRE2_ERROR_NOMATCH) return 0; /* a limit: told as a stretch that is too long */
  return from + tok_symbol_length((unsigned char)t->window[from]);
}
