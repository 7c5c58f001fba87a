/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <fnmatch.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "results/compare.h"
#include "results/compare_time.h"
#include "results/statistics.h"
#include "workloads/array.h"
#include "workloads/files.h"

static const char *const limit_names[KVB_LIMITS] = {"time", "memory", "bytes", "rho", "counts", "misses"};

void kvb_thresholds_init(kvb_thresholds *thresholds)
{
    *thresholds = (kvb_thresholds){.limit = {[KVB_LIMIT_TIME] = 0.05,
                                             [KVB_LIMIT_RHO] = INFINITY,
                                             [KVB_LIMIT_COUNTS] = 0.001,
                                             [KVB_LIMIT_MISSES] = 0.03},
                                   .confidence = KVB_CONFIDENCE};
}

/* Reads the limits of the file or of a pattern: 0 .. 10, or null; time above 0, as no run could meet 0. others: its other
 * keys, ending with NULL. 0, or -EINVAL with why. */
static int limits_read(json_t *object, const char *const *others, const char *known, double limit[KVB_LIMITS],
                       char *why, size_t why_bytes)
{
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value)
    {
        const double number = json_is_null(value) ? INFINITY : json_number_value(value);
        kvb_limit l = 0;
        size_t i = 0;

        while (others[i] && strcmp(key, others[i]) != 0)
            i++;
        if (others[i])
            continue;
        while (l < KVB_LIMITS && strcmp(key, limit_names[l]) != 0)
            l++;
        if (l == KVB_LIMITS)
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: unknown key; known: %s", key, known);
        const bool of_time = l == KVB_LIMIT_TIME;
        if (!json_is_null(value) && !(json_is_number(value) && number >= (of_time ? 0.001 : 0) && number <= 10))
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: expected a number of %s .. 10 (0.05 is 5 %%), or null",
                               key, of_time ? "0.001" : "0");
        limit[l] = number;
    }
    return 0;
}

static int pattern_read(json_t *object, kvb_threshold_pattern *pattern, char *why, size_t why_bytes)
{
    const char *match = json_string_value(json_object_get(object, "match"));

    if (!match || !*match || strlen(match) >= sizeof pattern->match)
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "match: expected a pattern of workload/cache/pool/kernel/threads/growth");
    strcpy(pattern->match, match);
    for (kvb_limit i = 0; i < KVB_LIMITS; i++)
        pattern->limit[i] = NAN;
    return limits_read(object, (const char *const[]){"match", NULL}, "match, time, memory, bytes, rho, counts, misses",
                       pattern->limit, why, why_bytes);
}

static int root_read(json_t *root, kvb_thresholds *thresholds, char *why, size_t why_bytes)
{
    const json_t *list = json_object_get(root, "patterns"), *confidence = json_object_get(root, "confidence");

    if (json_integer_value(json_object_get(root, "kvbench_thresholds")) != 1)
        return kvb_why_set(-EINVAL, why, why_bytes, "expected {\"kvbench_thresholds\": 1, …}");
    if (limits_read(root, (const char *const[]){"kvbench_thresholds", "patterns", "confidence", NULL},
                    "time, memory, bytes, rho, counts, misses, confidence, patterns", thresholds->limit, why,
                    why_bytes))
        return -EINVAL;
    if (confidence)
        thresholds->confidence = json_number_value(confidence);
    if (!(thresholds->confidence >= 0.5 && thresholds->confidence <= 0.9999))
        return kvb_why_set(-EINVAL, why, why_bytes, "confidence: expected a number of 0.5 .. 0.9999");
    if (list && (!json_is_array(list) || json_array_size(list) > KVB_THRESHOLD_PATTERNS))
        return kvb_why_set(-EINVAL, why, why_bytes, "patterns: expected a list of at most %u", KVB_THRESHOLD_PATTERNS);
    for (; thresholds->n < json_array_size(list); thresholds->n++) {
        char what[256];

        if (pattern_read(json_array_get(list, thresholds->n), &thresholds->patterns[thresholds->n], what, sizeof what))
            return kvb_why_set(-EINVAL, why, why_bytes, "patterns[%zu].%s", thresholds->n, what);
    }
    return 0;
}

int kvb_thresholds_load(const char *path, kvb_thresholds *thresholds, char *why, size_t why_bytes)
{
    json_error_t fault;
    char what[384];
    FILE *in = fopen(path, "re");

    kvb_thresholds_init(thresholds);
    if (!in) {
        int error = -errno;

        return kvb_why_set(error, why, why_bytes, "%s: %s", path, strerror(-error));
    }
    json_t *root = json_loadf(in, JSON_REJECT_DUPLICATES, &fault);

    fclose(in);
    if (!root)
        return kvb_why_set(-EINVAL, why, why_bytes, "%s:%d: not valid JSON: %s", path, fault.line, fault.text);
    int error = root_read(root, thresholds, what, sizeof what);
    if (error)
        snprintf(why, why_bytes, "%s: %s", path, what);
    json_decref(root);
    return error;
}

static bool is_match(const kvb_threshold_pattern *pattern, const kvb_key *name)
{
    return !fnmatch(pattern->match, name->text, 0);
}

double kvb_thresholds_of(const kvb_thresholds *thresholds, const kvb_result *result, kvb_limit limit)
{
    const kvb_key name = kvb_key_name(result);
    for (size_t i = thresholds->n; i-- > 0;)
        if (!isnan(thresholds->patterns[i].limit[limit]) && is_match(&thresholds->patterns[i], &name))
            return thresholds->patterns[i].limit[limit];
    return thresholds->limit[limit];
}

void kvb_thresholds_meet(kvb_thresholds *thresholds, const kvb_result *results, size_t n)
{
    for (size_t r = 0; r < n && thresholds->n; r++) {
        const kvb_key name = kvb_key_name(&results[r]);
        for (size_t i = 0; i < thresholds->n; i++)
            thresholds->patterns[i].met |= is_match(&thresholds->patterns[i], &name);
    }
}

const char *kvb_thresholds_unmet(const kvb_thresholds *thresholds)
{
    for (size_t i = 0; i < thresholds->n; i++)
        if (!thresholds->patterns[i].met)
            return thresholds->patterns[i].match;
    return NULL;
}

#define EXACT 1e-9 /* relative: files carry twelve digits */

static const struct {
    const char *name;
    bool is_regression;
} verdicts[KVB_VERDICTS] = {
    [KVB_VERDICT_BROKEN] = {"BROKEN", true},        [KVB_VERDICT_GONE] = {"GONE", true},
    [KVB_VERDICT_SLOWER] = {"SLOWER", true},        [KVB_VERDICT_MORE] = {"MORE", true},
    [KVB_VERDICT_UNDECIDED] = {"UNDECIDED", false}, [KVB_VERDICT_CHANGED] = {"CHANGED", false},
    [KVB_VERDICT_FASTER] = {"FASTER", false},       [KVB_VERDICT_LESS] = {"LESS", false},
    [KVB_VERDICT_FIXED] = {"FIXED", false},         [KVB_VERDICT_NEW] = {"NEW", false},
    [KVB_VERDICT_FAILING] = {"FAILING", false},     [KVB_VERDICT_SAME] = {"SAME", false},
    [KVB_VERDICT_SKIPPED] = {"SKIPPED", false},
};

const char *kvb_verdict_name(kvb_verdict verdict)
{
    assert(verdict < KVB_VERDICTS);
    return verdicts[verdict].name;
}

bool kvb_verdict_is_regression(kvb_verdict verdict)
{
    assert(verdict < KVB_VERDICTS);
    return verdicts[verdict].is_regression;
}

typedef struct member {
    const char *name; /* of the kernel or cache */
    const kvb_result *result;
    double change; /* log(new / base) */
} member;

/* Exact quantities: offset in a record, limit. same: smaller changes of counts are none, as the length of a name moves
 * later allocations. Counts must also have the same source. */
static const struct metric {
    const char *name;
    size_t offset;
    kvb_limit limit;
    bool is_bytes, is_count;
    double same;
} metrics[] = {
/* clang-format off */
#define RECORDED(key, member, limit, is_bytes) {key, offsetof(kvb_result, member), limit, is_bytes, false, EXACT}
#define COUNTED(key, limit, same) {#key, offsetof(kvb_result, counts.key), limit, false, true, same}
    /* clang-format on */
    [KVB_METRIC_STATUS] = {"status", 0, 0, false, false, 0},
    [KVB_METRIC_TIME] = {"time", 0, KVB_LIMIT_TIME, false, false, 0},
    RECORDED("allocator_peak", memory.allocator_peak, KVB_LIMIT_MEMORY, true),
    RECORDED("scratch_bytes", memory.scratch_bytes, KVB_LIMIT_MEMORY, true),
    RECORDED("staged_bytes", memory.staged_bytes, KVB_LIMIT_MEMORY, true),
    RECORDED("copied_bytes", memory.copied_bytes, KVB_LIMIT_MEMORY, true),
    RECORDED("bytes_read", traffic.bytes_read, KVB_LIMIT_BYTES, true),
    RECORDED("bytes_walk", traffic.bytes_walk, KVB_LIMIT_BYTES, true),
    RECORDED("rho", rho, KVB_LIMIT_RHO, false),
    COUNTED(instructions, KVB_LIMIT_COUNTS, 3e-4),
    COUNTED(data_reads, KVB_LIMIT_COUNTS, 3e-4),
    COUNTED(data_writes, KVB_LIMIT_COUNTS, 3e-4),
    COUNTED(l1_misses, KVB_LIMIT_MISSES, 3e-2),
    COUNTED(ll_misses, KVB_LIMIT_MISSES, 3e-2),
};

/* ---- status ----------------------------------------------------------------------------------------------- */

typedef enum outcome { ABSENT, SKIPPED, FAILED, PASSED, OUTCOMES } outcome;

static outcome outcome_of(const kvb_result *result)
{
    return !result                             ? ABSENT
           : result->status == KVB_STATUS_SKIP ? SKIPPED
           : kvb_status_is_bad(result->status) ? FAILED
                                               : PASSED;
}

/* The verdict on a status: [before][now]. SAME: the numbers are compared. */
static const kvb_verdict outcomes[OUTCOMES][OUTCOMES] = {
    [ABSENT] = {[SKIPPED] = KVB_VERDICT_SKIPPED, [FAILED] = KVB_VERDICT_BROKEN, [PASSED] = KVB_VERDICT_NEW},
    [SKIPPED] = {[ABSENT] = KVB_VERDICT_SKIPPED,
                 [SKIPPED] = KVB_VERDICT_SKIPPED,
                 [FAILED] = KVB_VERDICT_BROKEN,
                 [PASSED] = KVB_VERDICT_NEW},
    [FAILED] = {[ABSENT] = KVB_VERDICT_GONE,
                [SKIPPED] = KVB_VERDICT_GONE,
                [FAILED] = KVB_VERDICT_FAILING,
                [PASSED] = KVB_VERDICT_FIXED},
    [PASSED] = {[ABSENT] = KVB_VERDICT_GONE,
                [SKIPPED] = KVB_VERDICT_GONE,
                [FAILED] = KVB_VERDICT_BROKEN,
                [PASSED] = KVB_VERDICT_SAME},
};

static void status_judge(kvb_finding *f, bool subset)
{
    outcome before = outcome_of(f->base), now = outcome_of(f->new);
    const kvb_result *told = now == FAILED || now == SKIPPED ? f->new : before == FAILED ? f->base : NULL;

    f->verdict = outcomes[before][now];
    if (f->verdict == KVB_VERDICT_GONE && now == ABSENT && subset)
        f->verdict = KVB_VERDICT_SKIPPED;
    if (told)
        snprintf(f->reason, sizeof f->reason, "%s%.*s",
                 now == FAILED || now == SKIPPED ? "" : "before: ", (int)sizeof f->reason - 16, told->reason);
    else if (now == ABSENT)
        snprintf(f->reason, sizeof f->reason, "it is not in the new run");
}

/* ---- exact quantities ------------------------------------------------------------------------------------- */

/* Judges an exact quantity; both sides passed. False: nothing changed. */
static bool exact_judge(kvb_finding *f, const kvb_thresholds *thresholds)
{
    const struct metric *m = &metrics[f->metric];

    memcpy(&f->before, (const char *)f->base + m->offset, sizeof f->before);
    memcpy(&f->after, (const char *)f->new + m->offset, sizeof f->after);
    if (isnan(f->before) || f->before == f->after) /* equal infinities, too */
        return false;
    if (isnan(f->after)) {
        f->verdict = KVB_VERDICT_CHANGED;
        snprintf(f->reason, sizeof f->reason, "it was measured before, and is not now");
        return true;
    }
    if (m->is_count && strcmp(f->base->counts.source, f->new->counts.source)) {
        f->verdict = KVB_VERDICT_UNDECIDED;
        snprintf(f->reason, sizeof f->reason, "counted by %s before", f->base->counts.source);
        return !m[-1].is_count; /* one finding for all counts */
    }
    double more = f->after - f->before;
    if (fabs(more) <= m->same * fabs(f->before))
        return false;
    f->ratio = f->before > 0 ? f->after / f->before : NAN;
    double limit = kvb_thresholds_of(thresholds, f->new, m->limit);
    f->verdict = more < 0                                              ? KVB_VERDICT_LESS
                 : isinf(limit) || more <= (limit + EXACT) * f->before ? KVB_VERDICT_CHANGED
                                                                       : KVB_VERDICT_MORE;
    return true;
}

/* ---- joining ---------------------------------------------------------------------------------------------- */

static int pointers_order(const void *a, const void *b)
{
    return kvb_key_order(*(const kvb_result *const *)a, *(const kvb_result *const *)b);
}

static kvb_finding *finding_add(kvb_comparison *c, size_t *room, const kvb_result *base, const kvb_result *new)
{
    if (kvb_array_reserve(&c->findings, room, c->n + 1, sizeof *c->findings))
        return NULL;
    kvb_finding *f = &c->findings[c->n++];
    *f = (kvb_finding){.base = base, .new = new, .before = NAN, .after = NAN, .ratio = NAN, .low = NAN, .high = NAN};
    return f;
}

/* Each run's results in kvb_key_order. */
typedef struct sorted_runs {
    const kvb_result **at[2][KVB_RUNS];
    size_t n[2][KVB_RUNS];
} sorted_runs;

static int runs_sort(const kvb_compare_options *o, sorted_runs *runs, char *why, size_t why_bytes)
{
    static const char *const names[2][2] = {{"the base", "a run of the base"}, {"the new run", "a new run"}};
    int error = 0;
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < o->n_runs[side] && !error; i++) {
            const kvb_compare_run *run = &o->runs[side][i];
            assert(i < KVB_RUNS);
            const kvb_result **list = runs->at[side][i] = malloc((run->n + 1) * sizeof *list);
            if (!list)
                return -ENOMEM;
            runs->n[side][i] = run->n;
            for (size_t r = 0; r < run->n; r++)
                list[r] = &run->results[r];
            qsort(list, run->n, sizeof *list, pointers_order);
            for (size_t r = 1; r < run->n && !error; r++)
                if (kvb_key_order(list[r - 1], list[r]) == 0)
                    error = kvb_why_set(-EINVAL, why, why_bytes, "%s holds a combination twice: %s", names[side][i > 0],
                                        kvb_key_name(list[r]).text);
        }
    return error;
}

/* The combination in a run of that side; NULL: the run lacks it. */
static const kvb_result *run_find(const sorted_runs *runs, int side, size_t run, const kvb_result *key)
{
    const kvb_result **found =
        bsearch(&key, runs->at[side][run], runs->n[side][run], sizeof *runs->at[side][run], pointers_order);

    return found ? *found : NULL;
}

/* Takes the runs in which the finding's combination passed and has a time; the first run in any case. */
static void runs_take(const kvb_finding *f, const kvb_compare_options *o, const sorted_runs *sorted,
                      kvb_time_runs *runs)
{
    for (int side = 0; side < 2; side++) {
        runs->n[side] = 0;
        for (size_t i = 0; i < o->n_runs[side]; i++) {
            const kvb_result *r = run_find(sorted, side, i, f->new);
            if (!i || (r && r->status == KVB_STATUS_PASS && r->time.all.median > 0)) /* false for NaN */
                runs->of[side][runs->n[side]++] = r;
        }
    }
}

/* Do both sides have counts, and no times? */
static bool is_counted(const kvb_result *base, const kvb_result *new)
{
    return base->counts.passes && new->counts.passes && !base->time.passes && !new->time.passes;
}

/* Adds the findings of a combination: its status or time, then changed exact quantities. Times are judged later. */
static int combination_compare(kvb_comparison *c, size_t *room, const kvb_result *base, const kvb_result *new,
                               const kvb_compare_options *options)
{
    kvb_finding *f = finding_add(c, room, base, new);

    if (!f)
        return -ENOMEM;
    status_judge(f, options->subset);
    if (f->verdict != KVB_VERDICT_SAME)
        return 0;
    f->metric = KVB_METRIC_TIME;
    c->compared += !is_counted(base, new) && !kvb_time_is_same_measurement(base, new);
    for (kvb_metric m = KVB_METRIC_EXACT; m < sizeof metrics / sizeof *metrics; m++) {
        f = finding_add(c, room, base, new);
        if (!f)
            return -ENOMEM;
        f->metric = m;
        c->n -= !exact_judge(f, options->thresholds);
    }
    return 0;
}

/* Takes the noise from several runs of each build. 0 or -ENOMEM. */
static int scatter_see(const kvb_comparison *c, const kvb_compare_options *options, const sorted_runs *runs,
                       kvb_compare_noise *noise)
{
    double *scatters = malloc((c->n + 1) * sizeof *scatters);
    size_t n = 0;
    kvb_time_runs of;

    for (size_t i = 0; i < c->n && scatters; i++)
        if (c->findings[i].metric == KVB_METRIC_TIME) {
            runs_take(&c->findings[i], options, runs, &of);
            double scatter = kvb_time_scatter(&of);
            if (scatter >= 0) /* false for NaN: no time */
                scatters[n++] = scatter;
        }
    if (scatters)
        kvb_noise_see(noise, scatters, n, c->runs);
    free(scatters);
    return scatters ? 0 : -ENOMEM;
}

/* ---- kernels and caches: all combinations of one together show more than any of them ------------------------ */

static const struct axis {
    const char *name;
    size_t offset; /* of the name in a kvb_result */
} axes[] = {{"kernel", offsetof(kvb_result, kernel)}, {"cache", offsetof(kvb_result, cache)}};
#define AXES (sizeof axes / sizeof *axes)

static int names_order(const void *a, const void *b)
{
    return strcmp(((const member *)a)->name, ((const member *)b)->name);
}

static int place_order(const member *x, const member *y)
{
    int order = strcmp(x->result->workload, y->result->workload);

    order = order ? order : strcmp(x->result->pool_k, y->result->pool_k);
    return order ? order : strcmp(x->result->pool_v, y->result->pool_v);
}

static int members_order(const void *a, const void *b)
{
    int order = names_order(a, b);

    return order ? order : place_order(a, b);
}

/* Takes the median change of each place (a workload with its pools) of n members in members_order. Returns how many. */
static size_t places_take(const member *members, size_t n, double *changes, double *scratch)
{
    size_t places = 0;

    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && !place_order(&members[i], &members[end]); end++)
            scratch[end - i] = members[end].change;
        changes[places++] = kvb_quantile(scratch, end - i, 0.5);
    }
    return places;
}

/* The shift that all combinations of a comparison share, as logarithms. */
typedef struct common {
    double reach;  /* how large it may be */
    double others; /* median change of all combinations outside the judged kernel or cache; NaN: too few */
} common;

/*
 * Judges n sorted changes. Noise between two runs shifts all combinations equally. If too few other combinations show
 * this shift, no interval is narrower than its reach. If there are enough, their change, up to the reach, may be the
 * machine's.
 */
static void axis_judge(kvb_compared_axis *g, const double *sorted, size_t n, double tail, const common *shift,
                       double machine, double threshold)
{
    size_t k = kvb_sign_rank(n, tail);
    double estimate = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    bool alone = isnan(shift->others);
    double others = alone ? 0 : fmax(fmin(shift->others, shift->reach), -shift->reach);

    g->ratio = exp(estimate);
    if (k == 0) {
        g->low = g->high = NAN;
        g->verdict = KVB_VERDICT_UNDECIDED;
        snprintf(g->reason, sizeof g->reason, "too few for an interval: %zu workloads and pools", n);
        return;
    }
    bool same = sorted[0] == 0 && sorted[n - 1] == 0; /* the same measurements */
    double half = alone && !same ? shift->reach : 0;
    double low = fmin(sorted[k - 1], estimate - half), high = fmax(sorted[n - k], estimate + half);

    g->verdict = kvb_interval_judge(estimate, &low, &high, fmin(fmin(machine, others), 0),
                                    fmax(fmax(machine, others), 0), threshold);
    g->low = exp(low);
    g->high = exp(high);
    if (g->verdict != KVB_VERDICT_UNDECIDED)
        return;
    if (fabs(others) >= log1p(threshold))
        snprintf(g->reason, sizeof g->reason, "the others changed, too, by %+.1f %%: it may be the machine",
                 100 * expm1(shift->others));
    else
        snprintf(g->reason, sizeof g->reason,
                 low <= 0 && high >= 0 ? "the interval holds no change and more than the threshold %.3g %%"
                                       : "the estimate does not reach the threshold %.3g %%",
                 100 * threshold);
}

#define FEW_OTHERS 12u /* fewer others show no shift */

/* The median change of `all` members except first .. end - 1. */
static double others_of(const member *members, size_t all, size_t first, size_t end, double *scratch)
{
    size_t n = 0;

    for (size_t i = 0; i < all; i++)
        if (i < first || i >= end)
            scratch[n++] = members[i].change;
    return n < FEW_OTHERS ? NAN : kvb_quantile(scratch, n, 0.5);
}

/* Judges n members of one kernel or cache. scratch: [2 n]. */
static void axis_fill(kvb_compared_axis *g, const member *members, size_t n, double tail, const common *shift,
                      double machine, const kvb_compare_options *options, double *scratch)
{
    double threshold = 0; /* the largest of any member */

    for (size_t i = 0; i < n; i++)
        threshold = fmax(threshold, kvb_thresholds_of(options->thresholds, members[i].result, KVB_LIMIT_TIME));
    size_t places = places_take(members, n, scratch, scratch + n);
    snprintf(g->name, sizeof g->name, "%s", members->name);
    g->n = n;
    kvb_quantile(scratch, places, 0.5); /* sorts them */
    axis_judge(g, scratch, places, tail, shift, machine, threshold);
}

static size_t members_take(const kvb_comparison *c, const struct axis *axis, member *members)
{
    size_t n = 0;

    for (size_t i = 0; i < c->n; i++) {
        const kvb_finding *f = &c->findings[i];
        if (f->metric == KVB_METRIC_TIME && f->ratio > 0)
            members[n++] = (member){(const char *)f->new + axis->offset, f->new, log(f->ratio)};
    }
    qsort(members, n, sizeof *members, members_order);
    return n;
}

/* The end of the members with the name of the first. */
static size_t name_end(const member *members, size_t n, size_t first)
{
    size_t end = first + 1;

    while (end < n && !names_order(&members[first], &members[end]))
        end++;
    return end;
}

/* Fills in axes and n_axes of a comparison after its times were judged. 0 or -ENOMEM. */
static int axes_judge(kvb_comparison *c, const kvb_compare_noise *noise, const kvb_compare_options *options)
{
    member *members = calloc(c->n + 1, sizeof *members);
    double *scratch = calloc(2 * c->n + 1, sizeof *scratch);
    size_t names = 0;

    for (size_t a = 0; a < AXES && members; a++)
        for (size_t i = 0, n = members_take(c, &axes[a], members); i < n; i = name_end(members, n, i))
            names++;
    c->axes = calloc(names + 1, sizeof *c->axes);
    const bool good = members && scratch && c->axes;
    double tail = (1 - options->thresholds->confidence) / (double)names;
    double reach = kvb_common_reach(noise->common, tail, noise->nulls);
    for (size_t a = 0; a < AXES && good; a++) {
        size_t n = members_take(c, &axes[a], members);

        for (size_t i = 0, end; i < n; i = end) {
            end = name_end(members, n, i);
            kvb_compared_axis *g = &c->axes[c->n_axes++];
            g->axis = axes[a].name;
            common shift = {reach, options->paired ? NAN : others_of(members, n, i, end, scratch)};
            axis_fill(g, &members[i], end - i, tail, &shift, noise->machine, options, scratch);
        }
    }
    free(members);
    free(scratch);
    return good ? 0 : -ENOMEM;
}

/* ---- times, and the whole ---------------------------------------------------------------------------------- */

static int times_judge(kvb_comparison *c, const kvb_compare_options *options, const sorted_runs *runs)
{
    kvb_compare_noise noise;
    const kvb_compare_run *base = options->runs[0], *new = options->runs[1];
    int error = kvb_noise_of(base->results, base->n, new->results, new->n, c->compared, options->thresholds->confidence,
                             options->paired, c->runs, &noise);

    if (!error)
        error = scatter_see(c, options, runs, &noise);
    if (error)
        return error;
    double shift = options->paired ? NAN : kvb_machine_shift(c->findings, c->n); /* turns cancel the shift */

    noise.machine = isnan(shift) ? 0 : shift;
    c->machine = exp(shift);
    c->resolution = noise.resolution;
    c->nulls = noise.nulls;
    for (size_t i = 0; i < c->n; i++) {
        kvb_finding *f = &c->findings[i];

        if (f->metric != KVB_METRIC_TIME)
            continue;
        if (is_counted(f->base, f->new)) {
            f->verdict = KVB_VERDICT_SAME;
            snprintf(f->reason, sizeof f->reason, "counted, not timed");
            continue;
        }
        if (!(f->base->time.all.median > 0) && !(f->new->time.all.median > 0)) {
            f->verdict = KVB_VERDICT_SAME;
            snprintf(f->reason, sizeof f->reason, "judged alike, timed in neither run");
            continue;
        }
        c->times++;
        kvb_time_runs of;
        runs_take(f, options, runs, &of);
        kvb_time_judge(&noise, kvb_thresholds_of(options->thresholds, f->new, KVB_LIMIT_TIME), &of, f);
        if (options->no_time && f->verdict != KVB_VERDICT_SAME) {
            f->verdict = KVB_VERDICT_UNDECIDED;
            f->low = f->high = NAN;
            snprintf(f->reason, sizeof f->reason, "%s", options->no_time);
        }
    }
    return options->no_time ? 0 : axes_judge(c, &noise, options);
}

void kvb_comparison_free(kvb_comparison *c)
{
    if (!c)
        return;
    free(c->findings);
    free(c->axes);
    free(c);
}

int kvb_compare(const kvb_compare_options *options, kvb_comparison **comparison, char *why, size_t why_bytes)
{
    kvb_comparison *c = *comparison = calloc(1, sizeof *c);
    sorted_runs runs = {0};
    size_t room = 0;
    int error = c ? runs_sort(options, &runs, why, why_bytes) : -ENOMEM;

    if (c) {
        c->machine = c->resolution = NAN;
        c->paired = options->paired;
        memcpy(c->runs, options->n_runs, sizeof c->runs);
    }
    const kvb_result **before = runs.at[0][0], **after = runs.at[1][0];
    for (size_t i = 0, j = 0; !error && (i < runs.n[0][0] || j < runs.n[1][0]);) {
        int order = i == runs.n[0][0] ? 1 : j == runs.n[1][0] ? -1 : kvb_key_order(before[i], after[j]);

        const kvb_result *now = order >= 0 ? after[j] : NULL;
        for (size_t k = 1; now && k < options->n_runs[1]; k++) { /* one failed run: broken */
            const kvb_result *again = run_find(&runs, 1, k, now);
            now = again && outcome_of(again) == FAILED && outcome_of(now) == PASSED ? again : now;
        }
        error = combination_compare(c, &room, order <= 0 ? before[i] : NULL, now, options);
        i += order <= 0;
        j += order >= 0;
    }
    if (!error)
        error = times_judge(c, options, &runs);
    for (size_t i = 0; i < (error ? 0 : c->n); i++)
        c->count[c->findings[i].verdict]++;
    for (size_t i = 0; i < 2 * KVB_RUNS; i++)
        free(runs.at[i / KVB_RUNS][i % KVB_RUNS]);
    if (error) {
        if (error == -ENOMEM)
            snprintf(why, why_bytes, "no memory");
        kvb_comparison_free(c);
        *comparison = NULL;
    }
    return error;
}

size_t kvb_comparison_regressions(const kvb_comparison *c)
{
    size_t regressions = 0;

    for (size_t i = 0; i < c->n; i++)
        regressions += kvb_verdict_is_regression(c->findings[i].verdict);
    for (size_t i = 0; i < c->n_axes; i++)
        regressions += kvb_verdict_is_regression(c->axes[i].verdict);
    return regressions;
}

kvb_outcome kvb_comparison_outcome(const kvb_comparison *c)
{
    size_t decided = c->times - c->count[KVB_VERDICT_UNDECIDED];

    for (size_t i = 0; i < c->n_axes; i++)
        decided += c->axes[i].verdict != KVB_VERDICT_UNDECIDED;
    return kvb_comparison_regressions(c)      ? KVB_OUTCOME_REGRESSION
           : !c->count[KVB_VERDICT_UNDECIDED] ? KVB_OUTCOME_GOOD
           : decided                          ? KVB_OUTCOME_PARTLY
                                              : KVB_OUTCOME_NOTHING;
}

/* ---- printing: tables for programs, text for people, Markdown for a pull request --------------------------- */

enum { VERDICT, WORKLOAD, CACHE, POOL, KERNEL, THREADS, METRIC, BASE, NEW, CHANGE, INTERVAL, REASON, COLUMNS };
static const char *const people[COLUMNS + 1] = {"verdict",  "workload", "cache", "pool", "kernel",
                                                ">threads", "metric",   ">base", ">new", ">change",
                                                "interval", "reason",   NULL};

#define MOST_ROWS 20 /* of a verdict; --all shows the rest */

/* ---- for programs ------------------------------------------------------------------------------------------ */

static kvb_number number_text(double number)
{
    kvb_number n = {""};
    if (isfinite(number))
        snprintf(n.text, sizeof n.text, "%.9g", number);
    return n;
}

static const char *or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static void raw_row(kvb_table *table, kvb_verdict verdict, const char *const key[6], const char *metric,
                    const double numbers[5], const char *reason)
{
    kvb_number n[5];

    for (int i = 0; i < 5; i++)
        n[i] = number_text(numbers[i]);
    kvb_table_row(table, (const char *const[]){
                             kvb_verdict_name(verdict), kvb_verdict_is_regression(verdict) ? "yes" : "no", key[0],
                             key[1], key[2], key[3], key[4], key[5], metric, or_null(n[0].text), or_null(n[1].text),
                             or_null(n[2].text), or_null(n[3].text), or_null(n[4].text), or_null(reason)});
}

/* Prints all kernels, caches and findings. A kernel or cache has asterisks in columns that it spans. 0 or -errno. */
static int rows_print(const kvb_comparison *c, const kvb_compare_view *view, FILE *out)
{
    kvb_table *table = kvb_table_new((const char *const[]){"verdict", "regression", "workload", "cache", "pool",
                                                           "kernel", ">threads", "growth", "metric", ">base", ">new",
                                                           ">ratio", ">low", ">high", "reason", NULL});

    for (size_t i = 0; i < c->n_axes; i++) {
        const kvb_compared_axis *g = &c->axes[i];
        bool kernel = !strcmp(g->axis, "kernel");
        raw_row(table, g->verdict,
                (const char *const[]){"*", kernel ? "*" : g->name, "*", kernel ? g->name : "*", "*", "*"},
                metrics[KVB_METRIC_TIME].name, (const double[]){NAN, NAN, g->ratio, g->low, g->high}, g->reason);
    }
    for (size_t i = 0; i < c->n; i++) {
        const kvb_finding *f = &c->findings[i];
        const kvb_result *r = f->new ? f->new : f->base;
        char threads[16];
        snprintf(threads, sizeof threads, "%u", r->threads);
        raw_row(table, f->verdict,
                (const char *const[]){r->workload, r->cache, kvb_key_pools(r).text, r->kernel, threads, r->growth},
                metrics[f->metric].name, (const double[]){f->before, f->after, f->ratio, f->low, f->high}, f->reason);
    }
    return kvb_table_end(table, view->format, out);
}

/* ---- for people: tables ------------------------------------------------------------------------------------ */

static kvb_number value_text(const kvb_finding *f, double value)
{
    const bool large = value >= 1e6 && isfinite(value);
    kvb_number n = {""};
    if (f->metric == KVB_METRIC_TIME)
        return kvb_time_text(value);
    if (metrics[f->metric].is_bytes)
        return kvb_bytes_text(value);
    if (!isnan(value))
        snprintf(n.text, sizeof n.text, large ? "%.2f M" : "%.3g", large ? 1e-6 * value : value);
    return n;
}

#define INTERVAL_TEXT (2 * KVB_UNIT_TEXT + 8)

static void interval_text(double low, double high, char text[INTERVAL_TEXT])
{
    const kvb_number most = kvb_change_text(high);
    text[0] = 0;
    if (low < high)
        snprintf(text, INTERVAL_TEXT, "%s to %s", kvb_change_text(low).text, *most.text ? most.text : "more");
}

#define SHORT_REASON 100 /* characters of a reason in Markdown */

static void finding_row(kvb_table *table, const kvb_finding *f, kvb_table_format format)
{
    const kvb_result *r = f->new ? f->new : f->base;
    char threads[16], interval[INTERVAL_TEXT], reason[KVB_REASON];
    kvb_number before = value_text(f, f->before), after = value_text(f, f->after);

    bool cut = format == KVB_TABLE_MD && strlen(f->reason) > SHORT_REASON; /* a pull request's table stays narrow */
    snprintf(reason, sizeof reason, cut ? "%.*s…" : "%.*s", cut ? SHORT_REASON : KVB_REASON - 8, f->reason);
    snprintf(threads, sizeof threads, "%u", r->threads);
    if (f->metric != KVB_METRIC_TIME && !strcmp(before.text, after.text)) { /* rounding to units hides the difference */
        before = number_text(f->before);
        after = number_text(f->after);
    }
    interval_text(f->low, f->high, interval);
    kvb_table_row(table, (const char *const[COLUMNS]){[VERDICT] = kvb_verdict_name(f->verdict),
                                                      [WORKLOAD] = r->workload,
                                                      [CACHE] = kvb_key_cache(r).text,
                                                      [POOL] = kvb_key_pools(r).text,
                                                      [KERNEL] = r->kernel,
                                                      [THREADS] = threads,
                                                      [METRIC] = metrics[f->metric].name,
                                                      [BASE] = before.text,
                                                      [NEW] = after.text,
                                                      [CHANGE] = kvb_change_text(f->ratio).text,
                                                      [INTERVAL] = interval,
                                                      [REASON] = reason});
}

/* Orders by verdict, then the largest change first, then as findings. */
static int findings_order(const void *a, const void *b)
{
    const kvb_finding *x = *(const kvb_finding *const *)a, *y = *(const kvb_finding *const *)b;
    double by_x = isnan(x->ratio) ? 0 : fabs(log(x->ratio)), by_y = isnan(y->ratio) ? 0 : fabs(log(y->ratio));

    if (x->verdict != y->verdict)
        return x->verdict < y->verdict ? -1 : 1;
    return by_x != by_y ? (by_x > by_y ? -1 : 1) : x < y ? -1 : 1;
}

/* Prints the findings of the verdicts first .. last as one table, the largest change of each verdict first, and below
 * it how many are left out. Returns the number of rows, or -errno. */
static long findings_print(const kvb_comparison *c, const kvb_compare_view *view, kvb_verdict first, kvb_verdict last,
                           FILE *out)
{
    kvb_table *table = kvb_table_new(people);
    const kvb_finding **sorted = malloc((c->n + 1) * sizeof *sorted);
    size_t shown[KVB_VERDICTS] = {0}, n = 0;
    const bool counted =
        !c->paired && !view->all && view->format == KVB_TABLE_TEXT; /* undecided ones, in a line below */

    for (size_t i = 0; i < c->n && sorted; i++)
        if (c->findings[i].verdict >= first && c->findings[i].verdict <= last &&
            !(counted && c->findings[i].metric == KVB_METRIC_TIME && c->findings[i].verdict == KVB_VERDICT_UNDECIDED))
            sorted[n++] = &c->findings[i];
    if (n)
        qsort(sorted, n, sizeof *sorted, findings_order);
    for (size_t i = 0; i < n; i++)
        if (view->all || shown[sorted[i]->verdict]++ < MOST_ROWS)
            finding_row(table, sorted[i], view->format);
    int error = !sorted ? -ENOMEM : n ? kvb_table_print(table, view->format, out) : 0;
    for (kvb_verdict v = first; v <= last && !error; v++)
        if (!view->all && shown[v] && c->count[v] > MOST_ROWS)
            fprintf(out, "%sand %zu more %s; --all shows them\n", view->format == KVB_TABLE_MD ? "\n" : "",
                    c->count[v] - MOST_ROWS, kvb_verdict_name(v));
    kvb_table_free(table);
    free(sorted);
    return error ? error : (long)n;
}

/* Prints the kernels and caches that changed, or all. Markdown: a line for each kernel. Returns the rows, or -errno. */
static long axes_print(const kvb_comparison *c, const kvb_compare_view *view, FILE *out)
{
    kvb_table *table = kvb_table_new(
        (const char *const[]){"verdict", "all of", ">combinations", ">change", "interval", "reason", NULL});

    for (size_t i = 0; i < c->n_axes; i++) {
        const kvb_compared_axis *g = &c->axes[i];
        char interval[INTERVAL_TEXT];
        bool named = g->verdict == KVB_VERDICT_SLOWER || g->verdict == KVB_VERDICT_FASTER;
        if (!view->all && !named && (view->format != KVB_TABLE_MD || strcmp(g->axis, "kernel")))
            continue;
        interval_text(g->low, g->high, interval);
        kvb_table_put(table, "%s\t%s %s\t%zu\t%s\t%s\t%s", kvb_verdict_name(g->verdict), g->axis, g->name, g->n,
                      kvb_change_text(g->ratio).text, interval, g->reason);
    }
    const long rows = (long)kvb_table_rows(table);
    const int error = rows || !table ? kvb_table_print(table, view->format, out) : 0;
    kvb_table_free(table);
    return error ? error : rows;
}

/* ---- for people: text and Markdown ------------------------------------------------------------------------ */

/* "REGRESSION: kernel flash SLOWER +10.0 %, 2 BROKEN", "no regression", "nothing decided: 76 of 76 undecided". */
static void headline_print(const kvb_comparison *c, FILE *out)
{
    static const char *const texts[] = {[KVB_OUTCOME_GOOD] = "no regression",
                                        [KVB_OUTCOME_REGRESSION] = "REGRESSION",
                                        [KVB_OUTCOME_PARTLY] = "no regression in what is decided",
                                        [KVB_OUTCOME_NOTHING] = "nothing decided"};
    const char *separator = ": ";
    kvb_outcome whole = kvb_comparison_outcome(c);

    fputs(texts[whole], out);
    if (whole == KVB_OUTCOME_PARTLY && c->count[KVB_VERDICT_UNDECIDED] == c->times)
        fputs(", kernels and caches as a whole", out);
    if (whole == KVB_OUTCOME_PARTLY || whole == KVB_OUTCOME_NOTHING)
        fprintf(out, ": %zu of %zu undecided", c->count[KVB_VERDICT_UNDECIDED], c->times);
    for (size_t i = 0; i < c->n_axes; i++) {
        if (!kvb_verdict_is_regression(c->axes[i].verdict))
            continue;
        fprintf(out, "%s%s %s %s %s", separator, c->axes[i].axis, c->axes[i].name, kvb_verdict_name(c->axes[i].verdict),
                kvb_change_text(c->axes[i].ratio).text);
        separator = ", ";
    }
    for (kvb_verdict v = 0; v < KVB_VERDICTS; v++)
        if (c->count[v] && kvb_verdict_is_regression(v)) {
            fprintf(out, "%s%zu %s", separator, c->count[v], kvb_verdict_name(v));
            separator = ", ";
        }
}

/* "312 combinations: 2 SLOWER, 300 SAME, 10 UNDECIDED; smallest difference these runs can resolve: 4.2 % (600 null
 * comparisons)" */
static void counts_print(const kvb_comparison *c, FILE *out)
{
    size_t combinations = 0;

    for (size_t i = 0; i < c->n; i++)
        combinations += c->findings[i].metric <= KVB_METRIC_TIME;
    fprintf(out, "%zu combinations", combinations);
    for (kvb_verdict v = 0, told = 0; v < KVB_VERDICTS; v++)
        if (c->count[v])
            fprintf(out, "%s %zu %s", told++ ? "," : ":", c->count[v], kvb_verdict_name(v));
    if (c->compared && c->times) {
        char resolution[KVB_RESOLUTION_TEXT];
        kvb_resolution_text(c->resolution, c->nulls, resolution);
        fprintf(out, "; smallest difference these runs can resolve: %s", resolution);
        if (!c->paired && (c->runs[0] < 2 || c->runs[1] < 2))
            fputs("; one run of a build does not show how runs differ: taken from null comparisons", out);
    }
    if (c->compared && fabs(c->machine - 1) >= 0.02) /* false for NaN */
        fprintf(out, "; the machine's bandwidth was %.1f %% %s in the new run", 100 * fabs(1 / c->machine - 1),
                c->machine > 1 ? "lower" : "higher");
}

/* Are there undecided times, and a way to decide them? */
static bool is_to_decide(const kvb_comparison *c, const kvb_compare_view *view)
{
    kvb_outcome whole = kvb_comparison_outcome(c);
    return view->decide && (whole == KVB_OUTCOME_PARTLY || whole == KVB_OUTCOME_NOTHING);
}

static int text_print(const kvb_comparison *c, const kvb_compare_view *view, FILE *out)
{
    fprintf(out, "base: %s\nnew:  %s\n", view->base, view->new);
    for (size_t i = 0; i < view->n_notes; i++)
        fprintf(out, "note: %s\n", view->notes[i]);
    putc('\n', out);
    long rows = axes_print(c, view, out);
    if (rows > 0)
        putc('\n', out);
    if (rows >= 0)
        rows = findings_print(c, view, 0, view->all ? KVB_VERDICTS - 1 : KVB_VERDICT_FAILING, out);
    if (rows < 0)
        return (int)rows;
    if (rows > 0)
        putc('\n', out);
    counts_print(c, out);
    putc('\n', out);
    headline_print(c, out);
    putc('\n', out);
    if (is_to_decide(c, view))
        fprintf(out, "to decide: %s\n%s", view->decide, view->all || c->paired ? "" : "why each is undecided: --all\n");
    return 0;
}

/* Prints a section that a page shows folded. */
static int md_fold(const kvb_comparison *c, const kvb_compare_view *view, kvb_verdict first, kvb_verdict last,
                   FILE *out)
{
    size_t n = 0;

    for (kvb_verdict v = first; v <= last; v++)
        n += c->count[v];
    if (!n)
        return 0;
    fputs("<details><summary>", out);
    for (kvb_verdict v = first, told = 0; v <= last; v++)
        if (c->count[v])
            fprintf(out, "%s%zu %s", told++ ? ", " : "", c->count[v], kvb_verdict_name(v));
    fputs("</summary>\n\n", out);
    long rows = findings_print(c, view, first, last, out);
    fputs("\n</details>\n\n", out);
    return rows < 0 ? (int)rows : 0;
}

static int md_print(const kvb_comparison *c, const kvb_compare_view *view, FILE *out)
{
    fputs("## kvbench: ", out);
    headline_print(c, out);
    fputs("\n\n", out);
    counts_print(c, out);
    fputs(".\n\n", out);
    if (is_to_decide(c, view))
        fprintf(out, "To decide: %s.\n\n", view->decide);
    fprintf(out, "Base: `%s`, new: `%s`.\n\n", view->base, view->new);
    for (size_t i = 0; i < view->n_notes; i++)
        fprintf(out, "- %s\n%s", view->notes[i], i + 1 < view->n_notes ? "" : "\n");
    long rows = axes_print(c, view, out);
    if (rows > 0)
        putc('\n', out);
    int error = rows < 0 ? (int)rows : md_fold(c, view, 0, KVB_VERDICT_MORE, out);
    if (!error)
        error = md_fold(c, view, KVB_VERDICT_UNDECIDED, KVB_VERDICT_UNDECIDED, out);
    if (!error)
        error = md_fold(c, view, KVB_VERDICT_CHANGED, KVB_VERDICT_FAILING, out);
    if (!error && view->all)
        error = md_fold(c, view, KVB_VERDICT_SAME, KVB_VERDICT_SKIPPED, out);
    if (!error && view->command)
        fprintf(out, "To reproduce: `%s`\n", view->command);
    return error;
}

int kvb_comparison_print(const kvb_comparison *c, const kvb_compare_view *view, FILE *out)
{
    int error = view->format == KVB_TABLE_TEXT ? text_print(c, view, out)
                : view->format == KVB_TABLE_MD ? md_print(c, view, out)
                                               : rows_print(c, view, out);

    return error ? error : fflush(out) == 0 && !ferror(out) ? 0 : -EIO;
}
