/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in of kernels that call an engine, which allocates, has its own thread and gives no log-sum-exp. The name
 * tells how wrong a kernel is. `foreign-tame` does the same but does not declare that it is foreign. */
#include "attend.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void row_attend(const kvb_attend *a, uint32_t row, float factor, double *sums)
{
    const kvb_problem *p = &a->problem;
    const uint32_t t = row / p->n_heads, kv = row % p->n_heads / (p->n_heads / p->n_kv_heads);
    double max = -INFINITY, sum = 0;
    uint32_t cursor = 0;
    memset(sums, 0, p->v_dim * sizeof *sums);
    for (kvb_run run; kvb_mask_next(&a->mask, p->n_tok, p->n_cells, t, &cursor, &run);)
        for (uint32_t c = run.begin; c < run.end; c++) {
            const float *q = a->q + (size_t)row * p->k_dim, *k = kvb_view_row(&a->k, kv, c),
                        *v = kvb_view_row(&a->v, kv, c);
            double s = 0, old = max;
            for (uint32_t d = 0; d < p->k_dim; d++)
                s += (double)q[d] * k[d] * p->scale;
            max = fmax(max, s);
            const double keep = exp(old - max), w = exp(s - max);
            sum = sum * keep + w;
            for (uint32_t d = 0; d < p->v_dim; d++)
                sums[d] = sums[d] * keep + w * v[d];
        }
    for (uint32_t d = 0; d < p->v_dim; d++)
        ((float *)a->out)[(size_t)row * p->v_dim + d] = factor * (float)(sums[d] / sum);
}

typedef struct work {
    const kvb_attend *args;
    float factor;
    double *sums;
} work;

static void *thread_main(void *ctx)
{
    const work *w = ctx;
    for (uint32_t row = 0; row < w->args->problem.n_tok * w->args->problem.n_heads; row++)
        row_attend(w->args, row, w->factor, w->sums);
    return NULL;
}

static int attend_by(const kvb_attend *a, float factor)
{
    work w = {a, factor, malloc(a->problem.v_dim * sizeof(double))};
    pthread_t thread;
    int error = w.sums ? -pthread_create(&thread, NULL, thread_main, &w) : -ENOMEM;
    if (!error)
        pthread_join(thread, NULL);
    free(w.sums);
    return error;
}

static int right(const kvb_attend *a)
{
    return attend_by(a, 1);
}

static int near(const kvb_attend *a) /* a mean squared error of 1e-4 */
{
    return attend_by(a, 1.01f);
}

static int far(const kvb_attend *a) /* of 9e-4 */
{
    return attend_by(a, 1.03f);
}

static bool available(char *why, size_t why_bytes)
{
    if (why_bytes > sizeof "an engine of a test")
        strcpy(why, "an engine of a test");
    return true;
}

static bool supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    (void)why, (void)why_bytes;
    return kvb_format_is_f32(p->k_format) && kvb_format_is_f32(p->v_format) && p->out_elem == KVB_F32;
}

static void arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    *a = (kvb_arithmetic){.dot_chain = p->k_dim, .cell_chain = p->n_cells, .exp_error = 0x1p-23, .exp_floor = 0x1p-126};
}

#define KERNEL(text, bits, what, ...)                                                                                  \
    &(const kvb_kernel)                                                                                                \
    {                                                                                                                  \
        .name = text, .summary = "for tests", .flags = bits, .masks = KVB_MASKS_ALL, .available = available,           \
        .supports = supports, .arithmetic = arithmetic, .attend = what, .tolerance = {                                 \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

#define FOREIGN KVB_KERNEL_FOREIGN | KVB_KERNEL_NO_LSE
#define RULE    KVB_TOLERANCE_NMSE, 5e-4, 0, "a test"
static const kvb_kernel *const kernels[] = {
    KERNEL("foreign-right", FOREIGN, right, RULE),
    KERNEL("foreign-near", FOREIGN, near, RULE),
    KERNEL("foreign-far", FOREIGN, far, RULE),
    KERNEL("foreign-close", FOREIGN, near, KVB_TOLERANCE_CLOSE, 1e-3, 1e-2, "a test"),
    KERNEL("foreign-bound", FOREIGN, near, .kind = KVB_TOLERANCE_NONE),
    KERNEL("foreign-tame", KVB_KERNEL_NO_LSE, right, .kind = KVB_TOLERANCE_NONE),
#ifdef RULE_OF_TAME
    KERNEL("foreign-no-rule", KVB_KERNEL_NO_LSE, right, RULE),
#endif
    NULL,
};

KVB_PLUGIN_EXPORT extern const kvb_plugin_v1 kvb_plugin;
const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "foreign", .kernels = kernels};
