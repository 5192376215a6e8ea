/* Element types against the Python package `gguf` (tests/oracles/quant.py wrote the data), bit for bit. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/quant/dtype.h"

static const dtype weight_types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1};
enum { N_WEIGHT_TYPES = sizeof weight_types / sizeof *weight_types };

/* A file of tests/kernels/data. */
static FILE *data_open(const char *const name, const char *const suffix) {
  char path[512];
  const char *const source = getenv("STINT_SOURCE");
  snprintf(path, sizeof path, "%s/tests/kernels/data/%s%s", source ? source : ".", name, suffix);
  FILE *const f = fopen(path, "rb");
  cr_assert(f, "%s cannot be opened", path);
  return f;
}

typedef struct golden {
  unsigned char *file;
  uint32_t n, n_raw;
  const float *values, *back, *raw_back;
  const unsigned char *stored, *raw;
} golden;

static golden golden_open(const dtype type) {
  FILE *const f = data_open(dtype_name(type), ".bin");
  golden g = {.file = calloc(1, 1 << 20)};
  const size_t bytes = fread(g.file, 1, 1 << 20, f);
  fclose(f);
  const unsigned char *p = g.file;
  memcpy(&g.n, p, 4);
  g.values = (const float *)(const void *)(p += 4);
  g.stored = p += 4 * g.n;
  g.back = (const float *)(const void *)(p += dtype_bytes(type, g.n));
  memcpy(&g.n_raw, p += 4 * g.n, 4);
  g.raw = p += 4;
  g.raw_back = (const float *)(const void *)(p += dtype_bytes(type, g.n_raw));
  cr_assert_eq((size_t)(p - g.file) + 4 * g.n_raw, bytes, "the data of %s has another length",
               dtype_name(type));
  cr_assert_gt(g.n, 0);
  return g;
}

/* Index of the first float whose bits differ (two NaN agree: which of several payloads an operation on NaN gives is not
 * part of the format), or -1. Values may be unaligned. */
static int64_t first_difference(const float *const a, const void *const b, const int64_t n,
                                const bool payload) {
  for (int64_t i = 0; i < n; i++) {
    float y;
    memcpy(&y, (const char *)b + 4 * i, 4);
    if (memcmp(a + i, &y, 4) != 0 && (payload || a[i] == a[i] || y == y)) return i;
  }
  return -1;
}

Test(dtype, dequantizes_as_gguf) {
  for (int t = 0; t < N_WEIGHT_TYPES; t++) {
    const dtype type = weight_types[t];
    const golden g = golden_open(type);
    float *const out = malloc(4 * (g.n + g.n_raw));
    dequantize_row(type, g.stored, out, g.n);
    int64_t at = first_difference(out, g.back, g.n, true);
    cr_expect_eq(at, -1, "%s: element %ld is %a", dtype_name(type), (long)at, (double)out[at < 0 ? 0 : at]);
    dequantize_row(type, g.raw, out, g.n_raw);
    at = first_difference(out, g.raw_back, g.n_raw, false);
    cr_expect_eq(at, -1, "%s: random bytes: element %ld is %a", dtype_name(type), (long)at,
                 (double)out[at < 0 ? 0 : at]);
    free(out);
    free(g.file);
  }
}

Test(dtype, quantizes_as_gguf) {
  for (int t = 0; t < N_WEIGHT_TYPES; t++) {
    const dtype type = weight_types[t];
    const golden g = golden_open(type);
    const size_t bytes = dtype_bytes(type, g.n);
    float *const x = malloc(4 * g.n);
    unsigned char *const out = malloc(bytes + 1);
    out[bytes] = 0xa5;
    memcpy(x, g.values, 4 * g.n);
    quantize_row(type, x, out, g.n);
    size_t at = 0;
    while (at < bytes && out[at] == g.stored[at]) at++;
    cr_expect_eq(at, bytes, "%s: byte %zu of %zu is %d, not %d", dtype_name(type), at, bytes, out[at],
                 at < bytes ? g.stored[at] : 0);
    cr_expect_eq(out[bytes], 0xa5, "%s: wrote past its bytes", dtype_name(type));
    free(out);
    free(x);
    free(g.file);
  }
}

/* Every F16 there is, by its definition in float64, and the way back is the identity. */
Test(dtype, every_f16) {
  for (uint32_t h = 0; h < 65536; h++) {
    const uint16_t stored = (uint16_t)h;
    const int exponent = (int)(h >> 10 & 31), fraction = (int)(h & 1023);
    const double magnitude = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
                             : exponent == 0 ? ldexp(fraction, -24)
                                             : ldexp(1024 + fraction, exponent - 25);
    const float want = (float)(h >> 15 ? -magnitude : magnitude);
    float got;
    dequantize_row(DTYPE_F16, &stored, &got, 1);
    uint32_t bits;
    memcpy(&bits, &got, 4);
    if (fraction && exponent == 31) /* the payload kept, made quiet */
      cr_assert_eq(bits, (h & 0x8000u) << 16 | 0x7fc00000u | (h & 1023u) << 13, "F16 %04x is %08x", h, bits);
    else
      cr_assert(memcmp(&got, &want, 4) == 0, "F16 %04x is %a, not %a", h, (double)got, (double)want);
    uint16_t again;
    quantize_row(DTYPE_F16, &got, &again, 1);
    const uint32_t quiet = h | (fraction && exponent == 31 ? 0x200u : 0u);
    cr_assert_eq(again, quiet, "F16 %04x came back as %04x", h, again);
  }
}

/* Rounding to F16 halfway between every two neighbours, and just off it: nearest, ties to even. */
Test(dtype, f16_rounds_to_nearest_even) {
  for (uint32_t h = 0; h < 0x7bff; h++) {
    const uint16_t pair[2] = {(uint16_t)h, (uint16_t)(h + 1)};
    float f[2];
    dequantize_row(DTYPE_F16, pair, f, 2);
    const float half = f[0] + (f[1] - f[0]) / 2,
                try[3] = {nextafterf(half, 0), half, nextafterf(half, INFINITY)};
    const uint16_t want[3] = {pair[0], h & 1 ? pair[1] : pair[0], pair[1]};
    uint16_t got[3];
    quantize_row(DTYPE_F16, try, got, 3);
    for (int i = 0; i < 3; i++)
      cr_assert_eq(got[i], want[i], "%a became %04x, not %04x", (double)try[i], got[i], want[i]);
  }
}

/* The same for BF16, whose halfway point is a float with the low half 0x8000. */
Test(dtype, bf16_rounds_to_nearest_even) {
  for (uint32_t h = 0; h < 0x7f80; h++) {
    const uint32_t bits[3] = {h << 16 | 0x7fff, h << 16 | 0x8000, h << 16 | 0x8001};
    const uint16_t want[3] = {(uint16_t)h, (uint16_t)(h + (h & 1)), (uint16_t)(h + 1)};
    float try[3];
    uint16_t got[3];
    memcpy(try, bits, sizeof try);
    quantize_row(DTYPE_BF16, try, got, 3);
    for (int i = 0; i < 3; i++)
      cr_assert_eq(got[i], want[i], "%a became %04x, not %04x", (double)try[i], got[i], want[i]);
  }
}

/* Names and geometry of all types that the package knows; Q8_1, which no file holds, has 36 bytes since its
 * scale and sum are F16. */
Test(dtype, geometry_as_gguf) {
  char name[32];
  FILE *const f = data_open("types", ".txt");
  int id, compared = 0;
  long elements, bytes;
  while (fscanf(f, "%d %31s %ld %ld", &id, name, &elements, &bytes) == 4) {
    if (id >= DTYPE_LIMIT) continue;
    if (id == 9) bytes = 36;
    const dtype_row *const row = dtype_find(id);
    cr_assert(row, "type %d (%s) is unknown", id, name);
    cr_expect_str_eq(row->name, name);
    cr_expect_eq(row->block_elements, elements, "%s", name);
    cr_expect_eq(row->block_bytes, (size_t)bytes, "%s", name);
    cr_expect_eq(dtype_bytes((dtype)id, 5 * elements), 5 * (size_t)bytes, "%s", name);
    compared++;
  }
  fclose(f);
  cr_expect_gt(compared, 30);
  static const int64_t unknown[] = {-1,          4,          5,         31,        36,
                                    DTYPE_LIMIT, DTYPE_NONE, INT64_MAX, INT64_MIN, 1ll << 32};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
    cr_expect_null(dtype_find(unknown[i]), "%ld", (long)unknown[i]);
    cr_expect_str_eq(dtype_name(unknown[i]), "unknown");
  }
}
