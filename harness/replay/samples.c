/* SPDX-License-Identifier: Apache-2.0 */
/* Growing arrays of step times. */
#include "harness/replay/samples.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

int kvb_sample_add(kvb_samples *s, double ns)
{
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 256;
        double *grown = realloc(s->ns, room * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        s->ns = grown;
        s->room = room;
    }
    s->ns[s->n++] = ns;
    return 0;
}

void kvb_samples_free(kvb_samples *s)
{
    free(s->ns);
    *s = (kvb_samples){0};
}

/* The steps that attend: what `time` of a result is about. */
static const kvb_step_kind attending[] = {KVB_KIND_PREFILL, KVB_KIND_DECODE, KVB_KIND_VERIFY};

int kvb_samples_report(kvb_samples times[KVB_STEP_KINDS], kvb_result *result)
{
    kvb_samples all = {0};
    int error = 0;
    for (size_t k = 0; k < sizeof attending / sizeof *attending; k++)
        for (size_t i = 0; i < times[attending[k]].n && !error; i++)
            error = kvb_sample_add(&all, times[attending[k]].ns[i]);
    if (!error) {
        kvb_time_stats_of(all.ns, all.n, &result->time.all);
        for (int kind = 0; kind < KVB_STEP_KINDS; kind++)
            kvb_time_stats_of(times[kind].ns, times[kind].n, &result->time.kinds[kind]);
        result->traffic.gb_per_s = all.n ? result->traffic.bytes_read / result->time.all.total : NAN; /* B/ns = GB/s */
    }
    kvb_samples_free(&all);
    return error;
}
