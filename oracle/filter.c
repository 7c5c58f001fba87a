/* SPDX-License-Identifier: Apache-2.0 */
/* The matched filter: sums over rows, and the directions that stand out. */
#include "oracle/filter.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/solve.h"
#include "workloads/array.h"

/* The exact side of the matched filter: choosing rows, keeping what was solved. */

/* Weights kept (one for each row and token seen): half of the pairs solved, within these. */
#define LEAST_PAIRS ((uint64_t)1 << 22)
#define MOST_PAIRS  ((uint64_t)1 << 23)
/* V rows kept. */
#define MOST_V_BYTES ((uint64_t)128 << 20)
/* Rows of a unit under a small budget: enough for a filter over one token. */
#define UNIT_ROWS 256u

/* Counts over the oracle's rows of one unit. */
typedef struct tally {
    uint32_t layer, kv_head;
    uint64_t pairs, rows, queries, stride, seen; /* every stride-th query is kept, the last one among them */
    uint32_t index;                              /* of the unit kept, or UINT32_MAX */
    const kvb_expect *last;
} tally;

/* Number of KV heads in the layers before this one. */
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

static int unit_open(kvb_filter_truth *truth, kvb_filter_unit *unit, const kvb_model *m, const tally *t)
{
    const size_t dim = kvb_model_group(m, t->layer)->v_dim, tokens = truth->tokens;
    *unit = (kvb_filter_unit){.layer = t->layer, .kv_head = t->kv_head, .dim = (uint32_t)dim};
    unit->inverse = kvb_arena_take(&truth->arena, dim, sizeof *unit->inverse);
    unit->mean = kvb_arena_take(&truth->arena, dim, sizeof *unit->mean);
    unit->v = kvb_pages_alloc((tokens * dim + 1) * sizeof *unit->v);
    unit->norm2 = kvb_arena_take(&truth->arena, tokens + 1, sizeof *unit->norm2);
    unit->magnitude = kvb_arena_take(&truth->arena, tokens + 1, sizeof *unit->magnitude);
    return truth->arena.failed || !unit->v ? -ENOMEM : 0;
}

/* Gives the wanted rows their places. */
static int rows_open(const kvb_oracle *oracle, kvb_filter_truth *t)
{
    const kvb_census *census = &oracle->state->census;
    size_t pairs = 0, outputs = 0, runs = 0;
    for (int place = 0; place < 2; place++) { /* first count, then place */
        if (place) {
            t->weights = kvb_pages_alloc((pairs + 1) * sizeof *t->weights);
            t->outputs = kvb_pages_alloc((outputs + 1) * sizeof *t->outputs);
            t->runs = kvb_arena_take(&t->arena, runs + 1, sizeof *t->runs);
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

static int truth_fill(const kvb_oracle *oracle, tally *all, uint32_t n, kvb_filter_truth *t)
{
    const kvb_model *m = oracle->state->model;
    uint32_t units = units_choose(m, all, n, t->tokens);
    t->units = kvb_arena_take(&t->arena, units + 1u, sizeof *t->units);
    t->number = kvb_arena_take(&t->arena, oracle->n_rows + 1, sizeof *t->number);
    t->rows = kvb_arena_take(&t->arena, oracle->n_rows + 1, sizeof *t->rows);
    if (t->arena.failed)
        return -ENOMEM;
    t->n_units = units;
    int err = 0;
    for (uint32_t u = 0; !err && u < n; u++) {
        all[u].last = NULL;
        if (all[u].index != UINT32_MAX)
            err = unit_open(t, &t->units[all[u].index], m, &all[u]);
    }
    for (size_t r = 0; !err && r < oracle->n_rows; r++) {
        tally *of = tally_of(all, m, &oracle->rows[r]);
        of->seen += query_begins(of, &oracle->rows[r]);
        bool wanted = of->index != UINT32_MAX && of->stride && (of->queries - of->seen) % of->stride == 0;
        t->number[r] = wanted ? (uint32_t)t->n_rows : UINT32_MAX;
        if (wanted)
            t->rows[t->n_rows++].unit = of->index;
    }
    return err ? err : rows_open(oracle, t);
}

int kvb_filter_truth_open(const kvb_oracle *oracle, kvb_filter_truth **truth)
{
    const kvb_model *m = oracle->state->model;
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
        const kvb_census *census = &oracle->state->census;
        const kvb_expect *row = &oracle->rows[r];
        of->pairs += census->visible[kvb_census_place(census, census->first[row->event] + row->query, row->layer)];
        of->rows++;
    }
    if (!err) {
        t->tokens = kvb_state_rows(oracle->state);
        err = truth_fill(oracle, all, n, t);
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
    for (uint32_t u = 0; u < t->n_units; u++)
        kvb_pages_free(t->units[u].v);
    kvb_pages_free(t->weights);
    kvb_pages_free(t->outputs);
    kvb_arena_free(&t->arena);
    free(t);
}

/* ---- solved rows ------------------------------------------------------------------------------------------------- */

#define DROWNED 0.125 /* a quarter of V's channels are below this share of the largest channel */

/* Lower quartile of the root mean squares of V's channels, over the largest; 1 if that is not below DROWNED. */
static double channels_ratio(const kvb_filter_unit *unit, const double *v, size_t tokens, uint32_t v_row)
{
    double size[KVB_MODEL_WIDTH] = {0};
    for (size_t i = 0; i < tokens; i++)
        for (uint32_t c = 0; c < unit->dim; c++)
            size[c] += v[i * v_row + c] * v[i * v_row + c];
    kvb_doubles_sort(size, unit->dim);
    const double ratio = sqrt(size[unit->dim / 4] / size[unit->dim - 1]);
    return ratio < DROWNED ? ratio : 1; /* also 1 if all are 0 */
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
            unit_fill(&t->units[u], v, t->units[u].tokens ? t->units[u].tokens : t->tokens, v_row);
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
static _Thread_local double places[PLACES], *taken[PLACES]; /* zeros between calls; those that are not now */
static double *place_at(uint32_t place)
{
    return &places[place * 2654435761u >> (32 - PLACE_BITS)];
}

static inline double clamped(double x, double most)
{
    return x > -most ? x < most ? x : most : -most;
}

static inline int64_t floor_of(double x)
{
    const int64_t whole = (int64_t)x;
    return whole - (x < (double)whole);
}

/* Adds p_i p_j of all pairs of cells whose logits lie in one step or in neighbouring steps. */
static double pairs_alike(const kvb_filter_row *row, const double *logits, const double *weights, double lse,
                          double step)
{
    const double steps = 1 / step; /* a power of two */
    double pairs = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < row->visible; i++) {
        const uint32_t place = (uint32_t)floor_of(clamped(logits[i] - lse, 1e9) * steps);
        double *here = place_at(place);
        const double beside = *place_at(place - 1) + *place_at(place + 1);
        pairs += 2 * weights[i] * (*here + beside);
        if (*here == 0 && weights[i] != 0)
            taken[n++] = here;
        *here += weights[i];
    }
    while (n > 0)
        *taken[--n] = 0;
    return pairs;
}

/* row->slope: the sum over the cells of p (slope - mean) v. */
KVB_WIDE static void slopes_add(const kvb_filter_row *row, const kvb_filter_unit *unit, const double *slopes,
                                double mean)
{
    const uint32_t dim = unit->dim;
    float *restrict slope = row->slope;
    uint32_t i = 0;
    memset(slope, 0, dim * sizeof *slope); /* new memory that is read first costs a second page fault */
    for (size_t n = 0; n < row->n_runs; n++)
        for (uint32_t token = row->runs[n].begin; token < row->runs[n].end; token++, i++) {
            const float *restrict v = unit->v + (size_t)token * dim;
            const float by = row->p[i] * (float)(slopes[i] - mean);
            for (uint32_t c = 0; c < dim; c++)
                slope[c] += by * v[c];
        }
}

void kvb_filter_truth_row(kvb_filter_truth *t, size_t r, const kvb_attention *a, const double *logits,
                          const double *weights, double lse, const kvb_bound_term *terms, double *slopes)
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
        const double slope = slopes[i] = slope_of(logits[i], a->softcap);
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
    slopes_add(row, unit, slopes, mean);
}

#define CLIP         2.0f
#define ROUNDING_RMS 0.425 /* of a rounding to nearest, over its largest; logarithms uniform: sqrt(1 / (8 ln 2)) */
#define BOUND_SEES                                                                                                     \
    4096u /* cells up to which the bound of f32 products sees each of them: results/power-of-check.md                  \
           */
#define LOST_SHARE        0.25    /* of the weight beside the largest cell: most in cells below half a step */
#define LEAST_V           0x1p-14 /* of a row's largest V: the least normal f16, in which scales and products are kept */
#define LEAST_BESIDE      0.01    /* of the weight: least beside the largest cell */
#define SCALE_STEPS       8   /* least standard deviation of the logits to judge the scale, in roundings of a weight */
#define SPREAD_DIRECTIONS 16u /* the median of fewer says little */

/* Sums over the rows of one direction: x, x^2, s u, s^2, s^2 honest |a|, d. */
typedef struct sums {
    float x, x2, su, s2, honest, d;
} sums;

/* a0, and how far |a| of a mistake must at least exceed the honest one. */
static const struct {
    float matters;
    double least;
} sizes[KVB_FILTER_KINDS] = {
    [KVB_FILTER_HEADS] = {1, 0.75},      [KVB_FILTER_SIZE] = {2e-6f, 2e-6},  [KVB_FILTER_TOKEN] = {1, 0.25},
    [KVB_FILTER_FROM_FIRST] = {1, 0.25}, [KVB_FILTER_FROM_LAST] = {1, 0.25}, [KVB_FILTER_SCALE] = {0.001f, 0.0005},
};

struct kvb_filter {
    const kvb_oracle *oracle;
    const kvb_filter_truth *truth;
    sums *by_token;               /* [units][tokens] */
    sums *from_first, *from_last; /* [most_visible] */
    sums size, scale;
    sums *heads;            /* [heads][heads]: pairs of heads, the lower one first */
    float *e, *t;           /* [dim] a residual, a direction */
    float *along, *along_o; /* [most_visible] */
    uint32_t n_heads;
    uint64_t rows; /* that counted */
    kvb_arena arena;
};

int kvb_filter_open(const kvb_oracle *oracle, kvb_filter **filter)
{
    const kvb_filter_truth *t = oracle->filter;
    const kvb_model *m = oracle->state->model;
    *filter = NULL;
    if (!t)
        return 0;
    kvb_filter *f = calloc(1, sizeof *f);
    if (!f)
        return -ENOMEM;
    uint32_t dim = 0;
    *f = (kvb_filter){.oracle = oracle, .truth = t};
    const size_t most = (size_t)t->most_visible + 1;
    for (uint32_t g = 0; g < m->n_groups; g++) {
        f->n_heads = f->n_heads > m->groups[g].heads ? f->n_heads : m->groups[g].heads;
        dim = dim > m->groups[g].v_dim ? dim : m->groups[g].v_dim;
    }
    f->by_token = kvb_arena_take(&f->arena, t->n_units * t->tokens + 1, sizeof *f->by_token);
    f->from_first = kvb_arena_take(&f->arena, most, sizeof *f->from_first);
    f->from_last = kvb_arena_take(&f->arena, most, sizeof *f->from_last);
    f->heads = kvb_arena_take(&f->arena, (size_t)f->n_heads * f->n_heads, sizeof *f->heads);
    f->e = kvb_arena_take(&f->arena, dim, sizeof *f->e);
    f->t = kvb_arena_take(&f->arena, dim, sizeof *f->t);
    f->along = kvb_arena_take(&f->arena, most, sizeof *f->along);
    f->along_o = kvb_arena_take(&f->arena, most, sizeof *f->along_o);
    if (!f->arena.failed) {
        *filter = f;
        return 0;
    }
    kvb_filter_free(f);
    return -ENOMEM;
}

void kvb_filter_free(kvb_filter *f)
{
    if (!f)
        return;
    kvb_arena_free(&f->arena);
    free(f);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* honest: the largest |a| of roundings that all rows share. */
static inline void sums_add(sums *sum, float matters, float s, float u, float honest, float channels)
{
    float clipped = u > CLIP ? CLIP : u < -CLIP ? -CLIP : u;
    float x = clipped * (matters * s < 1 ? matters * s : 1);
    sum->x += x;
    sum->x2 += x * x;
    sum->su += s * u;
    sum->s2 += s * s;
    sum->honest += s * s * honest;
    sum->d += channels;
}

/* Sums over channels: channel c is added to sum c % SUMS. They are vectors of the compiler, which keeps arrays in memory. */
enum { SUMS = 16 };
typedef float channel_sums __attribute__((vector_size(SUMS * sizeof(float))));
typedef float half_sums __attribute__((vector_size(SUMS / 2 * sizeof(float))));
typedef float quarter_sums __attribute__((vector_size(SUMS / 4 * sizeof(float))));

/* Adds up the sums by halves. */
static inline float halves_sum(const channel_sums *all)
{
    half_sums half, other_half;
    quarter_sums quarter, other_quarter;
    memcpy(&half, all, sizeof half);
    memcpy(&other_half, (const char *)all + sizeof half, sizeof half);
    half += other_half;
    memcpy(&quarter, &half, sizeof quarter);
    memcpy(&other_quarter, (const char *)&half + sizeof quarter, sizeof quarter);
    quarter += other_quarter;
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

/* <v, e> and <v, o> of every row of V that the query sees. */
KVB_WIDE static void products(const kvb_filter_row *row, const kvb_filter_unit *unit, const float *restrict e,
                              const float *restrict o, float *restrict along, float *restrict along_o)
{
    const size_t dim = unit->dim;
    size_t i = 0;
    for (size_t r = 0; r < row->n_runs; r++)
        for (uint32_t token = row->runs[r].begin; token < row->runs[r].end; token++, i++) {
            const float *v = unit->v + token * dim;
            channel_sums by_e = {0}, by_o = {0}, of_v, of_e, of_o;
            size_t c = 0;
            for (; c + SUMS <= dim; c += SUMS) {
                memcpy(&of_v, v + c, sizeof of_v);
                memcpy(&of_e, e + c, sizeof of_e);
                memcpy(&of_o, o + c, sizeof of_o);
                by_e += of_v * of_e;
                by_o += of_v * of_o;
            }
            for (; c < dim; c++) {
                by_e[0] += v[c] * e[c];
                by_o[0] += v[c] * o[c];
            }
            along[i] = halves_sum(&by_e);
            along_o[i] = halves_sum(&by_o);
        }
}

static double dot(const float *a, const float *b, uint32_t dim)
{
    double sum = 0;
    for (uint32_t c = 0; c < dim; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

/* The current row. */
typedef struct judged {
    const kvb_filter_row *row;
    const kvb_filter_unit *unit;
    double e_norm, channels;
    double half;    /* half a step: products p_i max_c |v_ic| below it may have become 0 */
    double unclear; /* share of the weight in cells whose product is below a step */
    double bent;    /* relative error of a weight that an error of its logit may cause */
} judged;

static bool is_narrow(const kvb_rounding *r)
{
    return r->rounding != KVB_F32 || r->step > 0;
}

/* Adds up the weights of cells whose logits reach the softcap less `below`. Their logits are nearly equal in all rows,
 * so one rounding may hit all of them. */
static double capped(const kvb_filter_row *row, double below)
{
    const double least = row->cap * exp(-below);
    double sum = 0;
    for (uint32_t i = 0; i < row->visible && least <= 1; i++)
        sum += (double)row->p[i] >= least ? (double)row->p[i] : 0;
    return sum;
}

/* The weights that round alike within the row; all, for types of few bits. */
static double alike(const kvb_filter_row *row, kvb_elem rounding)
{
    if (rounding == KVB_F32)
        return 0;
    return rounding == KVB_F16 || rounding == KVB_BF16 ? row->alike[rounding] : row->weight;
}

/* Relative error of an honest output if all rows round alike: oracle/filter.h. */
static double size_honest(const judged *r, const kvb_arithmetic *a, kvb_elem out_elem)
{
    const kvb_filter_row *row = r->row;
    const kvb_rounding *w = &a->sums;
    double u = kvb_unit_roundoff(w->rounding), square = 0, fourth = 0;
    for (uint32_t c = 0; c < r->unit->dim; c++) {
        double o2 = (double)row->o[c] * (double)row->o[c];
        square += o2;
        fourth += o2 * o2;
    }
    double added = kvb_unit_roundoff(a->accumulator) * (sqrt(a->cell_chain) / 2 + sqrt(a->rescales)) + 2 * a->exp_error;
    double weights = u * (alike(row, w->rounding) + capped(row, u) + ROUNDING_RMS * row->apart) +
                     (is_narrow(w) ? u * w->chain : 0) + w->step / 2 + r->unclear;
    return added + weights + (square > 0 ? kvb_unit_roundoff(out_elem) * sqrt(fourth) / square : 0);
}

/* Adds the row's residual in the direction t. */
static void direction_add(sums *sum, kvb_filter_kind kind, const judged *r, const float *e, const float *t,
                          double honest)
{
    uint32_t dim = r->unit->dim;
    double norm = sqrt(dot(t, t, dim)), root = sqrt(r->channels);
    if (norm > 0)
        sums_add(sum, sizes[kind].matters + (float)honest, (float)(root * norm / r->e_norm),
                 (float)(root * dot(e, t, dim) / (r->e_norm * norm)), (float)honest, (float)r->channels);
}

/* Relative error of a weight that an error of its logit may cause: oracle/filter.h. */
static double bent_by(const kvb_filter *f, const kvb_expect *row, const kvb_expect *actual, const kvb_arithmetic *a,
                      kvb_elem out_elem)
{
    const kvb_group *g = kvb_model_group(f->oracle->state->model, row->layer);
    kvb_bound_factors factors;
    kvb_bound_prepare(a, KVB_BOUND_STATISTICAL, &actual->row, g->scale, (double)g->softcap, out_elem, &factors);
    return expm1(factors.d_max / KVB_LAMBDA);
}

/* Does the row show an error of the scale? Its logits must spread over enough roundings of a weight, and none may lie
 * just below the softcap. step: largest relative distance of neighbouring rounded weights. */
static bool shows_scale(const judged *r, double step)
{
    const kvb_filter_row *row = r->row;
    return row->spread >= SCALE_STEPS * step && capped(row, SCALE_STEPS * step) == 0;
}

/* Does the row say something about single cells? It must have enough weight beside its largest cell, and most of that
 * weight in cells that rounding cannot have made 0. Sets r->unclear. */
static bool is_telling(judged *r, double p_max)
{
    const kvb_filter_row *row = r->row;
    double lost = 0, unclear = 0, all = row->weight;
    uint32_t i = 0;
    for (size_t n = 0; n < row->n_runs && r->half > (double)FLT_MIN; n++)
        for (uint32_t token = row->runs[n].begin; token < row->runs[n].end; token++, i++) {
            double p = (double)row->p[i], product = p * (double)r->unit->magnitude[token];
            lost += product < r->half ? p : 0;
            unclear += product < 2 * r->half ? p : 0;
        }
    r->unclear = unclear / all;
    return all - p_max >= LEAST_BESIDE * all && lost <= LOST_SHARE * (all - p_max);
}

static void cells_add(kvb_filter *f, const judged *r)
{
    const kvb_filter_row *row = r->row;
    const kvb_filter_unit *unit = r->unit;
    double e_o = dot(f->e, row->o, unit->dim), o_o = dot(row->o, row->o, unit->dim);
    sums *by_token = f->by_token + (size_t)row->unit * f->truth->tokens;
    float per_e = (float)(sqrt(r->channels) / r->e_norm), channels = (float)r->channels, half = (float)r->half;
    uint32_t i = 0;
    products(row, unit, f->e, row->o, f->along, f->along_o);
    for (size_t n = 0; n < row->n_runs; n++)
        for (uint32_t token = row->runs[n].begin; token < row->runs[n].end; token++, i++) {
            float product = row->p[i] * unit->magnitude[token];
            float norm2 = unit->norm2[token] - 2 * f->along_o[i] + (float)o_o; /* of v - o */
            if (!(product > half) || !(norm2 > 1e-3f * unit->norm2[token]))
                continue;
            float norm = sqrtf(norm2), s = row->p[i] * norm * per_e, u = (f->along[i] - (float)e_o) / norm * per_e;
            float honest = half / product + (float)r->bent;
            sums_add(&by_token[token], sizes[KVB_FILTER_TOKEN].matters, s, u, honest, channels);
            sums_add(&f->from_first[i], sizes[KVB_FILTER_FROM_FIRST].matters, s, u, honest, channels);
            sums_add(&f->from_last[row->visible - 1 - i], sizes[KVB_FILTER_FROM_LAST].matters, s, u, honest, channels);
        }
}

/* Adds the directions to the query's other heads: the oracle's rows beside this one. */
static void heads_add(kvb_filter *f, const kvb_expect *expect, const judged *r)
{
    const kvb_expect *begin = expect, *end = expect, *all = f->oracle->rows;
    while (begin > all && begin[-1].event == expect->event && begin[-1].layer == expect->layer &&
           begin[-1].query == expect->query)
        begin--;
    while (end < all + f->oracle->n_rows && end->event == expect->event && end->layer == expect->layer &&
           end->query == expect->query)
        end++;
    for (const kvb_expect *other = begin; other < end; other++) {
        if (other == expect)
            continue;
        for (uint32_t c = 0; c < r->unit->dim; c++)
            f->t[c] = (float)((other->terms[c].o - expect->terms[c].o) * r->unit->inverse[c]);
        uint32_t low = other->head < expect->head ? other->head : expect->head, high = other->head + expect->head - low;
        direction_add(&f->heads[(size_t)low * f->n_heads + high], KVB_FILTER_HEADS, r, f->e, f->t, 0);
    }
}

void kvb_filter_add(kvb_filter *f, const kvb_expect *expect, const kvb_expect *actual, const kvb_arithmetic *arithmetic,
                    kvb_elem out_elem, const void *out)
{
    uint32_t number = f ? f->truth->number[expect - f->oracle->rows] : UINT32_MAX;
    bool rounds = is_narrow(&arithmetic->query) || is_narrow(&arithmetic->scores) || is_narrow(&arithmetic->sums);
    if (number == UINT32_MAX)
        return;
    const kvb_rounding *weights = &arithmetic->sums;
    const double coarsest = fmax(fmax(weights->step, weights->floor), arithmetic->exp_floor);
    judged r = {.row = &f->truth->rows[number], .half = coarsest / 2 * actual->row.p_max * actual->row.v_largest};
    r.unit = &f->truth->units[r.row->unit];
    double norm2 = 0, step = fmax(2 * kvb_unit_roundoff(weights->rounding), weights->step);
    double got[KVB_MODEL_WIDTH];
    kvb_output_values(out_elem, out, 0, r.unit->dim, got);
    for (uint32_t c = 0; c < r.unit->dim; c++) {
        double e = (got[c] - actual->terms[c].o) * r.unit->inverse[c];
        f->e[c] = (float)e;
        norm2 += e * e;
        r.channels += r.unit->inverse[c] > 0;
    }
    r.e_norm = sqrt(norm2);
    r.bent = bent_by(f, expect, actual, arithmetic, out_elem);
    if (!r.unit->usable || !isnormal((float)norm2) || actual->row.v_largest < LEAST_V || !(r.bent < 1) ||
        !is_telling(&r, actual->row.p_max))
        return;
    f->rows++;
    direction_add(&f->size, KVB_FILTER_SIZE, &r, f->e, r.row->o, size_honest(&r, arithmetic, out_elem));
    if (!rounds && expect->visible <= BOUND_SEES)
        return;
    if (shows_scale(&r, step))
        direction_add(&f->scale, KVB_FILTER_SCALE, &r, f->e, r.row->slope, weights->step / 4);
    cells_add(f, &r);
    heads_add(f, expect, &r);
}

/* ---- directions that stand out ----------------------------------------------------------------------------------- */

/* T of oracle/filter.h. */
static double score_of(const sums *sum)
{
    return sum->s2 > 0 ? (double)sum->su / sqrt((double)sum->s2) : 0;
}

/* Median and spread of the scores of n directions; those without rows are left out. scratch: [n]. */
static void spread_of(const sums *all, size_t n, double *scratch, double *median, double *spread)
{
    size_t used = 0;
    *median = 0;
    *spread = 1;
    for (size_t i = 0; i < n; i++)
        if (all[i].x2 > 0)
            scratch[used++] = score_of(&all[i]);
    if (used < SPREAD_DIRECTIONS)
        return;
    kvb_doubles_sort(scratch, used);
    *median = scratch[used / 2];
    for (size_t i = 0; i < used; i++)
        scratch[i] = fabs(scratch[i] - *median);
    kvb_doubles_sort(scratch, used);
    *spread = fmax(1, 1.4826 * scratch[used / 2]);
}

/* Takes direction `at` into account. Returns whether it is above the peak so far. */
static bool peak_take(kvb_filter_peak *peak, kvb_filter_kind kind, const sums *sum, double median, double spread,
                      uint32_t at)
{
    if (!(sum->x2 > 0))
        return false;
    double a = (double)sum->su / (double)sum->s2, t = score_of(sum) - median, d = (double)sum->d;
    double signs = fabs((double)sum->x) / sqrt((double)sum->x2), share = fmin(t * t / d, 1 - 1e-9);
    double z = fmin(signs, sqrt(-d * log1p(-share)) / spread);
    if (!(fabs(a) >= sizes[kind].least + (double)sum->honest / (double)sum->s2) || !(z > peak->z))
        return false;
    *peak = (kvb_filter_peak){.z = z, .a = a, .at = at};
    return true;
}

/* The peak of n directions of a kind. Returns whether it is above the one so far. */
static bool peaks_take(kvb_filter_peak *peak, kvb_filter_kind kind, const sums *all, size_t n)
{
    double median = 0, spread = 1, *scratch = malloc((n + 1) * sizeof *scratch);
    bool higher = false;
    if (scratch) /* without memory the spread stays 1: alarms may be added, none is lost */
        spread_of(all, n, scratch, &median, &spread);
    free(scratch);
    for (size_t i = 0; i < n; i++)
        higher |= peak_take(peak, kind, &all[i], median, spread, (uint32_t)i);
    return higher;
}

uint64_t kvb_filter_rows(const kvb_filter *f)
{
    return f ? f->rows : 0;
}

double kvb_filter_peaks(const kvb_filter *f, kvb_filter_peak peaks[KVB_FILTER_KINDS])
{
    double z = NAN;
    for (int kind = 0; kind < KVB_FILTER_KINDS; kind++)
        peaks[kind] = (kvb_filter_peak){0};
    if (!f || f->rows == 0)
        return z;
    const kvb_filter_truth *t = f->truth;
    for (uint32_t u = 0; u < t->n_units; u++)
        if (peaks_take(&peaks[KVB_FILTER_TOKEN], KVB_FILTER_TOKEN, f->by_token + u * t->tokens, t->tokens)) {
            peaks[KVB_FILTER_TOKEN].layer = t->units[u].layer;
            peaks[KVB_FILTER_TOKEN].kv_head = t->units[u].kv_head;
            peaks[KVB_FILTER_TOKEN].sequence = t->units[u].sequence;
        }
    peaks_take(&peaks[KVB_FILTER_FROM_FIRST], KVB_FILTER_FROM_FIRST, f->from_first, t->most_visible);
    peaks_take(&peaks[KVB_FILTER_FROM_LAST], KVB_FILTER_FROM_LAST, f->from_last, t->most_visible);
    peak_take(&peaks[KVB_FILTER_SIZE], KVB_FILTER_SIZE, &f->size, 0, 1, 0);
    peak_take(&peaks[KVB_FILTER_SCALE], KVB_FILTER_SCALE, &f->scale, 0, 1, 0);
    kvb_filter_peak *heads = &peaks[KVB_FILTER_HEADS];
    for (uint32_t i = 0; i < f->n_heads * f->n_heads; i++)
        peak_take(heads, KVB_FILTER_HEADS, &f->heads[i], 0, 1, i);
    heads->other = heads->at % f->n_heads;
    heads->at /= f->n_heads;
    for (int kind = 0; kind < KVB_FILTER_KINDS; kind++)
        z = fmax(z, peaks[kind].z);
    return z;
}

void kvb_filter_words(const kvb_filter_peak peaks[KVB_FILTER_KINDS], char *why, size_t why_bytes)
{
    const kvb_filter_peak *best = NULL;
    kvb_filter_kind kind = KVB_FILTER_HEADS;
    /* The first kind above the limit, but the highest of outputs and cells: a missing cell also makes outputs larger. */
    for (int k = 0; k < KVB_FILTER_KINDS; k++) {
        bool among = k >= KVB_FILTER_SIZE && k <= KVB_FILTER_FROM_LAST && kind >= KVB_FILTER_SIZE;
        if (peaks[k].z > KVB_FILTER_LIMIT && (!best || (among && peaks[k].z > best->z))) {
            best = &peaks[k];
            kind = (kvb_filter_kind)k;
        }
    }
    if (why_bytes)
        *why = 0;
    if (!best)
        return;
    const char *cell = best->a < 0 ? "is missing from, or has a wrong V row in," : "is doubled in";
    switch (kind) {
    case KVB_FILTER_HEADS:
        snprintf(why, why_bytes, "outputs of heads %u and %u look swapped", best->at, best->other);
        break;
    case KVB_FILTER_SIZE:
        snprintf(why, why_bytes, "the outputs are off by about %+.3g %% of themselves", 100 * best->a);
        break;
    case KVB_FILTER_TOKEN:
        snprintf(why, why_bytes, "token %u %s the outputs of KV head %u, %s %u", best->at, cell, best->kv_head,
                 best->sequence ? "sequence" : "layer", best->layer);
        break;
    case KVB_FILTER_FROM_FIRST:
        snprintf(why, why_bytes, "cell %u of those that each query sees %s the outputs", best->at, cell);
        break;
    case KVB_FILTER_FROM_LAST:
        snprintf(why, why_bytes, "cell %u from the last of those that each query sees %s the outputs", best->at, cell);
        break;
    default:
        snprintf(why, why_bytes, "the scale is off by about %+.2f %%", 100 * best->a);
    }
    size_t used = strlen(why);
    snprintf(why + used, why_bytes - used, ": z = %.1f, above %.1f", best->z, KVB_FILTER_LIMIT);
}
