/* What the harness's cases are too small for: the product that all CUDA matmuls and the loss are made of, on the emulated device.
 *
 * strict  each size of tile, whatever the shape would choose, gives the bits of the plain chain: every type of weight, both ways
 *         that stored rows can run, ragged edges, pieces of k that are cut short, c0 absent and in place, four schedules.
 * fast    against float64, |error| <= 2^-9 * sum |a b| + 2^-20: factors rounded to TF32 (2^-11 of each, and the hardware may cut
 *         instead of rounding: 2^-10), float32 sums. A weight in several slabs, its rows running over n and over k; a dropped
 *         or doubled slab stands at 2^-1 of that sum. Twice the same bits.
 * loss    linear_cross_entropy with everything that it can give, fast against strict: within 2^-5 of the output's mean magnitude
 *         (largest difference here 2^-6.4; a slab that lies on the logits stands above 1); the strict one's own
 *         bits are the harness's matter. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" {
#include "kernels/ops/op.h"
#include "kernels/ops/step.h"
#include "kernels/quant/dtype.h"
}
#include "kernels/cuda/gemm.cuh"
#include "kernels/math/fma.h"
#include "kernels/ops/fast_slab.h"
#include "tests/cuemu/cuemu_api.h"
#include "tests/cuemu/cuemu_control.h"

namespace {

constexpr size_t ARENA_BYTES = (size_t)16 << 20, BLAS_BYTES = 4096;
const dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1};
char *arena;
cuda_queue queue;
int n_checks, n_failed;

/* Small integers and fractions, some of them zeros of either sign, by a counter. */
float value(uint64_t *const state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  const uint32_t u = (uint32_t)(*state >> 33);
  return u % 16 == 0 ? (u & 16 ? 0.0f : -0.0f) : (float)(int32_t)(u % 4001) / 1000.0f - 2.0f;
}

/* A product with its operands on the device and as plain floats here. */
struct product {
  gemm_problem p;
  std::vector<float> a, b, c0; /* [m][k], [k][n], [m][n] */
  float *slab;
  char name[160];
};

int64_t block_of(const dtype t) { return dtype_find(t)->block_elements; }

product make(const dtype type, const bool a_by_k, const bool b_by_n, const bool with_c0, const int64_t m,
             int64_t n, int64_t k, uint64_t seed) {
  if (b_by_n)
    k = (k + block_of(type) - 1) / block_of(type) * block_of(type);
  else
    n = (n + block_of(type) - 1) / block_of(type) * block_of(type);
  product t;
  memset(&t.p, 0, sizeof t.p);
  snprintf(t.name, sizeof t.name, "%s, A by %s, B by %s%s, m %lld n %lld k %lld", dtype_name(type),
           a_by_k ? "k" : "m", b_by_n ? "n" : "k", with_c0 ? ", c0" : "", (long long)m, (long long)n,
           (long long)k);
  char *at = arena;
  const auto take = [&at](const size_t bytes) {
    char *const p = at;
    at += (bytes + 255) / 256 * 256;
    if (at > arena + ARENA_BYTES - BLAS_BYTES) abort();
    memset(p, 0xff, bytes);
    return p;
  };
  gemm_problem &p = t.p;
  p.m = m, p.n = n, p.k = k, p.a_by_k = a_by_k, p.b_by_n = b_by_n, p.b_type = type;
  p.lda = (a_by_k ? m : k) + 3, p.ldc = n + 5;
  float *const a = (float *)take((size_t)(p.lda * (a_by_k ? k : m)) * 4);
  t.a.resize((size_t)(m * k));
  for (int64_t r = 0; r < m; r++)
    for (int64_t i = 0; i < k; i++)
      a[a_by_k ? i * p.lda + r : r * p.lda + i] = t.a[(size_t)(r * k + i)] = value(&seed);
  const int64_t rows = b_by_n ? n : k, row = b_by_n ? k : n;
  p.b_row_bytes = dtype_bytes(type, row) + dtype_find(type)->block_bytes;
  char *const b = take(p.b_row_bytes * (size_t)rows);
  t.b.resize((size_t)(n * k));
  std::vector<float> line((size_t)row);
  for (int64_t r = 0; r < rows; r++) {
    for (float &x : line) x = value(&seed);
    quantize_row(type, line.data(), b + (size_t)r * p.b_row_bytes, row);
    dequantize_row(type, b + (size_t)r * p.b_row_bytes, line.data(), row);
    for (int64_t i = 0; i < row; i++) t.b[(size_t)(b_by_n ? i * n + r : r * n + i)] = line[(size_t)i];
  }
  p.a = a, p.b = b, p.c = (float *)take((size_t)(p.ldc * m) * 4);
  t.c0.assign((size_t)(m * n), 0.0f);
  if (with_c0) p.c0 = p.c, p.ldc0 = p.ldc;
  for (int64_t i = 0; with_c0 && i < m * n; i++) t.c0[(size_t)i] = value(&seed);
  t.slab = (float *)take(fast_slab_bytes(type, row, rows));
  return t;
}

void start(const product &t) {
  for (int64_t i = 0; t.p.c0 && i < t.p.m * t.p.n; i++)
    t.p.c[i / t.p.n * t.p.ldc + i % t.p.n] = t.c0[(size_t)i];
}

bool finish(const product &t) {
  n_checks++;
  if (!queue.error && !cudaStreamSynchronize((cudaStream_t)queue.stream) && !cuemu_faults() &&
      !cuemu_misuses())
    return true;
  printf("%s: error %d, %s\n", t.name, queue.error, cuemu_text());
  n_failed++;
  return false;
}

void strict(const product &t, const cuda_tile tile) {
  start(t);
  cuda_gemm_strict(&t.p, tile, "product", &queue);
  if (!finish(t)) return;
  for (int64_t r = 0; r < t.p.m; r++)
    for (int64_t j = 0; j < t.p.n; j++) {
      float c = t.c0[(size_t)(r * t.p.n + j)];
      for (int64_t i = 0; i < t.p.k; i++)
        c = m_fma(t.a[(size_t)(r * t.p.k + i)], t.b[(size_t)(i * t.p.n + j)], c);
      if (memcmp(&c, t.p.c + r * t.p.ldc + j, sizeof c) == 0) continue;
      printf("%s, tile %d: [%lld][%lld] is %a, not %a\n", t.name, (int)tile, (long long)r, (long long)j,
             (double)t.p.c[r * t.p.ldc + j], (double)c);
      n_failed++;
      return;
    }
}

void fast(const product &t) {
  std::vector<float> once((size_t)(t.p.ldc * t.p.m));
  for (int time = 0; time < 2; time++) {
    start(t);
    cuda_gemm_fast(&t.p, t.slab, "product", &queue);
    if (!finish(t)) return;
    if (time == 0) memcpy(once.data(), t.p.c, once.size() * sizeof(float));
  }
  bool right = memcmp(once.data(), t.p.c, once.size() * sizeof(float)) == 0;
  double worst = 0;
  for (int64_t r = 0; r < t.p.m; r++)
    for (int64_t j = 0; j < t.p.n; j++) {
      double sum = t.c0[(size_t)(r * t.p.n + j)], scale = std::fabs(sum);
      for (int64_t i = 0; i < t.p.k; i++) {
        const double x = (double)t.a[(size_t)(r * t.p.k + i)] * t.b[(size_t)(i * t.p.n + j)];
        sum += x, scale += std::fabs(x);
      }
      const double error = std::fabs(t.p.c[r * t.p.ldc + j] - sum) / (scale + 0x1p-11);
      worst = error <= worst ? worst : error; /* NaN stays */
    }
  right = right && worst <= 0x1p-9;
  if (right) return;
  printf("%s, fast: error %g of the sum of magnitudes\n", t.name, worst);
  n_failed++;
}

/* Both launches on the same operands: the largest difference over the mean magnitude, of every destination. */
void loss(const unsigned seed) {
  enum { N = 64, ROWS = 5, VOCABULARY = 131, R = 4, N_SRC = 7, N_DST = 5 };
  op_case c;
  for (op_tensor &t : c.src) t = op_tensor_none();
  for (op_tensor &t : c.dst) t = op_tensor_none();
  const dtype type = types[seed % 6];
  const op_tensor src[N_SRC] = {op_tensor_make(DTYPE_F32, N, ROWS),      op_tensor_make(type, N, VOCABULARY),
                                op_tensor_make(DTYPE_I32, ROWS, 1),      op_tensor_make(DTYPE_F32, ROWS, 1),
                                op_tensor_make(DTYPE_I32, 16, 1),        op_tensor_make(DTYPE_F32, R, ROWS),
                                op_tensor_make(DTYPE_F32, R, VOCABULARY)};
  const op_tensor dst[N_DST] = {op_tensor_make(DTYPE_F32, ROWS, 1), op_tensor_make(DTYPE_F32, N, ROWS),
                                op_tensor_make(DTYPE_F32, N, VOCABULARY), op_tensor_make(DTYPE_F32, R, ROWS),
                                op_tensor_make(DTYPE_F32, R, VOCABULARY)};
  memcpy(c.src, src, sizeof src), memcpy(c.dst, dst, sizeof dst);
  c.params.loss.chunk = 2;
  const op_row *const row = op_table[OP_LINEAR_CROSS_ENTROPY];
  cuda_launch *table[2][OP_COUNT] = {};
  cuda_register_loss(table[0]);
  cuda_register_fast_loss(table[1]);
  std::vector<float> got[2][N_DST];
  for (int form = 0; form < 2; form++) {
    char *at = arena;
    const auto take = [&at](const size_t bytes) {
      char *const p = at;
      at += (bytes + 255) / 256 * 256;
      memset(p, 0xff, bytes);
      return p;
    };
    uint64_t state = seed;
    void *s[OP_MAX_SRC] = {}, *d[OP_MAX_DST] = {};
    for (int i = 0; i < N_SRC; i++) {
      s[i] = take(op_span_bytes(&src[i]));
      std::vector<float> line((size_t)src[i].ne[0]);
      for (int64_t r = 0; src[i].type != DTYPE_I32 && r < src[i].ne[1]; r++) {
        for (float &x : line) x = value(&state);
        quantize_row(src[i].type, line.data(), (char *)s[i] + (size_t)r * src[i].nb[1], src[i].ne[0]);
      }
    }
    for (int r = 0; r < ROWS; r++)
      ((int32_t *)s[2])[r] = (int)(r * 37 + seed) % VOCABULARY, ((float *)s[3])[r] = (float)(r % 3);
    ((step_block *)s[4])->loss_scale = 0.125f;
    for (int j = 0; j < N_DST; j++) {
      d[j] = take(op_span_bytes(&dst[j]));
      for (size_t e = 0; row->inout >> j & 1 && e < op_span_bytes(&dst[j]) / 4; e++)
        ((float *)d[j])[e] = value(&state) / 16;
    }
    void *const work = take(row->cuda_workspace(&c, form == 1));
    unsigned char *const end = (unsigned char *)take(256);
    alignas(16) unsigned char args[sizeof(op_linear_cross_entropy_args)];
    row->bind(args, &c, s, d, work, 1);
    table[form][OP_LINEAR_CROSS_ENTROPY](args, &queue);
    product t;
    snprintf(t.name, sizeof t.name, "loss, %s, form %d", dtype_name(type), form);
    if (!finish(t)) return;
    for (int i = 0; i < 256; i++)
      if (end[i] != 0xff) n_failed++, printf("%s: wrote behind its workspace\n", t.name), i = 256;
    for (int j = 0; j < N_DST; j++)
      got[form][j].assign((float *)d[j], (float *)d[j] + op_span_bytes(&dst[j]) / 4);
  }
  for (int j = 0; j < N_DST; j++) {
    double mean = 0, most = 0;
    for (const float x : got[0][j]) mean += std::fabs((double)x) / (double)got[0][j].size();
    for (size_t e = 0; e < got[0][j].size(); e++) {
      const double error = std::fabs((double)got[0][j][e] - got[1][j][e]);
      most = error <= most ? most : error;
    }
    n_checks++;
    if (most <= 0x1p-5 * mean) continue;
    n_failed++;
    printf("loss, %s, destination %d: fast is %g of the mean from strict\n", dtype_name(type), j,
           most / mean);
  }
}

} // namespace

int main() {
  cudaStream_t stream;
  cublasHandle_t blas;
  cuemu_collect(true);
  if (cudaMalloc((void **)&arena, ARENA_BYTES) || cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) ||
      cublasCreate(&blas) || cublasSetStream(blas, stream) ||
      cublasSetWorkspace(blas, arena + ARENA_BYTES - BLAS_BYTES, BLAS_BYTES))
    return 1;
  queue.stream = stream, queue.blas = blas;
  cuemu_open_memory();
  static const struct {
    int64_t m, n, k;
  } shapes[] = {{150, 140, 35}, {3, 129, 16}, {129, 7, 50}, {128, 128, 1}};
  for (unsigned seed = 0; seed < 4; seed++) {
    cuemu_seed(seed);
    for (int way = 0; way < 13; way++) { /* types by n, types by k, a weight's gradient */
      const auto &s = shapes[((unsigned)way + seed) % 4];
      const product t = make(way < 12 ? types[way % 6] : DTYPE_F32, way == 12, way < 6,
                             ((unsigned)way + seed) % 2, s.m, s.n, s.k, (uint64_t)way * 1000 + seed);
      for (const cuda_tile tile : {CUDA_TILE_32, CUDA_TILE_64, CUDA_TILE_128}) strict(t, tile);
      fast(t);
    }
  }
  fast(make(DTYPE_Q8_0, false, true, false, 2, FAST_SLAB_ROWS + 70, 32, 1));
  fast(make(DTYPE_Q4_1, false, false, false, 2, 32, FAST_SLAB_ROWS + 70, 2));
  fast(make(DTYPE_F16, false, false, true, 1, 9, 2 * FAST_SLAB_ROWS + 1, 3));
  fast(make(DTYPE_BF16, false, true, true, 1, 2 * FAST_SLAB_ROWS + 1, 9, 4));
  for (unsigned seed = 0; seed < 6; seed++) loss(seed);
  printf("%d checks, %d failed\n", n_checks, n_failed);
  return n_failed != 0 || n_checks == 0;
}
