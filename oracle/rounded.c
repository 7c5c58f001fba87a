/* SPDX-License-Identifier: Apache-2.0 */
/* A layer's rows, solved once more for a kernel that rounds. */
#include "oracle/oracle.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/claim.h"
#include "oracle/solve.h"
#include "workloads/array.h"
#include "workloads/files.h"

/* What computing the rounded q in f32 may add to the declared distance, relative to the row's largest |q|. */
#define F32_ROUNDINGS (8 * 0x1p-24)

typedef struct layer_rows {
    kvb_oracle part; /* rows of this layer alone; NULL: not made yet */
    double *q;       /* [rows][k_dim] */
    kvb_bound_term *terms;
    kvb_arena arena; /* of rows, q and terms */
} layer_rows;

struct kvb_rounded {
    kvb_oracle *oracle;
    const kvb_kernel *kernel;
    layer_rows layers[KVB_MODEL_LAYERS];
};

int kvb_rounded_open(kvb_oracle *oracle, const kvb_kernel *kernel, kvb_rounded **rounded)
{
    kvb_rounded *r = calloc(1, sizeof *r);
    *rounded = r;
    if (!r)
        return -ENOMEM;
    r->oracle = oracle;
    r->kernel = kernel;
    return 0;
}

static void layer_free(layer_rows *l)
{
    kvb_arena_free(&l->arena);
    *l = (layer_rows){.q = NULL};
}

void kvb_rounded_free(kvb_rounded *r)
{
    for (uint32_t layer = 0; r && layer < KVB_MODEL_LAYERS; layer++)
        layer_free(&r->layers[layer]);
    free(r);
}

/* ---- the rounded q ----------------------------------------------------------------------------------------------- */

/* Instructions may take numbers below this as 0, or drop their last bits. */
#define LEAST_NUMBER 0x1p-126

/*
 * The distance of `rounded` from q, divided by the declared one: above 1 breaks the declaration. It is the largest of
 * all channels. If a transform turns K (`turned`), the kernel rounds a turned q, and its error spreads over the channels:
 * then the distance is the norm of the errors, and q's norm stands for the largest magnitude of the turned q. Every
 * element may be off by `least` besides. 0: q is not finite.
 */
static double distance_of(const kvb_rounding *declared, bool turned, double least, const float *q,
                          const double *rounded, uint32_t dim)
{
    double largest = 0, norm = 0, off = 0, most = 0;
    const double u = declared->rounding == KVB_F32 ? 0 : kvb_unit_roundoff(declared->rounding);
    for (uint32_t c = 0; c < dim; c++) {
        if (!isfinite(q[c]))
            return 0;
        largest = fmax(largest, fabs((double)q[c]));
        norm += (double)q[c] * (double)q[c];
    }
    const double part = declared->step / 2 + declared->floor + F32_ROUNDINGS;
    for (uint32_t c = 0; c < dim; c++) {
        double error = fabs(rounded[c] - (double)q[c]), may = part * largest + u * fabs((double)q[c]) + least;
        off += error * error;
        if (!(error <= may))
            most = fmax(most, may > 0 && isfinite(error) ? error / may : INFINITY);
    }
    return turned ? sqrt(off) / ((part * sqrt(dim) + u) * sqrt(norm) + least * sqrt(dim)) : most;
}

int kvb_rounded_check(const kvb_problem *p, const kvb_arithmetic *a, double scale, const char *what, uint32_t query,
                      uint32_t head, const float *exact, const double *q, char *why, size_t why_bytes)
{
    /* LEAST_NUMBER limits the product with the scale, which may be far below 1. */
    const double least = LEAST_NUMBER * (scale > 0 && scale < 1 ? 1 / scale : 1);
    const bool turned = p->k_format->transform != KVB_TRANSFORM_NONE;
    kvb_rounding most = a->query;
    const struct {
        const kvb_rounding *by;
        const char *words;
    } limits[] = {{&a->query, "the kernel declares"}, {&most, "codes of 8 bits need"}};
    const size_t n = kvb_claim_cut_told(&most) ? 2 : 1;
    for (size_t i = 0; i < n; i++) {
        const double distance = distance_of(limits[i].by, turned, least, exact, q, p->k_dim);
        if (!(distance <= 1))
            return kvb_why_set(-EILSEQ, why, why_bytes, "%s moves q %.3g times as far as %s: query %u, head %u", what,
                               distance, limits[i].words, query, head);
    }
    return 0;
}

int kvb_rounded_q(const kvb_kernel *kernel, const kvb_attend *call, const kvb_arithmetic *a, uint32_t query,
                  uint32_t head, const float *exact, double *q, char *why, size_t why_bytes)
{
    const kvb_problem *p = &call->problem;
    int error = kernel->round_query(p, &call->k, head, exact, q);
    if (error)
        return kvb_why_set(error, why, why_bytes, "round_query() returned %d", error);
    const double scale = call->k.head_scales ? (double)call->k.head_scales[head / (p->n_heads / p->n_kv_heads)] : 1;
    return kvb_rounded_check(p, a, scale, "round_query()", query, head, exact, q, why, why_bytes);
}

static int row_round(const kvb_rounded *r, const kvb_attend *call, const kvb_expect *row, const kvb_arithmetic *a,
                     double *q, char *why, size_t why_bytes)
{
    return kvb_rounded_q(r->kernel, call, a, row->query, row->head, kvb_state_q(r->oracle->state, row), q, why,
                         why_bytes);
}

/* ---- rows of a layer --------------------------------------------------------------------------------------------- */

static int layer_open(const kvb_rounded *r, uint32_t layer, double step, layer_rows *l)
{
    const kvb_oracle *all = r->oracle;
    const kvb_group *g = kvb_model_group(all->state->model, layer);
    size_t n = 0;
    for (size_t i = 0; i < all->n_rows; i++)
        n += all->rows[i].layer == layer;
    l->part =
        (kvb_oracle){.rows = kvb_arena_take(&l->arena, n + 1, sizeof *l->part.rows), .n_rows = n, .state = all->state};
    l->terms = kvb_arena_take(&l->arena, (n + 1) * g->v_dim, sizeof *l->terms);
    l->q = r->kernel->round_query ? kvb_arena_take(&l->arena, (n + 1) * g->k_dim, sizeof *l->q) : NULL;
    if (l->arena.failed)
        return -ENOMEM;
    kvb_expect *row = l->part.rows;
    for (size_t i = 0; i < all->n_rows; i++)
        if (all->rows[i].layer == layer) {
            size_t at = (size_t)(row - l->part.rows);
            *row = all->rows[i];
            row->terms = l->terms + at * g->v_dim;
            row->q = l->q ? l->q + at * g->k_dim : NULL;
            row++->row.step = step;
        }
    return 0;
}

static int layer_solve(const kvb_rounded *r, const kvb_attend *call, const kvb_arithmetic *a, uint32_t layer,
                       layer_rows *l, char *why, size_t why_bytes)
{
    const kvb_oracle_options options = {.team = call->team};
    int error = layer_open(r, layer, a->sums.step, l);
    for (size_t i = 0; !error && l->q && i < l->part.n_rows; i++)
        error = row_round(r, call, &l->part.rows[i], a, l->q + i * call->problem.k_dim, why, why_bytes);
    if (error || kvb_oracle_needs_writes(r->oracle))
        return error;
    return kvb_solve(&l->part, &options, NULL);
}

int kvb_rounded_rows(kvb_rounded *r, const kvb_attend *call, uint32_t event, uint32_t layer, kvb_arithmetic *arithmetic,
                     const kvb_expect **rows, size_t *n, char *why, size_t why_bytes)
{
    layer_rows *l = &r->layers[layer];
    const uint32_t k_dim = call->problem.k_dim;
    int error = 0;

    *why = '\0';
    *rows = kvb_oracle_rows(r->oracle, event, layer, n);
    if ((!r->kernel->round_query && arithmetic->sums.step <= 0) || *n == 0)
        return 0;
    if (!l->part.rows)
        error = layer_solve(r, call, arithmetic, layer, l, why, why_bytes);
    if (error) {
        layer_free(l);
        return error;
    }
    *rows = kvb_oracle_rows(&l->part, event, layer, n);
    if (!l->q)
        return 0;
    double *again = malloc((k_dim + 1) * sizeof *again);
    error = again ? 0 : -ENOMEM;
    for (size_t i = 0; !error && i < *n; i++) {
        error = row_round(r, call, *rows + i, arithmetic, again, why, why_bytes);
        if (!error && memcmp(again, (*rows)[i].q, k_dim * sizeof *again)) {
            snprintf(why, why_bytes, "round_query() gives another q for another call: query %u, head %u",
                     (*rows)[i].query, (*rows)[i].head);
            error = -EILSEQ;
        }
    }
    free(again);
    arithmetic->query = (kvb_rounding){.step = 0}; /* the rows have that q */
    return error;
}
