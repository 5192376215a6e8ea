/* Opening in the order of the layout; each part taken exactly once. */
#include "engine/train/session.h"

#include "engine/exec/device_load.h"
#include "kernels/dispatch.h"
#include "kernels/math/philox.h"

#include <string.h>

/* ---- opening ---- */

static bool on_device(const session *const s) { return s->plan->options.device == STINT_CUDA; }

/* Operands and the host see the same bytes. */
static void cpu_bases(const session *const s, program_bases *const base) {
  const stint_plan *const plan = s->plan;
  for (int h = 0; h < HOME_COUNT; h++) base->operand[h] = s->arena.base + plan->layout.home_offset[h];
  base->operand[HOME_FILE] =
      (unsigned char *)(uintptr_t)plan->model->file.map.base; /* no op writes a FILE tensor */
  memcpy(base->host, base->operand, sizeof base->host);
}

/* The device's allocation, and the pinned mirrors of what the host fills and reads. */
static stint_status device_bases(session *const s, program_bases *const base, stint_error *const error) {
  const stint_plan *const plan = s->plan;
  const device_layout *const l = &plan->on_device;
  void *memory, *pinned;
  STINT_TRY(device_load(&s->device.module, error));
  STINT_TRY(s->device.module->open(plan->options.numerics == STINT_FAST, &s->device.d, &s->info, error));
  if (s->info.free_bytes < l->total_bytes)
    return stint_fail(
        error, STINT_DOES_NOT_FIT,
        "%s: the plan takes %zu bytes of device memory, and %s has %zu free of %zu (its context took %zu)",
        plan->model->file.path, l->total_bytes, s->info.name, s->info.free_bytes, s->info.total_bytes,
        s->info.context_bytes);
  STINT_TRY(s->device.module->take(s->device.d, l->total_bytes, l->pinned_bytes, l->workspace_offset,
                                   l->workspace_bytes, &memory, &pinned, error));
  for (int h = 0; h < HOME_COUNT; h++) {
    base->operand[h] = (unsigned char *)memory + l->home_offset[h];
    base->host[h] = l->mirror_offset[h] == SIZE_MAX ? NULL : (unsigned char *)pinned + l->mirror_offset[h];
  }
  base->host[HOME_FILE] = (unsigned char *)(uintptr_t)plan->model->file.map.base;
  if (l->home_bytes[HOME_FILE]) {
    const size_t skip =
        plan->model->file.data_offset; /* offsets of FILE tensors count from the file's start */
    STINT_TRY(s->device.module->upload(s->device.d, base->operand[HOME_FILE], base->host[HOME_FILE] + skip,
                                       l->home_bytes[HOME_FILE], error));
    base->operand[HOME_FILE] = (unsigned char *)((uintptr_t)base->operand[HOME_FILE] - skip);
  }
  s->device.batch_device = base->operand[HOME_BATCH];
  s->device.batch_host = base->host[HOME_BATCH];
  s->device.batch_bytes = l->home_bytes[HOME_BATCH];
  memset(base->host[HOME_BATCH], 0, l->home_bytes[HOME_BATCH]);
  memset(base->host[HOME_PARAM], 0, l->home_bytes[HOME_PARAM]);
  return STINT_OK;
}

static stint_status bind(session *const s, stint_error *const error) {
  const stint_plan *const plan = s->plan;
  op_kernel *kernels[OP_COUNT];
  program_bases base;
  unsigned char *at = s->arena.base;
  if (on_device(s)) {
    STINT_TRY(device_bases(s, &base, error));
  } else {
    cpu_bases(s, &base);
    cpu_kernels(plan->options.cpu_mask, kernels);
    STINT_TRY(pool_start(at, plan->options.threads, &s->workers, error));
    at += pool_bytes(plan->options.threads);
  }
  op_kernel *const *const on_cpu = on_device(s) ? NULL : kernels;
  cuda_launch *const *const launches = on_device(s) ? s->device.module->launches(s->device.d) : NULL;
  STINT_TRY(program_bind(&plan->main.s, &base, on_cpu, launches, at, &s->main, error));
  at += program_bytes(&plan->main.s);
  if (plan->eval.present) {
    STINT_TRY(program_bind(&plan->eval.s, &base, on_cpu, launches, at, &s->eval, error));
    at += program_bytes(&plan->eval.s);
  }
  bump_init_over(&s->host, at, (size_t)(s->arena.base + plan->layout.runtime_bytes - at));
  return STINT_OK;
}

/* Moments and caches begin at zero, as a reservation on the host does: zeros go up from the step region, fresh still. */
static stint_status zero_home(session *const s, const graph_home home, stint_error *const error) {
  size_t piece;
  const void *const zeros = session_step_region(s, &piece);
  const size_t bytes = s->plan->on_device.home_bytes[home];
  for (size_t at = 0; at < bytes; at += piece)
    STINT_TRY(s->device.module->upload(s->device.d, s->main.base.operand[home] + at, zeros,
                                       bytes - at < piece ? bytes - at : piece, error));
  return STINT_OK;
}

/* What the host filled goes up, and every range that will be run is recorded. */
static stint_status start_device(session *const s, stint_error *const error) {
  if (!on_device(s)) return STINT_OK;
  device_run *const r = &s->device;
  const device_layout *const l = &s->plan->on_device;
  const program_bases *const base = &s->main.base;
  static const graph_home filled[] = {HOME_CONST, HOME_PARAM};
  for (size_t i = 0; i < sizeof filled / sizeof *filled; i++)
    if (l->home_bytes[filled[i]])
      STINT_TRY(r->module->upload(r->d, base->operand[filled[i]], base->host[filled[i]],
                                  l->home_bytes[filled[i]], error));
  static const graph_home zeroed[] = {HOME_MOMENT1, HOME_MOMENT2, HOME_CACHE};
  for (size_t i = 0; i < sizeof zeroed / sizeof *zeroed; i++) STINT_TRY(zero_home(s, zeroed[i], error));
  const schedule *const plan = s->main.plan;
  STINT_TRY(device_run_capture(r, &s->main, 0, plan->first_micro, error));
  STINT_TRY(device_run_capture(r, &s->main, plan->first_micro, plan->first_update, error));
  if (plan->first_update < s->main.n_steps) {
    STINT_TRY(device_run_capture(r, &s->main, plan->first_update, plan->first_update + 1, error));
    STINT_TRY(device_run_capture(r, &s->main, plan->first_update + 1, s->main.n_steps, error));
  }
  if (s->plan->eval.present)
    STINT_TRY(device_run_capture(r, &s->eval, s->eval.plan->first_micro, s->eval.n_steps, error));
  return STINT_OK;
}

static void find_batch(session *const s) {
  const build_inputs *const in = &s->plan->main.b.in;
  const program *const p = &s->main;
  s->batch = (data_batch){.token = program_tensor(p, in->token),
                          .target = program_tensor(p, in->target),
                          .position = program_tensor(p, in->position),
                          .span = program_tensor(p, in->span),
                          .weight = program_tensor(p, in->weight)};
  s->step = program_tensor(p, in->step);
  s->loss = program_tensor(p, in->loss);
}

static stint_status fill_constants(session *const s, stint_error *const error) {
  const graph *const g = &s->plan->main.g;
  int index = 0;
  for (int32_t t = 0; t < g->n_tensors; t++)
    if (g->tensors[t].home == HOME_CONST)
      STINT_TRY(
          s->plan->model->family->fill_constant(s->plan->model, index++, program_tensor(&s->main, t), error));
  return STINT_OK;
}

/* ---- parameters ---- */

static void fill_new_factor(const stint_plan *const plan, const int32_t param, float *const out) {
  const op_tensor *const shape = &graph_at(&plan->main.g, plan->main.g.params[param].value)->shape;
  const float limit = 1.0f / __builtin_sqrtf((float)shape->ne[0]);
  const int64_t n = shape->ne[0] * shape->ne[1];
  for (int64_t i = 0; i < n; i += 4) {
    const uint32_t counter[4] = {(uint32_t)(i / 4), (uint32_t)((uint64_t)(i / 4) >> 32), (uint32_t)param,
                                 0x6c6f7261u};
    uint32_t word[4];
    philox4x32((uint32_t)plan->options.seed, (uint32_t)(plan->options.seed >> 32), counter, word);
    for (int64_t k = i; k < n && k < i + 4; k++) out[k] = (2.0f * philox_unit(word[k - i]) - 1.0f) * limit;
  }
}

static stint_status fill_param(session *const s, const int32_t index, stint_error *const error) {
  const stint_plan *const plan = s->plan;
  const graph_param *const param = &plan->main.g.params[index];
  float *const out = program_tensor(&s->main, param->value);
  if (param->role == PARAM_WEIGHT) {
    const gguf_tensor *const w = gguf_find_tensor(&plan->model->file, param->base);
    memcpy(out, w->data, w->bytes);
  } else if (plan->options.adapter) {
    const adapter_entry *const entry = adapter_find(&plan->adapter, param->base);
    STINT_TRY(adapter_copy(&plan->adapter, param->role == PARAM_LORA_A ? entry->a : entry->b, out, error));
  } else if (param->role == PARAM_LORA_A) {
    fill_new_factor(plan, index, out);
  }
  return STINT_OK;
}

stint_status session_open(stint_plan *const plan, session *const out, stint_error *const error) {
  *out = (session){.plan = plan};
  if (!plan->report.fits)
    return stint_fail(error, STINT_DOES_NOT_FIT, "%s: the plan takes %llu bytes and %llu are allowed",
                      plan->model->file.path, (unsigned long long)plan->report.peak_bytes,
                      (unsigned long long)plan->report.budget_bytes);
  if (plan->model->file.header_only)
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s holds a header and no tensor data: it can be planned, not run",
                      plan->model->file.path);
  STINT_TRY(reserve_take(plan->layout.total_bytes, true, &out->arena, error));
  stint_status status = bind(out, error);
  if (status == STINT_OK) {
    find_batch(out);
    status = fill_constants(out, error);
  }
  for (int32_t i = 0; i < plan->main.g.n_params && status == STINT_OK; i++)
    status = fill_param(out, i, error);
  if (status == STINT_OK) status = start_device(out, error);
  if (status != STINT_OK) session_close(out);
  return status;
}

void session_close(session *const s) {
  pool_stop(s->workers);
  if (s->device.module) s->device.module->close(s->device.d);
  reserve_release(&s->arena);
  *s = (session){0};
}

/* ---- loading ---- */

void *session_step_region(const session *const s, size_t *const bytes) {
  *bytes = s->plan->layout.home_bytes[HOME_STEP];
  return s->arena.base + s->plan->layout.home_offset[HOME_STEP];
}

stint_status session_tokenizer(session *const s, tokenizer **const out, stint_error *const error) {
  const stint_plan *const plan = s->plan;
  size_t bytes;
  void *const buffer = plan->purpose == STINT_SAMPLE ? s->arena.base + plan->layout.loading_offset
                                                     : session_step_region(s, &bytes);
  STINT_TRY(tokenizer_make(&plan->model->file, buffer, plan->tokenizer_bytes, out, error));
  if (tokenizer_n_vocab(*out) > plan->model->n_vocab)
    return stint_fail(error, STINT_BAD_INPUT,
                      "%s: the tokenizer has %d tokens and token_embd.weight only %lld rows",
                      plan->model->file.path, tokenizer_n_vocab(*out), (long long)plan->model->n_vocab);
  return STINT_OK;
}

stint_status session_prepare(session *const s, const char *const *const paths, const size_t n_paths,
                             const char *const token_path, data_prepared *const out,
                             stint_error *const error) {
  tokenizer *t;
  STINT_TRY(session_tokenizer(s, &t, error));
  size_t bytes;
  unsigned char *const region = session_step_region(s, &bytes);
  return data_prepare(t, paths, n_paths, token_path, region + s->plan->tokenizer_bytes,
                      s->plan->prepare_bytes, out, error);
}

/* ---- running ---- */

void session_run(session *const s, const program *const p, const int32_t first, const int32_t end,
                 program_hook *const hook, void *const context) {
  if (!on_device(s)) {
    program_run(p, s->workers, first, end, hook, context);
  } else if (s->status == STINT_OK) {
    s->status = device_run_range(&s->device, p, first, end, hook, context, &s->error);
  }
}

stint_status session_check(const session *const s, stint_error *const error) {
  return s->status == STINT_OK ? STINT_OK : stint_fail(error, s->status, "%s", s->error.text);
}

const void *session_region(session *const s, const graph_home home) {
  const program_bases *const base = &s->main.base;
  if (!on_device(s)) return base->host[home];
  unsigned char *const to = base->host[home] ? base->host[home] : base->host[HOME_PARAM];
  if (s->status == STINT_OK)
    s->status = s->device.module->download(s->device.d, to, base->operand[home],
                                           s->plan->on_device.home_bytes[home], &s->error);
  return s->status == STINT_OK ? to : NULL;
}

double session_loss_sum(const session *const s) {
  const int64_t rows = s->plan->main.want.rows;
  double sum = 0;
  for (int64_t i = 0; i < rows; i++) sum += (double)s->loss[i];
  return sum;
}

session_sum session_evaluate(session *const s, const program *const p, const data_set *const set) {
  const int64_t batch = s->plan->options.batch;
  session_sum sum = {0, 0};
  s->step->loss_scale = 1.0f;
  for (uint64_t first = 0; first < set->n_rows; first += (uint64_t)batch) {
    sum.weight += data_fill(set, first, batch, 0, 0, false, &s->batch);
    session_run(s, p, p->plan->first_micro, p->n_steps, NULL, NULL);
    sum.loss += session_loss_sum(s);
  }
  return sum;
}
