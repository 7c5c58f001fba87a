/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared-prompt: conversations behind a system prompt that is kept apart. The sequence that fed the prompt ends before any
 * goes on from it; a conversation ends and another begins behind the same prompt; one begins late, from another's
 * longer beginning; one is cut back into the prompt and goes on differently. Conversations behind a second prompt are
 * decoded in passes of their own.
 */
#include "workloads/live/scenario.h"

enum {
    MAKER, /* sequences: feeds the prompt, then ends; the id is used again */
    FIRST, /* three conversations behind it */
    CUT,
    LONGER,
    LATE,        /* begins as LONGER does, some tokens on */
    OTHER_MAKER, /* another prompt, which goes on beside … */
    OTHER,       /* … which copies it */
    SYSTEM = 70, /* tokens; no whole block of 64 */
    SECOND = 21, /* of the second prompt */
    OWN = 4,     /* of a conversation's own prompt, at least */
    STEPS = 6,   /* of decoding, each time */
    FURTHER = 7, /* behind the prompt, where LATE begins */
    INTO = 3     /* tokens of the prompt that CUT gives up, too */
};

/* A conversation that begins with `keep` tokens of another: copied, then n tokens of its own. */
static int join(kvb_scene *scene, const kvb_scene_seq *from, uint32_t keep, kvb_scene_seq *to, uint32_t id, uint32_t n)
{
    int err = kvb_scene_fork(scene, from, to, id, keep);
    if (!err)
        err = kvb_scene_prefill(scene, id, 10 + id, keep, n);
    to->length = keep + n;
    return err ? err : kvb_scene_choose(scene, to, n - 1);
}

static int leave(kvb_scene *scene, uint32_t id)
{
    return kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, SEQ_RM, .src = id, .p1 = KVB_POS_END));
}

static int prompt(kvb_scene *scene, kvb_scene_seq *seq, uint32_t id, uint32_t n)
{
    *seq = (kvb_scene_seq){.id = id, .length = n};
    int err = kvb_scene_prefill(scene, id, id, 0, n);
    return err ? err : kvb_scene_choose(scene, seq, n - 1);
}

/* Back into the prompt, and on with other words. */
static int turn_back(kvb_scene *scene, kvb_scene_seq *seq)
{
    const uint32_t keep = SYSTEM - INTO;
    int err =
        kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, SEQ_RM, .src = seq->id, .p0 = keep, .p1 = KVB_POS_END));
    if (!err)
        err = kvb_scene_prefill(scene, seq->id, 20, keep, OWN);
    seq->length = keep + OWN;
    return err ? err : kvb_scene_choose(scene, seq, OWN - 1);
}

static int play(kvb_scene *scene)
{
    kvb_scene_seq seq[OTHER + 1];
    kvb_scene_seq *first[] = {&seq[FIRST], &seq[CUT], &seq[LONGER]};
    kvb_scene_seq *then[] = {&seq[MAKER], &seq[CUT], &seq[LONGER], &seq[LATE]};
    kvb_scene_seq *others[] = {&seq[OTHER_MAKER], &seq[OTHER]};

    int err = prompt(scene, &seq[MAKER], MAKER, SYSTEM);
    for (uint32_t i = FIRST; i <= LONGER && !err; i++)
        err = join(scene, &seq[MAKER], SYSTEM, &seq[i], i, OWN + i);
    err = err ? err : leave(scene, MAKER);
    err = err ? err : prompt(scene, &seq[OTHER_MAKER], OTHER_MAKER, SECOND);
    err = err ? err : join(scene, &seq[OTHER_MAKER], SECOND, &seq[OTHER], OTHER, OWN);
    err = err ? err : kvb_scene_decode(scene, first, 3, STEPS);
    err = err ? err : kvb_scene_decode(scene, others, 2, STEPS);
    err = err ? err : join(scene, &seq[LONGER], SYSTEM + FURTHER, &seq[LATE], LATE, OWN);
    err = err ? err : leave(scene, FIRST);
    err = err ? err : turn_back(scene, &seq[CUT]);
    err = err ? err : join(scene, &seq[LATE], SYSTEM, &seq[MAKER], MAKER, OWN);
    err = err ? err : kvb_scene_decode(scene, then, 4, STEPS);
    err = err ? err : leave(scene, OTHER_MAKER);
    return err ? err : kvb_scene_decode(scene, &others[1], 1, STEPS);
}

const kvb_scenario kvb_scenario_shared_prompt = {
    .name = "shared-prompt",
    .summary = "live model: conversations behind a frozen prompt whose maker ends; one begins late, one is cut into it",
    .cache = "shared-prefix",
    .needs = KVB_CACHE_SEQ,
    .layers = 1,
    .capacity = 400,
    .seq_capacity = 112,
    .max_seqs = 6,
    .rollback = 24,
    .play = play,
};
