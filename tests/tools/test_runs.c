/* Whole runs from the command line: what they leave in the run directory, that the same numbers come out whatever the
 * machine does, and that nothing is lost when a run is stopped or the disk is full. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tools/person.h"

TestSuite(runs, .init = person_start, .fini = person_end);

static json_t *json_of(const char *text, const char *what) {
  json_error_t error;
  json_t *const object = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  cr_assert_not_null(object, "%s: %s at %d", what, error.text, error.position);
  return object;
}

static double number_of(const json_t *object, const char *key) {
  const json_t *const value = json_object_get(object, key);
  cr_assert(json_is_number(value), "%s is a number", key);
  return json_number_value(value);
}

static bool same_bytes(const char *a, const char *b) {
  size_t n = 0, m = 0;
  char *const x = person_read(a, &n), *const y = person_read(b, &m);
  const bool same = x != NULL && y != NULL && n > 0 && n == m && memcmp(x, y, n) == 0;
  free(x);
  free(y);
  return same;
}

static int count_lines(const char *text) {
  int n = 0;
  for (; *text != '\0'; text++) n += *text == '\n';
  return n;
}

static double evaluate(const char *arguments) {
  const outcome *const seen = person_run("stint eval %s --json", arguments);
  cr_assert_eq(seen->code, 0, "%s: %s", arguments, seen->err);
  json_t *const object = json_of(seen->out, "stint eval --json");
  const double loss = number_of(object, "loss_nats_per_token");
  cr_expect_float_eq(number_of(object, "perplexity"), exp(loss), 1e-6 * exp(loss));
  cr_expect_gt(number_of(object, "tokens"), 0);
  cr_expect_gt(number_of(object, "peak_bytes"), 0);
  cr_expect_eq(number_of(object, "used_bytes"), number_of(object, "arena_bytes"));
  json_decref(object);
  return loss;
}

#define RUN "stint train model.gguf --data text.txt --ctx 32 --batch 2 --steps 12 --lr 0.01 --seed 3"

Test(runs, a_run_directory) {
  const outcome *const seen = person_run(RUN " --valid held.txt -o run --eval-every 5");
  cr_assert_eq(seen->code, 0, "%s", seen->err);
  cr_expect_str_empty(seen->err);
  cr_expect_not_null(strstr(seen->out, "held-out loss before"));
  cr_expect_not_null(strstr(seen->out, "saved run/adapter.gguf"));

  static const char *const objects[] = {"run/manifest.json", "run/plan.json"};
  for (int i = 0; i < 2; i++) {
    char *const text = person_read(objects[i], NULL);
    cr_assert_not_null(text, "%s", objects[i]);
    json_decref(json_of(text, objects[i]));
    free(text);
  }
  char *const log = person_read("run/log.jsonl", NULL), *const table = person_read("run/log.csv", NULL);
  cr_assert(log != NULL && table != NULL);
  cr_expect_eq(count_lines(log), 12);
  cr_expect_eq(count_lines(table), 13, "a heading and a line a step");
  int step = 0;
  for (char *line = strtok(log, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    json_t *const object = json_of(line, "log.jsonl");
    cr_expect_eq(number_of(object, "step"), ++step);
    json_decref(object);
  }
  free(log);
  free(table);

  const double with = evaluate("model.gguf --data held.txt --ctx 32 --adapter run/adapter.gguf");
  const double without = evaluate("model.gguf --data held.txt --ctx 32");
  cr_expect_lt(with, without - 0.05, "12 steps of training: %f -> %f", without, with);
  expect_error(person_run(RUN " -o run >/dev/null"), 1, "stint train", "run", NULL);
}

/* The loss that a run reports for its held-out text is the loss that `stint eval` finds with what the run saved. */
Test(runs, the_reported_loss_is_the_saved_one) {
  const outcome *const seen = person_run(RUN " --valid held.txt -o run");
  cr_assert_eq(seen->code, 0, "%s", seen->err);
  const char *const text = strstr(seen->out, "held-out loss: ");
  cr_assert_not_null(text);
  double before, after;
  cr_assert_eq(sscanf(text, "held-out loss: %lf -> %lf", &before, &after), 2);
  cr_expect_float_eq(evaluate("model.gguf --data held.txt --ctx 32"), before, 1e-4);
  cr_expect_float_eq(evaluate("model.gguf --data held.txt --ctx 32 --adapter run/adapter.gguf"), after, 1e-4);
}

/* One checksum, whatever the machine does. */
Test(runs, same_numbers) {
  static const char *const ways[] = {"--threads 2",        "--threads 1",
                                     "--threads 3",        "--cpu-mask none",
                                     "--cpu-mask avx2",    "--loss-chunk 7 --attention-chunk 5",
                                     "--batch 1 --accum 2"};
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
    const char *const batch = strstr(ways[i], "--batch") != NULL ? "" : "--batch 2";
    const outcome *const seen =
        person_run("stint train model.gguf --data text.txt --ctx 32 %s --steps 4 --lr 0.01 --seed 3 "
                   "-o way%zu %s",
                   batch, i, ways[i]);
    cr_assert_eq(seen->code, 0, "%s: %s", ways[i], seen->err);
    static const char *const files[] = {"adapter.gguf", "log.jsonl"};
    for (int f = 0; f < 2; f++) {
      char first[32], this[32];
      snprintf(first, sizeof first, "way0/%s", files[f]);
      snprintf(this, sizeof this, "way%zu/%s", i, files[f]);
      cr_expect(same_bytes(first, this), "%s gives another %s", ways[i], files[f]);
    }
  }
  cr_assert_eq(
      person_run(
          "stint train model.gguf --data text.txt --ctx 32 --batch 2 --steps 4 --lr 0.01 --seed 4 -o other")
          ->code,
      0);
  cr_expect_not(same_bytes("way0/adapter.gguf", "other/adapter.gguf"), "another seed gives the same adapter");
}

Test(runs, evaluation_leaves_nothing_behind) {
  const outcome *seen = person_run(
      "mkdir mine && TMPDIR=$PWD/mine stint eval model.gguf --data held.txt --ctx 32 && ls -A mine | wc -l");
  cr_assert_eq(seen->code, 0, "%s", seen->err);
  const size_t n = strlen(seen->out);
  cr_expect(n > 2 && strcmp(seen->out + n - 2, "0\n") == 0, "files are left: %s", seen->out);
  expect_error(person_run("TMPDIR=$PWD/nowhere stint eval model.gguf --data held.txt --ctx 32"), 1,
               "stint eval", "TMPDIR", NULL);
}

Test(runs, every_weight) {
  const outcome *const seen =
      person_run("stint train model.gguf --full --data text.txt --valid held.txt --ctx 32 "
                 "--steps 10 --lr 0.01 -o run");
  cr_assert_eq(seen->code, 0, "%s", seen->err);
  cr_assert(person_exists("run/model.gguf"));
  cr_expect_not(person_exists("run/adapter.gguf"));
  cr_expect_lt(evaluate("run/model.gguf --data held.txt --ctx 32"),
               evaluate("model.gguf --data held.txt --ctx 32") - 0.1);
}

Test(runs, sampling) {
  char first[PRINTED_BYTES];
  static const char *const lines[] = {"--temperature 0", "--seed 5", "--seed 5 --top-k 0 --top-p 1"};
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
    const outcome *seen = person_run("stint sample model.gguf --prompt 'the ship' --tokens 20 %s", lines[i]);
    cr_assert_eq(seen->code, 0, "%s", seen->err);
    cr_expect_eq(strncmp(seen->out, "the ship", 8), 0);
    memcpy(first, seen->out, sizeof first);
    seen = person_run("stint sample model.gguf --prompt 'the ship' --tokens 20 %s --threads 3", lines[i]);
    cr_expect_str_eq(seen->out, first, "%s", lines[i]);
  }
  const outcome *const other =
      person_run("stint sample model.gguf --prompt 'the ship' --tokens 20 --top-k 0 --top-p 1 --seed 6");
  cr_expect_str_neq(other->out, first);
}

Test(runs, new_models) {
  const char *const line =
      "stint new -o %s.gguf --embd 32 --layers 1 --heads 2 --kv-heads 1 --ff 32 --ctx 64 --seed %d";
  static const struct {
    const char *name;
    int seed;
  } rows[] = {{"a", 1}, {"b", 1}, {"c", 2}};
  for (int i = 0; i < 3; i++) {
    char command[256];
    snprintf(command, sizeof command, line, rows[i].name, rows[i].seed);
    cr_assert_eq(person_run("%s", command)->code, 0);
  }
  cr_expect(same_bytes("a.gguf", "b.gguf"));
  cr_expect_not(same_bytes("a.gguf", "c.gguf"));
}

/* Ctrl-C in the middle: the step is finished, the run saved and checked, the adapter loads. */
Test(runs, stopping) {
  const pid_t pid =
      person_spawn("exec stint train model.gguf --data text.txt --ctx 32 --steps 1000000 -o run");
  for (int tries = 0; tries < 2000; tries++) {
    size_t n = 0;
    char *const seen = person_read(".out", &n);
    const bool begun = seen != NULL && strstr(seen, "step 1/") != NULL;
    free(seen);
    if (begun) break;
    usleep(10000);
  }
  kill(pid, SIGINT);
  const outcome *const seen = person_wait(pid);
  cr_assert_eq(seen->code, 0, "%s", seen->err);
  cr_expect_not_null(strstr(seen->out, "stopped after step"));
  char *const log = person_read("run/log.jsonl", NULL);
  cr_assert_not_null(log);
  int steps = 0;
  const char *const said = strstr(seen->out, "stopped after step ");
  if (said != NULL) sscanf(said, "stopped after step %d", &steps);
  cr_expect_eq(count_lines(log), steps, "the log holds the %d steps that were taken", steps);
  free(log);
  evaluate("model.gguf --data held.txt --ctx 32 --adapter run/adapter.gguf");
}

/* A reader that leaves does not end a run. */
Test(runs, a_closed_pipe) {
  person_run("stint train model.gguf --data text.txt --ctx 32 --steps 5 -o run | head -1");
  cr_expect(person_exists("run/adapter.gguf"));
}

/* Files may not grow past a limit, as on a full disk: one error, and no file that only looks like an adapter. The limit
 * rises until a run succeeds, so that each write is the one that fails at some limit. (Standard error is a pipe, which
 * has no limit.) */
Test(runs, a_full_disk) {
  int refused = 0, succeeded = 0;
  for (int blocks = 0; blocks <= 4096 && succeeded == 0; blocks = blocks < 4 ? blocks + 1 : blocks * 2) {
    char adapter[64], evaluation[128];
    snprintf(adapter, sizeof adapter, "full%d/adapter.gguf", blocks);
    const outcome *const seen =
        person_run("{ (trap '' XFSZ; ulimit -f %d; exec stint train model.gguf --data text.txt "
                   "--ctx 32 --steps 3 -o full%d) 2>&1 >/dev/null; echo $? >code; } | cat >&2; "
                   "exit $(cat code)",
                   blocks, blocks);
    const bool saved = person_exists(adapter);
    if (seen->code == 0) {
      succeeded++;
      cr_expect(saved && seen->err[0] == '\0', "%s", seen->err);
    } else {
      refused++;
      expect_error(seen, 1, "stint train", NULL);
    }
    if (saved) {
      snprintf(evaluation, sizeof evaluation, "model.gguf --data held.txt --ctx 32 --adapter %s", adapter);
      evaluate(evaluation);
    }
  }
  cr_expect_gt(refused, 0);
  cr_expect_gt(succeeded, 0, "at no limit does the run succeed");
  expect_error(person_run("(trap '' XFSZ; ulimit -f 8; exec stint new -o big.gguf --embd 64 --layers 2)"), 1,
               "stint new", "big.gguf", NULL);
  cr_expect_not(person_exists("big.gguf"), "half a model was left");
}
