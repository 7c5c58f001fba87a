/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of one rank, and the limits of a budget. */
#include "harness/size/sizing.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness/size/engines.h"
#include "harness/size/weights.h"
#include "workloads/files.h"

/* ---- one rank's part of a layer ---------------------------------------------------------------------------------- */

int kvb_add_product(uint64_t *sum, const uint64_t *factors, size_t n)
{
    uint64_t product = 1;

    for (size_t i = 0; i < n; i++)
        if (factors[i] == 0)
            return 0; /* even if the other factors overflow */
    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(product, factors[i], &product))
            return -EOVERFLOW;
    return __builtin_add_overflow(*sum, product, sum) ? -EOVERFLOW : 0;
}

int kvb_round_up(uint64_t *x, uint64_t to)
{
    return __builtin_mul_overflow(kvb_ceil_div(*x, to), to, x) ? -EOVERFLOW : 0;
}

/* Writes "a size is above 64 bits". Returns -EOVERFLOW. */
static int too_large(char *why, size_t why_bytes)
{
    return kvb_why_set(-EOVERFLOW, why, why_bytes, "a size is above 64 bits");
}

uint64_t kvb_stage_layers(uint64_t n, const kvb_size_ask *ask)
{
    return ask->parts ? kvb_ceil_div(n * ask->part, ask->parts) : kvb_ceil_div(n, ask->pp);
}

uint64_t kvb_layers_held(const kvb_sized_model *model, const kvb_sized_group *group, const kvb_size_ask *ask)
{
    const kvb_sized_group *last = NULL; /* with attention */

    for (const kvb_sized_group *g = model->groups; g < model->groups + model->n_groups; g++)
        if (kvb_sized_attends(g))
            last = g;
    return kvb_stage_layers(group->n, ask) + (ask->mtp && group == last ? model->mtp_layers : 0);
}

static int row_add(uint64_t *bytes, const kvb_kv_format *format, const char *which, uint64_t heads, uint32_t elements,
                   char *why, size_t why_bytes)
{
    uint64_t row = kvb_kv_row_bytes(format, elements);

    if (elements && !row)
        return kvb_why_set(-ENOTSUP, why, why_bytes, "%s stores groups of %u, which do not divide %s rows of %u",
                           format->name, format->group, which, elements);
    return kvb_add(bytes, heads, row);
}

int kvb_layer_row_bytes(const kvb_sized_group *g, const kvb_size_ask *ask, uint64_t *bytes, char *why, size_t why_bytes)
{
    uint64_t heads = g->kv_heads >= ask->tp ? g->kv_heads / ask->tp : 1;

    *bytes = 0;
    if (g->kind == KVB_SIZED_STATE || g->kind == KVB_SIZED_NONE)
        return 0;
    if (g->kind == KVB_SIZED_LATENT) /* each rank computes its own heads from the whole row */
        return row_add(bytes, ask->k, "latent", 1, g->latent_dim + g->rope_dim, why, why_bytes);
    if (g->kv_heads >= ask->tp ? g->kv_heads % ask->tp : ask->tp % g->kv_heads)
        return kvb_why_set(-ENOTSUP, why, why_bytes, "%u KV heads are not divided by --tp %" PRIu64, g->kv_heads,
                           ask->tp);
    int error = row_add(bytes, ask->k, "K", heads, g->k_dim, why, why_bytes);
    return error ? error : row_add(bytes, ask->v, "V", heads, g->v_dim, why, why_bytes);
}

uint64_t kvb_index_row_bytes(const kvb_sized_group *g)
{
    return g->index_dim + 4 * kvb_ceil_div(g->index_dim, 128);
}

int kvb_layer_state_bytes(const kvb_sized_group *g, const kvb_size_ask *ask, uint32_t state_element,
                          uint32_t conv_element, uint64_t *bytes)
{
    *bytes = 0;
    return kvb_add(bytes, kvb_ceil_div(g->state_elements, ask->tp), g->state_f32 ? 4 : state_element) ||
                   kvb_add(bytes, kvb_ceil_div(g->conv_elements, ask->tp), conv_element)
               ? -EOVERFLOW
               : 0;
}

uint32_t kvb_config_dtype_bytes(const char *dtype)
{
    return strcmp(dtype, "f32") == 0 ? 4 : 2;
}

uint32_t kvb_plain_format_bytes(const kvb_kv_format *format)
{
    return kvb_names_have("f32 f16 bf16", format->name) ? format->group_bytes : 0;
}

uint32_t kvb_plain_bytes(const kvb_sized_model *model, const kvb_size_ask *ask)
{
    uint32_t plain = kvb_plain_format_bytes(ask->k);

    return plain ? plain : kvb_config_dtype_bytes(model->dtype);
}

/* ---- ideal: every row that a later token may read, and nothing else ------------------------------------------ */

/* Rows that can still be read after n tokens. A window keeps its sinks too. */
static uint64_t rows_kept(const kvb_sized_group *g, bool grows, uint64_t n)
{
    const uint64_t most = (uint64_t)g->window + g->sinks;
    return g->kind == KVB_SIZED_POOLED ? n / g->every : grows || (n < most && g->kind != KVB_SIZED_CROSS) ? n : most;
}

static int ideal_layer(const kvb_sized_model *model, const kvb_sized_group *g, const kvb_size_ask *ask,
                       kvb_size_layer *layer)
{
    const uint32_t plain = kvb_plain_bytes(model, ask);
    const bool grows = kvb_sized_grows(model, g, ask->context);

    layer->row += kvb_index_row_bytes(g);
    layer->cells = rows_kept(g, grows, ask->context);
    layer->tokens = !grows ? 0 : g->kind == KVB_SIZED_POOLED ? g->every : 1;
    layer->fixed_cells = grows ? 0 : rows_kept(g, false, UINT64_MAX);
    layer->states = 1 + ask->spec_depth;
    return kvb_layer_state_bytes(g, ask, ask->state ? kvb_config_dtype_bytes(ask->state) : plain, plain, &layer->state);
}

const kvb_size_engine kvb_size_engine_ideal = {
    .name = "ideal",
    .source = "the definition of each kind of layer",
    .knows = 1 << KVB_SIZED_POOLED | 1 << KVB_SIZED_CROSS,
    .layer = ideal_layer,
};

/* ---- totals, and limits of a budget ------------------------------------------------------------------------------ */

/*
 * The least that one layer needs at once: for each token of the pass the residual, its norm, the mixer's input and output
 * (4 x hidden), and gate and up of the feed-forward (2 x intermediate), in the model's dtype; and the logits of each
 * sequence in f32. This is a Llama layer (transformers, modeling_llama.py) run operation by operation, with nothing
 * fused. Attention's scores do not count, as flash attention keeps none.
 */
int kvb_layer_peak(const kvb_sized_model *m, const kvb_size_engine *engine, const kvb_size_ask *ask, uint64_t *bytes)
{
    uint64_t tokens = kvb_size_batch(engine, ask), longest = 0;
    uint64_t width = 4 * (uint64_t)m->hidden + 2 * kvb_ceil_div(m->intermediate, ask->tp);

    if (kvb_add(&longest, ask->context, ask->sequences))
        return -EOVERFLOW;
    tokens = tokens == 0 ? ask->sequences : tokens < longest ? tokens : longest;
    return kvb_add(bytes, tokens, width, kvb_config_dtype_bytes(m->dtype)) ||
                   kvb_add(bytes, ask->before_last ? 0 : ask->sequences, kvb_ceil_div(m->vocab, ask->tp), 4)
               ? -EOVERFLOW
               : 0;
}

uint64_t kvb_size_batch(const kvb_size_engine *engine, const kvb_size_ask *ask)
{
    return ask->batch ? ask->batch : engine->batch_on ? engine->batch_on(ask->device) : engine->batch;
}

/* The engine's share of the asked device, in bytes. */
static uint64_t share_of_device(const kvb_size_engine *engine, const kvb_size_ask *ask)
{
    uint64_t fraction = engine->fraction && ask->utilization ? ask->utilization : engine->fraction;

    return !ask->device ? 0 : fraction ? ask->device->memory / 1000 * fraction : ask->device->memory;
}

static int stage_compute(const kvb_sized_model *model, const kvb_size_engine *engine, const kvb_size_ask *ask,
                         const kvb_size_terms *terms, kvb_size *out, char *why, size_t why_bytes);

int kvb_layers_sum(const kvb_size_engine *engine, const kvb_sized_model *model, const kvb_size_ask *ask,
                   kvb_size_allocation *out, char *why, size_t why_bytes)
{
    int error = 0;

    for (const kvb_sized_group *g = model->groups; g < model->groups + model->n_groups && !error; g++) {
        kvb_size_layer l = {
            .layers = kvb_layers_held(model, g, ask), .streams = ask->sequences, .cells = ask->context, .tokens = 1};

        error = kvb_layer_row_bytes(g, ask, &l.row, why, why_bytes);
        if (!error)
            error = engine->layer(model, g, ask, &l);
        if (!error && (kvb_add(&out->kv_bytes, l.streams, l.cells, l.layers, l.row) ||
                       kvb_add(&out->state_bytes, ask->sequences, l.layers, l.states, l.state) ||
                       kvb_add(&out->fixed_bytes_per_sequence, l.layers, l.fixed_cells, l.row) ||
                       kvb_add(&out->fixed_bytes_per_sequence, l.layers, l.states, l.state)))
            error = -EOVERFLOW;
        out->bytes_per_token += l.tokens > 0 ? (double)l.layers * (double)l.row / l.tokens : 0;
    }
    return error;
}

/* Why the engine's allocation of such kinds of layers is not known; NULL: it is. */
static const char *kinds_lack(const kvb_size_engine *engine, const kvb_sized_model *model, char text[KVB_LACK_TEXT])
{
    for (const kvb_sized_group *g = model->groups; g < model->groups + model->n_groups; g++) {
        const char *why = engine->pooled_why && g->every > 1 ? engine->pooled_why : NULL;

        if ((g->kind != KVB_SIZED_POOLED && g->kind != KVB_SIZED_CROSS) || engine->knows >> g->kind & 1)
            continue;
        snprintf(text, KVB_LACK_TEXT, "how %.20s holds %s is not modelled%s%s", engine->name, g->name, why ? ": " : "",
                 why ? why : "");
        return text;
    }
    return NULL;
}

const char *kvb_size_lack(const kvb_size_engine *engine, const kvb_sized_model *model, const kvb_size_ask *ask,
                          char text[KVB_LACK_TEXT])
{
    const kvb_kv_format *const formats_of[] = {ask->k, ask->v};
    const char *lack = NULL;

    if (engine->alike_why && ask->k != ask->v)
        return engine->alike_why;
    for (size_t i = 0; i < 2 && engine->stored; i++)
        if (!kvb_names_have(engine->stored, formats_of[i]->name)) {
            const size_t n = strlen(engine->stored_why);
            snprintf(text, KVB_LACK_TEXT, "%s%s", engine->stored_why,
                     engine->stored_why[n - 1] == ' ' ? formats_of[i]->name : "");
            return text;
        }
    for (size_t i = 0; i < model->n_groups && engine->lack && !lack; i++)
        lack = engine->lack(model, &model->groups[i], ask, text);
    return lack;
}

int kvb_size_hold(const kvb_size_engine *engine, const kvb_sized_model *model, const kvb_size_ask *ask,
                  kvb_size_allocation *out, char *why, size_t why_bytes)
{
    char text[KVB_LACK_TEXT];
    const char *lack = kinds_lack(engine, model, text);

    *out = (kvb_size_allocation){0};
    lack = lack ? lack : kvb_size_lack(engine, model, ask, text);
    if (lack)
        return kvb_why_set(-ENOTSUP, why, why_bytes, "%s", lack);
    int error = engine->allocate ? engine->allocate(model, ask, out, why, why_bytes)
                                 : kvb_layers_sum(engine, model, ask, out, why, why_bytes);
    return error == -EOVERFLOW ? too_large(why, why_bytes) : error;
}

int kvb_size_weights_share(const kvb_sized_model *model, const kvb_size_ask *ask, kvb_size_terms *terms, char *why,
                           size_t why_bytes)
{
    int error = 0;

    if (terms->all_weight_bytes)
        error =
            kvb_weights_rank(model, terms->all_weight_bytes, ask->tp, 1, ask->pp, &terms->weight_bytes, why, why_bytes);
    for (uint32_t i = 0; i < terms->n_stages && terms->all_weight_bytes && !error; i++)
        error = kvb_weights_rank(model, terms->all_weight_bytes, ask->tp, terms->stages[i].part, ask->parts,
                                 &terms->stages[i].weight_bytes, why, why_bytes);
    if (terms->all_draft_bytes && !error)
        error = kvb_weights_rank(terms->draft, terms->all_draft_bytes, ask->tp, 1, 1, &terms->draft_weight_bytes, why,
                                 why_bytes);
    return error;
}

/* Adds the draft model's weights, rows and states, and the memory of its passes, unless the model's passes share it. */
static int draft_add(const kvb_size_engine *engine, const kvb_size_ask *ask, const kvb_size_terms *terms, kvb_size *out,
                     char *why, size_t why_bytes)
{
    kvb_size_ask own = *ask;
    kvb_size_terms alone = {.weights_known = true, .weight_bytes = terms->draft_weight_bytes};
    kvb_size draft;

    if (ask->pp > 1 && engine->draft_why)
        return kvb_why_set(-ENOTSUP, why, why_bytes, "%s", engine->draft_why);
    own.spec_depth = own.parts = 0;
    own.pp = 1;
    own.mtp = own.before_last = false;
    int error = stage_compute(terms->draft, engine, &own, &alone, &draft, why, why_bytes);

    if (error)
        return error;
    if (!engine->apart && draft.activation_bytes > out->activation_bytes)
        out->activation_bytes = draft.activation_bytes;
    return kvb_add(&out->draft_bytes, draft.weight_bytes) || kvb_add(&out->draft_bytes, draft.held.kv_bytes) ||
                   kvb_add(&out->draft_bytes, draft.held.state_bytes) ||
                   (engine->apart && kvb_add(&out->draft_bytes, draft.activation_bytes))
               ? too_large(why, why_bytes)
               : 0;
}

/* Computes all terms of one stage, except the limits of the budget. */
static int stage_compute(const kvb_sized_model *model, const kvb_size_engine *engine, const kvb_size_ask *ask,
                         const kvb_size_terms *terms, kvb_size *out, char *why, size_t why_bytes)
{
    *out = (kvb_size){.weight_bytes = terms->weights_known ? terms->weight_bytes : 0,
                      .runtime_bytes = terms->runtime_bytes,
                      .budget_bytes = terms->budget ? terms->budget : share_of_device(engine, ask)};
    int error = kvb_size_hold(engine, model, ask, &out->held, why, why_bytes);

    if (error)
        return error;
    if (engine->beside ? engine->beside(model, ask, &out->activation_bytes)
                       : kvb_layer_peak(model, engine, ask, &out->activation_bytes))
        return too_large(why, why_bytes);
    if (terms->draft && (error = draft_add(engine, ask, terms, out, why, why_bytes)))
        return error;
    const uint64_t parts[] = {out->held.kv_bytes, out->held.state_bytes, out->weight_bytes, out->runtime_bytes,
                              out->draft_bytes};
    out->total_bytes = out->activation_bytes;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (kvb_add(&out->total_bytes, parts[i]))
            return too_large(why, why_bytes);
    unsigned __int128 margin = ((unsigned __int128)out->total_bytes * terms->margin + 99999) / 100000;

    if (margin > UINT64_MAX || kvb_add(&out->total_bytes, (uint64_t)margin))
        return too_large(why, why_bytes);
    out->margin_bytes = (uint64_t)margin;
    return 0;
}

/* Does a have less room than b? */
static bool is_tighter(const kvb_size *a, const kvb_size *b)
{
    const __int128 room[] = {(__int128)a->budget_bytes - a->total_bytes, (__int128)b->budget_bytes - b->total_bytes};
    return room[0] < room[1];
}

/* Computes all terms of the stage with the least room. */
static int total_compute(const kvb_sized_model *model, const kvb_size_engine *engine, const kvb_size_ask *ask,
                         const kvb_size_terms *terms, kvb_size *out, char *why, size_t why_bytes)
{
    int error = terms->n_stages ? 0 : stage_compute(model, engine, ask, terms, out, why, why_bytes);

    for (uint32_t i = 0; i < terms->n_stages && !error; i++) {
        const kvb_size_stage *stage = &terms->stages[i];
        kvb_size_ask own = *ask;
        kvb_size_terms its = *terms;
        kvb_size size;

        own.part = stage->part;
        own.before_last = i + 1 < terms->n_stages;
        own.device = stage->device ? stage->device : ask->device;
        its.weight_bytes = stage->weight_bytes;
        its.draft = i + 1 == terms->n_stages ? terms->draft : NULL;
        error = stage_compute(model, engine, &own, &its, &size, why, why_bytes);
        size.stage = i + 1;
        if (i == 0 || is_tighter(&size, out))
            *out = size;
    }
    return error;
}

/* Guesses the limit between good and bad, as bytes are nearly proportional. fits, over: bytes at good and at bad; over 0:
 * unknown. */
static uint64_t limit_guess(uint64_t good, uint64_t bad, uint64_t fits, uint64_t over, uint64_t budget)
{
    if (!over || budget < fits)
        return bad - 1;
    double share = (double)(budget - fits) / (double)(over - fits);
    uint64_t guess = good + (uint64_t)(share * (double)(bad - good));

    return guess <= good ? good + 1 : guess < bad ? guess : bad - 1;
}

/* The largest value of *at (a field of *ask), from 0 to cap, that fits the budget. Sums above 64 bits do not fit. */
static uint64_t largest_that_fits(const kvb_sized_model *model, const kvb_size_engine *engine, kvb_size_ask *ask,
                                  uint64_t *at, uint64_t cap, const kvb_size_terms *terms)
{
    enum { GUESSES = 8 };
    uint64_t good = 0, bad = cap + 1, fits = terms->weight_bytes + terms->runtime_bytes, over = 0;
    kvb_size size = {0};
    char why[256];

    if (engine->costly) { /* no more fits than by the rules of ideal, which are fast */
        kvb_size_engine least = *engine;

        least.costly = false;
        least.allocate = NULL;
        least.layer = kvb_size_engine_ideal.layer;
        bad = largest_that_fits(model, &least, ask, at, cap, terms) + 1;
    }
    for (int tries = 0; bad - good > 1; tries++) {
        bool guesses = engine->costly && tries < GUESSES && (over || !tries);

        *at = guesses ? limit_guess(good, bad, fits, over, size.budget_bytes) : good + (bad - good) / 2;
        int error = total_compute(model, engine, ask, terms, &size, why, sizeof why);

        if (!error && size.total_bytes <= size.budget_bytes) {
            good = *at;
            fits = size.total_bytes;
        } else {
            bad = *at;
            over = error ? 0 : size.total_bytes;
        }
    }
    return good;
}

/* The smaller of cap and `most` / `each`; most 0: cap. */
static uint64_t cap_find(uint64_t cap, uint64_t most, uint64_t each)
{
    return most && most / each < cap ? most / each : cap;
}

int kvb_size_compute(const kvb_sized_model *model, const kvb_size_engine *engine, const kvb_size_ask *ask,
                     const kvb_size_terms *terms, kvb_size *out, char *why, size_t why_bytes)
{
    const uint64_t far = (uint64_t)1 << 40; /* tokens or sequences; if so many fit, memory is not the limit */
    int error = total_compute(model, engine, ask, terms, out, why, why_bytes);

    if (error || !out->budget_bytes || terms->sized_only)
        return error;
    uint64_t cap = model->max_context ? model->max_context : far;
    uint64_t most = cap_find(cap_find(far, engine->most_sequences, 1), engine->most_tokens, ask->context);
    kvb_size_ask longer = *ask, more = *ask;

    if (!terms->most_only)
        out->max_context = largest_that_fits(model, engine, &longer, &longer.context,
                                             cap_find(cap, engine->most_tokens, ask->sequences), terms);
    out->max_sequences = largest_that_fits(model, engine, &more, &more.sequences, most, terms);
    out->at_engine_limit = most < far && out->max_sequences == most;
    out->at_model_limit = model->max_context && out->max_context == cap;
    if (out->max_context == far && !model->max_context)
        out->max_context = KVB_SIZE_UNBOUNDED;
    if (out->max_sequences == far)
        out->max_sequences = KVB_SIZE_UNBOUNDED;
    return 0;
}

/* ---- changes that make a row fit --------------------------------------------------------------------------------- */

enum { CHANGES_MOST = 24, TIMES_MOST = 64, TEXT = 96 };

typedef struct change {
    char options[TEXT];
    kvb_size_ask ask;          /* with the options */
    uint64_t all_weight_bytes; /* the same */
    uint32_t times;            /* as many devices as before */
    uint64_t kept;             /* of what is given up in part, in thousandths */
    const char *what;          /* the name of that; NULL: nothing but devices is given up */
    kvb_size size;
} change;

typedef struct changes {
    change at[CHANGES_MOST];
    size_t n;
} changes;

/* No change but `times` as many ranks. */
static change change_begin(const kvb_size_row *row, uint32_t times)
{
    change c = {.ask = row->ask, .all_weight_bytes = row->terms.all_weight_bytes, .times = times, .kept = 1000};

    c.ask.tp *= times;
    if (times > 1)
        kvb_list_add(c.options, TEXT, " ", "--tp %" PRIu64, c.ask.tp);
    return c;
}

static uint64_t thousandths(uint64_t part, uint64_t whole)
{
    return (uint64_t)((unsigned __int128)part * 1000 / whole);
}

static uint64_t cost_of(const change *c)
{
    return 1000 * (uint64_t)c->times - c->kept;
}

/* Does the row fit with the change? Computes its sizes. */
static bool fits(const kvb_size_row *row, change *c)
{
    kvb_size_terms terms = row->terms;
    char why[256];

    terms.sized_only = true;
    terms.all_weight_bytes = c->all_weight_bytes;
    return kvb_size_weights_share(row->model, &c->ask, &terms, why, sizeof why) == 0 &&
           kvb_size_compute(row->model, row->engine, &c->ask, &terms, &c->size, why, sizeof why) == 0 &&
           c->size.total_bytes <= c->size.budget_bytes;
}

/* Adds the change, in order of costs, if the row fits with it. */
static bool change_add(const kvb_size_row *row, change c, changes *all)
{
    size_t at = all->n;

    if (!fits(row, &c))
        return false;
    if (all->n == CHANGES_MOST)
        return true;
    for (; at > 0 && cost_of(&all->at[at - 1]) > cost_of(&c); at--)
        all->at[at] = all->at[at - 1];
    all->at[at] = c;
    all->n++;
    return true;
}

/* Adds a smaller number of sequences or tokens, as large as fits. what: "the context" */
static void fewer_add(const kvb_size_row *row, const char *what, uint64_t most, changes *all)
{
    const char *option = what + strlen("the ");
    change c = change_begin(row, 1);
    uint64_t *at = *option == 's' ? &c.ask.sequences : &c.ask.context;

    if (!most || most >= *at)
        return;
    c.kept = thousandths(most, *at);
    c.what = what;
    *at = most;
    kvb_list_add(c.options, TEXT, " ", "--%s %" PRIu64, option, most);
    change_add(row, c, all);
}

/* Adds, with `times` as many ranks, the largest of the engine's smaller weights that fit. */
static void weights_add(const kvb_size_row *row, uint32_t times, changes *all)
{
    const char *words = row->engine->weights ? row->engine->weights : "";
    char word[KVB_NAME_BYTES], why[256];

    while (*words) {
        change c = change_begin(row, times);

        words = kvb_names_next(words, word);
        if (kvb_weights_bytes(&row->model->parameters, word, &c.all_weight_bytes, why, sizeof why) ||
            c.all_weight_bytes >= row->terms.all_weight_bytes)
            continue;
        c.kept = thousandths(c.all_weight_bytes, row->terms.all_weight_bytes);
        c.what = "the weights' bytes";
        kvb_list_add(c.options, TEXT, " ", "--weights %s", word);
        if (change_add(row, c, all))
            return;
    }
}

/* Adds, with `times` as many ranks, the asked format if it fits, else the largest smaller format that does. Returns
 * whether the asked one fits. */
static bool ranks_add(const kvb_size_row *row, uint32_t times, changes *all)
{
    const uint64_t asked = row->size.held.kv_bytes;
    change c = change_begin(row, times), alone = change_begin(row, 1), best = c;
    uint64_t most = 0;

    if (times > 1 && change_add(row, c, all))
        return true;
    weights_add(row, times, all);
    for (const kvb_kv_format *f = kvb_kv_formats; f->name; f++) {
        c.ask.k = c.ask.v = alone.ask.k = alone.ask.v = f;
        if (!fits(row, &c) || (fits(row, &alone), alone.size.held.kv_bytes >= asked) ||
            alone.size.held.kv_bytes <= most)
            continue;
        best = c;
        most = alone.size.held.kv_bytes;
    }
    if (most) {
        best.kept = thousandths(most, asked);
        best.what = "KV's bytes";
        kvb_list_add(best.options, TEXT, " ", "--kv %s", best.ask.k->name);
        change_add(row, best, all);
    }
    return false;
}

/* Adds the smallest multiple of the pipeline's stages that fits. */
static void stages_add(const kvb_size_row *row, changes *all)
{
    for (uint32_t times = 2; times <= TIMES_MOST && row->ask.pp * times <= row->model->n_layers; times *= 2) {
        change c = change_begin(row, 1);

        c.times = times;
        c.ask.pp *= times;
        kvb_list_add(c.options, TEXT, " ", "--pp %" PRIu64, c.ask.pp);
        if (change_add(row, c, all))
            return;
    }
}

static void changes_find(const kvb_size_row *row, changes *all)
{
    fewer_add(row, "the sequences", row->size.max_sequences, all);
    fewer_add(row, "the context", row->size.max_context, all);
    if (!row->terms.n_stages)
        stages_add(row, all);
    for (uint32_t times = 1; times <= TIMES_MOST && row->ask.tp * times <= 65536; times *= 2)
        if (ranks_add(row, times, all))
            return;
}

/* people: without the model's name, which is in the heading. */
static void suggest_row_add(kvb_table *table, const kvb_size_row *row, const change *c, bool people)
{
    const uint64_t total = c->size.total_bytes, budget = c->size.budget_bytes;
    char gives_up[TEXT] = "";

    if (c->times > 1)
        kvb_list_add(gives_up, TEXT, "", "%u times the devices", c->times);
    if (c->what)
        kvb_list_add(gives_up, TEXT, ", ", "%.1f %% of %s", (double)(1000 - c->kept) / 10, c->what);
    if (people)
        kvb_table_put(table, "%s\t%" PRIu64 "\t%" PRIu64 "\t%s\t%s\t%s\t%s", row->engine->name, row->ask.context,
                      row->ask.sequences, c->options, gives_up, kvb_bytes_text((double)total).text,
                      kvb_bytes_text((double)budget).text);
    else
        kvb_table_put(table, "%s\t%s\t%" PRIu64 "\t%" PRIu64 "\t%s\t%s\t%" PRIu64 "\t%" PRIu64, row->model->name,
                      row->engine->name, row->ask.context, row->ask.sequences, c->options, gives_up, total, budget);
}

/* Prints n rows as one table. */
static int table_print(const kvb_size_row *rows, size_t n, kvb_table_format format, FILE *out)
{
    bool people = kvb_table_is_for_people(format);
    kvb_table *table =
        kvb_table_new((people ? (const char *const[]){"engine", ">context", ">sequences", "change", "gives up",
                                                      ">total", ">may take", NULL}
                              : (const char *const[]){"model", "engine", ">context", ">sequences", "change", "gives_up",
                                                      ">total_bytes", ">budget_bytes", NULL}));

    for (const kvb_size_row *row = rows; row < rows + n; row++) {
        change asked = {.size = row->size};
        changes all = {.n = 0};
        bool good = row->size.total_bytes <= row->size.budget_bytes;

        if (row->error || !row->terms.weights_known)
            continue;
        if (!good)
            changes_find(row, &all);
        snprintf(asked.options, TEXT, "%s", good ? "none: it fits" : all.n ? "as asked" : "nothing here fits");
        suggest_row_add(table, row, &asked, people);
        for (size_t c = 0; c < all.n; c++)
            suggest_row_add(table, row, &all.at[c], people);
    }
    return kvb_table_end(table, format, out);
}

int kvb_size_suggest(const kvb_sizes *rows, kvb_table_format format, FILE *out)
{
    const bool people = kvb_table_is_for_people(format);
    int error = 0;

    for (size_t i = 0, n; i < rows->n && !error; i += n) {
        const kvb_size_row *row = &rows->at[i];

        for (n = 1; i + n < rows->n && (!people || row[n].model == row->model); n++)
            ;
        if (people)
            fprintf(out, "%s%s:\n\n", i ? "\n" : "", row->model->name);
        if (people && !row->terms.weights_known)
            fprintf(out, "weights: %s\n", row->terms.weights_why);
        else
            error = table_print(row, n, format, out);
    }
    return error ? error : ferror(out) ? -EIO : 0;
}
