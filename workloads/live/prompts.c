/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts that begin alike, as servers get them. Each tells the cache its tokens first, which may have rows of the beginning.
 *
 * prefix-reuse          one request after the other, two of them at a time, behind one of two system prompts; every third goes on with
 *                       the conversation before it, whose answer is part of its prompt; one has another extra key
 * paged-sharing         a prompt forked in the middle of a page, each branch with a choice of its own, one cut back and forked again;
 *                       later prompts that begin as the trunk, and as a branch
 * continuous-admission  requests arrive while others are decoded: the shared beginning of a prompt is offered to the cache, the rest is
 *                       carried along in steps with the others' decoding
 */
#include "workloads/live/scenario.h"

#include <string.h>

enum { MOST = 128 };

/* What a sequence was told and said. */
typedef struct text {
    kvb_scene_seq seq;
    int32_t tok[MOST];
    uint32_t n;
} text;

/* n tokens of a seeded prompt, behind what is there. */
static void text_add(const kvb_scene *scene, text *t, uint32_t prompt, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        t->tok[t->n++] = kvb_scene_prompt(scene, prompt, i);
}

/* The whole text is a prompt, of which the cache may have the beginning. */
static int text_admit(kvb_scene *scene, text *t, uint32_t id, uint64_t extra_key)
{
    t->seq = (kvb_scene_seq){.id = id, .length = t->n};
    int err = kvb_scene_check(scene, kvb_runner_prompt(&scene->runner, id, t->tok, t->n, extra_key));
    return err ? err : kvb_scene_choose(scene, &t->seq, t->n - 1);
}

/* Decodes; what is fed is part of the texts. */
static int texts_decode(kvb_scene *scene, text *const *texts, uint32_t n, uint32_t steps)
{
    kvb_scene_seq *seqs[KVB_SCENE_SEQS];
    int err = 0;
    for (uint32_t i = 0; i < n; i++)
        seqs[i] = &texts[i]->seq;
    for (uint32_t step = 0; step < steps && !err; step++) {
        for (uint32_t i = 0; i < n; i++)
            texts[i]->tok[texts[i]->n++] = texts[i]->seq.next;
        err = kvb_scene_decode(scene, seqs, n, 1);
    }
    return err;
}

static int leave(kvb_scene *scene, const text *t)
{
    return kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, SEQ_RM, .src = t->seq.id, .p1 = KVB_POS_END));
}

/* ---- prefix-reuse ------------------------------------------------------------------------------------------------ */

enum { SYSTEM = 38, OTHER_SYSTEM = 21, OWN = 5, REQUESTS = 9, ANSWER = 6, TURN = 3 };

static int reuse_play(kvb_scene *scene)
{
    text texts[2], last = {.n = 0};
    int err = 0;
    for (uint32_t r = 0; r < REQUESTS && !err; r += 2) {
        text *both[2] = {&texts[0], &texts[1]};
        for (uint32_t i = 0; i < 2 && !err; i++) {
            text *t = both[i];
            t->n = 0;
            if ((r + i) % TURN == 2)
                *t = last;
            else
                text_add(scene, t, i, i ? OTHER_SYSTEM : SYSTEM);
            text_add(scene, t, 10 + r + i, OWN + i);
            err = text_admit(scene, t, i, r + i == REQUESTS / 2 ? 7 : 0);
        }
        if (!err)
            err = texts_decode(scene, both, 2, ANSWER);
        last = texts[0];
        for (uint32_t i = 0; i < 2 && !err; i++)
            err = leave(scene, both[i]);
    }
    return err;
}

const kvb_scenario kvb_scenario_prefix_reuse = {
    .name = "prefix-reuse",
    .summary =
        "live model: 10 prompts behind two system prompts, some go on with a conversation, one under another key",
    .cache = "paged",
    .needs = KVB_CACHE_SEQ,
    .layers = 1,
    .capacity = 160,
    .seq_capacity = 128,
    .max_seqs = 2,
    .play = reuse_play,
};

/* ---- paged-sharing ----------------------------------------------------------------------------------------------- */

enum { TRUNK = 37, BRANCHES = 3, STEPS = 7, BACK = 4, LATER = 4 };

static int sharing_play(kvb_scene *scene)
{
    text trunk = {.n = 0}, branch[BRANCHES], later = {.n = 0};
    text *all[BRANCHES] = {&branch[0], &branch[1], &branch[2]};
    text_add(scene, &trunk, 0, TRUNK);
    int err = text_admit(scene, &trunk, 0, 0);
    for (uint32_t b = 0; b < BRANCHES && !err; b++) {
        branch[b] = trunk;
        err = kvb_scene_fork(scene, &trunk.seq, &branch[b].seq, b + 1, TRUNK);
        branch[b].seq.next = kvb_runner_best(&scene->runner, TRUNK - 1, b);
        err = err ? err : kvb_scene_say(scene, branch[b].seq.next);
    }
    err = err ? err : texts_decode(scene, all, BRANCHES, STEPS);
    err = err ? err : leave(scene, &trunk);
    err = err ? err : kvb_scene_backtrack(scene, &branch[1].seq, BACK);
    branch[1].n -= BACK;
    err = err ? err : texts_decode(scene, all, BRANCHES, STEPS);
    text_add(scene, &later, 0, TRUNK);
    text_add(scene, &later, 1, LATER);
    err = err ? err : text_admit(scene, &later, 0, 0);
    err = err ? err : leave(scene, &branch[2]);
    trunk = branch[0]; /* a prompt that goes on where a branch ended */
    text_add(scene, &trunk, 2, LATER);
    err = err ? err : text_admit(scene, &trunk, 3, 0);
    text *rest[] = {&later, &branch[0], &branch[1], &trunk};
    return err ? err : texts_decode(scene, rest, 4, STEPS);
}

const kvb_scenario kvb_scenario_paged_sharing = {
    .name = "paged-sharing",
    .summary = "live model: a trunk forked in mid-page, branches that write, a cut, later prompts that begin alike",
    .cache = "paged",
    .needs = KVB_CACHE_SEQ,
    .layers = 1,
    .capacity = 256,
    .seq_capacity = 96,
    .max_seqs = 4,
    .rollback = 8,
    .play = sharing_play,
};

/* ---- continuous-admission ---------------------------------------------------------------------------------------- */

enum { SHARED = 33, ARRIVALS = 6, AT_ONCE = 3, CHUNK = 5, EACH = 2, SAYS = 5 };

static int admission_play(kvb_scene *scene)
{
    text texts[ARRIVALS];
    uint32_t running = 0, first = 0; /* texts first .. running-1 are decoded */
    int err = 0;
    for (uint32_t r = 0; r < ARRIVALS && !err; r++) {
        text *t = &texts[r], *others[AT_ONCE];
        t->n = 0;
        text_add(scene, t, 0, SHARED);
        err = text_admit(scene, t, r % (AT_ONCE + 1), 0);
        for (uint32_t chunk = 0; chunk < EACH && !err; chunk++) { /* the rest of its prompt beside the others' tokens */
            uint32_t ids[AT_ONCE + CHUNK], n = 0;
            int32_t tok[AT_ONCE + CHUNK];
            for (uint32_t i = first; i < running; i++) {
                ids[n] = texts[i].seq.id;
                tok[n++] = texts[i].tok[texts[i].n++] = texts[i].seq.next;
            }
            for (uint32_t i = 0; i < CHUNK; i++) {
                ids[n] = t->seq.id;
                tok[n++] = t->tok[t->n++] = kvb_scene_prompt(scene, 10 + r, chunk * CHUNK + i);
            }
            err = kvb_scene_check(scene, kvb_runner_step(&scene->runner, KVB_EVENT_STEP, ids, tok, n));
            for (uint32_t i = first; i < running && !err; i++) {
                texts[i].seq.length++;
                err = kvb_scene_choose(scene, &texts[i].seq, i - first);
            }
            t->seq.length += CHUNK;
            err = err ? err : kvb_scene_choose(scene, &t->seq, n - 1);
        }
        running = r + 1;
        for (uint32_t i = first; i < running; i++)
            others[i - first] = &texts[i];
        err = err ? err : texts_decode(scene, others, running - first, SAYS);
        if (!err && running - first == AT_ONCE)
            err = leave(scene, &texts[first++]);
    }
    return err;
}

const kvb_scenario kvb_scenario_continuous_admission = {
    .name = "continuous-admission",
    .summary =
        "live model: prompts that begin alike arrive, their rest is prefilled in steps beside the others' decoding",
    .cache = "paged",
    .needs = KVB_CACHE_SEQ,
    .layers = 1,
    .capacity = 256,
    .seq_capacity = 96,
    .max_seqs = 4,
    .play = admission_play,
};
