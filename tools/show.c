/* What several tools print: see show.h. Figures come from the library; nothing is computed here but sums of columns and
 * the counting of equal rows. */
#include "tools/show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/terminal.h"

enum { PEAK_TENSORS_SHOWN = 10, TARGET_KINDS_MAX = 64 };

int fail(const command which, const stint_error *error) {
  char text[STINT_ERROR_TEXT_BYTES];
  snprintf(text, sizeof text, "%s", error->text);
  for (char *c = text; *c != '\0'; c++)
    if ((unsigned char)*c < ' ' || *c == 127)
      *c = '?'; /* a file's name may hold a newline: an error is one line */
  complain("%s: %s\n", command_name(which), text);
  return stint_status_exit_code(error->status);
}

static const char *last_part(const char *path) {
  const char *const slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

void show_model(const stint_model *model) {
  stint_model_info info;
  stint_model_describe(model, &info);
  char count[HUMAN_BYTES], size[HUMAN_BYTES];
  say("%s: %s, %lld layers, %lld wide, vocabulary %lld, %s parameters (%s), %s%s\n", last_part(info.path),
      info.architecture, (long long)info.n_layers, (long long)info.n_embd, (long long)info.n_vocab,
      human_count(count, (uint64_t)info.n_params), info.weight_types, human_bytes(size, info.file_bytes),
      info.header_only ? "; header without data" : "");
}

int64_t row_tokens(const tool_options *options, const stint_plan_report *report) {
  return options->run.ctx > 0 ? options->run.ctx
                              : report->tokens_per_step / (options->run.batch * options->run.accum);
}

/* An adapter trains rank x (inputs + outputs) of each of its tensors. */
static int64_t rank_of(const stint_plan *plan) {
  const char *name;
  int64_t n_in, n_out, n_trained;
  if (!stint_plan_target(plan, 0, &name, &n_in, &n_out, &n_trained) || n_in + n_out <= 0) return 0;
  return n_trained / (n_in + n_out);
}

void show_run(const tool_options *options, const stint_plan *plan) {
  const stint_options *const run = &options->run;
  stint_plan_report report;
  stint_plan_describe(plan, &report);
  char count[HUMAN_BYTES], tokens[HUMAN_BYTES];
  say("one step: %lld x %lld rows of %lld tokens (%s); ", (long long)run->accum, (long long)run->batch,
      (long long)row_tokens(options, &report), human_count(tokens, (uint64_t)report.tokens_per_step));
  if (run->full)
    say("every weight");
  else
    say("LoRA of rank %lld on %lld tensors", (long long)rank_of(plan), (long long)report.n_targets);
  say(", %s trained parameters, %s\n", human_count(count, (uint64_t)report.n_trainable),
      run->optimizer == STINT_SGD ? "SGD" : "AdamW");
}

typedef struct target_kind {
  const char *name; /* without its layer */
  int64_t n_in, n_out, n_trained, count;
} target_kind;

/* "blk.12.attn_q.weight" -> "attn_q.weight" */
static const char *without_layer(const char *name) {
  if (strncmp(name, "blk.", 4) != 0) return name;
  const char *const dot = strchr(name + 4, '.');
  return dot != NULL ? dot + 1 : name;
}

void show_targets(const stint_plan *plan) {
  target_kind kinds[TARGET_KINDS_MAX];
  int n_kinds = 0;
  int64_t left_out = 0;
  target_kind next = {.count = 1};
  for (int64_t i = 0; stint_plan_target(plan, i, &next.name, &next.n_in, &next.n_out, &next.n_trained); i++) {
    next.name = without_layer(next.name);
    int k = 0;
    while (k < n_kinds && !(strcmp(kinds[k].name, next.name) == 0 && kinds[k].n_in == next.n_in &&
                            kinds[k].n_out == next.n_out && kinds[k].n_trained == next.n_trained))
      k++;
    if (k < n_kinds)
      kinds[k].count++;
    else if (n_kinds < TARGET_KINDS_MAX)
      kinds[n_kinds++] = next;
    else
      left_out++;
  }
  say("trained tensors:\n");
  char each[HUMAN_BYTES];
  for (int k = 0; k < n_kinds; k++)
    say("  %-24s x %-4lld %6lld -> %-6lld  %s trained parameters each\n", kinds[k].name,
        (long long)kinds[k].count, (long long)kinds[k].n_in, (long long)kinds[k].n_out,
        human_count(each, (uint64_t)kinds[k].n_trained));
  if (left_out > 0) say("  and %lld more\n", (long long)left_out);
}

static void show_fit(const stint_plan_report *report) {
  char budget[HUMAN_BYTES], gap[HUMAN_BYTES];
  const uint64_t by =
      report->fits ? report->budget_bytes - report->peak_bytes : report->peak_bytes - report->budget_bytes;
  say("budget: %s, %s\n", human_bytes(budget, report->budget_bytes), report->fits ? "fits" : "does not fit");
  say("        %s %s\n", human_bytes(gap, by), report->fits ? "to spare" : "too much");
}

void show_plan_short(const stint_plan *plan) {
  stint_plan_report report;
  stint_plan_describe(plan, &report);
  char peak[HUMAN_BYTES], exact[HUMAN_BYTES], mapped[HUMAN_BYTES], arena[HUMAN_BYTES], planning[HUMAN_BYTES],
      pinned[HUMAN_BYTES];
  if (report.device_bytes > 0)
    say("device memory: %s (%s bytes), one allocation; on the host: %s of the model, mapped, %s pinned, %s "
        "arena, %s planning\n",
        human_bytes(peak, report.device_bytes), human_count(exact, report.device_bytes),
        human_bytes(mapped, report.mapped_bytes), human_bytes(pinned, report.pinned_bytes),
        human_bytes(arena, report.arena_bytes), human_bytes(planning, report.planning_bytes));
  else
    say("memory: %s (%s bytes) = %s of the model, mapped + %s arena + %s planning\n",
        human_bytes(peak, report.peak_bytes), human_count(exact, report.peak_bytes),
        human_bytes(mapped, report.mapped_bytes), human_bytes(arena, report.arena_bytes),
        human_bytes(planning, report.planning_bytes));
  say("plan: %s; %s operations a step\n", report.choice, human_flops(peak, report.flops_per_step));
}

static void show_categories(const stint_plan_report *report) {
  char exact[HUMAN_BYTES], human[HUMAN_BYTES], shared[HUMAN_BYTES];
  say("%-14s %16s %12s  %s\n", "category", "bytes", "", "of these, on the bytes of the step");
  for (int c = 0; c < STINT_CATEGORIES; c++)
    say("%-14s %16s %12s  %s\n", stint_category_name((stint_category)c), human_count(exact, report->bytes[c]),
        human_bytes(human, report->bytes[c]),
        report->overlaid_bytes[c] > 0 ? human_count(shared, report->overlaid_bytes[c]) : "");
  say("%-14s %16s %12s%s\n", "peak", human_count(exact, report->peak_bytes),
      human_bytes(human, report->peak_bytes),
      report->device_bytes > 0 ? "  on the device; on the host:" : "");
  if (report->device_bytes > 0)
    say("  %-12s %16s %12s\n", "pinned", human_count(exact, report->pinned_bytes),
        human_bytes(human, report->pinned_bytes));
  say("  %-12s %16s %12s\n", "mapped", human_count(exact, report->mapped_bytes),
      human_bytes(human, report->mapped_bytes));
  say("  %-12s %16s %12s\n", "arena", human_count(exact, report->arena_bytes),
      human_bytes(human, report->arena_bytes));
  say("  %-12s %16s %12s\n", "planning", human_count(exact, report->planning_bytes),
      human_bytes(human, report->planning_bytes));
}

static void show_peak(const stint_plan *plan, const stint_plan_report *report) {
  char size[HUMAN_BYTES];
  say("\nthe step's peak is at step %lld of %lld, %s; %lld tensors are alive, the largest:\n",
      (long long)report->peak_step, (long long)report->n_steps, report->peak_step_name,
      (long long)report->n_tensors_at_peak);
  stint_plan_tensor tensor;
  for (int64_t i = 0; i < PEAK_TENSORS_SHOWN && stint_plan_peak_tensor(plan, i, &tensor); i++)
    say("  %16s  %-12s alive in %lld..%lld  %s\n", human_count(size, tensor.bytes),
        stint_category_name(tensor.category), (long long)tensor.born, (long long)tensor.dies, tensor.name);
}

void show_plan_table(const stint_plan *plan) {
  stint_plan_report report;
  stint_plan_describe(plan, &report);
  show_categories(&report);
  show_peak(plan, &report);
  char size[HUMAN_BYTES], bound[HUMAN_BYTES];
  const double gap = report.lower_bound_bytes > 0
                         ? 100.0 * ((double)report.packed_bytes - (double)report.lower_bound_bytes) /
                               (double)report.lower_bound_bytes
                         : 0;
  say("\npacking: %s bytes for what lives in a step; at least %s live at once; gap %.3f %%%s\n",
      human_count(size, report.packed_bytes), human_count(bound, report.lower_bound_bytes), gap,
      report.packing_optimal ? ", optimal" : "");
  say("choice: %s\n", report.choice);
  say("operations: %sFLOP a step of %s tokens\n", human_flops(size, report.flops_per_step),
      human_count(bound, (uint64_t)report.tokens_per_step));
  show_fit(&report);
}

void show_plan_json(const stint_plan *plan) {
  const size_t n = stint_plan_json(plan, NULL, 0);
  char *const text = malloc(n + 1);
  if (text == NULL) {
    complain("no memory for %zu bytes of JSON\n", n);
    return;
  }
  stint_plan_json(plan, text, n + 1);
  say_bytes(text, n);
  if (n == 0 || text[n - 1] != '\n') say("\n");
  free(text);
}

void show_json_string(const char *text) {
  say("\"");
  for (; *text != '\0'; text++) {
    const unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\')
      say("\\%c", c);
    else if (c < ' ')
      say("\\u%04x", c);
    else
      say("%c", c);
  }
  say("\"");
}
