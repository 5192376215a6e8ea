/* stint new: writes a model with random weights. */
#include "tools/commands.h"
#include "tools/options.h"
#include "tools/show.h"
#include "tools/terminal.h"

int new_main(const int argc, char **argv) {
  tool_options options;
  stint_error error = {0};
  const options_result parsed = options_parse(COMMAND_NEW, argc, argv, &options, &error);
  if (parsed == OPTIONS_DONE) return 0;
  if (parsed == OPTIONS_BAD) return fail(COMMAND_NEW, &error);
  if (stint_new_model(options.output, &options.made, &error) != STINT_OK) return fail(COMMAND_NEW, &error);

  stint_model *model;
  if (stint_model_open(options.output, &model, &error) != STINT_OK) return fail(COMMAND_NEW, &error);
  say("wrote ");
  show_model(model);
  stint_model_close(model);
  return 0;
}
