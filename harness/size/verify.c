/* SPDX-License-Identifier: Apache-2.0 */
/* Every cache, format and growth policy for every shape of a model's layers. */
#include "harness/size/verify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/machine/profile.h"
#include "harness/size/geometry.h"

const char *const kvb_size_verdict_names[KVB_SIZE_VERDICTS] = {"equal", "differs", "unavailable"};

/* Small enough that chunks, growth, single tokens and drafts all occur in a short context. */
enum { CONTEXT = 1024, SEQUENCES = 2, LAYERS = 2, CHUNK = 256, SINGLES = 4, DRAFTS = 4, FIRST_CHUNK = 64 };
#define MEMORY   ((uint64_t)1 << 30)
#define ELEMENTS ((uint64_t)1 << 31) /* most that are stored for one verdict: some seconds */

typedef struct verifier {
    const kvb_size_proving *proving;
    const kvb_size_geometry *geometry;
    kvb_size_verdicts *verdicts;
    kvb_proof_rows rows;
    uint64_t memory;
} verifier;

static int verdict_add(kvb_size_verdicts *v, const kvb_size_verified *verified)
{
    if (v->n == v->room) {
        size_t room = v->room ? 2 * v->room : 64;
        kvb_size_verified *grown = realloc(v->at, room * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        v->at = grown;
        v->room = room;
    }
    v->at[v->n++] = *verified;
    v->count[verified->verdict]++;
    return 0;
}

static kvb_size_history history_of(const verifier *v, const kvb_cache_type *cache)
{
    const kvb_size_proving *p = v->proving;
    return (kvb_size_history){
        .sequences = !cache->seq    ? 1
                     : p->sequences ? p->sequences
                                    : SEQUENCES,
        .context = p->context ? p->context : CONTEXT,
        .chunk = CHUNK,
        .singles = SINGLES,
        .drafts = cache->tree && !cache->seq ? DRAFTS : 0,
    };
}

static kvb_size_subject subject_of(const verifier *v, const kvb_cache_type *cache, const kvb_pool_pair *pools,
                                   kvb_growth growth, const kvb_size_history *h)
{
    return (kvb_size_subject){
        .cache = cache,
        .facts = v->geometry->facts,
        .options = {.capacity = h->sequences * h->context + (h->drafts ? h->drafts - 1 : 0),
                    .seq_capacity = h->context,
                    .max_seqs = h->sequences,
                    .min_chunk = FIRST_CHUNK,
                    .growth = growth,
                    .k_pool = pools->k,
                    .v_pool = pools->v},
    };
}

/* Rows that one layer is handed over the history: where the history is fed again with every step, many. */
static uint64_t rows_fed(const kvb_cache_type *cache, const kvb_size_history *h)
{
    uint64_t n = (uint64_t)h->sequences * h->context, steps = h->context / h->chunk + 1;
    return cache == &kvb_cache_recompute ? n * steps / 2 + n * h->singles : n;
}

/* Layers of which memory and time allow so many; 0 with why. This is no prediction: pools are asked what they take at
 * most, copies and all. */
static uint32_t layers_allowed(const verifier *v, const kvb_size_subject *s, uint64_t fed, char *why, size_t why_bytes)
{
    const kvb_model_facts *f = &s->facts;
    uint64_t most = v->proving->layers ? v->proving->layers : LAYERS, bytes = 0;
    uint64_t elements = fed * f->kv_heads * ((uint64_t)f->k_dim + f->v_dim);
    for (int side = 0; side < 2; side++) {
        const kvb_pool_type *type = side ? s->options.v_pool : s->options.k_pool;
        const kvb_pool_options o = {.n_kv_heads = f->kv_heads,
                                    .dim = side ? f->v_dim : f->k_dim,
                                    .min_chunk = s->options.min_chunk,
                                    .capacity = s->options.capacity,
                                    .growth = s->options.growth};
        bytes += 2 * type->bytes(type, &o, o.capacity);
    }
    most = most < f->layers ? most : f->layers;
    most = most < v->memory / bytes ? most : v->memory / bytes;
    if (!most)
        snprintf(why, why_bytes, "one layer would take %.1f GiB while it grows, %.1f GiB are free for it",
                 (double)bytes / (double)MEMORY, (double)v->memory / (double)MEMORY);
    else if (elements > ELEMENTS)
        snprintf(why, why_bytes, "one layer would be handed %.3g rows: too many for a check", (double)fed);
    else
        return (uint32_t)(most < ELEMENTS / elements ? most : ELEMENTS / elements);
    return 0;
}

/* What all layers will take: the figure that is proved by those that are built. */
static int whole_predict(const kvb_size_subject *s, const kvb_size_step *steps, size_t n, kvb_size_verified *out)
{
    uint64_t bytes[KVB_SIZE_STEPS + 1];
    int error = kvb_size_predict(s, steps, n, bytes, out->why, sizeof out->why);
    out->whole = error ? 0 : bytes[n];
    return error;
}

/* Builds it and says what was found. What stops a cache half-way is a failure, but for memory that is not there. */
static kvb_size_verdict subject_prove(verifier *v, const kvb_size_history *history, kvb_size_verified *out)
{
    kvb_size_subject *s = &out->subject;
    kvb_size_step steps[KVB_SIZE_STEPS];
    size_t n = kvb_size_steps(history, steps);
    if (!kvb_growth_available(s->options.growth, out->why, sizeof out->why) || whole_predict(s, steps, n, out))
        return KVB_SIZE_UNAVAILABLE;
    s->facts.layers = layers_allowed(v, s, rows_fed(s->cache, history), out->why, sizeof out->why);
    if (!s->facts.layers)
        return KVB_SIZE_UNAVAILABLE;
    int error = kvb_size_prove(s, steps, n, &v->rows, &out->proof, out->why, sizeof out->why);
    if (error)
        return error == -ENOMEM ? KVB_SIZE_UNAVAILABLE : KVB_SIZE_DIFFERS;
    if (out->proof.predicted == out->proof.allocated)
        return KVB_SIZE_EQUAL;
    snprintf(out->why, sizeof out->why, "%llu bytes were predicted, %llu are held",
             (unsigned long long)out->proof.predicted, (unsigned long long)out->proof.allocated);
    return KVB_SIZE_DIFFERS;
}

static int cache_verify(verifier *v, const kvb_cache_type *cache, const kvb_pool_pair *pools, kvb_growth growth)
{
    kvb_size_history history = history_of(v, cache);
    kvb_size_verified out = {.subject = subject_of(v, cache, pools, growth, &history),
                             .layers = v->geometry->facts.layers,
                             .kept = v->geometry->kept};
    out.verdict = subject_prove(v, &history, &out);
    return verdict_add(v->verdicts, &out);
}

static int geometry_verify(verifier *v)
{
    static const kvb_growth all_growths[] = {KVB_GROWTH_DOUBLE, KVB_GROWTH_DOUBLE_THP, KVB_GROWTH_RESERVE,
                                             KVB_GROWTH_RESERVE_THP};
    const kvb_size_proving *p = v->proving;
    const kvb_cache_type *const *caches = p->caches ? p->caches : kvb_builtin_caches;
    const kvb_growth *growths = p->n_growths ? p->growths : all_growths;
    size_t n_growths = p->n_growths ? p->n_growths : KVB_GROWTHS;
    int error = 0;
    for (size_t c = 0; !error && caches[c]; c++)
        for (size_t i = 0; !error && i < p->n_pools; i++)
            for (size_t g = 0; !error && g < n_growths; g++)
                error = cache_verify(v, caches[c], &p->pools[i], growths[g]);
    return error;
}

static int not_held_add(const kvb_model *model, kvb_size_verdicts *verdicts)
{
    kvb_size_verified out = {.kept = "", .verdict = KVB_SIZE_UNAVAILABLE};
    int error = 0;
    for (size_t i = 0; !error && kvb_size_not_held(model, i, out.why, sizeof out.why); i++)
        error = verdict_add(verdicts, &out);
    return error;
}

int kvb_size_verify(const kvb_model *model, const kvb_size_proving *proving, kvb_size_verdicts *verdicts, char *why,
                    size_t why_bytes)
{
    uint64_t most = proving->memory ? proving->memory : MEMORY, half = kvb_memory_available("") / 2;
    verifier v = {.proving = proving, .verdicts = verdicts, .memory = half && half < most ? half : most};
    uint64_t sequences = proving->sequences ? proving->sequences : SEQUENCES,
             context = proving->context ? proving->context : CONTEXT;
    if (sequences > KVB_MAX_SEQS || sequences * context > UINT32_MAX - DRAFTS) {
        snprintf(why, why_bytes,
                 "%llu sequences of %llu tokens: a cache of kvbench holds up to %u sequences and %u cells",
                 (unsigned long long)sequences, (unsigned long long)context, KVB_MAX_SEQS, UINT32_MAX - DRAFTS);
        return -EINVAL;
    }
    kvb_size_geometry *geometries = calloc(model->n_groups + 1, sizeof *geometries);
    size_t n = 0;
    int error = geometries ? 0 : -ENOMEM;
    if (!error)
        kvb_size_geometries(model, geometries, &n);
    for (size_t i = 0; !error && i < n; i++) {
        v.geometry = &geometries[i];
        error = geometry_verify(&v);
    }
    if (!error)
        error = not_held_add(model, verdicts);
    if (error)
        snprintf(why, why_bytes, "no memory for the verdicts");
    kvb_proof_rows_free(&v.rows);
    free(geometries);
    return error;
}
