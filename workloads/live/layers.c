/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios of layers with limits, of attention other than Llama's, and of layers that scan. */
#include <errno.h>

#include "workloads/live/scenario.h"

/*
 * Windows: sequences that leave their windows far behind, with forks and backtracking inside them.
 *
 * sliding-window   five layers of six see the last 24 positions, the sixth all (as in Gemma-3); branches of one trunk
 * sink-window      every layer sees the last 16 positions and the first 4 (StreamingLLM, arXiv 2309.17453); a batch
 */

enum {
    WINDOW = 24,
    TRUNK = 64,        /* prompt tokens, in one prefill longer than the window */
    TRUNK_DECODE = 32, /* steps before the fork */
    BRANCHES = 3,      /* sequences 1 .. 3 */
    TOGETHER = 20,     /* steps of all branches */
    TAKEN_BACK = 6,    /* tokens that branch 2 takes back */
    FORK = 4,          /* sequence forked from branch 3, … */
    FORK_BACK = 5,     /* … so many tokens before its end */
    AFTER = 12,        /* steps after that */
    ALONE = 130        /* steps of the fork alone */
};

/* of one trunk, windows of 24 or less */
static void play_branches(kvb_scene *scene)
{
    kvb_scene_seq seqs[FORK + 1], *batch[] = {&seqs[1], &seqs[2], &seqs[3], &seqs[FORK]};
    kvb_play_branches(scene, TRUNK, TRUNK_DECODE, seqs, BRANCHES);
    kvb_scene_leave(scene, 0);
    kvb_scene_decode(scene, batch, BRANCHES, TOGETHER);
    kvb_scene_backtrack(scene, &seqs[2], TAKEN_BACK);
    kvb_scene_fork(scene, &seqs[3], &seqs[FORK], FORK, seqs[3].length - FORK_BACK);
    kvb_scene_choose_second(scene, &seqs[FORK]);
    kvb_scene_decode(scene, batch, BRANCHES + 1, AFTER);
    KVB_SCENE_DO(scene, SEQ_KEEP, .src = FORK);
    kvb_scene_decode(scene, (kvb_scene_seq *[]){&seqs[FORK]}, 1, ALONE);
}

enum {
    SINK_WINDOW = 16,
    SINKS = 4,
    CHUNK = 20,      /* prompt tokens of a prefill, more than the window */
    CHUNKS = 3,      /* prefills of the first sequence; one fewer for each further one */
    BATCH = 3,       /* sequences */
    STEPS = 60,      /* of all together */
    BACK = 7,        /* tokens that the second takes back */
    STEPS_AFTER = 40 /* of the remaining sequences */
};

/* three prompts, windows of 16 or less */
static void play_batch(kvb_scene *scene)
{
    kvb_scene_seq seqs[BATCH + 1], *batch[] = {&seqs[0], &seqs[1], &seqs[2]},
                                   *rest[] = {&seqs[1], &seqs[2], &seqs[BATCH]};
    for (uint32_t s = 0; s < BATCH; s++) {
        uint32_t n_chunks = CHUNKS - s;
        seqs[s] = (kvb_scene_seq){.id = s, .length = n_chunks * CHUNK};
        for (uint32_t i = 0; i < n_chunks; i++)
            kvb_scene_prefill(scene, s, s, i * CHUNK, CHUNK);
        kvb_scene_choose(scene, &seqs[s], CHUNK - 1);
    }
    kvb_scene_decode(scene, batch, BATCH, STEPS);
    kvb_scene_fork(scene, &seqs[0], &seqs[BATCH], BATCH, seqs[0].length);
    kvb_scene_leave(scene, 0);
    kvb_scene_backtrack(scene, &seqs[1], BACK);
    kvb_scene_decode(scene, rest, 3, STEPS_AFTER);
}

KVB_SCENARIO(sliding_window, .name = "sliding-window",
             .summary = "live model: 5 layers of 6 with a window of 24; prefill of 64, 3 branches, backtracking and a "
                        "fork inside the window, one sequence on to ten windows",
             .cache = "window", .small = &kvb_live_rank, .needs = KVB_CACHE_SEQ, .layers = 6, .full_every = 6,
             .limits = {.window = WINDOW}, .rollback = 8, .capacity = 1024, .seq_capacity = 320, .max_seqs = 5,
             .play = play_branches);

KVB_SCENARIO(sink_window, .name = "sink-window",
             .summary = "live model: a window of 16 and 4 sinks in every layer; 3 prompts prefilled in chunks, decoded "
                        "together, one forked, one cut back",
             .cache = "window", .small = &kvb_live_rank, .needs = KVB_CACHE_SEQ,
             .limits = {.window = SINK_WINDOW, .sinks = SINKS}, .rollback = 8, .capacity = 1024, .seq_capacity = 256,
             .max_seqs = 4, .play = play_batch);

/*
 * The attention of some families of models, with few layers and heads. The seeded twins have the heads and dims of a
 * real model's config.json.
 *
 * mla-decode     latent attention, absorbed: one row for all heads (DeepSeek); the twin is DeepSeek-V2-Lite's
 * gpt-oss-like   windows in every other layer, sink logits in all of them; the twin is gpt-oss-20b's
 * gemma-like     windows in five layers of six; the twin is Gemma-3-4B's
 * chunked-local  chunks in three layers of four, no positions in the fourth (Llama 4); the twin is Llama-4-Scout's
 *
 * Windows and chunks are short, also in the twins, since their events are those of the recording.
 */

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

KVB_SCENARIO(mla_decode, .name = "mla-decode",
             .summary = "live model: latent attention, absorbed, a row of 32 + 8 for 8 heads; prefill of 48, five "
                        "chunks of 16, 64 decode steps",
             .cache = "contiguous", .geometry = latent,
             /* kv_lora_rank 512, qk_rope_head_dim 64; the scale is for qk_nope_head_dim 128 + 64 */
             .real = &(const kvb_group){.heads = 16,
                                        .kv_heads = 1,
                                        .k_dim = 576,
                                        .v_dim = 512,
                                        .latent = true,
                                        .scale = 0.07216878364870323 /* 1/sqrt(192) */},
             .capacity = 256, .seq_capacity = 256, .max_seqs = 1, .play = kvb_play_plain_decode);

KVB_SCENARIO(gpt_oss_like, .name = "gpt-oss-like",
             .summary = "live model: a window of 16 in every other layer of 4, sink logits; 3 prompts prefilled in "
                        "chunks, decoded together, one forked, one cut back",
             .cache = "window", .needs = KVB_CACHE_SEQ, .layers = 4, .full_every = 2, .geometry = sink_logits,
             .limits = {.window = 16},
             .real = &(const kvb_group){.heads = 64, .kv_heads = 8, .k_dim = 64, .v_dim = 64, .scale = 0.125},
             .small = &(const kvb_group){.heads = 16, .kv_heads = 2, .k_dim = 64, .v_dim = 64, .scale = 0.125},
             .rollback = 8, .capacity = 1024, .seq_capacity = 256, .max_seqs = 4, .play = play_batch);

KVB_SCENARIO(gemma_like, .name = "gemma-like",
             .summary = "live model: 5 layers of 6 with a window of 24; one sequence, prefill of 48, five chunks of "
                        "16, 64 decode steps",
             .cache = "window", .layers = 6, .full_every = 6, .limits = {.window = 24},
             .real = &(const kvb_group){.heads = 8, .kv_heads = 4, .k_dim = 256, .v_dim = 256, .scale = 0.0625},
             .small = &(const kvb_group){.heads = 2, .kv_heads = 1, .k_dim = 256, .v_dim = 256, .scale = 0.0625},
             .capacity = 256, .seq_capacity = 256, .max_seqs = 1, .play = kvb_play_plain_decode);

KVB_SCENARIO(
    chunked_local, .name = "chunked-local",
    .summary = "live model: chunks of 24 in 3 layers of 4, no positions in the fourth; prefill of 64, 3 branches, "
               "backtracking and a fork, one sequence on to ten chunks",
    .cache = "window", .needs = KVB_CACHE_SEQ, .layers = 4, .full_every = 4, .geometry = no_positions,
    .limits = {.chunk = 24},
    .real = &(const kvb_group){.heads = 40, .kv_heads = 8, .k_dim = 128, .v_dim = 128, .scale = 0.08838834764831845},
    .small = &(const kvb_group){.heads = 10, .kv_heads = 2, .k_dim = 128, .v_dim = 128, .scale = 0.08838834764831845},
    .rollback = 8, .capacity = 1024, .seq_capacity = 320, .max_seqs = 5, .play = play_branches);

/*
 * Small models with recurrent layers. The seeded twins have the states of a real model's config.json, as one rank of
 * four holds them.
 *
 * hybrid-decode  mamba2 in two layers of three: a prompt in chunks, decoded; the twin is Nemotron-H-8B's
 * hybrid-batch   the gated delta rule in three layers of four: three prompts, decoded together, one forked, one cut
 *                back; the twin is Qwen3-Next-80B-A3B's
 * spec-hybrid    the same model, speculative: a state for each node of a draft tree. Recording fails if a token differs
 *                from greedy decoding
 * state-fork     mamba1 in all layers: forks; two rollbacks in a row, and a third past the steps since them; a copy
 *                that is saved, loaded, and generates the same tokens again; the twin is mamba-2.8b's
 */

/* A recurrence behind a convolution of four tokens and SiLU. STATE: type of states; KEPT: type of the convolution's. */
#define SCAN(KIND, HEADS, GROUPS, D_K, D_V, CHANNELS, STATE, KEPT)                                                     \
    {                                                                                                                  \
        .kind = KVB_SCAN_##KIND, .heads = HEADS, .groups = GROUPS, .d_k = D_K, .d_v = D_V, .conv_width = 4,            \
        .conv_channels = CHANNELS, .silu = true, .state_elem = KVB_##STATE, .conv_elem = KVB_##KEPT                    \
    }

static const kvb_group_scan small_mamba2 = SCAN(MAMBA2, 2, 1, 8, 16, 48, F32, F32);
static const kvb_group_scan small_delta = SCAN(DELTA, 2, 1, 8, 16, 48, F32, F32);
static const kvb_group_scan small_mamba1 = SCAN(MAMBA1, 1, 1, 8, 64, 64, F32, F32);
/* mamba_num_heads 128, mamba_head_dim 64, n_groups 8, ssm_state_size 128, conv_kernel 4; states in bf16, as vLLM has
 * them by default */
static const kvb_group_scan nemotron_h = SCAN(MAMBA2, 32, 2, 128, 64, 2560, BF16, BF16);
/* linear_num_value_heads 32, linear_num_key_heads 16, both head dims 128, linear_conv_kernel_dim 4 */
static const kvb_group_scan qwen3_next = SCAN(DELTA, 8, 4, 128, 128, 2048, F32, BF16);
/* d_model 2560, expand 2, d_state 16, d_conv 4 */
static const kvb_group_scan mamba_2_8b = SCAN(MAMBA1, 1, 1, 16, 1280, 1280, F32, F32);

static void mamba2(kvb_model_config *config)
{
    config->scan = small_mamba2;
    config->attend_every = 3;
}

static void delta(kvb_model_config *config)
{
    config->scan = small_delta;
    config->attend_every = 4;
}

static void mamba1(kvb_model_config *config)
{
    config->scan = small_mamba1;
    config->dt_rank = 8;
}

static const kvb_group qwen3_next_attends = {.heads = 4, .kv_heads = 1, .k_dim = 256, .v_dim = 256, .scale = 0.0625};
static const kvb_group nemotron_h_attends = {
    .heads = 8, .kv_heads = 2, .k_dim = 128, .v_dim = 128, .scale = 0.08838834764831845};

KVB_SCENARIO(hybrid_decode, .name = "hybrid-decode",
             .summary = "live model: mamba2 in 2 layers of 3; prefill of 48, five chunks of 16, 64 decode steps",
             .cache = "contiguous", .layers = 3, .geometry = mamba2, .real = &nemotron_h_attends,
             .real_scan = &nemotron_h, .capacity = 256, .seq_capacity = 256, .max_seqs = 1,
             .play = kvb_play_plain_decode);

KVB_SCENARIO(hybrid_batch, .name = "hybrid-batch",
             .summary = "live model: the gated delta rule in 3 layers of 4; 3 prompts prefilled in chunks, decoded "
                        "together, one forked, one cut back",
             .cache = "seq", .needs = KVB_CACHE_SEQ, .layers = 4, .geometry = delta, .real = &qwen3_next_attends,
             .real_scan = &qwen3_next, .rollback = 8, .capacity = 1024, .seq_capacity = 256, .max_seqs = 4,
             .play = play_batch);

/* ---- speculation ------------------------------------------------------------------------------------------------- */

enum { ROUNDS = 16, HYBRID_CAPACITY = 256 };

static const float blur = 0.015f;

static void play_spec(kvb_scene *scene)
{
    kvb_play_eagle(scene, ROUNDS, blur);
}

/* Plain greedy decoding for spec-hybrid. */
static const kvb_scenario scenario_hybrid_greedy = {
    .name = "hybrid-greedy",
    .summary = "the prompt of spec-hybrid, decoded greedily token by token",
    .cache = "contiguous",
    .layers = 4,
    .geometry = delta,
    .capacity = HYBRID_CAPACITY,
    .seq_capacity = HYBRID_CAPACITY,
    .max_seqs = 1,
    .play = kvb_play_eagle_greedy,
};

KVB_SCENARIO(
    spec_hybrid, .name = "spec-hybrid",
    .summary = "live model: the gated delta rule in 3 layers of 4; 16 rounds of EAGLE's 25-node tree, verified whole",
    .note = "The draft model is the target's weights with seeded noise of 0.015 of each matrix's root mean square.",
    .cache = "tree", .needs = KVB_CACHE_TREE, .layers = 4, .geometry = delta, .real = &qwen3_next_attends,
    .real_scan = &qwen3_next, .capacity = HYBRID_CAPACITY, .seq_capacity = HYBRID_CAPACITY, .max_seqs = 1,
    .greedy = &scenario_hybrid_greedy, .play = play_spec);

/* ---- forks and rollback ------------------------------------------------------------------------------------------ */

enum {
    HYBRID_TRUNK = 32,    /* prompt tokens */
    DEPTH = 9,            /* most positions by which it falls behind its furthest one */
    HYBRID_TOGETHER = 12, /* steps of all */
    FIRST_BACK = 3,       /* tokens that one branch takes back, … */
    THEN_BACK = 4,        /* … further ones at once, and, after as many steps, … */
    LAST_BACK = 6,        /* … those of these steps, and earlier ones */
    HYBRID_ALONE = 2      /* its steps after that */
};

static void play_forks(kvb_scene *scene)
{
    kvb_scene_seq seqs[4], saved, *all[] = {&seqs[0], &seqs[1], &seqs[2]}, *back[] = {&seqs[1]}, *last[] = {&seqs[3]};
    kvb_scene_begin(scene, &seqs[0], 0, 0, HYBRID_TRUNK);
    for (uint32_t i = 1; i < 3; i++) { /* all share the trunk's state until they write */
        kvb_scene_decode(scene, all, 1, 1);
        kvb_scene_fork(scene, &seqs[0], &seqs[i], i, seqs[0].length);
        kvb_scene_choose_second(scene, &seqs[i]);
    }
    kvb_scene_decode(scene, all, 3, HYBRID_TOGETHER);
    kvb_scene_backtrack(scene, &seqs[1], FIRST_BACK);
    kvb_scene_backtrack(scene, &seqs[1], THEN_BACK);
    kvb_scene_decode(scene, back, 1, THEN_BACK);
    kvb_scene_backtrack(scene, &seqs[1], LAST_BACK);
    kvb_scene_decode(scene, back, 1, HYBRID_ALONE);
    kvb_scene_decode(scene, all, 3, HYBRID_TOGETHER);
    KVB_SCENE_DO(scene, SAVE, .src = 2);
    saved = seqs[2];
    const size_t first = scene->outcome->n;
    kvb_scene_decode(scene, all + 2, 1, HYBRID_TOGETHER);
    KVB_SCENE_DO(scene, LOAD, .src = 3);
    seqs[3] = saved;
    seqs[3].id = 3;
    kvb_scene_decode(scene, last, 1, HYBRID_TOGETHER);
    const int32_t *said = scene->outcome->tokens + first; /* after the save, then after the load */
    for (uint32_t i = 0; i < HYBRID_TOGETHER && !scene->error; i++)
        if (said[i] != said[HYBRID_TOGETHER + i])
            kvb_scene_fail(scene, -EPROTO, "what was loaded said another token at step %u than before", i);
}

KVB_SCENARIO(state_fork, .name = "state-fork",
             .summary = "live model: mamba1 alone; a trunk forked twice, one branch rolled back twice in a row and "
                        "once more, one saved and loaded",
             .cache = "seq", .needs = KVB_CACHE_SEQ | KVB_CACHE_SAVES, .geometry = mamba1, .real_scan = &mamba_2_8b,
             .rollback = DEPTH, .capacity = 512, .seq_capacity = 128, .max_seqs = 4, .play = play_forks);
