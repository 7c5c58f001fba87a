/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories that outlive their room.
 *
 * context-shift   a sequence that is full drops the older half behind its first 4 tokens, and what is left moves down (llama.cpp's
 *                 context shift); once while a fork holds the same tokens at their old positions, once with two shifts more; cells
 *                 are put in order when the fork is gone, and while rows are yet to be turned
 * self-extend     a context longer than the positions that the model knows: behind its end positions are grouped, four tokens to one,
 *                 as llama.cpp calls it (Self-Extend, arXiv:2401.01325); once while a fork holds the same tokens at their own positions,
 *                 once with cells put in order while rows are yet to be turned
 * evict-rollback  a window that has dropped rows, and tokens taken back from behind it: several at once, as far as is allowed, and
 *                 in a fork of what was just taken back
 */
#include "workloads/live/scenario.h"

enum {
    SHIFT_PROMPT = 40,
    FULL = 64, /* tokens that the sequence may have */
    KEPT = 4,  /* that stay where they are */
    DROPPED = (FULL - KEPT) / 2,
    TOGETHER = 20, /* steps with the fork */
    GAP_AT = 20,   /* of the second shift: where the sequence is drawn apart, … */
    GAP = 6,       /* … by so much, … */
    GAP_BACK = 2,  /* … and then so much less */
    AFTER_GAP = 24
};

/* The sequence is full: its older half goes, and the newer one moves to its place. */
static int context_shift(kvb_scene *scene, kvb_scene_seq *seq)
{
    int err =
        kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, SEQ_RM, .src = seq->id, .p0 = KEPT, .p1 = KEPT + DROPPED));
    return err ? err : kvb_scene_shift(scene, seq, KEPT + DROPPED, -DROPPED);
}

static int play_context_shift(kvb_scene *scene)
{
    kvb_scene_seq seqs[2] = {{.id = 0, .length = SHIFT_PROMPT}}, *both[] = {&seqs[0], &seqs[1]};
    int err = kvb_scene_prefill(scene, 0, 0, 0, SHIFT_PROMPT);
    if (!err)
        err = kvb_scene_choose(scene, &seqs[0], SHIFT_PROMPT - 1);
    if (!err)
        err = kvb_scene_decode(scene, both, 1, FULL - SHIFT_PROMPT);
    if (!err)
        err = kvb_scene_fork(scene, &seqs[0], &seqs[1], 1, FULL);
    if (!err)
        err = kvb_scene_choose_second(scene, &seqs[1]);
    if (!err)
        err = context_shift(scene, &seqs[0]);
    if (!err)
        err = kvb_scene_decode(scene, both, 2, TOGETHER);
    if (!err)
        err = kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, SEQ_RM, .src = 1, .p1 = KVB_POS_END));
    if (!err) /* what the fork had is free, between cells of the other */
        err = kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, DEFRAG, .src = 0));
    if (!err)
        err = kvb_scene_decode(scene, both, 1, FULL - seqs[0].length);
    if (!err)
        err = context_shift(scene, &seqs[0]);
    if (!err)
        err = kvb_scene_shift(scene, &seqs[0], GAP_AT, GAP);
    if (!err)
        err = kvb_scene_shift(scene, &seqs[0], GAP_AT, -GAP_BACK);
    if (!err) /* with rows that are yet to be turned */
        err = kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, DEFRAG, .src = 0));
    return err ? err : kvb_scene_decode(scene, both, 1, AFTER_GAP);
}

enum {
    EXTEND_PROMPT = 40,
    WIDTH = 16, /* positions that are grouped at once, … */
    TO_ONE = 4, /* … so many to one */
    FORKED = 12,
    LONGER = 30
};

/* Groups what lies from position `from` on, as long as there are WIDTH positions. Moved up first, they go on, divided,
 * where the grouped ones end; what lies behind follows them down. */
static int positions_group(kvb_scene *scene, kvb_scene_seq *seq, uint32_t *from)
{
    int err = 0;
    while (!err && seq->length >= *from + WIDTH) {
        const uint32_t up = (TO_ONE - 1) * *from, begin = *from + up, end = begin + WIDTH;
        err = kvb_scene_shift(scene, seq, *from, (int32_t)up);
        if (!err)
            err = kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, SEQ_DIV, .src = seq->id, .p0 = begin, .p1 = end,
                                                       .divisor = TO_ONE));
        *from += WIDTH / TO_ONE;
        if (!err)
            err = kvb_scene_shift(scene, seq, end, (int32_t)(*from) - (int32_t)end);
    }
    return err;
}

/* Steps, with positions grouped before each. */
static int grouped_decode(kvb_scene *scene, kvb_scene_seq *const *seqs, uint32_t n, uint32_t steps, uint32_t *from)
{
    int err = 0;
    for (uint32_t i = 0; i < steps && !err; i++) {
        err = positions_group(scene, seqs[0], from);
        if (!err)
            err = kvb_scene_decode(scene, seqs, n, 1);
    }
    return err;
}

static int play_self_extend(kvb_scene *scene)
{
    kvb_scene_seq seqs[2] = {{.id = 0, .length = EXTEND_PROMPT}}, *both[] = {&seqs[0], &seqs[1]};
    uint32_t from = 0;
    int err = kvb_scene_prefill(scene, 0, 0, 0, EXTEND_PROMPT);
    if (!err)
        err = kvb_scene_choose(scene, &seqs[0], EXTEND_PROMPT - 1);
    if (!err)
        err = kvb_scene_fork(scene, &seqs[0], &seqs[1], 1, EXTEND_PROMPT);
    if (!err)
        err = kvb_scene_choose_second(scene, &seqs[1]);
    if (!err)
        err = grouped_decode(scene, both, 2, FORKED, &from);
    if (!err)
        err = kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, SEQ_RM, .src = 1, .p1 = KVB_POS_END));
    if (!err)
        err = grouped_decode(scene, both, 1, LONGER, &from);
    if (!err)
        err = positions_group(scene, &seqs[0], &from);
    if (!err)
        err = kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, DEFRAG, .src = 0));
    if (!err) /* into what is grouped, and on from there */
        err = kvb_scene_backtrack(scene, &seqs[0], seqs[0].length - from + 1);
    from--;
    return err ? err : grouped_decode(scene, both, 1, LONGER, &from);
}

enum {
    WINDOW = 12,
    SINKS = 2,
    EVICT_PROMPT = 40, /* in one prefill longer than the window */
    DECODE = 20,
    BACK = 7,
    ROLLBACK = 12, /* most */
    AGAIN = 9,     /* steps between two rollbacks */
    BRANCH_BACK = 3,
    BRANCHES = 30 /* steps of both branches */
};

static int play_evict_rollback(kvb_scene *scene)
{
    kvb_scene_seq seqs[2] = {{.id = 0, .length = EVICT_PROMPT}}, *both[] = {&seqs[0], &seqs[1]};
    int err = kvb_scene_prefill(scene, 0, 0, 0, EVICT_PROMPT);
    if (!err)
        err = kvb_scene_choose(scene, &seqs[0], EVICT_PROMPT - 1);
    if (!err)
        err = kvb_scene_decode(scene, both, 1, DECODE);
    if (!err)
        err = kvb_scene_backtrack(scene, &seqs[0], BACK);
    if (!err)
        err = kvb_scene_decode(scene, both, 1, AGAIN);
    if (!err)
        err = kvb_scene_backtrack(scene, &seqs[0],
                                  BACK); /* less than what came since: to where it was cut before, and on */
    if (!err)
        err = kvb_scene_decode(scene, both, 1, ROLLBACK);
    if (!err)
        err = kvb_scene_backtrack(scene, &seqs[0], ROLLBACK);
    if (!err)
        err = kvb_scene_fork(scene, &seqs[0], &seqs[1], 1, seqs[0].length);
    if (!err)
        err = kvb_scene_decode(scene, both, 1, BRANCH_BACK);
    if (!err)
        err = kvb_scene_backtrack(scene, &seqs[0], BRANCH_BACK);
    if (!err)
        err = kvb_scene_choose_second(scene, &seqs[1]);
    if (!err)
        err = kvb_scene_decode(scene, both, 2, BRANCHES);
    if (!err)
        err = kvb_scene_backtrack(scene, &seqs[1], ROLLBACK);
    return err ? err : kvb_scene_decode(scene, both, 2, AGAIN);
}

const kvb_scenario kvb_scenario_context_shift = {
    .name = "context-shift",
    .summary = "live model: every other layer with a window of 16 and 4 sinks; a sequence of at most 64 tokens; when "
               "it is full, 30 go behind the first 4 and the rest moves down; "
               "once beside a fork, once with two shifts more and a defrag",
    .cache = "window",
    .needs = KVB_CACHE_SEQ | KVB_CACHE_SHIFT,
    .full_every = 2,
    .limits = {.window = 16, .sinks = KEPT},
    .capacity = 256,
    .seq_capacity = 96,
    .max_seqs = 2,
    .play = play_context_shift,
};

const kvb_scenario kvb_scenario_self_extend = {
    .name = "self-extend",
    .summary =
        "live model: behind the first position 16 positions at a time are grouped, four tokens to one, as soon as "
        "they are there; once beside a fork; cut back into what is grouped",
    .cache = "seq",
    .needs = KVB_CACHE_SEQ | KVB_CACHE_SHIFT | KVB_CACHE_DIVIDE,
    .capacity = 256,
    .seq_capacity = 192,
    .max_seqs = 2,
    .play = play_self_extend,
};

const kvb_scenario kvb_scenario_evict_rollback = {
    .name = "evict-rollback",
    .summary =
        "live model: a window of 12 and 2 sinks in every layer; up to 12 tokens taken back from behind it, again and "
        "again, in a fork too",
    .cache = "window",
    .needs = KVB_CACHE_SEQ,
    .limits = {.window = WINDOW, .sinks = SINKS},
    .rollback = ROLLBACK,
    .capacity = 256,
    .seq_capacity = 128,
    .max_seqs = 2,
    .play = play_evict_rollback,
};
