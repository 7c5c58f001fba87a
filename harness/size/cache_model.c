/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the groups of a sized model into the groups that caches are opened with. */
#include "harness/size/weights.h"
#include "harness/size/cache_model.h"
#include "harness/size/engines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "kernels/scan.h"
#include "workloads/files.h"

static bool has_rows(const kvb_sized_group *g)
{
    return kvb_sized_attends(g) && g->n > 0;
}

/* Recurrences of kernels/scan.h, by their names in sizing. */
static const struct {
    const char *name;
    kvb_scan_kind kind;
} scans[] = {{"Mamba-1", KVB_SCAN_MAMBA1},
             {"Mamba-2", KVB_SCAN_MAMBA2},
             {"gated DeltaNet", KVB_SCAN_DELTA},
             {"lightning attention", KVB_SCAN_LIGHTNING}};
enum { SCANS = sizeof scans / sizeof *scans };

static size_t scan_of(const kvb_sized_group *g)
{
    size_t i = 0;
    while (i < SCANS && strcmp(scans[i].name, g->name) != 0)
        i++;
    return i;
}

/* Does a cache of kvbench hold the group? */
static bool is_held(const kvb_sized_group *g)
{
    return has_rows(g) || (g->kind == KVB_SIZED_STATE && g->n > 0 && scan_of(g) < SCANS);
}

static kvb_group state_of(const kvb_sized_group *g, kvb_elem elem)
{
    const uint32_t width = g->conv_width;
    return (kvb_group){.kind = KVB_GROUP_SCAN,
                       .scan = {.kind = scans[scan_of(g)].kind,
                                .heads = g->state_heads,
                                .groups = g->state_groups,
                                .d_k = g->state_k,
                                .d_v = g->state_v,
                                .conv_width = width,
                                .conv_channels = width > 1 ? (uint32_t)(g->conv_elements / (width - 1)) : 0,
                                .silu = width > 0,
                                .state_elem = g->state_f32 ? KVB_F32 : elem,
                                .conv_elem = elem}};
}

static kvb_group group_of(const kvb_sized_group *g)
{
    bool latent = g->kind == KVB_SIZED_LATENT, one = !g->v_dim; /* V is the row of K, whole */
    kvb_group group = {
        .kv_heads = latent ? 1 : g->kv_heads,
        .k_dim = latent ? g->latent_dim + g->rope_dim : g->k_dim,
        .v_dim = latent ? g->latent_dim
                 : one  ? g->k_dim
                        : g->v_dim,
        .latent = latent || one,
        .window = g->kind == KVB_SIZED_WINDOW ? g->window : 0,
        .sinks = g->kind == KVB_SIZED_WINDOW ? g->sinks : 0,
        .chunk = g->kind == KVB_SIZED_CHUNK ? g->window : 0,
        .scale = 1,
    };
    group.heads = group.kv_heads && g->heads && g->heads % group.kv_heads == 0 ? g->heads : group.kv_heads;
    return group;
}

/* Do two groups keep the same rows or states? Query heads do not matter. */
static bool same_rows(const kvb_group *a, const kvb_group *b)
{
    const kvb_group_scan *s = &a->scan, *t = &b->scan;
    if (kvb_group_scans(a) != kvb_group_scans(b) || s->kind != t->kind || s->heads != t->heads || s->d_k != t->d_k ||
        s->d_v != t->d_v || s->conv_width != t->conv_width || s->conv_channels != t->conv_channels ||
        s->state_elem != t->state_elem || s->conv_elem != t->conv_elem)
        return false;
    return a->kv_heads == b->kv_heads && a->k_dim == b->k_dim && a->v_dim == b->v_dim && a->latent == b->latent &&
           a->window == b->window && a->sinks == b->sinks && a->chunk == b->chunk;
}

/* Adds n layers of the group to the model. False: too many layers or groups. */
static bool layers_add(kvb_model *model, const kvb_group *group, uint32_t n)
{
    uint32_t at = 0;
    while (at < model->n_groups && !same_rows(&model->groups[at], group))
        at++;
    if (at == KVB_MODEL_GROUPS || n > KVB_MODEL_LAYERS - model->n_layers)
        return false;
    if (at == model->n_groups)
        model->groups[model->n_groups++] = *group;
    for (uint32_t i = 0; i < n; i++)
        model->group_of[model->n_layers++] = (uint8_t)at;
    return true;
}

int kvb_size_cache_model(const kvb_sized_model *sized, uint64_t context, const char *state, kvb_model *model, char *why,
                         size_t why_bytes)
{
    const kvb_elem elem = state && !strcmp(state, "bf16")  ? KVB_BF16
                          : state && !strcmp(state, "f16") ? KVB_F16
                                                           : KVB_F32;
    *model = (kvb_model){0};
    for (size_t i = 0; i < sized->n_groups; i++) {
        if (!is_held(&sized->groups[i]))
            continue;
        kvb_group group = has_rows(&sized->groups[i]) ? group_of(&sized->groups[i]) : state_of(&sized->groups[i], elem);
        if (kvb_sized_grows(sized, &sized->groups[i], context))
            group.window = group.sinks = group.chunk = 0;
        if (layers_add(model, &group, sized->groups[i].n))
            continue;
        snprintf(why, why_bytes, "more than %u layers or %u kinds of layers", KVB_MODEL_LAYERS, KVB_MODEL_GROUPS);
        return -ENOTSUP;
    }
    if (model->n_layers)
        return kvb_model_check(model, why, why_bytes) ? -ENOTSUP : 0;
    return kvb_why_set(-ENOTSUP, why, why_bytes, "no layer keeps rows or states");
}

void kvb_size_few_layers(const kvb_model *model, uint32_t most, kvb_model *few)
{
    *few = (kvb_model){0};
    for (uint32_t g = 0; g < model->n_groups; g++) {
        uint32_t n = kvb_model_layers_of(model, g);
        layers_add(few, &model->groups[g], n < most ? n : most);
    }
}

/* ---- configs from files, folders and standard input -------------------------------------------------------------- */

enum { MOST = 16 << 20 }; /* bytes of a config: the longest are a few hundred thousand */

static int file_open(FILE *file, const char *name, kvb_sized_model **model, char *why, size_t why_bytes)
{
    char *text = malloc(MOST + 1);
    const size_t n = text ? fread(text, 1, MOST + 1, file) : 0;
    int error = !text ? -ENOMEM : ferror(file) ? -EIO : n > MOST ? -EFBIG : 0;

    if (error)
        snprintf(why, why_bytes, "%s: %s", name, strerror(-error));
    else if (n == 0) {
        snprintf(why, why_bytes, "%s: is empty, expected a config.json", name);
        error = -EINVAL;
    } else
        error = kvb_sized_model_read(text, n, NULL, name, model, why, why_bytes);
    free(text);
    return error;
}

/* Does the word look like a path rather than a model's name? */
static bool is_path(const char *word)
{
    size_t n = strlen(word);

    return word[0] == '/' || word[0] == '.' || (n > 5 && strcmp(word + n - 5, ".json") == 0);
}

/* Extracts "meta-llama/Llama-3.1-8B" from "https://huggingface.co/meta-llama/Llama-3.1-8B/tree/main". NULL: the word is no
 * such address. */
static const char *hub_name(const char *word, char *name, size_t bytes)
{
    static const char *const hubs[] = {"https://huggingface.co/", "huggingface.co/", "https://hf.co/", "hf.co/",
                                       "hf://"};
    for (size_t i = 0; i < sizeof hubs / sizeof *hubs; i++) {
        const char *rest = word + strlen(hubs[i]);
        if (strncasecmp(word, hubs[i], strlen(hubs[i])) != 0)
            continue;
        size_t n = strcspn(rest, "/");
        n += rest[n] ? 1 + strcspn(rest + n + 1, "/?#") : 0;
        snprintf(name, bytes, "%.*s", (int)(n < bytes ? n : bytes - 1), rest);
        return name;
    }
    return NULL;
}

static int gguf_open(const char *path, kvb_sized_model **model, char *why, size_t why_bytes)
{
    json_t *config;
    int error = kvb_gguf_config(path, &config, why, why_bytes);

    error = error ? error : kvb_sized_model_read(NULL, 0, config, path, model, why, why_bytes);
    json_decref(config);
    return error;
}

int kvb_size_open(const char *word, kvb_sized_model **model, char *why, size_t why_bytes)
{
    struct stat info;
    char path[4096];
    const char *hub = hub_name(word, path, sizeof path);

    if (hub)
        return kvb_sized_model_built_in(hub, model, why, why_bytes);

    const size_t n = strlen(word);
    const char *slash = strrchr(word, '/');
    const bool weights = kvb_weights_is_file(word);

    if (weights && strcmp(word + n - 5, ".gguf") == 0)
        return gguf_open(word, model, why, why_bytes);
    if (strcmp(word, "-") == 0)
        return file_open(stdin, "stdin", model, why, why_bytes);
    if (stat(word, &info) && !is_path(word) && !weights)
        return kvb_sized_model_built_in(word, model, why, why_bytes);
    if (weights) /* the config lies beside it */
        snprintf(path, sizeof path, "%.*sconfig.json", slash ? (int)(slash + 1 - word) : 0, word);
    else
        snprintf(path, sizeof path, stat(word, &info) == 0 && S_ISDIR(info.st_mode) ? "%s/config.json" : "%s", word);
    FILE *file = fopen(path, "r");

    if (!file) {
        int error = errno;

        snprintf(why, why_bytes, "%s: %s", path, strerror(error));
        return -error;
    }
    int error = file_open(file, path, model, why, why_bytes);

    fclose(file);
    return error;
}

int kvb_size_shape(const char *name, kvb_sized_model **sized, kvb_model *shape, char *why, size_t why_bytes)
{
    kvb_model model;
    int error = kvb_size_open(name, sized, why, why_bytes);
    error = error ? error : kvb_size_cache_model(*sized, 1 << 20, NULL, &model, why, why_bytes);
    if (!error)
        kvb_size_few_layers(&model, 1, shape);
    return error;
}

const char *kvb_size_label(const kvb_sized_model *sized)
{
    const char *slash = sized ? strrchr(sized->name, '/') : NULL;
    return slash ? slash + 1 : sized ? sized->name : NULL;
}

const char *kvb_size_not_held(const kvb_sized_model *model, size_t at, char *text, size_t bytes)
{
    for (const kvb_sized_group *g = model->groups; g < model->groups + model->n_groups; g++) {
        bool parts[] = {g->kind != KVB_SIZED_NONE && !is_held(g), has_rows(g) && g->index_dim > 0};
        const char *const lacks[] = {g->kind == KVB_SIZED_STATE ? "that recurrence" : "such rows",
                                     "the keys of an indexer"};
        for (size_t p = 0; p < 2; p++) {
            if (!parts[p] || at-- > 0)
                continue;
            snprintf(text, bytes, "%u layers of %s: no cache for %s", g->n, g->name, lacks[p]);
            return text;
        }
    }
    return NULL;
}

/*
 * The memory of kvbench's own caches for a model: a cache is opened with counted pools and takes the steps of a history.
 * Every sequence is prefilled in chunks, one sequence after the other; then all of them take their last token in one
 * step.
 */
enum { FIRST_CHUNK = 256 };   /* cells: as `kvbench run` */
enum { MOST_STEP = 1 << 20 }; /* tokens: the tables of a step are allocated, not counted */
enum { WHOLE = 1 << 20 };     /* tokens: a shorter history is played whole if shortening is not exact */
enum { WIDE_CHUNKS = 8 };     /* chunks: the width to which a longer history cuts windows */
enum { MANY_CHUNKS = 14 };    /* chunks that the first two sequences get after their windows are full */
enum { SEQUENCES = 256 };     /* with windows and more, these and half of them are played; the rest is extrapolated */
enum { WINDOW_CHUNK = 256 };  /* tokens: a windowed layer holds its window and the current step */

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
    else if (ask->batch > MOST_STEP && ask->context > MOST_STEP)
        snprintf(why, why_bytes, "the history of kvbench has steps of up to %d tokens", MOST_STEP);
    else
        return 0;
    return -ENOTSUP;
}

/* ---- the history ----------------------------------------------------------------------------------------------- */

/* A cache, and the steps that it takes. */
typedef struct question {
    const kvb_cache_type *cache;
    kvb_model model;
    kvb_cache_options options;
    uint32_t sequences, context;
    uint32_t chunk;                 /* most tokens of a prefill step */
    uint32_t followed, others;      /* tokens that are played of each of the first two sequences, of each other one */
    uint32_t others_chunk;          /* most tokens of the others' prefill steps */
    uint32_t cut[KVB_MODEL_GROUPS]; /* tokens by which a group's window is played too narrow */
} question;

static uint32_t least(uint64_t a, uint64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

/* Shortens a context by whole periods, to not less than `enough` tokens. */
static uint32_t tokens_followed(uint64_t context, uint64_t enough, uint64_t period)
{
    return (uint32_t)(context < enough + period ? context : enough + (context - enough) % period);
}

/* Makes windows narrower by whole chunks, down to WIDE_CHUNKS. Returns the largest cut in tokens. */
static uint32_t windows_cut(question *q)
{
    uint32_t most = 0;
    for (uint32_t g = 0; g < q->model.n_groups; g++) {
        kvb_group *group = &q->model.groups[g];
        if (group->window > WIDE_CHUNKS * q->chunk)
            q->cut[g] = (group->window - WIDE_CHUNKS * q->chunk) / q->chunk * q->chunk;
        group->window -= q->cut[g];
        most = q->cut[g] > most ? q->cut[g] : most;
    }
    return most;
}

/*
 * A long history is not played token by token. In a group that keeps every token a further chunk takes cells and nothing
 * else, and cells are counted without being played. Windows and states repeat themselves once they are full. Only the
 * first two sequences make a step's tables grow, as the plan in force and the next plan take turns; so without windows
 * the others' steps have only as many tokens as leave a state.
 *
 * This is exact, with two exceptions: windows, and sequences with more states than a chunk has tokens. Their cells come
 * to lie in more and more pieces. Such histories are played whole up to WHOLE tokens. In longer ones the tables are
 * approximate, and whole chunks of wide windows and sequences beyond SEQUENCES are counted without being played.
 */
static void history_shorten(question *q)
{
    uint64_t full = 0, period = q->chunk; /* full: tokens after which each window and state is full */
    bool drifts = false;                  /* do a sequence's cells come to lie in more and more pieces? */
    q->followed = q->others = q->context;
    q->others_chunk = q->chunk;
    for (uint32_t g = 0; g < q->model.n_groups; g++)
        drifts = drifts || (kvb_group_scans(&q->model.groups[g]) ? q->options.state_depth >= q->chunk
                                                                 : kvb_group_limits(&q->model.groups[g]));
    if (drifts && (uint64_t)q->sequences * q->context <= WHOLE)
        return;
    const uint32_t context = q->context - windows_cut(q);
    for (uint32_t g = 0; g < q->model.n_groups; g++) {
        const kvb_group *group = &q->model.groups[g];
        const uint64_t limit = kvb_group_scans(group) ? 1 + (uint64_t)q->options.state_depth
                                                      : (uint64_t)group->window + group->chunk + group->sinks;
        full = limit > full ? limit : full;
        period = group->chunk > period ? group->chunk : period; /* a sequence keeps the tokens of its last chunk */
    }
    q->followed = tokens_followed(context, full + MANY_CHUNKS * (uint64_t)q->chunk, period);
    q->others = tokens_followed(context, full + 2 * (uint64_t)q->chunk, period);
    if (!drifts) {
        const uint32_t steps = (q->others - 1) / q->chunk, rest = (q->others - 1) % q->chunk;
        q->others_chunk = least(q->chunk, q->options.state_depth + (uint64_t)2);
        q->others = 1 + steps * q->others_chunk + least(rest, q->others_chunk);
    }
}

static uint64_t steps;

uint64_t kvb_size_steps_played(void)
{
    return steps;
}

/* Prefills one sequence with so many tokens, in steps of `chunk`. ids [chunk]. */
static int prefill(kvb_cache *cache, uint32_t seq, uint32_t tokens, uint32_t chunk, uint32_t *ids)
{
    int error = 0;
    for (uint32_t i = 0; i < chunk; i++)
        ids[i] = seq;
    for (uint32_t done = 0, n; done < tokens && !error; done += n) {
        n = least(tokens - done, chunk);
        error = kvb_cache_begin_step(cache, ids, n);
        steps++;
    }
    return error;
}

/* Plays the history. ids [the larger of chunk and sequences]. */
static int steps_take(const question *q, kvb_cache *cache, uint32_t *ids)
{
    int error = 0;
    for (uint32_t s = 0; s < q->sequences && !error; s++)
        error = prefill(cache, s, (s > 1 ? q->others : q->followed) - 1, s > 1 ? q->others_chunk : q->chunk, ids);
    for (uint32_t s = 0; s < q->sequences; s++)
        ids[s] = s;
    return error ? error : kvb_cache_begin_step(cache, ids, q->sequences);
}

/* Bytes of a group's cells in cache window, if the window were `more` tokens wider than the played one. */
static uint64_t window_bytes(const question *q, uint32_t group, uint32_t more, uint32_t first, uint64_t cells)
{
    const kvb_group *g = &q->model.groups[group];
    kvb_cache_options o = q->options;
    o.capacity = least(o.capacity, q->sequences * ((uint64_t)g->window + more + g->sinks - 1) + o.step);
    return kvb_cache_cells_bytes(q->cache, &q->model, &o, group, first, least(cells, o.capacity));
}

/* Bytes of the tokens that were not played. */
static uint64_t rest_bytes(const question *q, const kvb_cache *cache)
{
    const uint64_t all = (uint64_t)q->sequences * q->context,
                   whole = q->sequences < 2 ? q->sequences : 2, /* sequences */
        played = whole * q->followed + (q->sequences - whole) * q->others;
    const uint32_t first = least(q->chunk, q->context - (uint64_t)1);
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < q->model.n_groups && played < all; g++)
        if (!kvb_group_scans(&q->model.groups[g]) &&
            (q->cache != &kvb_cache_window || !kvb_group_limits(&q->model.groups[g])))
            bytes += kvb_cache_cells_bytes(q->cache, &q->model, &q->options, g, first, (uint32_t)all) -
                     kvb_cache_cells_bytes(q->cache, &q->model, &q->options, g, first, (uint32_t)played);
    for (uint32_t g = 0; g < q->model.n_groups; g++) {
        kvb_cache_usage usage;
        kvb_cache_usage_of(cache, g, &usage);
        if (q->cut[g])
            bytes += window_bytes(q, g, q->cut[g], first, usage.high_water + (uint64_t)q->sequences * q->cut[g]) -
                     window_bytes(q, g, 0, first, usage.high_water);
    }
    return bytes;
}

/* Plays the history. *bytes: what the cache's allocator holds at its end. */
static int history_play(question *q, uint64_t *bytes, char *why, size_t why_bytes)
{
    kvb_allocator allocator = {0};
    kvb_cache *cache = NULL;
    uint32_t *ids = calloc(q->chunk > q->sequences ? q->chunk : q->sequences, sizeof *ids);
    q->options.allocator = &allocator;
    q->options.counted = true;
    history_shorten(q);
    int error = ids ? kvb_cache_open(q->cache, &q->model, &q->options, &cache, why, why_bytes) : -ENOMEM;
    if (!error) {
        error = steps_take(q, cache, ids);
        if (error)
            snprintf(why, why_bytes, "%s", kvb_cache_why(cache));
        *bytes = allocator.current_bytes + rest_bytes(q, cache);
    } else if (error == -ENOMEM)
        snprintf(why, why_bytes, "no memory for a cache's tables");
    kvb_cache_close(cache);
    for (uint32_t g = 0; g < q->model.n_groups; g++)
        q->model.groups[g].window += q->cut[g];
    free(ids);
    return error;
}

/* ---- the answer ------------------------------------------------------------------------------------------------ */

/* Bytes of a sequence's last states in the layers of a group. */
static uint64_t states_bytes(const question *q, uint32_t group)
{
    const kvb_group *g = &q->model.groups[group];
    return kvb_model_layers_of(&q->model, group) *
           (uint64_t)(kvb_group_slot_bytes(g, false) + kvb_group_slot_bytes(g, true));
}

/* Computes the bytes of a further token of each sequence once windows are full, and of a sequence's full windows. */
static void shares_find(const question *q, kvb_size_allocation *out)
{
    const kvb_cache_options *o = &q->options;
    for (uint32_t i = 0; i < q->model.n_groups; i++) {
        const kvb_group *g = &q->model.groups[i];
        if (kvb_group_scans(g)) {
            out->fixed_bytes_per_sequence += (1 + (uint64_t)o->state_depth) * states_bytes(q, i);
            out->state_bytes += (uint64_t)o->max_seqs * (1 + (uint64_t)o->state_depth) * states_bytes(q, i);
            continue;
        }
        double row = o->k_pool->row_bytes(o->k_pool, g->k_dim);
        if (!g->latent)
            row += o->v_pool->row_bytes(o->v_pool, g->v_dim);
        row *= (double)g->kv_heads * kvb_model_layers_of(&q->model, i);
        if (kvb_group_limits(g)) /* without the cell of the next token, which belongs to the step */
            out->fixed_bytes_per_sequence += (uint64_t)(row * ((double)g->window + g->chunk + g->sinks - 1));
        else
            out->bytes_per_token += row;
        if (!kvb_group_limits(g) && q->cache != &kvb_cache_contiguous)
            out->bytes_per_token += sizeof(uint16_t); /* the number of sequences that hold the cell */
    }
}

/* Plays the history with so many sequences. */
static int sequences_play(question *q, uint32_t sequences, uint64_t *bytes, char *why, size_t why_bytes)
{
    q->sequences = q->options.seq_ids = q->options.max_seqs = sequences;
    q->options.capacity = sequences * q->context;
    q->options.step = q->chunk > sequences ? q->chunk : sequences;
    return history_play(q, bytes, why, why_bytes);
}

static int allocate(const kvb_sized_model *sized, const kvb_size_ask *ask, kvb_size_allocation *out, char *why,
                    size_t why_bytes)
{
    question q = {.sequences = (uint32_t)ask->sequences, .context = (uint32_t)ask->context};
    char ignored[160];
    int error = ask_check(sized, ask, why, why_bytes);
    if (!error)
        error = kvb_size_cache_model(sized, ask->context, ask->state, &q.model, why, why_bytes);
    if (error)
        return error;
    const bool windows = kvb_cache_window.serves(&q.model, ignored, sizeof ignored);
    const uint32_t batch = ask->batch ? (uint32_t)ask->batch : kvb_size_engine_kvbench.batch;
    q.chunk = windows && batch > WINDOW_CHUNK ? WINDOW_CHUNK : windows ? batch : least(batch, ask->context);
    q.cache = windows ? &kvb_cache_window : q.sequences == 1 ? &kvb_cache_contiguous : &kvb_cache_seq;
    q.options = (kvb_cache_options){.seq_capacity = q.context,
                                    .state_depth = (uint32_t)ask->spec_depth,
                                    .min_chunk = FIRST_CHUNK,
                                    .growth = KVB_GROWTH_DOUBLE,
                                    .k_pool = kvb_size_pool_find(ask->k->name),
                                    .v_pool = kvb_size_pool_find(ask->v->name)};
    const bool even = windows && ask->sequences > SEQUENCES && ask->sequences * ask->context > WHOLE;
    const uint32_t played = even ? SEQUENCES : (uint32_t)ask->sequences;
    uint64_t half = 0;
    if (even)
        error = sequences_play(&q, played / 2, &half, why, why_bytes);
    if (!error)
        error = sequences_play(&q, played, &out->kv_bytes, why, why_bytes);
    if (error)
        return error;
    if (even)
        out->kv_bytes += kvb_ceil_div(out->kv_bytes - half, played / 2) * (ask->sequences - played);
    q.options.max_seqs = (uint32_t)ask->sequences;
    shares_find(&q, out);
    out->kv_bytes -= out->state_bytes;
    return 0;
}

const kvb_size_engine kvb_size_engine_kvbench = {
    .name = "kvbench",
    .source = "the caches themselves, with counted pools (harness/size/cache_model.c)",
    .batch = 512,
    .most_sequences = KVB_MAX_SEQS,
    .most_tokens = UINT32_MAX,
    .costly = true,
    .allocate = allocate,
};
