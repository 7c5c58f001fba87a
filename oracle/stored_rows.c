/* SPDX-License-Identifier: Apache-2.0 */
/* Stored rows in memory. */
#include "oracle/stored_rows.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/array.h"

/* Are an element's terms larger than the element, or is it mixed from others? Elsewhere no sizes are kept. */
static bool is_sized(const kvb_format *f)
{
    return kvb_storage_has_zeros(f) || f->transform || f->residual_cells > 0 || f->elem == KVB_OPAQUE;
}

int kvb_stored_open(kvb_stored *side, const kvb_storage *store, size_t n)
{
    size_t count = n * store->dim + 1;
    *side = (kvb_stored){
        .rows = kvb_pages_alloc(count * sizeof(double)), .sums = malloc((n + 1) * sizeof(double)), .dim = store->dim};
    if (is_sized(store->format))
        side->sizes = kvb_pages_alloc(count * sizeof(double));
    return side->rows && side->sums && (side->sizes || !is_sized(store->format)) ? 0 : -ENOMEM;
}

void kvb_stored_close(kvb_stored *side)
{
    kvb_pages_free(side->rows);
    kvb_pages_free(side->sizes);
    free(side->sums);
    *side = (kvb_stored){0};
}

/* First the sizes of a row that nobody keeps, then the store's own. */
size_t kvb_stored_scratch(const kvb_storage *store)
{
    return store->dim + kvb_storage_scratch(store) / sizeof(double) + 1;
}

static void sum_put(const kvb_stored *side, size_t at)
{
    const double *sizes = side->sizes ? side->sizes : side->rows;
    double sum = 0;
    for (size_t c = at * side->dim; c < (at + 1) * side->dim; c++)
        sum += fabs(sizes[c]);
    side->sums[at] = sum;
}

void kvb_stored_put(const kvb_stored *side, const kvb_storage *store, size_t at, const float *const *rows, uint32_t n,
                    double *scratch)
{
    /* all at once where rows depend on each other */
    uint32_t step = kvb_storage_has_residual(store) ? n : 1;
    size_t first = at;
    for (uint32_t i = 0; i < n; i += step, at += step)
        kvb_storage_rows(store, rows + i, step, scratch + store->dim, side->rows + at * side->dim,
                         side->sizes ? side->sizes + at * side->dim : scratch);
    for (uint32_t i = 0; i < n; i++)
        sum_put(side, first + i);
}

void kvb_stored_take(const kvb_stored *side, const kvb_storage *store, size_t at, double *row, double *size)
{
    kvb_storage_finish(store, row, size);
    memcpy(side->rows + at * side->dim, row, side->dim * sizeof *row);
    if (side->sizes)
        memcpy(side->sizes + at * side->dim, size, side->dim * sizeof *size);
    sum_put(side, at);
}

void kvb_attention_take_k(kvb_attention *attention, const kvb_storage *store, const kvb_stored *side, bool gathered)
{
    attention->k = side->rows;
    attention->k_size = side->sizes;
    attention->k_sum = side->sums;
    attention->k_dim = store->dim;
    attention->k_gathered = gathered;
    attention->k_turned = store->format->transform != KVB_TRANSFORM_NONE;
}

void kvb_attention_take_v(kvb_attention *attention, const kvb_storage *store, const kvb_stored *side, bool gathered)
{
    attention->v = side->rows;
    attention->v_size = side->sizes;
    attention->v_dim = attention->v_row = store->dim;
    attention->v_gathered = gathered;
    attention->v_offset = kvb_storage_has_zeros(store->format);
    attention->v_mix = store->format->transform ? sqrt(kvb_transform_block(store->dim)) : 1;
}
