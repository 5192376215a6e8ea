/* What the product of kernels/cpu/gemm.h is asked, and its block sizes: the same for every vector path.
 *
 * Packed A and packed B have fixed room; a block is at most MC rows of C, and as deep in k as its rows leave room for, up to
 * KC, so that C passes through memory as seldom as can be; then as wide as its depth leaves room for, up to NC. The sizes
 * were chosen by measurement on a processor with 48 KiB of L1 and 2 MiB of L2: both rooms stay in L2 together, and a panel of A
 * (k x 14 floats) in L1. They choose time and memory, never a bit. */
#ifndef STINT_KERNELS_CPU_GEMM_PROBLEM_H
#define STINT_KERNELS_CPU_GEMM_PROBLEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/quant/dtype.h"

typedef struct gemm_problem {
  int64_t m, n, k;
  const float *a;
  int64_t lda;
  bool a_by_k; /* A(m,k) = a[m*lda + k]; a_by_k: a[k*lda + m] */
  const void *b;
  dtype b_type;
  size_t b_row_bytes; /* rows of B as stored, b_row_bytes apart */
  bool b_by_n; /* stored rows run over n (a row holds all k: GGUF weight in y = Wx); else rows run over k */
  const float *c0;
  int64_t ldc0; /* NULL: start from 0; may equal c */
  float *c;
  int64_t ldc;
} gemm_problem;

#ifndef GEMM_KC
enum { GEMM_KC = 576, GEMM_MC = 512, GEMM_NC = 256, GEMM_A_FLOATS = 512 * 384, GEMM_B_FLOATS = 256 * 384 };
#endif

enum {
  GEMM_SLACK_FLOATS = 64, /* panels of A are stored a whole register at a time, past their last row */
  GEMM_SCRATCH_BYTES = (GEMM_A_FLOATS + GEMM_B_FLOATS + GEMM_SLACK_FLOATS) * 4,
};

#endif
