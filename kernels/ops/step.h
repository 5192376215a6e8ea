/* The step block and the ops of an update: zero, grad_norm, adamw, sgd.
 *
 * What changes from step to step lives in this one small block, in memory that kernels read: a schedule's
 * operands never change after start-up (a CUDA graph is captured once).
 *
 * Trainable tensors, their gradients and each optimizer moment lie in regions of the same layout (64-byte
 * aligned tensors, zeros between), so an update is one op over n floats. */
#ifndef STINT_KERNELS_OPS_STEP_H
#define STINT_KERNELS_OPS_STEP_H

#include "kernels/ops/op.h"

typedef struct step_block {
  uint64_t seed;
  uint64_t step;       /* optimizer steps done before this one */
  uint64_t row_offset; /* of this microbatch's first row within the step's batch: keys the dropout */
  float loss_scale;    /* 1 / (sum of weights of the step's trained tokens) */
  float lr;
  float bias1, bias2; /* 1 - beta1^t, 1 - beta2^t of this step (adamw) */
  float clip;         /* largest global norm; 0: no clipping */
  float grad_norm;    /* out of grad_norm: sqrt of the sum of squares, before clipping */
  float clip_factor;  /* out of grad_norm: min(1, clip / grad_norm), 1 without clipping */
  float reserved[3];
} step_block; /* 64 bytes */

/* zero: dst0 x F32, contiguous, becomes 0. */
typedef struct op_zero_args {
  float *x;
  int64_t n;
} op_zero_args;

/* grad_norm: src0 g F32[n]; dst0 step block (I32[16], inout). Blocks of 4096 elements; in a block 32 lanes (rule 3) of
 * fma(g, g, lane); the block sums then fold in index order (rule 4). Two phases: blocks, fold. */
enum { GRAD_NORM_BLOCK = 4096 };
typedef struct op_grad_norm_args {
  const float *g;
  int64_t n;
  step_block *step;
  float *partial;
} op_grad_norm_args;

/* adamw (Loshchilov and Hutter 2019, decoupled decay): src0 g F32[n], src1 step block; dst0 p, dst1 m, dst2 v (inout).
 *   g' = g*clip_factor;  m = fma(1-b1, g'-m, m);  v = fma(1-b2, g'*g'-v, v)
 *   p = p - lr*decay*p;  p = p - lr * (m/bias1) / (sqrt(v/bias2) + eps)
 * each written operation one rounded float32 operation, in this order, fma only where written. */
typedef struct op_adamw_args {
  const float *g;
  const step_block *step;
  float *p, *m, *v;
  int64_t n;
  float beta1, beta2, eps, weight_decay;
} op_adamw_args;

/* sgd: src0 g, src1 step block; dst0 p, dst1 m (momentum buffer, inout; absent when momentum is 0).
 *   g' = fma(decay, p, g*clip_factor);  m = fma(momentum, m, g');  p = p - lr*m   (m is g' when absent) */
typedef struct op_sgd_args {
  const float *g;
  const step_block *step;
  float *p, *m;
  int64_t n;
  float momentum, weight_decay;
} op_sgd_args;

#endif
