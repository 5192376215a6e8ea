/* The one product that everything on the CPU is made of, on one worker, per vector path:
 *
 *   C[m][n] = (C0[m][n] or 0) + sum over k ascending of A(m,k)*B(k,n)      one fma chain an element (rule 2)
 *
 * A is float32, B is any weight type; both are packed into the caller's scratch, B dequantized on the way. Blocking
 * over k continues the chain through C, so blocks and tiles never show in a bit. */
#ifndef STINT_KERNELS_CPU_GEMM_H
#define STINT_KERNELS_CPU_GEMM_H

#include "kernels/cpu/gemm_problem.h"
#include "kernels/cpu/vec.h"

/* Scratch of one worker for any problem: a constant of all paths, a multiple of 64 (kernels/ops/matmul.c). */
size_t gemm_scratch_bytes(void);

/* Columns [n_first, n_last) of the problem; every value allowed (tiles are cut inside). When b is a block type with rows
 * over k, n_first must be a multiple of its block. scratch: 64-byte aligned. */
void PATH_NAME(gemm_columns)(const gemm_problem *p, int64_t n_first, int64_t n_last, void *scratch);

#endif
