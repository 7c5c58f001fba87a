/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PAPI's counters: the wanted or default events, and the harness's own counts through PAPI's component for
 * software-defined events. Hardware events count user mode, PAPI's default.
 */
#include <errno.h>
#include <math.h>
#include <papi.h>
#include <sde_lib.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/rounds.h"
#include "harness/counters/source.h"
#include "workloads/files.h"

/*
 * Sets of PAPI events. A set is started once and then read at both ends of a region: a read takes 30 ns (software-
 * defined events) to 1 us (hardware, through the kernel), PAPI_start and PAPI_stop several times that. Only sets that
 * take turns are stopped and started, between regions.
 */

#define SET_EVENTS 32
#define SETS       16

typedef struct set {
    int id, component;
    int error; /* of the last PAPI call on the running set */
    uint32_t n;
    long long base[SET_EVENTS], sum[SET_EVENTS];
    double ns; /* time in which it counted */
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
    /* Some components are initialised by the first look-up, which then returns an error of their own. */
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
    /* Count threads that this one starts, too. Components without threads refuse this, which does not matter. */
    PAPI_option_t inherit = {.inherit = {.eventset = s->id, .inherit = PAPI_INHERIT_ALL}};
    PAPI_set_opt(PAPI_INHERIT, &inherit);
    l->sets[l->n++] = sets->n_sets++;
    return PAPI_OK;
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
    if (error != PAPI_OK) { /* the new set is empty */
        PAPI_destroy_eventset(&sets->sets[--sets->n_sets].id);
        l->n--;
    }
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

/* Switches to the next set of a lane, if the running one has had its turn. */
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

/*
 * The harness's own counts as software-defined events of library "kvbench". PAPI finds libsde in the process by the
 * dynamic symbols sde_ti_*; linking with -lsde is enough.
 */

/* In the order of the fields of kvb_own_counts. */
const char *const kvb_sde_events[] = {KVB_SDE_PREFIX "cells_read", KVB_SDE_PREFIX "bytes_read",
                                      KVB_SDE_PREFIX "bytes_walk", KVB_SDE_PREFIX "mask_words",
                                      KVB_SDE_PREFIX "rescales",   NULL};

static const struct {
    size_t at;
    const char *description;
} counts[] = {
    {offsetof(kvb_own_counts, cells_read), "unique visible cells read by steps, one layer"},
    {offsetof(kvb_own_counts, bytes_read), "unique bytes of K and V read by steps"},
    {offsetof(kvb_own_counts, bytes_walk), "bytes of K and V that a walk per query reads"},
    {offsetof(kvb_own_counts, mask_words), "64-bit words of explicit masks handed to kernels"},
    {offsetof(kvb_own_counts, rescales), "rescales of running softmax sums"},
};
_Static_assert(sizeof kvb_sde_events / sizeof *kvb_sde_events == sizeof counts / sizeof *counts + 1,
               "one name a count");

/* A process has one registry of libsde, and events stay in it: libsde 1.0 uses freed memory after
 * papi_sde_unregister_counter and crashes in papi_sde_init after papi_sde_shutdown. So each event is a callback,
 * registered once, that reads the counts published now. A forked child inherits the registry and publishes anew. */
static const kvb_own_counts *published;
static pid_t publisher;

static long long count_read(void *at)
{
    return published ? *(const long long *)((const char *)published + *(const size_t *)at) : 0;
}

static int library_register(char *why, size_t why_bytes)
{
    static bool done;
    papi_handle_t library = done ? NULL : papi_sde_init("kvbench");
    if (done)
        return 0;
    if (!library)
        return kvb_why_set(-ENOTSUP, why, why_bytes, "libsde: papi_sde_init failed");
    for (size_t i = 0; kvb_sde_events[i]; i++) {
        const char *name = kvb_sde_events[i] + strlen(KVB_SDE_PREFIX);
        int error = papi_sde_register_counter_cb(library, name, PAPI_SDE_RO | PAPI_SDE_DELTA, PAPI_SDE_long_long,
                                                 count_read, (void *)(uintptr_t)&counts[i].at);
        if (error != SDE_OK)
            return kvb_why_set(-ENOTSUP, why, why_bytes, "libsde: %s was not registered, error %d", name, error);
        papi_sde_describe_counter(library, name, counts[i].description);
    }
    done = true;
    return 0;
}

int kvb_sde_publish(const kvb_own_counts *own, char *why, size_t why_bytes)
{
    if (published && publisher == getpid())
        return kvb_why_set(-EBUSY, why, why_bytes, "libsde: other counts are published in this process");
    int error = library_register(why, why_bytes);
    if (error)
        return error;
    published = own;
    publisher = getpid();
    return 0;
}

void kvb_sde_retract(const kvb_own_counts *own)
{
    if (published == own)
        published = NULL;
}

#define OWN_EVENTS 5u
#define WANTED_MAX (KVB_COUNTERS - OWN_EVENTS - 11u) /* 4 of perf and 7 of getrusage come after */
#define TERMS      16u

/* One way to count something: the sum over those events prefix0suffix … prefix15suffix that exist, or the event prefix
 * alone if suffix is NULL; times scale. */
typedef struct way {
    const char *prefix, *suffix;
    double scale;
} way;

/* Names of the kernel's uncore units as libpfm spells them, those of processor 0's package. A CAS moves 64 bytes. */
#define CAS_READ "::UNC_M_CAS_COUNT:RD:cpu=0"
static const way dram_ways[] = {
    {"spr_unc_imc", CAS_READ, 64},   {"icx_unc_imc", CAS_READ, 64},   {"skx_unc_imc", CAS_READ, 64},
    {"bdx_unc_imc", CAS_READ, 64},   {"hswep_unc_imc", CAS_READ, 64}, {"ivbep_unc_imc", CAS_READ, 64},
    {"snbep_unc_imc", CAS_READ, 64}, {"knl_unc_imc", CAS_READ, 64},   {NULL, NULL, 0},
};
/* PAPI's rapl component counts nJ, powercap uJ, the kernel's own PMU 2^-32 J. */
static const way energy_ways[] = {
    {"rapl:::PACKAGE_ENERGY:PACKAGE0", NULL, 1},
    {"rapl::RAPL_ENERGY_PKG:cpu=0", NULL, 1e9 / 4294967296.0},
    {"powercap:::ENERGY_UJ:ZONE0", NULL, 1e3},
    {NULL, NULL, 0},
};

/* Our names for events without a PAPI name common to all CPUs, and the component that would count them. */
static const struct {
    const char *name, *component;
    const way *ways;
} ours[] = {
    {"dram_bytes_read", "perf_event_uncore", dram_ways},
    {"energy_package_nj", "perf_event_uncore", energy_ways},
};

static const char *const defaults[] = {"PAPI_TOT_CYC",    "PAPI_TOT_INS",      "PAPI_L3_TCM",
                                       "dram_bytes_read", "energy_package_nj", NULL};

typedef struct counter {
    char name[KVB_COUNTER_NAME];
    double scale;
    uint32_t n_terms, terms[TERMS];
    char why[KVB_COUNTER_WHY];
} counter;

struct kvb_papi {
    kvb_papi_sets *sets;
    const kvb_own_counts *own;
    uint32_t n;
    counter counters[WANTED_MAX + OWN_EVENTS];
};

/* Why PAPI has no such event, in its words. If the event's component is switched off, the words are the component's.
 * The component is the one named, else that of the event's name ("rapl:::…"), else the CPU's own. */
static void why_tell(int error, const char *name, const char *component, char *why, size_t why_bytes)
{
    const char *colons = strstr(name, ":::");
    size_t n = component ? strlen(component) : colons ? (size_t)(colons - name) : strlen("perf_event");
    const char *wanted = component ? component : colons ? name : "perf_event";
    for (int i = 0; i < PAPI_num_components(); i++) {
        const PAPI_component_info_t *info = PAPI_get_component_info(i);
        if (strncmp(info->name, wanted, n) || info->name[n])
            continue;
        if (info->disabled && info->disabled != PAPI_EDELAY_INIT)
            snprintf(why, why_bytes, "PAPI %s: %s", info->name, info->disabled_reason);
        else
            snprintf(why, why_bytes, "PAPI %s: %s", info->name, PAPI_strerror(error));
        return;
    }
    snprintf(why, why_bytes, "PAPI: %s: no component %.*s", PAPI_strerror(error), (int)n, wanted);
}

static bool in_list(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name))
        list++;
    return *list;
}

/* Does a library of this process publish the software-defined event? PAPI itself accepts any name, for later events. */
static bool sde_known(const char *name)
{
    int code = (int)PAPI_NATIVE_MASK, component = PAPI_get_component_index("sde");
    char met[PAPI_MAX_STR_LEN];
    if (in_list(kvb_sde_events, name))
        return true;
    for (int error = component < 0 ? component : PAPI_enum_cmp_event(&code, PAPI_ENUM_FIRST, component);
         error == PAPI_OK; error = PAPI_enum_cmp_event(&code, PAPI_ENUM_EVENTS, component))
        if (PAPI_event_code_to_name(code, met) == PAPI_OK && !strcmp(met, name))
            return true;
    return false;
}

/* 0 if PAPI knows the event, else its error. */
static int event_check(const char *name)
{
    int code;
    if (!strncmp(name, "sde:::", strlen("sde:::")) && !sde_known(name))
        return PAPI_ENOEVNT;
    return PAPI_event_name_to_code(name, &code);
}

/* Adds those events of one way that PAPI knows. PAPI's error if it knows none, or refuses one that it knows. */
static int way_try(kvb_papi_sets *sets, const way *w, counter *c)
{
    int error = PAPI_OK, unknown = PAPI_ENOEVNT;
    c->n_terms = 0;
    c->scale = w->scale;
    for (uint32_t i = 0; i < (w->suffix ? TERMS : 1) && error == PAPI_OK; i++) {
        char name[128];
        if (w->suffix)
            snprintf(name, sizeof name, "%s%u%s", w->prefix, i, w->suffix);
        else
            snprintf(name, sizeof name, "%s", w->prefix);
        int here = event_check(name);
        if (here != PAPI_OK)
            unknown = here;
        else
            error = kvb_papi_sets_add(sets, name, &c->terms[c->n_terms++]);
    }
    return error != PAPI_OK ? error : c->n_terms ? PAPI_OK : unknown;
}

static void counter_add(kvb_papi *s, const char *name)
{
    counter *c = &s->counters[s->n++];
    const way raw[] = {{name, NULL, 1}, {NULL, NULL, 0}}, *ways = raw;
    const char *component = NULL;
    snprintf(c->name, sizeof c->name, "%s", name);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (!strcmp(name, ours[i].name)) {
            ways = ours[i].ways;
            component = ours[i].component;
        }
    int error = PAPI_ENOEVNT;
    for (const way *w = ways; w->prefix && error != PAPI_OK; w++)
        error = way_try(s->sets, w, c);
    if (error != PAPI_OK)
        why_tell(error, name, component, c->why, sizeof c->why);
}

static void counters_refuse(kvb_papi *s, const char *const *events, const char *why)
{
    for (; *events; events++) {
        counter *c = &s->counters[s->n++];
        snprintf(c->name, sizeof c->name, "%s", *events);
        snprintf(c->why, sizeof c->why, "%s", why);
    }
}

int kvb_papi_open(const char *const *events, kvb_own_counts *own, kvb_papi **papi)
{
    uint32_t n = 0;
    events = events ? events : defaults;
    for (const char *const *e = events; *e; e++)
        n += !in_list(kvb_sde_events, *e); /* our own are always counted */
    if (n > WANTED_MAX)
        return -E2BIG;
    kvb_papi *s = calloc(1, sizeof *s);
    if (!s || !(s->sets = kvb_papi_sets_new(0))) {
        free(s);
        return -ENOMEM;
    }
    *papi = s;
    s->own = own;
    char why[KVB_COUNTER_WHY];
    int error = kvb_papi_init();
    if (error) {
        snprintf(why, sizeof why, "PAPI_library_init: %s", PAPI_strerror(error));
        counters_refuse(s, events, why);
        counters_refuse(s, kvb_sde_events, why);
        return 0;
    }
    for (; *events; events++)
        if (!in_list(kvb_sde_events, *events))
            counter_add(s, *events);
    if (kvb_sde_publish(own, why, sizeof why))
        counters_refuse(s, kvb_sde_events, why);
    else
        for (const char *const *e = kvb_sde_events; *e; e++)
            counter_add(s, *e);
    kvb_papi_sets_begin(s->sets);
    return 0;
}

void kvb_papi_start(kvb_papi *s)
{
    kvb_papi_sets_start(s->sets);
}

void kvb_papi_stop(kvb_papi *s)
{
    kvb_papi_sets_stop(s->sets);
}

static void counter_report(const kvb_papi *s, const counter *c, kvb_result *result)
{
    char why[KVB_COUNTER_WHY];
    double sum = 0, least = 1;
    snprintf(why, sizeof why, "%s", c->why);
    for (uint32_t i = 0; i < c->n_terms && !why[0]; i++) {
        double value, share;
        int error = kvb_papi_sets_value(s->sets, c->terms[i], &value, &share);
        if (error != PAPI_OK)
            snprintf(why, sizeof why, "PAPI: %s", PAPI_strerror(error));
        else if (share == 0)
            snprintf(why, sizeof why, "multiplexed: its turn never came");
        sum += value;
        least = fmin(least, share);
    }
    kvb_counter_append(result, c->name, c->scale * sum, least < 1 ? least : NAN, why);
}

void kvb_papi_report(const kvb_papi *s, kvb_result *result)
{
    for (uint32_t i = 0; i < s->n; i++)
        counter_report(s, &s->counters[i], result);
}

void kvb_papi_close(kvb_papi *s)
{
    kvb_papi_sets_free(s->sets);
    kvb_sde_retract(s->own);
    free(s);
}

/* Counts the event for a moment. 0, -ENOMEM, or -ENOTSUP with why. */
static int event_try(const char *event, char *why, size_t why_bytes)
{
    kvb_result *result = calloc(1, sizeof *result);
    kvb_papi *s = calloc(1, sizeof *s);
    if (s && result)
        s->sets = kvb_papi_sets_new(0);
    bool made = s && s->sets;
    if (made) {
        counter_add(s, event);
        kvb_papi_sets_begin(s->sets);
        kvb_papi_sets_start(s->sets);
        kvb_papi_sets_stop(s->sets);
        counter_report(s, &s->counters[0], result);
        snprintf(why, why_bytes, "%s", result->counters[0].unavailable);
        kvb_papi_sets_free(s->sets);
    }
    free(s);
    free(result);
    return !made ? -ENOMEM : *why ? -ENOTSUP : 0;
}

int kvb_counters_check(const char *event, char *why, size_t why_bytes)
{
    int error = kvb_papi_init();
    if (strlen(event) >= KVB_COUNTER_NAME)
        return kvb_why_set(-EINVAL, why, why_bytes, "a name of less than %zu characters is expected", KVB_COUNTER_NAME);
    if (error)
        return kvb_why_set(-EINVAL, why, why_bytes, "PAPI_library_init: %s", PAPI_strerror(error));
    bool of_ours = false;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        of_ours = of_ours || !strcmp(event, ours[i].name);
    if (in_list(kvb_sde_events, event))
        return 0; /* a run publishes them */
    error = of_ours ? PAPI_OK : event_check(event);
    if (error == PAPI_OK)
        return event_try(event, why, why_bytes);
    why_tell(error, event, NULL, why, why_bytes);
    return -EINVAL;
}
