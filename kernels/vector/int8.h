/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats for products of integers: an element is d * (code - offset) + m, the code an unsigned byte, d and m those of
 * its group. They lie in the row (ggml's blocks) or in side tables. int8_pack.c packs a block of rows into an
 * int8_block, int8_products.c multiplies it.
 */
#ifndef KVB_VECTOR_INT8_H
#define KVB_VECTOR_INT8_H

#include "kernels/vector/vector.h"

#define INT8_MAX_DIM 1024u

/*
 * Codes in a dword of a tile: four of 8 bits where there is an instruction for them. VNNI, in vectors of AVX-512 or of
 * AVX, multiplies unsigned codes by signed bytes; DotProd and SVE signed ones, (code - offset). Elsewhere two (code - offset) of 16 bits: AVX2's
 * instruction for bytes (vpmaddubsw) adds pairs in 16 bits and would saturate. An I8MM instruction multiplies two cells
 * by two rows, eight codes of each: so TILE_DWORDS dwords of a cell lie side by side.
 */
#if defined(__AVX512VNNI__) || defined(KVB_AVXVNNI)
#define TILE_CODES  4u
#define TILE_SIGNED false
#elif defined(__ARM_FEATURE_DOTPROD) || defined(__ARM_FEATURE_SVE)
#define TILE_CODES  4u
#define TILE_SIGNED true
#else
#define TILE_CODES  2u
#define TILE_SIGNED true
#endif
#if defined(__ARM_FEATURE_MATMUL_INT8)
#define TILE_DWORDS 2u
#else
#define TILE_DWORDS 1u
#endif
/* AMX's tiles multiply where many rows meet a block: int8_tiles.h. */
#if defined(__AMX_INT8__) || defined(__AMXINT8__) || defined(KVB_TILES_EMULATED) /* gcc, clang 14 */
#define INT8_TILES
#endif
#define TOGETHER (TILE_CODES * TILE_DWORDS) /* codes of a cell that an instruction takes */

/* ---- formats ----------------------------------------------------------------------------------------------------- */

/* Elements with codes of at most 8 bits that are evenly spaced, or, for IQ4_NL, stand for whole numbers. */
#define INT8_ELEMS(X)                                                                                                  \
    X(KVB_INT8)                                                                                                        \
    X(KVB_UINT8) X(KVB_UINT4) X(KVB_UINT2) X(KVB_Q8_0) X(KVB_Q5_1) X(KVB_Q5_0) X(KVB_Q4_1) X(KVB_Q4_0) X(KVB_IQ4_NL)

/* How an element is stored. */
typedef struct int8_elem {
    uint8_t bits;        /* of a code, without a fifth bit that lies elsewhere; 0: not for integer products */
    uint8_t offset;      /* the middle of the codes: code - offset, a signed byte, is multiplied */
    uint8_t block_bytes; /* of 32 channels; 0: no block */
    uint8_t codes_at;    /* bytes from the start of a block to its codes */
    bool has_m;          /* m is stored for code 0; m + offset * d is used */
} int8_elem;

static inline int8_elem int8_elem_of(kvb_elem elem)
{
    static const int8_elem elems[KVB_ELEM_COUNT] = {
        [KVB_INT8] = {.bits = 8, .offset = 128},
        [KVB_UINT8] = {.bits = 8, .offset = 128, .has_m = true},
        [KVB_UINT4] = {.bits = 4, .offset = 8, .has_m = true},
        [KVB_UINT2] = {.bits = 2, .offset = 2, .has_m = true},
        [KVB_Q8_0] = {.bits = 8, .offset = 128, .block_bytes = 34, .codes_at = 2},
        [KVB_Q5_1] = {.bits = 4, .offset = 16, .block_bytes = 24, .codes_at = 8, .has_m = true},
        [KVB_Q5_0] = {.bits = 4, .offset = 16, .block_bytes = 22, .codes_at = 6},
        [KVB_Q4_1] = {.bits = 4, .offset = 8, .block_bytes = 20, .codes_at = 4, .has_m = true},
        [KVB_Q4_0] = {.bits = 4, .offset = 8, .block_bytes = 18, .codes_at = 2},
        [KVB_IQ4_NL] = {.bits = 4, .offset = 128, .block_bytes = 18, .codes_at = 2},
    };
    return elems[elem];
}

/* Codes in a dword of a tile of keys. With AVX2 codes of at most 5 bits are bytes as they are stored: 16 bits hold sums
 * of several of their products. */
#if defined(__AVX2__) && !defined(__AVX512F__) && TILE_CODES == 2
#define OWN_BYTES
#define KEYS_OF_BYTES(ELEM) (int8_elem_of(ELEM).offset < 128)
#else
#define KEYS_OF_BYTES(ELEM) ((void)(ELEM), false)
#endif
#define KEY_CODES(ELEM) (KEYS_OF_BYTES(ELEM) ? 4u : TILE_CODES)

/* A format at one length of rows. */
typedef struct int8_shape {
    int8_elem of;
    kvb_elem elem;
    uint32_t dim;
    uint32_t width;  /* of tiles: dim rounded up to a multiple of 64 */
    uint32_t group;  /* channels that share a d */
    uint32_t groups; /* of a row */
    bool f16;        /* d and m are f16, else f32 */
} int8_shape;

static inline int8_shape int8_shape_of(const kvb_format *f, uint32_t dim)
{
    int8_shape s = {.of = int8_elem_of(f->elem), .elem = f->elem, .dim = dim, .width = (dim + 63) / 64 * 64};
    s.group = f->group == KVB_GROUP_ROW ? dim : f->group;
    s.groups = dim / s.group;
    s.f16 = s.of.block_bytes || f->scale_elem == KVB_F16;
    return s;
}

/* The largest product of a weight and d is taken as at least this, since a smaller one has a subnormal step. A cell's
 * product with a code is then off by at most this much; relative to a row's largest weight, which is at least a half,
 * by twice as much. */
#define INT8_LEAST_PRODUCT 0x1p-110f

/* ---- query rows -------------------------------------------------------------------------------------------------- */

/* An encoded query row. Behind the sums, at a multiple of 64, lie the integers, as bytes or as 16 bits. */
typedef struct int8_query {
    float step;
    int32_t sums[]; /* of the integers of each group */
} int8_query;

static inline size_t int8_query_codes_at(const int8_shape *s)
{
    return (sizeof(int8_query) + s->groups * sizeof(int32_t) + 63) / 64 * 64;
}

/* Enough for every level, as an integer has 16 bits at most. A multiple of 64. */
static inline size_t int8_query_bytes(const int8_shape *s)
{
    return int8_query_codes_at(s) + (size_t)2 * s->width;
}

/*
 * The order of channels in a tile of keys. AVX-512 packs UINT4's with the even channels of each eight first: it
 * transposes a tile before it unpacks nibbles, and a byte holds an even channel below an odd one. AVX2 has the even two
 * of each four channels first where codes are widened to 16 bits.
 */
#if defined(__AVX512VNNI__)
#define EVEN_FIRST(ELEM) ((ELEM) == KVB_UINT4)
#else
#define EVEN_FIRST(ELEM) ((void)(ELEM), false)
#endif
#if defined(OWN_BYTES)
#define EVEN_PAIRS(ELEM) (!KEYS_OF_BYTES(ELEM))
#else
#define EVEN_PAIRS(ELEM) ((void)(ELEM), false)
#endif

/* ---- a packed block of rows: int8_pack.c ------------------------------------------------------------------------- */

/* Bytes of a tile of codes, two for each at most, and of a table of d or of m. Multiples of 64. */
static inline size_t int8_tile_bytes(const int8_shape *s)
{
    return (size_t)2 * s->width * BLOCK;
}
static inline size_t int8_table_bytes(const int8_shape *s)
{
    return (size_t)s->groups * BLOCK * sizeof(float);
}
static inline size_t int8_scratch_bytes(const int8_shape *s)
{
    return int8_tile_bytes(s) + 2 * int8_table_bytes(s);
}

#define INT8_SOME 16u /* cells that are packed at a time */

/* Cells that are computed for n cells: INT8_SOME if n is no more than that, else a whole block. */
static inline uint32_t int8_cells(uint32_t n)
{
    return n <= INT8_SOME ? INT8_SOME : BLOCK;
}

/* Where the rows of a block lie, for one KV head. */
typedef struct int8_rows {
    const uint8_t *row[BLOCK]; /* their codes; from n up to the next multiple of INT8_SOME the first row's */
    const uint32_t *at;        /* their cells, as stored */
    uint32_t n;
} int8_rows;

static inline void int8_rows_find(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n, int8_rows *rows)
{
    const uint8_t *base = (const uint8_t *)view->base + h * view->head_stride;
    const size_t stride = view->cell_stride;

    rows->n = n;
    rows->at = cells;
    for (uint32_t i = 0; i < n; i++)
        rows->row[i] = base + cells[i] * stride;
    for (uint32_t i = n; i % INT8_SOME; i++)
        rows->row[i] = rows->row[0];
}

/* A packed block. TOGETHER codes of the tile are summed together. */
typedef struct int8_block {
    int32_t *tile;
    float *d, *m; /* [groups][BLOCK], 0 from n to int8_cells(n); m is NULL where the format has none, else that of the
                     middle code */
} int8_block;

/*
 * Packs n <= BLOCK cells of a head, and prefetches half of `next` meanwhile. scratch: int8_scratch_bytes().
 * Keys: [width / TOGETHER][BLOCK][TOGETHER]: TOGETHER channels of a cell, then of the next cell; with KEYS_OF_BYTES
 * [width / 4][BLOCK][4]. Cells from n on hold anything. Values: [BLOCK / TOGETHER][width][TOGETHER]: one channel of
 * TOGETHER cells, then the next channel. Cells from n up to a multiple of TOGETHER hold anything, later ones are not
 * written.
 */
int8_block KVB_ISA_NAME(kvb_int8_keys)(const int8_shape *s, const kvb_view *view, uint32_t h, const uint32_t *cells,
                                       uint32_t n, kvb_lookahead *next, void *scratch);
int8_block KVB_ISA_NAME(kvb_int8_values)(const int8_shape *s, const kvb_view *view, uint32_t h, const uint32_t *cells,
                                         uint32_t n, kvb_lookahead *next, void *scratch);
/* Finds the rows and makes only d and m: the tile holds anything. */
int8_block KVB_ISA_NAME(kvb_int8_factors)(const int8_shape *s, const kvb_view *view, uint32_t h, const uint32_t *cells,
                                          uint32_t n, int8_rows *rows, void *scratch);

#endif
