/* The GGUF writer: stage the header, then stream the data through one descriptor.
 *
 * Algorithm: keys and tensor infos are appended to a list of blocks in the bump (large values copied from another file
 * stay where they are and become a block that points there). The first data, or close, emits header, blocks and
 * padding; each tensor's data follows, padded to 32, the last one too, as readers in the field demand. All goes to
 * `path.tmp`, which close syncs and renames.
 *
 * Invariant: until the rename nothing at `path` has changed, and after a failure `path.tmp` is gone. The phases (keys,
 * tensors, data) only go forward. Every call after a failure does nothing; close tells of the first one.
 * No byte is allocated outside of the bump. Source: the GGUF specification, version 3. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/formats/gguf.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are written as they lie in memory");

enum { BLOCK_BYTES = 4096, PENDING_BYTES = 16384, WRITE_ALIGN = 32, NAME_LIMIT = 63, HEADER_BYTES = 24 };

typedef struct block {
  struct block *next;
  const unsigned char *data; /* of another file, or own[] */
  size_t bytes, room;        /* room: what may still be appended */
  unsigned char own[];
} block;

typedef struct record {
  struct record *next;
  const char *name;
  size_t bytes, written;
} record;

typedef enum phase { PHASE_KEYS, PHASE_TENSORS, PHASE_DATA } phase;

struct gguf_writer {
  const char *path, *tmp, *folder;
  int fd;
  bump *b;
  stint_error error; /* the first failure */
  phase phase;
  block *first, *last;
  record *tensors, *last_tensor, *current; /* current: the first whose data is not complete */
  uint64_t n_keys, n_tensors;
  size_t staged_bytes, data_bytes; /* data_bytes: padded, of the tensors declared */
  size_t n_pending;
  unsigned char pending[PENDING_BYTES];
};

static size_t padding(const size_t bytes) { return -bytes & (WRITE_ALIGN - 1); }

STINT_PRINTF(3, 4)
static void keep(gguf_writer *const w, const stint_status status, const char *const format, ...) {
  if (w->error.status != STINT_OK) return;
  char what[512];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  stint_fail(&w->error, status, "%s: %s", w->path, what);
}

static void keep_io(gguf_writer *const w, const char *const doing, const int code) {
  const char *const remedy = code == ENOSPC || code == EDQUOT ? "free some space, or write to another disk"
                             : code == EFBIG ? "raise the limit on file size (ulimit -f), or write elsewhere"
                             : code == ENOENT || code == ENOTDIR
                                 ? "create its folder first"
                                 : "check the disk and the folder's permissions";
  keep(w, STINT_IO, "cannot %s %s: %s; what stood there before is unchanged; %s", doing, w->tmp,
       strerror(code), remedy);
}

static bool failed(const gguf_writer *const w) { return w->error.status != STINT_OK; }

static void keep_memory(gguf_writer *const w) {
  keep(w, STINT_NO_MEMORY, "its header does not fit the memory for saving; allow more");
}

/* ---- the header, staged ---- */

static block *add_block(gguf_writer *const w, const size_t own_bytes) {
  block *const k = bump_take(w->b, sizeof *k + own_bytes, _Alignof(block));
  if (!k) {
    keep_memory(w);
    return NULL;
  }
  *k = (block){.data = k->own, .room = own_bytes};
  if (w->last) {
    w->last->next = k;
  } else {
    w->first = k;
  }
  w->last = k;
  return k;
}

static void stage(gguf_writer *const w, const void *const data, const size_t bytes) {
  const unsigned char *from = data;
  for (size_t left = bytes; left && !failed(w);) {
    block *const k = w->last && w->last->room ? w->last : add_block(w, BLOCK_BYTES);
    if (!k) return;
    const size_t n = left < k->room ? left : k->room;
    memcpy(k->own + k->bytes, from, n);
    k->bytes += n;
    k->room -= n;
    from += n;
    left -= n;
  }
  w->staged_bytes += bytes;
}

static void stage_outside(gguf_writer *const w, const unsigned char *const data, const size_t bytes) {
  block *const k = failed(w) ? NULL : add_block(w, 0);
  if (!k) return;
  k->data = data;
  k->bytes = bytes;
  w->staged_bytes += bytes;
}

static void stage_u32(gguf_writer *const w, const uint32_t v) { stage(w, &v, sizeof v); }
static void stage_u64(gguf_writer *const w, const uint64_t v) { stage(w, &v, sizeof v); }
static void stage_text(gguf_writer *const w, const char *const text, const size_t bytes) {
  stage_u64(w, bytes);
  stage(w, text, bytes);
}

/* False: nothing may be staged. */
static bool begin_key(gguf_writer *const w, const char *const name, const size_t name_bytes,
                      const gguf_type type) {
  if (failed(w)) return false;
  if (w->phase != PHASE_KEYS || !name_bytes) {
    keep(w, STINT_INTERNAL, "key '%.*s' comes after a tensor, or has no name; report this",
         (int)(name_bytes & 0xffff), name);
    return false;
  }
  w->n_keys++;
  stage_text(w, name, name_bytes);
  stage_u32(w, type);
  return true;
}

static void scalar(gguf_writer *const w, const char *const key, const gguf_type type, const void *const value,
                   const size_t bytes) {
  if (begin_key(w, key, strlen(key), type)) stage(w, value, bytes);
}

static void array(gguf_writer *const w, const char *const key, const gguf_type element,
                  const void *const values, const size_t n, const size_t size) {
  if (!begin_key(w, key, strlen(key), GGUF_ARRAY)) return;
  stage_u32(w, element);
  stage_u64(w, n);
  stage(w, values, n * size);
}

void gguf_write_text(gguf_writer *const w, const char *const key, const char *const text,
                     const size_t bytes) {
  if (begin_key(w, key, strlen(key), GGUF_STRING)) stage_text(w, text, bytes);
}

void gguf_write_u32(gguf_writer *const w, const char *const key, const uint32_t value) {
  scalar(w, key, GGUF_U32, &value, sizeof value);
}

void gguf_write_u64(gguf_writer *const w, const char *const key, const uint64_t value) {
  scalar(w, key, GGUF_U64, &value, sizeof value);
}

void gguf_write_f32(gguf_writer *const w, const char *const key, const float value) {
  scalar(w, key, GGUF_F32, &value, sizeof value);
}

void gguf_write_bool(gguf_writer *const w, const char *const key, const bool value) {
  const unsigned char byte = value;
  scalar(w, key, GGUF_BOOL, &byte, sizeof byte);
}

void gguf_write_f32_array(gguf_writer *const w, const char *const key, const float *const values,
                          const size_t n) {
  array(w, key, GGUF_F32, values, n, sizeof *values);
}

void gguf_write_i32_array(gguf_writer *const w, const char *const key, const int32_t *const values,
                          const size_t n) {
  array(w, key, GGUF_I32, values, n, sizeof *values);
}

void gguf_write_text_array(gguf_writer *const w, const char *const key, const gguf_text *const texts,
                           const size_t n) {
  if (!begin_key(w, key, strlen(key), GGUF_ARRAY)) return;
  stage_u32(w, GGUF_STRING);
  stage_u64(w, n);
  for (size_t i = 0; i < n && !failed(w); i++) stage_text(w, texts[i].data, texts[i].bytes);
}

void gguf_write_key(gguf_writer *const w, const gguf_key *const key) {
  if (gguf_text_is(key->name, "general.alignment")) return;
  if (!begin_key(w, key->name.data, key->name.bytes, key->type)) return;
  if (key->type == GGUF_STRING) stage_u64(w, key->value_bytes);
  if (key->type == GGUF_ARRAY) {
    stage_u32(w, key->element);
    stage_u64(w, key->count);
  }
  if (key->value_bytes < BLOCK_BYTES) {
    stage(w, key->value, key->value_bytes);
  } else {
    stage_outside(w, key->value, key->value_bytes);
  }
}

/* Bytes of a tensor; 0 when the declaration is none that a reader takes. */
static size_t declared_bytes(const char *const name, const dtype type, const int n_dims,
                             const int64_t *const ne) {
  const size_t name_bytes = strlen(name);
  const dtype_row *const row = dtype_find(type);
  if (!row || !name_bytes || name_bytes > NAME_LIMIT || n_dims < 1 || n_dims > 4) return 0;
  int64_t n = 1, bytes;
  for (int i = 0; i < n_dims; i++) {
    if (ne[i] < 1 || __builtin_mul_overflow(n, ne[i], &n)) return 0;
  }
  if (ne[0] % row->block_elements) return 0;
  if (__builtin_mul_overflow(n / row->block_elements, (int64_t)row->block_bytes, &bytes)) return 0;
  return (size_t)bytes;
}

void gguf_write_tensor(gguf_writer *const w, const char *const name, const dtype type, const int n_dims,
                       const int64_t *const ne) {
  if (failed(w)) return;
  const size_t bytes = declared_bytes(name, type, n_dims, ne);
  if (w->phase > PHASE_TENSORS || !bytes || bytes > INT64_MAX - WRITE_ALIGN - w->data_bytes) {
    keep(w, STINT_INTERNAL,
         "tensor '%s' comes after data, or its name, type or sizes are none that GGUF has; report this",
         name);
    return;
  }
  record *const r = BUMP_NEW(w->b, record);
  char *const copy = bump_text(w->b, name, strlen(name));
  if (!r || !copy) {
    keep_memory(w);
    return;
  }
  w->phase = PHASE_TENSORS;
  *r = (record){.name = copy, .bytes = bytes};
  if (w->last_tensor) {
    w->last_tensor->next = r;
  } else {
    w->tensors = w->current = r;
  }
  w->last_tensor = r;
  w->n_tensors++;
  stage_text(w, name, strlen(name));
  stage_u32(w, (uint32_t)n_dims);
  stage(w, ne, (size_t)n_dims * sizeof *ne);
  stage_u32(w, type);
  stage_u64(w, w->data_bytes);
  w->data_bytes += bytes + padding(bytes);
}

/* ---- the descriptor ---- */

static void put_out(gguf_writer *const w, const unsigned char *const data, const size_t bytes) {
  for (size_t done = 0; done < bytes && !failed(w);) {
    const ssize_t n = write(w->fd, data + done, bytes - done);
    if (n > 0) {
      done += (size_t)n;
    } else if (!n || errno != EINTR) {
      keep_io(w, "write", n ? errno : ENOSPC);
    }
  }
}

static void flush(gguf_writer *const w) {
  put_out(w, w->pending, w->n_pending);
  w->n_pending = 0;
}

static void put(gguf_writer *const w, const void *const data, const size_t bytes) {
  if (bytes > PENDING_BYTES - w->n_pending) flush(w);
  if (bytes > PENDING_BYTES) {
    put_out(w, data, bytes);
  } else if (bytes) {
    memcpy(w->pending + w->n_pending, data, bytes);
    w->n_pending += bytes;
  }
}

static void put_padding(gguf_writer *const w, const size_t after_bytes) {
  static const unsigned char zeros[WRITE_ALIGN];
  put(w, zeros, padding(after_bytes));
}

static void emit_header(gguf_writer *const w) {
  if (w->phase == PHASE_DATA || failed(w)) return;
  w->phase = PHASE_DATA;
  const uint32_t version = 3;
  put(w, "GGUF", 4);
  put(w, &version, sizeof version);
  put(w, &w->n_tensors, sizeof w->n_tensors);
  put(w, &w->n_keys, sizeof w->n_keys);
  for (const block *k = w->first; k; k = k->next) put(w, k->data, k->bytes);
  put_padding(w, HEADER_BYTES + w->staged_bytes);
}

void gguf_write_data(gguf_writer *const w, const void *const data, const size_t bytes) {
  emit_header(w);
  if (failed(w) || !bytes) return;
  record *const r = w->current;
  if (!r || bytes > r->bytes - r->written) {
    keep(w, STINT_INTERNAL, "%zu bytes of data pass the end of tensor '%s', which has %zu; report this",
         bytes, r ? r->name : "(none left)", r ? r->bytes : 0);
    return;
  }
  put(w, data, bytes);
  r->written += bytes;
  if (r->written == r->bytes) {
    put_padding(w, r->bytes);
    w->current = r->next;
  }
}

/* ---- open and close ---- */

static void shut(gguf_writer *const w) {
  if (w->fd >= 0 && close(w->fd) && errno != EINTR) keep_io(w, "close", errno);
  w->fd = -1;
}

static stint_status check_target(const char *const path, stint_error *const error) {
  struct stat st;
  if (stat(path, &st) || S_ISREG(st.st_mode)) return STINT_OK;
  return stint_fail(error, STINT_BAD_INPUT, "%s: is %s, and a file is to be written; give the path of a file",
                    path, S_ISDIR(st.st_mode) ? "a directory" : "no regular file");
}

stint_status gguf_write_open(const char *const path, bump *const b, gguf_writer **const out,
                             stint_error *const error) {
  *out = NULL;
  STINT_TRY(check_target(path, error));
  const char *const slash = strrchr(path, '/');
  gguf_writer *const w = BUMP_NEW(b, gguf_writer);
  char *const path_copy = bump_text(b, path, strlen(path)), *const tmp = bump_printf(b, "%s.tmp", path);
  char *const folder =
      !slash ? bump_text(b, ".", 1) : bump_text(b, path, slash == path ? 1 : (size_t)(slash - path));
  if (!w || !path_copy || !tmp || !folder)
    return stint_fail(error, STINT_NO_MEMORY, "%s: a writer does not fit the memory for saving; allow more",
                      path);
  *w = (gguf_writer){.path = path_copy, .tmp = tmp, .folder = folder, .b = b};
  do {
    w->fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  } while (w->fd < 0 && errno == EINTR);
  if (w->fd < 0) {
    keep_io(w, "create", errno);
    if (error) *error = w->error;
    return w->error.status;
  }
  *out = w;
  return STINT_OK;
}

/* A rename survives a power cut once its folder is synced; file systems that cannot do that say EINVAL. */
static void sync_folder(gguf_writer *const w) {
  const int fd = open(w->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)fsync(fd);
  (void)close(fd);
}

stint_status gguf_write_close(gguf_writer *const w, stint_error *const error) {
  emit_header(w);
  if (w->current)
    keep(w, STINT_INTERNAL, "tensor '%s' got %zu of its %zu bytes; report this", w->current->name,
         w->current->written, w->current->bytes);
  flush(w);
  if (!failed(w) && fsync(w->fd)) keep_io(w, "sync", errno);
  shut(w);
  if (!failed(w) && rename(w->tmp, w->path)) keep_io(w, "rename", errno);
  if (failed(w)) {
    (void)unlink(w->tmp);
    if (error) *error = w->error;
    return w->error.status;
  }
  sync_folder(w);
  return STINT_OK;
}

void gguf_write_abandon(gguf_writer *const w) {
  shut(w);
  (void)unlink(w->tmp);
}

size_t gguf_write_scratch(const size_t header_bytes, const size_t n_tensors, const size_t n_copied_keys,
                          const size_t path_bytes) {
  /* A copied value may leave a block half full behind it, and is a block itself. */
  const size_t blocks = header_bytes / BLOCK_BYTES + 1 + n_copied_keys;
  return sizeof(gguf_writer) + 3 * (path_bytes + 8) + blocks * (sizeof(block) + BLOCK_BYTES + 16) +
         n_copied_keys * (sizeof(block) + 16) + n_tensors * (sizeof(record) + 16 + NAME_LIMIT + 1) + 256;
}
