/* Every case of the harness through the CUDA launches on the emulated device: the reference's bits under four schedules, all
 * memory but the op's operands out of bounds. One test an op: cuda/<op>. */
#include "tests/ops/harness.h"

#include "kernels/cuda/register.h"
#include "tests/cuemu/cuemu_control.h"
#include "tests/cuemu/ops_device.h"

/* Of one case: about this many operations take a second on the emulation. */
static const double most_operations = 1e9;

static void on_device(const op_id id) {
  cuda_launch *table[OP_COUNT];
  cuda_launches(false, table);
  if (!table[id]) cr_assert_fail("%s: no CUDA launch", op_table[id]->name);
  cr_assert(ht_covered[id] != NULL, "%s: no suite", op_table[id]->name);
  ht_on_device(ht_covered[id], id, ops_device(false), most_operations);
  const cuemu_counts c = cuemu_count();
  cr_assert(c.launches > 0 && c.mallocs == 1, "%llu launches, %llu allocations",
            (unsigned long long)c.launches, (unsigned long long)c.mallocs);
}

/* Fast launches, where they are other ones: equal bits under two schedules, near the reference. Their products round factors
 * to 11 bits (TF32), 2^-12 each; over all cases the largest error by the row metric is 1.8e-3 (attention_dkv), and a factor left
 * out or an element lost stands above 1e-2. */
static const double fast_bound = 4e-3;

static void fast_on_device(const op_id id) {
  cuda_launch *strict[OP_COUNT], *fast[OP_COUNT];
  cuda_launches(false, strict);
  cuda_launches(true, fast);
  if (fast[id] == strict[id]) cr_skip("%s has no launch of its own in fast mode", op_table[id]->name);
  ht_near_device(ht_covered[id], id, ops_device(true), most_operations, fast_bound);
}

#define X(id, name)                                                                                          \
  Test(cuda, name) { on_device(OP_##id); }                                                                   \
  Test(cuda_fast, name) { fast_on_device(OP_##id); }
OP_LIST(X)
#undef X
