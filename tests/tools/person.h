/* Runs stint and memplan as a person does: a process with arguments, an exit code, and what it printed. A test works in
 * a folder of its own, which holds a small model and texts. */
#ifndef STINT_TESTS_TOOLS_PERSON_H
#define STINT_TESTS_TOOLS_PERSON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { PRINTED_BYTES = 1 << 18 };

typedef struct outcome {
  int code, signal; /* signal: that ended it, or 0 */
  char out[PRINTED_BYTES], err[PRINTED_BYTES];
} outcome;

extern char person_folder[]; /* made by person_start, the working directory of every command */

void person_start(void); /* a folder, with model.gguf (llama, byte-level), text.txt, short.txt, empty.txt */
void person_end(void);   /* removes it */

/* One command line, by the shell's rules ('...' quotes), with the programs stint and memplan. The result is static. */
const outcome *person_run(const char *format, ...) __attribute__((format(printf, 1, 2)));
pid_t person_spawn(const char *command_line); /* in the background */
const outcome *person_wait(pid_t pid);

char *person_path(const char *name);                /* of a file in the folder; static, a few at a time */
char *person_read(const char *name, size_t *bytes); /* malloc'ed, NUL-terminated; NULL when it is not there */
void person_write(const char *name, const void *bytes, size_t n);
bool person_exists(const char *name);

/* The end of every failing command: code, an empty standard output when `silent`, and one line on standard error that
 * begins with `prefix: ` and holds each of the given texts (NULL ends them). */
void expect_error(const outcome *seen, int code, const char *prefix, ...) __attribute__((sentinel));

#endif
