/* Goldens of tests/oracles/whole_model.py: named arrays of float64 or int32 in one file, an index of lines beside it. */
#ifndef STINT_TESTS_ENGINE_GOLDEN_H
#define STINT_TESTS_ENGINE_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct golden_array {
  char name[96];
  bool is_f64;
  int64_t ne[2];
  const void *data;
} golden_array;

typedef struct golden_set {
  golden_array arrays[256];
  int n;
  void *bytes;
} golden_set;

/* <STINT_SOURCE>/tests/engine/data/<name><suffix> */
const char *golden_path(const char *name, const char *suffix, char *out, size_t room);
bool golden_open(const char *name, golden_set *out);
void golden_close(golden_set *set);
const golden_array *golden_find(const golden_set *set, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
double golden_f64(const golden_array *a, int64_t i);

/* ||x - a|| / ||a||, x float32 of the same length. NaN when either holds one. */
double golden_distance(const golden_array *a, const float *x);

#endif
