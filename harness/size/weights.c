/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters and bytes of a model's weights: the sum over its tensors, and the share of one rank. */
#include "harness/size/weights.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "harness/size/engines.h"
#include "harness/size/weights_tensors.h"
#include "workloads/safetensors.h"
#include "workloads/files.h"

/*
 * Bytes of a tensor in a quantised checkpoint. If a method's exact coverage is known for a type of model, a function gives
 * them. Else the config gives the form of codes and scales, and the modules that are left out (transformers'
 * modules_to_not_convert, compressed-tensors' and modelopt's ignore). A part of a layer counts as left out if any of its
 * modules is, so the sum is marked as an upper limit. Embeddings, output, routers and vectors are not quantised.
 */

#define BIT(part) (1u << KVB_WEIGHTS_##part)
#define LINEAR    (BIT(ATTENTION) | BIT(MIXER) | BIT(DENSE) | BIT(EXPERTS) | BIT(SHARED) | BIT(OTHER))
/* No method covers a matrix with at most CONV_MOST columns, a convolution's kernel, or with less than ROWS_LEAST rows, with
 * a value for each head (in_proj_a, in_proj_b). */
enum { CONV_MOST = 16, ROWS_LEAST = 128 };

/* ---- models and methods whose tensors are all known ------------------------------------------------------------ */

/* DeepSeek-V3's README_WEIGHTS.md: every matrix except embedding, output and router is e4m3 with an f32 scale for each
 * block of 128 x 128. The router's bias is f32. */
static uint64_t fp8_block_bytes(const kvb_weights_sum *sum, kvb_weights_part part, uint64_t rows, uint64_t cols)
{
    const bool vector = rows == 1;
    if (part == KVB_WEIGHTS_ROUTER && vector)
        return cols * 4;
    if (vector || part == KVB_WEIGHTS_EMBEDDING || part == KVB_WEIGHTS_OUTPUT || part == KVB_WEIGHTS_ROUTER)
        return rows * cols * sum->element;
    return rows * cols + 4 * kvb_ceil_div(rows, 128) * kvb_ceil_div(cols, 128);
}

/* gpt-oss's model card: the experts' matrices are MXFP4, 16 bytes of codes and one of scale for 32 elements of a row.
 */
static uint64_t mxfp4_experts_bytes(const kvb_weights_sum *sum, kvb_weights_part part, uint64_t rows, uint64_t cols)
{
    return part == KVB_WEIGHTS_EXPERTS && rows > 1 ? rows * kvb_ceil_div(cols, 32) * 17 : rows * cols * sum->element;
}

/* DeepSeek-V4 (its inference/model.py, Linear): as in DeepSeek-V3, but scales have 8 bits, experts may be MXFP4, the mix of
 * streams is f32, and pooling is not covered. */
static uint64_t deepseek_v4_bytes(const kvb_weights_sum *sum, kvb_weights_part part, uint64_t rows, uint64_t cols)
{
    const char *experts = json_string_value(kvb_sum_find(sum, "expert_dtype"));
    if (part == KVB_WEIGHTS_EXPERTS && experts && strcmp(experts, "fp4") == 0)
        return mxfp4_experts_bytes(sum, part, rows, cols);
    if (part == KVB_WEIGHTS_NORMS && rows > 1)
        return rows * cols * 4;
    if (rows == 1 || !(LINEAR >> part & 1))
        return rows * cols * sum->element;
    return rows * cols + kvb_ceil_div(rows, 128) * kvb_ceil_div(cols, 128);
}

static const struct method {
    const char *quant_method, *format, *types; /* format: NULL, any */
    int64_t block;                             /* weight_block_size; 0: none */
    kvb_tensor_bytes tensor_bytes;             /* tensors that the method does not cover are bf16 */
} methods[] = {
    {"fp8", NULL, "deepseek_v3 deepseek_v32 kimi_k2", 128, fp8_block_bytes},
    {"fp8", NULL, "deepseek_v4", 128, deepseek_v4_bytes},
    {"mxfp4", NULL, "gpt_oss", 0, mxfp4_experts_bytes},
    {"compressed-tensors", "mxfp4-pack-quantized", "kimi_k3", 0, mxfp4_experts_bytes},
};

/* ---- quantisation by the config ------------------------------------------------------------------------------- */

static uint64_t coded_bytes(const kvb_weights_sum *sum, kvb_weights_part part, uint64_t rows, uint64_t cols)
{
    const kvb_weights_code *c = &sum->codes.of[part];
    if (!c->bits || rows < ROWS_LEAST || cols < CONV_MOST)
        return rows * cols * sum->element;
    return rows * 4 * kvb_ceil_div(cols * c->bits, 32) +
           (c->group ? kvb_ceil_div(rows * kvb_ceil_div(cols, c->group) * c->group_bits, 8) : 0) +
           (c->block[0] ? 4 * kvb_ceil_div(rows, c->block[0]) * kvb_ceil_div(cols, c->block[1]) : 0) + rows * c->row +
           c->tensor;
}

/* The parts of a layer for a name of modules, by the first row with a word that the name contains. 0: none that counts. */
#define FEED (BIT(DENSE) | BIT(EXPERTS) | BIT(SHARED))
static const struct {
    const char *words;
    unsigned parts;
} modules[] = {
    {"vis multi_modal audio mm_projector mtp embed norm lm_head e_score conv1d router weights_proj shared_expert_gate",
     0},
    {"shared_expert", BIT(SHARED)},
    {"expert", BIT(EXPERTS)},
    {"linear_attn in_proj mamba", BIT(MIXER)},
    {"latent_proj indexer", BIT(OTHER)},
    {"attn", BIT(ATTENTION) | BIT(OTHER)},
    {"q_proj k_proj v_proj o_proj", BIT(ATTENTION)},
    {"mixer.gate mlp.gate.", 0},
    {"gate_proj up_proj down_proj", BIT(DENSE)},
    {"mlp feed_forward", FEED}, /* without experts that lie beside it */
};

static bool contains_one(const char *name, const char *words)
{
    for (size_t n; *words; words += n + strspn(words + n, " ")) {
        n = strcspn(words, " ");
        if (memmem(name, strlen(name), words, n))
            return true;
    }
    return false;
}

static bool ends_with(const char *word, const char *end)
{
    const size_t n = strlen(word), m = strlen(end);
    return n >= m && strcmp(word + n - m, end) == 0;
}

static unsigned parts_named(const char *name, bool beside)
{
    char plain[128];
    size_t n = 0;
    for (; *name && n + 1 < sizeof plain; name++) /* the letters of a regular expression */
        if (!strchr("\\^$*()?", *name))
            plain[n++] = *name;
    plain[n] = '\0';
    if (ends_with(plain, ".gate") || strcmp(plain, "gate") == 0)
        return 0;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (contains_one(plain, modules[i].words))
            return modules[i].parts == FEED && beside ? BIT(DENSE) : modules[i].parts;
    return LINEAR;
}

/* Marks parts in the layers of a name: "model.layers.3.mlp*", "re:.*layers\\.3\\..*": one layer; "layers.3*": layers with
 * a number that begins with 3; any other name: all. */
static void layers_mark(const char *name, unsigned parts, unsigned *left, uint64_t layers)
{
    const char *at = strstr(name, "layers");
    const size_t dot = at ? strlen("layers") + (at[strlen("layers")] == '\\') : 0;
    uint64_t first = 0, span = layers;
    bool more = false;
    char *end;
    if (at && at[dot] == '.' && at[dot + 1] >= '0' && at[dot + 1] <= '9') {
        first = strtoull(at + dot + 1, &end, 10);
        span = 1;
        more = first && first < layers && *end && *end != (strncmp(name, "re:", 3) == 0 ? '\\' : '.');
    }
    do {
        for (uint64_t i = first; i < layers && i - first < span; i++)
            left[i] |= parts;
        first *= 10;
        span *= 10;
    } while (more && first < layers);
}

static uint64_t layers_with(const kvb_sized_model *model, bool states)
{
    uint64_t n = 0;
    for (size_t g = 0; g < model->n_groups; g++)
        if (model->groups[g].kind != KVB_SIZED_NONE && (model->groups[g].kind == KVB_SIZED_STATE) == states)
            n += model->groups[g].n;
    return n;
}

/* Counts, for each part, the layers that have it and those in which one of its modules is left out. covered: the modules
 * that are not left out, by name; NULL: all that the lists do not name. */
static void left_count(kvb_weights_sum *sum, const json_t *quantization, const json_t *covered)
{
    static const char *const keys[] = {"modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"};
    const kvb_weights_family *family = kvb_weights_family_find(sum);
    const kvb_weights_feed *feed = family ? family->feed : NULL;
    const uint64_t layers = sum->model->n_layers;
    kvb_weights_codes *c = &sum->codes;
    unsigned *left = calloc(layers + 1, sizeof *left), kinds = 0;
    if (!left)
        return kvb_sum_stop(sum, -ENOMEM, "no memory");
    for (size_t k = 0; k < sizeof keys / sizeof *keys && !covered; k++) {
        const json_t *list = json_object_get(quantization, keys[k]);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const char *name = json_string_value(json_array_get(list, i));
            layers_mark(name ? name : "", name ? parts_named(name, feed && feed->beside) : LINEAR, left, layers);
        }
    }
    for (void *at = json_object_iter((json_t *)covered); at; at = json_object_iter_next((json_t *)covered, at))
        layers_mark(json_object_iter_key(at), parts_named(json_object_iter_key(at), feed && feed->beside), left,
                    layers);
    for (uint64_t i = 0; i < layers && covered; i++)
        left[i] = ~left[i];
    for (uint64_t i = 0; i < layers; i++) {
        uint64_t sparse = 0, dense = 0;
        if (feed)
            kvb_feed_count(sum, feed, i, i + 1, &sparse, &dense);
        const unsigned has = (LINEAR & ~FEED) | (dense ? BIT(DENSE) : 0) | (sparse ? BIT(EXPERTS) | BIT(SHARED) : 0);
        for (int part = 0; part < KVB_WEIGHTS_PARTS; part++) {
            c->layers[part] += has >> part & 1;
            c->left[part] += (left[i] & has) >> part & 1;
        }
    }
    free(left);
    c->layers[KVB_WEIGHTS_ATTENTION] = c->layers[KVB_WEIGHTS_OTHER] = layers_with(sum->model, false);
    c->layers[KVB_WEIGHTS_MIXER] = layers_with(sum->model, true);
    for (size_t g = 0; g < sum->model->n_groups; g++)
        kinds += sum->model->groups[g].kind != KVB_SIZED_STATE && sum->model->groups[g].kind != KVB_SIZED_NONE;
    for (int part = 0; part < KVB_WEIGHTS_PARTS; part++) {
        const bool mixed = kinds > 1 && (BIT(ATTENTION) | BIT(OTHER)) >> part & 1; /* which layers have which shape? */
        c->layers[part] = c->layers[part] ? c->layers[part] : 1;
        if (c->left[part] > c->layers[part] || (c->left[part] && mixed))
            c->left[part] = c->layers[part];
    }
}

static bool is(const json_t *object, const char *key, const char *value)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text && strcmp(text, value) == 0;
}

static uint32_t count(const json_t *value)
{
    const json_int_t n = json_integer_value(value);
    return n > 0 && n < 1 << 20 ? (uint32_t)n : 0;
}

/* transformers' finegrained_fp8: e4m3 with f32 scales of blocks; without blocks one scale for weights, one for
 * activations. */
static bool fp8_read(const json_t *quantization, kvb_weights_code *c)
{
    const json_t *block = json_object_get(quantization, "weight_block_size");
    c->bits = 8;
    for (size_t i = 0; i < 2; i++)
        c->block[i] = count(json_array_get(block, i));
    c->tensor = c->block[0] ? 0 : 8;
    return !block || json_is_null(block) || (c->block[0] && c->block[1]);
}

/* compressed-tensors' QuantizationArgs of the one group of linear layers: scales are at most f32, or e4m3 beside 4-bit
 * floats. */
static bool compressed_read(const json_t *quantization, kvb_weights_code *c)
{
    const json_t *groups = json_object_get(quantization, "config_groups");
    const json_t *group = json_object_iter_value(json_object_iter((json_t *)groups));
    const json_t *targets = json_object_get(group, "targets"), *weights = json_object_get(group, "weights");
    const json_t *block = json_object_get(weights, "block_structure");
    const bool is_float = is(weights, "type", "float"), even = !json_is_false(json_object_get(weights, "symmetric"));

    if (json_object_size(groups) != 1 || json_array_size(targets) != 1 ||
        strcmp(json_string_value(json_array_get(targets, 0)) ? json_string_value(json_array_get(targets, 0)) : "",
               "Linear") != 0)
        return false;
    c->bits = count(json_object_get(weights, "num_bits"));
    c->group = count(json_object_get(weights, "group_size"));
    if (c->bits != 4 && c->bits != 8)
        return false;
    c->tensor = 16; /* global scales, or the shape of a packed tensor */
    if (c->group)
        c->group_bits = is_float && c->bits == 4 ? 8 : 16 + (even ? 0 : c->bits);
    else if (is(weights, "strategy", "channel"))
        c->row = 4 + (even ? 0 : 1);
    else if (is(weights, "strategy", "block"))
        for (size_t i = 0; i < 2; i++)
            c->block[i] = count(json_array_get(block, i));
    else
        return is(weights, "strategy", "tensor");
    return c->group || c->row || (c->block[0] && c->block[1]);
}

/* modelopt: FP8 has two f32 scales a tensor; NVFP4 an e4m3 scale for 16 elements besides. */
static bool modelopt_read(const json_t *quantization, kvb_weights_code *c)
{
    const bool four = is(quantization, "quant_algo", "NVFP4") || is(quantization, "quant_algo", "W4A16_NVFP4");
    c->bits = four ? 4 : 8;
    c->group = four ? 16 : 0;
    c->group_bits = 8;
    c->tensor = 8;
    return four || is(quantization, "quant_algo", "FP8");
}

/* modelopt's MIXED_PRECISION: an algorithm for each module. A part with several algorithms counts by the widest. */
static bool mixed_read(const json_t *modules_of, kvb_weights_codes *codes)
{
    for (void *at = json_object_iter((json_t *)modules_of); at; at = json_object_iter_next((json_t *)modules_of, at)) {
        const char *name = json_object_iter_key(at);
        const unsigned parts = strstr(name, "lm_head") ? BIT(OUTPUT) : parts_named(name, false);
        kvb_weights_code code = {0};
        if (!modelopt_read(json_object_iter_value(at), &code))
            return false;
        for (int part = 0; part < KVB_WEIGHTS_PARTS; part++)
            if (parts >> part & 1 && code.bits > codes->of[part].bits)
                codes->of[part] = code;
    }
    return true;
}

static const struct {
    const char *quant_method;
    bool (*read)(const json_t *quantization, kvb_weights_code *code);
} readers[] = {{"fp8", fp8_read}, {"compressed-tensors", compressed_read}, {"modelopt", modelopt_read}};

/* Reads the bytes and codes of tensors from a quantization_config. A method that is not in the tables ends the sum. */
static void quantization_read(kvb_weights_sum *sum, const json_t *quantization)
{
    const char *name = json_string_value(json_object_get(quantization, "quant_method"));
    const char *format = json_string_value(json_object_get(quantization, "format"));
    const json_t *block = json_object_get(quantization, "weight_block_size");
    const json_t *listed = json_object_get(quantization, "quantized_layers");
    const json_t *covered = json_object_size(listed) ? listed : NULL;
    kvb_weights_code code = {0};
    const char *type = sum->model->type ? sum->model->type : "";
    for (size_t i = 0; name && i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].quant_method, name) == 0 && kvb_names_have(methods[i].types, type) &&
            (!methods[i].format || (format && strcmp(methods[i].format, format) == 0)) &&
            json_integer_value(json_array_get(block, 0)) == methods[i].block &&
            json_integer_value(json_array_get(block, 1)) == methods[i].block) {
            sum->tensor_bytes = methods[i].tensor_bytes;
            return;
        }
    for (size_t i = 0; name && i < sizeof readers / sizeof *readers; i++)
        if (strcmp(readers[i].quant_method, name) == 0 &&
            (covered ? mixed_read(covered, &sum->codes) : readers[i].read(quantization, &code))) {
            for (int part = 0; part < KVB_WEIGHTS_PARTS; part++)
                if (!covered && LINEAR >> part & 1)
                    sum->codes.of[part] = code;
            sum->tensor_bytes = coded_bytes;
            left_count(sum, quantization, covered);
            sum->at_most = true;
            return;
        }
    kvb_sum_stop(sum, -ENOTSUP, "quantization_config (%.20s): how it stores which tensors is not known",
                 name ? name : "no quant_method");
}

static uint64_t plain_bytes(const kvb_weights_sum *sum, kvb_weights_part part, uint64_t rows, uint64_t cols)
{
    (void)part;
    return rows * cols * sum->element;
}

/* ---- vision towers ---------------------------------------------------------------------------------------------- */

/* A vision transformer: patches, positions, layers of q, k, v, o and a block, and a join that projects its output to the
 * model's width. vision: its config; h, wide: its hidden_size and intermediate_size. */
static uint64_t field(const json_t *vision, const char *name)
{
    return count(json_object_get(vision, name));
}

static uint64_t linear(uint64_t in, uint64_t out, bool bias)
{
    return in * out + (bias ? out : 0);
}

/* Qwen2_5_VLPatchMerger: four patches at once. norm: vectors of h. */
static uint64_t merger(uint64_t merged, uint64_t out, uint64_t norms)
{
    return norms + linear(merged, merged, true) + linear(merged, out, true);
}

static uint64_t merged_width(const json_t *vision, uint64_t h)
{
    const uint64_t side = field(vision, "spatial_merge_size");
    return (side ? side * side : 4) * h;
}

/* Parameters of the join. Qwen3VLVisionModel has further mergers, for features that the model's first layers add, with a
 * norm after the merging. Others: Mistral3MultiModalProjector; Llama4VisionPixelShuffleMLP and Llama4MultiModalProjector;
 * OpenGVLab's modeling_internvl_chat.py, mlp1; Gemma3MultiModalProjector. 0: a tower without biases of q, k, v, which has
 * other norms. */
enum join { QWEN2_5, QWEN3, MISTRAL3, LLAMA4, INTERNVL, GEMMA3 };

static uint64_t join_count(enum join join, const json_t *vision, uint64_t h, uint64_t wide, uint64_t hidden)
{
    const uint64_t merged = merged_width(vision, h), out = field(vision, "out_hidden_size");
    const uint64_t deep = json_array_size(json_object_get(vision, "deepstack_visual_indexes"));
    const uint64_t projected = field(vision, "projector_output_dim");

    switch (join) {
    case QWEN2_5:
        return merger(merged, out, h);
    case QWEN3:
        return merger(merged, out, 2 * h) + deep * merger(merged, out, 2 * merged);
    case MISTRAL3:
        return h + linear(merged, h, false) + linear(h, hidden, false) + linear(hidden, hidden, false);
    case LLAMA4:
        return linear(wide, field(vision, "projector_input_dim"), false) + linear(projected, projected, false) +
               linear(field(vision, "vision_output_dim"), hidden, false);
    case INTERNVL:
        return json_is_true(json_object_get(vision, "qkv_bias")) &&
                       !json_is_true(json_object_get(vision, "qk_normalization"))
                   ? 2 * merged + linear(merged, hidden, true) + linear(hidden, hidden, true)
                   : 0;
    default: /* GEMMA3 */
        return h * hidden + h;
    }
}

static const struct vit {
    const char *models; /* values of the model's model_type */
    const char *only;   /* the only known model_type of the tower; NULL: any */
    enum join join;
    bool gated, bias, patch_bias; /* of the block; of all projections; of the patches' */
    unsigned norms, outer;        /* vectors of h in a norm, and outside layers and join */
    unsigned frames;              /* of a patch, if temporal_patch_size is absent */
    bool squares;                 /* one position for each patch of a picture; else num_position_embeddings, if any */
    bool head;                    /* has a head, with unknown tensors, unless vision_use_head is false */
} vits[] = {
    {"qwen2_5_vl", NULL, QWEN2_5, .gated = true, .bias = true, .norms = 1, .frames = 2},
    {"qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe qwen4_exp qwen3_omni_moe qwen3_omni_moe_thinker", NULL, QWEN3,
     .bias = true, .patch_bias = true, .norms = 2, .frames = 2},
    {"mistral3", "pixtral", MISTRAL3, .gated = true, .norms = 1, .outer = 1, .frames = 1},
    {"llama4", "llama4_vision_model", LLAMA4, .bias = true, .norms = 2, .outer = 6, .frames = 1, .squares = true},
    {"internvl_chat", "intern_vit_6b", INTERNVL, .bias = true, .patch_bias = true,
     .norms = 3, /* the third vector scales the outputs of attention and block */
     .outer = 2, .frames = 1, .squares = true},
    {"gemma3", "siglip_vision_model", GEMMA3, .bias = true, .patch_bias = true, .norms = 2, .outer = 2, .frames = 1,
     .squares = true, .head = true},
};

enum { VITS = sizeof vits / sizeof *vits };

/* Parameters of the vision tower; 0: its tensors are unknown. */
static uint64_t vision_parameters(const kvb_weights_sum *sum)
{
    const json_t *vision = kvb_sum_find(sum, "vision_config");
    const uint64_t h = field(vision, "hidden_size"), wide = field(vision, "intermediate_size");
    const uint64_t side = field(vision, "patch_size"), frames = field(vision, "temporal_patch_size");
    const uint64_t layers = field(vision, "depth") ? field(vision, "depth") : field(vision, "num_hidden_layers");
    const bool headless = json_is_false(json_object_get(vision, "vision_use_head"));
    size_t i = 0;

    while (i < VITS && (!kvb_names_have(vits[i].models, sum->model->type) ||
                        (vits[i].only && !is(vision, "model_type", vits[i].only))))
        i++;
    if (i < VITS) {
        const struct vit *t = &vits[i];
        const uint64_t squares = side ? field(vision, "image_size") / side : 0;
        const uint64_t positions = t->squares ? squares * squares : field(vision, "num_position_embeddings");
        const uint64_t join = join_count(t->join, vision, h, wide, sum->hidden);
        const bool whole = h && wide && layers && side && join && (!t->squares || squares) && h <= 1 << 15 &&
                           wide <= 1 << 18 && layers <= 1 << 10 && side <= 1 << 10 && frames <= 16 &&
                           squares <= 1 << 12 && merged_width(vision, h) <= 1 << 20 && (headless || !t->head);
        return !whole ? 0
                      : linear((frames ? frames : t->frames) * 3 * side * side, h, t->patch_bias) +
                            (t->outer + positions) * h + join +
                            layers * (4 * linear(h, h, t->bias) + 2 * t->norms * h +
                                      (t->gated ? 2 : 1) * linear(h, wide, t->bias) + linear(wide, h, t->bias));
    }
    return 0;
}

/* Parameters of the audio tower; 0: its tensors are unknown. transformers' Qwen3OmniMoeAudioEncoder: three convolutions of
 * 3 x 3 that halve the mel bins, layers of q, k, v, o and a block, and two projections. */
static uint64_t audio_parameters(const kvb_weights_sum *sum)
{
    const json_t *audio = kvb_sum_find(sum, "audio_config");
    const uint64_t h = field(audio, "d_model"), wide = field(audio, "encoder_ffn_dim");
    const uint64_t layers = field(audio, "encoder_layers"), channels = field(audio, "downsample_hidden_size");
    const uint64_t bins = field(audio, "num_mel_bins"), out = field(audio, "output_dim");

    if (!is(audio, "model_type", "qwen3_omni_moe_audio_encoder") || !h || !wide || !layers || !channels || !bins ||
        !out || h > 1 << 15 || wide > 1 << 18 || layers > 1 << 10 || channels > 1 << 15 || bins > 1 << 15 ||
        out > 1 << 18)
        return 0;
    return linear(9, channels, true) + 2 * linear(9 * channels, channels, true) +
           linear(channels * ((bins + 7) / 8), h, false) +
           layers * (4 * linear(h, h, true) + 2 * 2 * h + linear(h, wide, true) + linear(wide, h, true)) + 2 * h +
           linear(h, h, true) + linear(h, out, true);
}

/* Names the parts that the weights leave out. towers: towers are counted. */
static void left_out(const kvb_weights_sum *sum, bool towers, char *text, size_t n)
{
    static const char *const configs[] = {"vision_config", "audio_config"}, *const names[] = {"vision", "audio"};
    const bool several = sum->model->architecture && strstr(sum->model->architecture, "ForConditionalGeneration");
    const bool known[] = {towers && vision_parameters(sum), towers && audio_parameters(sum)};
    const char *found[2] = {NULL};
    size_t k = 0;
    for (size_t i = 0; i < 2; i++)
        if ((kvb_sum_find(sum, configs[i]) || kvb_sum_find(sum, "embd_layer")) && !known[i])
            found[k++] = names[i];
    const bool counted = !k && (known[0] || known[1]);
    const kvb_weights_family *family = kvb_weights_family_find(sum);
    char list[160] = "";
    if (k)
        kvb_list_add(list, sizeof list, "", "the %s%s%s tower%s", found[0], k > 1 ? " and the " : "",
                     k > 1 ? found[1] : "", k > 1 ? "s" : "");
    else if (several && !counted && !kvb_sum_find(sum, "encoder_layers"))
        kvb_list_add(list, sizeof list, "", "vision or audio towers");
    if (sum->model->mtp_layers && !(sum->mtp && family && family->mtp))
        kvb_list_add(list, sizeof list, " and ", "layers for multi-token prediction");
    if (kvb_sum_find(sum, "talker_config"))
        kvb_list_add(list, sizeof list, " and ", "the talker");
    snprintf(text, n, "%s%s", *list ? "without " : "", list);
}

int kvb_sized_parameters_read(const json_t *config, const kvb_sized_model *model, kvb_sized_parameters *out)
{
    kvb_weights_sum sum = {.config = config, .model = model, .tensor_bytes = plain_bytes};
    memset(out, 0, sizeof *out);
    kvb_sum_run(&sum);
    uint64_t total = 0;
    for (int i = 0; i < KVB_WEIGHTS_PARTS; i++)
        if (__builtin_add_overflow(total, sum.parts[i], &total))
            kvb_sum_stop(&sum, -EOVERFLOW, "weights: their number overflows 64 bits");
    if (sum.err) {
        snprintf(out->why, sizeof out->why, "%s", sum.why);
        return sum.err == -ENOENT ? 0 : sum.err;
    }
    out->known = true;
    out->total = total;
    memcpy(out->part, sum.parts, sizeof out->part);
    left_out(&sum, false, out->why, sizeof out->why);
    return 0;
}

/* ---- as published ---------------------------------------------------------------------------------------------- */

int kvb_weights_published(const json_t *config, const kvb_sized_model *model, bool mtp, uint64_t *bytes, char *why,
                          size_t why_bytes)
{
    kvb_weights_sum sum = {
        .config = config, .model = model, .tensor_bytes = plain_bytes, .mtp = mtp && model->mtp_layers};
    const char *dtype = model->dtype;
    sum.element = strcmp(dtype, "f32") == 0 ? 4 : 2; /* 2 if no dtype is named; the model has a note on that */
    const json_t *quantization = kvb_sum_find(&sum, "quantization_config");
    if (quantization) {
        sum.element = 2;
        quantization_read(&sum, quantization);
    }
    if (!sum.err)
        kvb_sum_run(&sum);
    *bytes = sum.bytes + (sum.err ? 0 : (vision_parameters(&sum) + audio_parameters(&sum)) * sum.element);
    char less[160];
    left_out(&sum, true, less, sizeof less);
    if (sum.err)
        snprintf(why, why_bytes, "%s", sum.why);
    else
        snprintf(why, why_bytes, "%s%s%s",
                 sum.at_most ? "at most: a part of a layer of which quantization_config leaves modules out counts whole"
                             : "",
                 sum.at_most && *less ? "; " : "", less);
    return sum.err == -ENOENT ? -ENOTSUP : sum.err;
}

/* ---- words of --weights: dtypes for all elements, and sizes ------------------------------------------------------ */

/* `elements` parameters take `bytes` together, with their scales. */
struct dtype {
    uint64_t elements, bytes;
};

static const char simple[] = "f32 f16 bf16 e4m3 e5m2 fp8 int8 q8_0 q5_1 q5_0 q4_1 q4_0 mxfp4 nvfp4"; /* as KV formats */

/* llama.cpp mixes types: bits of a weight as its tools/quantize/README.md lists them for Llama-3.1-8B. */
static const struct {
    const char *word;
    uint64_t bytes; /* of 80000 weights */
} mixes[] = {
    {"q2_K", 31593},   {"q2_K_S", 29697}, {"q3_K_S", 36429}, {"q3_K_L", 42979}, {"q4_K_S", 46672},
    {"q4_K_M", 48944}, {"q5_K_S", 55704}, {"q5_K_M", 57036}, {"q6_K", 65633},   {"iq2_M", 29294},
    {"iq3_M", 37628},  {"iq4_XS", 44597}, {"iq4_NL", 46818},
};

/* Copies a word in small letters; "": it is too long for a dtype. */
static void small_make(const char *word, char small[16])
{
    const size_t n = strlen(word) < 16 ? strlen(word) : 0;

    for (size_t i = 0; i < n; i++)
        small[i] = (char)tolower((unsigned char)word[i]);
    small[n] = '\0';
}

bool kvb_is_bits_alone(const char *word)
{
    char small[16];

    small_make(word, small);
    return kvb_names_have("int4 4bit 4-bit fp4 q4 w4a16 uint4", small);
}

/* "a4g64", as MLX and kvbench's pools store it. */
static bool affine_parse(const char *word, struct dtype *dtype)
{
    unsigned bits = 0, group = 0;
    int end = 0;
    if (sscanf(word, "a%1ug%4u%n", &bits, &group, &end) != 2 || word[end] || bits < 2 || bits > 8 || bits == 7 ||
        group < 16 || group > 1024 || group % 16)
        return false;
    *dtype = (struct dtype){group, (uint64_t)group * bits / 8 + 4};
    return true;
}

static bool dtype_parse(const char *word, struct dtype *dtype)
{
    char small[16];

    small_make(word, small);
    if (kvb_names_have(simple, small)) {
        const kvb_kv_format *format = kvb_kv_format_find(small);
        *dtype = (struct dtype){format->group, format->group_bytes};
        return true;
    }
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        if (strcasecmp(mixes[i].word, word) == 0) {
            *dtype = (struct dtype){80000, mixes[i].bytes};
            return true;
        }
    return affine_parse(word, dtype);
}

/* Parses a size. 0; -EINVAL: the word is no size; -EOVERFLOW. */
static int size_parse(const char *word, uint64_t *bytes)
{
    char *end;
    if (strspn(word, "0123456789.") == 0 || strchr(word, 'x') || strchr(word, 'X'))
        return -EINVAL;
    const long double number = strtold(word, &end);
    const long double size = number * (long double)kvb_unit_bytes(end);
    if (!(size < 0x1p64L))
        return -EOVERFLOW;
    *bytes = (uint64_t)ceill(size);
    return *bytes ? 0 : -EINVAL;
}

int kvb_weights_bytes(const kvb_sized_parameters *parameters, const char *word, uint64_t *bytes, char *why,
                      size_t why_bytes)
{
    struct dtype dtype;
    if (kvb_is_bits_alone(word))
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "weights \"%.40s\": with which scales? a4g128 (AWQ, GPTQ), a4g64 (MLX), q4_K_M (llama.cpp), "
                           "nvfp4, mxfp4",
                           word);
    if (!dtype_parse(word, &dtype)) {
        const int err = size_parse(word, bytes);
        return !err ? 0
               : err == -EOVERFLOW
                   ? kvb_why_set(err, why, why_bytes, "weights \"%.40s\": more than 64 bits of bytes", word)
                   : kvb_why_set(err, why, why_bytes,
                                 "weights \"%.40s\": expected a size like 140GiB, or a dtype: %s "
                                 "q4_K_M (and llama.cpp's other mixes) aBgN (B bits, groups of N, 16-bit scale and "
                                 "bias: a4g128 of AWQ and GPTQ, a4g64 of MLX)",
                                 word, simple);
    }
    if (!parameters->known)
        return kvb_why_set(-ENOTSUP, why, why_bytes, "weights \"%.40s\": the number of parameters is not known: %s",
                           word, parameters->why);
    const uint64_t groups = parameters->total / dtype.elements + (parameters->total % dtype.elements != 0);
    if (__builtin_mul_overflow(groups, dtype.bytes, bytes))
        return kvb_why_set(-EOVERFLOW, why, why_bytes, "weights \"%.40s\": more than 64 bits of bytes", word);
    return 0;
}

/* ---- one rank --------------------------------------------------------------------------------------------------- */

/*
 * The share of the fullest rank of tensor and pipeline parallelism, by the rule of vLLM (model_executor/layers/linear.py,
 * vocab_parallel_embedding.py; distributed/utils.py: get_pp_indices), which is Megatron's:
 *
 *   tp: embedding and output by vocabulary, projections by heads, blocks and experts by width; norms, routers and MLA's
 *       low-rank inputs are on every rank. A rank has at least one KV head: beyond that, k and v are replicated.
 *   pp: layers in stages of equal number; the embedding on the first, the output on the last; if tied, on both.
 *
 * Not modelled: stages with layers larger than the average (experts after dense layers), padding of the vocabulary to a
 * multiple of 64, Mamba groups that are replicated like KV heads.
 */

typedef unsigned __int128 wide;

/* value x part / whole, rounded up; part <= whole. */
static uint64_t share(uint64_t value, uint64_t part, uint64_t whole)
{
    return (uint64_t)(((wide)value * part + whole - 1) / whole);
}

/* Parameters of the k and v projections that a rank holds beyond 1/tp of them. */
static uint64_t replicated_kv(const kvb_sized_model *model, uint64_t tp)
{
    wide beyond = 0;
    for (const kvb_sized_group *g = model->groups; g < model->groups + model->n_groups; g++) {
        if (g->kv_heads < tp && g->kv_heads && g->kind != KVB_SIZED_LATENT)
            beyond += (wide)g->n * model->hidden * (g->k_dim + g->v_dim) * (tp - g->kv_heads) / tp;
    }
    return beyond > UINT64_MAX / 2 ? UINT64_MAX / 2 : (uint64_t)beyond;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int kvb_sized_parameters_rank(const kvb_sized_model *model, uint64_t tp, uint64_t part, uint64_t parts,
                              kvb_sized_parameters *rank, char *why, size_t why_bytes)
{
    const kvb_sized_parameters *all = &model->parameters;
    const uint64_t layers = model->n_layers;
    if (!tp || !part || part > parts || layers * part < parts)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s",
                           !tp ? "tp: expected 1 or more" : "pp: expected 1 to the number of layers");
    const bool alone = part == parts;
    if (!all->known)
        return kvb_why_set(-ENOTSUP, why, why_bytes, "the number of parameters is not known: %s", all->why);
    const bool embedding_most = all->part[KVB_WEIGHTS_EMBEDDING] >= all->part[KVB_WEIGHTS_OUTPUT]; /* of the two ends */
    const int larger = embedding_most ? KVB_WEIGHTS_EMBEDDING : KVB_WEIGHTS_OUTPUT;
    *rank = *all;
    rank->total = 0;
    for (int p = 0; p < KVB_WEIGHTS_PARTS; p++) {
        uint64_t own = p < KVB_WEIGHTS_ROUTER ? share(all->part[p], 1, tp) : all->part[p];
        if (p == KVB_WEIGHTS_ATTENTION && tp > 1)
            own = lesser(all->part[p], own + replicated_kv(model, tp));
        rank->part[p] = p > KVB_WEIGHTS_OUTPUT ? share(own, share(layers, part, parts), layers)
                        : alone || p == larger ? own
                                               : 0;
        rank->total += rank->part[p];
    }
    return 0;
}

int kvb_weights_rank(const kvb_sized_model *model, uint64_t bytes, uint64_t tp, uint64_t part, uint64_t parts,
                     uint64_t *rank_bytes, char *why, size_t why_bytes)
{
    kvb_sized_parameters rank;
    *rank_bytes = bytes;
    if (tp == 1 && part == parts)
        return 0;
    const int err = kvb_sized_parameters_rank(model, tp, part, parts, &rank, why, why_bytes);
    if (!err)
        *rank_bytes = share(bytes, lesser(rank.total, model->parameters.total), model->parameters.total);
    return err;
}

/* ---- files by their names ---------------------------------------------------------------------------------------- */

static bool is_index(const char *path)
{
    return ends_with(path, ".safetensors.index.json");
}

bool kvb_weights_is_file(const char *word)
{
    const char *rest = *word ? word + 1 : word; /* an ending alone is no name */
    return ends_with(rest, ".safetensors") || ends_with(rest, ".gguf") || is_index(rest);
}

static int bytes_add(uint64_t *bytes, uint64_t more, const char *path, char *why, size_t why_bytes)
{
    if (__builtin_add_overflow(*bytes, more, bytes))
        return kvb_why_set(-EOVERFLOW, why, why_bytes, "%s: the sum of its tensors overflows 64 bits", path);
    return 0;
}

/* Adds one file's tensors; `names`: tensors that it must have, in an array, or NULL. */
static int shard_add(const char *path, const json_t *names, uint64_t *bytes, char *why, size_t why_bytes)
{
    kvb_safetensors *file;
    int err = kvb_safetensors_open(path, &file, why, why_bytes);
    if (err)
        return err;
    json_t *has = json_object();
    for (size_t i = 0; i < file->n && !err; i++) {
        const kvb_tensor *tensor = &file->tensors[i];
        err = bytes_add(bytes, tensor->bytes, path, why, why_bytes);
        if (!err && json_object_set_new(has, tensor->name, json_true()))
            err = kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", path);
    }
    for (size_t i = 0; i < json_array_size(names) && !err; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (!json_object_get(has, name))
            err = kvb_why_set(-EINVAL, why, why_bytes, "%s: has no tensor '%.80s', but the index says so", path, name);
    }
    json_decref(has);
    kvb_safetensors_close(file);
    return err;
}

/* Inverts "weight_map", {tensor: shard}, to {shard: [tensors]}. NULL with err: it has another form. */
static json_t *shards_of(const char *path, const json_t *map, int *err, char *why, size_t why_bytes)
{
    json_t *shards = json_object(), *shard;
    const char *tensor;
    json_object_foreach((json_t *)map, tensor, shard)
    {
        const char *name = json_string_value(shard);
        if (!name || !*name || strchr(name, '/')) {
            *err = kvb_why_set(-EINVAL, why, why_bytes,
                               "%s: weight_map: '%.80s': expected the name of a file beside it", path, tensor);
            break;
        }
        json_t *tensors = json_object_get(shards, name);
        if (!tensors && !json_object_set_new(shards, name, json_array()))
            tensors = json_object_get(shards, name);
        if (json_array_append_new(tensors, json_string(tensor))) {
            *err = kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", path);
            break;
        }
    }
    return shards;
}

static int index_add(const char *path, uint64_t *bytes, char *why, size_t why_bytes)
{
    json_error_t error;
    json_t *index = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const json_t *map = json_object_get(index, "weight_map");
    int err = 0;
    if (!index)
        err = error.line < 0 ? kvb_why_set(-EINVAL, why, why_bytes, "%s: cannot be read", path)
                             : kvb_why_set(-EINVAL, why, why_bytes, "%s: line %d: %s", path, error.line, error.text);
    else if (json_object_size(map) == 0)
        err =
            kvb_why_set(-EINVAL, why, why_bytes, "%s: weight_map: expected an object of tensors and their files", path);
    json_t *shards = err ? NULL : shards_of(path, map, &err, why, why_bytes);
    const char *name;
    json_t *names;
    const json_t *told = json_object_get(json_object_get(index, "metadata"), "total_size");
    bool alone = json_integer_value(told) > 0; /* no shard is there: the index's total_size counts */
    for (int summing = 0; summing < 2 && !err && (!summing || !alone); summing++)
        json_object_foreach(shards, name, names)
        {
            char *shard;
            if (err || asprintf(&shard, "%.*s%s", (int)(strrchr(path, '/') ? strrchr(path, '/') + 1 - path : 0), path,
                                name) < 0)
                break;
            if (summing)
                err = shard_add(shard, names, bytes, why, why_bytes);
            else
                alone = alone && access(shard, F_OK) != 0;
            free(shard);
        }
    if (!err && alone)
        err = bytes_add(bytes, (uint64_t)json_integer_value(told), path, why, why_bytes);
    json_decref(shards);
    json_decref(index);
    return err;
}

static int file_add(const char *path, uint64_t *bytes, char *why, size_t why_bytes)
{
    return is_index(path)             ? index_add(path, bytes, why, why_bytes)
           : ends_with(path, ".gguf") ? kvb_gguf_read(path, NULL, NULL, bytes, why, why_bytes)
                                      : shard_add(path, NULL, bytes, why, why_bytes);
}

#define PART "00001-of-00002." /* names of parts by llama.cpp's gguf-split and transformers, after a dash */

/* The number of parts, if the path names one part of a model. *number: the part's own number in the path. 0: the path names
 * a whole model. */
static unsigned parts_of(char *path, char **number)
{
    unsigned own, parts;
    char *dot = strrchr(path, '.');
    int end = 0;
    if (!dot || dot - path < (int)strlen(PART))
        return 0;
    *number = dot + 1 - strlen(PART);
    return (*number)[-1] == '-' && sscanf(*number, "%5u-of-%5u.%n", &own, &parts, &end) == 2 && end == (int)strlen(PART)
               ? parts
               : 0;
}

/* Adds a file; if it is one of several parts, all of them. */
static int whole_add(char *path, uint64_t *bytes, char *why, size_t why_bytes)
{
    char *number, digits[16];
    const unsigned parts = parts_of(path, &number);
    int err = parts ? 0 : file_add(path, bytes, why, why_bytes);
    for (unsigned i = 1; i <= parts && !err; i++) {
        snprintf(digits, sizeof digits, "%05u", i);
        memcpy(number, digits, 5);
        err = file_add(path, bytes, why, why_bytes);
    }
    return err;
}

/* Does the list name a part of the same model before? */
static bool part_again(char *list, char *path)
{
    char *number;
    const unsigned parts = parts_of(path, &number);
    const size_t before = parts ? (size_t)(number - path) : 0;
    for (char *other = list; parts && other < path; other += strlen(other) + 1)
        if (strlen(other) == strlen(path) && strncmp(other, path, before) == 0 &&
            strcmp(other + before + 5, number + 5) == 0)
            return true;
    return false;
}

int kvb_weights_file(const char *path, uint64_t *bytes, char *why, size_t why_bytes)
{
    char *list = strdup(path), *rest = list;
    int err = list ? 0 : kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", path);
    *bytes = 0;
    for (char *one; !err && (one = strsep(&rest, ","));)
        err = part_again(list, one) ? 0 : whole_add(one, bytes, why, why_bytes);
    free(list);
    return !err && !*bytes ? kvb_why_set(-EINVAL, why, why_bytes, "%s: holds no tensor", path) : err;
}
