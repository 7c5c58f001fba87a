/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of GGUF files (ggml-org/ggml docs/gguf.md): bytes of tensors, and the metadata as a config. */
#include "harness/size/weights.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "workloads/files.h"

/* Elements and bytes of a block, by ggml's number of the type (ggml.h, ggml_type; gguf-py/gguf/constants.py,
 * GGML_QUANT_SIZES). */
static const struct {
    uint16_t elements, bytes;
} types[] = {
    [0] = {1, 4},      /* F32 */
    [1] = {1, 2},      /* F16 */
    [2] = {32, 18},    /* Q4_0 */
    [3] = {32, 20},    /* Q4_1 */
    [6] = {32, 22},    /* Q5_0 */
    [7] = {32, 24},    /* Q5_1 */
    [8] = {32, 34},    /* Q8_0 */
    [9] = {32, 36},    /* Q8_1 */
    [10] = {256, 84},  /* Q2_K */
    [11] = {256, 110}, /* Q3_K */
    [12] = {256, 144}, /* Q4_K */
    [13] = {256, 176}, /* Q5_K */
    [14] = {256, 210}, /* Q6_K */
    [15] = {256, 292}, /* Q8_K */
    [16] = {256, 66},  /* IQ2_XXS */
    [17] = {256, 74},  /* IQ2_XS */
    [18] = {256, 98},  /* IQ3_XXS */
    [19] = {256, 50},  /* IQ1_S */
    [20] = {32, 18},   /* IQ4_NL */
    [21] = {256, 110}, /* IQ3_S */
    [22] = {256, 82},  /* IQ2_S */
    [23] = {256, 136}, /* IQ4_XS */
    [24] = {1, 1},     /* I8 */
    [25] = {1, 2},     /* I16 */
    [26] = {1, 4},     /* I32 */
    [27] = {1, 8},     /* I64 */
    [28] = {1, 8},     /* F64 */
    [29] = {256, 56},  /* IQ1_M */
    [30] = {1, 2},     /* BF16 */
    [34] = {256, 54},  /* TQ1_0 */
    [35] = {256, 66},  /* TQ2_0 */
    [39] = {32, 17},   /* MXFP4 */
};

enum { FLOAT = 6, BOOL = 7, STRING = 8, ARRAY = 9, UINT64 = 10, INT64 = 11 }; /* types of the metadata */
enum { ARRAYS_MOST = 4, DIMS_MOST = 4, WORD_MOST = 256, LIST_MOST = 4096 };
/* Bytes of a value of the metadata, by its type; 0: a string or an array. */
static const uint8_t value_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

typedef struct reader {
    FILE *file;
    uint64_t left; /* unread bytes of the file */
    bool cut;      /* a read passed the end */
} reader;

/* A little-endian number of n bytes; 0 after the end. */
static uint64_t number_read(reader *r, uint32_t n)
{
    uint8_t bytes[8] = {0};
    uint64_t number = 0;

    r->cut = r->cut || r->left < n || fread(bytes, 1, n, r->file) != n;
    r->left -= r->cut ? 0 : n;
    for (uint32_t i = 0; i < n && !r->cut; i++)
        number |= (uint64_t)bytes[i] << 8 * i;
    return number;
}

static void skip(reader *r, uint64_t n)
{
    r->cut = r->cut || n > r->left || fseeko(r->file, (off_t)n, SEEK_CUR) != 0;
    r->left -= r->cut ? 0 : n;
}

/* Reads an integer of a type of the metadata, with its sign. */
static json_t *integer_read(reader *r, uint64_t type)
{
    uint64_t number = number_read(r, value_bytes[type]);
    const bool is_signed = type < FLOAT ? type % 2 : type == INT64;

    if (is_signed && value_bytes[type] < 8 && number >> (8 * value_bytes[type] - 1))
        number |= UINT64_MAX << 8 * value_bytes[type];
    return json_integer((json_int_t)number);
}

static bool is_integer(uint64_t type)
{
    return type < FLOAT || type == BOOL || type == UINT64 || type == INT64;
}

static bool value_read(reader *r, uint64_t type, uint32_t depth, json_t **value);

static bool array_read(reader *r, uint32_t depth, json_t **value)
{
    uint64_t of = number_read(r, 4), n = number_read(r, 8);
    bool kept = value && is_integer(of) && n <= LIST_MOST;

    if (value)
        *value = kept ? json_array() : json_integer((json_int_t)(n < INT32_MAX ? n : INT32_MAX));
    if (!kept && of < sizeof value_bytes && value_bytes[of]) {
        skip(r, n > r->left ? UINT64_MAX : n * value_bytes[of]);
        return true;
    }
    for (; n > 0 && !r->cut; n--)
        if (kept)
            json_array_append_new(*value, integer_read(r, of));
        else if (!value_read(r, of, depth + 1, NULL))
            return false;
    return true;
}

/* Reads integers, words, lists of integers, lengths of other lists, and floats, which can define a shape. *value is NULL for
 * other types. value NULL: skips the value. False: the type is unknown, or arrays are nested too deeply. */
static bool value_read(reader *r, uint64_t type, uint32_t depth, json_t **value)
{
    char word[WORD_MOST];

    if (value)
        *value = NULL;
    if (type >= sizeof value_bytes || depth > ARRAYS_MOST)
        return false;
    if (type == ARRAY)
        return array_read(r, depth, value);
    if (type == STRING) {
        uint64_t n = number_read(r, 8);

        if (!value || n >= sizeof word) {
            skip(r, n);
            return true;
        }
        r->cut = r->cut || n > r->left || fread(word, 1, n, r->file) != n;
        r->left -= r->cut ? 0 : n;
        *value = r->cut ? NULL : json_stringn(word, n);
    } else if (value && is_integer(type)) {
        *value = integer_read(r, type);
    } else if (value && type == FLOAT) {
        const uint32_t bits = (uint32_t)number_read(r, 4);
        float number;

        memcpy(&number, &bits, sizeof number);
        *value = json_real((double)number);
    } else {
        skip(r, value_bytes[type]);
    }
    return true;
}

/* Adds the bytes of one tensor, and its entry to `tensors`; its offset counts from the end of the header. tensors NULL: no
 * entry. */
static int tensor_add(reader *r, const char *path, uint64_t *bytes, json_t *tensors, char *why, size_t why_bytes)
{
    uint64_t elements = 1, first = 1, more;
    json_t *name;

    value_read(r, STRING, 0, &name);
    uint64_t dims = number_read(r, 4);
    bool fits = dims <= DIMS_MOST;

    for (uint64_t i = 0; i < dims && fits && !r->cut; i++) {
        const uint64_t n = number_read(r, 8);

        first = i ? first : n;
        fits = !__builtin_mul_overflow(elements, n, &elements);
    }
    uint64_t type = number_read(r, 4), offset = number_read(r, 8);

    if (tensors && name)
        json_object_set_new(
            tensors, json_string_value(name),
            json_pack("[I, I, I, I]", (json_int_t)type, (json_int_t)offset, (json_int_t)first, (json_int_t)elements));
    json_decref(name);
    if (r->cut)
        return 0;
    if (!fits)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: a tensor of more than %d dimensions or 64 bits", path,
                           DIMS_MOST);
    if (type >= sizeof types / sizeof *types || !types[type].elements)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: a tensor of type %llu, of a size that is not known", path,
                           (unsigned long long)type);
    if (elements % types[type].elements)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: a tensor of %llu elements, but its type has blocks of %u",
                           path, (unsigned long long)elements, types[type].elements);
    if (__builtin_mul_overflow(elements / types[type].elements, types[type].bytes, &more) ||
        __builtin_add_overflow(*bytes, more, bytes))
        return kvb_why_set(-EOVERFLOW, why, why_bytes, "%s: the sum of its tensors overflows 64 bits", path);
    return 0;
}

/* Reads a header: metadata and tensors into objects, unless NULL, and the sum of the tensors' bytes. */
static int header_read(reader *r, const char *path, json_t *metadata, json_t *tensors, uint64_t *bytes, char *why,
                       size_t why_bytes)
{
    uint64_t magic = number_read(r, 4), version = number_read(r, 4), count = number_read(r, 8),
             pairs = number_read(r, 8);
    int error = 0;

    if (magic != 0x46554747 || version < 2 || version > 3)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: no GGUF file of version 2 or 3", path);
    for (; pairs > 0 && !r->cut; pairs--) {
        json_t *key, *value = NULL;
        bool good = value_read(r, STRING, 0, &key);
        uint64_t type = number_read(r, 4);

        if (!r->cut)
            good = good && value_read(r, type, 0, metadata && key ? &value : NULL);
        if (value)
            json_object_set_new(metadata, json_string_value(key), value);
        json_decref(key);
        if (!r->cut && !good)
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: metadata of type %llu, which is not known", path,
                               (unsigned long long)type);
    }
    for (; count > 0 && !r->cut && !error; count--)
        error = tensor_add(r, path, bytes, tensors, why, why_bytes);
    return !error && r->cut ? kvb_why_set(-EINVAL, why, why_bytes, "%s: its header is cut", path) : error;
}

int kvb_gguf_read(const char *path, json_t *metadata, json_t *tensors, uint64_t *bytes, char *why, size_t why_bytes)
{
    reader r = {.file = fopen(path, "rb")};
    off_t end = -1;

    if (r.file && fseeko(r.file, 0, SEEK_END) == 0 && (end = ftello(r.file)) >= 0)
        rewind(r.file);
    int error = end < 0 ? kvb_why_set(-EINVAL, why, why_bytes, "%s: %s", path, strerror(errno)) : 0;

    r.left = end < 0 ? 0 : (uint64_t)end;
    if (!error)
        error = header_read(&r, path, metadata, tensors, bytes, why, why_bytes);
    const off_t header = error ? 0 : ftello(r.file);
    const json_int_t align = json_integer_value(json_object_get(metadata, "general.alignment"));
    const json_int_t step = align > 0 ? align : 32, start = (header + step - 1) / step * step;
    const char *name;
    json_t *tensor;
    json_object_foreach(tensors, name, tensor)
    {
        json_array_set_new(tensor, 1, json_integer(start + json_integer_value(json_array_get(tensor, 1))));
    }
    if (r.file)
        fclose(r.file);
    return error;
}

/* ---- the metadata as a config.json ------------------------------------------------------------------------------- */

/* The keys are defined in llama.cpp's gguf-py/gguf/constants.py, and their meaning for a config in its conversion/MODEL.py.
 * The family's row then reads the config. A period of windows that is in the code of llama.cpp (src/models/MODEL.cpp) comes
 * from that row. */

/* Values of general.architecture that are the model type, too. */
static const char types_same[] =
    "llama qwen2 qwen3 gemma gemma2 phi3 cohere2 olmo olmo2 olmoe stablelm starcoder2 deepseek glm4 "
    "granite granitemoe mamba mamba2 nemotron exaone4 smollm3 seed_oss internlm2 gpt2 bloom orion arcee";

/* The others, the model type, and the kind of a layer without KV heads. */
static const struct {
    const char *architecture, *type, *without;
} types_of[] = {
    {"qwen2moe", "qwen2_moe", NULL},
    {"qwen3moe", "qwen3_moe", NULL},
    {"qwen3vl", "qwen3_vl_text", NULL},
    {"qwen3vlmoe", "qwen3_vl_moe_text", NULL},
    {"qwen3next", "qwen3_next", NULL},
    {"qwen35", "qwen3_5_text", NULL},
    {"qwen35moe", "qwen3_5_moe_text", NULL},
    {"gemma3", "gemma3_text", NULL},
    {"gemma3n", "gemma3n_text", NULL},
    {"gemma4", "gemma4_text", NULL},
    {"phi2", "phi", NULL},
    {"gpt-oss", "gpt_oss", NULL},
    {"command-r", "cohere", NULL},
    {"deepseek2", "deepseek_v3", NULL},
    {"glm4moe", "glm4_moe", NULL},
    {"granitehybrid", "granitemoehybrid", "mamba"},
    {"jamba", "jamba", "mamba"},
    {"falcon-h1", "falcon_h1", NULL},
    {"nemotron_h", "nemotron_h", "mamba"},
    {"nemotron_h_moe", "nemotron_h", "mamba"},
    {"lfm2", "lfm2", "conv"},
    {"lfm2moe", "lfm2_moe", "conv"},
    {"minimax-m2", "minimax_m2", NULL},
    {"gptneox", "gpt_neox", NULL},
};

/* A field of the config, a key, and a key to divide it by. types: for these models only. */
static const struct field {
    const char *types, *key, *field, *by;
} fields[] = {
    {NULL, "context_length", "max_position_embeddings", NULL},
    {NULL, "embedding_length", "hidden_size", NULL},
    {NULL, "vocab_size", "vocab_size", NULL},
    {NULL, "nextn_predict_layers", "num_nextn_predict_layers", NULL},
    {NULL, "attention.head_count", "num_attention_heads", NULL},
    {NULL, "attention.sliding_window", "sliding_window", NULL},
    {NULL, "attention.kv_lora_rank", "kv_lora_rank", NULL},
    {NULL, "attention.q_lora_rank", "q_lora_rank", NULL},
    {NULL, "attention.shared_kv_layers", "num_kv_shared_layers", NULL},
    {NULL, "attention.value_length_mla", "v_head_dim", NULL},
    {NULL, "full_attention_interval", "full_attention_interval", NULL},
    {NULL, "shortconv.l_cache", "conv_L_cache", NULL},
    {"deepseek_v3", "rope.dimension_count", "qk_rope_head_dim", NULL},
    {"gemma4_text", "attention.key_length", "global_head_dim", NULL},
    {"gemma4_text", "attention.key_length_swa", "head_dim", NULL},
    {"mamba", "ssm.inner_size", "intermediate_size", NULL},
    {"mamba mamba2", "ssm.state_size", "state_size", NULL},
    {"mamba mamba2 nemotron_h", "ssm.conv_kernel", "conv_kernel", NULL},
    {"mamba2", "ssm.time_step_rank", "num_heads", NULL},
    {"mamba2", "ssm.inner_size", "head_dim", "ssm.time_step_rank"},
    {"mamba2", "ssm.inner_size", "expand", "embedding_length"},
    {"mamba2 nemotron_h", "ssm.group_count", "n_groups", NULL},
    {"nemotron_h", "ssm.time_step_rank", "mamba_num_heads", NULL},
    {"nemotron_h", "ssm.inner_size", "mamba_head_dim", "ssm.time_step_rank"},
    {"nemotron_h", "ssm.state_size", "ssm_state_size", NULL},
    {"granitemoehybrid jamba", "ssm.inner_size", "mamba_expand", "embedding_length"},
    {"granitemoehybrid falcon_h1", "ssm.time_step_rank", "mamba_n_heads", NULL},
    {"granitemoehybrid falcon_h1", "ssm.inner_size", "mamba_d_head", "ssm.time_step_rank"},
    {"granitemoehybrid falcon_h1", "ssm.group_count", "mamba_n_groups", NULL},
    {"granitemoehybrid falcon_h1 jamba", "ssm.state_size", "mamba_d_state", NULL},
    {"granitemoehybrid falcon_h1 jamba", "ssm.conv_kernel", "mamba_d_conv", NULL},
    {"falcon_h1", "ssm.inner_size", "mamba_d_ssm", NULL},
    {"qwen3_next qwen3_5_text qwen3_5_moe_text", "ssm.conv_kernel", "linear_conv_kernel_dim", NULL},
    {"qwen3_next qwen3_5_text qwen3_5_moe_text", "ssm.state_size", "linear_key_head_dim", NULL},
    {"qwen3_next qwen3_5_text qwen3_5_moe_text", "ssm.group_count", "linear_num_key_heads", NULL},
    {"qwen3_next qwen3_5_text qwen3_5_moe_text", "ssm.time_step_rank", "linear_num_value_heads", NULL},
    {"qwen3_next qwen3_5_text qwen3_5_moe_text", "ssm.inner_size", "linear_value_head_dim", "ssm.time_step_rank"},
};

/* Keys of attention and of states that are read elsewhere, or change no size. Any other one is refused. */
static const char inert[] =
    "attention.head_count_kv attention.key_length attention.value_length attention.value_length_swa "
    "attention.key_length_mla attention.sliding_window_pattern attention.layer_norm_epsilon "
    "attention.layer_norm_rms_epsilon attention.group_norm_epsilon attention.group_norm_groups attention.causal "
    "attention.scale attention.output_scale attention.value_scale attention.clamp_kqv attention.max_alibi_bias "
    "attention.temperature_length attention.temperature_scale ssm.dt_b_c_rms ssm.time_step_rank";

typedef struct naming {
    const json_t *metadata;
    const char *architecture, *type;
    size_t layers;
} naming;

static const json_t *key_get(const naming *n, const char *key)
{
    char full[WORD_MOST + 64];

    snprintf(full, sizeof full, "%s.%s", n->architecture, key);
    return json_object_get(n->metadata, full);
}

/* The number of a key; 0: absent, or a list. */
static json_int_t key_number(const naming *n, const char *key)
{
    return json_integer_value(key_get(n, key));
}

/* A layer's number in a key that holds a list, or one number for all layers. */
static json_int_t layer_number(const naming *n, const char *key, size_t layer)
{
    const json_t *value = key_get(n, key);

    return json_integer_value(json_is_array(value) ? json_array_get(value, layer) : value);
}

static void fields_fill(const naming *n, json_t *config)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct field *f = &fields[i];
        const json_int_t by = f->by ? key_number(n, f->by) : 1, number = key_number(n, f->key);

        if ((!f->types || kvb_names_have(f->types, n->type)) && json_is_integer(key_get(n, f->key)) && by > 0)
            json_object_set_new(config, f->field, number % by ? json_null() : json_integer(number / by));
    }
}

/* Fills in KV heads, and the kinds of layers if lists give them. */
static void layers_fill(const naming *n, const char *without, json_t *config)
{
    json_t *kinds = json_array();
    const bool lists = json_is_array(key_get(n, "attention.head_count_kv")) && without;
    const bool windows = json_is_array(key_get(n, "attention.sliding_window_pattern"));

    for (size_t i = 0; i < n->layers; i++) {
        const json_int_t heads = layer_number(n, "attention.head_count_kv", i);
        const bool window = windows && layer_number(n, "attention.sliding_window_pattern", i);
        const bool feeds = !heads && strcmp(n->type, "nemotron_h") == 0 && layer_number(n, "feed_forward_length", i);

        if (heads)
            json_object_set_new(config,
                                windows && !window && strcmp(n->type, "gemma4_text") == 0 ? "num_global_key_value_heads"
                                                                                          : "num_key_value_heads",
                                json_integer(heads));
        json_array_append_new(kinds, json_string(feeds               ? "mlp"
                                                 : !heads && without ? without
                                                 : window            ? "sliding_attention"
                                                                     : "full_attention"));
    }
    if (lists || windows)
        json_object_set(config, "layer_types", kinds);
    if (strcmp(n->type, "gemma4_text") == 0)
        json_object_set_new(config, "attention_k_eq_v",
                            json_boolean(json_object_get(config, "num_global_key_value_heads") != NULL));
    json_decref(kinds);
}

/* Checks that all layers have equal rows, and V's are as wide as K's, as a config cannot express anything else. NULL: they
 * are; else the key that differs. */
static const char *uneven(const naming *n)
{
    const bool latent = key_get(n, "attention.kv_lora_rank") != NULL;
    json_int_t heads[2] = {0};

    if (!latent && key_number(n, "attention.value_length") != key_number(n, "attention.key_length"))
        return "attention.value_length";
    for (size_t i = 0; i < n->layers; i++) {
        const bool window = layer_number(n, "attention.sliding_window_pattern", i);
        const bool own = strcmp(n->type, "gemma4_text") == 0 && window;
        const json_int_t here = layer_number(n, "attention.head_count_kv", i);

        if (here && heads[own] && heads[own] != here)
            return "attention.head_count_kv";
        heads[own] = here ? here : heads[own];
    }
    return NULL;
}

/* A key of attention or of states that this file does not read; NULL: there is none. */
static const char *unread(const naming *n)
{
    const size_t prefix = strlen(n->architecture) + 1;
    const char *key;
    const json_t *value;

    json_object_foreach((json_t *)n->metadata, key, value)
    {
        bool known = json_is_real(value) || strncmp(key, n->architecture, prefix - 1) != 0 || key[prefix - 1] != '.';
        const char *own = known ? "" : key + prefix;

        known = known || (strncmp(own, "attention.", 10) != 0 && strncmp(own, "ssm.", 4) != 0 &&
                          strncmp(own, "wkv.", 4) != 0 && strncmp(own, "kda.", 4) != 0);
        for (size_t i = 0; i < sizeof fields / sizeof *fields && !known; i++)
            known = strcmp(fields[i].key, own) == 0;
        if (!known && !kvb_names_have(inert, own))
            return key;
    }
    return NULL;
}

static int config_make(const json_t *metadata, const char *path, json_t *config, char *why, size_t why_bytes)
{
    naming n = {.metadata = metadata,
                .architecture = json_string_value(json_object_get(metadata, "general.architecture"))};
    const char *without = NULL, *bad;

    if (n.architecture && kvb_names_have(types_same, n.architecture))
        n.type = n.architecture;
    for (size_t i = 0; n.architecture && i < sizeof types_of / sizeof *types_of; i++)
        if (strcmp(types_of[i].architecture, n.architecture) == 0) {
            n.type = types_of[i].type;
            without = types_of[i].without;
        }
    if (!n.type)
        return kvb_why_set(-ENOTSUP, why, why_bytes,
                           "%s: general.architecture: \"%.60s\" is not known; nothing is guessed", path,
                           n.architecture ? n.architecture : "");
    if (strcmp(n.type, "olmo2") == 0 && key_number(&n, "attention.sliding_window"))
        n.type = "olmo3";
    const json_int_t blocks = key_number(&n, "block_count"), more = key_number(&n, "nextn_predict_layers");
    if (blocks < 1 || blocks > LIST_MOST || more < 0 || more >= blocks)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: %s.block_count: a number of layers up to %d was expected",
                           path, n.architecture, LIST_MOST);
    n.layers = (size_t)(blocks - more);
    if ((bad = uneven(&n)))
        return kvb_why_set(-ENOTSUP, why, why_bytes, "%s: %s.%s: no architecture here has layers of such shapes", path,
                           n.architecture, bad);
    if ((bad = unread(&n)))
        return kvb_why_set(-ENOTSUP, why, why_bytes, "%s: %.80s: its meaning is not known", path, bad);
    json_object_set_new(config, "model_type", json_string(n.type));
    json_object_set_new(config, "num_hidden_layers", json_integer((json_int_t)n.layers));
    const json_t *width = key_get(&n, "feed_forward_length");
    if (json_is_array(width) || json_integer_value(width) > 0)
        json_object_set(config, "intermediate_size", (json_t *)width);
    const json_t *tokens = json_object_get(metadata, "tokenizer.ggml.tokens");
    if (json_is_integer(tokens) && json_integer_value(tokens))
        json_object_set(config, "vocab_size", (json_t *)tokens);
    if (key_get(&n, "attention.kv_lora_rank"))
        json_object_set_new(
            config, "qk_nope_head_dim",
            json_integer(key_number(&n, "attention.key_length_mla") - key_number(&n, "rope.dimension_count")));
    else if (key_number(&n, "attention.key_length"))
        json_object_set_new(config, "head_dim", json_integer(key_number(&n, "attention.key_length")));
    fields_fill(&n, config);
    layers_fill(&n, without, config);
    return 0;
}

int kvb_gguf_config(const char *path, json_t **config, char *why, size_t why_bytes)
{
    json_t *metadata = json_object();
    uint64_t bytes = 0;

    *config = json_object();
    int error = metadata && *config ? kvb_gguf_read(path, metadata, NULL, &bytes, why, why_bytes) : -ENOMEM;
    error = error ? error : config_make(metadata, path, *config, why, why_bytes);
    if (error == -ENOMEM)
        kvb_why_set(error, why, why_bytes, "%s: no memory", path);
    json_decref(metadata);
    return error;
}
