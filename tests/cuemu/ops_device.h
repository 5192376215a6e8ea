/* The harness's device hook over the emulation: one allocation, in which operands and workspace are placed with guards. */
#ifndef STINT_TESTS_CUEMU_OPS_DEVICE_H
#define STINT_TESTS_CUEMU_OPS_DEVICE_H

#include "tests/ops/values.h"

const ht_device *ops_device(bool is_fast);

#endif
