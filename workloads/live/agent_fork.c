/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent-fork: an agent tries six continuations of one trunk, branches again from the middle of one, takes
 * back the end of another, drops the losers and goes on with the winner alone. Branches start with
 * different tokens (the i-th best), so that they diverge.
 */
#include "workloads/live/scenario.h"

enum {
    TRUNK = 48,       /* prompt tokens */
    TRUNK_DECODE = 8, /* steps before the fork */
    BRANCHES = 6,     /* sequences 1 .. 6 */
    TOGETHER = 12,    /* steps of all branches */
    FORKED = 2,       /* branch that forks again … */
    FORKED_KEEPS = 7, /* … after this many of its own tokens, … */
    FORK = 7,         /* … as this sequence */
    BACKTRACKED = 4,  /* branch that takes back … */
    TAKEN_BACK = 5,   /* … this many tokens */
    AFTER = 10,       /* steps after that */
    WINNER = FORK,
    ALONE = 16 /* steps of the winner alone */
};

/* The trunk, and six branches that start with its six best next tokens. */
static int branch_out(kvb_scene *scene, kvb_scene_seq *seqs)
{
    int err = kvb_scene_prefill(scene, 0, 0, 0, TRUNK);
    if (err)
        return err;
    seqs[0] = (kvb_scene_seq){.id = 0, .length = TRUNK};
    err = kvb_scene_choose(scene, &seqs[0], TRUNK - 1);
    if (!err)
        err = kvb_scene_decode(scene, (kvb_scene_seq *[]){&seqs[0]}, 1, TRUNK_DECODE);
    for (uint32_t b = 1; !err && b <= BRANCHES; b++) {
        err = kvb_scene_fork(scene, &seqs[0], &seqs[b], b, seqs[0].length);
        if (err)
            break;
        seqs[b].next = kvb_runner_best(&scene->runner, 0, b - 1);
        err = kvb_scene_say(scene, seqs[b].next);
    }
    return err;
}

static int play(kvb_scene *scene)
{
    kvb_scene_seq seqs[FORK + 1];
    kvb_scene_seq *batch[] = {&seqs[1], &seqs[2], &seqs[3], &seqs[4], &seqs[5], &seqs[6], &seqs[FORK]};
    kvb_scene_seq *finalists[] = {&seqs[2], &seqs[4], &seqs[FORK]};
    kvb_runner *runner = &scene->runner;

    int err = branch_out(scene, seqs);
    if (!err)
        err = kvb_scene_decode(scene, batch, BRANCHES, TOGETHER);
    if (!err)
        err = kvb_scene_fork(scene, &seqs[FORKED], &seqs[FORK], FORK, TRUNK + TRUNK_DECODE + FORKED_KEEPS);
    if (!err)
        err = kvb_scene_choose_second(scene, &seqs[FORK]);
    if (!err)
        err = kvb_scene_backtrack(scene, &seqs[BACKTRACKED], TAKEN_BACK);
    if (!err)
        err = kvb_scene_decode(scene, batch, BRANCHES + 1, AFTER);
    const uint32_t losers[] = {1, 3, 5, 6};
    for (uint32_t i = 0; !err && i < sizeof losers / sizeof *losers; i++)
        err = kvb_scene_check(scene, KVB_RUNNER_DO(runner, SEQ_RM, .src = losers[i], .p1 = KVB_POS_END));
    if (!err)
        err = kvb_scene_decode(scene, finalists, 3, AFTER);
    if (!err)
        err = kvb_scene_check(scene, KVB_RUNNER_DO(runner, SEQ_KEEP, .src = WINNER));
    return err ? err : kvb_scene_decode(scene, (kvb_scene_seq *[]){&seqs[WINNER]}, 1, ALONE);
}

const kvb_scenario kvb_scenario_agent_fork = {
    .name = "agent-fork",
    .summary = "live model: trunk, 6 branches, a branch of a branch, backtracking, losers dropped, winner kept",
    .cache = "seq",
    .needs = KVB_CACHE_SEQ,
    .capacity = 1024,
    .seq_capacity = 128,
    .max_seqs = 8,
    .play = play,
};
