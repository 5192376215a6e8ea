/* Stand-ins for streams, events, captures and graphs.
 *
 * An operation runs only when something waits for it, and streams advance in the order of the seed: a missing dependency
 * between streams, or a read before synchronisation, gives a wrong result. A capture in the global mode forbids what may
 * allocate or wait, and such a call invalidates it. The legacy stream and blocking streams wait for each other. */
#include <deque>
#include <set>

#include "tests/cuemu/internal.h"

struct CUgraphNode_st {
  cuemu::node_kind kind;
  std::function<void()> run;
};
struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> list;
};
struct CUevent_st {
  uint64_t recorded, done;
  CUgraph_st *capture;
  bool timing;
  double at;
};
struct CUstream_st {
  struct item {
    std::function<void()> run;
    CUevent_st *wait;
    uint64_t wait_for;
  };
  std::deque<item> queue;
  CUgraph_st *capture;
  bool blocking;
};

namespace cuemu {
namespace {

std::set<CUstream_st *> streams;
std::set<CUevent_st *> events;
std::set<CUgraph_st *> graphs;
std::set<CUgraphExec_st *> execs;
CUstream_st legacy;
CUgraph_st *capture;       /* the one that is going on */
CUstream_st *capture_from; /* the stream that began it */
bool capture_invalid;
double clock_ms;
std::shared_ptr<const operand_list> operands;

CUstream_st *find(const cudaStream_t s) {
  if (!s || s == cudaStreamLegacy || s == cudaStreamPerThread) return &legacy;
  return streams.count(s) ? s : nullptr;
}

bool step(CUstream_st *const s) { /* runs the head of a queue, if what it waits for has happened */
  if (s->queue.empty()) return false;
  const CUstream_st::item &head = s->queue.front();
  if (head.wait && head.wait->done < head.wait_for) return false;
  const CUstream_st::item item = head;
  s->queue.pop_front();
  if (!item.run || sticky_error) return true; /* after a fault nothing runs */
  memory_access(true);
  item.run();
  memory_access(false);
  return true;
}

void drain(const std::function<bool()> &done) {
  while (!done()) {
    std::vector<CUstream_st *> all(streams.begin(), streams.end());
    all.push_back(&legacy);
    arrange(all.begin(), all.end());
    bool any = false;
    for (CUstream_st *const s : all)
      if (!done()) any |= step(s);
    if (any || done()) continue;
    for (CUstream_st *const s : all) s->queue.clear();
    report_fault("deadlock: a stream waits for an event that nobody will record");
  }
}

void drain_one(CUstream_st *const s) {
  drain([s] { return s->queue.empty(); });
}

} // namespace

void drain_all() {
  drain([] {
    if (!legacy.queue.empty()) return false;
    for (const CUstream_st *const s : streams)
      if (!s->queue.empty()) return false;
    return true;
  });
}

bool stream_alive(const cudaStream_t s) { return find(s) != nullptr; }
bool capturing() { return capture != nullptr; }

cudaError_t refuse_in_capture(const char *const function) {
  if (!capture) return cudaSuccess;
  capture_invalid = true;
  return misuse(cudaErrorStreamCaptureUnsupported, function, "while a stream is being captured");
}

cudaError_t enqueue(const cudaStream_t handle, const node_kind kind, std::function<void()> f,
                    const char *const who) {
  if (sticky_error) return last_error = sticky_error;
  CUstream_st *const s = find(handle);
  if (!s)
    return misuse(cudaErrorInvalidResourceHandle, who, "a stream that is destroyed or was never created");
  if (s->capture) {
    if (capture_invalid)
      return misuse(cudaErrorStreamCaptureInvalidated, who, "the capture has been invalidated");
    auto node = std::make_unique<CUgraphNode_st>();
    node->kind = kind;
    node->run = std::move(f);
    s->capture->nodes.push_back(std::move(node));
    return cudaSuccess;
  }
  if (s == &legacy) {
    if (capture) {
      capture_invalid = true;
      return misuse(cudaErrorStreamCaptureImplicit, who,
                    "the legacy stream used while a stream is being captured");
    }
    for (CUstream_st *const o : streams)
      if (o->blocking) drain_one(o);
  } else if (s->blocking) {
    drain_one(&legacy);
  }
  s->queue.push_back({std::move(f), nullptr, 0});
  return cudaSuccess;
}

void submit(const char *const name, const void *const kernel, const dim3 grid, const dim3 block,
            const size_t shared_bytes, const cudaStream_t stream, kernel_call *const call) {
  launch l = {name, kernel, grid, block, shared_bytes, std::shared_ptr<kernel_call>(call), operands};
  const uint64_t n = (uint64_t)block.x * block.y * block.z;
  if (n == 0 || n > MAX_THREADS || block.z > 64 || (uint64_t)grid.x * grid.y * grid.z == 0 ||
      grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    misuse(cudaErrorInvalidConfiguration, name, "the grid or the block is empty or too large");
    return;
  }
  if (shared_bytes > shared_limit(kernel)) {
    misuse(cudaErrorInvalidValue, name,
           "more dynamic shared memory than the kernel may have (cudaFuncSetAttribute)");
    return;
  }
  enqueue(
      stream, node_kind::kernel, [l] { run(l); }, name);
}

} // namespace cuemu

using namespace cuemu;

#define RETURN_IF(e)                                                                                         \
  do {                                                                                                       \
    const cudaError_t e_ = (e);                                                                              \
    if (e_) return e_;                                                                                       \
  } while (0)
#define NEED(alive, what)                                                                                    \
  if (!(alive))                                                                                              \
  return misuse(cudaErrorInvalidResourceHandle, __func__, what " that is destroyed or was never created")

extern "C" {

void cuemu_operands(const cuemu_operand *const list, const size_t n) {
  operands = std::make_shared<const operand_list>(list, list + n);
}
void cuemu_operands_any(void) { operands.reset(); }

cuemu_counts cuemu_count(void) {
  cuemu_counts c = counts;
  c.live_allocations = live_allocations();
  c.live_streams = (unsigned)streams.size();
  c.live_events = (unsigned)events.size();
  c.live_graphs = (unsigned)(graphs.size() + execs.size());
  c.live_handles = live_handles();
  return c;
}

cudaError_t cudaDeviceSynchronize(void) {
  RETURN_IF(refuse_in_capture(__func__));
  drain_all();
  return sticky_error;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *const out, const unsigned flags) {
  *out = new CUstream_st();
  (*out)->blocking = !(flags & cudaStreamNonBlocking);
  streams.insert(*out);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *const out) {
  return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}
cudaError_t cudaStreamDestroy(const cudaStream_t s) {
  NEED(streams.count(s), "a stream");
  if (s->capture) return misuse(cudaErrorInvalidValue, __func__, "the stream is being captured");
  drain_one(s);
  streams.erase(s);
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(const cudaStream_t h) {
  CUstream_st *const s = find(h);
  NEED(s, "a stream");
  RETURN_IF(refuse_in_capture(__func__));
  drain_one(s);
  if (s == &legacy)
    for (CUstream_st *const o : streams)
      if (o->blocking) drain_one(o);
  return sticky_error;
}
cudaError_t cudaStreamQuery(const cudaStream_t h) {
  CUstream_st *const s = find(h);
  NEED(s, "a stream");
  RETURN_IF(refuse_in_capture(__func__));
  return sticky_error ? sticky_error : s->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *const out, const unsigned flags) {
  *out = new CUevent_st();
  (*out)->timing = !(flags & cudaEventDisableTiming);
  events.insert(*out);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *const out) {
  return cudaEventCreateWithFlags(out, cudaEventDefault);
}
cudaError_t cudaEventDestroy(const cudaEvent_t e) {
  NEED(events.count(e), "an event");
  drain_all();
  events.erase(e);
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(const cudaEvent_t e, const cudaStream_t h) {
  CUstream_st *const s = find(h);
  NEED(s, "a stream");
  NEED(events.count(e), "an event");
  if (s->capture) {
    e->capture = s->capture;
    return cudaSuccess;
  }
  e->capture = nullptr;
  const uint64_t n = ++e->recorded;
  return enqueue(
      h, node_kind::host,
      [=] {
        e->done = n;
        e->at = ++clock_ms;
      },
      __func__);
}
cudaError_t cudaStreamWaitEvent(const cudaStream_t h, const cudaEvent_t e, unsigned) {
  CUstream_st *const s = find(h);
  NEED(s, "a stream");
  NEED(events.count(e), "an event");
  if (e->capture) { /* the stream joins the capture */
    if (s->capture && s->capture != e->capture)
      return misuse(cudaErrorInvalidValue, __func__, "an event of another capture");
    s->capture = e->capture;
    return cudaSuccess;
  }
  if (s->capture)
    return misuse(cudaErrorInvalidValue, __func__, "a captured stream waits for an event from outside");
  if (e->recorded) s->queue.push_back({nullptr, e, e->recorded}); /* never recorded: nothing to wait for */
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(const cudaEvent_t e) {
  NEED(events.count(e), "an event");
  RETURN_IF(refuse_in_capture(__func__));
  drain([e] { return e->done >= e->recorded || sticky_error; });
  return sticky_error;
}
cudaError_t cudaEventQuery(const cudaEvent_t e) {
  NEED(events.count(e), "an event");
  RETURN_IF(refuse_in_capture(__func__));
  return sticky_error ? sticky_error : e->done >= e->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float *const ms, const cudaEvent_t a, const cudaEvent_t b) {
  NEED(events.count(a) && events.count(b), "an event");
  if (!a->timing || !b->timing || !a->recorded || !b->recorded)
    return misuse(cudaErrorInvalidResourceHandle, __func__, "an event without a time");
  if (a->done < a->recorded || b->done < b->recorded) return last_error = cudaErrorNotReady;
  *ms = (float)(b->at - a->at);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(const cudaStream_t h, enum cudaStreamCaptureMode) {
  CUstream_st *const s = find(h);
  NEED(s, "a stream");
  if (s == &legacy)
    return misuse(cudaErrorStreamCaptureUnsupported, __func__, "the legacy stream cannot be captured");
  if (capture) return misuse(cudaErrorInvalidValue, __func__, "a capture is going on");
  capture = s->capture = new CUgraph_st();
  capture_from = s;
  capture_invalid = false;
  graphs.insert(capture);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(const cudaStream_t h, enum cudaStreamCaptureStatus *const out) {
  CUstream_st *const s = find(h);
  NEED(s, "a stream");
  *out = !s->capture       ? cudaStreamCaptureStatusNone
         : capture_invalid ? cudaStreamCaptureStatusInvalidated
                           : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(const cudaStream_t h, cudaGraph_t *const out) {
  *out = nullptr;
  CUstream_st *const s = find(h);
  NEED(s, "a stream");
  if (!s->capture) return misuse(cudaErrorInvalidValue, __func__, "the stream is not being captured");
  if (s != capture_from)
    return misuse(cudaErrorStreamCaptureUnmatched, __func__, "another stream began the capture");
  CUgraph_st *const g = capture;
  for (CUstream_st *const o : streams)
    if (o->capture == g) o->capture = nullptr;
  for (CUevent_st *const e : events)
    if (e->capture == g) e->capture = nullptr;
  capture = nullptr;
  capture_from = nullptr;
  if (capture_invalid) {
    graphs.erase(g);
    delete g;
    return misuse(cudaErrorStreamCaptureInvalidated, __func__, "a call in the capture was not allowed");
  }
  *out = g;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *const out, const cudaGraph_t g, unsigned long long) {
  *out = nullptr;
  NEED(graphs.count(g), "a graph");
  RETURN_IF(refuse_in_capture(__func__));
  *out = new CUgraphExec_st();
  for (const auto &node : g->nodes) (*out)->list.push_back(node->run);
  execs.insert(*out);
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(const cudaGraphExec_t x, const cudaStream_t s) {
  NEED(execs.count(x), "an instantiated graph");
  return enqueue(
      s, node_kind::host, [] {}, __func__);
}
cudaError_t cudaGraphLaunch(const cudaGraphExec_t x, const cudaStream_t s) {
  NEED(execs.count(x), "an instantiated graph");
  return enqueue(
      s, node_kind::host,
      [x] {
        for (const auto &f : x->list)
          if (!sticky_error) f();
      },
      __func__);
}
cudaError_t cudaGraphDestroy(const cudaGraph_t g) {
  NEED(graphs.erase(g), "a graph");
  delete g;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(const cudaGraphExec_t x) {
  NEED(execs.erase(x), "an instantiated graph");
  drain_all();
  delete x;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(const cudaGraph_t g, cudaGraphNode_t *const nodes, size_t *const n) {
  NEED(graphs.count(g), "a graph");
  const size_t room = *n;
  *n = g->nodes.size();
  if (!nodes) return cudaSuccess;
  for (size_t i = 0; i < room; i++) nodes[i] = i < *n ? g->nodes[i].get() : nullptr;
  if (room < *n) *n = room;
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(const cudaGraphNode_t node, enum cudaGraphNodeType *const out) {
  static const enum cudaGraphNodeType types[] = {cudaGraphNodeTypeKernel,   cudaGraphNodeTypeMemcpy,
                                                 cudaGraphNodeTypeMemset,   cudaGraphNodeTypeHost,
                                                 cudaGraphNodeTypeMemAlloc, cudaGraphNodeTypeMemFree};
  *out = types[(int)node->kind];
  return cudaSuccess;
}
}
