/* How fast ops are on the device: strict and fast, shapes of a 1B model's layer. Each op is captured once and run until a fifth
 * of a second has passed; a row tells the time of one run, operations and bytes a second, and their share of the peaks.
 * Bytes are those of the operands, each once. Usage: time_device [strict|fast] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/exec/device_load.h"
#include "plans/devices.h"

enum {
  BLAS_BYTES = 32 << 20,
  ROWS = 2048,
  WIDTH = 2048,
  WIDE = 5632,
  VOCAB = 32000,
  HEAD = 64,
  HEADS = 32,
  KV_HEADS = 8
};

typedef struct shape {
  const char *what;
  op_id id;
  op_case c;
} shape;

static op_tensor f32(const int64_t n, const int64_t rows) { return op_tensor_make(DTYPE_F32, n, rows); }
static op_tensor i32(const int64_t n, const int64_t rows) { return op_tensor_make(DTYPE_I32, n, rows); }

static int make_shapes(shape *s) {
  int n = 0;
  static const dtype types[] = {DTYPE_F32, DTYPE_Q8_0, DTYPE_Q4_0};
  static const char *const names[] = {"F32", "Q8_0", "Q4_0"};
  for (int i = 0; i < 3; i++) {
    static char text[3][2][48];
    snprintf(text[i][0], sizeof text[i][0], "matmul %s %dx%d", names[i], WIDTH, WIDE);
    snprintf(text[i][1], sizeof text[i][1], "matmul_dx %s %dx%d", names[i], WIDTH, WIDE);
    const op_tensor w = op_tensor_make(types[i], WIDTH, WIDE);
    s[n++] = (shape){text[i][0], OP_MATMUL, {.src = {f32(WIDTH, ROWS), w}, .dst = {f32(WIDE, ROWS)}}};
    s[n++] = (shape){text[i][1], OP_MATMUL_DX, {.src = {f32(WIDE, ROWS), w}, .dst = {f32(WIDTH, ROWS)}}};
  }
  s[n++] = (shape){
      "matmul_dw rank 16", OP_MATMUL_DW, {.src = {f32(16, ROWS), f32(WIDTH, ROWS)}, .dst = {f32(WIDTH, 16)}}};
  const op_tensor q = f32(HEAD * HEADS, ROWS), k = f32(HEAD * KV_HEADS, ROWS), span = i32(ROWS, 2),
                  stats = f32(HEADS * ROWS, 2), d = f32(HEADS * ROWS, 1);
  op_params attention = {0};
  attention.attention.scale = 0.125f;
  attention.attention.head_size = HEAD;
  attention.attention.n_heads = HEADS;
  attention.attention.n_kv_heads = KV_HEADS;
  attention.attention.chunk = 64;
  s[n++] = (shape){"attention causal 2048",
                   OP_ATTENTION,
                   {.src = {q, k, k, span}, .dst = {q, stats}, .params = attention}};
  s[n++] = (shape){"attention_dq",
                   OP_ATTENTION_DQ,
                   {.src = {q, q, k, k, q, stats, span}, .dst = {q, d}, .params = attention}};
  s[n++] = (shape){"attention_dkv",
                   OP_ATTENTION_DKV,
                   {.src = {q, q, k, k, stats, d, span}, .dst = {k, k}, .params = attention}};
  op_params norm = {.norm = {1e-5f}}, loss = {0}, adam = {.adamw = {0.9f, 0.999f, 1e-8f, 0}};
  loss.loss.chunk = 256;
  s[n++] = (shape){
      "rms_norm",
      OP_RMS_NORM,
      {.src = {f32(WIDTH, ROWS), f32(WIDTH, 1)}, .dst = {f32(WIDTH, ROWS), f32(ROWS, 1)}, .params = norm}};
  s[n++] =
      (shape){"swiglu", OP_SWIGLU, {.src = {f32(WIDE, ROWS), f32(WIDE, ROWS)}, .dst = {f32(WIDE, ROWS)}}};
  s[n++] = (shape){"add", OP_ADD, {.src = {f32(WIDTH, ROWS), f32(WIDTH, ROWS)}, .dst = {f32(WIDTH, ROWS)}}};
  s[n++] = (shape){"loss Q8_0 512 rows",
                   OP_LINEAR_CROSS_ENTROPY,
                   {.src = {f32(WIDTH, 512), op_tensor_make(DTYPE_Q8_0, WIDTH, VOCAB), i32(512, 1),
                            f32(512, 1), i32(16, 1)},
                    .dst = {f32(512, 1), f32(WIDTH, 512)},
                    .params = loss}};
  s[n++] = (shape){"adamw 64M",
                   OP_ADAMW,
                   {.src = {f32(64 << 20, 1), i32(16, 1)},
                    .dst = {f32(64 << 20, 1), f32(64 << 20, 1), f32(64 << 20, 1)},
                    .params = adam}};
  for (int i = 0; i < n; i++) { /* what was not named is absent */
    for (int x = 0; x < OP_MAX_SRC; x++)
      if (s[i].c.src[x].ne[0] == 0) s[i].c.src[x] = op_tensor_none();
    for (int x = 0; x < OP_MAX_DST; x++)
      if (s[i].c.dst[x].ne[0] == 0) s[i].c.dst[x] = op_tensor_none();
  }
  return n;
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static size_t up(const size_t bytes) { return (bytes + 255) / 256 * 256; }

static size_t operands(const op_case *c) {
  size_t bytes = 0;
  for (int i = 0; i < OP_MAX_SRC; i++)
    if (op_present(&c->src[i])) bytes += up(op_span_bytes(&c->src[i]));
  for (int j = 0; j < OP_MAX_DST; j++)
    if (op_present(&c->dst[j])) bytes += up(op_span_bytes(&c->dst[j]));
  return bytes;
}

static void stop(const char *what, const stint_error *error) {
  fprintf(stderr, "%s: %s\n", what, error->text);
  exit(error->status == STINT_BAD_INPUT ? 77 : 1);
}

/* Zeros, but for spans: row r sees keys 0 to r. */
static void fill(const device_module *m, device *d, const shape *s, void *const src[], unsigned char *zeros,
                 const size_t bytes) {
  stint_error error = {0};
  for (int i = 0; i < OP_MAX_SRC; i++) {
    if (!op_present(&s->c.src[i])) continue;
    const size_t size = op_span_bytes(&s->c.src[i]);
    for (size_t at = 0; at < size; at += bytes)
      if (m->upload(d, (char *)src[i] + at, zeros, size - at < bytes ? size - at : bytes, &error) != STINT_OK)
        stop(s->what, &error);
    if (s->c.src[i].type == DTYPE_I32 && s->c.src[i].ne[1] == 2) {
      int32_t *const last = calloc(ROWS, 4);
      for (int r = 0; r < ROWS; r++) last[r] = r;
      if (m->upload(d, (char *)src[i] + 4 * ROWS, last, 4 * ROWS, &error) != STINT_OK) stop(s->what, &error);
      free(last);
    }
  }
}

int main(const int argc, char **argv) {
  const bool fast = argc > 1 && strcmp(argv[1], "fast") == 0;
  static shape shapes[32];
  const int n = make_shapes(shapes);
  size_t most = 0;
  for (int i = 0; i < n; i++) {
    const char *const wrong = op_check(shapes[i].id, &shapes[i].c);
    if (wrong != NULL) {
      fprintf(stderr, "%s: %s\n", shapes[i].what, wrong);
      return 1;
    }
    const size_t bytes =
        operands(&shapes[i].c) +
        up(op_workspace(shapes[i].id, &shapes[i].c, fast ? BACKEND_CUDA_FAST : BACKEND_CUDA_STRICT, 1));
    if (bytes > most) most = bytes;
  }
  const device_module *m;
  device *d;
  device_info info;
  stint_error error = {0};
  void *memory, *pinned;
  if (device_load(&m, &error) != STINT_OK || m->open(fast, &d, &info, &error) != STINT_OK)
    stop("time_device", &error);
  if (m->take(d, up(most) + BLAS_BYTES, 0, up(most), fast ? BLAS_BYTES : 0, &memory, &pinned, &error) !=
      STINT_OK)
    stop("time_device", &error);
  const device_figures *const figures = device_figures_find(info.name);
  printf("%s, %s: peak %.1f TFLOP/s float32, %.0f GB/s; context, kernels and libraries %.0f MiB\n", info.name,
         fast ? "fast" : "strict", info.peak_flops / 1e12,
         figures != NULL ? figures->bytes_per_second / 1e9 : 0.0, (double)info.context_bytes / (1 << 20));
  printf("%-24s %10s %10s %7s %10s %7s\n", "op", "us", "GFLOP/s", "share", "GB/s", "share");
  enum { PIECE = 16 << 20 };
  unsigned char *const zeros = calloc(PIECE, 1);
  for (int i = 0; i < n; i++) {
    const shape *const s = &shapes[i];
    void *src[OP_MAX_SRC] = {0}, *dst[OP_MAX_DST] = {0};
    char *at = memory;
    for (int k = 0; k < OP_MAX_SRC; k++)
      if (op_present(&s->c.src[k])) src[k] = at, at += up(op_span_bytes(&s->c.src[k]));
    for (int k = 0; k < OP_MAX_DST; k++)
      if (op_present(&s->c.dst[k])) dst[k] = at, at += up(op_span_bytes(&s->c.dst[k]));
    unsigned char args[1024] __attribute__((aligned(64)));
    op_table[s->id]->bind(args, &s->c, src, dst, at, 1);
    fill(m, d, s, src, zeros, PIECE);
    device_graph *graph;
    if (m->capture_begin(d, &error) != STINT_OK) stop(s->what, &error);
    m->launches(d)[s->id](args, m->queue(d));
    if (m->capture_end(d, &graph, &error) != STINT_OK || m->run(d, graph, &error) != STINT_OK)
      stop(s->what, &error);
    const double start = seconds();
    int runs = 0;
    do {
      if (m->run(d, graph, &error) != STINT_OK) stop(s->what, &error);
      runs++;
    } while (seconds() - start < 0.2);
    const double t = (seconds() - start) / runs, flops = op_flops(s->id, &s->c) / t,
                 bytes = (double)operands(&s->c) / t;
    printf("%-24s %10.1f %10.0f %6.1f%% %10.1f %6.1f%%\n", s->what, t * 1e6, flops / 1e9,
           100 * flops / info.peak_flops, bytes / 1e9,
           figures != NULL ? 100 * bytes / figures->bytes_per_second : 0.0);
  }
  m->close(d);
  free(zeros);
  return 0;
}
