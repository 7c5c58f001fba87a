/* SPDX-License-Identifier: Apache-2.0 */
/* The exact side of the matched filter: choosing rows, keeping what was solved. */
#include "oracle/filter_truth.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/wide.h"
#include "workloads/array.h"

/* Weights kept (one for each row and token seen): half of the pairs solved, within these. */
#define LEAST_PAIRS ((uint64_t)1 << 22)
#define MOST_PAIRS  ((uint64_t)1 << 23)
/* V rows kept. */
#define MOST_V_BYTES ((uint64_t)128 << 20)
/* Rows of a unit, if the budget gives no more: what a filter over one token needs. */
#define UNIT_ROWS 256u

/* What the oracle's rows of one unit come to. */
typedef struct tally {
    uint32_t layer, kv_head;
    uint64_t pairs, rows, queries, stride, seen; /* every stride-th query is kept, the last one among them */
    uint32_t index;                              /* of the unit kept, or UINT32_MAX */
    const kvb_expect *last;
} tally;

static uint32_t visible_of(const kvb_census *census, const kvb_expect *row)
{
    return census->visible[kvb_census_place(census, census->first[row->event] + row->query, row->layer)];
}

/* Where a layer's first KV head is in a list of all of them; of n_layers: their number. */
static uint32_t units_before(const kvb_model *m, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < layer; l++)
        n += kvb_model_group(m, l)->kv_heads;
    return n;
}

static tally *tally_of(tally *all, const kvb_model *m, const kvb_expect *row)
{
    const kvb_group *g = kvb_model_group(m, row->layer);
    return &all[units_before(m, row->layer) + row->head / (g->heads / g->kv_heads)];
}

/* Is the row of another query than the one before it in its unit? */
static bool query_begins(tally *t, const kvb_expect *row)
{
    bool begins = !t->last || t->last->event != row->event || t->last->query != row->query;
    t->last = row;
    return begins;
}

static uint32_t units_choose(const kvb_model *m, tally *all, uint32_t n, size_t tokens)
{
    uint64_t pairs = 0, rows = 0, most = 0;
    uint32_t v_dim = 0, filled = 0, taken = 0;
    for (uint32_t u = 0; u < n; u++) {
        uint32_t dim = kvb_model_group(m, all[u].layer)->v_dim;
        pairs += all[u].pairs;
        rows += all[u].rows;
        filled += all[u].rows > 0;
        v_dim = v_dim > dim ? v_dim : dim;
    }
    if (rows == 0)
        return 0;
    uint64_t budget = pairs / 2 > LEAST_PAIRS ? pairs / 2 : LEAST_PAIRS;
    budget = budget < MOST_PAIRS ? budget : MOST_PAIRS;
    uint64_t each = rows / filled < UNIT_ROWS ? rows / filled + 1 : UNIT_ROWS;
    most = budget / (each * (pairs / rows + 1)); /* units */
    uint64_t by_bytes = MOST_V_BYTES / ((uint64_t)tokens * v_dim * sizeof(float) + 1);
    most = most < by_bytes ? most : by_bytes;
    most = most < 1 ? 1 : most < filled ? most : filled;
    for (uint32_t u = 0, at = 0; u < n; u++) {
        all[u].index = UINT32_MAX;
        if (all[u].rows == 0)
            continue;
        /* the filled units at 0, filled / most, 2 filled / most, … */
        if (taken < most && (uint64_t)at * most >= (uint64_t)taken * filled) {
            all[u].stride = (all[u].pairs * most + budget - 1) / budget;
            all[u].index = taken++;
        }
        at++;
    }
    return taken;
}

static bool row_wanted(tally *t, const kvb_expect *row)
{
    if (query_begins(t, row))
        t->seen++;
    return t->index != UINT32_MAX && t->stride && (t->queries - t->seen) % t->stride == 0;
}

static int unit_open(kvb_filter_unit *unit, const kvb_model *m, const tally *t, size_t tokens)
{
    uint32_t dim = kvb_model_group(m, t->layer)->v_dim;
    *unit = (kvb_filter_unit){.layer = t->layer, .kv_head = t->kv_head, .dim = dim};
    unit->inverse = calloc(2 * (size_t)dim, sizeof *unit->inverse);
    unit->mean = unit->inverse + dim;
    unit->v = kvb_pages_alloc((tokens * dim + 1) * sizeof *unit->v);
    unit->norm2 = malloc((tokens + 1) * sizeof *unit->norm2);
    unit->magnitude = malloc((tokens + 1) * sizeof *unit->magnitude);
    return unit->inverse && unit->v && unit->norm2 && unit->magnitude ? 0 : -ENOMEM;
}

/* Gives the wanted rows their places. */
static int rows_open(const kvb_oracle *oracle, const kvb_census *census, kvb_filter_truth *t)
{
    size_t pairs = 0, outputs = 0, runs = 0;
    for (int place = 0; place < 2; place++) { /* first count, then place */
        if (place) {
            t->weights = kvb_pages_alloc((pairs + 1) * sizeof *t->weights);
            t->outputs = kvb_pages_alloc((outputs + 1) * sizeof *t->outputs);
            t->runs = malloc((runs + 1) * sizeof *t->runs);
            if (!t->weights || !t->outputs || !t->runs)
                return -ENOMEM;
            pairs = outputs = runs = 0;
        }
        for (size_t r = 0; r < oracle->n_rows; r++) {
            if (t->number[r] == UINT32_MAX)
                continue;
            kvb_filter_row *row = &t->rows[t->number[r]];
            const kvb_expect *e = &oracle->rows[r];
            size_t at = kvb_census_place(census, census->first[e->event] + e->query, e->layer);
            uint32_t dim = t->units[row->unit].dim;
            row->visible = census->visible[at];
            row->n_runs = census->run_first[at + 1] - census->run_first[at];
            if (place) {
                row->p = t->weights + pairs;
                row->o = t->outputs + outputs;
                row->slope = row->o + dim;
                row->runs = t->runs + runs;
                for (size_t i = 0; i < row->n_runs; i++)
                    row->runs[i] = census->runs[census->run_first[at] + i];
            }
            t->most_visible = row->visible > t->most_visible ? row->visible : t->most_visible;
            pairs += row->visible;
            outputs += 2 * (size_t)dim;
            runs += row->n_runs;
        }
    }
    return 0;
}

static int truth_fill(const kvb_oracle *oracle, const kvb_model *m, const kvb_census *census, tally *all, uint32_t n,
                      kvb_filter_truth *t)
{
    uint32_t units = units_choose(m, all, n, t->tokens);
    t->units = calloc(units + 1, sizeof *t->units);
    t->number = malloc((oracle->n_rows + 1) * sizeof *t->number);
    t->rows = calloc(oracle->n_rows + 1, sizeof *t->rows);
    if (!t->units || !t->number || !t->rows)
        return -ENOMEM;
    t->n_units = units;
    int err = 0;
    for (uint32_t u = 0; !err && u < n; u++) {
        all[u].last = NULL;
        if (all[u].index != UINT32_MAX)
            err = unit_open(&t->units[all[u].index], m, &all[u], t->tokens);
    }
    for (size_t r = 0; !err && r < oracle->n_rows; r++) {
        tally *of = tally_of(all, m, &oracle->rows[r]);
        bool wanted = row_wanted(of, &oracle->rows[r]);
        t->number[r] = wanted ? (uint32_t)t->n_rows : UINT32_MAX;
        if (wanted)
            t->rows[t->n_rows++].unit = of->index;
    }
    return err ? err : rows_open(oracle, census, t);
}

int kvb_filter_truth_open(const kvb_oracle *oracle, const kvb_model *m, const kvb_census *census, size_t tokens,
                          kvb_filter_truth **truth)
{
    uint32_t n = units_before(m, m->n_layers);
    tally *all = calloc(n + 1, sizeof *all);
    kvb_filter_truth *t = calloc(1, sizeof *t);
    int err = all && t ? 0 : -ENOMEM;
    for (uint32_t layer = 0, u = 0; !err && layer < m->n_layers; layer++)
        for (uint32_t h = 0; h < kvb_model_group(m, layer)->kv_heads; h++, u++)
            all[u] = (tally){.layer = layer, .kv_head = h, .index = UINT32_MAX};
    for (size_t r = 0; !err && r < oracle->n_rows; r++) {
        tally *of = tally_of(all, m, &oracle->rows[r]);
        of->queries += query_begins(of, &oracle->rows[r]);
        of->pairs += visible_of(census, &oracle->rows[r]);
        of->rows++;
    }
    if (!err) {
        t->tokens = tokens;
        err = truth_fill(oracle, m, census, all, n, t);
    }
    free(all);
    if (err || t->n_rows == 0) {
        kvb_filter_truth_free(t);
        t = NULL;
    }
    *truth = t;
    return err;
}

void kvb_filter_truth_free(kvb_filter_truth *t)
{
    if (!t)
        return;
    for (uint32_t u = 0; u < t->n_units; u++) {
        free(t->units[u].inverse);
        kvb_pages_free(t->units[u].v);
        free(t->units[u].norm2);
        free(t->units[u].magnitude);
    }
    free(t->units);
    free(t->number);
    free(t->rows);
    free(t->runs);
    kvb_pages_free(t->weights);
    kvb_pages_free(t->outputs);
    free(t);
}

/* ---- what is solved ---------------------------------------------------------------------------------------------- */

#define DROWNED 0.125 /* a quarter of the channels, this many times smaller than the largest */

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Of the root mean squares of V's channels the lower quartile, over the largest; 1 where that is not below DROWNED. */
static double channels_ratio(const kvb_filter_unit *unit, const double *v, size_t tokens, uint32_t v_row)
{
    double size[KVB_MODEL_WIDTH] = {0};
    for (size_t i = 0; i < tokens; i++)
        for (uint32_t c = 0; c < unit->dim; c++)
            size[c] += v[i * v_row + c] * v[i * v_row + c];
    qsort(size, unit->dim, sizeof *size, ascending);
    const double ratio = sqrt(size[unit->dim / 4] / size[unit->dim - 1]);
    return ratio < DROWNED ? ratio : 1; /* 1, where all are 0, too */
}

/* Fills in a unit from the V rows [tokens][v_row]. */
static void unit_fill(kvb_filter_unit *unit, const double *v, size_t tokens, uint32_t v_row)
{
    const uint32_t dim = unit->dim;
    double *restrict mean = unit->mean, *restrict inverse = unit->inverse /* at first: sums of squares */, all = 0;
    memset(mean, 0, dim * sizeof *mean);
    memset(inverse, 0, dim * sizeof *inverse);
    for (size_t i = 0; i < tokens; i++)
        for (uint32_t c = 0; c < dim; c++)
            mean[c] += v[i * v_row + c];
    for (uint32_t c = 0; c < dim; c++)
        mean[c] /= (double)tokens;
    for (size_t i = 0; i < tokens; i++)
        for (uint32_t c = 0; c < dim; c++)
            inverse[c] += (v[i * v_row + c] - mean[c]) * (v[i * v_row + c] - mean[c]);
    for (uint32_t c = 0; c < dim; c++) {
        all += inverse[c];
        inverse[c] = inverse[c] > 0 ? sqrt((double)tokens / inverse[c]) : 0;
    }
    unit->usable = isfinite(all);
    const double ratio = channels_ratio(unit, v, tokens, v_row);
    for (size_t i = 0; i < tokens; i++) {
        double norm2 = 0, largest = 0;
        for (uint32_t c = 0; c < dim; c++) {
            double x = v[i * v_row + c] * inverse[c], size = fabs(v[i * v_row + c]);
            unit->v[i * dim + c] = (float)x;
            norm2 += x * x;
            largest = size > largest ? size : largest;
        }
        unit->norm2[i] = (float)norm2;
        unit->magnitude[i] = (float)(largest * ratio);
    }
}

void kvb_filter_truth_v(kvb_filter_truth *t, uint32_t layer, uint32_t kv_head, const double *v, uint32_t v_row)
{
    for (uint32_t u = 0; t && u < t->n_units; u++)
        if (t->units[u].layer == layer && t->units[u].kv_head == kv_head)
            unit_fill(&t->units[u], v, t->tokens, v_row);
}

/* d s / d log scale, of a logit that is capped. */
static double slope_of(double logit, double softcap)
{
    if (!(softcap > 0))
        return logit;
    double share = logit / softcap, left = 1 - share * share;
    return left > 0 ? softcap * atanh(share) * left : 0;
}

/* Sorts weights into places: one for each `step` of a logit. Two steps share a place with probability 1/PLACES. */
enum { PLACE_BITS = 12, PLACES = 1 << PLACE_BITS };
static uint32_t place_of(double logit, double step)
{
    return (uint32_t)(int64_t)floor(fmin(fmax(logit, -1e9), 1e9) / step);
}

static double *place_at(double *places, uint32_t place)
{
    return &places[place * 2654435761u >> (32 - PLACE_BITS)];
}

/* Adds p_i p_j of all pairs of cells whose logits lie in one step or in neighbouring steps. */
static double pairs_alike(const kvb_filter_row *row, const double *logits, const double *weights, double lse,
                          double step)
{
    double pairs = 0, places[PLACES] = {0};
    for (uint32_t i = 0; i < row->visible; i++) {
        const uint32_t place = place_of(logits[i] - lse, step);
        const double beside = *place_at(places, place - 1) + *place_at(places, place + 1);
        pairs += 2 * weights[i] * (*place_at(places, place) + beside);
        *place_at(places, place) += weights[i];
    }
    return pairs;
}

/* row->slope += the sum over the cells of p (slope - mean) v. */
WIDE static void slopes_add(const kvb_filter_row *row, const kvb_filter_unit *unit, const double *logits,
                            double softcap, double mean)
{
    const uint32_t dim = unit->dim;
    float *restrict slope = row->slope;
    uint32_t i = 0;
    for (size_t n = 0; n < row->n_runs; n++)
        for (uint32_t token = row->runs[n].begin; token < row->runs[n].end; token++, i++) {
            const float *restrict v = unit->v + (size_t)token * dim;
            const float by = row->p[i] * (float)(slope_of(logits[i], softcap) - mean);
            for (uint32_t c = 0; c < dim; c++)
                slope[c] += by * v[c];
        }
}

void kvb_filter_truth_row(kvb_filter_truth *t, size_t r, const kvb_attention *a, const double *logits,
                          const double *weights, double lse, const kvb_bound_term *terms)
{
    if (!t || t->number[r] == UINT32_MAX)
        return;
    kvb_filter_row *row = &t->rows[t->number[r]];
    const kvb_filter_unit *unit = &t->units[row->unit];
    double mean = 0, square = 0, weight = 0, apart = 0;
    for (uint32_t i = 0; i < row->visible; i++) {
        const double p = weights[i];
        weight += p;
        apart += p * p;
        row->p[i] = (float)p;
        const double slope = slope_of(logits[i], a->softcap);
        mean += p * slope;
        square += p * slope * slope;
    }
    row->weight = weight;
    row->apart = sqrt(apart);
    row->cap = a->softcap > 0 ? exp(a->softcap - lse) : INFINITY;
    for (kvb_elem e = KVB_F16; e <= KVB_BF16; e++)
        row->alike[e] = sqrt(pairs_alike(row, logits, weights, lse, kvb_unit_roundoff(e)));
    row->spread = sqrt(fmax(0, square - mean * mean));
    for (uint32_t c = 0; c < unit->dim; c++)
        row->o[c] = (float)(terms[c].o * unit->inverse[c]);
    slopes_add(row, unit, logits, a->softcap, mean);
}
