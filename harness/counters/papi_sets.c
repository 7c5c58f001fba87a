/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of PAPI events. A set is started once and then read at both ends of a region: a read takes 30 ns (software-
 * defined events) to 1 us (hardware, through the kernel), PAPI_start and PAPI_stop several times that. Only sets that
 * take turns are stopped and started, between regions.
 */
#include <papi.h>
#include <stdlib.h>

#include "harness/clock.h"
#include "harness/counters/source.h"

#define SET_EVENTS 32
#define SETS       16

typedef struct set {
    int id, component;
    int error; /* of the last PAPI call on the running set */
    uint32_t n;
    long long base[SET_EVENTS], sum[SET_EVENTS];
    double ns; /* counted for so long */
} set;

/* The sets of one component, of which one is running. */
typedef struct lane {
    int component;
    uint32_t n, sets[SETS], running;
    double ns; /* of all regions */
} lane;

struct kvb_papi_sets {
    uint32_t most;
    set sets[SETS];
    lane lanes[SETS];
    uint32_t n_sets, n_lanes;
    double started; /* ns */
};

int kvb_papi_init(void)
{
    static pid_t used_by;
    int version = PAPI_library_init(PAPI_VER_CURRENT);
    if (version != PAPI_VER_CURRENT)
        return version < 0 ? version : PAPI_EINVAL;
    /* Some components are initialised by the first look-up and answer that one with an error of their own. */
    if (used_by != getpid()) {
        int code;
        PAPI_event_name_to_code("kvbench", &code);
        used_by = getpid();
    }
    return 0;
}

kvb_papi_sets *kvb_papi_sets_new(uint32_t most)
{
    kvb_papi_sets *sets = calloc(1, sizeof *sets);
    if (sets)
        sets->most = most && most < SET_EVENTS ? most : SET_EVENTS;
    return sets;
}

static int set_add_event(kvb_papi_sets *sets, uint32_t at, int code, uint32_t *event)
{
    set *s = &sets->sets[at];
    if (s->n == sets->most)
        return PAPI_ECNFLCT;
    int error = PAPI_add_event(s->id, code);
    if (error == PAPI_OK)
        *event = at * SET_EVENTS + s->n++;
    return error;
}

static int set_open(kvb_papi_sets *sets, lane *l)
{
    if (sets->n_sets == SETS)
        return PAPI_ENOMEM;
    set *s = &sets->sets[sets->n_sets];
    *s = (set){.id = PAPI_NULL, .component = l->component};
    int error = PAPI_create_eventset(&s->id);
    if (error != PAPI_OK)
        return error;
    error = PAPI_assign_eventset_component(s->id, l->component);
    if (error != PAPI_OK) {
        PAPI_destroy_eventset(&s->id);
        return error;
    }
    /* Count threads that this one starts, too. Components that know no threads refuse, which does not matter. */
    PAPI_option_t inherit = {.inherit = {.eventset = s->id, .inherit = PAPI_INHERIT_ALL}};
    PAPI_set_opt(PAPI_INHERIT, &inherit);
    l->sets[l->n++] = sets->n_sets++;
    return PAPI_OK;
}

/* Removes the newest set, which is empty. */
static void set_drop(kvb_papi_sets *sets, lane *l)
{
    PAPI_destroy_eventset(&sets->sets[--sets->n_sets].id);
    l->n--;
}

static lane *lane_of(kvb_papi_sets *sets, int component)
{
    for (uint32_t i = 0; i < sets->n_lanes; i++)
        if (sets->lanes[i].component == component)
            return &sets->lanes[i];
    if (sets->n_lanes == SETS)
        return NULL;
    lane *l = &sets->lanes[sets->n_lanes++];
    l->component = component;
    return l;
}

int kvb_papi_sets_add(kvb_papi_sets *sets, const char *name, uint32_t *event)
{
    int code, error = PAPI_event_name_to_code(name, &code);
    if (error != PAPI_OK)
        return error;
    int component = PAPI_get_event_component(code);
    if (component < 0)
        return component;
    lane *l = lane_of(sets, component);
    if (!l)
        return PAPI_ENOMEM;
    for (uint32_t i = 0; i < l->n; i++)
        if (set_add_event(sets, l->sets[i], code, event) == PAPI_OK)
            return PAPI_OK;
    error = set_open(sets, l);
    if (error != PAPI_OK)
        return error;
    error = set_add_event(sets, l->sets[l->n - 1], code, event);
    if (error != PAPI_OK)
        set_drop(sets, l);
    return error;
}

void kvb_papi_sets_begin(kvb_papi_sets *sets)
{
    for (uint32_t i = 0; i < sets->n_lanes; i++)
        if (sets->lanes[i].n) {
            set *s = &sets->sets[sets->lanes[i].sets[0]];
            s->error = PAPI_start(s->id);
        }
}

/* Goes on to the next set of a lane, if the running one has had its turn. */
static void lane_turn(kvb_papi_sets *sets, lane *l)
{
    set *s = &sets->sets[l->sets[l->running]];
    long long ignored[SET_EVENTS];
    if (l->n < 2 || s->ns == 0)
        return;
    if (s->error == PAPI_OK)
        PAPI_stop(s->id, ignored);
    l->running = (l->running + 1) % l->n;
    s = &sets->sets[l->sets[l->running]];
    s->error = PAPI_start(s->id);
}

void kvb_papi_sets_start(kvb_papi_sets *sets)
{
    for (uint32_t i = 0; i < sets->n_lanes; i++)
        if (sets->lanes[i].n)
            lane_turn(sets, &sets->lanes[i]);
    sets->started = kvb_now_ns();
    for (uint32_t i = 0; i < sets->n_lanes; i++) {
        const lane *l = &sets->lanes[i];
        set *s = &sets->sets[l->sets[l->running]];
        if (l->n && s->error == PAPI_OK)
            s->error = PAPI_read(s->id, s->base);
    }
}

void kvb_papi_sets_stop(kvb_papi_sets *sets)
{
    long long now[SET_EVENTS];
    for (uint32_t i = 0; i < sets->n_lanes; i++) {
        lane *l = &sets->lanes[i];
        set *s = &sets->sets[l->sets[l->running]];
        if (l->n && s->error == PAPI_OK)
            s->error = PAPI_read(s->id, now);
        for (uint32_t k = 0, n = l->n && s->error == PAPI_OK ? s->n : 0; k < n; k++)
            s->sum[k] += now[k] - s->base[k];
    }
    double ns = kvb_now_ns() - sets->started;
    for (uint32_t i = 0; i < sets->n_lanes; i++) {
        lane *l = &sets->lanes[i];
        l->ns += ns;
        if (l->n)
            sets->sets[l->sets[l->running]].ns += ns;
    }
}

int kvb_papi_sets_value(const kvb_papi_sets *sets, uint32_t event, double *value, double *share)
{
    const set *s = &sets->sets[event / SET_EVENTS];
    const lane *l = sets->lanes;
    while (l->component != s->component)
        l++;
    *share = l->ns > 0 ? s->ns / l->ns : 1;
    *value = s->ns > 0 ? (double)s->sum[event % SET_EVENTS] / *share : 0;
    return s->error;
}

void kvb_papi_sets_free(kvb_papi_sets *sets)
{
    long long ignored[SET_EVENTS];
    for (uint32_t i = 0; sets && i < sets->n_sets; i++) {
        set *s = &sets->sets[i];
        int state = 0;
        if (PAPI_state(s->id, &state) == PAPI_OK && state & PAPI_RUNNING)
            PAPI_stop(s->id, ignored);
        PAPI_cleanup_eventset(s->id);
        PAPI_destroy_eventset(&s->id);
    }
    free(sets);
}
