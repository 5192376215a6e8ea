/* stint: fine-tune a GGUF model inside a memory plan that is announced before it runs.
 *
 * The order of calls is the order of the promises:
 *   stint_model_open    reads a header (the data may be absent) and names what is unsupported
 *   stint_plan_make     decides every byte of a run, or says by how much it does not fit
 *   stint_run_open      takes exactly those bytes, makes the data ready, writes the run directory
 *   stint_run_train     trains: from its first step to its last no thread allocates anything
 *   stint_run_close
 * stint_evaluate, stint_sample_* and stint_new_model stand beside them.
 *
 * Sizes are bytes unless a name says otherwise; losses are natural logarithms (nats) a token. Every failing call
 * fills `error` (which may be NULL), clears its out pointer and leaves nothing behind. The library never prints,
 * exits or calls malloc. Objects are not shared between threads. */
#ifndef STINT_ENGINE_STINT_H
#define STINT_ENGINE_STINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/status.h"

#ifdef __cplusplus
extern "C" {
#endif

STINT_API const char *stint_version(void);

/* ---- models ---- */
typedef struct stint_model stint_model;

typedef struct stint_model_info {
  const char *path, *architecture, *name, *weight_types; /* weight_types: "Q4_1 x 211, F32 x 61" */
  int64_t n_params, n_vocab, n_layers, n_embd, ctx_trained;
  uint64_t file_bytes;
  bool header_only, tied_head;
} stint_model_info;

STINT_API stint_status stint_model_open(const char *path, stint_model **out, stint_error *error);
STINT_API void stint_model_describe(const stint_model *model, stint_model_info *out);
STINT_API void stint_model_close(stint_model *model);

/* ---- options: what a run is ---- */
typedef enum stint_purpose { STINT_TRAIN, STINT_EVALUATE, STINT_SAMPLE } stint_purpose;
typedef enum stint_device { STINT_CPU, STINT_CUDA } stint_device;
typedef enum stint_numerics { STINT_STRICT, STINT_FAST } stint_numerics; /* of the device: docs/numerics.md */
typedef enum stint_optimizer { STINT_ADAMW, STINT_SGD } stint_optimizer;
typedef enum stint_lr_schedule { STINT_LR_CONSTANT, STINT_LR_LINEAR, STINT_LR_COSINE } stint_lr_schedule;

typedef struct stint_options {
  /* shape and machine: these never change a number of the result, but for ctx, batch and accum */
  int64_t ctx, batch,
      accum;         /* tokens a row (0: 256, or what the model was trained for if less), rows a microbatch,
                                 microbatches a step */
  int threads;       /* 0: the processors that this process may use */
  unsigned cpu_mask; /* vector paths allowed: 1 AVX2, 2 AVX-512; ~0u: all */
  uint64_t budget_bytes; /* most that the plan may take, mapped weights included; 0: what the machine has */
  int64_t loss_chunk, attention_chunk; /* rows; 0: the planner's choice */
  stint_device device;
  stint_numerics numerics; /* with STINT_CUDA; the CPU is always strict */
  const char
      *device_name; /* plan for this device of the table in plans/devices.h; NULL: the one that is there */
  uint64_t device_memory_bytes; /* plan for this much device memory; 0: what the device has */
  /* what is trained */
  bool full; /* every weight (an F32 model) instead of an adapter */
  const char
      *adapter; /* a GGUF adapter to train on, evaluate or sample with; NULL: none (training starts anew) */
  int64_t rank; /* 0: 8, or the adapter's */
  double alpha, dropout; /* adapter scale = alpha / rank; alpha 0: twice the rank, or the adapter's */
  const char *targets;   /* "all-linear", or names and patterns: "attn_q,attn_v,blk.3.*"; NULL: all-linear, or
                                 the adapter's. With `adapter`, rank, alpha and targets stay 0 and NULL */
  /* how */
  stint_optimizer optimizer;
  stint_lr_schedule schedule;
  double lr, lr_floor; /* peak; the schedule ends at lr*lr_floor */
  double beta1, beta2, epsilon, momentum, weight_decay;
  double clip;           /* largest global gradient norm; 0: none */
  int64_t warmup, steps; /* optimizer steps; steps 0: `epochs` decide */
  double epochs;
  uint64_t seed;
  int64_t eval_every, save_every; /* steps; 0: only at the end */
} stint_options;

STINT_API void stint_options_default(stint_options *options);

/* ---- plans ---- */
typedef struct stint_plan stint_plan;

typedef enum stint_category {
  STINT_WEIGHTS,
  STINT_ADAPTER,
  STINT_GRADIENTS,
  STINT_OPTIMIZER,
  STINT_ACTIVATIONS,
  STINT_WORKSPACE,
  STINT_BATCH,
  STINT_CACHE,
  STINT_RUNTIME,
  STINT_LOADING,
  STINT_EVALUATION,
  STINT_SAVING,
  STINT_CATEGORIES
} stint_category;
STINT_API const char *stint_category_name(stint_category category);

typedef struct stint_plan_report {
  uint64_t
      bytes[STINT_CATEGORIES]; /* by category; evaluation and saving lie on the step's bytes, loading partly:
                                       see overlaid_bytes */
  uint64_t overlaid_bytes[STINT_CATEGORIES]; /* the share of bytes[] that lies on the step region */
  uint64_t peak_bytes;                       /* mapped + arena + planning: what the run takes at its worst */
  uint64_t mapped_bytes;                     /* the model file, mapped read-only */
  uint64_t arena_bytes;                      /* the one reservation */
  uint64_t planning_bytes;                   /* model index, graph and schedule */
  uint64_t budget_bytes;                     /* that it was held against */
  /* With STINT_CUDA peak_bytes and the categories are the device's one allocation, budget_bytes is of device memory, and
   * beside them the host takes mapped_bytes, arena_bytes, planning_bytes and pinned_bytes. 0 on the CPU: */
  uint64_t device_bytes, pinned_bytes;
  bool fits;
  /* the step region */
  uint64_t step_bytes; /* its size: the longest of what takes turns on it, in whole pages */
  uint64_t packed_bytes,
      lower_bound_bytes; /* what packing a step needs; the largest sum of bytes alive at once */
  bool packing_optimal;
  int64_t peak_step, n_steps; /* where that is, in the schedule */
  const char *peak_step_name;
  int64_t n_tensors_at_peak;
  double flops_per_step; /* one optimizer step, every microbatch */
  int64_t tokens_per_step;
  int64_t n_trainable; /* parameters */
  int64_t n_targets;   /* adapted tensors */
  const char *choice;  /* how the plan fits: "keep all; loss 256 rows, attention 64 rows at a time" */
} stint_plan_report;

/* DOES_NOT_FIT still makes a plan, so that its report can be shown; every other failure makes none. */
STINT_API stint_status stint_plan_make(stint_model *model, const stint_options *options,
                                       stint_purpose purpose, stint_plan **out, stint_error *error);
STINT_API void stint_plan_describe(const stint_plan *plan, stint_plan_report *out);

typedef struct stint_plan_tensor {
  const char *name;
  uint64_t bytes, offset;
  stint_category category;
  int64_t born, dies; /* schedule steps; alive in [born, dies] */
} stint_plan_tensor;
/* The i-th tensor alive at the peak, largest first; false past the last. */
STINT_API bool stint_plan_peak_tensor(const stint_plan *plan, int64_t i, stint_plan_tensor *out);
/* The i-th trained tensor: name, bytes (of A and B, or of the weight). */
STINT_API bool stint_plan_target(const stint_plan *plan, int64_t i, const char **name, int64_t *n_in,
                                 int64_t *n_out, int64_t *n_trained);

/* The whole plan as one JSON object. Writes at most `room` bytes and returns the full length (no NUL counted). */
STINT_API size_t stint_plan_json(const stint_plan *plan, char *out, size_t room);
STINT_API void stint_plan_close(stint_plan *plan);

/* ---- runs ---- */
typedef struct stint_run stint_run;

typedef struct stint_files {
  const char *const *data;
  size_t n_data; /* training text: raw, or .jsonl with a `text` member a line */
  const char *const *valid;
  size_t n_valid;        /* held-out text; may be none */
  const char *directory; /* the run directory, made when missing; refused when it holds a run */
  const char *command;   /* the command line, for the manifest; may be NULL */
} stint_files;

typedef struct stint_run_info {
  uint64_t used_bytes;                                         /* of the arena: equals the plan's */
  uint64_t train_tokens, train_rows, valid_tokens, valid_rows; /* tokens: predicted ones */
  int64_t steps;                                               /* that the run will take */
  double peak_flops;          /* of this machine with these threads, measured at start-up, a second */
  int64_t n_without_gradient; /* trained tensors whose gradient was all zero in step 2; known after it */
  const char *first_without_gradient; /* the first of them, or NULL */
} stint_run_info;

typedef struct stint_step_info {
  int64_t step, steps; /* 1-based */
  double loss_nats_per_token;
  double grad_norm, grad_norm_clipped, lr;
  int64_t tokens; /* trained in this step */
  double seconds, tokens_per_second, peak_share, eta_seconds;
  double valid_loss_nats_per_token; /* NaN unless evaluated after this step */
  uint64_t planned_bytes, used_bytes;
  uint64_t checksum; /* XXH3 of the trainable state after the step */
} stint_step_info;

/* Called after each step; returning false ends the run after this step, saved. */
typedef bool stint_step_event(void *context, const stint_step_info *info);

STINT_API stint_status stint_run_open(stint_plan *plan, const stint_files *files, stint_run **out,
                                      stint_error *error);
STINT_API void stint_run_describe(const stint_run *run, stint_run_info *out);
/* Evaluates on the held-out text now (before training, say). */
STINT_API stint_status stint_run_evaluate(stint_run *run, double *loss_nats_per_token, stint_error *error);
/* Trains to the end, saves and checks what was saved. */
STINT_API stint_status stint_run_train(stint_run *run, stint_step_event *event, void *context,
                                       stint_error *error);
STINT_API void stint_run_close(stint_run *run);

/* Called by stint_run_train before its first step and after its last: nothing between them allocates. They do nothing;
 * a test interposes them. */
STINT_API void stint_mark_first_step(void);
STINT_API void stint_mark_last_step(void);

/* ---- evaluation ---- */
typedef struct stint_evaluation {
  double loss_nats_per_token, perplexity;
  uint64_t tokens, rows, used_bytes;
  double seconds;
} stint_evaluation;

/* Mean loss over text files, rows of ctx tokens in file order, by a STINT_EVALUATE plan. `scratch` is a path for
 * the token file, removed afterwards. */
STINT_API stint_status stint_evaluate(stint_plan *plan, const char *const *data, size_t n_data,
                                      const char *scratch, stint_evaluation *out, stint_error *error);

/* ---- sampling ---- */
typedef struct stint_sampler stint_sampler;
typedef struct stint_sample_options {
  double temperature; /* 0: greedy */
  int64_t top_k;      /* 0: all */
  double top_p;       /* 1: all */
  uint64_t seed;
} stint_sample_options;

STINT_API stint_status stint_sampler_open(stint_plan *plan, const stint_sample_options *options,
                                          stint_sampler **out, stint_error *error);
/* Feeds a prompt (BOS as the model's metadata says). */
STINT_API stint_status stint_sampler_prompt(stint_sampler *sampler, const char *text, size_t bytes,
                                            stint_error *error);
/* The next token's text in `out` (at most room bytes; *n of them); *end when the model ended or the context is full. */
STINT_API stint_status stint_sampler_next(stint_sampler *sampler, char *out, size_t room, size_t *n,
                                          bool *end, stint_error *error);
STINT_API void stint_sampler_close(stint_sampler *sampler);

/* ---- making a model ---- */
typedef struct stint_new_options {
  const char *architecture; /* "llama" */
  int64_t n_embd, n_layers, n_heads, n_kv_heads, n_ff, ctx;
  bool tied;
  uint64_t seed;
} stint_new_options;
STINT_API void stint_new_options_default(stint_new_options *options);
/* Seeded random weights (normal, 0.02; output projections scaled by 1/sqrt(2 n_layers)) and a byte-level tokenizer. */
STINT_API stint_status stint_new_model(const char *path, const stint_new_options *options,
                                       stint_error *error);

#ifdef __cplusplus
}
#endif

#endif
