/* SPDX-License-Identifier: Apache-2.0 */
/* The loads of one level: where rows lie, a loop over cells for each kind of row, and the load of each format. */
#include "kernels/vector/load_rows.h"
#include "kernels/vector/vector.h"

#include <string.h>

#define ANY_GROUP 0xfffffffeu /* in the list: groups of any size */

/*
 * The formats that have a load: X(name, element, bits of a level, axis, group, element of scales and of zeros, then how a
 * row is decoded: a function of load_rows.h and its first arguments). WINDOWED: those with f16 residual cells.
 */
// clang-format off
#define ENCODED(X)                                                                                                     \
    X(f32, KVB_F32, 0, KVB_AXIS_NONE, 0, 0, numbers_row, KVB_F32)                                                      \
    X(f16, KVB_F16, 0, KVB_AXIS_NONE, 0, 0, numbers_row, KVB_F16)                                                      \
    X(bf16, KVB_BF16, 0, KVB_AXIS_NONE, 0, 0, numbers_row, KVB_BF16)                                                   \
    X(e4m3, KVB_E4M3, 0, KVB_AXIS_NONE, 0, 0, fp8_row, false, false)                                                   \
    X(e4m3_token, KVB_E4M3, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, fp8_row, false, true)                        \
    X(e5m2, KVB_E5M2, 0, KVB_AXIS_NONE, 0, 0, fp8_row, true, false)                                                    \
    X(e5m2_token, KVB_E5M2, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, fp8_row, true, true)                         \
    X(int8, KVB_INT8, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, numbers_row, KVB_INT8)                             \
    X(int8_asym, KVB_UINT8, 0, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F32, numbers_row, KVB_UINT8)                      \
    X(q8_0, KVB_Q8_0, 0, KVB_AXIS_CHANNELS, 32, 0, ggml_bytes_row, 2)                                                  \
    X(q5_1, KVB_Q5_1, 0, KVB_AXIS_CHANNELS, 32, 0, ggml_row, levels_q5_1, true, true)                                  \
    X(q5_0, KVB_Q5_0, 0, KVB_AXIS_CHANNELS, 32, 0, ggml_row, levels_q5_0, false, true)                                 \
    X(q4_1, KVB_Q4_1, 0, KVB_AXIS_CHANNELS, 32, 0, ggml_row, levels_uint4, true, false)                                \
    X(q4_0, KVB_Q4_0, 0, KVB_AXIS_CHANNELS, 32, 0, ggml_row, levels_q4_0, false, false)                                \
    X(iq4_nl, KVB_IQ4_NL, 0, KVB_AXIS_CHANNELS, 32, 0, ggml_row, levels_iq4_nl, false, false)                          \
    X(a8g32, KVB_UINT8, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, affine_row, 8, 32)                                          \
    X(a8g64, KVB_UINT8, 0, KVB_AXIS_CHANNELS, 64, KVB_F16, affine_row, 8, 64)                                          \
    X(a8g128, KVB_UINT8, 0, KVB_AXIS_CHANNELS, 128, KVB_F16, affine_row, 8, 128)                                       \
    X(a4g32, KVB_UINT4, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, affine_row, 4, 32)                                          \
    X(a4g64, KVB_UINT4, 0, KVB_AXIS_CHANNELS, 64, KVB_F16, affine_row, 4, 64)                                          \
    X(a4g128, KVB_UINT4, 0, KVB_AXIS_CHANNELS, 128, KVB_F16, affine_row, 4, 128)                                       \
    X(a2g32, KVB_UINT2, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, affine_row, 2, 32)                                          \
    X(a2g64, KVB_UINT2, 0, KVB_AXIS_CHANNELS, 64, KVB_F16, affine_row, 2, 64)                                          \
    X(a2g128, KVB_UINT2, 0, KVB_AXIS_CHANNELS, 128, KVB_F16, affine_row, 2, 128)                                       \
    X(mxfp4, KVB_E2M1, 0, KVB_AXIS_CHANNELS, 32, KVB_E8M0, mx_row, false)                                              \
    X(nvfp4, KVB_E2M1, 0, KVB_AXIS_CHANNELS, 16, KVB_E4M3, mx_row, true)                                               \
    X(tq4, KVB_CODEBOOK, 4, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F16, tq_row, 4)                                      \
    X(tq3, KVB_CODEBOOK, 3, KVB_AXIS_CHANNELS, KVB_GROUP_ROW, KVB_F16, tq_row, 3)
#define WINDOWED(X)                                                                                                    \
    X(kivi4_v, KVB_UINT4, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, values_row, 4)                                            \
    X(kivi2_v, KVB_UINT2, 0, KVB_AXIS_CHANNELS, 32, KVB_F16, values_row, 2)                                            \
    X(kivi4_k, KVB_UINT4, 0, KVB_AXIS_TOKENS, ANY_GROUP, KVB_F16, channels_row, 4)                                     \
    X(kivi2_k, KVB_UINT2, 0, KVB_AXIS_TOKENS, ANY_GROUP, KVB_F16, channels_row, 2)
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

#define LOAD(NAME, ELEM, LEVEL_BITS, AXIS, GROUP, SCALES, ROW, ...)                                                    \
    VEC_INLINE void NAME##_rows(const kvb_view *v, const head_place *p, const uint32_t *cells, uint32_t n,             \
                                uint32_t dim, float *rows, size_t stride)                                              \
    {                                                                                                                  \
        const kvb_format *f = v->format;                                                                               \
        const head_place from = *p;                                                                                    \
        const size_t codes = v->cell_stride, scales = v->scale_cell_stride, zeros = v->zero_cell_stride;               \
        for (uint32_t i = 0; i < n; i++) {                                                                             \
            const size_t c = cells[i];                                                                                 \
            const row_place r = {from.codes + c * codes, from.scales + c * scales, from.zeros + c * zeros, false};     \
            ROW(__VA_ARGS__, f, &r, dim, rows + i * stride);                                                           \
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
ENCODED(LOAD)

/* Rows are found first, many at a time: the loop over rows then does nothing but decode. */
#define LOAD_WINDOWED(NAME, ELEM, LEVEL_BITS, AXIS, GROUP, SCALES, ROW, ...)                                           \
    VEC_INLINE void NAME##_rows(channel_factors *k, const row_place *at, uint32_t n, uint32_t dim, float *rows,        \
                                size_t stride)                                                                         \
    {                                                                                                                  \
        for (uint32_t i = 0; i < n; i++)                                                                               \
            if (at[i].recent)                                                                                          \
                numbers_row(KVB_F16, NULL, at + i, dim, rows + i * stride);                                            \
            else                                                                                                       \
                ROW(__VA_ARGS__, k, at + i, dim, rows + i * stride);                                                   \
    }                                                                                                                  \
    static void NAME##_load(const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n, float *rows,             \
                            size_t stride)                                                                             \
    {                                                                                                                  \
        channel_factors k;                                                                                             \
        row_place at[PLACES];                                                                                          \
        k.group = NULL;                                                                                                \
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

static const struct {
    kvb_elem elem;
    bool residual;
    uint32_t level_bits;
    kvb_axis axis;
    uint32_t group;      /* or ANY_GROUP */
    kvb_elem scale_elem; /* of zeros too; 0 where there are none */
    kvb_load *load;
} loads[] = {
#define LINE(NAME, ELEM, LEVEL_BITS, AXIS, GROUP, SCALES, ...)                                                         \
    {ELEM, false, LEVEL_BITS, AXIS, GROUP, SCALES, NAME##_load},
#define LINE_WINDOWED(NAME, ELEM, LEVEL_BITS, AXIS, GROUP, SCALES, ...)                                                \
    {ELEM, true, LEVEL_BITS, AXIS, GROUP, SCALES, NAME##_load},
    ENCODED(LINE) WINDOWED(LINE_WINDOWED)};

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
