/* The elementary functions against the C library's float64 ones, over the whole range of float32.
 *
 * Every function is run on each `STRIDE`-th bit pattern of the 2^32 (NaN and infinities among them), and on every
 * 7th pattern of the ranges where its branches meet. Error is in units in the last place of the exact result (2^-149
 * at least). Bounds are those that kernels/math/math.h states. Measured on all 2^32 patterns: exp 0.875, log1p 0.941, silu 3.193; on
 * the patterns of this file: log 0.827, tanh 1.403, erf 1.119, sigmoid 2.022, softplus 1.453, rsqrt 1.476,
 * sin and cos 0.969. Defects (tests/mutants/math.txt): a coefficient, a threshold, a dropped low part, a special value. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>

#include "kernels/math/math.h"

#ifndef STRIDE
#define STRIDE 1021u
#endif

typedef float fn32(float);
typedef double fn64(double);

static double ulp_error(const float y, const double exact) {
  if (isnan(exact) || isnan(y)) return isnan(exact) && isnan(y) ? 0 : INFINITY;
  if (isinf(exact)) return (double)y == exact ? 0 : INFINITY;
  int e;
  frexp(exact, &e);
  const double ulp = ldexp(1, e - 24 < -149 ? -149 : e - 24);
  const double value = isinf(y) ? copysign(0x1p128, y) : (double)y;
  if (exact == 0 && (y != 0 || !signbit(y) != !signbit(exact))) return INFINITY;
  return fabs(value - exact) / (e > 128 ? 0x1p104 : ulp);
}

typedef struct sweep {
  double worst;
  float at;
  int64_t n;
} sweep;

static void sweep_bits(sweep *const s, fn32 *const f, fn64 *const g, const uint32_t first,
                       const uint64_t last, const uint32_t stride) {
  for (uint64_t u = first; u <= last; u += stride) {
    const float x = m_float((uint32_t)u);
    const double exact = g((double)x);
    const double limit = exact > 0x1.ffffffp127 ? INFINITY : (exact < -0x1.ffffffp127 ? -INFINITY : exact);
    const double err = ulp_error(f(x), limit);
    s->n++;
    if (err > s->worst) {
      s->worst = err;
      s->at = x;
    }
  }
}

static void check(const char *const name, fn32 *const f, fn64 *const g, const double bound,
                  const float *const joints) {
  sweep s = {0};
  sweep_bits(&s, f, g, STRIDE / 2, UINT32_MAX, STRIDE);
  static const float specials[] = {
      0.0f,       -0.0f,     INFINITY,        -INFINITY,        NAN,           1.0f,         -1.0f, 0x1p-149f,
      -0x1p-149f, 0x1p-126f, 0x1.fffffep127f, -0x1.fffffep127f, 0x1.62e42ep6f, 0x1.62e430p6f};
  for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
    sweep_bits(&s, f, g, m_bits(specials[i]), m_bits(specials[i]), 1);
  for (const float *j = joints; j && *j != 0; j++) {
    const uint32_t around = m_bits(*j);
    sweep_bits(&s, f, g, around - 400000, (uint64_t)around + 400000, 7);
  }
  if (getenv("MATH_MEASURE"))
    fprintf(stderr, "%-12s %.4f ulp at %a (%lld values)\n", name, s.worst, s.at, (long long)s.n);
  cr_assert(s.n > 1000, "%s: nothing was compared", name);
  cr_assert(s.worst <= bound, "%s: %.3f ulp at %a, bound %.2f", name, s.worst, s.at, bound);
}

static double sigmoid64(const double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double softplus64(const double x) { return (x < 0 ? 0 : x) + log1p(exp(-fabs(x))); }
static double rsqrt64(const double x) { return 1 / sqrt(x); }
/* the part of silu that has a relative bound */
static double silu64(const double x) { return x * sigmoid64(x); }
static float silu32(const float x) { return x < -87.3f ? (float)silu64((double)x) : m_silu(x); }

#define JOINTS(...)                                                                                          \
  (const float[]) { __VA_ARGS__, 0 }

Test(math, exp) { check("exp", m_exp, exp, 1.0, JOINTS(88.72f, -87.33f, -103.9f, 0.3466f, -0.3466f, 1.0f)); }
Test(math, log) {
  check("log", m_log, log, 0.9, JOINTS(1.0f, 0.70710678f, 1.41421356f, 0x1p-126f, 0.5f, 2.0f));
}
Test(math, log1p) {
  check("log1p", m_log1p, log1p, 0.95, JOINTS(0x1p-25f, -0x1p-25f, 0.41421356f, -0.29289322f, -1.0f, 1.0f));
}
Test(math, tanh) { check("tanh", m_tanh, tanh, 1.6, JOINTS(0.55f, -0.55f, 9.01f, 1.0f)); }
Test(math, erf) { check("erf", m_erf, erf, 1.2, JOINTS(0.9375f, -0.9375f, 3.9f, 1.0f)); }
Test(math, sigmoid) {
  check("sigmoid", m_sigmoid, sigmoid64, 2.2, JOINTS(-87.3f, -103.9f, 1.0f, -1.0f, -0.1f));
}
Test(math, softplus) { check("softplus", m_softplus, softplus64, 1.6, JOINTS(-87.3f, 1.0f, -1.0f, 0.1f)); }
Test(math, rsqrt) { check("rsqrt", m_rsqrt, rsqrt64, 1.5, JOINTS(1.0f, 2.0f, 4.0f)); }

Test(math, silu) {
  check("silu", silu32, silu64, 3.5, JOINTS(1.0f, -1.0f, -87.0f, 0.01f));
  for (float x = -87.3f; x > -110.0f; x -= 0.001f)
    cr_assert(fabs((double)m_silu(x) - silu64((double)x)) <= 0x1p-142, "silu at %a", x);
  cr_assert(isnan(m_silu(NAN)) && isnan(m_silu(-INFINITY)) && m_silu(INFINITY) == INFINITY);
}

/* sin and cos of turns: t in [-0.5, 0.5] densely, then to 2^19 turns. Away from a zero of the result the error is in
 * ulp; float64's own 2*pi*t is good to 1e-16 only after an exact reduction, so the reference reduces too. */
Test(math, sincos_turn) {
  double worst_s = 0, worst_c = 0;
  int64_t n = 0;
  for (uint64_t u = 0; u <= m_bits(0x1p19f); u += 257) {
    for (int sign = 0; sign < 2; sign++) {
      const float t = m_float((uint32_t)u | (uint32_t)sign << 31);
      const double q = nearbyint(4 * (double)t), r = 2 * M_PI * ((double)t - q / 4);
      const int k = (int)((int64_t)q & 3);
      const double sr = sin(r), cr = cos(r);
      const double s64 = k == 0 ? sr : k == 1 ? cr : k == 2 ? -sr : -cr;
      const double c64 = k == 0 ? cr : k == 1 ? -sr : k == 2 ? -cr : sr;
      float s, c;
      m_sincos_turn(t, &s, &c);
      if (s64 != 0)
        worst_s = fmax(worst_s, ulp_error(s, s64));
      else
        cr_assert(s == 0, "sin of %a turns is %a", t, s);
      if (c64 != 0)
        worst_c = fmax(worst_c, ulp_error(c, c64));
      else
        cr_assert(c == 0, "cos of %a turns is %a", t, c);
      n++;
    }
  }
  if (getenv("MATH_MEASURE"))
    fprintf(stderr, "sin_turn %.4f cos_turn %.4f ulp (%lld values)\n", worst_s, worst_c, (long long)n);
  cr_assert(n > 1000000);
  cr_assert(worst_s <= 1.0 && worst_c <= 1.0, "sin %.3f cos %.3f ulp, bound 1", worst_s, worst_c);
}

/* m_fma against the C library's, on patterns that make it hard: random bits, near-cancelling sums, ties. */
Test(math, fma) {
  uint64_t x = 0x9e3779b97f4a7c15u;
  int64_t n = 0;
  for (int64_t i = 0; i < 3000000; i++) {
    uint32_t w[4];
    for (int j = 0; j < 4; j++) { /* an LCG is enough here */
      x = x * 6364136223846793005u + 1442695040888963407u;
      w[j] = (uint32_t)(x >> 32);
    }
    float a = m_float(w[0]), b = m_float(w[1]), c = m_float(w[2]);
    switch (i % 4) {
    case 1:
      c = -(a * b);
      break; /* the result is the product's rounding error */
    case 2:  /* few bits: ties and short sums */
      a = (float)(int32_t)(w[0] & 0xffffu) - 32768.0f;
      b = (float)(w[1] & 0xffu) * 0x1p-8f;
      c = m_float((w[2] & 0x80000000u) | (110u + (w[3] & 31u)) << 23);
      break;
    case 3: /* c half an ulp, or a hair beside it, against the product */
      a = 1.0f + (float)(w[0] & 0xfffu) * 0x1p-23f;
      b = 1.0f;
      c = m_float(m_bits(0x1p-24f) + (w[1] % 3) - 1) * (w[3] & 1 ? 1.0f : -1.0f);
      break;
    default:
      break;
    }
    const float expect = fmaf(a, b, c), got = m_fma(a, b, c);
    cr_assert(m_bits(expect) == m_bits(got) || (isnan(expect) && isnan(got)), "fma(%a, %a, %a) = %a, not %a",
              a, b, c, expect, got);
    n++;
  }
  cr_assert(n > 0);
}

/* The largest float rounds, the next overflows, and the subnormals are gradual. */
Test(math, exp_edges) {
  cr_assert(m_exp(0.0f) == 1.0f && m_exp(-0.0f) == 1.0f);
  cr_assert(m_exp(INFINITY) == INFINITY && m_exp(-INFINITY) == 0.0f && isnan(m_exp(NAN)));
  cr_assert(m_exp(88.7228394f) == INFINITY && m_exp(88.72283f) < INFINITY);
  cr_assert(m_exp(-103.9f) == 0x1p-149f && m_exp(-104.1f) == 0.0f);
  cr_assert(m_log(0.0f) == -INFINITY && m_log(-0.0f) == -INFINITY && isnan(m_log(-1.0f)) &&
            isnan(m_log(-INFINITY)));
  cr_assert(m_log(1.0f) == 0.0f && m_log(INFINITY) == INFINITY);
  cr_assert(signbit(m_tanh(-0.0f)) && signbit(m_erf(-0.0f)) && signbit(m_log1p(-0.0f)));
}
