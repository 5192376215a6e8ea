/* The float64 helpers of the host against the C library's long double ones, and the generator's known answers. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>

#include "kernels/math/hostmath.h"
#include "kernels/math/philox.h"

static double relative(const double a, const long double b) {
  return b == 0 ? fabs(a) : (double)fabsl((a - b) / b);
}

/* Bounds of kernels/math/hostmath.h; measured: exp 1.8e-16, log 1.5e-16, sin and cos 1.8e-16. */
Test(hostmath, exp) {
  double worst = 0;
  for (double x = -690; x < 690; x += 0.00271) worst = fmax(worst, relative(h_exp(x), expl((long double)x)));
  for (double x = -1; x < 1; x += 0.0000171) worst = fmax(worst, relative(h_exp(x), expl((long double)x)));
  if (getenv("MATH_MEASURE")) fprintf(stderr, "h_exp %.3g\n", worst);
  cr_assert(worst < 4e-16, "%g", worst);
  cr_assert(h_exp(0) == 1);
}

Test(hostmath, log) {
  double worst = 0;
  for (double x = 1e-300; x < 1e300; x *= 1.00237)
    worst = fmax(worst, relative(h_log(x), logl((long double)x)));
  for (double x = 0.4; x < 2.5; x += 0.0000071) worst = fmax(worst, relative(h_log(x), logl((long double)x)));
  if (getenv("MATH_MEASURE")) fprintf(stderr, "h_log %.3g\n", worst);
  cr_assert(worst < 4e-16, "%g", worst);
  cr_assert(h_log(1) == 0);
}

/* the two uses: powers of a rope base, and beta^t */
Test(hostmath, pow) {
  double worst = 0, worst_i = 0;
  const double bases[] = {10000, 500000, 1000000, 8, 1.0001};
  for (int b = 0; b < 5; b++)
    for (int i = 0; i <= 256; i++) {
      const double y = -(double)i / 256;
      worst = fmax(worst, relative(h_pow(bases[b], y), powl((long double)bases[b], (long double)y)));
    }
  for (unsigned n = 0; n < 3000; n++) {
    const double e = relative(h_powi(0.999, n), powl((long double)0.999, n)) / (n + 1);
    worst_i = fmax(worst_i, e);
  }
  if (getenv("MATH_MEASURE")) fprintf(stderr, "h_pow %.3g h_powi %.3g per n\n", worst, worst_i);
  cr_assert(worst < 5e-15, "%g", worst);
  cr_assert(worst_i < 1.2e-16, "%g", worst_i);
}

Test(hostmath, sincos) {
  double worst = 0;
  for (double x = -100000; x < 100000; x += 0.773) {
    worst = fmax(worst, (double)fabsl(h_sin(x) - sinl((long double)x)));
    worst = fmax(worst, (double)fabsl(h_cos(x) - cosl((long double)x)));
  }
  for (double x = -4; x < 4; x += 0.0000173) {
    worst = fmax(worst, (double)fabsl(h_sin(x) - sinl((long double)x)));
    worst = fmax(worst, (double)fabsl(h_cos(x) - cosl((long double)x)));
  }
  if (getenv("MATH_MEASURE")) fprintf(stderr, "h_sincos %.3g\n", worst);
  cr_assert(worst < 4e-16, "%g", worst);
  cr_assert(h_cos(0) == 1 && h_sin(0) == 0);
}

/* The known answers published with the generator (Random123, kat_vectors, philox4x32 10). */
Test(philox, known_answers) {
  static const uint32_t v[3][10] = {
      {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
      {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
      {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb,
       0x5001e420, 0x24126ea1}};
  for (int i = 0; i < 3; i++) {
    uint32_t out[4];
    philox4x32(v[i][4], v[i][5], v[i], out);
    for (int j = 0; j < 4; j++) cr_assert(out[j] == v[i][6 + j], "vector %d word %d: %08x", i, j, out[j]);
  }
}
