/* SPDX-License-Identifier: Apache-2.0 */
/* What the scenarios share while they are played. Private to workloads/live. */
#ifndef KVB_LIVE_SCENARIO_H
#define KVB_LIVE_SCENARIO_H

#include "workloads/live/live.h"
#include "workloads/live/runner.h"

typedef struct kvb_scene {
    const kvb_scenario *scenario;
    const kvb_live_options *options;
    const kvb_weights *weights;
    kvb_model model; /* of the weights */
    kvb_runner runner;
    kvb_live_outcome *outcome;
    char why[256];
} kvb_scene;

/* Positions that a scenario's sequence may reach. */
#define KVB_SCENE_POSITIONS 384u

/* Most sequences that are decoded together. */
#define KVB_SCENE_SEQS 64u

/* A sequence that is being decoded. */
typedef struct kvb_scene_seq {
    uint32_t id;
    uint32_t length;                     /* tokens in the cache */
    int32_t next;                        /* chosen, not yet in the cache */
    int32_t second[KVB_SCENE_POSITIONS]; /* by position: the second best token there */
} kvb_scene_seq;

/* All calls: 0 or a negative errno with scene->why. */

/* The runner's result, with its reason kept. */
int kvb_scene_check(kvb_scene *scene, int err);
/* Token i of prompt number `prompt`, seeded. */
int32_t kvb_scene_prompt(const kvb_scene *scene, uint32_t prompt, uint32_t i);
/* Note a generated token. */
int kvb_scene_say(kvb_scene *scene, int32_t token);
/* One prefill of n prompt tokens, from token `from` of the prompt on, which is also its position. */
int kvb_scene_prefill(kvb_scene *scene, uint32_t seq, uint32_t prompt, uint32_t from, uint32_t n);
/* Take the greedy choice after new token i of the last step as the sequence's next, and say it. */
int kvb_scene_choose(kvb_scene *scene, kvb_scene_seq *seq, uint32_t i);
/* `steps` decode steps of all n sequences together. */
int kvb_scene_decode(kvb_scene *scene, kvb_scene_seq *const *seqs, uint32_t n, uint32_t steps);

/* Fork src's first `keep` tokens into dst. */
int kvb_scene_fork(kvb_scene *scene, const kvb_scene_seq *src, kvb_scene_seq *dst, uint32_t id, uint32_t keep);
/* Take the sequence's last n tokens back, and choose the second best in place of the first of them. */
int kvb_scene_backtrack(kvb_scene *scene, kvb_scene_seq *seq, uint32_t n);
/* Move what the sequence holds from position p0 on, its end, by delta positions. */
int kvb_scene_shift(kvb_scene *scene, kvb_scene_seq *seq, uint32_t p0, int32_t delta);
/* Another choice at the sequence's end than the one made before: the second best. */
int kvb_scene_choose_second(kvb_scene *scene, kvb_scene_seq *seq);

/* Histories that scenarios share. */
int kvb_play_plain_decode(kvb_scene *scene); /* one sequence */
#define KVB_EAGLE_PROMPT 48u
/* One sequence, that prompt, trees of 26 nodes; blur: noise of the draft's weights relative to the target's. */
int kvb_play_eagle(kvb_scene *scene, uint32_t rounds, float blur);
int kvb_play_eagle_greedy(kvb_scene *scene); /* what it is to say */

/* A runner of these weights over the scene's cache type, under that key, without a recorder. */
int kvb_scene_runner(kvb_scene *scene, const char *key, const kvb_weights *weights, kvb_runner *runner);

#endif
