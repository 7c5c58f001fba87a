/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of layers that keep a recurrent state. Sources: the class named at each, of transformers' models. */
#include "results/sizing/weights_family.h"

#include <string.h>

/* MambaMixer, FalconMambaMixer, and JambaMambaMixer, which normalises dt, B and C. mamba_ssm names its fields otherwise; the
 * defaults are those of MambaConfig. */
static void mamba1_add(kvb_weights_sum *sum, uint64_t inner, const char *bias, bool normed)
{
    const uint64_t n = kvb_state_layers(sum), h = sum->hidden;
    const json_t *rank_field = kvb_field_find(sum, "time_step_rank mamba_dt_rank dt_rank");
    const uint64_t state = kvb_field_or(sum, "state_size mamba_d_state d_state", 16);
    const uint64_t conv = kvb_field_or(sum, "conv_kernel mamba_d_conv d_conv", 4);
    const uint64_t rank = rank_field && json_is_integer(rank_field)
                              ? kvb_field(sum, "time_step_rank mamba_dt_rank dt_rank")
                              : (h + 15) / 16; /* "auto" */
    kvb_linear_add(sum, KVB_PART_MIXER, n, h, 2 * inner, kvb_flag(sum, bias));
    kvb_linear_add(sum, KVB_PART_MIXER, n, conv, inner,
                   kvb_flag(sum, "+use_conv_bias") && kvb_flag(sum, "+mamba_conv_bias"));
    kvb_linear_add(sum, KVB_PART_MIXER, n, inner, rank + 2 * state, false);
    kvb_linear_add(sum, KVB_PART_MIXER, n, rank, inner, true);
    kvb_matrix_add(sum, KVB_PART_MIXER, n, inner, state); /* A_log */
    kvb_vector_add(sum, KVB_PART_MIXER, n, inner);        /* D */
    kvb_linear_add(sum, KVB_PART_MIXER, n, inner, h, kvb_flag(sum, bias));
    if (normed)
        kvb_vector_add(sum, KVB_PART_NORMS, n, rank + 2 * state);
}

void kvb_mamba1_add(kvb_weights_sum *sum)
{
    const uint64_t expand = kvb_field_find(sum, "intermediate_size") ? 0 : kvb_field_or(sum, "expand", 2);
    mamba1_add(sum, expand ? expand * sum->hidden : kvb_field(sum, "intermediate_size"), "use_bias", false);
}

void kvb_jamba_add(kvb_weights_sum *sum)
{
    mamba1_add(sum, kvb_field(sum, "mamba_expand") * sum->hidden, "mamba_proj_bias", true);
}

/* Mamba2Mixer, BambaMixer, GraniteMoeHybridMambaLayer, NemotronHMamba2Mixer, FalconH1Mixer, Zamba2MambaMixer: the
 * same tensors under many names of fields. */
void kvb_mamba2_add(kvb_weights_sum *sum)
{
    static const char heads_names[] = "mamba_n_heads mamba_num_heads n_mamba_heads num_heads";
    static const char dim_names[] = "mamba_d_head mamba_head_dim mamba_headdim head_dim";
    static const char expand_names[] = "mamba_expand expand expansion_factor";
    const uint64_t n = kvb_state_layers(sum), h = sum->hidden;
    const json_t *dim = kvb_field_find(sum, dim_names);
    uint64_t heads = kvb_field_or(sum, heads_names, 0), inner;
    if (heads && json_is_integer(dim))
        inner = heads * kvb_field(sum, dim_names);
    else { /* Zamba2 has no heads, Bamba may have "auto" for their size */
        inner = kvb_field(sum, expand_names) * h;
        heads = heads ? heads : inner / kvb_field(sum, dim_names);
    }
    const uint64_t groups = kvb_field(sum, "mamba_n_groups mamba_ngroups n_groups");
    const uint64_t state = kvb_field(sum, "mamba_d_state ssm_state_size state_size");
    const uint64_t conv = kvb_field(sum, "mamba_d_conv conv_kernel conv_dimension");
    const uint64_t mixed = inner + 2 * groups * state;
    const bool in_bias =
        kvb_flag(sum, "use_bias") || kvb_flag(sum, "mamba_proj_bias") || kvb_flag(sum, "add_bias_linear");
    const bool out_bias = in_bias || kvb_flag(sum, "projectors_bias");
    kvb_linear_add(sum, KVB_PART_MIXER, n, h, inner + mixed + heads, in_bias);
    kvb_linear_add(sum, KVB_PART_MIXER, n, conv, mixed,
                   kvb_flag(sum, "+use_conv_bias") && kvb_flag(sum, "+mamba_conv_bias"));
    kvb_vector_add(sum, KVB_PART_MIXER, n, 3 * heads); /* dt_bias, A_log, D */
    kvb_linear_add(sum, KVB_PART_MIXER, n, inner, h, out_bias);
    if (kvb_flag(sum, "+mamba_rms_norm"))
        kvb_vector_add(sum, KVB_PART_NORMS, n, inner);
}

/* Qwen3NextGatedDeltaNet; Qwen3_5GatedDeltaNet has the same in four projections. */
void kvb_delta_net_add(kvb_weights_sum *sum)
{
    const uint64_t n = kvb_state_layers(sum), h = sum->hidden, heads = kvb_field(sum, "linear_num_value_heads");
    const uint64_t v_dim = kvb_field(sum, "linear_value_head_dim"), v = heads * v_dim;
    const uint64_t k = kvb_field(sum, "linear_num_key_heads") * kvb_field(sum, "linear_key_head_dim");
    kvb_linear_add(sum, KVB_PART_MIXER, n, h, 2 * k + 2 * v, false); /* q, k, v, z */
    kvb_linear_add(sum, KVB_PART_MIXER, n, h, 2 * heads, false);     /* b, a */
    kvb_linear_add(sum, KVB_PART_MIXER, n, kvb_field(sum, "linear_conv_kernel_dim"), 2 * k + v, false);
    kvb_vector_add(sum, KVB_PART_MIXER, n, 2 * heads); /* dt_bias, A_log */
    kvb_linear_add(sum, KVB_PART_MIXER, n, v, h, false);
    kvb_vector_add(sum, KVB_PART_NORMS, n, v_dim);
}

/* KimiDeltaAttention, vLLM's and SGLang's kimi_linear.py: f_a and g_a are held whole by every rank. */
void kvb_kimi_delta_add(kvb_weights_sum *sum)
{
    const uint64_t n = kvb_state_layers(sum), h = sum->hidden;
    const uint64_t heads = kvb_field(sum, "linear_attn_config.num_heads");
    const uint64_t dim = kvb_field(sum, "linear_attn_config.head_dim"), all = heads * dim;
    const uint64_t conv = kvb_field(sum, "linear_attn_config.short_conv_kernel_size");
    kvb_linear_add(sum, KVB_PART_MIXER, 3 * n, h, all, false); /* q, k, v */
    kvb_linear_add(sum, KVB_PART_MIXER, 3 * n, conv, all, false);
    kvb_linear_add(sum, KVB_PART_OTHER, 2 * n, h, dim, false);   /* f_a, g_a */
    kvb_linear_add(sum, KVB_PART_MIXER, 2 * n, dim, all, false); /* f_b, g_b */
    kvb_linear_add(sum, KVB_PART_MIXER, n, h, heads, false);     /* b */
    kvb_vector_add(sum, KVB_PART_MIXER, n, all + heads);         /* dt_bias, A_log */
    kvb_vector_add(sum, KVB_PART_NORMS, n, dim);
    kvb_linear_add(sum, KVB_PART_MIXER, n, all, h, false);
}

/* MiniMaxLightningAttention. */
void kvb_lightning_add(kvb_weights_sum *sum)
{
    const uint64_t n = kvb_state_layers(sum), h = sum->hidden;
    const uint64_t all = kvb_field(sum, "num_attention_heads") * kvb_field(sum, "head_dim");
    kvb_linear_add(sum, KVB_PART_MIXER, n, h, 3 * all, false);
    kvb_linear_add(sum, KVB_PART_MIXER, n, h, all, false); /* output_gate */
    kvb_linear_add(sum, KVB_PART_MIXER, n, all, h, false);
    kvb_vector_add(sum, KVB_PART_NORMS, n, all);
}

/* What both versions of RWKV share: norms with biases, of layers, before the first and after the last; the channel mix. */
static void rwkv_add(kvb_weights_sum *sum, uint64_t width)
{
    const uint64_t n = sum->layers, h = sum->hidden;
    kvb_vector_add(sum, KVB_PART_NORMS, 2 * n + 2, 2 * h);
    kvb_vector_add(sum, KVB_PART_DENSE, n, 2 * h); /* time_mix_key, time_mix_receptance */
    kvb_block_add(sum, KVB_PART_DENSE, n, width, true, false);
    kvb_linear_add(sum, KVB_PART_DENSE, n, h, h, false); /* receptance */
}

/* RwkvSelfAttention and RwkvFeedForward (RWKV-4). */
void kvb_rwkv4_add(kvb_weights_sum *sum)
{
    const uint64_t n = sum->layers, h = sum->hidden, a = kvb_field_or(sum, "attention_hidden_size", h);
    rwkv_add(sum, kvb_field_or(sum, "intermediate_size", 4 * h));
    kvb_linear_add(sum, KVB_PART_MIXER, 3 * n, h, a, false);
    kvb_linear_add(sum, KVB_PART_MIXER, n, a, h, false);
    kvb_vector_add(sum, KVB_PART_MIXER, n, 2 * a + 3 * h); /* time_decay, time_first; time_mix of k, v, r */
}

/* RWKV-5 ("Eagle"): Rwkv5SelfAttention and Rwkv5FeedForward of RWKV/rwkv-5-world-*; the width is int(3.5 hidden) in whole 32. */
void kvb_rwkv5_add(kvb_weights_sum *sum)
{
    const uint64_t n = sum->layers, h = sum->hidden, a = kvb_field_or(sum, "attention_hidden_size", h);
    rwkv_add(sum, kvb_field_or(sum, "intermediate_size", h * 7 / 2 / 32 * 32));
    kvb_linear_add(sum, KVB_PART_MIXER, 4 * n, h, a, false); /* r, k, v, g */
    kvb_linear_add(sum, KVB_PART_MIXER, n, a, h, false);
    kvb_vector_add(sum, KVB_PART_MIXER, n, 2 * a + 4 * h); /* time_decay, time_faaaa; time_mix of k, v, r, g */
    kvb_vector_add(sum, KVB_PART_NORMS, n, 2 * a);         /* ln_x */
}
