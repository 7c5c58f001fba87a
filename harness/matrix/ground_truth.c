/* SPDX-License-Identifier: Apache-2.0 */
/* Scales and oracle, made with all cores. */
#include "harness/matrix/ground_truth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/pools/pool.h"
#include "harness/interrupt.h"
#include "harness/machine/team.h"
#include "harness/replay/calibrate.h"

static int oracle_make(const kvb_truth_options *o, kvb_truth *t)
{
    kvb_threads *threads;
    int error = kvb_threads_start(kvb_cores(), false, &threads);
    if (error)
        return error;
    kvb_oracle_options options = {
        .k_format = o->pools.k->format,
        .v_format = o->pools.v->format,
        .k_amax = t->amax[0][0],
        .v_amax = t->amax[0][1],
        .max_pairs = o->max_pairs,
        .opinion_pairs = o->opinion_pairs,
        .seed = o->seed,
        .team = kvb_threads_team(threads),
        .stop = &kvb_stopped,
    };
    error = kvb_oracle_open(o->trace, o->values, &options, &t->oracle, t->oracle_why, sizeof t->oracle_why);
    kvb_threads_end(threads);
    return error;
}

/* Largest magnitudes of K and V rows, of values and tags, for pools that want them. */
static int calibrate(const kvb_truth_options *o, kvb_truth *t)
{
    const kvb_model *m = &o->trace->header.model;
    const kvb_values *of[2] = {o->values, o->tags};
    int error = 0;
    for (int i = 0; i < 2 && !error; i++) {
        if (of[i])
            error = kvb_calibrate(m, of[i], KVB_ROWS_K, o->pools.k->format, &t->amax[i][0]);
        if (of[i] && !error)
            error = kvb_calibrate(m, of[i], KVB_ROWS_V, o->pools.v->format, &t->amax[i][1]);
    }
    return error;
}

int kvb_truth_open(const kvb_truth_options *options, kvb_truth *truth, char *why, size_t why_bytes)
{
    *truth = (kvb_truth){.oracle = NULL};
    int error = calibrate(options, truth);
    if (!error && options->values && options->oracle)
        error = oracle_make(options, truth);
    if (error == -ENOTSUP)
        error = 0;
    if (error)
        snprintf(why, why_bytes, "oracle: %s", *truth->oracle_why ? truth->oracle_why : strerror(-error));
    return error;
}

void kvb_truth_close(kvb_truth *truth)
{
    kvb_oracle_free(truth->oracle);
    for (int i = 0; i < 4; i++)
        free(truth->amax[i / 2][i % 2]);
    *truth = (kvb_truth){.oracle = NULL};
}
