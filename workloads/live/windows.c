/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows: sequences that leave their windows far behind, with forks and backtracking inside them.
 *
 * sliding-window   five layers of six see the last 24 positions, the sixth sees all (as Gemma-3's); branches of one trunk
 * sink-window      every layer sees the last 16 positions and the first 4 (StreamingLLM, arXiv 2309.17453); a batch
 */
#include "workloads/live/scenario.h"

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

int kvb_play_branches(kvb_scene *scene)
{
    kvb_scene_seq seqs[FORK + 1], *batch[] = {&seqs[1], &seqs[2], &seqs[3], &seqs[FORK]};
    int err = kvb_scene_prefill(scene, 0, 0, 0, TRUNK);
    if (err)
        return err;
    seqs[0] = (kvb_scene_seq){.id = 0, .length = TRUNK};
    err = kvb_scene_choose(scene, &seqs[0], TRUNK - 1);
    if (!err)
        err = kvb_scene_decode(scene, (kvb_scene_seq *[]){&seqs[0]}, 1, TRUNK_DECODE);
    for (uint32_t b = 1; !err && b <= BRANCHES; b++) {
        err = kvb_scene_fork(scene, &seqs[0], &seqs[b], b, seqs[0].length);
        seqs[b].next = kvb_runner_best(&scene->runner, 0, b - 1);
        if (!err)
            err = kvb_scene_say(scene, seqs[b].next);
    }
    if (!err)
        err = kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, SEQ_RM, .p1 = KVB_POS_END));
    if (!err)
        err = kvb_scene_decode(scene, batch, BRANCHES, TOGETHER);
    if (!err)
        err = kvb_scene_backtrack(scene, &seqs[2], TAKEN_BACK);
    if (!err)
        err = kvb_scene_fork(scene, &seqs[3], &seqs[FORK], FORK, seqs[3].length - FORK_BACK);
    if (!err)
        err = kvb_scene_choose_second(scene, &seqs[FORK]);
    if (!err)
        err = kvb_scene_decode(scene, batch, BRANCHES + 1, AFTER);
    if (!err)
        err = kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, SEQ_KEEP, .src = FORK));
    return err ? err : kvb_scene_decode(scene, (kvb_scene_seq *[]){&seqs[FORK]}, 1, ALONE);
}

enum {
    SINK_WINDOW = 16,
    SINKS = 4,
    CHUNK = 20,      /* prompt tokens of a prefill, more than the window */
    CHUNKS = 3,      /* prefills of the first sequence; one fewer for each further one */
    BATCH = 3,       /* sequences */
    STEPS = 60,      /* of all together */
    BACK = 7,        /* tokens that the second takes back */
    STEPS_AFTER = 40 /* of those that are left */
};

int kvb_play_batch(kvb_scene *scene)
{
    kvb_scene_seq seqs[BATCH + 1], *batch[] = {&seqs[0], &seqs[1], &seqs[2]},
                                   *rest[] = {&seqs[1], &seqs[2], &seqs[BATCH]};
    int err = 0;
    for (uint32_t s = 0; !err && s < BATCH; s++) {
        uint32_t n_chunks = CHUNKS - s;
        seqs[s] = (kvb_scene_seq){.id = s, .length = n_chunks * CHUNK};
        for (uint32_t i = 0; !err && i < n_chunks; i++)
            err = kvb_scene_prefill(scene, s, s, i * CHUNK, CHUNK);
        if (!err)
            err = kvb_scene_choose(scene, &seqs[s], CHUNK - 1);
    }
    if (!err)
        err = kvb_scene_decode(scene, batch, BATCH, STEPS);
    if (!err)
        err = kvb_scene_fork(scene, &seqs[0], &seqs[BATCH], BATCH, seqs[0].length);
    if (!err)
        err = kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, SEQ_RM, .p1 = KVB_POS_END));
    if (!err)
        err = kvb_scene_backtrack(scene, &seqs[1], BACK);
    return err ? err : kvb_scene_decode(scene, rest, 3, STEPS_AFTER);
}

const kvb_scenario kvb_scenario_sliding_window = {
    .name = "sliding-window",
    .summary =
        "live model: 5 layers of 6 with a window of 24; prefill of 64, 3 branches, backtracking and a fork inside the "
        "window, one sequence on to ten windows",
    .cache = "window",
    .needs = KVB_CACHE_SEQ,
    .layers = 6,
    .full_every = 6,
    .limits = {.window = WINDOW},
    .rollback = 8,
    .capacity = 1024,
    .seq_capacity = 320,
    .max_seqs = 5,
    .play = kvb_play_branches,
};

const kvb_scenario kvb_scenario_sink_window = {
    .name = "sink-window",
    .summary =
        "live model: a window of 16 and 4 sinks in every layer; 3 prompts prefilled in chunks, decoded together, one "
        "forked, one cut back",
    .cache = "window",
    .needs = KVB_CACHE_SEQ,
    .limits = {.window = SINK_WINDOW, .sinks = SINKS},
    .rollback = 8,
    .capacity = 1024,
    .seq_capacity = 256,
    .max_seqs = 4,
    .play = kvb_play_batch,
};
