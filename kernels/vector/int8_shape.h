/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the integer products need to know of a format: an element is d * (code - offset) + m, the code an unsigned byte,
 * d and m those of its group. Also where codes, d and m lie in a row (of blocks) or in side tables.
 */
#ifndef KVB_VECTOR_INT8_SHAPE_H
#define KVB_VECTOR_INT8_SHAPE_H

#include "kernels/vector/ask.h"
#include "kernels/vector/micro.h"

#define INT8_MAX_DIM 1024u

/* Elements that have codes of at most 8 bits and are evenly spaced, or (IQ4_NL) whole levels times a scale. */
#define INT8_ELEMS(X)                                                                                                  \
    X(KVB_INT8)                                                                                                        \
    X(KVB_UINT8) X(KVB_UINT4) X(KVB_UINT2) X(KVB_Q8_0) X(KVB_Q5_1) X(KVB_Q5_0) X(KVB_Q4_1) X(KVB_Q4_0) X(KVB_IQ4_NL)

/* How an element is stored. */
typedef struct int8_elem {
    uint8_t bits;        /* of a code, or of a block's code without its fifth bit; 0: not for integer products */
    uint8_t offset;      /* the middle of the codes: what is multiplied is code - offset, a signed byte */
    uint8_t block_bytes; /* of 32 channels; 0: no block */
    uint8_t codes_at;    /* in a block */
    bool has_m;
    bool centred; /* the m stored is for code 0: what is used is m + offset d */
} int8_elem;

static inline int8_elem int8_elem_of(kvb_elem elem)
{
    static const int8_elem elems[KVB_ELEM_COUNT] = {
        [KVB_INT8] = {.bits = 8, .offset = 128},
        [KVB_UINT8] = {.bits = 8, .offset = 128, .has_m = true, .centred = true},
        [KVB_UINT4] = {.bits = 4, .offset = 8, .has_m = true, .centred = true},
        [KVB_UINT2] = {.bits = 2, .offset = 2, .has_m = true, .centred = true},
        [KVB_Q8_0] = {.bits = 8, .offset = 128, .block_bytes = 34, .codes_at = 2},
        [KVB_Q5_1] = {.bits = 4, .offset = 16, .block_bytes = 24, .codes_at = 8, .has_m = true, .centred = true},
        [KVB_Q5_0] = {.bits = 4, .offset = 16, .block_bytes = 22, .codes_at = 6},
        [KVB_Q4_1] = {.bits = 4, .offset = 8, .block_bytes = 20, .codes_at = 4, .has_m = true, .centred = true},
        [KVB_Q4_0] = {.bits = 4, .offset = 8, .block_bytes = 18, .codes_at = 2},
        [KVB_IQ4_NL] = {.bits = 4, .offset = 128, .block_bytes = 18, .codes_at = 2},
    };
    return elems[elem];
}

/* A format at one length of rows. */
typedef struct int8_shape {
    int8_elem of;
    kvb_elem elem;
    uint32_t dim;
    uint32_t width;  /* dim up to a multiple of 64: what tiles are made of */
    uint32_t group;  /* channels that share a d */
    uint32_t groups; /* of a row */
    bool half;       /* d and m are f16, else f32 */
} int8_shape;

static inline int8_shape int8_shape_of(const kvb_format *f, uint32_t dim)
{
    int8_shape s = {.of = int8_elem_of(f->elem), .elem = f->elem, .dim = dim, .width = (dim + 63) / 64 * 64};
    s.group = f->group == KVB_GROUP_ROW ? dim : f->group;
    s.groups = dim / s.group;
    s.half = s.of.block_bytes || f->scale_elem == KVB_F16;
    return s;
}

/* Bytes of a tile of codes, at most two each; of a table of d or of m. Multiples of 64. */
static inline size_t int8_tile_bytes(const int8_shape *s)
{
    return (size_t)2 * s->width * BLOCK;
}
static inline size_t int8_table_bytes(const int8_shape *s)
{
    return (size_t)s->groups * BLOCK * sizeof(float);
}

/*
 * Nibbles of dword d of 16 bytes, low (part 0) or high ones (1): which dword of 4 codes they are in a tile of keys that was
 * transposed before it was unpacked. In ggml's blocks high nibbles are 16 channels on, else they are each the next channel.
 */
static inline uint32_t int8_nibbles_at(kvb_elem elem, uint32_t d, uint32_t part)
{
    return elem == KVB_UINT4 ? 2 * d + part : 4 * part + d;
}

/* An encoded query row: its step, then for each group the sum of its integers, then (at a multiple of 64) the integers,
 * as bytes or as 16 bits. */
typedef struct int8_query {
    float step;
    int32_t sums[];
} int8_query;

static inline size_t int8_query_codes_at(const int8_shape *s)
{
    return (sizeof(int8_query) + s->groups * sizeof(int32_t) + 63) / 64 * 64;
}

/* ---- a block of rows made ready: int8_tiles.c, int8_scales.c --------------------------------------------------- */

/* Where rows of one KV head lie: cells mapped through the block table, and pointers to their codes. */
typedef struct int8_rows {
    const uint8_t *row[BLOCK];
    uint32_t at[BLOCK];
    uint32_t n;
} int8_rows;

void KVB_ISA_NAME(kvb_int8_rows_find)(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n,
                                      int8_rows *rows);

/* The d, or the m, of every cell and group of a head: where they lie, and some of them one after the other, [cell][group]. */
typedef struct int8_factors {
    const uint8_t *at;    /* of cell 0 and group 0 */
    size_t cell, group;   /* bytes from one to the next */
    const uint8_t *whole; /* those of the rows, where they are stored so; else NULL: they are collected */
    _Alignas(64) uint8_t held[INT8_MAX_DIM / 32 * BLOCK * sizeof(float)];
} int8_factors;

#define INT8_SOME 16u /* cells that are made ready at a time */

/* m is left as it is where the format has none. */
void KVB_ISA_NAME(kvb_int8_factors_find)(const int8_shape *s, const kvb_view *view, uint32_t h, const int8_rows *rows,
                                         int8_factors *d, int8_factors *m);

/* Those of the rows i .. i + INT8_SOME - 1 that are there. */
void KVB_ISA_NAME(kvb_int8_factors_collect)(const int8_shape *s, const int8_rows *rows, uint32_t i, int8_factors *f);

/* d and m of the rows, once all are collected: [groups][BLOCK] each, m NULL where the format has none; 0 from n on. */
void KVB_ISA_NAME(kvb_int8_factors_make)(const int8_shape *s, const int8_rows *rows, int8_factors *of_d,
                                         int8_factors *of_m, float *d, float *m);

/* A block as the products read it: a dword of its tile holds neighbouring factors of one sum. */
typedef struct int8_block {
    int32_t *tile;
    float *d, *m; /* of kvb_int8_factors_make() */
} int8_block;

/*
 * Cells of a head, n <= BLOCK of them; scratch: int8_tile_bytes() and twice int8_table_bytes(); ask: half of it is asked for
 * meanwhile.
 * keys: [width / TILE_CODES][BLOCK] dwords, each TILE_CODES channels of one cell; cells from n on are anything. Codes are
 * as TILE_CODES says (int8_lanes.h).
 * values: [BLOCK / TILE_CODES][width] dwords, each one channel of TILE_CODES cells, up to n rounded up to that; cells from
 * n on are anything.
 */
int8_block KVB_ISA_NAME(kvb_int8_keys)(const int8_shape *s, const kvb_view *view, uint32_t h, const uint32_t *cells,
                                       uint32_t n, kvb_ask *ask, void *scratch);
int8_block KVB_ISA_NAME(kvb_int8_values)(const int8_shape *s, const kvb_view *view, uint32_t h, const uint32_t *cells,
                                         uint32_t n, kvb_ask *ask, void *scratch);

#endif
