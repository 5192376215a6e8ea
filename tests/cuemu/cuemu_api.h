/* The part of the CUDA runtime and cuBLAS interfaces that the emulation stands in for: types, constants, prototypes.
 *
 * No header of the toolkit is needed. Constants and functions stand in lists, so that check_api.cpp can compare each with
 * the toolkit's own headers where they are installed. Names and values are NVIDIA's public interface (CUDA 12 and later:
 * cudaGraphInstantiate has three arguments). */
#ifndef STINT_TESTS_CUEMU_CUEMU_API_H
#define STINT_TESTS_CUEMU_CUEMU_API_H

#include <stddef.h>
#include <stdint.h>

#include "tests/cuemu/cuemu_api_list.h"

#define CUEMU_CONSTANT(name, value) name = value,
enum cudaError { CUEMU_ERRORS(CUEMU_CONSTANT) };
enum cudaMemcpyKind { CUEMU_COPY_KINDS(CUEMU_CONSTANT) };
enum cudaStreamCaptureMode { CUEMU_CAPTURE_MODES(CUEMU_CONSTANT) };
enum cudaStreamCaptureStatus { CUEMU_CAPTURE_STATUS(CUEMU_CONSTANT) };
enum cudaGraphNodeType { CUEMU_NODE_TYPES(CUEMU_CONSTANT) };
enum cudaFuncAttribute { CUEMU_FUNC_ATTRIBUTES(CUEMU_CONSTANT) };
enum cudaDeviceAttr { CUEMU_DEVICE_ATTRIBUTES(CUEMU_CONSTANT) };
enum cudaLimit { CUEMU_LIMITS(CUEMU_CONSTANT) };
enum cuemu_flags { CUEMU_FLAGS(CUEMU_CONSTANT) };
enum cudaDataType_t { CUEMU_DATA_TYPES(CUEMU_CONSTANT) };
enum cublasStatus_t { CUEMU_BLAS_STATUS(CUEMU_CONSTANT) };
enum cublasOperation_t { CUEMU_BLAS_OPERATIONS(CUEMU_CONSTANT) };
enum cublasMath_t { CUEMU_BLAS_MATH(CUEMU_CONSTANT) };
enum cublasAtomicsMode_t { CUEMU_BLAS_ATOMICS(CUEMU_CONSTANT) };
enum cublasPointerMode_t { CUEMU_BLAS_POINTER(CUEMU_CONSTANT) };
enum cublasComputeType_t { CUEMU_BLAS_COMPUTE(CUEMU_CONSTANT) };
enum cublasGemmAlgo_t { CUEMU_BLAS_ALGORITHMS(CUEMU_CONSTANT) };
#undef CUEMU_CONSTANT

typedef enum cudaError cudaError_t;
typedef enum cudaDataType_t cudaDataType;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct cublasContext *cublasHandle_t;

/* What a kernel or the module asks of a device: members have the toolkit's names and types, the layout is ours. */
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
  int regsPerBlock, warpSize, maxThreadsPerBlock, major, minor, multiProcessorCount, l2CacheSize;
};
struct cudaFuncAttributes {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, maxDynamicSharedSizeBytes;
};

#define CUEMU_PROTOTYPE(result, name, arguments) result name arguments;
extern "C" {
CUEMU_RUNTIME_FUNCTIONS(CUEMU_PROTOTYPE)
CUEMU_BLAS_FUNCTIONS(CUEMU_PROTOTYPE)
}
#undef CUEMU_PROTOTYPE

/* What the toolkit's headers add for C++, and the names that they give to the second version of cuBLAS. */
#define cudaStreamLegacy    ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
template <class T> static inline cudaError_t cudaMalloc(T **const p, const size_t n) {
  return cudaMalloc((void **)p, n);
}
template <class T> static inline cudaError_t cudaMallocHost(T **const p, const size_t n) {
  return cudaMallocHost((void **)p, n);
}
template <class T>
static inline cudaError_t cudaFuncSetAttribute(T *const function, const enum cudaFuncAttribute which,
                                               const int value) {
  return cudaFuncSetAttribute((const void *)function, which, value);
}
template <class T>
static inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *const out, T *const function) {
  return cudaFuncGetAttributes(out, (const void *)function);
}
#define cublasCreate         cublasCreate_v2
#define cublasDestroy        cublasDestroy_v2
#define cublasSetStream      cublasSetStream_v2
#define cublasSetWorkspace   cublasSetWorkspace_v2
#define cublasSetPointerMode cublasSetPointerMode_v2
#define cublasGetVersion     cublasGetVersion_v2
#define cublasSgemm          cublasSgemm_v2

#endif
