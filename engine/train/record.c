/* Files of a run, through descriptors and fixed buffers. log.jsonl holds what a run computes and nothing of the clock, so two
 * runs of the same numbers have the same bytes; log.csv, for plotting, has the times too. */
#include "engine/train/record.h"

#include "engine/train/plan_json.h"
#include "kernels/dispatch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

static stint_status fail_io(stint_error *const error, const char *const path, const char *const doing) {
  const int code = errno;
  return stint_fail(error, STINT_IO, "cannot %s %s: %s; %s", doing, path, strerror(code),
                    code == ENOSPC ? "free some space, or name a directory on another disk with -o"
                                   : "name a directory that can be written with -o");
}

stint_status record_path(const record *const r, const char *const name, char out[RECORD_PATH_BYTES],
                         stint_error *const error) {
  const int n = snprintf(out, RECORD_PATH_BYTES, "%s/%s", r->directory, name);
  if (n >= RECORD_PATH_BYTES)
    return stint_fail(error, STINT_BAD_INPUT, "the path of the run directory is longer than %d bytes",
                      RECORD_PATH_BYTES - 64);
  return STINT_OK;
}

/* mkdir -p */
static int make_directory(const char *const directory) {
  char path[RECORD_PATH_BYTES];
  snprintf(path, sizeof path, "%s", directory);
  for (char *at = path + 1; *at; at++) {
    if (*at != '/') continue;
    *at = 0;
    if (mkdir(path, 0777) != 0 && errno != EEXIST) return -1;
    *at = '/';
  }
  return mkdir(path, 0777) != 0 && errno != EEXIST ? -1 : 0;
}

stint_status record_open(const char *const directory, record *const out, stint_error *const error) {
  *out = (record){.log_jsonl = -1, .log_csv = -1};
  if (!directory || !*directory) return stint_fail(error, STINT_BAD_INPUT, "a run needs a directory: -o DIR");
  if (strlen(directory) > RECORD_PATH_BYTES - 64)
    return stint_fail(error, STINT_BAD_INPUT, "the path of the run directory is longer than %d bytes",
                      RECORD_PATH_BYTES - 64);
  snprintf(out->directory, sizeof out->directory, "%s", directory);
  if (make_directory(directory) != 0) return fail_io(error, directory, "make the directory");
  struct stat st;
  if (stat(directory, &st) != 0 || !S_ISDIR(st.st_mode))
    return stint_fail(error, STINT_BAD_INPUT, "%s is not a directory", directory);
  char path[RECORD_PATH_BYTES];
  STINT_TRY(record_path(out, "manifest.json", path, error));
  if (access(path, F_OK) == 0)
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s holds a run already; name another directory with -o, or remove it", directory);
  return STINT_OK;
}

/* ---- whole files ---- */
typedef struct sink {
  int fd;
} sink;

static bool write_all(const int fd, const char *data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = write(fd, data, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    bytes -= (size_t)n;
  }
  return true;
}

static bool sink_flush(void *const context, const char *const data, const size_t bytes) {
  return write_all(((sink *)context)->fd, data, bytes);
}

typedef void write_object(json_out *o, const stint_plan *plan, const record_facts *facts);

static stint_status write_file(const record *const r, const char *const name, write_object *const write_it,
                               const stint_plan *const plan, const record_facts *const facts,
                               stint_error *const error) {
  char path[RECORD_PATH_BYTES], window[4096];
  STINT_TRY(record_path(r, name, path, error));
  sink s = {open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
  if (s.fd < 0) return fail_io(error, path, "create");
  json_out o;
  json_out_open(&o, window, sizeof window);
  o.indent = 2;
  o.flush = sink_flush;
  o.flush_context = &s;
  write_it(&o, plan, facts);
  const bool written = json_out_close_line(&o) && fsync(s.fd) == 0;
  const stint_status status = written ? STINT_OK : fail_io(error, path, "write");
  close(s.fd);
  if (!written) unlink(path);
  return status;
}

static void write_data(json_out *const o, const char *const key, const data_prepared *const d) {
  json_out_key(o, key);
  json_out_object(o);
  json_put_uint(o, "text_bytes", d->n_text_bytes);
  json_put_uint(o, "tokens", d->n_tokens);
  json_put_uint(o, "documents", d->n_documents);
  json_put_hex(o, "text_digest", d->text_digest);
  json_out_end(o);
}

static void write_manifest(json_out *const o, const stint_plan *const plan, const record_facts *const f) {
  struct utsname host;
  if (uname(&host) != 0) memset(&host, 0, sizeof host);
  json_out_object(o);
  json_put_int(o, "manifest_version", 1);
  json_put_text(o, "stint_version", stint_version());
  json_put_text(o, "command", f->command);
  json_out_key(o, "machine");
  json_out_object(o);
  json_put_text(o, "system", host.sysname);
  json_put_text(o, "processor", host.machine);
  const unsigned paths = cpu_paths() & plan->options.cpu_mask;
  json_put_text(o, "vector_path", paths & CPU_AVX512 ? "avx512" : paths & CPU_AVX2 ? "avx2" : "reference");
  json_put_double(o, "peak_operations_per_second", f->peak_flops);
  json_out_end(o);
  json_put_text(o, "model", plan->model->file.path);
  json_put_hex(o, "model_digest", f->model_digest);
  json_put_hex(o, "plan_digest", plan_digest(plan));
  json_put_int(o, "steps", f->steps);
  json_out_key(o, "options");
  plan_write_options(plan, o);
  write_data(o, "data", &f->train);
  if (f->valid.n_tokens) write_data(o, "valid", &f->valid);
  json_out_end(o);
}

static void write_plan(json_out *const o, const stint_plan *const plan, const record_facts *const f) {
  (void)f;
  plan_write_json(plan, o);
}

stint_status record_facts_write(const record *const r, const stint_plan *const plan,
                                const record_facts *const facts, stint_error *const error) {
  STINT_TRY(write_file(r, "plan.json", write_plan, plan, facts, error));
  return write_file(r, "manifest.json", write_manifest, plan, facts, error);
}

/* ---- logs ---- */
static stint_status open_log(const record *const r, const char *const name, int *const fd,
                             stint_error *const error) {
  char path[RECORD_PATH_BYTES];
  STINT_TRY(record_path(r, name, path, error));
  *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  return *fd < 0 ? fail_io(error, path, "create") : STINT_OK;
}

stint_status record_logs_open(record *const r, stint_error *const error) {
  static const char header[] =
      "step,loss_nats_per_token,grad_norm,grad_norm_clipped,lr,tokens,valid_loss_nats_per_token,"
      "checksum,seconds,tokens_per_second\n";
  STINT_TRY(open_log(r, "log.jsonl", &r->log_jsonl, error));
  STINT_TRY(open_log(r, "log.csv", &r->log_csv, error));
  return write_all(r->log_csv, header, sizeof header - 1) ? STINT_OK
                                                          : fail_io(error, r->directory, "write log.csv in");
}

stint_status record_step(const record *const r, const stint_step_info *const i, stint_error *const error) {
  char line[RECORD_LINE_BYTES];
  json_out o;
  json_out_open(&o, line, sizeof line);
  json_out_object(&o);
  json_put_int(&o, "step", i->step);
  json_put_double(&o, "loss_nats_per_token", i->loss_nats_per_token);
  json_put_float(&o, "grad_norm", (float)i->grad_norm);
  json_put_float(&o, "grad_norm_clipped", (float)i->grad_norm_clipped);
  json_put_float(&o, "lr", (float)i->lr);
  json_put_int(&o, "tokens", i->tokens);
  if (i->valid_loss_nats_per_token == i->valid_loss_nats_per_token)
    json_put_double(&o, "valid_loss_nats_per_token", i->valid_loss_nats_per_token);
  json_put_hex(&o, "checksum", i->checksum);
  json_out_end(&o);
  if (!json_out_close_line(&o))
    return stint_fail(error, STINT_INTERNAL, "a log line is longer than its buffer");
  if (!write_all(r->log_jsonl, line, o.used)) return fail_io(error, r->directory, "write log.jsonl in");
  char valid[40] = "";
  if (i->valid_loss_nats_per_token == i->valid_loss_nats_per_token)
    snprintf(valid, sizeof valid, "%.17g", i->valid_loss_nats_per_token);
  const int n =
      snprintf(line, sizeof line, "%lld,%.17g,%.9g,%.9g,%.9g,%lld,%s,%016llx,%.6f,%.3f\n", (long long)i->step,
               i->loss_nats_per_token, i->grad_norm, i->grad_norm_clipped, i->lr, (long long)i->tokens, valid,
               (unsigned long long)i->checksum, i->seconds, i->tokens_per_second);
  if (!write_all(r->log_csv, line, (size_t)n)) return fail_io(error, r->directory, "write log.csv in");
  return STINT_OK;
}

void record_close(record *const r) {
  if (r->log_jsonl >= 0) close(r->log_jsonl);
  if (r->log_csv >= 0) close(r->log_csv);
  r->log_jsonl = r->log_csv = -1;
}
