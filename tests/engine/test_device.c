/* Whole training steps on the emulated device: the bits of the CPU, one allocation of the planned size, none after
 * start-up. Models of the goldens: every weight type, tied and untied heads, adapters and full training, rotary scalings. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/exec/device_load.h"
#include "engine/train/session.h"
#include "tests/cuemu/cuemu_control.h"
#include "tests/engine/golden.h"

enum { ROWS = 48, STEPS = 2 };

typedef struct outcome {
  void *param, *grad;
  size_t bytes;
  float loss[ROWS], norm;
} outcome;

static void fill_batch(const session *const s, const golden_set *const golden) {
  const data_batch *const batch = &s->batch;
  memcpy(batch->token, golden_find(golden, "batch/token")->data, ROWS * sizeof(int32_t));
  memcpy(batch->target, golden_find(golden, "batch/target")->data, ROWS * sizeof(int32_t));
  memcpy(batch->position, golden_find(golden, "batch/position")->data, ROWS * sizeof(int32_t));
  memcpy(batch->span, golden_find(golden, "batch/span")->data, 2 * ROWS * sizeof(int32_t));
  const golden_array *const weight = golden_find(golden, "batch/weight");
  double sum = 0;
  for (int i = 0; i < ROWS; i++) sum += (double)(batch->weight[i] = (float)golden_f64(weight, i));
  s->step->loss_scale = (float)(1 / sum);
}

static void options_for(stint_options *const o, const char *const adapter, const stint_device where) {
  stint_options_default(o);
  o->ctx = 24, o->batch = 2, o->lr = 1e-2;
  o->adapter = adapter, o->full = adapter == NULL;
  o->device = where, o->device_memory_bytes = where == STINT_CUDA ? 64 << 20 : 0;
}

/* Takes the steps; leaves values, gradients, losses and norm in *out. */
static void train(stint_model *const model, const golden_set *const golden, const stint_options *const o,
                  outcome *const out) {
  stint_error error = {0};
  stint_plan *plan;
  session s;
  cr_assert_eq(stint_plan_make(model, o, STINT_TRAIN, &plan, &error), STINT_OK, "%s", error.text);
  const cuemu_counts before = cuemu_count();
  cr_assert_eq(session_open(plan, &s, &error), STINT_OK, "%s", error.text);
  const cuemu_counts started = cuemu_count();
  for (int step = 0; step < STEPS; step++) {
    fill_batch(&s, golden);
    s.step->step = (uint64_t)step, s.step->lr = (float)o->lr, s.step->clip = 1.0f;
    s.step->bias1 = 1.0f - (float)o->beta1, s.step->bias2 = 1.0f - (float)o->beta2;
    const schedule *const p = s.main.plan;
    session_run(&s, &s.main, 0, p->first_micro, NULL, NULL);
    session_run(&s, &s.main, p->first_micro, p->first_update, NULL, NULL);
    session_run(&s, &s.main, p->first_update, p->first_update + 1, NULL, NULL);
    session_run(&s, &s.main, p->first_update + 1, s.main.n_steps, NULL, NULL);
    cr_assert_eq(session_check(&s, &error), STINT_OK, "%s", error.text);
  }
  out->bytes = plan->main.g.home_bytes[HOME_PARAM];
  out->param = malloc(out->bytes), out->grad = malloc(out->bytes);
  memcpy(out->grad, session_region(&s, HOME_GRAD), out->bytes);
  memcpy(out->param, session_region(&s, HOME_PARAM), out->bytes);
  memcpy(out->loss, s.loss, sizeof out->loss);
  out->norm = s.step->grad_norm;
  if (o->device == STINT_CUDA) {
    const cuemu_counts ended = cuemu_count();
    cr_expect_eq(started.mallocs - before.mallocs, 1, "%d device allocations",
                 (int)(started.mallocs - before.mallocs));
    cr_expect_eq(started.bytes - before.bytes, plan->report.device_bytes, "%zu bytes taken, %llu planned",
                 started.bytes - before.bytes, (unsigned long long)plan->report.device_bytes);
    cr_expect_eq(started.pinned_bytes - before.pinned_bytes, plan->report.pinned_bytes);
    cr_expect_eq(ended.mallocs, started.mallocs, "an allocation after start-up");
    cr_expect_eq(ended.pinned_mallocs, started.pinned_mallocs, "a pinned allocation after start-up");
    cr_expect_gt(ended.launches, started.launches, "nothing ran");
    cr_expect_eq(cuemu_faults() + cuemu_misuses(), 0, "%s", cuemu_text());
  }
  session_close(&s);
  if (o->device == STINT_CUDA)
    cr_expect_eq(cuemu_count().live_allocations, 0, "something is left on the device");
  stint_plan_close(plan);
}

static void compare(const char *const name, const bool full, const unsigned seed) {
  char path[1024], adapter_path[1024];
  stint_error error = {0};
  stint_model *model;
  golden_set golden;
  stint_options o;
  outcome cpu, gpu;
  cr_assert(golden_open(name, &golden));
  cr_assert_eq(stint_model_open(golden_path(name, ".gguf", path, sizeof path), &model, &error), STINT_OK,
               "%s", error.text);
  const char *const adapter =
      full ? NULL : golden_path(name, ".adapter.gguf", adapter_path, sizeof adapter_path);
  options_for(&o, adapter, STINT_CPU);
  train(model, &golden, &o, &cpu);
  cuemu_seed(seed);
  options_for(&o, adapter, STINT_CUDA);
  train(model, &golden, &o, &gpu);
  cr_expect_eq(memcmp(cpu.loss, gpu.loss, sizeof cpu.loss), 0, "%s full %d seed %u: other losses", name, full,
               seed);
  cr_expect_eq(memcmp(&cpu.norm, &gpu.norm, sizeof cpu.norm), 0,
               "%s full %d seed %u: norm %.9g, on the CPU %.9g", name, full, seed, (double)gpu.norm,
               (double)cpu.norm);
  cr_expect_eq(memcmp(cpu.grad, gpu.grad, cpu.bytes), 0, "%s full %d seed %u: other gradients", name, full,
               seed);
  cr_expect_eq(memcmp(cpu.param, gpu.param, cpu.bytes), 0, "%s full %d seed %u: other values", name, full,
               seed);
  free(cpu.param), free(cpu.grad), free(gpu.param), free(gpu.grad);
  stint_model_close(model);
  golden_close(&golden);
}

static void use_emulation(void) { device_load_set(&stint_cuda_module); }
TestSuite(device, .init = use_emulation);

Test(device, adapters_have_the_bits_of_the_cpu) {
  compare("untied", false, 0);
  compare("tied", false, 1);
  compare("linear", false, 2);
  compare("yarn", false, 3);
  compare("freqs", false, 4);
}

Test(device, every_weight_type) {
  for (unsigned seed = 0; seed < 4; seed++) compare("mixed", false, seed);
}

Test(device, every_weight_trained) {
  compare("tied", true, 5);
  compare("untied", true, 6);
}

Test(device, a_device_that_is_too_small_is_refused) {
  char path[1024], adapter[1024];
  stint_error error = {0};
  stint_model *model;
  stint_plan *plan;
  session s;
  stint_options o;
  cr_assert_eq(stint_model_open(golden_path("untied", ".gguf", path, sizeof path), &model, &error), STINT_OK);
  options_for(&o, golden_path("untied", ".adapter.gguf", adapter, sizeof adapter), STINT_CUDA);
  cr_assert_eq(stint_plan_make(model, &o, STINT_TRAIN, &plan, &error), STINT_OK, "%s", error.text);
  cuemu_set_memory(plan->report.device_bytes - 1);
  cuemu_collect(true);
  const stint_status status = session_open(plan, &s, &error);
  cr_expect(status == STINT_DOES_NOT_FIT || status == STINT_NO_MEMORY, "%d: %s", status, error.text);
  stint_plan_close(plan);
  o.device_memory_bytes = 4096;
  cr_expect_eq(stint_plan_make(model, &o, STINT_TRAIN, &plan, &error), STINT_DOES_NOT_FIT);
  stint_plan_close(plan);
  stint_model_close(model);
}

static double distance(const float *const x, const float *const y, const size_t n) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < n; i++) {
    const double d = (double)x[i] - (double)y[i];
    difference += d * d;
    norm += (double)y[i] * (double)y[i];
  }
  return sqrt(difference / norm);
}

/* Fast numerics: TF32 keeps 11 bits of a factor, so a product is off by up to 2^-11 of its magnitudes. Measured on these models:
 * losses 5e-4, gradients 4e-3 of their norm; a gradient with a term missing is off by 0.1 and more. Twice the same bits. */
Test(device, fast_is_near_strict_and_repeats_itself) {
  static const char *const names[] = {"untied", "mixed", "tied"};
  for (int m = 0; m < 3; m++) {
    char path[1024], adapter[1024];
    stint_error error = {0};
    stint_model *model;
    golden_set golden;
    stint_options o;
    outcome strict, fast, again;
    cr_assert(golden_open(names[m], &golden));
    cr_assert_eq(stint_model_open(golden_path(names[m], ".gguf", path, sizeof path), &model, &error),
                 STINT_OK, "%s", error.text);
    options_for(&o, golden_path(names[m], ".adapter.gguf", adapter, sizeof adapter), STINT_CUDA);
    o.device_memory_bytes = 256 << 20; /* the library's workspace is 32 MiB */
    o.lr = 1e-30;                      /* both steps see the same values */
    train(model, &golden, &o, &strict);
    o.numerics = STINT_FAST;
    train(model, &golden, &o, &fast);
    cuemu_seed(9);
    train(model, &golden, &o, &again);
    const double loss = distance(fast.loss, strict.loss, ROWS),
                 grad = distance(fast.grad, strict.grad, strict.bytes / sizeof(float));
    cr_expect_lt(loss, 3e-3, "%s: losses off by %.3g", names[m], loss);
    cr_expect_lt(grad, 2e-2, "%s: gradients off by %.3g", names[m], grad);
    cr_expect_gt(grad, 0, "%s: fast ran the strict launches", names[m]);
    cr_expect_eq(memcmp(fast.grad, again.grad, fast.bytes), 0, "%s: a second fast run has other bits",
                 names[m]);
    if (getenv("STINT_MEASURE")) fprintf(stderr, "%s: losses %.3g, gradients %.3g\n", names[m], loss, grad);
    free(strict.param), free(strict.grad), free(fast.param), free(fast.grad), free(again.param),
        free(again.grad);
    stint_model_close(model);
    golden_close(&golden);
  }
}
