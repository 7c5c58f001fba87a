/* SPDX-License-Identifier: Apache-2.0 */
/* Layout, names and seeded values of the live model's weights. */
#include "workloads/live/weights.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/rng.h"
#include "workloads/files.h"
#include "workloads/safetensors.h"

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

/* The sides of tensors. */
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
    SIDE_DOWN,   /* the latent row and K's part with positions */
    SIDE_UP,     /* K's other part, and V, of all heads */
    SIDE_HEADS,
    SIDE_IN, /* in layers that scan, from here on: outputs of the first projection */
    SIDE_CHANNELS,
    SIDE_TAPS,
    SIDE_DECAYS, /* elements of a */
    SIDE_DELTAS,
    SIDE_SELECT,
    SIDE_RANK,
    SIDE_INNER, /* v of all heads */
} side;

/* Which models have a tensor. */
typedef enum family { ALL, NORMED, UNTIED, PLAIN, LATENT, SINKS, ATTENDS, SCANS, DECAYS, BIASES, SELECTS } family;

/* One kind of tensor. `spread` is the standard deviation of its seeded values: of each value in the embedding, biases
 * and sink logits, of an output element per unit of input for a matrix; for a norm it is the gain. Of DECAYS, a is
 * spread * exp(N / 2), taps are N(0, 1/width), others N(spread, 1). Strong V and O and sharp attention (gains on q and
 * K) make the next token depend on the context, not only on the last token. Without that, greedy decoding of random
 * weights falls into short cycles. */
typedef struct kvb_tensor_kind {
    const char *name;
    size_t place; /* of the pointer in kvb_layer_weights, or in kvb_weights */
    side rows, columns;
    float spread;
    family models;
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
/* Also in layers, but numbered after all others: a tensor's number is its seed, so recorded traces stay valid. */
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

/* Does this layer of the model (SIZE_MAX: outside of layers) lack tensors of the kind? */
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

/* The kind of tensor i of all models (embedding, layers, norm, lm head, `added`, `scanning`), and its layer. Absent tensors
 * keep their number. */
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
    return &scanning[i % SCANNING];
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

/* Numbers of a model, by their keys in config.json. */
static const struct {
    const char *key;
    size_t place; /* in kvb_model_config */
    uint32_t max;
    bool required;
} counts[] = {
    {"num_hidden_layers", offsetof(kvb_model_config, layers), 1024, true},
    {"num_attention_heads", offsetof(kvb_model_config, heads), 4096, true},
    {"num_key_value_heads", offsetof(kvb_model_config, kv_heads), 4096, false},
    {"head_dim", offsetof(kvb_model_config, head_dim), 4096, false},
    {"hidden_size", offsetof(kvb_model_config, hidden), 65536, true},
    {"intermediate_size", offsetof(kvb_model_config, ffn), 1u << 20, true},
    {"vocab_size", offsetof(kvb_model_config, vocab), 1u << 22, true},
};

int kvb_model_config_check(const kvb_model_config *c, char *why, size_t why_bytes)
{
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const uint32_t count = *(const uint32_t *)(const void *)((const char *)c + counts[i].place);
        if (count < 1 || count > counts[i].max)
            return kvb_why_set(-EINVAL, why, why_bytes, "%s must be 1 .. %u, is %u", counts[i].key, counts[i].max,
                               count);
    }
    if (c->heads % c->kv_heads)
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "num_attention_heads %u must be a multiple of num_key_value_heads %u", c->heads,
                           c->kv_heads);
    if (c->head_dim % 2)
        return kvb_why_set(-EINVAL, why, why_bytes, "head_dim must be even for RoPE, is %u", c->head_dim);
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
         (scan->kind == KVB_SCAN_MAMBA1) != (c->dt_rank > 0)))
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "layers that scan have a convolution over q, k and v (mamba1: over v, with a dt_rank)");
    if (c->sink_logits && c->layers > KVB_MODEL_GROUPS)
        return kvb_why_set(-EINVAL, why, why_bytes, "layers with sink logits are a group each: at most %u",
                           KVB_MODEL_GROUPS);
    if (!(c->rope_theta > 0) || !isfinite(c->rope_theta))
        return kvb_why_set(-EINVAL, why, why_bytes, "rope_theta must be above 0");
    if (!(c->norm_eps > 0) || !isfinite(c->norm_eps))
        return kvb_why_set(-EINVAL, why, why_bytes, "rms_norm_eps must be above 0");
    return 0;
}

/* Describes tensor number i of all models, without its data. False: this model lacks it. */
static bool tensor_take(const kvb_model_config *c, size_t i, kvb_weight *weight)
{
    const tensor_kind *kind = kind_at(c, i, &weight->layer);
    if (is_absent(c, kind, weight->layer))
        return false;
    if (weight->layer == SIZE_MAX)
        snprintf(weight->name, sizeof weight->name, "%s", kind->name);
    else
        snprintf(weight->name, sizeof weight->name, "model.layers.%zu.%s", weight->layer, kind->name);
    weight->shape[0] = side_length(c, kind->rows);
    weight->shape[1] = side_length(c, kind->columns);
    weight->n_dims = kind->columns == SIDE_ONE ? 1 : 2;
    weight->n = weight->shape[0] * weight->shape[1];
    weight->number = i;
    weight->kind = kind;
    return true;
}

int kvb_weights_open(const kvb_model_config *config, kvb_weights **weights, char *why, size_t why_bytes)
{
    int err = kvb_model_config_check(config, why, why_bytes);
    if (err)
        return err;
    const size_t all = OUTSIDE + (IN_LAYER + ADDED + SCANNING) * config->layers;
    kvb_weights *w = calloc(1, sizeof *w);
    if (w) {
        w->config = *config;
        w->layers = calloc(config->layers, sizeof *w->layers);
        w->tensors = calloc(all, sizeof *w->tensors);
    }
    const bool fits = w && w->layers && w->tensors;
    for (size_t i = 0; i < all && fits; i++)
        if (tensor_take(config, i, &w->tensors[w->n_tensors]))
            w->block_floats += w->tensors[w->n_tensors++].n;
    float *next = fits ? w->block = calloc(w->block_floats, sizeof *w->block) : NULL;
    if (!next) {
        kvb_weights_close(w);
        return kvb_why_set(-ENOMEM, why, why_bytes, "no memory for the model's weights");
    }
    for (kvb_weight *t = w->tensors; t < w->tensors + w->n_tensors; next += t++->n)
        *pointer_of(w, t->kind, t->layer) = t->data = next;
    if (config->tied)
        w->lm_head = w->embed;
    *weights = w;
    return 0;
}

void kvb_weights_close(kvb_weights *weights)
{
    if (!weights)
        return;
    free(weights->tensors);
    free(weights->block);
    free(weights->layers);
    free(weights);
}

void kvb_weights_seed(kvb_weights *weights, uint64_t seed)
{
    for (const kvb_weight *w = weights->tensors; w < weights->tensors + weights->n_tensors; w++) {
        const tensor_kind *kind = w->kind;
        bool is_sinks = kind->models == SINKS || kind->models == BIASES;
        bool is_norm = w->n_dims == 1 && !is_sinks && kind->models != DECAYS;
        bool is_taps = kind->rows == SIDE_TAPS, is_a = kind->rows == SIDE_DECAYS;
        float sigma =
            kind == &outside[0] || is_sinks ? kind->spread : kind->spread / sqrtf((float)w->shape[is_taps ? 0 : 1]);
        for (size_t e = 0; e < w->n; e++) {
            float normal = kvb_live_normal(seed, w->number, e);
            w->data[e] = is_norm                              ? kind->spread * (1.0f + 0.1f * normal)
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
    for (size_t i = 0; i < (*draft)->n_tensors; i++) {
        const kvb_weight *w = &(*draft)->tensors[i];
        if (w->n_dims == 1)
            continue;
        double squares = 0;
        for (size_t e = 0; e < w->n; e++)
            squares += (double)w->data[e] * w->data[e];
        float sigma = amount * (float)sqrt(squares / (double)w->n);
        for (size_t e = 0; e < w->n; e++)
            w->data[e] += sigma * kvb_live_normal(seed, i, e);
    }
    return 0;
}

/* ---- config.json of a checkpoint ------------------------------------------------------------------------------------ */

/* Keys that change the arithmetic: refused unless absent, null or false. */
static const char *const unsupported[] = {
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
    "sliding_window",
    "attention_bias",
    "mlp_bias",
    "qkv_bias",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "attention_multiplier",
    "embedding_multiplier",
    "residual_multiplier",
    "logits_scaling",
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "kv_lora_rank",
    "q_lora_rank",
    "quantization_config",
    "is_encoder_decoder",
    "no_rope_layers",
};

/* Keys that must have one of these values if they are given. */
static const struct {
    const char *key;
    const char *values[5];
} words[] = {
    {"model_type", {"llama", "mistral", "qwen3", NULL}},
    {"hidden_act", {"silu", "swish", NULL}},
};

static int read_counts(const json_t *root, const char *path, kvb_model_config *config, char *why, size_t why_bytes)
{
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const json_t *value = json_object_get(root, counts[i].key);
        bool absent = !value || json_is_null(value);
        if (absent && !counts[i].required)
            continue;
        if (absent)
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: key \"%s\" is missing", path, counts[i].key);
        json_int_t count = json_integer_value(value);
        if (!json_is_integer(value) || count < 1 || count > UINT32_MAX)
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: \"%s\" must be a whole number above 0", path,
                               counts[i].key);
        *(uint32_t *)(void *)((char *)config + counts[i].place) = (uint32_t)count;
    }
    return 0;
}

static int refuse_unsupported(const json_t *root, const char *path, char *why, size_t why_bytes)
{
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        const json_t *value = json_object_get(root, unsupported[i]);
        if (value && !json_is_null(value) && !json_is_false(value))
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: \"%s\" is set: the live model does not do that", path,
                               unsupported[i]);
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const json_t *value = json_object_get(root, words[i].key);
        if (!value || json_is_null(value))
            continue;
        const char *word = json_string_value(value);
        const char *const *known = words[i].values;
        while (*known && !(word && !strcmp(*known, word)))
            known++;
        if (!*known)
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: \"%s\" is \"%s\": the live model knows %s, %s, ...", path,
                               words[i].key, word ? word : "no string", words[i].values[0], words[i].values[1]);
    }
    return 0;
}

static int read_number(const json_t *root, const char *path, const char *key, double *number, char *why,
                       size_t why_bytes)
{
    const json_t *value = json_object_get(root, key);
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_number(value))
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: \"%s\" must be a number", path, key);
    *number = json_number_value(value);
    return 0;
}

static int read_config(const json_t *root, const char *path, kvb_model_config *config, char *why, size_t why_bytes)
{
    if (!json_is_object(root))
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: a JSON object was expected", path);
    double eps = 1e-6;
    *config = (kvb_model_config){.rope_theta = 10000.0};
    int err = read_counts(root, path, config, why, why_bytes);
    if (!err)
        err = refuse_unsupported(root, path, why, why_bytes);
    if (!err)
        err = read_number(root, path, "rope_theta", &config->rope_theta, why, why_bytes);
    if (!err)
        err = read_number(root, path, "rms_norm_eps", &eps, why, why_bytes);
    if (err)
        return err;
    const json_t *tied = json_object_get(root, "tie_word_embeddings");
    if (tied && !json_is_null(tied) && !json_is_boolean(tied))
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: \"tie_word_embeddings\" must be true or false", path);
    config->tied = json_is_true(tied);
    config->norm_eps = (float)eps;
    if (!config->kv_heads)
        config->kv_heads = config->heads;
    if (!config->head_dim) {
        if (config->hidden % config->heads)
            return kvb_why_set(-EINVAL, why, why_bytes,
                               "%s: without \"head_dim\", hidden_size must be a multiple of the heads", path);
        config->head_dim = config->hidden / config->heads;
    }
    char reason[160];
    if (kvb_model_config_check(config, reason, sizeof reason))
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: %s", path, reason);
    return 0;
}

int kvb_model_config_load(const char *path, kvb_model_config *config, char *why, size_t why_bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        int err = -errno;
        return kvb_why_set(err, why, why_bytes, "%s: %s", path, strerror(-err));
    }
    json_error_t error;
    json_t *root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    if (!root)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s:%d: column %d: %s", path, error.line, error.column, error.text);
    int err = read_config(root, path, config, why, why_bytes);
    json_decref(root);
    return err;
}

int kvb_model_config_save(const char *path, const kvb_model_config *config, char *why, size_t why_bytes)
{
    kvb_output_file file;
    json_t *root = json_object();
    int failed = json_object_set_new(root, "model_type", json_string(config->qk_norm ? "qwen3" : "llama"));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        uint32_t count = *(const uint32_t *)(const void *)((const char *)config + counts[i].place);
        failed |= json_object_set_new(root, counts[i].key, json_integer(count));
    }
    failed |= json_object_set_new(root, "rope_theta", json_real(config->rope_theta));
    failed |= json_object_set_new(root, "rms_norm_eps", json_real((double)config->norm_eps));
    failed |= json_object_set_new(root, "tie_word_embeddings", json_boolean(config->tied));
    char *text = failed ? NULL : json_dumps(root, JSON_INDENT(2));
    int err = text ? kvb_output_file_open(path, false, &file, why, why_bytes)
                   : kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", path);
    if (!err) {
        fprintf(file.stream, "%s\n", text); /* a failure is found by close */
        err = kvb_output_file_close(&file, true, why, why_bytes);
    }
    free(text);
    json_decref(root);
    return err;
}

/* ---- weights from and to safetensors -------------------------------------------------------------------------------- */

/* config.json in the directory of path; NULL without memory. */
static char *config_beside(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *config;
    return asprintf(&config, "%.*sconfig.json", slash ? (int)(slash - path) + 1 : 0, path) < 0 ? NULL : config;
}

/* Old checkpoints carry a table that follows from rope_theta. */
static bool is_redundant(const char *name)
{
    static const char suffix[] = ".rotary_emb.inv_freq";
    size_t n = strlen(name);
    return n >= sizeof suffix - 1 && !strcmp(name + n - (sizeof suffix - 1), suffix);
}

/* Refuses a tensor that the model does not know, since its arithmetic would be left out. */
static int refuse_unknown(const kvb_safetensors *file, const kvb_weights *weights, const char *path, char *why,
                          size_t why_bytes)
{
    for (size_t i = 0; i < file->n; i++) {
        const char *name = file->tensors[i].name;
        /* some writers also store a tied lm head */
        bool found = is_redundant(name) || (weights->config.tied && !strcmp(name, "lm_head.weight"));
        for (size_t k = 0; !found && k < weights->n_tensors; k++)
            found = !strcmp(name, weights->tensors[k].name);
        if (!found)
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: tensor '%s': the live model has no such part", path, name);
    }
    return 0;
}

int kvb_weights_load(const char *path, const char *config_path, kvb_weights **weights, char *why, size_t why_bytes)
{
    char *beside = config_path ? NULL : config_beside(path);
    kvb_safetensors *file = NULL;
    kvb_model_config config;
    kvb_weights *w = NULL;
    int err = config_path || beside ? kvb_safetensors_open(path, &file, why, why_bytes)
                                    : kvb_why_set(-ENOMEM, why, why_bytes, "no memory");
    if (!err)
        err = kvb_model_config_load(config_path ? config_path : beside, &config, why, why_bytes);
    if (!err) {
        config.qk_norm = kvb_safetensors_find(file, "model.layers.0.self_attn.q_norm.weight") != NULL;
        err = kvb_weights_open(&config, &w, why, why_bytes);
    }
    if (!err)
        err = refuse_unknown(file, w, path, why, why_bytes);
    for (const kvb_weight *t = w ? w->tensors : NULL; !err && t < w->tensors + w->n_tensors; t++)
        err = kvb_safetensors_read_f32(file, t->name, t->shape, t->n_dims, t->data, why, why_bytes);
    if (err) {
        kvb_weights_close(w);
        w = NULL;
    }
    *weights = w;
    kvb_safetensors_close(file);
    free(beside);
    return err;
}

int kvb_weights_save(const kvb_weights *weights, const char *path, char *why, size_t why_bytes)
{
    const size_t n = weights->n_tensors;
    kvb_tensor *tensors = calloc(n, sizeof *tensors);
    char *config = config_beside(path);
    int err = tensors && config ? 0 : kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", path);
    for (size_t i = 0; i < n && !err; i++) {
        const kvb_weight *w = &weights->tensors[i];
        tensors[i] = (kvb_tensor){.name = w->name,
                                  .dtype = KVB_DTYPE_F32,
                                  .n_dims = w->n_dims,
                                  .dims = {w->shape[0], w->shape[1]},
                                  .data = w->data,
                                  .bytes = w->n * sizeof(float)};
    }
    err = err ? err : kvb_safetensors_write(path, tensors, n, NULL, why, why_bytes);
    err = err ? err : kvb_model_config_save(config, &weights->config, why, why_bytes);
    free(config);
    free(tensors);
    return err;
}
