/* The plan of a run: every graph and schedule of it, where each byte lies, and the numbers that are announced.
 *
 * stint_plan_make is the one place that decides: it walks the candidates of choose.c from the fastest to the
 * smallest, builds each completely, and keeps the first that fits. Nothing is estimated: what is held against the budget is
 * what packing returned. */
#ifndef STINT_ENGINE_TRAIN_PLAN_H
#define STINT_ENGINE_TRAIN_PLAN_H

#include "engine/models/build.h"
#include "plans/choose.h"
#include "plans/layout.h"
#include "plans/schedule.h"

/* One graph and its schedule. */
typedef struct plan_program {
  bool present;
  graph g;
  schedule s;
  model_builder b;
  build_request want;
} plan_program;

struct stint_plan {
  bump memory;   /* the plan itself */
  bump programs; /* graphs and schedules of the kept candidate */
  stint_model *model;
  stint_options options; /* completed: no zero stands for a default */
  stint_purpose purpose;
  adapter_file adapter; /* open when options.adapter is set */
  plan_choice choice;
  plan_program main, eval;                             /* eval: only when training */
  arena_layout layout;                                 /* of the host's reservation */
  device_layout on_device;                             /* with a device */
  int32_t *at_peak, n_at_peak;                         /* buffers alive at the peak, largest first */
  size_t tokenizer_bytes, prepare_bytes, saving_bytes; /* the buffers of loading and saving */
  stint_plan_report report;
  uint64_t digest; /* XXH3 of the plan as JSON, without this field */
};

/* Fills in what zero stands for, refuses what makes no sense. Texts name the command line's options. */
stint_status options_complete(const stint_model *model, stint_purpose purpose, stint_options *options,
                              stint_error *error);

/* ---- plan_report.c ---- */
/* The report's texts and the order of what is alive at the peak, made before its numbers: they are part of what is counted. */
stint_status plan_report_texts(stint_plan *plan, stint_error *error);
void plan_report(stint_plan *plan, uint64_t budget);
/* Of the model's file, or of the one whose header this is. */
uint64_t plan_file_bytes(const gguf_file *file);

/* Bytes of the run's own buffers (log lines, the run object) in the runtime part. */
enum { PLAN_HOST_BYTES = 128 << 10 };

#endif
