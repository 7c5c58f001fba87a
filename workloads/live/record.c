/* SPDX-License-Identifier: Apache-2.0 */
/* From a scenario to the workload files that ship. */
#include "workloads/live/live.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "workloads/live/rng.h"

/* Heads and dims of Llama 3 8B, one layer: what attention costs does not depend on how many there are. */
static const kvb_model llama = {
    .n_layers = 1,
    .n_groups = 1,
    .groups =
        {{.heads = 32, .kv_heads = 8, .k_dim = 128, .v_dim = 128, .scale = 0.08838834764831845 /* 1/sqrt(128) */}},
};
static const kvb_rope llama_rope = {.known = true, .base = 500000, .dims = 128};
static const char realistic_profile[] = "llama";

#define TWIN_SINKS 0x73696e6b73u /* stream of the twin's sink logits: "sinks" */
#define MOST_KINDS 2u            /* of layers: with limits and without */

enum { LONG_FILL = 32768, LONG_DECODE = 32 };

/* The realistic geometry, one layer of each kind that the scenario has; with sink logits, into `sinks`, where its model
 * has them. */
static void realistic_make(const kvb_scenario *scenario, uint64_t seed, float sinks[MOST_KINDS][KVB_MODEL_WIDTH],
                           kvb_model *model)
{
    kvb_scenario two = *scenario;
    two.full_every = scenario->full_every ? MOST_KINDS : 0;
    kvb_model_config config;
    kvb_scenario_config(scenario, &config);
    const bool both = scenario->full_every || (config.scan.heads && config.attend_every);
    kvb_model_config few = {.layers = both ? MOST_KINDS : 1, .scan = config.scan};
    few.attend_every = config.attend_every ? MOST_KINDS : 0;
    kvb_live_model(&two, &(kvb_weights){.config = few}, model);
    for (uint32_t g = 0; g < model->n_groups; g++) {
        if (kvb_group_scans(&model->groups[g])) {
            model->groups[g].scan = *scenario->real_scan;
            continue;
        }
        kvb_group *group = &model->groups[g], limits = *group;
        *group = scenario->real ? *scenario->real : llama.groups[0];
        group->rope = (scenario->needs & KVB_CACHE_SHIFT) ? llama_rope : (kvb_rope){.known = false};
        group->window = limits.window;
        group->sinks = limits.sinks;
        group->chunk = limits.chunk;
        for (uint32_t h = 0; config.sink_logits && h < group->heads; h++)
            sinks[g][h] = kvb_live_normal(seed, TWIN_SINKS + g, h);
        group->sink_logits = config.sink_logits ? sinks[g] : NULL;
    }
}

/* Other layers than the scenario's, with what a header says of them: their scale, and their rope where positions move.
 */
static void twin_make(const kvb_model *layers, bool moves, kvb_model *model)
{
    *model = *layers;
    for (uint32_t g = 0; g < model->n_groups; g++) {
        kvb_group *group = &model->groups[g];
        const uint32_t first = group->latent ? group->v_dim : 0;
        if (kvb_group_scans(group))
            continue;
        group->scale = 1 / sqrt(group->k_dim);
        group->rope = llama_rope;
        group->rope.first = first;
        group->rope.dims = (group->k_dim - first) / 2 * 2;
        group->rope.known = moves;
    }
}

void kvb_live_twin_suffix(const kvb_scenario *scenario, char *suffix, size_t bytes)
{
    const kvb_group *real = scenario->real ? scenario->real : llama.groups;
    const kvb_group_scan *scan = scenario->real_scan;
    if (!scan)
        snprintf(suffix, bytes, "-%ux%u", real->kv_heads, real->k_dim);
    else
        snprintf(suffix, bytes, "-%ux%ux%u", scan->heads, scan->d_k, scan->d_v);
}

static int save(const kvb_scenario *scenario, const kvb_recorder *recorder, const kvb_live_options *options,
                const char *directory, char *why, size_t why_bytes)
{
    int err = kvb_recorder_save(recorder, directory, scenario->name, scenario->summary, scenario->note, why, why_bytes);
    if (err)
        return err;
    char name[192], source[256], suffix[96];
    kvb_model model;
    float sinks[MOST_KINDS][KVB_MODEL_WIDTH];
    if (options->twin) {
        snprintf(suffix, sizeof suffix, "-%s", options->twin_name);
        twin_make(options->twin, scenario->needs & KVB_CACHE_SHIFT, &model);
    } else {
        kvb_live_twin_suffix(scenario, suffix, sizeof suffix);
        realistic_make(scenario, options->seed, sinks, &model);
    }
    snprintf(name, sizeof name, "%s%s", scenario->name, suffix);
    snprintf(source, sizeof source, "events of %s, seeded values", scenario->name);
    return kvb_recorder_save_seeded(recorder, directory, name, source, scenario->note, &model, realistic_profile,
                                    options->seed, why, why_bytes);
}

/* What was said, against plain greedy decoding. */
static int greedy_compare(const kvb_scenario *scenario, const kvb_live_options *recording, const kvb_live_outcome *said,
                          char *why, size_t why_bytes)
{
    kvb_live_options options = *recording;
    kvb_live_outcome greedy;
    options.recorder = NULL;
    options.n_greedy = (uint32_t)said->n;
    int err = kvb_live_play(scenario->greedy, &options, &greedy, why, why_bytes);
    for (size_t i = 0; i < said->n && !err; i++)
        if (i >= greedy.n || greedy.tokens[i] != said->tokens[i]) {
            snprintf(why, why_bytes, "%s: token %zu is another than greedy decoding says", scenario->name, i);
            err = -EPROTO;
        }
    kvb_live_outcome_free(&greedy);
    return err;
}

int kvb_live_record(const kvb_scenario *scenario, const kvb_live_options *options, const char *directory,
                    kvb_live_outcome *outcome, char *why, size_t why_bytes)
{
    *outcome = (kvb_live_outcome){0};
    kvb_live_options recording = *options;
    kvb_weights *seeded = NULL;
    int err = options->weights ? 0 : kvb_scenario_weights(scenario, options->seed, &seeded, why, why_bytes);
    if (err)
        return err;
    if (seeded)
        recording.weights = seeded;
    kvb_model model;
    kvb_live_model(scenario, recording.weights, &model);
    kvb_recorder recorder;
    err = kvb_recorder_open(&recorder, &model);
    if (err)
        snprintf(why, why_bytes, "%s: no memory for the recorder", scenario->name);
    recording.recorder = &recorder;
    if (!err)
        err = kvb_live_play(scenario, &recording, outcome, why, why_bytes);
    if (!err && scenario->greedy)
        err = greedy_compare(scenario, &recording, outcome, why, why_bytes);
    if (!err)
        err = save(scenario, &recorder, options, directory, why, why_bytes);
    kvb_recorder_close(&recorder);
    kvb_weights_close(seeded);
    return err;
}

int kvb_live_write_long_decode(const kvb_live_options *options, const char *directory, char *why, size_t why_bytes)
{
    kvb_recorder recorder;
    kvb_model model = llama;
    char name[192] = KVB_LONG_DECODE;
    if (options->twin) {
        snprintf(name, sizeof name, KVB_LONG_DECODE "-%s", options->twin_name);
        twin_make(options->twin, false, &model);
    }
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
        err = kvb_recorder_save_seeded(&recorder, directory, name,
                                       "synthetic: one sequence, 32768 cells filled, 32 decode steps", NULL, &model,
                                       realistic_profile, options->seed, why, why_bytes);
out:
    free(pos);
    free(seq);
    kvb_recorder_close(&recorder);
    return err;
}
