/* JSON reading: jansson over the caller's buffer.
 *
 * Algorithm: for the length of one parse jansson's allocation functions are ours, under a lock; ours serve the thread that
 * holds the lock from a mark that moves through its buffer (a free of the newest block moves it back, which is what
 * growing strings do), and pass every other thread on to the functions that were there before. The tree is never
 * freed: its buffer is used again. When the buffer is full, ours does not return NULL but jumps out of the parse: jansson
 * 2.14 ignores a refusal while it collects a token and then reads past what it collected. All that it holds at that
 * moment lies in the buffer, so nothing leaks.
 *
 * Invariant: outside of json_read jansson is as the host program left it, and no block of ours is ever handed to another
 * allocator. Reading a tree allocates nothing. */
#include "engine/formats/json.h"

#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <string.h>

typedef struct pool {
  unsigned char *base;
  size_t bytes, used;
  bool exhausted;
  jmp_buf out; /* of the parse */
} pool;

enum { BLOCK_ALIGN = 16 }; /* each block is preceded by its own size in such a slot */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local pool *active; /* of the parse that runs in this thread */
static json_malloc_t malloc_before;
static json_free_t free_before;

static void *pool_take(const size_t bytes) {
  pool *const p = active;
  if (!p) return malloc_before(bytes);
  const size_t room = p->bytes - p->used;
  if (room < 2 * BLOCK_ALIGN || bytes > room - 2 * BLOCK_ALIGN) {
    p->exhausted = true;
    longjmp(p->out, 1);
  }
  const size_t rounded = (bytes + BLOCK_ALIGN - 1) & ~(size_t)(BLOCK_ALIGN - 1);
  unsigned char *const block = p->base + p->used + BLOCK_ALIGN;
  memcpy(block - BLOCK_ALIGN, &rounded, sizeof rounded);
  p->used += BLOCK_ALIGN + rounded;
  return block;
}

static void pool_give(void *const block) {
  pool *const p = active;
  const unsigned char *const at = block;
  if (!p) {
    free_before(block);
    return;
  }
  if (!at) return;
  size_t bytes;
  memcpy(&bytes, at - BLOCK_ALIGN, sizeof bytes);
  if (at + bytes == p->base + p->used) p->used -= bytes + BLOCK_ALIGN;
}

static const json_t *of(const json_node *const n) { return (const json_t *)n; }

static stint_status reject(const json_error_t *const cause, const size_t bytes, const char *const place,
                           const uint64_t line, const pool *const p, stint_error *const error) {
  char where[32] = "";
  if (line) snprintf(where, sizeof where, ":%llu", (unsigned long long)line);
  if (p->exhausted)
    return stint_fail(error, STINT_NO_MEMORY,
                      "%s%s: a JSON document of %zu bytes needs more than the %zu bytes that there are for "
                      "it; split it, or "
                      "allow more",
                      place, where, bytes, p->bytes);
  return stint_fail(error, STINT_BAD_INPUT,
                    "%s%s: byte %d: %s; correct this place, or check that the file is UTF-8 JSON", place,
                    where, cause->position, cause->text);
}

/* NULL when the text is no JSON, or the pool is exhausted. The pool and the cause are the caller's: what the parse changed
 * in them before a jump stands. */
static json_t *parse(pool *const p, const char *const text, const size_t bytes, json_error_t *const cause) {
  if (setjmp(p->out)) return NULL;
  return json_loadb(text, bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, cause);
}

stint_status json_read(const char *const text, const size_t bytes, const char *const place,
                       const uint64_t line, void *const buffer, const size_t buffer_bytes,
                       const json_node **const root, stint_error *const error) {
  *root = NULL;
  const size_t skip = -(uintptr_t)buffer & (BLOCK_ALIGN - 1);
  pool p = {.base = (unsigned char *)buffer + skip, .bytes = buffer_bytes > skip ? buffer_bytes - skip : 0};
  json_error_t cause = {.text = "it is empty"};
  pthread_mutex_lock(&lock);
  json_get_alloc_funcs(&malloc_before, &free_before);
  active = &p;
  json_set_alloc_funcs(pool_take, pool_give);
  const json_t *const tree = parse(&p, text ? text : "", bytes, &cause);
  json_set_alloc_funcs(malloc_before, free_before);
  active = NULL;
  pthread_mutex_unlock(&lock);
  if (!tree) return reject(&cause, bytes, place, line, &p, error);
  *root = (const json_node *)tree;
  return STINT_OK;
}

stint_status json_read_member(const char *const text, const size_t bytes, const char *const member,
                              const char *const place, const uint64_t line, void *const buffer,
                              const size_t buffer_bytes, json_text *const out, stint_error *const error) {
  *out = (json_text){0};
  const json_node *root;
  STINT_TRY(json_read(text, bytes, place, line, buffer, buffer_bytes, &root, error));
  if (!json_node_is_object(root))
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s:%llu: the line is no JSON object; each line must be one, like {\"%s\": \"...\"}",
                      place, (unsigned long long)line, member);
  const json_node *const value = json_node_member(root, member);
  if (!value)
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s:%llu: the object has no member \"%s\"; add it, or remove the line", place,
                      (unsigned long long)line, member);
  if (!json_node_text(value, out))
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s:%llu: the member \"%s\" is no string; make it one, or remove the line", place,
                      (unsigned long long)line, member);
  return STINT_OK;
}

const json_node *json_node_member(const json_node *const object, const char *const name) {
  return (const json_node *)(object ? json_object_get(of(object), name) : NULL);
}

const json_node *json_node_at(const json_node *const array, const size_t i) {
  return (const json_node *)(array ? json_array_get(of(array), i) : NULL);
}

size_t json_node_count(const json_node *const node) {
  if (!node) return 0;
  return json_is_array(of(node)) ? json_array_size(of(node)) : json_object_size(of(node));
}

bool json_node_is_object(const json_node *const node) { return node && json_is_object(of(node)); }
bool json_node_is_array(const json_node *const node) { return node && json_is_array(of(node)); }
bool json_node_is_null(const json_node *const node) { return node && json_is_null(of(node)); }

bool json_node_text(const json_node *const node, json_text *const out) {
  *out = (json_text){0};
  if (!node || !json_is_string(of(node))) return false;
  *out = (json_text){json_string_value(of(node)), json_string_length(of(node))};
  return true;
}

bool json_node_int(const json_node *const node, int64_t *const out) {
  *out = 0;
  if (!node || !json_is_integer(of(node))) return false;
  *out = json_integer_value(of(node));
  return true;
}

bool json_node_float(const json_node *const node, double *const out) {
  *out = 0;
  if (!node || !json_is_number(of(node))) return false;
  *out = json_number_value(of(node));
  return true;
}

bool json_node_bool(const json_node *const node, bool *const out) {
  *out = false;
  if (!node || !json_is_boolean(of(node))) return false;
  *out = json_is_true(of(node));
  return true;
}

bool json_node_text_is(const json_node *const node, const char *const literal) {
  json_text t;
  const size_t n = strlen(literal);
  return json_node_text(node, &t) && t.bytes == n && !memcmp(t.data, literal, n);
}
