/* The table of device figures: names as people and drivers write them, and figures that are possible. */
#include <criterion/criterion.h>

#include <string.h>

#include "plans/devices.h"

static void is(const char *asked, const char *name) {
  const device_figures *const found = device_figures_find(asked);
  cr_assert(found != NULL && strcmp(found->name, name) == 0, "%s -> %s, not %s", asked,
            found != NULL ? found->name : "nothing", name);
}

Test(devices, names) {
  is("rtx4090", "RTX 4090");
  is("RTX-4090", "RTX 4090");
  is("NVIDIA GeForce RTX 4090", "RTX 4090");
  is("NVIDIA GeForce RTX 3090 Ti", "RTX 3090 Ti");
  is("NVIDIA A100-SXM4-80GB", "A100 80GB");
  is("NVIDIA A100 80GB PCIe", "A100 80GB");
  is("a100-40gb", "A100 40GB");
  is("NVIDIA H100 80GB HBM3", "H100 SXM");
  is("h100 pcie", "H100 PCIe");
  is("NVIDIA L40S", "L40S");
  is("NVIDIA L4", "L4");
  is("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada Generation");
  cr_assert_null(device_figures_find("RTX 409"));
  cr_assert_null(device_figures_find(""));
  cr_assert_null(device_figures_find("NVIDIA"));
}

/* Each row finds itself; the ranges are those of the products, wide enough for all and narrow enough for a slip of a unit. */
Test(devices, figures) {
  size_t n = 0;
  for (const device_figures *d; (d = device_figures_at(n)) != NULL; n++) {
    is(d->name, d->name);
    cr_assert(d->memory_bytes >= (uint64_t)8 << 30 && d->memory_bytes <= (uint64_t)192 << 30, "%s", d->name);
    cr_assert(d->bytes_per_second > 200e9 && d->bytes_per_second < 9000e9, "%s", d->name);
    cr_assert(d->flops > 5e12 && d->flops < 150e12, "%s", d->name);
    cr_assert(d->link_bytes_per_second > 15e9 && d->link_bytes_per_second < 64e9, "%s", d->name);
    const uint64_t left = device_plannable_bytes(d->memory_bytes);
    cr_assert(left < d->memory_bytes && left > d->memory_bytes / 10 * 8, "%s", d->name);
  }
  cr_assert_geq(n, 20);
  cr_assert_eq(device_plannable_bytes(1 << 20), 0);
}
