/* UTF-8 and the alphabet in which BPE vocabularies write bytes.
 *
 * Text may be anything: a byte that starts no sequence reads as U+FFFD and one byte; surrogates and values past
 * U+10FFFF read as U+FFFD; overlong forms read as what they say. The byte alphabet (GPT-2's): printable Latin-1
 * stands for itself, each other byte, ascending, for U+0100 and on. */
#include "engine/tokenizer/parts.h"

size_t tok_symbol_length(const unsigned char lead) {
  return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

size_t tok_put_utf8(const uint32_t code, char *out) {
  if (code < 0x80) {
    out[0] = (char)code;
    return 1;
  }
  if (code < 0x800) {
    out[0] = (char)(0xC0 | code >> 6);
    out[1] = (char)(0x80 | (code & 63));
    return 2;
  }
  if (code < 0x10000) {
    out[0] = (char)(0xE0 | code >> 12);
    out[1] = (char)(0x80 | (code >> 6 & 63));
    out[2] = (char)(0x80 | (code & 63));
    return 3;
  }
  out[0] = (char)(0xF0 | code >> 18);
  out[1] = (char)(0x80 | (code >> 12 & 63));
  out[2] = (char)(0x80 | (code >> 6 & 63));
  out[3] = (char)(0x80 | (code & 63));
  return 4;
}

uint32_t tok_get_utf8(const char *text, const size_t n, size_t *used) {
  const unsigned char *s = (const unsigned char *)text;
  const size_t length = tok_symbol_length(s[0]);
  *used = 1;
  if (s[0] < 0x80) return s[0];
  if (length == 1 || s[0] >= 0xF8 || length > n) return 0xFFFD;
  uint32_t code = s[0] & (0x7Fu >> length);
  for (size_t i = 1; i < length; i++) {
    if ((s[i] & 0xC0) != 0x80) return 0xFFFD;
    code = code << 6 | (s[i] & 63u);
  }
  *used = length;
  return code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0xFFFD : code;
}

/* 0x00..0x20 -> U+0100.., 0x7F..0xA0 -> U+0121.., 0xAD -> U+0143 */
uint32_t tok_byte_to_code(const unsigned char byte) {
  if (byte <= 0x20) return 0x100u + byte;
  if (byte >= 0x7F && byte <= 0xA0) return 0x121u + (byte - 0x7Fu);
  return byte == 0xAD ? 0x143u : byte;
}

int tok_code_to_byte(const uint32_t code) {
  if (code >= 0x100 && code <= 0x120) return (int)(code - 0x100);
  if (code >= 0x121 && code <= 0x142) return (int)(code - 0x121 + 0x7F);
  if (code == 0x143) return 0xAD;
  return code <= 0xFF && tok_byte_to_code((unsigned char)code) == code ? (int)code : -1;
}
