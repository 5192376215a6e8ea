/* Every kernel that is linked into the CUDA module, so that all can be loaded before the first step. */
#ifndef STINT_ENGINE_EXEC_CUDA_KERNELS_H
#define STINT_ENGINE_EXEC_CUDA_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

int cuda_kernels(void); /* how many; 0 on the emulated device, which loads none */
const void *cuda_kernel(int i);
const char *cuda_kernel_name(int i);

#ifdef __cplusplus
}
#endif

#endif
