/* SPDX-License-Identifier: Apache-2.0 */
/* Second opinions: chosen, solved, compared. */
#include "oracle/opinion.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "oracle/sample.h"

#define ARENA_MAX_BYTES ((uint64_t)256 << 20)

/* ---- one row ---------------------------------------------------------------------------------------------------- */

void kvb_opinion_head_open(kvb_opinion_head *head, uint32_t v_dim, kvb_arena *arena)
{
    *head = (kvb_opinion_head){.v_top = kvb_arena_take(arena, v_dim, sizeof *head->v_top), .finite = true};
}

double kvb_opinion_take_k(kvb_opinion_head *head, const kvb_stored *k, size_t at)
{
    const double *size = (k->sizes ? k->sizes : k->rows) + at * k->dim;
    double sum = 0;
    for (uint32_t d = 0; d < k->dim; d++)
        sum += size[d] * size[d];
    head->finite = head->finite && isfinite(sum);
    return sqrt(sum);
}

void kvb_opinion_take_v(kvb_opinion_head *head, const kvb_stored *v, size_t at, uint32_t v_dim)
{
    const double *row = v->rows + at * v->dim, *sizes = v->sizes ? v->sizes + at * v->dim : row;
    double sum = 0;
    head->v_least = INFINITY;
    for (uint32_t c = 0; c < v_dim; c++) {
        double size = fabs(row[c]) < fabs(sizes[c]) ? fabs(sizes[c]) : fabs(row[c]), *top = &head->v_top[c];
        sum += size;
        *top = *top < size && size < INFINITY ? size : *top;
        head->v_least = head->v_least < *top ? head->v_least : *top;
        head->v_most = head->v_most > *top ? head->v_most : *top;
    }
    head->finite = head->finite && isfinite(sum);
}

void kvb_opinion_solve(kvb_attention_row *rows, uint32_t n, const kvb_opinion_head *head, const double *k_norm)
{
    kvb_attention_glance(rows, n, k_norm);
    for (uint32_t i = 0; i < n; i++)
        rows[i].row->v_largest = head->v_most;
}

static kvb_bound_term term_of(const kvb_bound_row *row, double o, double v_top)
{
    double apart = v_top + fabs(o);
    return (kvb_bound_term){.o = o,
                            .spread = apart,
                            .spread_a = apart * row->a_mean,
                            .spread_q = apart * row->q_mean,
                            .spread_s = apart * row->s_mean,
                            .mass = v_top,
                            .v_max = v_top};
}

/* Is each element within `bound`, the least bound of all elements? */
static bool is_near(kvb_elem elem, const void *out, const double *o, uint32_t n, double bound)
{
    double got[KVB_MODEL_WIDTH];
    uint32_t far = 0;
    kvb_output_values(elem, out, 0, n, got);
    for (uint32_t c = 0; c < n; c++)
        far += !(fabs(got[c] - o[c]) <= bound);
    return far == 0;
}

int kvb_opinion_diff(kvb_diff *diff, const kvb_opinion_head *head, const kvb_opinion_row *row, uint32_t v_dim,
                     const kvb_arithmetic *arithmetic, double scale, double softcap, kvb_elem out_elem, const void *out,
                     const float *lse)
{
    kvb_bound_factors factors;
    const kvb_bound_term least = term_of(&row->expect.row, 0, head->v_least);
    kvb_bound_prepare(arithmetic, KVB_BOUND_STATISTICAL, &row->expect.row, scale, softcap, out_elem, &factors);
    double want = row->expect.lse, bound = kvb_bound_channel(&factors, &least);
    if (isfinite(want) && (!lse || fabs((double)*lse - want) <= kvb_bound_log(&factors, want)) &&
        is_near(out_elem, out, row->o, v_dim, bound)) {
        diff->rows++;
        return 0;
    }
    kvb_bound_term *terms = malloc(v_dim * sizeof *terms);
    kvb_expect expect = row->expect;
    if (!terms)
        return -ENOMEM;
    for (uint32_t c = 0; c < v_dim; c++)
        terms[c] = term_of(&expect.row, row->o[c], head->v_top[c]);
    expect.terms = terms;
    kvb_diff_row(diff, &expect, v_dim, arithmetic, scale, softcap, out_elem, out, lse);
    free(terms);
    return 0;
}

/* ---- all rows --------------------------------------------------------------------------------------------------- */

/* Rows and visits of one call. */
typedef struct call_size {
    uint64_t rows, pairs, bytes;
} call_size;

static call_size size_of(const kvb_census *census, size_t event, uint32_t layer)
{
    const kvb_group *g = kvb_model_group(census->model, layer);
    call_size size = {.rows = (census->first[event + 1] - census->first[event]) * g->heads};
    for (size_t q = census->first[event]; q < census->first[event + 1]; q++)
        size.pairs += (uint64_t)census->visible[kvb_census_place(census, q, layer)] * g->heads;
    size.bytes = size.rows * (sizeof(kvb_opinion_row) + g->v_dim * sizeof(double));
    return size;
}

/* Marks the calls that fit. *all: their total size. */
static void calls_choose(const kvb_census *census, uint64_t max_pairs, uint64_t seed, bool *chosen, call_size *all)
{
    call_size total = {0};
    uint32_t n_layers = census->model->n_layers;
    size_t n = census->n_events * n_layers;
    for (size_t i = 0; i < n; i++) {
        call_size size = size_of(census, i / n_layers, (uint32_t)(i % n_layers));
        total.pairs += size.pairs;
        total.bytes += size.bytes;
    }
    double chance = fmin((double)max_pairs / (double)total.pairs, (double)ARENA_MAX_BYTES / (double)total.bytes);
    *all = (call_size){0};
    for (size_t i = 0; i < n; i++) {
        call_size size = size_of(census, i / n_layers, (uint32_t)(i % n_layers));
        bool fits = all->pairs + size.pairs <= max_pairs && all->bytes + size.bytes <= ARENA_MAX_BYTES;
        chosen[i] = fits && (chance >= 1 || kvb_sample_unit(seed, i) < chance);
        all->rows += chosen[i] ? size.rows : 0;
        all->pairs += chosen[i] ? size.pairs : 0;
        all->bytes += chosen[i] ? size.bytes : 0;
    }
}

/* Gives the rows of the chosen calls their places, by event, layer, query and head. */
static void rows_place(const kvb_census *census, const bool *chosen, kvb_opinions *o)
{
    double *out = (double *)(o->rows + o->n_rows);
    size_t at = 0, call = 0;
    for (uint32_t event = 0; event < census->n_events; event++)
        for (uint32_t layer = 0; layer < o->model->n_layers; layer++, call++) {
            const kvb_group *g = kvb_model_group(o->model, layer);
            uint32_t queries = (uint32_t)(census->first[event + 1] - census->first[event]);
            o->first[call] = at;
            for (uint32_t i = 0; chosen[call] && i < queries * g->heads; i++, at++, out += g->v_dim)
                o->rows[at] = (kvb_opinion_row){
                    .expect = {.event = event, .layer = layer, .query = i / g->heads, .head = i % g->heads}, .o = out};
        }
    o->first[call] = at;
}

int kvb_opinions_open(const kvb_census *census, uint64_t max_pairs, uint64_t seed, kvb_opinions **opinions)
{
    const size_t calls = census->n_events * census->model->n_layers;
    kvb_opinions *o = *opinions = calloc(1, sizeof *o);
    if (!o)
        return -ENOMEM;
    o->model = census->model;
    o->first = kvb_arena_take(&o->arena, calls + 1, sizeof *o->first);
    bool *chosen = kvb_arena_take(&o->arena, calls + 1, sizeof *chosen);
    o->heads = kvb_arena_take(&o->arena, o->model->n_layers, sizeof *o->heads);
    for (uint32_t layer = 0; layer < o->model->n_layers && !o->arena.failed; layer++) {
        const kvb_group *g = kvb_model_group(o->model, layer);
        o->heads[layer] = kvb_arena_take(&o->arena, g->kv_heads, sizeof **o->heads);
        for (uint32_t h = 0; h < g->kv_heads && !o->arena.failed; h++)
            kvb_opinion_head_open(&o->heads[layer][h], g->v_dim, &o->arena);
    }
    if (!o->arena.failed) {
        call_size all;
        calls_choose(census, max_pairs, seed, chosen, &all);
        o->n_rows = all.rows;
        o->rows = kvb_pages_alloc(all.bytes + 1);
    }
    if (o->rows) {
        rows_place(census, chosen, o);
        return 0;
    }
    kvb_opinions_free(o);
    *opinions = NULL;
    return -ENOMEM;
}

void kvb_opinions_free(kvb_opinions *o)
{
    if (!o)
        return;
    kvb_pages_free(o->rows);
    kvb_arena_free(&o->arena);
    free(o);
}

kvb_opinion_row *kvb_opinions_of(const kvb_opinions *o, uint32_t event, uint32_t layer, size_t *n)
{
    size_t call = (size_t)event * o->model->n_layers + layer;
    *n = o->first[call + 1] - o->first[call];
    return o->rows + o->first[call];
}
