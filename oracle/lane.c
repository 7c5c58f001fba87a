/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/lane.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

kvb_scan_problem kvb_lane_problem(const kvb_group_scan *s, kvb_scan_part part)
{
    if (part == KVB_PART_CONV)
        return (kvb_scan_problem){.kind = KVB_SCAN_CONV,
                                  .heads = 1,
                                  .groups = 1,
                                  .d_k = s->conv_width ? s->conv_width - 1 : 0,
                                  .d_v = s->conv_channels,
                                  .state_elem = s->conv_elem,
                                  .silu = s->silu};
    return (kvb_scan_problem){.kind = s->kind,
                              .heads = s->heads,
                              .groups = s->groups,
                              .d_k = s->d_k,
                              .d_v = s->d_v,
                              .state_elem = s->state_elem};
}

/* The lane's columns of [rows][d_v] numbers; NULL of NULL. */
static int columns_copy(const float *from, size_t rows, size_t d_v, const kvb_scan_lane *lane, float **to)
{
    *to = from ? malloc(rows * lane->n * sizeof **to) : NULL;
    for (size_t r = 0; *to && r < rows; r++)
        memcpy(*to + r * lane->n, from + r * d_v + lane->first, lane->n * sizeof **to);
    return from && !*to ? -ENOMEM : 0;
}

int kvb_lane_own_take(const kvb_values *v, const kvb_scan_problem *p, uint32_t layer, const kvb_scan_lane *lane,
                      kvb_lane_own *own)
{
    *own = (kvb_lane_own){NULL, NULL};
    if (p->kind == KVB_SCAN_CONV) {
        int err = columns_copy(v->constant[KVB_CONSTANT_TAPS][layer], p->d_k + 1u, p->d_v, lane, &own->a);
        return err ? err : columns_copy(v->constant[KVB_CONSTANT_BIAS][layer], 1, p->d_v, lane, &own->bias);
    }
    const float *a = v->constant[KVB_CONSTANT_A][layer];
    if (p->kind == KVB_SCAN_MAMBA1)
        return columns_copy(a + (size_t)lane->head * p->d_k * p->d_v, p->d_k, p->d_v, lane, &own->a);
    const kvb_scan_lane one = {.n = 1};
    return a ? columns_copy(a + lane->head, 1, 1, &one, &own->a) : 0;
}

void kvb_lane_own_free(kvb_lane_own *own)
{
    free(own->a);
    free(own->bias);
}

kvb_recurrence_token kvb_lane_token(const kvb_values *v, const kvb_scan_problem *p, uint32_t layer,
                                    const kvb_scan_lane *lane, const kvb_lane_own *own, uint64_t token)
{
    const bool conv = p->kind == KVB_SCAN_CONV, each = p->kind == KVB_SCAN_MAMBA1;
    const float *rows[KVB_ROWS_KINDS];
    for (int kind = 0; kind < KVB_ROWS_KINDS; kind++)
        rows[kind] = kvb_values_rows(v, (kvb_rows)kind, layer, token);
    const size_t keys = (size_t)(lane->head / (p->heads / p->groups)) * p->d_k,
                 columns = (size_t)lane->head * p->d_v + lane->first;
    kvb_recurrence_token t = {
        .a = own->a, .bias = own->bias, .v = (conv ? rows[KVB_ROWS_X] : rows[KVB_ROWS_V]) + columns};
    if (conv)
        return t;
    t.q = rows[KVB_ROWS_Q] + keys;
    t.k = rows[KVB_ROWS_K] + keys;
    t.gate = rows[KVB_ROWS_GATE] ? rows[KVB_ROWS_GATE] + (each ? columns : lane->head) : NULL;
    t.beta = rows[KVB_ROWS_BETA] ? rows[KVB_ROWS_BETA] + lane->head : NULL;
    return t;
}
