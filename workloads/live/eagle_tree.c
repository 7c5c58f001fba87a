/* SPDX-License-Identifier: Apache-2.0 */
/* eagle-tree: speculative decoding of one sequence; and the plain greedy decoding it must agree with. */
#include "workloads/live/eagle.h"
#include "workloads/live/scenario.h"

#include <stdio.h>

enum { PROMPT = KVB_EAGLE_PROMPT, ROUNDS = 48, CAPACITY = 512 };

/* Noise of the draft's weights relative to the target's: sets how often they agree. */
static const float usual_blur = 0.075f;

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
        err = kvb_eagle_propose(&scene->runner, &draft, &kvb_eagle_shape_25, &round, 1, &failed);
        if (!err)
            err = kvb_eagle_commit(&scene->runner, &draft, &round, 1, &failed);
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
    return kvb_play_eagle(scene, ROUNDS, usual_blur);
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

const kvb_scenario kvb_scenario_eagle_greedy = {
    .name = "eagle-greedy",
    .summary = "the prompt of eagle-tree, decoded greedily token by token",
    .cache = "contiguous",
    .capacity = CAPACITY,
    .seq_capacity = CAPACITY,
    .max_seqs = 1,
    .play = kvb_play_eagle_greedy,
};
