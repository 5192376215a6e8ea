/* The arithmetic limit of a path: independent chains of fused multiply-adds on registers alone. */
#include "kernels/cpu/register.h"

double PATH_NAME(cpu_peak_flops)(void);
void PATH_NAME(cpu_peak_loop)(int64_t rounds);

enum { CHAINS = 12 }; /* latency 4 at two a cycle needs 8 */

double PATH_NAME(cpu_peak_flops)(void) { return 2.0 * CHAINS * VW; }

void PATH_NAME(cpu_peak_loop)(const int64_t rounds) {
  vf a[CHAINS];
  for (int i = 0; i < CHAINS; i++) a[i] = vf_set1(1.0f + (float)i);
  const vf b = vf_set1(0.999f), c = vf_set1(0.001f);
  for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++) {
      a[i] = vf_fma(a[i], b, c);
      __asm__ volatile("" : "+v"(a[i])); /* keeps every chain alive and in a register */
    }
  }
}
