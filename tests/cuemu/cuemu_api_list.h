/* The lists of cuemu_api.h: X(name, value) for constants, X(result, name, (arguments)) for functions. */
#ifndef STINT_TESTS_CUEMU_CUEMU_API_LIST_H
#define STINT_TESTS_CUEMU_CUEMU_API_LIST_H

#define CUEMU_ERRORS(X)                                                                                      \
  X(cudaSuccess, 0)                                                                                          \
  X(cudaErrorInvalidValue, 1)                                                                                \
  X(cudaErrorMemoryAllocation, 2)                                                                            \
  X(cudaErrorInitializationError, 3)                                                                         \
  X(cudaErrorInvalidConfiguration, 9)                                                                        \
  X(cudaErrorInvalidMemcpyDirection, 21)                                                                     \
  X(cudaErrorInsufficientDriver, 35)                                                                         \
  X(cudaErrorInvalidDeviceFunction, 98)                                                                      \
  X(cudaErrorNoDevice, 100)                                                                                  \
  X(cudaErrorInvalidDevice, 101)                                                                             \
  X(cudaErrorInvalidResourceHandle, 400)                                                                     \
  X(cudaErrorNotReady, 600)                                                                                  \
  X(cudaErrorIllegalAddress, 700)                                                                            \
  X(cudaErrorLaunchOutOfResources, 701)                                                                      \
  X(cudaErrorLaunchFailure, 719)                                                                             \
  X(cudaErrorNotSupported, 801)                                                                              \
  X(cudaErrorStreamCaptureUnsupported, 900)                                                                  \
  X(cudaErrorStreamCaptureInvalidated, 901)                                                                  \
  X(cudaErrorStreamCaptureUnmatched, 903)                                                                    \
  X(cudaErrorStreamCaptureUnjoined, 904)                                                                     \
  X(cudaErrorStreamCaptureImplicit, 906)

#define CUEMU_COPY_KINDS(X)                                                                                  \
  X(cudaMemcpyHostToHost, 0)                                                                                 \
  X(cudaMemcpyHostToDevice, 1)                                                                               \
  X(cudaMemcpyDeviceToHost, 2)                                                                               \
  X(cudaMemcpyDeviceToDevice, 3)                                                                             \
  X(cudaMemcpyDefault, 4)

#define CUEMU_CAPTURE_MODES(X)                                                                               \
  X(cudaStreamCaptureModeGlobal, 0)                                                                          \
  X(cudaStreamCaptureModeThreadLocal, 1)                                                                     \
  X(cudaStreamCaptureModeRelaxed, 2)

#define CUEMU_CAPTURE_STATUS(X)                                                                              \
  X(cudaStreamCaptureStatusNone, 0)                                                                          \
  X(cudaStreamCaptureStatusActive, 1)                                                                        \
  X(cudaStreamCaptureStatusInvalidated, 2)

#define CUEMU_NODE_TYPES(X)                                                                                  \
  X(cudaGraphNodeTypeKernel, 0)                                                                              \
  X(cudaGraphNodeTypeMemcpy, 1)                                                                              \
  X(cudaGraphNodeTypeMemset, 2)                                                                              \
  X(cudaGraphNodeTypeHost, 3)                                                                                \
  X(cudaGraphNodeTypeGraph, 4)                                                                               \
  X(cudaGraphNodeTypeEmpty, 5)                                                                               \
  X(cudaGraphNodeTypeWaitEvent, 6)                                                                           \
  X(cudaGraphNodeTypeEventRecord, 7)                                                                         \
  X(cudaGraphNodeTypeMemAlloc, 10)                                                                           \
  X(cudaGraphNodeTypeMemFree, 11)

#define CUEMU_FUNC_ATTRIBUTES(X)                                                                             \
  X(cudaFuncAttributeMaxDynamicSharedMemorySize, 8)                                                          \
  X(cudaFuncAttributePreferredSharedMemoryCarveout, 9)

#define CUEMU_DEVICE_ATTRIBUTES(X)                                                                           \
  X(cudaDevAttrClockRate, 13)                                                                                \
  X(cudaDevAttrMultiProcessorCount, 16)                                                                      \
  X(cudaDevAttrMemoryClockRate, 36)                                                                          \
  X(cudaDevAttrGlobalMemoryBusWidth, 37)                                                                     \
  X(cudaDevAttrL2CacheSize, 38)                                                                              \
  X(cudaDevAttrComputeCapabilityMajor, 75)                                                                   \
  X(cudaDevAttrComputeCapabilityMinor, 76)                                                                   \
  X(cudaDevAttrMaxSharedMemoryPerBlockOptin, 97)

#define CUEMU_LIMITS(X)                                                                                      \
  X(cudaLimitStackSize, 0)                                                                                   \
  X(cudaLimitPrintfFifoSize, 1)                                                                              \
  X(cudaLimitMallocHeapSize, 2)

/* Macros of the toolkit. */
#define CUEMU_FLAGS(X)                                                                                       \
  X(cudaStreamDefault, 0)                                                                                    \
  X(cudaStreamNonBlocking, 1)                                                                                \
  X(cudaEventDefault, 0)                                                                                     \
  X(cudaEventBlockingSync, 1)                                                                                \
  X(cudaEventDisableTiming, 2)                                                                               \
  X(cudaHostAllocDefault, 0)                                                                                 \
  X(cudaHostAllocPortable, 1)                                                                                \
  X(cudaHostAllocMapped, 2)                                                                                  \
  X(cudaHostAllocWriteCombined, 4)

#define CUEMU_DATA_TYPES(X)                                                                                  \
  X(CUDA_R_32F, 0)                                                                                           \
  X(CUDA_R_64F, 1)                                                                                           \
  X(CUDA_R_16F, 2)                                                                                           \
  X(CUDA_R_16BF, 14)

#define CUEMU_BLAS_STATUS(X)                                                                                 \
  X(CUBLAS_STATUS_SUCCESS, 0)                                                                                \
  X(CUBLAS_STATUS_NOT_INITIALIZED, 1)                                                                        \
  X(CUBLAS_STATUS_ALLOC_FAILED, 3)                                                                           \
  X(CUBLAS_STATUS_INVALID_VALUE, 7)                                                                          \
  X(CUBLAS_STATUS_ARCH_MISMATCH, 8)                                                                          \
  X(CUBLAS_STATUS_EXECUTION_FAILED, 13)                                                                      \
  X(CUBLAS_STATUS_INTERNAL_ERROR, 14)                                                                        \
  X(CUBLAS_STATUS_NOT_SUPPORTED, 15)

#define CUEMU_BLAS_OPERATIONS(X) X(CUBLAS_OP_N, 0) X(CUBLAS_OP_T, 1) X(CUBLAS_OP_C, 2)
#define CUEMU_BLAS_MATH(X)                                                                                   \
  X(CUBLAS_DEFAULT_MATH, 0)                                                                                  \
  X(CUBLAS_PEDANTIC_MATH, 2)                                                                                 \
  X(CUBLAS_TF32_TENSOR_OP_MATH, 3)                                                                           \
  X(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, 16)
#define CUEMU_BLAS_ATOMICS(X) X(CUBLAS_ATOMICS_NOT_ALLOWED, 0) X(CUBLAS_ATOMICS_ALLOWED, 1)
#define CUEMU_BLAS_POINTER(X) X(CUBLAS_POINTER_MODE_HOST, 0) X(CUBLAS_POINTER_MODE_DEVICE, 1)
#define CUEMU_BLAS_COMPUTE(X)                                                                                \
  X(CUBLAS_COMPUTE_32F, 68)                                                                                  \
  X(CUBLAS_COMPUTE_32F_PEDANTIC, 69)                                                                         \
  X(CUBLAS_COMPUTE_32F_FAST_16F, 74)                                                                         \
  X(CUBLAS_COMPUTE_32F_FAST_16BF, 75)                                                                        \
  X(CUBLAS_COMPUTE_32F_FAST_TF32, 77)
#define CUEMU_BLAS_ALGORITHMS(X) X(CUBLAS_GEMM_DEFAULT, -1) X(CUBLAS_GEMM_DEFAULT_TENSOR_OP, 99)

#define CUEMU_RUNTIME_FUNCTIONS(X)                                                                           \
  X(const char *, cudaGetErrorName, (cudaError_t))                                                           \
  X(const char *, cudaGetErrorString, (cudaError_t))                                                         \
  X(cudaError_t, cudaGetLastError, (void))                                                                   \
  X(cudaError_t, cudaPeekAtLastError, (void))                                                                \
  X(cudaError_t, cudaDriverGetVersion, (int *))                                                              \
  X(cudaError_t, cudaRuntimeGetVersion, (int *))                                                             \
  X(cudaError_t, cudaGetDeviceCount, (int *))                                                                \
  X(cudaError_t, cudaSetDevice, (int))                                                                       \
  X(cudaError_t, cudaGetDevice, (int *))                                                                     \
  X(cudaError_t, cudaDeviceGetAttribute, (int *, enum cudaDeviceAttr, int))                                  \
  X(cudaError_t, cudaGetDeviceProperties, (struct cudaDeviceProp *, int))                                    \
  X(cudaError_t, cudaDeviceSetLimit, (enum cudaLimit, size_t))                                               \
  X(cudaError_t, cudaDeviceGetLimit, (size_t *, enum cudaLimit))                                             \
  X(cudaError_t, cudaDeviceSynchronize, (void))                                                              \
  X(cudaError_t, cudaDeviceReset, (void))                                                                    \
  X(cudaError_t, cudaMemGetInfo, (size_t *, size_t *))                                                       \
  X(cudaError_t, cudaMalloc, (void **, size_t))                                                              \
  X(cudaError_t, cudaFree, (void *))                                                                         \
  X(cudaError_t, cudaMallocAsync, (void **, size_t, cudaStream_t))                                           \
  X(cudaError_t, cudaFreeAsync, (void *, cudaStream_t))                                                      \
  X(cudaError_t, cudaMallocHost, (void **, size_t))                                                          \
  X(cudaError_t, cudaHostAlloc, (void **, size_t, unsigned int))                                             \
  X(cudaError_t, cudaFreeHost, (void *))                                                                     \
  X(cudaError_t, cudaMemcpy, (void *, const void *, size_t, enum cudaMemcpyKind))                            \
  X(cudaError_t, cudaMemcpyAsync, (void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t))         \
  X(cudaError_t, cudaMemset, (void *, int, size_t))                                                          \
  X(cudaError_t, cudaMemsetAsync, (void *, int, size_t, cudaStream_t))                                       \
  X(cudaError_t, cudaStreamCreate, (cudaStream_t *))                                                         \
  X(cudaError_t, cudaStreamCreateWithFlags, (cudaStream_t *, unsigned int))                                  \
  X(cudaError_t, cudaStreamDestroy, (cudaStream_t))                                                          \
  X(cudaError_t, cudaStreamSynchronize, (cudaStream_t))                                                      \
  X(cudaError_t, cudaStreamQuery, (cudaStream_t))                                                            \
  X(cudaError_t, cudaStreamWaitEvent, (cudaStream_t, cudaEvent_t, unsigned int))                             \
  X(cudaError_t, cudaStreamBeginCapture, (cudaStream_t, enum cudaStreamCaptureMode))                         \
  X(cudaError_t, cudaStreamIsCapturing, (cudaStream_t, enum cudaStreamCaptureStatus *))                      \
  X(cudaError_t, cudaStreamEndCapture, (cudaStream_t, cudaGraph_t *))                                        \
  X(cudaError_t, cudaEventCreate, (cudaEvent_t *))                                                           \
  X(cudaError_t, cudaEventCreateWithFlags, (cudaEvent_t *, unsigned int))                                    \
  X(cudaError_t, cudaEventDestroy, (cudaEvent_t))                                                            \
  X(cudaError_t, cudaEventRecord, (cudaEvent_t, cudaStream_t))                                               \
  X(cudaError_t, cudaEventSynchronize, (cudaEvent_t))                                                        \
  X(cudaError_t, cudaEventQuery, (cudaEvent_t))                                                              \
  X(cudaError_t, cudaEventElapsedTime, (float *, cudaEvent_t, cudaEvent_t))                                  \
  X(cudaError_t, cudaGraphInstantiate, (cudaGraphExec_t *, cudaGraph_t, unsigned long long))                 \
  X(cudaError_t, cudaGraphUpload, (cudaGraphExec_t, cudaStream_t))                                           \
  X(cudaError_t, cudaGraphLaunch, (cudaGraphExec_t, cudaStream_t))                                           \
  X(cudaError_t, cudaGraphDestroy, (cudaGraph_t))                                                            \
  X(cudaError_t, cudaGraphExecDestroy, (cudaGraphExec_t))                                                    \
  X(cudaError_t, cudaGraphGetNodes, (cudaGraph_t, cudaGraphNode_t *, size_t *))                              \
  X(cudaError_t, cudaGraphNodeGetType, (cudaGraphNode_t, enum cudaGraphNodeType *))                          \
  X(cudaError_t, cudaFuncSetAttribute, (const void *, enum cudaFuncAttribute, int))                          \
  X(cudaError_t, cudaFuncGetAttributes, (struct cudaFuncAttributes *, const void *))

#define CUEMU_BLAS_FUNCTIONS(X)                                                                              \
  X(cublasStatus_t, cublasCreate_v2, (cublasHandle_t *))                                                     \
  X(cublasStatus_t, cublasDestroy_v2, (cublasHandle_t))                                                      \
  X(cublasStatus_t, cublasGetVersion_v2, (cublasHandle_t, int *))                                            \
  X(cublasStatus_t, cublasSetStream_v2, (cublasHandle_t, cudaStream_t))                                      \
  X(cublasStatus_t, cublasSetWorkspace_v2, (cublasHandle_t, void *, size_t))                                 \
  X(cublasStatus_t, cublasSetPointerMode_v2, (cublasHandle_t, cublasPointerMode_t))                          \
  X(cublasStatus_t, cublasSetMathMode, (cublasHandle_t, cublasMath_t))                                       \
  X(cublasStatus_t, cublasSetAtomicsMode, (cublasHandle_t, cublasAtomicsMode_t))                             \
  X(const char *, cublasGetStatusName, (cublasStatus_t))                                                     \
  X(const char *, cublasGetStatusString, (cublasStatus_t))                                                   \
  X(cublasStatus_t, cublasSgemm_v2,                                                                          \
    (cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const float *, const float *, int, \
     const float *, int, const float *, float *, int))                                                       \
  X(cublasStatus_t, cublasGemmEx,                                                                            \
    (cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *, const void *,        \
     cudaDataType, int, const void *, cudaDataType, int, const void *, void *, cudaDataType, int,            \
     cublasComputeType_t, cublasGemmAlgo_t))                                                                 \
  X(cublasStatus_t, cublasGemmStridedBatchedEx,                                                              \
    (cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *, const void *,        \
     cudaDataType, int, long long int, const void *, cudaDataType, int, long long int, const void *, void *, \
     cudaDataType, int, long long int, int, cublasComputeType_t, cublasGemmAlgo_t))

#endif
