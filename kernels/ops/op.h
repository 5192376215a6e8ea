/* The op table: one row an op, and everything that knows about ops asks it.
 *
 * A row states the operands, which of them a destination may lie on, the shapes that are right, the
 * workspace, how many phases a call has, its operations, and how an operand struct is filled from addresses. Kernels are
 * not in the row: a backend fills a table of op_kernel by op id (kernels/dispatch.h). An op with no kernel on
 * a backend is unsupported there; nothing stands in for it.
 *
 * A kernel is called as kernel(args, phase, worker, workers), for phase = 0 .. phases-1, by every worker; all
 * workers finish a phase before any enters the next. It does the units that are its own by a fixed rule and
 * returns early when it has none. It allocates nothing, keeps no state, and cannot fail: the shape rule has
 * refused what it cannot do. Its result does not depend on `workers` (numerics.md). */
#ifndef STINT_KERNELS_OPS_OP_H
#define STINT_KERNELS_OPS_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/quant/dtype.h"

/* X(id, name). The order is the order of the table and of the kernel arrays. */
#define OP_LIST(X)                                                                                           \
  X(GET_ROWS, get_rows)                                                                                      \
  X(GET_ROWS_BACK, get_rows_back)                                                                            \
  X(SET_ROWS, set_rows)                                                                                      \
  X(ZERO, zero)                                                                                              \
  X(ADD, add)                                                                                                \
  X(SCALE, scale)                                                                                            \
  X(DROPOUT, dropout)                                                                                        \
  X(RMS_NORM, rms_norm)                                                                                      \
  X(RMS_NORM_DX, rms_norm_dx)                                                                                \
  X(RMS_NORM_DW, rms_norm_dw)                                                                                \
  X(ROPE, rope)                                                                                              \
  X(MATMUL, matmul)                                                                                          \
  X(MATMUL_DX, matmul_dx)                                                                                    \
  X(MATMUL_DW, matmul_dw)                                                                                    \
  X(ATTENTION, attention)                                                                                    \
  X(ATTENTION_DQ, attention_dq)                                                                              \
  X(ATTENTION_DKV, attention_dkv)                                                                            \
  X(SWIGLU, swiglu)                                                                                          \
  X(SWIGLU_BACK, swiglu_back)                                                                                \
  X(LINEAR_CROSS_ENTROPY, linear_cross_entropy)                                                              \
  X(GRAD_NORM, grad_norm)                                                                                    \
  X(ADAMW, adamw)                                                                                            \
  X(SGD, sgd)

typedef enum op_id {
#define X(id, name) OP_##id,
  OP_LIST(X)
#undef X
      OP_COUNT
} op_id;

enum { OP_MAX_SRC = 8, OP_MAX_DST = 5 };

/* A tensor as a rule sees it: type, shape, strides; no data. ne[0] varies fastest. nb[] are bytes between
 * neighbours along a dimension; for a block type nb[0] is the bytes of a block. An absent operand has type
 * DTYPE_NONE. */
typedef struct op_tensor {
  dtype type;
  int64_t ne[4];
  size_t nb[4];
} op_tensor;

op_tensor op_tensor_make(dtype type, int64_t ne0, int64_t ne1); /* contiguous, ne[2] = ne[3] = 1 */
op_tensor op_tensor_none(void);
static inline bool op_present(const op_tensor *t) { return t->type != DTYPE_NONE; }
int64_t op_rows(const op_tensor *t);      /* ne[1]*ne[2]*ne[3] */
bool op_rows_strided(const op_tensor *t); /* each row contiguous; rows at one common stride nb[1] */
bool op_contiguous(const op_tensor *t);
size_t op_span_bytes(const op_tensor *t); /* from the first byte to past the last, through the strides */
static inline int64_t op_ld(const op_tensor *t) {
  return (int64_t)(t->nb[1] / t->nb[0]);
} /* plain types: elements between rows */

/* What an op needs beside tensors. `chunk` members choose memory and never bits. */
typedef union op_params {
  struct {
    float s;
  } scale;
  struct {
    float p;
    uint32_t tensor;
  } dropout; /* p in [0,1); the number that keys the draws of this place */
  struct {
    float eps;
  } norm;
  struct {
    int32_t head_size, n_rot; /* n_rot <= head_size, even; the rest passes through */
    int32_t neox;             /* 0: pairs (2i, 2i+1); 1: pairs (i, i + n_rot/2) */
    int32_t inverse;          /* 1: rotate back (the gradient) */
    float magnitude;          /* factor on cos and sin (YaRN); 1 otherwise */
  } rope;
  struct {
    float scale; /* on q.k, usually 1/sqrt(head_size) */
    int32_t head_size, n_heads, n_kv_heads;
    int32_t chunk; /* query rows whose probabilities exist at once, per worker */
  } attention;
  struct {
    int32_t chunk;
  } loss; /* rows whose logits exist at once */
  struct {
    float beta1, beta2, eps, weight_decay;
  } adamw;
  struct {
    float momentum, weight_decay;
  } sgd;
} op_params;

typedef struct op_case {
  op_tensor src[OP_MAX_SRC], dst[OP_MAX_DST];
  op_params params;
} op_case;

/* Where a schedule runs. Shapes, aliases and operand structs are the same everywhere; workspaces are not. */
typedef enum op_backend { BACKEND_CPU, BACKEND_CUDA_STRICT, BACKEND_CUDA_FAST } op_backend;

typedef void op_kernel(const void *args, int phase, int worker, int workers);

typedef struct op_row {
  const char *name;
  const char *src_names[OP_MAX_SRC], *dst_names[OP_MAX_DST];
  uint32_t src_required, dst_required; /* bit i: operand i must be present */
  uint32_t inout;                      /* bit j: dst j is read too (an accumulator, or state) */
  uint32_t alias[OP_MAX_DST];          /* bit i: dst j may lie exactly on src i (same shape and strides) */
  size_t args_bytes;                   /* of the operand struct */
  /* Checks every operand; NULL when right, else what is wrong in a few words (static text). */
  const char *(*check)(const op_case *c);
  /* Scratch for all workers together; slabs are MIN(units, workers). 64-byte multiples. NULL: none. */
  size_t (*workspace)(const op_case *c, int workers);
  /* Scratch of the op's CUDA launch, 256-byte multiples. NULL: none. */
  size_t (*cuda_workspace)(const op_case *c, bool fast);
  int (*phases)(const op_case *c);   /* NULL: 1 */
  double (*flops)(const op_case *c); /* arithmetic operations, a fused multiply-add as two. NULL: 0 */
  /* Fills the operand struct. Addresses of absent operands are NULL. `work` is 64-byte aligned. */
  void (*bind)(void *args, const op_case *c, void *const src[], void *const dst[], void *work, int workers);
} op_row;

extern const op_row *const op_table[OP_COUNT];

/* The whole check of a case: required operands, then the row's own rule. NULL or what is wrong. */
const char *op_check(op_id id, const op_case *c);
size_t op_workspace(op_id id, const op_case *c, op_backend backend, int workers);
int op_phases(op_id id, const op_case *c);
double op_flops(op_id id, const op_case *c);

#endif
