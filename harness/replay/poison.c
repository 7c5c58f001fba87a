/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Poison in cells that a mask hides, and the calls with poison. Bytes are saved span by span, adjacent spans as one, and
 * restored in reverse order, so that overlapping spans come back right.
 */
#include "harness/replay/poison.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches/call.h"
#include "caches/pools/codec/codec.h"
#include "harness/replay/pass.h"
#include "harness/replay/meter.h"
#include "kernels/convert.h"
#include "workloads/array.h"

#define FILL 0xff

typedef struct kvb_poison_span {
    char *at;
    size_t bytes;
} span;

static int span_fill(void *ctx, const void *at, size_t bytes)
{
    kvb_poison *p = ctx;
    char *to = (char *)(uintptr_t)at;
    if (kvb_array_reserve(&p->saved, &p->saved_room, p->n_saved + bytes, 1) ||
        kvb_array_reserve(&p->spans, &p->spans_room, p->n_spans + 1, sizeof *p->spans))
        return -ENOMEM;
    span *last = p->n_spans ? &p->spans[p->n_spans - 1] : NULL;
    memcpy(p->saved + p->n_saved, to, bytes);
    memset(to, FILL, bytes);
    p->n_saved += bytes;
    if (last && last->at + last->bytes == to)
        last->bytes += bytes;
    else
        p->spans[p->n_spans++] = (span){to, bytes};
    return 0;
}

void kvb_poison_restore(kvb_poison *p)
{
    for (; p->n_spans; p->n_spans--) {
        const span *last = &p->spans[p->n_spans - 1];
        p->n_saved -= last->bytes;
        memcpy(last->at, p->saved + p->n_saved, last->bytes);
    }
}

static bool bit(const uint64_t *bits, uint32_t c)
{
    return bits[c / 64] >> (c % 64) & 1;
}

/* ---- spans of hidden cells --------------------------------------------------------------------------------------- */

/* The cells of a walk, and the function that takes their spans. */
typedef struct walk {
    uint32_t n_kv_heads;
    size_t row_bytes;
    const uint64_t *visible;
    kvb_span_take *take;
    void *ctx;
} walk;

/* Entries of `bytes`, one for each `cells` consecutive cells. */
typedef struct table {
    const void *base;
    size_t head_stride, stride, bytes;
    uint32_t cells;
} table;

/* Takes the hidden entries of a table of a view's region. first: the mask's index of the region's first cell. */
static int table_walk(const walk *w, const kvb_view *v, uint32_t first, const table *t)
{
    int error = 0;
    for (uint32_t h = 0; h < w->n_kv_heads && t->base && !error; h++)
        for (uint32_t c = 0; c < v->cells && !error; c += t->cells) {
            uint32_t end = v->cells - c < t->cells ? v->cells : c + t->cells, hidden = c;
            while (hidden < end && !bit(w->visible, first + hidden))
                hidden++;
            if (hidden == end)
                error =
                    w->take(w->ctx, (const char *)t->base + h * t->head_stride + c / t->cells * t->stride, t->bytes);
        }
    return error;
}

/* Takes the hidden rows that are not encoded yet. */
static int recent_walk(const walk *x, const kvb_view *v)
{
    const uint32_t w = v->format->residual_cells;
    const size_t row = v->dim * sizeof(uint16_t);
    int error = 0;
    for (uint32_t c = 0; c < v->cells && w && v->recent && !error; c++) {
        const uint32_t slot = v->recent_slot[c / w];
        for (uint32_t h = 0; h < x->n_kv_heads && slot != KVB_SLOT_NONE && !bit(x->visible, c) && !error; h++)
            error = x->take(
                x->ctx,
                (const char *)v->recent + slot * v->recent_slot_stride + h * v->recent_head_stride + c % w * row, row);
    }
    return error;
}

/* Bytes of a row at `base`. OPAQUE: row_bytes without the side tables, but no more than up to the next row. */
static size_t codes_bytes(const walk *w, const kvb_view *v, size_t tables)
{
    if (v->format->elem != KVB_OPAQUE)
        return kvb_codes_bytes(v->format, v->dim);
    const size_t codes = w->row_bytes > tables ? w->row_bytes - tables : 0;
    const size_t next = w->n_kv_heads > 1 && v->head_stride < v->cell_stride ? v->head_stride : v->cell_stride;
    return codes < next ? codes : next;
}

static int region_walk(const walk *w, const kvb_view *v, uint32_t first)
{
    const kvb_format *f = v->format;
    const bool shared = f->axis == KVB_AXIS_TOKENS && f->group;
    const size_t entries = shared ? v->dim : f->group && f->group != KVB_GROUP_ROW ? v->dim / f->group : 1;
    const uint32_t cells = shared ? f->group : 1;
    const size_t scales = entries * kvb_scale_bytes(f->scale_elem), zeros = entries * kvb_scale_bytes(f->zero_elem);
    const void *scales_at = f->group ? v->scales : NULL,
               *zeros_at = f->group ? v->zeros : NULL; /* else sizes are unknown */
    const size_t beside = ((scales_at ? scales : 0) + (zeros_at ? zeros : 0) + cells - 1) / cells;
    const table tables[] = {
        {v->base, v->head_stride, v->cell_stride, codes_bytes(w, v, beside), 1},
        {scales_at, v->scale_head_stride, v->scale_cell_stride, scales, cells},
        {zeros_at, v->zero_head_stride, v->zero_cell_stride, zeros, cells},
    };
    int error = 0;
    for (size_t i = 0; i < sizeof tables / sizeof *tables && !error; i++)
        error = table_walk(w, v, first, &tables[i]);
    return error ? error : recent_walk(w, v);
}

int kvb_hidden_walk(const kvb_view *v, uint32_t n_kv_heads, size_t row_bytes, const uint64_t *visible,
                    kvb_span_take *take, void *ctx)
{
    const walk w = {n_kv_heads, row_bytes, visible, take, ctx};
    const kvb_view own = kvb_view_own(v);
    int error = v->front ? region_walk(&w, v->front, 0) : 0;
    return error ? error : region_walk(&w, &own, kvb_view_front_cells(v));
}

int kvb_poison_fill(kvb_poison *p, const kvb_view *v, uint32_t n_kv_heads, size_t row_bytes, const uint64_t *visible)
{
    return kvb_hidden_walk(v, n_kv_heads, row_bytes, visible, span_fill, p);
}

void kvb_poison_free(kvb_poison *p)
{
    free(p->spans);
    free(p->saved);
    *p = (kvb_poison){0};
}

enum { SIDE_K = 1, SIDE_V = 2 };

/* ---- hidden cells ------------------------------------------------------------------------------------------------ */

/* Sets the bits of the cells that query t sees, and counts them. KVB_POISON_ALL: that any query sees. */
static kvb_traffic visible_find(kvb_pass *p, uint32_t t)
{
    const kvb_attend *args = &p->call.args;
    const uint32_t n_tok = args->problem.n_tok, n_cells = args->problem.n_cells;
    uint64_t *bits = p->poison.visible;
    kvb_traffic seen = {0};
    uint32_t cursor = 0;
    kvb_run run;
    if (t == KVB_POISON_ALL) {
        kvb_traffic_count(&args->mask, n_tok, n_cells, bits, &seen);
        return seen;
    }
    memset(bits, 0, ((size_t)n_cells + 63) / 64 * sizeof *bits);
    for (; kvb_mask_next(&args->mask, n_tok, n_cells, t, &cursor, &run); seen.unique_cells += run.end - run.begin)
        kvb_bits_set(bits, run.begin, run.end);
    return seen;
}

/* Decides whether the call is repeated with poison, and in which cells. 0 or -ENOMEM. */
static int poison_plan(kvb_pass *p, const kvb_made *m, bool *planned)
{
    const uint32_t layer = m->layer, n = m->fed->judged;
    const kvb_problem *problem = &p->call.args.problem;
    kvb_poison_check *x = &p->poison;
    size_t rows;
    const kvb_expect *expect = kvb_oracle_rows(p->options->oracle, p->place->event, layer, &rows);
    *planned = false;
    for (; rows && !kvb_pass_asks(p, n, expect->query); rows--)
        expect++;
    if (kvb_array_reserve(&x->visible, &x->visible_room, (size_t)problem->n_cells / 64 + 1, sizeof *x->visible))
        return -ENOMEM;
    const kvb_traffic all = visible_find(p, KVB_POISON_ALL);
    const uint64_t cost = all.pairs * problem->n_heads;
    x->visits += cost;
    if (x->spent + cost > KVB_POISON_FREE + x->visits / KVB_POISON_SHARE)
        return 0;
    const uint32_t t = rows ? problem->n_tok - n + expect[(p->place->event + layer) % rows].query : 0;
    const bool of_all = all.unique_cells < problem->n_cells;
    const bool of_query = rows && visible_find(p, t).unique_cells < all.unique_cells;
    x->query = of_query && (!of_all || x->calls % 2) ? t : KVB_POISON_ALL;
    *planned = of_all || of_query;
    x->spent += *planned ? cost : 0;
    x->calls += *planned;
    return 0;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static size_t row_bytes(const kvb_view *view, const kvb_pool_type *pool)
{
    return (size_t)pool->row_bytes(pool, view->dim);
}

/* Repeats the call with poison on these sides, in cells that t does not see. *returned: what the kernel returned. */
static int poisoned_run(kvb_pass *p, uint32_t t, int sides, int *returned)
{
    const kvb_replay_options *o = p->options;
    const kvb_attend *args = &p->call.args;
    const uint32_t heads = args->problem.n_kv_heads;
    kvb_poison *poison = &p->poison.poison;
    int error = 0;
    visible_find(p, t);
    if (sides & SIDE_K)
        error = kvb_poison_fill(poison, &args->k, heads, row_bytes(&args->k, o->k_pool), p->poison.visible);
    if (sides & SIDE_V && !args->problem.v_in_k && !error)
        error = kvb_poison_fill(poison, &args->v, heads, row_bytes(&args->v, o->v_pool), p->poison.visible);
    if (!error) {
        p->place->doing = "in the kernel's attend(), with hidden cells poisoned";
        kvb_kernel_io_poison(&p->io);
        *returned = kvb_call_run(&p->call, p->io.out, p->io.lse);
        p->place->doing = "in the check";
    }
    kvb_poison_restore(poison);
    return error;
}

/* ---- the outcome ------------------------------------------------------------------------------------------------- */

/* A row of the judged call and of the poisoned one. */
typedef struct difference {
    const kvb_pass *pass;
    const char *before, *after; /* the out row of a query and head */
    const char *before_lse, *after_lse;
    size_t bytes;
} difference;

static difference row_difference(const kvb_pass *p, uint32_t query, uint32_t head)
{
    const kvb_problem *problem = &p->call.args.problem;
    const size_t row = (size_t)query * problem->n_heads + head, rows = (size_t)problem->n_tok * problem->n_heads;
    const size_t bytes = problem->v_dim * kvb_elem_bytes(problem->out_elem);
    return (difference){.pass = p,
                        .before = p->io.kept + row * bytes,
                        .after = kvb_kernel_io_row(&p->io, query, head),
                        .before_lse = p->io.kept + rows * bytes + row * sizeof(float),
                        .after_lse = (const char *)&p->io.lse[row],
                        .bytes = bytes};
}

static bool row_changed(const difference *d)
{
    return memcmp(d->before, d->after, d->bytes) || memcmp(d->before_lse, d->after_lse, sizeof(float));
}

static bool was_spoilt(kvb_elem elem, const char *before, const char *after, uint32_t i)
{
    return isfinite(kvb_output_value(elem, before, i)) && !isfinite(kvb_output_value(elem, after, i));
}

/* Finds the first element that is no longer finite. */
static bool row_spoilt(const difference *d, const char **what, uint32_t *channel)
{
    const kvb_problem *problem = &d->pass->call.args.problem;
    *what = "out";
    for (*channel = 0; *channel < problem->v_dim; ++*channel)
        if (was_spoilt(problem->out_elem, d->before, d->after, *channel))
            return true;
    *what = "lse";
    return was_spoilt(KVB_F32, d->before_lse, d->after_lse, 0);
}

/* Has a result of query t, or of all, lost its finiteness? what names the first such one. */
static bool rows_spoilt(const kvb_pass *p, uint32_t t, char *what, size_t what_bytes)
{
    const kvb_problem *problem = &p->call.args.problem;
    const uint32_t begin = t == KVB_POISON_ALL ? 0 : t, end = t == KVB_POISON_ALL ? problem->n_tok : t + 1;
    for (uint32_t query = begin; query < end; query++)
        for (uint32_t head = 0; head < problem->n_heads; head++) {
            const difference d = row_difference(p, query, head);
            const char *of;
            uint32_t channel;
            if (row_changed(&d) && row_spoilt(&d, &of, &channel)) {
                snprintf(what, what_bytes, "%s of layer %u, query %u, head %u is not finite", of, p->place->layer,
                         query, head);
                return true;
            }
        }
    return false;
}

/* Is the row one of t's (or of all), and did its bits change? */
static bool row_touched(const kvb_pass *p, const kvb_expect *expect, uint32_t n, uint32_t t)
{
    const uint32_t query = p->call.args.problem.n_tok - n + expect->query;
    if (!kvb_pass_asks(p, n, expect->query))
        return false;
    const difference d = row_difference(p, query, expect->head);
    return (t == KVB_POISON_ALL || query == t) && row_changed(&d);
}

/* Judges the changed rows of query t, or of all queries, by the oracle. 0 or an error; what is empty if all are right. */
static int rows_judge(kvb_pass *p, kvb_made *m, uint32_t t, char *what, size_t what_bytes)
{
    const uint32_t layer = m->layer, n = m->fed->judged, first = p->call.args.problem.n_tok - n;
    size_t rows, i = 0;
    const kvb_expect *own = kvb_oracle_rows(p->options->oracle, p->place->event, layer, &rows);
    while (i < rows && !row_touched(p, &own[i], n, t))
        i++;
    m->n_rows = 0;
    int error = i < rows ? kvb_pass_judged(p, m) : 0; /* may solve the layer's rows again, for the kernel's q */
    p->judging.foreign.call = (kvb_closeness){0};
    for (; i < m->n_rows && !*what && !error; i++) {
        const kvb_expect *expect = &m->rows[i];
        kvb_diff diff = {0};
        if (!row_touched(p, expect, n, t))
            continue;
        error = kvb_pass_judge_row(p, m, expect, &diff);
        if (!error && diff.any_failed && !kvb_is_tolerated(p->options))
            snprintf(what, what_bytes, "rho of layer %u, query %u, head %u is %.3g", layer, first + expect->query,
                     expect->head, diff.rho);
    }
    const double share = kvb_closeness_share(&p->judging.foreign.call, &p->options->kernel->tolerance);
    if (!error && kvb_is_tolerated(p->options) && share > 1)
        snprintf(what, what_bytes, "layer %u is off by %.3g times what its project tolerates", layer, share);
    return error;
}

/* Makes the poisoned call and judges it. *what: empty if the poison had no effect. */
static int attempt(kvb_pass *p, kvb_made *m, uint32_t t, int sides, char *what, size_t what_bytes)
{
    int returned = 0, error = poisoned_run(p, t, sides, &returned);
    *what = 0;
    if (error)
        return error;
    if (returned)
        snprintf(what, what_bytes, "attend() of layer %u returns %d", m->layer, returned);
    else if (!rows_spoilt(p, t, what, what_bytes))
        error = rows_judge(p, m, t, what, what_bytes);
    return error;
}

/* Poisons the cells that t does not see. If the kernel reads them, finds out which: it tries the cells that no query
 * sees, then K and V alone. */
static int poison_judge(kvb_pass *p, kvb_made *m, uint32_t t)
{
    static const char *const sides[] = {[SIDE_K] = "K rows", [SIDE_V] = "V rows", [SIDE_K | SIDE_V] = "K and V rows"};
    char what[96], other[96], hidden[48] = "no query sees", why[256];
    int side = SIDE_K | SIDE_V, error = attempt(p, m, t, side, what, sizeof what);
    if (error || !*what)
        return error;
    if (!attempt(p, m, KVB_POISON_ALL, side, other, sizeof other) && *other) {
        t = KVB_POISON_ALL;
        memcpy(what, other, sizeof what);
    }
    for (int one = SIDE_K; one <= SIDE_V; one++)
        if (!p->call.args.problem.v_in_k && !attempt(p, m, t, one, other, sizeof other) && *other)
            side = one;
    attempt(p, m, t, side, other, sizeof other); /* for a dump: its results in p->io */
    if (t != KVB_POISON_ALL)
        snprintf(hidden, sizeof hidden, "query %u does not see", t);
    snprintf(why, sizeof why, "%s only with hidden cells poisoned: the kernel reads %s of cells that %s", what,
             sides[side], hidden);
    return kvb_pass_fail(p, KVB_CHECK_POISON, why);
}

int kvb_poison_check_run(kvb_pass *p, kvb_made *m)
{
    bool planned = false;
    int error = poison_plan(p, m, &planned);
    if (!error && planned)
        error = kvb_kernel_io_keep(&p->io);
    return error || !planned ? error : poison_judge(p, m, p->poison.query);
}

void kvb_poison_check_free(kvb_poison_check *x)
{
    kvb_poison_free(&x->poison);
    free(x->visible);
    *x = (kvb_poison_check){0};
}
