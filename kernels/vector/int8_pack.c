/* SPDX-License-Identifier: Apache-2.0 */
/* Packs the rows of a block for products of integers: a tile of their codes, tables of their d and m. */
#include "kernels/vector/int8.h"
#include "kernels/vector/vec.h"

/* ---- tiles of codes ---------------------------------------------------------------------------------------------- */

/* Each level has keys_pack() and values_pack(). They pack rows i .. i + INT8_SOME - 1 of a block, as far as there are
 * any. */
#if defined(__AVX512BW__)
#include "kernels/vector/int8_pack_avx512.h"
#elif defined(__AVX2__)
#include "kernels/vector/int8_pack_avx2.h"
#define OWN_TABLES true
#else

typedef uint8_t sixteen __attribute__((vector_size(16)));

/* ggml's kvalues_iq4nl, 128 added. */
VEC_INLINE sixteen iq4_nl_of(sixteen nibbles)
{
    static const uint8_t levels[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
#if defined(KVB_NEON)
    return vqtbl1q_u8(vld1q_u8(levels), nibbles);
#else
    uint8_t x[16];
    memcpy(x, &nibbles, sizeof x);
    for (uint32_t j = 0; j < 16; j++)
        x[j] = levels[x[j]];
    memcpy(&nibbles, x, sizeof x);
    return nibbles;
#endif
}

VEC_INLINE void nibbles_of_block(kvb_elem elem, const uint8_t *restrict block, uint8_t *restrict codes)
{
    const uint64_t each = 0x0101010101010101u;
    const int8_elem of = int8_elem_of(elem);
    sixteen both, low, high;

    memcpy(&both, block + of.codes_at, sizeof both);
    low = both & 15;
    high = both >> 4;
    if (elem == KVB_IQ4_NL)
        low = iq4_nl_of(low), high = iq4_nl_of(high);
    memcpy(codes, &low, sizeof low);
    memcpy(codes + 16, &high, sizeof high);
    if (of.offset != 16)
        return;
    for (uint32_t j = 0; j < 4; j++) { /* eight fifth bits, each to bit 4 of a byte */
        uint64_t eight, bits = (block[of.codes_at - 4 + j] * each) & 0x8040201008040201u;
        memcpy(&eight, codes + 8 * j, sizeof eight);
        eight |= (bits + 0x7f * each) >> 3 & 0x10 * each;
        memcpy(codes + 8 * j, &eight, sizeof eight);
    }
}

/* Codes of a whole row. */
VEC_INLINE void codes_read(kvb_elem elem, const uint8_t *restrict row, uint32_t dim, uint8_t *restrict codes)
{
    const int8_elem of = int8_elem_of(elem);
    if (of.block_bytes && of.bits == 4) {
        for (uint32_t c = 0; c < dim; c += 32)
            nibbles_of_block(elem, row + c / 32 * of.block_bytes, codes + c);
    } else if (of.block_bytes) {
        for (uint32_t c = 0; c < dim; c += 32)
            memcpy(codes + c, row + c / 32 * of.block_bytes + of.codes_at, 32);
        for (uint32_t c = 0; c < dim; c++)
            codes[c] ^= 0x80;
    } else if (of.bits == 8) {
        for (uint32_t c = 0; c < dim; c++)
            codes[c] = elem == KVB_INT8 ? row[c] ^ 0x80 : row[c];
    } else if (of.bits == 4) {
        for (uint32_t c = 0; c < dim / 2; c++) {
            codes[2 * c] = row[c] & 15;
            codes[2 * c + 1] = row[c] >> 4;
        }
    } else {
        for (uint32_t c = 0; c < dim / 4; c++)
            for (uint32_t j = 0; j < 4; j++)
                codes[4 * c + j] = row[c] >> 2 * j & 3;
    }
}

/* A row's (code - offset), in the size that they are multiplied in; zeros behind, to whole dwords of a vector. */
#if TILE_CODES == 4
typedef int8_t code_less;
#else
typedef int16_t code_less;
#endif
VEC_INLINE void row_read(kvb_elem elem, const uint8_t *row, uint32_t dim, uint8_t *restrict codes,
                         code_less *restrict to)
{
    const int16_t offset = int8_elem_of(elem).offset;
    codes_read(elem, row, dim, codes);
    for (uint32_t c = 0; c < dim; c++)
        to[c] = (code_less)(codes[c] - offset);
    for (uint32_t c = dim; c % (TILE_CODES * VL); c++)
        to[c] = 0;
}

/* Stores dword x[0] of VL cells, and beside it x[1] where two lie together. */
VEC_INLINE void dwords_store(int32_t *to, const vf *x)
{
    float *at = (float *)(void *)to;
#if TILE_DWORDS == 2
    vf_store(at, vf_zip(x[0], x[1], false));
    vf_store(at + VL, vf_zip(x[0], x[1], true));
#else
    vf_store(at, x[0]);
#endif
}

/* Transposes VL rows of dwords at a time, in registers, as floats: moving floats changes no bits. */
VEC_INLINE void keys_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile)
{
    const uint32_t first = i, end = i < rows->n ? i + INT8_SOME : i;
    uint8_t codes[INT8_MAX_DIM];
    code_less row[VL][INT8_MAX_DIM];
    vf x[VL];
    for (; i < end; i += VL) {
        for (uint32_t j = 0; j < VL; j++)
            row_read(elem, rows->row[i + j < rows->n ? i + j : first], s->dim, codes, row[j]);
        for (uint32_t c = 0; c < s->dim; c += TILE_CODES * VL) {
            for (uint32_t j = 0; j < VL; j++)
                x[j] = vf_load((const float *)(const void *)(row[j] + c));
            vf_transpose(x);
            for (uint32_t j = 0; j < VL; j += TILE_DWORDS)
                dwords_store(tile + (c / TILE_CODES + j) * BLOCK + i * TILE_DWORDS, x + j);
        }
    }
}

VEC_INLINE void values_pack(kvb_elem elem, const int8_shape *s, const int8_rows *rows, uint32_t i,
                            int32_t *restrict tile)
{
    const uint32_t end = i + INT8_SOME < rows->n ? i + INT8_SOME : rows->n;
    uint8_t codes[INT8_MAX_DIM];
    code_less row[TOGETHER][INT8_MAX_DIM];
    for (tile += i / TILE_CODES * s->width; i < end; i += TOGETHER, tile += TILE_DWORDS * s->width) {
        code_less *to = (code_less *)tile;
        for (uint32_t j = 0; j < TOGETHER; j++)
            if (i + j < rows->n)
                row_read(elem, rows->row[i + j], s->dim, codes, row[j]);
            else
                memset(row[j], 0, s->dim * sizeof **row);
        for (uint32_t c = 0; c < s->dim; c++)
            for (uint32_t j = 0; j < TOGETHER; j++)
                to[TOGETHER * c + j] = row[j][c];
    }
}

#endif

#define KEYS(ELEM)                                                                                                     \
    case ELEM:                                                                                                         \
        keys_pack(ELEM, s, rows, i, tile);                                                                             \
        break;
#define VALUES(ELEM)                                                                                                   \
    case ELEM:                                                                                                         \
        values_pack(ELEM, s, rows, i, tile);                                                                           \
        break;

typedef void pack(const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile);

static void pack_keys(const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile)
{
    switch (s->elem) {
        INT8_ELEMS(KEYS)
    default:
        break;
    }
}

static void pack_values(const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile)
{
    switch (s->elem) {
        INT8_ELEMS(VALUES)
    default:
        break;
    }
}

/* ---- tables of d and m ------------------------------------------------------------------------------------------- */

#ifndef OWN_TABLES
#define OWN_TABLES false /* else f16_table() finds f16 where they lie: nothing is collected */
#endif

/* The d, or the m, of a head's cells: where they lie, and those of a block, collected as [cell][group]. */
typedef struct int8_factors {
    const uint8_t *at;    /* of cell 0 and group 0 */
    size_t cell, group;   /* bytes from one to the next */
    const uint8_t *whole; /* the block's factors, which lie here in the order of `held`; NULL: they are collected */
    _Alignas(64) uint8_t held[INT8_MAX_DIM / 32 * BLOCK * sizeof(float)];
} int8_factors;

/* Four f16 that lie `apart` bytes from each other. */
VEC_INLINE void four_f16_copy(void *to, const uint8_t *at, size_t apart)
{
    uint16_t h[4];
    for (uint32_t i = 0; i < 4; i++)
        memcpy(&h[i], at + i * apart, sizeof h[i]);
#if defined(__AVX2__) /* one store: four are slower */
    __m128i x = _mm_insert_epi16(_mm_insert_epi16(_mm_cvtsi32_si128(h[0]), h[1], 1), h[2], 2);
    _mm_storel_epi64(to, _mm_insert_epi16(x, h[3], 3));
#else
    memcpy(to, h, sizeof h);
#endif
}

/* p holds f16 [VL][groups]. Returns those of group g as floats. */
VEC_INLINE vf vf_load_f16_each(const void *p, uint32_t groups, uint32_t g)
{
    uint16_t each[VL];
    if (groups == 1)
        return vf_load_f16(p);
#if defined(__AVX512BW__)
    const __m512i pairs = _mm512_setr_epi32(0x00010000, 0x00030002, 0x00050004, 0x00070006, 0x00090008, 0x000b000a,
                                            0x000d000c, 0x000f000e, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i at =
        _mm512_add_epi16(_mm512_mullo_epi16(pairs, _mm512_set1_epi16((short)groups)), _mm512_set1_epi16((short)g));
    __m512i low = _mm512_loadu_si512(p);
    if (groups == 2)
        return _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_permutexvar_epi16(at, low)));
    if (groups == 4) {
        low = _mm512_permutex2var_epi16(low, at, _mm512_loadu_si512((const char *)p + sizeof low));
        return _mm512_cvtph_ps(_mm512_castsi512_si256(low));
    }
#endif
    for (uint32_t i = 0; i < VL; i++)
        memcpy(&each[i], (const char *)p + (i * groups + g) * sizeof *each, sizeof *each);
    return vf_load_f16(each);
}

/* Where a block's factors lie, if it is whole, its cells are neighbours and nothing lies between their factors; else
 * NULL. */
static const uint8_t *factors_whole(const int8_shape *s, const int8_rows *rows, const int8_factors *f)
{
    uint32_t far = 0;
    for (uint32_t i = 0; i < rows->n; i++)
        far |= rows->at[i] ^ (rows->at[0] + i);
    return far || rows->n < BLOCK || f->cell != s->groups * f->group ? NULL : f->at + rows->at[0] * f->cell;
}

/* Finds where d and m lie. Leaves *m as it is if the format has none. */
static void factors_find(const int8_shape *s, const kvb_view *view, uint32_t h, const int8_rows *rows, int8_factors *d,
                         int8_factors *m)
{
    const uint8_t *row = (const uint8_t *)view->base + h * view->head_stride;
    const size_t block = s->of.block_bytes, beside = s->f16 ? sizeof(uint16_t) : sizeof(float);

    d->group = m->group = block ? block : beside;
    d->cell = block ? view->cell_stride : view->scale_cell_stride;
    d->at = block ? row : (const uint8_t *)view->scales + h * view->scale_head_stride;
    d->whole = block ? NULL : factors_whole(s, rows, d);
    if (!s->of.has_m)
        return;
    m->cell = block ? view->cell_stride : view->zero_cell_stride;
    m->at = block ? row + sizeof(uint16_t) : (const uint8_t *)view->zeros + h * view->zero_head_stride;
    m->whole = block ? NULL : factors_whole(s, rows, m);
}

/* Collects `parts` factors of `bytes` bytes for each of cells i .. end-1. */
VEC_INLINE void cells_collect(const int8_rows *rows, uint32_t i, uint32_t end, uint32_t parts, size_t bytes,
                              int8_factors *f)
{
    for (; i < end; i++) {
        const uint8_t *at = f->at + rows->at[i] * f->cell;
        uint8_t *to = f->held + i * parts * bytes;
        if (parts == 4 && bytes == sizeof(uint16_t))
            four_f16_copy(to, at, f->group);
        else
            for (uint32_t g = 0; g < parts; g++)
                memcpy(to + g * bytes, at + g * f->group, bytes);
    }
}

/* Collects the factors of rows i .. i + INT8_SOME - 1, as far as there are any. */
static void factors_collect(const int8_shape *s, const int8_rows *rows, uint32_t i, int8_factors *f)
{
    const uint32_t end = i + INT8_SOME < rows->n ? i + INT8_SOME : rows->n, groups = s->groups;
    const size_t beside = groups * f->group; /* bytes of a cell in a side table */
    if (f->whole || (OWN_TABLES && s->f16))
        return;
    if (s->of.block_bytes && groups == 4) /* the commonest: rows of 128 in blocks of 32 */
        cells_collect(rows, i, end, 4, sizeof(uint16_t), f);
    else if (s->of.block_bytes)
        cells_collect(rows, i, end, groups, sizeof(uint16_t), f);
    else if (beside == 4) /* two f16, or a float */
        cells_collect(rows, i, end, 1, 4, f);
    else
        cells_collect(rows, i, end, 1, beside, f);
}

VEC_INLINE void table_of_f16(const uint8_t *from, uint32_t groups, uint32_t cells, float *table)
{
    for (uint32_t i = 0; i < cells; i += VL)
        for (uint32_t g = 0; g < groups; g++)
            vf_store(table + g * BLOCK + i, vf_load_f16_each(from + i * groups * sizeof(uint16_t), groups, g));
}

/* table [groups][BLOCK], 0 from n to int8_cells(n) */
static void table_make(const int8_shape *s, const int8_rows *rows, int8_factors *f, float *table)
{
    const uint32_t groups = s->groups, cells = int8_cells(rows->n);
    const size_t size = groups * (s->f16 ? sizeof(uint16_t) : sizeof(float)); /* of a cell */
    const uint8_t *from = f->whole ? f->whole : f->held;

#if OWN_TABLES
    if (s->f16) {
        f16_table(rows, f->at, f->cell, s->of.block_bytes, groups, table);
        for (uint32_t g = 0; rows->n < cells && g < groups; g++)
            memset(table + g * BLOCK + rows->n, 0, (cells - rows->n) * sizeof *table);
        return;
    }
#endif
    if (rows->n < cells)
        memset(f->held + rows->n * size, 0, (cells - rows->n) * size);
    if (!s->f16 && groups == 1)
        memcpy(table, from, cells * sizeof *table);
    else if (!s->f16)
        for (uint32_t i = 0; i < groups * cells; i++)
            memcpy(&table[i % groups * BLOCK + i / groups], from + i * sizeof *table, sizeof *table);
    else if (groups == 1)
        table_of_f16(from, 1, cells, table);
    else if (groups == 2)
        table_of_f16(from, 2, cells, table);
    else if (groups == 4)
        table_of_f16(from, 4, cells, table);
    else
        table_of_f16(from, groups, cells, table);
}

/* Makes the tables of d and m once all factors are collected. m is NULL if the format has none. */
static void tables_make(const int8_shape *s, const int8_rows *rows, int8_factors *of_d, int8_factors *of_m, float *d,
                        float *m)
{
    table_make(s, rows, of_d, d);
    if (!m)
        return;
    table_make(s, rows, of_m, m);
    for (uint32_t g = 0; g < s->groups; g++, d += BLOCK, m += BLOCK) /* stored for code 0, used for the middle code */
        for (uint32_t i = 0; i < int8_cells(rows->n); i += VL)
            vf_store(m + i, vf_fma(vf_load(d + i), vf_set(s->of.offset), vf_load(m + i)));
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Makes tile, d and m, one after the other in scratch, from some cells at a time, so that loads of factors and shuffles
 * of codes overlap. some NULL: makes no tile. */
static int8_block block_make(const int8_shape *s, const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n,
                             pack *some, kvb_lookahead *next, int8_rows *rows, void *scratch)
{
    float *table = (float *)(void *)((char *)scratch + int8_tile_bytes(s));
    int8_block block = {scratch, table, s->of.has_m ? table + int8_table_bytes(s) / sizeof *table : NULL};
    int8_factors d, m;

    int8_rows_find(view, h, cells, n, rows);
    factors_find(s, view, h, rows, &d, &m);
    for (uint32_t i = 0; i < int8_cells(n); i += INT8_SOME) {
        factors_collect(s, rows, i, &d);
        if (block.m)
            factors_collect(s, rows, i, &m);
        if (some)
            some(s, rows, i, block.tile);
        kvb_lookahead_step(next);
    }
    kvb_lookahead_until(next, 1, 2);
    tables_make(s, rows, &d, &m, block.d, block.m);
    return block;
}

int8_block KVB_ISA_NAME(kvb_int8_factors)(const int8_shape *s, const kvb_view *view, uint32_t h, const uint32_t *cells,
                                          uint32_t n, int8_rows *rows, void *scratch)
{
    return block_make(s, view, h, cells, n, NULL, NULL, rows, scratch);
}

int8_block KVB_ISA_NAME(kvb_int8_keys)(const int8_shape *s, const kvb_view *view, uint32_t h, const uint32_t *cells,
                                       uint32_t n, kvb_lookahead *next, void *scratch)
{
    int8_rows rows;
    return block_make(s, view, h, cells, n, pack_keys, next, &rows, scratch);
}

int8_block KVB_ISA_NAME(kvb_int8_values)(const int8_shape *s, const kvb_view *view, uint32_t h, const uint32_t *cells,
                                         uint32_t n, kvb_lookahead *next, void *scratch)
{
    int8_rows rows;
    return block_make(s, view, h, cells, n, pack_values, next, &rows, scratch);
}
