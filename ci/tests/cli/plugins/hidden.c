/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that read cells which the mask hides, each in another way. They are right if these hold finite numbers. */
#include "attend.h"

#include <math.h>
#include <stdio.h>

/* Which hidden cells are read, and how. */
typedef struct way {
    bool k, v;   /* adds 0 times the row of K; of V */
    bool mates;  /* only cells that another query of the call sees */
    bool stale;  /* only cells that no query of the call sees */
    bool counts; /* in place of a product: a NaN in V counts as 1 */
} way;

static bool sees(const kvb_attend *a, uint32_t t, uint32_t c)
{
    uint32_t cursor = 0;
    kvb_run run;
    while (kvb_mask_next(&a->mask, a->problem.n_tok, a->problem.n_cells, t, &cursor, &run))
        if (c >= run.begin && c < run.end)
            return true;
    return false;
}

static bool any_sees(const kvb_attend *a, uint32_t c)
{
    for (uint32_t t = 0; t < a->problem.n_tok; t++)
        if (sees(a, t, c))
            return true;
    return false;
}

static double score(const kvb_attend *a, const float *q, uint32_t kv, uint32_t c)
{
    const float *k = kvb_view_row(&a->k, kv, c);
    double s = 0;
    for (uint32_t d = 0; d < a->problem.k_dim; d++)
        s += (double)q[d] * k[d];
    return s * (double)a->problem.scale;
}

static void row_attend(const kvb_attend *a, uint32_t t, uint32_t h, way w)
{
    const kvb_problem *p = &a->problem;
    const size_t row = (size_t)t * p->n_heads + h;
    const float *q = a->q + row * p->k_dim;
    const uint32_t kv = h / (p->n_heads / p->n_kv_heads);
    double sum = 0, max = -INFINITY, acc[1024] = {0};
    for (uint32_t c = 0; c < p->n_cells; c++)
        if (sees(a, t, c))
            max = fmax(max, score(a, q, kv, c));
    for (uint32_t c = 0; c < p->n_cells; c++) {
        const float *v = kvb_view_row(&a->v, kv, c);
        if (sees(a, t, c)) {
            const double weight = exp(score(a, q, kv, c) - max);
            sum += weight;
            for (uint32_t d = 0; d < p->v_dim; d++)
                acc[d] += weight * v[d];
        } else if (w.mates + w.stale == 0 || any_sees(a, c) == w.mates) {
            sum += w.k ? 0 * score(a, q, kv, c) : 0;
            for (uint32_t d = 0; d < p->v_dim; d++)
                acc[d] += w.counts ? isnan(v[d]) : w.v ? 0.0 * v[d] : 0;
        }
    }
    for (uint32_t d = 0; d < p->v_dim; d++)
        ((float *)a->out)[row * p->v_dim + d] = (float)(max > -INFINITY ? acc[d] / sum : 0);
    if (a->lse)
        a->lse[row] = (float)(max > -INFINITY ? max + log(sum) : -INFINITY);
}

static int attend(const kvb_attend *a, way w)
{
    for (uint32_t i = 0; i < a->problem.n_tok * a->problem.n_heads; i++)
        row_attend(a, i / a->problem.n_heads, i % a->problem.n_heads, w);
    return 0;
}

static bool supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    bool f32 =
        kvb_format_is_f32(p->k_format) && kvb_format_is_f32(p->v_format) && p->out_elem == KVB_F32 && p->v_dim <= 1024;
    if (!f32)
        snprintf(why, why_bytes, "f32 rows only");
    return f32;
}

static void arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    *a = (kvb_arithmetic){.dot_chain = p->k_dim, .cell_chain = p->n_cells, .exp_error = 0x1p-50};
}

#define KERNEL(ID, NAME, ...)                                                                                          \
    static int attend_##ID(const kvb_attend *a)                                                                        \
    {                                                                                                                  \
        return attend(a, (way){__VA_ARGS__});                                                                          \
    }                                                                                                                  \
    static const kvb_kernel ID = {.name = NAME,                                                                        \
                                  .summary = "for tests",                                                              \
                                  .masks = KVB_MASKS_ALL,                                                              \
                                  .supports = supports,                                                                \
                                  .arithmetic = arithmetic,                                                            \
                                  .attend = attend_##ID};
KERNEL(none, "hidden-none", .k = false)
KERNEL(keys, "hidden-k", .k = true)
KERNEL(values, "hidden-v", .v = true)
KERNEL(mates, "hidden-mates", .v = true, .mates = true)
KERNEL(stale, "hidden-stale", .v = true, .stale = true)
KERNEL(counts, "hidden-counts", .counts = true)

static const kvb_kernel *const kernels[] = {&none, &keys, &values, &mates, &stale, &counts, NULL};

KVB_PLUGIN_EXPORT extern const kvb_plugin_v1 kvb_plugin;
const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "hidden", .kernels = kernels};
