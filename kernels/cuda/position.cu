/* rope on CUDA, with the bits of kernels/ref.
 *
 * A block takes a row. Its threads are pairs times groups of heads: a thread works out its pair's angle once and turns
 * that pair in every head of its group, so a pair is read and written by one thread and may be turned in place. */
#include "kernels/cuda/device.cuh"

#include "kernels/ops/angle.h"
#include "kernels/ops/position.h"

enum { ROPE_THREADS = 128 };

__global__ void __launch_bounds__(ROPE_THREADS) rope_kernel(const op_rope_args a, const int groups) {
  const int pairs = a.n_rot / 2, heads = (int)(a.n / a.head_size), rest = a.head_size - a.n_rot;
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const float *const x = a.x + r * a.ldx;
    float *const y = a.y + r * a.ldy;
    const float pos = (float)a.pos[r];
    for (int item = (int)threadIdx.x; item < pairs * groups; item += (int)blockDim.x) {
      const int group = item / pairs, i = item - group * pairs;
      const int i0 = a.neox ? i : 2 * i, i1 = a.neox ? i + pairs : 2 * i + 1;
      float c, s;
      rope_angle(pos, a.turns[i], a.turns[pairs + i], a.magnitude, a.inverse ? -1.0f : 1.0f, &c, &s);
      for (int head = group; head < heads; head += groups) {
        const int64_t at = (int64_t)head * a.head_size;
        const float x0 = x[at + i0], x1 = x[at + i1];
        y[at + i0] = m_fma(x0, c, -(x1 * s));
        y[at + i1] = m_fma(x0, s, x1 * c);
      }
    }
    if (rest > 0 && y != x)
      for (int64_t item = threadIdx.x; item < (int64_t)heads * rest; item += blockDim.x) {
        const int64_t head = item / rest, at = head * a.head_size + a.n_rot + (item - head * rest);
        y[at] = x[at];
      }
  }
}

static void rope(const void *const args, cuda_queue *const queue) {
  const op_rope_args *const a = (const op_rope_args *)args;
  const int64_t pairs = a->n_rot / 2, heads = a->n / a->head_size;
  const int64_t fit = ROPE_THREADS / pairs < 1 ? 1 : ROPE_THREADS / pairs; /* groups that fill a block */
  const int64_t groups = fit < heads ? fit : heads;
  CU_LAUNCH(queue, "rope", rope_kernel, dim3(cu_blocks(a->rows, 1)),
            dim3(cu_threads(pairs * groups, ROPE_THREADS)), 0, *a, (int)groups);
}

extern "C" void cuda_register_position(cuda_launch *table[OP_COUNT]) { table[OP_ROPE] = rope; }
