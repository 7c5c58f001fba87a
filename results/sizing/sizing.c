/* SPDX-License-Identifier: Apache-2.0 */
/* All that one rank needs memory for, and what fits a budget. */
#include "results/sizing/sizing.h"

#include <errno.h>
#include <stdio.h>

#include "results/sizing/share.h"

/*
 * The most that one layer has alive at once, an upper estimate: for each token of the pass the residual, its norm, the
 * mixer's input and output (4 x hidden) and gate and up of the feed-forward (2 x intermediate), in the model's dtype; and
 * the logits of each sequence in f32. It is the shape of a Llama layer (transformers, modeling_llama.py) run one operation
 * after the other, nothing fused; attention's scores are not counted (flash attention keeps none).
 */
static int activation_add(const kvb_model *m, const kvb_engine *engine, const kvb_size_ask *ask, uint64_t *bytes)
{
    uint64_t tokens = ask->batch ? ask->batch : engine->batch, longest = 0;
    uint64_t width = 4 * (uint64_t)m->hidden + 2 * kvb_ceil_div(m->intermediate, ask->tp);

    if (kvb_add(&longest, ask->context, ask->sequences))
        return -EOVERFLOW;
    tokens = tokens == 0 ? ask->sequences : tokens < longest ? tokens : longest;
    return kvb_add(bytes, tokens, width, kvb_dtype_bytes(m->dtype)) ||
                   kvb_add(bytes, ask->sequences, kvb_ceil_div(m->vocab, ask->tp), 4)
               ? -EOVERFLOW
               : 0;
}

/* One row, without what fits. */
static int total_compute(const kvb_model *model, const kvb_engine *engine, const kvb_size_ask *ask,
                         const kvb_size_terms *terms, kvb_size *out, char *why, size_t why_bytes)
{
    *out = (kvb_size){.weight_bytes = terms->weights_known ? terms->weight_bytes : 0,
                      .runtime_bytes = terms->runtime_bytes};
    int error = engine->allocate(model, ask, &out->held, why, why_bytes);

    if (error)
        return error;
    const uint64_t parts[] = {out->held.kv_bytes, out->held.state_bytes, out->weight_bytes, out->runtime_bytes};

    if (activation_add(model, engine, ask, &out->activation_bytes))
        return kvb_too_large(why, why_bytes);
    out->total_bytes = out->activation_bytes;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (kvb_add(&out->total_bytes, parts[i]))
            return kvb_too_large(why, why_bytes);
    unsigned __int128 margin = ((unsigned __int128)out->total_bytes * terms->margin + 99999) / 100000;

    if (margin > UINT64_MAX || kvb_add(&out->total_bytes, (uint64_t)margin))
        return kvb_too_large(why, why_bytes);
    out->margin_bytes = (uint64_t)margin;
    return 0;
}

/* The largest value of *at (a field of *ask) that fits, of 0 .. cap; what is above 64 bits does not. */
static uint64_t largest_that_fits(const kvb_model *model, const kvb_engine *engine, kvb_size_ask *ask, uint64_t *at,
                                  uint64_t cap, const kvb_size_terms *terms)
{
    uint64_t good = 0, bad = cap + 1;
    kvb_size size;
    char why[256];

    while (bad - good > 1) {
        uint64_t middle = good + (bad - good) / 2;

        *at = middle;
        bool fits =
            total_compute(model, engine, ask, terms, &size, why, sizeof why) == 0 && size.total_bytes <= terms->budget;
        *(fits ? &good : &bad) = middle;
    }
    return good;
}

int kvb_size_compute(const kvb_model *model, const kvb_engine *engine, const kvb_size_ask *ask,
                     const kvb_size_terms *terms, kvb_size *out, char *why, size_t why_bytes)
{
    const uint64_t far = (uint64_t)1 << 40; /* tokens or sequences: what still fits then is not bounded by memory */
    int error = total_compute(model, engine, ask, terms, out, why, why_bytes);

    if (error || !terms->budget)
        return error;
    uint64_t cap = model->max_context ? model->max_context : far;
    kvb_size_ask longer = *ask, more = *ask;

    out->max_context = largest_that_fits(model, engine, &longer, &longer.context, cap, terms);
    out->max_sequences = largest_that_fits(model, engine, &more, &more.sequences, far, terms);
    out->at_model_limit = model->max_context && out->max_context == cap;
    if (out->max_context == far && !model->max_context)
        out->max_context = KVB_SIZE_UNBOUNDED;
    if (out->max_sequences == far)
        out->max_sequences = KVB_SIZE_UNBOUNDED;
    return 0;
}
