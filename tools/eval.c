/* stint eval: the mean loss a token of a model, with or without an adapter, on text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/commands.h"
#include "tools/options.h"
#include "tools/show.h"
#include "tools/terminal.h"

typedef struct scratch {
  char folder[1024], file[1100];
} scratch;

/* A folder of its own for the token file: no other process can have put a link where it will be written. */
static stint_status scratch_make(scratch *out, stint_error *error) {
  const char *const parent = getenv("TMPDIR");
  snprintf(out->folder, sizeof out->folder, "%s/stint-eval-XXXXXX",
           parent != NULL && parent[0] != '\0' ? parent : P_tmpdir);
  if (mkdtemp(out->folder) == NULL)
    return stint_fail(error, STINT_IO,
                      "%.512s: cannot make a folder for the tokens; set TMPDIR to one that can be written",
                      out->folder);
  snprintf(out->file, sizeof out->file, "%s/tokens", out->folder);
  return STINT_OK;
}

static void scratch_remove(const scratch *made) {
  unlink(made->file);
  rmdir(made->folder);
}

static void show_text(const tool_options *options, const stint_plan_report *report,
                      const stint_evaluation *result) {
  char tokens[HUMAN_BYTES], peak[HUMAN_BYTES];
  say("loss %.6f nats a token, perplexity %.4f, over %s tokens in %llu rows of %lld\n",
      result->loss_nats_per_token, result->perplexity, human_count(tokens, result->tokens),
      (unsigned long long)result->rows, (long long)row_tokens(options, report));
  say("%.1f tokens/s; peak %s (%llu bytes), arena planned %llu used %llu\n",
      result->seconds > 0 ? (double)result->tokens / result->seconds : 0.0,
      human_bytes(peak, report->peak_bytes), (unsigned long long)report->peak_bytes,
      (unsigned long long)report->arena_bytes, (unsigned long long)result->used_bytes);
}

static void show_json(const tool_options *options, const stint_plan_report *report,
                      const stint_evaluation *result) {
  say("{\"model\": ");
  show_json_string(options->model);
  say(", \"adapter\": ");
  if (options->run.adapter != NULL)
    show_json_string(options->run.adapter);
  else
    say("null");
  say(", \"data\": [");
  for (int64_t i = 0; i < options->data.n; i++) {
    if (i > 0) say(", ");
    show_json_string(options->data.paths[i]);
  }
  say("], \"ctx_tokens\": %lld, \"loss_nats_per_token\": %.9g, \"perplexity\": %.9g, \"tokens\": %llu, "
      "\"rows\": %llu, "
      "\"seconds\": %.6g, \"tokens_per_second\": %.6g, \"peak_bytes\": %llu, \"mapped_bytes\": %llu, "
      "\"arena_bytes\": %llu, "
      "\"used_bytes\": %llu}\n",
      (long long)row_tokens(options, report), result->loss_nats_per_token, result->perplexity,
      (unsigned long long)result->tokens, (unsigned long long)result->rows, result->seconds,
      result->seconds > 0 ? (double)result->tokens / result->seconds : 0.0,
      (unsigned long long)report->peak_bytes, (unsigned long long)report->mapped_bytes,
      (unsigned long long)report->arena_bytes, (unsigned long long)result->used_bytes);
}

static stint_status evaluate(stint_plan *plan, const tool_options *options, stint_error *error) {
  scratch made;
  STINT_TRY(scratch_make(&made, error));
  stint_evaluation result;
  const stint_status status =
      stint_evaluate(plan, options->data.paths, (size_t)options->data.n, made.file, &result, error);
  scratch_remove(&made);
  if (status != STINT_OK) return status;
  stint_plan_report report;
  stint_plan_describe(plan, &report);
  (options->json ? show_json : show_text)(options, &report, &result);
  return STINT_OK;
}

int eval_main(const int argc, char **argv) {
  tool_options options;
  stint_error error = {0};
  const options_result parsed = options_parse(COMMAND_EVAL, argc, argv, &options, &error);
  if (parsed == OPTIONS_DONE) return 0;
  if (parsed == OPTIONS_BAD) return fail(COMMAND_EVAL, &error);

  stint_model *model;
  stint_plan *plan = NULL;
  stint_status status = stint_model_open(options.model, &model, &error);
  if (status == STINT_OK) status = stint_plan_make(model, &options.run, STINT_EVALUATE, &plan, &error);
  if (status == STINT_OK) status = evaluate(plan, &options, &error);
  stint_plan_close(plan);
  stint_model_close(model);
  return status == STINT_OK ? 0 : fail(COMMAND_EVAL, &error);
}
