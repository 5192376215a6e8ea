/* Files of text to a token file: documents, errors, failing writes. A byte-level tokenizer makes every id plain to see. */
#include <criterion/criterion.h>

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "engine/data/data.h"
#include "engine/data/digest.h"
#include "tests/tokenizer/fixture.h"

static fixture tok;
static char folder[64], token_path[96];
static void *scratch;

static void begin(const bool bos) {
  static fixture_vocab v;
  static const char *const merges[] = {"a b"};
  stint_error error = {0};
  fixture_bpe_base(&v);
  const int32_t id = fixture_add(&v, "<s>", 3, 0);
  fixture_add(&v, "ab", 1, 0);
  fixture_bpe(&tok, &v, "gpt-2", merges, 1);
  fixture_u32(&tok, "tokenizer.ggml.bos_token_id", (uint32_t)id);
  fixture_bool(&tok, "tokenizer.ggml.add_bos_token", bos);
  cr_assert_eq(fixture_open(&tok, &error), STINT_OK, "%s", error.text);
  snprintf(folder, sizeof folder, "prepare-%d", (int)getpid());
  (void)mkdir(folder, 0777);
  snprintf(token_path, sizeof token_path, "%s/out.tokens", folder);
  scratch = malloc(data_prepare_bytes());
}

static int count_files(void) {
  int n = 0;
  DIR *dir = opendir(folder);
  for (struct dirent *e; (e = readdir(dir));) n += e->d_name[0] != '.';
  closedir(dir);
  return n;
}

static void end(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", folder);
  cr_assert_eq(system(command), 0);
  free(scratch);
  fixture_close(&tok);
}

static const char *put_file(const char *name, const char *text, const size_t bytes) {
  static char paths[8][128];
  static int k;
  char *path = paths[k++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  FILE *out = fopen(path, "wb");
  fwrite(text, 1, bytes, out);
  fclose(out);
  return path;
}
#define PUT(name, text) put_file(name, text, sizeof(text) - 1)

static stint_status prepare(const char *const *paths, const size_t n, data_prepared *out,
                            stint_error *error) {
  return data_prepare(tok.t, paths, n, token_path, scratch, data_prepare_bytes(), out, error);
}

static void expect_documents(const char *const *documents, const size_t n, const bool bos) {
  data_set set;
  stint_error error = {0};
  cr_assert_eq(data_open(token_path, 16, &set, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(set.n_documents, n);
  cr_assert_eq(set.tokenizer_digest, tokenizer_digest(tok.t));
  for (size_t d = 0; d < n; d++) {
    uint64_t at = set.document_start[d];
    if (bos) cr_assert_eq(set.tokens[at++], 256);
    const size_t length = strlen(documents[d]);
    cr_assert_eq(set.document_start[d + 1] - at, length, "document %zu", d);
    for (size_t i = 0; i < length; i++) cr_assert_eq(set.tokens[at + i], (unsigned char)documents[d][i]);
  }
  data_close(&set);
}

Test(prepare, documents) {
  for (int bos = 0; bos < 2; bos++) {
    begin(bos);
    const char *const paths[] = {
        PUT("a.txt", "First file.\n"),
        PUT("b.jsonl", "\xEF\xBB\xBF{\"text\": \"one \\u00e9\"}\r\n\n  \n{\"id\": 3, \"text\": "
                       "\"t\"}\n{\"text\":\"\"}\n{\"text\":\"end\"}"),
        PUT("c.md", "x"),
    };
    data_prepared out;
    stint_error error = {0};
    cr_assert_eq(prepare(paths, 3, &out, &error), STINT_OK, "%s", error.text);
    const char *const with[] = {"First file.\n", "one \xC3\xA9", "t", "", "end", "x"};
    const char *const without[] = {"First file.\n", "one \xC3\xA9", "t", "end",
                                   "x"}; /* nothing is not a document */
    expect_documents(bos ? with : without, bos ? 6 : 5, bos);
    cr_assert_eq(out.n_documents, bos ? 6 : 5);
    cr_assert_eq(out.n_text_bytes, 12 + 6 + 1 + 3 + 1);
    cr_assert_eq(out.n_tokens, out.n_text_bytes + (bos ? 6 : 0));
    digest d;
    digest_start(&d);
    for (int i = 0; i < 6; i++) {
      const uint64_t length = strlen(with[i]);
      digest_add(&d, &length, 8);
      digest_add(&d, with[i], length);
    }
    cr_assert_eq(out.text_digest, digest_end(&d));
    cr_assert_eq(count_files(), 4, "something was left beside the token file");
    end();
  }
}

static const struct {
  const char *name, *text;
  const char *says[3];
} failures[] = {
    {"empty.txt", "", {"empty.txt", "empty"}},
    {"empty.jsonl", "", {"empty.jsonl", "empty"}},
    {"blank.jsonl", "\n \n", {"blank.jsonl", "no lines"}},
    {"short.txt", "x", {"1 tokens", "2 that are needed"}},
    {"short.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n", {"2 tokens in 2 documents"}},
    {"broken.jsonl", "{\"text\":\"abc\"}\n{\"text\": \n", {"broken.jsonl:2"}},
    {"other.jsonl", "{\"text\":\"abc\"}\n\n{\"txt\":\"abc\"}\n", {"other.jsonl:3", "text"}},
    {"number.jsonl", "{\"text\":7}\n", {"number.jsonl:1", "text"}},
    {"array.json", "[{\"text\":\"abc\"}]", {"array.json:1"}},
    {"utf8.jsonl", "{\"text\":\"a\xFF\"}\n", {"utf8.jsonl:1", "UTF-8"}},
    {"long.txt", NULL, {"long.txt", "no place to cut"}},
    {"long.jsonl", NULL, {"long.jsonl:1", "no place to cut"}},
};

Test(prepare, failures) {
  begin(false);
  static char run[40001], line[40100];
  memset(run, 'q', 40000);
  snprintf(line, sizeof line, "{\"text\":\"%s\"}", run);
  for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
    const char *text = failures[i].text ? failures[i].text : strstr(failures[i].name, "json") ? line : run;
    const char *path = put_file(failures[i].name, text, strlen(text));
    data_prepared out;
    stint_error error = {0};
    const int before = count_files();
    cr_assert_eq(prepare(&path, 1, &out, &error), STINT_BAD_INPUT, "%s: '%s'", failures[i].name, error.text);
    for (int k = 0; k < 3 && failures[i].says[k]; k++)
      cr_assert(strstr(error.text, failures[i].says[k]), "%s: '%s' does not say '%s'", failures[i].name,
                error.text, failures[i].says[k]);
    cr_assert_eq(count_files(), before, "%s: something was left", failures[i].name);
    cr_assert_eq(out.n_tokens, 0);
  }
  const char *const missing[] = {"no-such-file.txt"}, *const directory[] = {folder};
  data_prepared out;
  stint_error error = {0};
  cr_assert_neq(prepare(missing, 1, &out, &error), STINT_OK);
  cr_assert(strstr(error.text, missing[0]), "%s", error.text);
  cr_assert_eq(prepare(directory, 1, &out, &error), STINT_BAD_INPUT, "%s", error.text);
  cr_assert(strstr(error.text, folder), "%s", error.text);
  const char *const good[] = {PUT("good.txt", "good text")};
  cr_assert_eq(data_prepare(tok.t, good, 1, token_path, scratch, data_prepare_bytes() - 1, &out, &error),
               STINT_NO_MEMORY);
  cr_assert_eq(data_prepare(tok.t, good, 1, "no/such/folder/x", scratch, data_prepare_bytes(), &out, &error),
               STINT_IO);
  cr_assert(strstr(error.text, "no/such/folder/x"), "%s", error.text);
  end();
}

/* Writes fail at every size up to the file's: each time an IO error, what stood at the path stands, nothing is left. */
Test(prepare, full_disk) {
  begin(true);
  static char lines[200000];
  size_t n = 0;
  while (n + 40 < sizeof lines) n += (size_t)sprintf(lines + n, "{\"text\":\"line %zu\"}\n", n);
  const char *const paths[] = {put_file("many.jsonl", lines, n)};
  const char *const small[] = {PUT("old.txt", "old text")};
  data_prepared out;
  stint_error error = {0};
  cr_assert_eq(prepare(small, 1, &out, &error), STINT_OK, "%s", error.text);
  (void)signal(SIGXFSZ, SIG_IGN);
  struct rlimit before;
  cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
  int n_failed = 0, n_passed = 0;
  for (rlim_t limit = 0; limit < 1000000; limit = limit * 2 + 100) {
    const struct rlimit now = {limit, before.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &now), 0);
    const stint_status status = prepare(paths, 1, &out, &error);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    if (status == STINT_OK) {
      n_passed++;
      break;
    }
    n_failed++;
    cr_assert_eq(status, STINT_IO, "limit %lu: %s", (unsigned long)limit, error.text);
    cr_assert(strstr(error.text, token_path), "%s", error.text);
    const char *const documents[] = {"old text"};
    expect_documents(documents, 1, true);
    cr_assert_eq(count_files(), 3, "limit %lu: something was left", (unsigned long)limit);
  }
  cr_assert_gt(n_failed, 8);
  cr_assert_eq(n_passed, 1);
  end();
}
