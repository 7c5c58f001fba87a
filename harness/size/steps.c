/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a history, and which ones a cache takes. */
#include <errno.h>
#include <stdio.h>

#include "harness/size/predict.h"

static size_t prefill_add(kvb_size_step *steps, size_t n, uint32_t seq, uint32_t tokens, uint32_t chunk)
{
    if (tokens >= chunk)
        steps[n++] = (kvb_size_step){.first = seq, .n_seqs = 1, .tokens = chunk, .times = tokens / chunk};
    if (tokens % chunk)
        steps[n++] = (kvb_size_step){.first = seq, .n_seqs = 1, .tokens = tokens % chunk, .times = 1};
    return n;
}

size_t kvb_size_steps(const kvb_size_history *h, kvb_size_step *steps)
{
    const uint32_t left = h->context - h->shared;
    uint32_t singles = h->singles < left ? h->singles : left;
    size_t n = prefill_add(steps, 0, 0, h->shared, h->chunk);
    if (h->shared && h->sequences > 1)
        steps[n++] =
            (kvb_size_step){.n_seqs = h->sequences - 1, .tokens = h->shared, .times = 1, .call = KVB_SIZE_SHARE};
    for (uint32_t s = 0; s < h->sequences; s++)
        n = prefill_add(steps, n, s, left - singles, h->chunk);
    for (uint32_t call = 1; call < KVB_SIZE_SHARE && singles > 1; call++) {
        const bool copies = call == KVB_SIZE_COPY;
        if (!(h->calls >> call & 1) || (copies && h->sequences == 1))
            continue;
        steps[n++] = (kvb_size_step){.n_seqs = call == KVB_SIZE_REORDER ? h->sequences
                                               : copies                 ? h->sequences - 1
                                                                        : 1,
                                     .tokens = copies ? h->kept : 0,
                                     .times = 1,
                                     .call = (kvb_size_call)call};
        if (call == KVB_SIZE_SHIFT) /* rows that are yet to be turned are moved, too */
            continue;
        steps[n++] = (kvb_size_step){.n_seqs = h->sequences, .tokens = 1, .times = 1};
        singles--;
    }
    const uint32_t levels = h->drafts && h->levels ? h->levels : 1, rest = singles % levels;
    if (rest)
        steps[n++] = (kvb_size_step){.n_seqs = h->sequences, .tokens = 1, .drafts = h->drafts, .times = rest};
    if (singles / levels)
        steps[n++] =
            (kvb_size_step){.n_seqs = h->sequences, .tokens = levels, .drafts = h->drafts, .times = singles / levels};
    return n;
}

/* Can K rows be turned, and rows be copied? */
static bool moves(const kvb_size_subject *s)
{
    const kvb_format *k = s->options.k_pool->format, *v = s->options.v_pool->format;
    return !k->residual_cells && !v->residual_cells && k->elem != KVB_OPAQUE && kvb_model_unknown_rope(&s->model) < 0;
}

/* Can one sequence be taken out of the pools? */
static bool is_apart(const kvb_size_subject *s)
{
    return !s->options.k_pool->format->residual_cells && !s->options.v_pool->format->residual_cells;
}

uint32_t kvb_size_calls(const kvb_size_subject *s)
{
    const uint32_t flags = s->cache->flags;
    const bool can[KVB_SIZE_CALLS] = {
        [KVB_SIZE_SHIFT] = flags & KVB_CACHE_SHIFT && moves(s),
        [KVB_SIZE_DIVIDE] = flags & KVB_CACHE_DIVIDE && moves(s),
        [KVB_SIZE_DEFRAG] = flags & KVB_CACHE_SHIFT && is_apart(s),
        [KVB_SIZE_SWAP] = flags & KVB_CACHE_SAVES && is_apart(s),
        [KVB_SIZE_RELOAD] = flags & KVB_CACHE_SAVES,
        [KVB_SIZE_FIND] = flags & KVB_CACHE_PREFIX,
        [KVB_SIZE_REORDER] = flags & KVB_CACHE_REORDER,
        [KVB_SIZE_COPY] = flags & KVB_CACHE_SEQ && !(flags & KVB_CACHE_FREEZES),
    };
    uint32_t calls = 0;
    for (uint32_t call = 0; call < KVB_SIZE_CALLS; call++)
        calls |= (uint32_t)can[call] << call;
    return calls;
}

bool kvb_size_cuts(const kvb_size_subject *s)
{
    bool drops = s->cache->flags & KVB_CACHE_PREFIX; /* pages are known by what is before them */
    for (uint32_t g = 0; g < s->model.n_groups; g++)
        drops =
            drops || kvb_group_scans(&s->model.groups[g]) ||
            (kvb_group_limits(&s->model.groups[g]) && (s->cache == &kvb_cache_window || s->cache == &kvb_cache_paged));
    return !drops;
}

int kvb_size_step_check(const kvb_size_subject *s, uint32_t n_ids, const kvb_size_step *step, uint64_t tokens,
                        char *why, size_t why_bytes)
{
    const kvb_cache_type *c = s->cache;
    const bool shares = step->call == KVB_SIZE_SHARE, calls = step->call && !shares;
    const uint64_t accepted = (uint64_t)step->tokens * (step->times - (uint64_t)1); /* by all but the last time */
    const uint64_t more =
        step->call ? 0 : step->n_seqs * (accepted + (uint64_t)step->tokens * (step->drafts ? step->drafts : 1));
    if (calls && !(kvb_size_calls(s) >> step->call & 1))
        snprintf(why, why_bytes, "cache %s cannot do that over %s", c->name, s->options.k_pool->name);
    else if (step->call == KVB_SIZE_DEFRAG && tokens >= s->options.capacity)
        snprintf(why, why_bytes, "%llu tokens leave no free cell to put cells in order", (unsigned long long)tokens);
    else if (step->call == KVB_SIZE_COPY && step->tokens && !kvb_size_cuts(s))
        snprintf(why, why_bytes, "cache %s: sequences are cut back to nothing before they are copied to", c->name);
    else if (calls && step->first + (uint64_t)step->n_seqs + (step->call == KVB_SIZE_COPY) > n_ids)
        snprintf(why, why_bytes, "sequences %u .. are not there", step->first);
    else if (calls)
        return 0;
    else if ((step->first || step->n_seqs > 1) && !(c->flags & KVB_CACHE_SEQ))
        snprintf(why, why_bytes, "cache %s holds one sequence", c->name);
    else if (step->drafts && !(c->flags & KVB_CACHE_TREE))
        snprintf(why, why_bytes, "cache %s takes no drafts", c->name);
    else if (shares ? !(c->flags & (KVB_CACHE_FREEZES | KVB_CACHE_PREFIX)) || !step->n_seqs ||
                          step->first + (uint64_t)step->n_seqs >= n_ids
                    : !step->n_seqs || !step->tokens || !step->times ||
                          (uint64_t)step->drafts * step->tokens > KVB_SIZE_DRAFTS || step->first >= n_ids ||
                          step->n_seqs > n_ids - step->first || (step->n_seqs > 1 && !step->drafts && step->tokens > 1))
        snprintf(why, why_bytes, "%u tokens of %u sequences from %u on, %u times: not a step", step->tokens,
                 step->n_seqs, step->first, step->times);
    else if (more > s->options.capacity || tokens > s->options.capacity - more)
        snprintf(why, why_bytes, "%llu tokens and more are above the capacity of %u cells", (unsigned long long)more,
                 s->options.capacity);
    else
        return 0;
    return -EINVAL;
}
