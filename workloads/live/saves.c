/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences that leave the cache and come back.
 *
 * save-restore     a trunk is saved and forked; what is loaded of it says what the forks said; the whole cache is saved, goes on, is
 *                  loaded and goes on again, with the same words. Every other layer has a window and sinks
 * preempt-resume   three requests under a capacity for two: one is swapped out while others decode and swapped in again, another
 *                  is dropped and computed again. Each says what it says alone
 */
#include "workloads/live/scenario.h"

#include <errno.h>
#include <stdio.h>

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
    WINDOW = 16,
    SINKS = 2,
    TRUNK = 40,        /* prompt tokens, more than the window */
    TRUNK_DECODE = 8,  /* steps before it is saved */
    BRANCHES_STEP = 9, /* steps of the forks, and of each that is restored */
    BACK = 5,          /* tokens that one of them takes back */
    TOGETHER = 12      /* steps of all, twice */
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
    err = err ? err : kvb_scene_backtrack(scene, &seqs[1], BACK);
    err = err ? err : kvb_scene_check(scene, KVB_RUNNER_DO(runner, SAVE, .slot = 1, .src = KVB_SEQ_ALL));
    for (int i = 1; i < 4; i++)
        then[i] = seqs[i];
    err = err ? err : decode(scene, all + 1, 3, TOGETHER, &first);
    err = err ? err : kvb_scene_check(scene, KVB_RUNNER_DO(runner, LOAD, .slot = 1, .src = KVB_SEQ_ALL));
    for (int i = 1; i < 4; i++)
        seqs[i] = then[i];
    err = err ? err : decode(scene, all + 1, 3, TOGETHER, &again);
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
    .limits = {.window = WINDOW, .sinks = SINKS},
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
