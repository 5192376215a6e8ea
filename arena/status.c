/* Status table and the one place that formats error texts. */
#include "arena/status.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
  const char *text;
  int exit_code;
} statuses[] = {
#define X(name, code, text) {text, code},
    STINT_STATUS_LIST(X)
#undef X
};

enum { N_STATUSES = sizeof statuses / sizeof statuses[0] };

const char *stint_status_text(const stint_status status) {
  return (unsigned)status < N_STATUSES ? statuses[status].text : "unknown status";
}

int stint_status_exit_code(const stint_status status) {
  return (unsigned)status < N_STATUSES ? statuses[status].exit_code : 4;
}

stint_status stint_fail(stint_error *const error, const stint_status status, const char *const format, ...) {
  if (!error) return status;
  error->status = status;
  va_list args;
  va_start(args, format);
  vsnprintf(error->text, sizeof error->text, format, args);
  va_end(args);
  return status;
}
