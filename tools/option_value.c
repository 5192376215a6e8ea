/* Reads the values of options and writes them for --help: see option_table.h. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/option_table.h"

#define PATH_NONE    0u
#define PATH_AVX2    1u
#define PATH_AVX512  2u
#define PATH_ALL     (~0u)
#define EXACT_DOUBLE 9007199254740992.0 /* 2^53 */

static char *number_text(char out[32], const double value) {
  snprintf(out, 32, value == floor(value) && fabs(value) < EXACT_DOUBLE ? "%.0f" : "%g", value);
  return out;
}

static stint_status out_of_range(const option *row, const char *value, const char *what, stint_error *error) {
  char low[32], high[32];
  return stint_fail(error, STINT_BAD_INPUT, "%s takes %s %s %s %s %s, not \"%.64s\"", row->name, what,
                    row->above_low ? "above" : "from", number_text(low, row->low),
                    row->above_low ? "and at most" : "to", number_text(high, row->high), value);
}

static bool in_range(const option *row, const double value) {
  return (row->above_low ? value > row->low : value >= row->low) && value <= row->high;
}

bool option_name_is(const char *name, const char *text, const size_t n) {
  return strlen(name) == n && memcmp(name, text, n) == 0;
}

/* "6GiB", "512 MiB", "1.5GB", "1000000" */
static bool read_bytes(const char *text, uint64_t *out) {
  static const struct {
    const char *unit;
    double bytes;
  } units[] = {
      {"", 1},      {"B", 1},       {"KB", 1e3},       {"MB", 1e6},           {"GB", 1e9},
      {"TB", 1e12}, {"KIB", 1024},  {"MIB", 1048576},  {"GIB", 1073741824},   {"TIB", 1099511627776.0},
      {"K", 1024},  {"M", 1048576}, {"G", 1073741824}, {"T", 1099511627776.0}};
  if (!isdigit((unsigned char)text[0])) return false;
  errno = 0;
  char *end;
  const uint64_t whole = strtoull(text, &end, 10);
  if (errno == 0 && *end == '\0') {
    *out = whole;
    return true;
  }
  const double value = strtod(text, &end);
  while (*end == ' ') end++;
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
    if (strcasecmp(end, units[i].unit) == 0) {
      const double bytes = value * units[i].bytes;
      if (!(bytes >= 0 && bytes < 18446744073709551616.0)) return false;
      *out = (uint64_t)bytes;
      return true;
    }
  return false;
}

static bool read_paths(const char *text, unsigned *out) {
  static const struct {
    const char *name;
    unsigned mask;
  } names[] = {{"none", PATH_NONE}, {"avx2", PATH_AVX2}, {"avx512", PATH_AVX512}, {"all", PATH_ALL}};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(text, names[i].name) == 0) {
      *out = names[i].mask;
      return true;
    }
  if (!isdigit((unsigned char)text[0])) return false;
  errno = 0;
  char *end;
  const unsigned long long value = strtoull(text, &end, 0);
  if (errno != 0 || *end != '\0' || value > PATH_ALL) return false;
  *out = (unsigned)value;
  return true;
}

static bool read_choice(const char *choices, const char *text, int *out) {
  int index = 0;
  for (const char *at = choices;; index++) {
    const size_t n = strcspn(at, "|");
    if (option_name_is(text, at, n)) {
      *out = index;
      return true;
    }
    if (at[n] == '\0') return false;
    at += n + 1;
  }
}

stint_status option_set(const option *row, const char *value, tool_options *out, stint_error *error) {
  void *const at = (char *)out + row->at;
  char *end = NULL;
  errno = 0;
  switch (row->kind) {
  case KIND_FLAG:
    return STINT_OK; /* has no value */
  case KIND_INT:
  case KIND_THREADS: {
    const long long number = strtoll(value, &end, 10);
    if (*value == '\0' || isspace((unsigned char)*value) || *end != '\0' || errno != 0 ||
        !in_range(row, (double)number))
      return out_of_range(row, value, "a whole number", error);
    if (row->kind == KIND_THREADS)
      *(int *)at = (int)number;
    else
      *(int64_t *)at = number;
    return STINT_OK;
  }
  case KIND_SEED: {
    const unsigned long long number = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end != '\0' || errno != 0)
      return stint_fail(error, STINT_BAD_INPUT, "%s takes a whole number from 0 to 2^64-1, not \"%.64s\"",
                        row->name, value);
    *(uint64_t *)at = number;
    return STINT_OK;
  }
  case KIND_REAL: {
    const double number = strtod(value, &end);
    if (*value == '\0' || isspace((unsigned char)*value) || *end != '\0' || !isfinite(number) ||
        !in_range(row, number))
      return out_of_range(row, value, "a number", error);
    *(double *)at = number;
    return STINT_OK;
  }
  case KIND_BYTES:
    if (!read_bytes(value, at))
      return stint_fail(error, STINT_BAD_INPUT,
                        "%s takes a size such as 6GiB, 512MiB or 1000000 (bytes), not \"%.64s\"", row->name,
                        value);
    return STINT_OK;
  case KIND_TEXT:
    if (*value == '\0' && strcmp(row->name, "--prompt") != 0)
      return stint_fail(error, STINT_BAD_INPUT, "%s takes a %s, not an empty text", row->name, row->argument);
    *(const char **)at = value;
    return STINT_OK;
  case KIND_FILES: {
    file_list *const files = at;
    if (*value == '\0')
      return stint_fail(error, STINT_BAD_INPUT, "%s takes a %s, not an empty text", row->name, row->argument);
    if (files->n == OPTIONS_FILES_MAX)
      return stint_fail(error, STINT_BAD_INPUT, "%s: at most %d files", row->name, (int)OPTIONS_FILES_MAX);
    files->paths[files->n++] = value;
    return STINT_OK;
  }
  case KIND_CHOICE: {
    int choice;
    if (!read_choice(row->choices, value, &choice))
      return stint_fail(error, STINT_BAD_INPUT, "%s is one of %s, not \"%.64s\"", row->name, row->choices,
                        value);
    memcpy(at, &choice, sizeof choice); /* an enum of the library: int's size, asserted below */
    return STINT_OK;
  }
  case KIND_PATHS:
    if (!read_paths(value, at))
      return stint_fail(error, STINT_BAD_INPUT, "%s is none, avx2, avx512, all or a number, not \"%.64s\"",
                        row->name, value);
    return STINT_OK;
  }
  return STINT_OK;
}

_Static_assert(sizeof(stint_optimizer) == sizeof(int) && sizeof(stint_lr_schedule) == sizeof(int),
               "KIND_CHOICE writes an int");

void option_show_range(const option *row, char out[OPTION_TEXT_BYTES]) {
  char low[32], high[32];
  out[0] = '\0';
  if (row->choices != NULL)
    snprintf(out, OPTION_TEXT_BYTES, "%s", row->choices);
  else if (row->high >= 1e6)
    snprintf(out, OPTION_TEXT_BYTES, "%s %s", row->above_low ? "above" : "at least",
             number_text(low, row->low));
  else if (row->high > row->low)
    snprintf(out, OPTION_TEXT_BYTES, "%s %s to %s", row->above_low ? "above" : "from",
             number_text(low, row->low), number_text(high, row->high));
}

void option_show(const option *row, const tool_options *from, char out[OPTION_TEXT_BYTES]) {
  const size_t room = OPTION_TEXT_BYTES;
  const void *const at = (const char *)from + row->at;
  out[0] = '\0';
  switch (row->kind) {
  case KIND_INT:
    if (in_range(row, (double)*(const int64_t *)at)) /* outside: the library's sign for "not set" */
      snprintf(out, room, "%lld", (long long)*(const int64_t *)at);
    break;
  case KIND_THREADS:
    snprintf(out, room, "%d", *(const int *)at);
    break;
  case KIND_SEED:
  case KIND_BYTES:
    snprintf(out, room, "%llu", (unsigned long long)*(const uint64_t *)at);
    break;
  case KIND_REAL:
    snprintf(out, room, "%g", *(const double *)at);
    break;
  case KIND_FLAG:
    if (*(const bool *)at) snprintf(out, room, "on; --no-%s", row->name + 2);
    break;
  case KIND_PATHS:
    snprintf(out, room, "%s", *(const unsigned *)at == PATH_ALL ? "all" : "");
    break;
  case KIND_TEXT: {
    const char *const text = *(const char *const *)at;
    if (text != NULL && text[0] != '\0') snprintf(out, room, "%s", text);
    break;
  }
  case KIND_CHOICE: {
    int choice;
    memcpy(&choice, at, sizeof choice);
    const char *text = row->choices;
    for (; choice > 0 && text != NULL; choice--) {
      text = strchr(text, '|');
      if (text != NULL) text++;
    }
    if (text != NULL) snprintf(out, room, "%.*s", (int)strcspn(text, "|"), text);
    break;
  }
  case KIND_FILES:
    break;
  }
}
