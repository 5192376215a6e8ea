/* JSON in and out: jansson over a caller's buffer, without malloc; the writer, read back with jansson. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>

#include "engine/formats/json.h"

static _Alignas(16) unsigned char space[1 << 20];

/* ---- in ---- */

static stint_status member(const char *const line, const size_t n, json_text *const out,
                           stint_error *const error) {
  memset(error, 0, sizeof *error);
  return json_read_member(line, n, "text", "train.jsonl", 17, space, sizeof space, out, error);
}

Test(json, text_member_of_a_line) {
  const struct {
    const char *line, *text;
    size_t bytes;
  } cases[] = {
      {"{\"text\": \"plain\"}", "plain", 5},
      {"  {\"a\": [1, {\"text\": 2}], \"text\":\"\"}\r\n", "", 0},
      {"{\"text\": \"\\u00fc \\\"q\\\" \\\\ \\/ \\b\\f\\n\\r\\t\"}", "\xc3\xbc \"q\" \\ / \b\f\n\r\t", 16},
      {"{\"text\": \"\\ud83d\\ude00\"}", "\xf0\x9f\x98\x80", 4},
      {"{\"text\": \"a\\u0000b\"}", "a\0b", 3},
      {"{\"text\": \"\xe4\xb8\x96\"}", "\xe4\xb8\x96", 3}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_text t;
    stint_error error;
    cr_expect_eq(member(cases[i].line, strlen(cases[i].line), &t, &error), STINT_OK, "%s: %s", cases[i].line,
                 error.text);
    cr_expect(t.bytes == cases[i].bytes && !memcmp(t.data, cases[i].text, t.bytes) && !t.data[t.bytes], "%s",
              cases[i].line);
  }
}

Test(json, bad_lines_name_the_place) {
  const struct {
    const char *line;
    const char *fragment;
  } cases[] = {{"", "17: byte"},
               {"   ", "17: byte"},
               {"{\"text\": \"open", "byte"},
               {"{\"text\": \"a\"", "byte"},
               {"{\"text\": \"a\",}", "byte 1"},
               {"{\"text\": \"a\"} {}", "end of file expected"},
               {"{\"text\": \"\\ud800\"}", "byte"},
               {"{\"text\": \"\x80\"}", "unable to decode byte 0x80"},
               {"{\"text\": \"\xc0\xaf\"}", "unable to decode byte"},
               {"{\"text\": \"\xed\xa0\x80\"}", "decode"},
               {"{\"text\": \"a\nb\"}", "byte"},
               {"{\"text\": \"a\", \"text\": \"b\"}", "duplicate"},
               {"{\"text\": 1e999}", "byte"},
               {"{'text': 1}", "byte 2"},
               {"[\"text\"]", "no JSON object"},
               {"\"text\"", "no JSON object"},
               {"17", "no JSON object"},
               {"{\"Text\": \"a\"}", "no member \"text\""},
               {"{\"text\": 5}", "is no string"},
               {"{\"text\": null}", "is no string"},
               {"{\"text\": [\"a\"]}", "is no string"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_text t;
    stint_error error;
    cr_expect_eq(member(cases[i].line, strlen(cases[i].line), &t, &error), STINT_BAD_INPUT, "%s",
                 cases[i].line);
    cr_expect(!strncmp(error.text, "train.jsonl:17: ", 16) && strchr(error.text, ';') &&
                  strstr(error.text, cases[i].fragment),
              "%s: '%s' is not in: %s", cases[i].line, cases[i].fragment, error.text);
    cr_expect(!t.data && !t.bytes);
  }
  char deep[10000];
  memset(deep, '[', sizeof deep);
  json_text t;
  stint_error error;
  cr_expect_eq(member(deep, sizeof deep, &t, &error), STINT_BAD_INPUT);
}

Test(json, every_truncation_and_flipped_bit) {
  char line[] =
      "{\"a\": [1, 2.5, -3e2, true, null], \"text\": \"x \\u00e9 \xc3\xa9\", \"o\": {\"k\": \"v\"}}";
  const size_t n = strlen(line);
  size_t n_refused = 0;
  json_text t;
  stint_error error;
  for (size_t cut = 0; cut < n; cut++)
    cr_expect_eq(member(line, cut, &t, &error), STINT_BAD_INPUT, "cut to %zu", cut);
  for (size_t bit = 0; bit < 8 * n; bit++) {
    line[bit / 8] = (char)(line[bit / 8] ^ (1 << bit % 8));
    n_refused += member(line, n, &t, &error) != STINT_OK;
    line[bit / 8] = (char)(line[bit / 8] ^ (1 << bit % 8));
  }
  cr_expect_gt(n_refused, 4 * n);
}

Test(json, a_tree) {
  const char text[] = "{\"n\": 9007199254740993, \"x\": -2.5e-3, \"list\": [true, null, \"s\", {}], "
                      "\"deep\": {\"er\": {\"k\": 7}}}";
  const json_node *root;
  stint_error error = {0};
  cr_assert_eq(json_read(text, strlen(text), "plan.json", 0, space, sizeof space, &root, &error), STINT_OK,
               "%s", error.text);
  int64_t n;
  double x;
  bool flag;
  json_text t;
  cr_expect(json_node_int(json_node_member(root, "n"), &n) && n == 9007199254740993);
  cr_expect(json_node_float(json_node_member(root, "x"), &x) && x == -2.5e-3);
  cr_expect(json_node_float(json_node_member(root, "n"), &x));
  cr_expect_not(json_node_int(json_node_member(root, "x"), &n));
  const json_node *const list = json_node_member(root, "list");
  cr_expect(json_node_is_array(list) && json_node_count(list) == 4 && json_node_count(root) == 4);
  cr_expect(json_node_bool(json_node_at(list, 0), &flag) && flag);
  cr_expect(json_node_is_null(json_node_at(list, 1)));
  cr_expect(json_node_text_is(json_node_at(list, 2), "s") && !json_node_text_is(json_node_at(list, 2), "st"));
  cr_expect(json_node_is_object(json_node_at(list, 3)) && json_node_count(json_node_at(list, 3)) == 0);
  cr_expect_null(json_node_at(list, 4));
  cr_expect(
      json_node_int(json_node_member(json_node_member(json_node_member(root, "deep"), "er"), "k"), &n) &&
      n == 7);
  const json_node *const none = json_node_member(json_node_member(root, "no"), "such");
  cr_expect(!none && !json_node_at(none, 0) && !json_node_count(none) && !json_node_is_object(none) &&
            !json_node_text(none, &t) && !json_node_int(none, &n) && !json_node_float(none, &x) &&
            !json_node_bool(none, &flag) && !json_node_is_array(none) && !json_node_is_null(none));
  cr_expect_null(json_node_member(list, "n"));
  cr_expect_null(json_node_at(root, 0));
}

/* The factor that the header states, for lines of training data; less is told, not overrun. */
Test(json, memory_of_a_document) {
  for (size_t n = 10; n <= 1000000; n *= 10) {
    char *const line = malloc(n + 32);
    memcpy(line, "{\"text\": \"", 10);
    memset(line + 10, 'x', n);
    memcpy(line + 10 + n, "\"}", 2);
    const size_t room = JSON_READ_FACTOR * (n + 12) + JSON_READ_BASE;
    unsigned char *const buffer = malloc(room);
    json_text t;
    stint_error error = {0};
    cr_expect_eq(json_read_member(line, n + 12, "text", "f", 1, buffer, room, &t, &error), STINT_OK,
                 "%zu: %s", n, error.text);
    cr_expect_eq(t.bytes, n);
    cr_expect((const unsigned char *)t.data >= buffer && (const unsigned char *)t.data < buffer + room);
    unsigned char *const less = malloc(n + 1);
    cr_expect_eq(json_read_member(line, n + 12, "text", "f", 1, less, n, &t, &error), STINT_NO_MEMORY, "%zu",
                 n);
    cr_expect(strstr(error.text, "f:1: ") && strstr(error.text, "allow more"), "%s", error.text);
    free(less), free(buffer), free(line);
  }
  for (size_t room = 0; room < 4096; room++) { /* every place at which it may run out */
    unsigned char *const buffer = malloc(room + 1);
    const json_node *root;
    stint_error error = {0};
    const char text[] =
        "{\"a\": [1, 2.5, {\"b\": \"some text that is longer than sixteen\"}], \"c\": null, \"d\": {}}";
    const stint_status status = json_read(text, strlen(text), "f", 1, buffer, room, &root, &error);
    cr_expect(status == STINT_OK ? root != NULL : status == STINT_NO_MEMORY && !root, "%zu: %s", room,
              error.text);
    free(buffer);
  }
}

static size_t n_malloc, n_free;
static void *counted_malloc(const size_t n) {
  n_malloc++;
  return malloc(n);
}
static void counted_free(void *const p) {
  n_free++;
  free(p);
}

/* A host program that uses jansson too keeps its allocator, and ours never reaches it. */
Test(json, the_hosts_jansson_is_left_alone) {
  json_set_alloc_funcs(counted_malloc, counted_free);
  json_t *const theirs = json_pack("{s:i}", "k", 1);
  const size_t before = n_malloc, freed = n_free;
  json_text t;
  stint_error error;
  cr_expect_eq(member("{\"text\": \"a\"}", 13, &t, &error), STINT_OK);
  cr_expect_eq(member("{\"text\": \"a}", 12, &t, &error), STINT_BAD_INPUT);
  cr_expect(n_malloc == before && n_free == freed, "%zu and %zu calls of malloc", n_malloc, before);
  json_malloc_t m;
  json_free_t f;
  json_get_alloc_funcs(&m, &f);
  cr_expect(m == counted_malloc && f == counted_free);
  json_decref(theirs);
  cr_expect_eq(n_malloc, n_free);
}

static void *read_many(void *const argument) {
  int *const n_wrong = argument;
  _Alignas(16) unsigned char own[4096];
  for (int i = 0; i < 2000; i++) {
    char line[64];
    json_text t;
    const int n = snprintf(line, sizeof line, "{\"text\": \"%d %p\"}", i, argument);
    const stint_status status = json_read_member(line, (size_t)n, "text", "f", 1, own, sizeof own, &t, NULL);
    *n_wrong += status != STINT_OK || memcmp(t.data, line + 10, t.bytes);
  }
  return NULL;
}

Test(json, threads) {
  pthread_t threads[3];
  int n_wrong[3] = {0};
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, read_many, &n_wrong[i]);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  cr_expect(!n_wrong[0] && !n_wrong[1] && !n_wrong[2]);
}

/* ---- out ---- */

static char out_text[1 << 16];

static void open_out(json_out *const o) { json_out_open(o, out_text, sizeof out_text); }

static void write_sample(json_out *const o) {
  json_out_object(o);
  json_put_int(o, "step", -7);
  json_put_uint(o, "big", UINT64_C(9223372036854775807));
  json_put_hex(o, "digest", UINT64_C(0xfedcba9876543210));
  json_put_float(o, "loss_nats_per_token", 3.19f);
  json_put_bool(o, "fits", true);
  json_put_text(o, "path", "a \"quoted\" \\ path\n\t\x01");
  json_put_text(o, "none", NULL);
  json_out_key(o, "list");
  json_out_array(o);
  json_out_double(o, 0.1);
  json_out_object(o), json_out_end(o);
  json_out_array(o), json_out_end(o);
  json_out_bool(o, false);
  json_out_end(o);
  json_out_end(o);
}

Test(json, a_line_of_a_log) {
  json_out o;
  open_out(&o);
  write_sample(&o);
  cr_assert(json_out_close_line(&o));
  cr_assert_str_eq(
      out_text,
      "{\"step\":-7,\"big\":9223372036854775807,\"digest\":\"fedcba9876543210\",\"loss_nats_per_token\":3.19,"
      "\"fits\":true,\"path\":\"a \\\"quoted\\\" \\\\ "
      "path\\n\\t\\u0001\",\"none\":null,\"list\":[0.1,{},[],false]}\n");
  cr_assert_eq(o.used, strlen(out_text));
  open_out(&o);
  o.indent = 2;
  write_sample(&o);
  cr_assert(json_out_close(&o));
  cr_assert(strstr(out_text, "{\n  \"step\": -7,\n") &&
                strstr(out_text, "\n  \"list\": [\n    0.1,\n    {},\n    [],\n    false\n  ]\n}"),
            "%s", out_text);
  json_t *const tree = json_loads(out_text, JSON_REJECT_DUPLICATES, NULL);
  cr_assert(tree && json_object_size(tree) == 8);
  json_decref(tree);
}

static uint64_t random_bits(uint64_t *const state) { /* splitmix64 (Steele, Lea, Flood 2014) */
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static double read_back(const json_out *const o) {
  json_t *const tree = json_loadb(o->buffer, o->used, 0, NULL);
  cr_assert(tree && json_is_real(json_array_get(tree, 0)), "%s", o->buffer);
  const double value = json_real_value(json_array_get(tree, 0));
  json_decref(tree);
  return value;
}

Test(json, numbers_read_back_to_the_same_bits) {
  uint64_t state = 1;
  for (int i = 0; i < 20000; i++) {
    const uint64_t bits = i == 0   ? 0
                          : i == 1 ? UINT64_C(0x8000000000000000)
                          : i == 2 ? 1
                          : i == 3 ? UINT64_C(0x7fefffffffffffff)
                                   : random_bits(&state);
    double d;
    float f;
    memcpy(&d, &bits, sizeof d);
    memcpy(&f, (const unsigned char *)&bits + 4, sizeof f);
    if (i == 2) f = 0x1p-149f;
    json_out o;
    open_out(&o);
    json_out_array(&o), json_out_double(&o, d), json_out_end(&o);
    cr_assert(json_out_close(&o));
    if (isfinite(d)) {
      const double back = read_back(&o);
      cr_assert_eq(memcmp(&back, &d, sizeof d), 0, "%a: %s", d, out_text);
    } else {
      cr_assert_str_eq(out_text, "[null]");
    }
    open_out(&o);
    json_out_array(&o), json_out_float(&o, f), json_out_end(&o);
    cr_assert(json_out_close(&o));
    if (isfinite(f)) {
      const float back = (float)read_back(&o);
      cr_assert_eq(memcmp(&back, &f, sizeof f), 0, "%a: %s", (double)f, out_text);
    }
  }
  const struct {
    float value;
    const char *text;
  } plain[] = {{0.1f, "0.1"}, {5, "5.0"}, {1e-5f, "1e-05"}, {3.0654299f, "3.06543"}};
  for (int i = 0; i < 4; i++) {
    json_out o;
    open_out(&o);
    json_out_float(&o, plain[i].value);
    cr_expect(json_out_close(&o));
    cr_expect_eq(strtof(out_text, NULL), plain[i].value);
    if (i < 3) cr_expect_str_eq(out_text, plain[i].text);
  }
}

Test(json, any_bytes_become_valid_text) {
  uint64_t state = 2;
  for (int i = 0; i < 5000; i++) {
    char bytes[24];
    const size_t n = random_bits(&state) % sizeof bytes;
    for (size_t k = 0; k < n; k++) { /* half of them out of the corners of UTF-8 */
      static const unsigned char corners[] = {0,    0x1f, '"',  '\\', 0x7f, 0x80, 0xa0, 0xbf, 0xc0,
                                              0xc2, 0xdf, 0xe0, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xff};
      const uint64_t r = random_bits(&state);
      bytes[k] = (char)(r & 256 ? r : corners[r / 512 % sizeof corners]);
    }
    json_out o;
    open_out(&o);
    json_out_array(&o), json_out_text_n(&o, bytes, n), json_out_end(&o);
    cr_assert(json_out_close(&o));
    json_t *const tree = json_loadb(out_text, o.used, JSON_ALLOW_NUL, NULL);
    cr_assert(tree, "%s", out_text);
    json_t *const same =
        json_stringn(bytes, n); /* NULL unless it is UTF-8; then it must come back as it was */
    if (same) cr_assert(json_equal(same, json_array_get(tree, 0)), "%s", out_text);
    json_decref(tree), json_decref(same);
  }
}

/* Every buffer that is too small: nothing is written past it, the loss is counted to the byte. */
Test(json, overflow_is_counted) {
  json_out o;
  open_out(&o);
  write_sample(&o);
  cr_assert(json_out_close(&o));
  const size_t whole = o.used;
  for (size_t room = 1; room <= whole + 1; room++) {
    char *const small = malloc(room); /* ASan sees a byte too many */
    json_out_open(&o, small, room);
    write_sample(&o);
    const bool fits = json_out_close(&o);
    cr_expect_eq(fits, room == whole + 1, "%zu", room);
    cr_expect_eq(o.used + o.lost_bytes, whole, "%zu", room);
    cr_expect(o.used < room && !small[o.used] && !memcmp(small, out_text, o.used), "%zu", room);
    free(small);
  }
}

typedef struct sink {
  char text[4096];
  size_t used;
  int calls_left;
} sink;

static bool collect(void *const context, const char *const data, const size_t n) {
  sink *const s = context;
  if (!s->calls_left--) return false;
  memcpy(s->text + s->used, data, n);
  s->used += n;
  return true;
}

Test(json, flush) {
  json_out o;
  open_out(&o);
  write_sample(&o);
  cr_assert(json_out_close(&o));
  for (size_t room = 2; room < 40; room++) {
    char window[40];
    sink s = {.calls_left = 10000};
    json_out_open(&o, window, room);
    o.flush = collect;
    o.flush_context = &s;
    write_sample(&o);
    cr_expect(json_out_close(&o), "%zu", room);
    cr_expect(s.used == strlen(out_text) && !memcmp(s.text, out_text, s.used), "%zu", room);
    s = (sink){.calls_left = 2};
    json_out_open(&o, window, room);
    o.flush = collect;
    o.flush_context = &s;
    write_sample(&o);
    cr_expect_not(json_out_close(&o), "a sink that gave up, %zu", room);
  }
}

Test(json, misuse_is_told) {
  for (int i = 0; i < 9; i++) {
    json_out o;
    open_out(&o);
    switch (i) {
    case 0:
      break; /* nothing */
    case 1:
      json_out_object(&o);
      break; /* not closed */
    case 2:
      json_out_object(&o), json_out_int(&o, 1), json_out_end(&o);
      break; /* a value without a key */
    case 3:
      json_out_object(&o), json_out_key(&o, "k"), json_out_end(&o);
      break; /* a key without a value */
    case 4:
      json_out_array(&o), json_out_key(&o, "k"), json_out_end(&o);
      break; /* a key in an array */
    case 5:
      json_out_int(&o, 1), json_out_int(&o, 2);
      break; /* two values */
    case 6:
      json_out_end(&o);
      break;
    case 7:
      json_out_object(&o), json_out_key(&o, "a"), json_out_key(&o, "b"), json_out_int(&o, 1),
          json_out_end(&o);
      break;
    case 8: /* a level too deep */
      for (int k = 0; k < JSON_OUT_DEPTH + 1; k++) json_out_array(&o);
      for (int k = 0; k < JSON_OUT_DEPTH; k++) json_out_end(&o);
      break;
    }
    cr_expect_not(json_out_close(&o), "case %d: %s", i, out_text);
  }
  json_out o;
  open_out(&o);
  for (int k = 0; k < JSON_OUT_DEPTH; k++) json_out_array(&o);
  for (int k = 0; k < JSON_OUT_DEPTH; k++) json_out_end(&o);
  cr_expect(json_out_close(&o), "the full depth");
}
