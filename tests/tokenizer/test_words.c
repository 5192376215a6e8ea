/* The words into which each pre-tokenizer cuts, against lists made by hand from the published rules (several patterns in
 * turn where those are several; the rows as a whole were compared with llama.cpp, 3,000 texts each), in a whole window and byte by byte as a window's end moves over the text. And what stands around
 * words: users' tokens, control tokens, invalid UTF-8. */
#include <criterion/criterion.h>

#include "engine/tokenizer/parts.h"
#include "tests/tokenizer/fixture.h"

static void open_bpe(fixture *f, fixture_vocab *v, const char *pre) {
  static const char *const merges[] = {"a b"};
  stint_error error = {0};
  if (v->n == 0) fixture_bpe_base(v);
  fixture_add(v, "ab", 1, 0);
  fixture_bpe(f, v, pre, merges, 1);
  fixture_bool(f, "tokenizer.ggml.add_bos_token", false);
  cr_assert_eq(fixture_open(f, &error), STINT_OK, "%s", error.text);
}

/* Words are written with | between them. */
static const struct {
  const char *pre, *words;
} cases[] = {
    {"gpt-2", "Hello| world|!"},
    {"gpt-2", "I|'ve| been| '|told|'|RE"},
    {"gpt-2", "a|  | b|\n\n|\n|c|   "},
    {"gpt-2", "x|12345|,| 67|  | 8"},
    {"gpt-2", "n\xC3\xA9"
              "e|\xF0\x9F\xA6\x99|\xE6\xBC\xA2\xE5\xAD\x97|\xC2\xB2\xE2\x85\xA7"},
    {"gpt-2", "a|\xC2\xA0|b|\xE1\xA0\x8E|c"}, /* a no-break space is white, U+180E is not */
    {"smollm", "x|1|2|3|,| |6|7|  |8| y"},
    {"smollm", "it|'s| \t|9|\n\n|\n|z"},
    {"default", "x|123|45|,| |67| | |8| y|."},
    {"default", "it|'|s|  |$+|a| `|b|  |(|c|)|\xC2\xB2\xC2\xB2|134|5"},
    {"llama-bpe", "I|'VE| been| '|told|'d| you"},
    {"llama-bpe", "x|123|45|,| |67|  | y|(z|).\n\n| \n\n|  | w"},
    {"llama-bpe", "a|\r\n|b|!\r\n|c|\t|9|\td"},
    {"qwen2", "x|1|2|3|,| |6|'Ll|\n  \n|  | a"},
};

Test(words, lists) {
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
    static fixture_vocab v;
    fixture f;
    v.n = 0;
    open_bpe(&f, &v, cases[c].pre);
    char text[256];
    size_t n = 0, ends[64], n_words = 0;
    for (const char *at = cases[c].words; *at; at++) {
      if (*at == '|')
        ends[n_words++] = n;
      else
        text[n++] = *at;
    }
    ends[n_words++] = n;
    size_t from = 0;
    for (size_t w = 0; w < n_words; w++) {
      memcpy(f.t->window, text, n);
      const size_t end = tok_pre_word(f.t, from, n, true);
      cr_assert_eq(end, ends[w], "%s '%s': word %zu ends at %zu, and %zu was wanted", cases[c].pre,
                   cases[c].words, w, end, ends[w]);
      /* a shorter window says the same, or that it cannot tell */
      for (size_t window = from + 1; window < n; window++) {
        if (((unsigned char)text[window] & 0xC0) == 0x80) continue; /* windows end between characters */
        memcpy(f.t->window, text, window);
        const size_t early = tok_pre_word(f.t, from, window, false);
        cr_assert(early == 0 || early == end, "%s '%s': with %zu bytes in sight word %zu ends at %zu",
                  cases[c].pre, cases[c].words, window, w, early);
      }
      from = end;
    }
    cr_assert(fixture_in_bounds(&f));
    fixture_close(&f);
  }
}

static void expect(fixture *f, const char *text, const size_t bytes, const bool special, const int32_t *want,
                   const size_t n) {
  fixture_ids got = {0};
  stint_error error = {0};
  cr_assert_eq(tokenizer_encode(f->t, text, bytes, special, fixture_sink, &got, &error), STINT_OK, "%s",
               error.text);
  cr_assert_eq(got.n, n, "'%s': %zu ids, and %zu were wanted", text, got.n, n);
  for (size_t i = 0; i < n; i++) cr_assert_eq(got.id[i], want[i], "'%s': id %zu is %d", text, i, got.id[i]);
  free(got.id);
}
#define EXPECT(f, text, special, ...)                                                                        \
  expect(f, text, sizeof(text) - 1, special, (const int32_t[]){__VA_ARGS__},                                 \
         sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* Users' tokens: the longest wins over the whole document, then the leftmost; they break words; controls do not exist. */
Test(words, user_tokens) {
  static fixture_vocab v;
  fixture f;
  fixture_bpe_base(&v);
  const int32_t xy = fixture_add(&v, "xy", 4, 0), yzw = fixture_add(&v, "yzw", 4, 0),
                line2 = fixture_add(&v, "\n\n", 4, 0), line3 = fixture_add(&v, "\n\n\n", 4, 0);
  fixture_add(&v, "<s>", 3, 0);
  open_bpe(&f, &v, "gpt-2");
  EXPECT(&f, "xy", false, xy);
  EXPECT(&f, "xyzw", false, 'x', yzw); /* the longer one, though it starts later */
  EXPECT(&f, "xyxyzxy", false, xy, xy, 'z', xy);
  EXPECT(&f, "\n\n\n\n\n\n\n\n", false, line3, line3, line2);
  EXPECT(&f, "\n\n\n\n", false, line3, '\n');
  EXPECT(&f, "<s>", false, '<', 's', '>');
  EXPECT(&f, "axyb", false, 'a', xy, 'b');
  /* a run of them longer than the window is refused, not guessed */
  char text[100];
  memset(text, '\n', sizeof text);
  f.t->window_bytes = 64;
  stint_error error = {0};
  fixture_ids got = {0};
  cr_assert_eq(tokenizer_encode(f.t, text, 100, false, fixture_sink, &got, &error), STINT_BAD_INPUT);
  free(got.id);
  cr_assert(fixture_in_bounds(&f));
  fixture_close(&f);
}

/* Text never becomes a control token, neither through merges nor as a word that is one. */
Test(words, control_tokens) {
  static fixture_vocab v, s;
  fixture f;
  stint_error error = {0};
  fixture_bpe_base(&v);
  fixture_add(&v, "xyz", 3, 0);
  const int32_t word = fixture_add(&v, "xyzw", 1, 0);
  open_bpe(&f, &v, "llama-bpe");
  EXPECT(&f, "xyz", false, 'x', 'y', 'z');
  EXPECT(&f, "xyzw", false, word); /* a word that is a token needs no merge */
  fixture_close(&f);
  fixture_spm_base(&s);
  const int32_t open = fixture_add(&s, "<s", 1, -1), close = fixture_add(&s, ">", 1, -1);
  fixture_spm(&f, &s);
  fixture_bool(&f, "tokenizer.ggml.add_space_prefix", false);
  cr_assert_eq(fixture_open(&f, &error), STINT_OK, "%s", error.text);
  EXPECT(&f, "<s>", false, open, close);
  EXPECT(&f, "<unk>", false, 3 + '<', 3 + 'u', 3 + 'n', 3 + 'k', close);
  fixture_close(&f);
}

/* Bytes that start no character become U+FFFD each in BPE, and themselves in SPM. No input crashes. */
Test(words, invalid_utf8) {
  static fixture_vocab v;
  fixture f;
  fixture_bpe_base(&v);
  open_bpe(&f, &v, "gpt-2");
  EXPECT(&f, "a\xFF", false, 'a', 0xEF, 0xBF, 0xBD);
  EXPECT(&f, "\xE2\x82", false, 0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD);
  EXPECT(&f, "\xE2\x82\xAC", false, 0xE2, 0x82, 0xAC);
  EXPECT(&f, "\xED\xA0\x80", false, 0xEF, 0xBF, 0xBD);     /* a surrogate */
  EXPECT(&f, "\xF7\xBF\xBF\xBF", false, 0xEF, 0xBF, 0xBD); /* past U+10FFFF */
  EXPECT(&f, "a\0b", false, 'a', 0, 'b');
  fixture_close(&f);

  static fixture_vocab s;
  fixture_spm_base(&s);
  const int32_t mark = fixture_add(&s, "\xE2\x96\x81", 1, -1), a = fixture_add(&s, "a", 1, -1);
  fixture_spm(&f, &s);
  stint_error error = {0};
  cr_assert_eq(fixture_open(&f, &error), STINT_OK, "%s", error.text);
  EXPECT(&f, "a\xFF", false, mark, a, 3 + 0xFF);
  EXPECT(&f, "\xE2 a", false, mark, 3 + 0xE2, 3 + 0xE2, 3 + 0x96, 3 + 0x81,
         a); /* three bytes by its first, as others read */
  uint64_t state = 1;
  for (int i = 0; i < 3000; i++) {
    char text[80];
    for (size_t k = 0; k < sizeof text; k++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text[k] = state >> 60 < 6 ? "a \xE2\x96\x81\xF0"[state >> 60] : (char)(state >> 40);
    }
    fixture_ids got = {0};
    f.t->window_bytes = 24;
    const stint_status status = tokenizer_encode(f.t, text, sizeof text, true, fixture_sink, &got, &error);
    cr_assert(status == STINT_OK || status == STINT_BAD_INPUT);
    free(got.id);
  }
  cr_assert(fixture_in_bounds(&f));
  fixture_close(&f);
}

/* Where BOS, EOS and the leading space come from. */
Test(words, specials) {
  static fixture_vocab s;
  fixture f;
  stint_error error = {0};
  fixture_spm_base(&s);
  const int32_t mark = fixture_add(&s, "\xE2\x96\x81", 1, -1), a = fixture_add(&s, "a", 1, -1);
  fixture_spm(&f, &s);
  cr_assert_eq(fixture_open(&f, &error), STINT_OK, "%s", error.text);
  EXPECT(&f, "a", true, 1, mark, a);
  EXPECT(&f, "", true, 1);
  cr_assert_eq(tokenizer_bos(f.t), 1);
  cr_assert_eq(tokenizer_eos(f.t), 2);
  char out[8];
  cr_assert_eq(tokenizer_decode(f.t, mark, out, 8), 1);
  cr_assert_eq(out[0], ' ');
  cr_assert_eq(tokenizer_decode(f.t, 3 + 0xE2, out, 8), 1);
  cr_assert_eq((unsigned char)out[0], 0xE2);
  cr_assert_eq(tokenizer_decode(f.t, 1, out, 8), 0);
  cr_assert_eq(tokenizer_decode(f.t, -1, out, 8), 0);
  cr_assert_eq(tokenizer_decode(f.t, (int32_t)s.n, out, 8), 0);
  fixture_close(&f);
  fixture_spm(&f, &s);
  fixture_bool(&f, "tokenizer.ggml.add_space_prefix", false);
  fixture_bool(&f, "tokenizer.ggml.add_bos_token", false);
  fixture_bool(&f, "tokenizer.ggml.add_eos_token", true);
  cr_assert_eq(fixture_open(&f, &error), STINT_OK, "%s", error.text);
  EXPECT(&f, "a", true, a, 2);
  EXPECT(&f, "a", false, a);
  fixture_close(&f);
}
