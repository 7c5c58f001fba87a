/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attention of some families of models, with few layers and heads. The seeded twins have the heads and dims of a real model,
 * which its config.json says.
 *
 * mla-decode     latent attention, absorbed: one row for all heads (DeepSeek); the twin is DeepSeek-V2-Lite's
 * gpt-oss-like   windows in every other layer, sink logits in all of them; the twin is gpt-oss-20b's
 * gemma-like     windows in five layers of six; the twin is Gemma-3-4B's
 * chunked-local  chunks in three layers of four, no positions in the fourth (Llama 4); the twin is Llama-4-Scout's
 *
 *
 * Windows and chunks are short, in the twins too: their events are the recording's.
 */
#include "workloads/live/scenario.h"

static void latent(kvb_model_config *config)
{
    config->heads = config->kv_heads = 8;
    config->qk_norm = false;
    config->kv_lora_rank = 32;
    config->rope_dim = 8;
    config->v_dim = 12; /* head_dim is 16: K and V differ */
}

static void sink_logits(kvb_model_config *config)
{
    config->kv_heads = 1;
    config->sink_logits = true;
}

static void no_positions(kvb_model_config *config)
{
    config->no_rope_every = 4;
}

const kvb_scenario kvb_scenario_mla_decode = {
    .name = "mla-decode",
    .summary =
        "live model: latent attention, absorbed, a row of 32 + 8 for 8 heads; prefill of 48, five chunks of 16, 64 "
        "decode steps",
    .cache = "contiguous",
    .geometry = latent,
    /* kv_lora_rank 512, qk_rope_head_dim 64; the scale is of qk_nope_head_dim 128 + 64 */
    .real = &(const kvb_group){.heads = 16,
                               .kv_heads = 1,
                               .k_dim = 576,
                               .v_dim = 512,
                               .latent = true,
                               .scale = 0.07216878364870323 /* 1/sqrt(192) */},
    .capacity = 256,
    .seq_capacity = 256,
    .max_seqs = 1,
    .play = kvb_play_plain_decode,
};

const kvb_scenario kvb_scenario_gpt_oss_like = {
    .name = "gpt-oss-like",
    .summary =
        "live model: a window of 16 in every other layer of 4, sink logits; 3 prompts prefilled in chunks, decoded "
        "together, one forked, one cut back",
    .cache = "window",
    .needs = KVB_CACHE_SEQ,
    .layers = 4,
    .full_every = 2,
    .geometry = sink_logits,
    .limits = {.window = 16},
    .real = &(const kvb_group){.heads = 64, .kv_heads = 8, .k_dim = 64, .v_dim = 64, .scale = 0.125},
    .rollback = 8,
    .capacity = 1024,
    .seq_capacity = 256,
    .max_seqs = 4,
    .play = kvb_play_batch,
};

const kvb_scenario kvb_scenario_gemma_like = {
    .name = "gemma-like",
    .summary = "live model: 5 layers of 6 with a window of 24; one sequence, prefill of 48, five chunks of 16, 64 "
               "decode steps",
    .cache = "window",
    .layers = 6,
    .full_every = 6,
    .limits = {.window = 24},
    .real = &(const kvb_group){.heads = 8, .kv_heads = 4, .k_dim = 256, .v_dim = 256, .scale = 0.0625},
    .capacity = 256,
    .seq_capacity = 256,
    .max_seqs = 1,
    .play = kvb_play_plain_decode,
};

const kvb_scenario kvb_scenario_chunked_local = {
    .name = "chunked-local",
    .summary = "live model: chunks of 24 in 3 layers of 4, no positions in the fourth; prefill of 64, 3 branches, "
               "backtracking "
               "and a fork, one sequence on to ten chunks",
    .cache = "window",
    .needs = KVB_CACHE_SEQ,
    .layers = 4,
    .full_every = 4,
    .geometry = no_positions,
    .limits = {.chunk = 24},
    .real = &(const kvb_group){.heads = 40, .kv_heads = 8, .k_dim = 128, .v_dim = 128, .scale = 0.08838834764831845},
    .rollback = 8,
    .capacity = 1024,
    .seq_capacity = 320,
    .max_seqs = 5,
    .play = kvb_play_branches,
};
