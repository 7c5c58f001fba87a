/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parallel-sample: one prompt is prefilled once, cloned into 8 sample rows, and all rows are decoded in
 * lockstep. Sample i starts with the i-th best token and is greedy after it.
 */
#include "workloads/live/scenario.h"

enum { PROMPT = 40, SAMPLES = 8, STEPS = 24 };

static int play(kvb_scene *scene)
{
    int err = kvb_scene_prefill(scene, 0, 0, 0, PROMPT);
    kvb_scene_seq seqs[SAMPLES], *rows[SAMPLES];
    for (uint32_t i = 0; !err && i < SAMPLES; i++) {
        rows[i] = &seqs[i];
        seqs[i] = (kvb_scene_seq){.id = i + 1, .length = PROMPT};
        seqs[i].next = kvb_runner_best(&scene->runner, PROMPT - 1, i);
        err = kvb_scene_say(scene, seqs[i].next);
        if (!err)
            err = kvb_scene_check(scene, KVB_RUNNER_DO(&scene->runner, SEQ_CP, .dst = seqs[i].id, .p1 = KVB_POS_END));
    }
    return err ? err : kvb_scene_decode(scene, rows, SAMPLES, STEPS);
}

const kvb_scenario kvb_scenario_parallel_sample = {
    .name = "parallel-sample",
    .summary = "live model: one prompt cloned into 8 samples, decoded in lockstep",
    .cache = "slab",
    .needs = KVB_CACHE_SEQ,
    .capacity = 1024,
    .seq_capacity = 80,
    .max_seqs = SAMPLES + 1,
    .play = play,
};
