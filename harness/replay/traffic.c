/* SPDX-License-Identifier: Apache-2.0 */
/* Cells that a mask lets a step read. */
#include "harness/replay/traffic.h"

#include <string.h>

#include "caches/call.h"

void kvb_traffic_count(const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, uint64_t *seen, kvb_traffic *traffic)
{
    size_t words = ((size_t)n_cells + 63) / 64;
    memset(seen, 0, words * sizeof *seen);
    *traffic = (kvb_traffic){0};
    if (mask->kind == KVB_MASK_EXPLICIT)
        traffic->mask_words = n_tok * mask->row_words;
    if (mask->kind == KVB_MASK_RUNS) /* the row starts, two to a word, and the runs */
        traffic->mask_words = ((uint64_t)n_tok + 2) / 2 + mask->row_start[n_tok];
    for (uint32_t t = 0; t < n_tok; t++) {
        if (mask->kind ==
            KVB_MASK_PAGES) { /* what it sees, where its table begins, and each table once, two entries to a word */
            bool again = t > 0 && mask->row_start[t] == mask->row_start[t - 1];
            traffic->mask_words += 2 + (again ? 0 : mask->seen[t].end / mask->page_cells / 2);
        }
        uint32_t cursor = 0;
        kvb_run run;
        while (kvb_mask_next(mask, n_tok, n_cells, t, &cursor, &run)) {
            kvb_bits_set(seen, run.begin, run.end);
            traffic->pairs += run.end - run.begin;
        }
    }
    for (size_t w = 0; w < words; w++)
        traffic->unique_cells += (uint64_t)__builtin_popcountll(seen[w]);
}
