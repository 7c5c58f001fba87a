/* SPDX-License-Identifier: Apache-2.0 */
/* The naive model of a reordering: a second model is made, and takes the place of the first if it may. */
#ifndef KVB_TEST_NAIVE_REORDER_H
#define KVB_TEST_NAIVE_REORDER_H

#include "naive.h"

static inline int naive_reorder(naive *m, const uint32_t *dst, const uint32_t *src, uint32_t n)
{
    static naive after;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j <= i; j++)
            if (dst[i] >= m->n_ids || src[i] >= m->n_ids || (j < i && dst[j] == dst[i]) || naive_pending(m, dst[i]) ||
                naive_pending(m, src[i]))
                return -EINVAL;
    after = *m;
    after.valid = false;
    for (uint32_t i = 0; i < n; i++) {
        after.seqs[dst[i]] = m->seqs[src[i]];
        for (uint32_t g = 0; g < NAIVE_GROUPS; g++)
            memcpy(after.pages[g].id[dst[i]], m->pages[g].id[src[i]], sizeof m->pages[g].id[0]);
    }
    if (naive_alive(&after) > m->max_seqs || naive_slab_lacks(&after, 0))
        return -ENOSPC;
    *m = after;
    return 0;
}

#endif
