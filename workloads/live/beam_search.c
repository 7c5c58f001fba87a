/* SPDX-License-Identifier: Apache-2.0 */
/*
 * beam-search: the best four continuations of a prompt by the sum of their tokens' log-probabilities. After each step
 * the beams take each other's places: the best come first, a beam may go on in two ways and another die. One that says
 * an end token is a finished hypothesis and leaves, and the beam is one narrower (Sutskever et al., "Sequence to
 * Sequence Learning with Neural Networks", NeurIPS 2014, section 3.2). Forking, reordering and pruning are one call
 * each.
 */
#include "workloads/live/scenario.h"

#include <math.h>

enum {
    WIDTH = 4,
    NOBODY = WIDTH, /* a sequence that is never alive: what takes its place is gone */
    PROMPT = 36,
    PROMPT_NUMBER = 3, /* with which beams swap, die and end */
    STEPS = 24,
    ENDS = 2, /* the first so many tokens of the vocabulary end a hypothesis */
    WINDOW = 8
};

typedef struct beam {
    uint32_t parent;
    int32_t next; /* chosen, not yet in the cache */
    double score; /* log-probability of what it has said */
} beam;

/* Logarithm of the sum of exp(logits). */
static double log_sum(const float *logits, uint32_t n)
{
    double most = logits[0], sum = 0;
    for (uint32_t i = 1; i < n; i++)
        most = most > logits[i] ? most : logits[i];
    uint32_t i = 0;
    do
        sum += exp(logits[i] - most);
    while (++i < n);
    return most + log(sum);
}

/* The best continuations of n beams, of which beam b's logits are those of new token first + b: best first, as many as
 * there is room for in `to`, each beam's WIDTH best being asked. */
static uint32_t beams_extend(const kvb_scene *scene, const beam *beams, uint32_t n, uint32_t first, beam *to)
{
    const kvb_runner *r = &scene->runner;
    const uint32_t vocab = r->weights->config.vocab;
    uint32_t found = 0;
    for (uint32_t b = 0; b < n; b++) {
        const float *logits = r->logits + (size_t)(first + b) * vocab;
        const double all = log_sum(logits, vocab);
        for (uint32_t rank = 0; rank < WIDTH; rank++) {
            beam one = {.parent = b, .next = kvb_runner_best(r, first + b, rank)};
            one.score = beams[b].score + logits[one.next] - all;
            uint32_t at = found++;
            for (; at > 0 && one.score > to[at - 1].score; at--)
                to[at] = to[at - 1];
            to[at] = one;
        }
    }
    return found;
}

/* Takes the best continuations as the beams, but those that have ended; says what each says. Returns how many beams are
 * left. */
static uint32_t beams_choose(const beam *from, uint32_t n_from, uint32_t width, beam *beams)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_from && n < width; i++) {
        if (from[i].next < ENDS)
            width--;
        else
            beams[n++] = from[i];
    }
    return n;
}

static int play(kvb_scene *scene)
{
    beam beams[WIDTH] = {{.score = 0}}, more[WIDTH * WIDTH];
    uint32_t ids[WIDTH], parents[WIDTH], n = WIDTH;
    int32_t tok[WIDTH];
    int err = kvb_scene_prefill(scene, 0, PROMPT_NUMBER, 0, PROMPT);
    if (!err)
        n = beams_choose(more, beams_extend(scene, beams, 1, PROMPT - 1, more), WIDTH, beams);
    for (uint32_t step = 0; !err && step < STEPS && n; step++) {
        for (uint32_t b = 0; b < WIDTH; b++) {
            ids[b] = b;
            parents[b] = b < n ? beams[b].parent : NOBODY;
        }
        err = kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, REORDER, .dsts = ids, .srcs = parents, .n = WIDTH));
        for (uint32_t b = 0; !err && b < n; b++) {
            tok[b] = beams[b].next;
            err = kvb_scene_say(scene, tok[b]);
        }
        if (!err)
            err = kvb_scene_check(scene, kvb_runner_step(&scene->runner, KVB_EVENT_STEP, ids, tok, n));
        if (!err)
            n = beams_choose(more, beams_extend(scene, beams, n, 0, more), n, beams);
    }
    return err;
}

static void geometry(kvb_model_config *config)
{
    config->heads = 2;
    config->kv_heads = 1;
}

const kvb_scenario kvb_scenario_beam_search = {
    .name = "beam-search",
    .summary =
        "live model: beam search of width 4; beams swap, fork and die, finished ones leave; every other layer has a "
        "window of 8",
    .cache = "seq",
    .needs = KVB_CACHE_SEQ | KVB_CACHE_REORDER,
    .geometry = geometry,
    .full_every = 2,
    .limits = {.window = WINDOW},
    .capacity = 512,
    .seq_capacity = PROMPT + STEPS,
    .max_seqs = WIDTH,
    .play = play,
};
