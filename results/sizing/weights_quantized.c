/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a tensor in a quantised checkpoint. Where a method's exact coverage is known for a type of model, a function
 * says it. Else the config does: how codes and scales are stored, and which modules are left out (transformers'
 * modules_to_not_convert, compressed-tensors' and modelopt's ignore). A part of the model of which any module is left
 * out counts as left out whole, so the sum is an upper limit: it says so. Embeddings, output, routers and vectors stay
 * as they are.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "results/sizing/weights_tensors.h"

#define BIT(part) (1u << KVB_WEIGHTS_##part)
#define LINEAR    (BIT(ATTENTION) | BIT(MIXER) | BIT(DENSE) | BIT(EXPERTS) | BIT(SHARED) | BIT(OTHER))
enum { CONV_MOST = 16 }; /* a matrix with so few columns is a convolution's kernel, which no method covers */

static uint64_t ceil_div(uint64_t x, uint64_t by)
{
    return x / by + (x % by != 0);
}

/* ---- models and methods of which every tensor is known --------------------------------------------------------- */

/* DeepSeek-V3's README_WEIGHTS.md: every matrix except embedding, output and router is e4m3 with an f32 scale for each
 * block of 128 x 128. The router's bias is f32. */
static uint64_t fp8_block_bytes(const kvb_weights_sum *sum, kvb_weights_part part, uint64_t rows, uint64_t cols)
{
    const bool vector = rows == 1;
    if (part == KVB_WEIGHTS_ROUTER && vector)
        return cols * 4;
    if (vector || part == KVB_WEIGHTS_EMBEDDING || part == KVB_WEIGHTS_OUTPUT || part == KVB_WEIGHTS_ROUTER)
        return rows * cols * sum->element;
    return rows * cols + 4 * ceil_div(rows, 128) * ceil_div(cols, 128);
}

/* gpt-oss's model card: the experts' matrices are MXFP4, 16 bytes of codes and one of scale for 32 elements of a row.
 */
static uint64_t mxfp4_experts_bytes(const kvb_weights_sum *sum, kvb_weights_part part, uint64_t rows, uint64_t cols)
{
    return part == KVB_WEIGHTS_EXPERTS && rows > 1 ? rows * ceil_div(cols, 32) * 17 : rows * cols * sum->element;
}

static const struct method {
    const char *quant_method, *types;
    int64_t block;                 /* weight_block_size; 0: none */
    kvb_tensor_bytes tensor_bytes; /* tensors that the method does not cover are bf16 */
} methods[] = {
    {"fp8", " deepseek_v3 deepseek_v32 kimi_k2 ", 128, fp8_block_bytes},
    {"mxfp4", " gpt_oss ", 0, mxfp4_experts_bytes},
};

/* ---- what a config says --------------------------------------------------------------------------------------- */

static uint64_t coded_bytes(const kvb_weights_sum *sum, kvb_weights_part part, uint64_t rows, uint64_t cols)
{
    const kvb_weights_codes *c = &sum->codes;
    if (!(c->parts >> part & 1) || rows == 1 || cols < CONV_MOST)
        return rows * cols * sum->element;
    return rows * 4 * ceil_div(cols * c->bits, 32) +
           (c->group ? ceil_div(rows * ceil_div(cols, c->group) * c->group_bits, 8) : 0) +
           (c->block[0] ? 4 * ceil_div(rows, c->block[0]) * ceil_div(cols, c->block[1]) : 0) + rows * c->row +
           c->tensor;
}

/* Which parts a name of modules stands for: of the first word that is in it. 0: of none that counts. */
static const struct {
    const char *word;
    unsigned parts;
} modules[] = {
    {"vis", 0},
    {"multi_modal", 0},
    {"audio", 0},
    {"mm_projector", 0},
    {"mtp", 0},
    {"embed", 0},
    {"norm", 0},
    {"lm_head", 0},
    {"e_score", 0},
    {"conv1d", 0},
    {"router", 0},
    {"shared_expert_gate", 0},
    {"shared_expert", BIT(SHARED)},
    {"expert", BIT(EXPERTS)},
    {"linear_attn", BIT(MIXER)},
    {"in_proj", BIT(MIXER)},
    {"mamba", BIT(MIXER)},
    {"latent_proj", BIT(OTHER)},
    {"indexer", BIT(OTHER) | BIT(ATTENTION)},
    {"attn", BIT(ATTENTION) | BIT(OTHER)},
    {"q_proj", BIT(ATTENTION)},
    {"k_proj", BIT(ATTENTION)},
    {"v_proj", BIT(ATTENTION)},
    {"o_proj", BIT(ATTENTION)},
    {"mixer.gate", 0},
    {"mlp.gate.", 0},
    {"gate_proj", BIT(DENSE)},
    {"up_proj", BIT(DENSE)},
    {"down_proj", BIT(DENSE)},
};

static bool ends_with(const char *word, const char *end)
{
    const size_t n = strlen(word), m = strlen(end);
    return n >= m && strcmp(word + n - m, end) == 0;
}

static unsigned parts_named(const char *name)
{
    char plain[128];
    size_t n = 0;
    for (; *name && n + 1 < sizeof plain; name++) /* of a regular expression, its letters */
        if (!strchr("\\^$*()?", *name))
            plain[n++] = *name;
    plain[n] = '\0';
    if (ends_with(plain, ".gate") || strcmp(plain, "gate") == 0)
        return 0;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (strstr(plain, modules[i].word))
            return modules[i].parts;
    return LINEAR;
}

static unsigned parts_covered(const json_t *quantization)
{
    static const char *const keys[] = {"modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"};
    unsigned parts = LINEAR;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const json_t *list = json_object_get(quantization, keys[k]);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const char *name = json_string_value(json_array_get(list, i));
            parts &= name ? ~parts_named(name) : 0;
        }
    }
    return parts;
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
static bool fp8_read(const json_t *quantization, kvb_weights_codes *c)
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
static bool compressed_read(const json_t *quantization, kvb_weights_codes *c)
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
    c->tensor = 16; /* global scales, or the shape of what is packed */
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
static bool modelopt_read(const json_t *quantization, kvb_weights_codes *c)
{
    const bool four = is(quantization, "quant_algo", "NVFP4");
    c->bits = four ? 4 : 8;
    c->group = four ? 16 : 0;
    c->group_bits = 8;
    c->tensor = 8;
    return four || is(quantization, "quant_algo", "FP8");
}

static const struct {
    const char *quant_method;
    bool (*read)(const json_t *quantization, kvb_weights_codes *codes);
} readers[] = {{"fp8", fp8_read}, {"compressed-tensors", compressed_read}, {"modelopt", modelopt_read}};

void kvb_quantization_read(kvb_weights_sum *sum, const json_t *quantization)
{
    const char *name = json_string_value(json_object_get(quantization, "quant_method"));
    const json_t *block = json_object_get(quantization, "weight_block_size");
    char type[64];
    snprintf(type, sizeof type, " %s ", sum->model->type ? sum->model->type : "");
    for (size_t i = 0; name && i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].quant_method, name) == 0 && strstr(methods[i].types, type) &&
            json_integer_value(json_array_get(block, 0)) == methods[i].block &&
            json_integer_value(json_array_get(block, 1)) == methods[i].block) {
            sum->tensor_bytes = methods[i].tensor_bytes;
            return;
        }
    for (size_t i = 0; name && i < sizeof readers / sizeof *readers; i++)
        if (strcmp(readers[i].quant_method, name) == 0 && readers[i].read(quantization, &sum->codes)) {
            sum->tensor_bytes = coded_bytes;
            sum->codes.parts = parts_covered(quantization);
            sum->at_most = true;
            return;
        }
    kvb_sum_stop(sum, -ENOTSUP, "quantization_config (%.20s): how it stores which tensors is not known",
                 name ? name : "no quant_method");
}
