/* Processor detection and the layering of kernel tables. */
#include "kernels/dispatch.h"

#include "kernels/math/fma.h"
#include "kernels/ref/register.h"

#if defined(__x86_64__)
void cpu_register_avx2(op_kernel *table[OP_COUNT]);
void cpu_register_avx512(op_kernel *table[OP_COUNT]);
void cpu_peak_loop_avx2(int64_t rounds);
void cpu_peak_loop_avx512(int64_t rounds);
double cpu_peak_flops_avx2(void);
double cpu_peak_flops_avx512(void);
#endif

static void reference_peak_loop(const int64_t rounds) {
  float a = 1.0f, b = 2.0f, c = 3.0f, d = 4.0f;
  for (int64_t r = 0; r < rounds; r++) {
    a = m_fma(a, 0.999f, 0.001f), b = m_fma(b, 0.999f, 0.001f), c = m_fma(c, 0.999f, 0.001f),
    d = m_fma(d, 0.999f, 0.001f);
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
  }
}

cpu_peak_loop *cpu_peak(const unsigned mask, double *const flops_per_round) {
#if defined(__x86_64__)
  const unsigned paths = cpu_paths() & mask;
  if (paths & CPU_AVX512) return *flops_per_round = cpu_peak_flops_avx512(), cpu_peak_loop_avx512;
  if (paths & CPU_AVX2) return *flops_per_round = cpu_peak_flops_avx2(), cpu_peak_loop_avx2;
#endif
  (void)mask;
  *flops_per_round = 8;
  return reference_peak_loop;
}

unsigned cpu_paths(void) {
  unsigned paths = CPU_REFERENCE;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    paths |= CPU_AVX2;
  if (paths && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    paths |= CPU_AVX512;
#endif
  return paths;
}

void cpu_kernels(const unsigned mask, op_kernel *kernels[OP_COUNT]) {
  for (int i = 0; i < OP_COUNT; i++) kernels[i] = 0;
  ref_register_basic(kernels);
  ref_register_norm(kernels);
  ref_register_position(kernels);
  ref_register_gated(kernels);
  ref_register_matmul(kernels);
  ref_register_attention(kernels);
  ref_register_loss(kernels);
  ref_register_step(kernels);
#if defined(__x86_64__)
  const unsigned paths = cpu_paths() & mask;
  if (paths & CPU_AVX2) cpu_register_avx2(kernels);
  if (paths & CPU_AVX512) cpu_register_avx512(kernels);
#endif
}
