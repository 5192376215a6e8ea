/* The emulation's own tests: what is right runs with the same bits under every schedule, and each kind of defect is caught
 * with its kernel and its line. A plain program: exit status 0 when everything was as it should be. */
#include <signal.h>
#include <setjmp.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "tests/cuemu/cuemu_control.h"
#include "tests/cuemu/test_kernels.h"

namespace {

int n_checks, n_failed;

void check(const bool ok, const char *const what) {
  n_checks++;
  if (ok) return;
  n_failed++;
  printf("FAIL %s; last report: %s\n", what, cuemu_text());
}
#define CHECK(e) check(e, #e)
#define OK(e)    check((int)(e) == 0, #e)
#define REFUSED(e, part)                                                                                     \
  do {                                                                                                       \
    const unsigned before_ = cuemu_misuses();                                                                \
    const bool refused_ = (int)(e) != 0;                                                                     \
    check(refused_ &&cuemu_misuses() > before_ && strstr(cuemu_text(), part), #e);                           \
  } while (0)

constexpr int N = 1024;
float *device; /* y at 0, x at N */

void right_kernels() {
  std::vector<float> x(N), first(N), y(N);
  for (int i = 0; i < N; i++) x[(size_t)i] = (float)((i * 37) % 101) / 7.0f;
  OK(cudaMemcpy(device + N, x.data(), N * sizeof(float), cudaMemcpyHostToDevice));
  for (const test_kernel k : {ROW_SUM, REVERSE, WARP_EXCHANGE})
    for (unsigned seed = 0; seed < 6; seed++) {
      cuemu_seed(seed);
      OK(cudaMemset(device, 0, N * sizeof(float)));
      test_launch(k, device, device + N, 100, nullptr);
      OK(cudaMemcpy(y.data(), device, N * sizeof(float), cudaMemcpyDeviceToHost));
      if (seed == 0) first = y;
      check(memcmp(first.data(), y.data(), N * sizeof(float)) == 0, "equal bits under every schedule");
      if (k == REVERSE) check(y[0] == x[63] && y[63] == x[0], "reverse");
      if (k == WARP_EXCHANGE) check(y[0] == 1 + 16 + 1 && y[33] == 32 + 16 + 1, "warp_exchange");
    }
  std::set<float> sums; /* what float atomics give, for which strict kernels have none */
  for (unsigned seed = 0; seed < 8; seed++) {
    cuemu_seed(seed);
    OK(cudaMemset(device, 0, 4));
    test_launch(ORDER_DEPENDENT, device, device + N, 0, nullptr);
    OK(cudaMemcpy(y.data(), device, 4, cudaMemcpyDeviceToHost));
    sums.insert(y[0]);
  }
  check(sums.size() > 1, "an order-dependent kernel shows different bits under different schedules");
}

void wrong_kernels() {
  static const struct {
    test_kernel kernel;
    const char *name, *text;
  } list[] = {{DIVERGENT_BARRIER, "divergent_barrier", "divergent barrier"},
              {EXIT_BEFORE_BARRIER, "exit_before_barrier", "that exited threads do not reach"},
              {HALF_WARP_SHUFFLE, "half_warp_shuffle", "in __shfl_xor_sync (mask ffffffff)"},
              {LANE_OUTSIDE_MASK, "lane_outside_mask", "not in mask"},
              {MIXED_WAITS, "mixed_waits", "no thread can run"},
              {MISSING_BARRIER, "missing_barrier", "shared memory that"},
              {MISSING_SECOND_BARRIER, "missing_second_barrier", "with no barrier between"},
              {MISSING_SYNCWARP, "missing_syncwarp", "shared memory that"},
              {UNINITIALISED_SHARED, "uninitialised_shared", "nothing in this block has written"},
              {UNINITIALISED_DYNAMIC, "uninitialised_dynamic", "nothing in this block has written"},
              {OUTSIDE_STATIC_SHARED, "outside_static_shared", "outside its variable"},
              {OUTSIDE_DYNAMIC_SHARED, "outside_dynamic_shared", "dynamic shared memory"},
              {MISALIGNED, "misaligned", "not aligned"},
              {EARLY_ASYNC, "early_async", "nothing in this block has written"},
              {TEMPLATE_STATIC, "template_static", "inside a template"}};
  for (const auto &l : list)
    for (unsigned seed = 0; seed < 4; seed++) {
      cuemu_seed(seed);
      cuemu_clear();
      test_launch(l.kernel, device, device + N, N, nullptr);
      const cudaError_t e = cudaDeviceSynchronize();
      const bool line = strstr(cuemu_text(), "test_kernels.cu:") != nullptr;
#if defined(__clang__) || defined(CUEMU_NO_ALIGNMENT)
      if (l.kernel == MISALIGNED) continue; /* this compiler has no check where a structure is copied */
#endif
      if (l.kernel == TEMPLATE_STATIC && e == cudaSuccess)
        continue; /* a compiler that honours the section there */
      check(e == cudaErrorLaunchFailure && cuemu_faults() == 1, l.name);
      if (getenv("CUEMU_SHOW") && seed == 0) printf("%s\n", cuemu_text());
      const bool late = l.kernel == HALF_WARP_SHUFFLE && strstr(cuemu_text(), "exited or absent lanes");
      check(strstr(cuemu_text(), l.name) && (late || strstr(cuemu_text(), l.text)), l.text);
      check(line, "the fault names file and line");
      check(cudaMemset(device, 0, 4) == cudaErrorLaunchFailure, "the error is sticky");
      cuemu_clear();
    }
  cuemu_seed(0);
}

void device_memory() {
  float *other, *host;
  OK(cudaMalloc(&other, 100 * sizeof(float)));
  OK(cudaMallocHost(&host, 64));
  const auto faults = [](const char *const text) {
    const cudaError_t e = cudaDeviceSynchronize();
    check(e == cudaErrorLaunchFailure && strstr(cuemu_text(), text) &&
              strstr(cuemu_text(), "test_kernels.cu:"),
          text);
    cuemu_clear();
  };
  test_launch(FILL, other, nullptr, 100, nullptr);
  OK(cudaDeviceSynchronize());
  test_launch(FILL, other, nullptr, 101, nullptr);
  faults("outside every live device allocation");
  test_launch(FILL, host, nullptr, 1, nullptr);
  faults("host memory");
  float local[4] = {0};
  test_launch(COPY, other, local, 4, nullptr);
  faults("reads 4 bytes of host memory");

  /* inside the arena, outside the operands */
  const cuemu_operand list[] = {{device, 64 * 4, true}, {device + 128, 64 * 4, false}};
  cuemu_operands(list, 2);
  test_launch(COPY, device, device + 128, 64, nullptr);
  OK(cudaDeviceSynchronize());
  test_launch(COPY, device, device + 128, 65, nullptr);
  faults("outside the op's");
  test_launch(COPY, device + 128, device, 64, nullptr);
  faults("destinations and workspace");
  cuemu_operands_any();
  test_launch(COPY, device + 128, device, 64, nullptr);
  OK(cudaDeviceSynchronize());

  OK(cudaFree(other));
  test_launch(FILL, other, nullptr, 1, nullptr);
  faults("outside every live device allocation");
  REFUSED(cudaFree(other), "not a live device allocation");
  OK(cudaFreeHost(host));
  REFUSED(cudaFreeHost(host), "not live pinned memory");
  float h[4];
  REFUSED(cudaMemcpy(device + 2 * N - 1, h, 8, cudaMemcpyHostToDevice), "not inside one live");
  REFUSED(cudaMemcpy(h, device, 8, cudaMemcpyHostToDevice), "direction");
  REFUSED(cudaMemsetAsync(device, 0, (size_t)1 << 30, nullptr), "not inside one live");

  size_t free_bytes, total;
  OK(cudaMemGetInfo(&free_bytes, &total));
  void *p;
  REFUSED(cudaMalloc(&p, free_bytes + 1), "over the device's memory");
  test_launch(TOO_MUCH_SHARED, device, nullptr, 0, nullptr);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue && strstr(cuemu_text(), "dynamic shared memory"));
  test_launch(TOO_LARGE_A_BLOCK, device, nullptr, 0, nullptr);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  cuemu_clear();
}

sigjmp_buf after_fault;
void on_fault(int) { siglongjmp(after_fault, 1); }

void host_dereference() {
  signal(SIGSEGV, on_fault);
  volatile bool faulted = true;
  if (!sigsetjmp(after_fault, 1)) {
    (void)*(volatile float *)device;
    faulted = false;
  }
  check(faulted, "a host read of device memory faults");
  signal(SIGSEGV, SIG_DFL);
  cuemu_open_memory();
  *(volatile float *)device = 1;
  cuemu_close_memory();
}

void streams() {
  std::set<float> with, without;
  for (int fix = 0; fix < 2; fix++)
    for (unsigned seed = 0; seed < 8; seed++) {
      cuemu_seed(seed);
      cudaStream_t a, b;
      cudaEvent_t e;
      float *pinned, out;
      OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
      OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
      OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
      OK(cudaMallocHost(&pinned, 64 * 4));
      for (int i = 0; i < 64; i++) pinned[i] = 7;
      OK(cudaMemset(device, 0, 2 * N * 4));
      OK(cudaDeviceSynchronize());
      OK(cudaMemcpyAsync(device, pinned, 64 * 4, cudaMemcpyHostToDevice, a));
      if (fix) {
        OK(cudaEventRecord(e, a));
        OK(cudaStreamWaitEvent(b, e, 0));
      }
      test_launch(COPY, device + N, device, 64, b);
      CHECK(cudaStreamQuery(b) == cudaErrorNotReady);
      OK(cudaStreamSynchronize(b));
      OK(cudaDeviceSynchronize());
      OK(cudaMemcpy(&out, device + N, 4, cudaMemcpyDeviceToHost));
      (fix ? with : without).insert(out);
      OK(cudaFreeHost(pinned));
      OK(cudaStreamDestroy(a));
      OK(cudaStreamDestroy(b));
      OK(cudaEventDestroy(e));
      REFUSED(cudaStreamSynchronize(a), "destroyed");
      REFUSED(cudaEventRecord(e, nullptr), "destroyed");
    }
  check(with.size() == 1 && *with.begin() == 7, "with the event every schedule is right");
  check(without.size() == 2, "a missing event shows under some schedule");
  cuemu_seed(0);
}

void captures() {
  cudaStream_t s;
  cudaGraph_t g;
  cudaGraphExec_t x;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  const uint64_t mallocs = cuemu_count().mallocs;
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  test_launch(FILL, device, nullptr, 64, s);
  test_launch(COPY, device + N, device, 64, s);
  OK(cudaStreamEndCapture(s, &g));
  size_t n = 0;
  OK(cudaGraphGetNodes(g, nullptr, &n));
  CHECK(n == 2);
  OK(cudaMemset(device, 0, 2 * N * 4));
  OK(cudaGraphInstantiate(&x, g, 0));
  OK(cudaGraphDestroy(g));
  REFUSED(cudaGraphDestroy(g), "destroyed");
  OK(cudaGraphUpload(x, s));
  float y[64];
  for (int k = 0; k < 2; k++) {
    OK(cudaGraphLaunch(x, s));
    OK(cudaStreamSynchronize(s));
    OK(cudaMemcpy(y, device + N, sizeof y, cudaMemcpyDeviceToHost));
    CHECK(y[0] == 0 && y[63] == 63);
    OK(cudaMemset(device, 0, 2 * N * 4));
    OK(cudaDeviceSynchronize()); /* s does not wait for the legacy stream */
  }
  OK(cudaGraphExecDestroy(x));
  REFUSED(cudaGraphLaunch(x, s), "destroyed");
  CHECK(cuemu_count().mallocs == mallocs);

  /* what a capture forbids */
  void *p;
  for (int k = 0; k < 4; k++) {
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    if (k == 0) REFUSED(cudaMalloc(&p, 16), "captured");
    if (k == 1) REFUSED(cudaDeviceSynchronize(), "captured");
    if (k == 2) REFUSED(cudaMemset(device, 0, 4), "captured");
    if (k == 3) {
      test_launch(FILL, device, nullptr, 1, nullptr);
      CHECK(cudaGetLastError() == cudaErrorStreamCaptureImplicit);
    }
    REFUSED(cudaStreamEndCapture(s, &g), "not allowed");
    CHECK(g == nullptr);
  }
  /* an allocation node is found by walking */
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  test_launch(FILL, device, nullptr, 1, s);
  OK(cudaMallocAsync(&p, 16, s));
  OK(cudaStreamEndCapture(s, &g));
  cudaGraphNode_t nodes[8];
  n = 8;
  OK(cudaGraphGetNodes(g, nodes, &n));
  int n_alloc = 0;
  for (size_t i = 0; i < n; i++) {
    enum cudaGraphNodeType type;
    OK(cudaGraphNodeGetType(nodes[i], &type));
    n_alloc += type == cudaGraphNodeTypeMemAlloc;
  }
  CHECK(n == 2 && n_alloc == 1);
  OK(cudaGraphDestroy(g));
  OK(cudaFree(p));
  OK(cudaStreamDestroy(s));
}

void blas() {
  cublasHandle_t h;
  cudaStream_t s;
  float *arena;
  OK(cudaMalloc(&arena, 1 << 20));
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  OK(cublasCreate(&h));
  OK(cublasSetStream(h, s));
  const float one = 1, zero = 0, a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 0, 1, 1, 1};
  float c[4], *const da = arena, *const db = arena + 8, *const dc = arena + 16;
  void *const workspace = arena + 1024;
  OK(cudaMemcpy(da, a, sizeof a, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(db, b, sizeof b, cudaMemcpyHostToDevice));
  const auto gemm = [&](const int lda) {
    return cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 3, &one, da, CUDA_R_32F, lda, db, CUDA_R_32F, 3,
                        &zero, dc, CUDA_R_32F, 2, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT);
  };
  REFUSED(gemm(2), "no workspace");
  REFUSED(cublasSetWorkspace(h, (char *)workspace + 4, 4096), "aligned");
  REFUSED(cublasSetWorkspace(h, workspace, 2 << 20), "not inside");
  OK(cublasSetWorkspace(h, workspace, 4096));
  OK(gemm(2));
  OK(cudaStreamSynchronize(s));
  OK(cudaMemcpy(c, dc, sizeof c, cudaMemcpyDeviceToHost));
  CHECK(c[0] == 1 && c[1] == 2 && c[2] == 9 && c[3] == 12); /* A (2x3, columns) times B (3x2) */
  REFUSED(gemm(1), "leading dimension");
  REFUSED(gemm(1 << 20), "not inside");
  OK(cublasSetStream(h, s));
  REFUSED(gemm(2), "no workspace");
  OK(cublasDestroy(h));
  REFUSED(cublasSetStream(h, s), "destroyed");
  OK(cudaStreamDestroy(s));
  OK(cudaFree(arena));
}

void narrow_types() {
  for (unsigned u = 0; u < 0x10000; u++) {
    const __half h = {(uint16_t)u};
    const float f = __half2float(h);
    if (f == f && __float2half_rn(f).bits != u) check(false, "half round trip");
  }
  check(__float2half_rn(65520.0f).bits == 0x7c00 && __float2half_rn(65519.0f).bits == 0x7bff &&
            __float2half_rn(0x1p-25f).bits == 0 && __float2half_rn(0x1.8p-25f).bits == 1,
        "half rounding");
  check(__float2bfloat16_rn(1.00390625f).bits == 0x3f80 && __float2bfloat16_rn(1.01171875f).bits == 0x3f82,
        "bfloat16 rounding");
}

} // namespace

int main() {
  cuemu_collect(true);
  OK(cudaMalloc(&device, 2 * N * sizeof(float)));
  right_kernels();
  wrong_kernels();
  device_memory();
  host_dereference();
  streams();
  captures();
  blas();
  narrow_types();
  OK(cudaFree(device));
  const cuemu_counts c = cuemu_count();
  CHECK(c.live_allocations == 0 && c.live_streams == 0 && c.live_events == 0 && c.live_graphs == 0 &&
        c.live_handles == 0);
  CHECK(c.bytes == 0 && c.peak_bytes == (1 << 20) + 2 * N * sizeof(float));
  printf("%d checks, %d failed\n", n_checks, n_failed);
  return n_failed != 0;
}
