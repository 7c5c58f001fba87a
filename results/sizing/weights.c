/* SPDX-License-Identifier: Apache-2.0 */
/* The whole sum: a family's row over a config, counted as parameters or as bytes. */
#include "results/sizing/weights_family.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void sum_run(kvb_weights_sum *sum)
{
    const kvb_weights_family *family = kvb_weights_family_find(sum);
    if (!family) {
        kvb_sum_stop(sum, -ENOENT, "the tensors of architecture \"%.60s\" are not known",
                     sum->model->architecture ? sum->model->architecture : "");
        return;
    }
    for (const char *at = family->unknown ? family->unknown : ""; *at; at += strspn(at, " ")) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " "), at);
        const json_t *value = kvb_field_find(sum, name);
        if (value && !json_is_false(value) && !(json_is_integer(value) && json_integer_value(value) == 0))
            kvb_sum_stop(sum, -ENOENT, "%s brings tensors that are not known", name);
        at += strcspn(at, " ");
    }
    const uint64_t h = sum->hidden = kvb_field(sum, "hidden_size n_embd d_model");
    sum->layers = sum->model->n_layers;
    /* mamba_ssm's own configs have d_model; its vocabulary is padded to whole 8 (mamba_ssm/models/config_mamba.py) */
    const uint64_t pad =
        kvb_field_or(sum, "pad_vocab_size_multiple", kvb_field_find(sum, "hidden_size n_embd") ? 1 : 8);
    const uint64_t vocab = kvb_field(sum, "vocab_size"), rows = pad ? (vocab + pad - 1) / pad * pad : vocab;
    const uint64_t norm = kvb_flag(sum, family->norm_bias) ? 2 * h : h;
    kvb_matrix_add(sum, KVB_PART_EMBEDDING, 1, rows, h);
    if (!kvb_flag(sum, family->tied ? "+tie_word_embeddings" : "tie_word_embeddings"))
        kvb_linear_add(sum, KVB_PART_OUTPUT, 1, h, rows, kvb_flag(sum, family->output_bias));
    if (family->positions)
        kvb_matrix_add(sum, KVB_PART_OTHER, 1, kvb_field(sum, family->positions), h);
    if (family->norms)
        kvb_vector_add(sum, KVB_PART_NORMS, sum->layers * family->norms + 1, norm); /* and one before the output */
    if (!family->shares_attention)
        kvb_attention_add(sum, family);
    if (family->mixer)
        family->mixer(sum);
    if (family->feed)
        kvb_feed_add(sum, family->feed);
    if (family->extras)
        family->extras(sum);
}

static uint64_t plain_bytes(kvb_part part, uint64_t rows, uint64_t cols, uint64_t element)
{
    (void)part;
    return rows * cols * element;
}

/* What the config has beside the language model. */
static void left_out(const kvb_weights_sum *sum, char *text, size_t n)
{
    const bool towers = sum->model->architecture && strstr(sum->model->architecture, "ForConditionalGeneration");
    text[0] = '\0';
    if (towers || sum->model->mtp_layers)
        snprintf(text, n, "without %s%s%s", towers ? "vision or audio towers" : "",
                 towers && sum->model->mtp_layers ? " and " : "",
                 sum->model->mtp_layers ? "layers for multi-token prediction" : "");
}

int kvb_parameters_read(const json_t *config, const kvb_model *model, kvb_parameters *out)
{
    kvb_weights_sum sum = {.config = config, .model = model, .tensor_bytes = plain_bytes};
    memset(out, 0, sizeof *out);
    sum_run(&sum);
    uint64_t total = 0;
    for (int i = 0; i < KVB_PARTS; i++)
        if (__builtin_add_overflow(total, sum.parts[i], &total))
            kvb_sum_stop(&sum, -EOVERFLOW, "weights: their number overflows 64 bits");
    if (sum.err) {
        snprintf(out->why, sizeof out->why, "%s", sum.why);
        return sum.err == -ENOENT ? 0 : sum.err;
    }
    const uint64_t *p = sum.parts;
    *out = (kvb_parameters){.known = true,
                            .embedding = p[KVB_PART_EMBEDDING],
                            .output = p[KVB_PART_OUTPUT],
                            .attention = p[KVB_PART_ATTENTION],
                            .mixer = p[KVB_PART_MIXER],
                            .dense = p[KVB_PART_DENSE],
                            .experts = p[KVB_PART_EXPERTS],
                            .shared_experts = p[KVB_PART_SHARED],
                            .router = p[KVB_PART_ROUTER],
                            .norms = p[KVB_PART_NORMS],
                            .other = p[KVB_PART_OTHER],
                            .total = total};
    left_out(&sum, out->why, sizeof out->why);
    return 0;
}

/* ---- as published ---------------------------------------------------------------------------------------------- */

/* DeepSeek-V3's README_WEIGHTS.md: every matrix but embedding, output and router is e4m3 with an f32 scale for each block of
 * 128 x 128; the router's bias is f32. */
static uint64_t fp8_block_bytes(kvb_part part, uint64_t rows, uint64_t cols, uint64_t element)
{
    const bool vector = rows == 1;
    if (part == KVB_PART_ROUTER && vector)
        return cols * 4;
    if (vector || part == KVB_PART_EMBEDDING || part == KVB_PART_OUTPUT || part == KVB_PART_ROUTER)
        return rows * cols * element;
    return rows * cols + 4 * ((rows + 127) / 128) * ((cols + 127) / 128);
}

/* gpt-oss's model card: the experts' matrices are MXFP4, 16 bytes of codes and one of scale for 32 elements of a row. */
static uint64_t mxfp4_experts_bytes(kvb_part part, uint64_t rows, uint64_t cols, uint64_t element)
{
    return part == KVB_PART_EXPERTS && rows > 1 ? rows * ((cols + 31) / 32) * 17 : rows * cols * element;
}

static const struct method {
    const char *quant_method, *types; /* of models for which it is known what it covers */
    int64_t block;                    /* weight_block_size; 0: none */
    kvb_tensor_bytes tensor_bytes;    /* what it does not cover is bf16 */
} methods[] = {
    {"fp8", " deepseek_v3 deepseek_v32 kimi_k2 ", 128, fp8_block_bytes},
    {"mxfp4", " gpt_oss ", 0, mxfp4_experts_bytes},
};

static kvb_tensor_bytes method_find(kvb_weights_sum *sum, const json_t *quantization)
{
    const char *name = json_string_value(json_object_get(quantization, "quant_method"));
    const json_t *block = json_object_get(quantization, "weight_block_size");
    char type[64];
    snprintf(type, sizeof type, " %s ", sum->model->type ? sum->model->type : "");
    for (size_t i = 0; name && i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].quant_method, name) == 0 && strstr(methods[i].types, type) &&
            json_integer_value(json_array_get(block, 0)) == methods[i].block &&
            json_integer_value(json_array_get(block, 1)) == methods[i].block)
            return methods[i].tensor_bytes;
    kvb_sum_stop(sum, -ENOTSUP, "quantization_config (%.20s): which tensors it covers is not known for this model",
                 name ? name : "no quant_method");
    return plain_bytes;
}

int kvb_weights_published(const json_t *config, const kvb_model *model, uint64_t *bytes, char *why, size_t why_bytes)
{
    kvb_weights_sum sum = {.config = config, .model = model, .tensor_bytes = plain_bytes};
    const char *dtype = model->dtype;
    sum.element = strcmp(dtype, "f32") == 0 ? 4 : 2; /* 16 bits too where no dtype is named: the model's notes say so */
    const json_t *quantization = kvb_field_find(&sum, "quantization_config");
    if (quantization) {
        sum.tensor_bytes = method_find(&sum, quantization);
        sum.element = 2;
    }
    if (!sum.err)
        sum_run(&sum);
    *bytes = sum.bytes;
    if (sum.err)
        snprintf(why, why_bytes, "%s", sum.why);
    return sum.err == -ENOENT ? -ENOTSUP : sum.err;
}
