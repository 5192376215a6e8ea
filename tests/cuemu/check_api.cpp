/* Compared by the compiler, where the toolkit's headers are: every constant and every prototype of cuemu_api_list.h, and the
 * members that our structures have. Nothing of it runs. */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <type_traits>

#include "tests/cuemu/cuemu_api_list.h"

#define VALUE(name, value) static_assert((int)name == value, #name);
CUEMU_ERRORS(VALUE)
CUEMU_COPY_KINDS(VALUE)
CUEMU_CAPTURE_MODES(VALUE)
CUEMU_CAPTURE_STATUS(VALUE)
CUEMU_NODE_TYPES(VALUE)
CUEMU_FUNC_ATTRIBUTES(VALUE)
CUEMU_DEVICE_ATTRIBUTES(VALUE)
CUEMU_LIMITS(VALUE)
CUEMU_FLAGS(VALUE)
CUEMU_DATA_TYPES(VALUE)
CUEMU_BLAS_STATUS(VALUE)
CUEMU_BLAS_OPERATIONS(VALUE)
CUEMU_BLAS_MATH(VALUE)
CUEMU_BLAS_ATOMICS(VALUE)
CUEMU_BLAS_POINTER(VALUE)
CUEMU_BLAS_COMPUTE(VALUE)
CUEMU_BLAS_ALGORITHMS(VALUE)

/* A second declaration of the same function in the same linkage must have the same type, or the compiler refuses it. */
#define AGAIN(result, name, arguments)                                                                       \
  extern "C" result name arguments;                                                                          \
  static_assert(std::is_same<decltype(static_cast<result(*) arguments>(&name)), result(*) arguments>::value, \
                #name);
CUEMU_RUNTIME_FUNCTIONS(AGAIN)
CUEMU_BLAS_FUNCTIONS(AGAIN)

#define MEMBER(type, owner, member)                                                                          \
  static_assert(std::is_same<decltype(owner::member), type>::value, #owner "." #member);
MEMBER(char[256], cudaDeviceProp, name)
MEMBER(size_t, cudaDeviceProp, totalGlobalMem)
MEMBER(size_t, cudaDeviceProp, sharedMemPerBlock)
MEMBER(size_t, cudaDeviceProp, sharedMemPerBlockOptin)
MEMBER(size_t, cudaDeviceProp, sharedMemPerMultiprocessor)
MEMBER(int, cudaDeviceProp, regsPerBlock)
MEMBER(int, cudaDeviceProp, warpSize)
MEMBER(int, cudaDeviceProp, maxThreadsPerBlock)
MEMBER(int, cudaDeviceProp, major)
MEMBER(int, cudaDeviceProp, minor)
MEMBER(int, cudaDeviceProp, multiProcessorCount)
MEMBER(int, cudaDeviceProp, l2CacheSize)
MEMBER(size_t, cudaFuncAttributes, sharedSizeBytes)
MEMBER(size_t, cudaFuncAttributes, constSizeBytes)
MEMBER(size_t, cudaFuncAttributes, localSizeBytes)
MEMBER(int, cudaFuncAttributes, maxThreadsPerBlock)
MEMBER(int, cudaFuncAttributes, numRegs)
MEMBER(int, cudaFuncAttributes, maxDynamicSharedSizeBytes)
