/* SPDX-License-Identifier: Apache-2.0 */
/* Dot products of few query rows with stored rows of plain floats: functions for each way of prefetching (in_place.h).
 */
#include "kernels/vector/in_place.h"

typedef void dots_fn(const kvb_stored_rows *keys, const float *const *q, float *scores);

#define DOTS(NAME, WAY, DIM, ELEM, N)                                                                                  \
    static __attribute__((noinline)) void dots_##NAME##_##ELEM##_##N(const kvb_stored_rows *keys,                      \
                                                                     const float *const *q, float *scores)             \
    {                                                                                                                  \
        if (EACH_WAY_HERE || WAY == LINES_ANY)                                                                         \
            rows_dot(ELEM, N, keys, WAY, line_ahead_of(ELEM, N, keys->ahead), q, DIM, scores);                         \
    }
#define DOTS_WAY(WAY, ELEM, N) DOTS(WAY, WAY, COMMON_DIM, ELEM, N)
#define DOTS_WAYS(ELEM, N)     EACH_WAY(DOTS_WAY, ELEM, N) DOTS(any, LINES_ANY, keys->dim, ELEM, N)
#define DOTS_OF(ELEM)          EACH_FEW(DOTS_WAYS, ELEM)
PLAIN_ELEMS(DOTS_OF)

static dots_fn *const dots[KVB_ELEM_COUNT][PLAIN_ROWS][LINES_ANY + 1] = {
#define WAY(WAY, ELEM, N) dots_##WAY##_##ELEM##_##N,
#define ROW(ELEM, N)      {EACH_WAY(WAY, ELEM, N) dots_any_##ELEM##_##N},
#define LINE(ELEM)        [ELEM] = {EACH_FEW(ROW, ELEM)},
    PLAIN_ELEMS(LINE)
#undef WAY
};

bool KVB_ISA_NAME(kvb_plain_dots)(const kvb_stored_rows *keys, const void *const *q, uint32_t n_rows, float *scores)
{
    const float *rows[DOTS_ROWS];
    kvb_stored_rows here = *keys;
    for (uint32_t r = 0; r < n_rows; r++)
        rows[r] = q[r];
    for (uint32_t r = 0, some; r < n_rows; r += some) {
        some = rows_of_pass(n_rows - r, tile_rows(keys->elem));
        dots[keys->elem][some - 1][loop_of(&here)](&here, rows + r, scores + r * BLOCK);
        here.ahead.bytes = 0; /* prefetched */
    }
    return true;
}
