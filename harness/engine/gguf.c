/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeded models in GGUF version 3, f32, without a vocabulary, so small that a decode takes a fraction of a millisecond.
 * An architecture is a list of keys and a list of tensors. Sizes are letters; a family's row has their values.
 */
#include "harness/engine/engine.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/size/model.h"
#include "workloads/rng.h"

enum { VOCAB = 128, ALIGN = 32, FFN = 64, RANK = 64, LATENT = 128, STATE = 32 };

const kvb_gguf_family kvb_gguf_families[] = {
    {"llama", "llama", "one layer, GQA, heads of 64", 1, 64, 4, 2, 64, 64, 0},
    {"llama-96", "llama", "one layer, heads of 96", 1, 64, 2, 1, 96, 96, 0},
    {"llama-128", "llama", "one layer, heads of 128", 1, 64, 2, 2, 128, 128, 0},
    {"llama-deep", "llama", "three layers", 3, 64, 4, 2, 64, 64, 0},
    {"windows", "gemma3", "one layer with a window of 32 (Gemma 3)", 1, 64, 2, 1, 64, 64, 32},
    {"windows-deep", "gemma3", "six layers, the last without a window", 6, 64, 2, 1, 64, 64, 32},
    {"latent", "deepseek2", "one layer of latent rows (DeepSeek)", 1, 64, 2, 1, 96, 32, 0},
    {"latent-deep", "deepseek2", "three layers of latent rows", 3, 64, 2, 1, 96, 32, 0},
    {"hybrid", "lfm2", "a convolution's layer and one that attends (LFM2)", 2, 128, 2, 1, 64, 64, 0},
    {"delta", "qwen35", "a gated delta layer and one that attends, part rotary (Qwen3.5)", 2, 64, 2, 1, 64, 32, 0},
    {0},
};

/* A size is a letter of size_of(). layers: 'a' all, 't' those that attend, 'r' those that do not, 'm' none: a tensor of
 * the model. */
typedef struct tensor_row {
    const char *arch; /* names of architectures */
    char layers;
    const char *name;
    const char *size; /* fastest axis first, over which products are summed */
    float gain;       /* of random values; 0: a norm's weights, near 1 */
} tensor_row;

#define ATTENDS "llama gemma3 deepseek2 lfm2 qwen35"
static const tensor_row tensors[] = {
    {ATTENDS, 'm', "token_embd.weight", "EV", 1},
    {"llama gemma3 deepseek2 qwen35", 'm', "output_norm.weight", "E", 0},
    {"lfm2", 'm', "token_embd_norm.weight", "E", 0},
    {"llama gemma3 deepseek2 lfm2 qwen35", 'm', "output.weight", "EV", 1},
    {ATTENDS, 'a', "attn_norm.weight", "E", 0},
    {"llama gemma3 lfm2", 't', "attn_q.weight", "EH", 1.5f},
    {"qwen35", 't', "attn_q.weight", "E2", 1.5f}, /* q, and a gate of the output */
    {"llama gemma3 lfm2 qwen35", 't', "attn_k.weight", "EG", 1.5f},
    {"llama gemma3 lfm2 qwen35", 't', "attn_v.weight", "EG", 1},
    {"llama gemma3 lfm2 qwen35", 't', "attn_output.weight", "HE", 2},
    {"gemma3 lfm2 qwen35", 't', "attn_q_norm.weight", "D", 0},
    {"gemma3 lfm2 qwen35", 't', "attn_k_norm.weight", "D", 0},
    {"gemma3 qwen35", 'a', "post_attention_norm.weight", "E", 0},
    {"gemma3", 'a', "post_ffw_norm.weight", "E", 0},
    {"deepseek2", 'a', "attn_q_a.weight", "EQ", 1},
    {"deepseek2", 'a', "attn_q_a_norm.weight", "Q", 0},
    {"deepseek2", 'a', "attn_q_b.weight", "QH", 1.5f},
    {"deepseek2", 'a', "attn_kv_a_mqa.weight", "EX", 1.5f},
    {"deepseek2", 'a', "attn_kv_a_norm.weight", "L", 0},
    {"deepseek2", 'a', "attn_k_b.weight", "NLh", 1},
    {"deepseek2", 'a', "attn_v_b.weight", "LDh", 1},
    {"deepseek2", 'a', "attn_output.weight", "HE", 2},
    {"lfm2", 'r', "shortconv.conv.weight", "3E", 1},
    {"lfm2", 'r', "shortconv.in_proj.weight", "EI", 1},
    {"lfm2", 'r', "shortconv.out_proj.weight", "EE", 2},
    {"qwen35", 'r', "attn_qkv.weight", "EC", 1.5f},
    {"qwen35", 'r', "attn_gate.weight", "ES", 1},
    {"qwen35", 'r', "ssm_conv1d.weight", "4C", 1},
    {"qwen35", 'r', "ssm_dt.bias", "h", 1},
    {"qwen35", 'r', "ssm_a", "h", -1},
    {"qwen35", 'r', "ssm_beta.weight", "Eh", 1},
    {"qwen35", 'r', "ssm_alpha.weight", "Eh", 1},
    {"qwen35", 'r', "ssm_norm.weight", "s", 0},
    {"qwen35", 'r', "ssm_out.weight", "SE", 2},
    {"llama gemma3 deepseek2 lfm2", 'a', "ffn_norm.weight", "E", 0},
    {ATTENDS, 'a', "ffn_gate.weight", "EF", 1},
    {ATTENDS, 'a', "ffn_up.weight", "EF", 1},
    {ATTENDS, 'a', "ffn_down.weight", "FE", 0.5f},
};

static uint64_t size_of(char letter, const kvb_gguf_family *f)
{
    const uint64_t states = (uint64_t)f->heads * STATE, queries = (uint64_t)f->heads * f->dim;
    const uint64_t sizes[128] = {['2'] = 2 * queries,
                                 ['3'] = 3,
                                 ['4'] = 4,
                                 ['B'] = f->layers,
                                 ['C'] = 3 * states,
                                 ['D'] = f->dim,
                                 ['E'] = f->hidden,
                                 ['F'] = FFN,
                                 ['G'] = (uint64_t)f->kv_heads * f->dim,
                                 ['H'] = queries,
                                 ['I'] = 3ull * f->hidden,
                                 ['L'] = LATENT,
                                 ['N'] = f->dim - f->rope,
                                 ['Q'] = RANK,
                                 ['R'] = f->rope,
                                 ['S'] = states,
                                 ['V'] = VOCAB,
                                 ['W'] = f->window,
                                 ['X'] = LATENT + f->rope,
                                 ['h'] = f->heads,
                                 ['k'] = f->kv_heads,
                                 ['s'] = STATE};
    return sizes[(unsigned char)letter];
}

/* A key. type: 'u' a number, 'f' a float, 'l' a number for each layer (0 if it does not attend), 's' sections. */
typedef struct key_row {
    const char *arch, *name;
    char type, size; /* size: a letter; '.': `value` */
    double value;
} key_row;

static const key_row keys[] = {
    {ATTENDS, "vocab_size", 'u', 'V', 0},
    {ATTENDS, "context_length", 'u', '.', 4096},
    {ATTENDS, "embedding_length", 'u', 'E', 0},
    {ATTENDS, "block_count", 'u', 'B', 0},
    {ATTENDS, "feed_forward_length", 'u', 'F', 0},
    {ATTENDS, "attention.head_count", 'u', 'h', 0},
    {"llama gemma3 deepseek2 qwen35", "attention.head_count_kv", 'u', 'k', 0},
    {"lfm2", "attention.head_count_kv", 'l', 'k', 0},
    {ATTENDS, "attention.layer_norm_rms_epsilon", 'f', '.', 1e-5},
    {ATTENDS, "rope.dimension_count", 'u', 'R', 0},
    {ATTENDS, "rope.freq_base", 'f', '.', 10000},
    {"llama gemma3 lfm2 qwen35", "attention.key_length", 'u', 'D', 0},
    {"llama gemma3 lfm2 qwen35", "attention.value_length", 'u', 'D', 0},
    {"gemma3", "attention.sliding_window", 'u', 'W', 0},
    {"deepseek2", "attention.key_length", 'u', 'X', 0},
    {"deepseek2", "attention.value_length", 'u', 'L', 0},
    {"deepseek2", "attention.key_length_mla", 'u', 'D', 0},
    {"deepseek2", "attention.value_length_mla", 'u', 'D', 0},
    {"deepseek2", "attention.q_lora_rank", 'u', 'Q', 0},
    {"deepseek2", "attention.kv_lora_rank", 'u', 'L', 0},
    {"deepseek2", "leading_dense_block_count", 'u', 'B', 0},
    {"deepseek2", "expert_count", 'u', '.', 0},
    {"deepseek2", "expert_used_count", 'u', '.', 0},
    {"deepseek2", "expert_shared_count", 'u', '.', 0},
    {"deepseek2", "expert_feed_forward_length", 'u', 'F', 0},
    {"deepseek2", "expert_weights_scale", 'f', '.', 1},
    {"lfm2", "shortconv.l_cache", 'u', '.', 3},
    {"qwen35", "full_attention_interval", 'u', '.', 2},
    {"qwen35", "ssm.conv_kernel", 'u', '.', 4},
    {"qwen35", "ssm.inner_size", 'u', 'S', 0},
    {"qwen35", "ssm.state_size", 'u', 's', 0},
    {"qwen35", "ssm.time_step_rank", 'u', 'h', 0},
    {"qwen35", "ssm.group_count", 'u', 'h', 0},
    {"qwen35", "rope.dimension_sections", 's', '.', 0},
};

/* Does layer i attend? In families with two kinds of layers even ones scan and odd ones attend. */
static bool attends(const kvb_gguf_family *f, uint32_t layer)
{
    return !kvb_names_have("lfm2 qwen35", f->arch) || layer % 2;
}

static void put(FILE *out, const void *value, size_t bytes)
{
    fwrite(value, 1, bytes, out);
}

static void put32(FILE *out, uint32_t value)
{
    put(out, &value, sizeof value);
}

static void put64(FILE *out, uint64_t value)
{
    put(out, &value, sizeof value);
}

static void put_text(FILE *out, const char *text)
{
    put64(out, strlen(text));
    put(out, text, strlen(text));
}

enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_STRING = 8, GGUF_ARRAY = 9 };

static void put_word(FILE *out, const char *key, const char *word)
{
    put_text(out, key);
    put32(out, GGUF_STRING);
    put_text(out, word);
}

static void put_key(FILE *out, const kvb_gguf_family *f, const key_row *row)
{
    char name[96];
    const uint32_t value = (uint32_t)(row->size == '.' ? (uint64_t)row->value : size_of(row->size, f));
    snprintf(name, sizeof name, "%s.%s", f->arch, row->name);
    put_text(out, name);
    if (row->type == 'f') {
        const float real = (float)row->value;
        put32(out, GGUF_F32);
        put(out, &real, sizeof real);
    } else if (row->type == 'u') {
        put32(out, GGUF_U32);
        put32(out, value);
    } else { /* 'l': for each layer; 's': sections of the rotation, all pairs in the first */
        const uint32_t n = row->type == 'l' ? f->layers : 4;
        put32(out, GGUF_ARRAY);
        put32(out, GGUF_I32);
        put64(out, n);
        for (uint32_t i = 0; i < n; i++)
            put32(out, row->type == 'l' ? (attends(f, i) ? value : 0) : i ? 0 : f->rope / 2);
    }
}

/* One tensor of one layer, or of the model. */
typedef struct placed {
    const tensor_row *row;
    uint32_t layer;
    uint64_t size[4], n, offset;
    uint32_t dims;
} placed;

static size_t place(const kvb_gguf_family *f, placed *at)
{
    size_t n = 0;
    uint64_t offset = 0;
    for (size_t t = 0; t < sizeof tensors / sizeof *tensors; t++) {
        const tensor_row *row = &tensors[t];
        for (uint32_t layer = 0; kvb_names_have(row->arch, f->arch) && layer < (row->layers == 'm' ? 1 : f->layers);
             layer++) {
            if ((row->layers == 't' && !attends(f, layer)) || (row->layers == 'r' && attends(f, layer)))
                continue;
            placed *p = &at[n++];
            *p = (placed){.row = row, .layer = layer, .n = 1, .offset = offset};
            for (const char *s = row->size; *s; s++) {
                p->size[p->dims] = size_of(*s, f);
                p->n *= p->size[p->dims++];
            }
            offset += (p->n * sizeof(float) + ALIGN - 1) / ALIGN * ALIGN;
        }
    }
    return n;
}

static void put_values(FILE *out, const placed *p, uint64_t seed, size_t number)
{
    const uint64_t key = kvb_rng_key(seed, number);
    const double gain = p->row->gain / sqrt((double)p->size[0]);
    for (uint64_t i = 0; i < p->n; i++) {
        const double x = kvb_rng_normal((uint32_t)(kvb_rng_bits(key, i) >> 32));
        float value = (float)(p->row->gain > 0 ? (p->dims > 1 ? gain : p->row->gain) * x : 1 + 0.1 * x);
        if (p->row->gain < 0)
            value = -0.2f - 0.1f * fabsf((float)x);
        put(out, &value, sizeof value);
    }
    for (uint64_t bytes = p->n * sizeof(float); bytes % ALIGN; bytes++)
        fputc(0, out);
}

static void model_write(FILE *out, const kvb_gguf_family *f, uint64_t seed)
{
    placed at[256];
    const size_t n = place(f, at);
    uint64_t n_keys = 2;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        n_keys += kvb_names_have(keys[i].arch, f->arch);
    put(out, "GGUF", 4);
    put32(out, 3);
    put64(out, n);
    put64(out, n_keys);
    put_word(out, "general.architecture", f->arch);
    put_word(out, "tokenizer.ggml.model", "none");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (kvb_names_have(keys[i].arch, f->arch))
            put_key(out, f, &keys[i]);
    for (size_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s", at[i].layer, at[i].row->name);
        put_text(out, at[i].row->layers == 'm' ? at[i].row->name : name);
        put32(out, at[i].dims);
        for (uint32_t d = 0; d < at[i].dims; d++)
            put64(out, at[i].size[d]);
        put32(out, 0); /* f32 */
        put64(out, at[i].offset);
    }
    while (ftell(out) % ALIGN)
        fputc(0, out);
    for (size_t i = 0; i < n; i++)
        put_values(out, &at[i], seed, i);
}

int kvb_gguf_write(const kvb_gguf_family *family, uint64_t seed)
{
    char path[64];
    const int fd = memfd_create(family->name, 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    FILE *out = fd < 0 ? NULL : fopen(path, "w");
    int error = out ? 0 : -errno;
    if (out) {
        model_write(out, family, seed);
        error = ferror(out) ? -EIO : 0;
        error = fclose(out) ? -EIO : error;
    }
    if (error && fd >= 0)
        close(fd);
    return error ? error : fd;
}
