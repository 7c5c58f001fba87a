/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of each kind of part: each calls the honest verb, and the hooks of the planted fault. */
#include "harness/faults/fault.h"

#include <math.h>
#include <string.h>

kvb_fault_site kvb_fault_here;

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

#define MASK_WORDS (1u << 18) /* of a changed mask; a larger call is not changed */
#define FLOATS     (1u << 20) /* of a changed q, or of rows that are written; more are not changed */

static const kvb_wrong_kernel *wrong_kernel;

static void q_change(kvb_attend *x)
{
    static float q[FLOATS]; /* attend() may not allocate */
    const kvb_problem *p = &x->problem;
    const size_t rows = (size_t)p->n_tok * p->n_heads;
    if (rows * p->k_dim > FLOATS)
        return;
    for (size_t row = 0; row < rows; row++) {
        const float *is = x->q + (wrong_kernel->q_from ? wrong_kernel->q_from(p, row) : row) * p->k_dim;
        float largest = 0;
        for (uint32_t c = 0; c < p->k_dim; c++)
            largest = fmaxf(largest, fabsf(is[c]));
        for (uint32_t c = 0; c < p->k_dim; c++)
            q[row * p->k_dim + c] = wrong_kernel->q_element ? wrong_kernel->q_element(is[c], largest) : is[c];
    }
    x->q = q;
}

static int attend(const kvb_attend *call)
{
    static uint64_t bits[MASK_WORDS]; /* attend() may not allocate */
    static uint32_t calls;
    kvb_attend x = *call;
    const size_t words = x.problem.n_tok * x.mask.row_words;

    if (++calls && wrong_kernel->every && calls % wrong_kernel->every != wrong_kernel->at)
        return kvb_fault_here.kernel->attend(call);
    if (wrong_kernel->sight && words <= MASK_WORDS) {
        memcpy(bits, x.mask.bits, words * sizeof *bits);
        for (uint32_t t = 0; t < x.problem.n_tok; t++)
            wrong_kernel->sight(&(kvb_fault_row){&x, t, bits + t * x.mask.row_words});
        x.mask.bits = bits;
    }
    if (wrong_kernel->q_from || wrong_kernel->q_element)
        q_change(&x);
    if (wrong_kernel->k)
        wrong_kernel->k(&x.k);
    if (wrong_kernel->v)
        wrong_kernel->v(&x.v);
    if (wrong_kernel->before)
        wrong_kernel->before(&x);
    const int error = kvb_fault_here.kernel->attend(&x);
    if (!error && wrong_kernel->after)
        wrong_kernel->after(call);
    return error ? error : wrong_kernel->returns;
}

static bool supports(const kvb_problem *problem, char *why, size_t why_bytes)
{
    wrong_kernel->supports();
    return !kvb_fault_here.kernel->supports || kvb_fault_here.kernel->supports(problem, why, why_bytes);
}

static size_t scratch_bytes(const kvb_problem *problem, uint32_t n_threads)
{
    return kvb_fault_here.kernel->scratch_bytes(problem, n_threads) >> wrong_kernel->scratch_halvings;
}

static void arithmetic(const kvb_problem *problem, kvb_arithmetic *a)
{
    kvb_fault_here.kernel->arithmetic(problem, a);
    if (wrong_kernel->declares)
        wrong_kernel->declares(a);
    if (wrong_kernel->declares_by)
        *(double *)(void *)((char *)a + wrong_kernel->declares_by) = kvb_fault_here.by;
}

/* The receiver of the changed tiles. */
typedef struct passing {
    kvb_tile_take *take;
    void *ctx;
} passing;

static void (*honest_tiles)(const kvb_attend *call, uint32_t row, kvb_tile_take *take, void *ctx);

static void tile_pass(void *ctx, const kvb_order_tile *tile, const uint32_t *cells)
{
    const passing *to = ctx;
    kvb_order_tile changed = *tile;
    if (wrong_kernel->tile)
        wrong_kernel->tile(&changed);
    to->take(to->ctx, &changed, cells);
}

static void tiles(const kvb_attend *call, uint32_t row, kvb_tile_take *take, void *ctx)
{
    honest_tiles(call, row, tile_pass, &(passing){take, ctx});
}

static bool order(const kvb_attend *call, kvb_order *o)
{
    if (!kvb_fault_here.kernel->order(call, o))
        return false;
    if (wrong_kernel->orders)
        wrong_kernel->orders(o);
    if (wrong_kernel->tile)
        wrong_kernel->tile(&o->tile);
    honest_tiles = o->tiles;
    o->tiles = o->tiles ? tiles : NULL;
    return true;
}

static int round_query(const kvb_problem *problem, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    for (uint32_t c = 0; c < problem->k_dim; c++)
        rounded[c] = (double)q[c];
    kvb_query_round *honest = kvb_fault_here.kernel->round_query;
    const int error = honest ? honest(problem, k, head, q, rounded) : 0;
    wrong_kernel->rounds(problem, q, rounded);
    return error;
}

static const kvb_kernel *kernel_plant(const kvb_kernel *honest, const kvb_wrong_kernel *fault)
{
    static kvb_kernel planted;
    wrong_kernel = fault;
    planted = *(kvb_fault_here.kernel = honest);
    planted.attend = attend;
    planted.supports = fault->supports ? supports : honest->supports;
    planted.scratch_bytes = honest->scratch_bytes ? scratch_bytes : NULL;
    planted.arithmetic = fault->declares || fault->declares_by ? arithmetic : honest->arithmetic;
    planted.order = honest->order ? order : NULL;
    planted.round_query = fault->rounds ? round_query : honest->round_query;
    planted.masks = fault->bits || fault->sight ? KVB_MASK_BIT(KVB_MASK_EXPLICIT) : honest->masks;
    planted.flags |= fault->flags;
    planted.tolerance = fault->tolerance.kind != KVB_TOLERANCE_NONE ? fault->tolerance : honest->tolerance;
    return &planted;
}

/* ---- scan kernels ------------------------------------------------------------------------------------------------ */

#define TOKENS 4096u /* a call with more tokens keeps its slots */

static const kvb_wrong_scan *wrong_scan;

static int scan(const kvb_scan *call)
{
    static uint32_t from[TOKENS]; /* scan() may not allocate */
    kvb_scan x = *call;
    if (wrong_scan->slots && x.problem.n_tok <= TOKENS) {
        memcpy(from, x.from, x.problem.n_tok * sizeof *from);
        wrong_scan->slots(call, from);
        x.from = from;
    }
    if (wrong_scan->before)
        wrong_scan->before(&x);
    const int error = kvb_fault_here.scan->scan(&x);
    if (!error && wrong_scan->after)
        wrong_scan->after(call);
    return error;
}

static void scan_arithmetic(const kvb_scan_problem *problem, kvb_scan_arithmetic *a)
{
    kvb_fault_here.scan->arithmetic(problem, a);
    wrong_scan->declares(a);
}

static bool scan_order(const kvb_scan_problem *problem, kvb_scan_order *o)
{
    const bool keeps = kvb_fault_here.scan->order(problem, o);
    if (wrong_scan->orders)
        wrong_scan->orders(o);
    return keeps;
}

static const kvb_kernel *scan_plant(const kvb_kernel *honest, const kvb_wrong_scan *fault)
{
    static kvb_kernel planted;
    static kvb_scan_face face;
    wrong_scan = fault;
    planted = *honest;
    planted.scan = &face;
    face = *(kvb_fault_here.scan = honest->scan);
    face.scan = scan;
    face.order = face.order ? scan_order : NULL;
    face.arithmetic = fault->declares ? scan_arithmetic : face.arithmetic;
    return &planted;
}

/* ---- caches ------------------------------------------------------------------------------------------------------ */

static const kvb_wrong_cache *wrong_cache;
static kvb_change given; /* of the last prepare(); all groups of a change are prepared before any adopts it */

static void hook(void (*function)(kvb_fault_call *c), kvb_fault_call *c)
{
    if (function && (!wrong_cache->of || wrong_cache->of >> c->change->kind & 1))
        function(c);
}

static void queries_change(kvb_fault_call *c)
{
    for (uint32_t i = c->plan->n; i-- > 0;) {
        kvb_run *runs = &c->plan->runs[c->plan->row_start[i]];
        const uint32_t n = c->plan->row_start[i + 1] - c->plan->row_start[i];
        if (n)
            wrong_cache->query(&(kvb_fault_query){c, i, n, runs, runs + n - 1});
    }
}

static int prepare(kvb_store *store, const kvb_change *change, const kvb_feed *feed, kvb_plan *plan)
{
    kvb_fault_call c = {.store = store, .change = change, .feed = feed, .plan = plan, .given = *change};
    const kvb_group *group = store->group;
    const kvb_cache_options *options = store->options;
    hook(wrong_cache->preparing, &c);
    given = c.given;
    if (!c.error && !c.skips) {
        c.error = kvb_fault_here.cache->prepare(store, &c.given, feed, plan);
        if (c.error)
            hook(wrong_cache->failed, &c);
    }
    store->group = group;
    store->options = options;
    if (!c.error)
        hook(wrong_cache->prepared, &c);
    if (!c.error && wrong_cache->query && (change->kind == KVB_CHANGE_STEP || change->kind == KVB_CHANGE_PROPOSE))
        queries_change(&c);
    return c.error;
}

static void adopt(kvb_store *store, const kvb_change *change, const kvb_feed *feed, const kvb_plan *plan)
{
    kvb_fault_call c = {.store = store, .change = change, .feed = feed, .given = given};
    hook(wrong_cache->adopting, &c);
    if (!c.skips && kvb_fault_here.cache->adopt)
        kvb_fault_here.cache->adopt(store, &c.given, feed, plan);
    hook(wrong_cache->adopted, &c);
}

static uint32_t room(const kvb_store *store, const kvb_change *change)
{
    const kvb_fault_call c = {.store = (kvb_store *)(uintptr_t)store, .change = change};
    uint32_t cells, high;
    kvb_fault_here.cache->occupied(store, &cells, &high);
    return wrong_cache->room(&c, store->options->capacity - cells);
}

static int store_open(kvb_store *store)
{
    const int error = kvb_fault_here.cache->open ? kvb_fault_here.cache->open(store) : 0;
    if (!error)
        wrong_cache->opened(store);
    return error;
}

static uint64_t pool_cells(const kvb_store *store)
{
    return wrong_cache->pool_cells(store->options->capacity);
}

static int lies(kvb_store *store, uint32_t seq, kvb_spans *cells)
{
    const int error = kvb_fault_here.cache->lies(store, seq, cells);
    return error || !cells->n ? error : wrong_cache->lies(store, cells);
}

static uint32_t match(const kvb_store *store, const int32_t *tokens, uint32_t n, uint64_t extra_key, uint64_t *ordinals)
{
    const uint32_t found = kvb_fault_here.cache->match(store, tokens, n, extra_key, ordinals);
    return wrong_cache->match(store, found, n, ordinals);
}

static const kvb_cache_type *cache_plant(const kvb_cache_type *honest, const kvb_wrong_cache *fault)
{
    static kvb_cache_type planted;
    const kvb_prefix_rules *by = &fault->prefix;
    wrong_cache = fault;
    planted = *(kvb_fault_here.cache = honest);
    planted.prepare = prepare;
    planted.adopt = adopt;
    planted.undo = fault->no_undo ? NULL : honest->undo;
    planted.open = fault->opened ? store_open : honest->open;
    planted.room = fault->room ? room : honest->room;
    planted.pool_cells = fault->pool_cells ? pool_cells : honest->pool_cells;
    planted.lies = fault->lies && honest->lies ? lies : honest->lies;
    planted.match = fault->match && honest->match ? match : honest->match;
    kvb_prefix_by = (kvb_prefix_rules){.root = by->root ? by->root : kvb_prefix_by.root,
                                       .before = by->before ? by->before : kvb_prefix_by.before,
                                       .hash = by->hash ? by->hash : kvb_prefix_by.hash,
                                       .same = by->same ? by->same : kvb_prefix_by.same};
    return &planted;
}

/* ---- pools ------------------------------------------------------------------------------------------------------- */

static const kvb_wrong_pool *wrong_pool;

static int pool_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool)
{
    kvb_pool_options o = *options;
    kvb_fault_here.dim = o.dim;
    kvb_fault_here.heads = o.n_kv_heads;
    if (wrong_pool->open)
        wrong_pool->open(&o);
    return kvb_pool_passing.open(type, &o, pool);
}

static int pool_ensure(kvb_pool *pool, uint32_t cells)
{
    const uint64_t growths = pool->growths;
    const int error = kvb_pool_passing.ensure(pool, cells);
    if (!error && growths && pool->growths > growths && wrong_pool->grown)
        wrong_pool->grown(pool);
    if (error == -ENOMEM && growths && wrong_pool->short_of_memory)
        wrong_pool->short_of_memory(pool);
    return error;
}

static void rows_change(kvb_fault_write *w)
{
    static float changed[FLOATS];
    const size_t dim = kvb_fault_here.dim, rows = (size_t)w->n * kvb_fault_here.heads;
    if (rows * dim > FLOATS)
        return;
    memcpy(changed, w->rows, rows * dim * sizeof *changed);
    for (size_t i = 0; i < rows && wrong_pool->row; i++)
        wrong_pool->row(changed + i * dim);
    for (size_t i = 0; i < rows * dim && wrong_pool->element; i++)
        changed[i] = wrong_pool->element(changed[i], (uint32_t)(i % dim));
    w->rows = changed;
}

static void rows_spoil(const kvb_fault_write *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const uint32_t cell = w->cells ? w->cells[i] : w->start + i;
        kvb_view view;
        kvb_pool_passing.view(w->pool, cell + 1, &view);
        for (uint32_t h = 0; h < kvb_fault_here.heads; h++)
            wrong_pool->stored(&(kvb_fault_stored){
                &view, h, cell, w->rows + ((size_t)i * kvb_fault_here.heads + h) * kvb_fault_here.dim});
    }
}

static void rows_write(kvb_fault_write w)
{
    if (wrong_pool->write)
        wrong_pool->write(&w);
    if (wrong_pool->row || wrong_pool->element)
        rows_change(&w);
    if (w.cells)
        kvb_pool_passing.scatter(w.pool, w.cells, w.n, w.rows);
    else if (w.n)
        kvb_pool_passing.write_run(w.pool, w.start, w.n, w.rows);
    if (wrong_pool->stored)
        rows_spoil(&w);
}

static void pool_write_run(kvb_pool *pool, uint32_t start, uint32_t n, const float *rows)
{
    rows_write((kvb_fault_write){pool, NULL, start, n, rows});
}

static void pool_scatter(kvb_pool *pool, const uint32_t *cells, uint32_t n, const float *rows)
{
    rows_write((kvb_fault_write){pool, cells, 0, n, rows});
}

static void pool_gather_into(kvb_pool *pool, uint32_t base, const uint32_t *cells, uint32_t n)
{
    if (!wrong_pool->copy)
        kvb_pool_passing.gather_into(pool, base, cells, n);
    for (uint32_t i = 0; i < n && wrong_pool->copy; i++)
        wrong_pool->copy(&(kvb_fault_copy){pool, base + i, cells[i], cells[0]});
}

static void pool_view(const kvb_pool *pool, uint32_t cells, kvb_view *view)
{
    kvb_pool_passing.view(pool, cells, view);
    kvb_fault_here.pool = pool;
    if (wrong_pool->view)
        wrong_pool->view(view);
}

static size_t pool_bytes(const kvb_pool_type *type, const kvb_pool_options *options, uint32_t cells)
{
    return kvb_pool_passing.bytes(type, options, cells) + wrong_pool->bytes;
}

static double pool_row_bytes(const kvb_pool_type *type, uint32_t dim)
{
    return kvb_pool_passing.row_bytes(type, dim) + wrong_pool->row_bytes;
}

static const kvb_pool_type *pool_plant(const kvb_pool_type *honest, const kvb_wrong_pool *fault)
{
    static kvb_pool_wrap planted;
    wrong_pool = fault;
    planted = kvb_pool_wrap_of(honest);
    planted.type.open = pool_open;
    planted.type.ensure = pool_ensure;
    planted.type.write_run = pool_write_run;
    planted.type.scatter = pool_scatter;
    planted.type.gather_into = pool_gather_into;
    planted.type.view = pool_view;
    planted.type.bytes = pool_bytes;
    planted.type.row_bytes = pool_row_bytes;
    planted.type.write_raw = fault->load && honest->write_raw ? fault->load : planted.type.write_raw;
    return &planted.type;
}

/* ------------------------------------------------------------------------------------------------------------------ */

/* Has the part a hook or a number? */
static bool changes(const void *part, size_t bytes)
{
    const char *at = part;
    return *at || memcmp(at, at + 1, bytes - 1) != 0; /* each byte equals the one before it */
}

int kvb_fault_plant(const void *fault, kvb_replay_options *replay, char *why, size_t why_bytes)
{
    const kvb_fault *planted = fault;
    kvb_fault_here.by = planted->by;
    if (changes(&planted->kernel, sizeof planted->kernel))
        replay->kernel = kernel_plant(replay->kernel, &planted->kernel);
    if (changes(&planted->scan, sizeof planted->scan))
        replay->scan = scan_plant(replay->scan, &planted->scan);
    if (changes(&planted->cache, sizeof planted->cache))
        replay->cache = cache_plant(replay->cache, &planted->cache);
    if (changes(&planted->k_pool, sizeof planted->k_pool))
        replay->k_pool = pool_plant(replay->k_pool, &planted->k_pool);
    if (changes(&planted->v_pool, sizeof planted->v_pool))
        replay->v_pool = pool_plant(replay->v_pool, &planted->v_pool);
    replay->length = planted->length;
    return 0;
}
