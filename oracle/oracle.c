/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/oracle.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/claim.h"
#include "oracle/codec.h"
#include "oracle/descent.h"
#include "oracle/filter.h"
#include "oracle/opinion.h"
#include "oracle/recurrence.h"
#include "oracle/sample.h"
#include "oracle/solve.h"
#include "oracle/storage.h"
#include "workloads/array.h"

/* ---- comparing outputs with expected rows: measurements, not a verdict ------------------------------------------ */

double kvb_output_value(kvb_elem elem, const void *out, size_t i)
{
    if (elem == KVB_F32) {
        float x;
        memcpy(&x, (const char *)out + i * sizeof x, sizeof x);
        return (double)x;
    }
    uint16_t bits;
    memcpy(&bits, (const char *)out + i * sizeof bits, sizeof bits);
    assert(elem == KVB_F16 || elem == KVB_BF16);
    return kvb_codec_value(elem, bits);
}

void kvb_output_values(kvb_elem elem, const void *out, size_t first, uint32_t n, double *values)
{
    const float *wide = out;
    const uint16_t *narrow = out;
    if (elem != KVB_F32)
        kvb_codec_values(elem, narrow + first, n, values);
    for (uint32_t i = 0; elem == KVB_F32 && i < n; i++)
        values[i] = (double)wide[first + i];
}

/* From this magnitude on a value rounds to infinity. */
static double overflow_begin(kvb_elem elem)
{
    return elem == KVB_F16 ? 65520 : elem == KVB_BF16 ? 0x1.ffp127 : 0x1.ffffffp127;
}

/*
 * |got - want|; infinity if want cannot have been rounded to got. An infinite result is right if the bound allows the
 * exact value to round to it. Any result that is not finite is right if the stored rows make the exact value infinite
 * or NaN (an original that overflows its format).
 */
static double error_between(double got, double want, double bound, kvb_elem elem, uint64_t *not_finite)
{
    if (!isfinite(want))
        return isfinite(got) ? INFINITY : 0;
    if (isfinite(got))
        return fabs(got - want);
    if (isinf(got) && signbit(got) == signbit(want) && fabs(want) + bound >= overflow_begin(elem))
        return 0;
    ++*not_finite;
    return INFINITY;
}

static double ratio(double error, double bound)
{
    if (error == 0)
        return 0;
    if (!(error < INFINITY))
        return INFINITY;
    return bound > 0 ? error / bound : INFINITY; /* a bound of NaN is no bound either */
}

static bool is_of_call(const kvb_diff_place *place, const kvb_diff_place *e)
{
    return place->event == e->event && place->layer == e->layer && place->part == e->part;
}

/* Takes one element into account. */
static void element_take(kvb_diff *diff, double rho, const kvb_diff_place *e)
{
    bool fails = rho > 1, begins = !is_of_call(&diff->first, e);
    if (rho > diff->rho || diff->elements == 0) {
        diff->rho = rho;
        diff->worst = *e;
    }
    if (!diff->any_failed && begins) /* the call of `first` is counted from its begin on */
        diff->first_elements = 0;
    if (!diff->any_failed && (begins || fails))
        diff->first = *e;
    diff->any_failed |= fails;
    if (diff->again)
        return;
    bool counts = is_of_call(&diff->first, e);
    diff->elements++;
    diff->failed += fails;
    diff->first_elements += counts;
    if (!fails || !counts)
        return;
    diff->first_failed++;
    diff->first_heads[e->head / 64] |= UINT64_C(1) << e->head % 64;
    if (e->query < KVB_DIFF_QUERIES)
        diff->first_queries[e->query / 64] |= UINT64_C(1) << e->query % 64;
}

#define LOT 64u /* outputs that are decoded together */

void kvb_diff_row(kvb_diff *diff, const kvb_expect *e, uint32_t v_dim, const kvb_arithmetic *arithmetic, double scale,
                  double softcap, kvb_elem out_elem, const void *out, const float *lse)
{
    kvb_bound_factors statistical, worst;
    kvb_bound_prepare(arithmetic, KVB_BOUND_STATISTICAL, &e->row, scale, softcap, out_elem, &statistical);
    kvb_bound_prepare(arithmetic, KVB_BOUND_WORST, &e->row, scale, softcap, out_elem, &worst);
    bool empty = isinf(e->lse) && e->lse < 0; /* sees nothing, not even a sink: exactly 0 */

    uint32_t passing = empty ? 0 : KVB_CLAIM_OTHERS;
    kvb_diff_place place = {.event = e->event, .layer = e->layer, .query = e->query, .head = e->head};
    double gots[LOT];
    for (uint32_t c = 0; c < v_dim; c++) {
        const kvb_bound_term *term = &e->terms[c];
        if (c % LOT == 0)
            kvb_output_values(out_elem, out, c, v_dim - c < LOT ? v_dim - c : LOT, gots);
        double bound = empty ? 0 : kvb_bound_channel(&statistical, term);
        double error = error_between(gots[c % LOT], term->o, bound, out_elem, &diff->not_finite);
        double rho = ratio(error, bound);
        passing = kvb_claim_passing(passing, term, bound);
        place.channel = c, place.got = gots[c % LOT], place.want = term->o, place.bound = bound;
        element_take(diff, rho, &place);
        if (rho > diff->rho_worst) /* the worst bound is the wider */
            diff->rho_worst = fmax(diff->rho_worst, ratio(error, empty ? 0 : kvb_bound_channel(&worst, term)));
        if (error > diff->max_abs)
            diff->max_abs = error;
        diff->sum_error2 += error * error;
        if (isfinite(term->o))
            diff->sum_exact2 += term->o * term->o;
    }
    if (passing)
        kvb_claim_row(&diff->claim, passing, e, v_dim, arithmetic, scale, softcap, out_elem);
    if (lse) {
        double got = (double)*lse, bound = kvb_bound_log(&statistical, e->lse);
        double error = error_between(got, e->lse, bound, KVB_F32, &diff->not_finite);
        if (empty)
            error = got == e->lse ? 0 : INFINITY;
        double rho = ratio(error, bound);
        place.channel = v_dim, place.got = got, place.want = e->lse, place.bound = bound;
        element_take(diff, rho, &place);
        diff->rho_lse = fmax(diff->rho_lse, rho);
        diff->rho_worst = fmax(diff->rho_worst, ratio(error, kvb_bound_log(&worst, e->lse)));
    }
    diff->rows++;
    diff->silent += empty || (passing & 1);
    diff->rel_l2 = diff->sum_error2 > 0 ? sqrt(diff->sum_error2 / diff->sum_exact2) : 0;
}

void kvb_diff_take(kvb_diff *diff, const kvb_diff_place *first, const kvb_recurrence_want *want, size_t n,
                   kvb_elem elem, const void *got)
{
    kvb_diff_place place = *first;
    for (size_t i = 0; i < n; i++, place.channel++) {
        place.got = kvb_output_value(elem, got, i);
        place.want = want[i].value;
        place.bound = want[i].bound;
        double error = error_between(place.got, place.want, place.bound, elem, &diff->not_finite);
        element_take(diff, ratio(error, place.bound), &place);
        diff->rho_worst = fmax(diff->rho_worst, ratio(error, want[i].worst));
        diff->max_abs = fmax(diff->max_abs, error);
        diff->sum_error2 += error * error;
        diff->sum_exact2 += place.want * place.want;
    }
    diff->rel_l2 = diff->sum_error2 > 0 ? sqrt(diff->sum_error2 / diff->sum_exact2) : 0;
}

void kvb_diff_words(const kvb_diff *diff, uint32_t v_dim, char *words, size_t bytes)
{
    const kvb_diff_place *at = &diff->first;
    char channel[32] = "";
    if (at->channel < v_dim)
        snprintf(channel, sizeof channel, ", channel %u", at->channel);
    snprintf(words, bytes,
             "%s of query %u, head %u%s is %.6g, exact %.6g, bound %.2g (%" PRIu64 " of %" PRIu64 " elements wrong)",
             at->channel < v_dim ? "out" : "lse", at->query, at->head, channel, at->got, at->want, at->bound,
             diff->failed, diff->elements);
}

const char *const kvb_tolerance_names[] = {
    [KVB_TOLERANCE_NONE] = "none",
    [KVB_TOLERANCE_NMSE] = "nmse",
    [KVB_TOLERANCE_CLOSE] = "close",
};

static void closeness_take(kvb_closeness *c, const kvb_tolerance *rule, double got, double exact)
{
    if (!isfinite(exact))
        return;
    const double error = isfinite(got) ? fabs(got - exact) : INFINITY;
    c->elements++;
    c->error2 += error * error;
    c->exact2 += exact * exact;
    if (rule->kind == KVB_TOLERANCE_CLOSE)
        c->farthest = fmax(c->farthest, ratio(error, rule->limit + rule->relative * fabs(exact)));
}

void kvb_closeness_row(kvb_closeness *c, const kvb_tolerance *rule, kvb_elem out_elem, const void *out, uint32_t v_dim,
                       const double *exact, size_t step)
{
    for (uint32_t i = 0; i < v_dim; i++)
        closeness_take(c, rule, kvb_output_value(out_elem, out, i), exact[i * step]);
}

void kvb_closeness_add(kvb_closeness *c, const kvb_closeness *other)
{
    c->error2 += other->error2;
    c->exact2 += other->exact2;
    c->farthest = fmax(c->farthest, other->farthest);
    c->elements += other->elements;
}

double kvb_closeness_share(const kvb_closeness *c, const kvb_tolerance *rule)
{
    return rule->kind == KVB_TOLERANCE_CLOSE ? c->farthest : ratio(c->error2, rule->limit * c->exact2);
}

/* ---- rows before rope -------------------------------------------------------------------------------------------- */

/* Copies a layer's rows of a kind. Those that are not turned are copied as one block. */
static void layer_turn(const kvb_trace *trace, const kvb_values *from, kvb_rows kind, uint32_t layer, kvb_values *to)
{
    const kvb_group *g = kvb_model_group(&trace->header.model, layer);
    const uint32_t dim = kvb_rows_dim(g, kind);
    const size_t token = kvb_values_floats(g, kind), at = from->layer_at[kind][layer];
    if (!g->rope.dims)
        memcpy(to->block[kind] + at, from->block[kind] + at, from->tokens * token * sizeof(float));
    for (size_t i = 0; i < trace->n_events && g->rope.dims; i++) {
        const kvb_event *e = &trace->events[i];
        if (e->kind > KVB_EVENT_PROPOSE || (kind == KVB_ROWS_Q && e->kind == KVB_EVENT_FILL))
            continue;
        for (uint32_t t = 0; t < e->n; t++) {
            float *rows = to->block[kind] + at + (e->first + t) * token;
            memcpy(rows, kvb_values_rows(from, kind, layer, e->first + t), token * sizeof *rows);
            kvb_storage_shift(&g->rope, (int32_t)e->pos[t], rows, (uint32_t)(token / dim), dim);
        }
    }
}

int kvb_turned_open(const kvb_trace *trace, const kvb_values *values, kvb_values **turned)
{
    static const kvb_rows kinds[] = {KVB_ROWS_Q, KVB_ROWS_K};
    kvb_values *v = malloc(sizeof *v);
    *turned = v;
    if (!v)
        return -ENOMEM;
    *v = *values;
    v->block[KVB_ROWS_Q] = v->block[KVB_ROWS_K] = NULL;
    for (size_t i = 0; i < 2; i++) {
        v->block[kinds[i]] = kvb_pages_alloc(values->block_bytes[kinds[i]] + 1);
        if (!v->block[kinds[i]]) {
            kvb_turned_free(v);
            *turned = NULL;
            return -ENOMEM;
        }
        for (uint32_t layer = 0; layer < trace->header.model.n_layers; layer++)
            layer_turn(trace, values, kinds[i], layer, v);
    }
    return 0;
}

void kvb_turned_free(kvb_values *turned)
{
    if (!turned)
        return;
    kvb_pages_free(turned->block[KVB_ROWS_Q]);
    kvb_pages_free(turned->block[KVB_ROWS_K]);
    free(turned);
}

/* Opens an oracle: gathers first what queries see, as runs of token identities; then solves every checked row. */

/* Most bytes of results, whatever the budget of pairs: a sample is smaller. */
#define ARENA_MAX_BYTES ((uint64_t)256 << 20)

/* With residual cells, a pair costs as much as this many other pairs: each query stores its rows anew (measured: 15 to
 * 25). */
#define RESIDUAL_PAIRS 16u

/* Gathers the runs of tokens that the sampled queries see, and those with a second opinion. */
static int sample_gather(const kvb_trace *trace, const kvb_sample *sample, const kvb_opinions *opinions,
                         kvb_census *census, uint32_t *visible_max)
{
    bool *wanted = calloc(census->first[census->n_events] * census->model->n_groups + 1, sizeof *wanted);
    if (!wanted)
        return -ENOMEM;
    for (size_t i = 0; i < sample->n; i++) {
        const kvb_sample_row *row = &sample->rows[i];
        wanted[kvb_census_place(census, census->first[row->event] + row->query, row->layer)] = true;
    }
    for (size_t i = 0; opinions && i < opinions->n_rows; i++) {
        const kvb_expect *row = &opinions->rows[i].expect;
        wanted[kvb_census_place(census, census->first[row->event] + row->query, row->layer)] = true;
    }
    *visible_max = 0;
    for (size_t place = 0; place < census->first[census->n_events] * census->model->n_groups; place++)
        if (wanted[place] && census->visible[place] > *visible_max)
            *visible_max = census->visible[place];
    int err = kvb_census_gather(trace, wanted, census);
    free(wanted);
    return err;
}

static int results_open(const kvb_model *model, const kvb_sample *sample, kvb_oracle *oracle)
{
    size_t n = sample->n, n_terms = 0;
    for (size_t r = 0; r < n; r++)
        n_terms += kvb_model_group(model, sample->rows[r].layer)->v_dim;
    size_t bytes = n * sizeof(kvb_expect) + n_terms * sizeof(kvb_bound_term) + 1;
    oracle->rows = kvb_pages_alloc(bytes);
    if (!oracle->rows)
        return -ENOMEM;
    oracle->n_rows = n;
    oracle->total_rows = sample->total_rows;
    kvb_bound_term *terms = (kvb_bound_term *)(oracle->rows + n);
    for (size_t r = 0; r < n; r++) {
        const kvb_sample_row *row = &sample->rows[r];
        oracle->rows[r] = (kvb_expect){
            .event = row->event, .layer = row->layer, .query = row->query, .head = row->head, .terms = terms};
        terms += kvb_model_group(model, row->layer)->v_dim;
    }
    return 0;
}

/* In the order of rows, so that the sums do not depend on the team. */
static kvb_format_error format_reduce(const kvb_format_row *rows, size_t n)
{
    double error2 = 0, exact2 = 0, kl = 0;
    kvb_format_error format = {0};
    for (size_t r = 0; r < n; r++) {
        double row_kl = isnan(rows[r].kl) ? INFINITY : rows[r].kl;
        format.max_abs = fmax(format.max_abs, rows[r].max_abs);
        format.kl_max = fmax(format.kl_max, row_kl);
        error2 += rows[r].error2;
        exact2 += rows[r].exact2;
        kl += row_kl;
    }
    format.rel_l2 = error2 > 0 ? sqrt(error2 / exact2) : 0;
    format.kl_mean = n ? kl / (double)n : 0;
    return format;
}

bool kvb_oracle_follows_shifts(const kvb_format *k, const kvb_format *v, char *why, size_t why_bytes)
{
    const kvb_format *unknown = !kvb_storage_reads(k) || k->residual_cells ? k : v->residual_cells ? v : NULL;
    if (unknown)
        snprintf(why, why_bytes, "format '%s': what is stored of rows after a seq_add is not known to the oracle",
                 unknown->name);
    return !unknown;
}

/* Chooses the rows to check, and solves them. 0, -ENOMEM or -EINTR. */
static int rows_make(const kvb_trace *trace, const kvb_oracle_options *options, kvb_oracle *oracle)
{
    const kvb_model *m = &trace->header.model;
    kvb_census *census = &oracle->state->census;
    kvb_sample sample = {0};
    kvb_format_row *format_rows = NULL;
    uint32_t v_dim = 0;
    for (uint32_t g = 0; g < m->n_groups; g++)
        v_dim = v_dim > m->groups[g].v_dim ? v_dim : m->groups[g].v_dim;
    kvb_sample_options wanted = {
        .max_pairs = options->max_pairs / (kvb_oracle_needs_writes(oracle) ? RESIDUAL_PAIRS : 1),
        .max_rows = options->max_pairs == UINT64_MAX
                        ? UINT64_MAX
                        : ARENA_MAX_BYTES / (sizeof(kvb_expect) + v_dim * sizeof(kvb_bound_term)),
        .seed = options->seed,
    };
    int err = kvb_census_take(trace, census);
    if (!err)
        err = kvb_sample_choose(census, &wanted, &sample);
    if (!err && sample.n < sample.total_rows && !kvb_oracle_needs_writes(oracle))
        err = kvb_opinions_open(census, options->opinion_pairs, options->seed, &oracle->opinions);
    if (!err)
        err = sample_gather(trace, &sample, oracle->opinions, census, &oracle->state->visible_max);
    if (!err)
        err = results_open(m, &sample, oracle);
    if (!err && !kvb_oracle_needs_writes(oracle))
        err = kvb_filter_truth_open(oracle, &oracle->filter);
    if (!err) {
        format_rows = calloc(sample.n + 1, sizeof *format_rows);
        err = format_rows ? kvb_solve(oracle, options, format_rows) : -ENOMEM;
    }
    if (!err)
        oracle->format = format_reduce(format_rows, sample.n);
    free(format_rows);
    kvb_sample_free(&sample);
    return err;
}

int kvb_oracle_open(const kvb_trace *trace, const kvb_values *values, const kvb_oracle_options *options,
                    kvb_oracle **oracle, char *why, size_t why_bytes)
{
    kvb_oracle *o = calloc(1, sizeof *o);
    int err = -ENOMEM;
    *oracle = NULL;
    if (o)
        o->seed = options->seed;
    if (o)
        err = kvb_oracle_state_open(trace, values, options, &o->state, why, why_bytes);
    if (!err && trace->needs.shift && !kvb_oracle_follows_shifts(options->k_format, options->v_format, why, why_bytes))
        err = -ENOTSUP;
    if (!err)
        err = rows_make(trace, options, o);
    if (!err)
        err = kvb_descent_open(trace, values, options, &o->descent);
    if (err == -ENOMEM)
        snprintf(why, why_bytes, "not enough memory for the oracle");
    if (err)
        kvb_oracle_free(o);
    else
        *oracle = o;
    return err;
}

void kvb_oracle_free(kvb_oracle *oracle)
{
    if (!oracle)
        return;
    kvb_oracle_state_free(oracle->state);
    kvb_filter_truth_free(oracle->filter);
    kvb_opinions_free(oracle->opinions);
    kvb_descent_free(oracle->descent);
    kvb_pages_free(oracle->rows);
    free(oracle);
}

/* First row at or after (event, layer). */
static size_t rows_begin(const kvb_oracle *oracle, uint64_t event, uint64_t layer)
{
    size_t low = 0, high = oracle->n_rows;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const kvb_expect *row = &oracle->rows[middle];
        if (row->event < event || (row->event == event && row->layer < layer))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const kvb_expect *kvb_oracle_rows(const kvb_oracle *oracle, uint32_t event, uint32_t layer, size_t *n)
{
    size_t begin = rows_begin(oracle, event, layer);
    *n = rows_begin(oracle, event, (uint64_t)layer + 1) - begin;
    return oracle->rows + begin;
}
