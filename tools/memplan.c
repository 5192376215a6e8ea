/* memplan: the plan of a run, from the model's header alone. */
#include <stddef.h>

#include "tools/options.h"
#include "tools/show.h"
#include "tools/terminal.h"

int main(int argc, char **argv) {
  tool_options options;
  stint_error error = {0};
  const options_result parsed = options_parse(COMMAND_MEMPLAN, argc, argv, &options, &error);
  if (parsed == OPTIONS_DONE) return 0;
  if (parsed == OPTIONS_BAD) return fail(COMMAND_MEMPLAN, &error);

  stint_model *model;
  if (stint_model_open(options.model, &model, &error) != STINT_OK) return fail(COMMAND_MEMPLAN, &error);
  stint_plan *plan;
  const stint_status status =
      stint_plan_make(model, &options.run, (stint_purpose)options.purpose, &plan, &error);
  if (plan != NULL && options.json) {
    show_plan_json(plan);
  } else if (plan != NULL) {
    show_model(model);
    if (options.purpose == STINT_TRAIN) show_run(&options, plan);
    say("\n");
    show_plan_table(plan);
  }
  int code = 0;
  if (status != STINT_OK) code = fail(COMMAND_MEMPLAN, &error);
  stint_plan_close(plan);
  stint_model_close(model);
  return code;
}
