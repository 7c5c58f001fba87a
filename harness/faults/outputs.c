/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that compute what is right and leave something else. Outputs are f32 here. */
#include "harness/faults/fault.h"

#include <math.h>
#include <string.h>

static float *row_of(const kvb_attend *x, uint32_t query, uint32_t head)
{
    return (float *)x->out + ((size_t)query * x->problem.n_heads + head) * x->problem.v_dim;
}

static float *last_row(const kvb_attend *x)
{
    return row_of(x, x->problem.n_tok - 1, x->problem.n_heads - 1);
}

static size_t row_bytes(const kvb_attend *x)
{
    return x->problem.v_dim * sizeof(float);
}

/* ---- whole rows ----------------------------------------------------------------------------------------------- */

static int all_zero(const kvb_attend *x)
{
    memset(x->out, 0, (size_t)x->problem.n_tok * x->problem.n_heads * row_bytes(x));
    return 0;
}

/* By a thirtieth: a mean squared error of 1e-3. */
static int all_grown(const kvb_attend *x)
{
    for (size_t i = 0; i < (size_t)x->problem.n_tok * x->problem.n_heads * x->problem.v_dim; i++)
        ((float *)x->out)[i] *= 31.0f / 30;
    return 0;
}

static void tolerated(kvb_kernel *wrong)
{
    wrong->flags |= KVB_KERNEL_FOREIGN;
    wrong->tolerance = (kvb_tolerance){KVB_TOLERANCE_NMSE, 5e-4, 0, "a planted fault"};
}

static int last_zero(const kvb_attend *x)
{
    memset(last_row(x), 0, row_bytes(x));
    return 0;
}

static int heads_swapped(const kvb_attend *x)
{
    for (uint32_t t = 0; t < x->problem.n_tok && x->problem.n_heads > 1; t++)
        for (uint32_t c = 0; c < x->problem.v_dim; c++) {
            float *a = row_of(x, t, 0) + c, *b = row_of(x, t, 1) + c, kept = *a;
            *a = *b;
            *b = kept;
        }
    return 0;
}

static int query_before(const kvb_attend *x)
{
    for (uint32_t t = x->problem.n_tok - 1; t > 0; t--)
        memcpy(row_of(x, t, 0), row_of(x, t - 1, 0), row_bytes(x));
    return 0;
}

/* What lay there before the call: of one row, in every call or in one of a thousand; of all rows. */
static float found[KVB_MODEL_WIDTH];

static void last_found(kvb_attend *x)
{
    memcpy(found, last_row(x), row_bytes(x));
}

static int last_left(const kvb_attend *x)
{
    memcpy(last_row(x), found, row_bytes(x));
    return 0;
}

static int last_of_other_call(const kvb_attend *x)
{
    static float kept[KVB_MODEL_WIDTH];
    static uint32_t calls;
    if (++calls % 100 == 0)
        memcpy(last_row(x), kept, row_bytes(x));
    memcpy(kept, last_row(x), row_bytes(x));
    return 0;
}

static int half_by_second_thread(const kvb_attend *x)
{
    for (uint32_t t = x->problem.n_tok / 2; t < x->problem.n_tok && x->team && x->team->n > 1; t++)
        for (uint32_t c = 0; c < x->problem.v_dim; c++)
            row_of(x, t, 0)[c] *= 1.01f;
    return 0;
}

static int second_layer(const kvb_attend *x)
{
    static uint32_t calls;
    if (++calls % 2 == 0) /* two layers a step */
        *last_row(x) *= 1.01f;
    return 0;
}

/* ---- elements ------------------------------------------------------------------------------------------------- */

static int one_nan(const kvb_attend *x)
{
    last_row(x)[x->problem.v_dim - 1] = NAN;
    return 0;
}

static int one_infinite(const kvb_attend *x)
{
    *last_row(x) = INFINITY;
    return 0;
}

static int one_off(const kvb_attend *x)
{
    *last_row(x) *= 1.001f;
    return 0;
}

static int nan_once(const kvb_attend *x)
{
    static uint32_t calls;
    return ++calls == 100 ? one_nan(x) : 0;
}

/* A row that samples need not hold: they always have the first and the last. */
static float *row_elsewhere(const kvb_attend *x)
{
    return row_of(x, x->problem.n_tok / 2, x->problem.n_heads / 3);
}

static int nan_elsewhere(const kvb_attend *x)
{
    static uint32_t calls;
    if (++calls % 30 != 20)
        return 0;
    for (uint32_t c = 0; c < x->problem.v_dim; c++)
        row_elsewhere(x)[c] = NAN;
    return 0;
}

static int stale_elsewhere(const kvb_attend *x)
{
    static float kept[KVB_MODEL_WIDTH];
    static uint32_t calls;
    if (++calls % 30 == 20)
        memcpy(row_elsewhere(x), kept, row_bytes(x));
    memcpy(kept, row_elsewhere(x), row_bytes(x));
    return 0;
}

static int nan_often(const kvb_attend *x)
{
    static uint32_t calls;
    return ++calls % 3 == 2 ? one_nan(x) : 0;
}

static int last_channel_zero(const kvb_attend *x)
{
    for (uint32_t t = 0; t < x->problem.n_tok; t++)
        for (uint32_t h = 0; h < x->problem.n_heads; h++)
            row_of(x, t, h)[x->problem.v_dim - 1] = 0;
    return 0;
}

static int channels_turned(const kvb_attend *x)
{
    float *row = last_row(x), first = *row;
    memmove(row, row + 1, row_bytes(x) - sizeof *row);
    row[x->problem.v_dim - 1] = first;
    return 0;
}

static int to_bf16(const kvb_attend *x)
{
    float *out = x->out;
    for (size_t i = 0; i < (size_t)x->problem.n_tok * x->problem.n_heads * x->problem.v_dim; i++) {
        uint32_t bits;
        memcpy(&bits, &out[i], sizeof bits);
        bits = (bits + 0x8000u) & 0xffff0000u;
        memcpy(&out[i], &bits, sizeof bits);
    }
    return 0;
}

static int all_off(const kvb_attend *x)
{
    float *out = x->out;
    for (size_t i = 0; i < (size_t)x->problem.n_tok * x->problem.n_heads * x->problem.v_dim; i++)
        out[i] *= 1 + 6e-6f;
    return 0;
}

/* ---- log-sum-exp ---------------------------------------------------------------------------------------------- */

static int lse_of_base_2(const kvb_attend *x)
{
    for (size_t i = 0; x->lse && i < (size_t)x->problem.n_tok * x->problem.n_heads; i++)
        x->lse[i] *= 1.442695f;
    return 0;
}

static int lse_zero(const kvb_attend *x)
{
    for (size_t i = 0; x->lse && i < (size_t)x->problem.n_tok * x->problem.n_heads; i++)
        x->lse[i] = 0;
    return 0;
}

static int lse_off(const kvb_attend *x)
{
    for (size_t i = 0; x->lse && i < (size_t)x->problem.n_tok * x->problem.n_heads; i++)
        x->lse[i] += 1e-3f;
    return 0;
}

static float found_lse;

static void lse_found(kvb_attend *x)
{
    found_lse = x->lse ? *x->lse : 0;
}

static int lse_left(const kvb_attend *x)
{
    if (x->lse)
        *x->lse = found_lse;
    return 0;
}

const kvb_fault kvb_output_faults[] = {
    {"out-zero", "all outputs are 0, the log-sum-exp is right", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, agent-fork-8x128 seq q8_0 flash, plain-decode-8x128 seq q8_0 flash-int8, "
     "plain-decode seq bf16 flash-bf16",
     .after = all_zero},
    {"out-row-zero", "the last row is 0", KVB_CHECK_BOUND, "batched-multi-seq seq f32 flash", .after = last_zero},
    {"out-heads-swapped", "two heads are swapped", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, eagle-tree tree f16 flash, plain-decode-8x128 seq q8_0 flash-int8, "
     "plain-decode seq bf16 flash-bf16",
     .after = heads_swapped},
    {"out-of-query-before", "a query gets the outputs of the one before it", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash", .after = query_before},
    {"out-left", "the last row is left unwritten", KVB_CHECK_WRITTEN,
     "plain-decode seq f32 flash, eagle-tree tree f16 openblas", .before = last_found, .after = last_left},
    {"out-of-other-call", "in one call of a hundred a row is that of the call before", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash", .after = last_of_other_call},
    {"out-second-thread", "what a second thread computes is off by 1 %", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash 2", .after = half_by_second_thread},
    {"out-second-layer", "an element of every other layer is off by 1 %", KVB_CHECK_BOUND, "plain-decode seq f32 flash",
     .after = second_layer},
    {"out-beyond-tolerance", "what a foreign kernel writes is off by more than its own project tolerates",
     KVB_CHECK_TOLERANCE, "plain-decode seq f32 flash, agent-fork seq f16 openblas", .after = all_grown,
     .kernel = tolerated},
    {"out-nan", "one element is NaN", KVB_CHECK_BOUND, "plain-decode seq f32 flash, agent-fork seq f16 openblas",
     .after = one_nan},
    {"out-nan-once", "one element of the hundredth call is NaN", KVB_CHECK_BOUND, "plain-decode seq f32 flash",
     .after = nan_once},
    {"out-infinite", "one element is infinite", KVB_CHECK_BOUND, "plain-decode seq f32 flash", .after = one_infinite},
    {"out-one-off", "one element is off by 0.1 %", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, plain-decode-8x128 seq f16 flash", .after = one_off},
    {"out-channel-zero", "the last channel is 0", KVB_CHECK_BOUND, "plain-decode seq f32 flash",
     .after = last_channel_zero},
    {"out-channels-turned", "channels of a row lie one place off", KVB_CHECK_BOUND, "plain-decode seq f32 flash",
     .after = channels_turned},
    {"out-rounded", "outputs are rounded to bf16, which is not declared", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, plain-decode seq f16 openblas", .after = to_bf16},
    {"out-off-0.000006", "outputs are too large by 0.0006 %", KVB_CHECK_FILTER,
     "plain-decode seq f32 flash, plain-decode-8x128 seq q8_0 openblas", .after = all_off},
    {"lse-base-2", "the log-sum-exp is that of base 2", KVB_CHECK_BOUND, "plain-decode seq f32 flash",
     .after = lse_of_base_2},
    {"lse-zero", "the log-sum-exp is 0", KVB_CHECK_BOUND, "plain-decode seq f32 flash", .after = lse_zero},
    {"lse-off", "the log-sum-exp is off by 0.001", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, plain-decode-8x128 seq q8_0 flash-int8, plain-decode seq bf16 flash-bf16",
     .after = lse_off},
    {"lse-left", "a log-sum-exp is left unwritten", KVB_CHECK_WRITTEN, "plain-decode seq f32 flash",
     .before = lse_found, .after = lse_left},
    {"out-nan-elsewhere", "a row is NaN in one call of thirty, which no sample may hold", KVB_CHECK_OPINION,
     "plain-decode-8x128 seq f16 flash sampled, agent-fork-8x128 slab q8_0 flash sampled", .after = nan_elsewhere},
    {"out-stale-elsewhere", "in one call of thirty a row is that of the call before, which no sample may hold",
     KVB_CHECK_OPINION, "plain-decode-8x128 seq f16 flash sampled", .after = stale_elsewhere},
    {"out-nan-unjudged", "a row is NaN in one call of three, of a workload too large for a second opinion",
     KVB_CHECK_FINITE, "long-decode contiguous f16 flash sampled alone", .after = nan_often},
    {.name = NULL},
};
