/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h: how rows of K and V are stored, where they lie, which of them a query sees, and the team of threads that works on them. The
 * contracts of kernels (attend.h, scan.h), of caches and of pools use these terms.
 *
 * Units: strides and sizes in bytes unless the name says cells, tokens or words.
 */
#ifndef KVB_VIEW_H
#define KVB_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- formats: how one row of K or V is encoded ------------------------------------------------ */

/*
 * Element encodings. Codes of 4 and 2 bits lie low bits first: channel 0 in the lowest bits of byte 0.
 * The Q ones are blocks of 32 channels that carry their own scales, laid out as ggml does
 * (ggml-common.h, block_q8_0 and so on): they have no side tables.
 */
typedef enum kvb_elem {
    KVB_F32,      /* IEEE 754 binary32 */
    KVB_F16,      /* IEEE 754 binary16 */
    KVB_BF16,     /* upper half of binary32, rounded to nearest even */
    KVB_E4M3,     /* OCP FP8 E4M3: largest 448 */
    KVB_E5M2,     /* OCP FP8 E5M2: largest 57344 */
    KVB_E2M1,     /* OCP FP4, two a byte: 0 0.5 1 1.5 2 3 4 6 and their negatives */
    KVB_E8M0,     /* OCP power-of-two scale: 2^(code - 127), 255 is NaN */
    KVB_INT8,     /* two's complement, times a scale */
    KVB_UINT8,    /* code * scale + zero */
    KVB_UINT4,    /* the same, two codes a byte */
    KVB_UINT2,    /* the same, four codes a byte */
    KVB_CODEBOOK, /* level[code] * scale; codes of level_bits bits, a bit stream, low bits first */
    KVB_Q8_0,     /* 34 bytes: f16 d, int8 q[32];                          x = d q */
    KVB_Q5_1,     /* 24 bytes: f16 d, f16 m, fifth bits [4], nibbles [16]; x = d q + m */
    KVB_Q5_0,     /* 22 bytes: f16 d, fifth bits [4], nibbles [16];        x = d (q - 16) */
    KVB_Q4_1,     /* 20 bytes: f16 d, f16 m, nibbles [16];                 x = d q + m */
    KVB_Q4_0,     /* 18 bytes: f16 d, nibbles [16];                        x = d (q - 8) */
    KVB_IQ4_NL,   /* 18 bytes: f16 d, nibbles [16];                        x = d kvalues_iq4nl[q] */
    KVB_OPAQUE,   /* a plug-in's own encoding: only format->read() knows it */
    KVB_ELEM_COUNT
} kvb_elem;

/* Which elements share one scale: `group` neighbouring channels of one token, or one channel of `group` neighbouring
 * cells. */
typedef enum kvb_axis { KVB_AXIS_NONE, KVB_AXIS_CHANNELS, KVB_AXIS_TOKENS } kvb_axis;

#define KVB_GROUP_ROW UINT32_MAX /* as group: all channels of a row */

/* A factor fixed before the first row is stored, for all rows of a KV head; TENSOR: the same for every KV head of the
 * layer. */
typedef enum kvb_static_scale { KVB_STATIC_NONE, KVB_STATIC_TENSOR, KVB_STATIC_HEAD } kvb_static_scale;

/*
 * Orthogonal transform applied to a row before encoding. A kernel that uses rows as they are stored applies it to q
 * (for K) and to out (for V). Walsh-Hadamard in natural order, divided by sqrt(block), on each block of channels; a
 * block is the largest power of two that divides dim. It is its own inverse. SIGNED first negates the channels for
 * which kvb_sign_flip() holds; on the way back it does so last.
 */
typedef enum kvb_transform { KVB_TRANSFORM_NONE, KVB_TRANSFORM_HADAMARD, KVB_TRANSFORM_SIGNED_HADAMARD } kvb_transform;

typedef struct kvb_view kvb_view;
typedef struct kvb_format kvb_format;

/*
 * Rows of KV head h, cells c .. c+n-1, as floats, the transform undone: rows [n][view->dim]. An element passes through
 * at most kvb_format_roundings() roundings. Safe to call from several threads.
 */
typedef void kvb_rows_read(const kvb_view *view, uint32_t h, uint32_t c, uint32_t n, float *rows);

/*
 * Computes decode(encode(row)) of a row of dim elements, in plain C from the format's definition: it judges the pool's
 * own code, and so does not call it. stored [dim]: exact, in double. size [dim]: for each element the sum of the
 * magnitudes of its terms, which is |stored| if it is one product.
 */
typedef void kvb_row_reference(const kvb_format *format, uint32_t dim, const float *row, double *stored, double *size);

/*
 * K and V formats are independent. `name` is unique: two formats of one name are the same.
 * A stored element is code * scale (of its group) * head scale + zero (of its group). Scales that a format lacks are 1,
 * zeros are 0; no format has both a zero and a head scale.
 */
struct kvb_format {
    const char *name;             /* "a4g64+had" */
    kvb_elem elem;                /* encoding of one element */
    kvb_axis axis;                /* of the groups */
    uint32_t group;               /* elements that share a scale; 0 without scales; KVB_GROUP_ROW */
    kvb_elem scale_elem;          /* meaningful when group > 0 and the element is no block */
    kvb_elem zero_elem;           /* meaningful when the elements are unsigned codes */
    kvb_static_scale head_scale;  /* view.head_scales */
    kvb_transform transform;      /* applied before encoding */
    uint32_t residual_cells;      /* cells encoded together; until then view.recent holds them as f16. 0: each row is
                                   * encoded when it is stored. With axis TOKENS it equals group */
    uint32_t residual_blocks;     /* most blocks of residual_cells that are f16 at a time: those written last */
    const float *levels;          /* CODEBOOK: [2^level_bits], ascending */
    uint32_t level_bits;          /* CODEBOOK: 3 or 4 */
    kvb_rows_read *read;          /* never NULL */
    kvb_row_reference *reference; /* OPAQUE: what the oracle expects. NULL: kernels over it are not judged */
    uint32_t read_roundings;      /* OPAQUE: kvb_format_roundings() */
};

/* Do its elements carry a zero point in a side table? */
static inline bool kvb_format_has_zeros(const kvb_format *f)
{
    return f->elem == KVB_UINT8 || f->elem == KVB_UINT4 || f->elem == KVB_UINT2;
}

/* Are its elements blocks with scales of their own inside? */
static inline bool kvb_elem_is_block(kvb_elem elem)
{
    return elem >= KVB_Q8_0 && elem <= KVB_IQ4_NL;
}

/* Are rows plain f32, with no transform, scales or residual cells? A kernel can then read them by kvb_view_row(). */
static inline bool kvb_format_is_f32(const kvb_format *f)
{
    return f->elem == KVB_F32 && f->axis == KVB_AXIS_NONE && f->group == 0 && !f->head_scale && !f->transform &&
           f->residual_cells == 0;
}

/* Channels that a transform mixes: the largest power of two that divides dim. */
static inline uint32_t kvb_transform_block(uint32_t dim)
{
    return dim & (0u - dim);
}

/* Channels negated by KVB_TRANSFORM_SIGNED_HADAMARD: a hash, so that no row is likely to be a Walsh function. */
static inline bool kvb_sign_flip(uint32_t channel)
{
    uint32_t x = (channel + 1) * 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x >> 31;
}

/*
 * How many f32 roundings, at most, lie between stored bytes and an element decoded by format->read() or by a kernel:
 * one for each factor and term, one for each stage of the transform and one for its factor. A kernel that reads the
 * format adds them to its chains.
 */
static inline uint32_t kvb_format_roundings(const kvb_format *f, uint32_t dim)
{
    uint32_t n = (f->group > 0) + (f->head_scale != KVB_STATIC_NONE) + kvb_format_has_zeros(f) +
                 (f->elem == KVB_Q5_1 || f->elem == KVB_Q4_1);
    if (f->elem == KVB_OPAQUE)
        n = f->read_roundings;
    if (f->transform)
        for (uint32_t block = 2 * kvb_transform_block(dim); block > 1; block /= 2)
            n++;
    return n;
}

/* ---- views: where rows lie -------------------------------------------------------------------- */

#define KVB_SLOT_NONE UINT32_MAX

/*
 * Rows of K or V of one layer, head-major [n_kv_heads][cells][dim].
 * The row of KV head h in cell c starts at base + h * head_stride + c * cell_stride.
 * Owned by the pool; valid until the next change to the cache that produced it.
 *
 * Side tables (NULL where the format has none). Axis CHANNELS: the scales of head h, cell c are the
 * dim / group (KVB_GROUP_ROW: 1) elements at scales + h * scale_head_stride + c * scale_cell_stride; axis TOKENS:
 * the dim elements at scales + h * scale_head_stride + c / group * scale_cell_stride; zeros by the same rule.
 *
 * Formats with residual_cells = w: if recent_slot[c / w] = s is not KVB_SLOT_NONE, the row is not encoded yet. It is
 * then dim f16 at recent + s * recent_slot_stride + h * recent_head_stride + c % w * dim * 2.
 *
 * A view may have two regions. Cells below front->cells are those of `front`, a view of the same format, dim and head
 * scales that has no front itself; the others are the view's own, the first of them at `base`. `cells` counts both.
 * kvb_view_row() and kvb_view_read() take cells of both regions. Formats with residual_cells have no front. Kernels
 * without KVB_KERNEL_FRONTS, and format->read, never get a view with a front.
 */
struct kvb_view {
    const void *base;
    size_t head_stride; /* bytes from one KV head to the next */
    size_t cell_stride; /* bytes from one cell to the next */
    uint32_t cells;     /* readable cells: 0 .. cells-1 */
    uint32_t dim;       /* elements of a row */
    const kvb_format *format;
    const void *scales; /* side table of scales */
    size_t scale_head_stride;
    size_t scale_cell_stride;
    const void *zeros; /* side table of zero points or biases */
    size_t zero_head_stride;
    size_t zero_cell_stride;
    const float *head_scales; /* [n_kv_heads] */
    const void *recent;
    const uint32_t *recent_slot; /* [(cells + w - 1) / w] */
    size_t recent_slot_stride, recent_head_stride;
    const kvb_view *front; /* the first cells, which may lie elsewhere; NULL: all are the view's own */
};

/* Cells of the view's front; 0 without one. */
static inline uint32_t kvb_view_front_cells(const kvb_view *view)
{
    return view->front ? view->front->cells : 0;
}

/* The view's own region alone. */
static inline kvb_view kvb_view_own(const kvb_view *view)
{
    kvb_view own = *view;
    own.cells -= kvb_view_front_cells(view);
    own.front = NULL;
    return own;
}

/* Row of KV head h in cell c: its codes. */
static inline const void *kvb_view_row(const kvb_view *view, uint32_t h, uint32_t c)
{
    const uint32_t front = kvb_view_front_cells(view);
    const kvb_view *of = c < front ? view->front : view;
    return (const char *)of->base + h * of->head_stride + (c < front ? c : c - front) * of->cell_stride;
}

/* format->read() of cells in either region, or in both. */
static inline void kvb_view_read(const kvb_view *view, uint32_t h, uint32_t c, uint32_t n, float *rows)
{
    const uint32_t front = kvb_view_front_cells(view), before = c >= front ? 0 : n < front - c ? n : front - c;
    const kvb_view own = kvb_view_own(view);
    if (before)
        view->format->read(view->front, h, c, before, rows);
    if (n > before)
        view->format->read(&own, h, c + before - front, n - before, rows + (size_t)before * view->dim);
}

/* ---- masks: which cells a query sees ---------------------------------------------------------- */

typedef enum kvb_mask_kind {
    KVB_MASK_NONE,     /* every query sees cells 0 .. view.cells-1 */
    KVB_MASK_CAUSAL,   /* lower-right aligned: query t of n sees cells 0 .. cells-n+t */
    KVB_MASK_EXPLICIT, /* bit rows: query t sees cell c iff bit c%64 of bits[t*row_words + c/64] */
    KVB_MASK_RUNS,     /* CSR: query t sees runs[row_start[t]] .. runs[row_start[t+1]-1] */
    KVB_MASK_PAGES,    /* page tables, which queries share: query t sees positions of pages[row_start[t]], … */
    KVB_MASK_KINDS
} kvb_mask_kind;

#define KVB_MASK_BIT(kind) (1u << (kind))
#define KVB_MASKS_ALL      (KVB_MASK_BIT(KVB_MASK_KINDS) - 1) /* of a kernel that reads masks by kvb_mask_next() */

/* Cells begin .. end-1. Runs of one query are disjoint and not empty, in any order. */
typedef struct kvb_run {
    uint32_t begin, end;
} kvb_run;

/*
 * PAGES: page p is cells p * page_cells .. (p + 1) * page_cells - 1. Position i of the sequence of query t lies in page
 * pages[row_start[t] + i / page_cells], at its place i % page_cells; tables of two sequences may name the same page.
 * The query sees positions seen[t].begin .. seen[t].end-1, and those of the first `sinks` positions that lie before them.
 * An entry for positions that no query of its table sees may hold anything: its page may be freed.
 */
typedef struct kvb_mask {
    kvb_mask_kind kind;
    const uint64_t *bits;      /* EXPLICIT: [n_tok][row_words] */
    size_t row_words;          /* EXPLICIT: (cells + 63) / 64 or more */
    const uint32_t *row_start; /* RUNS: [n_tok + 1]; PAGES: [n_tok], the same for queries of one sequence */
    const kvb_run *runs;       /* RUNS: [row_start[n_tok]] */
    const uint32_t *pages;     /* PAGES */
    const kvb_run *seen;       /* PAGES: [n_tok], positions */
    uint32_t page_cells, sinks;
} kvb_mask;

/* kvb_mask_next() under PAGES; *cursor is a position. */
static inline bool kvb_mask_next_pages(const kvb_mask *mask, uint32_t t, uint32_t *cursor, kvb_run *run)
{
    const uint32_t *pages = mask->pages + mask->row_start[t], n = mask->page_cells;
    const kvb_run seen = mask->seen[t];
    uint32_t pos = *cursor < mask->sinks || *cursor > seen.begin ? *cursor : seen.begin;
    const uint32_t end = pos < mask->sinks && mask->sinks < seen.begin ? mask->sinks : seen.end;
    if (pos >= end)
        return false;
    run->begin = run->end = pages[pos / n] * n + pos % n;
    while (pos < end && run->end == pages[pos / n] * n + pos % n) { /* neighbouring pages are one run */
        uint32_t some = n - pos % n < end - pos ? n - pos % n : end - pos;
        run->end += some;
        pos += some;
    }
    *cursor = pos;
    return true;
}

/*
 * The visible cells of query t as runs, for every kind of mask: call with *cursor = 0, again until it returns false.
 * Runs of a RUNS mask come in the mask's own order, those of PAGES in the order of positions, others ascending. EXPLICIT
 * rows are scanned word by word.
 */
static inline bool kvb_mask_next(const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, uint32_t t, uint32_t *cursor,
                                 kvb_run *run)
{
    if (mask->kind == KVB_MASK_RUNS) {
        uint32_t i = mask->row_start[t] + *cursor;
        if (i >= mask->row_start[t + 1])
            return false;
        *run = mask->runs[i];
        (*cursor)++;
        return true;
    }
    if (mask->kind == KVB_MASK_PAGES)
        return kvb_mask_next_pages(mask, t, cursor, run);
    if (mask->kind != KVB_MASK_EXPLICIT) {
        run->begin = 0;
        run->end = mask->kind == KVB_MASK_NONE ? n_cells : n_cells - n_tok + t + 1;
        return (*cursor)++ == 0 && run->end > 0;
    }
    const uint64_t *bits = mask->bits + t * mask->row_words;
    uint32_t c = *cursor;
    while (c < n_cells && !(bits[c / 64] >> (c % 64) & 1))
        c += bits[c / 64] >> (c % 64) ? 1 : 64 - c % 64;
    run->begin = c;
    while (c < n_cells && (bits[c / 64] >> (c % 64) & 1))
        c++;
    run->end = *cursor = c;
    return run->begin < run->end;
}

/* ---- threads ----------------------------------------------------------------------------------- */

/*
 * A team of n threads, each bound to a core by the harness, the caller being one of them.
 * run() calls part(ctx, i, n) once for each i in 0 .. n-1, possibly at once, and returns when all have.
 */
typedef struct kvb_team {
    uint32_t n;
    void (*run)(const struct kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx);
} kvb_team;

#ifdef __cplusplus
}
#endif
#endif
