/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batched-multi-seq: 8 sequences as a server with continuous batching runs them. Each step decodes all that
 * are running and, where a long prompt waits, carries one chunk of it along (Agrawal et al., Sarathi-Serve,
 * OSDI 2024). Sequences leave when they are done; two of the ids come to life a second time, in cells that
 * others left.
 */
#include "workloads/live/scenario.h"

typedef struct request {
    uint32_t seq;      /* id */
    uint32_t arrives;  /* before this step */
    uint32_t prompt;   /* tokens */
    uint32_t generate; /* tokens */
    uint32_t chunk;    /* prompt tokens a step, beside the others' decoding; 0: all at once, alone */
} request;

static const request requests[] = {
    {0, 0, 24, 40, 0}, {1, 0, 7, 18, 0},   {2, 3, 40, 30, 16},  {3, 5, 13, 9, 0},   {4, 8, 33, 36, 16},
    {5, 9, 3, 44, 0},  {6, 14, 19, 12, 8}, {7, 16, 52, 24, 16}, {3, 22, 28, 20, 8}, {1, 30, 10, 14, 0},
};
enum { REQUESTS = sizeof requests / sizeof *requests, MAX_STEP = 64 };

typedef enum phase { WAITING, PREFILLING, RUNNING, GONE } phase;

typedef struct progress {
    phase phase;
    uint32_t generated;
    kvb_scene_seq seq;
} progress;

/* Requests that are done leave; those that prefill alone enter. */
static int admit(kvb_scene *scene, progress *at, uint32_t step)
{
    int err = 0;
    for (uint32_t r = 0; !err && r < REQUESTS; r++)
        if (at[r].phase == RUNNING && at[r].generated >= requests[r].generate) {
            at[r].phase = GONE;
            err = kvb_scene_check(scene,
                                  KVB_RUNNER_DO(&scene->runner, SEQ_RM, .src = requests[r].seq, .p1 = KVB_POS_END));
        }
    for (uint32_t r = 0; !err && r < REQUESTS; r++) {
        if (at[r].phase != WAITING || requests[r].arrives > step)
            continue;
        at[r].phase = PREFILLING;
        if (requests[r].chunk)
            continue;
        err = kvb_scene_prefill(scene, requests[r].seq, r, 0, requests[r].prompt);
        if (err)
            break;
        at[r].phase = RUNNING;
        at[r].seq.length = requests[r].prompt;
        err = kvb_scene_choose(scene, &at[r].seq, requests[r].prompt - 1);
        at[r].generated = 1;
    }
    return err;
}

/* One step of all that run plus one chunk. *n: tokens in it; 0 when there is nothing to do. */
static int advance(kvb_scene *scene, progress *at, uint32_t *n)
{
    uint32_t ids[MAX_STEP], chunk = 0, chunk_of = REQUESTS, decoding = 0;
    int32_t tok[MAX_STEP];
    for (uint32_t r = 0; r < REQUESTS; r++) {
        if (at[r].phase == PREFILLING && chunk_of == REQUESTS)
            chunk_of = r;
        if (at[r].phase != RUNNING)
            continue;
        ids[decoding] = requests[r].seq;
        tok[decoding++] = at[r].seq.next;
    }
    *n = decoding;
    if (chunk_of < REQUESTS) {
        const request *q = &requests[chunk_of];
        uint32_t from = at[chunk_of].seq.length;
        for (; chunk < q->chunk && from + chunk < q->prompt; chunk++) {
            ids[*n] = q->seq;
            tok[(*n)++] = kvb_scene_prompt(scene, chunk_of, from + chunk);
        }
        at[chunk_of].seq.length += chunk;
    }
    if (*n == 0)
        return 0;
    kvb_event_kind kind = decoding == 0 ? KVB_EVENT_PREFILL : KVB_EVENT_STEP;
    int err = kvb_scene_check(scene, kvb_runner_step(&scene->runner, kind, ids, tok, *n));
    uint32_t row = 0;
    for (uint32_t r = 0; !err && r < REQUESTS; r++)
        if (at[r].phase == RUNNING) {
            at[r].seq.length++;
            at[r].generated++;
            err = kvb_scene_choose(scene, &at[r].seq, row++);
        }
    if (!err && chunk_of < REQUESTS && at[chunk_of].seq.length == requests[chunk_of].prompt) {
        at[chunk_of].phase = RUNNING;
        at[chunk_of].generated = 1;
        err = kvb_scene_choose(scene, &at[chunk_of].seq, *n - 1);
    }
    return err;
}

static int play(kvb_scene *scene)
{
    progress at[REQUESTS] = {0};
    for (uint32_t r = 0; r < REQUESTS; r++)
        at[r].seq.id = requests[r].seq;
    uint32_t n = 1;
    int err = 0;
    for (uint32_t step = 0; !err && n > 0; step++) {
        err = admit(scene, at, step);
        if (!err)
            err = advance(scene, at, &n);
    }
    return err;
}

const kvb_scenario kvb_scenario_batched_multi_seq = {
    .name = "batched-multi-seq",
    .summary = "live model: 8 sequences batched, admissions, chunked prefill beside decode, departures",
    .cache = "seq",
    .needs = KVB_CACHE_SEQ,
    .capacity = 512,
    .seq_capacity = 128,
    .max_seqs = 8,
    .play = play,
};
