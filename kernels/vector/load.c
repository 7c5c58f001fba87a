/* SPDX-License-Identifier: Apache-2.0 */
/* The loads of one level: where rows lie, a loop over cells for each kind of row, and the load of each format. */
#include "kernels/vector/load_rows.h"
#include "kernels/vector/vector.h"

#include <string.h>

/* X(kind). PLAIN: kinds with rows that are always encoded. WINDOWED: kinds with f16 residual cells. */
// clang-format off
#define PLAIN(X)                                                                                                       \
    X(f32) X(f16) X(bf16) X(e4m3) X(e4m3_token) X(e5m2) X(e5m2_token) X(int8) X(int8_asym)                             \
    X(q8_0) X(q5_1) X(q5_0) X(q4_1) X(q4_0) X(iq4_nl)                                                                  \
    X(a8g32) X(a8g64) X(a8g128) X(a4g32) X(a4g64) X(a4g128) X(a2g32) X(a2g64) X(a2g128)                                \
    X(mxfp4) X(nvfp4) X(tq4) X(tq3)
#define WINDOWED(X) X(kivi4_v) X(kivi2_v) X(kivi4_k) X(kivi2_k)
// clang-format on

/* ---- where rows lie: the rules of view.h on views -------------------------------------------------------------- */

/* Cells start .. start + n - 1 and what is known of them. Differences from start wrap, so that one comparison is
 * enough. */
typedef struct cell_span {
    uint32_t start, n;
    uint32_t at;
} cell_span;

/* The rows of one KV head. Cells mostly come in runs: only a cell outside the last cell's span costs a division. */
typedef struct head_place {
    const kvb_view *view;
    const uint8_t *codes, *scales, *zeros, *recent; /* of the head; absent tables point to the codes */
    cell_span block;                                /* at: its slot, or KVB_SLOT_NONE */
    cell_span group;                                /* at: its number */
} head_place;

enum { PLACES = 64 }; /* rows found at a time */

/* The part of a table for head h. Without a table any valid address will do. */
static inline const uint8_t *head_table(const kvb_view *v, const void *table, uint32_t h, size_t stride)
{
    return table ? (const uint8_t *)table + h * stride : v->base;
}

static inline head_place head_open(const kvb_view *v, uint32_t h)
{
    return (head_place){
        .view = v,
        .codes = head_table(v, v->base, h, v->head_stride),
        .scales = head_table(v, v->scales, h, v->scale_head_stride),
        .zeros = head_table(v, v->zeros, h, v->zero_head_stride),
        .recent = head_table(v, v->recent, h, v->recent_head_stride),
    };
}

/* Does the span hold the cell? If not, the span becomes the one of n cells that does, and `at` its number. */
static inline bool span_holds(cell_span *s, uint32_t cell, uint32_t n)
{
    if (cell - s->start < s->n)
        return true;
    *s = (cell_span){.start = cell / n * n, .n = n, .at = cell / n};
    return false;
}

/* For formats with residual cells. Fields are stored one by one: copying a whole struct would wait for all of its
 * parts. */
static inline void residual_find(head_place *p, uint32_t cell, row_place *at)
{
    const kvb_view *v = p->view;
    const kvb_format *f = v->format;
    size_t group = cell;
    if (!span_holds(&p->block, cell, f->residual_cells))
        p->block.at = v->recent_slot[p->block.at];
    at->recent = p->block.at != KVB_SLOT_NONE;
    if (at->recent) {
        at->codes = p->recent + p->block.at * v->recent_slot_stride +
                    (size_t)(cell - p->block.start) * v->dim * sizeof(uint16_t);
        return;
    }
    if (f->axis == KVB_AXIS_TOKENS) {
        span_holds(&p->group, cell, f->group);
        group = p->group.at;
    }
    at->codes = p->codes + cell * v->cell_stride;
    at->scales = p->scales + group * v->scale_cell_stride;
    at->zeros = p->zeros + group * v->zero_cell_stride;
}

/* ---- loops over cells -------------------------------------------------------------------------------------------- */

/* The loops over rows are compiled once more for the commonest dim. */
enum { COMMON_DIM = 128 };

static void tails_clear(uint32_t dim, uint32_t n, float *rows, size_t stride)
{
    for (uint32_t i = 0; i < n && dim < stride; i++)
        memset(rows + i * stride + dim, 0, (stride - dim) * sizeof *rows);
}

__attribute__((noinline)) static void residual_find_all(head_place *p, const uint32_t *cells, uint32_t n, row_place *at)
{
    for (uint32_t i = 0; i < n; i++)
        residual_find(p, cells[i], at + i);
}

#define LOAD(NAME)                                                                                                     \
    VEC_INLINE void NAME##_rows(const kvb_view *v, const head_place *p, const uint32_t *cells, uint32_t n,             \
                                uint32_t dim, float *rows, size_t stride)                                              \
    {                                                                                                                  \
        const kvb_format *f = v->format;                                                                               \
        const head_place from = *p;                                                                                    \
        const size_t codes = v->cell_stride, scales = v->scale_cell_stride, zeros = v->zero_cell_stride;               \
        for (uint32_t i = 0; i < n; i++) {                                                                             \
            const size_t c = cells[i];                                                                                 \
            const row_place r = {from.codes + c * codes, from.scales + c * scales, from.zeros + c * zeros, false};     \
            NAME##_row(f, &r, dim, rows + i * stride);                                                                 \
        }                                                                                                              \
    }                                                                                                                  \
    static void NAME##_load(const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n, float *rows,             \
                            size_t stride)                                                                             \
    {                                                                                                                  \
        const head_place p = head_open(v, h);                                                                          \
        if (v->dim == COMMON_DIM)                                                                                      \
            NAME##_rows(v, &p, cells, n, COMMON_DIM, rows, stride);                                                    \
        else                                                                                                           \
            NAME##_rows(v, &p, cells, n, v->dim, rows, stride);                                                        \
        tails_clear(v->dim, n, rows, stride);                                                                          \
    }
PLAIN(LOAD)

/* Rows are found first, many at a time: the loop over rows then does nothing but decode. */
#define LOAD_WINDOWED(NAME)                                                                                            \
    VEC_INLINE void NAME##_rows(channel_factors *k, const row_place *at, uint32_t n, uint32_t dim, float *rows,        \
                                size_t stride)                                                                         \
    {                                                                                                                  \
        for (uint32_t i = 0; i < n; i++)                                                                               \
            if (at[i].recent)                                                                                          \
                f16_row(NULL, at + i, dim, rows + i * stride);                                                         \
            else                                                                                                       \
                NAME##_row(k, at + i, dim, rows + i * stride);                                                         \
    }                                                                                                                  \
    static void NAME##_load(const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n, float *rows,             \
                            size_t stride)                                                                             \
    {                                                                                                                  \
        channel_factors k;                                                                                             \
        row_place at[PLACES];                                                                                          \
        k.whose = NULL;                                                                                                \
        head_place p = head_open(v, h);                                                                                \
        for (uint32_t some; n; n -= some, cells += some, rows += some * stride) {                                      \
            some = n < PLACES ? n : PLACES;                                                                            \
            residual_find_all(&p, cells, some, at);                                                                    \
            if (v->dim == COMMON_DIM)                                                                                  \
                NAME##_rows(&k, at, some, COMMON_DIM, rows, stride);                                                   \
            else                                                                                                       \
                NAME##_rows(&k, at, some, v->dim, rows, stride);                                                       \
            tails_clear(v->dim, some, rows, stride);                                                                   \
        }                                                                                                              \
    }
WINDOWED(LOAD_WINDOWED)

/* ---- the load of each format ------------------------------------------------------------------------------------- */

#define ANY_GROUP 0xfffffffeu

static const struct {
    kvb_elem elem;
    bool residual;
    uint32_t level_bits;
    kvb_axis axis;
    uint32_t group;      /* or ANY_GROUP */
    kvb_elem scale_elem; /* of zeros too; 0 where there are none */
    kvb_load *load;
} loads[] = {
    {KVB_F32, false, 0, KVB_AXIS_NONE, 0, 0, f32_load},
    {KVB_F16, false, 0, KVB_AXIS_NONE, 0, 0, f16_load},
    {KVB_BF16, false, 0, KVB_AXIS_NONE, 0, 0, bf16_load},
    {KVB_E4M3, false, 0, KVB_AXIS_NONE, 0, 0, e4m3_load},
    {KVB_E4M3, false, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, e4m3_token_load},
    {KVB_E5M2, false, 0, KVB_AXIS_NONE, 0, 0, e5m2_load},
    {KVB_E5M2, false, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, e5m2_token_load},
    {KVB_INT8, false, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, int8_load},
    {KVB_UINT8, false, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, int8_asym_load},
    {KVB_Q8_0, false, 0, KVB_AXIS_CHANNELS, 32, 0, q8_0_load},
    {KVB_Q5_1, false, 0, KVB_AXIS_CHANNELS, 32, 0, q5_1_load},
    {KVB_Q5_0, false, 0, KVB_AXIS_CHANNELS, 32, 0, q5_0_load},
    {KVB_Q4_1, false, 0, KVB_AXIS_CHANNELS, 32, 0, q4_1_load},
    {KVB_Q4_0, false, 0, KVB_AXIS_CHANNELS, 32, 0, q4_0_load},
    {KVB_IQ4_NL, false, 0, KVB_AXIS_CHANNELS, 32, 0, iq4_nl_load},
    {KVB_UINT8, false, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, a8g32_load},
    {KVB_UINT8, false, 0, KVB_AXIS_CHANNELS, 64, KVB_F16, a8g64_load},
    {KVB_UINT8, false, 0, KVB_AXIS_CHANNELS, 128, KVB_F16, a8g128_load},
    {KVB_UINT4, false, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, a4g32_load},
    {KVB_UINT4, false, 0, KVB_AXIS_CHANNELS, 64, KVB_F16, a4g64_load},
    {KVB_UINT4, false, 0, KVB_AXIS_CHANNELS, 128, KVB_F16, a4g128_load},
    {KVB_UINT2, false, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, a2g32_load},
    {KVB_UINT2, false, 0, KVB_AXIS_CHANNELS, 64, KVB_F16, a2g64_load},
    {KVB_UINT2, false, 0, KVB_AXIS_CHANNELS, 128, KVB_F16, a2g128_load},
    {KVB_UINT4, true, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, kivi4_v_load},
    {KVB_UINT2, true, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, kivi2_v_load},
    {KVB_UINT4, true, 0, KVB_AXIS_TOKENS, ANY_GROUP, KVB_F16, kivi4_k_load},
    {KVB_UINT2, true, 0, KVB_AXIS_TOKENS, ANY_GROUP, KVB_F16, kivi2_k_load},
    {KVB_E2M1, false, 0, KVB_AXIS_CHANNELS, 32, KVB_E8M0, mxfp4_load},
    {KVB_E2M1, false, 0, KVB_AXIS_CHANNELS, 16, KVB_E4M3, nvfp4_load},
    {KVB_CODEBOOK, false, 4, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F16, tq4_load},
    {KVB_CODEBOOK, false, 3, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F16, tq3_load},
};

kvb_load *KVB_ISA_NAME(kvb_load_of)(const kvb_format *f)
{
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        if (f->elem == loads[i].elem && (f->residual_cells > 0) == loads[i].residual &&
            f->level_bits == loads[i].level_bits && f->axis == loads[i].axis &&
            (f->group == loads[i].group || (loads[i].group == ANY_GROUP && f->group)) &&
            (!f->group || kvb_elem_is_block(f->elem) || f->scale_elem == loads[i].scale_elem) &&
            (!kvb_format_has_zeros(f) || f->zero_elem == loads[i].scale_elem))
            return loads[i].load;
    return NULL;
}

/* ---- addresses of rows that are used in place -------------------------------------------------------------------- */

void KVB_ISA_NAME(kvb_rows_at)(const void *first, size_t stride, const uint32_t *cell, uint32_t n, bool neighbours,
                               const void **at)
{
    uintptr_t row = (uintptr_t)first; /* gcc vectorises integers */
    if (!neighbours) {
        for (uint32_t i = 0; i < n; i++)
            at[i] = (const void *)(row + cell[i] * stride);
        return;
    }
    row += n ? cell[0] * stride : 0;
    for (uint32_t i = 0; i < n; i++, row += stride)
        at[i] = (const void *)row;
}
