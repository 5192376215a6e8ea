/* The GGUF writer: the very bytes that the format asks for, a round trip through the reader, and every failure of
 * the system, one by one: what stood at the path stays, path.tmp goes, the message has a remedy.
 *
 * The system calls are wrapped at link time (-Wl,--wrap), so that the n-th can be made to fail. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "engine/formats/gguf.h"
#include "tests/formats/gguf_bytes.h"

/* ---- the wraps ---- */
static struct {
  bool on;
  int n, fail_at, code; /* the fail_at-th call since `on` fails with code */
  const char *failed;   /* its name */
  size_t write_at_most; /* 0: whole writes */
} wrap;

static bool fails(const char *const name) {
  if (!wrap.on || ++wrap.n != wrap.fail_at) return false;
  wrap.failed = name;
  errno = wrap.code;
  return true;
}

ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(const int fd, const void *const data, const size_t n) {
  if (fails("write")) return -1;
  return __real_write(fd, data,
                      wrap.on && wrap.write_at_most && n > wrap.write_at_most ? wrap.write_at_most : n);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(const int fd) { return fails("fsync") ? -1 : __real_fsync(fd); }

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(const int fd) {
  if (!fails("close")) return __real_close(fd);
  __real_close(fd); /* the descriptor is gone even when close fails */
  errno = wrap.code;
  return -1;
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *const from, const char *const to) {
  return fails("rename") ? -1 : __real_rename(from, to);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *const path, const int flags, ...) {
  va_list args;
  va_start(args, flags);
  const int mode = va_arg(args, int);
  va_end(args);
  return fails("open") ? -1 : __real_open(path, flags, mode);
}

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *const path, const int flags, ...) {
  va_list args;
  va_start(args, flags);
  const int mode = va_arg(args, int);
  va_end(args);
  return fails("open") ? -1 : __real_open64(path, flags, mode);
}

/* ---- what is written ---- */

static bytes expected;
static unsigned char found[1 << 20];
static const float six[] = {-3, -2, -1, 0, 1, 2};
static const float forty_two = 42;

/* The same file as good_file() lays out by hand, with data in uneven pieces. */
static stint_status write_good(const char *const path, bump *const memory, stint_error *const error) {
  gguf_writer *w;
  STINT_TRY(gguf_write_open(path, memory, &w, error));
  gguf_write_text(w, "general.architecture", "test", 4);
  gguf_write_u32(w, "n", 7);
  gguf_write_f32(w, "x", 0.5f);
  gguf_write_bool(w, "flag", true);
  gguf_write_text_array(w, "texts", (const gguf_text[]){{"one", 3}, {"", 0}, {"three", 5}}, 3);
  gguf_write_i32_array(w, "ints", (const int32_t[]){1, -2}, 2);
  static const unsigned char flags[] = {0, 1};
  gguf_write_key(w, &(gguf_key){.name = {"flags", 5},
                                .type = GGUF_ARRAY,
                                .element = GGUF_BOOL,
                                .count = 2,
                                .value = flags,
                                .value_bytes = 2});
  gguf_write_tensor(w, "a", DTYPE_F32, 2, NE(3, 2));
  gguf_write_tensor(w, "b.weight", DTYPE_Q8_0, 1, NE(32));
  gguf_write_tensor(w, "c", DTYPE_F32, 1, NE(1));
  unsigned char block[34];
  for (int i = 0; i < 34; i++) block[i] = (unsigned char)i;
  gguf_write_data(w, six, 20);
  gguf_write_data(w, six + 5, 4);
  gguf_write_data(w, block, 33);
  gguf_write_data(w, block, 0);
  gguf_write_data(w, block + 33, 1);
  gguf_write_data(w, &forty_two, 4);
  return gguf_write_close(w, error);
}

static void compare_with_good(const char *const path) {
  size_t header_bytes;
  good_file(&expected, &header_bytes);
  const size_t n = fetch(path, found, sizeof found);
  cr_expect_eq(n, expected.n);
  cr_expect_eq(memcmp(found, expected.at, expected.n), 0);
}

static const char *tmp_of(const char *const path) {
  static char tmp[300];
  snprintf(tmp, sizeof tmp, "%s.tmp", path);
  return tmp;
}

Test(gguf_write, bytes_by_hand) {
  const char *const path = in_folder("good.gguf");
  const size_t pieces[] = {0, 1, 7, 31};
  for (int i = 0; i < 4; i++) {
    bump memory;
    bump_init(&memory, 0);
    stint_error error = {0};
    wrap.on = true;
    wrap.write_at_most = pieces[i]; /* a system that writes less than it is asked to */
    cr_assert_eq(write_good(path, &memory, &error), STINT_OK, "%s", error.text);
    wrap.on = false;
    compare_with_good(path);
    cr_expect_not(exists(tmp_of(path)));
    bump_free(&memory);
  }
  sweep();
}

/* Keys and data of many blocks; values copied from another file, small and large. */
Test(gguf_write, round_trip_and_copied_keys) {
  const char *const first = in_folder("first.gguf"), *const second = in_folder("second.gguf");
  enum { N_TEXTS = 3000, N_TENSORS = 300 };
  static gguf_text texts[N_TEXTS];
  static char store_of_texts[N_TEXTS][12];
  static float values[5000];
  for (int i = 0; i < N_TEXTS; i++)
    texts[i] = (gguf_text){store_of_texts[i], (size_t)snprintf(store_of_texts[i], 12, "%d", i * i)};
  for (int i = 0; i < 5000; i++) values[i] = (float)i * 0.25f;
  bump memory;
  bump_init(&memory, 0);
  stint_error error = {0};
  gguf_writer *w;
  cr_assert_eq(gguf_write_open(first, &memory, &w, &error), STINT_OK, "%s", error.text);
  gguf_write_key(w, &(gguf_key){.name = {"general.alignment", 17},
                                .type = GGUF_U32,
                                .count = 1,
                                .value = (const unsigned char *)"\100\0\0",
                                .value_bytes = 4}); /* dropped */
  gguf_write_text_array(w, "texts", texts, N_TEXTS);
  gguf_write_f32_array(w, "floats", values, 5000);
  gguf_write_u64(w, "digest", UINT64_C(0x0123456789abcdef));
  gguf_write_text(w, "empty", "", 0);
  for (int i = 0; i < N_TENSORS; i++) {
    char name[32];
    snprintf(name, sizeof name, "blk.%d.weight", i);
    gguf_write_tensor(w, name, DTYPE_F32, 2, NE(1 + i % 17, 1 + i % 5));
  }
  for (int i = 0; i < N_TENSORS; i++)
    gguf_write_data(w, values + i, (size_t)((1 + i % 17) * (1 + i % 5)) * 4);
  cr_assert_eq(gguf_write_close(w, &error), STINT_OK, "%s", error.text);

  gguf_file f, g;
  cr_assert_eq(gguf_open(first, &memory, &f, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(gguf_write_open(second, &memory, &w, &error), STINT_OK, "%s", error.text);
  for (size_t i = 0; i < f.n_keys; i++) gguf_write_key(w, &f.keys[i]);
  for (size_t i = 0; i < f.n_tensors; i++)
    gguf_write_tensor(w, f.tensors[i].name, f.tensors[i].type, f.tensors[i].n_dims, f.tensors[i].ne);
  for (size_t i = 0; i < f.n_tensors; i++) gguf_write_data(w, f.tensors[i].data, f.tensors[i].bytes);
  cr_assert_eq(gguf_write_close(w, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(gguf_open(second, &memory, &g, &error), STINT_OK, "%s", error.text);
  cr_assert(f.map.bytes == g.map.bytes && !memcmp(f.map.base, g.map.base, f.map.bytes));
  cr_assert_eq(f.map.bytes % 32, 0); /* the last tensor is padded too */

  gguf_strings walk = {.key = gguf_find_key(&g, "texts")};
  gguf_text t;
  for (int i = 0; i < N_TEXTS; i++) {
    cr_assert(gguf_next_string(&walk, &t));
    cr_assert(gguf_text_is(t, store_of_texts[i]), "%d", i);
  }
  for (int i = 0; i < 5000; i++)
    cr_assert_eq(gguf_array_float(gguf_find_key(&g, "floats"), (uint64_t)i), (double)values[i]);
  for (int i = 0; i < N_TENSORS; i++)
    cr_assert_eq(*(const float *)g.tensors[i].data, values[i], "tensor %d", i);
  gguf_close(&f);
  gguf_close(&g);
  bump_free(&memory);
  sweep();
}

/* The n-th system call fails, for every n: the file that stood there survives, or the new one is whole. */
Test(gguf_write, every_system_call_fails_once) {
  const char *const path = in_folder("kept.gguf"), *const old = "what stood here before";
  const int codes[] = {ENOSPC, EIO, EDQUOT, EFBIG};
  int n_failed = 0;
  for (int c = 0; c < 4; c++) {
    for (int n = 1;; n++) {
      store(path, old, strlen(old));
      bump memory;
      bump_init(&memory, 0);
      stint_error error = {0};
      wrap.n = 0;
      wrap.failed = NULL;
      wrap.fail_at = n;
      wrap.code = codes[c];
      wrap.on = true;
      const stint_status status = write_good(path, &memory, &error);
      wrap.on = false;
      bump_free(&memory);
      cr_expect_not(exists(tmp_of(path)), "%s, call %d: path.tmp is left", wrap.failed, n);
      if (status == STINT_OK) {
        compare_with_good(path);
      } else {
        n_failed++;
        cr_expect_eq(status, STINT_IO);
        cr_expect(fetch(path, found, sizeof found) == strlen(old) && !memcmp(found, old, strlen(old)),
                  "%s, call %d: lost", wrap.failed, n);
        cr_expect(strstr(error.text, path) && strstr(error.text, strerror(codes[c])) &&
                      strchr(error.text, ';'),
                  "%s", error.text);
        cr_expect(codes[c] != ENOSPC || strstr(error.text, "free some space"), "%s", error.text);
      }
      if (!wrap.failed) break;
    }
  }
  cr_expect_geq(n_failed, 4 * 5, "%d: open, write, fsync, close and rename each fail", n_failed);
  sweep();
}

Test(gguf_write, an_interrupted_call_is_repeated) {
  const char *const path = in_folder("good.gguf");
  for (int n = 1; n <= 2; n++) { /* open, write */
    bump memory;
    bump_init(&memory, 0);
    stint_error error = {0};
    wrap.n = 0;
    wrap.fail_at = n;
    wrap.code = EINTR;
    wrap.on = true;
    cr_expect_eq(write_good(path, &memory, &error), STINT_OK, "call %d: %s", n, error.text);
    wrap.on = false;
    compare_with_good(path);
    bump_free(&memory);
  }
  sweep();
}

/* A real limit of the system, in place of a full disk. */
Test(gguf_write, file_size_limit) {
  const char *const path = in_folder("large.gguf");
  signal(SIGXFSZ, SIG_IGN);
  bump memory;
  bump_init(&memory, 0);
  stint_error error = {0};
  gguf_writer *w;
  cr_assert_eq(gguf_write_open(path, &memory, &w, &error), STINT_OK, "%s", error.text);
  gguf_write_tensor(w, "large", DTYPE_F32, 1, NE(1 << 18));
  struct rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  setrlimit(RLIMIT_FSIZE, &(struct rlimit){100000, before.rlim_max});
  gguf_write_data(w, found, sizeof found);
  const stint_status status = gguf_write_close(w, &error);
  setrlimit(RLIMIT_FSIZE, &before);
  cr_expect_eq(status, STINT_IO);
  cr_expect(strstr(error.text, "ulimit -f"), "%s", error.text);
  cr_expect_not(exists(path));
  cr_expect_not(exists(tmp_of(path)));
  bump_free(&memory);
  sweep();
}

Test(gguf_write, paths_that_cannot_be_written) {
  bump memory;
  bump_init(&memory, 0);
  gguf_writer *w;
  stint_error error = {0};
  cr_expect_eq(gguf_write_open(folder(), &memory, &w, &error), STINT_BAD_INPUT);
  cr_expect(strstr(error.text, "is a directory"), "%s", error.text);
  cr_expect_null(w);
  cr_expect_eq(gguf_write_open("/dev/null", &memory, &w, &error), STINT_BAD_INPUT);
  cr_expect_eq(gguf_write_open(in_folder("none/x.gguf"), &memory, &w, &error), STINT_IO);
  cr_expect(strstr(error.text, "create its folder first"), "%s", error.text);
  bump_free(&memory);
  sweep();
}

/* Misuse by the program: a status, never a wrong file. */
Test(gguf_write, declared_and_written_must_agree) {
  const char *const path = in_folder("wrong.gguf");
  for (int i = 0; i < 12; i++) {
    bump memory;
    bump_init(&memory, 0);
    gguf_writer *w;
    stint_error error = {0};
    cr_assert_eq(gguf_write_open(path, &memory, &w, &error), STINT_OK, "%s", error.text);
    gguf_write_u32(w, "n", 1);
    gguf_write_tensor(w, "first", DTYPE_F32, 1, NE(6));
    switch (i) {
    case 0:
      break; /* no data at all */
    case 1:
      gguf_write_data(w, six, 20);
      break; /* too little */
    case 2:
      gguf_write_data(w, found, 25);
      break; /* too much */
    case 3:
      gguf_write_data(w, six, 24), gguf_write_data(w, six, 1);
      break; /* more than there are tensors */
    case 4:
      gguf_write_u32(w, "late", 1);
      break; /* a key after a tensor */
    case 5:
      gguf_write_data(w, six, 24), gguf_write_tensor(w, "late", DTYPE_F32, 1, NE(1));
      break;
    case 6:
      gguf_write_tensor(w, "zero", DTYPE_F32, 1, NE(0));
      break;
    case 7:
      gguf_write_tensor(w, "odd", DTYPE_Q4_0, 1, NE(33));
      break;
    case 8:
      gguf_write_tensor(w, "wrap", DTYPE_F32, 2, NE(INT64_MAX, 2));
      break;
    case 9:
      gguf_write_tensor(w, "", DTYPE_F32, 1, NE(1));
      break;
    case 10:
      gguf_write_tensor(w, "0123456789012345678901234567890123456789012345678901234567890123", DTYPE_F32, 1,
                        NE(1));
      break;
    case 11:
      gguf_write_tensor(w, "type", (dtype)4, 1, NE(32));
      break;
    }
    cr_expect_eq(gguf_write_close(w, &error), STINT_INTERNAL, "case %d: %s", i, error.text);
    if (i == 2 || i == 3)
      cr_expect(strstr(error.text, "pass the end"), "case %d, told at once: %s", i, error.text);
    cr_expect(strstr(error.text, path) && strstr(error.text, "report this"), "case %d: %s", i, error.text);
    cr_expect_not(exists(path), "case %d", i);
    cr_expect_not(exists(tmp_of(path)), "case %d", i);
    bump_free(&memory);
  }
  sweep();
}

Test(gguf_write, abandon_leaves_nothing) {
  const char *const path = in_folder("given_up.gguf");
  bump memory;
  bump_init(&memory, 0);
  gguf_writer *w;
  stint_error error = {0};
  cr_assert_eq(gguf_write_open(path, &memory, &w, &error), STINT_OK, "%s", error.text);
  cr_expect(exists(tmp_of(path)));
  gguf_write_abandon(w);
  cr_expect_not(exists(path));
  cr_expect_not(exists(tmp_of(path)));
  bump_free(&memory);
  sweep();
}

/* Said: enough. One byte-sized step after another below: a status, and nothing left behind. */
Test(gguf_write, memory_in_the_callers_buffer) {
  const char *const path = in_folder("good.gguf");
  size_t header_bytes;
  good_file(&expected, &header_bytes);
  const size_t said = gguf_write_scratch(header_bytes, 3, 1, strlen(path));
  _Alignas(16) static unsigned char space[65536];
  cr_assert_leq(said, sizeof space);
  for (int i = 0; i <= 16; i++) {
    const size_t room = said * (size_t)i / 16;
    bump memory;
    bump_init_over(&memory, space, room);
    stint_error error = {0};
    const stint_status status = write_good(path, &memory, &error);
    cr_expect(status == STINT_OK || status == STINT_NO_MEMORY, "%zu: %s", room, error.text);
    if (i == 16) cr_expect_eq(status, STINT_OK, "%zu bytes were said: %s", said, error.text);
    if (i == 0) cr_expect_eq(status, STINT_NO_MEMORY);
    cr_expect_not(exists(tmp_of(path)));
  }
  sweep();
}
