/* SPDX-License-Identifier: Apache-2.0 */
/* Layout, names and seeded values of the live model's weights. */
#include "workloads/live/weights.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/live/rng.h"

const kvb_model_config kvb_model_config_default = {
    .layers = 2,
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 16,
    .hidden = 64,
    .ffn = 128,
    .vocab = 256,
    .rope_theta = 10000.0,
    .norm_eps = 1e-5f,
    .tied = false,
    .qk_norm = true,
};

/* What a side of a tensor measures. */
typedef enum side {
    SIDE_ONE,
    SIDE_HIDDEN,
    SIDE_Q,
    SIDE_KV,
    SIDE_HEAD,
    SIDE_FFN,
    SIDE_VOCAB,
    SIDE_O,      /* V rows of all query heads */
    SIDE_LATENT, /* the latent row */
    SIDE_DOWN,   /* with K's part that has positions */
    SIDE_UP,     /* K's other part, and V, of all heads */
    SIDE_HEADS,
    SIDE_IN, /* of layers that scan: what the first projection makes, … */
    SIDE_CHANNELS,
    SIDE_TAPS,
    SIDE_DECAYS, /* elements of a */
    SIDE_DELTAS,
    SIDE_SELECT,
    SIDE_RANK,
    SIDE_INNER, /* v of all heads */
} side;

/* Which models have a tensor. */
typedef enum whose { ALL, NORMED, UNTIED, PLAIN, LATENT, SINKS, ATTENDS, SCANS, DECAYS, BIASES, SELECTS } whose;

/* One kind of tensor. `spread` is the standard deviation of its seeded values: of each value for the embedding and
 * biases, of an output element per unit of input for a matrix, of each sink logit, and the gain itself for a norm. Of
 * DECAYS a is spread * exp(N / 2), taps are N(0, 1/width), others N(spread, 1). Strong V and O and sharp attention
 * (gains on q and K) let the context, not only the last token, choose the next one; without that, greedy decoding of
 * random weights falls into short cycles. */
typedef struct tensor_kind {
    const char *name;
    size_t place; /* of the pointer in kvb_layer_weights, or in kvb_weights */
    side rows, columns;
    float spread;
    whose models;
} tensor_kind;

static const tensor_kind in_layer[] = {
    {"input_layernorm.weight", offsetof(kvb_layer_weights, attn_norm), SIDE_HIDDEN, SIDE_ONE, 1.0f, ALL},
    {"self_attn.q_proj.weight", offsetof(kvb_layer_weights, q), SIDE_Q, SIDE_HIDDEN, 1.0f, ATTENDS},
    {"self_attn.k_proj.weight", offsetof(kvb_layer_weights, k), SIDE_KV, SIDE_HIDDEN, 1.0f, PLAIN},
    {"self_attn.v_proj.weight", offsetof(kvb_layer_weights, v), SIDE_KV, SIDE_HIDDEN, 1.0f, PLAIN},
    {"self_attn.q_norm.weight", offsetof(kvb_layer_weights, q_norm), SIDE_HEAD, SIDE_ONE, 1.5f, NORMED},
    {"self_attn.k_norm.weight", offsetof(kvb_layer_weights, k_norm), SIDE_HEAD, SIDE_ONE, 1.5f, NORMED},
    {"self_attn.o_proj.weight", offsetof(kvb_layer_weights, o), SIDE_HIDDEN, SIDE_O, 2.0f, ATTENDS},
    {"post_attention_layernorm.weight", offsetof(kvb_layer_weights, mlp_norm), SIDE_HIDDEN, SIDE_ONE, 1.0f, ALL},
    {"mlp.gate_proj.weight", offsetof(kvb_layer_weights, gate), SIDE_FFN, SIDE_HIDDEN, 1.0f, ALL},
    {"mlp.up_proj.weight", offsetof(kvb_layer_weights, up), SIDE_FFN, SIDE_HIDDEN, 1.0f, ALL},
    {"mlp.down_proj.weight", offsetof(kvb_layer_weights, down), SIDE_HIDDEN, SIDE_FFN, 2.0f, ALL},
};
static const tensor_kind outside[] = {
    {"model.embed_tokens.weight", offsetof(kvb_weights, embed), SIDE_VOCAB, SIDE_HIDDEN, 1.0f, ALL},
    {"model.norm.weight", offsetof(kvb_weights, norm), SIDE_HIDDEN, SIDE_ONE, 1.0f, ALL},
    {"lm_head.weight", offsetof(kvb_weights, lm_head), SIDE_VOCAB, SIDE_HIDDEN, 1.0f, UNTIED},
};
/* In layers too, but numbered after all others: a tensor's number is its seed, and what was recorded stays as it is. */
static const tensor_kind added[] = {
    {"self_attn.kv_a_proj_with_mqa.weight", offsetof(kvb_layer_weights, kv_a), SIDE_DOWN, SIDE_HIDDEN, 2.0f, LATENT},
    {"self_attn.kv_a_layernorm.weight", offsetof(kvb_layer_weights, kv_a_norm), SIDE_LATENT, SIDE_ONE, 1.5f, LATENT},
    {"self_attn.kv_b_proj.weight", offsetof(kvb_layer_weights, kv_b), SIDE_UP, SIDE_LATENT, 1.5f, LATENT},
    {"self_attn.sinks", offsetof(kvb_layer_weights, sinks), SIDE_HEADS, SIDE_ONE, 2.0f, SINKS},
};
/* In layers that scan, numbered after these. */
static const tensor_kind scanning[] = {
    {"mixer.in_proj.weight", offsetof(kvb_layer_weights, in), SIDE_IN, SIDE_HIDDEN, 1.0f, SCANS},
    {"mixer.conv1d.weight", offsetof(kvb_layer_weights, taps), SIDE_TAPS, SIDE_CHANNELS, 1.0f, DECAYS},
    {"mixer.conv1d.bias", offsetof(kvb_layer_weights, bias), SIDE_CHANNELS, SIDE_ONE, 0.1f, BIASES},
    {"mixer.A", offsetof(kvb_layer_weights, a), SIDE_DECAYS, SIDE_ONE, -2.0f, DECAYS},
    {"mixer.dt_bias", offsetof(kvb_layer_weights, dt_bias), SIDE_DELTAS, SIDE_ONE, -2.0f, DECAYS},
    {"mixer.x_proj.weight", offsetof(kvb_layer_weights, select), SIDE_SELECT, SIDE_INNER, 2.0f, SELECTS},
    {"mixer.dt_proj.weight", offsetof(kvb_layer_weights, dt), SIDE_INNER, SIDE_RANK, 1.0f, SELECTS},
    {"mixer.D", offsetof(kvb_layer_weights, skip), SIDE_DELTAS, SIDE_ONE, 1.0f, SCANS},
    {"mixer.norm.weight", offsetof(kvb_layer_weights, scan_norm), SIDE_INNER, SIDE_ONE, 1.0f, SCANS},
    {"mixer.out_proj.weight", offsetof(kvb_layer_weights, out), SIDE_HIDDEN, SIDE_INNER, 2.0f, SCANS},
};
#define IN_LAYER (sizeof in_layer / sizeof *in_layer)
#define OUTSIDE  (sizeof outside / sizeof *outside)
#define ADDED    (sizeof added / sizeof *added)
#define SCANNING (sizeof scanning / sizeof *scanning)

static uint64_t side_length(const kvb_model_config *c, side s)
{
    const kvb_group_scan *scan = &c->scan;
    const bool each = scan->kind == KVB_SCAN_MAMBA1;
    const uint64_t length[] = {
        [SIDE_ONE] = 1,
        [SIDE_HIDDEN] = c->hidden,
        [SIDE_Q] = (uint64_t)c->heads * c->head_dim,
        [SIDE_KV] = (uint64_t)c->kv_heads * c->head_dim,
        [SIDE_HEAD] = c->head_dim,
        [SIDE_FFN] = c->ffn,
        [SIDE_VOCAB] = c->vocab,
        [SIDE_O] = (uint64_t)c->heads * (c->kv_lora_rank ? c->v_dim : c->head_dim),
        [SIDE_LATENT] = c->kv_lora_rank,
        [SIDE_DOWN] = (uint64_t)c->kv_lora_rank + c->rope_dim,
        [SIDE_UP] = (uint64_t)c->heads * (c->head_dim - c->rope_dim + c->v_dim),
        [SIDE_HEADS] = c->heads,
        [SIDE_IN] = kvb_scan_projected(scan),
        [SIDE_CHANNELS] = scan->conv_channels,
        [SIDE_TAPS] = scan->conv_width,
        [SIDE_DECAYS] = each ? (uint64_t)scan->d_k * scan->d_v : scan->heads,
        [SIDE_DELTAS] = each ? scan->d_v : scan->heads,
        [SIDE_SELECT] = (uint64_t)c->dt_rank + 2 * scan->d_k,
        [SIDE_RANK] = c->dt_rank,
        [SIDE_INNER] = (uint64_t)scan->heads * scan->d_v,
    };
    return length[s];
}

/* Tensors that this layer of the model (SIZE_MAX: outside of layers) does not have. */
static bool is_absent(const kvb_model_config *c, const tensor_kind *kind, size_t layer)
{
    const bool scans = layer != SIZE_MAX && kvb_model_config_scans(c, (uint32_t)layer);
    const bool has[] = {[ALL] = true,
                        [NORMED] = c->qk_norm && !scans,
                        [UNTIED] = !c->tied,
                        [PLAIN] = !c->kv_lora_rank && !scans,
                        [LATENT] = c->kv_lora_rank && !scans,
                        [SINKS] = c->sink_logits && !scans,
                        [ATTENDS] = !scans,
                        [SCANS] = scans,
                        [DECAYS] = scans,
                        [BIASES] = scans,
                        [SELECTS] = scans && c->scan.kind == KVB_SCAN_MAMBA1};
    return !has[kind->models];
}

/* Kind of tensor i of the model (embedding, layers, norm, lm head, what was added to layers) and its layer, or NULL
 * past the last. Absent ones keep their number. */
static const tensor_kind *kind_at(const kvb_model_config *c, size_t i, size_t *layer)
{
    size_t in_layers = IN_LAYER * c->layers;
    *layer = SIZE_MAX;
    if (i == 0)
        return &outside[0];
    if (i - 1 < in_layers) {
        *layer = (i - 1) / IN_LAYER;
        return &in_layer[(i - 1) % IN_LAYER];
    }
    i -= in_layers;
    if (i < OUTSIDE)
        return &outside[i];
    i -= OUTSIDE;
    *layer = i / ADDED;
    if (*layer < c->layers)
        return &added[i % ADDED];
    i -= ADDED * c->layers;
    *layer = i / SCANNING;
    return *layer < c->layers ? &scanning[i % SCANNING] : NULL;
}

static float **pointer_of(kvb_weights *w, const tensor_kind *kind, size_t layer)
{
    char *base = layer == SIZE_MAX ? (char *)w : (char *)&w->layers[layer];
    return (float **)(void *)(base + kind->place);
}

kvb_group kvb_model_config_group(const kvb_model_config *c)
{
    bool absorbed = c->kv_lora_rank && !c->expanded;
    return (kvb_group){.heads = c->heads,
                       .kv_heads = absorbed ? 1 : c->kv_heads,
                       .k_dim = absorbed ? c->kv_lora_rank + c->rope_dim : c->head_dim,
                       .v_dim = absorbed          ? c->kv_lora_rank
                                : c->kv_lora_rank ? c->v_dim
                                                  : c->head_dim,
                       .latent = absorbed,
                       .scale = 1.0 / sqrt(c->head_dim)};
}

kvb_rope kvb_model_config_rope(const kvb_model_config *c, uint32_t layer)
{
    bool none = c->no_rope_every && (layer + 1) % c->no_rope_every == 0;
    uint32_t dims = none ? 0 : c->kv_lora_rank ? c->rope_dim : c->head_dim;
    uint32_t rest = c->expanded ? c->head_dim - c->rope_dim : c->kv_lora_rank;
    return (kvb_rope){.known = true, .base = c->rope_theta, .dims = dims, .first = dims && c->kv_lora_rank ? rest : 0};
}

int kvb_model_config_check(const kvb_model_config *c, char *why, size_t why_bytes)
{
    const struct {
        const char *key;
        uint32_t value, max;
    } ranges[] = {
        {"num_hidden_layers", c->layers, 1024},     {"num_attention_heads", c->heads, 4096},
        {"num_key_value_heads", c->kv_heads, 4096}, {"head_dim", c->head_dim, 4096},
        {"hidden_size", c->hidden, 65536},          {"intermediate_size", c->ffn, 1u << 20},
        {"vocab_size", c->vocab, 1u << 22},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].value < 1 || ranges[i].value > ranges[i].max) {
            snprintf(why, why_bytes, "%s must be 1 .. %u, is %u", ranges[i].key, ranges[i].max, ranges[i].value);
            return -EINVAL;
        }
    if (c->heads % c->kv_heads) {
        snprintf(why, why_bytes, "num_attention_heads %u must be a multiple of num_key_value_heads %u", c->heads,
                 c->kv_heads);
        return -EINVAL;
    }
    if (c->head_dim % 2) {
        snprintf(why, why_bytes, "head_dim must be even for RoPE, is %u", c->head_dim);
        return -EINVAL;
    }
    if (c->kv_lora_rank && (c->kv_heads != c->heads || c->qk_norm || c->no_rope_every || !c->v_dim || !c->rope_dim ||
                            c->rope_dim % 2 || c->rope_dim >= c->head_dim)) {
        snprintf(why, why_bytes,
                 "latent attention has as many K heads as heads, v_dim, positions in every layer, no QK-norm; its "
                 "rope_dim is even and below head_dim");
        return -EINVAL;
    }
    const kvb_group_scan *scan = &c->scan;
    if (scan->heads &&
        (scan->kind == KVB_SCAN_LIGHTNING || !scan->conv_width || scan->conv_channels != kvb_scan_channels(scan) ||
         (scan->kind == KVB_SCAN_MAMBA1) != (c->dt_rank > 0))) {
        snprintf(why, why_bytes,
                 "layers that scan have a convolution over q, k and v (mamba1: over v, with a dt_rank)");
        return -EINVAL;
    }
    if (c->sink_logits && c->layers > KVB_MODEL_GROUPS) {
        snprintf(why, why_bytes, "layers with sink logits are a group each: at most %u", KVB_MODEL_GROUPS);
        return -EINVAL;
    }
    if (!(c->rope_theta > 0) || !isfinite(c->rope_theta)) {
        snprintf(why, why_bytes, "rope_theta must be above 0");
        return -EINVAL;
    }
    if (!(c->norm_eps > 0) || !isfinite(c->norm_eps)) {
        snprintf(why, why_bytes, "rms_norm_eps must be above 0");
        return -EINVAL;
    }
    return 0;
}

int kvb_weights_open(const kvb_model_config *config, kvb_weights **weights, char *why, size_t why_bytes)
{
    int err = kvb_model_config_check(config, why, why_bytes);
    if (err)
        return err;
    err = -ENOMEM;
    snprintf(why, why_bytes, "no memory for the model's weights");
    kvb_weights *w = calloc(1, sizeof *w);
    if (!w)
        goto fail;
    w->config = *config;
    w->layers = calloc(config->layers, sizeof *w->layers);
    if (!w->layers)
        goto fail;

    size_t layer;
    const tensor_kind *kind;
    for (size_t i = 0; (kind = kind_at(config, i, &layer)); i++)
        if (!is_absent(config, kind, layer))
            w->block_floats += side_length(config, kind->rows) * side_length(config, kind->columns);
    w->block = calloc(w->block_floats, sizeof *w->block);
    if (!w->block)
        goto fail;

    float *next = w->block;
    for (size_t i = 0; (kind = kind_at(config, i, &layer)); i++)
        if (!is_absent(config, kind, layer)) {
            *pointer_of(w, kind, layer) = next;
            next += side_length(config, kind->rows) * side_length(config, kind->columns);
        }
    if (config->tied)
        w->lm_head = w->embed;
    *weights = w;
    return 0;
fail:
    kvb_weights_close(w);
    return err;
}

void kvb_weights_close(kvb_weights *weights)
{
    if (!weights)
        return;
    free(weights->block);
    free(weights->layers);
    free(weights);
}

/* Tensor of a kind as a weight. */
static void weight_of(const kvb_weights *w, const tensor_kind *kind, size_t layer, kvb_weight *weight)
{
    if (layer == SIZE_MAX)
        snprintf(weight->name, sizeof weight->name, "%s", kind->name);
    else
        snprintf(weight->name, sizeof weight->name, "model.layers.%zu.%s", layer, kind->name);
    weight->shape[0] = side_length(&w->config, kind->rows);
    weight->shape[1] = side_length(&w->config, kind->columns);
    weight->n_dims = kind->columns == SIDE_ONE ? 1 : 2;
    weight->n = weight->shape[0] * weight->shape[1];
    weight->data = *pointer_of((kvb_weights *)(uintptr_t)w, kind, layer);
}

bool kvb_weights_at(const kvb_weights *weights, size_t i, kvb_weight *weight)
{
    size_t layer, present = 0;
    const tensor_kind *kind;
    for (size_t at = 0; (kind = kind_at(&weights->config, at, &layer)); at++) {
        if (is_absent(&weights->config, kind, layer))
            continue;
        if (present++ == i) {
            weight_of(weights, kind, layer, weight);
            return true;
        }
    }
    return false;
}

void kvb_weights_seed(kvb_weights *weights, uint64_t seed)
{
    size_t layer;
    const tensor_kind *kind;
    for (size_t i = 0; (kind = kind_at(&weights->config, i, &layer)); i++) {
        if (is_absent(&weights->config, kind, layer))
            continue;
        kvb_weight weight;
        weight_of(weights, kind, layer, &weight);
        bool is_sinks = kind->models == SINKS || kind->models == BIASES;
        bool is_norm = weight.n_dims == 1 && !is_sinks && kind->models != DECAYS;
        bool is_taps = kind->rows == SIDE_TAPS, is_a = kind->rows == SIDE_DECAYS;
        float sigma =
            kind == &outside[0] || is_sinks ? kind->spread : kind->spread / sqrtf((float)weight.shape[is_taps ? 0 : 1]);
        for (size_t e = 0; e < weight.n; e++) {
            float normal = kvb_live_normal(seed, i, e);
            weight.data[e] = is_norm                              ? kind->spread * (1.0f + 0.1f * normal)
                             : is_a                               ? kind->spread * expf(0.5f * normal)
                             : kind->models == DECAYS && !is_taps ? kind->spread + normal
                                                                  : sigma * normal;
        }
    }
}

int kvb_weights_blur(const kvb_weights *weights, uint64_t seed, float amount, kvb_weights **draft)
{
    char why[160];
    int err = kvb_weights_open(&weights->config, draft, why, sizeof why);
    if (err)
        return err;
    memcpy((*draft)->block, weights->block, weights->block_floats * sizeof *weights->block);
    kvb_weight weight;
    for (size_t i = 0; kvb_weights_at(*draft, i, &weight); i++) {
        if (weight.n_dims == 1)
            continue;
        double squares = 0;
        for (size_t e = 0; e < weight.n; e++)
            squares += (double)weight.data[e] * weight.data[e];
        float sigma = amount * (float)sqrt(squares / (double)weight.n);
        for (size_t e = 0; e < weight.n; e++)
            weight.data[e] += sigma * kvb_live_normal(seed, i, e);
    }
    return 0;
}
