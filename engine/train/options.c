/* Defaults of a run and the refusal of options that make no sense. One place: every default stands here. */
#include "engine/exec/pool.h"
#include "engine/train/machine.h"
#include "engine/train/plan.h"

#include <string.h>

void stint_options_default(stint_options *const o) {
  *o = (stint_options){
      .batch = 4,
      .accum = 1,
      .cpu_mask = ~0u,
      .optimizer = STINT_ADAMW,
      .schedule = STINT_LR_COSINE,
      .lr = 1e-3,
      .lr_floor = 0.1,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .epsilon = 1e-8,
      .clip = 1.0,
      .warmup = 10,
      .epochs = 1,
  };
}

#define REFUSE(condition, ...)                                                                               \
  do {                                                                                                       \
    if (condition) return stint_fail(error, STINT_BAD_INPUT, __VA_ARGS__);                                   \
  } while (0)

stint_status options_complete(const stint_model *const model, const stint_purpose purpose,
                              stint_options *const o, stint_error *const error) {
  const int64_t trained = model->ctx_trained;
  if (o->ctx == 0) o->ctx = trained < 256 ? trained : 256;
  REFUSE(o->device == STINT_CUDA && (o->threads != 0 || o->cpu_mask != ~0u),
         "--threads and --cpu-mask are of --device cpu");
  if (o->threads == 0) o->threads = o->device == STINT_CUDA ? 1 : machine_processors();
  REFUSE(o->ctx < 1 || o->ctx > 1 << 23, "--ctx %lld is not in 1 .. 8388608", (long long)o->ctx);
  REFUSE(o->batch < 1 || o->batch > 1 << 16, "--batch %lld is not in 1 .. 65536", (long long)o->batch);
  REFUSE(o->accum < 1 || o->accum > 1 << 20, "--accum %lld is not in 1 .. 1048576", (long long)o->accum);
  REFUSE(o->ctx * o->batch > INT32_MAX / 4,
         "--ctx %lld times --batch %lld is more rows than a microbatch may have", (long long)o->ctx,
         (long long)o->batch);
  REFUSE(o->threads < 1 || o->threads > POOL_MAX_WORKERS, "--threads %d is not in 1 .. %d", o->threads,
         POOL_MAX_WORKERS);
  REFUSE(o->device == STINT_CPU && (o->device_name || o->device_memory_bytes || o->numerics != STINT_STRICT),
         "--gpu, --device-memory and --numerics are of --device cuda");
  REFUSE(o->loss_chunk < 0 || o->loss_chunk > INT32_MAX, "--loss-chunk must be at least 0");
  REFUSE(o->attention_chunk < 0 || o->attention_chunk > 4096, "--attention-chunk must be in 0 .. 4096");
  if (purpose == STINT_TRAIN) {
    REFUSE(!(o->lr > 0 && o->lr < 1e3), "--lr must be above 0");
    REFUSE(!(o->lr_floor >= 0 && o->lr_floor <= 1), "--lr-floor must be in 0 .. 1, a fraction of --lr");
    REFUSE(!(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1),
           "--beta1 and --beta2 must be in [0, 1)");
    REFUSE(!(o->epsilon > 0), "--epsilon must be above 0");
    REFUSE(!(o->momentum >= 0 && o->momentum < 1), "--momentum must be in [0, 1)");
    REFUSE(!(o->weight_decay >= 0 && o->weight_decay < 1e3), "--weight-decay must be at least 0");
    REFUSE(!(o->clip >= 0), "--clip must be at least 0 (0: no clipping)");
    REFUSE(!(o->dropout >= 0 && o->dropout < 1), "--dropout must be in [0, 1)");
    REFUSE(o->warmup < 0 || o->steps < 0 || o->eval_every < 0 || o->save_every < 0,
           "--warmup, --steps, --eval-every and --save-every must be at least 0");
    REFUSE(o->steps == 0 && !(o->epochs > 0 && o->epochs <= 1e6), "--epochs must be above 0");
    REFUSE(
        o->full && (o->adapter || o->rank || o->alpha != 0 || o->targets || o->dropout != 0),
        "--full trains every weight; --adapter, --rank, --alpha, --targets and --dropout are for adapters");
  }
  REFUSE(o->adapter && (o->rank || o->alpha != 0 || o->targets),
         "--adapter brings its own rank, alpha and targets; leave --rank, --alpha and --targets out");
  if (o->full || o->adapter) return STINT_OK;
  if (o->rank == 0) o->rank = 8;
  if (o->alpha == 0) o->alpha = 2 * (double)o->rank;
  if (!o->targets) o->targets = "all-linear";
  REFUSE(o->rank < 1 || o->rank > 4096, "--rank %lld is not in 1 .. 4096", (long long)o->rank);
  REFUSE(!(o->alpha > 0 && o->alpha < 1e6), "--alpha must be above 0");
  return STINT_OK;
}
