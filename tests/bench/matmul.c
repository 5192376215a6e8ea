/* The matrix products against OpenBLAS, one thread each, interleaved in one process: medians in GFLOP/s.
 *
 * The first line says which kernels OpenBLAS picked. A version older than the processor may fall back to its slowest ones
 * (Prescott): then set OPENBLAS_CORETYPE (SKYLAKEX for AVX-512, HASWELL for AVX2), or the comparison flatters. An argument
 * filters the lines by substring; STINT_BENCH_ROUNDS sets the rounds (default 7), STINT_BENCH_PATHS the mask of paths. */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/dispatch.h"
#include "kernels/ops/matmul.h"

extern char *openblas_get_corename(void);
extern void openblas_set_num_threads(int n);

enum { MAX_ROUNDS = 51 };
typedef enum orientation { FORWARD, DX, DW } orientation;
static const char *const orientation_name[] = {"y=xW'", "dx=dyW", "dw=dy'x"};

/* Processor time of this thread: what others run on the machine meanwhile is left out. */
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *v, int n) {
  qsort(v, (size_t)n, sizeof *v, by_value);
  return v[n / 2];
}

static float *filled(const int64_t n, uint32_t seed) {
  float *const p = aligned_alloc(64, ((size_t)n * 4 + 127) / 64 * 64);
  for (int64_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    p[i] = (float)(int32_t)seed * 0x1p-31f;
  }
  return p;
}

typedef struct job {
  int64_t m, k, n;
  orientation o;
  dtype type;
  bool blas;
} job;

static void line(const job *const j, op_kernel *const kernels[OP_COUNT], const char *const filter,
                 const int rounds) {
  char label[96];
  snprintf(label, sizeof label, "m=%lld k=%lld n=%lld %s %s", (long long)j->m, (long long)j->k,
           (long long)j->n, orientation_name[j->o], dtype_name(j->type));
  if (filter && !strstr(label, filter)) return;
  const size_t row_bytes = dtype_bytes(j->type, j->k);
  float *const x = filled(j->m * j->k, 1), *const y = filled(j->m * j->n, 2),
               *const wf = filled(j->k * j->n, 3);
  void *const w = malloc(row_bytes * (size_t)j->n), *const work = aligned_alloc(64, gemm_scratch_bytes());
  memset(work, 0, gemm_scratch_bytes());
  quantize_row(j->type, wf, w, j->k * j->n);
  op_matmul_args a = {.x = x,
                      .w = w,
                      .y = y,
                      .ldx = j->k,
                      .ldy = j->n,
                      .w_row_bytes = row_bytes,
                      .w_type = j->type,
                      .rows = j->m,
                      .k = j->k,
                      .n = j->n,
                      .work = work,
                      .slab_bytes = gemm_scratch_bytes()};
  if (j->o == DX) {
    a.x = y;
    a.y = x;
    a.ldx = j->n;
    a.ldy = j->k;
  }
  const op_matmul_dw_args d = {.dy = y,
                               .x = x,
                               .dw = wf,
                               .lddy = j->n,
                               .ldx = j->k,
                               .lddw = j->k,
                               .rows = j->m,
                               .k = j->k,
                               .n = j->n,
                               .work = work,
                               .slab_bytes = gemm_scratch_bytes()};
  const double gflop = 2e-9 * (double)j->m * (double)j->k * (double)j->n;
  const int repeats = gflop > 0.2 ? 1 : (int)(0.2 / gflop) + 1;
  const int m = (int)j->m, k = (int)j->k, n = (int)j->n;
  double ours[MAX_ROUNDS], theirs[MAX_ROUNDS];
  for (int r = -1; r < rounds; r++) {
    double t = now();
    for (int i = 0; i < repeats; i++) {
      if (j->o == DW)
        kernels[OP_MATMUL_DW](&d, 0, 0, 1);
      else
        kernels[j->o == FORWARD ? OP_MATMUL : OP_MATMUL_DX](&a, 0, 0, 1);
    }
    if (r >= 0) ours[r] = gflop * repeats / (now() - t);
    if (!j->blas) continue;
    t = now();
    for (int i = 0; i < repeats; i++) {
      if (j->o == FORWARD)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, x, k, wf, k, 0, y, n);
      else if (j->o == DX)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, k, n, 1, y, n, wf, k, 0, x, k);
      else
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, k, m, 1, y, n, x, k, 1, wf, k);
    }
    if (r >= 0) theirs[r] = gflop * repeats / (now() - t);
  }
  printf("%-44s stint %7.1f", label, median(ours, rounds));
  if (j->blas) {
    printf("   OpenBLAS %7.1f   ratio %.3f", median(theirs, rounds),
           median(ours, rounds) / median(theirs, rounds));
  }
  printf("\n");
  fflush(stdout);
  free(x);
  free(y);
  free(wf);
  free(w);
  free(work);
}

int main(const int argc, char **const argv) {
  const char *const filter = argc > 1 ? argv[1] : NULL, *const text = getenv("STINT_BENCH_ROUNDS"),
                    *const mask = getenv("STINT_BENCH_PATHS");
  int rounds = text ? atoi(text) : 7;
  rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
  op_kernel *kernels[OP_COUNT];
  cpu_kernels(mask ? (unsigned)atoi(mask) : CPU_ALL, kernels);
  openblas_set_num_threads(1);
  printf("OpenBLAS core %s, one thread, %d rounds, medians in GFLOP/s\n", openblas_get_corename(), rounds);
  static const int64_t large[][3] = {{512, 2048, 2048}, {512, 2048, 5632}, {256, 768, 3072}};
  static const int64_t small[][3] = {
      {256, 576, 576}, {256, 576, 192}, {256, 576, 1536}, {256, 1536, 576}, {256, 576, 49152}};
  static const int64_t adapter[][3] = {{256, 576, 8},  {256, 1536, 8}, {256, 8, 576},
                                       {256, 8, 1536}, {256, 576, 16}, {256, 16, 576},
                                       {1, 576, 576},  {4, 576, 1536}, {128, 64, 172}};
  static const dtype types[] = {DTYPE_F32, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_F16, DTYPE_BF16};
  for (size_t s = 0; s < sizeof large / sizeof *large; s++)
    for (orientation o = FORWARD; o <= DW; o++)
      for (int t = 0; t < (o == DW ? 1 : 4); t++)
        line(&(job){large[s][0], large[s][1], large[s][2], o, types[t], t == 0}, kernels, filter, rounds);
  for (size_t s = 0; s < sizeof small / sizeof *small; s++)
    for (orientation o = FORWARD; o <= DX; o++)
      for (int t = 0; t < 6; t++)
        line(&(job){small[s][0], small[s][1], small[s][2], o, types[t], t == 0}, kernels, filter, rounds);
  for (size_t s = 0; s < sizeof adapter / sizeof *adapter; s++)
    for (orientation o = FORWARD; o <= DW; o++)
      line(&(job){adapter[s][0], adapter[s][1], adapter[s][2], o, DTYPE_F32, true}, kernels, filter, rounds);
  return 0;
}
