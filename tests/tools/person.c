/* See person.h. Commands go through /bin/sh by posix_spawn: Criterion's own process must not fork. */
#include "tests/tools/person.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

char person_folder[256];
static outcome last;

static void write_text(const char *name, const size_t bytes) {
  static const char *const words[] = {"the", "ship", "sails", "over", "a",     "quiet",
                                      "sea", "and",  "no",    "wind", "speaks"};
  char *const text = malloc(bytes + 64);
  size_t n = 0;
  uint32_t state = 12345;
  while (n < bytes) {
    state = state * 1664525u + 1013904223u;
    n += (size_t)sprintf(text + n, "%s%s", words[(state >> 16) % (sizeof words / sizeof words[0])],
                         (state >> 8) % 9 == 0 ? ".\n" : " ");
  }
  person_write(name, text, bytes);
  free(text);
}

void person_start(void) {
  const char *const parent = getenv("TMPDIR");
  snprintf(person_folder, sizeof person_folder, "%s/stint-test-XXXXXX", parent != NULL ? parent : P_tmpdir);
  cr_assert_not_null(mkdtemp(person_folder));
  const char *const build = getenv("STINT_BUILD");
  cr_assert_not_null(build, "STINT_BUILD is not set: run through `meson test`");
  char path[4096];
  const char *const before = getenv("PATH");
  snprintf(path, sizeof path, "%s/tools:%s", build, before != NULL ? before : "/usr/bin:/bin");
  setenv("PATH", path, 1);
  write_text("text.txt", 6000);
  write_text("held.txt", 1500);
  person_write("short.txt", "too short", 9);
  person_write("empty.txt", "", 0);
  const outcome *const made = person_run(
      "stint new -o model.gguf --embd 32 --layers 2 --heads 4 --kv-heads 2 --ff 48 --ctx 64 --seed 7");
  cr_assert_eq(made->code, 0, "stint new: %s", made->err);
}

void person_end(void) {
  char command[512];
  snprintf(command, sizeof command, "rm -rf '%s'", person_folder);
  person_wait(person_spawn(command));
}

char *person_path(const char *name) {
  static char paths[4][512];
  static int next;
  char *const path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", person_folder, name);
  return path;
}

char *person_read(const char *name, size_t *bytes) {
  FILE *const file = fopen(person_path(name), "rb");
  if (file == NULL) return NULL;
  struct stat about;
  fstat(fileno(file), &about);
  char *const text = malloc((size_t)about.st_size + 1);
  const size_t n = fread(text, 1, (size_t)about.st_size, file);
  text[n] = '\0';
  fclose(file);
  if (bytes != NULL) *bytes = n;
  return text;
}

void person_write(const char *name, const void *bytes, const size_t n) {
  FILE *const file = fopen(person_path(name), "wb");
  cr_assert_not_null(file, "%s: %s", name, strerror(errno));
  cr_assert_eq(fwrite(bytes, 1, n, file), n);
  fclose(file);
}

bool person_exists(const char *name) { return access(person_path(name), F_OK) == 0; }

pid_t person_spawn(const char *command_line) {
  char line[8192];
  snprintf(line, sizeof line, "cd '%s' && %s", person_folder, command_line);
  char *arguments[] = {(char *)"sh", (char *)"-c", line, NULL};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const int flags = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, person_path(".out"), flags, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, person_path(".err"), flags, 0600);
  pid_t pid = -1;
  cr_assert_eq(posix_spawn(&pid, "/bin/sh", &actions, NULL, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

static void take(const char *name, char *out) {
  size_t n = 0;
  char *const text = person_read(name, &n);
  if (n >= PRINTED_BYTES) n = PRINTED_BYTES - 1;
  if (text != NULL) memcpy(out, text, n);
  out[n] = '\0';
  free(text);
}

const outcome *person_wait(const pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  last.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  last.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  take(".out", last.out);
  take(".err", last.err);
  return &last;
}

const outcome *person_run(const char *format, ...) {
  char line[4096];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return person_wait(person_spawn(line));
}

void expect_error(const outcome *seen, const int code, const char *prefix, ...) {
  cr_expect_eq(seen->signal, 0, "killed by signal %d", seen->signal);
  cr_expect_eq(seen->code, code, "ended with %d, not %d; it said: %s%s", seen->code, code, seen->out,
               seen->err);
  const size_t n = strlen(prefix);
  cr_expect(strncmp(seen->err, prefix, n) == 0 && strncmp(seen->err + n, ": ", 2) == 0,
            "begins with `%s: `? %s", prefix, seen->err);
  const char *const end = strchr(seen->err, '\n');
  cr_expect(end != NULL && end[1] == '\0', "one line? %s", seen->err);
  va_list texts;
  va_start(texts, prefix);
  for (const char *text; (text = va_arg(texts, const char *)) != NULL;)
    cr_expect_not_null(strstr(seen->err, text), "says \"%s\"? %s", text, seen->err);
  va_end(texts);
}
