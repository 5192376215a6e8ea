/* Probabilities in float64, a heap sort in place (the C library's sort may allocate), one Philox draw. */
#include "engine/train/choose_token.h"

#include "kernels/math/hostmath.h"
#include "kernels/math/philox.h"

/* a comes after b: less probable, or as probable with a larger id */
static int after(const token_choice a, const token_choice b) {
  return a.p < b.p || (a.p == b.p && a.id > b.id);
}

static void sift(token_choice *const c, int32_t at, const int32_t n) {
  for (;;) {
    int32_t child = 2 * at + 1;
    if (child >= n) return;
    if (child + 1 < n && after(c[child + 1], c[child])) child++;
    if (!after(c[child], c[at])) return;
    const token_choice swap = c[at];
    c[at] = c[child];
    c[child] = swap;
    at = child;
  }
}

/* Most probable first. */
static void sort(token_choice *const c, const int32_t n) {
  for (int32_t i = n / 2 - 1; i >= 0; i--) sift(c, i, n);
  for (int32_t i = n - 1; i > 0; i--) {
    const token_choice swap = c[0];
    c[0] = c[i];
    c[i] = swap;
    sift(c, 0, i);
  }
}

static double draw(const uint64_t seed, const uint64_t position) {
  const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0x73616d70u};
  uint32_t word[4];
  philox4x32((uint32_t)seed, (uint32_t)(seed >> 32), counter, word);
  return ((double)(word[0] >> 5) * 67108864.0 + (double)(word[1] >> 6)) * 0x1p-53;
}

int32_t choose_token(const float *const logits, const int32_t n, const stint_sample_options *const o,
                     const uint64_t position, token_choice *const scratch) {
  int32_t best = 0;
  for (int32_t i = 0; i < n; i++) {
    if (logits[i] != logits[i]) return -1;
    if (logits[i] > logits[best]) best = i;
  }
  if (o->temperature == 0) return best;
  double total = 0;
  for (int32_t i = 0; i < n; i++) {
    scratch[i] = (token_choice){h_exp(((double)logits[i] - (double)logits[best]) / o->temperature), i};
    total += scratch[i].p;
  }
  sort(scratch, n);
  int32_t kept = o->top_k > 0 && o->top_k < n ? (int32_t)o->top_k : n;
  double mass = 0;
  for (int32_t i = 0; i < kept; i++) {
    mass += scratch[i].p;
    if (mass >= o->top_p * total) kept = i + 1;
  }
  double left = draw(o->seed, position) * mass;
  for (int32_t i = 0; i < kept; i++) {
    left -= scratch[i].p;
    if (left < 0) return scratch[i].id;
  }
  return scratch[kept - 1].id;
}
