/* The published test vectors of four vocabularies, every block, and the small models' tokenizers on real text. */
#include <criterion/criterion.h>

#include "engine/tokenizer/parts.h"
#include "tests/tokenizer/fixture.h"

static const char *shared(void) {
  const char *path = getenv("STINT_SHARED");
  if (!path) cr_skip("STINT_SHARED is unset: no folder of models and texts to read");
  return path;
}

static char *read_file(const char *folder, const char *name, size_t *bytes) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *in = fopen(path, "rb");
  cr_assert(in, "%s cannot be opened", path);
  fseek(in, 0, SEEK_END);
  *bytes = (size_t)ftell(in);
  rewind(in);
  char *text = malloc(*bytes + 1);
  cr_assert_eq(fread(text, 1, *bytes, in), *bytes);
  text[*bytes] = 0;
  fclose(in);
  return text;
}

static void open_model(fixture *f, const char *folder, const char *name) {
  char path[512];
  stint_error error = {0};
  *f = (fixture){0};
  snprintf(path, sizeof path, "%s/models/%s", folder, name);
  bump_init(&f->memory, 0);
  cr_assert_eq(gguf_open(path, &f->memory, &f->file, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(fixture_make(f, &error), STINT_OK, "%s", error.text);
}

static void run_vectors(const char *name, const size_t window_bytes) {
  static const char divider[] = "\n__ggml_vocab_test__\n";
  const char *folder = shared();
  char file[128];
  fixture f;
  snprintf(file, sizeof file, "%s.gguf", name);
  open_model(&f, folder, file);
  f.t->window_bytes = window_bytes;
  size_t n_text, n_want;
  snprintf(file, sizeof file, "models/%s.gguf.inp", name);
  char *const text = read_file(folder, file, &n_text);
  snprintf(file, sizeof file, "models/%s.gguf.out", name);
  char *const all_want = read_file(folder, file, &n_want), *want = all_want;
  int blocks = 0;
  size_t ids = 0;
  for (char *at = text; at < text + n_text; blocks++) {
    char *end = memmem(at, (size_t)(text + n_text - at), divider, strlen(divider));
    const size_t bytes = end ? (size_t)(end - at) : (size_t)(text + n_text - at);
    stint_error error = {0};
    fixture_ids got = {0};
    cr_assert_eq(tokenizer_encode(f.t, at, bytes, false, fixture_sink, &got, &error), STINT_OK, "%s",
                 error.text);
    char *const line_end = strchr(want, '\n');
    *line_end = 0;
    size_t i = 0;
    for (char *number = strtok(want, " "); number; number = strtok(NULL, " "), i++) {
      cr_assert_lt(i, got.n, "%s block %d: only %zu ids", name, blocks, got.n);
      cr_assert_eq(got.id[i], atoi(number), "%s block %d: id %zu is %d, and %s was wanted", name, blocks, i,
                   got.id[i], number);
    }
    cr_assert_eq(i, got.n, "%s block %d: %zu ids, and %zu were wanted", name, blocks, got.n, i);
    ids += i;
    free(got.id);
    want = line_end + 1;
    at = end ? end + strlen(divider) : text + n_text;
  }
  cr_assert_eq(blocks, 46, "%s: %d blocks", name, blocks);
  cr_assert_gt(ids, 300, "%zu", ids);
  cr_assert(fixture_in_bounds(&f));
  free(text), free(all_want);
  fixture_close(&f);
}

Test(vectors, llama_spm) { run_vectors("ggml-vocab-llama-spm", TOK_WINDOW_BYTES); }
Test(vectors, gpt_2) { run_vectors("ggml-vocab-gpt-2", TOK_WINDOW_BYTES); }
Test(vectors, llama_bpe) { run_vectors("ggml-vocab-llama-bpe", TOK_WINDOW_BYTES); }
Test(vectors, qwen2) { run_vectors("ggml-vocab-qwen2", TOK_WINDOW_BYTES); }
Test(vectors, small_window) {
  run_vectors("ggml-vocab-llama-spm", 64);
  run_vectors("ggml-vocab-gpt-2", 64);
  run_vectors("ggml-vocab-llama-bpe", 64);
}

/* Real text gives the same ids through a window of 100 bytes as through the whole one, and decodes to itself. */
static void run_text(const char *model, const char *data, const size_t limit, const size_t skip_first) {
  const char *folder = shared();
  fixture f;
  open_model(&f, folder, model);
  size_t bytes;
  char *text = read_file(folder, data, &bytes);
  if (bytes > limit) bytes = limit;
  fixture_ids whole = {0}, parts = {0};
  stint_error error = {0};
  cr_assert_eq(tokenizer_encode(f.t, text, bytes, false, fixture_sink, &whole, &error), STINT_OK, "%s",
               error.text);
  f.t->window_bytes = 100;
  cr_assert_eq(tokenizer_encode(f.t, text, bytes, false, fixture_sink, &parts, &error), STINT_OK, "%s",
               error.text);
  cr_assert_eq(whole.n, parts.n, "%s: %zu and %zu ids", model, whole.n, parts.n);
  cr_assert_eq(memcmp(whole.id, parts.id, whole.n * sizeof *whole.id), 0, "%s: ids differ", model);
  char *back = malloc(bytes + 64);
  size_t n = 0;
  for (size_t i = 0; i < whole.n && n < bytes + 32; i++)
    n += tokenizer_decode(f.t, whole.id[i], back + n, bytes + 64 - n);
  cr_assert_eq(n, bytes + skip_first, "%s: %zu bytes decoded of %zu", model, n, bytes);
  cr_assert_eq(memcmp(back + skip_first, text, bytes), 0, "%s: decoded text differs", model);
  free(back), free(text), free(whole.id), free(parts.id);
  fixture_close(&f);
}

Test(vectors, text_stories) { run_text("stories260K.gguf", "data/tinyshakespeare.txt", 300000, 1); }
Test(vectors, text_llama_spm) { run_text("ggml-vocab-llama-spm.gguf", "data/gsm8k_test.jsonl", 300000, 1); }
Test(vectors, text_llama_bpe) { run_text("ggml-vocab-llama-bpe.gguf", "data/gsm8k_test.jsonl", 300000, 0); }
Test(vectors, text_qwen2) { run_text("ggml-vocab-qwen2.gguf", "data/mlx_wikisql_train.jsonl", 200000, 0); }

/* The counts on which the evaluation of the small models stands: 37,833 tokens, so 147 whole windows of 256. */
Test(vectors, stories_counts) {
  const char *folder = shared();
  fixture f;
  open_model(&f, folder, "stories260K.gguf");
  size_t bytes;
  char *text = read_file(folder, "data/tinyshakespeare.txt", &bytes);
  fixture_ids plain = {0}, special = {0};
  stint_error error = {0};
  cr_assert_eq(tokenizer_encode(f.t, text + bytes - 60000, 60000, false, fixture_sink, &plain, &error),
               STINT_OK);
  cr_assert_eq(tokenizer_encode(f.t, text + bytes - 60000, 60000, true, fixture_sink, &special, &error),
               STINT_OK);
  cr_assert_eq(plain.n, 37833, "%zu", plain.n);
  cr_assert_eq(special.n, 37834, "%zu", special.n);
  cr_assert_eq(special.id[0], 1);
  free(text), free(plain.id), free(special.id);
  fixture_close(&f);
}
