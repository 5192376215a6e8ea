/* What a person may type wrong, and what a machine may refuse: each ends with its exit code and one line that says what
 * is wrong. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/tools/person.h"

TestSuite(command_lines, .init = person_start, .fini = person_end);

/* The member of the JSON object that a command printed, as a number. */
static double member(const char *text, const char *key) {
  json_error_t error;
  json_t *const object = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  cr_assert_not_null(object, "JSON: %s at %d in %s", error.text, error.position, text);
  const json_t *const value = json_object_get(object, key);
  cr_assert(json_is_number(value), "%s is a number in %s", key, text);
  const double number = json_number_value(value);
  json_decref(object);
  return number;
}

Test(command_lines, help_and_version) {
  static const char *const lines[] = {"stint --help",     "stint train --help", "stint eval --help",
                                      "stint new --help", "stint sample -h",    "memplan --help",
                                      "stint --version",  "memplan --version"};
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
    const outcome *const seen = person_run("%s", lines[i]);
    cr_expect_eq(seen->code, 0, "%s", lines[i]);
    cr_expect(strlen(seen->out) > 5 && seen->err[0] == '\0', "%s", lines[i]);
  }
}

Test(command_lines, wrong_options) {
  static const struct {
    const char *line, *prefix, *text;
  } rows[] = {
      {"stint", "stint", "which command"},
      {"stint tran", "stint", "did you mean train?"},
      {"stint frobnicate", "stint", "unknown command \"frobnicate\""},
      {"memplan", "memplan", "which model"},
      {"memplan model.gguf --bath 3", "memplan", "unknown option --bath; did you mean --batch?"},
      {"memplan model.gguf --thraeds=3", "memplan", "did you mean --threads?"},
      {"memplan model.gguf --device cuda --device-memory 8GiB --threads 2", "memplan", "are of --device cpu"},
      {"memplan model.gguf --device-memory 8GiB", "memplan", "are of --device cuda"},
      {"memplan model.gguf --zzz", "memplan", "`memplan --help`"},
      {"memplan model.gguf --lr 1", "memplan", "--lr is an option of `stint train`"},
      {"memplan model.gguf --ctx", "memplan", "--ctx needs a value"},
      {"memplan model.gguf --ctx 0", "memplan", "from 1 to"},
      {"memplan model.gguf --ctx -5", "memplan", "from 1 to"},
      {"memplan model.gguf --ctx 12x", "memplan", "not \"12x\""},
      {"memplan model.gguf --ctx ''", "memplan", "whole number"},
      {"memplan model.gguf --ctx 99999999999999999999", "memplan", "whole number"},
      {"memplan model.gguf --ctx 8 --ctx 9", "memplan", "given twice"},
      {"memplan model.gguf --alpha nan", "memplan", "--alpha takes a number"},
      {"memplan model.gguf --alpha 0", "memplan", "above 0"},
      {"memplan model.gguf --dropout 1", "memplan", "0.99"},
      {"memplan model.gguf --budget 3Gob", "memplan", "6GiB"},
      {"memplan model.gguf --budget -1", "memplan", "6GiB"},
      {"memplan model.gguf --budget 99999999999TiB", "memplan", "6GiB"},
      {"memplan model.gguf --cpu-mask sse", "memplan", "none, avx2, avx512, all"},
      {"memplan model.gguf --optimizer adam", "memplan", "adamw|sgd"},
      {"memplan model.gguf --json=yes", "memplan", "takes no value"},
      {"memplan model.gguf other.gguf", "memplan", "unexpected argument"},
      {"memplan model.gguf --full --rank 3", "memplan", "--rank belongs to an adapter"},
      {"memplan model.gguf --momentum 0.9", "memplan", "--momentum belongs to SGD"},
      {"memplan model.gguf --targets no_such_tensor", "memplan", "no_such_tensor"},
      {"stint train model.gguf --data text.txt", "stint train", "-o DIR"},
      {"stint train model.gguf -o run", "stint train", "--data"},
      {"stint train model.gguf --data text.txt -o run --steps 3 --epochs 1", "stint train", "give one"},
      {"stint train model.gguf --data text.txt -o run --eval-every 3", "stint train", "--valid"},
      {"stint train model.gguf --data text.txt -o run --optimizer sgd --beta1 0.5", "stint train", "AdamW"},
      {"stint eval model.gguf", "stint eval", "--data"},
      {"stint new", "stint new", "-o FILE"},
      {"stint new -o x.gguf --embd 0", "stint new", "from 1"},
      {"stint new -o x.gguf --heads 4 --kv-heads 3", "stint new", "head"},
      {"stint new x.gguf", "stint new", "-o"},
      {"stint sample", "stint sample", "which model"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const outcome *const seen = person_run("%s", rows[i].line);
    if (seen->code != 1) cr_expect_fail("%s: ended with %d", rows[i].line, seen->code);
    expect_error(seen, 1, rows[i].prefix, rows[i].text, NULL);
    cr_expect_str_empty(seen->out, "%s: prints %s", rows[i].line, seen->out);
  }
}

/* Every command that reads a model meets a file that is none. */
static const struct {
  const char *prefix, *after; /* `prefix MODEL after` */
} readers[] = {
    {"memplan", ""},
    {"stint train", "--data text.txt -o run --steps 1"},
    {"stint eval", "--data text.txt"},
    {"stint sample", "--prompt a --tokens 2"},
};

static void refuses(const size_t reader, const char *model, const char *text) {
  const outcome *const seen = person_run("%s %s %s", readers[reader].prefix, model, readers[reader].after);
  expect_error(seen, 1, readers[reader].prefix, text, NULL);
  cr_expect_not(person_exists("run/manifest.json"), "a run of a wrong model left a record");
}

Test(command_lines, wrong_models) {
  size_t n;
  char *const model = person_read("model.gguf", &n);
  const size_t cuts[] = {0, 3, 4, 23, 100, n / 100, n / 2, n - 1};
  for (size_t reader = 0; reader < sizeof readers / sizeof readers[0]; reader++) {
    refuses(reader, "missing.gguf", "missing.gguf");
    refuses(reader, ".", ".");
    refuses(reader, "text.txt", "text.txt");
    refuses(reader, "'a\nb'", "a?b"); /* an error stays one line */
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
      person_write("cut.gguf", model, cuts[i]);
      refuses(reader, "cut.gguf", "cut.gguf");
    }
  }
  free(model);
}

/* All of the fixture's tensors are F32 and need no padding: what stands before 4 bytes a parameter is the header. */
Test(command_lines, header_alone_is_enough_to_plan) {
  const outcome *seen = person_run("memplan model.gguf --json");
  cr_assert_eq(seen->code, 0, "%s", seen->err);
  const double peak = member(seen->out, "peak_bytes");
  json_t *const object = json_loads(seen->out, 0, NULL);
  const json_int_t n_parameters =
      json_integer_value(json_object_get(json_object_get(object, "model"), "parameters"));
  json_decref(object);
  cr_assert_gt(n_parameters, 0);

  size_t n;
  char *const model = person_read("model.gguf", &n);
  person_write("header.gguf", model, n - 4 * (size_t)n_parameters);
  free(model);
  seen = person_run("memplan header.gguf --json");
  cr_expect_eq(seen->code, 0, "%s", seen->err);
  cr_expect_eq(member(seen->out, "peak_bytes"), peak);
  expect_error(person_run("stint train header.gguf --data text.txt --ctx 32 --steps 1 -o run >/dev/null"), 1,
               "stint train", "header.gguf", NULL);
  expect_error(person_run("stint eval header.gguf --data text.txt --ctx 32"), 1, "stint eval", "header.gguf",
               NULL);
}

Test(command_lines, wrong_texts) {
  mkdir(person_path("folder"), 0700);
  static const struct {
    const char *name, *text;
  } rows[] = {
      {"missing.txt", "missing.txt"}, {"empty.txt", "empty"}, {"folder", "folder"}, {"short.txt", "32"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    expect_error(person_run("stint train model.gguf --data %s --ctx 32 --steps 2 -o run%zu >/dev/null",
                            rows[i].name, i),
                 1, "stint train", rows[i].text, NULL);
    if (strcmp(rows[i].name, "short.txt") != 0) /* held-out text may be shorter than a row */
      expect_error(
          person_run(
              "stint train model.gguf --data text.txt --valid %s --ctx 32 --steps 2 -o held%zu >/dev/null",
              rows[i].name, i),
          1, "stint train", rows[i].name, NULL);
    char adapter[32];
    snprintf(adapter, sizeof adapter, "run%zu/adapter.gguf", i);
    cr_expect_not(person_exists(adapter));
  }
  expect_error(person_run("stint eval model.gguf --data empty.txt --ctx 32"), 1, "stint eval", "empty", NULL);
  expect_error(person_run("stint eval model.gguf --data folder --ctx 32"), 1, "stint eval", "folder", NULL);
}

Test(command_lines, wrong_adapters) {
  expect_error(person_run("stint eval model.gguf --data text.txt --adapter missing.gguf"), 1, "stint eval",
               "missing.gguf", NULL);
  expect_error(person_run("stint eval model.gguf --data text.txt --adapter model.gguf"), 1, "stint eval",
               "model.gguf", NULL);
  expect_error(person_run("stint sample model.gguf --adapter text.txt --prompt a"), 1, "stint sample",
               "text.txt", NULL);
}

/* A plan made for no budget at all is the smallest: a budget of its peak fits, a byte less does not. */
Test(command_lines, budget) {
  static const char shape[] = "model.gguf --ctx 64 --batch 2 --threads 2";
  const outcome *seen = person_run("memplan %s --json --budget 1", shape);
  cr_assert_eq(seen->code, 2, "%s", seen->err);
  const uint64_t peak = (uint64_t)member(seen->out, "peak_bytes");
  char number[32];
  snprintf(number, sizeof number, "%llu", (unsigned long long)peak);
  seen = person_run("memplan %s --json --budget %llu", shape, (unsigned long long)peak);
  cr_expect_eq(seen->code, 0, "a budget of the peak: %s", seen->err);
  const uint64_t less[] = {1, 4096, 1 << 20};
  for (size_t i = 0; i < sizeof less / sizeof less[0]; i++) {
    char budget[32];
    snprintf(budget, sizeof budget, "%llu", (unsigned long long)(peak - less[i]));
    expect_error(person_run("memplan %s --budget %s", shape, budget), 2, "memplan", budget, number, NULL);
    expect_error(person_run("stint train %s --data text.txt -o run --steps 1 --budget %s", shape, budget), 2,
                 "stint train", budget, number, NULL);
    cr_expect_not(person_exists("run/adapter.gguf"));
  }
  /* the same, said in the two ways that options may be given */
  seen = person_run("memplan model.gguf --ctx=48 --json");
  const double equal_sign = member(seen->out, "peak_bytes");
  seen = person_run("memplan --ctx 48 --json model.gguf");
  cr_expect_eq(equal_sign, member(seen->out, "peak_bytes"));
  /* larger shapes take more */
  seen = person_run("memplan --ctx 64 --batch 8 --json model.gguf");
  cr_expect_gt(member(seen->out, "peak_bytes"), equal_sign);
}

Test(command_lines, sizes) {
  static const struct {
    const char *text;
    double bytes;
  } rows[] = {{"1GiB", 1073741824.0}, {"1.5GiB", 1610612736.0},   {"700MiB", 734003200.0},
              {"2gb", 2e9},           {"123456789", 123456789.0}, {"512M", 536870912.0}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const outcome *const seen = person_run("memplan model.gguf --json --budget %s", rows[i].text);
    cr_expect_eq(seen->code, 0, "%s: %s", rows[i].text, seen->err);
    cr_expect_eq(member(seen->out, "budget_bytes"), rows[i].bytes, "%s", rows[i].text);
  }
}

Test(command_lines, purposes) {
  const char *const purposes[] = {"train", "eval", "sample"};
  for (size_t i = 0; i < 3; i++) {
    const outcome *const seen = person_run("memplan model.gguf --for %s --json", purposes[i]);
    cr_expect_eq(seen->code, 0, "%s: %s", purposes[i], seen->err);
    cr_expect_gt(member(seen->out, "peak_bytes"), 0);
  }
  const outcome *const table = person_run("memplan model.gguf");
  cr_expect_eq(table->code, 0);
  const char *const words[] = {"weights", "optimizer", "peak", "alive", "packing", "choice", "budget"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    cr_expect_not_null(strstr(table->out, words[i]), "%s", words[i]);
}
