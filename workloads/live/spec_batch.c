/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec-batch: trees of three sequences at once. The draft proposes level by level for all of them together, the target
 * verifies all trees in one pass; each sequence accepts what it agrees with. While their nodes are pending a fourth
 * sequence is decoded plainly. One of the three goes back into what a commit brought, and says it again. And the plain
 * greedy decoding that all must agree with.
 */
#include "workloads/live/eagle.h"
#include "workloads/live/scenario.h"

#include <stdio.h>
#include <string.h>

enum {
    TREES = 3,
    PLAIN = TREES, /* the sequence that is decoded plainly */
    PROMPT = 12,
    TOKENS = 16, /* that each sequence says */
    BACK_ROUND = 1,
    BACK_SEQ = 1,
    BACK = 2, /* tokens that are taken back; the last one said is not in the caches yet */
    NODES = 8,
    TEXT = TOKENS + NODES
};

/* The pending token, its three best, two and one of theirs, and one more level. */
static const uint32_t parents[NODES] = {0, 0, 0, 0, 1, 1, 2, 4};
static const kvb_eagle_shape shape = {.n = NODES, .parents = parents};

/* Noise of the draft's weights relative to the target's. */
static const float blur = 0.1f;

/* What a sequence has said. Its last token is in no cache. */
typedef struct text {
    int32_t said[TEXT];
    uint32_t n;
} text;

typedef struct stage {
    kvb_scene *scene;
    kvb_runner draft, *failed;
    text texts[TREES + 1];
} stage;

static int prompt_read(stage *s, uint32_t seq)
{
    uint32_t seqs[PROMPT];
    int32_t prompt[PROMPT];
    int err = kvb_scene_prefill(s->scene, seq, seq, 0, PROMPT);
    if (err)
        return err;
    s->texts[seq].said[s->texts[seq].n++] = kvb_runner_best(&s->scene->runner, PROMPT - 1, 0);
    for (uint32_t i = 0; i < PROMPT; i++) {
        seqs[i] = seq;
        prompt[i] = kvb_scene_prompt(s->scene, seq, i);
    }
    s->failed = &s->draft;
    return seq == PLAIN ? 0 : kvb_runner_step(&s->draft, KVB_EVENT_PREFILL, seqs, prompt, PROMPT);
}

static int plain_step(kvb_scene *scene, uint32_t seq, text *t)
{
    int err = kvb_scene_check(scene, kvb_runner_step(&scene->runner, KVB_EVENT_STEP, &seq, &t->said[t->n - 1], 1));
    if (!err)
        t->said[t->n++] = kvb_runner_best(&scene->runner, 0, 0);
    return err;
}

/* A sequence drops its last tokens, in both caches, and has the first of them to say again. */
static int back(stage *s, uint32_t seq)
{
    text *t = &s->texts[seq];
    const uint32_t length = PROMPT + t->n - 1 - BACK;
    s->failed = &s->scene->runner;
    int err = KVB_RUNNER_DO(&s->scene->runner, SEQ_RM, .src = seq, .p0 = length, .p1 = KVB_POS_END);
    if (err)
        return err;
    s->failed = &s->draft;
    t->n -= BACK;
    return KVB_RUNNER_DO(&s->draft, SEQ_RM, .src = seq, .p0 = length, .p1 = KVB_POS_END);
}

/* Rounds until each sequence has said enough; one that has leaves the batch. */
static int rounds_play(stage *s)
{
    kvb_live_outcome *outcome = s->scene->outcome;
    int err = 0;
    for (;; outcome->rounds++) {
        kvb_eagle_round rounds[TREES];
        uint32_t n = 0;
        for (uint32_t seq = 0; seq < TREES; seq++)
            if (s->texts[seq].n < TOKENS)
                rounds[n++] = (kvb_eagle_round){.seq = seq, .root = s->texts[seq].said[s->texts[seq].n - 1]};
        if (n == 0)
            return 0;
        err = kvb_eagle_propose(&s->scene->runner, &s->draft, &shape, rounds, n, &s->failed);
        if (!err) {
            s->failed = NULL;
            if (s->texts[PLAIN].n < TOKENS)
                err = plain_step(s->scene, PLAIN, &s->texts[PLAIN]);
        }
        if (!err)
            err = kvb_eagle_commit(&s->scene->runner, &s->draft, rounds, n, &s->failed);
        for (uint32_t i = 0; i < n && !err; i++) {
            text *t = &s->texts[rounds[i].seq];
            memcpy(t->said + t->n, rounds[i].tokens, rounds[i].n * sizeof *t->said);
            t->n += rounds[i].n;
            outcome->spoken += rounds[i].n;
            if (rounds[i].seq == BACK_SEQ && outcome->rounds == BACK_ROUND)
                err = back(s, BACK_SEQ);
        }
        if (err)
            return err;
    }
}

static int play_trees(kvb_scene *scene)
{
    stage s = {.scene = scene};
    kvb_weights *weights = NULL;
    int err = kvb_weights_blur(scene->weights, scene->options->seed + 1, blur, &weights);
    if (err) {
        snprintf(scene->why, sizeof scene->why, "no memory for the draft model");
        return err;
    }
    err = kvb_scene_runner(scene, "draft", weights, &s.draft);
    for (uint32_t seq = 0; seq <= PLAIN && !err; seq++)
        err = prompt_read(&s, seq);
    if (!err)
        err = rounds_play(&s);
    if (err && s.failed && s.failed->why[0])
        snprintf(scene->why, sizeof scene->why, "%s", s.failed->why);
    s.failed = NULL;
    while (!err && s.texts[PLAIN].n < TOKENS)
        err = plain_step(scene, PLAIN, &s.texts[PLAIN]);
    for (uint32_t i = 0; i < (TREES + 1) * TOKENS && !err; i++)
        err = kvb_scene_say(scene, s.texts[i / TOKENS].said[i % TOKENS]);
    kvb_runner_close(&s.draft);
    kvb_weights_close(weights);
    return err;
}

static int play_greedy(kvb_scene *scene)
{
    int err = 0;
    for (uint32_t seq = 0; seq <= PLAIN && !err; seq++) {
        text t = {.n = 1};
        err = kvb_scene_prefill(scene, seq, seq, 0, PROMPT);
        if (!err)
            t.said[0] = kvb_runner_best(&scene->runner, PROMPT - 1, 0);
        while (!err && t.n < TOKENS)
            err = plain_step(scene, seq, &t);
        for (uint32_t i = 0; i < TOKENS && !err; i++)
            err = kvb_scene_say(scene, t.said[i]);
    }
    return err;
}

static void geometry(kvb_model_config *config)
{
    config->heads = 2;
    config->kv_heads = 1;
}

const kvb_scenario kvb_scenario_spec_batch = {
    .name = "spec-batch",
    .summary = "live model: draft trees of three sequences proposed and verified together, a fourth decoded plainly "
               "meanwhile; one goes back into what was committed; a window of 4 and a sink in every other layer",
    .note = "The draft model is the target's weights with seeded noise of 0.1 of each matrix's root mean square.",
    .cache = "seq",
    .needs = KVB_CACHE_SEQ | KVB_CACHE_TREE,
    .geometry = geometry,
    .full_every = 2,
    .limits = {.window = 4, .sinks = 1},
    .rollback = BACK,
    .capacity = 256,
    .seq_capacity = PROMPT + TEXT + NODES,
    .max_seqs = TREES + 1,
    .greedy = &kvb_scenario_spec_greedy,
    .play = play_trees,
};

const kvb_scenario kvb_scenario_spec_greedy = {
    .name = "spec-greedy",
    .summary = "the prompts of spec-batch, decoded greedily token by token",
    .cache = "seq",
    .needs = KVB_CACHE_SEQ,
    .geometry = geometry,
    .full_every = 2,
    .limits = {.window = 4, .sinks = 1},
    .rollback = BACK,
    .capacity = 256,
    .seq_capacity = PROMPT + TEXT + NODES,
    .max_seqs = TREES + 1,
    .play = play_greedy,
};
