/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-in kernels that are right, but add cells in as many parts as the team has threads: the last bits depend on that
 * number. "uneven": not if the problem is deterministic. "breaking": even then. "counting": then in as many parts as
 * the process has threads. */
#include "attend.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

/* One row in parts, each with its own maximum and f32 sums. */
static void row_attend(const kvb_attend *a, uint32_t t, uint32_t h, uint32_t parts)
{
    const kvb_problem *p = &a->problem;
    const float *q = a->q + ((size_t)t * p->n_heads + h) * p->k_dim;
    uint32_t kv = h / (p->n_heads / p->n_kv_heads);
    float max = -INFINITY, sum = 0, acc[512] = {0};
    for (uint32_t part = 0; part < parts; part++) {
        float part_max = -INFINITY, part_sum = 0, part_acc[512] = {0};
        for (int pass = 0; pass < 2; pass++) {
            uint32_t cursor = 0;
            kvb_run run;
            while (kvb_mask_next(&a->mask, p->n_tok, p->n_cells, t, &cursor, &run))
                for (uint32_t c = run.begin; c < run.end; c++) {
                    const float *k = kvb_view_row(&a->k, kv, c), *v = kvb_view_row(&a->v, kv, c);
                    float s = 0;
                    if (c % parts != part)
                        continue;
                    for (uint32_t d = 0; d < p->k_dim; d++)
                        s += q[d] * k[d];
                    s *= p->scale;
                    if (pass == 0) {
                        part_max = fmaxf(part_max, s);
                        continue;
                    }
                    float w = expf(s - part_max);
                    part_sum += w;
                    for (uint32_t d = 0; d < p->v_dim; d++)
                        part_acc[d] += w * v[d];
                }
        }
        float both = fmaxf(max, part_max);
        if (both == -INFINITY)
            continue;
        float old = expf(max - both), new = expf(part_max - both);
        sum = sum * old + part_sum * new;
        for (uint32_t d = 0; d < p->v_dim; d++)
            acc[d] = acc[d] * old + part_acc[d] * new;
        max = both;
    }
    size_t row = (size_t)t * p->n_heads + h;
    for (uint32_t d = 0; d < p->v_dim; d++)
        ((float *)a->out)[row * p->v_dim + d] = sum > 0 ? acc[d] / sum : 0;
    if (a->lse)
        a->lse[row] = sum > 0 ? max + logf(sum) : -INFINITY;
}

static int rows_attend(const kvb_attend *a, uint32_t parts)
{
    for (uint32_t i = 0; i < a->problem.n_tok * a->problem.n_heads; i++)
        row_attend(a, i / a->problem.n_heads, i % a->problem.n_heads, parts);
    return 0;
}

static int attend(const kvb_attend *a)
{
    return rows_attend(a, a->problem.deterministic ? 1 : a->team->n);
}

static int attend_breaking(const kvb_attend *a)
{
    return rows_attend(a, a->team->n);
}

static int attend_counting(const kvb_attend *a)
{
    struct stat tasks = {.st_nlink = 3}; /* a folder for each thread, and two */
    stat("/proc/self/task", &tasks);
    return rows_attend(a, (uint32_t)tasks.st_nlink - 2);
}

static bool supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    bool good = p->k_format->elem == KVB_F32 && p->v_format->elem == KVB_F32 && !p->k_format->transform &&
                !p->v_format->transform && p->out_elem == KVB_F32 && p->v_dim <= 512 && !p->has_sinks &&
                p->softcap == 0;
    if (!good && why_bytes)
        strncpy(why, "f32 rows of at most 512 only", why_bytes - 1);
    return good;
}

static void arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    *a = (kvb_arithmetic){.dot_chain = p->k_dim,
                          .cell_chain = p->n_cells + 64,
                          .rescales = 64,
                          .exp_error = 0x1p-23,
                          .exp_floor = 0x1p-126};
}

#define KERNEL(text, what)                                                                                             \
    &(const kvb_kernel)                                                                                                \
    {                                                                                                                  \
        .name = text, .summary = "for tests", .masks = KVB_MASK_BIT(KVB_MASK_NONE) | KVB_MASK_BIT(KVB_MASK_EXPLICIT),  \
        .supports = supports, .arithmetic = arithmetic, .attend = what                                                 \
    }
static const kvb_kernel *const kernels[] = {KERNEL("uneven", attend), KERNEL("breaking", attend_breaking),
                                            KERNEL("counting", attend_counting), NULL};
KVB_PLUGIN_EXPORT extern const kvb_plugin_v1 kvb_plugin;
const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "uneven", .kernels = kernels};
