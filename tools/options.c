/* Parsing and help over the option table: see options.h. */
#include "tools/options.h"

#include <stdio.h>
#include <string.h>

#include "tools/option_table.h"
#include "tools/terminal.h"

static const char *const group_titles[GROUPS] = {"files", "shape",   "what is trained",
                                                 "how",   "machine", "output"};

const char *command_name(const command which) {
  for (int i = 0; i < n_command_texts; i++)
    if (command_texts[i].which == which) return command_texts[i].name;
  return "stint";
}

/* ---- names ---- */

/* Edits (insert, delete, replace, swap of neighbours) from a to b; optimal string alignment, rolling three rows. */
static int edits(const char *a, const char *b) {
  enum { LONGEST = 64 };
  const size_t n = strlen(a), m = strlen(b);
  if (n >= LONGEST || m >= LONGEST) return LONGEST;
  int rows[3][LONGEST];
  for (size_t j = 0; j <= m; j++) rows[0][j] = (int)j;
  for (size_t i = 1; i <= n; i++) {
    int *const now = rows[i % 3];
    const int *const last = rows[(i + 2) % 3], *const before = rows[(i + 1) % 3];
    now[0] = (int)i;
    for (size_t j = 1; j <= m; j++) {
      int best = last[j - 1] + (a[i - 1] != b[j - 1]);
      if (last[j] + 1 < best) best = last[j] + 1;
      if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
        best = before[j - 2] + 1;
      now[j] = best;
    }
  }
  return rows[n % 3][m];
}

const char *nearest_name(const char *wrong, const char *const *names, const int n) {
  const char *nearest = NULL;
  int best = 3; /* three edits are another word */
  for (int i = 0; i < n; i++) {
    const bool begins = strlen(wrong) >= 4 && strncmp(wrong, names[i], strlen(wrong)) == 0;
    const int distance = begins ? 1 : edits(wrong, names[i]);
    if (distance < best && (size_t)distance < strlen(names[i])) {
      best = distance;
      nearest = names[i];
    }
  }
  return nearest;
}

static int find_row(const unsigned which, const char *text, const size_t n) {
  for (int i = 0; i < n_option_rows; i++)
    if ((option_table[i].commands & which) != 0 && option_name_is(option_table[i].name, text, n)) return i;
  return -1;
}

static stint_status unknown_option(const command which, const char *text, const size_t n,
                                   stint_error *error) {
  char wrong[64];
  snprintf(wrong, sizeof wrong, "%.*s", (int)(n < 63 ? n : 63), text);
  const int elsewhere = find_row(~0u, text, n);
  if (elsewhere >= 0)
    for (int i = 0; i < n_command_texts; i++)
      if ((option_table[elsewhere].commands & command_texts[i].which) != 0)
        return stint_fail(error, STINT_BAD_INPUT, "%s is an option of `%s`, not of `%s`", wrong,
                          command_texts[i].name, command_name(which));
  const char *names[OPTION_ROWS_MAX + 1];
  int n_names = 0;
  for (int i = 0; i < n_option_rows; i++)
    if ((option_table[i].commands & (unsigned)which) != 0) names[n_names++] = option_table[i].name;
  names[n_names++] = "--help";
  const char *const nearest = nearest_name(wrong, names, n_names);
  if (nearest != NULL)
    return stint_fail(error, STINT_BAD_INPUT, "unknown option %s; did you mean %s?", wrong, nearest);
  return stint_fail(error, STINT_BAD_INPUT, "unknown option %s; `%s --help` lists them", wrong,
                    command_name(which));
}

static void help_row(const option *row, const tool_options *defaults) {
  char left[64], range[OPTION_TEXT_BYTES], standard[OPTION_TEXT_BYTES];
  snprintf(left, sizeof left, "%s%s%s", row->name, row->argument != NULL ? " " : "",
           row->argument != NULL ? row->argument : "");
  option_show_range(row, range);
  option_show(row, defaults, standard);
  say("  %-22s %s", left, row->help);
  if (range[0] != '\0' || standard[0] != '\0')
    say(" (%s%s%s%s)", range, range[0] != '\0' && standard[0] != '\0' ? "; " : "",
        standard[0] != '\0' ? "default " : "", standard);
  say("\n");
}

void options_help(const command which) {
  tool_options defaults;
  option_defaults(&defaults);
  for (int i = 0; i < n_command_texts; i++)
    if (command_texts[i].which == which)
      say("usage: %s %s\n\n%s\n", command_texts[i].name, command_texts[i].arguments, command_texts[i].what);
  for (int g = 0; g < GROUPS; g++) {
    bool titled = false;
    for (int i = 0; i < n_option_rows; i++)
      if ((int)option_table[i].group == g && (option_table[i].commands & (unsigned)which) != 0) {
        if (!titled) say("\n%s\n", group_titles[g]);
        titled = true;
        help_row(&option_table[i], &defaults);
      }
  }
  say("\n  %-22s this text\n  %-22s the version of stint\n\nA value may also follow an equal sign: "
      "--ctx=256.\n",
      "--help", "--version");
}

/* ---- parsing ---- */

bool options_given(const tool_options *options, const command which, const char *name) {
  const int row = find_row((unsigned)which, name, strlen(name));
  return row >= 0 && ((options->given >> row & 1)) != 0;
}

/* Options that contradict each other: one of them would be read and then ignored. */
static stint_status check_pairs(const command which, tool_options *out, stint_error *error) {
  static const char *const adapter_only[] = {"--adapter", "--rank", "--alpha", "--dropout", "--targets"};
  static const char *const adamw_only[] = {"--beta1", "--beta2", "--epsilon"};
  if (out->run.full)
    for (size_t i = 0; i < sizeof adapter_only / sizeof adapter_only[0]; i++)
      if (options_given(out, which, adapter_only[i]))
        return stint_fail(error, STINT_BAD_INPUT,
                          "%s belongs to an adapter, and --full trains none; leave one out", adapter_only[i]);
  if (out->run.optimizer == STINT_SGD)
    for (size_t i = 0; i < sizeof adamw_only / sizeof adamw_only[0]; i++)
      if (options_given(out, which, adamw_only[i]))
        return stint_fail(error, STINT_BAD_INPUT,
                          "%s belongs to AdamW, and the optimizer is SGD; leave one out", adamw_only[i]);
  if (out->run.optimizer == STINT_ADAMW && options_given(out, which, "--momentum"))
    return stint_fail(error, STINT_BAD_INPUT,
                      "--momentum belongs to SGD (AdamW has --beta1); add --optimizer sgd");
  if (which == COMMAND_TRAIN) {
    if (options_given(out, which, "--steps") && options_given(out, which, "--epochs"))
      return stint_fail(error, STINT_BAD_INPUT, "--steps and --epochs both say how long to train; give one");
    if (options_given(out, which, "--epochs")) out->run.steps = 0;
    if (options_given(out, which, "--eval-every") && out->valid.n == 0)
      return stint_fail(error, STINT_BAD_INPUT, "--eval-every needs held-out text: --valid FILE");
    if (out->output == NULL)
      return stint_fail(error, STINT_BAD_INPUT, "where should the run go? Give -o DIR");
  }
  if ((which == COMMAND_TRAIN || which == COMMAND_EVAL) && out->data.n == 0)
    return stint_fail(error, STINT_BAD_INPUT, "which text? Give --data FILE");
  if (which == COMMAND_NEW && out->output == NULL)
    return stint_fail(error, STINT_BAD_INPUT, "where should the model go? Give -o FILE");
  return STINT_OK;
}

static stint_status parse_option(const command which, const int argc, char **argv, int *i, tool_options *out,
                                 stint_error *error) {
  const char *const text = argv[*i];
  const size_t n = strcspn(text, "=");
  const char *value = text[n] == '=' ? text + n + 1 : NULL;
  int row = find_row((unsigned)which, text, n);
  bool cleared = false;
  if (row < 0 && strncmp(text, "--no-", 5) == 0) {
    char name[64];
    snprintf(name, sizeof name, "--%.*s", (int)(n - 5 < 61 ? n - 5 : 61), text + 5);
    row = find_row((unsigned)which, name, strlen(name));
    if (row >= 0 && option_table[row].kind != KIND_FLAG) row = -1;
    cleared = true;
  }
  if (row < 0) return unknown_option(which, text, n, error);
  const option *const found = &option_table[row];
  if (found->kind != KIND_FILES && (out->given >> row & 1) != 0)
    return stint_fail(error, STINT_BAD_INPUT, "%s is given twice", found->name);
  out->given |= 1ull << row;
  if (found->kind == KIND_FLAG) {
    if (value != NULL) return stint_fail(error, STINT_BAD_INPUT, "%s takes no value", found->name);
    *(bool *)((char *)out + found->at) = !cleared;
    return STINT_OK;
  }
  if (value == NULL) {
    if (*i + 1 >= argc)
      return stint_fail(error, STINT_BAD_INPUT, "%s needs a value: %s %s", found->name, found->name,
                        found->argument);
    value = argv[++*i];
  }
  return option_set(found, value, out, error);
}

options_result options_parse(const command which, const int argc, char **argv, tool_options *out,
                             stint_error *error) {
  option_defaults(out);
  bool named_only_before = true; /* until "--" */
  for (int i = 1; i < argc; i++) {
    const char *const text = argv[i];
    if (named_only_before && strcmp(text, "--") == 0) {
      named_only_before = false;
    } else if (named_only_before && (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0)) {
      options_help(which);
      return OPTIONS_DONE;
    } else if (named_only_before && strcmp(text, "--version") == 0) {
      say("stint %s\n", stint_version());
      return OPTIONS_DONE;
    } else if (named_only_before && text[0] == '-' && text[1] != '\0') {
      if (parse_option(which, argc, argv, &i, out, error) != STINT_OK) return OPTIONS_BAD;
    } else if (which == COMMAND_NEW) {
      stint_fail(error, STINT_BAD_INPUT, "unexpected argument \"%.64s\"; the model file is named by -o",
                 text);
      return OPTIONS_BAD;
    } else if (out->model != NULL) {
      stint_fail(error, STINT_BAD_INPUT, "unexpected argument \"%.64s\" after the model \"%.64s\"", text,
                 out->model);
      return OPTIONS_BAD;
    } else {
      out->model = text;
    }
  }
  if (which != COMMAND_NEW && out->model == NULL) {
    stint_fail(error, STINT_BAD_INPUT, "which model? Name a GGUF file; `%s --help` says more",
               command_name(which));
    return OPTIONS_BAD;
  }
  return check_pairs(which, out, error) == STINT_OK ? OPTIONS_RUN : OPTIONS_BAD;
}
