/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fullest rank of tensor and pipeline parallelism holds. The rule is that of vLLM (model_executor/layers/linear.py,
 * vocab_parallel_embedding.py; distributed/utils.py: get_pp_indices), which is Megatron's:
 *
 *   tp: embedding and output by vocabulary, projections by heads, blocks and experts by width; norms, routers and MLA's
 *       low-rank inputs are on every rank. A rank has one KV head at least: k and v are replicated beyond.
 *   pp: layers in stages of equal number; the embedding on the first, the output on the last; tied: on both.
 *
 * Not modelled: stages whose layers are heavier than the average (experts behind dense layers), padding of the
 * vocabulary to whole 64, Mamba groups that are replicated as KV heads are.
 */
#include "results/sizing/weights.h"

#include <errno.h>
#include <stdio.h>

typedef unsigned __int128 wide;

/* value x part / whole, rounded up; part <= whole. */
static uint64_t share(uint64_t value, uint64_t part, uint64_t whole)
{
    return (uint64_t)(((wide)value * part + whole - 1) / whole);
}

/* Of k and v projections: what a rank holds beyond 1/tp of them. */
static uint64_t replicated_kv(const kvb_model *model, uint32_t tp)
{
    wide beyond = 0;
    for (size_t i = 0; i < model->n_groups; i++) {
        const kvb_layer_group *g = &model->groups[i];
        if (g->kv_heads < tp && g->kv_heads && g->kind != KVB_LAYER_LATENT)
            beyond += (wide)g->n * model->hidden * (g->k_dim + g->v_dim) * (tp - g->kv_heads) / tp;
    }
    return beyond > UINT64_MAX / 2 ? UINT64_MAX / 2 : (uint64_t)beyond;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static int rank_fail(int err, char *why, size_t why_bytes, const char *text, const char *more)
{
    snprintf(why, why_bytes, "%s%s", text, more);
    return err;
}

int kvb_parameters_rank(const kvb_model *model, uint32_t tp, uint32_t pp, kvb_parameters *rank, char *why,
                        size_t why_bytes)
{
    const kvb_parameters *all = &model->parameters;
    const uint64_t layers = model->n_layers;
    if (!tp || !pp || pp > layers)
        return rank_fail(-EINVAL, why, why_bytes,
                         !tp ? "tp: expected 1 or more" : "pp: expected 1 to the number of layers", "");
    if (!all->known)
        return rank_fail(-ENOTSUP, why, why_bytes, "the number of parameters is not known: ", all->why);
    const uint64_t stage = (layers + pp - 1) / pp;
    const uint64_t attention =
        lesser(all->attention, share(all->attention, 1, tp) + (tp > 1 ? replicated_kv(model, tp) : 0));
    const bool embedding_most = all->embedding >= all->output; /* of the two ends */
    *rank = *all;
    rank->embedding = pp == 1 || embedding_most ? share(all->embedding, 1, tp) : 0;
    rank->output = pp == 1 || !embedding_most ? share(all->output, 1, tp) : 0;
    rank->attention = share(attention, stage, layers);
    rank->mixer = share(share(all->mixer, 1, tp), stage, layers);
    rank->dense = share(share(all->dense, 1, tp), stage, layers);
    rank->experts = share(share(all->experts, 1, tp), stage, layers);
    rank->shared_experts = share(share(all->shared_experts, 1, tp), stage, layers);
    rank->router = share(all->router, stage, layers);
    rank->norms = share(all->norms, stage, layers);
    rank->other = share(all->other, stage, layers);
    rank->total = rank->embedding + rank->output + rank->attention + rank->mixer + rank->dense + rank->experts +
                  rank->shared_experts + rank->router + rank->norms + rank->other;
    return 0;
}

int kvb_weights_rank(const kvb_model *model, uint64_t bytes, uint32_t tp, uint32_t pp, uint64_t *rank_bytes, char *why,
                     size_t why_bytes)
{
    kvb_parameters rank;
    *rank_bytes = bytes;
    if (tp == 1 && pp == 1)
        return 0;
    const int err = kvb_parameters_rank(model, tp, pp, &rank, why, why_bytes);
    if (!err)
        *rank_bytes = share(bytes, lesser(rank.total, model->parameters.total), model->parameters.total);
    return err;
}
