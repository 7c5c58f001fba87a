/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models with recurrent layers, small; the twins have the states of a real model, which its config.json says, as one rank of four
 * holds them.
 *
 * hybrid-decode  mamba2 in two layers of three: a prompt in chunks, decoded; the twin is Nemotron-H-8B's
 * hybrid-batch   the gated delta rule in three layers of four: three prompts, decoded together, one forked, one cut back; the twin is
 *                Qwen3-Next-80B-A3B's
 * spec-hybrid    the same model, speculative: a state for each node of a tree of drafts. Fails while it is recorded if it says another
 *                word than greedy decoding
 * state-fork     mamba1 in all layers: forks, two rollbacks in a row, one more into what they left, a copy that is saved, loaded and says
 *                what was said before; the twin is mamba-2.8b's
 */
#include "workloads/live/scenario.h"

#include <errno.h>
#include <stdio.h>

/* A recurrence behind a convolution of four tokens and SiLU. States and what the convolution keeps: of types STATE and
 * KEPT. */
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

const kvb_scenario kvb_scenario_hybrid_decode = {
    .name = "hybrid-decode",
    .summary = "live model: mamba2 in 2 layers of 3; prefill of 48, five chunks of 16, 64 decode steps",
    .cache = "contiguous",
    .layers = 3,
    .geometry = mamba2,
    .real = &nemotron_h_attends,
    .real_scan = &nemotron_h,
    .capacity = 256,
    .seq_capacity = 256,
    .max_seqs = 1,
    .play = kvb_play_plain_decode,
};

const kvb_scenario kvb_scenario_hybrid_batch = {
    .name = "hybrid-batch",
    .summary =
        "live model: the gated delta rule in 3 layers of 4; 3 prompts prefilled in chunks, decoded together, one "
        "forked, one cut back",
    .cache = "seq",
    .needs = KVB_CACHE_SEQ,
    .layers = 4,
    .geometry = delta,
    .real = &qwen3_next_attends,
    .real_scan = &qwen3_next,
    .rollback = 8,
    .capacity = 1024,
    .seq_capacity = 256,
    .max_seqs = 4,
    .play = kvb_play_batch,
};

/* ---- speculation ------------------------------------------------------------------------------------------------- */

enum { ROUNDS = 16, HYBRID_CAPACITY = 256 };

static const float blur = 0.015f;

static int play_spec(kvb_scene *scene)
{
    return kvb_play_eagle(scene, ROUNDS, blur);
}

const kvb_scenario kvb_scenario_spec_hybrid = {
    .name = "spec-hybrid",
    .summary = "live model: the gated delta rule in 3 layers of 4; 16 rounds of EAGLE's 25-node tree, verified whole",
    .note = "The draft model is the target's weights with seeded noise of 0.015 of each matrix's root mean square.",
    .cache = "tree",
    .needs = KVB_CACHE_TREE,
    .layers = 4,
    .geometry = delta,
    .real = &qwen3_next_attends,
    .real_scan = &qwen3_next,
    .capacity = HYBRID_CAPACITY,
    .seq_capacity = HYBRID_CAPACITY,
    .max_seqs = 1,
    .greedy = &kvb_scenario_hybrid_greedy,
    .play = play_spec,
};

const kvb_scenario kvb_scenario_hybrid_greedy = {
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

/* ---- forks and rollback ------------------------------------------------------------------------------------------ */

enum {
    TRUNK = 32,     /* prompt tokens */
    DEPTH = 9,      /* positions by which it falls behind its furthest one, at most */
    TOGETHER = 12,  /* steps of all */
    FIRST_BACK = 3, /* tokens that one branch takes back, … */
    THEN_BACK = 4,  /* … at once some more of what was there before, and, after as many steps, … */
    LAST_BACK = 6,  /* … what it said since, and before */
    ALONE = 2       /* steps of it then */
};

/* The sequence says again, from where it was saved on, what it said then. */
static int restored_check(kvb_scene *scene, size_t first, uint32_t n)
{
    const kvb_live_outcome *o = scene->outcome;
    for (uint32_t i = 0; i < n; i++)
        if (o->tokens[first + i] != o->tokens[first + n + i]) {
            snprintf(scene->why, sizeof scene->why, "what was loaded said another token at step %u than before", i);
            return -EPROTO;
        }
    return 0;
}

static int play_forks(kvb_scene *scene)
{
    kvb_scene_seq seqs[4], saved, *all[] = {&seqs[0], &seqs[1], &seqs[2]}, *back[] = {&seqs[1]}, *last[] = {&seqs[3]};
    int err = kvb_scene_prefill(scene, 0, 0, 0, TRUNK);
    if (err)
        return err;
    seqs[0] = (kvb_scene_seq){.id = 0, .length = TRUNK};
    err = kvb_scene_choose(scene, &seqs[0], TRUNK - 1);
    for (uint32_t i = 1; i < 3 && !err; i++) { /* of a trunk whose state all share until they write */
        err = kvb_scene_decode(scene, all, 1, 1);
        err = err ? err : kvb_scene_fork(scene, &seqs[0], &seqs[i], i, seqs[0].length);
        err = err ? err : kvb_scene_choose_second(scene, &seqs[i]);
    }
    err = err ? err : kvb_scene_decode(scene, all, 3, TOGETHER);
    err = err ? err : kvb_scene_backtrack(scene, &seqs[1], FIRST_BACK);
    err = err ? err : kvb_scene_backtrack(scene, &seqs[1], THEN_BACK);
    err = err ? err : kvb_scene_decode(scene, back, 1, THEN_BACK);
    err = err ? err : kvb_scene_backtrack(scene, &seqs[1], LAST_BACK);
    err = err ? err : kvb_scene_decode(scene, back, 1, ALONE);
    err = err ? err : kvb_scene_decode(scene, all, 3, TOGETHER);
    err = err ? err : kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, SAVE, .src = 2));
    saved = seqs[2];
    const size_t first = scene->outcome->n;
    err = err ? err : kvb_scene_decode(scene, all + 2, 1, TOGETHER);
    err = err ? err : kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, LOAD, .src = 3));
    seqs[3] = saved;
    seqs[3].id = 3;
    err = err ? err : kvb_scene_decode(scene, last, 1, TOGETHER);
    return err ? err : restored_check(scene, first, TOGETHER);
}

const kvb_scenario kvb_scenario_state_fork = {
    .name = "state-fork",
    .summary =
        "live model: mamba1 alone; a trunk forked twice, one branch rolled back twice in a row and once more, one "
        "saved and loaded",
    .cache = "seq",
    .needs = KVB_CACHE_SEQ | KVB_CACHE_SAVES,
    .geometry = mamba1,
    .real_scan = &mamba_2_8b,
    .rollback = DEPTH,
    .capacity = 512,
    .seq_capacity = 128,
    .max_seqs = 4,
    .play = play_forks,
};
