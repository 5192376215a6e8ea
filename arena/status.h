/* Status codes and the error text that travels with them.
 *
 * Every call that can fail on its input returns a stint_status and, when `error` is not NULL, leaves one
 * sentence in it that names the file, the place and the remedy. The caller owns the buffer; nothing here
 * allocates, prints or exits. This header is public: engine/stint.h includes it. */
#ifndef STINT_ARENA_STATUS_H
#define STINT_ARENA_STATUS_H

#if defined(__GNUC__)
#define STINT_API          __attribute__((visibility("default")))
#define STINT_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define STINT_API
#define STINT_PRINTF(f, a)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* X(symbol, exit code of a tool that ends with it, text) */
#define STINT_STATUS_LIST(X)                                                                                 \
  X(OK, 0, "ok")                                                                                             \
  X(BAD_INPUT, 1, "bad input")                                                                               \
  X(UNSUPPORTED, 1, "unsupported")                                                                           \
  X(DOES_NOT_FIT, 2, "does not fit")                                                                         \
  X(IO, 1, "input or output failed")                                                                         \
  X(NO_MEMORY, 2, "the system refused memory")                                                               \
  X(NOT_FINITE, 3, "a value is not finite")                                                                  \
  X(INTERNAL, 4, "a defect in stint")

typedef enum stint_status {
#define X(name, code, text) STINT_##name,
  STINT_STATUS_LIST(X)
#undef X
} stint_status;

enum { STINT_ERROR_TEXT_BYTES = 768 };

typedef struct stint_error {
  stint_status status;
  char text[STINT_ERROR_TEXT_BYTES]; /* NUL-terminated, empty when status is STINT_OK */
} stint_error;

STINT_API const char *stint_status_text(stint_status status);
STINT_API int stint_status_exit_code(stint_status status);

/* Fills `error` (may be NULL) and returns `status`, so that a failure is one line: return stint_fail(...). */
STINT_API stint_status stint_fail(stint_error *error, stint_status status, const char *format, ...)
    STINT_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif

/* TRY: pass a failure on. */
#define STINT_TRY(call)                                                                                      \
  do {                                                                                                       \
    const stint_status try_status_ = (call);                                                                 \
    if (try_status_ != STINT_OK) return try_status_;                                                         \
  } while (0)

/* ASSERT: what is true by proof; debug builds trap. Never used on input. */
#ifdef STINT_DEBUG
#define STINT_ASSERT(condition) ((condition) ? (void)0 : __builtin_trap())
#else
#define STINT_ASSERT(condition) ((void)sizeof(!(condition)))
#endif

#endif
