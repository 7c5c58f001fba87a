/* SPDX-License-Identifier: Apache-2.0 */
/* Weighted sums of stored rows of plain floats, for few query rows: functions for each way of prefetching (in_place.h).
 */
#include "kernels/vector/in_place.h"

typedef void sums_fn(const kvb_stored_rows *values, const float *weights, float *const *sums);

#define SUMS(NAME, WAY, DIM, SUM, ELEM, N)                                                                             \
    static __attribute__((noinline)) void sums_##NAME##_##ELEM##_##N(const kvb_stored_rows *values,                    \
                                                                     const float *weights, float *const *sums)         \
    {                                                                                                                  \
        if (N <= sums_rows(ELEM) && (EACH_WAY_HERE || WAY == LINES_ANY))                                               \
            SUM(ELEM, N, values, weights, WAY, line_ahead_of(ELEM, N, values->ahead), DIM, sums);                      \
    }
#define SUMS_WAY(WAY, ELEM, N) SUMS(WAY, WAY, COMMON_DIM, rows_sum, ELEM, N)
#define SUMS_WAYS(ELEM, N)                                                                                             \
    EACH_WAY(SUMS_WAY, ELEM, N)                                                                                        \
    SUMS(any, LINES_ANY, values->dim, rows_sum, ELEM, N)                                                               \
    SUMS(by_cells, LINES_ANY, values->dim, rows_sum_by_cells, ELEM, N)
#define SUMS_OF(ELEM) EACH_ROWS(SUMS_WAYS, ELEM)
PLAIN_ELEMS(SUMS_OF)

enum { BY_CELLS = LINES_ANY + 1 };
static sums_fn *const sums_of[KVB_ELEM_COUNT][DOTS_ROWS][BY_CELLS + 1] = {
#define WAY(WAY, ELEM, N) sums_##WAY##_##ELEM##_##N,
#define ROW(ELEM, N)      {EACH_WAY(WAY, ELEM, N) sums_any_##ELEM##_##N, sums_by_cells_##ELEM##_##N},
#define LINE(ELEM)        [ELEM] = {EACH_ROWS(ROW, ELEM)},
    PLAIN_ELEMS(LINE)
#undef WAY
};

bool KVB_ISA_NAME(kvb_plain_sums)(const kvb_stored_rows *values, const float *weights, uint32_t n_rows,
                                  float *const *sums)
{
    kvb_stored_rows here = *values;
    for (uint32_t r = 0, some; r < n_rows; r += some) {
        some = rows_of_pass(n_rows - r, sums_rows(values->elem));
        sums_of[values->elem][some - 1][values->ahead.sums_by_cells ? BY_CELLS : loop_of(&here)](
            &here, weights + r * BLOCK, sums + r);
        here.ahead.bytes = 0; /* prefetched */
    }
    return true;
}
