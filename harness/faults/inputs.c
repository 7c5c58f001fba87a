/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that take another q, other cells or other formats than they are handed. */
#include "harness/faults/fault.h"

#include <math.h>
#include <string.h>

#define MOST (1u << 20) /* floats of a changed q; a call that needs more is left as it is */

static void bits_only(kvb_kernel *wrong)
{
    wrong->masks = KVB_MASK_BIT(KVB_MASK_EXPLICIT);
}

/* ---- q ---------------------------------------------------------------------------------------------------------- */

/* q with each row taken from another one, or each element changed; largest: of its row. */
static void q_change(kvb_attend *x, size_t (*from)(const kvb_problem *p, size_t row),
                     float (*element)(float value, float largest))
{
    static float q[MOST];
    const kvb_problem *p = &x->problem;
    size_t rows = (size_t)p->n_tok * p->n_heads;
    if (rows * p->k_dim > MOST)
        return;
    for (size_t row = 0; row < rows; row++) {
        const float *is = x->q + (from ? from(p, row) : row) * p->k_dim;
        float largest = 0;
        for (uint32_t c = 0; c < p->k_dim; c++)
            largest = fmaxf(largest, fabsf(is[c]));
        for (uint32_t c = 0; c < p->k_dim; c++)
            q[row * p->k_dim + c] = element ? element(is[c], largest) : is[c];
    }
    x->q = q;
}

static float to_12_bits(float value, float largest)
{
    uint32_t bits;
    (void)largest;
    memcpy(&bits, &value, sizeof bits);
    bits &= 0xfffff000u;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

static float small_to_0(float value, float largest)
{
    return fabsf(value) < largest / 64 ? 0 : value;
}

static size_t next_head(const kvb_problem *p, size_t row)
{
    return row / p->n_heads * p->n_heads + (row + 1) % p->n_heads;
}

static size_t first_of_kv_head(const kvb_problem *p, size_t row)
{
    return row - row % (p->n_heads / p->n_kv_heads);
}

static size_t four_before(const kvb_problem *p, size_t row)
{
    return row < 4 * p->n_heads ? row : row - 4 * p->n_heads;
}

/* As if 8 heads shared each KV head. */
static size_t by_eights(const kvb_problem *p, size_t row)
{
    const size_t group = p->n_heads / p->n_kv_heads, head = row % p->n_heads;
    return row - head + (head / group * 8 + head % group) % p->n_heads;
}

/* Its codes of 8 bits, without the scale that they are of. */
static float code_of_8_bits(float value, float largest)
{
    return largest > 0 ? roundf(value / largest * 127) : 0;
}

static void q_by_eights(kvb_attend *x)
{
    if (x->problem.k_format->elem == KVB_BF16)
        q_change(x, by_eights, NULL);
}

static void q_without_scale(kvb_attend *x)
{
    q_change(x, NULL, code_of_8_bits);
}

static void q_rounded(kvb_attend *x)
{
    q_change(x, NULL, to_12_bits);
}

static void q_flushed(kvb_attend *x)
{
    q_change(x, NULL, small_to_0);
}

static void q_of_next_head(kvb_attend *x)
{
    q_change(x, next_head, NULL);
}

static void q_of_first_head(kvb_attend *x)
{
    q_change(x, first_of_kv_head, NULL);
}

static void q_of_four_before(kvb_attend *x)
{
    q_change(x, four_before, NULL);
}

/* ---- logits ------------------------------------------------------------------------------------------------------ */

static void softcap_unscaled(kvb_attend *x)
{
    x->problem.softcap /= x->problem.scale;
}

static void sink_of_first_head(kvb_attend *x)
{
    static float sinks[KVB_MODEL_WIDTH];
    for (uint32_t h = 0; h < x->problem.n_heads; h++)
        sinks[h] = x->sinks[0];
    x->sinks = sinks;
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

/* A mask that is kept for the next call, if that has as many words. */
static void mask_kept(kvb_attend *x)
{
    static uint64_t kept[2][1u << 16];
    static size_t n[2];
    static int now;
    size_t words = x->problem.n_tok * x->mask.row_words;
    if (words > 1u << 16)
        return;
    memcpy(kept[now], x->mask.bits, words * sizeof **kept);
    n[now] = words;
    now = !now;
    if (n[now] == words)
        x->mask.bits = kept[now];
}

static void past_end_seen(const kvb_attend *x, uint32_t t, uint64_t *row)
{
    (void)t;
    if (x->problem.n_cells % 64)
        row[x->problem.n_cells / 64] |= UINT64_C(1) << x->problem.n_cells % 64;
}

static void past_end_read(kvb_attend *x)
{
    if (x->problem.n_cells % 64)
        x->problem.n_cells = ++x->k.cells, x->v.cells = x->k.cells;
}

/* Of formats that keep all of a row in one place. */
static void v_of_neighbour(kvb_attend *x)
{
    static char rows[1u << 22];
    const size_t row = x->v.cell_stride, head = x->v.cells * row;
    if (x->v.scales || x->problem.n_kv_heads * head > sizeof rows)
        return;
    for (uint32_t h = 0; h < x->problem.n_kv_heads; h++)
        for (uint32_t cell = 0; cell < x->v.cells; cell++)
            memcpy(rows + h * head + cell * row, kvb_view_row(&x->v, h, (cell ^ 1) < x->v.cells ? cell ^ 1 : cell),
                   row);
    x->v.base = rows;
    x->v.head_stride = head;
}

/* ---- formats ----------------------------------------------------------------------------------------------------- */

static void k_as_not_turned(kvb_attend *x)
{
    static kvb_format plain;
    plain = *x->k.format;
    plain.transform = KVB_TRANSFORM_NONE;
    x->k.format = x->problem.k_format = &plain;
}

static void v_as_not_turned(kvb_attend *x)
{
    static kvb_format plain;
    plain = *x->v.format;
    plain.transform = KVB_TRANSFORM_NONE;
    x->v.format = x->problem.v_format = &plain;
}

static void k_factors_of_first_group(kvb_attend *x)
{
    x->k.scale_cell_stride = x->k.zero_cell_stride = 0;
}

static void codes_of_residual_cells(kvb_attend *x)
{
    static uint32_t none[1u << 12];
    memset(none, 0xff, sizeof none); /* KVB_SLOT_NONE */
    x->k.recent_slot = x->v.recent_slot = none;
}

static void residual_cells_of_next_slot(kvb_attend *x)
{
    static uint32_t slots[1u << 12];
    uint32_t w = x->v.format->residual_cells, most = x->v.format->residual_blocks;
    for (uint32_t i = 0; i * w < x->v.cells; i++)
        slots[i] = x->v.recent_slot[i] == KVB_SLOT_NONE ? KVB_SLOT_NONE : (x->v.recent_slot[i] + 1) % most;
    x->v.recent_slot = slots;
}

const kvb_fault kvb_input_faults[] = {
    {"q-rounded", "q is rounded to 12 bits, which is not declared", KVB_CHECK_BOUND, "plain-decode seq f32 flash",
     .before = q_rounded},
    {"q-flushed", "small elements of q are taken as 0", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, plain-decode seq bf16 flash-bf16", .before = q_flushed},
    {"q-of-next-head", "each head takes the next one's q", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, plain-decode-8x128 seq q8_0 flash-int8", .before = q_of_next_head},
    {"q-of-first-head", "all heads of a KV head take the first one's q", KVB_CHECK_BOUND,
     "plain-decode seq f16 flash, plain-decode-8x128 seq q8_0 flash-int8, plain-decode seq bf16 flash-bf16",
     .before = q_of_first_head},
    {"q-by-eights", "over bf16 rows heads are counted as if 8 shared each KV head", KVB_CHECK_BOUND,
     "plain-decode seq bf16 flash, plain-decode seq bf16 flash-bf16", .before = q_by_eights},
    {"q-scale-dropped", "q's codes of 8 bits take part without their scale", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, plain-decode-8x128 seq q8_0 flash-int8", .before = q_without_scale},
    {"q-of-four-before", "from the fifth on queries take the q of the fourth before them", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash, eagle-tree tree f16 flash, eagle-tree tree bf16 flash-bf16",
     .before = q_of_four_before},
    {"softcap-unscaled", "the softcap is put on q.k before it is scaled", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash softcap, plain-decode seq f32 openblas softcap", .before = softcap_unscaled},
    {"sink-of-first-head", "all heads take the first one's sink logit", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash sinks, plain-decode seq f32 reference sinks", .before = sink_of_first_head},
    {"mask-kept", "the mask of the call before is taken for that of a call of the same size", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash, agent-fork slab f16 flash", .before = mask_kept, .kernel = bits_only},
    {"sees-past-end", "a cell behind the last readable one is read", KVB_CHECK_BOUND, "plain-decode seq f32 flash",
     .sight = past_end_seen, .before = past_end_read},
    {"v-of-neighbour", "weights of two neighbouring cells are swapped", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, agent-fork-8x128 seq q8_0 flash, plain-decode-8x128 seq q8_0 flash-int8",
     .before = v_of_neighbour},
    {"k-transform-ignored", "transformed K is taken for plain", KVB_CHECK_BOUND,
     "plain-decode-8x128 seq q8_0+had flash, plain-decode-8x128 seq q4_0+had openblas", .before = k_as_not_turned},
    {"v-transform-ignored", "transformed V is taken for plain", KVB_CHECK_BOUND,
     "plain-decode-8x128 seq q8_0+had flash, plain-decode-8x128 seq a4g64+had flash", .before = v_as_not_turned},
    {"k-factors-of-first-group", "scales and zero points of K's first block of cells are those of all", KVB_CHECK_BOUND,
     "plain-decode-8x128 seq kivi4 flash", .before = k_factors_of_first_group},
    {"residual-cells-as-codes", "cells that are not encoded yet are read as codes", KVB_CHECK_BOUND,
     "plain-decode-8x128 seq kivi4 flash, agent-fork-8x128 slab kivi2 flash", .before = codes_of_residual_cells},
    {"residual-cells-of-next-slot", "cells that are not encoded yet are read from another block's slot",
     KVB_CHECK_BOUND, "plain-decode-8x128 seq kivi4 flash", .before = residual_cells_of_next_slot},
    {.name = NULL},
};
