/* Exact: no allocation between the first step and the last; what was planned is what the process holds. */
#include <criterion/criterion.h>
#include <fcntl.h>

#include "engine/train/session.h"
#include "tests/engine/fixture.h"
#include "tests/support/alloc_trap.h"
#include "tests/support/memory.h"

/* Code, its relocations, the C library and the test framework's heap: what the process holds that no plan states. */
enum { CONSTANT_BYTES = 8 << 20 };

typedef struct watch {
  memory_use at_step, at_end;
  uint64_t planned, allocations;
} watch;

static bool arm(void *const context, const stint_step_info *const info) {
  watch *const w = context;
  if (info->step == 1) {
    cr_assert(memory_now(&w->at_step));
    alloc_trap_arm();
  }
  if (info->step == info->steps) {
    w->allocations = alloc_trap_disarm();
    cr_assert(memory_now(&w->at_end));
  }
  return true;
}

static void check(const stint_options *const o, const char *const what) {
  fixture f;
  fixture_make(&f);
  stint_error error = {0};
  stint_model *model;
  stint_plan *plan;
  stint_run *run;
  stint_plan_report report;
  watch w = {0};
  cr_assert_eq(stint_model_open(f.model, &model, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(stint_plan_make(model, o, STINT_TRAIN, &plan, &error), STINT_OK, "%s", error.text);
  stint_plan_describe(plan, &report);
  const stint_files files = {.data = (const char *[]){f.text},
                             .n_data = 1,
                             .valid = (const char *[]){f.valid},
                             .n_valid = 1,
                             .directory = f.run};
  cr_assert_eq(stint_run_open(plan, &files, &run, &error), STINT_OK, "%s", error.text);
  alloc_trap_reset();
  cr_assert_eq(stint_run_train(run, arm, &w, &error), STINT_OK, "%s", error.text);
  char text[2048];
  cr_expect_eq(w.allocations, 0, "%s: %s", what, alloc_trap_report(text, sizeof text));
  cr_expect_eq(alloc_trap_armings(), 1, "%s: the trap was never armed", what);
  stint_run_info info;
  stint_run_describe(run, &info);
  cr_expect_eq(info.used_bytes, report.arena_bytes, "%s", what);
  const uint64_t planned = report.arena_bytes + report.planning_bytes;
  cr_expect_leq(w.at_step.anonymous_bytes, planned + CONSTANT_BYTES,
                "%s: holds %zu anonymous bytes, planned %llu", what, w.at_step.anonymous_bytes,
                (unsigned long long)planned);
  cr_expect_geq(w.at_step.anonymous_bytes, report.arena_bytes, "%s: holds less than its arena", what);
  cr_expect_leq(w.at_end.anonymous_bytes, w.at_step.anonymous_bytes + 65536, "%s: grew from %zu to %zu", what,
                w.at_step.anonymous_bytes, w.at_end.anonymous_bytes);
  stint_run_close(run);
  stint_plan_close(plan);
  stint_model_close(model);
  fixture_remove(&f);
}

Test(promises, adapter) {
  stint_options o;
  fixture_options(&o);
  o.steps = 6, o.eval_every = 2, o.save_every = 2, o.accum = 2, o.dropout = 0.1;
  check(&o, "adapter");
}

Test(promises, every_weight_sgd_eight_threads) {
  stint_options o;
  fixture_options(&o);
  o.steps = 4, o.full = true, o.threads = 8, o.optimizer = STINT_SGD, o.momentum = 0.9, o.save_every = 1;
  check(&o, "every weight");
}

/* The steady state does not depend on the plan being small: an arena of some 100 MiB is held to the same constant. */
Test(promises, a_larger_arena) {
  stint_options o;
  fixture_options(&o);
  o.batch = 24, o.ctx = 256, o.steps = 2;
  check(&o, "a larger arena");
}

Test(promises, one_byte_less_is_refused) {
  fixture f;
  fixture_make(&f);
  stint_error error = {0};
  stint_model *model;
  stint_plan *plan;
  stint_options o;
  fixture_options(&o);
  o.budget_bytes = 1;
  cr_assert_eq(stint_model_open(f.model, &model, &error), STINT_OK);
  cr_assert_eq(stint_plan_make(model, &o, STINT_TRAIN, &plan, &error), STINT_DOES_NOT_FIT);
  stint_plan_report smallest;
  stint_plan_describe(plan, &smallest);
  cr_assert(!smallest.fits);
  stint_run *run;
  const stint_files files = {.data = (const char *[]){f.text}, .n_data = 1, .directory = f.run};
  cr_assert_eq(stint_run_open(plan, &files, &run, &error), STINT_DOES_NOT_FIT,
               "a plan that does not fit ran");
  cr_assert_null(run);
  stint_plan_close(plan);
  o.budget_bytes = smallest.peak_bytes;
  cr_expect_eq(stint_plan_make(model, &o, STINT_TRAIN, &plan, &error), STINT_OK, "%s", error.text);
  stint_plan_close(plan);
  o.budget_bytes = smallest.peak_bytes - 1;
  cr_expect_eq(stint_plan_make(model, &o, STINT_TRAIN, &plan, &error), STINT_DOES_NOT_FIT);
  stint_plan_close(plan);
  stint_model_close(model);
  fixture_remove(&f);
}
