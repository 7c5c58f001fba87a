/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios in which tokens move to other positions, leave the cache, and come back. */
#include <errno.h>
#include <stdio.h>

#include "workloads/live/scenario.h"

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

/*
 * Sequences that leave the cache and come back.
 *
 * save-restore     a trunk is saved and forked; what is loaded of it says what the forks said; the whole cache is saved, goes on, is
 *                  loaded and goes on again, with the same words. Every other layer has a window and sinks
 * preempt-resume   three requests under a capacity for two: one is swapped out while others decode and swapped in again, another
 *                  is dropped and computed again. Each says what it says alone
 */

/* Tokens that a decode said, from number `first` on: those of sequence i of n, so many steps. */
typedef struct said {
    size_t first;
    uint32_t i, n, steps;
} said;

static int32_t word(const kvb_scene *scene, const said *s, uint32_t step)
{
    return scene->outcome->tokens[s->first + (size_t)step * s->n + s->i];
}

/* Both said the same. */
static int same_check(kvb_scene *scene, const said *a, const said *b, const char *who)
{
    for (uint32_t i = 0; i < a->steps; i++)
        if (word(scene, a, i) != word(scene, b, i)) {
            snprintf(scene->why, sizeof scene->why, "%s said another token at step %u than if it had never left", who,
                     i);
            return -EPROTO;
        }
    return 0;
}

/* Decodes n sequences together, and says where what they said begins. */
static int decode(kvb_scene *scene, kvb_scene_seq *const *seqs, uint32_t n, uint32_t steps, said *first)
{
    *first = (said){scene->outcome->n, 0, n, steps};
    return kvb_scene_decode(scene, seqs, n, steps);
}

/* What is in the slot becomes another sequence, which stands where `as` stood when it was saved. */
static int restore(kvb_scene *scene, uint32_t slot, const kvb_scene_seq *as, kvb_scene_seq *seq, uint32_t id)
{
    *seq = *as;
    seq->id = id;
    return kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, LOAD, .slot = slot, .src = id));
}

enum {
    SAVES_WINDOW = 16,
    SAVES_SINKS = 2,
    TRUNK = 40,         /* prompt tokens, more than the window */
    TRUNK_DECODE = 8,   /* steps before it is saved */
    BRANCHES_STEP = 9,  /* steps of the forks, and of each that is restored */
    SAVES_BACK = 5,     /* tokens that one of them takes back */
    SAVES_TOGETHER = 12 /* steps of all, twice */
};

static int restore_play(kvb_scene *scene)
{
    kvb_scene_seq seqs[4], trunk, then[4], *all[] = {&seqs[0], &seqs[1], &seqs[2], &seqs[3]};
    kvb_runner *runner = &scene->runner;
    said forks, third, fourth, first, again;
    int err = kvb_scene_prefill(scene, 0, 0, 0, TRUNK);
    if (err)
        return err;
    seqs[0] = (kvb_scene_seq){.id = 0, .length = TRUNK};
    err = kvb_scene_choose(scene, &seqs[0], TRUNK - 1);
    err = err ? err : kvb_scene_decode(scene, all, 1, TRUNK_DECODE);
    err = err ? err : kvb_scene_check(scene, KVB_RUNNER_DO(runner, SAVE, .src = 0));
    trunk = seqs[0];
    err = err ? err : kvb_scene_fork(scene, &seqs[0], &seqs[1], 1, trunk.length);
    err = err ? err : kvb_scene_choose_second(scene, &seqs[1]);
    err = err ? err : decode(scene, all, 2, BRANCHES_STEP, &forks);
    err = err ? err : restore(scene, 0, &trunk, &seqs[2], 2);
    err = err ? err : decode(scene, all + 2, 1, BRANCHES_STEP, &third);
    err = err ? err : same_check(scene, &forks, &third, "the restored trunk");
    err =
        err ? err : kvb_scene_check(scene, KVB_RUNNER_DO(runner, SEQ_RM, .p1 = KVB_POS_END)); /* its rows go on in 2 */
    err = err ? err : restore(scene, 0, &trunk, &seqs[3], 3);
    err = err ? err : kvb_scene_choose_second(scene, &seqs[3]);
    err = err ? err : decode(scene, all + 3, 1, BRANCHES_STEP, &fourth);
    forks.i = 1;
    err = err ? err : same_check(scene, &forks, &fourth, "the trunk that was restored as another fork");
    err = err ? err : kvb_scene_backtrack(scene, &seqs[1], SAVES_BACK);
    err = err ? err : kvb_scene_check(scene, KVB_RUNNER_DO(runner, SAVE, .slot = 1, .src = KVB_SEQ_ALL));
    for (int i = 1; i < 4; i++)
        then[i] = seqs[i];
    err = err ? err : decode(scene, all + 1, 3, SAVES_TOGETHER, &first);
    err = err ? err : kvb_scene_check(scene, KVB_RUNNER_DO(runner, LOAD, .slot = 1, .src = KVB_SEQ_ALL));
    for (int i = 1; i < 4; i++)
        seqs[i] = then[i];
    err = err ? err : decode(scene, all + 1, 3, SAVES_TOGETHER, &again);
    for (uint32_t i = 0; i < 3 && !err; i++) {
        first.i = again.i = i;
        err = same_check(scene, &first, &again, "the whole cache, restored,");
    }
    return err;
}

enum {
    REQUESTS = 3,
    PROMPT = 24,  /* tokens of each */
    BEFORE = 10,  /* steps of the first two */
    AWAY = 20,    /* steps of the first and the third, while the second is swapped out */
    BETWEEN = 15, /* of the first and the second, while the third is gone */
    LAST = 12,    /* of the second and the third */
    ROOM = 128    /* cells: the first two at their longest; all three would take 161 */
};

static int request_begin(kvb_scene *scene, kvb_scene_seq *seq, uint32_t id)
{
    *seq = (kvb_scene_seq){.id = id, .length = PROMPT};
    int err = kvb_scene_prefill(scene, id, id, 0, PROMPT);
    return err ? err : kvb_scene_choose(scene, seq, PROMPT - 1);
}

/* Computes again what a sequence held: its prompt, and what it said. It must come to say the same next. */
static int recompute(kvb_scene *scene, const kvb_scene_seq *seq, const int32_t *words)
{
    uint32_t ids[PROMPT + AWAY];
    int32_t tok[PROMPT + AWAY];
    const int32_t next = seq->next;
    for (uint32_t i = 0; i < PROMPT + AWAY; i++) {
        ids[i] = seq->id;
        tok[i] = i < PROMPT ? kvb_scene_prompt(scene, seq->id, i) : words[i - PROMPT];
    }
    int err = kvb_scene_check(scene, kvb_runner_step(&scene->runner, KVB_EVENT_PREFILL, ids, tok, PROMPT + AWAY));
    if (!err && kvb_runner_best(&scene->runner, PROMPT + AWAY - 1, 0) != next) {
        snprintf(scene->why, sizeof scene->why, "sequence %u, computed again, goes on with another token", seq->id);
        err = -EPROTO;
    }
    return err;
}

/* Plays one request alone, from an empty cache, beside the scene: what it says. */
static int alone_check(kvb_scene *scene, uint32_t id, const int32_t *words, uint32_t n)
{
    kvb_runner alone;
    uint32_t ids[PROMPT];
    int32_t tok[PROMPT];
    for (uint32_t i = 0; i < PROMPT; i++) {
        ids[i] = 0;
        tok[i] = kvb_scene_prompt(scene, id, i);
    }
    int err = kvb_scene_runner(scene, "uninterrupted", scene->weights, &alone);
    if (err)
        return err;
    err = kvb_runner_step(&alone, KVB_EVENT_PREFILL, ids, tok, PROMPT);
    for (uint32_t i = 0, last = PROMPT - 1; i < n && !err; i++, last = 0) {
        const int32_t best = kvb_runner_best(&alone, last, 0);
        if (best != words[i]) {
            snprintf(alone.why, sizeof alone.why, "request %u says another token %u when it is not interrupted", id, i);
            err = -EPROTO;
        }
        if (!err)
            err = kvb_runner_step(&alone, KVB_EVENT_STEP, ids, &best, 1);
    }
    if (err)
        snprintf(scene->why, sizeof scene->why, "%s", alone.why);
    kvb_runner_close(&alone);
    return err;
}

static int preempt_play(kvb_scene *scene)
{
    kvb_scene_seq seqs[REQUESTS];
    kvb_runner *runner = &scene->runner;
    said parts[4];
    int err = request_begin(scene, &seqs[0], 0);
    err = err ? err : request_begin(scene, &seqs[1], 1);
    err = err ? err : decode(scene, (kvb_scene_seq *[]){&seqs[0], &seqs[1]}, 2, BEFORE, &parts[0]);
    err = err ? err : kvb_scene_check(scene, KVB_RUNNER_DO(runner, SAVE, .src = 1)); /* swapped out */
    err = err ? err : kvb_scene_check(scene, KVB_RUNNER_DO(runner, SEQ_RM, .src = 1, .p1 = KVB_POS_END));
    err = err ? err : request_begin(scene, &seqs[2], 2);
    err = err ? err : decode(scene, (kvb_scene_seq *[]){&seqs[0], &seqs[2]}, 2, AWAY, &parts[1]);
    err = err ? err : kvb_scene_check(scene, KVB_RUNNER_DO(runner, SEQ_RM, .src = 2, .p1 = KVB_POS_END)); /* dropped */
    err = err ? err : kvb_scene_check(scene, KVB_RUNNER_DO(runner, LOAD, .src = 1)); /* and in again */
    err = err ? err : decode(scene, (kvb_scene_seq *[]){&seqs[0], &seqs[1]}, 2, BETWEEN, &parts[2]);
    err = err ? err : kvb_scene_check(scene, KVB_RUNNER_DO(runner, SEQ_RM, .p1 = KVB_POS_END)); /* it has ended */
    if (err)
        return err;
    int32_t words[REQUESTS][1 + BEFORE + AWAY + BETWEEN + LAST] = {
        {scene->outcome->tokens[0]}, {scene->outcome->tokens[1]}, {scene->outcome->tokens[parts[1].first - 1]}};
    uint32_t n[REQUESTS] = {1, 1, 1};
    static const uint32_t who[][2] = {{0, 1}, {0, 2}, {0, 1}, {1, 2}}; /* of each part */
    for (uint32_t part = 0; part < 4 && !err; part++) {
        if (part == 3) { /* the third comes back */
            err = recompute(scene, &seqs[2], words[2]);
            err = err ? err : decode(scene, (kvb_scene_seq *[]){&seqs[1], &seqs[2]}, 2, LAST, &parts[part]);
        }
        for (uint32_t step = 0; step < parts[part].steps && !err; step++)
            for (uint32_t i = 0; i < 2; i++) {
                parts[part].i = i;
                words[who[part][i]][n[who[part][i]]++] = word(scene, &parts[part], step);
            }
    }
    for (uint32_t i = 0; i < REQUESTS && !err; i++)
        err = alone_check(scene, i, words[i], n[i]);
    return err;
}

const kvb_scenario kvb_scenario_save_restore = {
    .name = "save-restore",
    .summary =
        "live model: a trunk saved, forked, and restored twice beside the forks; the whole cache saved and restored; a "
        "window of 16 and 2 sinks in every other layer",
    .cache = "window",
    .needs = KVB_CACHE_SEQ | KVB_CACHE_SAVES,
    .layers = 2,
    .full_every = 2,
    .limits = {.window = SAVES_WINDOW, .sinks = SAVES_SINKS},
    .rollback = 12,
    .capacity = 512,
    .seq_capacity = 128,
    .max_seqs = 4,
    .play = restore_play,
};

const kvb_scenario kvb_scenario_preempt_resume = {
    .name = "preempt-resume",
    .summary =
        "live model: three requests under a capacity for two; one is swapped out and in again, one is dropped and "
        "computed again",
    .cache = "seq",
    .needs = KVB_CACHE_SEQ | KVB_CACHE_SAVES,
    .capacity = ROOM,
    .seq_capacity = 96,
    .max_seqs = 2,
    .play = preempt_play,
};
