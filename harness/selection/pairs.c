/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the combinations that can run, then chooses among them. */
#include "harness/selection/pairs.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "caches/call.h"
#include "harness/matrix/matrix.h"
#include "harness/replay/child.h"
#include "harness/replay/replay.h"
#include "harness/selection/registry.h"
#include "harness/selection/kernel_support.h"
#include "kernels/kernels.h"
#include "workloads/array.h"
#include "workloads/files.h"

/* The greedy choice's table of the pairs that have met. */
typedef struct meetings {
    unsigned dims;                /* set of dimensions that must meet */
    unsigned hub;                 /* set with at least one dimension of each pair */
    size_t values;                /* of all dimensions */
    size_t first[KVB_PAIRS_DIMS]; /* index of a dimension's first value among all */
    bool *met;                    /* [values][values] */
    uint32_t *uses;               /* [values] how often each was chosen */
    unsigned *fresh;              /* [candidates] new pairs when they were last counted: never fewer than now */
} meetings;

/* Counts a candidate's pairs that have not met yet. *uses: how often its values have been chosen. */
static unsigned new_pairs(const meetings *m, const kvb_candidate *c, uint32_t *uses)
{
    unsigned n = 0;
    *uses = 0;
    for (size_t a = 0; a < KVB_PAIRS_DIMS; a++) {
        const bool *met = &m->met[(m->first[a] + c->at[a]) * m->values];
        *uses += m->uses[m->first[a] + c->at[a]];
        for (size_t b = a + 1; b < KVB_PAIRS_DIMS; b++)
            n += (m->dims >> a & m->dims >> b & (m->hub >> a | m->hub >> b) & 1) && !met[m->first[b] + c->at[b]];
    }
    return n;
}

static void choose(meetings *m, kvb_candidate *c)
{
    c->chosen = true;
    for (size_t a = 0; a < KVB_PAIRS_DIMS; a++) {
        m->uses[m->first[a] + c->at[a]]++;
        for (size_t b = a + 1; b < KVB_PAIRS_DIMS; b++)
            m->met[(m->first[a] + c->at[a]) * m->values + m->first[b] + c->at[b]] = true;
    }
}

#define EACH_COSTS 2e9 /* multiply-adds that take as long as a combination's process and cache */

/* The next candidate to choose. NULL: no candidate has a new pair. */
static kvb_candidate *best_find(const meetings *m, kvb_candidate *candidates, size_t n)
{
    kvb_candidate *best = NULL;
    double most = 0;
    uint32_t least = 0, uses;
    for (kvb_candidate *c = candidates; c < candidates + n; c++) {
        unsigned *fresh = &m->fresh[c - candidates];
        if (c->chosen || isnan(c->cost) || !*fresh || *fresh / (EACH_COSTS + c->cost) < most)
            continue;
        *fresh = new_pairs(m, c, &uses);
        const double worth = *fresh / (EACH_COSTS + c->cost);
        if (!*fresh || worth < most || (worth == most && uses >= least))
            continue;
        best = c;
        most = worth;
        least = uses;
    }
    return best;
}

int kvb_pairs_cover(kvb_candidate *candidates, size_t n, unsigned dims, unsigned hub)
{
    meetings m = {.dims = dims, .hub = hub};
    kvb_candidate *best;
    for (size_t d = 0; d < KVB_PAIRS_DIMS; d++) {
        uint32_t most = 0;
        for (size_t i = 0; i < n; i++)
            most = most > candidates[i].at[d] ? most : candidates[i].at[d];
        m.first[d] = m.values;
        m.values += most + 1;
    }
    kvb_arena arena = {0};
    m.met = kvb_arena_take(&arena, m.values * m.values, sizeof *m.met);
    m.uses = kvb_arena_take(&arena, m.values, sizeof *m.uses);
    m.fresh = kvb_arena_take(&arena, n, sizeof *m.fresh);
    int error = arena.failed ? -ENOMEM : 0;
    for (size_t i = 0; i < n && !error; i++)
        m.fresh[i] = KVB_PAIRS_DIMS * KVB_PAIRS_DIMS;
    for (size_t i = 0; i < n && !error; i++)
        if (candidates[i].chosen)
            choose(&m, &candidates[i]);
    while (!error && (best = best_find(&m, candidates, n)))
        choose(&m, best);
    for (size_t i = 0; i < n && !error; i++)
        for (size_t d = 0; d < KVB_PAIRS_DIMS; d++)
            if ((dims >> d & 1) && !m.uses[m.first[d] + candidates[i].at[d]])
                choose(&m, &candidates[i]);
    kvb_arena_free(&arena);
    return error;
}

bool kvb_pairs_usual(const kvb_suite *suite, bool suite_is_named, const kvb_selection_words *words)
{
    bool parts_are_named = words->workloads.n || words->caches.n || words->pools.n || words->kernels.n;
    return suite->by_pairs && (suite_is_named || !parts_are_named) &&
           !kvb_is_named(&words->kernels, kvb_kernel_best.name);
}

/* ---- which combinations can run, and their cost -------------------------------------------------------------- */

/* One selection, and the facts about its combinations. */
typedef struct part {
    const kvb_pairs_options *options;
    kvb_selection *selection;
    kvb_trace **traces; /* [workloads] */
    char **histories;   /* [workloads] their names without the shape */
    bool *stores;       /* [workloads][pools] */
    double *cost;       /* [workloads][caches]; NaN: cannot run */
    uint64_t *refuses;  /* [kernels][workloads][pools] bits of settings' values, USUAL among them; in memory shared with
                           the process in which kernels are asked */
    size_t refuses_bytes;
    bool *kept;    /* [workloads][pools][caches] is a combination of any kernel chosen? */
    size_t kernel; /* the one to ask */
    kvb_arena arena;
} part;

#define USUAL 1u /* the bit of the run's own setting: value 0 of the first axis */

static uint64_t *refuses_at(const part *p, size_t kernel, size_t workload, size_t pools)
{
    return &p->refuses[(kernel * p->selection->n_workloads + workload) * p->selection->n_pools + pools];
}

/* Does the kernel take rows of these pools in every group of layers? Asked as in a replay, over a cache without cells. */
static bool kernel_takes(const part *p, const kvb_kernel *kernel, const kvb_model *m, const kvb_pool_pair *pools,
                         const kvb_setting *setting)
{
    static const float no_sinks[KVB_MODEL_WIDTH]; /* sink logits; their values do not matter */
    static const kvb_team alone = {.n = 1};
    const kvb_kernel *attends = kvb_kernel_attending(kernel);
    kvb_call call = {.kernel = attends,
                     .team = &alone,
                     .out_elem = setting->out_elem,
                     .no_staging = p->options->no_staging,
                     .deterministic = setting->deterministic};
    kvb_mask_kind mask = KVB_MASK_NONE;
    char why[256];
    int error = 0;
    while (mask + 1 < KVB_MASK_KINDS && !(attends->masks & KVB_MASK_BIT(mask)))
        mask++;
    if (!kvb_kernel_fits(kernel, m, setting->out_elem, why, sizeof why))
        return false;
    for (uint32_t g = 0; g < m->n_groups && error != -ENOTSUP; g++) {
        kvb_group group = m->groups[g];
        if (kvb_group_scans(&group))
            continue;
        group.softcap = setting->logits.softcap > 0 ? setting->logits.softcap : group.softcap;
        group.scale = setting->logits.scale > 0 ? setting->logits.scale : group.scale;
        group.sink_logits = setting->logits.sinks ? no_sinks : group.sink_logits;
        const kvb_pool_type *v = group.latent ? pools->k : pools->v;
        const kvb_attend_spec spec = {.group = &group,
                                      .k = {.format = pools->k->format, .dim = group.k_dim},
                                      .v = {.format = v->format, .dim = group.v_dim},
                                      .mask = {.kind = mask}};
        error = kvb_call_prepare(&call, &spec, NULL, 1, why, sizeof why);
    }
    kvb_call_free(&call);
    return error != -ENOTSUP;
}

/* The values of settings that the kernel refuses, each tried by itself. */
static uint64_t refused(const part *p, const kvb_kernel *kernel, size_t workload, size_t pools)
{
    const kvb_model *m = &p->traces[workload]->header.model;
    const kvb_pool_pair *pair = &p->selection->pools[pools];
    const bool taken = kernel_takes(p, kernel, m, pair, &p->options->setting);
    uint64_t set = taken ? 0 : USUAL;
    for (size_t a = 0; a < KVB_SETTING_AXES && taken; a++)
        for (uint8_t v = 1; v <= KVB_SETTING_WORDS && kvb_setting_axes[a].words[v - 1]; v++) {
            kvb_setting_choice choice = {0};
            choice[a] = v;
            const kvb_setting setting = kvb_setting_apply(&p->options->setting, choice);
            const uint32_t traits = kvb_setting_axes[a].traits;
            /* a tolerance of the kernel's own project holds for ordinary logits and values only */
            const bool strange = kernel->tolerance.kind != KVB_TOLERANCE_NONE && traits & KVB_AXIS_TRUTH;
            if ((p->options->axes >> a & 1) &&
                (strange || (traits & KVB_AXIS_KERNEL && !kernel_takes(p, kernel, m, pair, &setting))))
                set |= kvb_setting_bit(a, v);
        }
    return set;
}

/* Fills in the refusals of one kernel. */
static void kernel_ask(void *ctx)
{
    const part *p = ctx;
    const kvb_selection *s = p->selection;
    const kvb_kernel *kernel = s->kernels[p->kernel];
    char why[KVB_REASON];
    bool available = !kernel->available || kernel->available(why, sizeof why);
    for (size_t w = 0; w < s->n_workloads; w++)
        for (size_t pools = 0; pools < s->n_pools; pools++)
            *refuses_at(p, p->kernel, w, pools) = !available                          ? USUAL
                                                  : p->stores[w * s->n_pools + pools] ? refused(p, kernel, w, pools)
                                                                                      : 0;
}

#define ROW_CELLS 64.0 /* storing a row and checking an output cost about as much as attending so many cells */

/* Rough factors by which some combinations take longer: with a plain kernel; with one that multiplies decoded rows; with
 * one that rounds q, as the oracle solves attention again for the rounded q. */
#define PLAIN_DEAR   10.0
#define BLAS_DEAR    5.0
#define ROUNDED_DEAR 3.0

#define TRUTH_DEAR 1e9 /* from this work on an oracle takes a second or more */
/* From this work on a replay takes no value that multiplies it, if its history can be replayed for a fourth of the work. */
#define REPLAY_DEAR 1e9

/* The work in a layer of a group. */
typedef struct work {
    double all;  /* (query, cell) pairs without the group's limits, as some kernels visit all; plus the cost of rows */
    double step; /* pairs of the largest step */
} work;

/* Pairs of n queries at positions 0 .. n-1, each with at most `limit` cells. */
static double triangle(double n, double limit)
{
    return n <= limit ? n * (n + 1) / 2 : limit * (limit + 1) / 2 + (n - limit) * limit;
}

/* Counts the pairs that an event's queries attend, and the rows that it feeds. A cache that forgets is fed the whole
 * past, with a query for each token. */
static double event_work(const kvb_event *event, double limit, bool forgets, double *rows)
{
    uint64_t met[KVB_TRACE_MAX_SEQS / 64] = {0};
    double pairs = 0, longest = 0;
    *rows = event->n;
    for (uint32_t i = 0; i < event->n; i++) {
        double past = event->pos[i] + 1.0;
        pairs += past < limit ? past : limit;
        longest = longest > past ? longest : past;
    }
    if (forgets && event->kind == KVB_EVENT_PROPOSE)
        *rows = longest, pairs = triangle(longest, limit);
    else if (forgets)
        pairs = *rows = 0;
    for (uint32_t i = event->n;
         i-- > 0 && forgets && event->kind != KVB_EVENT_PROPOSE;) { /* last token of a sequence */
        uint64_t bit = UINT64_C(1) << event->seq[i] % 64, *set = &met[event->seq[i] / 64];
        pairs += *set & bit ? 0 : triangle(event->pos[i] + 1.0, limit);
        *rows += *set & bit ? 0 : event->pos[i] + 1.0;
        *set |= bit;
    }
    return pairs;
}

static work group_work(const kvb_trace *trace, const kvb_group *group, bool forgets)
{
    double limit = group->window  ? (double)group->window + group->sinks
                   : group->chunk ? (double)group->chunk
                                  : HUGE_VAL;
    work w = {0, 0};
    for (size_t e = 0; e < trace->n_events; e++) {
        const kvb_event *event = &trace->events[e];
        bool steps = event->kind <= KVB_EVENT_PROPOSE, asks = steps && event->kind != KVB_EVENT_FILL;
        double rows = 0, pairs = steps ? event_work(event, limit, forgets, &rows) : 0;
        w.all += (asks ? event_work(event, HUGE_VAL, forgets, &rows) : 0) + ROW_CELLS * rows;
        w.step = asks && w.step < pairs ? pairs : w.step;
    }
    return w;
}

/* The work of a layer that scans: each fed token updates every element of its state. */
static double scan_work(const kvb_trace *trace, const kvb_group_scan *s, bool forgets)
{
    double fed = 0;
    for (size_t e = 0; e < trace->n_events; e++) {
        double rows = 0;
        if (trace->events[e].kind <= KVB_EVENT_PROPOSE)
            event_work(&trace->events[e], HUGE_VAL, forgets, &rows);
        fed += rows;
    }
    return 4 * fed * s->heads * s->d_k * s->d_v;
}

/* Operations of the trace over this cache. NaN: the cache cannot run it, or a step is too large. */
static double cache_cost(const kvb_pairs_options *o, const kvb_trace *trace, const kvb_cache_type *cache)
{
    const kvb_model *m = &trace->header.model;
    char why[KVB_REASON];
    double cost = kvb_replay_fits(trace, cache, why, sizeof why) ? 0 : NAN;
    for (uint32_t g = 0; g < m->n_groups && !isnan(cost); g++) {
        if (kvb_group_scans(&m->groups[g])) {
            cost += scan_work(trace, &m->groups[g].scan, cache->flags & KVB_CACHE_FORGETS) * kvb_model_layers_of(m, g);
            continue;
        }
        work w = group_work(trace, &m->groups[g], cache->flags & KVB_CACHE_FORGETS);
        cost += w.step > (double)o->max_pairs ? NAN
                                              : w.all * m->groups[g].heads * (m->groups[g].k_dim + m->groups[g].v_dim) *
                                                    kvb_model_layers_of(m, g);
    }
    return cost;
}

/* Index in a workload's name of its ending for the shape, such as "-8x128" or "-1x576"; the name's end if there is none. */
static size_t shape_at(const char *name)
{
    const char *last = strrchr(name, '-');
    bool shape = last && last[1] >= '1' && last[1] <= '9' && strchr(last, 'x') &&
                 strspn(last + 1, "0123456789x") == strlen(last + 1);
    return shape ? (size_t)(last - name) : strlen(name);
}

static int part_open(const kvb_pairs_options *o, kvb_selection *s, part *p, char *why, size_t why_bytes)
{
    size_t w_p = s->n_workloads * s->n_pools;
    *p = (part){.options = o, .selection = s, .refuses_bytes = (s->n_kernels * w_p + 1) * sizeof *p->refuses};
    p->traces = kvb_arena_take(&p->arena, s->n_workloads + 1, sizeof *p->traces);
    p->histories = kvb_arena_take(&p->arena, s->n_workloads + 1, sizeof *p->histories);
    p->stores = kvb_arena_take(&p->arena, w_p + 1, sizeof *p->stores);
    p->cost = kvb_arena_take(&p->arena, s->n_workloads * s->n_caches + 1, sizeof *p->cost);
    p->kept = kvb_arena_take(&p->arena, w_p * s->n_caches + 1, sizeof *p->kept);
    p->refuses = mmap(NULL, p->refuses_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p->refuses == MAP_FAILED)
        p->refuses = NULL;
    if (p->arena.failed || !p->refuses)
        return -ENOMEM;
    for (size_t w = 0; w < s->n_workloads; w++) {
        char unused[KVB_REASON];
        int error = kvb_trace_load(s->workloads[w].path, o->capacity, &p->traces[w], why, why_bytes);
        if (error)
            return error == -ENOMEM ? error : -EINVAL; /* any error of a file is bad input */
        error = kvb_trace_change_logits(p->traces[w], &o->setting.logits);
        if (error)
            return error;
        p->histories[w] = strndup(s->workloads[w].name, shape_at(s->workloads[w].name));
        if (!p->histories[w])
            return -ENOMEM;
        for (size_t c = 0; c < s->n_caches; c++)
            p->cost[w * s->n_caches + c] = cache_cost(o, p->traces[w], s->caches[c]);
        for (size_t i = 0; i < s->n_pools; i++)
            p->stores[w * s->n_pools + i] = kvb_pair_fits(&s->pools[i], p->traces[w], unused, sizeof unused);
    }
    for (p->kernel = 0; p->kernel < s->n_kernels; p->kernel++) {
        int error = kvb_apart(kernel_ask, p, o->seconds);
        if (error && error != -ECHILD) /* -ECHILD: the kernel crashed, and each of its combinations will report that */
            return error;
    }
    return 0;
}

/* ---- the parts of a suite together --------------------------------------------------------------------------- */

/* The values of a dimension, each known by two names. */
typedef struct values {
    const char *(*at)[2];
    size_t n;
} values;

static uint32_t number_of(values *of, const char *a, const char *b)
{
    size_t i = 0;
    while (i < of->n && (strcmp(of->at[i][0], a) || strcmp(of->at[i][1], b)))
        i++;
    of->at[i][0] = a;
    of->at[i][1] = b;
    of->n += i == of->n;
    return (uint32_t)i;
}

static bool can_run(const part *p, kvb_spot at)
{
    const kvb_selection *s = p->selection;
    const kvb_pool_pair *pools = &s->pools[at.pools];
    char why[KVB_REASON];
    return kvb_cache_takes(s->caches[at.cache], pools->k, pools->v, why, sizeof why) &&
           p->stores[at.workload * s->n_pools + at.pools] &&
           !(*refuses_at(p, at.kernel, at.workload, at.pools) & USUAL) &&
           !isnan(p->cost[at.workload * s->n_caches + at.cache]);
}

static kvb_candidate candidate_of(const part *p, size_t i, values dims[KVB_PAIRS_DIMS])
{
    const kvb_selection *s = p->selection;
    kvb_spot at = kvb_spot_of(s, i);
    const char *profile = s->values[at.values];
    const kvb_kernel *kernel = s->kernels[at.kernel];
    const char *name = s->workloads[at.workload].name;
    double dear = kernel == &kvb_kernel_reference || kernel == &kvb_kernel_scan_reference ? PLAIN_DEAR
                  : kernel == &kvb_kernel_openblas                                        ? BLAS_DEAR
                  : kernel->round_query                                                   ? ROUNDED_DEAR
                                                                                          : 1;
    return (kvb_candidate){.at = {number_of(&dims[0], p->histories[at.workload], profile ? profile : ""),
                                  number_of(&dims[1], name + shape_at(name), ""),
                                  number_of(&dims[2], s->pools[at.pools].k->name, s->pools[at.pools].v->name),
                                  number_of(&dims[3], s->caches[at.cache]->name, ""),
                                  number_of(&dims[4], kernel->name, "")},
                           .cost = can_run(p, at) ? dear * p->cost[at.workload * s->n_caches + at.cache] : NAN};
}

/* Combinations of a candidate: one for each thread count and growth. */
static size_t each_of(const kvb_selection *s)
{
    return s->n_threads * s->n_growths;
}

/* Removes a candidate's combinations from the selection. */
static void block_drop(const part *p, size_t first, bool could_run)
{
    kvb_selection *s = p->selection;
    for (size_t i = first; i < first + each_of(s); i++) {
        s->n_has -= s->has[i];
        s->n_left_out += s->has[i] && could_run;
        s->has[i] = false;
    }
}

/* A candidate's combinations in a selection. */
typedef struct block {
    const part *part;
    size_t first; /* combination */
} block;

/* All candidates of the parts, and their origins. */
typedef struct field {
    kvb_candidate *at; /* [n] */
    block *blocks;     /* [n] */
    size_t n;
    values dims[KVB_PAIRS_DIMS];
} field;

static bool *kept_at(const part *p, kvb_spot at)
{
    return &p->kept[(at.workload * p->selection->n_pools + at.pools) * p->selection->n_caches + at.cache];
}

/* Makes candidates of the selections' combinations with kernels; or with witnesses beside kernels, dropping a witness
 * where no kernel was chosen. */
static void field_fill(field *f, const part *parts, size_t n_parts, bool witnesses)
{
    f->n = 0;
    for (const part *p = parts; p < parts + n_parts; p++) {
        bool others = false;
        for (size_t k = 0; k < p->selection->n_kernels; k++)
            others |= !kvb_is_witness(p->selection->kernels[k]);
        for (size_t i = 0; i < kvb_matrix_size(p->selection); i += each_of(p->selection)) {
            const kvb_spot at = kvb_spot_of(p->selection, i);
            if (!p->selection->has[i] || (others && kvb_is_witness(p->selection->kernels[at.kernel])) != witnesses)
                continue;
            if (witnesses && !*kept_at(p, at)) {
                block_drop(p, i, can_run(p, at));
                continue;
            }
            f->at[f->n] = candidate_of(p, i, f->dims);
            f->blocks[f->n++] = (block){p, i};
        }
    }
}

/* Keeps the chosen candidates in the selections and drops the others. */
static void field_thin(const field *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const part *p = f->blocks[i].part;
        if (f->at[i].chosen)
            *kept_at(p, kvb_spot_of(p->selection, f->blocks[i].first)) = true;
        else
            block_drop(p, f->blocks[i].first, !isnan(f->at[i].cost));
    }
}

/* The work over the cheapest cache: some caches compute forgotten rows again. */
static double least_work(const part *p, size_t workload)
{
    const size_t n = p->selection->n_caches;
    double least = HUGE_VAL;
    for (size_t c = 0; c < n; c++)
        least = fmin(least, p->cost[workload * n + c]); /* NaN: that cache cannot run it */
    return least;
}

/* The values of settings that the combination can take, as bits. cost: its work. */
static uint64_t values_allowed(const part *p, kvb_spot at, double cost)
{
    const kvb_selection *s = p->selection;
    const bool dear = cost >= REPLAY_DEAR && cost > 4 * least_work(p, at.workload);
    uint64_t set = 0;
    for (size_t a = 0; a < KVB_SETTING_AXES; a++) {
        const kvb_setting_axis *axis = &kvb_setting_axes[a];
        bool open = (p->options->axes >> a & 1) && !(axis->traits & KVB_AXIS_DEAR && dear) &&
                    !(axis->traits & KVB_AXIS_OUTPUTS && kvb_is_witness(s->kernels[at.kernel])) &&
                    !(s->values[at.values] && !strcmp(axis->option, "--values"));
        for (size_t v = 0; v < KVB_SETTING_WORDS && open && axis->words[v]; v++)
            if (kvb_setting_matters(axis, axis->words[v], p->traces[at.workload], s->caches[at.cache],
                                    &s->pools[at.pools]))
                set |= kvb_setting_bit(a, v + 1);
    }
    return set & ~*refuses_at(p, at.kernel, at.workload, at.pools);
}

/* Gives each combination of the selections a setting. */
static int settings_choose(const part *parts, size_t n_parts, field *f)
{
    size_t n = 0, blocks = 0;
    for (const part *p = parts; p < parts + n_parts; p++)
        n += p->selection->n_has;
    kvb_settled *list = calloc(n + 1, sizeof *list);
    int error = list ? 0 : -ENOMEM;
    n = 0;
    for (const part *p = parts; p < parts + n_parts && !error; p++) {
        kvb_selection *s = p->selection;
        const size_t all = kvb_matrix_size(s), each = kvb_block_size(s);
        s->choices = calloc(all + 1, sizeof *s->choices);
        error = s->choices ? 0 : -ENOMEM;
        for (size_t i = 0; i < all && !error; i++)
            if (s->has[i]) {
                const kvb_candidate c = candidate_of(p, i, f->dims);
                const kvb_spot at = kvb_spot_of(s, i);
                list[n++] = (kvb_settled){.parts = {c.at[0], c.at[4], c.at[3], c.at[2]},
                                          .block = blocks + i / each,
                                          .allowed = isnan(c.cost) ? 0 : values_allowed(p, at, c.cost),
                                          .dear = least_work(p, at.workload) >= TRUTH_DEAR,
                                          .choice = s->choices[i]};
            }
        blocks += all / each;
    }
    if (!error)
        error = kvb_settings_cover(list, n);
    free(list);
    return error;
}

static int parts_thin(const part *parts, const kvb_selections *s)
{
    size_t n = 0, most = 1;
    for (size_t i = 0; i < s->n; i++) {
        n += kvb_matrix_size(&s->at[i]) / each_of(&s->at[i]);
        most += s->at[i].n_workloads * s->at[i].n_values + s->at[i].n_pools + s->at[i].n_caches + s->at[i].n_kernels;
    }
    kvb_arena arena = {0};
    const char *(*texts)[2] = kvb_arena_take(&arena, KVB_PAIRS_DIMS * most, sizeof *texts);
    const unsigned hub = parts->options->hub ? parts->options->hub : KVB_PAIRS_ALL;
    field f = {.at = kvb_arena_take(&arena, n + 1, sizeof *f.at),
               .blocks = kvb_arena_take(&arena, n + 1, sizeof *f.blocks)};
    int error = arena.failed ? -ENOMEM : 0;
    for (size_t d = 0; d < KVB_PAIRS_DIMS; d++)
        f.dims[d].at = texts + d * most;
    if (!error) {
        field_fill(&f, parts, s->n, false);
        error = kvb_pairs_cover(f.at, f.n, KVB_PAIRS_ALL, hub);
    }
    if (!error) {
        field_thin(&f);
        field_fill(&f, parts, s->n, true);
        error = kvb_pairs_cover(f.at, f.n, KVB_PAIRS_HISTORY | KVB_PAIRS_CACHE, KVB_PAIRS_ALL);
    }
    error = error ? error : kvb_pairs_cover(f.at, f.n, KVB_PAIRS_SHAPE, KVB_PAIRS_ALL);
    error = error ? error : kvb_pairs_cover(f.at, f.n, KVB_PAIRS_POOLS, KVB_PAIRS_ALL);
    if (!error)
        field_thin(&f);
    if (!error && parts->options->axes)
        error = settings_choose(parts, s->n, &f);
    kvb_arena_free(&arena);
    return error;
}

/*
 * Clears `has` of the combinations that pairs do not need, over all parts of a suite together. A kernel, cache, pair of
 * pools or workload that can run nowhere keeps one combination, which is skipped with its reason. The choice depends only
 * on the lists, the traces, the parts and the CPU's level. 0; -EINVAL with why: a trace is wrong; another negative errno.
 */
static int pairs_choose(const kvb_pairs_options *options, kvb_selections *s, char *why, size_t why_bytes)
{
    part *parts = calloc(s->n + 1, sizeof *parts);
    size_t opened = 0;
    int error = parts ? 0 : -ENOMEM;
    why[0] = '\0';
    for (; opened < s->n && !error; opened++)
        error = part_open(options, &s->at[opened], &parts[opened], why, why_bytes);
    if (!error)
        error = parts_thin(parts, s);
    for (part *p = parts; p < parts + opened; p++) {
        for (size_t w = 0; p->traces && w < p->selection->n_workloads; w++)
            kvb_trace_free(p->traces[w]);
        for (size_t w = 0; p->histories && w < p->selection->n_workloads; w++)
            free(p->histories[w]);
        kvb_arena_free(&p->arena);
        if (p->refuses)
            munmap(p->refuses, p->refuses_bytes);
    }
    free(parts);
    if (error && !why[0])
        snprintf(why, why_bytes, "%s", strerror(-error));
    return error;
}

/* ---- all parts of a suite ---- */

int kvb_selections_make(const kvb_selections_options *o, kvb_selections *s, char *why, size_t why_bytes)
{
    kvb_workloads workloads = {0};
    int error = 0;

    *s = (kvb_selections){calloc(o->suite->n_parts + 1, sizeof *s->at), o->suite->n_parts};
    if (!s->at)
        return kvb_why_set(-ENOMEM, why, why_bytes, "no memory");
    if (kvb_workloads_find(o->folder, &workloads, why, why_bytes) && !kvb_select_only_files(&o->words->workloads))
        error = -EINVAL;
    for (size_t i = 0; i < s->n && !error; i++) {
        error = kvb_select(o->words, &o->suite->parts[i], o->registry, &workloads, o->oversubscribe, &s->at[i], why,
                           why_bytes);
        if (!error && o->no_staging)
            error = kvb_native_check(&s->at[i], o->registry, why, why_bytes);
        if (!error)
            error = kvb_selection_deal(&s->at[i], s->at, i);
        if (error == -ENOMEM)
            snprintf(why, why_bytes, "no memory");
    }
    if (!error && o->pairs)
        error = pairs_choose(o->pairs, s, why, why_bytes);
    kvb_workloads_free(&workloads);
    return error;
}

void kvb_selections_free(kvb_selections *s)
{
    for (size_t i = 0; s->at && i < s->n; i++)
        kvb_selection_free(&s->at[i]);
    free(s->at);
}
