/* SPDX-License-Identifier: Apache-2.0 */
#include "workloads/live/live.h"

#include <assert.h>
#include <string.h>

#include "workloads/live/scenario.h"

#define KVB_EAGLE_MAX_NODES 64u

#define KVB_EAGLE_BATCH 4u /* most sequences of one round */

/* One sequence's round. */
typedef struct kvb_eagle_round {
    uint32_t seq;
    int32_t root;                        /* the next token, not yet in a cache */
    int32_t tokens[KVB_EAGLE_MAX_NODES]; /* accepted draft tokens, then the bonus: the next round's root */
    uint32_t n;                          /* number of these, and of nodes in the path */
    uint32_t path[KVB_EAGLE_MAX_NODES];  /* accepted nodes, the root first */
} kvb_eagle_round;

/* Both runners of a round, the target (the scene's) and the draft, hold the same committed tokens. */

/* `mc_sim_7b_63` of the EAGLE repository (SafeAILab/EAGLE, Apache-2.0): widths 1, 4, 8, 8, 3, 2. */
static const uint32_t mc_sim_7b_63[] = {0, 0, 0, 0, 0, 1, 1, 1, 2,  2,  3,  3,  4,
                                        5, 5, 5, 6, 6, 7, 7, 8, 13, 13, 13, 21, 21};
const kvb_eagle_shape kvb_eagle_shape_25 = {.n = sizeof mc_sim_7b_63 / sizeof *mc_sim_7b_63, .parents = mc_sim_7b_63};

/* Proposes nodes begin .. end-1 of all trees in one call. Logits are in the order of rounds, then nodes. */
static void nodes_propose(kvb_scene *scene, kvb_runner *r, const kvb_eagle_shape *shape, const kvb_eagle_round *rounds,
                          uint32_t n, int32_t (*tok)[KVB_EAGLE_MAX_NODES], uint32_t begin, uint32_t end)
{
    uint32_t seqs[KVB_EAGLE_BATCH * KVB_EAGLE_MAX_NODES], at = 0;
    int32_t parents[KVB_EAGLE_BATCH * KVB_EAGLE_MAX_NODES], all[KVB_EAGLE_BATCH * KVB_EAGLE_MAX_NODES];
    for (uint32_t q = 0; q < n; q++)
        for (uint32_t node = begin; node < end; node++, at++) {
            seqs[at] = rounds[q].seq;
            parents[at] = node ? (int32_t)shape->parents[node] : -1;
            all[at] = tok[q][node];
        }
    KVB_SCENE_TRY(scene, r, kvb_runner_propose(r, seqs, parents, all, at));
}

/* The draft fills in tok[][1 ..]; it is fed every node. */
static void draft_propose(kvb_scene *scene, kvb_runner *draft, const kvb_eagle_shape *shape,
                          const kvb_eagle_round *rounds, uint32_t n, int32_t (*tok)[KVB_EAGLE_MAX_NODES])
{
    for (uint32_t begin = 0, end; begin < shape->n; begin = end) {
        for (end = begin + 1; end < shape->n && shape->parents[end] < begin;)
            end++; /* a level ends before the first node that has its parent in it */
        nodes_propose(scene, draft, shape, rounds, n, tok, begin, end);
        for (uint32_t child = end, rank = 0; !scene->error && child < shape->n && shape->parents[child] < end;
             child++) {
            rank = child > end && shape->parents[child] == shape->parents[child - 1] ? rank + 1 : 0;
            for (uint32_t q = 0; q < n; q++)
                tok[q][child] = kvb_runner_best(draft, q * (end - begin) + shape->parents[child] - begin, rank);
        }
    }
}

/* Rounds of n sequences: one pass drafts each level of all trees, one pass verifies all trees. Then the nodes are
 * pending in both caches, and the rounds hold the accepted ones. */
static void eagle_propose(kvb_scene *scene, kvb_runner *draft, const kvb_eagle_shape *shape, kvb_eagle_round *rounds,
                          uint32_t n)
{
    int32_t tok[KVB_EAGLE_BATCH][KVB_EAGLE_MAX_NODES];
    assert(shape->n <= KVB_EAGLE_MAX_NODES && n <= KVB_EAGLE_BATCH);
    for (uint32_t q = 0; q < n; q++)
        tok[q][0] = rounds[q].root;
    draft_propose(scene, draft, shape, rounds, n, tok);
    nodes_propose(scene, &scene->runner, shape, rounds, n, tok, 0, shape->n);
    for (uint32_t q = 0; q < n && !scene->error; q++) {
        kvb_eagle_round *round = &rounds[q];
        round->path[0] = round->n = 0;
        for (uint32_t child = 1;; child = round->path[round->n] + 1) {
            const uint32_t last = round->path[round->n];
            int32_t wanted = kvb_scene_best(scene, q * shape->n + last, 0);
            while (child < shape->n && !(shape->parents[child] == last && tok[q][child] == wanted))
                child++;
            round->tokens[round->n++] = wanted;
            if (child == shape->n)
                break;
            round->path[round->n] = child;
        }
    }
}

/* Commits the accepted nodes. */
static void eagle_commit(kvb_scene *scene, kvb_runner *draft, const kvb_eagle_round *rounds, uint32_t n)
{
    kvb_runner *const both[] = {&scene->runner, draft};
    for (uint32_t q = 0; q < n; q++)
        for (int i = 0; i < 2; i++)
            KVB_SCENE_TRY(scene, both[i],
                          KVB_RUNNER_DO(both[i], COMMIT, .src = rounds[q].seq, .n = rounds[q].n,
                                        .accepted = (uint32_t *)(uintptr_t)rounds[q].path));
}

/* Opens the draft: the target's weights with noise of blur times their size. *weights: for kvb_weights_close(). */
static void draft_open(kvb_scene *scene, float blur, kvb_weights **weights, kvb_runner *draft)
{
    const int error = kvb_weights_blur(scene->weights, scene->options->seed + 1, blur, weights);
    if (error)
        kvb_scene_fail(scene, error, "no memory for the draft model");
    kvb_scene_runner(scene, *weights, draft);
}

/* eagle-tree: speculative decoding of one sequence; and the plain greedy decoding with which it must agree. */

enum { PROMPT = KVB_EAGLE_PROMPT, ROUNDS = 48, CAPACITY = 512 };

/* Noise of the draft's weights relative to the target's: sets how often they agree. */
static const float tree_blur = 0.075f;

void kvb_play_eagle(kvb_scene *scene, uint32_t rounds, float blur)
{
    kvb_runner draft;
    kvb_weights *weights = NULL;
    kvb_scene_seq seq;
    kvb_live_outcome *outcome = scene->outcome;
    draft_open(scene, blur, &weights, &draft);
    kvb_scene_begin(scene, &seq, 0, 0, PROMPT);
    kvb_scene_feed(scene, &draft, 0, 0, 0, PROMPT);
    while (!scene->error && outcome->rounds < rounds) {
        kvb_eagle_round round = {.seq = 0, .root = seq.next};
        eagle_propose(scene, &draft, &kvb_eagle_shape_25, &round, 1);
        eagle_commit(scene, &draft, &round, 1);
        if (scene->error)
            break;
        outcome->rounds++;
        outcome->spoken += round.n;
        seq.next = round.tokens[round.n - 1];
        for (uint32_t i = 0; i < round.n; i++)
            kvb_scene_say(scene, round.tokens[i]);
    }
    kvb_runner_close(&draft);
    kvb_weights_close(weights);
}

static void play_tree(kvb_scene *scene)
{
    kvb_play_eagle(scene, ROUNDS, tree_blur);
}

void kvb_play_eagle_greedy(kvb_scene *scene)
{
    kvb_scene_seq seq;
    kvb_scene_begin(scene, &seq, 0, 0, PROMPT);
    while (!scene->error && scene->outcome->n < scene->options->n_greedy) {
        kvb_scene_step(scene, KVB_EVENT_STEP, &seq.id, &seq.next, 1);
        kvb_scene_choose_other(scene, &seq, 0, 0);
    }
}

KVB_SCENARIO(eagle_greedy, .name = "eagle-greedy",
             .summary = "the prompt of eagle-tree, decoded greedily token by token", .cache = "contiguous",
             .capacity = CAPACITY, .seq_capacity = CAPACITY, .max_seqs = 1, .play = kvb_play_eagle_greedy);

KVB_SCENARIO(
    eagle_tree, .name = "eagle-tree",
    .summary = "live model: 48 rounds of EAGLE's 25-node tree (mc_sim_7b_63), verified whole, accepted greedily",
    .note = "The draft model is the target's weights with seeded noise of 0.075 of each matrix's root mean square: it "
            "agrees often by construction.",
    .cache = "tree", .small = &kvb_live_rank, .needs = KVB_CACHE_TREE, .capacity = CAPACITY, .seq_capacity = CAPACITY,
    .max_seqs = 1, .greedy = &kvb_scenario_eagle_greedy, .play = play_tree);

/*
 * spec-batch: trees of three sequences at once. The draft proposes level by level for all of them together, the target
 * verifies all trees in one pass, and each sequence accepts its own path. While their nodes are pending a fourth
 * sequence is decoded plainly. One of the three is cut back into committed tokens, and generates them again. And the
 * plain greedy decoding with which all must agree.
 */

enum {
    TREES = 3,
    PLAIN = TREES, /* the sequence that is decoded plainly */
    BATCH_PROMPT = 12,
    TOKENS = 16, /* that each sequence generates */
    BACK_ROUND = 1,
    BACK_SEQ = 1,
    BACK = 2, /* tokens that are taken back; the last generated one is not in the caches yet */
    NODES = 8,
    TEXT = TOKENS + NODES
};

/* The pending token, its three best children, two and one children of these, and one more level. */
static const uint32_t batch_parents[NODES] = {0, 0, 0, 0, 1, 1, 2, 4};
static const kvb_eagle_shape batch_shape = {.n = NODES, .parents = batch_parents};

/* Noise of the draft's weights relative to the target's. */
static const float batch_blur = 0.1f;

/* The tokens that a sequence has generated. The last one is in no cache. */
typedef struct text {
    int32_t said[TEXT];
    uint32_t n;
} text;

typedef struct stage {
    kvb_scene *scene;
    kvb_runner draft;
    text texts[TREES + 1];
} stage;

static void prompt_read(kvb_scene *scene, uint32_t seq, text *t)
{
    kvb_scene_prefill(scene, seq, seq, 0, BATCH_PROMPT);
    t->said[t->n++] = kvb_scene_best(scene, BATCH_PROMPT - 1, 0);
}

/* Decodes a sequence alone until it has generated n tokens. */
static void plain_steps(kvb_scene *scene, uint32_t seq, text *t, uint32_t n)
{
    while (!scene->error && t->n < n) {
        kvb_scene_step(scene, KVB_EVENT_STEP, &seq, &t->said[t->n - 1], 1);
        t->said[t->n++] = kvb_scene_best(scene, 0, 0);
    }
}

/* A sequence drops its last tokens in both caches, and will generate them again. */
static void back(stage *s, uint32_t seq)
{
    const uint32_t length = BATCH_PROMPT + s->texts[seq].n - 1 - BACK;
    KVB_SCENE_DO(s->scene, SEQ_RM, .src = seq, .p0 = length, .p1 = KVB_POS_END);
    KVB_SCENE_TRY(s->scene, &s->draft, KVB_RUNNER_DO(&s->draft, SEQ_RM, .src = seq, .p0 = length, .p1 = KVB_POS_END));
    s->texts[seq].n -= BACK;
}

/* Plays rounds until each sequence has generated TOKENS; one that has leaves the batch. */
static void rounds_play(stage *s)
{
    kvb_live_outcome *outcome = s->scene->outcome;
    for (; !s->scene->error; outcome->rounds++) {
        kvb_eagle_round rounds[TREES];
        text *plain = &s->texts[PLAIN];
        uint32_t n = 0;
        for (uint32_t seq = 0; seq < TREES; seq++)
            if (s->texts[seq].n < TOKENS)
                rounds[n++] = (kvb_eagle_round){.seq = seq, .root = s->texts[seq].said[s->texts[seq].n - 1]};
        if (n == 0)
            return;
        eagle_propose(s->scene, &s->draft, &batch_shape, rounds, n);
        plain_steps(s->scene, PLAIN, plain, plain->n < TOKENS ? plain->n + 1 : 0);
        eagle_commit(s->scene, &s->draft, rounds, n);
        for (uint32_t i = 0; i < n && !s->scene->error; i++) {
            text *t = &s->texts[rounds[i].seq];
            memcpy(t->said + t->n, rounds[i].tokens, rounds[i].n * sizeof *t->said);
            t->n += rounds[i].n;
            outcome->spoken += rounds[i].n;
            if (rounds[i].seq == BACK_SEQ && outcome->rounds == BACK_ROUND)
                back(s, BACK_SEQ);
        }
    }
}

static void play_trees(kvb_scene *scene)
{
    stage s = {.scene = scene};
    kvb_weights *weights = NULL;
    draft_open(scene, batch_blur, &weights, &s.draft);
    for (uint32_t seq = 0; seq <= PLAIN; seq++) {
        prompt_read(scene, seq, &s.texts[seq]);
        if (seq != PLAIN)
            kvb_scene_feed(scene, &s.draft, seq, seq, 0, BATCH_PROMPT);
    }
    rounds_play(&s);
    plain_steps(scene, PLAIN, &s.texts[PLAIN], TOKENS);
    for (uint32_t i = 0; i < (TREES + 1) * TOKENS; i++)
        kvb_scene_say(scene, s.texts[i / TOKENS].said[i % TOKENS]);
    kvb_runner_close(&s.draft);
    kvb_weights_close(weights);
}

static void play_greedy(kvb_scene *scene)
{
    for (uint32_t seq = 0; seq <= PLAIN; seq++) {
        text t = {.n = 0};
        prompt_read(scene, seq, &t);
        plain_steps(scene, seq, &t, TOKENS);
        for (uint32_t i = 0; i < TOKENS; i++)
            kvb_scene_say(scene, t.said[i]);
    }
}

static void batch_geometry(kvb_model_config *config)
{
    config->heads = 2;
    config->kv_heads = 1;
}

KVB_SCENARIO(spec_greedy, .name = "spec-greedy",
             .summary = "the prompts of spec-batch, decoded greedily token by token", .cache = "seq",
             .needs = KVB_CACHE_SEQ, .geometry = batch_geometry, .full_every = 2, .limits = {.window = 4, .sinks = 1},
             .rollback = BACK, .capacity = 256, .seq_capacity = BATCH_PROMPT + TEXT + NODES, .max_seqs = TREES + 1,
             .play = play_greedy);

KVB_SCENARIO(
    spec_batch, .name = "spec-batch",
    .summary = "live model: draft trees of three sequences proposed and verified together, a fourth decoded plainly "
               "meanwhile; one goes back into what was committed; a window of 4 and a sink in every other layer",
    .note = "The draft model is the target's weights with seeded noise of 0.1 of each matrix's root mean square.",
    .cache = "seq", .needs = KVB_CACHE_SEQ | KVB_CACHE_TREE, .geometry = batch_geometry, .full_every = 2,
    .limits = {.window = 4, .sinks = 1}, .rollback = BACK, .capacity = 256, .seq_capacity = BATCH_PROMPT + TEXT + NODES,
    .max_seqs = TREES + 1, .greedy = &kvb_scenario_spec_greedy, .play = play_trees);
