/* SPDX-License-Identifier: Apache-2.0 */
/* Counters: the table of sources. */
#include "harness/counters/counters.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "harness/counters/source.h"

/* In the order of the report. They start in the opposite order and stop in this one, so that hardware counters see as
 * little as possible of the others. */
static const kvb_counter_source *const sources[] = {&kvb_counters_papi, &kvb_counters_perf, &kvb_counters_rusage};
#define SOURCES (sizeof sources / sizeof *sources)

struct kvb_counters {
    void *states[SOURCES];
};

int kvb_counters_open(const char *const *events, kvb_own_counts *own, kvb_counters **counters)
{
    kvb_counters *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    for (size_t i = 0; i < SOURCES; i++) {
        int error = sources[i]->open(events, own, &c->states[i]);
        if (error) {
            kvb_counters_close(c);
            return error;
        }
    }
    *counters = c;
    return 0;
}

void kvb_counters_start(kvb_counters *counters)
{
    for (size_t i = SOURCES; i-- > 0;)
        sources[i]->start(counters->states[i]);
}

void kvb_counters_stop(kvb_counters *counters)
{
    for (size_t i = 0; i < SOURCES; i++)
        sources[i]->stop(counters->states[i]);
}

void kvb_counters_report(const kvb_counters *counters, kvb_result *result)
{
    for (size_t i = 0; i < SOURCES; i++)
        sources[i]->report(counters->states[i], result);
}

void kvb_counters_close(kvb_counters *counters)
{
    for (size_t i = 0; counters && i < SOURCES; i++)
        if (counters->states[i])
            sources[i]->close(counters->states[i]);
    free(counters);
}

int kvb_counters_admit(const char *command, const kvb_words *events)
{
    char why[256];
    for (size_t i = 0; i < events->n; i++) {
        int error = kvb_counters_check(events->at[i], why, sizeof why);
        if (error == -EINVAL)
            return kvb_complain(command, KVB_EXIT_USAGE, "--set events=%s: %s", events->at[i], why);
        if (error)
            kvb_complain(command, 0, "note: --set events=%s cannot be counted here: %s", events->at[i], why);
    }
    return KVB_EXIT_OK;
}

int kvb_counters_describe(void (*each)(void *ctx, const char *name, const char *source, const char *why_not), void *ctx)
{
    kvb_own_counts own = {0};
    kvb_counters *c;
    kvb_result *result = malloc(sizeof *result);
    int error = result ? kvb_counters_open(NULL, &own, &c) : -ENOMEM;
    for (size_t i = 0; !error && i < SOURCES; i++) {
        result->n_counters = 0;
        sources[i]->report(c->states[i], result);
        for (uint32_t k = 0; k < result->n_counters; k++) {
            const kvb_counter *counter = &result->counters[k];
            each(ctx, counter->name, sources[i]->name, counter->unavailable[0] ? counter->unavailable : NULL);
        }
    }
    if (!error)
        kvb_counters_close(c);
    free(result);
    return error;
}
