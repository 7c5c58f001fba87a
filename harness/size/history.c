/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a history. */
#include "harness/size/history.h"

size_t kvb_size_steps(const kvb_size_history *h, kvb_size_step steps[KVB_SIZE_STEPS])
{
    uint32_t singles = h->singles < h->context ? h->singles : h->context, prefill = h->context - singles;
    size_t n = 0;
    for (uint32_t s = 0; s < h->sequences; s++) {
        if (prefill >= h->chunk)
            steps[n++] = (kvb_size_step){.first = s, .n_seqs = 1, .tokens = h->chunk, .times = prefill / h->chunk};
        if (prefill % h->chunk)
            steps[n++] = (kvb_size_step){.first = s, .n_seqs = 1, .tokens = prefill % h->chunk, .times = 1};
    }
    if (singles)
        steps[n++] = (kvb_size_step){.n_seqs = h->sequences, .tokens = 1, .drafts = h->drafts, .times = singles};
    return n;
}
