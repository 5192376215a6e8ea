/* Operands of linear_cross_entropy: the head and the loss in row chunks, forward and backward in one op.
 *
 *   z = W x (+ B u)            logits of a chunk of rows; W [n, n_vocab] any type; B F32[r, n_vocab] the head's adapter
 *   m = max z + 0.0f;  e = sum exp(z - m)  (rule 3);  loss = weight * ((m + log e) - z[target])
 *   dz[j] = (exp(z[j] - m)/e - (j == target)) * (weight*loss_scale)
 *   dx = sum_j dz[j]*W[j];  dW[j] += sum_r dz[r][j]*x[r];  du = sum_j dz[j]*B[j];  dB[j] += sum_r dz[r][j]*u[r]
 * B continues W's chain (all of W's k, then r of B). A row of weight 0 gives loss 0 and zero gradients, whatever its target
 * (which may be any id in range) and whatever its logits. Gradients of weights continue from memory, rows ascending, across
 * chunks. The logits of a whole batch never exist: `chunk` rows at a time. The + 0.0f makes a zero maximum positive, so
 * that it does not tell in which order the logits were compared.
 *
 * src0 x F32[n, rows], src1 W, src2 target I32[rows], src3 weight F32[rows], src4 step block I32[16], src5 u F32[r, rows]
 * optional, src6 B optional (both or none).
 * dst0 loss F32[rows] (weight*nll, not times loss_scale), dst1 dx F32[n, rows] optional (evaluation has none; may lie on x),
 * dst2 dW F32[n, n_vocab] inout optional, dst3 du optional (may lie on u), dst4 dB inout optional.
 *
 * Phases of a chunk, in order: logits (workers own vocabulary columns), rows (max, sum, loss, dz in place of the logits),
 * with dW or dB weights (vocabulary rows), with dx or du inputs (columns of n, rows of u). */
#ifndef STINT_KERNELS_OPS_LOSS_H
#define STINT_KERNELS_OPS_LOSS_H

#include "kernels/ops/op.h"
#include "kernels/ops/step.h"

typedef struct op_linear_cross_entropy_args {
  const float *x;
  const void *w;
  size_t w_row_bytes;
  dtype w_type;
  const int32_t *target;
  const float *weight;
  const step_block *step;
  const float *u, *b;
  float *loss, *dx, *dw, *du, *db;
  int64_t ldx, ldu, ldb, lddx, lddw, lddu, lddb, rows, n, n_vocab, r;
  int64_t chunk;
  float *logits; /* [chunk][loss_ld(n_vocab)], in the workspace */
  void *work;
  size_t slab_bytes;
} op_linear_cross_entropy_args;

/* Floats between two rows of logits: whole cache lines, and one more, so that the rows of a tile do not share a set
 * of the cache when n_vocab is a power of two. */
static inline int64_t loss_ld(const int64_t n_vocab) { return ((n_vocab + 15) & ~(int64_t)15) + 16; }

/* The logits at the start of the CUDA workspace, whole 256 bytes: what follows them is the fast products' slab. */
static inline size_t loss_cuda_logits_bytes(const int64_t chunk, const int64_t n_vocab) {
  return ((size_t)(chunk * loss_ld(n_vocab)) * 4 + 255) / 256 * 256;
}

/* What a phase of the op does, and on which rows. */
typedef enum loss_step { LOSS_LOGITS, LOSS_ROWS, LOSS_WEIGHTS, LOSS_INPUTS } loss_step;

static inline bool loss_has_weights(const op_linear_cross_entropy_args *const a) { return a->dw || a->db; }
static inline bool loss_has_inputs(const op_linear_cross_entropy_args *const a) { return a->dx || a->du; }

static inline loss_step loss_phase(const op_linear_cross_entropy_args *const a, const int phase,
                                   int64_t *const r0, int64_t *const r1) {
  const int steps = 2 + loss_has_weights(a) + loss_has_inputs(a), at = phase % steps;
  *r0 = phase / steps * a->chunk;
  *r1 = *r0 + a->chunk < a->rows ? *r0 + a->chunk : a->rows;
  return at < 2 ? (loss_step)at : at == 2 && loss_has_weights(a) ? LOSS_WEIGHTS : LOSS_INPUTS;
}

/* The share of [0, n) that a worker owns, cut at multiples of `grain`; empty for the workers beyond the grains. */
static inline bool loss_share(const int64_t n, const int64_t grain, const int worker, const int workers,
                              int64_t *const first, int64_t *const last) {
  const int64_t grains = (n + grain - 1) / grain, active = workers < grains ? workers : grains;
  if (worker >= active) return false;
  *first = grains * worker / active * grain;
  *last = grains * (worker + 1) / active * grain;
  if (*last > n) *last = n;
  return true;
}

enum { LOSS_GRAIN = 64 }; /* columns of the vocabulary, rows of weights' gradients */

/* Columns of n are cut at W's blocks. */
static inline int64_t loss_n_grain(const dtype w_type) {
  const int64_t block = dtype_find(w_type)->block_elements;
  return block < 16 ? 16 : block;
}

#endif
