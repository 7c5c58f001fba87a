/* SPDX-License-Identifier: Apache-2.0 */
/* From a scenario to the workload files that ship. */
#include "workloads/live/live.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Heads and dims of Llama 3 8B, one layer: what attention costs does not depend on how many there are. */
static const kvb_model realistic = {
    .n_layers = 1,
    .n_groups = 1,
    .groups =
        {{.heads = 32, .kv_heads = 8, .k_dim = 128, .v_dim = 128, .scale = 0.08838834764831845 /* 1/sqrt(128) */}},
};
static const char realistic_suffix[] = "-8x128", realistic_profile[] = "llama";

enum { LONG_FILL = 32768, LONG_DECODE = 32 };

/* The realistic geometry, one layer of each group that the scenario has. */
static void realistic_make(const kvb_scenario *scenario, kvb_model *model)
{
    const kvb_model_config one_of_each = {
        .layers = scenario->full_every ? 2 : 1, .heads = 1, .kv_heads = 1, .head_dim = 1};
    kvb_scenario two = *scenario;
    two.full_every = scenario->full_every ? 2 : 0;
    kvb_live_model(&two, &one_of_each, model);
    for (uint32_t g = 0; g < model->n_groups; g++) {
        kvb_group limits = model->groups[g];
        model->groups[g] = realistic.groups[0];
        model->groups[g].window = limits.window;
        model->groups[g].sinks = limits.sinks;
        model->groups[g].chunk = limits.chunk;
    }
}

static int save(const kvb_scenario *scenario, const kvb_recorder *recorder, const kvb_live_options *options,
                const char *directory, char *why, size_t why_bytes)
{
    int err = kvb_recorder_save(recorder, directory, scenario->name, scenario->summary, scenario->note, why, why_bytes);
    if (err)
        return err;
    char name[96], source[256];
    snprintf(name, sizeof name, "%s%s", scenario->name, realistic_suffix);
    snprintf(source, sizeof source, "events of %s, seeded values", scenario->name);
    kvb_model model;
    realistic_make(scenario, &model);
    return kvb_recorder_save_seeded(recorder, directory, name, source, scenario->note, &model, realistic_profile,
                                    options->seed, why, why_bytes);
}

int kvb_live_record(const kvb_scenario *scenario, const kvb_live_options *options, const char *directory,
                    kvb_live_outcome *outcome, char *why, size_t why_bytes)
{
    *outcome = (kvb_live_outcome){0};
    kvb_model_config config;
    kvb_model model;
    kvb_scenario_config(scenario, &config);
    kvb_live_model(scenario, options->weights ? &options->weights->config : &config, &model);
    kvb_recorder recorder;
    int err = kvb_recorder_open(&recorder, &model);
    if (err) {
        snprintf(why, why_bytes, "%s: no memory for the recorder", scenario->name);
        return err;
    }
    kvb_live_options recording = *options;
    recording.recorder = &recorder;
    err = kvb_live_play(scenario, &recording, outcome, why, why_bytes);
    if (!err)
        err = save(scenario, &recorder, options, directory, why, why_bytes);
    kvb_recorder_close(&recorder);
    return err;
}

int kvb_live_write_long_decode(uint64_t seed, const char *directory, char *why, size_t why_bytes)
{
    kvb_recorder recorder;
    int err = kvb_recorder_open(&recorder, &(kvb_model){.n_layers = 0});
    uint32_t *pos = calloc(LONG_FILL, sizeof *pos), *seq = calloc(LONG_FILL, sizeof *seq);
    if (err || !pos || !seq) {
        err = -ENOMEM;
        snprintf(why, why_bytes, "%s: no memory", KVB_LONG_DECODE);
        goto out;
    }
    for (uint32_t i = 0; i < LONG_FILL; i++)
        pos[i] = i;
    err = kvb_recorder_event(&recorder, &(kvb_event){.kind = KVB_EVENT_FILL, .n = LONG_FILL, .pos = pos, .seq = seq});
    for (uint32_t i = 0; !err && i < LONG_DECODE; i++) {
        uint32_t at = LONG_FILL + i;
        err = kvb_recorder_event(&recorder, &(kvb_event){.kind = KVB_EVENT_STEP, .n = 1, .pos = &at, .seq = seq});
    }
    if (err)
        snprintf(why, why_bytes, "%s: no memory", KVB_LONG_DECODE);
    else
        err = kvb_recorder_save_seeded(&recorder, directory, KVB_LONG_DECODE,
                                       "synthetic: one sequence, 32768 cells filled, 32 decode steps", NULL, &realistic,
                                       realistic_profile, seed, why, why_bytes);
out:
    free(pos);
    free(seq);
    kvb_recorder_close(&recorder);
    return err;
}
