/* Packing for the product: a transpose of stored rows, or a copy of them, dequantized on the way.
 *
 * Transpose (stored rows run over m or n): VW rows become columns. 4 words (32 bits) of each row at a time: a register gathers
 * them from every fourth row, two rounds of unpacking finish 4 x 4 transposes in each 128-bit lane, and each of the four
 * registers then holds one word of every row. A word is one F32, two F16 or BF16, four Q8_0 or eight Q4 values, taken apart in
 * place, so that a scale multiplies after the transpose, one register of scales for VW rows.
 *
 * The bits are those of dequantize_row: q*d of Q8_0, Q4_0 and Q4_1 is exact in float32 (11 bits times at most 8), so the
 * order in which d and powers of two multiply does not show, and Q4_1's fused multiply-add of the minimum rounds as a
 * multiply and an add. */
#ifndef STINT_KERNELS_CPU_GEMM_PACK_H
#define STINT_KERNELS_CPU_GEMM_PACK_H

#include <string.h>

#include "kernels/cpu/gemm_tile.h"
#include "kernels/quant/dtype.h"

enum { PACK_UNIT = 32, PACK_UNIT_REGS = 32 / VW, PACK_TEMP_BYTES = 128 };

#if defined(__AVX512F__)
typedef __m512i vi;
#define PACK_V(name) _mm512_##name
GEMM_INLINE vf pack_f16(const __m256i h) { return _mm512_cvtph_ps(h); }
GEMM_INLINE vf pack_f16_load(const void *const p) { return pack_f16(_mm256_loadu_si256(p)); }
GEMM_INLINE vf pack_bf16_load(const void *const p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
/* The low halves of the words, as F16. */
GEMM_INLINE vf pack_f16_words(const vi w) { return pack_f16(_mm512_cvtepi32_epi16(w)); }
GEMM_INLINE vi pack_and(const vi a, const int32_t m) { return _mm512_and_si512(a, _mm512_set1_epi32(m)); }
GEMM_INLINE vf pack_cast(const vi a) { return _mm512_castsi512_ps(a); }
GEMM_INLINE vi pack_words(const vf a) { return _mm512_castps_si512(a); }
/* The low 4 bits of each word, less `bias`, as float: a look-up (it ignores the higher bits). */
GEMM_INLINE vf pack_nibble(const vi w, const int bias) {
  const vf values = _mm512_sub_ps(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                  _mm512_set1_ps((float)bias));
  return _mm512_permutexvar_ps(w, values);
}
GEMM_INLINE vi pack_first_words(const unsigned char *const from, const int64_t ld) { /* of each row */
  const vi row = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_i32gather_epi32(_mm512_mullo_epi32(row, _mm512_set1_epi32((int)ld)), from, 1);
}
GEMM_INLINE vf pack_gather(const unsigned char *const p, const int64_t ld) { /* lane L: 16 bytes of row 4L */
  vf v = _mm512_castps128_ps512(_mm_loadu_ps((const float *)(const void *)p));
  v = _mm512_insertf32x4(v, _mm_loadu_ps((const float *)(const void *)(p + 4 * ld)), 1);
  v = _mm512_insertf32x4(v, _mm_loadu_ps((const float *)(const void *)(p + 8 * ld)), 2);
  return _mm512_insertf32x4(v, _mm_loadu_ps((const float *)(const void *)(p + 12 * ld)), 3);
}
GEMM_INLINE void pack_bytes(const __m128i q, vf out[1]) {
  out[0] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q));
}
#else
typedef __m256i vi;
#define PACK_V(name) _mm256_##name
GEMM_INLINE vf pack_f16(const __m128i h) { return _mm256_cvtph_ps(h); }
GEMM_INLINE vf pack_f16_load(const void *const p) { return pack_f16(_mm_loadu_si128(p)); }
GEMM_INLINE vf pack_bf16_load(const void *const p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
GEMM_INLINE vf pack_f16_words(const vi w) {
  const vi low = _mm256_and_si256(w, _mm256_set1_epi32(0xffff));
  const vi packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
  return pack_f16(_mm256_castsi256_si128(packed));
}
GEMM_INLINE vi pack_and(const vi a, const int32_t m) { return _mm256_and_si256(a, _mm256_set1_epi32(m)); }
GEMM_INLINE vf pack_cast(const vi a) { return _mm256_castsi256_ps(a); }
GEMM_INLINE vi pack_words(const vf a) { return _mm256_castps_si256(a); }
GEMM_INLINE vf pack_nibble(const vi w, const int bias) {
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(pack_and(w, 15), _mm256_set1_epi32(bias)));
}
GEMM_INLINE vi pack_first_words(const unsigned char *const from, const int64_t ld) {
  const vi row = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_i32gather_epi32((const int *)(const void *)from,
                                _mm256_mullo_epi32(row, _mm256_set1_epi32((int)ld)), 1);
}
GEMM_INLINE vf pack_gather(const unsigned char *const p, const int64_t ld) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps((const float *)(const void *)p)),
                              _mm_loadu_ps((const float *)(const void *)(p + 4 * ld)), 1);
}
GEMM_INLINE void pack_bytes(const __m128i q, vf out[2]) { /* 16 signed bytes */
  out[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q));
  out[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(q, 8)));
}
#endif

#define PACK_PAIR(half, a, b)                                                                                \
  PACK_V(castpd_ps)(PACK_V(unpack##half##_pd)(PACK_V(castps_pd)(a), PACK_V(castps_pd)(b)))

/* Word j of every row in out[j], for the 4 words at `from` of each row. */
GEMM_INLINE void pack_quad(const unsigned char *const from, const int64_t ld, vf out[4]) {
  const vf v0 = pack_gather(from, ld), v1 = pack_gather(from + ld, ld), v2 = pack_gather(from + 2 * ld, ld),
           v3 = pack_gather(from + 3 * ld, ld);
  const vf t0 = PACK_V(unpacklo_ps)(v0, v1), t1 = PACK_V(unpackhi_ps)(v0, v1),
           t2 = PACK_V(unpacklo_ps)(v2, v3), t3 = PACK_V(unpackhi_ps)(v2, v3);
  out[0] = PACK_PAIR(lo, t0, t2);
  out[1] = PACK_PAIR(hi, t0, t2);
  out[2] = PACK_PAIR(lo, t1, t3);
  out[3] = PACK_PAIR(hi, t1, t3);
}

GEMM_INLINE int64_t pack_unit_bytes(const dtype type) { /* of 32 elements */
  return type == DTYPE_F32    ? 128
         : type == DTYPE_Q8_0 ? 34
         : type == DTYPE_Q4_0 ? 18
         : type == DTYPE_Q4_1 ? 20
                              : 64;
}

/* 32 elements of VW rows: element k of every row to dst + k*step, for k < count. `type` is a constant. */
GEMM_INLINE void pack_unit(const dtype type, const unsigned char *const from, const int64_t ld,
                           float *const dst, const int64_t step, const int64_t count) {
#define PACK_STORE(k, value)                                                                                 \
  do {                                                                                                       \
    if ((k) < count) vf_store(dst + (k)*step, value);                                                        \
  } while (0)
  vf w[4], d = vf_zero(), m = vf_zero();
  if (type != DTYPE_F32 && type != DTYPE_F16 && type != DTYPE_BF16) {
    const vi first = pack_first_words(from, ld);
    d = pack_f16_words(first);
    if (type == DTYPE_Q4_1) m = pack_f16_words(PACK_V(srli_epi32)(first, 16));
    if (type == DTYPE_Q8_0) d = d * vf_set1(0x1p-24f);
  }
  const int quads = type == DTYPE_F32                          ? 8
                    : type == DTYPE_Q8_0                       ? 2
                    : type == DTYPE_Q4_0 || type == DTYPE_Q4_1 ? 1
                                                               : 4;
  const int64_t head = type == DTYPE_Q8_0 || type == DTYPE_Q4_0 ? 2 : type == DTYPE_Q4_1 ? 4 : 0;
#pragma GCC unroll 8
  for (int q = 0; q < quads; q++) {
    pack_quad(from + head + 16 * q, ld, w);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      const vi word = pack_words(w[j]);
      if (type == DTYPE_F32) {
        PACK_STORE(4 * q + j, w[j]);
      } else if (type == DTYPE_F16) {
        PACK_STORE(8 * q + 2 * j, pack_f16_words(word));
        PACK_STORE(8 * q + 2 * j + 1, pack_f16_words(PACK_V(srli_epi32)(word, 16)));
      } else if (type == DTYPE_BF16) {
        PACK_STORE(8 * q + 2 * j, pack_cast(PACK_V(slli_epi32)(word, 16)));
        PACK_STORE(8 * q + 2 * j + 1, pack_cast(pack_and(word, (int32_t)0xffff0000)));
      } else if (type ==
                 DTYPE_Q8_0) { /* the byte at the top of its word: q * 2^24, and d is 2^-24 of itself */
#pragma GCC unroll 4
        for (int b = 0; b < 4; b++) {
          const vi top = pack_and(PACK_V(slli_epi32)(word, 24 - 8 * b), (int32_t)0xff000000);
          PACK_STORE(16 * q + 4 * j + b, PACK_V(cvtepi32_ps)(top) * d);
        }
      } else {
#pragma GCC unroll 8
        for (int b = 0; b < 8; b++) { /* low nibbles are elements 0..15, high ones 16..31 */
          const vf n = pack_nibble(PACK_V(srli_epi32)(word, 4 * b), type == DTYPE_Q4_0 ? 8 : 0);
          if (type == DTYPE_Q4_0)
            PACK_STORE(4 * j + b / 2 + 16 * (b % 2), n * d);
          else
            PACK_STORE(4 * j + b / 2 + 16 * (b % 2), vf_fma(n, d, m));
        }
      }
    }
  }
#undef PACK_STORE
}

/* dst[k*step + r] = element k of stored row r, for k in [0, n). `rows` may be under VW: the other lanes get anything finite
 * or not; each k stores a whole register. `from` is the first element's address (the first block's). */
GEMM_INLINE void pack_transpose_as(const dtype type, const unsigned char *from, const int64_t ld,
                                   const int64_t rows, const int64_t n, float *dst, const int64_t step) {
  const int64_t unit = pack_unit_bytes(type);
  for (int64_t k = 0; k < n; k += PACK_UNIT, from += unit, dst += PACK_UNIT * step) {
    if (rows >= VW && n - k >= PACK_UNIT) {
      pack_unit(type, from, ld, dst, step, PACK_UNIT);
      continue;
    }
    int64_t count = n - k < PACK_UNIT ? n - k : PACK_UNIT, done = 0;
    if (type == DTYPE_F32 && rows >= VW) { /* short k: the whole words of 4 need no copy */
      for (; done + 4 <= count; done += 4) {
        vf w[4];
        pack_quad(from + 4 * done, ld, w);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) vf_store(dst + (done + j) * step, w[j]);
      }
      if (done == count) continue;
      count -= done;
    }
    _Alignas(64) unsigned char edge[VW * PACK_TEMP_BYTES]; /* what exists, and zeros */
    const int64_t bytes = type == DTYPE_F32                         ? 4 * count
                          : type == DTYPE_F16 || type == DTYPE_BF16 ? 2 * count
                                                                    : unit;
    memset(edge, 0, sizeof edge);
    for (int64_t r = 0; r < rows && r < VW; r++)
      memcpy(edge + r * PACK_TEMP_BYTES, from + 4 * done + r * ld, (size_t)bytes);
    pack_unit(type, edge, PACK_TEMP_BYTES, dst + done * step, step, count);
  }
}

#define PACK_FOR_TYPE(type, call, ...)                                                                       \
  switch ((int)(type)) {                                                                                     \
  case DTYPE_F32:                                                                                            \
    call(DTYPE_F32, __VA_ARGS__);                                                                            \
    break;                                                                                                   \
  case DTYPE_F16:                                                                                            \
    call(DTYPE_F16, __VA_ARGS__);                                                                            \
    break;                                                                                                   \
  case DTYPE_BF16:                                                                                           \
    call(DTYPE_BF16, __VA_ARGS__);                                                                           \
    break;                                                                                                   \
  case DTYPE_Q8_0:                                                                                           \
    call(DTYPE_Q8_0, __VA_ARGS__);                                                                           \
    break;                                                                                                   \
  case DTYPE_Q4_0:                                                                                           \
    call(DTYPE_Q4_0, __VA_ARGS__);                                                                           \
    break;                                                                                                   \
  default:                                                                                                   \
    call(DTYPE_Q4_1, __VA_ARGS__);                                                                           \
    break;                                                                                                   \
  }

GEMM_INLINE vf pack_scale(const unsigned char *const p) {
  uint16_t h;
  memcpy(&h, p, sizeof h);
  return vf_set1(_mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))));
}

/* 32 elements of one row (all of them exist). */
GEMM_INLINE void pack_along(const dtype type, const unsigned char *const src, vf out[PACK_UNIT_REGS]) {
  if (type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16) {
#pragma GCC unroll 4
    for (int i = 0; i < PACK_UNIT_REGS; i++)
      out[i] = type == DTYPE_F32   ? vf_load((const float *)(const void *)src + i * VW)
               : type == DTYPE_F16 ? pack_f16_load(src + 2 * i * VW)
                                   : pack_bf16_load(src + 2 * i * VW);
    return;
  }
  const vf d = pack_scale(src);
  __m128i low, high;
  if (type == DTYPE_Q8_0) {
    low = _mm_loadu_si128((const __m128i *)(const void *)(src + 2));
    high = _mm_loadu_si128((const __m128i *)(const void *)(src + 18));
  } else {
    const __m128i nibble = _mm_set1_epi8(15), bias = _mm_set1_epi8(type == DTYPE_Q4_0 ? 8 : 0);
    const __m128i q = _mm_loadu_si128((const __m128i *)(const void *)(src + (type == DTYPE_Q4_0 ? 2 : 4)));
    low = _mm_sub_epi8(_mm_and_si128(q, nibble), bias);
    high = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(q, 4), nibble), bias);
  }
  pack_bytes(low, out);
  pack_bytes(high, out + PACK_UNIT_REGS / 2);
  const vf m = type == DTYPE_Q4_1 ? pack_scale(src + 2) : vf_zero();
#pragma GCC unroll 4
  for (int i = 0; i < PACK_UNIT_REGS; i++) {
    if (type == DTYPE_Q4_1)
      out[i] = vf_fma(out[i], d, m);
    else
      out[i] = out[i] * d;
  }
}

/* Stored rows run over k: `rows` of them, n columns each, into panels of GEMM_NR columns, panel_step floats apart. */
GEMM_INLINE void pack_copy_as(const dtype type, const unsigned char *from, const int64_t ld,
                              const int64_t rows, const int64_t n, float *const dst,
                              const int64_t panel_step) {
  const int64_t unit = pack_unit_bytes(type), tail = n % PACK_UNIT, whole = n - tail;
  const bool blocks = type != DTYPE_F32 && type != DTYPE_F16 && type != DTYPE_BF16;
  gemm_mask mask[PACK_UNIT_REGS];
  for (int v = 0; v < PACK_UNIT_REGS; v++) mask[v] = gemm_mask_of(gemm_lanes(tail, v));
  for (int64_t k = 0; k < rows; k++, from += ld) {
    float *to = dst + k * GEMM_NR;
    const unsigned char *src = from;
    for (int64_t i = 0; i < n; i += PACK_UNIT, src += unit) {
      vf out[PACK_UNIT_REGS];
      if (i < whole || blocks) {
        pack_along(type, src, out);
      } else if (type == DTYPE_F32) {
#pragma GCC unroll 4
        for (int v = 0; v < PACK_UNIT_REGS; v++)
          out[v] = gemm_load((const float *)(const void *)src + v * VW, mask[v]);
      } else {
        _Alignas(64) unsigned char edge[PACK_TEMP_BYTES] = {0};
        memcpy(edge, src, (size_t)(2 * tail));
        pack_along(type, edge, out);
      }
#pragma GCC unroll 4
      for (int v = 0; v < PACK_UNIT_REGS; v += 2, to += panel_step) {
        vf_store(to, out[v]);
        vf_store(to + VW, out[v + 1]);
      }
    }
  }
}

#endif
