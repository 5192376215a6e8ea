/* The run directory: manifest.json, plan.json, log.jsonl, log.csv.
 *
 * Opened before the first step; afterwards a step's lines are formatted into a fixed buffer and written by one write
 * each, so a log is whole up to the last finished step whatever ends the run. Nothing is allocated. */
#ifndef STINT_ENGINE_TRAIN_RECORD_H
#define STINT_ENGINE_TRAIN_RECORD_H

#include "engine/data/data.h"
#include "engine/train/plan.h"

enum { RECORD_PATH_BYTES = 1024, RECORD_LINE_BYTES = 2048 };

typedef struct record {
  char directory[RECORD_PATH_BYTES];
  int log_jsonl, log_csv; /* descriptors; -1: closed */
} record;

/* Makes the directory when it is missing; refuses one that holds a run already, and one that is not writable. */
stint_status record_open(const char *directory, record *out, stint_error *error);
/* directory/name; too long: BAD_INPUT. */
stint_status record_path(const record *r, const char *name, char out[RECORD_PATH_BYTES], stint_error *error);

typedef struct record_facts {
  const char *command;
  data_prepared train, valid;
  int64_t steps;
  double peak_flops;
  uint64_t model_digest;
} record_facts;

/* manifest.json and plan.json, each written whole and synced. */
stint_status record_facts_write(const record *r, const stint_plan *plan, const record_facts *facts,
                                stint_error *error);
stint_status record_logs_open(record *r, stint_error *error);
stint_status record_step(const record *r, const stint_step_info *info, stint_error *error);
void record_close(record *r);

#endif
