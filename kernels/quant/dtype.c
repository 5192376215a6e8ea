/* The table of GGUF types, and the plain conversions between a row of one and float32.
 *
 * Layouts (GGUF specification; a block is 32 elements, element e in [0, 16) in the low nibble of byte e, element
 * e + 16 in its high nibble):
 *   Q8_0  f16 d, int8 q[32]            x = q*d
 *   Q4_0  f16 d, 16 bytes of nibbles   x = (q - 8)*d
 *   Q4_1  f16 d, f16 m, 16 bytes       x = q*d + m     (q*d is exact in float32: 11 + 4 bits)
 * Invariant: plain integer and float32 arithmetic only, one rounding an operation, so the bits are the same on
 * every processor. The F16 and BF16 conversions are done on the bits. */
#include "kernels/quant/dtype.h"

#include <string.h>

static const dtype_row table[DTYPE_LIMIT] = {
    [DTYPE_F32] = {"F32", 1, 4, true},
    [DTYPE_F16] = {"F16", 1, 2, true},
    [DTYPE_Q4_0] = {"Q4_0", 32, 18, true},
    [DTYPE_Q4_1] = {"Q4_1", 32, 20, true},
    [6] = {"Q5_0", 32, 22, false},
    [7] = {"Q5_1", 32, 24, false},
    [DTYPE_Q8_0] = {"Q8_0", 32, 34, true},
    [9] = {"Q8_1", 32, 36, false},
    [10] = {"Q2_K", 256, 84, false},
    [11] = {"Q3_K", 256, 110, false},
    [12] = {"Q4_K", 256, 144, false},
    [13] = {"Q5_K", 256, 176, false},
    [14] = {"Q6_K", 256, 210, false},
    [15] = {"Q8_K", 256, 292, false},
    [16] = {"IQ2_XXS", 256, 66, false},
    [17] = {"IQ2_XS", 256, 74, false},
    [18] = {"IQ3_XXS", 256, 98, false},
    [19] = {"IQ1_S", 256, 50, false},
    [20] = {"IQ4_NL", 32, 18, false},
    [21] = {"IQ3_S", 256, 110, false},
    [22] = {"IQ2_S", 256, 82, false},
    [23] = {"IQ4_XS", 256, 136, false},
    [24] = {"I8", 1, 1, false},
    [25] = {"I16", 1, 2, false},
    [DTYPE_I32] = {"I32", 1, 4, false},
    [DTYPE_I64] = {"I64", 1, 8, false},
    [28] = {"F64", 1, 8, false},
    [29] = {"IQ1_M", 256, 56, false},
    [DTYPE_BF16] = {"BF16", 1, 2, true},
    [34] = {"TQ1_0", 256, 54, false},
    [35] = {"TQ2_0", 256, 66, false},
    [39] = {"MXFP4", 32, 17, false},
};

const dtype_row *dtype_find(const int64_t id) {
  return id >= 0 && id < DTYPE_LIMIT && table[id].name ? &table[id] : NULL;
}

const char *dtype_name(const int64_t id) {
  const dtype_row *const row = dtype_find(id);
  return row ? row->name : "unknown";
}

size_t dtype_bytes(const dtype type, const int64_t n) {
  const dtype_row *const row = dtype_find(type);
  return row ? (size_t)(n / row->block_elements) * row->block_bytes : 0;
}

static float float_of(const uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static uint32_t bits_of(const float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static float f16_load(const unsigned char *const p) {
  uint16_t h;
  memcpy(&h, p, sizeof h);
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
  const uint32_t exponent = h >> 10 & 31u, fraction = h & 1023u;
  if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, exact */
    const float f = (float)fraction * 0x1p-24f;
    return float_of(sign | bits_of(f));
  }
  if (exponent == 31) /* infinity, or NaN made quiet as the hardware does */
    return float_of(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0u));
  return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

static void f16_store(unsigned char *const p, const float f) { /* round to nearest even */
  const uint32_t x = bits_of(f), magnitude = x & 0x7fffffffu;
  uint32_t h;
  if (magnitude > 0x7f800000u)
    h = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  else if (magnitude >= 0x477ff000u) /* 65520 and above */
    h = 0x7c00u;
  else if (magnitude >= 0x38800000u) { /* normal: 2^-14 and above */
    const uint32_t r = magnitude - (112u << 23);
    h = (r + 0xfffu + (r >> 13 & 1u)) >> 13;
  } else { /* adding 0.5 leaves the multiple of 2^-24 in the low bits, rounded by the addition */
    h = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  }
  const uint16_t out = (uint16_t)((x >> 16 & 0x8000u) | h);
  memcpy(p, &out, sizeof out);
}

static void dequantize_block(const dtype type, const unsigned char *const src, float *const dst) {
  const float d = f16_load(src);
  switch ((int)type) {
  case DTYPE_Q8_0:
    for (int i = 0; i < 32; i++) dst[i] = (float)(int8_t)src[2 + i] * d;
    break;
  case DTYPE_Q4_0:
    for (int i = 0; i < 16; i++) {
      dst[i] = (float)((src[2 + i] & 15) - 8) * d;
      dst[i + 16] = (float)((src[2 + i] >> 4) - 8) * d;
    }
    break;
  case DTYPE_Q4_1: {
    const float m = f16_load(src + 2);
    for (int i = 0; i < 16; i++) {
      dst[i] = (float)(src[4 + i] & 15) * d + m;
      dst[i + 16] = (float)(src[4 + i] >> 4) * d + m;
    }
    break;
  }
  default:
    break;
  }
}

void dequantize_row(const dtype type, const void *const src, float *const dst, const int64_t n) {
  const unsigned char *const p = src;
  switch ((int)type) {
  case DTYPE_F32:
    memcpy(dst, src, (size_t)n * sizeof *dst);
    break;
  case DTYPE_F16:
    for (int64_t i = 0; i < n; i++) dst[i] = f16_load(p + 2 * i);
    break;
  case DTYPE_BF16:
    for (int64_t i = 0; i < n; i++) {
      uint16_t h;
      memcpy(&h, p + 2 * i, sizeof h);
      dst[i] = float_of((uint32_t)h << 16);
    }
    break;
  case DTYPE_Q8_0:
  case DTYPE_Q4_0:
  case DTYPE_Q4_1:
    for (int64_t i = 0; i < n / 32; i++)
      dequantize_block(type, p + i * (int64_t)table[type].block_bytes, dst + 32 * i);
    break;
  default:
    break;
  }
}

/* Truncation towards zero with the range held, so that no value (NaN and infinity too) is undefined. */
static int to_int(const float f, const int low, const int high) {
  return f > (float)low ? f < (float)high ? (int)f : high : low;
}

/* To nearest, halves away from zero. */
static int to_nearest(const float f) {
  const float a = f < 0 ? -f : f;
  const int whole = to_int(a, 0, 127), up = a - (float)whole >= 0.5f;
  const int q = whole + up > 127 ? 127 : whole + up;
  return f < 0 ? -q : q;
}

static float inverse(const float d) { return d == 0 ? 0.0f : 1.0f / d; }

static void store_nibbles(unsigned char *const q, const float *const x, const float shift, const float id,
                          const float half) {
  for (int i = 0; i < 16; i++) {
    const int low = to_int((x[i] - shift) * id + half, 0, 15);
    const int high = to_int((x[i + 16] - shift) * id + half, 0, 15);
    q[i] = (unsigned char)(low | high << 4);
  }
}

static void quantize_block(const dtype type, const float *const x, unsigned char *const dst) {
  float low = x[0], high = x[0],
        peak = x[0]; /* peak: the first value of the largest magnitude, with its sign */
  for (int i = 1; i < 32; i++) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
    peak = (x[i] < 0 ? -x[i] : x[i]) > (peak < 0 ? -peak : peak) ? x[i] : peak;
  }
  if (type == DTYPE_Q8_0) {
    const float d = (peak < 0 ? -peak : peak) / 127.0f, id = inverse(d);
    f16_store(dst, d);
    for (int i = 0; i < 32; i++) dst[2 + i] = (unsigned char)to_nearest(x[i] * id);
  } else if (type == DTYPE_Q4_0) {
    const float d = peak / -8.0f;
    f16_store(dst, d);
    store_nibbles(dst + 2, x, 0.0f, inverse(d), 8.5f);
  } else {
    const float d = (high - low) / 15.0f;
    f16_store(dst, d);
    f16_store(dst + 2, low);
    store_nibbles(dst + 4, x, low, inverse(d), 0.5f);
  }
}

void quantize_row(const dtype type, const float *const src, void *const dst, const int64_t n) {
  unsigned char *const p = dst;
  switch ((int)type) {
  case DTYPE_F32:
    memcpy(dst, src, (size_t)n * sizeof *src);
    break;
  case DTYPE_F16:
    for (int64_t i = 0; i < n; i++) f16_store(p + 2 * i, src[i]);
    break;
  case DTYPE_BF16:
    for (int64_t i = 0; i < n; i++) {
      const uint32_t x = bits_of(src[i]);
      const bool nan = (x & 0x7fffffffu) > 0x7f800000u;
      const uint16_t h = (uint16_t)(nan ? (x >> 16 | 64u) : (x + 0x7fffu + (x >> 16 & 1u)) >> 16);
      memcpy(p + 2 * i, &h, sizeof h);
    }
    break;
  case DTYPE_Q8_0:
  case DTYPE_Q4_0:
  case DTYPE_Q4_1:
    for (int64_t i = 0; i < n / 32; i++)
      quantize_block(type, src + 32 * i, p + i * (int64_t)table[type].block_bytes);
    break;
  default:
    break;
  }
}
