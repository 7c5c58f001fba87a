/* SPDX-License-Identifier: Apache-2.0 */
/* One head's recurrence in double, and its bound: oracle/recurrence.h has the formulas. */
#include "oracle/recurrence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle.h"
#include "oracle/recurrence_parts.h"

/* Errors of a lane: an element of the state, or a column of it (DELTA). */
typedef struct lane {
    double worst, linear, variance;
} lane;

/* An element of the state. */
typedef struct element {
    double s;      /* exact */
    double before; /* at the begin of the chunk */
    double mass;   /* M */
    double reach;  /* X */
} element;

struct kvb_recurrence {
    kvb_scan_problem p;
    kvb_scan_arithmetic a;
    uint32_t taken;  /* tokens of the chunk */
    double relative; /* r */
    double bulk;     /* the largest element at the begin of the chunk, and the largest product of each token since */
    double *column;  /* [d_v] what DELTA writes */
    lane *lanes;     /* [d_k][d_v]; DELTA: [d_v] */
    element *state;  /* [d_k][d_v] */
};

static size_t elements_of(const kvb_recurrence *r)
{
    return (size_t)r->p.d_k * r->p.d_v;
}

static size_t lanes_of(const kvb_recurrence *r)
{
    return r->p.kind == KVB_SCAN_DELTA ? r->p.d_v : elements_of(r);
}

static lane *lane_of(const kvb_recurrence *r, uint32_t i, uint32_t c)
{
    return &r->lanes[r->p.kind == KVB_SCAN_DELTA ? c : (size_t)i * r->p.d_v + c];
}

static double lane_bound(const lane *l)
{
    return fmin(l->worst, l->linear + KVB_LAMBDA * sqrt(l->variance));
}

kvb_recurrence *kvb_recurrence_open(const kvb_scan_problem *problem, const kvb_scan_arithmetic *arithmetic)
{
    kvb_recurrence *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->p = *problem;
    kvb_recurrence_declare(r, arithmetic);
    r->lanes = calloc(lanes_of(r) + 1, sizeof *r->lanes);
    r->state = calloc(elements_of(r) + 1, sizeof *r->state);
    r->column = calloc(problem->d_v + 1, sizeof *r->column);
    if (r->lanes && r->state && r->column)
        return r;
    kvb_recurrence_close(r);
    return NULL;
}

void kvb_recurrence_declare(kvb_recurrence *r, const kvb_scan_arithmetic *arithmetic)
{
    r->a = *arithmetic;
    r->relative = relative_of(arithmetic);
}

void kvb_recurrence_close(kvb_recurrence *r)
{
    if (!r)
        return;
    free(r->lanes);
    free(r->state);
    free(r->column);
    free(r);
}

void kvb_recurrence_copy(kvb_recurrence *to, const kvb_recurrence *from)
{
    memcpy(to->lanes, from->lanes, lanes_of(from) * sizeof *from->lanes);
    memcpy(to->state, from->state, elements_of(from) * sizeof *from->state);
    to->taken = from->taken;
    to->bulk = from->bulk;
}

void kvb_recurrence_begin(kvb_recurrence *r, const double *state)
{
    memset(r->lanes, 0, lanes_of(r) * sizeof *r->lanes);
    r->taken = 0;
    r->bulk = 0;
    for (size_t i = 0; i < elements_of(r); i++) {
        r->state[i] = (element){.s = state[i], .before = state[i], .mass = fabs(state[i])};
        r->bulk = fmax(r->bulk, fabs(state[i]));
    }
}

/* ---- the end of a chunk: what rounding adds ---------------------------------------------------------------------- */

/* What is added to an element: the worst; the part that may point the same way each time; the variance of the rest. */
typedef lane added;

/* slow: how little an element of magnitude 1 changes that rounds the same way again and again. */
static void rounding_add(added *to, double worst, double random, double slow, const element *x)
{
    to->worst += worst;
    if (fabs(x->s - x->before) < slow * fabs(x->s))
        to->linear += worst;
    else
        to->variance += random * random;
}

static void lane_add(lane *l, added more)
{
    l->worst += more.worst;
    l->linear += more.linear;
    l->variance += more.variance;
}

static added element_added(const kvb_recurrence *r, const element *x, const lane *l, kvb_elem narrow,
                           const double slow[2])
{
    const double size = x->mass + l->worst;
    const double always = r->relative * size + U * r->a.exponent_chain * x->reach + r->a.exp_floor * r->bulk +
                          (r->a.state_chain + 1) * TINY;
    added to = {.worst = always, .linear = always};

    rounding_add(&to, gamma_worst(r->a.state_chain) * size, sqrt(r->a.state_chain) * U * size, slow[0], x);
    if (narrow != KVB_F32) {
        const double rounded = kvb_unit_roundoff(narrow) * (fabs(x->s) + l->worst) + kvb_smallest_subnormal(narrow);
        rounding_add(&to, rounded, rounded, slow[1], x);
    }
    return to;
}

/* narrow: the type that the state is rounded to; KVB_F32: to none that is narrower. */
static void chunk_end(kvb_recurrence *r, kvb_elem narrow)
{
    const double slow[2] = {slow_of(KVB_F32), slow_of(narrow)};
    const bool columns = r->p.kind == KVB_SCAN_DELTA;
    double most = 0;
    for (uint32_t c = 0; c < r->p.d_v; c++) {
        added column = {0, 0, 0}; /* squares of norms; the largest variance */
        for (uint32_t i = 0; i < r->p.d_k; i++) {
            element *x = &r->state[(size_t)i * r->p.d_v + c];
            const added more = element_added(r, x, lane_of(r, i, c), narrow, slow);
            if (!columns)
                lane_add(lane_of(r, i, c), more);
            column.worst += more.worst * more.worst;
            column.linear += more.linear * more.linear;
            column.variance = fmax(column.variance, more.variance);
            *x = (element){.s = x->s, .before = x->s, .mass = fabs(x->s)};
            most = fmax(most, x->mass);
        }
        if (columns)
            lane_add(&r->lanes[c], (added){sqrt(column.worst), sqrt(column.linear), column.variance});
    }
    r->bulk = most;
    r->taken = 0;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* What `out` may be off by besides: the sums of one element of out. */
typedef struct sums {
    double value, mass, reach, size, worst, linear, variance;
} sums;

static void sums_take(const kvb_recurrence *r, uint32_t i, uint32_t c, double q, sums *to)
{
    const element *x = &r->state[(size_t)i * r->p.d_v + c];
    const lane *l = lane_of(r, i, c);
    to->value += q * x->s;
    to->mass += fabs(q) * (x->mass + l->worst);
    to->reach += fabs(q) * x->reach;
    to->size += fabs(q);
    to->worst += fabs(q) * l->worst;
    to->linear += fabs(q) * l->linear;
    to->variance += q * q * l->variance;
}

static kvb_recurrence_want want_of(const kvb_recurrence *r, const sums *s)
{
    const double always = r->relative * s->mass + U * r->a.exponent_chain * s->reach +
                          s->size * (r->a.exp_floor * r->bulk + r->a.read_chain * TINY) + r->a.read_chain * TINY;
    const double random = sqrt(r->a.read_chain) * U * s->mass;
    const double worst = always + s->worst + gamma_worst(r->a.read_chain) * s->mass;
    const double bound = fmin(worst, always + s->linear + KVB_LAMBDA * sqrt(s->variance + random * random));
    return (kvb_recurrence_want){s->value, bound, worst};
}

static void lane_decay(lane *l, double d)
{
    l->worst *= d;
    l->linear *= d;
    l->variance *= d * d;
}

/* An element decays by e^log, and is written to. */
static void element_step(element *x, double decay, double size, double write)
{
    x->reach = decay * (x->reach + size * x->mass);
    x->mass = decay * x->mass + fabs(write);
    x->s = decay * x->s + write;
}

/* DELTA, before the write: column[c] becomes beta (v - k^T S), with what it may be off by. */
static void delta_step(kvb_recurrence *r, const kvb_recurrence_token *t)
{
    const double alpha = exp((double)*t->gate), size = fabs((double)*t->gate), beta = (double)*t->beta;
    double norm2 = 0;
    for (uint32_t i = 0; i < r->p.d_k; i++)
        norm2 += (double)t->k[i] * t->k[i];
    for (uint32_t c = 0; c < r->p.d_v; c++) {
        lane *l = &r->lanes[c];
        double read = 0, mass = fabs((double)t->v[c]), reach = 0;
        lane_decay(l, alpha);
        for (uint32_t i = 0; i < r->p.d_k; i++) {
            element *x = &r->state[(size_t)i * r->p.d_v + c];
            element_step(x, alpha, size, 0);
            read += (double)t->k[i] * x->s;
            mass += fabs((double)t->k[i]) * (x->mass + l->worst);
            reach += fabs((double)t->k[i]) * x->reach;
        }
        const double always = r->relative * mass + U * r->a.exponent_chain * reach + r->a.solve_chain * TINY;
        lane_decay(l, fmax(1, fabs(1 - beta * norm2)));
        const double along = beta * sqrt(norm2), random = along * sqrt(r->a.solve_chain) * U * mass;
        lane_add(l, (added){.worst = along * (always + gamma_worst(r->a.solve_chain) * mass),
                            .linear = along * always,
                            .variance = random * random});
        r->column[c] = beta * ((double)t->v[c] - read);
    }
}

static void state_step(kvb_recurrence *r, const kvb_recurrence_token *t, kvb_recurrence_want *out)
{
    const bool delta = r->p.kind == KVB_SCAN_DELTA, each = r->p.kind == KVB_SCAN_MAMBA1;
    double most_k = 0, most_v = 0;

    if (delta)
        delta_step(r, t);
    for (uint32_t c = 0; c < r->p.d_v; c++) {
        const double gate = each ? (double)t->gate[c] : r->p.kind == KVB_SCAN_MAMBA2 ? (double)*t->gate : 1;
        const double write = delta ? r->column[c] : gate * (double)t->v[c];
        sums all = {0};
        double q_norm2 = 0;
        for (uint32_t i = 0; i < r->p.d_k; i++) {
            const size_t at = (size_t)i * r->p.d_v + c;
            const double log_decay = delta ? 0 : gate * (double)t->a[each ? at : 0];
            const double decay = delta ? 1 : exp(log_decay);
            if (!delta)
                lane_decay(&r->lanes[at], decay);
            element_step(&r->state[at], decay, fabs(log_decay), (double)t->k[i] * write);
            sums_take(r, i, c, (double)t->q[i], &all);
            q_norm2 += (double)t->q[i] * (double)t->q[i];
            most_k = fmax(most_k, fabs((double)t->k[i]));
        }
        if (delta) { /* errors of a column: by the norm of q */
            all.worst = sqrt(q_norm2) * r->lanes[c].worst;
            all.linear = sqrt(q_norm2) * r->lanes[c].linear;
            all.variance = q_norm2 * r->lanes[c].variance;
        }
        most_v = fmax(most_v, fabs(write));
        out[c] = want_of(r, &all);
        want_round(r->p.out_elem, &out[c]);
    }
    r->bulk += most_k * most_v;
}

static void inputs_step(kvb_recurrence *r, const kvb_recurrence_token *t, kvb_recurrence_want *out)
{
    const uint32_t rows = r->p.d_k, width = r->p.d_v;
    for (uint32_t c = 0; c < width; c++) {
        const double tap = (double)t->a[(size_t)rows * width + c], v = (double)t->v[c],
                     bias = t->bias ? (double)t->bias[c] : 0;
        sums all = {.value = bias + tap * v, .mass = fabs(bias) + fabs(tap * v)};
        for (uint32_t i = 0; i < rows; i++) {
            const size_t at = (size_t)i * width + c;
            sums_take(r, i, c, (double)t->a[at], &all);
            r->state[at] = i + 1 < rows ? r->state[at + width] : (element){.s = v, .mass = fabs(v)};
            r->lanes[at] = i + 1 < rows ? r->lanes[at + width] : (lane){0};
        }
        out[c] = want_of(r, &all);
        if (r->p.silu) {
            const double z = out[c].value;
            out[c].value = z / (1 + exp(-z));
            want_silu(&r->a, fabs(z), &out[c]);
        }
        want_round(r->p.out_elem, &out[c]);
    }
}

/* Inputs that lie in a slot are rounded once, however often they are written again. */
static void inputs_store(kvb_recurrence *r)
{
    const double u = r->p.state_elem == KVB_F32 ? 0 : kvb_unit_roundoff(r->p.state_elem);
    for (size_t at = 0; at < elements_of(r) && u > 0; at++)
        r->lanes[at].worst = r->lanes[at].linear = u * fabs(r->state[at].s) + kvb_smallest_subnormal(r->p.state_elem);
}

void kvb_recurrence_step(kvb_recurrence *r, const kvb_recurrence_token *token, kvb_recurrence_want *out)
{
    if (r->p.kind == KVB_SCAN_CONV) {
        inputs_step(r, token, out);
        return;
    }
    if (r->taken == r->a.chunk)
        chunk_end(r, r->a.carried);
    state_step(r, token, out);
    r->taken++;
}

void kvb_recurrence_rest(kvb_recurrence *r, bool stored)
{
    if (r->p.kind != KVB_SCAN_CONV)
        chunk_end(r, stored ? r->p.state_elem : r->a.carried);
    else if (stored)
        inputs_store(r);
}

void kvb_recurrence_state(const kvb_recurrence *r, kvb_recurrence_want *state)
{
    for (uint32_t i = 0; i < r->p.d_k; i++)
        for (uint32_t c = 0; c < r->p.d_v; c++) {
            const size_t at = (size_t)i * r->p.d_v + c;
            const lane *l = lane_of(r, i, c);
            state[at] = (kvb_recurrence_want){r->state[at].s, lane_bound(l), l->worst};
        }
}

/* ---- what a kernel is given and gave ----------------------------------------------------------------------------- */

kvb_recurrence_token kvb_recurrence_token_of(const kvb_scan *x, uint32_t t, uint32_t h)
{
    const kvb_scan_problem *p = &x->problem;
    const size_t row = (size_t)t * p->heads + h, keys = ((size_t)t * p->groups + h / (p->heads / p->groups)) * p->d_k;
    const bool each = p->kind == KVB_SCAN_MAMBA1, conv = p->kind == KVB_SCAN_CONV;
    const size_t a_row = each ? (size_t)p->d_k * p->d_v : conv ? (size_t)(p->d_k + 1) * p->d_v : 1;
    return (kvb_recurrence_token){
        .q = x->q ? x->q + keys : NULL,
        .k = x->k ? x->k + keys : NULL,
        .v = x->v + row * p->d_v,
        .gate = x->gate ? x->gate + row * (each ? p->d_v : 1) : NULL,
        .beta = x->beta ? x->beta + row : NULL,
        .a = x->a ? x->a + h * a_row : NULL,
        .bias = x->bias,
    };
}

double kvb_recurrence_rho(const kvb_recurrence_want *want, kvb_elem elem, const void *got, size_t n, size_t *at)
{
    double rho = 0;
    for (size_t i = 0; i < n; i++) {
        const double error = fabs(kvb_output_value(elem, got, i) - want[i].value);
        const double ratio = error == 0 ? 0 : error / want[i].bound; /* NaN: not a number, or no honest error at all */
        if (!(ratio <= rho)) {
            rho = isnan(ratio) ? INFINITY : ratio;
            if (at)
                *at = i;
        }
    }
    return rho;
}
