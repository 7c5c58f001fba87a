/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMX: eight registers of 16 rows of 64 bytes, tiles, of each thread. Intel SDM, volume 1, chapter 18, and the instructions'
 * pages in volume 2. T, C, A and B are digits.
 *
 *   tiles_open(), tiles_close()   before the first and after the last of the others; all tiles are whole
 *   tile_zero(T)
 *   tile_load(T, at, stride)      rows from `at` on, `stride` bytes apart; tile_store() alike
 *   tile_dot_bf16(C, A, B)        C[m][n] += sum over k < 16 of the products of both bf16 of A[m][k] and B[k][n]
 *   tile_dot_u8(C, A, B)          the same of four bytes, of A unsigned, of B signed; C is int32, and wraps around
 *
 * With KVB_TILES_EMULATED plain C does the same, with the same bits.
 */
#ifndef KVB_VECTOR_TILES_H
#define KVB_VECTOR_TILES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TILE_ROWS_MAX 16u
#define TILE_BYTES    64u /* of a row */

#if !defined(KVB_TILES_EMULATED)

/* What LDTILECFG reads. Palette 1 has the eight tiles. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static inline void tiles_open(void)
{
    static const _Alignas(64) tile_config whole = {
        .palette = 1,
        .row_bytes = {TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES},
        .rows = {TILE_ROWS_MAX, TILE_ROWS_MAX, TILE_ROWS_MAX, TILE_ROWS_MAX, TILE_ROWS_MAX, TILE_ROWS_MAX,
                 TILE_ROWS_MAX, TILE_ROWS_MAX}};
    __asm__ volatile("ldtilecfg %0" : : "m"(whole));
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
#define tile_dot_u8(C, A, B)   __asm__ volatile("tdpbusd %%tmm" #B ", %%tmm" #A ", %%tmm" #C : :)

#else

typedef union tile_register {
    uint8_t row[TILE_ROWS_MAX][TILE_BYTES];
    float f32[TILE_ROWS_MAX][TILE_BYTES / 4];
    uint32_t u32[TILE_ROWS_MAX][TILE_BYTES / 4];
    uint16_t bf16[TILE_ROWS_MAX][TILE_BYTES / 2];
} tile_register;
static _Thread_local tile_register tiles[8];

static inline void tiles_open(void)
{
    memset(tiles, 0, sizeof tiles); /* LDTILECFG does */
}
static inline void tiles_close(void)
{
    memset(tiles, 0xff, sizeof tiles); /* so that no later use passes unseen */
}

static inline void tile_load_emulated(tile_register *t, const void *at, size_t stride)
{
    for (uint32_t m = 0; m < TILE_ROWS_MAX; m++)
        memcpy(t->row[m], (const char *)at + m * stride, TILE_BYTES);
}
static inline void tile_store_emulated(const tile_register *t, void *at, size_t stride)
{
    for (uint32_t m = 0; m < TILE_ROWS_MAX; m++)
        memcpy((char *)at + m * stride, t->row[m], TILE_BYTES);
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

/* TDPBF16PS, as the SDM's pseudo code has it: two sums of fused multiply-adds, of even and of odd elements, from 0 on. */
static inline void tile_dot_bf16_emulated(tile_register *c, const tile_register *a, const tile_register *b)
{
    for (uint32_t m = 0; m < TILE_ROWS_MAX; m++) {
        float sum[TILE_BYTES / 2] = {0};
        for (uint32_t k = 0; k < TILE_BYTES / 4; k++)
            for (uint32_t i = 0; i < TILE_BYTES / 2; i++) {
                const float x = tile_bf16(a->bf16[m][2 * k + i % 2]), y = tile_bf16(b->bf16[k][i]);
                sum[i] = tile_flush(fmaf(x, y, sum[i]), (double)x * (double)y + (double)sum[i]);
            }
        for (uint32_t n = 0; n < TILE_BYTES / 4; n++)
            c->f32[m][n] = tile_add(c->f32[m][n], tile_add(sum[2 * n], sum[2 * n + 1]));
    }
}

/* TDPBUSD */
static inline void tile_dot_u8_emulated(tile_register *c, const tile_register *a, const tile_register *b)
{
    for (uint32_t m = 0; m < TILE_ROWS_MAX; m++)
        for (uint32_t k = 0; k < TILE_BYTES / 4; k++)
            for (uint32_t i = 0; i < TILE_BYTES; i++)
                c->u32[m][i / 4] += (uint32_t)(a->row[m][4 * k + i % 4] * (int8_t)b->row[k][i]);
}

#define tile_zero(T)              memset(&tiles[T], 0, sizeof(tile_register))
#define tile_load(T, AT, STRIDE)  tile_load_emulated(&tiles[T], AT, STRIDE)
#define tile_store(T, AT, STRIDE) tile_store_emulated(&tiles[T], AT, STRIDE)
#define tile_dot_bf16(C, A, B)    tile_dot_bf16_emulated(&tiles[C], &tiles[A], &tiles[B])
#define tile_dot_u8(C, A, B)      tile_dot_u8_emulated(&tiles[C], &tiles[A], &tiles[B])

#endif
#endif
