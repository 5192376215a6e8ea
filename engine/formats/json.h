/* JSON, in and out, without an allocator: the one place that uses jansson.
 *
 * In: json_read parses one document with jansson, whose allocations are served from the caller's buffer for as long as
 * the call lasts (before and after it jansson has whatever allocator it had, so a host program that uses jansson too
 * is not disturbed). The tree lies in that buffer and dies when the buffer is used again; nothing is freed.
 * A document of n bytes needs at most JSON_READ_FACTOR * n + JSON_READ_BASE bytes if it is one object with a long
 * text in it, as lines of training data are.
 *
 * Out: json_out appends to a caller's buffer: commas, quotes, escapes and numbers are its work. It never fails in
 * the middle: it counts what did not fit and says so at the end. Every number reads back to the same bits; a
 * NaN or an infinity, which JSON cannot say, is written as null. */
#ifndef STINT_ENGINE_FORMATS_JSON_H
#define STINT_ENGINE_FORMATS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/status.h"

/* ---- in ---- */
typedef struct json_node json_node; /* a value in the buffer; jansson's json_t */

typedef struct json_text {
  const char *data; /* UTF-8, also NUL-terminated (it may hold NULs of its own: use bytes) */
  size_t bytes;
} json_text;

enum { JSON_READ_FACTOR = 6, JSON_READ_BASE = 16384 };

/* Parses exactly one value. `place` says where the text is from ("train.jsonl"), `line` its line there (0: the text is
 * the whole file). BAD_INPUT names place, line, byte of the line and cause (invalid UTF-8 and duplicate members
 * included); NO_MEMORY when the buffer is too small for the document. *root is NULL on failure. */
stint_status json_read(const char *text, size_t bytes, const char *place, uint64_t line, void *buffer,
                       size_t buffer_bytes, const json_node **root, stint_error *error);

/* One line of JSONL: the string member `member` of the object in it, whole job in one call. */
stint_status json_read_member(const char *text, size_t bytes, const char *member, const char *place,
                              uint64_t line, void *buffer, size_t buffer_bytes, json_text *out,
                              stint_error *error);

/* Each takes NULL as "absent": it answers false / NULL / 0, so paths may be chained and checked once. */
const json_node *json_node_member(const json_node *object, const char *name); /* NULL: none, or no object */
const json_node *json_node_at(const json_node *array, size_t i); /* NULL: past the end, or no array */
size_t json_node_count(const json_node *node);                   /* elements or members; 0 for others */
bool json_node_is_object(const json_node *node);
bool json_node_is_array(const json_node *node);
bool json_node_is_null(const json_node *node);
bool json_node_text(const json_node *node, json_text *out);
bool json_node_int(const json_node *node, int64_t *out);  /* an integer, written without a point */
bool json_node_float(const json_node *node, double *out); /* any number */
bool json_node_bool(const json_node *node, bool *out);
bool json_node_text_is(const json_node *node, const char *literal);

/* ---- out ----
 *   json_out o;  json_out_open(&o, buffer, sizeof buffer);
 *   json_out_object(&o);  json_out_key(&o, "step");  json_out_int(&o, 7);  json_out_end(&o);
 *   if (!json_out_close(&o)) ...  then o.buffer[0 .. o.used), NUL-terminated
 * With `flush` set, the buffer is a window: full, it is handed to flush and reused (plans may be large). */
enum { JSON_OUT_DEPTH = 32 };

typedef struct json_out {
  char *buffer;
  size_t bytes, used;
  uint64_t lost_bytes; /* did not fit: a buffer of bytes + lost_bytes would have held it (without flush) */
  int indent;          /* 0: one line; else spaces a level. Set after open, before the first value */
  bool (*flush)(void *context, const char *data, size_t bytes); /* false: gives up, counted as lost */
  void *flush_context;
  /* private */
  int depth;
  uint32_t is_object, has_item; /* a bit a level */
  bool after_key, wrote_value, misused;
} json_out;

void json_out_open(json_out *o, char *buffer, size_t bytes); /* bytes >= 1 */
/* True when one whole value was written, every object and array is closed, and nothing was lost. Flushes. */
bool json_out_close(json_out *o);
/* The same with a newline after it: a line of a log. */
bool json_out_close_line(json_out *o);

void json_out_object(json_out *o);
void json_out_array(json_out *o);
void json_out_end(json_out *o); /* of the innermost object or array */
void json_out_key(json_out *o, const char *key);
void json_out_text(json_out *o, const char *text); /* NULL: null */
void json_out_text_n(json_out *o, const char *text,
                     size_t bytes); /* bytes that are not UTF-8 become U+FFFD */
void json_out_int(json_out *o, int64_t value);
void json_out_uint(json_out *o, uint64_t value);
void json_out_hex(json_out *o, uint64_t value);  /* "0123456789abcdef", a string: digests pass 2^53 */
void json_out_float(json_out *o, float value);   /* the fewest of up to 9 digits that read back the same */
void json_out_double(json_out *o, double value); /* up to 17 */
void json_out_bool(json_out *o, bool value);
void json_out_null(json_out *o);

/* key and value in one call */
void json_put_text(json_out *o, const char *key, const char *value);
void json_put_int(json_out *o, const char *key, int64_t value);
void json_put_uint(json_out *o, const char *key, uint64_t value);
void json_put_hex(json_out *o, const char *key, uint64_t value);
void json_put_float(json_out *o, const char *key, float value);
void json_put_double(json_out *o, const char *key, double value);
void json_put_bool(json_out *o, const char *key, bool value);

#endif
