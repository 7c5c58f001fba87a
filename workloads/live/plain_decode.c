/* SPDX-License-Identifier: Apache-2.0 */
/* plain-decode: one sequence; prefill, a second prompt part in chunks, decode. */
#include "workloads/live/scenario.h"

enum { FIRST_PART = 48, SECOND_PART = 80, CHUNK = 16, DECODE = 64 };

int kvb_play_plain_decode(kvb_scene *scene)
{
    kvb_scene_seq seq = {.id = 0};
    int err = kvb_scene_prefill(scene, seq.id, 0, 0, FIRST_PART);
    for (uint32_t done = 0; !err && done < SECOND_PART; done += CHUNK)
        err = kvb_scene_prefill(scene, seq.id, 0, FIRST_PART + done, CHUNK);
    if (err)
        return err;
    seq.length = FIRST_PART + SECOND_PART;
    err = kvb_scene_choose(scene, &seq, CHUNK - 1);
    return err ? err : kvb_scene_decode(scene, (kvb_scene_seq *[]){&seq}, 1, DECODE);
}

const kvb_scenario kvb_scenario_plain_decode = {
    .name = "plain-decode",
    .summary = "live model: prefill of 48, five chunks of 16, 64 decode steps",
    .cache = "contiguous",
    .capacity = 256,
    .seq_capacity = 256,
    .max_seqs = 1,
    .play = kvb_play_plain_decode,
};
