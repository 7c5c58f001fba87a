/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of each kind of module. Each function names its source: a class of transformers' models. */
#include "harness/size/weights_tensors.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/size/engines.h"
#include "harness/size/model_reading.h"

/* ---- the sum ------------------------------------------------------------------------------------------------------- */

#define MOST                                                                                                           \
    (UINT64_C(1) << 40) /* of a field, so that products of two fields fit into 128 bits, where they are checked */

void kvb_sum_stop(kvb_weights_sum *sum, int err, const char *format, ...)
{
    if (sum->err)
        return;
    sum->err = err;
    va_list args;
    va_start(args, format);
    vsnprintf(sum->why, sizeof sum->why, format, args);
    va_end(args);
}

/* ---- tensors ------------------------------------------------------------------------------------------------- */

static void matrix_add(kvb_weights_sum *sum, kvb_weights_part part, uint64_t n, uint64_t rows, uint64_t cols)
{
    const kvb_weights_codes *codes = &sum->codes;
    const unsigned __int128 layers = codes->layers[part];
    const uint64_t left = layers ? (uint64_t)((n * (unsigned __int128)codes->left[part] + layers - 1) / layers) : 0;
    uint64_t one, all, bytes, plain;
    if (sum->err)
        return;
    if (__builtin_mul_overflow(rows, cols, &one) || __builtin_mul_overflow(one, n, &all) ||
        __builtin_add_overflow(sum->parts[part], all, &sum->parts[part]) || one > UINT64_MAX / 8 ||
        __builtin_mul_overflow(sum->tensor_bytes(sum, part, rows, cols), n - left, &bytes) ||
        __builtin_mul_overflow(one * sum->element, left, &plain) ||
        __builtin_add_overflow(sum->bytes, bytes, &sum->bytes) ||
        __builtin_add_overflow(sum->bytes, plain, &sum->bytes))
        kvb_sum_stop(sum, -EOVERFLOW, "weights: %llu tensors of %llu x %llu overflow 64 bits", (unsigned long long)n,
                     (unsigned long long)rows, (unsigned long long)cols);
}

static void vector_add(kvb_weights_sum *sum, kvb_weights_part part, uint64_t n, uint64_t elements)
{
    matrix_add(sum, part, n, 1, elements);
}

static void linear_add(kvb_weights_sum *sum, kvb_weights_part part, uint64_t n, uint64_t in, uint64_t out, bool bias)
{
    matrix_add(sum, part, n, out, in);
    if (bias)
        vector_add(sum, part, n, out);
}

/* The product of two fields; sum_count's limit does not keep it within 64 bits. */
static uint64_t product(kvb_weights_sum *sum, uint64_t a, uint64_t b)
{
    uint64_t all = 0;
    if (__builtin_mul_overflow(a, b, &all) || all > UINT64_C(1) << 60)
        kvb_sum_stop(sum, -EOVERFLOW, "weights: %llu x %llu overflow 64 bits", (unsigned long long)a,
                     (unsigned long long)b);
    return sum->err ? 0 : all;
}

/* ---- fields --------------------------------------------------------------------------------------------------- */

const json_t *kvb_sum_find(const kvb_weights_sum *sum, const char *names)
{
    return kvb_config_get(sum->config, names);
}

static uint64_t count_get(kvb_weights_sum *sum, const char *names, const json_t *value, uint64_t least)
{
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < (json_int_t)least || (uint64_t)number > MOST) {
        kvb_sum_stop(sum, -EINVAL, "%.*s: expected an integer of %llu or more (2^40 at most)", (int)strcspn(names, " "),
                     names, (unsigned long long)least);
        return least;
    }
    return (uint64_t)number;
}

static uint64_t sum_count(kvb_weights_sum *sum, const char *names)
{
    const json_t *value = kvb_sum_find(sum, names);
    if (value)
        return count_get(sum, names, value, 1);
    kvb_sum_stop(sum, -ENOENT, "%.*s is missing", (int)strcspn(names, " "), names);
    return 1;
}

static uint64_t sum_count_or(kvb_weights_sum *sum, const char *names, uint64_t otherwise)
{
    const json_t *value = kvb_sum_find(sum, names);
    return value ? count_get(sum, names, value, 0) : otherwise;
}

static bool sum_flag(kvb_weights_sum *sum, const char *rule)
{
    if (!rule)
        return false;
    const bool otherwise = *rule == '+', needed = *rule == '!';
    const char *name = rule + (otherwise || needed);
    const json_t *value = kvb_sum_find(sum, name);
    if (value && !json_is_boolean(value))
        kvb_sum_stop(sum, -EINVAL, "%s: expected true or false", name);
    if (!value && needed)
        kvb_sum_stop(sum, -ENOENT, "%s is missing", name);
    return value ? json_is_true(value) : otherwise;
}

/* ---- layers --------------------------------------------------------------------------------------------------- */

/* Layers with a recurrent state; if there are none, layers with only a convolution. */
static uint64_t state_layers(const kvb_weights_sum *sum)
{
    uint64_t recurrent = 0, any = 0;
    for (size_t g = 0; g < sum->model->n_groups; g++) {
        recurrent += sum->model->groups[g].state_elements ? sum->model->groups[g].n : 0;
        any += sum->model->groups[g].kind == KVB_SIZED_STATE ? sum->model->groups[g].n : 0;
    }
    return recurrent ? recurrent : any;
}

/* The group of these layers; NULL: there are none. */
static const kvb_sized_group *state_group(const kvb_weights_sum *sum)
{
    const kvb_sized_group *any = NULL;
    for (size_t g = 0; g < sum->model->n_groups; g++)
        if (sum->model->groups[g].kind == KVB_SIZED_STATE && (!any || !any->state_elements))
            any = &sum->model->groups[g];
    return any;
}

/* Number of layers of a kind, with or without an indexer's keys. */
static uint64_t layers_of_kind(const kvb_weights_sum *sum, kvb_sized_kind kind, bool index)
{
    uint64_t n = 0;
    for (size_t g = 0; g < sum->model->n_groups; g++)
        if (sum->model->groups[g].kind == kind && (sum->model->groups[g].index_dim != 0) == index)
            n += sum->model->groups[g].n;
    return n;
}

static uint64_t attending_layers(const kvb_weights_sum *sum)
{
    uint64_t n = 0;
    for (size_t g = 0; g < sum->model->n_groups; g++)
        n += kvb_sized_attends(&sum->model->groups[g]) ? sum->model->groups[g].n : 0;
    return n;
}

/* ---- attention, from the geometry of the layer groups -------------------------------------------------------- */

/* q, k, v and o as in LlamaAttention and its successors. */
static void heads_add(kvb_weights_sum *sum, const kvb_weights_family *family, const kvb_sized_group *g)
{
    const uint64_t h = sum->hidden, q = (uint64_t)g->heads * g->k_dim;
    const bool bias = sum_flag(sum, family->bias ? family->bias : family->qkv_bias);
    linear_add(sum, KVB_WEIGHTS_ATTENTION, g->n, h, family->gated_q ? 2 * q : q, bias);
    linear_add(sum, KVB_WEIGHTS_ATTENTION, g->n, h, (uint64_t)g->kv_heads * g->k_dim, bias);
    if (!(g->kind == KVB_SIZED_FULL && sum_flag(sum, family->k_is_v)))
        linear_add(sum, KVB_WEIGHTS_ATTENTION, g->n, h, (uint64_t)g->kv_heads * g->v_dim, bias);
    linear_add(sum, KVB_WEIGHTS_ATTENTION, g->n, (uint64_t)g->heads * g->v_dim, h,
               sum_flag(sum, family->bias ? family->bias : family->o_bias));
    if (sum_flag(sum, family->head_norm))
        vector_add(sum, KVB_WEIGHTS_NORMS, g->n, 2 * (uint64_t)g->k_dim);
    if (sum_flag(sum, family->row_norm))
        vector_add(sum, KVB_WEIGHTS_NORMS, g->n, q + (uint64_t)g->kv_heads * g->k_dim);
}

/* DeepseekV3Attention. The indexer is Indexer of DeepSeek-V3.2-Exp's inference/model.py; its norm has a bias. */
static void latent_add(kvb_weights_sum *sum, const kvb_weights_family *family, const kvb_sized_group *g)
{
    const uint64_t h = sum->hidden, heads = g->heads, rank = sum_count_or(sum, "q_lora_rank", 0);
    const uint64_t q = heads * (g->nope_dim + g->rope_dim);
    const bool bias = sum_flag(sum, family->bias ? family->bias : family->qkv_bias);
    if (rank) {
        linear_add(sum, KVB_WEIGHTS_OTHER, g->n, h, rank, bias);
        vector_add(sum, KVB_WEIGHTS_NORMS, g->n, rank);
    }
    linear_add(sum, KVB_WEIGHTS_ATTENTION, g->n, rank ? rank : h, q, false);
    linear_add(sum, KVB_WEIGHTS_OTHER, g->n, h, (uint64_t)g->latent_dim + g->rope_dim, bias);
    vector_add(sum, KVB_WEIGHTS_NORMS, g->n, g->latent_dim);
    linear_add(sum, KVB_WEIGHTS_ATTENTION, g->n, g->latent_dim, heads * (g->nope_dim + g->v_dim), false);
    linear_add(sum, KVB_WEIGHTS_ATTENTION, g->n, heads * g->v_dim, h, bias);
    if (g->index_dim) {
        const uint64_t index_heads = sum_count(sum, "index_n_heads");
        linear_add(sum, KVB_WEIGHTS_OTHER, g->n, rank ? rank : h, index_heads * g->index_dim, false);
        linear_add(sum, KVB_WEIGHTS_OTHER, g->n, h, g->index_dim, false);
        linear_add(sum, KVB_WEIGHTS_ROUTER, g->n, h, index_heads, false); /* weights_proj, which is never quantised */
        vector_add(sum, KVB_WEIGHTS_NORMS, g->n, 2 * (uint64_t)g->index_dim);
    }
}

static void attention_add(kvb_weights_sum *sum, const kvb_weights_family *family)
{
    for (const kvb_sized_group *g = sum->model->groups; g < sum->model->groups + sum->model->n_groups; g++) {
        if (kvb_sized_attends(g))
            (g->kind == KVB_SIZED_LATENT ? latent_add : heads_add)(sum, family, g);
    }
}

/* ---- feed-forward blocks, dense and of experts ---------------------------------------------------------------- */

/* Does a layer have experts according to the list? mlp_layer_types: ["dense", "sparse", …]; moe_layer_freq: [0, 1, …]. */
static bool says(const json_t *value, uint64_t layer)
{
    const json_t *entry = json_array_get(value, (size_t)layer);
    return json_is_string(entry) ? strcmp(json_string_value(entry), "sparse") == 0 : json_integer_value(entry) == 1;
}

static bool has(const json_t *list, uint64_t layer)
{
    for (const char *at = json_string_value(list); at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strtoull(at, NULL, 10) == layer)
            return true;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == (json_int_t)layer)
            return true;
    return false;
}

/* Counts the layers from `from` up to `to` with experts: those that all present fields of the config allow. The rules come
 * from the families' code: Qwen2/3 MoE (decoder_sparse_step, mlp_only_layers), DeepSeek and GLM (first_k_dense_replace,
 * moe_layer_freq, mlp_layer_types), ERNIE 4.5 (moe_layer_*), Jamba (expert_layer_*), Llama 4 (interleave_moe_layer_step,
 * moe_layers), Step 3.5 (moe_layers_enum: "3,4,5"). */
static uint64_t expert_layers(kvb_weights_sum *sum, uint64_t from, uint64_t to)
{
    const json_t *types = kvb_sum_find(sum, "mlp_layer_types"), *freq = kvb_sum_find(sum, "moe_layer_freq");
    const json_t *listed = kvb_sum_find(sum, "moe_layers moe_layers_enum"),
                 *dense = kvb_sum_find(sum, "mlp_only_layers");
    const bool freq_list = json_is_array(freq);
    const uint64_t every = freq_list ? 1 : sum_count_or(sum, "moe_layer_freq", 1);
    const uint64_t first = sum_count_or(sum, "first_k_dense_replace moe_layer_start_index dense_mlp_idx", 0);
    const json_t *end = kvb_sum_find(sum, "moe_layer_end_index"); /* -1: the last */
    const uint64_t last = end && json_integer_value(end) >= 0 ? sum_count_or(sum, "moe_layer_end_index", 0) : to;
    const uint64_t step = sum_count_or(sum, "decoder_sparse_step moe_layer_interval", 1);
    const uint64_t interleave = listed ? 1 : sum_count_or(sum, "interleave_moe_layer_step", 1);
    const uint64_t period = sum_count_or(sum, "expert_layer_period", 1);
    const uint64_t offset = sum_count_or(sum, "expert_layer_offset", 0);
    if (!every || !step || !interleave || !period)
        kvb_sum_stop(sum, -EINVAL, "%s: expected 1 or more",
                     !every        ? "moe_layer_freq"
                     : !step       ? "decoder_sparse_step, moe_layer_interval"
                     : !interleave ? "interleave_moe_layer_step"
                                   : "expert_layer_period");
    if ((types && json_array_size(types) < sum->layers) || (freq_list && json_array_size(freq) < sum->layers))
        kvb_sum_stop(sum, -EINVAL, "%s: expected an entry for each of %llu layers",
                     freq_list ? "moe_layer_freq" : "mlp_layer_types", (unsigned long long)sum->layers);
    uint64_t n = 0;
    for (uint64_t i = from; i < to && !sum->err; i++)
        n += (!types || says(types, i)) && (!freq_list || says(freq, i)) && (!listed || has(listed, i)) &&
             !(dense && has(dense, i)) && i % every == 0 && i >= first && i <= last && (i + 1) % step == 0 &&
             (i + 1) % interleave == 0 && i % period == offset % period;
    return n;
}

/* Counts the layers of a kind in NemotronHConfig's hybrid_override_pattern, "MEM*-…", or layers_block_type. */
static uint64_t layers_of(const json_t *list, uint64_t from, uint64_t to, char letter, const char *word)
{
    const char *text = json_string_value(list);
    uint64_t n = 0;
    for (uint64_t i = from; i < to; i++) {
        const char *entry = json_string_value(json_array_get(list, i));
        n += text ? i < json_string_length(list) && text[i] == letter : entry && strcmp(entry, word) == 0;
    }
    return n;
}

static void block_add(kvb_weights_sum *sum, kvb_weights_part part, uint64_t n, uint64_t in, uint64_t width, bool plain,
                      bool bias)
{
    linear_add(sum, part, plain ? n : 2 * n, in, width, bias);
    linear_add(sum, part, n, width, in, bias);
}

static void experts_add(kvb_weights_sum *sum, const kvb_weights_feed *feed, uint64_t layers, uint64_t experts)
{
    const uint64_t width = sum_count(sum, feed->expert_width ? feed->expert_width : "moe_intermediate_size");
    const uint64_t latent = feed->latent ? sum_count_or(sum, feed->latent, 0) : 0;
    block_add(sum, KVB_WEIGHTS_EXPERTS, layers * experts, latent ? latent : sum->hidden, width, feed->plain,
              feed->expert_bias);
    if (latent) /* NemotronHMOE: fc1_latent_proj, fc2_latent_proj, whole on each rank */
        block_add(sum, KVB_WEIGHTS_OTHER, layers, sum->hidden, latent, true, false);
    linear_add(sum, KVB_WEIGHTS_ROUTER, layers, sum->hidden, experts, feed->expert_bias);
    if (sum_flag(sum, feed->correction))
        vector_add(sum, KVB_WEIGHTS_ROUTER, layers, experts);
    const uint64_t shared = feed->shared ? sum_count_or(sum, feed->shared, 0) : feed->shared_width != NULL;
    if (shared) /* one block, as wide as all of them */
        block_add(sum, KVB_WEIGHTS_SHARED, layers, sum->hidden, shared * sum_count(sum, feed->shared_width),
                  feed->plain, false);
    if (shared && feed->shared_gate)
        linear_add(sum, KVB_WEIGHTS_ROUTER, layers, sum->hidden, 1, false);
}

void kvb_feed_count(kvb_weights_sum *sum, const kvb_weights_feed *feed, uint64_t from, uint64_t to, uint64_t *sparse,
                    uint64_t *dense)
{
    const json_t *list = feed->pattern ? kvb_sum_find(sum, feed->pattern) : NULL;
    const bool experts = feed->experts && sum_count_or(sum, feed->experts, 0);
    if (feed->pattern && !list)
        kvb_sum_stop(sum, -ENOENT, "%.*s is missing", (int)strcspn(feed->pattern, " "), feed->pattern);
    *sparse = list ? layers_of(list, from, to, 'E', "moe") : experts ? expert_layers(sum, from, to) : 0;
    *dense = list ? layers_of(list, from, to, '-', "mlp") : feed->beside ? to - from : to - from - *sparse;
}

static const char *width_names(const kvb_weights_feed *feed)
{
    return feed->width ? feed->width : "intermediate_size";
}

static void feed_add(kvb_weights_sum *sum, const kvb_weights_feed *feed)
{
    const char *names = width_names(feed);
    uint64_t sparse, dense;
    const uint64_t experts = feed->experts ? sum_count_or(sum, feed->experts, 0) : 0;
    if (experts && feed->needs && !kvb_sum_find(sum, feed->needs))
        kvb_sum_stop(sum, -ENOENT, "%.*s is missing", (int)strcspn(feed->needs, " "), feed->needs);
    kvb_feed_count(sum, feed, 0, sum->layers, &sparse, &dense);
    if (sparse && !sum->err)
        experts_add(sum, feed, sparse, experts);
    const json_t *widths = kvb_sum_find(sum, names);
    if (json_is_array(widths)) /* Gemma 3n: a width for each layer */
        for (size_t i = 0; i < dense && !sum->err; i++)
            block_add(sum, KVB_WEIGHTS_DENSE, 1, sum->hidden, count_get(sum, names, json_array_get(widths, i), 1),
                      feed->plain, sum_flag(sum, feed->bias));
    else if (dense && !sum->err) {
        const uint64_t width =
            feed->times && !kvb_sum_find(sum, names) ? feed->times * sum->hidden : sum_count(sum, names);
        block_add(sum, KVB_WEIGHTS_DENSE, dense, sum->hidden, width, feed->plain, sum_flag(sum, feed->bias));
    }
}

/* DeepSeek-V3's README_WEIGHTS.md; vLLM's models/glm4_moe_mtp.py, qwen3_next_mtp.py, mimo_mtp.py. Embedding and output are
 * shared with the model. */
static void mtp_add(kvb_weights_sum *sum, const kvb_weights_family *family)
{
    const uint64_t n = sum->model->mtp_layers, h = sum->hidden;
    const kvb_weights_feed *feed = family->feed;
    const uint64_t experts = feed->experts ? sum_count_or(sum, feed->experts, 0) : 0;
    kvb_sized_group last = {0};
    for (size_t g = 0; g < sum->model->n_groups; g++)
        if (kvb_sized_attends(&sum->model->groups[g]))
            last = sum->model->groups[g];
    last.n = (uint32_t)n;
    (last.kind == KVB_SIZED_LATENT ? latent_add : heads_add)(sum, family, &last);
    if (experts)
        experts_add(sum, feed, n, experts);
    else
        block_add(sum, KVB_WEIGHTS_DENSE, n, h, sum_count(sum, width_names(feed)), feed->plain,
                  sum_flag(sum, feed->bias));
    linear_add(sum, KVB_WEIGHTS_ROUTER, n, 2 * h, h, false); /* never quantised */
    vector_add(sum, KVB_WEIGHTS_NORMS, n * (family->norms + 3), h);
}

/* ---- layers with a recurrent state ----------------------------------------------------------------------------- */

/* MambaMixer, FalconMambaMixer, and JambaMambaMixer, which normalises dt, B and C. */
static void mamba1_tensors_add(kvb_weights_sum *sum, const kvb_sized_group *g, const char *bias, bool normed)
{
    static const char rank_names[] = "time_step_rank mamba_dt_rank dt_rank";
    const uint64_t n = state_layers(sum), h = sum->hidden, inner = g->state_v, state = g->state_k;
    const uint64_t rank =
        json_is_integer(kvb_sum_find(sum, rank_names)) ? sum_count(sum, rank_names) : (h + 15) / 16; /* "auto" */
    linear_add(sum, KVB_WEIGHTS_MIXER, n, h, 2 * inner, sum_flag(sum, bias));
    linear_add(sum, KVB_WEIGHTS_MIXER, n, g->conv_width, inner,
               sum_flag(sum, "+use_conv_bias") && sum_flag(sum, "+mamba_conv_bias"));
    linear_add(sum, KVB_WEIGHTS_MIXER, n, inner, rank + 2 * state, false);
    linear_add(sum, KVB_WEIGHTS_MIXER, n, rank, inner, true);
    matrix_add(sum, KVB_WEIGHTS_MIXER, n, inner, state); /* A_log */
    vector_add(sum, KVB_WEIGHTS_MIXER, n, inner);        /* D */
    linear_add(sum, KVB_WEIGHTS_MIXER, n, inner, h, sum_flag(sum, bias));
    if (normed)
        vector_add(sum, KVB_WEIGHTS_NORMS, n, rank + 2 * state);
}

static void mamba1_add(kvb_weights_sum *sum, const kvb_sized_group *g)
{
    mamba1_tensors_add(sum, g, "use_bias", false);
}

static void jamba_add(kvb_weights_sum *sum, const kvb_sized_group *g)
{
    mamba1_tensors_add(sum, g, "mamba_proj_bias", true);
}

/* Mamba2Mixer, BambaMixer, GraniteMoeHybridMambaLayer, NemotronHMamba2Mixer, FalconH1Mixer, Zamba2MambaMixer. */
static void mamba2_add(kvb_weights_sum *sum, const kvb_sized_group *g)
{
    const uint64_t n = state_layers(sum), h = sum->hidden, heads = g->state_heads, inner = heads * g->state_v;
    const uint64_t mixed = inner + 2 * (uint64_t)g->state_groups * g->state_k;
    const bool in_bias =
        sum_flag(sum, "use_bias") || sum_flag(sum, "mamba_proj_bias") || sum_flag(sum, "add_bias_linear");
    const bool out_bias = in_bias || sum_flag(sum, "projectors_bias");
    linear_add(sum, KVB_WEIGHTS_MIXER, n, h, inner + mixed + heads, in_bias);
    linear_add(sum, KVB_WEIGHTS_MIXER, n, g->conv_width, mixed,
               sum_flag(sum, "+use_conv_bias") && sum_flag(sum, "+mamba_conv_bias"));
    vector_add(sum, KVB_WEIGHTS_MIXER, n, 3 * heads); /* dt_bias, A_log, D */
    linear_add(sum, KVB_WEIGHTS_MIXER, n, inner, h, out_bias);
    if (sum_flag(sum, "+mamba_rms_norm"))
        vector_add(sum, KVB_WEIGHTS_NORMS, n, inner);
}

/* Qwen3NextGatedDeltaNet; Qwen3_5GatedDeltaNet has the same in four projections. */
static void delta_net_add(kvb_weights_sum *sum, const kvb_sized_group *g)
{
    const uint64_t n = state_layers(sum), h = sum->hidden, heads = g->state_heads, v = heads * g->state_v;
    const uint64_t k = (uint64_t)g->state_groups * g->state_k;
    linear_add(sum, KVB_WEIGHTS_MIXER, n, h, 2 * k + 2 * v, false); /* q, k, v, z */
    linear_add(sum, KVB_WEIGHTS_MIXER, n, h, 2 * heads, false);     /* b, a */
    linear_add(sum, KVB_WEIGHTS_MIXER, n, g->conv_width, 2 * k + v, false);
    vector_add(sum, KVB_WEIGHTS_MIXER, n, 2 * heads); /* dt_bias, A_log */
    linear_add(sum, KVB_WEIGHTS_MIXER, n, v, h, false);
    vector_add(sum, KVB_WEIGHTS_NORMS, n, g->state_v);
}

/* KimiDeltaAttention of vLLM's and SGLang's kimi_linear.py. Every rank holds all of f_a and g_a. Kimi-K3 has one full
 * matrix in place of g_a and g_b. */
static void kimi_delta_add(kvb_weights_sum *sum, const kvb_sized_group *g)
{
    const uint64_t n = state_layers(sum), h = sum->hidden, heads = g->state_heads, dim = g->state_k, all = heads * dim;
    linear_add(sum, KVB_WEIGHTS_MIXER, 3 * n, h, all, false); /* q, k, v */
    linear_add(sum, KVB_WEIGHTS_MIXER, 3 * n, g->conv_width, all, false);
    const bool full = sum_flag(sum, "linear_attn_config.use_full_rank_gate");
    linear_add(sum, KVB_WEIGHTS_OTHER, full ? n : 2 * n, h, dim, false);   /* f_a, g_a */
    linear_add(sum, KVB_WEIGHTS_MIXER, full ? n : 2 * n, dim, all, false); /* f_b, g_b */
    linear_add(sum, KVB_WEIGHTS_MIXER, full ? n : 0, h, all, false);       /* g */
    linear_add(sum, KVB_WEIGHTS_MIXER, n, h, heads, false);                /* b */
    vector_add(sum, KVB_WEIGHTS_MIXER, n, all + heads);                    /* dt_bias, A_log */
    vector_add(sum, KVB_WEIGHTS_NORMS, n, dim);
    linear_add(sum, KVB_WEIGHTS_MIXER, n, all, h, false);
}

/* MiniMaxLightningAttention. */
static void lightning_add(kvb_weights_sum *sum, const kvb_sized_group *g)
{
    const uint64_t n = state_layers(sum), h = sum->hidden, all = (uint64_t)g->state_heads * g->state_k;
    linear_add(sum, KVB_WEIGHTS_MIXER, n, h, 3 * all, false);
    linear_add(sum, KVB_WEIGHTS_MIXER, n, h, all, false); /* output_gate */
    linear_add(sum, KVB_WEIGHTS_MIXER, n, all, h, false);
    vector_add(sum, KVB_WEIGHTS_NORMS, n, all);
}

/* Common to both versions of RWKV: norms with biases in layers, before the first and after the last; the channel mix. */
static void rwkv_add(kvb_weights_sum *sum, uint64_t width)
{
    const uint64_t n = sum->layers, h = sum->hidden;
    vector_add(sum, KVB_WEIGHTS_NORMS, 2 * n + 2, 2 * h);
    vector_add(sum, KVB_WEIGHTS_DENSE, n, 2 * h); /* time_mix_key, time_mix_receptance */
    block_add(sum, KVB_WEIGHTS_DENSE, n, sum->hidden, width, true, false);
    linear_add(sum, KVB_WEIGHTS_DENSE, n, h, h, false); /* receptance */
}

/* RwkvSelfAttention and RwkvFeedForward (RWKV-4). */
static void rwkv4_add(kvb_weights_sum *sum, const kvb_sized_group *g)
{
    (void)g;
    const uint64_t n = sum->layers, h = sum->hidden, a = sum_count_or(sum, "attention_hidden_size", h);
    rwkv_add(sum, sum_count_or(sum, "intermediate_size", 4 * h));
    linear_add(sum, KVB_WEIGHTS_MIXER, 3 * n, h, a, false);
    linear_add(sum, KVB_WEIGHTS_MIXER, n, a, h, false);
    vector_add(sum, KVB_WEIGHTS_MIXER, n, 2 * a + 3 * h); /* time_decay, time_first; time_mix of k, v, r */
}

/* RWKV-5 ("Eagle"): Rwkv5SelfAttention and Rwkv5FeedForward of RWKV/rwkv-5-world-*; the width is 3.5 hidden, rounded down to
 * a multiple of 32. */
static void rwkv5_add(kvb_weights_sum *sum, const kvb_sized_group *g)
{
    (void)g;
    const uint64_t n = sum->layers, h = sum->hidden, a = sum_count_or(sum, "attention_hidden_size", h);
    rwkv_add(sum, sum_count_or(sum, "intermediate_size", h * 7 / 2 / 32 * 32));
    linear_add(sum, KVB_WEIGHTS_MIXER, 4 * n, h, a, false); /* r, k, v, g */
    linear_add(sum, KVB_WEIGHTS_MIXER, n, a, h, false);
    vector_add(sum, KVB_WEIGHTS_MIXER, n, 2 * a + 4 * h); /* time_decay, time_faaaa; time_mix of k, v, r, g */
    vector_add(sum, KVB_WEIGHTS_NORMS, n, 2 * a);         /* ln_x */
}

/* ---- tensors of single families --------------------------------------------------------------------------------- */

/* FalconDecoderLayer: a second norm (with bias), unless attention and block are parallel after one norm. */
static void falcon_extras(kvb_weights_sum *sum)
{
    const bool two = sum_flag(sum, "new_decoder_architecture") ? sum_count_or(sum, "num_ln_in_parallel_attn", 2) == 2
                                                               : !sum_flag(sum, "+parallel_attn");
    vector_add(sum, KVB_WEIGHTS_NORMS, two ? sum->layers : 0, 2 * sum->hidden);
}

/* BloomModel.word_embeddings_layernorm */
static void bloom_extras(kvb_weights_sum *sum)
{
    vector_add(sum, KVB_WEIGHTS_NORMS, 1, 2 * sum->hidden);
}

/* GptOssAttention.sinks: a logit for each head. */
static void gpt_oss_extras(kvb_weights_sum *sum)
{
    vector_add(sum, KVB_WEIGHTS_ATTENTION, sum->layers, sum_count(sum, "num_attention_heads"));
}

/* WhisperEncoder, and the attention of both sides: k_proj has no bias. Positions of the encoder are stored, too. */
static void whisper_extras(kvb_weights_sum *sum)
{
    const uint64_t h = sum->hidden, n = sum_count(sum, "encoder_layers"), attentions = n + 2 * sum->layers;
    const uint64_t wide = sum_count(sum, "encoder_ffn_dim");

    linear_add(sum, KVB_WEIGHTS_ATTENTION, 3 * attentions, h, h, true);
    linear_add(sum, KVB_WEIGHTS_ATTENTION, attentions, h, h, false);
    block_add(sum, KVB_WEIGHTS_DENSE, n, h, wide, true, true);
    vector_add(sum, KVB_WEIGHTS_NORMS, 2 * n + 1, 2 * h);
    linear_add(sum, KVB_WEIGHTS_OTHER, 1, 3 * sum_count(sum, "num_mel_bins"), h, true); /* conv1 */
    linear_add(sum, KVB_WEIGHTS_OTHER, 1, 3 * h, h, true);
    matrix_add(sum, KVB_WEIGHTS_OTHER, 1, sum_count(sum, "max_source_positions"), h);
}

/* ApertusMLP's xIELU: alpha_p and alpha_n. */
static void apertus_extras(kvb_weights_sum *sum)
{
    vector_add(sum, KVB_WEIGHTS_OTHER, sum->layers, 2);
}

/* Lfm2ShortConv; Lfm2MLP with 2/3 of the config's width, rounded up to block_multiple_of. */
static void lfm2_add(kvb_weights_sum *sum, const kvb_sized_group *g)
{
    const uint64_t n = state_layers(sum), h = sum->hidden;
    const bool bias = sum_flag(sum, "conv_bias");
    linear_add(sum, KVB_WEIGHTS_MIXER, n, h, 3 * h, bias);
    linear_add(sum, KVB_WEIGHTS_MIXER, n, g->conv_width, h, bias);
    linear_add(sum, KVB_WEIGHTS_MIXER, n, h, h, bias);
}

static void lfm2_extras(kvb_weights_sum *sum)
{
    const json_t *times = kvb_sum_find(sum, "block_ffn_dim_multiplier");
    uint64_t width = sum_count(sum, "block_ff_dim intermediate_size");
    const uint64_t whole = sum_count_or(sum, "block_multiple_of", 256);
    if (sum_flag(sum, "+block_auto_adjust_ff_dim") && whole) {
        width = 2 * width / 3;
        width = times && json_number_value(times) > 0 && json_number_value(times) < 64
                    ? (uint64_t)(json_number_value(times) * (double)width)
                    : width;
        width = (width + whole - 1) / whole * whole;
    }
    block_add(sum, KVB_WEIGHTS_DENSE, sum->layers, sum->hidden, width, false, false);
}

/* LongcatFlashMoE beside every second pair of attention and block; the router also scores experts without weights. */
static void longcat_extras(kvb_weights_sum *sum)
{
    const uint64_t n = sum->layers / 2, experts = sum_count(sum, "n_routed_experts");
    const uint64_t scores = experts + sum_count_or(sum, "zero_expert_num", 0);
    block_add(sum, KVB_WEIGHTS_EXPERTS, n * experts, sum->hidden, sum_count(sum, "expert_ffn_hidden_size"), false,
              false);
    linear_add(sum, KVB_WEIGHTS_ROUTER, n, sum->hidden, scores, sum_flag(sum, "router_bias"));
    vector_add(sum, KVB_WEIGHTS_ROUTER, n, scores);
}

/* vLLM's LagunaAttention, Step3p5Attention: a gate for each head, or with "per-element" for each of its elements. */
static void gate_extras(kvb_weights_sum *sum)
{
    const json_t *gating = kvb_sum_find(sum, "gating use_head_wise_attn_gate");
    const char *word = json_string_value(gating);
    const bool each = word && strcmp(word, "per-element") == 0;
    for (const kvb_sized_group *g = sum->model->groups;
         g < sum->model->groups + sum->model->n_groups && gating && !json_is_false(gating); g++) {
        linear_add(sum, KVB_WEIGHTS_ATTENTION, g->n, sum->hidden, (uint64_t)g->heads * (each ? g->k_dim : 1), false);
    }
}

/* Gemma-3n and Gemma-4 have an embedding for each layer: gate, projection and norm in each, the tables, and their
 * projection. */
static void layer_embedding_add(kvb_weights_sum *sum, uint64_t own)
{
    const uint64_t n = sum->layers, h = sum->hidden;
    linear_add(sum, KVB_WEIGHTS_OTHER, 2 * n, h, own, false);
    vector_add(sum, KVB_WEIGHTS_NORMS, n, h);
    matrix_add(sum, KVB_WEIGHTS_EMBEDDING, 1, sum_count(sum, "vocab_size_per_layer_input"), n * own);
    linear_add(sum, KVB_WEIGHTS_OTHER, 1, h, n * own, false);
    vector_add(sum, KVB_WEIGHTS_NORMS, 1, own);
}

/* Gemma4TextDecoderLayer: a scale for the layer; with experts also scales in their router and three more norms. */
static void gemma4_extras(kvb_weights_sum *sum)
{
    const uint64_t n = sum->layers, h = sum->hidden, experts = sum_count_or(sum, "num_experts", 0);
    const json_t *own = kvb_sum_find(sum, "hidden_size_per_layer_input");
    if (!own)
        kvb_sum_stop(sum, -ENOENT, "hidden_size_per_layer_input is missing");
    else if (sum_count_or(sum, "hidden_size_per_layer_input", 0))
        layer_embedding_add(sum, sum_count(sum, "hidden_size_per_layer_input"));
    vector_add(sum, KVB_WEIGHTS_OTHER, n, 1);
    if (experts) {
        vector_add(sum, KVB_WEIGHTS_ROUTER, n, h + experts);
        vector_add(sum, KVB_WEIGHTS_NORMS, 3 * n, h);
    }
}

/* Gemma3nTextModel: in the checkpoint, layers that read another layer's rows have projections of their own too. The
 * model also has AltUp, LAuReL, and an embedding for each layer. */
static void gemma3n_extras(kvb_weights_sum *sum)
{
    const uint64_t n = sum->layers, h = sum->hidden, heads = sum_count(sum, "num_attention_heads");
    const uint64_t kv = sum_count(sum, "num_key_value_heads"), dim = sum_count(sum, "head_dim");
    const uint64_t inputs = sum_count(sum, "altup_num_inputs"), rank = sum_count(sum, "laurel_rank");
    const uint64_t own = sum_count(sum, "hidden_size_per_layer_input");
    const uint64_t readers = n - attending_layers(sum);
    linear_add(sum, KVB_WEIGHTS_ATTENTION, 2 * readers, h, heads * dim, false); /* q, o */
    linear_add(sum, KVB_WEIGHTS_ATTENTION, 2 * readers, h, kv * dim, false);
    vector_add(sum, KVB_WEIGHTS_NORMS, readers, 2 * dim);
    vector_add(sum, KVB_WEIGHTS_OTHER, n, h + inputs * inputs + inputs * inputs * inputs + h * inputs); /* altup */
    vector_add(sum, KVB_WEIGHTS_NORMS, n, h);              /* the norm of altup's router */
    linear_add(sum, KVB_WEIGHTS_OTHER, n, h, rank, false); /* laurel */
    linear_add(sum, KVB_WEIGHTS_OTHER, n, rank, h, false);
    vector_add(sum, KVB_WEIGHTS_NORMS, n, h);
    layer_embedding_add(sum, own);
    linear_add(sum, KVB_WEIGHTS_OTHER, 2 * (inputs - 1), h, h,
               false); /* altup_projections, altup_unembed_projections */
}

/* Zamba2: hybrid layers share num_mem_blocks blocks of attention and feed-forward over [x, embedding]. Each hybrid
 * layer has its own adapters and a projection back. Every layer has a Mamba-2 mixer and its norm. */
static void zamba2_extras(kvb_weights_sum *sum)
{
    const uint64_t h = sum->hidden, wide = 2 * h, blocks = sum_count(sum, "num_mem_blocks");
    const uint64_t width = sum_count(sum, "intermediate_size ffn_hidden_size");
    const uint64_t rank = sum_count_or(sum, "adapter_rank", 128); /* Zamba2Config */
    const bool bias = sum_flag(sum, "add_bias_linear");
    const uint64_t hybrid = attending_layers(sum);
    const uint64_t inner = sum_count(sum, "num_attention_heads") * (wide / sum_count(sum, "num_attention_heads"));
    linear_add(sum, KVB_WEIGHTS_ATTENTION, 3 * blocks, wide, inner, false);
    linear_add(sum, KVB_WEIGHTS_ATTENTION, blocks, inner, h, false);
    linear_add(sum, KVB_WEIGHTS_DENSE, blocks, h, 2 * width, bias);
    linear_add(sum, KVB_WEIGHTS_DENSE, blocks, width, h, bias);
    vector_add(sum, KVB_WEIGHTS_NORMS, blocks, wide + h);
    linear_add(sum, KVB_WEIGHTS_DENSE, hybrid, h, rank, false);
    linear_add(sum, KVB_WEIGHTS_DENSE, hybrid, rank, 2 * width, false);
    if (sum_flag(sum, "use_shared_attention_adapter")) {
        linear_add(sum, KVB_WEIGHTS_ATTENTION, 3 * hybrid, wide, rank, false);
        linear_add(sum, KVB_WEIGHTS_ATTENTION, 3 * hybrid, rank, wide, false);
    }
    linear_add(sum, KVB_WEIGHTS_OTHER, hybrid, h, h, false);
}

/* DeciLMDecoderLayer: a no-op has no norm either. The width is _ffn_mult_to_intermediate_size: 2/3 of the multiple,
 * rounded down, then up to a multiple of 256. */
static void deci_extras(kvb_weights_sum *sum)
{
    const json_t *blocks = kvb_sum_find(sum, "block_configs");
    vector_add(sum, KVB_WEIGHTS_NORMS, 1, sum->hidden); /* before the output */
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
        vector_add(sum, KVB_WEIGHTS_NORMS, !json_is_true(json_object_get(attention, "no_op")), sum->hidden);
        if (json_is_true(json_object_get(feed, "no_op")))
            continue;
        vector_add(sum, KVB_WEIGHTS_NORMS, 1, sum->hidden);
        if (json_is_true(json_object_get(feed, "replace_with_linear")))
            linear_add(sum, KVB_WEIGHTS_DENSE, 1, sum->hidden, sum->hidden, false);
        else if (!(times > 0 && times < 1024))
            kvb_sum_stop(sum, -EINVAL, "block_configs[%zu].ffn.ffn_mult: expected a number over 0 and under 1024", i);
        else
            block_add(sum, KVB_WEIGHTS_DENSE, 1, sum->hidden,
                      ((uint64_t)(2 * times * (double)sum->hidden / 3) + 255) / 256 * 256, false, false);
    }
}

/* ---- feed-forward blocks of each family, and extra tensors of the newest ------------------------------------------- */

/* clang-format off */
static const kvb_weights_feed gated = {.bias = "mlp_bias"};
static const kvb_weights_feed gated_use_bias = {.bias = "use_bias"};
static const kvb_weights_feed plain = {.plain = true, .bias = "+"};
static const kvb_weights_feed plain_use_bias = {.plain = true, .bias = "+use_bias"};
static const kvb_weights_feed plain_mlp_bias = {.plain = true, .bias = "mlp_bias"};
static const kvb_weights_feed plain_4 = {.plain = true, .width = "n_inner intermediate_size", .times = 4,
    .bias = "+"};
static const kvb_weights_feed falcon = {.plain = true, .width = "ffn_hidden_size", .times = 4, .bias = "bias"};
static const kvb_weights_feed mixtral = {.experts = "num_local_experts num_experts",
    .expert_width = "intermediate_size"};
static const kvb_weights_feed gpt_oss = {.experts = "num_local_experts", .expert_width = "intermediate_size",
    .expert_bias = true};
static const kvb_weights_feed qwen_moe = {.experts = "num_experts"};
static const kvb_weights_feed qwen_shared = {.experts = "num_experts",
    .shared_width = "shared_expert_intermediate_size", .shared_gate = true};
static const kvb_weights_feed deepseek_v2 = {.needs = "first_k_dense_replace mlp_layer_types",
    .experts = "n_routed_experts", .shared = "n_shared_experts", .shared_width = "moe_intermediate_size"};
static const kvb_weights_feed deepseek_v3 = {.needs = "first_k_dense_replace mlp_layer_types",
    .experts = "n_routed_experts", .correction = "+", .shared = "n_shared_experts",
    .shared_width = "moe_intermediate_size"};
static const kvb_weights_feed kimi = {.needs = "first_k_dense_replace", .experts = "num_experts",
    .latent = "routed_expert_hidden_size", .correction = "+", .shared = "num_shared_experts",
    .shared_width = "moe_intermediate_size"};
static const kvb_weights_feed bailing = {.experts = "num_experts", .shared = "num_shared_experts",
    .shared_width = "moe_intermediate_size", .bias = "use_bias"};
static const kvb_weights_feed ernie_moe = {.bias = "use_bias", .needs = "moe_layer_start_index",
    .experts = "moe_num_experts", .correction = "+", .shared = "moe_num_shared_experts",
    .shared_width = "moe_intermediate_size"};
static const kvb_weights_feed chatglm = {.width = "ffn_hidden_size", .bias = "add_bias_linear"};
static const kvb_weights_feed longcat = {.width = "ffn_hidden_size"};
static const kvb_weights_feed laguna = {.experts = "num_experts", .correction = "+",
    .shared_width = "shared_expert_intermediate_size"};
static const kvb_weights_feed whisper = {.plain = true, .width = "decoder_ffn_dim", .bias = "+"};
static const kvb_weights_feed mimo_v2 = {.needs = "moe_layer_freq", .experts = "n_routed_experts",
    .correction = "+"};
static const kvb_weights_feed step3p5 = {.needs = "moe_layers_enum", .experts = "moe_num_experts", .correction = "+",
    .shared_width = "share_expert_dim"};
static const kvb_weights_feed minimax_m2 = {.experts = "num_local_experts", .expert_width = "intermediate_size",
    .correction = "+use_routing_bias"};
static const kvb_weights_feed llama4 = {.width = "intermediate_size_mlp",
    .needs = "interleave_moe_layer_step moe_layers", .experts = "num_local_experts",
    .expert_width = "intermediate_size", .shared_width = "intermediate_size"};
static const kvb_weights_feed jamba = {.needs = "expert_layer_period", .experts = "num_experts",
    .expert_width = "intermediate_size"};
static const kvb_weights_feed granite_moe = {.experts = "num_local_experts", .expert_width = "intermediate_size"};
static const kvb_weights_feed granite_hybrid = {.width = "shared_intermediate_size", .experts = "num_local_experts",
    .expert_width = "intermediate_size", .beside = true};
static const kvb_weights_feed gemma4 = {.experts = "num_experts", .beside = true};
static const kvb_weights_feed nemotron_h = {.plain = true, .pattern = "layers_block_type hybrid_override_pattern",
    .bias = "mlp_bias", .experts = "n_routed_experts", .latent = "moe_latent_size", .correction = "+",
    .shared = "n_shared_experts", .shared_width = "moe_shared_expert_intermediate_size"};
static const kvb_weights_feed minimax_m3 = {.width = "dense_intermediate_size", .needs = "moe_layer_freq",
    .experts = "num_local_experts", .expert_width = "intermediate_size", .correction = "use_routing_bias",
    .shared = "n_shared_experts", .shared_width = "shared_intermediate_size intermediate_size"};
static const kvb_weights_feed inkling = {.width = "dense_intermediate_size intermediate_size",
    .experts = "n_routed_experts", .expert_width = "moe_intermediate_size intermediate_size", .correction = "+",
    .shared = "n_shared_experts", .shared_width = "moe_intermediate_size intermediate_size"};
static const kvb_weights_feed deepseek_v4 = {.experts = "n_routed_experts", .shared = "n_shared_experts",
    .shared_width = "moe_intermediate_size"};
/* clang-format on */

/* KimiDecoderLayer of vLLM's models/kimi_linear.py. Kimi-K3 has a gate on attention's output, a norm on the experts'
 * output, and weights for the outputs of earlier blocks of layers. */
static void kimi_extras(kvb_weights_sum *sum)
{
    const uint64_t n = sum->layers, h = sum->hidden, latent = sum_count_or(sum, "routed_expert_hidden_size", 0);
    uint64_t sparse, dense;
    kvb_feed_count(sum, &kimi, 0, n, &sparse, &dense);
    for (size_t i = 0; i < sum->model->n_groups && sum_flag(sum, "mla_use_output_gate"); i++)
        if (sum->model->groups[i].kind == KVB_SIZED_LATENT)
            linear_add(sum, KVB_WEIGHTS_ATTENTION, sum->model->groups[i].n, h,
                       (uint64_t)sum->model->groups[i].heads * sum->model->groups[i].v_dim, false);
    if (latent && sum_flag(sum, "latent_moe_use_norm"))
        vector_add(sum, KVB_WEIGHTS_NORMS, sparse, latent);
    if (kvb_sum_find(sum, "attn_res_block_size"))
        vector_add(sum, KVB_WEIGHTS_NORMS, 4 * n + 2, h);
}

/* MiniMaxM3SparseAttention of vLLM's models/minimax_m3: the indexer's q and k, and their norms. */
static void minimax_m3_extras(kvb_weights_sum *sum)
{
    const uint64_t n = layers_of_kind(sum, KVB_SIZED_FULL, true), h = sum->hidden;
    const uint64_t dim = sum_count(sum, "sparse_attention_config.sparse_index_dim");
    linear_add(sum, KVB_WEIGHTS_ATTENTION, n, h,
               product(sum, sum_count(sum, "sparse_attention_config.sparse_num_index_heads"), dim), false);
    linear_add(sum, KVB_WEIGHTS_OTHER, n, h, dim, false);
    vector_add(sum, KVB_WEIGHTS_NORMS, n, 2 * dim);
}

/* InklingAttention, InklingMLP, InklingMoE: a projection for relative positions and their table, convolutions of K, V and
 * of the outputs of attention and block, a scale for each block, a router that scores shared experts too. */
static void inkling_extras(kvb_weights_sum *sum)
{
    const uint64_t n = sum->layers, h = sum->hidden, relative = sum_count_or(sum, "d_rel", 16);
    const uint64_t conv = sum_count_or(sum, "conv_kernel_size sconv_kernel_size", 4);
    uint64_t sparse, dense;
    kvb_feed_count(sum, &inkling, 0, n, &sparse, &dense);
    for (const kvb_sized_group *g = sum->model->groups; g < sum->model->groups + sum->model->n_groups; g++) {
        if (!kvb_sized_attends(g))
            continue;
        linear_add(sum, KVB_WEIGHTS_ATTENTION, g->n, h, product(sum, g->heads, relative), false);
        matrix_add(sum, KVB_WEIGHTS_OTHER, g->n, relative,
                   g->kind == KVB_SIZED_WINDOW ? g->window : sum_count_or(sum, "rel_extent", 1024));
        linear_add(sum, KVB_WEIGHTS_ATTENTION, 2 * g->n, conv, (uint64_t)g->kv_heads * g->k_dim, false);
    }
    linear_add(sum, KVB_WEIGHTS_OTHER, 2 * n, conv, h, false);
    vector_add(sum, KVB_WEIGHTS_NORMS, 1, h); /* of the embedding */
    vector_add(sum, KVB_WEIGHTS_OTHER, n, 1);
    linear_add(sum, KVB_WEIGHTS_ROUTER, sparse, h, sum_count_or(sum, "n_shared_experts", 0), false);
}

/* DeepseekV4HyperConnection, in f32. */
static void hyper_connection_add(kvb_weights_sum *sum, uint64_t n)
{
    const uint64_t streams = sum_count_or(sum, "hc_mult", 4), mixed = product(sum, 2 + streams, streams);
    matrix_add(sum, KVB_WEIGHTS_NORMS, n, mixed, product(sum, streams, sum->hidden));
    vector_add(sum, KVB_WEIGHTS_NORMS, n, mixed + 3);
}

/* The pooling of DeepseekV4HCACompressor, DeepseekV4CSACompressor and DeepseekV4Indexer, which is never quantised: rows of
 * `width` and gates, their positions and a norm. */
static void pooling_add(kvb_weights_sum *sum, uint64_t n, uint64_t width, uint64_t every, uint64_t dim)
{
    linear_add(sum, KVB_WEIGHTS_ROUTER, 2 * n, sum->hidden, width, false);
    matrix_add(sum, KVB_WEIGHTS_ROUTER, n, every, width);
    vector_add(sum, KVB_WEIGHTS_NORMS, n, dim);
}

/* DeepseekV4Attention and the mix of its streams. The first layers choose experts by a table of tokens, without a bias. */
static void deepseek_v4_extras(kvb_weights_sum *sum)
{
    const uint64_t n = sum->layers, h = sum->hidden, rank = sum_count(sum, "q_lora_rank");
    const uint64_t heads = sum_count(sum, "num_attention_heads"), dim = sum_count(sum, "head_dim");
    const uint64_t groups = sum_count(sum, "o_groups"), out = product(sum, groups, sum_count(sum, "o_lora_rank"));
    const uint64_t sparse = layers_of_kind(sum, KVB_SIZED_POOLED, true);
    const uint64_t streams = sum_count_or(sum, "hc_mult", 4), hashed = sum_count_or(sum, "num_hash_layers", 3);
    const uint64_t index = sum_count(sum, "index_head_dim"), index_heads = sum_count(sum, "index_n_heads");
    linear_add(sum, KVB_WEIGHTS_OTHER, n, h, rank, false);
    linear_add(sum, KVB_WEIGHTS_ATTENTION, n, rank, heads * dim, false);
    linear_add(sum, KVB_WEIGHTS_OTHER, n, h, dim, false);
    linear_add(sum, KVB_WEIGHTS_ATTENTION, n, heads * dim / groups, out, false);
    linear_add(sum, KVB_WEIGHTS_ATTENTION, n, out, h, false);
    vector_add(sum, KVB_WEIGHTS_ATTENTION, n, heads); /* sinks */
    vector_add(sum, KVB_WEIGHTS_NORMS, n, rank + dim);
    pooling_add(sum, sparse, 2 * dim, 4, dim);
    pooling_add(sum, sparse, 2 * index, 4, index);
    pooling_add(sum, layers_of_kind(sum, KVB_SIZED_POOLED, false), dim, 128, dim);
    linear_add(sum, KVB_WEIGHTS_OTHER, sparse, rank, product(sum, index_heads, index), false);
    linear_add(sum, KVB_WEIGHTS_ROUTER, sparse, h, index_heads, false);
    hyper_connection_add(sum, 2 * n);
    matrix_add(sum, KVB_WEIGHTS_NORMS, 1, streams, product(sum, streams, h)); /* DeepseekV4HyperHead */
    vector_add(sum, KVB_WEIGHTS_NORMS, 1, streams + 1);
    vector_add(sum, KVB_WEIGHTS_ROUTER, n > hashed ? n - hashed : 0, sum_count(sum, "n_routed_experts"));
}

/* Glm5NextTextDecoderLayer; the indexer, which only some configs have, is vLLM's models/glm5_next. */
static void glm5_next_extras(kvb_weights_sum *sum)
{
    const uint64_t n = layers_of_kind(sum, KVB_SIZED_POOLED, true), h = sum->hidden;
    hyper_connection_add(sum, 2 * sum->layers);
    if (!n)
        return;
    const uint64_t dim = sum_count(sum, "index_head_dim"), heads = sum_count(sum, "index_n_heads");
    linear_add(sum, KVB_WEIGHTS_OTHER, n, sum_count(sum, "q_lora_rank"), product(sum, heads, dim), false);
    linear_add(sum, KVB_WEIGHTS_OTHER, n, h, dim, false);
    linear_add(sum, KVB_WEIGHTS_ROUTER, n, h, heads + dim, false); /* weights_proj, the pooling's gate */
    vector_add(sum, KVB_WEIGHTS_NORMS, n, product(sum, 2 + sum_count_or(sum, "index_kpool", 1), dim));
}

static uint64_t prime_from(uint64_t n)
{
    for (uint64_t d = 2; d * d <= n; d++)
        if (n % d == 0) {
            n++;
            d = 1;
        }
    return n;
}

/* Qwen4ExpTextGatedResidual in place of norms, Qwen4ExpTextQSAIndexer, and Qwen4ExpTextPLELayer: its embeddings of
 * n-grams are tables with a prime number of rows for each head. */
static void qwen4_exp_extras(kvb_weights_sum *sum)
{
    const uint64_t n = sum->layers, h = sum->hidden, streams = sum_count_or(sum, "hc_count", 4),
                   wide = product(sum, streams, h);
    const uint64_t rank = sum_count_or(sum, "hc_lowrank", 320),
                   tables = json_array_size(kvb_sum_find(sum, "ple_layer_ids"));
    vector_add(sum, KVB_WEIGHTS_NORMS, 2 * n + 1, wide);
    linear_add(sum, KVB_WEIGHTS_OTHER, 2 * n + 1, wide, rank, false);
    linear_add(sum, KVB_WEIGHTS_OTHER, 2 * n + 1, rank, wide, false);
    linear_add(sum, KVB_WEIGHTS_OTHER, 2 * n, wide, streams, false);
    if (kvb_sum_find(sum, "indexer_head_dim")) {
        const uint64_t dim = sum_count(sum, "indexer_head_dim");
        const uint64_t rows = sum_count(sum, "indexer_n_heads") + sum_count(sum, "indexer_kv_heads");
        linear_add(sum, KVB_WEIGHTS_OTHER, attending_layers(sum), h, product(sum, rows, dim), false);
        vector_add(sum, KVB_WEIGHTS_NORMS, attending_layers(sum), 2 * dim);
    }
    const uint64_t own = sum_count_or(sum, "ple_embed_dim", h),
                   heads = sum_count_or(sum, "heads_per_ngram", 8) * (sum_count_or(sum, "ngram_size", 3) - 1);
    const uint64_t least = sum_count_or(sum, "ngram_vocab_size_base", 20000000);
    const uint64_t whole = sum_count_or(sum, "make_ngram_vocab_size_divisible_by", 128);
    if (tables && (!heads || !whole || least < 2 || least > UINT32_MAX || tables > 256 || heads > 256 / tables))
        kvb_sum_stop(sum, -EINVAL, "ple_layer_ids: up to 256 tables of n-grams were expected");
    for (uint64_t t = 0, rows = 0, prime = least - 1; t < tables && !sum->err; t++, rows = 0) {
        for (uint64_t i = 0; i < heads; i++)
            rows += prime = prime_from(prime + 1);
        matrix_add(sum, KVB_WEIGHTS_EMBEDDING, 1, kvb_ceil_div(rows, whole) * whole, own / heads);
    }
    linear_add(sum, KVB_WEIGHTS_OTHER, tables, sum_count_or(sum, "ple_conv_kernel_size", 4), wide, false);
    linear_add(sum, KVB_WEIGHTS_OTHER, tables, own, wide + h, false);
    vector_add(sum, KVB_WEIGHTS_NORMS, 3 * tables, wide);
}

/* SambaYDecoderLayer of vLLM's models/phi4flash.py: differences of heads, attention over the rows of another layer, and in
 * place of later mixers a gate on the output of the last. */
static void phi4flash_mixer(kvb_weights_sum *sum, const kvb_sized_group *g)
{
    const uint64_t h = sum->hidden, attending = attending_layers(sum), inner = g->state_v;
    uint64_t readers = 0, dim = 0;
    for (size_t i = 0; i < sum->model->n_groups; i++)
        if (kvb_sized_attends(&sum->model->groups[i])) {
            readers += sum->model->groups[i].readers;
            dim = sum->model->groups[i].k_dim;
        }
    mamba1_tensors_add(sum, g, "mamba_proj_bias", false);
    linear_add(sum, KVB_WEIGHTS_ATTENTION, 2 * readers, h, h, true);
    vector_add(sum, KVB_WEIGHTS_OTHER, attending + readers, 6 * dim); /* four lambdas, subln */
    const uint64_t gates = sum->layers - attending - readers - state_layers(sum);
    linear_add(sum, KVB_WEIGHTS_MIXER, gates, h, inner, false);
    linear_add(sum, KVB_WEIGHTS_MIXER, gates, inner, h, false);
}

/*
 * The families of models with known tensors, a row for each. Unless a row names another source, it is
 * transformers' modeling_NAME.py and configuration_NAME.py of its first name.
 */

/* clang-format off */
static const kvb_weights_family families[] = {
    {.names = "llama mistral ministral ministral3 baichuan LlamaForCausalLM MistralForCausalLM", .norms = 2,
     .feed = &gated, .bias = "attention_bias"},
    {.names = "granite GraniteForCausalLM", .norms = 2, .feed = &gated, .bias = "attention_bias", .tied = true},
    {.names = "smollm3 SmolLM3ForCausalLM", .norms = 2, .feed = &gated, .bias = "attention_bias", .tied = true},
    {.names = "internlm2 InternLM2ForCausalLM", .norms = 2, .feed = &gated, .bias = "+bias"},
    {.names = "seed_oss SeedOssForCausalLM", .norms = 2, .feed = &gated, .qkv_bias = "+attention_bias",
     .o_bias = "attention_out_bias"},
    {.names = "ernie4_5 Ernie4_5ForCausalLM", .norms = 2, .feed = &gated_use_bias, .bias = "use_bias",
     .tied = true},
    {.names = "ernie4_5_moe Ernie4_5_MoeForCausalLM", .norms = 2, .feed = &ernie_moe, .bias = "use_bias",
     .tied = true, .unknown = "use_bias"},
    {.names = "chatglm ChatGLMModel", .norms = 2, .feed = &chatglm, .qkv_bias = "add_qkv_bias",
     .o_bias = "add_bias_linear"}, /* vLLM's models/chatglm.py */
    {.names = "internlm InternLMForCausalLM", .norms = 2, .feed = &gated, .bias = "+bias"},
    {.names = "orion OrionForCausalLM", .norms = 2, .norm_bias = "+", .feed = &gated}, /* vLLM's models/orion.py */
    {.names = "phi-msft", .norms = 1, .norm_bias = "+", .feed = &plain_4, .bias = "+", .output_bias = "+"},
    {.names = "lfm2 Lfm2ForCausalLM", .norms = 2, .mixer = lfm2_add, .head_norm = "+", .tied = true,
     .extras = lfm2_extras},
    {.names = "bailing_moe BailingMoeForCausalLM", .norms = 2, .feed = &bailing, .qkv_bias = "use_qkv_bias",
     .o_bias = "use_bias", .unknown = "use_bias"}, /* vLLM's models/bailing_moe.py */
    {.names = "bailing_moe_v2 BailingMoeV2ForCausalLM", .norms = 2, .feed = &kimi, .qkv_bias = "use_qkv_bias",
     .o_bias = "use_bias", .head_norm = "!use_qk_norm", .unknown = "use_bias"}, /* the same */
    {.names = "apertus ApertusForCausalLM", .norms = 2, .feed = &plain_mlp_bias, .bias = "attention_bias",
     .head_norm = "+", .extras = apertus_extras},
    {.names = "laguna LagunaForCausalLM", .norms = 2, .feed = &laguna, .qkv_bias = "qkv_bias",
     .o_bias = "attention_bias", .head_norm = "+", .extras = gate_extras, .unknown = "swa_attention_sink_enabled"},
     /* vLLM's models/laguna.py */
    {.names = "longcat_flash LongcatFlashForCausalLM LongcatCausalLM", .norms = 2, .feed = &longcat,
     .qkv_bias = "attention_bias", .extras = longcat_extras},
    {.names = "dots1 Dots1ForCausalLM", .norms = 2, .feed = &deepseek_v3, .bias = "attention_bias",
     .head_norm = "+"},
    {.names = "exaone4 exaone4_5_text Exaone4ForCausalLM", .norms = 2, .feed = &gated, .head_norm = "+"},
    {.names = "olmo2 olmo3 Olmo2ForCausalLM Olmo3ForCausalLM", .norms = 2, .feed = &gated, .bias = "attention_bias",
     .row_norm = "+"},
    {.names = "olmoe OlmoeForCausalLM", .norms = 2, .feed = &mixtral, .bias = "attention_bias", .row_norm = "+"},
    {.names = "olmo OlmoForCausalLM", .norms = 0, .feed = &gated, .bias = "attention_bias"},
    {.names = "mixtral MixtralForCausalLM", .norms = 2, .feed = &mixtral},
    {.names = "granitemoe GraniteMoeForCausalLM", .norms = 2, .feed = &granite_moe, .tied = true,
     .bias = "attention_bias"},
    {.names = "qwen2 qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text mimo Qwen2ForCausalLM MiMoForCausalLM",
     .mtp = true, .norms = 2, .feed = &gated, .qkv_bias = "+"},
    {.names = "qwen3 qwen3_vl_text Qwen3ForCausalLM", .norms = 2, .feed = &gated, .bias = "attention_bias",
     .head_norm = "+"},
    {.names = "qwen2_moe Qwen2MoeForCausalLM", .norms = 2, .feed = &qwen_shared, .qkv_bias = "+qkv_bias"},
    {.names = "qwen3_moe qwen3_vl_moe_text qwen3_omni_moe_text Qwen3MoeForCausalLM", .norms = 2, .feed = &qwen_moe,
     .bias = "attention_bias", .head_norm = "+"},
    {.names = "qwen3_next qwen3_5_moe_text qwen3_5_moe Qwen3NextForCausalLM Qwen3_5MoeForConditionalGeneration",
     .mtp = true, .norms = 2, .feed = &qwen_shared, .mixer = delta_net_add, .bias = "attention_bias", .head_norm = "+",
     .gated_q = true},
    {.names = "qwen3_5_text qwen3_5 Qwen3_5ForConditionalGeneration", .mtp = true, .norms = 2, .feed = &gated,
     .mixer = delta_net_add, .bias = "attention_bias", .head_norm = "+", .gated_q = true},
    {.names = "phi3 phi4mm Phi3ForCausalLM Phi4MMForCausalLM", .norms = 2, .feed = &gated},
    {.names = "phi PhiForCausalLM", .norms = 1, .norm_bias = "+", .feed = &plain, .bias = "+", .output_bias = "+",
     .unknown = "qk_layernorm"},
    {.names = "phimoe PhimoeForCausalLM PhiMoEForCausalLM", .norms = 2, .norm_bias = "+", .feed = &mixtral,
     .bias = "!attention_bias", .output_bias = "!lm_head_bias"},
    {.names = "gpt2 GPT2LMHeadModel", .norms = 2, .norm_bias = "+", .feed = &plain_4, .bias = "+",
     .positions = "n_positions", .tied = true, .unknown = "add_cross_attention"},
    {.names = "gpt_bigcode GPTBigCodeForCausalLM", .norms = 2, .norm_bias = "+", .feed = &plain_4, .bias = "+",
     .positions = "n_positions", .tied = true},
    {.names = "gpt_neox GPTNeoXForCausalLM", .norms = 2, .norm_bias = "+", .feed = &plain,
     .bias = "+attention_bias"},
    {.names = "gptj GPTJForCausalLM", .norms = 1, .norm_bias = "+", .feed = &plain_4, .output_bias = "+"},
    {.names = "bloom BloomForCausalLM", .norms = 2, .norm_bias = "+", .feed = &plain_4, .bias = "+", .tied = true,
     .extras = bloom_extras},
    {.names = "falcon RefinedWebModel RefinedWeb FalconForCausalLM", .norms = 1, .norm_bias = "+", .feed = &falcon,
     .bias = "bias", .tied = true, .extras = falcon_extras},
    {.names = "starcoder2 Starcoder2ForCausalLM", .norms = 2, .norm_bias = "+", .feed = &plain_use_bias,
     .bias = "+use_bias", .tied = true},
    {.names = "stablelm StableLmForCausalLM", .norms = 2, .norm_bias = "+", .feed = &gated,
     .qkv_bias = "use_qkv_bias", .unknown = "use_parallel_residual qk_layernorm"},
    {.names = "nemotron NemotronForCausalLM", .norms = 2, .norm_bias = "+", .feed = &plain_mlp_bias,
     .bias = "attention_bias"},
    {.names = "cohere CohereForCausalLM", .norms = 1, .feed = &gated, .bias = "attention_bias",
     .row_norm = "use_qk_norm", .tied = true},
    {.names = "cohere2 Cohere2ForCausalLM", .norms = 1, .feed = &gated, .bias = "attention_bias", .tied = true},
    {.names = "gemma GemmaForCausalLM", .norms = 2, .feed = &gated, .bias = "attention_bias", .tied = true},
    {.names = "gemma2 Gemma2ForCausalLM", .norms = 4, .feed = &gated, .bias = "attention_bias", .tied = true},
    {.names = "gemma3_text gemma3 Gemma3ForCausalLM Gemma3ForConditionalGeneration", .norms = 4, .feed = &gated,
     .bias = "attention_bias", .head_norm = "+", .tied = true},
    {.names = "gemma3n_text gemma3n Gemma3nForCausalLM Gemma3nForConditionalGeneration", .norms = 4, .feed = &gated,
     .head_norm = "+", .tied = true, .extras = gemma3n_extras},
    {.names = "gemma4_text gemma4 Gemma4ForCausalLM Gemma4ForConditionalGeneration", .norms = 4, .feed = &gemma4,
     .bias = "attention_bias", .head_norm = "+", .k_is_v = "attention_k_eq_v", .tied = true, .extras = gemma4_extras,
     .unknown = "num_kv_shared_layers use_double_wide_mlp"},
    {.names = "gpt_oss GptOssForCausalLM", .norms = 2, .feed = &gpt_oss, .bias = "+", .extras = gpt_oss_extras},
    {.names = "llama4_text llama4 Llama4ForCausalLM Llama4ForConditionalGeneration", .norms = 2, .feed = &llama4,
     .bias = "attention_bias"},
    {.names = "deepseek_v2 DeepseekV2ForCausalLM", .norms = 2, .feed = &deepseek_v2, .qkv_bias = "attention_bias"},
    {.names = "deepseek_v3 kimi_k2 kimi_k25 glm4_moe_lite DeepseekV3ForCausalLM", .mtp = true, .norms = 2,
     .feed = &deepseek_v3, .qkv_bias = "attention_bias"},
    {.names = "deepseek_v32 glm_moe_dsa DeepseekV32ForCausalLM GlmMoeDsaForCausalLM", .mtp = true, .norms = 2,
     .feed = &deepseek_v3, .qkv_bias = "attention_bias"},
    {.names = "glm4_moe Glm4MoeForCausalLM", .mtp = true, .norms = 2, .feed = &deepseek_v3,
     .qkv_bias = "!attention_bias", .head_norm = "!use_qk_norm"},
    {.names = "glm4v_moe_text", .norms = 2, .feed = &deepseek_v3, .qkv_bias = "!attention_bias"},
    {.names = "glm4 glm4v_text Glm4ForCausalLM", .norms = 4, .feed = &gated, .qkv_bias = "attention_bias"},
    {.names = "mimo_v2_flash MiMoV2FlashForCausalLM", .norms = 2, .feed = &mimo_v2, .qkv_bias = "attention_bias",
     .unknown = "add_full_attention_sink_bias"}, /* vLLM's models/mimo_v2_flash.py, without 39 x 64 sinks */
    {.names = "step3p5 Step3p5ForCausalLM", .norms = 2, .feed = &step3p5, .qkv_bias = "qkv_bias", .head_norm = "+",
     .extras = gate_extras}, /* vLLM's models/step3p5.py */
    {.names = "whisper WhisperForConditionalGeneration", .norms = 3, .norm_bias = "+", .feed = &whisper,
     .positions = "max_target_positions", .extras = whisper_extras, .shares_attention = true, .tied = true},
    {.names = "minimax_m2 MiniMaxM2ForCausalLM", .norms = 2, .feed = &minimax_m2, .row_norm = "!use_qk_norm"},
    {.names = "minimax minimax_text_01 MiniMaxForCausalLM MiniMaxText01ForCausalLM", .norms = 2, .feed = &mixtral,
     .mixer = lightning_add, .unknown = "shared_intermediate_size"},
    {.names = "kimi_linear KimiLinearForCausalLM", .norms = 2, .feed = &kimi, .mixer = kimi_delta_add,
     .extras = kimi_extras},
    {.names = "minimax_m3 MiniMaxM3ForCausalLM MiniMaxM3SparseForCausalLM", .norms = 2, .feed = &minimax_m3,
     .head_norm = "+", .extras = minimax_m3_extras},
    {.names = "inkling_text inkling_model inkling_mm_model InklingForCausalLM", .norms = 2, .feed = &inkling,
     .head_norm = "+", .extras = inkling_extras},
    {.names = "deepseek_v4 DeepseekV4ForCausalLM", .norms = 2, .feed = &deepseek_v4, .extras = deepseek_v4_extras,
     .shares_attention = true},
    {.names = "glm5_next Glm5NextForCausalLM", .norms = 2, .feed = &deepseek_v3, .mixer = kimi_delta_add,
     .extras = glm5_next_extras},
    {.names = "qwen4_exp_text qwen4_exp Qwen4ExpForCausalLM Qwen4ExpForConditionalGeneration", .feed = &qwen_shared,
     .mixer = delta_net_add, .head_norm = "+", .gated_q = true, .extras = qwen4_exp_extras},
    {.names = "phi4flash Phi4FlashForCausalLM", .norms = 2, .norm_bias = "+", .feed = &gated, .bias = "+",
     .mixer = phi4flash_mixer},
    {.names = "mamba falcon_mamba MambaForCausalLM FalconMambaForCausalLM", .norms = 1, .mixer = mamba1_add,
     .tied = true},
    {.names = "mamba2 Mamba2ForCausalLM", .norms = 1, .mixer = mamba2_add},
    {.names = "jamba JambaForCausalLM", .norms = 2, .feed = &jamba, .mixer = jamba_add},
    {.names = "bamba BambaForCausalLM", .norms = 2, .feed = &gated, .mixer = mamba2_add, .bias = "attention_bias"},
    {.names = "granitemoehybrid GraniteMoeHybridForCausalLM", .norms = 2, .feed = &granite_hybrid,
     .mixer = mamba2_add, .bias = "attention_bias", .tied = true},
    {.names = "falcon_h1 FalconH1ForCausalLM", .norms = 2, .feed = &gated, .mixer = mamba2_add,
     .bias = "attention_bias"},
    {.names = "nemotron_h NemotronHForCausalLM", .norms = 1, .feed = &nemotron_h, .mixer = mamba2_add,
     .bias = "attention_bias"},
    {.names = "zamba2 Zamba2ForCausalLM", .norms = 1, .mixer = mamba2_add, .extras = zamba2_extras,
     .shares_attention = true, .tied = true},
    {.names = "nemotron-nas DeciLMForCausalLM", .norms = 0, .bias = "attention_bias", .extras = deci_extras},
     /* modeling_decilm.py of nvidia/Llama-3_3-Nemotron-Super-49B-v1 */
    {.names = "rwkv RwkvForCausalLM", .unknown = "head_size", .mixer = rwkv4_add},
    {.names = "rwkv5 Rwkv5ForCausalLM", .mixer = rwkv5_add},
};
/* clang-format on */

static const kvb_weights_family *named(const char *name)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (kvb_names_have(families[i].names, name))
            return &families[i];
    return NULL;
}

/* Finds a family by the text config's model_type, else by the model's, else by its architecture. */
const kvb_weights_family *kvb_weights_family_find(const kvb_weights_sum *sum)
{
    const char *own = json_string_value(json_object_get(sum->config, "model_type"));
    const kvb_weights_family *family = named(own ? own : "");
    if (!family && sum->model->type)
        family = named(sum->model->type);
    if (!family && sum->model->architecture)
        family = named(sum->model->architecture);
    return family;
}

/* ---- all tensors of a model --------------------------------------------------------------------------------------- */

void kvb_sum_run(kvb_weights_sum *sum)
{
    const kvb_weights_family *family = kvb_weights_family_find(sum);
    if (!family) {
        kvb_sum_stop(sum, -ENOENT, "the tensors of architecture \"%.60s\" are not known",
                     sum->model->architecture ? sum->model->architecture : "");
        return;
    }
    for (const char *rest = family->unknown ? family->unknown : ""; *rest;) {
        char name[KVB_NAME_BYTES];
        rest = kvb_names_next(rest, name);
        const json_t *value = kvb_sum_find(sum, name);
        if (value && !json_is_false(value) && !(json_is_integer(value) && json_integer_value(value) == 0))
            kvb_sum_stop(sum, -ENOENT, "%s brings tensors that are not known", name);
    }
    const uint64_t h = sum->hidden = sum_count(sum, "hidden_size n_embd d_model");
    sum->layers = sum->model->n_layers;
    /* mamba_ssm's own configs have d_model; it pads the vocabulary to a multiple of 8
     * (mamba_ssm/models/config_mamba.py) */
    const uint64_t pad =
        sum_count_or(sum, "pad_vocab_size_multiple", kvb_sum_find(sum, "hidden_size n_embd encoder_layers") ? 1 : 8);
    const uint64_t vocab = sum_count(sum, "vocab_size padded_vocab_size"),
                   rows = pad ? (vocab + pad - 1) / pad * pad : vocab;
    const uint64_t norm = sum_flag(sum, family->norm_bias) ? 2 * h : h;
    matrix_add(sum, KVB_WEIGHTS_EMBEDDING, 1, rows, h);
    if (!sum_flag(sum, family->tied ? "+tie_word_embeddings" : "tie_word_embeddings"))
        linear_add(sum, KVB_WEIGHTS_OUTPUT, 1, h, sum_count_or(sum, "unpadded_vocab_size", rows),
                   sum_flag(sum, family->output_bias));
    if (family->positions)
        matrix_add(sum, KVB_WEIGHTS_OTHER, 1, sum_count(sum, family->positions), h);
    if (family->norms)
        vector_add(sum, KVB_WEIGHTS_NORMS, sum->layers * family->norms + 1, norm); /* one more before the output */
    if (!family->shares_attention)
        attention_add(sum, family);
    const kvb_sized_group *mixer = state_group(sum);
    if (family->mixer && mixer)
        family->mixer(sum, mixer);
    if (family->feed)
        feed_add(sum, family->feed);
    if (family->extras)
        family->extras(sum);
    if (sum->mtp && family->mtp)
        mtp_add(sum, family);
}
