/* SPDX-License-Identifier: Apache-2.0 */
/* Cells that a mask lets a step read. */
#include "harness/replay/traffic.h"

#include <string.h>

static void bits_set(uint64_t *bits, uint32_t begin, uint32_t end)
{
    for (uint32_t c = begin; c < end;) {
        uint32_t n = 64 - c % 64 < end - c ? 64 - c % 64 : end - c;
        bits[c / 64] |= (n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1) << (c % 64);
        c += n;
    }
}

void kvb_traffic_count(const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, uint64_t *seen, kvb_traffic *traffic)
{
    size_t words = ((size_t)n_cells + 63) / 64;
    memset(seen, 0, words * sizeof *seen);
    *traffic = (kvb_traffic){0};
    for (uint32_t t = 0; t < n_tok; t++) {
        uint32_t cursor = 0;
        kvb_run run;
        while (kvb_mask_next(mask, n_tok, n_cells, t, &cursor, &run)) {
            bits_set(seen, run.begin, run.end);
            traffic->pairs += run.end - run.begin;
        }
    }
    for (size_t w = 0; w < words; w++)
        traffic->unique_cells += (uint64_t)__builtin_popcountll(seen[w]);
}
