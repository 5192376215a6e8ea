/* The table of CUDA launches: each family enters its strict ones; in fast mode faster ones overwrite them. An entry
 * stays NULL where an op has no CUDA launch: the op is unsupported there. */
#ifndef STINT_KERNELS_CUDA_REGISTER_H
#define STINT_KERNELS_CUDA_REGISTER_H

#include "kernels/cuda/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

void cuda_launches(bool fast, cuda_launch *table[OP_COUNT]);

#ifdef __cplusplus
}
#endif

#endif
