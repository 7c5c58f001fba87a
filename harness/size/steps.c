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
    if (h->moves) {
        steps[n++] = (kvb_size_step){.n_seqs = h->sequences, .tokens = 1, .times = singles - 1};
        steps[n++] = (kvb_size_step){.n_seqs = 1, .times = 1, .call = KVB_SIZE_SHIFT};
        steps[n++] = (kvb_size_step){.n_seqs = 1, .times = 1, .call = KVB_SIZE_DEFRAG};
        singles = 1;
    }
    if (singles)
        steps[n++] = (kvb_size_step){.n_seqs = h->sequences, .tokens = 1, .drafts = h->drafts, .times = singles};
    return n;
}

bool kvb_size_moves(const kvb_size_subject *s)
{
    const kvb_format *k = s->options.k_pool->format, *v = s->options.v_pool->format;
    return (s->cache == &kvb_cache_seq || s->cache == &kvb_cache_slab) && !k->residual_cells && !v->residual_cells &&
           k->elem != KVB_OPAQUE && kvb_model_unknown_rope(&s->model) < 0;
}

int kvb_size_step_check(const kvb_size_subject *s, uint32_t n_ids, const kvb_size_step *step, uint64_t tokens,
                        char *why, size_t why_bytes)
{
    const kvb_cache_type *c = s->cache;
    const bool shares = step->call == KVB_SIZE_SHARE, moves = step->call && !shares;
    uint64_t more = shares         ? 0
                    : step->drafts ? (uint64_t)step->times + step->drafts - 1
                                   : (uint64_t)step->n_seqs * step->tokens * step->times;
    if (moves && (!kvb_size_moves(s) || step->first >= n_ids ||
                  (step->call == KVB_SIZE_DEFRAG && tokens >= s->options.capacity)))
        snprintf(why, why_bytes, "cache %s with %llu tokens: no account of a shift or defrag", c->name,
                 (unsigned long long)tokens);
    else if (moves)
        return 0;
    else if ((step->first || step->n_seqs > 1) && !(c->flags & KVB_CACHE_SEQ))
        snprintf(why, why_bytes, "cache %s holds one sequence", c->name);
    else if (step->drafts && (!(c->flags & KVB_CACHE_TREE) || c->flags & KVB_CACHE_SEQ || step->n_seqs > 1))
        snprintf(why, why_bytes, "cache %s takes no drafts here", c->name);
    else if (shares ? !(c->flags & KVB_CACHE_FREEZES) || !step->n_seqs || step->first + (uint64_t)step->n_seqs >= n_ids
                    : !step->n_seqs || !step->tokens || !step->times || step->drafts > KVB_SIZE_DRAFTS ||
                          step->first >= n_ids || step->n_seqs > n_ids - step->first ||
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
