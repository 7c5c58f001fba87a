/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/blas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LIBRARY "libopenblas.so.0"

static const char *wanted;
static void *library;
static kvb_blas blas;

void kvb_blas_core(const char *core)
{
    wanted = core;
}

const char *kvb_blas_better(const char *core, kvb_cpu_level level)
{
#if defined(__x86_64__)
    /* Cores that fit levels from `least` up. The first one runs on every CPU of these levels. */
    static const struct {
        kvb_cpu_level least;
        const char *cores[16];
    } fits[] = {
        {KVB_CPU_AVX512, {"SkylakeX", "Cooperlake", "Sapphirerapids", "Zen"}},
        {KVB_CPU_AVX2, {"Haswell", "Zen"}},
        {KVB_CPU_PORTABLE,
         {"Prescott", "Core2", "Penryn", "Dunnington", "Nehalem", "Sandybridge", "Atom", "Athlon", "Opteron",
          "Opteron_SSE3", "Barcelona", "Bobcat", "Bulldozer", "Piledriver", "Steamroller"}},
    };
    size_t i = 0;
    while (level < fits[i].least)
        i++;
    for (size_t c = 0; fits[i].cores[c]; c++)
        if (!strcasecmp(core, fits[i].cores[c]))
            return NULL;
    return fits[i].cores[0];
#else
    (void)core, (void)level;
    return NULL;
#endif
}

static const struct {
    const char *name;
    size_t at;
} functions[] = {
    {"cblas_sgemm", offsetof(kvb_blas, sgemm)},
    {"cblas_sgemv", offsetof(kvb_blas, sgemv)},
    {"openblas_get_config", offsetof(kvb_blas, config)},
    {"openblas_get_corename", offsetof(kvb_blas, core)},
    {"openblas_get_parallel", offsetof(kvb_blas, parallel)},
    {"openblas_get_num_threads", offsetof(kvb_blas, threads)},
    {"openblas_set_num_threads", offsetof(kvb_blas, set_threads)},
};

static bool library_load(char *why, size_t why_bytes)
{
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof functions / sizeof *functions && library; i++) {
        void *function = dlsym(library, functions[i].name);
        memcpy((char *)&blas + functions[i].at, &function, sizeof function);
        if (!function)
            library = NULL;
    }
    if (!library && why)
        snprintf(why, why_bytes, "no OpenBLAS: %s", dlerror());
    return library;
}

const kvb_blas *kvb_blas_open(char *why, size_t why_bytes)
{
    if (library)
        return &blas;
    if (wanted && strcmp(wanted, KVB_BLAS_KEEP))
        setenv("OPENBLAS_CORETYPE", wanted, 1);
    if (!library_load(why, why_bytes))
        return NULL;
    const char *better = wanted ? NULL : kvb_blas_better(blas.core(), kvb_cpu());
    if (better) {
        setenv("OPENBLAS_CORETYPE", better, 1);
        dlclose(library);
        if (!library_load(why, why_bytes))
            return NULL;
    }
    return &blas;
}

const void *kvb_blas_inside(void)
{
    return library ? (const void *)(uintptr_t)blas.core : NULL;
}
