/* A run that cannot go on says where and why, in one sentence, and leaves nothing wrong behind. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/formats/gguf.h"
#include "tests/engine/fixture.h"

static fixture f;
static void make(void) { fixture_make(&f); }
static void unmake(void) { fixture_remove(&f); }
TestSuite(failures, .init = make, .fini = unmake);

static int64_t steps_seen;

static bool count(void *const context, const stint_step_info *const info) {
  (void)context;
  steps_seen = info->step;
  return true;
}

static stint_status train(const stint_options *const o, const char *const data, stint_error *const error) {
  stint_model *model;
  stint_plan *plan;
  stint_run *run;
  steps_seen = 0;
  cr_assert_eq(stint_model_open(f.model, &model, error), STINT_OK, "%s", error->text);
  cr_assert_eq(stint_plan_make(model, o, STINT_TRAIN, &plan, error), STINT_OK, "%s", error->text);
  const stint_files files = {.data = (const char *[]){data}, .n_data = 1, .directory = f.run};
  stint_status status = stint_run_open(plan, &files, &run, error);
  if (status == STINT_OK) status = stint_run_train(run, count, NULL, error);
  stint_run_close(run);
  stint_plan_close(plan);
  stint_model_close(model);
  return status;
}

static void expect_text(const stint_error *const error, const char *const part) {
  cr_expect(strstr(error->text, part), "'%s' is not in: %s", part, error->text);
}

/* A rate that no model survives: the step after the first update has values that are not finite. */
Test(failures, the_first_value_that_is_not_finite_is_named) {
  stint_options o;
  stint_error error = {0};
  fixture_options(&o);
  o.full = true, o.optimizer = STINT_SGD, o.lr = 999, o.clip = 0, o.warmup = 0, o.steps = 50,
  o.schedule = STINT_LR_CONSTANT;
  o.weight_decay = 999;
  cr_assert_eq(train(&o, f.text, &error), STINT_NOT_FINITE, "%s", error.text);
  cr_assert_geq(steps_seen, 1);
  char step[32];
  snprintf(step, sizeof step, "step %d: op ", (int)steps_seen + 1);
  expect_text(&error, step);
  expect_text(&error, "blk.");
  expect_text(&error, "row ");
  expect_text(&error, "--lr");
  /* what is saved is the last good step's state, and finite; or nothing, when that state was not */
  char path[192];
  snprintf(path, sizeof path, "%s/model.gguf", f.run);
  if (access(path, F_OK) != 0) return;
  bump memory;
  gguf_file saved;
  bump_init(&memory, 0);
  cr_assert_eq(gguf_open(path, &memory, &saved, &error), STINT_OK, "%s", error.text);
  for (size_t t = 0; t < saved.n_tensors; t++) {
    const float *const x = saved.tensors[t].data;
    for (size_t i = 0; i < saved.tensors[t].bytes / sizeof(float); i++)
      cr_assert(x[i] - x[i] == 0, "%s holds a value that is not finite", saved.tensors[t].name);
  }
  gguf_close(&saved);
  bump_free(&memory);
}

Test(failures, a_text_shorter_than_a_row) {
  stint_options o;
  stint_error error = {0};
  fixture_options(&o);
  char path[192];
  snprintf(path, sizeof path, "%s/short.txt", f.folder);
  FILE *const file = fopen(path, "w");
  fputs("eleven tokens", file);
  fclose(file);
  cr_assert_eq(train(&o, path, &error), STINT_BAD_INPUT);
  expect_text(&error, "short.txt");
  expect_text(&error, "14 tokens"); /* 13 bytes and BOS */
  expect_text(&error, "needs 65");
}

Test(failures, a_directory_that_holds_a_run) {
  stint_options o;
  stint_error error = {0};
  fixture_options(&o);
  cr_assert_eq(train(&o, f.text, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(train(&o, f.text, &error), STINT_BAD_INPUT, "a run was written over");
  expect_text(&error, "holds a run already");
}

Test(failures, targets_that_match_nothing) {
  stint_options o;
  stint_error error = {0};
  stint_model *model;
  stint_plan *plan;
  fixture_options(&o);
  cr_assert_eq(stint_model_open(f.model, &model, &error), STINT_OK);
  static const char *const wrong[] = {"attn_w", "attn_q,ffn_gat", "attn_norm", "token_embd", "blk.9.*", ""};
  for (int i = 0; i < 6; i++) {
    o.targets = wrong[i];
    cr_expect_eq(stint_plan_make(model, &o, STINT_TRAIN, &plan, &error), STINT_BAD_INPUT, "'%s' was taken",
                 wrong[i]);
    cr_expect_null(plan);
    expect_text(&error, "--targets");
  }
  static const struct {
    const char *targets;
    int n;
  } right[] = {{"all-linear", 28},
               {"attn_q", 4},
               {"attn_q.weight, attn_v", 8},
               {"blk.1.*", 7},
               {"blk.2.ffn_up.weight", 1},
               {"ffn_*", 12},
               {"output", 1},
               {"all-linear,output", 29}};
  for (int i = 0; i < 8; i++) {
    o.targets = right[i].targets;
    cr_assert_eq(stint_plan_make(model, &o, STINT_TRAIN, &plan, &error), STINT_OK, "'%s': %s",
                 right[i].targets, error.text);
    stint_plan_report r;
    stint_plan_describe(plan, &r);
    cr_expect_eq(r.n_targets, right[i].n, "'%s' matched %d", right[i].targets, (int)r.n_targets);
    stint_plan_close(plan);
  }
  stint_model_close(model);
}

/* A rate that is zero as a float leaves every B at zero, so no A has a gradient: each is counted, and the first named. */
Test(failures, tensors_without_a_gradient_are_told_about) {
  stint_options o;
  stint_error error = {0};
  for (int silent = 0; silent < 2; silent++) {
    stint_model *model;
    stint_plan *plan;
    stint_run *run;
    stint_run_info info;
    fixture_options(&o);
    if (silent) o.lr = 1e-60;
    snprintf(f.run, sizeof f.run, "%s/silent%d", f.folder, silent);
    cr_assert_eq(stint_model_open(f.model, &model, &error), STINT_OK, "%s", error.text);
    cr_assert_eq(stint_plan_make(model, &o, STINT_TRAIN, &plan, &error), STINT_OK, "%s", error.text);
    const stint_files files = {.data = (const char *[]){f.text}, .n_data = 1, .directory = f.run};
    cr_assert_eq(stint_run_open(plan, &files, &run, &error), STINT_OK, "%s", error.text);
    cr_assert_eq(stint_run_train(run, NULL, NULL, &error), STINT_OK, "%s", error.text);
    stint_run_describe(run, &info);
    cr_expect_eq(info.n_without_gradient, silent ? 28 : 0, "%d tensors", (int)info.n_without_gradient);
    if (silent) cr_expect(info.first_without_gradient && strstr(info.first_without_gradient, "lora_a"));
    stint_run_close(run);
    stint_plan_close(plan);
    stint_model_close(model);
  }
}
