/* One row at a time through the cache gives, bit for bit, the logits that a whole row gives; and tokens are drawn as their
 * probabilities say. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "engine/train/choose_token.h"
#include "engine/train/session.h"
#include "tests/engine/golden.h"

enum { CTX = 24, ROWS = 48 };

static stint_plan *plan_for(stint_model *const model, const stint_purpose purpose, const char *const adapter,
                            const int batch) {
  stint_error error = {0};
  stint_plan *plan;
  stint_options o;
  stint_options_default(&o);
  o.ctx = CTX, o.batch = batch, o.threads = 2, o.adapter = adapter;
  cr_assert_eq(stint_plan_make(model, &o, purpose, &plan, &error), STINT_OK, "%s", error.text);
  return plan;
}

/* The loss of each row of a whole forward against the loss worked out from the logits of the same rows, fed one by one: the
 * loss op's own arithmetic is followed (rule 3), so the two are equal to the last bit of the maximum and of the logit. */
static void compare(const char *const name, const bool adapted) {
  char path[1024], adapter_path[1024];
  golden_set golden;
  stint_error error = {0};
  stint_model *model;
  session whole, one;
  cr_assert(golden_open(name, &golden));
  cr_assert_eq(stint_model_open(golden_path(name, ".gguf", path, sizeof path), &model, &error), STINT_OK,
               "%s", error.text);
  const char *const adapter =
      adapted ? golden_path(name, ".adapter.gguf", adapter_path, sizeof adapter_path) : NULL;
  stint_plan *const whole_plan = plan_for(model, STINT_EVALUATE, adapter, 1), *const one_plan = plan_for(
                                                                                  model, STINT_SAMPLE,
                                                                                  adapter, 1);
  cr_assert_eq(session_open(whole_plan, &whole, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(session_open(one_plan, &one, &error), STINT_OK, "%s", error.text);
  const int32_t *const token = golden_find(&golden, "batch/token")->data;
  const int32_t n_vocab = (int32_t)model->n_vocab;
  const float *const logits = program_tensor(&one.main, one_plan->main.b.in.logits);
  for (int i = 0; i < CTX; i++) {
    whole.batch.token[i] = token[i], whole.batch.target[i] = token[(i * 7 + 3) % CTX],
    whole.batch.weight[i] = 1;
    whole.batch.position[i] = i, whole.batch.span[i] = 0, whole.batch.span[CTX + i] = i;
  }
  whole.step->loss_scale = 1;
  program_run(&whole.main, whole.workers, 0, whole.main.n_steps, NULL, NULL);
  for (int i = 0; i < CTX; i++) {
    one.batch.token[0] = token[i], one.batch.position[0] = i, one.batch.span[0] = 0, one.batch.span[1] = i;
    program_run(&one.main, one.workers, 0, one.main.n_steps, NULL, NULL);
    double best = -INFINITY, sum = 0;
    for (int v = 0; v < n_vocab; v++) best = fmax(best, (double)logits[v]);
    for (int v = 0; v < n_vocab; v++) sum += exp((double)logits[v] - best);
    const double loss = best + log(sum) - (double)logits[whole.batch.target[i]];
    /* a last-bit difference in one logit moves the loss by its ulp, 2.4e-7 of a value near 4; float32 rounding of the loss itself is as large */
    cr_expect(fabs(loss - (double)whole.loss[i]) < 4e-6, "%s row %d: %.9g one by one, %.9g whole", name, i,
              loss, (double)whole.loss[i]);
  }
  session_close(&whole);
  session_close(&one);
  stint_plan_close(whole_plan);
  stint_plan_close(one_plan);
  stint_model_close(model);
  golden_close(&golden);
}

Test(sampling, one_by_one_is_the_whole) {
  compare("untied", true);
  compare("tied", false);
  compare("mixed", true);
  compare("yarn", false);
}

Test(sampling, greedy_takes_the_first_of_the_largest) {
  const float logits[5] = {1, 3, 2, 3, -1};
  token_choice scratch[5];
  const stint_sample_options o = {.temperature = 0, .top_p = 1};
  cr_assert_eq(choose_token(logits, 5, &o, 0, scratch), 1);
  const float bad[2] = {1, NAN};
  cr_assert_eq(choose_token(bad, 2, &o, 0, scratch), -1);
}

/* 20,000 draws: a frequency's deviation is at most sqrt(p(1-p)/n) = 0.0035; 0.018 is five of them. */
Test(sampling, draws_follow_the_probabilities) {
  const float logits[4] = {0, 1, 2, 0.5f};
  token_choice scratch[4];
  enum { DRAWS = 20000 };
  static const stint_sample_options cases[] = {{1, 0, 1, 3}, {2, 0, 1, 3}, {1, 2, 1, 3}, {1, 0, 0.8, 3}};
  for (int c = 0; c < 4; c++) {
    double p[4], total = 0;
    int counts[4] = {0};
    for (int i = 0; i < 4; i++) total += p[i] = exp((double)logits[i] / cases[c].temperature);
    for (int i = 0; i < 4; i++) p[i] /= total;
    if (cases[c].top_k == 2) p[0] = p[3] = 0, p[1] /= 1, total = p[1] + p[2], p[1] /= total, p[2] /= total;
    if (cases[c].top_p < 1) { /* 2: .563, 1: .207 reach .77; 3 (.126) is needed too; 0 is cut */
      total = p[1] + p[2] + p[3];
      p[0] = 0, p[1] /= total, p[2] /= total, p[3] /= total;
    }
    for (int d = 0; d < DRAWS; d++) counts[choose_token(logits, 4, &cases[c], (uint64_t)d, scratch)]++;
    for (int i = 0; i < 4; i++)
      cr_expect(fabs((double)counts[i] / DRAWS - p[i]) < 0.018,
                "case %d token %d: %d draws, probability %.3f", c, i, counts[i], p[i]);
  }
}
