/* Every op of the table has a case whose numbers were compared. (Each Criterion test is a process of its own, so this one
 * runs the first case of every op itself and counts.) */
#include "tests/ops/harness.h"

/* each op's own suite, its first case alone */
static bool first_case_only(const op_id id, const int i, ht_case *const t) {
  return i == 0 && ht_covered[id] && ht_covered[id](id, 0, t) && t->id == id;
}

Test(coverage, every_op) {
  int without = 0;
  char names[512] = "";
  for (int id = 0; id < OP_COUNT; id++) {
    ht_case t;
    const int64_t before = ht_comparisons;
    if (first_case_only((op_id)id, 0, &t)) ht_reference(first_case_only, (op_id)id);
    if (ht_comparisons > before) continue;
    without++;
    snprintf(names + __builtin_strlen(names), sizeof names - __builtin_strlen(names), " %s",
             op_table[id]->name);
  }
  cr_assert(without == 0, "%d ops without a comparison:%s", without, names);
}

/* The table itself: names, an argument struct, kernels of the reference, masks that name operands. */
Test(coverage, rows) {
  op_kernel *kernels[OP_COUNT];
  cpu_kernels(CPU_REFERENCE, kernels);
  for (int id = 0; id < OP_COUNT; id++) {
    const op_row *const row = op_table[id];
    cr_assert(row && row->name && row->check && row->bind && row->args_bytes > 0, "row %d", id);
    cr_assert(kernels[id] != NULL, "%s has no reference kernel", row->name);
    for (int i = 0; i < OP_MAX_SRC; i++) {
      cr_assert(!(row->src_required >> i & 1) || row->src_names[i], "%s: source %d has no name", row->name,
                i);
      for (int j = 0; j < OP_MAX_DST; j++)
        cr_assert(!(row->alias[j] >> i & 1) || (row->src_names[i] && row->dst_names[j]),
                  "%s: alias of nothing", row->name);
    }
    for (int j = 0; j < OP_MAX_DST; j++) {
      cr_assert(!((row->dst_required | row->inout) >> j & 1) || row->dst_names[j],
                "%s: destination %d has no name", row->name, j);
      cr_assert(!(row->inout >> j & 1) || row->alias[j] == 0, "%s: an inout destination with an alias",
                row->name);
    }
  }
}
