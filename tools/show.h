/* The texts that several tools print: a model in a line, a plan as a table or in a few lines, the adapted tensors
 * by kind. */
#ifndef STINT_TOOLS_SHOW_H
#define STINT_TOOLS_SHOW_H

#include "tools/options.h"

/* `<command>: <text>` on standard error; returns the tool's exit code. */
int fail(command which, const stint_error *error);

void show_model(const stint_model *model);
int64_t row_tokens(const tool_options *options,
                   const stint_plan_report *report);                /* ctx, also when not given */
void show_run(const tool_options *options, const stint_plan *plan); /* what will be done, in a line */
void show_targets(const stint_plan *plan);
void show_plan_short(const stint_plan *plan);
void show_plan_table(const stint_plan *plan);
void show_plan_json(const stint_plan *plan);
void show_json_string(const char *text); /* quoted and escaped */

#endif
