/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters that PAPI has: the wanted or default events, and the harness's own counts through PAPI's component for
 * software-defined events. Hardware events count user mode, PAPI's default.
 */
#include <errno.h>
#include <math.h>
#include <papi.h>
#include <stdlib.h>
#include <string.h>

#include "harness/counters/source.h"

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

/* Our names for what has no PAPI name common to all CPUs, and the component that would count it. */
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

typedef struct state {
    kvb_papi_sets *sets;
    const kvb_own_counts *own;
    uint32_t n;
    counter counters[WANTED_MAX + OWN_EVENTS];
} state;

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

/* Does a library of this process publish the software-defined event? PAPI itself accepts any name, for events to come.
 */
static bool sde_known(const char *name)
{
    int code = (int)PAPI_NATIVE_MASK, component = PAPI_get_component_index("sde");
    char published[PAPI_MAX_STR_LEN];
    if (in_list(kvb_sde_events, name))
        return true;
    for (int error = component < 0 ? component : PAPI_enum_cmp_event(&code, PAPI_ENUM_FIRST, component);
         error == PAPI_OK; error = PAPI_enum_cmp_event(&code, PAPI_ENUM_EVENTS, component))
        if (PAPI_event_code_to_name(code, published) == PAPI_OK && !strcmp(published, name))
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

static void counter_add(state *s, const char *name)
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

static void counters_refuse(state *s, const char *const *events, const char *why)
{
    for (; *events; events++) {
        counter *c = &s->counters[s->n++];
        snprintf(c->name, sizeof c->name, "%s", *events);
        snprintf(c->why, sizeof c->why, "%s", why);
    }
}

static int papi_open(const char *const *events, kvb_own_counts *own, void **out)
{
    uint32_t n = 0;
    events = events ? events : defaults;
    for (const char *const *e = events; *e; e++)
        n += !in_list(kvb_sde_events, *e); /* those are always counted */
    if (n > WANTED_MAX)
        return -E2BIG;
    state *s = calloc(1, sizeof *s);
    if (!s || !(s->sets = kvb_papi_sets_new(0))) {
        free(s);
        return -ENOMEM;
    }
    *out = s;
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

static void papi_start(void *opaque)
{
    const state *s = opaque;
    kvb_papi_sets_start(s->sets);
}

static void papi_stop(void *opaque)
{
    const state *s = opaque;
    kvb_papi_sets_stop(s->sets);
}

static void counter_report(const state *s, const counter *c, kvb_result *result)
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

static void papi_report(const void *opaque, kvb_result *result)
{
    const state *s = opaque;
    for (uint32_t i = 0; i < s->n; i++)
        counter_report(s, &s->counters[i], result);
}

static void papi_close(void *opaque)
{
    state *s = opaque;
    kvb_papi_sets_free(s->sets);
    kvb_sde_retract(s->own);
    free(s);
}

const kvb_counter_source kvb_counters_papi = {"PAPI", papi_open, papi_start, papi_stop, papi_report, papi_close};

/* Counts the event for a moment. 0, -ENOMEM, or -ENOTSUP with why. */
static int event_try(const char *event, char *why, size_t why_bytes)
{
    kvb_result *result = calloc(1, sizeof *result);
    state *s = calloc(1, sizeof *s);
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
    if (strlen(event) >= KVB_COUNTER_NAME) {
        snprintf(why, why_bytes, "a name of less than %zu characters is expected", KVB_COUNTER_NAME);
        return -EINVAL;
    }
    if (error) {
        snprintf(why, why_bytes, "PAPI_library_init: %s", PAPI_strerror(error));
        return -EINVAL;
    }
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
