/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside counters: PAPI as a source, the harness's own counts as software-defined events, and sets of PAPI events.
 */
#ifndef KVB_COUNTER_SOURCE_H
#define KVB_COUNTER_SOURCE_H

#include <math.h>
#include <stdio.h>

#include "harness/counters/counters.h"

#define KVB_COUNTER_NAME sizeof(((kvb_counter *)NULL)->name)
#define KVB_COUNTER_WHY  sizeof(((kvb_counter *)NULL)->unavailable)

/* PAPI as a source of counters, papi.c. A counter that it cannot count is reported with the reason. */
typedef struct kvb_papi kvb_papi;
int kvb_papi_open(const char *const *events, kvb_own_counts *own, kvb_papi **papi); /* 0, -ENOMEM or -E2BIG */
void kvb_papi_start(kvb_papi *papi);
void kvb_papi_stop(kvb_papi *papi);
void kvb_papi_report(const kvb_papi *papi, kvb_result *result);
void kvb_papi_close(kvb_papi *papi);

/* Appends one counter; with a reason its value is null. share NaN: not multiplexed. Dropped when result is full. */
static inline void kvb_counter_append(kvb_result *result, const char *name, double value, double share, const char *why)
{
    if (result->n_counters == KVB_COUNTERS)
        return;
    kvb_counter *c = &result->counters[result->n_counters++];
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->unavailable, sizeof c->unavailable, "%s", why);
    c->value = *why ? NAN : value;
    c->share = *why ? NAN : share;
}

/* ---- the harness's own counts, papi.c ------------------------------------------------------ */

#define KVB_SDE_PREFIX "sde:::kvbench::"
/* The events as PAPI names them; ends with NULL. */
extern const char *const kvb_sde_events[];
/* Publishes own under library "kvbench"; one at a time in a process. 0 or -errno with why. */
int kvb_sde_publish(const kvb_own_counts *own, char *why, size_t why_bytes);
void kvb_sde_retract(const kvb_own_counts *own); /* does nothing if others are published */

/* ---- sets of PAPI events, papi.c ----------------------------------------------------- */

/*
 * Events are counted in sets of one PAPI component each. A component counts one set at a time. Events that do not fit in
 * one set go to another, and the sets of a component take turns from region to region. Turns give the share of the time
 * exactly; PAPI's own multiplexing (by the kernel's timer) scales values by an unknown factor. Errors are PAPI's.
 */
typedef struct kvb_papi_sets kvb_papi_sets;

/* Initialises PAPI for this process; after a fork, again. 0 or PAPI's error. */
int kvb_papi_init(void);
/* most: events in one set, for tests; 0: as many as PAPI takes. NULL: no memory. */
kvb_papi_sets *kvb_papi_sets_new(uint32_t most);
int kvb_papi_sets_add(kvb_papi_sets *sets, const char *name, uint32_t *event);
void kvb_papi_sets_begin(kvb_papi_sets *sets); /* after the last add */
void kvb_papi_sets_start(kvb_papi_sets *sets);
void kvb_papi_sets_stop(kvb_papi_sets *sets);
/* The event's count between starts and stops, scaled up if its set had only a share of the time. */
int kvb_papi_sets_value(const kvb_papi_sets *sets, uint32_t event, double *value, double *share);
void kvb_papi_sets_free(kvb_papi_sets *sets);

#endif
