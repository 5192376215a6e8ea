/* Stand-ins for cuBLAS: handles, workspaces, and products of column-major matrices, one chain of fused multiply-adds an
 * element. What the library documents and a careless caller forgets is checked: dimensions and leading dimensions, operands
 * inside one live allocation and aligned, a workspace of the caller's (without one the library would allocate), which
 * cublasSetStream takes away. The workspace is overwritten with NaN by every product. */
#include <set>

#include "tests/cuemu/internal.h"

struct cublasContext {
  cudaStream_t stream;
  void *workspace;
  size_t workspace_bytes;
  cublasMath_t math;
};

namespace cuemu {
namespace {

std::set<cublasContext *> handles;

cublasStatus_t refuse(const cublasStatus_t s, const char *const function, const char *const why) {
  misuse(cudaSuccess, function, why);
  return s;
}

struct matrix {
  const void *data;
  cudaDataType type;
  int ld;
  long long stride;
};

size_t type_bytes(const cudaDataType t) {
  return t == CUDA_R_32F ? 4 : t == CUDA_R_16BF || t == CUDA_R_16F ? 2 : 0;
}

float load(const matrix &m, const size_t i) {
  if (m.type == CUDA_R_32F) return ((const float *)m.data)[i];
  if (m.type == CUDA_R_16BF) return __bfloat162float(((const __nv_bfloat16 *)m.data)[i]);
  return __half2float(((const __half *)m.data)[i]);
}

void store(const matrix &m, const size_t i, const float v) {
  if (m.type == CUDA_R_32F)
    ((float *)m.data)[i] = v;
  else if (m.type == CUDA_R_16BF)
    ((__nv_bfloat16 *)m.data)[i] = __float2bfloat16_rn(v);
  else
    ((__half *)m.data)[i] = __float2half_rn(v);
}

float as_tf32(const float x) { return __int_as_float((__float_as_int(x) + 0x1000) & ~0x1fff); }
float as_bf16(const float x) { return __bfloat162float(__float2bfloat16_rn(x)); }
float as_f16(const float x) { return __half2float(__float2half_rn(x)); }

/* nullptr, or what is wrong with an operand of rows x cols x batch. */
const char *wrong(const matrix &m, const int rows, const int cols, const int batch) {
  if (m.ld < (rows > 1 ? rows : 1)) return "a leading dimension that is too small";
  if (!type_bytes(m.type)) return "a type that is not supported";
  if (rows == 0 || cols == 0 || batch == 0) return nullptr;
  if ((uintptr_t)m.data % type_bytes(m.type)) return "an operand that is not aligned";
  const long long elements = (long long)m.ld * (cols - 1) + rows + m.stride * (batch - 1);
  if (!inside_allocation(m.data, (size_t)elements * type_bytes(m.type)))
    return "an operand that is not inside one live device allocation";
  return nullptr;
}

cublasStatus_t product(const char *const who, const cublasHandle_t h, const cublasOperation_t ta,
                       const cublasOperation_t tb, const int m, const int n, const int k, const float alpha,
                       const matrix a, const matrix b, const float beta, const matrix c, const int batch,
                       const cublasComputeType_t compute) {
  if (!handles.count(h))
    return refuse(CUBLAS_STATUS_NOT_INITIALIZED, who, "a handle that is destroyed or was never created");
  if (m < 0 || n < 0 || k < 0 || batch < 0)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, who, "a negative dimension");
  const bool na = ta == CUBLAS_OP_N, nb = tb == CUBLAS_OP_N;
  const char *why = wrong(a, na ? m : k, na ? k : m, batch);
  if (!why) why = wrong(b, nb ? k : n, nb ? n : k, batch);
  if (!why) why = wrong(c, m, n, batch);
  if (why) return refuse(CUBLAS_STATUS_INVALID_VALUE, who, why);
  if (a.type != b.type || (c.type != CUDA_R_32F && c.type != a.type))
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, who, "a combination of types that is not supported");
  if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC && a.type != CUDA_R_32F)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, who, "a fast compute type is for float32 operands");
  if (!h->workspace)
    return refuse(CUBLAS_STATUS_EXECUTION_FAILED, who,
                  "no workspace: cublasSetWorkspace is missing, or a later cublasSetStream undid it");
  const bool pedantic = h->math == CUBLAS_PEDANTIC_MATH || compute == CUBLAS_COMPUTE_32F_PEDANTIC;
  float (*narrow)(float) = nullptr;
  if (!pedantic && a.type == CUDA_R_32F) {
    if (compute == CUBLAS_COMPUTE_32F_FAST_16BF) narrow = as_bf16;
    if (compute == CUBLAS_COMPUTE_32F_FAST_16F) narrow = as_f16;
    if (compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
        (h->math == CUBLAS_TF32_TENSOR_OP_MATH && compute == CUBLAS_COMPUTE_32F))
      narrow = as_tf32;
  }
  void *const workspace = h->workspace;
  const size_t workspace_bytes = h->workspace_bytes;
  const cudaError_t e = enqueue(
      h->stream, node_kind::kernel,
      [=] {
        memset(workspace, 0xff, workspace_bytes);
        for (int i = 0; i < batch; i++)
          for (int col = 0; col < n; col++)
            for (int row = 0; row < m; row++) {
              float s = 0;
              for (int p = 0; p < k; p++) {
                const size_t at = na ? row + (size_t)p * (size_t)a.ld : p + (size_t)row * (size_t)a.ld;
                const size_t bt = nb ? p + (size_t)col * (size_t)b.ld : col + (size_t)p * (size_t)b.ld;
                float x = load(a, (size_t)(i * a.stride) + at), y = load(b, (size_t)(i * b.stride) + bt);
                if (narrow) x = narrow(x), y = narrow(y);
                s = fmaf(x, y, s);
              }
              const size_t ct = (size_t)(i * c.stride) + (size_t)row + (size_t)col * (size_t)c.ld;
              store(c, ct, beta == 0 ? alpha * s : fmaf(beta, load(c, ct), alpha * s));
            }
      },
      who);
  return e ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

} // namespace

unsigned live_handles() { return (unsigned)handles.size(); }

} // namespace cuemu

using namespace cuemu;

#define NEED_HANDLE(h)                                                                                       \
  if (!handles.count(h))                                                                                     \
  return refuse(CUBLAS_STATUS_NOT_INITIALIZED, __func__, "a handle that is destroyed or was never created")

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t *const out) {
  *out = nullptr;
  if (refuse_in_capture(__func__)) return CUBLAS_STATUS_NOT_INITIALIZED;
  *out = new cublasContext();
  handles.insert(*out);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(const cublasHandle_t h) {
  NEED_HANDLE(h);
  drain_all();
  handles.erase(h);
  delete h;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int *const v) {
  return *v = 130000, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(const cublasHandle_t h, const cudaStream_t s) {
  NEED_HANDLE(h);
  if (!stream_alive(s)) return refuse(CUBLAS_STATUS_INVALID_VALUE, __func__, "a stream that is destroyed");
  h->stream = s;
  h->workspace = nullptr; /* "unconditionally resets the workspace to the default pool" */
  h->workspace_bytes = 0;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(const cublasHandle_t h, void *const p, const size_t n) {
  NEED_HANDLE(h);
  if ((uintptr_t)p % 256)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, __func__, "a workspace that is not 256-byte aligned");
  if (!inside_allocation(p, n))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, __func__,
                  "a workspace that is not inside one live device allocation");
  h->workspace = p;
  h->workspace_bytes = n;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(const cublasHandle_t h, const cublasPointerMode_t mode) {
  NEED_HANDLE(h);
  return mode == CUBLAS_POINTER_MODE_HOST
             ? CUBLAS_STATUS_SUCCESS
             : refuse(CUBLAS_STATUS_NOT_SUPPORTED, __func__, "scalars on the device");
}
cublasStatus_t cublasSetMathMode(const cublasHandle_t h, const cublasMath_t mode) {
  NEED_HANDLE(h);
  h->math = (cublasMath_t)(mode & 15);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetAtomicsMode(const cublasHandle_t h, const cublasAtomicsMode_t mode) {
  NEED_HANDLE(h);
  return mode == CUBLAS_ATOMICS_NOT_ALLOWED
             ? CUBLAS_STATUS_SUCCESS
             : refuse(CUBLAS_STATUS_NOT_SUPPORTED, __func__, "atomics change bits");
}
cublasStatus_t cublasSgemm_v2(const cublasHandle_t h, const cublasOperation_t ta, const cublasOperation_t tb,
                              const int m, const int n, const int k, const float *const alpha,
                              const float *const a, const int lda, const float *const b, const int ldb,
                              const float *const beta, float *const c, const int ldc) {
  return product(__func__, h, ta, tb, m, n, k, *alpha, {a, CUDA_R_32F, lda, 0}, {b, CUDA_R_32F, ldb, 0},
                 *beta, {c, CUDA_R_32F, ldc, 0}, 1, CUBLAS_COMPUTE_32F);
}
cublasStatus_t cublasGemmEx(const cublasHandle_t h, const cublasOperation_t ta, const cublasOperation_t tb,
                            const int m, const int n, const int k, const void *const alpha,
                            const void *const a, const cudaDataType at, const int lda, const void *const b,
                            const cudaDataType bt, const int ldb, const void *const beta, void *const c,
                            const cudaDataType ct, const int ldc, const cublasComputeType_t compute,
                            cublasGemmAlgo_t) {
  return product(__func__, h, ta, tb, m, n, k, *(const float *)alpha, {a, at, lda, 0}, {b, bt, ldb, 0},
                 *(const float *)beta, {c, ct, ldc, 0}, 1, compute);
}
cublasStatus_t cublasGemmStridedBatchedEx(const cublasHandle_t h, const cublasOperation_t ta,
                                          const cublasOperation_t tb, const int m, const int n, const int k,
                                          const void *const alpha, const void *const a, const cudaDataType at,
                                          const int lda, const long long sa, const void *const b,
                                          const cudaDataType bt, const int ldb, const long long sb,
                                          const void *const beta, void *const c, const cudaDataType ct,
                                          const int ldc, const long long sc, const int batch,
                                          const cublasComputeType_t compute, cublasGemmAlgo_t) {
  return product(__func__, h, ta, tb, m, n, k, *(const float *)alpha, {a, at, lda, sa}, {b, bt, ldb, sb},
                 *(const float *)beta, {c, ct, ldc, sc}, batch, compute);
}
}
