/* A plan with its memory: the reservation, the workers, the bound programs, the batch's arrays, the tokenizer.
 *
 * Training, evaluation and sampling open one and differ only in what they run. After session_open nothing is asked of
 * the system; buffers of the caller come from session_take (the run's own part of the arena). */
#ifndef STINT_ENGINE_TRAIN_SESSION_H
#define STINT_ENGINE_TRAIN_SESSION_H

#include "engine/data/data.h"
#include "engine/exec/device_run.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/train/plan.h"
#include "kernels/ops/step.h"

typedef struct session {
  stint_plan *plan;
  reservation arena; /* the host's */
  pool *workers;     /* on the CPU */
  device_run device; /* with a device: module set */
  device_info info;  /* of the device */
  program main, eval;
  step_block *step;
  data_batch batch;
  const float *loss;   /* [rows], after a forward */
  bump host;           /* over the run's own part */
  stint_status status; /* the first failure of a run on a device; later runs do nothing */
  stint_error error;
} session;

/* Takes the arena and fills what is constant. Parameters: the file's weights (full), the adapter's values, or
 * a new adapter: A uniform in +-1/sqrt(n_in) by Philox (He et al. 2015 with a = sqrt 5, as the field's tools do), B zero. */
stint_status session_open(stint_plan *plan, session *out, stint_error *error);
void session_close(session *s);

/* Steps [first, end) of a program on whatever the plan is for. A device's failure is latched in s->status. */
void session_run(session *s, const program *p, int32_t first, int32_t end, program_hook *hook, void *context);
/* Returns what is latched, with its text. */
stint_status session_check(const session *s, stint_error *error);
/* Brings a region (PARAM; GRAD, through PARAM's mirror) to the host and returns its address there; NULL after a failure. */
const void *session_region(session *s, graph_home home);

/* The step region, for what takes turns on it between programs. */
void *session_step_region(const session *s, size_t *bytes);
/* The tokenizer, in the step region (gone with the next program) or in its own part (sampling). */
stint_status session_tokenizer(session *s, tokenizer **out, stint_error *error);
/* Text files to a token file, through the step region. */
stint_status session_prepare(session *s, const char *const *paths, size_t n_paths, const char *token_path,
                             data_prepared *out, stint_error *error);

typedef struct session_sum {
  double loss, weight;
} session_sum;
/* Sum of the loss over every row of a set, in file order, by program `p` (an evaluation). */
session_sum session_evaluate(session *s, const program *p, const data_set *set);
/* Sum of the current loss array, ascending, in float64. */
double session_loss_sum(const session *s);

#endif
