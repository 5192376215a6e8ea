/* Lifetimes to offsets: checks the input, compresses time, splits it into components, and lets the two passes
 * (pack_descent.c, then pack_search.c where needed) pack each.
 *
 * Compression: walk the times in order, deaths before births. A birth after a death opens a new section; a
 * buffer's span runs from the section of its birth to that of its death. Each section then is a largest set of
 * buffers alive together, there are at most n, and the largest load of a section is the lower bound.
 *
 * A component needs to be no lower than the tallest one, so the tallest are packed first and the others stop there. */
#include "arena/pack.h"

#include "arena/pack_parts.h"

typedef struct piece { /* a component in the making */
  int32_t first, n, section, n_sections;
  size_t height;
} piece;

typedef struct layout {
  pack_span *spans; /* by (birth, the caller's index); sections counted from the component's first */
  uint32_t *ids;    /* the caller's index of each span */
  size_t *load;     /* for each section */
  size_t *offsets;  /* for each span */
  piece *pieces;
  uint32_t *tallest; /* pieces by falling height */
  int32_t n, n_sections, n_pieces, largest_n, largest_sections;
} layout;

static stint_status no_scratch(const size_t n, stint_error *const error) {
  return stint_fail(error, STINT_NO_MEMORY,
                    "packing %zu buffers: the scratch memory ran out; allow about %zu bytes for planning", n,
                    n * 256 + 262144);
}

static uint64_t time_key(const int64_t time) { return (uint64_t)time ^ (UINT64_C(1) << 63); }

static stint_status check_input(const pack_buffer *const buffers, const size_t n, stint_error *const error) {
  if (n > INT32_MAX / 4)
    return stint_fail(error, STINT_UNSUPPORTED, "packing: %zu buffers are more than %d", n, INT32_MAX / 4);
  size_t sum = 0;
  for (size_t i = 0; i < n; i++) {
    if (buffers[i].lower >= buffers[i].upper) {
      return stint_fail(error, STINT_BAD_INPUT,
                        "packing: buffer %zu lives from %lld to %lld, an empty lifetime; leave it out", i,
                        (long long)buffers[i].lower, (long long)buffers[i].upper);
    }
    if (!buffers[i].bytes)
      return stint_fail(error, STINT_BAD_INPUT, "packing: buffer %zu has no bytes; leave it out", i);
    if (__builtin_add_overflow(sum, buffers[i].bytes, &sum)) {
      return stint_fail(error, STINT_BAD_INPUT, "packing: the sizes up to buffer %zu pass 2^64 bytes", i);
    }
  }
  return STINT_OK;
}

/* Fills the spans (in sections of the whole), the loads, the lower bound and its time. */
static void compress(const pack_buffer *const buffers, const pack_key *const births,
                     const pack_key *const deaths, int32_t *const place, layout *const l,
                     pack_result *const result) {
  const size_t n = (size_t)l->n;
  int32_t section = -1;
  bool closed = true; /* something died since the last birth */
  size_t alive = 0;
  for (size_t b = 0, d = 0; d < n;) {
    if (b < n && births[b].key < deaths[d].key) {
      const uint32_t id = births[b].id;
      if (closed) section++;
      closed = false;
      alive += buffers[id].bytes;
      place[id] = (int32_t)b;
      l->ids[b] = id;
      l->spans[b] = (pack_span){.lower = section, .bytes = buffers[id].bytes};
      l->load[section] = alive;
      if (alive > result->lower_bound_bytes) {
        result->lower_bound_bytes = alive;
        result->bound_time = buffers[id].lower;
      }
      b++;
    } else {
      const uint32_t id = deaths[d++].id;
      closed = true;
      alive -= buffers[id].bytes;
      l->spans[place[id]].upper = section + 1;
    }
  }
  l->n_sections = section + 1;
}

/* Cuts where no span crosses, and counts each component's sections from its own first. */
static void split(layout *const l) {
  int32_t reach = 0;
  for (int32_t i = 0; i < l->n; i++) {
    pack_span *const s = &l->spans[i];
    if (s->lower >= reach) l->pieces[l->n_pieces++] = (piece){.first = i, .section = s->lower};
    piece *const p = &l->pieces[l->n_pieces - 1];
    if (s->upper > reach) reach = s->upper;
    p->n++;
    p->n_sections = reach - p->section;
    if (p->n > l->largest_n) l->largest_n = p->n;
    if (p->n_sections > l->largest_sections) l->largest_sections = p->n_sections;
    s->lower -= p->section;
    s->upper -= p->section;
  }
}

static bool take_work(bump *const scratch, const layout *const l, pack_work *const w) {
  const size_t n = (size_t)l->largest_n, sections = (size_t)l->largest_sections;
  size_t leaves = 1;
  while (leaves < sections) leaves *= 2;
  w->load_before = BUMP_ARRAY(scratch, double, sections + 1);
  w->most_load = BUMP_ARRAY(scratch, size_t, n);
  w->weight = BUMP_ARRAY(scratch, double, n);
  w->untaught = BUMP_ARRAY(scratch, double, n);
  w->born = BUMP_ARRAY(scratch, int32_t, sections + 1);
  w->dead = BUMP_ARRAY(scratch, int32_t, sections + 1);
  w->by_rank = BUMP_ARRAY(scratch, uint32_t, n);
  w->tree = BUMP_ARRAY(scratch, size_t, 2 * leaves);
  w->tag = BUMP_ARRAY(scratch, size_t, 2 * leaves);
  w->heap = BUMP_ARRAY(scratch, pack_entry, n);
  w->offsets = BUMP_ARRAY(scratch, size_t, n);
  return w->load_before && w->most_load && w->weight && w->untaught && w->born && w->dead && w->by_rank &&
         w->tree && w->tag && w->heap && w->offsets;
}

static pack_component component_of(const layout *const l, const piece *const p) {
  return (pack_component){
      .spans = l->spans + p->first, .load = l->load + p->section, .n = p->n, .n_sections = p->n_sections};
}

/* Descends in every component, then searches in those above the bound, the tallest first. */
static void pack_pieces(layout *const l, pack_work *const w, bump *const scratch, pack_result *const result) {
  for (int32_t i = 0; i < l->n_pieces; i++) {
    piece *const p = &l->pieces[i];
    const pack_component c = component_of(l, p);
    pack_measure(&c, w);
    p->height = pack_descend(&c, w, result->lower_bound_bytes, l->offsets + p->first);
  }
  for (int32_t i = 0; i < l->n_pieces; i++) { /* after the descents, which sort in the same keys */
    w->keys[i] = (pack_key){.key = ~(uint64_t)l->pieces[i].height, .id = (uint32_t)i};
  }
  pack_sort(w->keys, w->keys_too, (size_t)l->n_pieces);
  for (int32_t i = 0; i < l->n_pieces; i++) l->tallest[i] = w->keys[i].id;

  result->height_bytes = result->lower_bound_bytes;
  for (int32_t i = 0; i < l->n_pieces; i++) {
    const piece *const p = &l->pieces[l->tallest[i]];
    if (p->height <= result->height_bytes) break;
    const pack_component c = component_of(l, p);
    const size_t height =
        pack_search(&c, w, scratch, result->height_bytes, p->height, l->offsets + p->first, &result->nodes);
    if (height > result->height_bytes) result->height_bytes = height;
  }
}

stint_status arena_pack(pack_buffer *const buffers, const size_t n, bump *const scratch,
                        pack_result *const result, stint_error *const error) {
  *result = (pack_result){.optimal = true};
  STINT_TRY(check_input(buffers, n, error));
  if (!n) return STINT_OK;

  layout l = {.n = (int32_t)n};
  pack_work w = {.keys = BUMP_ARRAY(scratch, pack_key, n), .keys_too = BUMP_ARRAY(scratch, pack_key, n)};
  pack_key *const births = BUMP_ARRAY(scratch, pack_key, n), *const deaths = BUMP_ARRAY(scratch, pack_key, n);
  int32_t *const place = BUMP_ARRAY(scratch, int32_t, n);
  l.spans = BUMP_ARRAY(scratch, pack_span, n);
  l.ids = BUMP_ARRAY(scratch, uint32_t, n);
  l.load = BUMP_ARRAY(scratch, size_t, n);
  l.offsets = BUMP_ARRAY(scratch, size_t, n);
  l.pieces = BUMP_ARRAY(scratch, piece, n);
  l.tallest = BUMP_ARRAY(scratch, uint32_t, n);
  if (!w.keys || !w.keys_too || !births || !deaths || !place || !l.spans || !l.ids || !l.load || !l.offsets ||
      !l.pieces || !l.tallest) {
    return no_scratch(n, error);
  }
  for (size_t i = 0; i < n; i++) {
    births[i] = (pack_key){.key = time_key(buffers[i].lower), .id = (uint32_t)i};
    deaths[i] = (pack_key){.key = time_key(buffers[i].upper), .id = (uint32_t)i};
  }
  pack_sort(births, w.keys_too, n);
  pack_sort(deaths, w.keys_too, n);
  compress(buffers, births, deaths, place, &l, result);
  split(&l);
  if (!take_work(scratch, &l, &w)) return no_scratch(n, error);
  pack_pieces(&l, &w, scratch, result);

  for (size_t i = 0; i < n; i++) buffers[l.ids[i]].offset = l.offsets[i];
  result->optimal = result->height_bytes == result->lower_bound_bytes;
  return STINT_OK;
}
