/* JSON writing: text appended to a caller's buffer.
 *
 * Algorithm: a bit a level says whether the innermost values stand in an object and whether a comma is due; every value
 * passes through `begin`, which writes what is due before it. What does not fit is counted, not written; with
 * a flush function the buffer is handed over and used again. Numbers are printed with as few digits as read back to the
 * same bits, in the C locale whatever the process has.
 *
 * Invariant: what was written, if nothing was lost or misused, is one JSON value in UTF-8. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/formats/json.h"

void json_out_open(json_out *const o, char *const buffer, const size_t bytes) {
  *o = (json_out){.buffer = buffer, .bytes = bytes};
  buffer[0] = 0;
}

static void hand_over(json_out *const o) {
  if (o->used && !o->flush(o->flush_context, o->buffer, o->used)) o->lost_bytes += o->used;
  o->used = 0;
}

/* One byte of the buffer stays for the NUL. */
static void put(json_out *const o, const char *const data, const size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    if (o->flush && o->used + 1 >= o->bytes) hand_over(o);
    const size_t room = o->lost_bytes && !o->flush ? 0 : o->bytes - 1 - o->used, left = bytes - done;
    const size_t n = left < room ? left : room;
    if (!n) {
      o->lost_bytes += left;
      break;
    }
    memcpy(o->buffer + o->used, data + done, n);
    o->used += n;
    done += n;
  }
  o->buffer[o->used] = 0;
}

static void put_line(json_out *const o) {
  if (!o->indent) return;
  put(o, "\n", 1);
  for (int i = 0; i < o->indent * o->depth; i++) put(o, " ", 1);
}

static uint32_t level(const json_out *const o) { return o->depth ? UINT32_C(1) << (o->depth - 1) : 0; }

/* Comma and line before a key, or before a value of an array. */
static void separate(json_out *const o) {
  const uint32_t bit = level(o);
  if (o->has_item & bit) put(o, ",", 1);
  o->has_item |= bit;
  put_line(o);
}

static void begin(json_out *const o) {
  const uint32_t bit = level(o);
  if (!bit) {
    if (o->wrote_value) o->misused = true;
  } else if (o->is_object & bit) {
    if (!o->after_key) o->misused = true;
  } else {
    separate(o);
  }
  o->after_key = false;
  o->wrote_value = true;
}

static void open_level(json_out *const o, const bool object) {
  begin(o);
  if (o->depth == JSON_OUT_DEPTH) {
    o->misused = true;
    return;
  }
  o->depth++;
  const uint32_t bit = level(o);
  o->has_item &= ~bit;
  o->is_object = object ? o->is_object | bit : o->is_object & ~bit;
  put(o, object ? "{" : "[", 1);
}

void json_out_object(json_out *const o) { open_level(o, true); }
void json_out_array(json_out *const o) { open_level(o, false); }

void json_out_end(json_out *const o) {
  const uint32_t bit = level(o);
  if (!bit || o->after_key) {
    o->misused = true;
    return;
  }
  o->depth--;
  if (o->has_item & bit) put_line(o);
  put(o, o->is_object & bit ? "}" : "]", 1);
}

/* Bytes of the UTF-8 sequence at `at` (of at most `left` bytes), 0 when it is none. Source: RFC 3629. */
static size_t sequence(const unsigned char *const at, const size_t left) {
  const unsigned char lead = at[0];
  if (lead < 0x80) return 1;
  const size_t n = lead >= 0xc2 && lead <= 0xdf   ? 2
                   : (lead & 0xf0) == 0xe0        ? 3
                   : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                  : 0;
  if (!n || n > left) return 0;
  for (size_t i = 1; i < n; i++) {
    if ((at[i] & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && at[1] < 0xa0) || (lead == 0xf0 && at[1] < 0x90);
  const bool outside = (lead == 0xed && at[1] > 0x9f) || (lead == 0xf4 && at[1] > 0x8f);
  return overlong || outside ? 0 : n;
}

static void put_escape(json_out *const o, const unsigned char ch) {
  static const char short_form[32] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
  char text[8];
  if (ch == '"' || ch == '\\') {
    snprintf(text, sizeof text, "\\%c", ch);
  } else if (ch < 32 && short_form[ch]) {
    snprintf(text, sizeof text, "\\%c", short_form[ch]);
  } else {
    snprintf(text, sizeof text, "\\u%04x", ch);
  }
  put(o, text, strlen(text));
}

static void put_quoted(json_out *const o, const char *const text, const size_t bytes) {
  const unsigned char *const at = (const unsigned char *)text;
  put(o, "\"", 1);
  size_t plain = 0; /* start of what needs no escape and is not yet written */
  for (size_t i = 0; i < bytes;) {
    const size_t n = sequence(at + i, bytes - i);
    const bool escape = n == 1 && (at[i] < 32 || at[i] == '"' || at[i] == '\\' || at[i] == 127);
    if (n && !escape) {
      i += n;
      continue;
    }
    put(o, text + plain, i - plain);
    if (escape) {
      put_escape(o, at[i]);
    } else {
      put(o, "\xef\xbf\xbd", 3);
    }
    plain = ++i;
  }
  put(o, text + plain, bytes - plain);
  put(o, "\"", 1);
}

void json_out_key(json_out *const o, const char *const key) {
  if (!(o->is_object & level(o)) || o->after_key) {
    o->misused = true;
    return;
  }
  separate(o);
  put_quoted(o, key, strlen(key));
  put(o, ": ", o->indent ? 2 : 1);
  o->after_key = true;
}

static void put_value(json_out *const o, const char *const text) {
  begin(o);
  put(o, text, strlen(text));
}

void json_out_text_n(json_out *const o, const char *const text, const size_t bytes) {
  begin(o);
  put_quoted(o, text, bytes);
}

void json_out_text(json_out *const o, const char *const text) {
  if (text) {
    json_out_text_n(o, text, strlen(text));
  } else {
    json_out_null(o);
  }
}

void json_out_int(json_out *const o, const int64_t value) {
  char text[24];
  snprintf(text, sizeof text, "%lld", (long long)value);
  put_value(o, text);
}

void json_out_uint(json_out *const o, const uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "%llu", (unsigned long long)value);
  put_value(o, text);
}

void json_out_hex(json_out *const o, const uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "\"%016llx\"", (unsigned long long)value);
  put_value(o, text);
}

/* The locale's decimal point, whatever it is, becomes a point. A whole number gets ".0", so that it reads back as a
 * float; an exponent needs none. */
static void put_number(json_out *const o, char *const text) {
  bool whole = true;
  for (char *c = text; *c; c++) {
    const bool digit = (*c >= '0' && *c <= '9') || *c == '-' || *c == '+';
    if (digit) continue;
    whole = false;
    if (*c != 'e') *c = '.';
  }
  if (whole) strcat(text, ".0");
  put_value(o, text);
}

void json_out_float(json_out *const o, const float value) {
  if (!__builtin_isfinite(value)) {
    json_out_null(o);
    return;
  }
  char text[40];
  for (int digits = 6; digits <= 9; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, (double)value);
    if (strtof(text, NULL) == value) break;
  }
  put_number(o, text);
}

void json_out_double(json_out *const o, const double value) {
  if (!__builtin_isfinite(value)) {
    json_out_null(o);
    return;
  }
  char text[40];
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  put_number(o, text);
}

void json_out_bool(json_out *const o, const bool value) { put_value(o, value ? "true" : "false"); }
void json_out_null(json_out *const o) { put_value(o, "null"); }

bool json_out_close(json_out *const o) {
  if (o->flush) hand_over(o);
  return o->wrote_value && !o->depth && !o->after_key && !o->misused && !o->lost_bytes;
}

bool json_out_close_line(json_out *const o) {
  put(o, "\n", 1);
  return json_out_close(o);
}

void json_put_text(json_out *const o, const char *const key, const char *const value) {
  json_out_key(o, key);
  json_out_text(o, value);
}

void json_put_int(json_out *const o, const char *const key, const int64_t value) {
  json_out_key(o, key);
  json_out_int(o, value);
}

void json_put_uint(json_out *const o, const char *const key, const uint64_t value) {
  json_out_key(o, key);
  json_out_uint(o, value);
}

void json_put_hex(json_out *const o, const char *const key, const uint64_t value) {
  json_out_key(o, key);
  json_out_hex(o, value);
}

void json_put_float(json_out *const o, const char *const key, const float value) {
  json_out_key(o, key);
  json_out_float(o, value);
}

void json_put_double(json_out *const o, const char *const key, const double value) {
  json_out_key(o, key);
  json_out_double(o, value);
}

void json_put_bool(json_out *const o, const char *const key, const bool value) {
  json_out_key(o, key);
  json_out_bool(o, value);
}
