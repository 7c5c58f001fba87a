/* SPDX-License-Identifier: Apache-2.0 */
/* Feed-forward blocks, dense and of experts, and which layers have which. */
#include "results/sizing/weights_family.h"

#include <errno.h>
#include <string.h>

#define MOST_LAYERS 100000u

/* "mlp_layer_types": ["dense", "sparse", …]; "moe_layer_freq": [0, 1, …] or a number; a list of layers' numbers. */
static bool says(const json_t *value, uint64_t layer)
{
    const json_t *entry = json_array_get(value, (size_t)layer);
    return json_is_string(entry) ? strcmp(json_string_value(entry), "sparse") == 0 : json_integer_value(entry) == 1;
}

static bool has(const json_t *list, uint64_t layer)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == (json_int_t)layer)
            return true;
    return false;
}

/* Layers with experts: those that every field of this kind in the config allows. Each is the rule of its families' code in
 * transformers: Qwen2/3 MoE (decoder_sparse_step, mlp_only_layers), DeepSeek and GLM (first_k_dense_replace,
 * moe_layer_freq, mlp_layer_types), Jamba (expert_layer_*), Llama 4 (interleave_moe_layer_step, moe_layers). */
static uint64_t expert_layers(kvb_weights_sum *sum)
{
    const json_t *types = kvb_field_find(sum, "mlp_layer_types"), *freq = kvb_field_find(sum, "moe_layer_freq");
    const json_t *listed = kvb_field_find(sum, "moe_layers"), *dense = kvb_field_find(sum, "mlp_only_layers");
    const bool freq_list = json_is_array(freq);
    const uint64_t every = freq_list ? 1 : kvb_field_or(sum, "moe_layer_freq", 1);
    const uint64_t first = kvb_field_or(sum, "first_k_dense_replace", 0);
    const uint64_t step = kvb_field_or(sum, "decoder_sparse_step", 1);
    const uint64_t interleave = listed ? 1 : kvb_field_or(sum, "interleave_moe_layer_step", 1);
    const uint64_t period = kvb_field_or(sum, "expert_layer_period", 1);
    const uint64_t offset = kvb_field_or(sum, "expert_layer_offset", 0);
    if (!every || !step || !interleave || !period)
        kvb_sum_stop(sum, -EINVAL, "%s: expected 1 or more",
                     !every        ? "moe_layer_freq"
                     : !step       ? "decoder_sparse_step"
                     : !interleave ? "interleave_moe_layer_step"
                                   : "expert_layer_period");
    if ((types && json_array_size(types) < sum->layers) || (freq_list && json_array_size(freq) < sum->layers))
        kvb_sum_stop(sum, -EINVAL, "%s: expected an entry for each of %llu layers",
                     freq_list ? "moe_layer_freq" : "mlp_layer_types", (unsigned long long)sum->layers);
    uint64_t n = 0;
    for (uint64_t i = 0; i < sum->layers && !sum->err; i++)
        n += (!types || says(types, i)) && (!freq_list || says(freq, i)) && (!listed || has(listed, i)) &&
             !(dense && has(dense, i)) && i % every == 0 && i >= first && (i + 1) % step == 0 &&
             (i + 1) % interleave == 0 && i % period == offset % period;
    return n;
}

/* hybrid_override_pattern "MEM*-…" of NemotronHConfig. */
static uint64_t letters(kvb_weights_sum *sum, const char *field, char letter)
{
    const char *text = json_string_value(kvb_field_find(sum, field));
    uint64_t n = 0;
    if (!text)
        kvb_sum_stop(sum, -ENOENT, "%s is missing", field);
    for (; text && *text; text++)
        n += *text == letter;
    return n;
}

void kvb_block_add(kvb_weights_sum *sum, kvb_part part, uint64_t n, uint64_t width, bool plain, bool bias)
{
    kvb_linear_add(sum, part, plain ? n : 2 * n, sum->hidden, width, bias);
    kvb_linear_add(sum, part, n, width, sum->hidden, bias);
}

static void experts_add(kvb_weights_sum *sum, const kvb_weights_feed *feed, uint64_t layers, uint64_t experts)
{
    const uint64_t width = kvb_field(sum, feed->expert_width);
    kvb_block_add(sum, KVB_PART_EXPERTS, layers * experts, width, feed->plain, feed->expert_bias);
    kvb_linear_add(sum, KVB_PART_ROUTER, layers, sum->hidden, experts, feed->expert_bias);
    if (kvb_flag(sum, feed->correction))
        kvb_vector_add(sum, KVB_PART_ROUTER, layers, experts);
    const uint64_t shared = feed->shared ? kvb_field_or(sum, feed->shared, 0) : feed->shared_width != NULL;
    if (shared) /* one block, as wide as all of them */
        kvb_block_add(sum, KVB_PART_SHARED, layers, shared * kvb_field(sum, feed->shared_width), feed->plain, false);
    if (shared && feed->shared_gate)
        kvb_linear_add(sum, KVB_PART_ROUTER, layers, sum->hidden, 1, false);
}

void kvb_feed_add(kvb_weights_sum *sum, const kvb_weights_feed *feed)
{
    if (sum->layers > MOST_LAYERS)
        kvb_sum_stop(sum, -EINVAL, "num_hidden_layers: expected %u at most", MOST_LAYERS);
    const uint64_t experts = feed->experts ? kvb_field_or(sum, feed->experts, 0) : 0;
    if (experts && feed->needs && !kvb_field_find(sum, feed->needs))
        kvb_sum_stop(sum, -ENOENT, "%.*s is missing", (int)strcspn(feed->needs, " "), feed->needs);
    const uint64_t sparse = feed->pattern ? letters(sum, feed->pattern, 'E') : experts ? expert_layers(sum) : 0;
    const uint64_t dense = feed->pattern  ? letters(sum, feed->pattern, '-')
                           : feed->beside ? sum->layers
                                          : sum->layers - sparse;
    if (sparse && !sum->err)
        experts_add(sum, feed, sparse, experts);
    if (dense && !sum->err) {
        const uint64_t width =
            feed->times && !kvb_field_find(sum, feed->width) ? feed->times * sum->hidden : kvb_field(sum, feed->width);
        kvb_block_add(sum, KVB_PART_DENSE, dense, width, feed->plain, kvb_flag(sum, feed->bias));
    }
}
