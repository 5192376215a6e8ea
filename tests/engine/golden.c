/* Reading the goldens. */
#include "tests/engine/golden.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *golden_path(const char *const name, const char *const suffix, char *const out,
                        const size_t room) {
  snprintf(out, room, "%s/tests/engine/data/%s%s", getenv("STINT_SOURCE"), name, suffix);
  return out;
}

bool golden_open(const char *const name, golden_set *const out) {
  char path[1024], line[512];
  *out = (golden_set){0};
  FILE *const bin = fopen(golden_path(name, ".golden.bin", path, sizeof path), "rb");
  FILE *const index = fopen(golden_path(name, ".golden.txt", path, sizeof path), "r");
  if (!bin || !index) return false;
  fseek(bin, 0, SEEK_END);
  const size_t bytes = (size_t)ftell(bin);
  rewind(bin);
  out->bytes = malloc(bytes);
  const bool read = out->bytes && fread(out->bytes, 1, bytes, bin) == bytes;
  while (read && fgets(line, sizeof line, index) &&
         out->n < (int)(sizeof out->arrays / sizeof out->arrays[0])) {
    golden_array *const a = &out->arrays[out->n];
    char type[8];
    int dims;
    long long ne0, ne1, offset;
    if (line[0] == '#' ||
        sscanf(line, "%95s %7s %d %lld %lld %lld", a->name, type, &dims, &ne0, &ne1, &offset) != 6)
      continue;
    a->is_f64 = strcmp(type, "f64") == 0;
    a->ne[0] = ne0, a->ne[1] = ne1;
    a->data = (const char *)out->bytes + offset;
    out->n++;
  }
  fclose(bin);
  fclose(index);
  return read;
}

void golden_close(golden_set *const set) { free(set->bytes); }

const golden_array *golden_find(const golden_set *const set, const char *const format, ...) {
  char name[128];
  va_list args;
  va_start(args, format);
  vsnprintf(name, sizeof name, format, args);
  va_end(args);
  for (int i = 0; i < set->n; i++)
    if (strcmp(set->arrays[i].name, name) == 0) return &set->arrays[i];
  return NULL;
}

double golden_f64(const golden_array *const a, const int64_t i) { return ((const double *)a->data)[i]; }

double golden_distance(const golden_array *const a, const float *const x) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < a->ne[0] * a->ne[1]; i++) {
    const double want = golden_f64(a, i), d = (double)x[i] - want;
    difference += d * d;
    norm += want * want;
  }
  return norm == 0 ? sqrt(difference) : sqrt(difference / norm);
}
