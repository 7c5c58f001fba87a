/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the scenarios while they are played. Private to workloads/live. */
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
    int error; /* 0, or the negative errno of the first call that failed */
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

/* The first call that fails sets scene->error and scene->why; all later calls do nothing. */

/* A runner's call, evaluated unless an earlier one failed. */
#define KVB_SCENE_TRY(scene, runner, call) ((scene)->error ? (void)0 : kvb_scene_take(scene, runner, call))
/* KVB_SCENE_DO(scene, SEQ_RM, .src = 3, .p1 = KVB_POS_END): a control event of the scene's runner. */
#define KVB_SCENE_DO(scene, KIND, ...)                                                                                 \
    KVB_SCENE_TRY(scene, &(scene)->runner, KVB_RUNNER_DO(&(scene)->runner, KIND, __VA_ARGS__))

/* Takes the result of a runner's call, with the runner's reason. */
void kvb_scene_take(kvb_scene *scene, const kvb_runner *runner, int error);
__attribute__((format(printf, 3, 4))) void kvb_scene_fail(kvb_scene *scene, int error, const char *format, ...);
/* Token i of prompt number `prompt`, seeded. */
int32_t kvb_scene_prompt(const kvb_scene *scene, uint32_t prompt, uint32_t i);
/* One forward pass, as kvb_runner_step(). */
void kvb_scene_step(kvb_scene *scene, kvb_event_kind kind, const uint32_t *seq, const int32_t *tok, uint32_t n);
/* The rank-th best token after new token i of the last step; 0 after a failure. */
int32_t kvb_scene_best(const kvb_scene *scene, uint32_t i, uint32_t rank);
/* Notes a generated token in the outcome. */
void kvb_scene_say(kvb_scene *scene, int32_t token);
/* One prefill of n prompt tokens, from token `from` of the prompt on, which is also its position: by that runner, or by
 * the scene's. */
void kvb_scene_feed(kvb_scene *scene, kvb_runner *runner, uint32_t seq, uint32_t prompt, uint32_t from, uint32_t n);
void kvb_scene_prefill(kvb_scene *scene, uint32_t seq, uint32_t prompt, uint32_t from, uint32_t n);
/* Makes the best token after new token i of the last step the sequence's next, and notes it. */
void kvb_scene_choose(kvb_scene *scene, kvb_scene_seq *seq, uint32_t i);
/* The same with the rank-th best token. */
void kvb_scene_choose_other(kvb_scene *scene, kvb_scene_seq *seq, uint32_t i, uint32_t rank);
/* Replaces the choice at the sequence's end by the second best token. */
void kvb_scene_choose_second(kvb_scene *scene, kvb_scene_seq *seq);
/* The first n tokens of a prompt become sequence id, in one prefill, and its next token is chosen. */
void kvb_scene_begin(kvb_scene *scene, kvb_scene_seq *seq, uint32_t id, uint32_t prompt, uint32_t n);
/* `steps` decode steps of all n sequences together. */
void kvb_scene_decode(kvb_scene *scene, kvb_scene_seq *const *seqs, uint32_t n, uint32_t steps);

/* Forks src's first `keep` tokens into dst. */
void kvb_scene_fork(kvb_scene *scene, const kvb_scene_seq *src, kvb_scene_seq *dst, uint32_t id, uint32_t keep);
/* Ends sequence id. */
void kvb_scene_leave(kvb_scene *scene, uint32_t id);
/* Takes the sequence's last n tokens back, and chooses the second best token in place of the first of them. */
void kvb_scene_backtrack(kvb_scene *scene, kvb_scene_seq *seq, uint32_t n);
/* Moves the sequence's tokens from position p0 on by delta positions. */
void kvb_scene_shift(kvb_scene *scene, kvb_scene_seq *seq, uint32_t p0, int32_t delta);

/* Histories that scenarios share. */
void kvb_play_plain_decode(kvb_scene *scene); /* one sequence */
/* Sequence 0 gets a prompt of so many tokens and so many decode steps; sequences 1 .. n fork from it, each with another
 * of its best next tokens. seqs: [n + 1]. */
void kvb_play_branches(kvb_scene *scene, uint32_t prompt, uint32_t steps, kvb_scene_seq *seqs, uint32_t n);
#define KVB_EAGLE_PROMPT 48u
/* One sequence, a prompt of KVB_EAGLE_PROMPT tokens, trees of 26 nodes; blur: noise of the draft's weights, relative to
 * the target's weights. */
void kvb_play_eagle(kvb_scene *scene, uint32_t rounds, float blur);
void kvb_play_eagle_greedy(kvb_scene *scene); /* plain greedy decoding, which must give the same tokens */

/* Opens a runner of these weights over the scene's cache type, without a recorder. */
void kvb_scene_runner(kvb_scene *scene, const kvb_weights *weights, kvb_runner *runner);

#endif
