/* Same numbers: one run's adapter and log have one digest whatever the threads, budget, chunks, vector path, cut into
 * microbatches, dropout included; and everything that should change the numbers does. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "tests/engine/fixture.h"

static fixture f;
static void make(void) { fixture_make(&f); }
static void unmake(void) { fixture_remove(&f); }
TestSuite(numbers, .init = make, .fini = unmake);

typedef struct digests {
  uint64_t saved, log;
} digests;

static digests train(const stint_options *const o) {
  const stint_step_info last = fixture_train(&f, o);
  cr_assert_eq(last.planned_bytes, last.used_bytes);
  return (digests){fixture_digest(&f, o->full ? "model.gguf" : "adapter.gguf"),
                   fixture_digest(&f, "log.jsonl")};
}

static void expect_same(const digests want, const stint_options *const o, const char *const what) {
  const digests got = train(o);
  cr_expect_eq(want.saved, got.saved, "%s: other trained bytes", what);
  cr_expect_eq(want.log, got.log, "%s: another log", what);
}

static void expect_other(const digests want, const stint_options *const o, const char *const what) {
  cr_expect_neq(want.saved, train(o).saved, "%s: the same trained bytes", what);
}

static void check_all(const stint_options *const base) {
  const digests want = train(base);
  stint_options o = *base;
  static const int threads[] = {1, 3, 8};
  for (int i = 0; i < 3; i++) o = *base, o.threads = threads[i], expect_same(want, &o, "threads");
  static const int64_t chunks[][2] = {{1, 1}, {7, 5}, {64, 16}, {128, 33}};
  for (int i = 0; i < 4; i++)
    o = *base, o.loss_chunk = chunks[i][0], o.attention_chunk = chunks[i][1], expect_same(want, &o, "chunks");
  o = *base, o.batch = 1, o.accum = 2, expect_same(want, &o, "two microbatches of one");
  o = *base, o.cpu_mask = CPU_REFERENCE, o.steps = base->steps, expect_same(want, &o, "the plain path");
  if (cpu_paths() & CPU_AVX512) o = *base, o.cpu_mask = CPU_AVX2, expect_same(want, &o, "the AVX2 path");
}

Test(numbers, adapter) {
  stint_options o;
  fixture_options(&o);
  check_all(&o);
}

Test(numbers, adapter_with_dropout) {
  stint_options o;
  fixture_options(&o);
  o.dropout = 0.3;
  check_all(&o);
}

Test(numbers, every_weight) {
  stint_options o;
  fixture_options(&o);
  o.full = true;
  check_all(&o);
}

Test(numbers, sgd_with_momentum) {
  stint_options o;
  fixture_options(&o);
  o.optimizer = STINT_SGD, o.momentum = 0.9, o.lr = 0.1;
  check_all(&o);
}

Test(numbers, any_budget) {
  stint_options o;
  fixture_options(&o);
  o.batch = 4;
  const digests want = train(&o);
  stint_error error = {0};
  stint_model *model;
  cr_assert_eq(stint_model_open(f.model, &model, &error), STINT_OK, "%s", error.text);
  int plans = 0;
  char previous[200] = "";
  for (uint64_t budget = 16 << 20; budget > 1 << 20; budget -= 128 << 10) {
    o.budget_bytes = budget;
    stint_plan *plan;
    const stint_status status = stint_plan_make(model, &o, STINT_TRAIN, &plan, &error);
    stint_plan_report report;
    stint_plan_describe(plan, &report);
    cr_expect(status == STINT_DOES_NOT_FIT || report.peak_bytes <= budget);
    const bool fresh = status == STINT_OK && strcmp(previous, report.choice) != 0;
    snprintf(previous, sizeof previous, "%s", report.choice);
    stint_plan_close(plan);
    if (status == STINT_DOES_NOT_FIT) break;
    cr_assert_eq(status, STINT_OK, "%s", error.text);
    if (!fresh) continue;
    expect_same(want, &o, previous);
    plans++;
  }
  stint_model_close(model);
  cr_assert_geq(plans, 3, "only %d plans were met", plans);
}

Test(numbers, what_should_matter_does) {
  stint_options base, o;
  fixture_options(&base);
  base.steps = 4; /* cosine and linear meet half way: three steps would not tell them apart */
  const digests want = train(&base);
  expect_same(want, &base, "a second run");
  o = base, o.seed = 6, expect_other(want, &o, "seed");
  o = base, o.lr *= 1.0001, expect_other(want, &o, "lr");
  o = base, o.alpha = 17, expect_other(want, &o, "alpha");
  o = base, o.dropout = 0.1, expect_other(want, &o, "dropout");
  o = base, o.batch = 3, expect_other(want, &o, "batch");
  o = base, o.ctx = 48, expect_other(want, &o, "ctx");
  o = base, o.clip = 1e-3, expect_other(want, &o, "clip");
  o = base, o.weight_decay = 0.5, expect_other(want, &o, "weight decay");
  o = base, o.warmup = 2, expect_other(want, &o, "warm-up");
  o = base, o.schedule = STINT_LR_LINEAR, expect_other(want, &o, "schedule");
  o = base, o.lr_floor = 0.9, expect_other(want, &o, "floor");
  o = base, o.beta1 = 0.8, expect_other(want, &o, "beta1");
  o = base, o.beta2 = 0.9, expect_other(want, &o, "beta2");
  o = base, o.epsilon = 1e-3, expect_other(want, &o, "epsilon");
  o = base, o.targets = "attn_q,attn_v", expect_other(want, &o, "targets");
  o = base, o.rank = 4, expect_other(want, &o, "rank");
  o = base, o.optimizer = STINT_SGD, expect_other(want, &o, "optimizer");
}

/* An accumulator that is never zeroed gives step n the sum of all gradients so far. With a learning rate that moves nothing
 * and one step an epoch, every step sees the same rows (in another order: the sums differ by rounding, measured 1e-6;
 * a gradient that is kept doubles the norm). */
typedef struct norms {
  double of[4];
} norms;

static bool keep_norm(void *const context, const stint_step_info *const info) {
  ((norms *)context)->of[info->step - 1] = info->grad_norm;
  return true;
}

Test(numbers, every_step_has_a_gradient_of_its_own) {
  stint_options o;
  fixture_options(&o);
  o.batch = 40, o.steps = 4, o.lr = 1e-30, o.clip = 0;
  stint_error error = {0};
  stint_model *model;
  stint_plan *plan;
  stint_run *run;
  norms n = {{0}};
  cr_assert_eq(stint_model_open(f.model, &model, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(stint_plan_make(model, &o, STINT_TRAIN, &plan, &error), STINT_OK, "%s", error.text);
  const stint_files files = {.data = (const char *[]){f.valid}, .n_data = 1, .directory = f.run};
  cr_assert_eq(stint_run_open(plan, &files, &run, &error), STINT_OK, "%s", error.text);
  stint_run_info info;
  stint_run_describe(run, &info);
  cr_assert_leq(info.train_rows, 40, "more than one step an epoch: %d rows", (int)info.train_rows);
  cr_assert_eq(stint_run_train(run, keep_norm, &n, &error), STINT_OK, "%s", error.text);
  for (int i = 1; i < 4; i++)
    cr_expect(fabs(n.of[i] - n.of[0]) < 1e-4 * n.of[0], "step %d: norm %.9g, and %.9g in step 1", i + 1,
              n.of[i], n.of[0]);
  stint_run_close(run);
  stint_plan_close(plan);
  stint_model_close(model);
}
