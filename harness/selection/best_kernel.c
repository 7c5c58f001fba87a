/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for the fastest record of a combination. */
#include "harness/selection/best_kernel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "harness/command_line.h"
#include "harness/selection/faces.h"
#include "kernels/cpu.h"

int kvb_best_open(kvb_best *best, const char *path, const kvb_registry *registry, char *why, size_t why_bytes)
{
    *best = (kvb_best){.path = path, .registry = registry};
    return kvb_result_load(path, &best->file, why, why_bytes);
}

int kvb_best_prepare(kvb_best *best, const kvb_words *kernels, const char *path, const kvb_registry *registry,
                     char *why, size_t why_bytes)
{
    char said[512];
    bool asked = false;
    for (size_t i = 0; i < kernels->n; i++)
        asked = asked || !strcmp(kernels->at[i], kvb_kernel_best.name);
    if (asked == !path)
        snprintf(why, why_bytes, "%s",
                 asked ? "--kernel best needs --best-from F.jsonl: the records of an earlier run of several kernels"
                       : "--best-from is what --kernel best goes by; say --kernel best too");
    else if (asked && kvb_best_open(best, path, registry, said, sizeof said))
        snprintf(why, why_bytes, "--best-from: %s", said);
    else {
        const char *isa = kvb_cpu_level_names[kvb_cpu()];
        if (asked && strcmp(best->file->manifest.isa, isa))
            kvb_complain("run", 0, "note: %s was measured at level %s, this run is at %s", path,
                         best->file->manifest.isa, isa);
        return 0;
    }
    return -EINVAL;
}

void kvb_best_close(kvb_best *best)
{
    if (best->file)
        kvb_result_free(best->file);
    best->file = NULL;
}

/* Do these two belong to the same combination, apart from the kernel? */
static bool is_same(const kvb_result *a, const kvb_result *b)
{
    return !(kvb_results_differ(a, b) & ~(UINT32_C(1) << KVB_RANKED_KERNEL));
}

const kvb_kernel *kvb_best_find(const kvb_best *best, const kvb_result *of, char *why, size_t why_bytes)
{
    const kvb_result *fastest = NULL;
    const kvb_kernel *found = NULL;
    for (size_t i = 0; i < best->file->n; i++) {
        const kvb_result *r = &best->file->results[i];
        bool timed = r->status == KVB_STATUS_PASS && r->rho >= 0 && r->time.all.median >= 0; /* not NaN */
        if (timed && is_same(r, of) && (!fastest || r->time.all.median < fastest->time.all.median))
            fastest = r;
    }
    if (fastest)
        found = kvb_registry_find(best->registry, KVB_KERNELS, fastest->kernel);
    if (!fastest)
        snprintf(why, why_bytes, "no kernel passed here in %s", best->path);
    else if (!found)
        snprintf(why, why_bytes, "kernel %s, the fastest here in %s, is not loaded (--plugin)", fastest->kernel,
                 best->path);
    return found;
}
