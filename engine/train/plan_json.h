/* A plan as one JSON object: what memplan --json prints, plan.json holds and the plan's digest is taken of. */
#ifndef STINT_ENGINE_TRAIN_PLAN_JSON_H
#define STINT_ENGINE_TRAIN_PLAN_JSON_H

#include "engine/formats/json.h"
#include "engine/train/plan.h"

void plan_write_json(const stint_plan *plan, json_out *out);
/* The options that decide a run's numbers and its memory, as an object of their own (the manifest has it too). */
void plan_write_options(const stint_plan *plan, json_out *out);
/* XXH3 of the object without white space. */
uint64_t plan_digest(const stint_plan *plan);

#endif
