/* SPDX-License-Identifier: Apache-2.0 */
/* Verifies every cache, format and growth policy for a model's groups of layers. */

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "caches/pools/codec/codec.h"
#include "harness/machine/profile.h"
#include "harness/machine/team.h"
#include "harness/size/cache_model.h"
#include "workloads/array.h"
#include "workloads/files.h"

const char *const kvb_size_verdict_names[KVB_SIZE_VERDICTS] = {"equal", "differs", "unavailable"};

/* Small enough that chunks, growth, single tokens and drafts all occur in a short context. */
enum {
    CONTEXT = 250,
    SEQUENCES = 2,
    LAYERS = 2,
    CHUNK = 128,
    CHUNKS = 8,
    SINGLES = 6, /* last tokens of each sequence, fed one by one */
    DRAFTS = 4,  /* nodes of a tree; the branch to the last one is accepted */
    TREES = 3,
    FIRST_CHUNK = 64,
    STATE_DEPTH = 2,
    PAGE_CELLS = 16
};
enum { CORES = 16 };
enum { WINDOW_AND_MORE = 3 * CHUNK, MOST_WINDOW = 4096 };
#define MEMORY       ((uint64_t)1 << 30)
#define ENOUGH_BYTES ((uint64_t)1 << 26) /* of one verdict: with more, only one layer of each kind is verified */

typedef struct verifier {
    const kvb_size_asked *asked;
    const kvb_model *model;
    kvb_size_verdicts *verdicts;
    _Atomic size_t next; /* index of the next verdict to find */
    uint64_t memory;     /* of one thread */
} verifier;

/* The same history in three caches: all layers counted, few layers counted, few layers allocated. */
enum { WHOLE, COUNTED, ALLOCATED, CACHES };
typedef struct trio {
    kvb_cache *cache[CACHES];
    kvb_allocator allocator[CACHES];
    kvb_size_verified *out;
    uint32_t *ids; /* [step] */
} trio;

/* ---- the history ----------------------------------------------------------------------------------------------- */

/* Compares the caches after a call that each has taken. 0; the call's error; -EBADMSG: their bytes differ. */
static int bytes_compare(trio *t, const int error[CACHES])
{
    kvb_size_verified *out = t->out;
    out->whole = t->allocator[WHOLE].current_bytes;
    out->counted = t->allocator[COUNTED].current_bytes;
    out->allocated = t->allocator[ALLOCATED].current_bytes;
    for (int i = 0; i < CACHES; i++)
        if (error[i]) {
            snprintf(out->why, sizeof out->why, "cache %s: %s", out->cache->name, kvb_cache_why(t->cache[i]));
            return error[i];
        }
    if (out->counted == out->allocated)
        return 0;
    snprintf(out->why, sizeof out->why, "%llu bytes are counted, %llu are held", (unsigned long long)out->counted,
             (unsigned long long)out->allocated);
    return -EBADMSG;
}

/* Takes a step of n tokens, of the sequences t->ids. */
static int step(trio *t, uint32_t n)
{
    int error[CACHES];
    for (int i = 0; i < CACHES; i++)
        error[i] = kvb_cache_begin_step(t->cache[i], t->ids, n);
    t->out->cells += n;
    return bytes_compare(t, error);
}

static int prefill(trio *t, uint32_t seq, uint32_t from, uint32_t to, uint32_t chunk)
{
    int error = 0;
    for (uint32_t n; from < to && !error; from += n) {
        n = to - from < chunk ? to - from : chunk;
        for (uint32_t i = 0; i < n; i++)
            t->ids[i] = seq;
        error = step(t, n);
    }
    return error;
}

/* Proposes a tree of two branches after each sequence, and commits one branch. */
static int tree(trio *t, uint32_t sequences)
{
    static const int32_t parent[DRAFTS] = {-1, -1, 0, 1};
    static const uint32_t accepted[] = {1, 3};
    int32_t parents[DRAFTS * KVB_MAX_SEQS];
    int error[CACHES] = {0};
    for (uint32_t i = 0; i < sequences * DRAFTS; i++) {
        t->ids[i] = i / DRAFTS;
        parents[i] = parent[i % DRAFTS];
    }
    for (int i = 0; i < CACHES; i++)
        error[i] = kvb_cache_propose(t->cache[i], t->ids, parents, sequences * DRAFTS);
    int first = bytes_compare(t, error);
    for (uint32_t s = 0; s < sequences && !first; s++) {
        for (int i = 0; i < CACHES; i++)
            error[i] = kvb_cache_commit(t->cache[i], s, accepted, 2);
        t->out->cells += 2;
        first = bytes_compare(t, error);
    }
    return first;
}

/*
 * Prefills half of sequence 0; the other sequences are forks of it. Then each is prefilled except for its last tokens, which
 * are fed one by one, all sequences together; in caches with trees, some come as nodes.
 */
static int history_play(trio *t, uint32_t context, uint32_t sequences, uint32_t chunk)
{
    const bool trees = t->out->cache->flags & KVB_CACHE_TREE;
    const uint32_t last = SINGLES + (trees ? 2 * TREES : 0), most = context > last ? context - last : 0,
                   half = most / 2;
    int error = prefill(t, 0, 0, half, chunk);
    for (uint32_t s = 1; s < sequences && !error && half; s++) {
        int errors[CACHES];
        for (int i = 0; i < CACHES; i++)
            errors[i] = kvb_cache_seq_cp(t->cache[i], 0, s, 0, half);
        error = bytes_compare(t, errors);
    }
    for (uint32_t s = 0; s < sequences && !error; s++)
        error = prefill(t, s, half, most, chunk);
    for (uint32_t i = 0; i < TREES && trees && most && !error; i++)
        error = tree(t, sequences);
    for (uint32_t left = most ? SINGLES : context; left && !error; left--) {
        for (uint32_t s = 0; s < sequences; s++)
            t->ids[s] = s;
        error = step(t, sequences);
    }
    return error;
}

/* The widest window or chunk that a default context exceeds; wider ones are not reached. */
static uint32_t widest_limit(const kvb_model *model)
{
    uint32_t widest = 0;
    for (uint32_t g = 0; g < model->n_groups; g++) {
        uint32_t limit = model->groups[g].window + model->groups[g].chunk;
        widest = limit > widest && limit <= MOST_WINDOW ? limit : widest;
    }
    return widest;
}

static uint32_t chunk_of(uint32_t context)
{
    return context / CHUNKS > CHUNK ? context / CHUNKS : CHUNK;
}

static uint32_t context_of(const kvb_size_asked *asked, const kvb_cache_type *cache, const kvb_model *model)
{
    uint32_t context = asked->context ? asked->context : CONTEXT;
    uint32_t window = cache == &kvb_cache_window ? widest_limit(model) : 0;
    if (!asked->context && window && context < window + WINDOW_AND_MORE)
        context = window + WINDOW_AND_MORE; /* so long that rows are dropped and their cells reused */
    return context;
}

/* ---- a verdict ------------------------------------------------------------------------------------------------- */

/* The number of layers of each kind that memory allows; 0 with why. */
static uint32_t layers_allowed(const verifier *v, kvb_size_verified *out)
{
    const kvb_cache_options *o = &out->options;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < v->model->n_groups; i++)
        for (int side = 0; side < 2; side++) {
            const kvb_group *g = &v->model->groups[i];
            const kvb_pool_type *type = side ? o->v_pool : o->k_pool;
            const kvb_pool_options pool = {.n_kv_heads = g->kv_heads,
                                           .dim = side ? g->v_dim : g->k_dim,
                                           .min_chunk = o->min_chunk,
                                           .capacity = o->capacity,
                                           .growth = o->growth};
            const uint64_t states = 2 * o->max_seqs * (1 + (uint64_t)o->state_depth);
            bytes += kvb_group_scans(g)
                         ? 2 * states * kvb_group_slot_bytes(g, side) /* twice: while they grow */
                         : (kvb_growth_reserves(o->growth) ? 1 : 2) * type->bytes(type, &pool, pool.capacity);
        }
    if (bytes <= v->memory)
        return bytes * LAYERS <= ENOUGH_BYTES ? LAYERS : 1;
    snprintf(out->why, sizeof out->why,
             "a layer of each kind would take %.1f GiB while it grows, %.1f GiB are free for it",
             (double)bytes / 0x1p30, (double)v->memory / 0x1p30);
    return 0;
}

static int trio_open(trio *t, const kvb_model *model)
{
    kvb_size_verified *out = t->out;
    int error = 0;
    for (int i = 0; i < CACHES && !error; i++) {
        kvb_cache_options options = out->options;
        options.allocator = &t->allocator[i];
        options.counted = i != ALLOCATED;
        error = kvb_cache_open(out->cache, i == WHOLE ? model : &out->model, &options, &t->cache[i], out->why,
                               sizeof out->why);
    }
    return error ? error : bytes_compare(t, (const int[CACHES]){0});
}

/* Finds one verdict. An error of a cache in the middle of the history means DIFFERS, unless memory was lacking. */
static kvb_size_verdict verdict_find(const verifier *v, kvb_size_verified *out)
{
    const kvb_cache_options *o = &out->options;
    trio t = {.out = out, .ids = calloc(o->step, sizeof *t.ids)};
    uint32_t layers = 0;
    if (kvb_growth_available(o->growth, out->why, sizeof out->why))
        layers = layers_allowed(v, out);
    kvb_size_few_layers(v->model, layers, &out->model);
    if (!layers || !t.ids) {
        free(t.ids);
        return KVB_SIZE_UNAVAILABLE;
    }
    int error = trio_open(&t, v->model);
    const bool opened = t.cache[ALLOCATED];
    if (!error)
        error = history_play(&t, o->seq_capacity, o->max_seqs, chunk_of(o->seq_capacity));
    for (int i = 0; i < CACHES; i++)
        kvb_cache_close(t.cache[i]);
    free(t.ids);
    for (int i = 0; i < CACHES && !error; i++)
        if (t.allocator[i].current_bytes) {
            snprintf(out->why, sizeof out->why, "%zu bytes are left after close", t.allocator[i].current_bytes);
            error = -EBADMSG;
        }
    return !error ? KVB_SIZE_EQUAL : error == -ENOMEM || !opened ? KVB_SIZE_UNAVAILABLE : KVB_SIZE_DIFFERS;
}

/* One thread's part: finds verdicts that no other thread has begun. */
static void verdicts_find(void *context, uint32_t i, uint32_t n)
{
    verifier *v = context;
    (void)i, (void)n;
    for (size_t at; (at = atomic_fetch_add(&v->next, 1)) < v->verdicts->n;)
        if (v->verdicts->at[at].cache)
            v->verdicts->at[at].verdict = verdict_find(v, &v->verdicts->at[at]);
}

static int verdicts_find_all(verifier *v)
{
    uint32_t cores = kvb_cores() < CORES ? kvb_cores() : CORES;
    kvb_threads *threads;
    int error = kvb_threads_start(cores, false, &threads);
    if (error)
        return error;
    v->memory /= cores;
    kvb_codec_best(); /* chooses once, before several threads call it */
    const kvb_team *team = kvb_threads_team(threads);
    size_t first = v->next;
    /* No row is written, but growing pools copy them, and filling huge pages with zeros takes time. */
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    team->run(team, verdicts_find, v);
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    kvb_threads_end(threads);
    for (size_t i = first; i < v->verdicts->n; i++)
        v->verdicts->count[v->verdicts->at[i].verdict]++;
    return 0;
}

/* ---- the list of verdicts ---------------------------------------------------------------------------------------- */

static int verdict_add(kvb_size_verdicts *v, const kvb_size_verified *verified)
{
    int error = kvb_array_reserve(&v->at, &v->room, v->n + 1, sizeof *v->at);
    if (!error)
        v->at[v->n++] = *verified;
    return error;
}

static int cache_add(const verifier *v, const kvb_cache_type *cache, const kvb_pool_pair *pools, kvb_growth growth)
{
    const uint32_t context = context_of(v->asked, cache, v->model);
    const uint32_t sequences = !(cache->flags & KVB_CACHE_SEQ) ? 1
                               : v->asked->sequences           ? v->asked->sequences
                                                               : SEQUENCES;
    const uint32_t nodes = sequences * DRAFTS, chunk = chunk_of(context);
    kvb_size_verified out = {.cache = cache, .layers = v->model->n_layers};
    out.options = (kvb_cache_options){.capacity = sequences * (context + DRAFTS),
                                      .seq_capacity = context,
                                      .seq_ids = sequences,
                                      .max_seqs = sequences,
                                      .step = chunk > nodes ? chunk : nodes,
                                      .state_depth = STATE_DEPTH,
                                      .min_chunk = FIRST_CHUNK,
                                      .page_cells = PAGE_CELLS,
                                      .growth = growth,
                                      .k_pool = pools->k,
                                      .v_pool = pools->v};
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
    const kvb_size_asked *a = v->asked;
    const kvb_cache_type *const *caches = a->caches ? a->caches : kvb_builtin_caches;
    size_t n_growths = a->n_growths ? a->n_growths : KVB_GROWTHS;
    int error = 0;
    for (size_t c = 0; !error && caches[c]; c++)
        for (size_t i = 0; !error && i < a->n_pools; i++)
            for (size_t g = 0; !error && serves(v, caches[c], &a->pools[i]) && g < n_growths; g++)
                error = cache_add(v, caches[c], &a->pools[i], a->n_growths ? a->growths[g] : (kvb_growth)g);
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

static int asked_check(const kvb_size_asked *a, char *why, size_t why_bytes)
{
    uint64_t sequences = a->sequences ? a->sequences : SEQUENCES, context = a->context ? a->context : CONTEXT;
    if (sequences <= KVB_MAX_SEQS && sequences * (context + DRAFTS) < UINT32_MAX)
        return 0;
    return kvb_why_set(-EINVAL, why, why_bytes,
                       "%llu sequences of %llu tokens: a cache of kvbench holds up to %u sequences and %u cells",
                       (unsigned long long)sequences, (unsigned long long)context, KVB_MAX_SEQS, UINT32_MAX - DRAFTS);
}

int kvb_size_verify(const kvb_sized_model *model, const kvb_size_asked *asked, kvb_size_verdicts *verdicts, char *why,
                    size_t why_bytes)
{
    uint64_t most = asked->memory ? asked->memory : MEMORY, half = kvb_memory_available("") / 2;
    verifier v = {
        .asked = asked, .verdicts = verdicts, .next = verdicts->n, .memory = half && half < most ? half : most};
    kvb_model cache_model;
    int error = asked_check(asked, why, why_bytes);
    if (error)
        return error;
    v.model = &cache_model;
    if (!kvb_size_cache_model(model, asked->context ? asked->context : CONTEXT, NULL, &cache_model, why, why_bytes))
        error = caches_add(&v);
    if (!error)
        error = not_held_add(model, verdicts);
    if (!error)
        error = verdicts_find_all(&v);
    if (error)
        snprintf(why, why_bytes, "cannot verify: %s", strerror(-error));
    return error;
}
