/* The list of kernels, kept as they register themselves.
 *
 * Code that nvcc makes tells the CUDA runtime of each kernel while the library is being loaded, by __cudaRegisterFunction. The
 * module is linked with --wrap=__cudaRegisterFunction, so that those calls come by here and are noted on their way.
 * Why not CUDA_MODULE_LOADING=EAGER: it would also load the thousands of kernels of cuBLAS, and only where this library
 * is the first in the process to use CUDA. */
#include "engine/exec/cuda/kernels.h"

#ifdef STINT_CUEMU

int cuda_kernels(void) { return 0; }
const void *cuda_kernel(int) { return nullptr; }
const char *cuda_kernel_name(int) { return ""; }

#else

#include <vector_types.h>

enum { MAX_KERNELS = 1024 };
static struct {
  const void *host;
  const char *name;
} known[MAX_KERNELS];
static int n_known;

extern "C" {
void __real___cudaRegisterFunction(void **module, const char *host, char *device, const char *name,
                                   int threads, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp);
void __wrap___cudaRegisterFunction(void **module, const char *host, char *device, const char *name,
                                   int threads, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp);
}

void __wrap___cudaRegisterFunction(void **module, const char *host, char *device, const char *name,
                                   int threads, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp) {
  if (n_known < MAX_KERNELS) {
    known[n_known].host = host;
    known[n_known].name = name;
    n_known++;
  }
  __real___cudaRegisterFunction(module, host, device, name, threads, tid, bid, block, grid, warp);
}

int cuda_kernels(void) { return n_known; }
const void *cuda_kernel(const int i) { return known[i].host; }
const char *cuda_kernel_name(const int i) { return known[i].name; }

#endif
