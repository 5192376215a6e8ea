/* Where the time of a training step goes: milliseconds and GFLOP/s by op, of one model and shape.
 *
 *   bench_step MODEL [CTX] [BATCH] [THREADS]       the best of five microbatches, each op summed over the schedule */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/machine.h"
#include "engine/train/session.h"

typedef struct profile {
  double last, seconds[OP_COUNT][3], flops[OP_COUNT][3];
} profile;

static void hook(void *const context, const program *const p, const int32_t step) {
  profile *const f = context;
  const graph_node *const n = &p->plan->g->nodes[step];
  const double now = machine_seconds();
  const int kind = n->pass == PASS_FORWARD ? 0 : n->recomputed ? 2 : 1;
  op_case c;
  graph_case(p->plan->g, n, &c);
  f->seconds[n->op][kind] += now - f->last;
  f->flops[n->op][kind] += op_flops(n->op, &c);
  f->last = machine_seconds();
}

int main(const int argc, char **const argv) {
  stint_error error = {0};
  stint_model *model;
  stint_plan *plan;
  session s;
  stint_options o;
  stint_options_default(&o);
  if (argc < 2) return fprintf(stderr, "usage: bench_step MODEL [CTX] [BATCH] [THREADS]\n"), 1;
  o.ctx = argc > 2 ? atoi(argv[2]) : 256, o.batch = argc > 3 ? atoi(argv[3]) : 1,
  o.threads = argc > 4 ? atoi(argv[4]) : 0;
  if (stint_model_open(argv[1], &model, &error) != STINT_OK ||
      stint_plan_make(model, &o, STINT_TRAIN, &plan, &error) != STINT_OK ||
      session_open(plan, &s, &error) != STINT_OK)
    return fprintf(stderr, "bench_step: %s\n", error.text), 1;
  const int64_t rows = plan->main.want.rows;
  for (int64_t i = 0; i < rows; i++) {
    s.batch.token[i] = s.batch.target[i] = (int32_t)(i * 7919 % model->n_vocab);
    s.batch.position[i] = (int32_t)(i % plan->options.ctx), s.batch.weight[i] = 1;
    s.batch.span[i] = (int32_t)(i - i % plan->options.ctx), s.batch.span[rows + i] = (int32_t)i;
  }
  s.step->loss_scale = 1.0f / (float)rows;
  static profile best;
  double best_total = 1e300;
  for (int round = 0; round < 5; round++) {
    static profile f;
    memset(&f, 0, sizeof f);
    const double start = f.last = machine_seconds();
    program_run(&s.main, s.workers, 0, s.main.plan->first_update, hook, &f);
    const double total = machine_seconds() - start;
    if (total < best_total) best_total = total, best = f;
  }
  static const char *const kinds[] = {"forward", "backward", "recompute"};
  printf("%.1f ms a microbatch of %lld rows, %.0f tokens/s\n", best_total * 1e3, (long long)rows,
         (double)rows / best_total);
  for (int op = 0; op < OP_COUNT; op++)
    for (int k = 0; k < 3; k++)
      if (best.seconds[op][k] > 0)
        printf("%-22s %-9s %8.2f ms  %5.1f %%  %7.1f GFLOP/s\n", op_table[op]->name, kinds[k],
               best.seconds[op][k] * 1e3, 100 * best.seconds[op][k] / best_total,
               best.flops[op][k] / best.seconds[op][k] * 1e-9);
  session_close(&s);
  stint_plan_close(plan);
  stint_model_close(model);
  return 0;
}
