/* stint sample: goes on from a prompt, token by token. */
#include <stdlib.h>
#include <string.h>

#include "tools/commands.h"
#include "tools/options.h"
#include "tools/show.h"
#include "tools/terminal.h"

enum { TOKEN_TEXT_BYTES = 1024, SPECIAL_TOKENS = 2 };

static stint_status write_text(stint_sampler *sampler, const tool_options *options, stint_error *error) {
  const char *const prompt = options->prompt;
  STINT_TRY(stint_sampler_prompt(sampler, prompt, strlen(prompt), error));
  say_bytes(prompt, strlen(prompt));
  bool end = false;
  for (int64_t i = 0; i < options->n_tokens && !end; i++) {
    char text[TOKEN_TEXT_BYTES];
    size_t n = 0;
    STINT_TRY(stint_sampler_next(sampler, text, sizeof text, &n, &end, error));
    say_bytes(text, n);
  }
  say("\n");
  return STINT_OK;
}

/* Without --ctx: room for the tokens asked for and for the prompt, which has at most a token a byte. */
static void choose_context(const stint_model *model, tool_options *options) {
  if (options_given(options, COMMAND_SAMPLE, "--ctx")) return;
  stint_model_info info;
  stint_model_describe(model, &info);
  int64_t ctx = options->n_tokens + (int64_t)strlen(options->prompt) + SPECIAL_TOKENS;
  if (info.ctx_trained > 0 && ctx > info.ctx_trained) ctx = info.ctx_trained;
  options->run.ctx = ctx;
}

int sample_main(const int argc, char **argv) {
  tool_options options;
  stint_error error = {0};
  const options_result parsed = options_parse(COMMAND_SAMPLE, argc, argv, &options, &error);
  if (parsed == OPTIONS_DONE) return 0;
  if (parsed == OPTIONS_BAD) return fail(COMMAND_SAMPLE, &error);

  stint_model *model;
  stint_plan *plan = NULL;
  stint_sampler *sampler = NULL;
  stint_status status = stint_model_open(options.model, &model, &error);
  if (status == STINT_OK) {
    choose_context(model, &options);
    status = stint_plan_make(model, &options.run, STINT_SAMPLE, &plan, &error);
  }
  if (status == STINT_OK) status = stint_sampler_open(plan, &options.sample, &sampler, &error);
  if (status == STINT_OK) status = write_text(sampler, &options, &error);
  stint_sampler_close(sampler);
  stint_plan_close(plan);
  stint_model_close(model);
  return status == STINT_OK ? 0 : fail(COMMAND_SAMPLE, &error);
}
