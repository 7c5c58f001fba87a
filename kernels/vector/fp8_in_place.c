/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dots() and sums() of a level for small floats, by the level's own conversion; plain_*.c has plain floats. Converting
 * takes most of the time, so each element and number of query rows has one function, which looks up at each line how to
 * prefetch it. This look costs dots up to a tenth where nothing is prefetched, so there they have another function.
 * A level with KVB_FLOATS converts only e4m3 in a way of its own (AVX-512 VBMI); e5m2 is read by the level that it names.
 */
#ifdef KVB_FLOATS
#define FP8_HERE(X) X(KVB_E4M3)
#else
#define FP8_HERE(X) X(KVB_E4M3) X(KVB_E5M2)
#endif
#include "kernels/vector/in_place.h"

typedef void dots_fn(const kvb_stored_rows *keys, const float *const *q, float *scores);
typedef void sums_fn(const kvb_stored_rows *values, const float *weights, float *const *sums);

#define DOTS_WAY(WAY, DIM, ELEM, N)                                                                                    \
    static __attribute__((noinline)) void dots_##WAY##_##ELEM##_##N(const kvb_stored_rows *keys,                       \
                                                                    const float *const *q, float *scores)              \
    {                                                                                                                  \
        if (N <= tile_rows(ELEM) && (EACH_WAY_HERE || WAY == LINES_ANY))                                               \
            rows_dot(ELEM, N, keys, WAY, line_ahead_of(ELEM, N, keys->ahead), q, DIM, scores);                         \
    }
#define FUNCTIONS(ELEM, N)                                                                                             \
    DOTS_WAY(LINES_NONE, COMMON_DIM, ELEM, N)                                                                          \
    DOTS_WAY(LINES_ASKED, COMMON_DIM, ELEM, N)                                                                         \
    DOTS_WAY(LINES_ANY, keys->dim, ELEM, N)                                                                            \
    static void sums_##ELEM##_##N(const kvb_stored_rows *values, const float *weights, float *const *sums)             \
    {                                                                                                                  \
        const line_ahead ahead = line_ahead_of(ELEM, N, values->ahead);                                                \
        if (N <= sums_rows(ELEM) && values->ahead.sums_by_cells)                                                       \
            rows_sum_by_cells(ELEM, N, values, weights, LINES_ASKED, ahead, values->dim, sums);                        \
        else if (N <= sums_rows(ELEM))                                                                                 \
            rows_sum(ELEM, N, values, weights, LINES_ASKED, ahead, values->dim, sums);                                 \
    }
#define FUNCTIONS_OF(ELEM) EACH_ROWS(FUNCTIONS, ELEM)
FP8_HERE(FUNCTIONS_OF)

#define DOTS(ELEM, N)   {dots_LINES_NONE_##ELEM##_##N, dots_LINES_ASKED_##ELEM##_##N, dots_LINES_ANY_##ELEM##_##N},
#define SUMS(ELEM, N)   sums_##ELEM##_##N,
#define DOTS_LINE(ELEM) [ELEM == KVB_E5M2] = {EACH_ROWS(DOTS, ELEM)},
#define SUMS_LINE(ELEM) [ELEM == KVB_E5M2] = {EACH_ROWS(SUMS, ELEM)},
#define E5M2_HERE       (sizeof dots / sizeof *dots > 1)
static dots_fn *const dots[][DOTS_ROWS][3] = {FP8_HERE(DOTS_LINE)};
static sums_fn *const sums_of[][DOTS_ROWS] = {FP8_HERE(SUMS_LINE)};

bool KVB_ISA_NAME(kvb_dots)(const kvb_stored_rows *keys, const void *const *q, uint32_t n_rows, float *scores)
{
    if (!elem_is_fp8(keys->elem))
        return KVB_FLOATS_NAME(kvb_plain_dots)(keys, q, n_rows, scores);
    if (keys->elem == KVB_E5M2 && !E5M2_HERE)
        return KVB_FLOATS_NAME(kvb_dots)(keys, q, n_rows, scores);
    const float *rows[DOTS_ROWS];
    kvb_stored_rows here = *keys;
    for (uint32_t r = 0; r < n_rows; r++)
        rows[r] = q[r];
    for (uint32_t r = 0, some; r < n_rows; r += some) {
        some = rows_of_pass(n_rows - r, tile_rows(KVB_E4M3));
        const line_way loop = loop_of(&here);
        dots[keys->elem == KVB_E5M2][some - 1][loop == LINES_ANY ? 2 : loop != LINES_NONE](&here, rows + r,
                                                                                           scores + r * BLOCK);
        here.ahead.bytes = 0; /* prefetched */
    }
    return true;
}

bool KVB_ISA_NAME(kvb_sums)(const kvb_stored_rows *values, const float *weights, uint32_t n_rows, float *const *sums)
{
    if (!elem_is_fp8(values->elem))
        return KVB_FLOATS_NAME(kvb_plain_sums)(values, weights, n_rows, sums);
    if (values->elem == KVB_E5M2 && !E5M2_HERE)
        return KVB_FLOATS_NAME(kvb_sums)(values, weights, n_rows, sums);
    kvb_stored_rows here = *values;
    for (uint32_t r = 0, some; r < n_rows; r += some) {
        some = rows_of_pass(n_rows - r, sums_rows(KVB_E4M3));
        sums_of[values->elem == KVB_E5M2][some - 1](&here, weights + r * BLOCK, sums + r);
        here.ahead.bytes = 0; /* prefetched */
    }
    return true;
}
