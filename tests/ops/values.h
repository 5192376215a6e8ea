/* Operand values of one case, and operand memory with guards: what the harness's properties are made of. */
#ifndef STINT_TESTS_OPS_VALUES_H
#define STINT_TESTS_OPS_VALUES_H

#include "tests/ops/harness.h"

enum { HT_OPERANDS = OP_MAX_SRC + OP_MAX_DST }; /* operand k: source k, or destination k - OP_MAX_SRC */

static inline const op_tensor *ht_operand(const op_case *const c, const int k) {
  return k < OP_MAX_SRC ? &c->src[k] : &c->dst[k - OP_MAX_SRC];
}

/* raw: the rows packed, as stored; dense: as doubles. Destinations that are not inout have dense zeros, raw NaN. */
typedef struct ht_values {
  unsigned char *raw[HT_OPERANDS];
  double *dense[HT_OPERANDS];
} ht_values;

ht_values ht_values_make(const ht_case *t, uint64_t seed);
ht_values ht_values_from(const ht_case *t, const double *const src[], double *const dst[]);
void ht_values_free(ht_values *v);
size_t ht_raw_bytes(const op_tensor *t);
int64_t ht_elements(const op_tensor *t);
void ht_raw_to_dense(const op_tensor *t, const unsigned char *raw, double *dense);

/* A device beside the CPU's paths: operands, workspace and launches on it are the hook's. */
typedef struct ht_device {
  const char *name;
  void *(*take)(
      size_t bytes);     /* 256-byte aligned; the harness may read and write it until launch, and after */
  void (*release)(void); /* all that was taken */
  size_t (*workspace)(op_id id, const op_case *c);
  /* Binds and launches, the operands and the workspace alone accessible; NULL or what went wrong. */
  const char *(*launch)(op_id id, const op_case *c, void *const src[], void *const dst[], void *work,
                        unsigned seed);
} ht_device;

/* How one call is made. */
typedef struct ht_config {
  const ht_device *device; /* NULL: the CPU, by mask and workers */
  unsigned seed;           /* of the device's schedule */
  unsigned mask;
  int workers;
  bool reverse, strided;
  int alias[OP_MAX_DST]; /* source that dst j lies on, or -1 */
} ht_config;

ht_config ht_plain(unsigned mask, int workers);
const char *ht_config_text(const ht_config *g);

/* Runs the op; out[j] (raw, packed) of each present dst. Fails the test on a broken guard. */
void ht_call(const ht_case *t, const ht_values *v, const ht_config *g, unsigned char *const out[OP_MAX_DST]);

#endif
