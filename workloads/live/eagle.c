/* SPDX-License-Identifier: Apache-2.0 */
#include "workloads/live/eagle.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "workloads/live/scenario.h"

#define KVB_EAGLE_MAX_NODES 64u

#define KVB_EAGLE_BATCH 4u /* most sequences of one round */

/* One sequence's round. */
typedef struct kvb_eagle_round {
    uint32_t seq;
    int32_t root;                        /* the next token, not yet in a cache */
    int32_t tokens[KVB_EAGLE_MAX_NODES]; /* accepted draft tokens, then the bonus: the next round's root */
    uint32_t n;                          /* of these; and nodes of the path */
    uint32_t path[KVB_EAGLE_MAX_NODES];  /* accepted nodes, the root first */
} kvb_eagle_round;

/* Rounds return 0 or a negative errno, with *failed the runner whose why holds the reason. Both runners hold the same
 * committed tokens. */

/* `mc_sim_7b_63` of the EAGLE repository (SafeAILab/EAGLE, Apache-2.0): widths 1, 4, 8, 8, 3, 2. */
static const uint32_t mc_sim_7b_63[] = {0, 0, 0, 0, 0, 1, 1, 1, 2,  2,  3,  3,  4,
                                        5, 5, 5, 6, 6, 7, 7, 8, 13, 13, 13, 21, 21};
const kvb_eagle_shape kvb_eagle_shape_25 = {.n = sizeof mc_sim_7b_63 / sizeof *mc_sim_7b_63, .parents = mc_sim_7b_63};

/* End of the level that starts at node `begin`: the first node whose parent is in it. */
static uint32_t level_end(const kvb_eagle_shape *shape, uint32_t begin)
{
    uint32_t end = begin + 1;
    while (end < shape->n && shape->parents[end] < begin)
        end++;
    return end;
}

/* Nodes begin .. end-1 of all trees in one call; logits follow in the order of rounds, then nodes. */
static int nodes_propose(kvb_runner *r, const kvb_eagle_shape *shape, const kvb_eagle_round *rounds, uint32_t n,
                         int32_t (*tok)[KVB_EAGLE_MAX_NODES], uint32_t begin, uint32_t end)
{
    uint32_t seqs[KVB_EAGLE_BATCH * KVB_EAGLE_MAX_NODES], at = 0;
    int32_t parents[KVB_EAGLE_BATCH * KVB_EAGLE_MAX_NODES], all[KVB_EAGLE_BATCH * KVB_EAGLE_MAX_NODES];
    for (uint32_t q = 0; q < n; q++)
        for (uint32_t node = begin; node < end; node++, at++) {
            seqs[at] = rounds[q].seq;
            parents[at] = node ? (int32_t)shape->parents[node] : -1;
            all[at] = tok[q][node];
        }
    return kvb_runner_propose(r, seqs, parents, all, at);
}

/* Lets the draft fill in tok[][1 ..], feeding it every node. */
static int draft_propose(kvb_runner *draft, const kvb_eagle_shape *shape, const kvb_eagle_round *rounds, uint32_t n,
                         int32_t (*tok)[KVB_EAGLE_MAX_NODES])
{
    for (uint32_t begin = 0, end; begin < shape->n; begin = end) {
        end = level_end(shape, begin);
        int err = nodes_propose(draft, shape, rounds, n, tok, begin, end);
        if (err)
            return err;
        for (uint32_t child = end, rank = 0; child < shape->n && shape->parents[child] < end; child++) {
            rank = child > end && shape->parents[child] == shape->parents[child - 1] ? rank + 1 : 0;
            for (uint32_t q = 0; q < n; q++)
                tok[q][child] = kvb_runner_best(draft, q * (end - begin) + shape->parents[child] - begin, rank);
        }
    }
    return 0;
}

/* Rounds of n sequences: each level of all trees is drafted in one pass, all trees are verified in one. Their nodes are
 * pending then, in both caches; what is accepted is said in the rounds. */
static int eagle_propose(kvb_runner *target, kvb_runner *draft, const kvb_eagle_shape *shape, kvb_eagle_round *rounds,
                         uint32_t n, kvb_runner **failed)
{
    int32_t tok[KVB_EAGLE_BATCH][KVB_EAGLE_MAX_NODES];
    assert(shape->n <= KVB_EAGLE_MAX_NODES && n <= KVB_EAGLE_BATCH);
    for (uint32_t q = 0; q < n; q++)
        tok[q][0] = rounds[q].root;
    *failed = draft;
    int err = draft_propose(draft, shape, rounds, n, tok);
    if (err)
        return err;
    *failed = target;
    err = nodes_propose(target, shape, rounds, n, tok, 0, shape->n);
    for (uint32_t q = 0; q < n && !err; q++) {
        kvb_eagle_round *round = &rounds[q];
        round->path[0] = round->n = 0;
        for (uint32_t child = 1;; child = round->path[round->n] + 1) {
            const uint32_t last = round->path[round->n];
            int32_t wanted = kvb_runner_best(target, q * shape->n + last, 0);
            while (child < shape->n && !(shape->parents[child] == last && tok[q][child] == wanted))
                child++;
            round->tokens[round->n++] = wanted;
            if (child == shape->n)
                break;
            round->path[round->n] = child;
        }
    }
    return err;
}

/* Commits what is accepted. */
static int eagle_commit(kvb_runner *target, kvb_runner *draft, const kvb_eagle_round *rounds, uint32_t n,
                        kvb_runner **failed)
{
    kvb_runner *const both[] = {target, draft};
    int err = 0;
    for (uint32_t q = 0; q < n && !err; q++)
        for (int i = 0; i < 2 && !err; i++) {
            *failed = both[i];
            err = KVB_RUNNER_DO(both[i], COMMIT, .src = rounds[q].seq, .n = rounds[q].n,
                                .accepted = (uint32_t *)(uintptr_t)rounds[q].path);
        }
    return err;
}

/* eagle-tree: speculative decoding of one sequence; and the plain greedy decoding it must agree with. */

enum { PROMPT = KVB_EAGLE_PROMPT, ROUNDS = 48, CAPACITY = 512 };

/* Noise of the draft's weights relative to the target's: sets how often they agree. */
static const float tree_blur = 0.075f;

int kvb_play_eagle(kvb_scene *scene, uint32_t rounds, float blur)
{
    kvb_runner draft = {0}, *failed = NULL;
    kvb_weights *weights = NULL;
    kvb_scene_seq seq = {.id = 0, .length = PROMPT};
    int err = kvb_weights_blur(scene->weights, scene->options->seed + 1, blur, &weights);
    if (err) {
        snprintf(scene->why, sizeof scene->why, "no memory for the draft model");
        return err;
    }
    err = kvb_scene_runner(scene, "draft", weights, &draft);
    if (err)
        goto out;
    err = kvb_scene_prefill(scene, 0, 0, 0, PROMPT);
    if (err)
        goto out;
    err = kvb_scene_choose(scene, &seq, PROMPT - 1);
    if (err)
        goto out;
    uint32_t seqs[PROMPT] = {0};
    int32_t prompt[PROMPT];
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = kvb_scene_prompt(scene, 0, i);
    failed = &draft;
    err = kvb_runner_step(&draft, KVB_EVENT_PREFILL, seqs, prompt, PROMPT);

    kvb_live_outcome *outcome = scene->outcome;
    while (!err && outcome->rounds < rounds) {
        kvb_eagle_round round = {.seq = 0, .root = seq.next};
        err = eagle_propose(&scene->runner, &draft, &kvb_eagle_shape_25, &round, 1, &failed);
        if (!err)
            err = eagle_commit(&scene->runner, &draft, &round, 1, &failed);
        if (err)
            break;
        outcome->rounds++;
        outcome->spoken += round.n;
        seq.next = round.tokens[round.n - 1];
        for (uint32_t i = 0; !err && i < round.n; i++)
            err = kvb_scene_say(scene, round.tokens[i]);
    }
    if (err && failed && failed->why[0])
        snprintf(scene->why, sizeof scene->why, "%s", failed->why);
out:
    kvb_runner_close(&draft);
    kvb_weights_close(weights);
    return err;
}

static int play_tree(kvb_scene *scene)
{
    return kvb_play_eagle(scene, ROUNDS, tree_blur);
}

int kvb_play_eagle_greedy(kvb_scene *scene)
{
    kvb_scene_seq seq = {.id = 0, .length = PROMPT};
    int err = kvb_scene_prefill(scene, 0, 0, 0, PROMPT);
    if (!err)
        err = kvb_scene_choose(scene, &seq, PROMPT - 1);
    while (!err && scene->outcome->n < scene->options->n_greedy) {
        uint32_t id = 0;
        err = kvb_scene_check(scene, kvb_runner_step(&scene->runner, KVB_EVENT_STEP, &id, &seq.next, 1));
        if (err)
            break;
        seq.next = kvb_runner_best(&scene->runner, 0, 0);
        err = kvb_scene_say(scene, seq.next);
    }
    return err;
}

const kvb_scenario kvb_scenario_eagle_greedy = {
    .name = "eagle-greedy",
    .summary = "the prompt of eagle-tree, decoded greedily token by token",
    .cache = "contiguous",
    .capacity = CAPACITY,
    .seq_capacity = CAPACITY,
    .max_seqs = 1,
    .play = kvb_play_eagle_greedy,
};

const kvb_scenario kvb_scenario_eagle_tree = {
    .name = "eagle-tree",
    .summary = "live model: 48 rounds of EAGLE's 25-node tree (mc_sim_7b_63), verified whole, accepted greedily",
    .note = "The draft model is the target's weights with seeded noise of 0.075 of each matrix's root mean square: it "
            "agrees often by construction.",
    .cache = "tree",
    .needs = KVB_CACHE_TREE,
    .capacity = CAPACITY,
    .seq_capacity = CAPACITY,
    .max_seqs = 1,
    .greedy = &kvb_scenario_eagle_greedy,
    .play = play_tree,
};

/*
 * spec-batch: trees of three sequences at once. The draft proposes level by level for all of them together, the target
 * verifies all trees in one pass; each sequence accepts what it agrees with. While their nodes are pending a fourth
 * sequence is decoded plainly. One of the three goes back into what a commit brought, and says it again. And the plain
 * greedy decoding that all must agree with.
 */

enum {
    TREES = 3,
    PLAIN = TREES, /* the sequence that is decoded plainly */
    BATCH_PROMPT = 12,
    TOKENS = 16, /* that each sequence says */
    BACK_ROUND = 1,
    BACK_SEQ = 1,
    BACK = 2, /* tokens that are taken back; the last one said is not in the caches yet */
    NODES = 8,
    TEXT = TOKENS + NODES
};

/* The pending token, its three best, two and one of theirs, and one more level. */
static const uint32_t batch_parents[NODES] = {0, 0, 0, 0, 1, 1, 2, 4};
static const kvb_eagle_shape batch_shape = {.n = NODES, .parents = batch_parents};

/* Noise of the draft's weights relative to the target's. */
static const float batch_blur = 0.1f;

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
    uint32_t seqs[BATCH_PROMPT];
    int32_t prompt[BATCH_PROMPT];
    int err = kvb_scene_prefill(s->scene, seq, seq, 0, BATCH_PROMPT);
    if (err)
        return err;
    s->texts[seq].said[s->texts[seq].n++] = kvb_runner_best(&s->scene->runner, BATCH_PROMPT - 1, 0);
    for (uint32_t i = 0; i < BATCH_PROMPT; i++) {
        seqs[i] = seq;
        prompt[i] = kvb_scene_prompt(s->scene, seq, i);
    }
    s->failed = &s->draft;
    return seq == PLAIN ? 0 : kvb_runner_step(&s->draft, KVB_EVENT_PREFILL, seqs, prompt, BATCH_PROMPT);
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
    const uint32_t length = BATCH_PROMPT + t->n - 1 - BACK;
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
        err = eagle_propose(&s->scene->runner, &s->draft, &batch_shape, rounds, n, &s->failed);
        if (!err) {
            s->failed = NULL;
            if (s->texts[PLAIN].n < TOKENS)
                err = plain_step(s->scene, PLAIN, &s->texts[PLAIN]);
        }
        if (!err)
            err = eagle_commit(&s->scene->runner, &s->draft, rounds, n, &s->failed);
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
    int err = kvb_weights_blur(scene->weights, scene->options->seed + 1, batch_blur, &weights);
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
        err = kvb_scene_prefill(scene, seq, seq, 0, BATCH_PROMPT);
        if (!err)
            t.said[0] = kvb_runner_best(&scene->runner, BATCH_PROMPT - 1, 0);
        while (!err && t.n < TOKENS)
            err = plain_step(scene, seq, &t);
        for (uint32_t i = 0; i < TOKENS && !err; i++)
            err = kvb_scene_say(scene, t.said[i]);
    }
    return err;
}

static void batch_geometry(kvb_model_config *config)
{
    config->heads = 2;
    config->kv_heads = 1;
}

const kvb_scenario kvb_scenario_spec_greedy = {
    .name = "spec-greedy",
    .summary = "the prompts of spec-batch, decoded greedily token by token",
    .cache = "seq",
    .needs = KVB_CACHE_SEQ,
    .geometry = batch_geometry,
    .full_every = 2,
    .limits = {.window = 4, .sinks = 1},
    .rollback = BACK,
    .capacity = 256,
    .seq_capacity = BATCH_PROMPT + TEXT + NODES,
    .max_seqs = TREES + 1,
    .play = play_greedy,
};

const kvb_scenario kvb_scenario_spec_batch = {
    .name = "spec-batch",
    .summary = "live model: draft trees of three sequences proposed and verified together, a fourth decoded plainly "
               "meanwhile; one goes back into what was committed; a window of 4 and a sink in every other layer",
    .note = "The draft model is the target's weights with seeded noise of 0.1 of each matrix's root mean square.",
    .cache = "seq",
    .needs = KVB_CACHE_SEQ | KVB_CACHE_TREE,
    .geometry = batch_geometry,
    .full_every = 2,
    .limits = {.window = 4, .sinks = 1},
    .rollback = BACK,
    .capacity = 256,
    .seq_capacity = BATCH_PROMPT + TEXT + NODES,
    .max_seqs = TREES + 1,
    .greedy = &kvb_scenario_spec_greedy,
    .play = play_trees,
};
