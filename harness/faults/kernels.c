/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that see, scale, read or combine wrongly. */
#include "harness/faults/fault.h"

#include <math.h>
#include <string.h>

/* ---- what a query sees -------------------------------------------------------------------------------------- */

static bool bit_get(const uint64_t *row, uint32_t cell)
{
    return row[cell / 64] >> cell % 64 & 1;
}

static void bit_turn(uint64_t *row, uint32_t cell)
{
    row[cell / 64] ^= UINT64_C(1) << cell % 64;
}

/* The visible cell before which `before` others are visible, or n_cells. */
static uint32_t seen_after(const kvb_attend *x, const uint64_t *row, uint32_t before)
{
    uint32_t cell = 0;
    while (cell < x->problem.n_cells && !(bit_get(row, cell) && before-- == 0))
        cell++;
    return cell;
}

static uint32_t seen_count(const kvb_attend *x, const uint64_t *row)
{
    uint32_t n = 0;
    for (uint32_t cell = 0; cell < x->problem.n_cells; cell++)
        n += bit_get(row, cell);
    return n;
}

/* A query that sees fewer than three cells is left alone: something must be seen. */
static void seen_drop(const kvb_attend *x, uint64_t *row, uint32_t eighths)
{
    uint32_t n = seen_count(x, row);
    if (n > 2)
        bit_turn(row, seen_after(x, row, (n - 1) * eighths / 8));
}

static void drop_first(const kvb_attend *x, uint32_t t, uint64_t *row)
{
    (void)t;
    seen_drop(x, row, 0);
}

static void drop_middle(const kvb_attend *x, uint32_t t, uint64_t *row)
{
    (void)t;
    seen_drop(x, row, 4);
}

static void drop_last(const kvb_attend *x, uint32_t t, uint64_t *row)
{
    (void)t;
    seen_drop(x, row, 8);
}

static void drop_rarely(const kvb_attend *x, uint32_t t, uint64_t *row)
{
    static uint32_t calls;
    if (t == 0 && ++calls % 97 == 0)
        seen_drop(x, row, 4);
}

static void see_all(const kvb_attend *x, uint32_t t, uint64_t *row)
{
    (void)t;
    for (uint32_t cell = 0; cell < x->problem.n_cells; cell++)
        row[cell / 64] |= UINT64_C(1) << cell % 64;
}

/* The first hidden cell behind what is seen: that of a batch mate, a sibling, or the next token. */
static void see_one_more(const kvb_attend *x, uint32_t t, uint64_t *row)
{
    (void)t;
    uint32_t n = seen_count(x, row), last = n ? seen_after(x, row, n - 1) : 0;
    if (last + 1 < x->problem.n_cells)
        bit_turn(row, last + 1);
}

static void see_as_last(const kvb_attend *x, uint32_t t, uint64_t *row)
{
    const uint64_t *last = x->mask.bits + (x->problem.n_tok - 1) * x->mask.row_words;
    if (x->problem.n_tok > 16) /* in long prefills alone */
        memcpy(row, last, (x->problem.n_cells + 63) / 64 * sizeof *row);
    (void)t;
}

static void see_as_neighbour(const kvb_attend *x, uint32_t t, uint64_t *row)
{
    if (t > 0)
        memcpy(row, x->mask.bits + (t - 1) * x->mask.row_words, (x->problem.n_cells + 63) / 64 * sizeof *row);
}

/* One cell too few on the far side, as a window one position short. */
static void window_short(const kvb_attend *x, uint32_t t, uint64_t *row)
{
    uint32_t first = seen_after(x, row, 0);
    if (first > 0 && first + 1 < x->problem.n_cells)
        seen_drop(x, row, 0);
    (void)t;
}

/* A word of the mask's bits is read once for two. */
static void see_by_words(const kvb_attend *x, uint32_t t, uint64_t *row)
{
    (void)t;
    if (x->problem.n_cells > 128)
        row[1] = row[0];
}

/* Of drafts: the mask is as wide as rows were before the last one came. */
static void see_narrower(const kvb_attend *x, uint32_t t, uint64_t *row)
{
    const uint32_t last = x->problem.n_cells - 1;
    (void)t;
    if (x->problem.n_tok > 1)
        row[last / 64] &= ~(UINT64_C(1) << last % 64);
}

/* ---- what goes in ------------------------------------------------------------------------------------------- */

static void scale_1001(kvb_attend *x)
{
    x->problem.scale *= 1.001f;
}

static void scale_101(kvb_attend *x)
{
    x->problem.scale *= 1.01f;
}

static void scale_of_v(kvb_attend *x)
{
    x->problem.scale = 1 / sqrtf(2.0f * (float)x->problem.v_dim);
}

static void k_of_neighbour(kvb_attend *x)
{
    x->k.base = (const char *)x->k.base + x->k.cell_stride;
}

static void v_of_first_head(kvb_attend *x)
{
    x->v.head_stride = x->v.scale_head_stride = x->v.zero_head_stride = x->v.recent_head_stride = 0;
}

static void k_of_first_head(kvb_attend *x)
{
    x->k.head_stride = x->k.scale_head_stride = x->k.zero_head_stride = x->k.recent_head_stride = 0;
}

static void scales_of_first_cell(kvb_attend *x)
{
    x->v.scale_cell_stride = 0;
}

static void zeros_of_first_cell(kvb_attend *x)
{
    x->k.zero_cell_stride = 0;
}

static void scales_of_first_head(kvb_attend *x)
{
    x->k.scale_head_stride = 0;
}

static void k_for_v(kvb_attend *x)
{
    if (x->problem.k_dim == x->problem.v_dim)
        x->v = x->k;
}

static void softcap_off(kvb_attend *x)
{
    x->problem.softcap = 0;
}

static void sinks_off(kvb_attend *x)
{
    x->problem.has_sinks = false;
    x->sinks = NULL;
}

/* ---- two partial results --------------------------------------------------------------------------------------- */

/* Attends some of the cells apart, and puts the whole and these together: with weights of lse, or evenly. */
#define MOST (1u << 20) /* floats of a partial result */
static float other_out[MOST], other_lse[MOST / 64];

typedef enum halves { EVENLY, BY_LARGER, TWICE, LAST_TWICE } halves;

static int halves_merge(const kvb_attend *x, halves how)
{
    static uint64_t bits[1u << 16];
    const kvb_problem *p = &x->problem;
    size_t rows = (size_t)p->n_tok * p->n_heads, words = p->n_tok * x->mask.row_words;
    kvb_attend half = *x;
    if (rows * p->v_dim > MOST || rows > MOST / 64 || words > 1u << 16 || p->out_elem != KVB_F32 || !x->lse)
        return 0;
    half.out = other_out;
    half.lse = other_lse;
    for (size_t i = 0; i < words; i++) /* the even cells, or the last one */
        bits[i] = how == LAST_TWICE ? 0 : x->mask.bits[i] & UINT64_C(0x5555555555555555);
    for (uint32_t t = 0; t < p->n_tok && how == LAST_TWICE; t++) {
        const uint64_t *row = x->mask.bits + t * x->mask.row_words;
        bit_turn(bits + t * x->mask.row_words, seen_after(x, row, seen_count(x, row) - 1));
    }
    half.mask.bits = bits;
    int error = kvb_fault_honest.kernel->attend(&half);
    for (size_t row = 0; row < rows && !error; row++) {
        float *out = (float *)x->out + row * p->v_dim, a = x->lse[row], b = other_lse[row];
        if (!(b > -INFINITY))
            continue;
        float whole = how >= TWICE ? expf(a - fmaxf(a, b)) : how == EVENLY ? 1 : a > b + 1;
        float part = how >= TWICE ? expf(b - fmaxf(a, b)) : how == EVENLY ? 1 : a <= b + 1;
        for (uint32_t c = 0; c < p->v_dim; c++)
            out[c] = (whole * out[c] + part * other_out[row * p->v_dim + c]) / (whole + part);
    }
    return error;
}

static int merge_evenly(const kvb_attend *x)
{
    return halves_merge(x, EVENLY);
}

static int merge_larger(const kvb_attend *x)
{
    return halves_merge(x, BY_LARGER);
}

static int merge_twice(const kvb_attend *x)
{
    return halves_merge(x, TWICE);
}

static int merge_last_twice(const kvb_attend *x)
{
    return halves_merge(x, LAST_TWICE);
}

/* ---- hidden cells -------------------------------------------------------------------------------------------- */

/* Adds 0 times each hidden row of K or of V: nothing, as long as these are finite. */
static int hidden_added(const kvb_attend *x, const kvb_view *view)
{
    static float row[KVB_MODEL_WIDTH];
    const kvb_problem *p = &x->problem;
    for (uint32_t t = 0; t < p->n_tok && p->out_elem == KVB_F32; t++)
        for (uint32_t cell = 0; cell < p->n_cells; cell++) {
            if (bit_get(x->mask.bits + t * x->mask.row_words, cell))
                continue;
            for (uint32_t h = 0; h < p->n_heads; h++) {
                float *out = (float *)x->out + ((size_t)t * p->n_heads + h) * p->v_dim;
                kvb_view_read(view, h / (p->n_heads / p->n_kv_heads), cell, 1, row);
                for (uint32_t c = 0; c < p->v_dim && c < view->dim; c++)
                    out[c] += 0 * row[c];
            }
        }
    return 0;
}

static int hidden_k_added(const kvb_attend *x)
{
    return hidden_added(x, &x->k);
}

static int hidden_v_added(const kvb_attend *x)
{
    return hidden_added(x, &x->v);
}

static void bits_only(kvb_kernel *wrong)
{
    wrong->masks = KVB_MASK_BIT(KVB_MASK_EXPLICIT);
}

const kvb_fault kvb_kernel_faults[] = {
    {"key-first", "one key is dropped: the first that a query sees", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, batched-multi-seq seq f16 openblas, agent-fork-8x128 seq q8_0 flash, "
     "long-decode contiguous f16 flash sampled alone, plain-decode-8x128 seq q8_0 flash-int8, "
     "plain-decode seq bf16 flash-bf16",
     .sight = drop_first},
    {"key-middle", "one key is dropped: the middle one", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, eagle-tree tree bf16 flash, agent-fork-8x128 slab a4g64 flash, "
     "plain-decode-8x128 seq q8_0 flash-int8, plain-decode seq bf16 flash-bf16",
     .sight = drop_middle},
    {"key-last", "one key is dropped: the query's own", KVB_CHECK_BOUND,
     "plain-decode seq f32 reference, parallel-sample seq e4m3 flash, plain-decode-8x128 seq q8_0 flash-int8, "
     "plain-decode seq bf16 flash-bf16",
     .sight = drop_last},
    {"key-now-and-then", "a key is dropped in one call of 97", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, agent-fork seq f16 flash", .sight = drop_rarely},
    {"mask-ignored", "every query sees every cell", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash, eagle-tree tree f16 flash", .sight = see_all},
    {"mask-one-more", "a query sees the cell behind its last", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash, plain-decode seq f16 flash", .sight = see_one_more},
    {"mask-not-causal", "long prefills are not causal", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, sliding-window seq f16 flash", .sight = see_as_last},
    {"mask-of-neighbour", "a query of a batch sees what the one before it sees", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash, eagle-tree tree f32 flash", .sight = see_as_neighbour},
    {"mask-window-short", "a window is one position short", KVB_CHECK_BOUND,
     "sliding-window seq f32 flash, sink-window window f16 flash", .sight = window_short},
    {"mask-word-twice", "the second word of a mask is taken to be the first", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash", .sight = see_by_words},
    {"mask-narrower", "where several tokens come, the mask is narrower by a cell than the rows are", KVB_CHECK_BOUND,
     "eagle-tree tree f32 flash, eagle-tree seq f16 flash", .sight = see_narrower},
    {"scale-1.001", "the scale is 0.1 % too large", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, agent-fork seq f16 reference, plain-decode-8x128 seq q8_0 flash-int8, "
     "agent-fork-8x128 seq int8 flash-int8, plain-decode seq bf16 flash-bf16",
     .before = scale_1001},
    {"scale-1.01", "the scale is 1 % too large", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, agent-fork seq f16 openblas, plain-decode-8x128 seq q8_0 flash-int8, "
     "agent-fork-8x128 seq int8 flash-int8, plain-decode seq bf16 flash-bf16",
     .before = scale_101},
    {"scale-of-other-dim", "the scale is that of other dims", KVB_CHECK_BOUND, "plain-decode seq f32 flash",
     .before = scale_of_v},
    {"k-of-neighbour", "K rows are those of the next cell, and so what lies behind them", KVB_CHECK_CRASH,
     "plain-decode seq f32 flash", .before = k_of_neighbour},
    {"v-of-first-head", "V is that of the first KV head for all", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, agent-fork-8x128 seq q8_0 flash, plain-decode seq bf16 flash-bf16",
     .before = v_of_first_head},
    {"k-of-first-head", "K is that of the first KV head for all", KVB_CHECK_BOUND,
     "plain-decode seq f16 flash, plain-decode-8x128 seq q8_0 flash-int8", .before = k_of_first_head},
    {"v-scales-of-first-cell", "the scales of V's first cell are those of all", KVB_CHECK_BOUND,
     "plain-decode-8x128 seq a8g64 flash, agent-fork-8x128 seq a4g64 flash", .before = scales_of_first_cell},
    {"k-zeros-of-first-cell", "the zero points of K's first cell are those of all", KVB_CHECK_BOUND,
     "plain-decode-8x128 seq a8g64 flash", .before = zeros_of_first_cell},
    {"k-scales-of-first-head", "the scales of K's first head are those of all", KVB_CHECK_BOUND,
     "plain-decode-8x128 seq a8g64 flash", .before = scales_of_first_head},
    {"v-is-k", "V is read where K lies", KVB_CHECK_BOUND, "plain-decode seq f32 flash", .before = k_for_v},
    {"softcap-ignored", "the softcap is ignored", KVB_CHECK_BOUND, "plain-decode seq f32 flash softcap",
     .before = softcap_off},
    {"sinks-ignored", "the sink logits are ignored", KVB_CHECK_BOUND, "plain-decode seq f32 flash sinks",
     .before = sinks_off},
    {"halves-evenly", "two partial results are averaged, whatever their weights", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash", .after = merge_evenly, .kernel = bits_only},
    {"halves-larger", "of two partial results the larger one is kept", KVB_CHECK_BOUND, "plain-decode seq f32 flash",
     .after = merge_larger, .kernel = bits_only},
    {"halves-twice", "every other key counts twice", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, agent-fork seq f16 flash", .after = merge_twice, .kernel = bits_only},
    {"key-twice", "a query's own key counts twice", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, agent-fork seq f16 openblas, plain-decode-8x128 seq q8_0 flash-int8, "
     "plain-decode seq bf16 flash-bf16",
     .after = merge_last_twice, .kernel = bits_only},
    {"hidden-k", "0 times K of hidden cells is added", KVB_CHECK_POISON,
     "agent-fork slab f32 flash, eagle-tree tree f16 flash", .after = hidden_k_added, .kernel = bits_only},
    {"hidden-v", "0 times V of hidden cells is added", KVB_CHECK_POISON,
     "agent-fork slab f32 flash, batched-multi-seq seq f16 flash, agent-fork-8x128 slab q8_0 flash",
     .after = hidden_v_added, .kernel = bits_only},
    {.name = NULL},
};
