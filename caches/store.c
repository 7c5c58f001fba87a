/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Position shifts in a store. A shift only notes how far the token of each cell has moved; the K rows are turned when
 * the next step begins. So several shifts are one turn by their sum, and rows are encoded once for all of them.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "caches/front.h"
#include "caches/store_host.h"
#include "caches/stores/seq.h"

#define CELLS_AT_ONCE 32u

bool kvb_turns_support(const kvb_model *model, const kvb_format *f, char *why, size_t why_bytes)
{
    const int unknown = kvb_model_unknown_rope(model);
    const char *lack = f->residual_cells       ? "rows are encoded together with others"
                       : f->elem == KVB_OPAQUE ? "only its pool knows the encoding"
                                               : NULL;
    if (unknown >= 0)
        snprintf(why, why_bytes, "positions cannot be shifted: the rope of group %d is unknown", unknown);
    bool turns = false;
    for (uint32_t g = 0; g < model->n_groups; g++)
        turns = turns || model->groups[g].rope.dims;
    if (unknown < 0 && lack && turns)
        snprintf(why, why_bytes, "K rows of format '%s' cannot be turned to another position: %s", f->name, lack);
    return unknown < 0 && (!lack || !turns);
}

/* Floats of one cell's K rows. */
static size_t cell_floats(const kvb_store *s)
{
    return (size_t)s->group->kv_heads * s->group->k_dim;
}

/* Takes all memory that turning the cells of the SHIFT will need: 0 or -ENOMEM. */
static int turns_reserve(kvb_store *s)
{
    /* A copied row takes its pending turn along. */
    size_t cells = 0, had = s->pending_room;
    for (size_t i = 0; i < s->n_turns; i++)
        cells = cells > s->turns[i].cell ? cells : (size_t)s->turns[i].cell + 1;
    for (size_t i = 0; i < s->n_moves && (s->n_turns || s->turns_pending); i++)
        for (int to = 0; to < 2; to++) {
            uint32_t cell = to ? s->moves[i].to : s->moves[i].from;
            cells = cells > cell ? cells : (size_t)cell + 1;
        }
    int error = cells ? kvb_grow(s->allocator, &s->pending, &s->pending_room, cells) : 0;
    if (s->pending_room > had)
        memset(s->pending + had, 0, (s->pending_room - had) * sizeof *s->pending);
    if (!error && s->n_turns && s->group->rope.dims)
        error =
            kvb_grow(s->allocator, &s->turned, &s->turned_room, CELLS_AT_ONCE * cell_floats(s) + s->group->rope.dims);
    return error;
}

/* Turns the rows of n cells of a pool, all by the same angles. */
static void cells_turn(const kvb_store *s, kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *table,
                       float *rows)
{
    const uint32_t heads = s->group->kv_heads, dim = s->group->k_dim;
    kvb_view view;
    pool->type->view(pool, cells[n - 1] + 1, &view); /* they ascend */
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t h = 0; h < heads; h++) {
            float *row = rows + ((size_t)i * heads + h) * dim;
            view.format->read(&view, h, cells[i], 1, row);
            kvb_rope_turn(&s->group->rope, table, row);
        }
    pool->type->scatter(pool, cells, n, rows);
}

/* Makes the pending turns: K rows of the group's layers are decoded, turned and encoded again. */
static void turns_make(kvb_store *s)
{
    uint32_t cells[CELLS_AT_ONCE];
    for (uint32_t begin = 0, end; begin < s->pending_room && s->turns_pending; begin = end) {
        const int32_t delta = s->pending[begin];
        uint32_t n = 0;
        for (end = begin; end < s->pending_room && n < CELLS_AT_ONCE && s->pending[end] == delta; end++)
            cells[n++] = end;
        if (delta == 0)
            continue;
        float *table = s->turned + CELLS_AT_ONCE * cell_floats(s);
        kvb_rope_angles(&s->group->rope, delta, table);
        for (size_t i = 0; i < s->n_pools; i += 2)
            if (s->pools[i])
                cells_turn(s, s->pools[i], cells, n, table, s->turned);
        memset(s->pending + begin, 0, (end - begin) * sizeof *s->pending);
    }
    s->turns_pending = false;
}

/* ---- requests of a policy --------------------------------------------------------------------------------- */

#define MOVES_AT_ONCE 256u

int kvb_store_fail(kvb_store *s, int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(s->why, s->why_bytes, format, args);
    va_end(args);
    return error;
}

int kvb_store_move(kvb_store *s, uint32_t from, uint32_t to)
{
    int error = kvb_grow(s->allocator, &s->moves, &s->moves_room, s->n_moves + 1);
    if (!error)
        s->moves[s->n_moves++] = (kvb_move){from, to};
    return error;
}

int kvb_store_turn(kvb_store *s, uint32_t cell, int32_t delta)
{
    int error = kvb_grow(s->allocator, &s->turns, &s->turns_room, s->n_turns + 1);
    if (!error)
        s->turns[s->n_turns++] = (kvb_turn){cell, delta};
    return error;
}

/* ---- opening and closing -------------------------------------------------------------------------------- */

static int pool_make(const kvb_store *s, const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool)
{
    return (s->options->counted ? kvb_counted_open : type->open)(type, options, pool);
}

/* A state is a row of one head, padded to whole cache lines. Pools grow slot by slot, since slots are large. */
static int states_open(const kvb_store *s, bool conv, kvb_pool **pool)
{
    const kvb_elem elem = conv ? s->group->scan.conv_elem : s->group->scan.state_elem;
    const kvb_pool_type *const *type = kvb_builtin_pools;
    while ((*type)->format->elem != elem)
        type++;
    kvb_pool_options options = {.n_kv_heads = 1,
                                .dim = (uint32_t)(kvb_group_slot_bytes(s->group, conv) / (elem == KVB_F32 ? 4 : 2)),
                                .min_chunk = 1,
                                .capacity = s->pool_cells,
                                .growth = s->options->growth,
                                .allocator = s->options->allocator};
    return options.dim ? pool_make(s, *type, &options, pool) : 0;
}

static kvb_pool_options pool_options(const kvb_cache_options *o, const kvb_group *group, bool is_v, uint32_t min_chunk,
                                     uint32_t capacity)
{
    return (kvb_pool_options){.n_kv_heads = group->kv_heads,
                              .dim = is_v ? group->v_dim : group->k_dim,
                              .min_chunk = min_chunk < capacity ? min_chunk : capacity,
                              .capacity = capacity,
                              .growth = o->growth};
}

int kvb_store_pool_open(const kvb_store *s, uint32_t layer, bool is_v, uint32_t min_chunk, uint32_t capacity,
                        kvb_allocator *allocator, kvb_pool **pool)
{
    const kvb_cache_options *o = s->options;
    const float *const *amax = is_v ? o->v_amax : o->k_amax;
    kvb_pool_options options = pool_options(o, s->group, is_v, min_chunk, capacity);
    options.amax = amax ? amax[layer] : NULL;
    options.allocator = allocator;
    return pool_make(s, is_v ? o->v_pool : o->k_pool, &options, pool);
}

uint64_t kvb_cache_cells_bytes(const kvb_cache_type *type, const kvb_model *model, const kvb_cache_options *o,
                               uint32_t group, uint32_t first, uint32_t cells)
{
    const kvb_group *g = &model->groups[group];
    uint64_t layer = 0;
    for (int v = 0; v < 2 - g->latent; v++) {
        const kvb_pool_type *pool = v ? o->v_pool : o->k_pool;
        const kvb_pool_options options = pool_options(o, g, v, o->min_chunk, o->capacity);
        layer += pool->bytes(pool, &options, cells);
    }
    return kvb_model_layers_of(model, group) * layer +
           (type == &kvb_cache_contiguous ? 0 : kvb_seq_holders_bytes(first, cells));
}

static int pool_open(kvb_store *s, uint32_t layer, bool is_v)
{
    kvb_pool **pool = &s->pools[2 * (size_t)layer + is_v];
    int error = kvb_store_pool_open(s, layer, is_v, s->options->min_chunk, s->pool_cells, s->options->allocator, pool);
    if (!error && s->type->flags & KVB_CACHE_PREALLOCATES)
        error = (*pool)->type->ensure(*pool, s->ensured = s->pool_cells);
    return error;
}

static int pools_open(kvb_store *s, const kvb_model *model)
{
    size_t n = 2 * (size_t)model->n_layers;
    uint64_t cells = s->type->pool_cells ? s->type->pool_cells(s) : s->options->capacity;
    int error = 0;
    if (cells == 0 || cells > UINT32_MAX)
        return kvb_store_fail(s, -EINVAL, "pools of %llu cells cannot be: expected 1 .. %u", (unsigned long long)cells,
                              UINT32_MAX);
    s->pool_cells = (uint32_t)cells;
    s->pools = kvb_alloc_zeroed(s->allocator, n * sizeof *s->pools);
    if (!s->pools)
        return kvb_store_fail(s, -ENOMEM, "no memory for the cache");
    s->n_pools = n;
    for (uint32_t layer = 0; layer < model->n_layers && !error; layer++) {
        if (kvb_model_group(model, layer) != s->group)
            continue;
        for (int v = 0; v < 2 && !error; v++)
            if (kvb_group_scans(s->group))
                error = states_open(s, v, &s->pools[2 * (size_t)layer + v]);
            else if (!v || !s->group->latent)
                error = pool_open(s, layer, v);
    }
    return error ? kvb_store_fail(s, error, "cannot open the pools: %s", strerror(-error)) : 0;
}

const kvb_cache_type *kvb_store_policy(const kvb_cache_type *type, const kvb_group *group)
{
    return kvb_group_scans(group) ? &kvb_state_policy : type;
}

void kvb_store_close(kvb_store *s)
{
    kvb_allocator *a = s->allocator;
    if (s->type->close)
        s->type->close(s);
    for (size_t i = 0; i < s->n_pools; i++)
        if (s->pools[i])
            s->pools[i]->type->close(s->pools[i]);
    kvb_free(a, s->pools, s->n_pools * sizeof *s->pools);
    kvb_plan_close(&s->plan);
    kvb_plan_close(&s->next);
    kvb_free(a, s->moves, s->moves_room * sizeof *s->moves);
    kvb_free(a, s->turns, s->turns_room * sizeof *s->turns);
    kvb_free(a, s->pending, s->pending_room * sizeof *s->pending);
    kvb_free(a, s->turned, s->turned_room * sizeof *s->turned);
    kvb_free(a, s, s->type->store_bytes);
}

int kvb_store_open(kvb_cache *c, uint32_t g)
{
    const kvb_model *model = c->model;
    const kvb_cache_type *type = kvb_store_policy(c->type, &model->groups[g]);
    kvb_allocator *a = c->options.allocator;
    kvb_store *s = kvb_alloc_zeroed(a, type->store_bytes);
    if (!s)
        return kvb_cache_fail(c, -ENOMEM, "no memory for the cache");
    s->type = type;
    s->cache = c->type;
    s->group = &model->groups[g];
    s->number = g;
    s->account = &c->account;
    s->options = &c->options;
    double bytes = 0;
    for (uint32_t i = 0; i < model->n_groups; i++) {
        const kvb_group *group = &model->groups[i];
        const kvb_pool_type *k = s->options->k_pool, *v = s->options->v_pool;
        if (kvb_group_scans(group))
            continue;
        double row = k->row_bytes(k, group->k_dim) + (group->latent ? 0 : v->row_bytes(v, group->v_dim));
        bytes += row * group->kv_heads * kvb_model_layers_of(model, i);
    }
    s->cell_bytes = (uint64_t)bytes + ((double)(uint64_t)bytes < bytes);
    s->allocator = s->plan.allocator = s->next.allocator = a;
    s->why = c->why;
    s->why_bytes = sizeof c->why;
    int error = type->open ? type->open(s) : 0;
    if (error) {
        kvb_free(a, s, type->store_bytes);
        return error;
    }
    error = pools_open(s, model);
    if (error)
        kvb_store_close(s);
    else
        c->stores[g] = s;
    return error;
}

/* ---- control calls -------------------------------------------------------------------------------------- */

uint32_t kvb_store_room(const kvb_store *s, const kvb_change *change)
{
    uint32_t used, high_water, capacity = s->pool_cells < s->options->capacity ? s->pool_cells : s->options->capacity;
    if (s->type->room)
        return s->type->room(s, change);
    s->type->occupied(s, &used, &high_water);
    return used < capacity ? capacity - used : 0;
}

/* Is each row of the pool stored by itself? */
static bool is_apart(const kvb_pool *pool)
{
    return pool->type->raw_bytes(pool, &(uint32_t){0}, 1) > 0;
}

/* Cells that the pools must hold for the prepared change. */
static uint32_t cells_wanted(const kvb_store *s, const kvb_change *change, const kvb_plan *plan)
{
    uint32_t cells = s->slots_taken;
    for (size_t i = 0; i < s->n_pools && change->kind == KVB_CHANGE_LOAD; i++)
        if (s->pools[i] && s->load->cells && !is_apart(s->pools[i]))
            cells = s->load->cells;
    for (uint32_t i = 0; plan && i < plan->n; i++)
        cells = cells > plan->cells[i] ? cells : plan->cells[i] + 1;
    for (size_t i = 0; i < s->n_moves; i++)
        cells = cells > s->moves[i].to ? cells : s->moves[i].to + 1;
    return cells;
}

void kvb_store_undo(kvb_store *s, const kvb_change *change, const kvb_feed *feed)
{
    if (s->type->undo)
        s->type->undo(s, change, feed, feed ? &s->next : NULL);
}

int kvb_store_prepare(kvb_store *s, const kvb_change *change, const kvb_feed *feed)
{
    kvb_plan *plan = feed && !kvb_group_scans(s->group) ? &s->next : NULL;
    s->n_moves = s->n_turns = 0;
    s->slots_taken = 0;
    int error = plan ? kvb_plan_start(plan, feed->n) : 0;
    const bool whole = change->kind == KVB_CHANGE_LOAD && change->src == KVB_SEQ_ALL; /* its rows keep their cells */
    for (uint32_t i = 0; whole && !error && i < s->load->n_rows; i++)
        error = kvb_store_move(s, i, s->load->cell[i]);
    if (!error)
        error = s->type->prepare(s, change, feed, plan);
    if (error)
        return error;
    if (plan)
        kvb_plan_finish(plan);
    uint32_t cells = cells_wanted(s, change, plan);
    for (size_t i = 0; i < s->n_pools && cells && !error; i++)
        error = s->pools[i] ? s->pools[i]->type->ensure(s->pools[i], cells) : 0;
    if (!error)
        error = turns_reserve(s);
    if (error)
        kvb_store_undo(s, change, feed);
    else if (cells > s->ensured)
        s->ensured = cells;
    return error ? kvb_store_fail(s, error, "the pools cannot grow to %u cells: %s", cells, strerror(-error)) : 0;
}

/* Makes the requested copies, runs of neighbouring targets at once. */
static void moves_make(kvb_store *s)
{
    uint32_t from[MOVES_AT_ONCE];
    for (size_t begin = 0, end; begin < s->n_moves; begin = end) {
        uint32_t base = s->moves[begin].to, n = 0;
        for (end = begin; end < s->n_moves && n < MOVES_AT_ONCE && s->moves[end].to == base + n; end++)
            from[n++] = s->moves[end].from;
        for (size_t i = 0; i < s->n_pools; i++)
            if (s->pools[i])
                s->pools[i]->type->gather_into(s->pools[i], base, from, n);
    }
    for (size_t i = 0; i < s->n_moves && s->turns_pending; i++)
        s->pending[s->moves[i].to] = s->pending[s->moves[i].from];
    s->cells_moved += s->n_moves;
}

bool kvb_store_holds(const kvb_store *s, uint32_t row, uint32_t cell)
{
    bool same = cell >= s->pending_room || !s->pending[cell];
    for (size_t i = 0; i < s->n_pools && same; i++) {
        const kvb_pool *pool = s->pools[i];
        const size_t bytes = pool ? pool->type->raw_bytes(pool, &cell, 1) : 0;
        if (!bytes)
            continue;
        pool->type->read_raw(pool, &cell, 1, s->load->scratch);
        same = !memcmp(s->load->scratch, s->load->raw[i] + row * bytes, bytes);
    }
    return same;
}

/* Writes the rows of the file to their cells, as stored. Turns pending for these cells are forgotten. */
static void rows_load(kvb_store *s)
{
    for (size_t m = 0; m < s->n_moves; m++)
        if (s->moves[m].to < s->pending_room)
            s->pending[s->moves[m].to] = 0;
    for (size_t i = 0; i < s->n_pools; i++) {
        kvb_pool *pool = s->pools[i];
        if (!pool || !s->load->raw[i])
            continue;
        if (!is_apart(pool))
            pool->type->write_raw(pool, NULL, s->load->cells, s->load->raw[i]);
        for (size_t m = 0; m < s->n_moves && is_apart(pool); m++)
            pool->type->write_raw(pool, &s->moves[m].to, 1,
                                  s->load->raw[i] + s->moves[m].from * pool->type->raw_bytes(pool, &s->moves[m].to, 1));
    }
    s->cells_written += s->n_moves;
}

void kvb_store_adopt(kvb_store *s, const kvb_change *change, const kvb_feed *feed)
{
    static _Atomic uint64_t generations; /* of this process: a kvb_call serves one cache after another */
    uint32_t cells, high_water;
    if (change->kind == KVB_CHANGE_LOAD)
        rows_load(s);
    else
        moves_make(s);
    for (size_t i = 0; i < s->n_turns && s->group->rope.dims; i++)
        s->pending[s->turns[i].cell] += s->turns[i].delta;
    s->turns_pending |= s->n_turns && s->group->rope.dims;
    if (s->type->adopt)
        s->type->adopt(s, change, feed, feed ? &s->next : NULL);
    if (feed) {
        kvb_plan old = s->plan;
        s->plan = s->next;
        s->next = old;
        s->plan.generation = atomic_fetch_add(&generations, 1) + 1;
        s->front = s->front_next;
        s->stored = false;
        turns_make(s);
    }
    s->type->occupied(s, &cells, &high_water);
    s->cells_peak = s->cells_peak > cells ? s->cells_peak : cells;
    s->high_water_peak = s->high_water_peak > high_water ? s->high_water_peak : high_water;
}

/* ---- bytes ------------------------------------------------------------------------------------------------ */

static void rows_store(kvb_pool *pool, const kvb_plan *plan, const float *rows)
{
    if (plan->is_run)
        pool->type->write_run(pool, plan->cells[0], plan->n, rows);
    else
        pool->type->scatter(pool, plan->cells, plan->n, rows);
}

/* The view of K or V that the plan's queries read: the front, and behind it the pool's own cells. */
static void view_find(const kvb_store *s, uint32_t layer, bool is_v, kvb_view *view)
{
    const size_t i = 2 * (size_t)layer + is_v;
    const uint32_t before = s->front ? s->front->cells : 0;
    s->pools[i]->type->view(s->pools[i], s->plan.extent - before, view);
    view->cells += before;
    view->front = s->front ? &s->front->views[i] : NULL;
}

void kvb_store_fetch(kvb_store *s, uint32_t layer, const float *k, const float *v, kvb_attend_spec *spec)
{
    kvb_pool *k_pool = s->pools[2 * (size_t)layer], *v_pool = s->pools[2 * (size_t)layer + 1];
    rows_store(k_pool, &s->plan, k);
    if (v)
        rows_store(v_pool, &s->plan, v);
    if (!s->stored)
        s->cells_written += s->plan.n;
    s->stored = true;
    *spec = (kvb_attend_spec){.group = s->group, .mask = kvb_plan_mask(&s->plan), .generation = s->plan.generation};
    view_find(s, layer, false, &spec->k);
    if (v) {
        view_find(s, layer, true, &spec->v);
    } else {
        spec->v = spec->k;
        spec->v.dim = s->group->v_dim;
        spec->v.front = s->front ? &s->front->views[2 * (size_t)layer + 1] : NULL;
    }
}

static kvb_scan_states states_find(const kvb_store *s, uint32_t layer, bool conv)
{
    const kvb_pool *pool = s->pools[2 * (size_t)layer + conv];
    kvb_view view = {0};
    if (pool)
        pool->type->view(pool, s->ensured, &view);
    return (kvb_scan_states){(void *)(uintptr_t)view.base, view.cell_stride, view.cells};
}

void kvb_store_fetch_states(kvb_store *s, uint32_t layer, uint32_t n_tok, kvb_scan_spec *spec)
{
    for (uint32_t i = 0; i < n_tok && !s->stored; i++)
        s->cells_written += s->to[i] != KVB_SCAN_NONE;
    s->stored = true;
    *spec = (kvb_scan_spec){.group = s->group,
                            .states = states_find(s, layer, false),
                            .conv = states_find(s, layer, true),
                            .from = s->from,
                            .to = s->to,
                            .n_tok = n_tok};
}

void kvb_cache_usage_of(const kvb_cache *c, uint32_t group, kvb_cache_usage *usage)
{
    const kvb_store *s = c->stores[group];
    uint32_t high_water;
    *usage = (kvb_cache_usage){
        .cells_peak = s->cells_peak,
        .high_water = s->high_water_peak,
        .cells_written = s->cells_written,
        .cells_moved = s->cells_moved,
        .reserved_bytes = s->frozen_bytes,
    };
    s->type->occupied(s, &usage->cells_live, &high_water);
    for (size_t i = 0; i < s->n_pools; i++) {
        const kvb_pool *pool = s->pools[i];
        if (!pool)
            continue;
        usage->reserved_bytes += pool->type->reserved(pool);
        usage->growths += pool->growths;
        usage->copied_bytes += pool->copied_bytes;
        usage->copy_ns += pool->copy_ns;
    }
}
