/* The arithmetic limit of a path: independent chains of fused multiply-adds on registers alone. */
#include "kernels/cpu/register.h"

double PATH_NAME(cpu_peak_flops)(void);
void PATH_NAME(cpu_peak_loop)(int64_t rounds);

enum { CHAINS = 12 }; /* latency 4 at two a cycle needs 8 */

double PATH_NAME(cpu_peak_flops)(void) { return 2.0 * CHAINS * VW; }

/* Named one by one: an array of chains would live in memory, and its loads be what is measured. */
void PATH_NAME(cpu_peak_loop)(const int64_t rounds) {
  const vf b = vf_set1(0.999f), c = vf_set1(0.001f);
  vf a0 = c, a1 = b, a2 = c, a3 = b, a4 = c, a5 = b, a6 = c, a7 = b, a8 = c, a9 = b, a10 = c, a11 = b;
  for (int64_t r = 0; r < rounds; r++) {
    a0 = vf_fma(a0, b, c), a1 = vf_fma(a1, b, c), a2 = vf_fma(a2, b, c), a3 = vf_fma(a3, b, c);
    a4 = vf_fma(a4, b, c), a5 = vf_fma(a5, b, c), a6 = vf_fma(a6, b, c), a7 = vf_fma(a7, b, c);
    a8 = vf_fma(a8, b, c), a9 = vf_fma(a9, b, c), a10 = vf_fma(a10, b, c), a11 = vf_fma(a11, b, c);
    __asm__ volatile(""
                     : "+v"(a0), "+v"(a1), "+v"(a2), "+v"(a3), "+v"(a4),
                       "+v"(a5)); /* keeps every chain alive */
    __asm__ volatile("" : "+v"(a6), "+v"(a7), "+v"(a8), "+v"(a9), "+v"(a10), "+v"(a11));
  }
}
