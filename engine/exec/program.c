/* Binding and running; the only loop that runs kernels. */
#include "engine/exec/program.h"

#include "engine/exec/guards.h"

static size_t align_up(const size_t bytes) { return (bytes + 63) & ~(size_t)63; }

size_t program_bytes(const schedule *const plan) {
  size_t bytes = align_up(sizeof(program_step) * (size_t)plan->g->n_nodes);
  for (int32_t i = 0; i < plan->g->n_nodes; i++)
    bytes += align_up(op_table[plan->g->nodes[i].op]->args_bytes);
  return bytes;
}

static void *address(unsigned char *const base[HOME_COUNT], const graph *const g, const graph_id id) {
  if (id == GRAPH_NONE) return NULL;
  const graph_tensor *const t = graph_at(g, id);
  return base[t->home] ? base[t->home] + t->offset : NULL;
}

void *program_tensor(const program *const p, const graph_id id) {
  return address((unsigned char *const *)p->base.host, p->plan->g, id);
}

stint_status program_bind(const schedule *const plan, const program_bases *const base,
                          op_kernel *const *const kernels, cuda_launch *const *const launches,
                          void *const buffer, program *const out, stint_error *const error) {
  const graph *const g = plan->g;
  unsigned char *at = buffer;
  *out = (program){.plan = plan, .steps = (program_step *)at, .n_steps = g->n_nodes, .base = *base};
  at += align_up(sizeof(program_step) * (size_t)g->n_nodes);
  for (int32_t i = 0; i < g->n_nodes; i++) {
    const graph_node *const n = &g->nodes[i];
    op_case c;
    graph_case(g, n, &c);
    if (kernels ? !kernels[n->op] : !launches[n->op])
      return stint_fail(error, STINT_UNSUPPORTED, "op %s of %s has no kernel on this backend",
                        op_table[n->op]->name, n->name);
    void *src[OP_MAX_SRC], *dst[OP_MAX_DST];
    for (int s = 0; s < OP_MAX_SRC; s++) src[s] = address(out->base.operand, g, n->src[s]);
    for (int d = 0; d < OP_MAX_DST; d++) dst[d] = address(out->base.operand, g, n->dst[d]);
    void *const work = plan->workspace_offset[i] == SIZE_MAX
                           ? NULL
                           : out->base.operand[HOME_STEP] + plan->workspace_offset[i];
    out->steps[i] = (program_step){kernels ? kernels[n->op] : NULL, kernels ? NULL : launches[n->op], at,
                                   op_phases(n->op, &c)};
    op_table[n->op]->bind(at, &c, src, dst, work, plan->workers);
    at += align_up(op_table[n->op]->args_bytes);
  }
  return STINT_OK;
}

typedef struct run_job {
  const program *p;
  pool *workers;
  int32_t first, end;
  program_hook *hook;
  void *context;
} run_job;

static void run_worker(void *const context, const int worker, const int workers) {
  const run_job *const job = context;
  for (int32_t i = job->first; i < job->end; i++) {
#ifdef STINT_DEBUG
    if (worker == 0) guards_before(job->p, i);
    pool_barrier(job->workers);
#endif
    const program_step *const step = &job->p->steps[i];
    for (int phase = 0; phase < step->phases; phase++) {
      step->kernel(step->args, phase, worker, workers);
      pool_barrier(job->workers);
    }
    if (job->hook) {
      if (worker == 0) job->hook(job->context, job->p, i);
      pool_barrier(job->workers);
    }
#ifdef STINT_DEBUG
    if (worker == 0) guards_after(job->p, i);
    pool_barrier(job->workers);
#endif
  }
}

void program_run(const program *const p, pool *const workers, const int32_t first, const int32_t end,
                 program_hook *const hook, void *const context) {
  run_job job = {p, workers, first, end, hook, context};
  pool_run(workers, run_worker, &job);
#ifdef STINT_DEBUG
  guards_lift(p, p->plan->packing.height_bytes);
#endif
}
