/* SPDX-License-Identifier: Apache-2.0 */
/* The host of every cache; the names of a cache's abilities; the check of its options. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "caches/front.h"
#include "caches/store_host.h"

static const struct {
    uint32_t flag, does; /* any flag of `does` suffices */
    const char *call;    /* NULL: no call */
    const char *lack;
} faces[] = {
    {KVB_CACHE_SEQ, KVB_CACHE_SEQ, "sequences", "several sequences"},
    {KVB_CACHE_REORDER, KVB_CACHE_REORDER, "reordering", "reordering of sequences"},
    {KVB_CACHE_TREE, KVB_CACHE_TREE, "draft trees", "propose and commit"},
    {KVB_CACHE_REWIND, KVB_CACHE_REWIND | KVB_CACHE_SEQ, "rewind", "rewind"},
    {KVB_CACHE_SHIFT, KVB_CACHE_SHIFT, "position shifts", "seq_add"},
    {KVB_CACHE_DIVIDE, KVB_CACHE_DIVIDE, "position division", "seq_div"},
    {KVB_CACHE_SAVES, KVB_CACHE_SAVES, "save and load", "save and load"},
    {KVB_CACHE_PREFIX, KVB_CACHE_PREFIX, "prefix matches", "seq_match"},
    {KVB_CACHE_FREEZES, KVB_CACHE_FREEZES, "frozen prefixes", "freeze and seq_over"},
    {KVB_CACHE_EXACT, KVB_CACHE_EXACT, NULL, "an exact capacity, by which steps are to be refused"},
};
#define N_FACES (sizeof faces / sizeof *faces)

const char *kvb_cache_lacks(const kvb_cache_type *type, uint32_t flags)
{
    for (size_t i = 0; i < N_FACES; i++)
        if (flags & faces[i].flag && !(type->flags & faces[i].does))
            return faces[i].lack;
    return NULL;
}

void kvb_cache_can(const kvb_cache_type *type, char *text, size_t bytes)
{
    size_t at = 0;
    *text = '\0';
    for (size_t i = 0; i < N_FACES && at < bytes; i++)
        if (faces[i].call && type->flags & faces[i].does)
            at += (size_t)snprintf(text + at, bytes - at, ", %s", faces[i].call);
}

bool kvb_cache_takes(const kvb_cache_type *type, const kvb_pool_type *k_pool, const kvb_pool_type *v_pool, char *why,
                     size_t why_bytes)
{
    const kvb_pool_type *pools[] = {k_pool, v_pool};
    for (int v = 0; v < 2 && type->flags & KVB_CACHE_FREEZES; v++)
        if (pools[v]->format->residual_cells || !pools[v]->raw_bytes) {
            snprintf(why, why_bytes, "cache %s copies rows as they are stored, which pool %s cannot", type->name,
                     pools[v]->name);
            return false;
        }
    return true;
}

/* Can a cache have these options? 0, -EINVAL or -ENOTSUP with why. */
static int options_check(const kvb_cache_type *type, const kvb_model *model, const kvb_cache_options *o, char *why,
                         size_t why_bytes)
{
    const uint32_t most = UINT32_MAX;
    const struct {
        const char *what;
        uint32_t got, most;
        const char *of;
    } limits[] = {{"capacity", o->capacity, most, ""},
                  {"seq_capacity", o->seq_capacity, most, ""},
                  {"min_chunk", o->min_chunk, most, ""},
                  {"seq_ids", o->seq_ids, KVB_MAX_SEQS, ""},
                  {"max_seqs", o->max_seqs, o->seq_ids, ", the number of sequence ids"}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (!limits[i].got || limits[i].got > limits[i].most) {
            snprintf(why, why_bytes, "%s must be 1 .. %u%s", limits[i].what, limits[i].most, limits[i].of);
            return -EINVAL;
        }
    const int error = kvb_model_check(model, why, why_bytes);
    if (error)
        return error;
    if (!kvb_cache_takes(type, o->k_pool, o->v_pool, why, why_bytes) ||
        (type->serves && !type->serves(model, why, why_bytes)))
        return -ENOTSUP;
    for (uint32_t g = 0; g < model->n_groups; g++) {
        const kvb_group *group = &model->groups[g];
        if (kvb_group_scans(group))
            continue;
        if ((o->k_pool->supports && !o->k_pool->supports(o->k_pool, group->k_dim, why, why_bytes)) ||
            (!group->latent && o->v_pool->supports && !o->v_pool->supports(o->v_pool, group->v_dim, why, why_bytes)))
            return -ENOTSUP;
    }
    return 0;
}

const kvb_cache_type *const kvb_builtin_caches[] = {
    &kvb_cache_recompute, &kvb_cache_slab,         &kvb_cache_contiguous,    &kvb_cache_seq,  &kvb_cache_window,
    &kvb_cache_paged,     &kvb_cache_paged_prefix, &kvb_cache_shared_prefix, &kvb_cache_tree, NULL,
};

const kvb_cache_type *kvb_cache_type_of(const kvb_cache *c)
{
    return c->type;
}

const char *kvb_cache_why(const kvb_cache *c)
{
    return c->why;
}

int kvb_cache_fail(kvb_cache *c, int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->why, sizeof c->why, format, args);
    va_end(args);
    return error;
}

/* ---- opening and closing ------------------------------------------------------------------------------ */

void kvb_cache_close(kvb_cache *c)
{
    if (!c)
        return;
    kvb_allocator *a = c->options.allocator;
    for (uint32_t g = 0; g < c->model->n_groups; g++)
        if (c->stores[g])
            kvb_store_close(c->stores[g]);
    kvb_feed_close(&c->feed, a);
    kvb_feed_close(&c->next_feed, a);
    kvb_account_close(&c->account);
    kvb_free(a, c->matched, c->matched_room * sizeof *c->matched);
    kvb_free(a, c, sizeof *c);
}

int kvb_cache_open(const kvb_cache_type *type, const kvb_model *model, const kvb_cache_options *options,
                   kvb_cache **cache, char *why, size_t why_bytes)
{
    kvb_cache_options o = *options;
    o.page_cells = o.page_cells ? o.page_cells : 16;
    o.seq_ids = o.seq_ids ? o.seq_ids : KVB_SEQ_IDS;
    int error = options_check(type, model, &o, why, why_bytes);
    if (error)
        return error;
    kvb_cache *c = kvb_alloc(options->allocator, sizeof *c);
    if (!c) {
        snprintf(why, why_bytes, "no memory for the cache");
        return -ENOMEM;
    }
    *c = (kvb_cache){.type = type, .model = model, .options = o};
    c->account = (kvb_account){.allocator = options->allocator,
                               .seq_capacity = options->seq_capacity,
                               .max_seqs = options->max_seqs,
                               .n_ids = o.seq_ids};
    uint32_t n_fed = type->flags & KVB_CACHE_FORGETS ? c->account.n_ids : 0;
    error = kvb_account_open(&c->account);
    if (!error)
        error = kvb_feed_open(&c->feed, options->allocator, n_fed);
    if (!error)
        error = kvb_feed_open(&c->next_feed, options->allocator, n_fed);
    for (uint32_t g = 0; g < model->n_groups && !error; g++)
        error = kvb_store_open(c, g);
    if (error) {
        snprintf(why, why_bytes, "%s", *c->why ? c->why : strerror(-error));
        kvb_cache_close(c);
        return error;
    }
    *cache = c;
    return 0;
}

size_t kvb_cache_struct_bytes(const kvb_cache_type *type, const kvb_model *model)
{
    const size_t pools = 2 * (size_t)model->n_layers * sizeof(kvb_pool *);
    size_t bytes = sizeof(kvb_cache);
    for (uint32_t g = 0; g < model->n_groups; g++)
        bytes += kvb_store_policy(type, &model->groups[g])->store_bytes + pools;
    return bytes;
}

/* ---- control calls --------------------------------------------------------------------------------------- */

static bool brings_tokens(const kvb_change *change)
{
    return change->kind == KVB_CHANGE_STEP || change->kind == KVB_CHANGE_PROPOSE;
}

/* Would the change be refused, except for lack of memory or by a policy? 0, -EINVAL or -ENOSPC. */
static int admission_check(const kvb_cache *c, const kvb_change *change, char *why, size_t why_bytes)
{
    int error = kvb_account_check(&c->account, change, why, why_bytes);
    for (uint32_t g = 0; g < c->model->n_groups && !error && brings_tokens(change); g++) {
        uint32_t room = kvb_store_room(c->stores[g], change);
        if (change->n <= room)
            continue;
        snprintf(why, why_bytes, "no room for %u tokens: there is room for %u", change->n, room);
        error = -ENOSPC;
    }
    return error;
}

static int change_make(kvb_cache *c, const kvb_change *change)
{
    const kvb_feed *feed = brings_tokens(change) ? &c->next_feed : NULL;
    uint32_t prepared = 0, n_groups = c->model->n_groups;
    c->why[0] = '\0';
    int error = admission_check(c, change, c->why, sizeof c->why);
    if (!error)
        error = kvb_account_reserve(&c->account, change);
    if (!error && feed)
        error = kvb_feed_make(&c->next_feed, &c->account, change);
    if (!error) {
        for (; prepared < n_groups && !error; prepared += !error)
            error = kvb_store_prepare(c->stores[prepared], change, feed);
        for (uint32_t g = 0; error && g < prepared; g++)
            kvb_store_undo(c->stores[g], change, feed);
        if (error && feed)
            kvb_account_withdraw(&c->account, change, kvb_feed_new(feed));
    }
    if (error)
        return *c->why ? error : kvb_cache_fail(c, error, "no memory for a step of %u tokens", change->n);
    if (!feed)
        kvb_account_apply(&c->account, change);
    for (uint32_t g = 0; g < n_groups; g++)
        kvb_store_adopt(c->stores[g], change, feed);
    if (feed) {
        memset(c->fetched, 0, sizeof c->fetched);
        c->account.shifted = false;
        kvb_feed old = c->feed;
        c->feed = c->next_feed;
        c->next_feed = old;
    }
    c->planned = feed != NULL;
    return 0;
}

static int flags_check(kvb_cache *c, uint32_t flags, const char *what)
{
    return c->type->flags & flags ? 0 : kvb_cache_fail(c, -ENOTSUP, "cache %s cannot do %s", c->type->name, what);
}

static int rows_check(kvb_cache *c)
{
    return c->options.counted ? kvb_cache_fail(c, -ENOTSUP, "the rows of this cache are counted, and are not there")
                              : 0;
}

/* The first of these sequences that a cache of one sequence does not have; 0: none. */
static uint32_t seq_lacking(const kvb_cache *c, const uint32_t *seq_ids, uint32_t n)
{
    for (uint32_t i = 0; seq_ids && i < n && !(c->type->flags & KVB_CACHE_SEQ); i++)
        if (seq_ids[i] != 0)
            return seq_ids[i];
    return 0;
}

static int seq_ids_check(kvb_cache *c, const uint32_t *seq_ids, uint32_t n)
{
    const uint32_t seq = seq_lacking(c, seq_ids, n);
    return seq ? kvb_cache_fail(c, -ENOTSUP, "cache %s has one sequence, 0, and no sequence %u", c->type->name, seq)
               : 0;
}

/* Would a STEP or PROPOSE of these sequences be admitted? */
static bool can_admit(const kvb_cache *c, kvb_change_kind kind, const uint32_t *seq_ids, uint32_t n)
{
    char why[200];
    return !seq_lacking(c, seq_ids, n) &&
           !admission_check(c, &(kvb_change){.kind = kind, .n = n, .seq_ids = seq_ids}, why, sizeof why);
}

/* Makes a change that needs one of these abilities. */
static int able_make(kvb_cache *c, uint32_t flags, const char *what, const kvb_change *change)
{
    const int error = flags_check(c, flags, what);
    return error ? error : change_make(c, change);
}

bool kvb_cache_can_extend(const kvb_cache *c, const uint32_t *seq_ids, uint32_t n)
{
    return can_admit(c, KVB_CHANGE_STEP, seq_ids, n);
}

int kvb_cache_begin_step_tokens(kvb_cache *c, const uint32_t *seq_ids, const int32_t *tokens, uint32_t n)
{
    int error = seq_ids_check(c, seq_ids, n);
    return error ? error
                 : change_make(c, &(kvb_change){.kind = KVB_CHANGE_STEP, .n = n, .seq_ids = seq_ids, .tokens = tokens});
}

int kvb_cache_begin_step(kvb_cache *c, const uint32_t *seq_ids, uint32_t n)
{
    return kvb_cache_begin_step_tokens(c, seq_ids, NULL, n);
}

int kvb_cache_seq_match(kvb_cache *c, uint32_t seq, const int32_t *tokens, uint32_t n, uint64_t extra_key,
                        uint32_t *found, const uint64_t **ordinals)
{
    kvb_change change = {.kind = KVB_CHANGE_MATCH, .src = seq, .tokens = tokens, .extra_key = extra_key};
    int error = flags_check(c, KVB_CACHE_PREFIX, "seq_match");
    if (!error && (!tokens || !n || !found || !ordinals))
        error = kvb_cache_fail(c, -EINVAL, "a prompt and a place for the answer must be given");
    if (!error)
        error = kvb_account_check(&c->account, &change, c->why, sizeof c->why);
    if (!error && kvb_grow(c->options.allocator, &c->matched, &c->matched_room, n))
        error = kvb_cache_fail(c, -ENOMEM, "no memory for a prompt of %u tokens", n);
    if (error)
        return error;
    change.n = n - 1;
    for (uint32_t g = 0; g < c->model->n_groups; g++)
        change.n = c->stores[g]->type->match
                       ? c->stores[g]->type->match(c->stores[g], tokens, change.n, extra_key, c->matched)
                       : 0;
    change.ordinals = c->matched;
    error = change_make(c, &change);
    if (error)
        return error;
    *found = change.n;
    *ordinals = c->matched;
    return 0;
}

int kvb_cache_freeze(kvb_cache *c, uint32_t seq, uint32_t n, kvb_allocator *allocator, kvb_frozen **frozen)
{
    int error = flags_check(c, KVB_CACHE_FREEZES, "freeze");
    kvb_frozen *made =
        error ? NULL : kvb_frozen_open(allocator ? allocator : c->options.allocator, n, c->model->n_groups);
    if (!error)
        error = made ? change_make(c, &(kvb_change){.kind = KVB_CHANGE_FREEZE, .src = seq, .p1 = n, .frozen = made})
                     : kvb_cache_fail(c, -ENOMEM, "no memory for a frozen prefix");
    if (error)
        kvb_frozen_release(made);
    else
        *frozen = made;
    return error;
}

int kvb_cache_seq_over(kvb_cache *c, uint32_t seq, kvb_frozen *frozen)
{
    int error = flags_check(c, KVB_CACHE_FREEZES, "seq_over");
    if (!error && kvb_grow(c->options.allocator, &c->matched, &c->matched_room, frozen->n))
        error = kvb_cache_fail(c, -ENOMEM, "no memory for a prefix of %u tokens", frozen->n);
    for (uint32_t i = 0; !error && i < frozen->n; i++)
        c->matched[i] = c->account.next_ordinal + i;
    const kvb_change over = {KVB_CHANGE_MATCH, frozen->n, .src = seq, .ordinals = c->matched, .frozen = frozen};
    return error ? error : change_make(c, &over);
}

int kvb_cache_seq_cp(kvb_cache *c, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1)
{
    const kvb_change change = {.kind = KVB_CHANGE_COPY, .src = src, .dst = dst, .p0 = p0, .p1 = p1};
    return able_make(c, KVB_CACHE_SEQ, "seq_cp", &change);
}

int kvb_cache_seq_rm(kvb_cache *c, uint32_t seq, uint32_t p0, uint32_t p1)
{
    const kvb_change change = {.kind = KVB_CHANGE_REMOVE, .src = seq, .p0 = p0, .p1 = p1};
    return able_make(c, KVB_CACHE_SEQ, "seq_rm", &change);
}

int kvb_cache_seq_keep(kvb_cache *c, uint32_t seq)
{
    const kvb_change change = {.kind = KVB_CHANGE_REMOVE, .src = seq, .others = true, .p1 = KVB_POS_END};
    return able_make(c, KVB_CACHE_SEQ, "seq_keep", &change);
}

int kvb_cache_seq_reorder(kvb_cache *c, const uint32_t *dst, const uint32_t *src, uint32_t n)
{
    const kvb_change change = {.kind = KVB_CHANGE_REORDER, .n = n, .dsts = dst, .srcs = src};
    return able_make(c, KVB_CACHE_REORDER, "seq_reorder", &change);
}

/* Makes a SHIFT. nothing: each token moves to its own position. */
static int positions_move(kvb_cache *c, uint32_t flag, const char *call, kvb_change change, bool nothing)
{
    int error = flags_check(c, flag, call);
    error = error ? error : rows_check(c);
    if (!error && !kvb_turns_support(c->model, c->options.k_pool->format, c->why, sizeof c->why))
        error = -ENOTSUP;
    if (nothing && change.p1 >= change.p0)
        change.p1 = change.p0;
    return error ? error : change_make(c, &change);
}

int kvb_cache_seq_add(kvb_cache *c, uint32_t seq, uint32_t p0, uint32_t p1, int32_t delta)
{
    const kvb_change by = {.kind = KVB_CHANGE_SHIFT, .src = seq, .p0 = p0, .p1 = p1, .delta = delta};
    return positions_move(c, KVB_CACHE_SHIFT, "seq_add", by, delta == 0);
}

int kvb_cache_seq_div(kvb_cache *c, uint32_t seq, uint32_t p0, uint32_t p1, uint32_t divisor)
{
    const kvb_change by = {.kind = KVB_CHANGE_SHIFT, .src = seq, .p0 = p0, .p1 = p1, .divisor = divisor};
    if (!divisor && c->type->flags & KVB_CACHE_DIVIDE)
        return kvb_cache_fail(c, -EINVAL, "positions cannot be divided by 0");
    return positions_move(c, KVB_CACHE_DIVIDE, "seq_div", by, divisor == 1);
}

int kvb_cache_clear(kvb_cache *c)
{
    return change_make(
        c, &(kvb_change){
               .kind = KVB_CHANGE_REMOVE, .src = UINT32_MAX, .others = true, .drops_nodes = true, .p1 = KVB_POS_END});
}

uint32_t kvb_cache_length(const kvb_cache *c, uint32_t seq)
{
    return seq < c->account.n_ids ? kvb_spans_next(&c->account.seq[seq]) : 0;
}

int kvb_cache_rewind(kvb_cache *c, uint32_t len)
{
    uint32_t length = kvb_cache_length(c, 0);
    int error = flags_check(c, KVB_CACHE_REWIND | KVB_CACHE_SEQ, "rewind");
    if (error)
        return error;
    if (len > length)
        return kvb_cache_fail(c, -EINVAL, "cannot rewind to %u: the length is %u", len, length);
    return change_make(c, &(kvb_change){.kind = KVB_CHANGE_REMOVE, .p0 = len, .p1 = KVB_POS_END});
}

int kvb_cache_defrag(kvb_cache *c)
{
    const kvb_format *formats[] = {c->options.k_pool->format, c->options.v_pool->format};
    for (int v = 0; v < 2; v++)
        if (formats[v]->residual_cells)
            return kvb_cache_fail(c, -ENOTSUP, "rows of format '%s' cannot be copied as they are", formats[v]->name);
    return change_make(c, &(kvb_change){.kind = KVB_CHANGE_DEFRAG});
}

bool kvb_cache_can_propose(const kvb_cache *c, const uint32_t *seq_ids, uint32_t n)
{
    return c->type->flags & KVB_CACHE_TREE && can_admit(c, KVB_CHANGE_PROPOSE, seq_ids, n);
}

int kvb_cache_propose(kvb_cache *c, const uint32_t *seq_ids, const int32_t *parents, uint32_t n)
{
    int error = flags_check(c, KVB_CACHE_TREE, "propose");
    if (!error && !parents)
        error = kvb_cache_fail(c, -EINVAL, "the nodes' parents must be given");
    if (!error)
        error = seq_ids_check(c, seq_ids, n);
    return error ? error
                 : change_make(
                       c, &(kvb_change){.kind = KVB_CHANGE_PROPOSE, .n = n, .seq_ids = seq_ids, .parents = parents});
}

int kvb_cache_commit(kvb_cache *c, uint32_t seq, const uint32_t *accepted, uint32_t n)
{
    int error = flags_check(c, KVB_CACHE_TREE, "commit");
    if (!error)
        error = seq_ids_check(c, &seq, 1);
    return error ? error
                 : change_make(c, &(kvb_change){.kind = KVB_CHANGE_COMMIT, .src = seq, .n = n, .accepted = accepted});
}

/* ---- saving and loading ------------------------------------------------------------------------------------ */

static int saved_seq_check(kvb_cache *c, uint32_t seq, const char *what)
{
    int error = flags_check(c, KVB_CACHE_SAVES, what);
    error = error ? error : rows_check(c);
    if (!error && seq != KVB_SEQ_ALL)
        error = seq_ids_check(c, &seq, 1);
    if (!error && seq != KVB_SEQ_ALL && seq >= c->account.n_ids)
        error = kvb_cache_fail(c, -EINVAL, "sequence %u is out of range: 0 .. %u", seq, c->account.n_ids - 1);
    if (!error && c->account.n_nodes)
        error = kvb_cache_fail(c, -EINVAL, "%u nodes are pending: commit first", c->account.n_nodes);
    return error;
}

int kvb_cache_save(kvb_cache *c, uint32_t seq, const char *path)
{
    int error = saved_seq_check(c, seq, "save");
    if (!error && c->account.shifted)
        error = kvb_cache_fail(c, -EINVAL, "positions have moved: their rows are turned with the next step");
    for (uint32_t layer = 0; layer < c->model->n_layers && c->planned && !error; layer++)
        if (!(c->fetched[layer / 64] >> layer % 64 & 1))
            error = kvb_cache_fail(c, -EINVAL, "a step is under way: rows of layer %u have not been stored yet", layer);
    return error ? error : kvb_saved_write(c, seq, path);
}

int kvb_cache_load(kvb_cache *c, uint32_t seq, const char *path)
{
    kvb_saved *saved = NULL;
    int error = saved_seq_check(c, seq, "load");
    if (!error)
        error = kvb_saved_read(c, seq, path, &saved);
    if (!error)
        error = change_make(c, &(kvb_change){.kind = KVB_CHANGE_LOAD, .src = seq, .loaded = kvb_saved_account(saved)});
    kvb_saved_free(saved);
    return error;
}

/* ---- reading ---------------------------------------------------------------------------------------------- */

uint32_t kvb_cache_pending(const kvb_cache *c, uint32_t seq)
{
    return seq < c->account.n_ids ? c->account.pending[seq] : 0;
}

uint32_t kvb_cache_feed(const kvb_cache *c, const uint64_t **ordinals)
{
    if (!c->planned)
        return 0;
    *ordinals = c->feed.ordinals;
    return c->feed.n;
}

static int fetch_check(kvb_cache *c, uint32_t layer, bool scans, const uint32_t *positions, uint32_t n_tok)
{
    if (c->options.counted)
        return rows_check(c);
    if (!c->planned)
        return kvb_cache_fail(c, -EINVAL, "there is no plan: begin a step first");
    if (layer >= c->model->n_layers)
        return kvb_cache_fail(c, -EINVAL, "layer %u does not exist: there are %u", layer, c->model->n_layers);
    if (kvb_group_scans(kvb_model_group(c->model, layer)) != scans)
        return kvb_cache_fail(
            c, -EINVAL, scans ? "layer %u attends: it has no states" : "layer %u scans: it stores no rows", layer);
    if (n_tok != c->feed.n)
        return kvb_cache_fail(c, -EINVAL, "%u tokens are given, the plan wants %u", n_tok, c->feed.n);
    for (uint32_t i = 0; i < n_tok; i++)
        if (positions[i] != c->feed.positions[i])
            return kvb_cache_fail(c, -EINVAL, "token %u has position %u, the plan says %u", i, positions[i],
                                  c->feed.positions[i]);
    return 0;
}

int kvb_cache_update_and_fetch(kvb_cache *c, uint32_t layer, const uint32_t *positions, const float *k, const float *v,
                               uint32_t n_tok, kvb_attend_spec *spec)
{
    if (!positions || !k || !spec)
        return kvb_cache_fail(c, -EINVAL, "positions, rows and a spec must be given");
    int error = fetch_check(c, layer, false, positions, n_tok);
    if (error)
        return error;
    kvb_store *s = c->stores[c->model->group_of[layer]];
    if (!v != s->group->latent)
        return kvb_cache_fail(
            c, -EINVAL, v ? "layer %u is latent: V is part of K's rows" : "V rows of layer %u must be given", layer);
    kvb_store_fetch(s, layer, k, v, spec);
    c->fetched[layer / 64] |= UINT64_C(1) << layer % 64;
    return 0;
}

int kvb_cache_fetch_states(kvb_cache *c, uint32_t layer, const uint32_t *positions, uint32_t n_tok, kvb_scan_spec *spec)
{
    if (!positions || !spec)
        return kvb_cache_fail(c, -EINVAL, "positions and a spec must be given");
    int error = fetch_check(c, layer, true, positions, n_tok);
    if (error)
        return error;
    kvb_store_fetch_states(c->stores[c->model->group_of[layer]], layer, n_tok, spec);
    c->fetched[layer / 64] |= UINT64_C(1) << layer % 64;
    return 0;
}
