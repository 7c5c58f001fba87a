/* SPDX-License-Identifier: Apache-2.0 */
/* Combinations counted. */
#include "harness/spot.h"

bool kvb_is_witness(const kvb_kernel *kernel)
{
    return kernel->flags & KVB_KERNEL_WITNESS;
}

size_t kvb_block_size(const kvb_selection *s)
{
    return s->n_caches * s->n_kernels * s->n_growths * s->n_threads;
}

size_t kvb_matrix_size(const kvb_selection *s)
{
    return s->n_workloads * s->n_values * s->n_pools * kvb_block_size(s);
}

/* Takes i apart into a place among n and what is left of it. */
static size_t digit(size_t *i, size_t n)
{
    size_t at = *i % n;
    *i /= n;
    return at;
}

kvb_spot kvb_spot_of(const kvb_selection *s, size_t i)
{
    kvb_spot at;
    at.threads = digit(&i, s->n_threads);
    at.growth = digit(&i, s->n_growths);
    at.kernel = digit(&i, s->n_kernels);
    at.cache = digit(&i, s->n_caches);
    at.pools = digit(&i, s->n_pools);
    at.values = digit(&i, s->n_values);
    at.workload = i;
    return at;
}

bool kvb_spot_is_elsewhere(const kvb_selection *s, kvb_spot at, const kvb_selection *earlier, size_t n_earlier)
{
    bool elsewhere = kvb_is_witness(s->kernels[at.kernel]) && at.values > 0;
    for (size_t e = 0; e < n_earlier && !elsewhere; e++)
        elsewhere = kvb_selection_covers(&earlier[e], s->workloads[at.workload].path, s->values[at.values],
                                         &s->pools[at.pools], s->caches[at.cache], s->kernels[at.kernel]);
    return elsewhere;
}
