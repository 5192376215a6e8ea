/* What the emulation says: faults of kernels and misuses of the API. */
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/cuemu/internal.h"

namespace cuemu {

cudaError_t last_error, sticky_error;

namespace {

bool collecting;
unsigned n_faults, n_misuses;
std::string text;

int first_object(dl_phdr_info *const info, size_t, void *const base) {
  *(uintptr_t *)base = info->dlpi_addr;
  return 1;
}

} // namespace

std::string source_line(const void *const pc) { /* by addr2line, of binutils; without it the address */
  uintptr_t base = 0;
  dl_iterate_phdr(first_object, &base);
  char line[512];
  const unsigned long at = (unsigned long)((uintptr_t)pc - base - 1); /* inside the call */
  snprintf(line, sizeof line, "addr2line -Cpsie /proc/%d/exe 0x%lx 2>/dev/null", (int)getpid(), at);
  std::string result;
  if (FILE *const f = popen(line, "r")) {
    while (fgets(line, sizeof line, f)) result += line;
    pclose(f);
  }
  while (!result.empty() && result.back() == '\n') result.pop_back();
  if (!result.empty()) return result;
  snprintf(line, sizeof line, "0x%lx", at);
  return line;
}

void report_fault(const std::string &what) {
  n_faults++;
  text = what;
  sticky_error = last_error = cudaErrorLaunchFailure;
  if (collecting) return;
  fprintf(stderr, "cuemu: %s\n", what.c_str());
  abort();
}

cudaError_t misuse(const cudaError_t e, const char *const function, const char *const why) {
  n_misuses++;
  text = std::string(function) + ": " + cudaGetErrorName(e) + ": " + why;
  if (!collecting) fprintf(stderr, "cuemu: %s\n", text.c_str());
  return last_error = e;
}

} // namespace cuemu

using namespace cuemu;

extern "C" {

void cuemu_collect(const bool collect) { collecting = collect; }
void cuemu_clear(void) {
  n_faults = n_misuses = 0;
  text.clear();
  last_error = sticky_error = cudaSuccess;
}
unsigned cuemu_faults(void) { return n_faults; }
unsigned cuemu_misuses(void) { return n_misuses; }
const char *cuemu_text(void) { return text.c_str(); }
void cuemu_seed(const unsigned s) { seed = s; }

#define CUEMU_NAME(name, value)                                                                              \
  case value:                                                                                                \
    return #name;
const char *cudaGetErrorName(const cudaError_t e) {
  switch ((int)e) { CUEMU_ERRORS(CUEMU_NAME) }
  return "an unknown error";
}
const char *cudaGetErrorString(const cudaError_t e) { return cudaGetErrorName(e); }
const char *cublasGetStatusName(const cublasStatus_t s) {
  switch ((int)s) { CUEMU_BLAS_STATUS(CUEMU_NAME) }
  return "an unknown status";
}
const char *cublasGetStatusString(const cublasStatus_t s) { return cublasGetStatusName(s); }
#undef CUEMU_NAME

cudaError_t cudaGetLastError(void) {
  const cudaError_t e = last_error;
  last_error = sticky_error;
  return e;
}
cudaError_t cudaPeekAtLastError(void) { return last_error; }
}
