/* SPDX-License-Identifier: Apache-2.0 */
/* Projections of attention layers, from the geometry that the model's layer groups hold. */
#include "results/sizing/weights_family.h"

/* q, k, v, o as in transformers' LlamaAttention and those after it. */
static void heads_add(kvb_weights_sum *sum, const kvb_weights_family *family, const kvb_layer_group *g)
{
    const uint64_t h = sum->hidden, q = (uint64_t)g->heads * g->k_dim;
    const bool bias = kvb_flag(sum, family->qkv_bias);
    kvb_linear_add(sum, KVB_PART_ATTENTION, g->n, h, family->gated_q ? 2 * q : q, bias);
    kvb_linear_add(sum, KVB_PART_ATTENTION, g->n, h, (uint64_t)g->kv_heads * g->k_dim, bias);
    if (!(g->kind == KVB_LAYER_FULL && kvb_flag(sum, family->k_is_v)))
        kvb_linear_add(sum, KVB_PART_ATTENTION, g->n, h, (uint64_t)g->kv_heads * g->v_dim, bias);
    kvb_linear_add(sum, KVB_PART_ATTENTION, g->n, (uint64_t)g->heads * g->v_dim, h, kvb_flag(sum, family->o_bias));
    if (kvb_flag(sum, family->head_norm))
        kvb_vector_add(sum, KVB_PART_NORMS, g->n, 2 * (uint64_t)g->k_dim);
    if (kvb_flag(sum, family->row_norm))
        kvb_vector_add(sum, KVB_PART_NORMS, g->n, q + (uint64_t)g->kv_heads * g->k_dim);
}

/* DeepseekV3Attention; the indexer: Indexer in DeepSeek-V3.2-Exp's inference/model.py (its norm has a bias). */
static void latent_add(kvb_weights_sum *sum, const kvb_weights_family *family, const kvb_layer_group *g)
{
    const uint64_t h = sum->hidden, heads = g->heads, rank = kvb_field_or(sum, "q_lora_rank", 0);
    const uint64_t q = heads * (g->nope_dim + g->rope_dim);
    const bool bias = kvb_flag(sum, family->qkv_bias);
    if (rank) {
        kvb_linear_add(sum, KVB_PART_OTHER, g->n, h, rank, bias);
        kvb_vector_add(sum, KVB_PART_NORMS, g->n, rank);
    }
    kvb_linear_add(sum, KVB_PART_ATTENTION, g->n, rank ? rank : h, q, false);
    kvb_linear_add(sum, KVB_PART_OTHER, g->n, h, (uint64_t)g->latent_dim + g->rope_dim, bias);
    kvb_vector_add(sum, KVB_PART_NORMS, g->n, g->latent_dim);
    kvb_linear_add(sum, KVB_PART_ATTENTION, g->n, g->latent_dim, heads * (g->nope_dim + g->v_dim), false);
    kvb_linear_add(sum, KVB_PART_ATTENTION, g->n, heads * g->v_dim, h, bias);
    if (g->index_dim) {
        const uint64_t index_heads = kvb_field(sum, "index_n_heads");
        kvb_linear_add(sum, KVB_PART_OTHER, g->n, rank ? rank : h, index_heads * g->index_dim, false);
        kvb_linear_add(sum, KVB_PART_OTHER, g->n, h, g->index_dim, false);
        kvb_linear_add(sum, KVB_PART_ROUTER, g->n, h, index_heads, false); /* weights_proj: never quantised */
        kvb_vector_add(sum, KVB_PART_NORMS, g->n, 2 * (uint64_t)g->index_dim);
    }
}

void kvb_attention_add(kvb_weights_sum *sum, const kvb_weights_family *family)
{
    for (size_t i = 0; i < sum->model->n_groups; i++) {
        const kvb_layer_group *g = &sum->model->groups[i];
        if (kvb_group_attends(g))
            (g->kind == KVB_LAYER_LATENT ? latent_add : heads_add)(sum, family, g);
    }
}
