/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in of kernels that are wrong only in few rows, calls, layers or threads. A run must find each. */
#include "attend.h"

#include <math.h>
#include <string.h>

#define MOST 4096

/* One row of f32, computed in double. */
static void row_attend(const kvb_attend *a, uint32_t row, double scale)
{
    const kvb_problem *p = &a->problem;
    uint32_t t = row / p->n_heads, kv = row % p->n_heads / (p->n_heads / p->n_kv_heads), cursor = 0;
    double sum = 0, max = -INFINITY, acc[MOST] = {0};
    for (kvb_run run; kvb_mask_next(&a->mask, p->n_tok, p->n_cells, t, &cursor, &run);)
        for (uint32_t c = run.begin; c < run.end; c++) {
            const float *q = a->q + (size_t)row * p->k_dim, *k = kvb_view_row(&a->k, kv, c),
                        *v = kvb_view_row(&a->v, kv, c);
            double s = 0, old = max;
            for (uint32_t d = 0; d < p->k_dim; d++)
                s += (double)q[d] * k[d];
            s *= scale;
            max = fmax(max, s);
            double keep = exp(old - max), w = exp(s - max);
            sum = sum * keep + w;
            for (uint32_t d = 0; d < p->v_dim; d++)
                acc[d] = acc[d] * keep + w * v[d];
        }
    for (uint32_t d = 0; d < p->v_dim; d++)
        ((float *)a->out)[(size_t)row * p->v_dim + d] = (float)(acc[d] / sum);
    a->lse[row] = (float)(max + log(sum));
}

static void rows_attend(const kvb_attend *a, uint32_t begin, uint32_t end, double factor)
{
    for (uint32_t row = begin; row < end; row++)
        row_attend(a, row, (double)a->problem.scale * factor);
}

static uint32_t rows_of(const kvb_attend *a)
{
    return a->problem.n_tok * a->problem.n_heads;
}

static float *out_of(const kvb_attend *a, uint32_t row)
{
    return (float *)a->out + (size_t)row * a->problem.v_dim;
}

static uint32_t calls;

/* Wrong in one row of the 30th call, which is not in the first or last event, head or layer. */
static int one_nan(const kvb_attend *a)
{
    uint32_t row = rows_of(a) / 2;
    rows_attend(a, 0, rows_of(a), 1);
    calls++;
    for (uint32_t c = 0; calls == 30 && c < a->problem.v_dim; c++)
        out_of(a, row)[c] = NAN;
    return 0;
}

/* Every 1000th row is one of the previous call. */
static int keeps(const kvb_attend *a)
{
    static float last[MOST];
    static uint32_t rows;
    uint32_t dim = a->problem.v_dim;
    rows_attend(a, 0, rows_of(a), 1);
    for (uint32_t row = 0; row < rows_of(a); row++)
        if (++rows % 1000 == 0)
            memcpy(out_of(a, row), last, dim * sizeof *last);
    memcpy(last, out_of(a, 0), dim * sizeof *last);
    return 0;
}

/* Wrong in layer 1, which it recognises by the first token's K row: the second such row that it sees. Hidden rows may
 * be poisoned, so it only reads that row if the first query sees it. */
static int second_layer(const kvb_attend *a)
{
    static float met[2];
    static uint32_t n;
    uint32_t cursor = 0;
    kvb_run run;
    rows_attend(a, 0, rows_of(a), 1);
    if (!kvb_mask_next(&a->mask, a->problem.n_tok, a->problem.n_cells, 0, &cursor, &run) || run.begin > 0)
        return 0;
    float first = *(const float *)kvb_view_row(&a->k, 0, 0);
    if (n < 2 && (n == 0 || first != met[0]))
        met[n++] = first;
    if (n == 2 && first == met[1])
        rows_attend(a, rows_of(a) / 2, rows_of(a) / 2 + 1, 1.001);
    return 0;
}

static void part(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_attend *a = ctx;
    uint32_t rows = rows_of(a);
    rows_attend(a, rows * i / n, rows * (i + 1) / n, i ? 1.001 : 1);
}

static int second_thread(const kvb_attend *a)
{
    a->team->run(a->team, part, (void *)(uintptr_t)a);
    return 0;
}

/* Wrong from the second pass on, which begins when there are fewer cells than before. */
static int second_pass(const kvb_attend *a)
{
    static uint32_t cells;
    static bool later;
    later = later || a->problem.n_cells < cells;
    cells = a->problem.n_cells;
    rows_attend(a, 0, rows_of(a), 1);
    if (later)
        rows_attend(a, rows_of(a) - 1, rows_of(a), 1.001);
    return 0;
}

static bool supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    (void)why, (void)why_bytes;
    return kvb_format_is_f32(p->k_format) && kvb_format_is_f32(p->v_format) && p->out_elem == KVB_F32 &&
           p->softcap == 0 && !p->has_sinks;
}

static void arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    *a = (kvb_arithmetic){.dot_chain = p->k_dim, .cell_chain = p->n_cells, .exp_error = 0x1p-50};
}

#define KERNEL(text, what)                                                                                             \
    &(const kvb_kernel)                                                                                                \
    {                                                                                                                  \
        .name = text, .summary = "for tests", .masks = KVB_MASKS_ALL, .supports = supports, .arithmetic = arithmetic,  \
        .attend = what                                                                                                 \
    }
static const kvb_kernel *const kernels[] = {
    KERNEL("seldom-nan", one_nan),          KERNEL("seldom-keeps", keeps),      KERNEL("seldom-layer", second_layer),
    KERNEL("seldom-thread", second_thread), KERNEL("seldom-pass", second_pass), NULL};

KVB_PLUGIN_EXPORT extern const kvb_plugin_v1 kvb_plugin;
const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "seldom", .kernels = kernels};
