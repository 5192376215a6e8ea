/* The fixture's files are made, not stored. */
#include "tests/engine/fixture.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/data/digest.h"

static void write_text(const char *const path, unsigned state, const int words) {
  static const char *const parts[] = {"the",  "sea",    "was",  "calm", "and",   "a", "small",
                                      "ship", "sailed", "home", "by",   "night", "\n"};
  FILE *const file = fopen(path, "w");
  cr_assert(file);
  for (int i = 0; i < words; i++) {
    state = state * 1664525u + 1013904223u;
    fprintf(file, "%s ", parts[(state >> 16) % (sizeof parts / sizeof *parts)]);
  }
  fclose(file);
}

void fixture_make(fixture *const f) {
  snprintf(f->folder, sizeof f->folder, "/tmp/stint-test-XXXXXX");
  cr_assert(mkdtemp(f->folder));
  snprintf(f->model, sizeof f->model, "%s/model.gguf", f->folder);
  snprintf(f->text, sizeof f->text, "%s/text.txt", f->folder);
  snprintf(f->valid, sizeof f->valid, "%s/valid.txt", f->folder);
  snprintf(f->run, sizeof f->run, "%s/run", f->folder);
  stint_new_options o;
  stint_new_options_default(&o);
  o.n_embd = 64, o.n_ff = 176, o.seed = 7;
  stint_error error = {0};
  cr_assert_eq(stint_new_model(f->model, &o, &error), STINT_OK, "%s", error.text);
  write_text(f->text, 1, 3000);
  write_text(f->valid, 2, 300);
}

static int remove_one(const char *const path, const struct stat *const st, const int flag,
                      struct FTW *const ftw) {
  (void)st, (void)flag, (void)ftw;
  return remove(path);
}

static void remove_tree(const char *const path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

void fixture_remove(fixture *const f) { remove_tree(f->folder); }

void fixture_options(stint_options *const o) {
  stint_options_default(o);
  o->ctx = 64, o->batch = 2, o->steps = 3, o->threads = 2, o->seed = 5, o->warmup = 1;
}

static bool keep_last(void *const context, const stint_step_info *const info) {
  *(stint_step_info *)context = *info;
  return true;
}

stint_step_info fixture_train(fixture *const f, const stint_options *const o) {
  stint_error error = {0};
  stint_model *model;
  stint_plan *plan;
  stint_run *run;
  stint_step_info last = {0};
  remove_tree(f->run);
  cr_assert_eq(stint_model_open(f->model, &model, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(stint_plan_make(model, o, STINT_TRAIN, &plan, &error), STINT_OK, "%s", error.text);
  const stint_files files = {.data = (const char *[]){f->text},
                             .n_data = 1,
                             .valid = (const char *[]){f->valid},
                             .n_valid = 1,
                             .directory = f->run};
  cr_assert_eq(stint_run_open(plan, &files, &run, &error), STINT_OK, "%s", error.text);
  cr_assert_eq(stint_run_train(run, keep_last, &last, &error), STINT_OK, "%s", error.text);
  stint_run_close(run);
  stint_plan_close(plan);
  stint_model_close(model);
  return last;
}

uint64_t fixture_digest(const fixture *const f, const char *const name) {
  char path[192];
  snprintf(path, sizeof path, "%s/%s", f->run, name);
  FILE *const file = fopen(path, "rb");
  cr_assert(file, "%s is not there", path);
  digest d;
  digest_start(&d);
  char piece[4096];
  size_t n;
  while ((n = fread(piece, 1, sizeof piece, file)) > 0) digest_add(&d, piece, n);
  fclose(file);
  return digest_end(&d);
}
