/* What every plan must satisfy, checked by other means than those that made it: no tensor's bytes are written while
 * another lives there, every operand was made before it is read, parts of the arena do not overlap. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "arena/pack.h"
#include "engine/train/plan.h"
#include "plans/vjp.h"
#include "tests/engine/golden.h"

static const char *const models[] = {"untied", "tied", "mixed"};
enum { N_MODELS = 3 };

static stint_plan *make_plan(stint_model **const model, const char *const name, const stint_options *const o,
                             const stint_purpose purpose) {
  char path[1024];
  stint_error error = {0};
  stint_plan *plan;
  cr_assert_eq(stint_model_open(golden_path(name, ".gguf", path, sizeof path), model, &error), STINT_OK, "%s",
               error.text);
  const stint_status status = stint_plan_make(*model, o, purpose, &plan, &error);
  cr_assert(status == STINT_OK || status == STINT_DOES_NOT_FIT, "%s", error.text);
  return plan;
}

static void small_options(stint_options *const o) {
  stint_options_default(o);
  o->ctx = 96, o->batch = 64,
  o->threads = 3; /* large enough for activations to be more than what loading takes */
}

/* First and last node that touches each tensor, by the plainest reading of the graph. */
static void touch(const graph *const g, const graph_id t, int32_t *const first, int32_t *const last) {
  *first = *last = -1;
  for (int32_t i = 0; i < g->n_nodes; i++) {
    bool touches = false;
    for (int k = 0; k < OP_MAX_SRC; k++) touches |= g->nodes[i].src[k] == t;
    for (int k = 0; k < OP_MAX_DST; k++) touches |= g->nodes[i].dst[k] == t;
    if (!touches) continue;
    if (*first < 0) *first = i;
    *last = i;
  }
}

/* dst of node i on top of src, as the op table allows it? */
static bool handed_over(const graph *const g, const int32_t node, const graph_id from, const graph_id to) {
  const graph_node *const n = &g->nodes[node];
  for (int d = 0; d < OP_MAX_DST; d++)
    for (int s = 0; s < OP_MAX_SRC; s++)
      if (n->dst[d] == to && n->src[s] == from && (op_table[n->op]->alias[d] >> s & 1)) return true;
  return false;
}

static int check_overlaps(const char *const name, const schedule *const s) {
  const graph *const g = s->g;
  int pairs = 0;
  int32_t *const first = malloc(sizeof(int32_t) * (size_t)g->n_tensors), *const last =
                                                                             malloc(sizeof(int32_t) *
                                                                                    (size_t)g->n_tensors);
  for (graph_id t = 0; t < g->n_tensors; t++) touch(g, t, &first[t], &last[t]);
  for (graph_id a = 0; a < g->n_tensors; a++) {
    if (g->tensors[a].home != HOME_STEP || first[a] < 0) continue;
    const size_t a_end = g->tensors[a].offset + op_span_bytes(&g->tensors[a].shape);
    cr_expect_leq(a_end, s->packing.height_bytes, "%s: %s ends past the step region", name,
                  g->tensors[a].name);
    for (graph_id b = 0; b < g->n_tensors; b++) {
      if (b == a || g->tensors[b].home != HOME_STEP || first[b] < first[a] || first[b] > last[a]) continue;
      const size_t b_end = g->tensors[b].offset + op_span_bytes(&g->tensors[b].shape);
      pairs++;
      if (b_end <= g->tensors[a].offset || a_end <= g->tensors[b].offset) continue;
      cr_expect(first[b] == last[a] && handed_over(g, first[b], a, b), "%s: %s is written over by %s", name,
                g->tensors[a].name, g->tensors[b].name);
    }
  }
  free(first);
  free(last);
  return pairs;
}

static void check_order(const char *const name, const graph *const g) {
  bool *const made = calloc((size_t)g->n_tensors, 1);
  int recomputed = 0;
  for (int32_t i = 0; i < g->n_nodes; i++) {
    const graph_node *const n = &g->nodes[i];
    recomputed += n->recomputed;
    for (int k = 0; k < OP_MAX_SRC; k++)
      cr_expect(n->src[k] == GRAPH_NONE || g->tensors[n->src[k]].home != HOME_STEP || made[n->src[k]],
                "%s: node %d (%s) reads %s before it is made", name, i, n->name, g->tensors[n->src[k]].name);
    for (int k = 0; k < OP_MAX_DST; k++)
      if (n->dst[k] != GRAPH_NONE) made[n->dst[k]] = true;
  }
  free(made);
}

static int count_recomputed(const graph *const g) {
  int n = 0;
  for (int32_t i = 0; i < g->n_nodes; i++) n += g->nodes[i].recomputed;
  return n;
}

/* Calls check for training, evaluation and sampling plans of every model at every candidate of the menu. */
static void for_every_plan(void (*const check)(const char *name, const stint_plan *plan)) {
  for (int m = 0; m < N_MODELS; m++) {
    stint_options o;
    small_options(&o);
    stint_model *model;
    for (int full = 0; full < (strcmp(models[m], "mixed") == 0 ? 1 : 2); full++) {
      o.full = full;
      uint64_t last = UINT64_MAX;
      for (o.budget_bytes = 0;;) { /* each plan that a byte less than the one before leads to */
        stint_plan *const plan = make_plan(&model, models[m], &o, STINT_TRAIN);
        check(models[m], plan);
        stint_plan_report r;
        stint_plan_describe(plan, &r);
        stint_plan_close(plan);
        stint_model_close(model);
        if (!r.fits) break;
        cr_assert_lt(r.peak_bytes, last, "%s: a smaller budget gave a larger plan", models[m]);
        last = r.peak_bytes;
        o.budget_bytes = r.peak_bytes - 1;
      }
    }
    o.full = false, o.budget_bytes = 0;
    for (int purpose = STINT_EVALUATE; purpose <= STINT_SAMPLE; purpose++) {
      stint_plan *const plan = make_plan(&model, models[m], &o, (stint_purpose)purpose);
      check(models[m], plan);
      stint_plan_close(plan);
      stint_model_close(model);
    }
  }
}

static int plans_seen, policies_seen;

static void check_program(const char *const name, const stint_plan *const plan) {
  cr_expect_gt(check_overlaps(name, &plan->main.s), 0, "%s: no two tensors ever lived at once", name);
  check_order(name, &plan->main.g);
  if (plan->eval.present) check_overlaps(name, &plan->eval.s);
  plans_seen++;
  policies_seen |= 1 << plan->choice.remat;
  if (plan->purpose == STINT_TRAIN)
    cr_expect_eq(count_recomputed(&plan->main.g) > 0, plan->choice.remat != REMAT_NOTHING, "%s: %s", name,
                 plan->report.choice);
}

Test(plans, no_tensor_is_written_over_and_none_is_read_early) {
  for_every_plan(check_program);
  cr_assert_geq(plans_seen, 12, "only %d plans", plans_seen);
  cr_assert_eq(policies_seen, 7, "a policy was never met: %x", policies_seen);
}

static void check_packing(const char *const name, const stint_plan *const plan) {
  const schedule *const s = &plan->main.s;
  pack_buffer *const b = malloc(sizeof *b * (size_t)s->n_buffers);
  for (int32_t i = 0; i < s->n_buffers; i++)
    b[i] =
        (pack_buffer){s->buffers[i].born, s->buffers[i].dies + 1, s->buffers[i].bytes, s->buffers[i].offset};
  cr_expect_eq(arena_pack_check(b, (size_t)s->n_buffers, s->packing.height_bytes), -1, "%s: buffers overlap",
               name);
  size_t most = 0;
  for (int32_t i = 0; i < plan->main.g.n_nodes; i++) {
    const size_t live = schedule_live_bytes(s, i, NULL);
    if (live > most) most = live;
  }
  cr_expect_eq(most, s->packing.lower_bound_bytes, "%s: the lower bound", name);
  cr_expect(s->packing.optimal, "%s: %zu bytes packed, %zu live at once", name, s->packing.height_bytes,
            most);
  free(b);
}

Test(plans, packing_meets_the_bound_in_every_plan) { for_every_plan(check_packing); }

static void check_layout(const char *const name, const stint_plan *const plan) {
  const arena_layout *const l = &plan->layout;
  size_t at = l->runtime_bytes;
  for (int h = HOME_PARAM; h <= HOME_CACHE; h++) {
    cr_expect_geq(l->home_offset[h], at, "%s: home %d begins inside the part before it", name, h);
    cr_expect_eq(l->home_offset[h] % 64, 0);
    at = l->home_offset[h] + l->home_bytes[h];
  }
  cr_expect_geq(l->loading_offset, at);
  cr_expect_geq(l->home_offset[HOME_STEP], l->loading_offset + l->loading_bytes);
  cr_expect_eq(l->home_offset[HOME_STEP] + l->home_bytes[HOME_STEP], l->total_bytes);
  cr_expect_geq(l->home_bytes[HOME_STEP], plan->main.s.packing.height_bytes);
  cr_expect_eq(l->total_bytes % 4096, 0);
  uint64_t sum = 0;
  for (int c = 0; c < STINT_CATEGORIES; c++) sum += plan->report.bytes[c] - plan->report.overlaid_bytes[c];
  cr_expect_eq(sum, plan->report.peak_bytes, "%s: the categories do not add up to the peak", name);
}

Test(plans, the_arena_holds_its_parts_and_the_report_adds_up) { for_every_plan(check_layout); }

/* A backward rule that is missing is told before anything runs. */
Test(plans, an_op_without_a_backward_is_refused) {
  bump memory;
  bump_init(&memory, 0);
  graph g;
  stint_error error = {0};
  cr_assert_eq(graph_init(&g, &memory, 32, 16, 4, &error), STINT_OK);
  const graph_id w = graph_add_param(&g, "w", "w", PARAM_WEIGHT, op_tensor_make(DTYPE_F32, 8, 4), true);
  const graph_id index = graph_add_placed(&g, "index", op_tensor_make(DTYPE_I32, 2, 1), HOME_BATCH);
  const graph_id x = graph_add_tensor(&g, "x", op_tensor_make(DTYPE_F32, 8, 2), HOME_STEP);
  const graph_id y = graph_add_tensor(&g, "y", op_tensor_make(DTYPE_F32, 8, 4), HOME_STEP);
  graph_add_node(&g, OP_GET_ROWS, NULL, (graph_id[]){w, index}, 2, &x, 1);
  graph_add_node(&g, OP_SET_ROWS, NULL, (graph_id[]){x, index}, 2, &y, 1);
  graph_id grad[32];
  memset(grad, -1, sizeof grad);
  grad[y] = graph_add_tensor(&g, "dy", op_tensor_make(DTYPE_F32, 8, 4), HOME_STEP);
  cr_assert_eq(graph_differentiate(&g, grad), STINT_UNSUPPORTED);
  cr_assert(strstr(error.text, "set_rows"), "%s", error.text);
  bump_free(&memory);
}

/* A node whose shapes are wrong is refused with op, tensor and reason. */
Test(plans, a_wrong_shape_is_refused) {
  bump memory;
  bump_init(&memory, 0);
  graph g;
  stint_error error = {0};
  cr_assert_eq(graph_init(&g, &memory, 8, 4, 1, &error), STINT_OK);
  const graph_id a = graph_add_tensor(&g, "a", op_tensor_make(DTYPE_F32, 8, 2), HOME_STEP);
  const graph_id b = graph_add_tensor(&g, "b", op_tensor_make(DTYPE_F32, 7, 2), HOME_STEP);
  const graph_id sum = graph_add_tensor(&g, "the sum", op_tensor_make(DTYPE_F32, 8, 2), HOME_STEP);
  cr_assert_null(graph_add_node(&g, OP_ADD, NULL, (graph_id[]){a, b}, 2, &sum, 1));
  cr_assert_eq(g.status, STINT_UNSUPPORTED);
  cr_assert(strstr(error.text, "add") && strstr(error.text, "the sum"), "%s", error.text);
  bump_free(&memory);
}

/* Every place of dropout draws by a number of its own, and its backward by the same. */
Test(plans, places_of_dropout_are_told_apart) {
  stint_options o;
  stint_model *model;
  small_options(&o);
  o.dropout = 0.5;
  stint_plan *const plan = make_plan(&model, "untied", &o, STINT_TRAIN);
  const graph *const g = &plan->main.g;
  uint64_t forward = 0, backward = 0;
  for (int32_t i = 0; i < g->n_nodes; i++) {
    const graph_node *const n = &g->nodes[i];
    if (n->op != OP_DROPOUT || n->recomputed) continue;
    uint64_t *const seen = n->pass == PASS_FORWARD ? &forward : &backward;
    cr_assert_lt(n->params.dropout.tensor, 64);
    cr_expect_eq(*seen >> n->params.dropout.tensor & 1, 0, "number %u twice", n->params.dropout.tensor);
    *seen |= 1ull << n->params.dropout.tensor;
  }
  cr_expect_eq(__builtin_popcountll(forward), 14, "%d places", __builtin_popcountll(forward));
  cr_expect_neq(backward, 0);
  cr_expect_eq(backward & ~forward, 0, "a backward draws by a number that no forward has");
  stint_plan_close(plan);
  stint_model_close(model);
}
