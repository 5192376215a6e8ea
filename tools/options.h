/* The command lines of every tool, from one table: a row for each option states its name, what it takes, its range,
 * the commands that know it and its help text. Parsing, range checks, --help and the suggestion after a misspelled
 * name all read that table; defaults are read from the library, so that they stand nowhere twice. */
#ifndef STINT_TOOLS_OPTIONS_H
#define STINT_TOOLS_OPTIONS_H

#include "engine/stint.h"

typedef enum command {
  COMMAND_MEMPLAN = 1 << 0,
  COMMAND_TRAIN = 1 << 1,
  COMMAND_EVAL = 1 << 2,
  COMMAND_SAMPLE = 1 << 3,
  COMMAND_NEW = 1 << 4,
} command;

enum { OPTIONS_FILES_MAX = 256 };

/* An option that may be given several times. */
typedef struct file_list {
  const char *paths[OPTIONS_FILES_MAX];
  int64_t n;
} file_list;

typedef struct tool_options {
  stint_options run;
  stint_sample_options sample;
  stint_new_options made;
  const char *model; /* the argument without a name; NULL for `new` */
  file_list data, valid;
  const char *output, *prompt;
  int64_t n_tokens;
  int purpose; /* stint_purpose */
  bool json;
  uint64_t given; /* bit i: row i of the table was given */
} tool_options;

/* What is left to do after options_parse. */
typedef enum options_result {
  OPTIONS_RUN,
  OPTIONS_DONE /* --help was printed */,
  OPTIONS_BAD
} options_result;

/* Parses argv[1..]; on OPTIONS_BAD one line in `error` says what is wrong. */
options_result options_parse(command which, int argc, char **argv, tool_options *out, stint_error *error);
bool options_given(const tool_options *options, command which, const char *name);
const char *command_name(command which); /* "stint train", "memplan" */
void options_help(command which);

/* The name among `names` (n of them) nearest to a misspelled one, or NULL when none is near. */
const char *nearest_name(const char *wrong, const char *const *names, int n);

#endif
