/* SPDX-License-Identifier: Apache-2.0 */
/* Counters: PAPI, perf software events and getrusage. Hardware events count user mode, PAPI's default. */
#include "harness/counters/counters.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <math.h>
#include <papi.h>
#include <sde_lib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness/machine/profile.h"
#include "harness/rounds.h"
#include "workloads/files.h"

#define NAME_BYTES sizeof(((kvb_counter *)NULL)->name)
#define WHY_BYTES  sizeof(((kvb_counter *)NULL)->unavailable)

/* Appends one counter; with a reason its value is null. share NaN: not multiplexed. Dropped when result is full. */
static void counter_append(kvb_result *result, const char *name, double value, double share, const char *why)
{
    if (result->n_counters == KVB_COUNTERS)
        return;
    kvb_counter *c = &result->counters[result->n_counters++];
    snprintf(c->name, sizeof c->name, "%.*s", (int)sizeof c->name - 1, name);
    snprintf(c->unavailable, sizeof c->unavailable, "%s", why);
    c->value = *why ? NAN : value;
    c->share = *why ? NAN : share;
}

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
    char name[NAME_BYTES];
    double scale;
    uint32_t n_terms, terms[TERMS];
    char why[WHY_BYTES];
} counter;

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

/*
 * The kernel's software events, through perf_event_open: of the calling thread and, by inheritance, of the threads that
 * it starts after the counters were opened. They are read in two groups. Both reads together take 0.5 us, or 0.9 us
 * while another thread runs; switching groups on and off with ioctl would interrupt that thread's core (8 us).
 */

/* The part of an event that can be counted if the kernel is hidden from users. */
typedef enum left { LEFT_ALL, LEFT_USER, LEFT_NOTHING } left;

/* The clock has a group of its own, because it belongs to another PMU: in a group of both PMUs some members count only
 * from the next context switch on (seen on Linux 6.18). */
static const struct {
    const char *name;
    uint64_t config;
    uint32_t group;
    left without_kernel;
} events_known[] = {
    {"task_clock_ns", PERF_COUNT_SW_TASK_CLOCK, 0, LEFT_ALL},
    {"page_faults", PERF_COUNT_SW_PAGE_FAULTS, 1, LEFT_USER},
    {"context_switches", PERF_COUNT_SW_CONTEXT_SWITCHES, 1, LEFT_NOTHING},
    {"cpu_migrations", PERF_COUNT_SW_CPU_MIGRATIONS, 1, LEFT_NOTHING},
};
#define EVENTS (sizeof events_known / sizeof *events_known)
#define GROUPS 2

typedef struct group {
    int fds[EVENTS]; /* the leader first */
    uint32_t n;
    uint64_t base[EVENTS], sum[EVENTS];
} group;

typedef struct perf {
    group groups[GROUPS];
    struct {
        uint32_t place; /* in its group */
        bool user_only;
        char why[WHY_BYTES];
    } events[EVENTS];
    int read_error; /* errno of a read that failed; 0 */
} perf;

static int event_open(uint64_t config, int leader, bool user_only)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof attr,
        .config = config,
        .inherit = 1,
        .exclude_kernel = user_only,
        .exclude_hv = 1,
        .read_format = PERF_FORMAT_GROUP,
    };
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, leader, PERF_FLAG_FD_CLOEXEC);
}

static void event_add(perf *s, size_t i)
{
    char paranoid[40], level[16];
    group *g = &s->groups[events_known[i].group];
    uint64_t config = events_known[i].config;
    int leader = g->n ? g->fds[0] : -1, fd = event_open(config, leader, false), error = errno;
    bool kernel_hidden = fd < 0 && (error == EACCES || error == EPERM);
    if (kernel_hidden) {
        fd = event_open(config, leader, true);
        error = errno;
    }
    if (kvb_line_read("", "/proc/sys/kernel/perf_event_paranoid", level, sizeof level))
        snprintf(level, sizeof level, "not to be read");
    snprintf(paranoid, sizeof paranoid, "perf_event_paranoid %s", level); /* it limits what users may count */
    if (fd < 0) {                                                         /* nothing at all may be counted */
        snprintf(s->events[i].why, WHY_BYTES, "perf_event_open: %s, %s", strerror(error), paranoid);
        return;
    }
    if (kernel_hidden && events_known[i].without_kernel == LEFT_NOTHING) {
        snprintf(s->events[i].why, WHY_BYTES, "perf: happens in the kernel, not to be seen with %s", paranoid);
        close(fd);
        return;
    }
    s->events[i].user_only = kernel_hidden && events_known[i].without_kernel == LEFT_USER;
    s->events[i].place = g->n;
    g->fds[g->n++] = fd;
}

static bool group_read(perf *s, const group *g, uint64_t *values)
{
    struct {
        uint64_t n, values[EVENTS];
    } now;
    if (!g->n)
        return false;
    if (read(g->fds[0], &now, sizeof now) < 0) {
        s->read_error = errno;
        return false;
    }
    memcpy(values, now.values, g->n * sizeof *values);
    return true;
}

static void perf_report(const perf *s, kvb_result *result)
{
    for (size_t i = 0; i < EVENTS; i++) {
        char name[NAME_BYTES], why[WHY_BYTES];
        /* ":u" as perf has it: user mode only */
        snprintf(name, sizeof name, "%s%s", events_known[i].name, s->events[i].user_only ? ":u" : "");
        snprintf(why, sizeof why, "%s", s->events[i].why);
        if (!why[0] && s->read_error)
            snprintf(why, sizeof why, "perf: read: %s", strerror(s->read_error));
        counter_append(result, name, (double)s->groups[events_known[i].group].sum[s->events[i].place], NAN, why);
    }
}

/*
 * getrusage's counts, for the whole process. The kernel splits a process's time into user and system by timer ticks: over
 * regions far shorter than a tick (1 to 10 ms) the split is rough, the sum is right.
 */

static const char *const names[] = {"user_ns",           "system_ns",          "page_faults_minor",
                                    "page_faults_major", "switches_voluntary", "switches_involuntary"};
#define COUNTS (sizeof names / sizeof *names)

typedef struct usage {
    long long sum[COUNTS];
    long max_resident_kib;
} usage;

static long long ns_of(struct timeval t)
{
    return 1000000000ll * t.tv_sec + 1000ll * t.tv_usec;
}

/* Adds sign times the counts of now. About 0.3 us. */
static void usage_add(usage *s, int sign)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    const long long now[COUNTS] = {ns_of(u.ru_utime), ns_of(u.ru_stime), u.ru_minflt,
                                   u.ru_majflt,       u.ru_nvcsw,        u.ru_nivcsw};
    for (size_t i = 0; i < COUNTS; i++)
        s->sum[i] += sign * now[i];
    s->max_resident_kib = u.ru_maxrss;
}

/* ---- all sources ------------------------------------------------------------------------------------------------- */

/* In the order of the report. They start in the opposite order and stop in this one, so that hardware counters see as
 * little as possible of the others. */
struct kvb_counters {
    kvb_papi_sets *sets;
    const kvb_own_counts *own;
    uint32_t n_wanted;
    counter wanted[WANTED_MAX + OWN_EVENTS];
    perf perf;
    usage usage;
};

/* refusal: why no event can be counted; NULL: this one may be. */
static void counter_add(kvb_counters *s, const char *name, const char *refusal)
{
    counter *c = &s->wanted[s->n_wanted++];
    const way raw[] = {{name, NULL, 1}, {NULL, NULL, 0}}, *ways = raw;
    const char *component = NULL;
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->why, sizeof c->why, "%s", refusal ? refusal : "");
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (!strcmp(name, ours[i].name)) {
            ways = ours[i].ways;
            component = ours[i].component;
        }
    int error = PAPI_ENOEVNT;
    for (const way *w = ways; !refusal && w->prefix && error != PAPI_OK; w++)
        error = way_try(s->sets, w, c);
    if (!refusal && error != PAPI_OK)
        why_tell(error, name, component, c->why, sizeof c->why);
}

/* The counter's value and share of the time (NaN: all), or why it has none. */
static double counter_value(const kvb_counters *s, const counter *c, double *share, char why[WHY_BYTES])
{
    double sum = 0, least = 1;
    snprintf(why, WHY_BYTES, "%s", c->why);
    for (uint32_t i = 0; i < c->n_terms && !why[0]; i++) {
        double value;
        int error = kvb_papi_sets_value(s->sets, c->terms[i], &value, share);
        if (error != PAPI_OK)
            snprintf(why, WHY_BYTES, "PAPI: %s", PAPI_strerror(error));
        else if (*share == 0)
            snprintf(why, WHY_BYTES, "multiplexed: its turn never came");
        sum += value;
        least = fmin(least, *share);
    }
    *share = least < 1 ? least : NAN;
    return c->scale * sum;
}

static kvb_counters *counters_new(void)
{
    kvb_counters *s = calloc(1, sizeof *s);
    if (s && !(s->sets = kvb_papi_sets_new(0))) {
        free(s);
        s = NULL;
    }
    return s;
}

int kvb_counters_open(const char *const *events, kvb_own_counts *own, kvb_counters **counters)
{
    uint32_t n = 0;
    events = events ? events : defaults;
    for (const char *const *e = events; *e; e++)
        n += !in_list(kvb_sde_events, *e); /* our own are always counted */
    if (n > WANTED_MAX)
        return -E2BIG;
    kvb_counters *s = counters_new();
    if (!s)
        return -ENOMEM;
    *counters = s;
    s->own = own;
    char why[WHY_BYTES];
    int error = kvb_papi_init();
    if (error)
        snprintf(why, sizeof why, "PAPI_library_init: %s", PAPI_strerror(error));
    for (; *events; events++)
        if (!in_list(kvb_sde_events, *events))
            counter_add(s, *events, error ? why : NULL);
    error = error ? error : kvb_sde_publish(own, why, sizeof why);
    for (const char *const *e = kvb_sde_events; *e; e++)
        counter_add(s, *e, error ? why : NULL);
    kvb_papi_sets_begin(s->sets);
    for (size_t i = 0; i < EVENTS; i++)
        event_add(&s->perf, i);
    return 0;
}

void kvb_counters_start(kvb_counters *c)
{
    usage_add(&c->usage, -1);
    for (uint32_t i = GROUPS; i-- > 0;)
        group_read(&c->perf, &c->perf.groups[i], c->perf.groups[i].base);
    kvb_papi_sets_start(c->sets);
}

void kvb_counters_stop(kvb_counters *c)
{
    kvb_papi_sets_stop(c->sets);
    for (group *g = c->perf.groups; g < c->perf.groups + GROUPS; g++) {
        uint64_t now[EVENTS];
        for (uint32_t k = 0, n = group_read(&c->perf, g, now) ? g->n : 0; k < n; k++)
            g->sum[k] += now[k] - g->base[k];
    }
    usage_add(&c->usage, +1);
}

void kvb_counters_report(const kvb_counters *c, kvb_result *result)
{
    for (const counter *w = c->wanted; w < c->wanted + c->n_wanted; w++) {
        char why[WHY_BYTES];
        double share, value = counter_value(c, w, &share, why);
        counter_append(result, w->name, value, share, why);
    }
    perf_report(&c->perf, result);
    for (size_t i = 0; i < COUNTS; i++)
        counter_append(result, names[i], (double)c->usage.sum[i], NAN, "");
    counter_append(result, "max_resident_bytes", 1024.0 * (double)c->usage.max_resident_kib, NAN, "");
}

void kvb_counters_close(kvb_counters *c)
{
    if (!c)
        return;
    kvb_papi_sets_free(c->sets);
    kvb_sde_retract(c->own);
    for (uint32_t i = 0; i < GROUPS; i++)
        for (uint32_t k = 0; k < c->perf.groups[i].n; k++)
            close(c->perf.groups[i].fds[k]);
    free(c);
}

/* Counts the event for a moment. 0, -ENOMEM, or -ENOTSUP with why. */
static int event_try(const char *event, char *why, size_t why_bytes)
{
    char said[WHY_BYTES];
    double share;
    kvb_counters *c = counters_new();
    if (!c)
        return -ENOMEM;
    counter_add(c, event, NULL);
    kvb_papi_sets_begin(c->sets);
    kvb_papi_sets_start(c->sets);
    kvb_papi_sets_stop(c->sets);
    counter_value(c, &c->wanted[0], &share, said);
    kvb_counters_close(c);
    return *said ? kvb_why_set(-ENOTSUP, why, why_bytes, "%s", said) : 0;
}

int kvb_counters_check(const char *event, char *why, size_t why_bytes)
{
    int error = kvb_papi_init();
    if (strlen(event) >= NAME_BYTES)
        return kvb_why_set(-EINVAL, why, why_bytes, "a name of less than %zu characters is expected", NAME_BYTES);
    if (error)
        return kvb_why_set(-EINVAL, why, why_bytes, "PAPI_library_init: %s", PAPI_strerror(error));
    if (in_list(kvb_sde_events, event))
        return 0; /* a run publishes them */
    error = event_check(event);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        error = strcmp(event, ours[i].name) ? error : PAPI_OK;
    if (error == PAPI_OK)
        return event_try(event, why, why_bytes);
    why_tell(error, event, NULL, why, why_bytes);
    return -EINVAL;
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

int kvb_counters_describe(kvb_result *result)
{
    kvb_own_counts own = {0};
    kvb_counters *c;
    int error = kvb_counters_open(NULL, &own, &c);
    if (error)
        return error;
    kvb_counters_report(c, result);
    kvb_counters_close(c);
    return 0;
}

const char *kvb_counters_source(const kvb_result *result, uint32_t i)
{
    const uint32_t behind = result->n_counters - i;
    return behind <= COUNTS + 1 ? "getrusage" : behind <= COUNTS + 1 + EVENTS ? "perf" : "PAPI";
}
