/* Every input that the fuzzer of tests/fuzz/gguf.c kept, once more; the target aborts on what must not be. */
#include <criterion/criterion.h>
#include <dirent.h>

#include "tests/formats/gguf_bytes.h"
#include "tests/fuzz/gguf.c"

Test(fuzz_replay, gguf) {
  char path[1400], folder_path[1024];
  snprintf(folder_path, sizeof folder_path, "%s/tests/fuzz/corpus/gguf",
           getenv("STINT_SOURCE") ? getenv("STINT_SOURCE") : ".");
  DIR *const d = opendir(folder_path);
  cr_assert(d, "%s", folder_path);
  int n_inputs = 0;
  for (const struct dirent *e; (e = readdir(d));) {
    if (e->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", folder_path, e->d_name);
    static unsigned char input[1 << 16];
    const size_t n = fetch(path, input, sizeof input);
    unsigned char *const exact = malloc(n ? n : 1); /* so that ASan sees a byte too many */
    memcpy(exact, input, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    n_inputs++;
  }
  closedir(d);
  cr_assert_geq(n_inputs, 10, "%d inputs in %s", n_inputs, folder_path);
}
