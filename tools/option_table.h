/* The rows of the option table and how a row's value is read and written; private to options.c. */
#ifndef STINT_TOOLS_OPTION_TABLE_H
#define STINT_TOOLS_OPTION_TABLE_H

#include "tools/options.h"

typedef enum kind {
  KIND_FLAG,    /* bool; --no-NAME clears it */
  KIND_INT,     /* int64_t */
  KIND_THREADS, /* int */
  KIND_SEED,    /* uint64_t */
  KIND_REAL,    /* double */
  KIND_BYTES,   /* uint64_t; 6GiB, 512MiB, 100000 */
  KIND_TEXT,    /* const char * */
  KIND_FILES,   /* file_list; may be repeated */
  KIND_CHOICE,  /* int; one of `choices`, the index is the value */
  KIND_PATHS,   /* unsigned: the vector paths of the processor */
} kind;

typedef enum group {
  GROUP_FILES,
  GROUP_SHAPE,
  GROUP_WHAT,
  GROUP_HOW,
  GROUP_MACHINE,
  GROUP_OUTPUT,
  GROUPS
} group;

typedef struct option {
  const char *name; /* with its dashes */
  kind kind;
  group group;
  const char *argument; /* as --help shows it; NULL for a flag */
  const char *choices;  /* "a|b|c" */
  double low, high;     /* the range, ends included; above_low: the low end is not */
  bool above_low;
  unsigned commands;
  size_t at; /* in tool_options */
  const char *help;
} option;

extern const option option_table[];
extern const int n_option_rows;

typedef struct command_text {
  command which;
  const char *name, *arguments, *what;
} command_text;

extern const command_text command_texts[];
extern const int n_command_texts;

enum { OPTION_ROWS_MAX = 64, OPTION_TEXT_BYTES = 96 };

bool option_name_is(const char *name, const char *text, size_t n); /* text: n bytes, no NUL */
void option_defaults(tool_options *out);
/* Reads `value` into the row's member of `out`, or says what the option takes. */
stint_status option_set(const option *row, const char *value, tool_options *out, stint_error *error);
/* The row's value as --help shows it; empty where there is nothing to say. */
void option_show(const option *row, const tool_options *from, char out[OPTION_TEXT_BYTES]);
/* The row's range, likewise. */
void option_show_range(const option *row, char out[OPTION_TEXT_BYTES]);

#endif
