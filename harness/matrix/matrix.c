/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over workloads, values and pairs of pools; caches, kernels, growths and thread counts; for the crew or a duel. */
#include "harness/matrix/matrix.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "harness/machine/bandwidth.h"
#include "harness/machine/team.h"
#include "harness/matrix/crew.h"
#include "harness/matrix/ground_truth.h"
#include "harness/program.h"
#include "harness/rounds.h"
#include "harness/selection/registry.h"
#include "workloads/files.h"
#include "workloads/values.h"

#define PEAK_SECONDS 0.1 /* to measure the multiply-add peak of a thread count */

/* The rows of one profile for one scale of q.k, as some profiles depend on the scale. */
typedef struct lane_values {
    const char *profile; /* NULL: the workload's own */
    double scale;        /* as in kvb_logit_changes */
    kvb_values *values;  /* NULL: not possible, and why says why */
    kvb_values *turned;  /* the same rows after rope, for the oracle of a trace with rows before rope; made on demand */
    char why[KVB_REASON];
} lane_values;

/* A workload with the logits of a setting. Children read it, so it is kept until all have ended. */
typedef struct changed_trace {
    kvb_logit_changes logits;
    kvb_trace *trace;
    struct changed_trace *next;
} changed_trace;

/* One workload with one choice of values, and the data that its combinations share. */
typedef struct lane {
    const kvb_matrix_options *options;
    const char *name;    /* of the workload */
    const char *profile; /* NULL: its own values */
    const kvb_trace *trace;
    lane_values values[KVB_MAX_PROFILES]; /* the ones needed so far */
    size_t n_values;
    changed_trace **changed; /* of all lanes */
    const double *peaks;     /* f32 multiply-add, GFLOP/s, for each thread count of the selection */
    const bool *wanted;      /* [combinations of the selection] is it to be run? */
    kvb_crew *crew;          /* judges and times children while the next block is prepared; NULL: a duel */
} lane;

/* Turns an error of a file into -EINVAL: bad input. -ENOMEM and -EINTR stay. */
static int bad_file(int error)
{
    return error && error != -ENOMEM && error != -EINTR ? -EINVAL : error;
}

/* Finds, or makes, the values of a profile for the lane's workload with that scale: `trace`. 0, also if the profile does
 * not fit the model; else a negative errno with why. */
static int values_find(lane *l, const char *profile, const kvb_trace *trace, double scale, const lane_values **found,
                       char *why, size_t why_bytes)
{
    size_t i = 0;
    while (i < l->n_values && (scale != l->values[i].scale || !kvb_is_profile(profile, l->values[i].profile)))
        i++;
    lane_values *v = &l->values[i];
    *found = v;
    int error = 0;
    if (i == l->n_values) {
        *v = (lane_values){.profile = profile, .scale = scale};
        l->n_values++;
        kvb_progress_now("values of %s%s%s", l->name, profile ? ", " : "", profile ? profile : "");
        error = kvb_values_make(trace, profile, l->options->knobs->seed, &v->values, v->why, sizeof v->why);
        error = profile && (error == -EINVAL || error == -ENOTSUP) ? 0 : error;
    }
    if (!error && v->values && !v->turned && trace->header.before_rope && !kvb_is_profile(profile, "tags")) {
        error = kvb_turned_open(trace, v->values, &v->turned);
        snprintf(v->why, sizeof v->why, "no memory for turned rows");
    }
    if (error)
        snprintf(why, why_bytes, "%s", v->why);
    return bad_file(error);
}

/* Are the changes of logits the same, as far as settings can differ in them? */
static bool logits_same(const kvb_logit_changes *a, const kvb_logit_changes *b)
{
    return a->softcap == b->softcap && a->scale == b->scale && a->sinks == b->sinks && a->before_rope == b->before_rope;
}

/* The workload with these logits. 0, or a negative errno with why. */
static int lane_trace_find(lane *l, const kvb_logit_changes *logits, const kvb_trace **trace, char *why,
                           size_t why_bytes)
{
    if (logits_same(logits, &l->options->setting.logits)) {
        *trace = l->trace;
        return 0;
    }
    for (changed_trace *c = *l->changed; c; c = c->next)
        if (!strcmp(c->trace->path, l->trace->path) && logits_same(&c->logits, logits)) {
            *trace = c->trace;
            return 0;
        }
    changed_trace *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    c->logits = *logits;
    c->next = *l->changed;
    *l->changed = c;
    int error =
        bad_file(kvb_trace_load(l->trace->path, (uint32_t)l->options->knobs->capacity, &c->trace, why, why_bytes));
    *trace = c->trace;
    return error ? error : kvb_trace_change_logits(c->trace, logits);
}

bool kvb_pair_fits(const kvb_pool_pair *pair, const kvb_trace *trace, char *why, size_t why_bytes)
{
    const kvb_model *m = &trace->header.model;
    bool fits = !trace->needs.shift || kvb_oracle_follows_shifts(pair->k->format, pair->v->format, why, why_bytes);
    const kvb_pool_type *residual = pair->k->format->residual_cells ? pair->k : pair->v;
    if (fits && trace->needs.defrag && residual->format->residual_cells)
        return kvb_why_set(false, why, why_bytes, "rows of %s cannot be copied as they are, as defrag does",
                           residual->name);
    for (uint32_t i = 0; i < m->n_groups && fits; i++) {
        const kvb_group *g = &m->groups[i];
        fits = kvb_group_scans(g) ||
               ((!pair->k->supports || pair->k->supports(pair->k, g->k_dim, why, why_bytes)) &&
                (g->latent || !pair->v->supports || pair->v->supports(pair->v, g->v_dim, why, why_bytes)));
    }
    return fits;
}

/* Can this cache hold the workload in these pools? */
static bool parts_fit(const lane *l, const kvb_cache_type *cache, const kvb_pool_pair *pools, kvb_growth growth,
                      char *why, size_t why_bytes)
{
    why[0] = '\0';
    return kvb_cache_takes(cache, pools->k, pools->v, why, why_bytes) &&
           kvb_replay_fits(l->trace, cache, why, why_bytes) && kvb_growth_available(growth, why, why_bytes) &&
           kvb_pair_fits(pools, l->trace, why, why_bytes);
}

/* Can the combination run at all? If not, no child is made for it, and why says why. */
static bool is_possible(const lane *l, const kvb_child_options *c, const char *values_why, const char *oracle_why,
                        char *why, size_t why_bytes)
{
    const kvb_replay_options *r = &c->replay;
    if (r->kernel->available && !r->kernel->available(why, why_bytes))
        return false;
    if (!parts_fit(l, r->cache, &(kvb_pool_pair){r->k_pool, r->v_pool}, r->growth, why, why_bytes))
        return false;
    const char *lack = !r->values ? values_why : !kvb_is_witness(r->kernel) && !r->oracle ? oracle_why : NULL;
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return !lack;
}

static kvb_growth growth_of(const kvb_selection *s, kvb_spot at, const kvb_setting *setting)
{
    return setting->growth != KVB_GROWTH_DOUBLE ? setting->growth : s->growths[at.growth];
}

/* Fills an empty result with the names of the i-th combination, and returns its kernel. In place of kvb_kernel_best
 * stands the fastest kernel of an earlier run. NULL with why: there is none. */
static const kvb_kernel *combination_name(const kvb_matrix_options *o, size_t i, kvb_result *r, char why[KVB_REASON])
{
    const kvb_selection *s = o->selection;
    const kvb_spot at = kvb_spot_of(s, i);
    const uint8_t *choice = kvb_choice_of(s, i);
    const kvb_setting setting = kvb_setting_apply(&o->setting, choice);
    const kvb_kernel *kernel = s->kernels[at.kernel];
    const char *profile = s->values[at.values];
    kvb_result_begin(r, "", s->caches[at.cache]->name, s->pools[at.pools].k->name, s->pools[at.pools].v->name, "");
    char softcap[32] = "", scale[32] = "";
    if (o->setting.logits.softcap > 0)
        snprintf(softcap, sizeof softcap, "+softcap=%g", (double)o->setting.logits.softcap);
    if (o->setting.logits.scale > 0)
        snprintf(scale, sizeof scale, "+scale=%g", o->setting.logits.scale);
    snprintf(r->workload, sizeof r->workload, "%s%s%s%s%.40s%s%s%s%s", s->workloads[at.workload].name,
             profile ? "@" : "", profile ? profile : "", o->model ? "+" : "", o->model ? o->model : "", softcap, scale,
             o->setting.logits.sinks ? "+sinks" : "", o->setting.logits.before_rope ? "+before-rope" : "");
    kvb_setting_words(choice, false, r->setting, sizeof r->setting);
    snprintf(r->out, sizeof r->out, "%s", kvb_out_name(setting.out_elem));
    snprintf(r->growth, sizeof r->growth, "%s", kvb_growth_names[growth_of(s, at, &setting)]);
    r->threads = setting.threads ? setting.threads : s->threads[at.threads];
    if (kernel == &kvb_kernel_best)
        kernel = kvb_best_find(o->best, r, why, KVB_REASON);
    snprintf(r->kernel, sizeof r->kernel, "%s", kernel ? kernel->name : kvb_kernel_best.name);
    if (o->command)
        kvb_replay_command(o->command, s, i, r);
    return kernel;
}

/* The trace, values and truth of the combinations with one setting's values and logits. */
typedef struct view {
    kvb_setting setting;
    const kvb_trace *trace;
    const lane_values *values;
    kvb_truth truth[KVB_DUEL_SIDES];
    const kvb_truth *truth_of[KVB_DUEL_SIDES]; /* the same for both sides if their pools are; NULL: the side has none */
    struct view *next;
} view;

typedef struct block {
    lane *lane;
    size_t first;                        /* index of its first combination in the selection */
    size_t n;                            /* caches x kernels x growths x thread counts */
    size_t n_sides;                      /* 2 in a duel */
    kvb_pool_pair pools[KVB_DUEL_SIDES]; /* with the same names; NULL: the side has none */
    view *views;
    kvb_child_options child; /* the common options of all children */
} block;

static bool is_wanted(const block *b, size_t i)
{
    return b->lane->wanted[b->first + i];
}

static kvb_setting setting_of(const block *b, size_t i)
{
    const kvb_matrix_options *o = b->lane->options;
    kvb_setting setting = kvb_setting_apply(&o->setting, kvb_choice_of(o->selection, b->first + i));
    if (!setting.values)
        setting.values = b->lane->profile;
    if (kvb_is_witness(o->selection->kernels[kvb_spot_of(o->selection, b->first + i).kernel]))
        setting.values = "tags";
    return setting;
}

/* The side's own part in place of the selection's; NULL: it has none. */
static const void *part_of(const block *b, int side, kvb_registry_kind sort, const char *name, const void *definition)
{
    const kvb_duel *duel = b->lane->options->duel;
    return duel ? kvb_duel_part(&duel->side[side], sort, name) : definition;
}

/*
 * Prepares the child of one side of the i-th combination, and names its result. False: it cannot be run, and the result
 * says why; or the side lacks a part, and *result stays as it was.
 */
static bool combination_prepare(const block *b, size_t i, int side, const view *seen, kvb_child_options *child,
                                kvb_result *result)
{
    const lane *l = b->lane;
    const kvb_selection *s = l->options->selection;
    const kvb_truth *t = seen->truth_of[side];
    kvb_spot at = kvb_spot_of(s, b->first + i);
    const kvb_setting setting = setting_of(b, i);
    kvb_result named;
    char why[KVB_REASON];
    const kvb_cache_type *cache = s->caches[at.cache];
    const kvb_kernel *found = combination_name(l->options, b->first + i, &named, why);
    const kvb_kernel *kernel = found ? found : s->kernels[at.kernel]; /* not found: kvb_kernel_best, to be checked */
    const kvb_kernel *attends = kvb_kernel_attending(kernel), *scans = kvb_kernel_scanning(kernel);
    bool witness = kvb_is_witness(kernel);
    kvb_replay_options *r = &child->replay;
    *child = b->child;
    child->threads = named.threads;
    r->trace = seen->trace;
    r->page_cells = setting.page_cells;
    r->min_chunk = setting.min_chunk;
    r->hash_bits = setting.hash_bits;
    r->prefix_bytes = setting.prefix_bytes ? setting.prefix_bytes : l->options->knobs->prefix_bytes;
    r->restart = setting.restart || l->options->knobs->restart;
    r->out_elem = setting.out_elem;
    r->deterministic = setting.deterministic;
    r->cache = part_of(b, side, KVB_CACHES, cache->name, cache);
    r->kernel = part_of(b, side, KVB_KERNELS, attends->name, attends);
    r->scan = part_of(b, side, KVB_KERNELS, scans->name, scans);
    if (!r->cache || !r->kernel || !r->scan || !t)
        return false;
    snprintf(named.beside, sizeof named.beside, "%s", kvb_kernel_beside(kernel, &l->trace->header.model));
    r->k_pool = b->pools[side].k;
    r->v_pool = b->pools[side].v;
    r->growth = growth_of(s, at, &setting);
    r->values = seen->values->values;
    r->untimed |= witness && !l->options->duel; /* a witness's time has no meaning */
    r->k_amax = t->amax[witness][0];
    r->v_amax = t->amax[witness][1];
    r->oracle = witness ? NULL : t->oracle;
    r->peak_gflop_per_s = l->peaks[at.threads];
    *result = named;
    kvb_progress_now("%s, %s, %s, %s, %s", named.workload, named.cache, named.pool_k, named.pool_v, named.kernel);
    if (!kvb_kernel_fits(kernel, &l->trace->header.model, r->out_elem, result->reason, sizeof result->reason) ||
        !is_possible(l, child, seen->values->why, t->oracle_why, result->reason, sizeof result->reason))
        return false;
    if (!found)
        memcpy(result->reason, why, sizeof why);
    return found;
}

/* The seed of the oracle's sample: another one for each workload, values and pools, so that the samples together hold
 * more rows. FNV-1a. */
static uint64_t sample_seed(const lane *l, const char *profile, const kvb_pool_pair *pools)
{
    const char *const words[] = {l->name, profile ? profile : "", pools->k->name, pools->v->name};
    uint64_t seed = l->options->knobs->seed ^ UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (const char *c = words[i];; c++) {
            seed = (seed ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
            if (!*c)
                break;
        }
    return seed;
}

/* Opens the view's truth for each side. */
static int truths_open(block *b, bool judged, bool witness, view *v, char *why, size_t why_bytes)
{
    const lane *l = b->lane;
    int error = 0;
    for (size_t side = 0; side < b->n_sides && !error; side++) {
        const kvb_pool_pair *own = &b->pools[side], *base = &b->pools[KVB_DUEL_BASE];
        bool shared = side && own->k == base->k && own->v == base->v;
        kvb_truth_options options = {.trace = v->trace,
                                     .values = witness                        ? NULL
                                               : v->trace->header.before_rope ? v->values->turned
                                                                              : v->values->values,
                                     .tags = witness ? v->values->values : NULL,
                                     .pools = *own,
                                     .oracle = judged,
                                     .max_pairs =
                                         l->options->knobs->exhaustive ? UINT64_MAX : l->options->knobs->oracle_pairs,
                                     .opinion_pairs = l->options->knobs->opinion_pairs,
                                     .seed = own->k && own->v ? sample_seed(l, v->setting.values, own) : 0};
        char said[KVB_REASON];
        if (!own->k || !own->v)
            continue;
        v->truth_of[side] = &v->truth[shared ? KVB_DUEL_BASE : side];
        kvb_progress_now("oracle of %s, %s, %s", l->name, own->k->name, own->v->name);
        if (!shared)
            error = kvb_truth_open(&options, &v->truth[side], said, sizeof said);
        if (error)
            snprintf(why, why_bytes, "%s: %s", l->name, said);
    }
    return error;
}

/* Does the i-th combination need an oracle? Not if it has a witness, or if its cache or pools cannot run the workload. */
static bool is_judged(const block *b, size_t i)
{
    const kvb_selection *s = b->lane->options->selection;
    kvb_spot at = kvb_spot_of(s, b->first + i);
    char why[KVB_REASON];
    return !kvb_is_witness(s->kernels[at.kernel]) &&
           (b->lane->options->duel ||
            parts_fit(b->lane, s->caches[at.cache], &s->pools[at.pools], s->growths[at.growth], why, sizeof why));
}

/* Do two settings share a view? */
static bool is_seen_alike(const kvb_setting *a, const kvb_setting *b)
{
    return kvb_is_profile(a->values, b->values) && logits_same(&a->logits, &b->logits);
}

/* Finds, or makes, the view of the i-th combination. */
static int view_find(block *b, size_t i, const view **found, char *why, size_t why_bytes)
{
    const kvb_setting setting = setting_of(b, i);
    bool judged = false; /* is an oracle needed? */
    for (const view *v = b->views; v; v = v->next)
        if (is_seen_alike(&v->setting, &setting)) {
            *found = v;
            return 0;
        }
    view *v = calloc(1, sizeof *v);
    if (!v)
        return -ENOMEM;
    v->setting = setting;
    v->next = b->views;
    b->views = v;
    *found = v;
    for (size_t other = i; other < b->n && !judged; other++) {
        const kvb_setting others = setting_of(b, other);
        judged = is_wanted(b, other) && is_judged(b, other) && is_seen_alike(&others, &setting);
    }
    int error = lane_trace_find(b->lane, &setting.logits, &v->trace, why, why_bytes);
    if (!error)
        error = values_find(b->lane, setting.values, v->trace, setting.logits.scale, &v->values, why, why_bytes);
    bool witness = kvb_is_witness(
        b->lane->options->selection->kernels[kvb_spot_of(b->lane->options->selection, b->first + i).kernel]);
    return error ? error : truths_open(b, judged, witness, v, why, why_bytes);
}

/* ---- a duel ------------------------------------------------------------------------------------------------------ */

enum {
    PLAYERS = KVB_DUEL_SIDES + 1, /* base, new, and base once more */
    LEAST_PASSES = 16,            /* of each player, the warm-up pass included */
};

/* A child, and the time of its turns. */
typedef struct player {
    kvb_child child;
    bool plays;     /* it still asks for turns */
    double limit;   /* seconds that its turns may take */
    double used;    /* seconds that they took */
    double longest; /* turn, in seconds */
} player;

/* Waits until the player asks for its next turn. If it has ended or its time is up, it plays no more. */
static void ask_wait(player *p)
{
    double started = kvb_now_seconds(), left = p->limit - p->used, took;
    char token;
    p->plays =
        kvb_wait_readable(p->child.turns, isinf(left) ? -1 : fmax(0, left)) && recv(p->child.turns, &token, 1, 0) == 1;
    took = kvb_now_seconds() - started;
    p->used += took;
    p->longest = fmax(p->longest, took);
}

/* Gives the child a turn: one pass. NAN: it plays no more, or might reach its time limit in the next pass. */
static double turn_take(void *ctx)
{
    player *p = ctx;
    char token = 0;
    p->plays = p->plays && send(p->child.turns, &token, 1, MSG_NOSIGNAL) == 1;
    const double before = p->used;
    if (p->plays)
        ask_wait(p);
    return p->plays && p->used + 2 * p->longest < p->limit ? p->used - before : NAN;
}

/*
 * Replays a workload in several child processes, pass by pass in turns: A B C, B C A, … A disturbance of the machine hits
 * all of them, so passes of the same number are compared. The parent lets one child run at a time. If a child crashes or
 * hangs, the others keep their results. Passes are made for sample_ms of each player; a child's time limit counts its own
 * turns. Fills status, reason and measurements of the results; if all children finish, all have the same number of
 * passes. 0, or -errno if a child could not be made.
 */
static int players_run(const kvb_child_options options[PLAYERS], kvb_result results[PLAYERS])
{
    kvb_child children[PLAYERS];
    player players[PLAYERS];
    kvb_contestant contestants[PLAYERS];
    int error = kvb_children_start(options, results, PLAYERS, true, children);
    if (error)
        return error;
    for (size_t i = 0; i < PLAYERS; i++) {
        players[i] = (player){.child = children[i], .limit = options[i].seconds > 0 ? options[i].seconds : INFINITY};
        contestants[i] = (kvb_contestant){.take = turn_take, .ctx = &players[i], .limit = true};
        ask_wait(&players[i]); /* until it is ready for its first pass */
    }
    const kvb_rounds rounds = {.least = LEAST_PASSES,
                               .most = UINT32_MAX,
                               .seconds = 1e-3 * (double)(PLAYERS * options[0].replay.knobs->sample_ms),
                               .together = true};
    kvb_rounds_run(&rounds, contestants, PLAYERS);
    for (size_t i = 0; i < PLAYERS; i++) /* one after the other: the last probes of the bandwidth are for one process */
        kvb_child_end(&players[i].child, isinf(players[i].limit) ? -1 : fmax(0, players[i].limit - players[i].used),
                      &results[i]);
    return 0;
}

/*
 * Runs the i-th combination with the base, the new side, and the base once more, in turns. The difference between the two
 * runs of the base is the null comparison of both sides. If one side cannot run, the other runs alone.
 */
static int duel_run(const block *b, size_t i, const view *seen, kvb_result *const results[KVB_DUEL_SIDES])
{
    kvb_child_options child[PLAYERS];
    kvb_result result[PLAYERS];
    kvb_duel_corner corner[KVB_DUEL_SIDES];
    bool runs[KVB_DUEL_SIDES];
    int error = 0;
    for (int side = 0; side < KVB_DUEL_SIDES; side++) {
        corner[side] = (kvb_duel_corner){b->lane->options->duel, side};
        runs[side] = combination_prepare(b, i, side, seen, &child[side], results[side]);
        child[side].enter = kvb_duel_enter;
        child[side].enter_ctx = &corner[side];
        result[side] = *results[side];
    }
    if (!runs[KVB_DUEL_BASE] || !runs[KVB_DUEL_NEW]) {
        for (int side = 0; side < KVB_DUEL_SIDES && !error; side++)
            error = runs[side] ? kvb_child_run(&child[side], results[side]) : 0;
        return error;
    }
    child[KVB_DUEL_SIDES] = child[KVB_DUEL_BASE];
    result[KVB_DUEL_SIDES] = result[KVB_DUEL_BASE];
    error = players_run(child, result);
    for (int side = 0; side < KVB_DUEL_SIDES && !error; side++) {
        *results[side] = result[side];
        results[side]->time.null_difference = kvb_duel_null(&result[KVB_DUEL_BASE], &result[KVB_DUEL_SIDES]);
    }
    return error;
}

static int duel_add(block *b, size_t i, const view *seen)
{
    const kvb_matrix_options *o = b->lane->options;
    kvb_result results[KVB_DUEL_SIDES];
    for (int side = 0; side < KVB_DUEL_SIDES; side++)
        kvb_result_init(&results[side]);
    int error = duel_run(b, i, seen, (kvb_result *[]){&results[KVB_DUEL_BASE], &results[KVB_DUEL_NEW]});
    for (int side = 0; side < KVB_DUEL_SIDES && !error && !kvb_stopped; side++) /* stopped: a child was killed early */
        if (*results[side].kernel)                                              /* else that side lacks a part */
            error = o->take(side == KVB_DUEL_NEW ? o->new_ctx : o->ctx, &results[side]);
    return error;
}

/* ---- a block ----------------------------------------------------------------------------------------------------- */

/* Must the pool be judged by itself? True once for each plug-in's pool; the program's own tests judge built-in ones. */
static bool is_unjudged(kvb_judged_pools *judged, const kvb_pool_type *type)
{
    bool known = !judged || judged->n == sizeof judged->at / sizeof *judged->at;
    for (const kvb_pool_type *const *p = kvb_builtin_pools; *p && !known; p++)
        known = type == *p || type == (*p)->rotated;
    for (size_t i = 0; !known && i < judged->n; i++)
        known = type == judged->at[i];
    if (!known)
        judged->at[judged->n++] = type;
    return !known;
}

/* Adds a combination to the crew; the caller gets its result later, in order. */
static int combination_add(block *b, size_t i, const view *seen)
{
    const kvb_matrix_options *o = b->lane->options;
    kvb_child_options child;
    kvb_result result;
    const bool runs = combination_prepare(b, i, KVB_DUEL_BASE, seen, &child, &result);
    if (runs) {
        child.replay.judges_k = is_unjudged(o->judged, child.replay.k_pool);
        child.replay.judges_v = is_unjudged(o->judged, child.replay.v_pool);
    }
    return kvb_crew_add(b->lane->crew, runs ? &child : NULL, !o->knobs->no_null, &result);
}

static int combinations_run(block *b, char *why, size_t why_bytes)
{
    int error = 0;
    for (size_t i = 0; i < b->n && !error && !kvb_stopped; i++) {
        const view *seen;
        if (!is_wanted(b, i))
            continue;
        error = view_find(b, i, &seen, why, why_bytes);
        if (!error)
            error = b->lane->options->duel ? duel_add(b, i, seen) : combination_add(b, i, seen);
    }
    return kvb_stopped ? -EINTR : error;
}

/* Runs the wanted ones of the kvb_block_size combinations from `first` on. Returns as kvb_matrix_run does. */
static int block_run(lane *l, size_t first, char *why, size_t why_bytes)
{
    const kvb_selection *s = l->options->selection;
    const kvb_matrix_options *o = l->options;
    const kvb_pool_pair *pools = &s->pools[kvb_spot_of(s, first).pools];
    block b = {
        .lane = l,
        .first = first,
        .n = kvb_block_size(s),
        .n_sides = o->duel ? KVB_DUEL_SIDES : 1,
        .child = {.replay = {.knobs = o->knobs,
                             .untimed = o->untimed,
                             .only = o->only,
                             .dump = o->dump,
                             .timeline = o->timeline},
                  .seconds = o->seconds,
                  .enter = o->enter,
                  .enter_ctx = o->enter_ctx},
    };
    for (int side = 0; side < (int)b.n_sides; side++) {
        b.pools[side].k = part_of(&b, side, KVB_POOLS, pools->k->name, pools->k);
        b.pools[side].v = part_of(&b, side, KVB_POOLS, pools->v->name, pools->v);
    }
    int error = combinations_run(&b, why, why_bytes);
    for (view *v = b.views, *next; v; v = next) {
        next = v->next;
        for (size_t side = 0; side < KVB_DUEL_SIDES; side++)
            kvb_truth_close(&v->truth[side]);
        free(v);
    }
    return error;
}

/* ---- all combinations -------------------------------------------------------------------------------------------- */

/* Runs all pairs of pools of one workload and values; `first` is their first combination. If the model does not allow a
 * profile or tags, combinations are skipped; the workload's own values must be right. */
static int lane_run(lane *l, size_t first, char *why, size_t why_bytes)
{
    const kvb_selection *s = l->options->selection;
    size_t n = s->n_pools * kvb_block_size(s);
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any = any || l->wanted[first + i];
    if (!any)
        return 0;
    const lane_values *own;
    const double scale = l->options->setting.logits.scale;
    int error = values_find(l, l->profile, l->trace, scale, &own, why, why_bytes);
    for (size_t i = first; i < first + n && !error; i += kvb_block_size(s))
        error = block_run(l, i, why, why_bytes);
    for (size_t i = 0; i < l->n_values; i++) {
        kvb_turned_free(l->values[i].turned);
        kvb_values_free(l->values[i].values);
    }
    return error;
}

static int pools_check(const kvb_selection *s, kvb_trace *const *traces, char *why, size_t why_bytes)
{
    bool fits = s->n_workloads == 0 || s->n_pools == 0;
    for (size_t p = 0; p < s->n_pools && !fits; p++)
        for (size_t w = 0; w < s->n_workloads && !fits; w++)
            fits = kvb_pair_fits(&s->pools[p], traces[w], why, why_bytes);
    if (fits)
        why[0] = '\0';
    return fits ? 0 : -EINVAL;
}

/* Asks the caller which combinations to run. *n: their number. */
static int wanted_ask(const kvb_matrix_options *o, bool *wanted, size_t *n)
{
    const kvb_selection *s = o->selection;
    size_t number = o->first;
    int answer = 0;
    *n = 0;
    for (size_t i = 0; i < kvb_matrix_size(s) && answer >= 0; i++) {
        kvb_result names;
        char why[KVB_REASON];
        if (!s->has[i])
            continue;
        combination_name(o, i, &names, why);
        answer = o->wants ? o->wants(o->ctx, number, &names) : 1;
        number++;
        wanted[i] = answer > 0;
        *n += wanted[i];
    }
    return answer < 0 ? answer : 0;
}

/* Measures the f32 multiply-add peak of each thread count; NaN: impossible, or not needed. */
static int peaks_measure(const kvb_matrix_options *o, double *peaks)
{
    const kvb_selection *s = o->selection;
    int error = 0;
    kvb_progress_now("multiply-add peaks");
    for (size_t t = 0; t < s->n_threads && !error; t++) {
        kvb_threads *threads;
        kvb_rate rate;
        char why[128];
        peaks[t] = NAN;
        error = o->untimed ? 0 : kvb_threads_start(s->threads[t], !o->knobs->oversubscribe, &threads);
        if (error || o->untimed)
            continue;
        if (!kvb_multiply_add_peak(kvb_threads_team(threads), KVB_PEAK_F32, PEAK_SECONDS, &rate, why, sizeof why))
            peaks[t] = rate.median;
        kvb_threads_end(threads);
    }
    return error;
}

static int lanes_run(const kvb_matrix_options *o, kvb_trace *const *traces, const bool *wanted, char *why,
                     size_t why_bytes)
{
    const kvb_selection *s = o->selection;
    kvb_crew *crew = NULL;
    changed_trace *changed = NULL;
    double peaks[KVB_MAX_THREAD_COUNTS];
    size_t each = s->n_pools * kvb_block_size(s);
    int error = peaks_measure(o, peaks);
    if (!error && !o->duel)
        error = kvb_crew_open(o->jobs, o->take, o->ctx, &crew);
    for (size_t first = 0; first < kvb_matrix_size(s) && !error; first += each) {
        kvb_spot at = kvb_spot_of(s, first);
        lane l = {.options = o,
                  .name = s->workloads[at.workload].name,
                  .profile = s->values[at.values],
                  .trace = traces[at.workload],
                  .peaks = peaks,
                  .wanted = wanted,
                  .changed = &changed,
                  .crew = crew};
        error = lane_run(&l, first, why, why_bytes);
    }
    if (!error && crew)
        error = kvb_crew_finish(crew);
    kvb_crew_close(crew);
    for (changed_trace *next; changed; changed = next) {
        next = changed->next;
        kvb_trace_free(changed->trace);
        free(changed);
    }
    return error;
}

/* Loads a workload, with the setting's logits. A workload without queries is bad input: it has nothing to measure. */
static int workload_load(const kvb_matrix_options *o, const char *path, kvb_trace **trace, char *why, size_t why_bytes)
{
    int error = bad_file(kvb_trace_load(path, (uint32_t)o->knobs->capacity, trace, why, why_bytes));
    if (!error && (*trace)->needs.queries == 0)
        return kvb_why_set(-EINVAL, why, why_bytes,
                           "%s: expected a step, prefill or propose: there is nothing to attend", path);
    if (!error && o->only && !kvb_only_fits(o->only, *trace, why, why_bytes))
        return -EINVAL;
    return error ? error : kvb_trace_change_logits(*trace, &o->setting.logits);
}

int kvb_matrix_run(const kvb_matrix_options *options, char *why, size_t why_bytes)
{
    const kvb_selection *s = options->selection;
    kvb_trace **traces = calloc(s->n_workloads + 1, sizeof *traces);
    bool *wanted = calloc(kvb_matrix_size(s) + 1, sizeof *wanted);
    size_t n = 0;
    int error = traces && wanted ? 0 : -ENOMEM;
    why[0] = '\0';
    for (size_t w = 0; w < s->n_workloads && !error; w++) { /* all of them first: bad input costs no work */
        kvb_progress_now("reading %s", s->workloads[w].name);
        error = workload_load(options, s->workloads[w].path, &traces[w], why, why_bytes);
    }
    if (!error && options->pools_must_fit)
        error = pools_check(s, traces, why, why_bytes);
    if (!error)
        error = wanted_ask(options, wanted, &n);
    if (!error && n)
        error = lanes_run(options, traces, wanted, why, why_bytes);
    for (size_t w = 0; traces && w < s->n_workloads; w++)
        kvb_trace_free(traces[w]);
    free(traces);
    free(wanted);
    if (error && !why[0])
        snprintf(why, why_bytes, "%s", strerror(-error));
    return error;
}
