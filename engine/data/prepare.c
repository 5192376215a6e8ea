/* Text files to a token file.
 *
 * Each input is mapped, cut into documents (the whole file, or one a line of JSONL) and encoded; ids go to
 * token_path.tmp through a buffer, document starts to a second file without a name, which is appended at the end; then the
 * header is written, the file synced and renamed. So memory does not grow with the text, and a failure anywhere,
 * a full disk included, leaves nothing behind and whatever stood at token_path as it was. */
#include "engine/data/data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/data/digest.h"
#include "engine/data/token_file.h"
#include "engine/formats/json.h"

enum { WRITE_BYTES = 64 * 1024, LINE_BYTES = 2 * 1024 * 1024, PATH_BYTES = 4096 };

/* A file written through a buffer; the first failure is kept in `failed` (errno) and stops all later writing. */
typedef struct sequential {
  int fd, failed;
  size_t used;
  unsigned char *buffer; /* [WRITE_BYTES] */
} sequential;

typedef struct preparation {
  tokenizer *t;
  sequential ids, starts;
  digest text;
  data_prepared count;
  uint64_t n_predicted, n_in_document;
  unsigned char *line; /* for JSON */
  size_t line_bytes;
} preparation;

size_t data_prepare_bytes(void) { return 2 * WRITE_BYTES + LINE_BYTES; }

static void write_all(sequential *f, const void *data, size_t bytes) {
  const unsigned char *at = data;
  while (bytes && !f->failed) {
    const ssize_t wrote = write(f->fd, at, bytes);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      f->failed = wrote < 0 && errno ? errno : ENOSPC;
      return;
    }
    at += wrote, bytes -= (size_t)wrote;
  }
}

static void flush(sequential *f) {
  write_all(f, f->buffer, f->used);
  f->used = 0;
}

static void append(sequential *f, const void *data, size_t bytes) {
  const unsigned char *at = data;
  while (bytes) {
    const size_t room = WRITE_BYTES - f->used, part = bytes < room ? bytes : room;
    memcpy(f->buffer + f->used, at, part);
    f->used += part, at += part, bytes -= part;
    if (f->used == WRITE_BYTES) flush(f);
  }
}

static bool take_ids(void *context, const int32_t *ids, const size_t n) {
  preparation *p = context;
  append(&p->ids, ids, n * sizeof *ids);
  p->n_in_document += n;
  return !p->ids.failed;
}

static stint_status add_document(preparation *p, const char *text, const size_t bytes, stint_error *error) {
  const uint64_t length = bytes;
  digest_add(&p->text, &length, sizeof length); /* so that documents cut elsewhere differ */
  digest_add(&p->text, text, bytes);
  p->count.n_text_bytes += bytes;
  p->n_in_document = 0;
  STINT_TRY(tokenizer_encode(p->t, text, bytes, true, take_ids, p, error));
  if (p->n_in_document == 0) return STINT_OK;
  append(&p->starts, &p->count.n_tokens, sizeof p->count.n_tokens);
  p->count.n_documents++;
  p->count.n_tokens += p->n_in_document;
  p->n_predicted += p->n_in_document - 1;
  return STINT_OK;
}

/* What a failed encoding says, after the place where its text is. An IO failure is the sink's: told at the end. */
static stint_status with_place(const preparation *p, const char *path, const uint64_t line,
                               const stint_status status, stint_error *error) {
  if (status == STINT_OK || !error || p->ids.failed) return status;
  char text[STINT_ERROR_TEXT_BYTES];
  memcpy(text, error->text, sizeof text);
  if (line) return stint_fail(error, status, "%s:%llu: %.400s", path, (unsigned long long)line, text);
  return stint_fail(error, status, "%s: %.400s", path, text);
}

static bool is_blank(const char *text, const size_t n) {
  for (size_t i = 0; i < n; i++)
    if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
  return true;
}

static stint_status add_lines(preparation *p, const char *path, const char *text, const size_t bytes,
                              stint_error *error) {
  uint64_t line = 1, n_lines = 0;
  size_t at = bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0; /* a byte-order mark */
  for (; at < bytes; line++) {
    const char *end = memchr(text + at, '\n', bytes - at);
    const size_t length = end ? (size_t)(end - (text + at)) : bytes - at;
    if (!is_blank(text + at, length)) {
      json_text document;
      STINT_TRY(
          json_read_member(text + at, length, "text", path, line, p->line, p->line_bytes, &document, error));
      STINT_TRY(with_place(p, path, line, add_document(p, document.data, document.bytes, error), error));
      n_lines++;
    }
    at += length + 1;
  }
  if (n_lines) return STINT_OK;
  return stint_fail(error, STINT_BAD_INPUT, "%s: it holds no lines; give a file with text in it", path);
}

static bool ends_with(const char *path, const char *end) {
  const size_t n = strlen(path), m = strlen(end);
  return n >= m && strcmp(path + n - m, end) == 0;
}

static stint_status add_file(preparation *p, const char *path, stint_error *error) {
  file_map map;
  STINT_TRY(file_map_open(path, &map, error));
  stint_status status;
  const char *text = (const char *)map.base;
  if (map.bytes == 0)
    status = stint_fail(error, STINT_BAD_INPUT, "%s: the file is empty; give a file with text in it", path);
  else if (ends_with(path, ".jsonl") || ends_with(path, ".json"))
    status = add_lines(p, path, text, map.bytes, error);
  else
    status = with_place(p, path, 0, add_document(p, text, map.bytes, error), error);
  file_map_close(&map);
  return status;
}

/* The starts, behind the ids. */
static void append_starts(preparation *p) {
  append(&p->starts, &p->count.n_tokens, sizeof p->count.n_tokens);
  flush(&p->starts);
  static const unsigned char zeros[4];
  append(&p->ids, zeros, p->count.n_tokens & 1 ? 4 : 0);
  flush(&p->ids);
  if (!p->starts.failed && lseek(p->starts.fd, 0, SEEK_SET) < 0) p->starts.failed = errno;
  while (!p->starts.failed && !p->ids.failed) {
    const ssize_t n = read(p->starts.fd, p->starts.buffer, WRITE_BYTES);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) p->starts.failed = errno;
    if (n <= 0) return;
    write_all(&p->ids, p->starts.buffer, (size_t)n);
  }
}

static void write_header(preparation *p) {
  token_header h = {.version = TOKEN_FILE_VERSION, .n_vocab = (uint32_t)tokenizer_n_vocab(p->t)};
  memcpy(h.magic, TOKEN_FILE_MAGIC, sizeof h.magic);
  h.n_tokens = p->count.n_tokens;
  h.n_documents = p->count.n_documents;
  h.n_text_bytes = p->count.n_text_bytes;
  h.text_digest = p->count.text_digest;
  h.tokenizer_digest = tokenizer_digest(p->t);
  h.header_digest = digest_of(&h, sizeof h - sizeof h.header_digest);
  if (!p->ids.failed && lseek(p->ids.fd, 0, SEEK_SET) < 0) p->ids.failed = errno;
  write_all(&p->ids, &h, sizeof h);
  if (!p->ids.failed && fsync(p->ids.fd) != 0) p->ids.failed = errno;
}

static stint_status io_failed(const char *path, const int cause, stint_error *error) {
  char text[128];
  return stint_fail(error, STINT_IO, "%s: cannot be written: %s; nothing was left of it", path,
                    strerror_r(cause, text, sizeof text));
}

static stint_status add_all(preparation *p, const char *const *paths, const size_t n_paths,
                            stint_error *error) {
  const token_header later = {0};
  digest_start(&p->text);
  append(&p->ids, &later, sizeof later);
  for (size_t i = 0; i < n_paths; i++) STINT_TRY(add_file(p, paths[i], error));
  p->count.text_digest = digest_end(&p->text);
  if (p->n_predicted == 0)
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s%s: the text has %llu tokens in %llu documents, and no document has the 2 that are "
                      "needed, one to read "
                      "and one to predict; give more text",
                      n_paths ? paths[0] : "no files", n_paths > 1 ? " and the others" : "",
                      (unsigned long long)p->count.n_tokens, (unsigned long long)p->count.n_documents);
  append_starts(p);
  write_header(p);
  return STINT_OK;
}

stint_status data_prepare(tokenizer *t, const char *const *paths, const size_t n_paths,
                          const char *token_path, void *scratch, const size_t scratch_bytes,
                          data_prepared *out, stint_error *error) {
  char ids_path[PATH_BYTES], starts_path[PATH_BYTES];
  *out = (data_prepared){0};
  if (scratch_bytes < data_prepare_bytes())
    return stint_fail(error, STINT_NO_MEMORY, "preparing data needs %zu bytes and was given %zu",
                      data_prepare_bytes(), scratch_bytes);
  if (strlen(token_path) > PATH_BYTES - 16)
    return stint_fail(error, STINT_BAD_INPUT, "%.200s...: the path is too long", token_path);
  snprintf(ids_path, sizeof ids_path, "%s.tmp", token_path);
  snprintf(starts_path, sizeof starts_path, "%s.starts.tmp", token_path);

  preparation p = {.t = t};
  p.ids = (sequential){.fd = open(ids_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), .buffer = scratch};
  if (p.ids.fd < 0) return io_failed(ids_path, errno, error);
  p.starts = (sequential){.fd = open(starts_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600),
                          .buffer = (unsigned char *)scratch + WRITE_BYTES};
  stint_status status = STINT_OK;
  if (p.starts.fd < 0) {
    p.starts.failed = errno;
  } else {
    (void)unlink(starts_path); /* lives as long as it is open */
    p.line = (unsigned char *)scratch + 2 * WRITE_BYTES;
    p.line_bytes = scratch_bytes - 2 * WRITE_BYTES;
    status = add_all(&p, paths, n_paths, error);
    (void)close(p.starts.fd);
  }
  if (p.starts.failed) status = io_failed(starts_path, p.starts.failed, error);
  if (close(p.ids.fd) != 0 && !p.ids.failed) p.ids.failed = errno;
  if (p.ids.failed) status = io_failed(ids_path, p.ids.failed, error);
  if (status == STINT_OK && rename(ids_path, token_path) != 0) status = io_failed(token_path, errno, error);
  if (status != STINT_OK) {
    (void)unlink(ids_path);
    return status;
  }
  *out = p.count;
  return STINT_OK;
}
