/* What the build asks of a CUDA toolkit, before it decides to build the module: read by nvcc alone. */
#ifndef STINT_ENGINE_EXEC_CUDA_PROBE_H
#define STINT_ENGINE_EXEC_CUDA_PROBE_H

#ifdef __CUDACC__
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#if CUDART_VERSION < 12000
#error "CUDA 12 or newer is needed"
#endif
#endif

#endif
