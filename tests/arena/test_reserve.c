/* Reservations hold exactly the bytes that were asked for, and files are mapped or refused with a clear text. */
#include "arena/reserve.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/memory.h"

Test(reserve, rounds_to_pages) {
  cr_assert_eq(reserve_round(0), 0);
  cr_assert_eq(reserve_round(1), 4096);
  cr_assert_eq(reserve_round(4096), 4096);
  cr_assert_eq(reserve_round(4097), 8192);
  cr_assert_eq(reserve_round(SIZE_MAX), SIZE_MAX);
  cr_assert_eq(reserve_round(SIZE_MAX - 4094), SIZE_MAX);
  cr_assert_eq(reserve_round(SIZE_MAX - 4095), SIZE_MAX - 4095);
}

/* Sizes on both sides of a huge page: the kernel must not hold more for the reservation than the plan said. */
Test(reserve, a_touched_one_is_resident_to_the_byte_and_zero) {
  static const size_t sizes[] = {1, 4096, 100000, 2 << 20, (2 << 20) + 4096, (5 << 20) - 4096, 33 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const size_t whole = reserve_round(sizes[i]);
    memory_use before, with, after;
    reservation r;
    stint_error error;
    cr_assert(memory_now(&before));
    cr_assert_eq(reserve_take(sizes[i], true, &r, &error), STINT_OK);
    cr_assert(memory_now(&with));
    cr_assert_eq(r.bytes, whole);
    cr_assert_eq((uintptr_t)r.base % 4096, 0);
    cr_assert_eq(memory_resident(r.base, r.bytes), whole, "%zu bytes: not all pages are there", sizes[i]);
    cr_assert_eq(with.anonymous_bytes - before.anonymous_bytes, whole, "%zu bytes: the process grew by %zu",
                 sizes[i], with.anonymous_bytes - before.anonymous_bytes);
    size_t zeros = 0;
    while (zeros < r.bytes && !r.base[zeros]) zeros++;
    cr_assert_eq(zeros, r.bytes, "%zu bytes: byte %zu is not zero", sizes[i], zeros);
    memset(r.base, 1, r.bytes);
    reserve_release(&r);
    cr_assert_null(r.base);
    cr_assert(memory_now(&after));
    cr_assert_eq(after.anonymous_bytes, before.anonymous_bytes, "%zu bytes: not all came back", sizes[i]);
  }
}

Test(reserve, an_untouched_one_holds_nothing_yet) {
  reservation r;
  cr_assert_eq(reserve_take(10 << 20, false, &r, NULL), STINT_OK);
  cr_assert_eq(memory_resident(r.base, r.bytes), 0);
  reserve_release(&r);
  cr_assert_eq(reserve_take(0, true, &r, NULL), STINT_OK);
  cr_assert_null(r.base);
  cr_assert_eq(r.bytes, 0);
  reserve_release(&r);
}

Test(reserve, a_refusal_names_the_bytes_and_a_remedy) {
  static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 8191, (size_t)1 << 50};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    reservation r = {.base = (unsigned char *)&r, .bytes = 1};
    stint_error error = {0};
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%zu bytes", sizes[i]);
    cr_assert_eq(reserve_take(sizes[i], true, &r, &error), STINT_NO_MEMORY);
    cr_assert_null(r.base);
    cr_assert_not_null(strstr(error.text, bytes), "%s", error.text);
    cr_assert_not_null(strstr(error.text, "budget"), "%s", error.text);
    cr_assert_not_null(strstr(error.text, strerror(ENOMEM)), "%s", error.text);
  }
}

static const char *in_folder(const char *const folder, const char *const name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

Test(file_map, maps_files_and_refuses_the_rest) {
  char folder[] = "/tmp/stint-map-XXXXXX";
  cr_assert_not_null(mkdtemp(folder));
  stint_error error = {0};
  file_map m;

  const char *path = in_folder(folder, "text");
  FILE *const f = fopen(path, "w");
  fputs("twelve bytes", f);
  fclose(f);
  cr_assert_eq(file_map_open(path, &m, &error), STINT_OK);
  cr_assert_eq(m.bytes, 12);
  cr_assert_eq(memcmp(m.base, "twelve bytes", 12), 0);
  file_map_close(&m);
  cr_assert_null(m.base);
  unlink(path);

  path = in_folder(folder, "empty");
  fclose(fopen(path, "w"));
  cr_assert_eq(file_map_open(path, &m, &error), STINT_OK);
  cr_assert_null(m.base);
  cr_assert_eq(m.bytes, 0);
  file_map_close(&m);
  unlink(path);

  path = in_folder(folder, "pipe");
  cr_assert_eq(mkfifo(path, 0600), 0);
  cr_assert_eq(file_map_open(path, &m, &error), STINT_BAD_INPUT, "a pipe without a writer");
  cr_assert_not_null(strstr(error.text, "a pipe"), "%s", error.text);
  cr_assert_not_null(strstr(error.text, path), "%s", error.text);
  unlink(path);

  cr_assert_eq(file_map_open(folder, &m, &error), STINT_BAD_INPUT);
  cr_assert_not_null(strstr(error.text, "a directory"), "%s", error.text);
  cr_assert_null(m.base);

  path = in_folder(folder, "missing");
  cr_assert_eq(file_map_open(path, &m, &error), STINT_BAD_INPUT);
  cr_assert_not_null(strstr(error.text, path), "%s", error.text);
  cr_assert_eq(file_map_open("/dev/zero", &m, &error), STINT_BAD_INPUT);
  cr_assert_not_null(strstr(error.text, "a device"), "%s", error.text);
  rmdir(folder);
}

static int open_descriptors(void) {
  int n = 0;
  for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
  return n;
}

Test(file_map, leaves_no_descriptor_open) {
  const int before = open_descriptors();
  file_map m;
  for (int i = 0; i < 3; i++) {
    cr_assert_eq(file_map_open("/proc/self/exe", &m, NULL), STINT_OK);
    file_map_close(&m);
    cr_assert_neq(file_map_open("/tmp", &m, NULL), STINT_OK);
  }
  cr_assert_eq(open_descriptors(), before);
}
