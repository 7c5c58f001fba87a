/* SPDX-License-Identifier: Apache-2.0 */
/* What kvbench's own cache allocates for a model: the prediction that --verify proves. */
#include "harness/size/engine_kvbench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/size/cache_model.h"
#include "harness/size/predict.h"

enum { FIRST_CHUNK = 256 };  /* cells: as `kvbench run` */
enum { FOLLOWED = 8 };       /* pairs of steps, at most, of models that have nothing but states */
enum { WINDOW_CHUNK = 256 }; /* tokens: a windowed layer holds its window and the step that is under way */

const kvb_pool_type *kvb_size_pool_find(const char *name)
{
    for (const kvb_pool_type *const *p = kvb_builtin_pools; *p; p++)
        if (!strcmp(name, (*p)->name))
            return *p;
    return NULL;
}

static int ask_check(const kvb_sized_model *model, const kvb_size_ask *ask, char *why, size_t why_bytes)
{
    char text[160];
    const char *lack = kvb_size_not_held(model, 0, text, sizeof text);
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    else if (ask->tp > 1 || ask->pp > 1)
        snprintf(why, why_bytes, "kvbench runs on one rank");
    else if (ask->mtp && model->mtp_layers)
        snprintf(why, why_bytes, "kvbench serves no multi-token prediction layers");
    else if (ask->sequences > KVB_MAX_SEQS)
        snprintf(why, why_bytes, "a cache of kvbench holds up to %u sequences", KVB_MAX_SEQS);
    else if (!kvb_size_pool_find(ask->k->name) || !kvb_size_pool_find(ask->v->name))
        snprintf(why, why_bytes, "kvbench has no pool of format %s",
                 kvb_size_pool_find(ask->k->name) ? ask->v->name : ask->k->name);
    else if (!ask->context || !ask->sequences || ask->context > UINT32_MAX / ask->sequences)
        snprintf(why, why_bytes, "a cache of kvbench numbers 1 .. %u cells", UINT32_MAX);
    else
        return 0;
    return -ENOTSUP;
}

/* States alone repeat themselves: of a long context as much is followed as shows that, which ends as all of it does. */
static uint32_t context_followed(const kvb_model *model, const kvb_size_ask *ask, uint32_t chunk)
{
    uint64_t period = 2 * (uint64_t)chunk;
    bool repeats = ask->context > FOLLOWED * period;

    for (uint32_t i = 0; i < model->n_groups; i++)
        repeats = repeats && kvb_group_scans(&model->groups[i]);
    return (uint32_t)(repeats ? (FOLLOWED - 1) * period + ask->context % period : ask->context);
}

/* Of a sequence's last states in the layers of a group. */
static uint64_t states_bytes(const kvb_size_subject *s, uint32_t group)
{
    const kvb_group *g = &s->model.groups[group];
    return kvb_model_layers_of(&s->model, group) *
           (uint64_t)(kvb_group_slot_bytes(g, false) + kvb_group_slot_bytes(g, true));
}

/* What a further token of each sequence takes, once windows are full; and what a sequence's full windows keep. */
static void shares_find(const kvb_size_subject *s, kvb_size_allocation *out)
{
    for (uint32_t i = 0; i < s->model.n_groups; i++) {
        const kvb_group *g = &s->model.groups[i];
        if (kvb_group_scans(g)) {
            out->fixed_bytes_per_sequence += (1 + (uint64_t)s->options.state_depth) * states_bytes(s, i);
            out->state_bytes +=
                (uint64_t)s->options.max_seqs * (1 + (uint64_t)s->options.state_depth) * states_bytes(s, i);
            continue;
        }
        double row = s->options.k_pool->row_bytes(s->options.k_pool, g->k_dim);
        if (!g->latent)
            row += s->options.v_pool->row_bytes(s->options.v_pool, g->v_dim);
        row *= (double)g->kv_heads * kvb_model_layers_of(&s->model, i);
        if (kvb_group_limits(g)) /* but for the cell of the next token, which is the step's */
            out->fixed_bytes_per_sequence += (uint64_t)(row * ((double)g->window + g->chunk + g->sinks - 1));
        else
            out->bytes_per_token += row;
        if (!kvb_group_limits(g) && s->cache != &kvb_cache_contiguous)
            out->bytes_per_token += sizeof(uint16_t); /* sequences that hold the cell */
    }
}

static int allocate(const kvb_sized_model *sized, const kvb_size_ask *ask, kvb_size_allocation *out, char *why,
                    size_t why_bytes)
{
    char ignored[160];
    *out = (kvb_size_allocation){0};
    int error = ask_check(sized, ask, why, why_bytes);
    size_t most = error ? 0 : KVB_SIZE_STEPS(ask->sequences);
    kvb_size_subject *s = calloc(1, sizeof *s);
    kvb_size_step *steps = calloc(most + 1, sizeof *steps);
    uint64_t *bytes = calloc(most + 1, sizeof *bytes);
    if (!error && (!s || !steps || !bytes)) {
        snprintf(why, why_bytes, "no memory for a prediction");
        error = -ENOMEM;
    }
    if (!error)
        error = kvb_size_cache_model(sized, ask->context, ask->state, &s->model, why, why_bytes);
    if (!error) {
        bool windows = kvb_cache_window.serves(&s->model, ignored, sizeof ignored);
        uint32_t batch = ask->batch ? ask->batch : kvb_size_engine_kvbench.batch;
        kvb_size_history history = {.sequences = (uint32_t)ask->sequences,
                                    .chunk = windows && batch > WINDOW_CHUNK ? WINDOW_CHUNK : batch,
                                    .singles = 1};
        history.context = context_followed(&s->model, ask, history.chunk);
        s->cache = windows ? &kvb_cache_window : ask->sequences == 1 ? &kvb_cache_contiguous : &kvb_cache_seq;
        s->options = (kvb_cache_options){.capacity = history.sequences * (uint32_t)ask->context,
                                         .seq_capacity = (uint32_t)ask->context,
                                         .seq_ids = history.sequences,
                                         .max_seqs = history.sequences,
                                         .step = history.chunk > history.sequences ? history.chunk : history.sequences,
                                         .state_depth = ask->spec_depth,
                                         .min_chunk = FIRST_CHUNK,
                                         .growth = KVB_GROWTH_DOUBLE,
                                         .k_pool = kvb_size_pool_find(ask->k->name),
                                         .v_pool = kvb_size_pool_find(ask->v->name)};
        size_t n = kvb_size_steps(&history, steps);
        error = kvb_size_predict(s, steps, n, bytes, NULL, why, why_bytes);
        out->kv_bytes = error ? 0 : bytes[n];
        if (!error)
            shares_find(s, out);
        out->kv_bytes -= out->state_bytes;
    }
    free(bytes);
    free(steps);
    free(s);
    return error;
}

const kvb_size_engine kvb_size_engine_kvbench = {
    .name = "kvbench",
    .summary =
        "this program's caches: window where layers have windows, else contiguous for one sequence, seq for more",
    .source = "harness/size/predict.c, proved by --verify",
    .batch = 512,
    .costly = true,
    .allocate = allocate,
};
