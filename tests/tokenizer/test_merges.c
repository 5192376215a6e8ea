/* Merging against an oracle that is written as the definition reads: look at every pair of neighbours, merge the best,
 * the leftmost of equals; look again. Random vocabularies and texts; windows large and small. */
#include <criterion/criterion.h>

#include "engine/tokenizer/parts.h"
#include "tests/tokenizer/fixture.h"

static uint64_t state = 88172645463325252u;
static unsigned draw(const unsigned n) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (unsigned)(state >> 11) % n;
}

enum { TEXT_MAX = 600 };
typedef struct piece {
  char text[TEXT_MAX * 3 + 8];
} piece;
static piece pieces[TEXT_MAX + 8];

static int32_t find(const fixture_vocab *v, const char *text) {
  for (size_t i = v->n; i-- > 0;)
    if (v->type[i] != 2 && v->type[i] != 3 && v->type[i] != 6 && strcmp(v->text[i], text) == 0)
      return (int32_t)i;
  return -1;
}

static int find_merge(const char *const *merges, const size_t n, const char *left, const char *right) {
  char text[2 * sizeof(piece)];
  snprintf(text, sizeof text, "%s %s", left, right);
  for (size_t i = 0; i < n; i++)
    if (strcmp(merges[i], text) == 0) return (int)i;
  return -1;
}

static void merge_pieces(const fixture_vocab *v, const char *const *merges, const size_t n_merges,
                         size_t *n) {
  for (;;) {
    int best = -1, best_rank = 0;
    float best_score = 0;
    for (size_t i = 0; i + 1 < *n; i++) {
      if (merges) {
        const int rank = find_merge(merges, n_merges, pieces[i].text, pieces[i + 1].text);
        if (rank >= 0 && (best < 0 || rank < best_rank)) best = (int)i, best_rank = rank;
        continue;
      }
      char joined[2 * sizeof(piece)];
      snprintf(joined, sizeof joined, "%s%s", pieces[i].text, pieces[i + 1].text);
      const int32_t id = find(v, joined);
      if (id >= 0 && (best < 0 || v->score[id] > best_score)) best = (int)i, best_score = v->score[id];
    }
    if (best < 0) return;
    const size_t n_left = strlen(pieces[best].text), n_right = strlen(pieces[best + 1].text);
    memmove(pieces[best].text + n_left, pieces[best + 1].text, n_right + 1);
    memmove(&pieces[best + 1], &pieces[best + 2], (*n - (size_t)best - 2) * sizeof(piece));
    --*n;
  }
}

static const char *const letters[] = {"a", "b", "c", "\xC3\xA9", "\xE6\xBC\xA2", "\xE2\x96\x81"};

/* Tokens of 1 to 5 letters with few distinct scores, so that ties are common; some hold a space mark inside. */
static void random_spm(fixture_vocab *v, const bool marks_inside) {
  fixture_spm_base(v);
  for (unsigned i = 0; i < 60 + draw(100); i++) {
    char text[32] = "";
    const unsigned length = 1 + draw(5);
    for (unsigned k = 0; k < length; k++) strcat(text, letters[draw(k == 0 || marks_inside ? 6 : 5)]);
    if (find(v, text) < 0) fixture_add(v, text, 1, -(float)draw(12) / 2 + 2);
  }
}

static void random_text(char *out, const unsigned n) {
  out[0] = 0;
  for (unsigned i = 0; i < n; i++) {
    const unsigned k = draw(8);
    strcat(out, k == 5 || k == 6 ? " " : k == 7 ? "z" : letters[k]);
  }
}

static size_t spm_oracle(const fixture_vocab *v, const char *text, int32_t *ids) {
  size_t n = 1, n_ids = 0;
  strcpy(pieces[0].text, "\xE2\x96\x81");
  for (const char *at = text; *at;) {
    const unsigned char c = (unsigned char)*at;
    const size_t length = c < 0x80 ? 1 : c < 0xE0 ? 2 : 3;
    snprintf(pieces[n++].text, 8, "%.*s", c == ' ' ? 3 : (int)length, c == ' ' ? "\xE2\x96\x81" : at);
    at += length;
  }
  merge_pieces(v, NULL, 0, &n);
  for (size_t i = 0; i < n; i++) {
    const int32_t id = find(v, pieces[i].text);
    if (id >= 0) {
      ids[n_ids++] = id;
      continue;
    }
    for (const char *byte = pieces[i].text; *byte; byte++) ids[n_ids++] = 3 + (unsigned char)*byte;
  }
  return n_ids;
}

static void compare(fixture *f, const char *text, const int32_t *want, const size_t n,
                    const size_t window_bytes, int *n_compared, int *n_refused) {
  fixture_ids got = {0};
  stint_error error = {0};
  f->t->window_bytes = window_bytes;
  const stint_status status = tokenizer_encode(f->t, text, strlen(text), false, fixture_sink, &got, &error);
  if (status != STINT_OK) {
    cr_assert_eq(status, STINT_BAD_INPUT, "%s", error.text);
    cr_assert_lt(window_bytes, 3 * strlen(text) + 3, "refused text that fits the window: %s", error.text);
    ++*n_refused;
  } else {
    cr_assert_eq(got.n, n, "'%s': %zu ids, and %zu were wanted (window %zu)", text, got.n, n, window_bytes);
    for (size_t i = 0; i < n; i++)
      cr_assert_eq(got.id[i], want[i], "'%s': id %zu is %d, and %d was wanted (window %zu)", text, i,
                   got.id[i], want[i], window_bytes);
    ++*n_compared;
  }
  free(got.id);
}

static void run_spm(const bool marks_inside) {
  static fixture_vocab v;
  static int32_t want[4 * TEXT_MAX];
  static char text[4 * TEXT_MAX];
  int n_compared = 0, n_refused = 0;
  for (int round = 0; round < 25; round++) {
    fixture f;
    stint_error error = {0};
    random_spm(&v, marks_inside);
    fixture_spm(&f, &v);
    cr_assert_eq(fixture_open(&f, &error), STINT_OK, "%s", error.text);
    for (int k = 0; k < 12; k++) {
      random_text(text, 1 + draw(k < 9 ? 60 : 400));
      const size_t n = spm_oracle(&v, text, want);
      compare(&f, text, want, n, TOK_WINDOW_BYTES, &n_compared, &n_refused);
      compare(&f, text, want, n, 48, &n_compared, &n_refused);
    }
    cr_assert(fixture_in_bounds(&f));
    fixture_close(&f);
  }
  cr_assert_gt(n_compared, 400, "%d compared, %d refused", n_compared, n_refused);
}

Test(merges, spm) { run_spm(false); }
Test(merges, spm_marks_inside_tokens) { run_spm(true); }

/* Merges that each make a token of two that are there. */
static size_t random_bpe(fixture_vocab *v, char (*merge)[64], const char **merges) {
  fixture_bpe_base(v);
  static const unsigned char seeds[] = {'a', 'b', 'c', ' ', 0xC3, 0xA9};
  int32_t known[80];
  size_t n_known = 0, n = 0;
  for (size_t i = 0; i < sizeof seeds; i++) known[n_known++] = seeds[i];
  while (n < 50) {
    const char *left = v->text[known[draw((unsigned)n_known)]],
               *right = v->text[known[draw((unsigned)n_known)]];
    if (strlen(left) + strlen(right) > 24) continue;
    snprintf(merge[n], sizeof merge[0], "%s %s", left, right);
    if (find_merge(merges, n, left, right) >= 0) continue;
    char joined[64];
    snprintf(joined, sizeof joined, "%s%s", left, right);
    merges[n] = merge[n];
    n++;
    if (find(v, joined) < 0) known[n_known++] = fixture_add(v, joined, 1, 0);
  }
  return n;
}

Test(merges, bpe) {
  static fixture_vocab v;
  static char merge[64][64];
  static const char *merges[64];
  static int32_t want[4 * TEXT_MAX];
  static char text[4 * TEXT_MAX];
  int n_compared = 0, n_refused = 0;
  for (int round = 0; round < 25; round++) {
    const size_t n_merges = random_bpe(&v, merge, merges);
    fixture f;
    stint_error error = {0};
    fixture_bpe(&f, &v, "gpt-2", merges, n_merges);
    cr_assert_eq(fixture_open(&f, &error), STINT_OK, "%s", error.text);
    for (int k = 0; k < 12; k++) {
      /* words of letters, each after one space: how gpt-2's rule cuts them needs no oracle */
      size_t n_ids = 0;
      text[0] = 0;
      const unsigned n_words = 1 + draw(12);
      for (unsigned w = 0; w < n_words; w++) {
        static const char *const bytes[] = {"\xC4\xA0", "\xC3\x83",
                                            "\xC2\xA9"}; /* of a space, 0xC3 and 0xA9 */
        size_t n = 1;
        strcat(text, " ");
        strcpy(pieces[0].text, bytes[0]);
        const unsigned length = 1 + draw(k % 3 ? 12 : 60);
        for (unsigned i = 0; i < length; i++) {
          const unsigned letter = draw(4);
          strcat(text, letters[letter]);
          if (letter < 3) {
            strcpy(pieces[n++].text, letters[letter]);
          } else {
            strcpy(pieces[n++].text, bytes[1]);
            strcpy(pieces[n++].text, bytes[2]);
          }
        }
        merge_pieces(&v, merges, n_merges, &n);
        for (size_t i = 0; i < n; i++) want[n_ids++] = find(&v, pieces[i].text);
      }
      compare(&f, text, want, n_ids, TOK_WINDOW_BYTES, &n_compared, &n_refused);
      compare(&f, text, want, n_ids, 48, &n_compared, &n_refused);
    }
    cr_assert(fixture_in_bounds(&f));
    fixture_close(&f);
  }
  cr_assert_gt(n_compared, 450, "%d compared, %d refused", n_compared, n_refused);
}

/* Of equal merges the first counts. */
Test(merges, bpe_first_of_equals) {
  static fixture_vocab v;
  static const char *const merges[] = {"a b", "b c", "a b"};
  fixture f;
  stint_error error = {0};
  fixture_bpe_base(&v);
  const int32_t ab = fixture_add(&v, "ab", 1, 0);
  fixture_add(&v, "bc", 1, 0);
  fixture_bpe(&f, &v, "gpt-2", merges, 3);
  cr_assert_eq(fixture_open(&f, &error), STINT_OK, "%s", error.text);
  int n_compared = 0, n_refused = 0;
  compare(&f, "abc", (const int32_t[]){ab, 'c'}, 2, TOK_WINDOW_BYTES, &n_compared, &n_refused);
  cr_assert_eq(n_compared, 1);
  fixture_close(&f);
}

/* A stretch without a cut is refused only past the window, names the place, and costs n log n on the way there. */
Test(merges, long_stretch) {
  static fixture_vocab v;
  fixture f;
  stint_error error = {0};
  fixture_spm_base(&v);
  const int32_t one = fixture_add(&v, "a", 1, -3), two = fixture_add(&v, "aa", 1, -1),
                four = fixture_add(&v, "aaaa", 1, -2);
  (void)one, (void)two;
  fixture_spm(&f, &v);
  fixture_bool(&f, "tokenizer.ggml.add_space_prefix", false);
  cr_assert_eq(fixture_open(&f, &error), STINT_OK, "%s", error.text);
  static char text[2 * TOK_WINDOW_BYTES];
  memset(text, 'a', sizeof text);
  fixture_ids got = {0};
  cr_assert_eq(tokenizer_encode(f.t, text, TOK_WINDOW_BYTES - 4, false, fixture_sink, &got, &error), STINT_OK,
               "%s", error.text);
  cr_assert_eq(got.n, TOK_WINDOW_BYTES / 4 - 1);
  for (size_t i = 0; i < got.n; i++) cr_assert_eq(got.id[i], four);
  cr_assert_eq(tokenizer_encode(f.t, text, sizeof text, false, fixture_sink, &got, &error), STINT_BAD_INPUT);
  cr_assert(strstr(error.text, "no place to cut"), "%s", error.text);
  /* a symbol that no token holds cuts it again */
  for (size_t i = 1000; i < sizeof text; i += 1000) text[i] = 'z';
  cr_assert_eq(tokenizer_encode(f.t, text, sizeof text, false, fixture_sink, &got, &error), STINT_OK, "%s",
               error.text);
  free(got.id);
  fixture_close(&f);
}
