/* SPDX-License-Identifier: Apache-2.0 */
/* Every cache, format and growth policy for a model's groups of layers. */
#include "harness/size/verify.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/pools/codec/codec.h"
#include "harness/machine/profile.h"
#include "harness/machine/team.h"
#include "harness/size/cache_model.h"
#include "workloads/array.h"

const char *const kvb_size_verdict_names[KVB_SIZE_VERDICTS] = {"equal", "differs", "unavailable"};

/* Small enough that chunks, growth, single tokens and drafts all occur in a short context. */
enum {
    CONTEXT = 250,
    SEQUENCES = 2,
    LAYERS = 2,
    CHUNK = 128,
    CHUNKS = 8,
    DRAFTS = 4,
    LEVELS = 3,
    SINGLES = KVB_SIZE_CALLS + LEVELS + 1, /* behind each call, and with drafts */
    FIRST_CHUNK = 64,
    STATE_DEPTH = 2,
    PAGE_CELLS = 16
};
enum { CORES = 16 };
enum { WINDOW_AND_MORE = 3 * CHUNK, MOST_WINDOW = 4096 };
#define MEMORY        ((uint64_t)1 << 30)
#define ENOUGH_BYTES  ((uint64_t)1 << 26) /* for one verdict: more is done with one layer */
#define ENOUGH_VALUES ((uint64_t)1 << 22) /* likewise, stored */
#define STORED_VALUES                                                                                                  \
    ((uint64_t)1 << 24)                 /* above it steps are begun, which is where memory is asked for, and no more */
#define MOST_VALUES ((uint64_t)1 << 32) /* some seconds */

typedef struct verifier {
    const kvb_size_proving *proving;
    const kvb_model *model;
    kvb_size_verdicts *verdicts;
    _Atomic size_t next; /* verdict that is yet to be found */
    uint64_t memory;     /* of one thread */
} verifier;

static int verdict_add(kvb_size_verdicts *v, const kvb_size_verified *verified)
{
    int error = kvb_array_reserve(&v->at, &v->room, v->n + 1, sizeof *v->at);
    if (!error)
        v->at[v->n++] = *verified;
    return error;
}

/* ---- what is fed ------------------------------------------------------------------------------------------------- */

/* The widest window or chunk that a check goes past without being asked. */
static uint32_t widest_limit(const kvb_model *model)
{
    uint32_t widest = 0;
    for (uint32_t g = 0; g < model->n_groups; g++) {
        uint32_t limit = model->groups[g].window + model->groups[g].chunk;
        widest = limit > widest && limit <= MOST_WINDOW ? limit : widest;
    }
    return widest;
}

/* Without which no prompt is found. */
static bool has_states(const kvb_model *model)
{
    bool scans = false;
    for (uint32_t g = 0; g < model->n_groups; g++)
        scans = scans || kvb_group_scans(&model->groups[g]);
    return scans;
}

static kvb_size_history history_of(const kvb_size_proving *p, const kvb_size_subject *s)
{
    const kvb_model *model = &s->model;
    const kvb_cache_type *cache = s->cache;
    uint32_t context = p->context ? p->context : CONTEXT, window = cache == &kvb_cache_window ? widest_limit(model) : 0;
    if (!p->context && window && context < window + WINDOW_AND_MORE)
        context = window + WINDOW_AND_MORE; /* far enough that its rows are dropped and its cells used again */
    return (kvb_size_history){
        .sequences = !(cache->flags & KVB_CACHE_SEQ) ? 1
                     : p->sequences                  ? p->sequences
                                                     : SEQUENCES,
        .context = context,
        .chunk = context / CHUNKS > CHUNK ? context / CHUNKS : CHUNK,
        .singles = SINGLES,
        .drafts = cache->flags & KVB_CACHE_TREE ? DRAFTS : 0,
        .levels = LEVELS,
        .shared = cache->flags & KVB_CACHE_FREEZES                        ? context / 2
                  : cache->flags & KVB_CACHE_PREFIX && !has_states(model) ? context / 2 / PAGE_CELLS * PAGE_CELLS
                                                                          : 0,
        .calls = kvb_size_calls(s),
        .kept = kvb_size_cuts(s) ? context / 3 : 0,
    };
}

/* ---- how much of it ---------------------------------------------------------------------------------------------- */

/* Rows that one layer is handed over the history: where the history is fed again with every step, many. */
static uint64_t rows_fed(const kvb_cache_type *cache, const kvb_size_history *h)
{
    uint64_t n = (uint64_t)h->sequences * h->context, steps = h->context / h->chunk + 1;
    return cache == &kvb_cache_recompute ? n * steps / 2 + n * h->singles : n;
}

static uint64_t at_least_one(uint64_t most, uint64_t enough, uint64_t each)
{
    uint64_t n = enough / each;
    return n < most ? n + !n : most;
}

/* Layers of which memory and time allow so many; 0 with why. Where one layer's huge pages are many, rows are not stored:
 * to clear the pages would take most of the time, and they are counted all the same. This is no prediction: pools are asked
 * what they take at most, copies and all. */
static uint32_t layers_allowed(const verifier *v, const kvb_size_subject *s, uint64_t fed, bool *stored, char *why,
                               size_t why_bytes)
{
    uint64_t most = v->proving->layers ? v->proving->layers : LAYERS, bytes = 0, values = 0;
    for (uint32_t i = 0; i < s->model.n_groups; i++)
        for (int side = 0; side < 2; side++) {
            const kvb_group *g = &s->model.groups[i];
            const kvb_pool_type *type = side ? s->options.v_pool : s->options.k_pool;
            const kvb_pool_options o = {.n_kv_heads = g->kv_heads,
                                        .dim = side ? g->v_dim : g->k_dim,
                                        .min_chunk = s->options.min_chunk,
                                        .capacity = s->options.capacity,
                                        .growth = s->options.growth};
            const uint64_t states = s->options.max_seqs * (1 + (uint64_t)s->options.state_depth);
            if (kvb_group_scans(g)) { /* twice: while they double */
                bytes += 2 * 2 * states * kvb_group_slot_bytes(g, side);
                continue;
            }
            bytes += (kvb_growth_reserves(o.growth) ? 1 : 2) * type->bytes(type, &o, o.capacity);
            values += fed * g->kv_heads * o.dim;
        }
    bool small_pages = s->options.growth != KVB_GROWTH_DOUBLE_THP && s->options.growth != KVB_GROWTH_RESERVE_THP;
    *stored = values <= STORED_VALUES && (bytes <= ENOUGH_BYTES || small_pages);
    if (bytes > v->memory)
        snprintf(why, why_bytes, "a layer of each kind would take %.1f GiB while it grows, %.1f GiB are free for it",
                 (double)bytes / 0x1p30, (double)v->memory / 0x1p30);
    else if (values > MOST_VALUES)
        snprintf(why, why_bytes, "a layer of each kind would be handed %.3g rows: too many for a check", (double)fed);
    else {
        most = at_least_one(most, v->memory < ENOUGH_BYTES ? v->memory : ENOUGH_BYTES, bytes);
        return (uint32_t)at_least_one(most, ENOUGH_VALUES, values + !values);
    }
    return 0;
}

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

/* What all layers will take: the figure that is proved by those that are built. */
static int whole_predict(const kvb_size_subject *s, const kvb_size_step *steps, size_t n, kvb_size_verified *out)
{
    uint64_t *bytes = calloc(n + 1, sizeof *bytes);
    int error = bytes ? kvb_size_predict(s, steps, n, bytes, NULL, out->why, sizeof out->why) : -ENOMEM;
    out->whole = error ? 0 : bytes[n];
    free(bytes);
    return error;
}

/* What was not stored cannot be saved. */
static size_t saves_drop(kvb_size_step *steps, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (steps[i].call != KVB_SIZE_SWAP && steps[i].call != KVB_SIZE_RELOAD)
            steps[kept++] = steps[i];
    return kept;
}

/* Of prompts that nobody holds a quarter of one may stay, so that pages go. */
static void prompts_bound(kvb_size_subject *s, const kvb_size_history *h)
{
    const uint64_t cells = h->context > 4 * PAGE_CELLS ? h->context / 4 : PAGE_CELLS;
    s->options.prefix_bytes = s->cache->flags & KVB_CACHE_PREFIX ? cells * kvb_size_cell_bytes(s) : 0;
}

/* Builds it and says what was found. What stops a cache half-way is a failure, but for memory that is not there. */
static kvb_size_verdict steps_prove(const verifier *v, const kvb_size_history *history, kvb_size_step *steps, size_t n,
                                    kvb_size_verified *out, kvb_proof_rows *rows)
{
    kvb_size_subject *s = &out->subject;
    prompts_bound(s, history);
    if (!kvb_growth_available(s->options.growth, out->why, sizeof out->why) || whole_predict(s, steps, n, out))
        return KVB_SIZE_UNAVAILABLE;
    uint32_t layers = layers_allowed(v, s, rows_fed(s->cache, history), &out->stored, out->why, sizeof out->why);
    if (!layers)
        return KVB_SIZE_UNAVAILABLE;
    kvb_model whole = s->model;
    kvb_size_few_layers(&whole, layers, &s->model);
    prompts_bound(s, history);
    n = out->stored ? n : saves_drop(steps, n);
    int error = kvb_size_prove(s, steps, n, out->stored ? rows : NULL, &out->proof, out->why, sizeof out->why);
    if (error)
        return error == -ENOMEM ? KVB_SIZE_UNAVAILABLE : KVB_SIZE_DIFFERS;
    if (out->proof.predicted == out->proof.allocated)
        return KVB_SIZE_EQUAL;
    snprintf(out->why, sizeof out->why, "%llu bytes were predicted, %llu are held",
             (unsigned long long)out->proof.predicted, (unsigned long long)out->proof.allocated);
    return KVB_SIZE_DIFFERS;
}

static kvb_size_verdict subject_prove(const verifier *v, kvb_size_verified *out, kvb_proof_rows *rows)
{
    kvb_size_history history = history_of(v->proving, &out->subject);
    kvb_size_step *steps = calloc(KVB_SIZE_STEPS(history.sequences), sizeof *steps);
    kvb_size_verdict verdict = KVB_SIZE_UNAVAILABLE;
    if (steps)
        verdict = steps_prove(v, &history, steps, kvb_size_steps(&history, steps), out, rows);
    else
        snprintf(out->why, sizeof out->why, "no memory for a prediction");
    free(steps);
    return verdict;
}

/* One thread's part: the verdicts that no other has begun. */
static void verdicts_find(void *context, uint32_t i, uint32_t n)
{
    verifier *v = context;
    kvb_proof_rows rows = {0};
    (void)i, (void)n;
    for (size_t at; (at = atomic_fetch_add(&v->next, 1)) < v->verdicts->n;) {
        kvb_size_verified *out = &v->verdicts->at[at];
        if (out->subject.cache)
            out->verdict = subject_prove(v, out, &rows);
    }
    kvb_proof_rows_free(&rows);
}

static int verdicts_find_all(verifier *v)
{
    uint32_t cores = kvb_cores() < CORES ? kvb_cores() : CORES;
    kvb_threads *threads;
    int error = kvb_threads_start(cores, false, &threads);
    if (error)
        return error;
    v->memory /= cores;
    kvb_codec_best(); /* chosen once, before several ask */
    const kvb_team *team = kvb_threads_team(threads);
    size_t first = v->next;
    team->run(team, verdicts_find, v);
    kvb_threads_end(threads);
    for (size_t i = first; i < v->verdicts->n; i++)
        v->verdicts->count[v->verdicts->at[i].verdict]++;
    return 0;
}

/* ---- what there is to prove -------------------------------------------------------------------------------------- */

static int cache_add(const verifier *v, const kvb_cache_type *cache, const kvb_pool_pair *pools, kvb_growth growth)
{
    kvb_size_verified out = {
        .subject = {.cache = cache,
                    .model = *v->model,
                    .options = {.min_chunk = FIRST_CHUNK, .growth = growth, .k_pool = pools->k, .v_pool = pools->v}},
        .layers = v->model->n_layers,
    };
    kvb_cache_options *o = &out.subject.options;
    for (uint32_t g = 0; g < out.subject.model.n_groups; g++) { /* all that can be of a row is turned */
        kvb_group *group = &out.subject.model.groups[g];
        if (kvb_group_scans(group))
            continue;
        group->rope = (kvb_rope){.known = true, .dims = group->k_dim / 2 * 2, .base = 10000};
    }
    const kvb_size_history h = history_of(v->proving, &out.subject);
    o->capacity = h.sequences * (h.context + h.drafts * h.levels) +
                  (h.calls >> KVB_SIZE_DEFRAG & 1); /* a cell by which others trade places */
    o->seq_capacity = h.context + 1;
    o->page_cells = PAGE_CELLS;
    o->seq_ids = o->max_seqs = h.sequences;
    o->state_depth = STATE_DEPTH;
    const uint32_t nodes = h.sequences * (h.drafts ? h.drafts * h.levels : 1);
    o->step = h.chunk > nodes ? h.chunk : nodes;
    return verdict_add(v->verdicts, &out);
}

static bool serves(const verifier *v, const kvb_cache_type *cache, const kvb_pool_pair *pools)
{
    char why[160];
    return kvb_cache_takes(cache, pools->k, pools->v, why, sizeof why) &&
           (!cache->serves || cache->serves(v->model, why, sizeof why));
}

static int caches_add(const verifier *v)
{
    static const kvb_growth all_growths[] = {KVB_GROWTH_DOUBLE, KVB_GROWTH_DOUBLE_THP, KVB_GROWTH_RESERVE,
                                             KVB_GROWTH_RESERVE_THP, KVB_GROWTH_EXACT};
    const kvb_size_proving *p = v->proving;
    const kvb_cache_type *const *caches = p->caches ? p->caches : kvb_builtin_caches;
    const kvb_growth *growths = p->n_growths ? p->growths : all_growths;
    size_t n_growths = p->n_growths ? p->n_growths : KVB_GROWTHS;
    int error = 0;
    for (size_t c = 0; !error && caches[c]; c++)
        for (size_t i = 0; !error && i < p->n_pools; i++)
            for (size_t g = 0; !error && serves(v, caches[c], &p->pools[i]) && g < n_growths; g++)
                error = cache_add(v, caches[c], &p->pools[i], growths[g]);
    return error;
}

static int not_held_add(const kvb_sized_model *model, kvb_size_verdicts *verdicts)
{
    kvb_size_verified out = {.verdict = KVB_SIZE_UNAVAILABLE};
    int error = 0;
    for (size_t i = 0; !error && kvb_size_not_held(model, i, out.why, sizeof out.why); i++)
        error = verdict_add(verdicts, &out);
    return error;
}

static int proving_check(const kvb_size_proving *p, char *why, size_t why_bytes)
{
    uint64_t sequences = p->sequences ? p->sequences : SEQUENCES, context = p->context ? p->context : CONTEXT;
    if (sequences <= KVB_MAX_SEQS && sequences * (context + DRAFTS * LEVELS) < UINT32_MAX)
        return 0;
    snprintf(why, why_bytes, "%llu sequences of %llu tokens: a cache of kvbench holds up to %u sequences and %u cells",
             (unsigned long long)sequences, (unsigned long long)context, KVB_MAX_SEQS, UINT32_MAX - DRAFTS);
    return -EINVAL;
}

int kvb_size_verify(const kvb_sized_model *model, const kvb_size_proving *proving, kvb_size_verdicts *verdicts,
                    char *why, size_t why_bytes)
{
    uint64_t most = proving->memory ? proving->memory : MEMORY, half = kvb_memory_available("") / 2;
    verifier v = {
        .proving = proving, .verdicts = verdicts, .next = verdicts->n, .memory = half && half < most ? half : most};
    kvb_model cache_model;
    int error = proving_check(proving, why, why_bytes);
    if (error)
        return error;
    v.model = &cache_model;
    if (!kvb_size_cache_model(model, proving->context ? proving->context : CONTEXT, NULL, &cache_model, why, why_bytes))
        error = caches_add(&v);
    if (!error)
        error = not_held_add(model, verdicts);
    if (!error)
        error = verdicts_find_all(&v);
    if (error)
        snprintf(why, why_bytes, "cannot verify: %s", strerror(-error));
    return error;
}
