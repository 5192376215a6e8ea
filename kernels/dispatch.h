/* Which kernel an op has on this processor: a table filled with the plain reference, then overwritten by each
 * vector path that the processor has and the mask allows, in rising order.
 *
 * Every path gives the same bits; the mask exists to prove it (and to go around a broken one). */
#ifndef STINT_KERNELS_DISPATCH_H
#define STINT_KERNELS_DISPATCH_H

#include "kernels/ops/op.h"

typedef enum cpu_path {
  CPU_REFERENCE = 0,
  CPU_AVX2 = 1 << 0,   /* AVX2, FMA, F16C */
  CPU_AVX512 = 1 << 1, /* AVX-512 F, BW, DQ, VL */
  CPU_ALL = CPU_AVX2 | CPU_AVX512,
} cpu_path;

unsigned cpu_paths(void); /* the paths that this processor (and this build) has */

/* Fills kernels[OP_COUNT] for (cpu_paths() & mask); an entry is NULL where the op has no CPU kernel. */
void cpu_kernels(unsigned mask, op_kernel *kernels[OP_COUNT]);

/* A loop of fused multiply-adds on registers, of the widest allowed path, and its operations a round: what a run's speed is
 * held against. */
typedef void cpu_peak_loop(int64_t rounds);
cpu_peak_loop *cpu_peak(unsigned mask, double *flops_per_round);

#endif
