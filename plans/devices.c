/* The table of device figures, and finding a row by name.
 *
 * Figures are those that the vendor prints in each product's public data sheet or architecture white paper: memory size
 * and bandwidth, non-tensor FP32 at boost clock, PCI Express generation and lanes. NVIDIA: "A100", "A10", "A30", "A40",
 * "L4", "L40", "L40S", "H100", "H200", "RTX A6000", "RTX 6000 Ada Generation" data sheets; "GeForce RTX 30 / 40 / 50
 * Series" specification pages and the Ampere GA102, Ada and Blackwell white papers. They are peaks, not measurements:
 * a run measures its own. Only what the backend runs on: compute capability 8.0 or newer. */
#include "plans/devices.h"

#define GIB ((uint64_t)1 << 30)
#define G   1e9
#define T   1e12
/* PCI Express, bytes a second one way: 16 or 32 GT/s a lane, 128 of 130 bits. */
#define PCIE4(lanes) ((lanes)*16e9 / 8 * 128 / 130)
#define PCIE5(lanes) ((lanes)*32e9 / 8 * 128 / 130)

static const device_figures table[] = {
    {"RTX 3060", 12 * GIB, 360 * G, PCIE4(16), 12.7 * T},
    {"RTX 3070", 8 * GIB, 448 * G, PCIE4(16), 20.3 * T},
    {"RTX 3080", 10 * GIB, 760 * G, PCIE4(16), 29.8 * T},
    {"RTX 3090", 24 * GIB, 936 * G, PCIE4(16), 35.6 * T},
    {"RTX 3090 Ti", 24 * GIB, 1008 * G, PCIE4(16), 40.0 * T},
    {"RTX 4060", 8 * GIB, 272 * G, PCIE4(8), 15.1 * T},
    {"RTX 4060 Ti 16GB", 16 * GIB, 288 * G, PCIE4(8), 22.1 * T},
    {"RTX 4070", 12 * GIB, 504 * G, PCIE4(16), 29.1 * T},
    {"RTX 4070 Ti SUPER", 16 * GIB, 672 * G, PCIE4(16), 44.1 * T},
    {"RTX 4080", 16 * GIB, 717 * G, PCIE4(16), 48.7 * T},
    {"RTX 4090", 24 * GIB, 1008 * G, PCIE4(16), 82.6 * T},
    {"RTX 5070", 12 * GIB, 672 * G, PCIE5(16), 30.9 * T},
    {"RTX 5070 Ti", 16 * GIB, 896 * G, PCIE5(16), 43.9 * T},
    {"RTX 5080", 16 * GIB, 960 * G, PCIE5(16), 56.3 * T},
    {"RTX 5090", 32 * GIB, 1792 * G, PCIE5(16), 104.8 * T},
    {"RTX A6000", 48 * GIB, 768 * G, PCIE4(16), 38.7 * T},
    {"RTX 6000 Ada Generation", 48 * GIB, 960 * G, PCIE4(16), 91.1 * T},
    {"A10", 24 * GIB, 600 * G, PCIE4(16), 31.2 * T},
    {"A30", 24 * GIB, 933 * G, PCIE4(16), 10.3 * T},
    {"A40", 48 * GIB, 696 * G, PCIE4(16), 37.4 * T},
    {"A100 40GB", 40 * GIB, 1555 * G, PCIE4(16), 19.5 * T},
    {"A100 80GB", 80 * GIB, 2039 * G, PCIE4(16), 19.5 * T},
    {"L4", 24 * GIB, 300 * G, PCIE4(16), 30.3 * T},
    {"L40", 48 * GIB, 864 * G, PCIE4(16), 90.5 * T},
    {"L40S", 48 * GIB, 864 * G, PCIE4(16), 91.6 * T},
    {"H100 PCIe", 80 * GIB, 2000 * G, PCIE5(16), 51.0 * T},
    {"H100 SXM", 80 * GIB, 3350 * G, PCIE5(16), 67.0 * T},
    {"H200", (uint64_t)141e9, 4800 * G, PCIE5(16), 67.0 * T},
};

/* What drivers call some of them. */
static const struct {
  const char *driver, *name;
} aliases[] = {
    {"A100-SXM4-40GB", "A100 40GB"},
    {"A100-PCIE-40GB", "A100 40GB"},
    {"A100-SXM4-80GB", "A100 80GB"},
    {"A100 80GB PCIe", "A100 80GB"},
    {"A100", "A100 80GB"},
    {"H100 80GB HBM3", "H100 SXM"},
    {"H100-80GB", "H100 SXM"},
    {"H100", "H100 SXM"},
    {"RTX 4060 Ti", "RTX 4060 Ti 16GB"},
    {"RTX 6000 Ada", "RTX 6000 Ada Generation"},
};

enum { NAME_BYTES = 64 };

/* Small letters and digits alone, without the maker's and the family's name: "NVIDIA GeForce RTX 4090" -> "rtx4090". */
static void bare(const char *name, char out[NAME_BYTES]) {
  static const char *const dropped[] = {"nvidia", "geforce"};
  size_t n = 0;
  for (; *name != '\0' && n < NAME_BYTES - 1; name++) {
    const char c = *name >= 'A' && *name <= 'Z' ? (char)(*name - 'A' + 'a') : *name;
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) out[n++] = c;
    for (int d = 0; d < 2; d++) {
      size_t same = 0;
      while (same < n && dropped[d][same] == out[same]) same++;
      if (same == n && dropped[d][same] == '\0') n = 0; /* the whole of it so far */
    }
  }
  out[n] = '\0';
}

static int same_name(const char *a, const char *b) {
  char x[NAME_BYTES], y[NAME_BYTES];
  bare(a, x);
  bare(b, y);
  size_t i = 0;
  while (x[i] != '\0' && x[i] == y[i]) i++;
  return x[i] == y[i];
}

const device_figures *device_figures_at(const size_t i) {
  return i < sizeof table / sizeof *table ? &table[i] : NULL;
}

const device_figures *device_figures_find(const char *name) {
  for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
    if (same_name(name, aliases[i].driver)) name = aliases[i].name;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (same_name(name, table[i].name)) return &table[i];
  return NULL;
}

uint64_t device_plannable_bytes(const uint64_t memory_bytes) {
  const uint64_t taken =
      memory_bytes / 50 + ((uint64_t)600 << 20); /* 2 % the driver's, 600 MiB context and libraries */
  return memory_bytes > taken ? memory_bytes - taken : 0;
}
