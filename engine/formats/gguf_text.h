/* What the GGUF reader, its typed reads and the adapter reader share: texts, and names made fit for a message. */
#ifndef STINT_ENGINE_FORMATS_GGUF_TEXT_H
#define STINT_ENGINE_FORMATS_GGUF_TEXT_H

#include <string.h>

#include "engine/formats/gguf.h"

enum { GGUF_QUOTE_SHOWN = 80, GGUF_QUOTE_BYTES = GGUF_QUOTE_SHOWN + 8 };

/* 'name', cut after 80 bytes, with anything but printable ASCII shown as '?': a hostile name must not steer a terminal. */
const char *gguf_quote(char out[GGUF_QUOTE_BYTES], gguf_text t);

const char *gguf_type_name(gguf_type t);

static inline gguf_text gguf_text_of(const char *const s) { return (gguf_text){s, strlen(s)}; }

static inline int gguf_text_compare(const gguf_text a, const gguf_text b) {
  const int d = memcmp(a.data, b.data, a.bytes < b.bytes ? a.bytes : b.bytes);
  return d ? d : a.bytes < b.bytes ? -1 : a.bytes > b.bytes;
}

#endif
