/* Output of the tools: text goes through a stack buffer to write(2), never through stdio, so that the progress line
 * of a running training step allocates nothing.
 *
 * The progress line is rewritten in place on a terminal and is a plain line, now and then, elsewhere. */
#ifndef STINT_TOOLS_TERMINAL_H
#define STINT_TOOLS_TERMINAL_H

#include "engine/stint.h"

void say(const char *format, ...) STINT_PRINTF(1, 2);      /* to standard output; at most 4 KiB a call */
void complain(const char *format, ...) STINT_PRINTF(1, 2); /* to standard error */
void say_bytes(const char *bytes, size_t n);               /* as they are */

/* Sizes and counts as people read them; each returns `out`. */
enum { HUMAN_BYTES = 32 };
char *human_bytes(char out[HUMAN_BYTES], uint64_t bytes);   /* "12.3 MiB" */
char *human_count(char out[HUMAN_BYTES], uint64_t count);   /* "12,345,678" */
char *human_seconds(char out[HUMAN_BYTES], double seconds); /* "1:02:03", "2:03", "0.4 s" */
char *human_flops(char out[HUMAN_BYTES], double flops);     /* "12.3 G" */

typedef struct progress {
  bool on_terminal, line_open;
  int64_t every; /* a plain line each so many steps */
} progress;

progress progress_start(int64_t steps);
void progress_step(progress *line, const stint_step_info *info);
void progress_end(progress *line); /* leaves the terminal on a fresh line */

#endif
