/* SPDX-License-Identifier: Apache-2.0 */
/* A cache's struct, pools and tables added up, step by step. */
#include "harness/size/predict.h"

#include <errno.h>
#include <stdio.h>

#include "harness/size/books.h"
#include "harness/size/pool_bytes.h"

static const kvb_bookkeeping *bookkeeping_find(const kvb_cache_type *cache)
{
    const kvb_bookkeeping *k = kvb_bookkeepings;
    while (k->cache && k->cache != cache)
        k++;
    return k->cache ? k : NULL;
}

static uint64_t pool_cells(const kvb_size_subject *s, const kvb_bookkeeping *k)
{
    const kvb_cache_options *o = &s->options;
    return k->preallocated ? (uint64_t)o->max_seqs * o->seq_capacity : o->capacity;
}

static int subject_check(const kvb_size_subject *s, const kvb_bookkeeping *k, char *why, size_t why_bytes)
{
    const kvb_cache_options *o = &s->options;
    kvb_metadata_entry entries[KVB_METADATA_ENTRIES];
    kvb_model_facts facts;
    if (!k) {
        snprintf(why, why_bytes, "no account of what cache %s allocates", s->cache->name);
        return -ENOTSUP;
    }
    kvb_metadata_write(&s->facts, entries);
    int error = kvb_metadata_read(entries, KVB_METADATA_ENTRIES, &facts, why, why_bytes);
    if (error)
        return error;
    if (!o->capacity || !o->seq_capacity || !o->min_chunk || !o->max_seqs || o->max_seqs > KVB_MAX_SEQS ||
        pool_cells(s, k) > UINT32_MAX) {
        snprintf(why, why_bytes, "%u cells, %u sequences of up to %u tokens: not what a cache can number", o->capacity,
                 o->max_seqs, o->seq_capacity);
        return -EINVAL;
    }
    if ((o->k_pool->supports && !o->k_pool->supports(o->k_pool, s->facts.k_dim, why, why_bytes)) ||
        (o->v_pool->supports && !o->v_pool->supports(o->v_pool, s->facts.v_dim, why, why_bytes)))
        return -ENOTSUP;
    return 0;
}

static int step_check(const kvb_size_subject *s, const kvb_size_step *step, uint64_t tokens, char *why,
                      size_t why_bytes)
{
    const kvb_cache_type *c = s->cache;
    uint64_t more =
        step->drafts ? (uint64_t)step->times + step->drafts - 1 : (uint64_t)step->n_seqs * step->tokens * step->times;
    if ((step->first || step->n_seqs > 1) && !c->seq)
        snprintf(why, why_bytes, "cache %s holds one sequence", c->name);
    else if (step->drafts && (!c->tree || step->n_seqs > 1))
        snprintf(why, why_bytes, "cache %s takes no drafts", c->name);
    else if (!step->n_seqs || !step->tokens || !step->times || step->drafts > KVB_SIZE_DRAFTS ||
             step->first >= KVB_SIZE_SEQUENCES || step->n_seqs > KVB_SIZE_SEQUENCES - step->first ||
             ((step->n_seqs > 1 || step->drafts) && step->tokens > 1))
        snprintf(why, why_bytes, "%u tokens of %u sequences from %u on, %u times: not a step", step->tokens,
                 step->n_seqs, step->first, step->times);
    else if (more > s->options.capacity || tokens > s->options.capacity - more)
        snprintf(why, why_bytes, "%llu tokens and more are above the capacity of %u cells", (unsigned long long)more,
                 s->options.capacity);
    else
        return 0;
    return -EINVAL;
}

/* Bytes now, or -EOVERFLOW. */
static int add_up(const kvb_size_subject *s, const kvb_bookkeeping *k, const kvb_books *books, uint64_t *bytes)
{
    uint64_t of_layer = 2 * sizeof(kvb_pool *), capacity = pool_cells(s, k);
    for (int side = 0; side < 2; side++) {
        kvb_pool_options o = {
            .n_kv_heads = s->facts.kv_heads,
            .dim = side ? s->facts.v_dim : s->facts.k_dim,
            .min_chunk = s->options.min_chunk < capacity ? s->options.min_chunk : (uint32_t)capacity,
            .capacity = (uint32_t)capacity,
            .growth = s->options.growth,
        };
        of_layer += kvb_size_pool_bytes(side ? s->options.v_pool : s->options.k_pool, &o,
                                        k->preallocated ? capacity : books->cells);
    }
    if (__builtin_mul_overflow(of_layer, s->facts.layers, bytes) ||
        __builtin_add_overflow(*bytes, s->cache->struct_bytes + kvb_books_bytes(books), bytes))
        return -EOVERFLOW;
    return 0;
}

int kvb_size_predict(const kvb_size_subject *s, const kvb_size_step *steps, size_t n, uint64_t *bytes, char *why,
                     size_t why_bytes)
{
    const kvb_bookkeeping *k = bookkeeping_find(s->cache);
    kvb_books books = {0};
    int error = subject_check(s, k, why, why_bytes);
    if (!error)
        error = add_up(s, k, &books, &bytes[0]);
    for (size_t i = 0; !error && i < n; i++) {
        const kvb_size_step *step = &steps[i];
        error = step_check(s, step, books.tokens, why, why_bytes);
        bool at_once = k->at_once && step->n_seqs == 1 && !step->drafts;
        for (uint32_t left = step->times; !error && left; left -= at_once ? left : 1)
            k->take(&books, step, at_once ? left : 1);
        if (!error)
            error = add_up(s, k, &books, &bytes[i + 1]);
    }
    if (error == -EOVERFLOW)
        snprintf(why, why_bytes, "more bytes than 64 bits hold");
    return error;
}
