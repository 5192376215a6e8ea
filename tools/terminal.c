/* Output of the tools: see terminal.h. */
#include "tools/terminal.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { SAY_BYTES = 4096, PLAIN_LINES = 20, WIDTH_UNKNOWN = 100 };

static void write_all(const int fd, const char *text, size_t n) {
  while (n > 0) {
    const ssize_t wrote = write(fd, text, n);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return; /* nobody reads any more: a run goes on without its reader */
    text += wrote;
    n -= (size_t)wrote;
  }
}

static void write_format(const int fd, const char *format, va_list arguments) {
  char text[SAY_BYTES];
  const int n = vsnprintf(text, sizeof text, format, arguments);
  if (n > 0) write_all(fd, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void say(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_format(STDOUT_FILENO, format, arguments);
  va_end(arguments);
}

void complain(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_format(STDERR_FILENO, format, arguments);
  va_end(arguments);
}

void say_bytes(const char *bytes, const size_t n) { write_all(STDOUT_FILENO, bytes, n); }

char *human_bytes(char out[HUMAN_BYTES], const uint64_t bytes) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    snprintf(out, HUMAN_BYTES, "%llu B", (unsigned long long)bytes);
    return out;
  }
  double value = (double)bytes / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
    value /= 1024;
    unit++;
  }
  snprintf(out, HUMAN_BYTES, "%.*f %s", value < 100 ? 2 : 1, value, units[unit]);
  return out;
}

char *human_count(char out[HUMAN_BYTES], const uint64_t count) {
  char digits[HUMAN_BYTES];
  const int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)count);
  char *to = out;
  for (int i = 0; i < n; i++) {
    if (i > 0 && (n - i) % 3 == 0) *to++ = ',';
    *to++ = digits[i];
  }
  *to = '\0';
  return out;
}

char *human_seconds(char out[HUMAN_BYTES], const double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) {
    snprintf(out, HUMAN_BYTES, "?");
  } else if (seconds < 10) {
    snprintf(out, HUMAN_BYTES, "%.1f s", seconds);
  } else {
    const long long whole = (long long)(seconds + 0.5);
    if (whole < 3600)
      snprintf(out, HUMAN_BYTES, "%lld:%02lld", whole / 60, whole % 60);
    else
      snprintf(out, HUMAN_BYTES, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return out;
}

char *human_flops(char out[HUMAN_BYTES], const double flops) {
  static const char *const units[] = {"", " k", " M", " G", " T", " P", " E"};
  double value = flops;
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < sizeof units / sizeof units[0]) {
    value /= 1000;
    unit++;
  }
  snprintf(out, HUMAN_BYTES, "%.*f%s", value < 100 ? 2 : 1, value, units[unit]);
  return out;
}

progress progress_start(const int64_t steps) {
  return (progress){.on_terminal = isatty(STDOUT_FILENO) == 1,
                    .every = steps > PLAIN_LINES ? steps / PLAIN_LINES : 1};
}

static size_t terminal_width(void) {
  struct winsize size = {0};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return WIDTH_UNKNOWN;
  return size.ws_col;
}

/* Appends a field when it fits into `room` columns; the most wanted fields come first. */
static size_t append(char *line, const size_t used, const size_t room, const char *field) {
  const size_t n = strlen(field);
  if (used + n + 2 > room) return used;
  const size_t gap = used > 0 ? 2 : 0;
  memset(line + used, ' ', gap);
  memcpy(line + used + gap, field, n);
  return used + gap + n;
}

static size_t progress_text(char *line, const size_t room, const stint_step_info *info) {
  char a[HUMAN_BYTES], b[HUMAN_BYTES];
  char field[128];
  size_t used = 0;
#define FIELD(...)                                                                                           \
  do {                                                                                                       \
    snprintf(field, sizeof field, __VA_ARGS__);                                                              \
    used = append(line, used, room, field);                                                                  \
  } while (0)
  FIELD("step %lld/%lld", (long long)info->step, (long long)info->steps);
  FIELD("loss %.4f", info->loss_nats_per_token);
  FIELD("%s tok/s",
        human_count(a, (uint64_t)(info->tokens_per_second > 0 ? info->tokens_per_second + 0.5 : 0)));
  FIELD("ETA %s", human_seconds(a, info->eta_seconds));
  FIELD("lr %.3g", info->lr);
  if (info->grad_norm_clipped < info->grad_norm)
    FIELD("norm %.3g->%.3g", info->grad_norm, info->grad_norm_clipped);
  else
    FIELD("norm %.3g", info->grad_norm);
  FIELD("%.0f %% of peak speed", 100 * info->peak_share);
  FIELD("planned %s used %s", human_bytes(a, info->planned_bytes), human_bytes(b, info->used_bytes));
#undef FIELD
  return used;
}

void progress_step(progress *line, const stint_step_info *info) {
  char text[512];
  const bool evaluated = !isnan(info->valid_loss_nats_per_token);
  if (line->on_terminal) {
    const size_t width = terminal_width();
    const size_t most = sizeof text - 16;
    size_t n = 0;
    text[n++] = '\r';
    n += progress_text(text + n, width - 1 < most ? width - 1 : most, info);
    memcpy(text + n, "\033[K", 3); /* clears what a longer line left behind */
    write_all(STDOUT_FILENO, text, n + 3);
    line->line_open = true;
  } else if (info->step == 1 || info->step == info->steps || info->step % line->every == 0 || evaluated) {
    size_t n = progress_text(text, sizeof text - 1, info);
    text[n++] = '\n';
    write_all(STDOUT_FILENO, text, n);
  }
  if (evaluated) {
    progress_end(line);
    say("step %lld: held-out loss %.4f nats a token\n", (long long)info->step,
        info->valid_loss_nats_per_token);
  }
}

void progress_end(progress *line) {
  if (line->line_open) say("\n");
  line->line_open = false;
}
