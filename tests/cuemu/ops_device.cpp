/* See ops_device.h (its types are C's: the hook is declared again here, for C++ without the harness's headers). */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" {
#include "kernels/ops/op.h"
}
#include "kernels/cuda/register.h"
#include "tests/cuemu/cuemu_api.h"
#include "tests/cuemu/cuemu_control.h"

extern "C" {
typedef struct ht_device {
  const char *name;
  void *(*take)(size_t bytes);
  void (*release)(void);
  size_t (*workspace)(op_id id, const op_case *c);
  const char *(*launch)(op_id id, const op_case *c, void *const src[], void *const dst[], void *work,
                        unsigned seed);
} ht_device;
const ht_device *ops_device(bool is_fast);
}

namespace {

constexpr size_t ARENA_BYTES = (size_t)128 << 20, BLAS_BYTES = 4 << 20;
char *arena;
size_t used;
cudaStream_t stream;
cublasHandle_t blas;
char text[4096];

void *take(const size_t bytes) {
  if (!arena) {
    cuemu_collect(true);
    if (cudaMalloc((void **)&arena, ARENA_BYTES) ||
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) || cublasCreate(&blas) ||
        cublasSetStream(blas, stream) ||
        cublasSetWorkspace(blas, arena + ARENA_BYTES - BLAS_BYTES, BLAS_BYTES))
      abort();
    cuemu_open_memory();
  }
  char *const p = arena + used;
  used += (bytes + 255) / 256 * 256;
  if (used > ARENA_BYTES - BLAS_BYTES) {
    fprintf(stderr, "the case needs more than ARENA_BYTES\n");
    abort();
  }
  return p;
}

void release() { used = 0; }

size_t workspace_strict(const op_id id, const op_case *const c) {
  return op_workspace(id, c, BACKEND_CUDA_STRICT, 1);
}
size_t workspace_fast(const op_id id, const op_case *const c) {
  return op_workspace(id, c, BACKEND_CUDA_FAST, 1);
}

const char *launch(const bool fast, const op_id id, const op_case *const c, void *const src[],
                   void *const dst[], void *const work, const unsigned seed) {
  std::vector<cuemu_operand> operands;
  for (int i = 0; i < OP_MAX_SRC; i++)
    if (src[i]) operands.push_back({src[i], op_span_bytes(&c->src[i]), false});
  for (int j = 0; j < OP_MAX_DST; j++)
    if (dst[j]) operands.push_back({dst[j], op_span_bytes(&c->dst[j]), true});
  if (work) operands.push_back({work, fast ? workspace_fast(id, c) : workspace_strict(id, c), true});
  cuemu_operands(operands.data(), operands.size());
  cuemu_seed(seed);

  alignas(16) unsigned char args[1024];
  const op_row *const row = op_table[id];
  if (row->args_bytes > sizeof args) return "an operand struct that is too large for the test";
  row->bind(args, c, src, dst, work, 1);
  cuda_launch *table[OP_COUNT];
  cuda_launches(fast, table);
  cuda_queue queue = {stream, fast ? blas : nullptr, 0, nullptr};
  table[id](args, &queue);
  memset(args, 0xff, sizeof args); /* the launch has read them */
  const cudaError_t e = cudaStreamSynchronize(stream);
  cuemu_operands_any();
  if (!queue.error && !e && !cuemu_faults() && !cuemu_misuses()) return nullptr;
  snprintf(text, sizeof text, "%s%s%s", queue.error ? "refused in " : "", queue.where ? queue.where : "",
           cuemu_text());
  return text;
}

const char *launch_strict(const op_id id, const op_case *const c, void *const src[], void *const dst[],
                          void *const work, const unsigned seed) {
  return launch(false, id, c, src, dst, work, seed);
}
const char *launch_fast(const op_id id, const op_case *const c, void *const src[], void *const dst[],
                        void *const work, const unsigned seed) {
  return launch(true, id, c, src, dst, work, seed);
}

const ht_device strict = {"cuda strict (emulated)", take, release, workspace_strict, launch_strict};
const ht_device fast = {"cuda fast (emulated)", take, release, workspace_fast, launch_fast};

} // namespace

const ht_device *ops_device(const bool is_fast) { return is_fast ? &fast : &strict; }
