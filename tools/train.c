/* stint train: opens, plans, shows what will be done, trains, says what was saved.
 *
 * Between the first step and the last nothing here allocates: the progress line goes through terminal.h. The first
 * Ctrl-C (or SIGTERM) lets the step finish and the run save; the second kills. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/commands.h"
#include "tools/options.h"
#include "tools/show.h"
#include "tools/terminal.h"

static volatile sig_atomic_t stop_asked;

static void on_stop(int number) {
  (void)number;
  static const char text[] = "\nstopping after this step, then saving; once more kills the run\n";
  stop_asked = 1;
  const ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
  (void)ignored;
}

static void catch_stops(void) {
  struct sigaction action = {.sa_handler = on_stop, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

typedef struct watch {
  progress line;
  stint_step_info first, last;
} watch;

static bool on_step(void *context, const stint_step_info *info) {
  watch *const seen = context;
  if (seen->last.step == 0) seen->first = *info;
  seen->last = *info;
  progress_step(&seen->line, info);
  return stop_asked == 0;
}

/* The command line, for the manifest; cut when it is very long. */
static void join(char *out, const size_t room, const int argc, char **argv) {
  size_t used = (size_t)snprintf(out, room, "stint");
  for (int i = 0; i < argc && used < room; i++)
    used += (size_t)snprintf(out + used, room - used, " %s", argv[i]);
}

static stint_status held_out(stint_run *run, const char *when, double *loss, stint_error *error) {
  const stint_status status = stint_run_evaluate(run, loss, error);
  if (status == STINT_OK)
    say("held-out loss %s: %.4f nats a token (perplexity %.2f)\n", when, *loss, exp(*loss));
  return status;
}

static void show_end(const tool_options *options, const watch *seen, const double before,
                     const double after) {
  char used[HUMAN_BYTES], planned[HUMAN_BYTES];
  const stint_step_info *const last = &seen->last;
  if (!isnan(before) && !isnan(after)) say("held-out loss: %.4f -> %.4f nats a token\n", before, after);
  say("planned %s bytes of arena, used %s; state %016llx after step %lld\n",
      human_count(planned, last->planned_bytes), human_count(used, last->used_bytes),
      (unsigned long long)last->checksum, (long long)last->step);
  const char *const dir = options->output;
  if (options->run.full) {
    say("saved %s/model.gguf, and checked it\n", dir);
    say("try it: stint sample %s/model.gguf --prompt \"Once\"\n", dir);
  } else {
    say("saved %s/adapter.gguf, and checked it\n", dir);
    say("try it: stint sample %s --adapter %s/adapter.gguf --prompt \"Once\"\n", options->model, dir);
  }
  say("the record: %s/log.csv, log.jsonl, plan.json, manifest.json\n", dir);
}

static stint_status train(stint_run *run, const tool_options *options, stint_error *error) {
  char tokens[HUMAN_BYTES], flops[HUMAN_BYTES];
  stint_run_info info;
  stint_run_describe(run, &info);
  say("data: %s tokens to predict in %llu rows", human_count(tokens, info.train_tokens),
      (unsigned long long)info.train_rows);
  if (options->valid.n > 0)
    say("; held out: %s in %llu", human_count(tokens, info.valid_tokens),
        (unsigned long long)info.valid_rows);
  say("; %lld steps\n", (long long)info.steps);
  if (info.peak_flops > 0) say("machine: %sFLOP/s at most\n", human_flops(flops, info.peak_flops));

  double before = NAN, after = NAN;
  if (options->valid.n > 0) STINT_TRY(held_out(run, "before", &before, error));

  watch seen = {.line = progress_start(info.steps)};
  catch_stops();
  const stint_status status = stint_run_train(run, on_step, &seen, error);
  progress_end(&seen.line);
  if (status != STINT_OK) return status;
  stint_run_describe(run, &info);
  if (info.n_without_gradient > 0)
    say("warning: %lld trained tensors got no gradient in step 2, the first of them %s\n",
        (long long)info.n_without_gradient, info.first_without_gradient);
  if (stop_asked)
    say("stopped after step %lld of %lld, as asked\n", (long long)seen.last.step, (long long)info.steps);
  if (options->valid.n > 0) {
    after = seen.last.valid_loss_nats_per_token;
    if (isnan(after)) STINT_TRY(held_out(run, "after", &after, error));
  }
  show_end(options, &seen, before, after);
  return STINT_OK;
}

static stint_status plan_and_train(stint_model *model, const tool_options *options, const char *command_line,
                                   stint_error *error) {
  stint_plan *plan;
  stint_status status = stint_plan_make(model, &options->run, STINT_TRAIN, &plan, error);
  if (status == STINT_OK) {
    show_model(model);
    show_run(options, plan);
    show_targets(plan);
    show_plan_short(plan);
    const stint_files files = {.data = options->data.paths,
                               .n_data = (size_t)options->data.n,
                               .valid = options->valid.paths,
                               .n_valid = (size_t)options->valid.n,
                               .directory = options->output,
                               .command = command_line};
    stint_run *run;
    status = stint_run_open(plan, &files, &run, error);
    if (status == STINT_OK) status = train(run, options, error);
    stint_run_close(run);
  }
  stint_plan_close(plan);
  return status;
}

int train_main(const int argc, char **argv) {
  tool_options options;
  stint_error error = {0};
  const options_result parsed = options_parse(COMMAND_TRAIN, argc, argv, &options, &error);
  if (parsed == OPTIONS_DONE) return 0;
  if (parsed == OPTIONS_BAD) return fail(COMMAND_TRAIN, &error);
  signal(SIGPIPE, SIG_IGN); /* a reader that leaves (`| head`) does not end a run */
  char command_line[4096];
  join(command_line, sizeof command_line, argc, argv);

  stint_model *model;
  stint_status status = stint_model_open(options.model, &model, &error);
  if (status == STINT_OK) status = plan_and_train(model, &options, command_line, &error);
  stint_model_close(model);
  return status == STINT_OK ? 0 : fail(COMMAND_TRAIN, &error);
}
