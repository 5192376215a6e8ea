/* A folder with a small model and texts, and a run in it through the public calls. */
#ifndef STINT_TESTS_ENGINE_FIXTURE_H
#define STINT_TESTS_ENGINE_FIXTURE_H

#include "engine/stint.h"

typedef struct fixture {
  char folder[64], model[96], text[96], valid[96], run[96];
} fixture;

void fixture_make(fixture *f);   /* model.gguf (llama, 4 layers of 64, byte-level), text.txt, valid.txt */
void fixture_remove(fixture *f); /* with all that is in the folder */

/* Options of a short training on it: 3 steps of 2 x 64 tokens. */
void fixture_options(stint_options *o);

/* Plans, trains into f->run (removed first) and closes; the last step's facts. Asserts success. */
stint_step_info fixture_train(fixture *f, const stint_options *o);
/* A digest of a file of the run directory. */
uint64_t fixture_digest(const fixture *f, const char *name);

#endif
