/* Whole models against a float64 reference made by torch (tests/oracles/whole_model.py): losses of every row, the gradient
 * of every trained tensor, three AdamW steps. Batches are packed documents of uneven length with masked and
 * fractional weights; adapters have A and B random and alpha/r other than 1; weights are of every type.
 *
 * Bounds are on ||x - golden|| / ||golden|| of a tensor. Measured here: losses at most 6e-7 a row, gradients at most 1.7e-6 (a float32
 * torch strays as far: the # noise lines of the goldens), parameters after three steps at most 1.5e-6. The smallest defect
 * of tests/mutants/engine.txt moves a gradient by 1e-3. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "engine/train/session.h"
#include "tests/engine/golden.h"

#define ROW_BOUND       3e-6
#define GRADIENT_BOUND  1e-5
#define PARAMETER_BOUND 1e-5

static const char *const models[] = {"untied", "tied", "mixed", "linear", "yarn", "freqs"};
enum { N_MODELS = sizeof models / sizeof models[0], ROWS = 48 };

typedef enum trained { TRAIN_ADAPTER, TRAIN_ALL } trained;

typedef struct bench {
  stint_model *model;
  stint_plan *plan;
  session s;
  golden_set golden;
  char adapter[1024];
} bench;

static void open_bench(bench *const b, const char *const name, const trained what,
                       const stint_options *const base) {
  char path[1024];
  stint_error error = {0};
  cr_assert(golden_open(name, &b->golden), "%s: no goldens", name);
  cr_assert_eq(stint_model_open(golden_path(name, ".gguf", path, sizeof path), &b->model, &error), STINT_OK,
               "%s", error.text);
  stint_options o = *base;
  o.ctx = 24, o.batch = 2, o.threads = 2;
  o.full = what == TRAIN_ALL;
  if (what == TRAIN_ADAPTER) o.adapter = golden_path(name, ".adapter.gguf", b->adapter, sizeof b->adapter);
  cr_assert_eq(stint_plan_make(b->model, &o, STINT_TRAIN, &b->plan, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(session_open(b->plan, &b->s, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(golden_find(&b->golden, "batch/token")->ne[0], ROWS);
}

static void close_bench(bench *const b) {
  session_close(&b->s);
  stint_plan_close(b->plan);
  stint_model_close(b->model);
  golden_close(&b->golden);
}

/* The goldens' batch; returns the sum of weights. */
static double fill_batch(bench *const b) {
  const data_batch *const batch = &b->s.batch;
  memcpy(batch->token, golden_find(&b->golden, "batch/token")->data, ROWS * sizeof(int32_t));
  memcpy(batch->target, golden_find(&b->golden, "batch/target")->data, ROWS * sizeof(int32_t));
  memcpy(batch->position, golden_find(&b->golden, "batch/position")->data, ROWS * sizeof(int32_t));
  memcpy(batch->span, golden_find(&b->golden, "batch/span")->data, 2 * ROWS * sizeof(int32_t));
  const golden_array *const weight = golden_find(&b->golden, "batch/weight");
  double sum = 0;
  for (int i = 0; i < ROWS; i++) {
    batch->weight[i] = (float)golden_f64(weight, i);
    sum += golden_f64(weight, i);
  }
  b->s.step->loss_scale = (float)(1 / sum);
  return sum;
}

static void run_backward(bench *const b) {
  const schedule *const plan = b->s.main.plan;
  program_run(&b->s.main, b->s.workers, 0, plan->first_update, NULL, NULL);
}

static void check_loss(const bench *const b, const char *const name, const char *const region,
                       const double weights) {
  const golden_array *const nll = golden_find(&b->golden, "%s/nll", region), *const loss = golden_find(
                                                                                 &b->golden, "%s/loss",
                                                                                 region);
  const golden_array *const weight = golden_find(&b->golden, "batch/weight");
  cr_assert(nll && loss);
  for (int i = 0; i < ROWS; i++) {
    const double want = golden_f64(nll, i) * golden_f64(weight, i), got = (double)b->s.loss[i];
    cr_expect(fabs(got - want) <= ROW_BOUND * (fabs(want) + 1), "%s %s row %d: %.9g, golden %.9g", name,
              region, i, got, want);
  }
  const double mean = session_loss_sum(&b->s) / weights;
  cr_expect(fabs(mean - golden_f64(loss, 0)) < 2e-6, "%s %s: loss %.9g, golden %.9g", name, region, mean,
            golden_f64(loss, 0));
}

static int check_gradients(const bench *const b, const char *const name, const char *const region) {
  const graph *const g = &b->plan->main.g;
  int compared = 0;
  for (int32_t i = 0; i < g->n_params; i++) {
    const char *const tensor = graph_at(g, g->params[i].value)->name;
    const golden_array *const want = golden_find(&b->golden, "%s/grad/%s", region, tensor);
    cr_assert(want, "%s: no golden gradient of %s", name, tensor);
    const double distance = golden_distance(want, program_tensor(&b->s.main, g->params[i].grad));
    cr_expect(distance <= GRADIENT_BOUND, "%s %s %s: gradient off by %.3g", name, region, tensor, distance);
    compared++;
  }
  return compared;
}

Test(whole_model, adapter_gradients) {
  for (int m = 0; m < N_MODELS; m++) {
    bench b;
    stint_options o;
    stint_options_default(&o);
    open_bench(&b, models[m], TRAIN_ADAPTER, &o);
    const double weights = fill_batch(&b);
    run_backward(&b);
    check_loss(&b, models[m], "lora", weights);
    cr_assert_gt(check_gradients(&b, models[m], "lora"), 0, "%s: nothing compared", models[m]);
    close_bench(&b);
  }
}

Test(whole_model, adapter_gradients_when_recomputed) {
  for (int m = 0; m < N_MODELS; m++) {
    bench b;
    stint_options o;
    stint_options_default(&o);
    open_bench(&b, models[m], TRAIN_ADAPTER, &o);
    const uint64_t all = b.plan->report.peak_bytes;
    fill_batch(&b);
    run_backward(&b);
    const graph *g = &b.plan->main.g;
    const size_t bytes = g->home_bytes[HOME_GRAD];
    void *const kept = malloc(bytes);
    memcpy(kept, b.s.main.base.host[HOME_GRAD], bytes);
    close_bench(&b);
    o.loss_chunk = 5, o.attention_chunk = 3;
    for (uint64_t less = 4096; less < all; less *= 2) { /* budgets until nothing fits */
      o.budget_bytes = all - less;
      stint_error error = {0};
      stint_model *model;
      char path[1024], adapter[1024];
      cr_assert_eq(stint_model_open(golden_path(models[m], ".gguf", path, sizeof path), &model, &error),
                   STINT_OK);
      stint_options smaller = o;
      smaller.ctx = 24, smaller.batch = 2, smaller.threads = 3;
      smaller.adapter = golden_path(models[m], ".adapter.gguf", adapter, sizeof adapter);
      stint_plan *plan;
      const stint_status status = stint_plan_make(model, &smaller, STINT_TRAIN, &plan, &error);
      stint_plan_close(plan);
      stint_model_close(model);
      if (status == STINT_DOES_NOT_FIT) break;
      cr_assert_eq(status, STINT_OK, "%s", error.text);
      open_bench(&b, models[m], TRAIN_ADAPTER, &o);
      fill_batch(&b);
      run_backward(&b);
      cr_expect_eq(memcmp(kept, b.s.main.base.host[HOME_GRAD], bytes), 0, "%s: other gradients under %s",
                   models[m], b.plan->report.choice);
      close_bench(&b);
    }
    free(kept);
  }
}

Test(whole_model, full_gradients) {
  int compared = 0;
  for (int m = 0; m < N_MODELS; m++) {
    golden_set golden;
    cr_assert(golden_open(models[m], &golden));
    const bool has = golden_find(&golden, "full/grad_norm") != NULL;
    golden_close(&golden);
    if (!has) continue;
    bench b;
    stint_options o;
    stint_options_default(&o);
    open_bench(&b, models[m], TRAIN_ALL, &o);
    const double weights = fill_batch(&b);
    run_backward(&b);
    check_loss(&b, models[m], "base", weights);
    compared += check_gradients(&b, models[m], "full");
    close_bench(&b);
  }
  cr_assert_gt(compared, 0);
}

/* Takes the goldens' steps on one batch; returns how many tensors were compared. */
static int check_adamw(const char *const name, const trained what, const char *const region,
                       const char *const rule) {
  golden_set golden;
  cr_assert(golden_open(name, &golden));
  const golden_array *const hyper = golden_find(&golden, "%s/%s/hyper", region, rule);
  if (!hyper) return golden_close(&golden), 0;
  stint_options o;
  stint_options_default(&o);
  o.lr = golden_f64(hyper, 0), o.beta1 = golden_f64(hyper, 1), o.beta2 = golden_f64(hyper, 2);
  o.epsilon = golden_f64(hyper, 3), o.weight_decay = golden_f64(hyper, 4), o.clip = golden_f64(hyper, 5);
  const int steps = (int)golden_f64(hyper, 6);
  bench b;
  open_bench(&b, name, what, &o);
  double power1 = 1, power2 = 1;
  for (int step = 0; step < steps; step++) {
    const double weights = fill_batch(&b);
    step_block *const block = b.s.step;
    block->lr = (float)o.lr, block->clip = (float)o.clip;
    block->bias1 = (float)(1 - (power1 *= o.beta1)), block->bias2 = (float)(1 - (power2 *= o.beta2));
    program_run(&b.s.main, b.s.workers, 0, b.s.main.n_steps, NULL, NULL);
    const double norm = golden_f64(golden_find(&golden, "%s/%s/norm", region, rule), step);
    const double loss = golden_f64(golden_find(&golden, "%s/%s/loss", region, rule), step);
    cr_expect(fabs((double)block->grad_norm - norm) <= 1e-5 * norm, "%s %s step %d: norm %.9g, golden %.9g",
              name, rule, step, (double)block->grad_norm, norm);
    cr_expect(fabs(session_loss_sum(&b.s) / weights - loss) <= 3e-6 * loss, "%s %s step %d: loss", name, rule,
              step);
  }
  int compared = 0;
  const graph *const g = &b.plan->main.g;
  for (int32_t i = 0; i < g->n_params; i++) {
    const char *const tensor = graph_at(g, g->params[i].value)->name;
    const golden_array *const want = golden_find(&golden, "%s/%s/%s", region, rule, tensor);
    cr_assert(want, "%s: no golden of %s", name, tensor);
    const double distance = golden_distance(want, program_tensor(&b.s.main, g->params[i].value));
    cr_expect(distance <= PARAMETER_BOUND, "%s %s %s: off by %.3g after %d steps", name, rule, tensor,
              distance, steps);
    compared++;
  }
  close_bench(&b);
  golden_close(&golden);
  return compared;
}

Test(whole_model, adamw_steps) {
  int compared = 0;
  for (int m = 0; m < N_MODELS; m++) {
    compared += check_adamw(models[m], TRAIN_ADAPTER, "lora", "adamw");
    compared += check_adamw(models[m], TRAIN_ADAPTER, "lora", "adamw_decay");
    compared += check_adamw(models[m], TRAIN_ALL, "full",
                            "adamw"); /* with decay norms differ by design: they get none */
  }
  cr_assert_gt(compared, 0);
}
