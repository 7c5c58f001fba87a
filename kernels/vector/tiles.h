/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMX: eight registers of 16 rows of 64 bytes, tiles, of each thread. Intel SDM, volume 1, chapter 18, and the instructions'
 * pages in volume 2. T, C, A and B are digits.
 *
 *   tiles_open(depth), tiles_close()   before the first and after the last of the others. C are tiles 0 to 3, A 4 and 5, B 6 and 7.
 *                                      C has 16 rows of 16 dwords, A 16 rows of `depth`, B `depth` rows of 16
 *   tile_zero(T)
 *   tile_load(T, at, stride)           rows from `at` on, `stride` bytes apart; tile_store() alike
 *   tile_dot_bf16(C, A, B)             C[m][n] += sum over k < depth of the products of both bf16 of A[m][k] and B[k][n]
 *   tile_dot_i8(C, A, B)               the same of four bytes, of A signed, of B unsigned; C is int32, and wraps around
 *
 * With KVB_TILES_EMULATED plain C does the same, with the same bits.
 */
#ifndef KVB_VECTOR_TILES_H
#define KVB_VECTOR_TILES_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TILE_ROWS_MAX 16u
#define TILE_BYTES    64u /* of a row */
#define TILE_LANES    (TILE_BYTES / 4)

static inline uint32_t tile_rows(uint32_t t, uint32_t depth)
{
    return t < 6 ? TILE_ROWS_MAX : depth;
}
static inline uint32_t tile_row_bytes(uint32_t t, uint32_t depth)
{
    return t == 4 || t == 5 ? depth * 4 : TILE_BYTES;
}

#if !defined(KVB_TILES_EMULATED)

/* What LDTILECFG reads. Palette 1 has the eight tiles. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static inline void tiles_open(uint32_t depth)
{
    tile_config config = {.palette = 1};
    for (uint32_t t = 0; t < 8; t++) {
        config.row_bytes[t] = (uint16_t)tile_row_bytes(t, depth);
        config.rows[t] = (uint8_t)tile_rows(t, depth);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
}
static inline void tiles_close(void)
{
    __asm__ volatile("tilerelease");
}

/* As asm: the intrinsics of gcc 12 do not say that they read memory. */
#define tile_zero(T) __asm__ volatile("tilezero %%tmm" #T : :)
#define tile_load(T, AT, STRIDE)                                                                                       \
    __asm__ volatile("tileloadd (%0,%1), %%tmm" #T : : "r"((const void *)(AT)), "r"((size_t)(STRIDE)) : "memory")
#define tile_store(T, AT, STRIDE)                                                                                      \
    __asm__ volatile("tilestored %%tmm" #T ", (%0,%1)" : : "r"((void *)(AT)), "r"((size_t)(STRIDE)) : "memory")
#define tile_dot_bf16(C, A, B) __asm__ volatile("tdpbf16ps %%tmm" #B ", %%tmm" #A ", %%tmm" #C : :)
#define tile_dot_i8(C, A, B)   __asm__ volatile("tdpbsud %%tmm" #B ", %%tmm" #A ", %%tmm" #C : :)

#else

typedef union tile_register {
    uint8_t row[TILE_ROWS_MAX][TILE_BYTES];
    float f32[TILE_ROWS_MAX][TILE_BYTES / 4];
    uint32_t u32[TILE_ROWS_MAX][TILE_BYTES / 4];
    uint16_t bf16[TILE_ROWS_MAX][TILE_BYTES / 2];
} tile_register;
static _Thread_local tile_register tiles[8];
static _Thread_local uint32_t tiles_depth;

static inline void tiles_open(uint32_t depth)
{
    memset(tiles, 0, sizeof tiles); /* LDTILECFG does */
    tiles_depth = depth;
}
static inline void tiles_close(void)
{
    memset(tiles, 0xff, sizeof tiles); /* so that no later use passes unseen */
}

static inline void tile_load_emulated(uint32_t t, const void *at, size_t stride)
{
    memset(&tiles[t], 0, sizeof *tiles); /* rows and bytes that the tile does not have */
    for (uint32_t m = 0; m < tile_rows(t, tiles_depth); m++)
        memcpy(tiles[t].row[m], (const char *)at + m * stride, tile_row_bytes(t, tiles_depth));
}
static inline void tile_store_emulated(uint32_t t, void *at, size_t stride)
{
    for (uint32_t m = 0; m < tile_rows(t, tiles_depth); m++)
        memcpy((char *)at + m * stride, tiles[t].row[m], tile_row_bytes(t, tiles_depth));
}

/* bf16 as f32; subnormal numbers are 0. */
static inline float tile_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)(bits & 0x7f80 ? bits : bits & 0x8000) << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}
/* Flushes results that are below the normal numbers when rounded to 24 bits. exact: x before that rounding. */
static inline float tile_flush(float x, double exact)
{
    return fabs(exact) < 0x1p-126 - 0x1p-151 ? copysignf(0, x) : x;
}
static inline float tile_add(float a, float b)
{
    const float x = tile_flush(a, (double)a), y = tile_flush(b, (double)b);
    return tile_flush(x + y, (double)x + (double)y);
}

/* Adds x[i % 2] * y[i] to sum[i], and flushes. */
static inline void tile_pairs_add(const float x[2], const float y[TILE_BYTES / 2], float sum[TILE_BYTES / 2])
{
    float next[TILE_BYTES / 2];
    uint32_t bits[TILE_BYTES / 2], small = 0; /* is a result above 0, and not above the least normal number? */

    for (uint32_t n = 0; n < TILE_BYTES / 4; n++) {
        next[2 * n] = fmaf(x[0], y[2 * n], sum[2 * n]);
        next[2 * n + 1] = fmaf(x[1], y[2 * n + 1], sum[2 * n + 1]);
    }
    memcpy(bits, next, sizeof bits);
    for (uint32_t i = 0; i < TILE_BYTES / 2; i++)
        small |= (bits[i] & 0x7fffffffu) - 1 < 0x00800000u;
    for (uint32_t i = 0; small && i < TILE_BYTES / 2; i++)
        next[i] = tile_flush(next[i], (double)x[i % 2] * (double)y[i] + (double)sum[i]);
    memcpy(sum, next, sizeof next);
}

/* TDPBF16PS, as the SDM's pseudo code has it: two sums of fused multiply-adds, of even and of odd elements, from 0 on. */
static __attribute__((noinline, unused)) void tile_dot_bf16_emulated(tile_register *c, const tile_register *a,
                                                                     const tile_register *b)
{
    float x[TILE_ROWS_MAX][TILE_BYTES / 2], y[TILE_BYTES / 4][TILE_BYTES / 2];
    for (uint32_t k = 0; k < TILE_BYTES / 4; k++)
        for (uint32_t i = 0; i < TILE_BYTES / 2; i++) {
            x[k][i] = tile_bf16(a->bf16[k][i]);
            y[k][i] = tile_bf16(b->bf16[k][i]);
        }
    for (uint32_t m = 0; m < TILE_ROWS_MAX; m++) {
        float sum[TILE_BYTES / 2] = {0};
        for (uint32_t k = 0; k < TILE_BYTES / 4; k++)
            tile_pairs_add(&x[m][2 * k], y[k], sum);
        for (uint32_t n = 0; n < TILE_BYTES / 4; n++)
            c->f32[m][n] = tile_add(c->f32[m][n], tile_add(sum[2 * n], sum[2 * n + 1]));
    }
}

/* TDPBSUD */
static inline void tile_dot_i8_emulated(tile_register *c, const tile_register *a, const tile_register *b)
{
    for (uint32_t m = 0; m < TILE_ROWS_MAX; m++)
        for (uint32_t k = 0; k < TILE_BYTES / 4; k++) {
            const int8_t *x = (const int8_t *)&a->row[m][4 * k];
            const uint8_t *y = b->row[k];
            for (uint32_t n = 0; n < TILE_BYTES / 4; n++)
                c->u32[m][n] +=
                    (uint32_t)(x[0] * y[4 * n] + x[1] * y[4 * n + 1] + x[2] * y[4 * n + 2] + x[3] * y[4 * n + 3]);
        }
}

#define tile_zero(T)              memset(&tiles[T], 0, sizeof(tile_register))
#define tile_load(T, AT, STRIDE)  tile_load_emulated(T, AT, STRIDE)
#define tile_store(T, AT, STRIDE) tile_store_emulated(T, AT, STRIDE)
#define tile_dot_bf16(C, A, B)    tile_dot_bf16_emulated(&tiles[C], &tiles[A], &tiles[B])
#define tile_dot_i8(C, A, B)      tile_dot_i8_emulated(&tiles[C], &tiles[A], &tiles[B])

#endif

/* ---- products of rows in memory ---------------------------------------------------------------------------------- */

/* Up to 16 rows as one tile reads them. */
typedef struct tile_at {
    char *at;
    size_t stride;
} tile_at;

/* From a row to the next, if there are 16 at equal distances; else 0. */
static inline size_t tile_stride(const void *const *rows, uint32_t n)
{
    const uintptr_t first = (uintptr_t)rows[0], stride = n == TILE_ROWS_MAX ? (uintptr_t)rows[1] - first : 0;
    bool even = n == TILE_ROWS_MAX && (uintptr_t)rows[1] > first;
    for (uint32_t i = 2; even && i < TILE_ROWS_MAX; i++)
        even = (uintptr_t)rows[i] == first + i * stride;
    return even ? stride : 0;
}

/* `bytes` of each of n rows, from byte `from` on: where they are, or without a stride copied to `copy` [16][bytes]. Rows
 * from n on are anything finite. */
static inline tile_at tile_find(const void *const *rows, uint32_t n, size_t stride, size_t from, size_t bytes,
                                void *copy)
{
    if (stride)
        return (tile_at){(char *)(uintptr_t)rows[0] + from, stride};
    for (uint32_t i = 0; i < TILE_ROWS_MAX; i++)
        memcpy((char *)copy + i * bytes, (const char *)rows[i < n ? i : 0] + from, bytes);
    return (tile_at){copy, bytes};
}

/* Rows in tile i (0 or 1) of a panel of n rows. */
static inline uint32_t tile_rows_of(uint32_t n, uint32_t i)
{
    const uint32_t left = n - (i ? TILE_ROWS_MAX : 0);
    return left < TILE_ROWS_MAX ? left : TILE_ROWS_MAX;
}

/*
 * Multiplies one or two tiles of rows with one or two tiles of columns. Adds the products of the first rows to tiles 0
 * and 1, of the second rows to tiles 2 and 3. Rows are read from byte `from` on. The tiles of columns lie side by side at b; their rows are `stride` bytes apart.
 * `bytes` says that the elements are bytes; otherwise they are bf16.
 */
static inline __attribute__((always_inline)) void tiles_multiply(bool bytes, const tile_at a[2], size_t from,
                                                                 bool two_rows, const int32_t *b, size_t stride,
                                                                 bool two_columns)
{
#define TILE_DOT(C, A, B)                                                                                              \
    do {                                                                                                               \
        if (bytes)                                                                                                     \
            tile_dot_i8(C, A, B);                                                                                      \
        else                                                                                                           \
            tile_dot_bf16(C, A, B);                                                                                    \
    } while (0)
    tile_load(4, a[0].at + from, a[0].stride);
    tile_load(6, b, stride);
    TILE_DOT(0, 4, 6);
    if (two_columns) {
        tile_load(7, b + TILE_LANES, stride);
        TILE_DOT(1, 4, 7);
    }
    if (!two_rows)
        return;
    tile_load(5, a[1].at + from, a[1].stride);
    TILE_DOT(2, 5, 6);
    if (two_columns)
        TILE_DOT(3, 5, 7);
#undef TILE_DOT
}

#endif
