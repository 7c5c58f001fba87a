/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of families that have what no other has. Sources: the class named at each, of transformers' models. */
#include "results/sizing/weights_family.h"

#include <errno.h>

/* FalconDecoderLayer: a second norm (with bias) unless attention and block are in parallel behind one. */
void kvb_falcon_extras(kvb_weights_sum *sum)
{
    const bool two = kvb_flag(sum, "new_decoder_architecture") ? kvb_field_or(sum, "num_ln_in_parallel_attn", 2) == 2
                                                               : !kvb_flag(sum, "+parallel_attn");
    kvb_vector_add(sum, KVB_PART_NORMS, two ? sum->layers : 0, 2 * sum->hidden);
}

/* BloomModel.word_embeddings_layernorm */
void kvb_bloom_extras(kvb_weights_sum *sum)
{
    kvb_vector_add(sum, KVB_PART_NORMS, 1, 2 * sum->hidden);
}

/* GptOssAttention.sinks: a logit of each head. */
void kvb_gpt_oss_extras(kvb_weights_sum *sum)
{
    kvb_vector_add(sum, KVB_PART_ATTENTION, sum->layers, kvb_field(sum, "num_attention_heads"));
}

/* An embedding for each layer, as Gemma-3n and Gemma-4 have: gate, projection and norm of each; the tables and their projection. */
static void layer_embedding_add(kvb_weights_sum *sum, uint64_t own)
{
    const uint64_t n = sum->layers, h = sum->hidden;
    kvb_linear_add(sum, KVB_PART_OTHER, 2 * n, h, own, false);
    kvb_vector_add(sum, KVB_PART_NORMS, n, h);
    kvb_matrix_add(sum, KVB_PART_EMBEDDING, 1, kvb_field(sum, "vocab_size_per_layer_input"), n * own);
    kvb_linear_add(sum, KVB_PART_OTHER, 1, h, n * own, false);
    kvb_vector_add(sum, KVB_PART_NORMS, 1, own);
}

/* Gemma4TextDecoderLayer: a scale of the layer; beside experts, scales in their router and three more norms. */
void kvb_gemma4_extras(kvb_weights_sum *sum)
{
    const uint64_t n = sum->layers, h = sum->hidden, experts = kvb_field_or(sum, "num_experts", 0);
    const json_t *own = kvb_field_find(sum, "hidden_size_per_layer_input");
    if (!own)
        kvb_sum_stop(sum, -ENOENT, "hidden_size_per_layer_input is missing");
    else if (kvb_field_or(sum, "hidden_size_per_layer_input", 0))
        layer_embedding_add(sum, kvb_field(sum, "hidden_size_per_layer_input"));
    kvb_vector_add(sum, KVB_PART_OTHER, n, 1);
    if (experts) {
        kvb_vector_add(sum, KVB_PART_ROUTER, n, h + experts);
        kvb_vector_add(sum, KVB_PART_NORMS, 3 * n, h);
    }
}

/* Gemma3nTextModel: layers that read another's rows have projections of their own in the checkpoint; beside the
 * transformer AltUp, LAuReL, and an embedding for each layer. */
void kvb_gemma3n_extras(kvb_weights_sum *sum)
{
    const uint64_t n = sum->layers, h = sum->hidden, heads = kvb_field(sum, "num_attention_heads");
    const uint64_t kv = kvb_field(sum, "num_key_value_heads"), dim = kvb_field(sum, "head_dim");
    const uint64_t inputs = kvb_field(sum, "altup_num_inputs"), rank = kvb_field(sum, "laurel_rank");
    const uint64_t own = kvb_field(sum, "hidden_size_per_layer_input");
    uint64_t attending = 0;
    for (size_t g = 0; g < sum->model->n_groups; g++)
        attending += kvb_group_attends(&sum->model->groups[g]) ? sum->model->groups[g].n : 0;
    const uint64_t readers = n - attending;
    kvb_linear_add(sum, KVB_PART_ATTENTION, 2 * readers, h, heads * dim, false); /* q, o */
    kvb_linear_add(sum, KVB_PART_ATTENTION, 2 * readers, h, kv * dim, false);
    kvb_vector_add(sum, KVB_PART_NORMS, readers, 2 * dim);
    kvb_vector_add(sum, KVB_PART_OTHER, n, h + inputs * inputs + inputs * inputs * inputs + h * inputs); /* altup */
    kvb_vector_add(sum, KVB_PART_NORMS, n, h);              /* its router's */
    kvb_linear_add(sum, KVB_PART_OTHER, n, h, rank, false); /* laurel */
    kvb_linear_add(sum, KVB_PART_OTHER, n, rank, h, false);
    kvb_vector_add(sum, KVB_PART_NORMS, n, h);
    layer_embedding_add(sum, own);
    kvb_linear_add(sum, KVB_PART_OTHER, 2 * (inputs - 1), h, h,
                   false); /* altup_projections, altup_unembed_projections */
}

/* Zamba2: num_mem_blocks blocks of attention and feed-forward over [x, embedding], shared by the hybrid layers; each of
 * these has adapters of its own and a projection back. Every layer has a Mamba-2 mixer and its norm. */
void kvb_zamba2_extras(kvb_weights_sum *sum)
{
    const uint64_t h = sum->hidden, wide = 2 * h, blocks = kvb_field(sum, "num_mem_blocks");
    const uint64_t width = kvb_field(sum, "intermediate_size ffn_hidden_size");
    const uint64_t rank = kvb_field_or(sum, "adapter_rank", 128); /* Zamba2Config */
    const bool bias = kvb_flag(sum, "add_bias_linear");
    uint64_t hybrid = 0;
    for (size_t g = 0; g < sum->model->n_groups; g++)
        hybrid += kvb_group_attends(&sum->model->groups[g]) ? sum->model->groups[g].n : 0;
    const uint64_t inner = kvb_field(sum, "num_attention_heads") * (wide / kvb_field(sum, "num_attention_heads"));
    kvb_linear_add(sum, KVB_PART_ATTENTION, 3 * blocks, wide, inner, false);
    kvb_linear_add(sum, KVB_PART_ATTENTION, blocks, inner, h, false);
    kvb_linear_add(sum, KVB_PART_DENSE, blocks, h, 2 * width, bias);
    kvb_linear_add(sum, KVB_PART_DENSE, blocks, width, h, bias);
    kvb_vector_add(sum, KVB_PART_NORMS, blocks, wide + h);
    kvb_linear_add(sum, KVB_PART_DENSE, hybrid, h, rank, false);
    kvb_linear_add(sum, KVB_PART_DENSE, hybrid, rank, 2 * width, false);
    if (kvb_flag(sum, "use_shared_attention_adapter")) {
        kvb_linear_add(sum, KVB_PART_ATTENTION, 3 * hybrid, wide, rank, false);
        kvb_linear_add(sum, KVB_PART_ATTENTION, 3 * hybrid, rank, wide, false);
    }
    kvb_linear_add(sum, KVB_PART_OTHER, hybrid, h, h, false);
}

/* DeciLMDecoderLayer: what is a no-op has no norm either; the width is _ffn_mult_to_intermediate_size: 2/3 of the multiple,
 * rounded down, then up to whole 256. */
void kvb_deci_extras(kvb_weights_sum *sum)
{
    const json_t *blocks = kvb_field_find(sum, "block_configs");
    kvb_vector_add(sum, KVB_PART_NORMS, 1, sum->hidden); /* before the output */
    if (json_array_size(blocks) != sum->layers) {
        kvb_sum_stop(sum, -EINVAL, "block_configs: expected an entry for each of %llu layers",
                     (unsigned long long)sum->layers);
        return;
    }
    for (size_t i = 0; i < json_array_size(blocks) && !sum->err; i++) {
        const json_t *attention = json_object_get(json_array_get(blocks, i), "attention");
        const json_t *feed = json_object_get(json_array_get(blocks, i), "ffn");
        const double times = json_number_value(json_object_get(feed, "ffn_mult"));
        if (!attention || !feed || json_is_true(json_object_get(attention, "replace_with_linear")))
            kvb_sum_stop(sum, -ENOENT, "block_configs[%zu]: the tensors of this layer are not known", i);
        kvb_vector_add(sum, KVB_PART_NORMS, !json_is_true(json_object_get(attention, "no_op")), sum->hidden);
        if (json_is_true(json_object_get(feed, "no_op")))
            continue;
        kvb_vector_add(sum, KVB_PART_NORMS, 1, sum->hidden);
        if (json_is_true(json_object_get(feed, "replace_with_linear")))
            kvb_linear_add(sum, KVB_PART_DENSE, 1, sum->hidden, sum->hidden, false);
        else if (!(times > 0 && times < 1024))
            kvb_sum_stop(sum, -EINVAL, "block_configs[%zu].ffn.ffn_mult: expected a number over 0 and under 1024", i);
        else
            kvb_block_add(sum, KVB_PART_DENSE, 1, ((uint64_t)(2 * times * (double)sum->hidden / 3) + 255) / 256 * 256,
                          false, false);
    }
}
