/* SPDX-License-Identifier: Apache-2.0 */
/* One head's recurrence in double, and its bound: oracle/recurrence.h has the formulas. */
#include "oracle/recurrence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/scan.h"
#include "oracle/bound.h"
#include "oracle/oracle.h"
#include "oracle/products.h"
#include "workloads/array.h"

/* ---- both bounds ------------------------------------------------------------------------------------------------- */

#define U          0x1p-24
#define TINY       0x1p-149
#define SILU_SLOPE 1.0998 /* largest |derivative| of z / (1 + exp(-z)): 1.09984, at z = 2.3994 */

static inline double gamma_worst(double chain)
{
    return chain * U / (1 - chain * U);
}

/* r: relative errors that do not depend on the order of sums. */
static inline double relative_of(const kvb_scan_arithmetic *a)
{
    const double u_o = a->operands == KVB_F32 ? 0 : kvb_unit_roundoff(a->operands);
    return a->exp_error + 2 * u_o + u_o * u_o;
}

/* An element that changes by less than this share of itself rounds the same way again and again: u^(2/3) / 4. */
static inline double slow_of(kvb_elem elem)
{
    return elem == KVB_F32 ? 0x1p-18 : cbrt(kvb_unit_roundoff(elem) * kvb_unit_roundoff(elem)) / 4;
}

/* Out is rounded to its type. */
static inline void want_round(kvb_elem elem, kvb_recurrence_want *w)
{
    const double u = elem == KVB_F32 ? 0 : kvb_unit_roundoff(elem), tiny = kvb_smallest_subnormal(elem);
    w->bound += u * (fabs(w->value) + w->bound) + tiny;
    w->worst += u * (fabs(w->value) + w->worst) + tiny;
}

/* The bounds behind act(). |z| is at most `size`. */
static inline void want_silu(const kvb_scan_arithmetic *a, double size, kvb_recurrence_want *w)
{
    const double own = a->exp_error + 2 * U, more = a->exp_floor * size + own * fabs(w->value);
    w->bound = SILU_SLOPE * (1 + own) * w->bound + more;
    w->worst = SILU_SLOPE * (1 + own) * w->worst + more;
}

/* Adds the roundings of an output's sum, which are relative to `mass`, to the errors of its terms. */
static kvb_recurrence_want want_of_sum(double value, double always, double mass, double chain, double worst,
                                       double linear, double variance)
{
    const double random = sqrt(chain) * U * mass, most = always + worst + gamma_worst(chain) * mass;
    return (kvb_recurrence_want){value, fmin(most, always + linear + KVB_LAMBDA * sqrt(variance + random * random)),
                                 most};
}

/* Row i of a. */
static inline const float *row_of_a(const kvb_scan_problem *p, const kvb_recurrence_token *t, size_t i)
{
    return t->a + i * (t->a_row ? t->a_row : p->d_v);
}

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

/* An error that is added: the worst; the part that may point the same way each time; the variance of the rest. */
typedef lane added;

/* slow: slow_of() the type that is rounded to. */
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

/* narrow: the type that the state is rounded to; KVB_F32: it is not rounded. */
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

/* The sums over the state for one element of out. */
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
    return want_of_sum(s->value, always, s->mass, r->a.read_chain, s->worst, s->linear, s->variance);
}

static void lane_decay(lane *l, double d)
{
    l->worst *= d;
    l->linear *= d;
    l->variance *= d * d;
}

/* An element decays, and `write` is added. size: magnitude of the decay's exponent. */
static void element_step(element *x, double decay, double size, double write)
{
    x->reach = decay * (x->reach + size * x->mass);
    x->mass = decay * x->mass + fabs(write);
    x->s = decay * x->s + write;
}

/* DELTA, before the write: column[c] becomes beta (v - k^T S), and lanes get its error. */
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
            const double log_decay = delta ? 0 : gate * (double)(each ? row_of_a(&r->p, t, i)[c] : *t->a);
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
        const double tap = (double)row_of_a(&r->p, t, rows)[c], v = (double)t->v[c],
                     bias = t->bias ? (double)t->bias[c] : 0;
        sums all = {.value = bias + tap * v, .mass = fabs(bias) + fabs(tap * v)};
        for (uint32_t i = 0; i < rows; i++) {
            const size_t at = (size_t)i * width + c;
            sums_take(r, i, c, (double)row_of_a(&r->p, t, i)[c], &all);
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

/* Inputs in a slot are rounded once, however often they are written again. */
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
            state[at] = (kvb_recurrence_want){r->state[at].s,
                                              fmin(l->worst, l->linear + KVB_LAMBDA * sqrt(l->variance)), l->worst};
        }
}

/* ---- a kernel's inputs and outputs ------------------------------------------------------------------------------- */

kvb_recurrence_token kvb_recurrence_token_of(const kvb_scan *x, uint32_t t, uint32_t h, uint32_t first)
{
    const kvb_scan_problem *p = &x->problem;
    const size_t row = (size_t)t * p->heads + h, keys = ((size_t)t * p->groups + h / (p->heads / p->groups)) * p->d_k;
    const bool each = p->kind == KVB_SCAN_MAMBA1, conv = p->kind == KVB_SCAN_CONV;
    const size_t all = each ? (size_t)p->d_k * p->d_v : conv ? (size_t)(p->d_k + 1) * p->d_v : 1;
    return (kvb_recurrence_token){
        .q = x->q ? x->q + keys : NULL,
        .k = x->k ? x->k + keys : NULL,
        .v = x->v + row * p->d_v + first,
        .gate = x->gate ? x->gate + (each ? row * p->d_v + first : row) : NULL,
        .beta = x->beta ? x->beta + row : NULL,
        .a = x->a ? x->a + h * all + (each || conv ? first : 0) : NULL,
        .bias = x->bias ? x->bias + first : NULL,
        .a_row = p->d_v,
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

/* Exact values of a lane, column by column, and a bound from above. */

#define N KVB_LANE_COLUMNS

/* ---- exact values ------------------------------------------------------------------------------------------------ */

/* A float that is not below x >= 0, though x was itself rounded. */
static float above(double x)
{
    return (float)(x * (1 + 0x1p-22));
}

/* Sums over the state's rows, by column. */
typedef struct glance_sums {
    double out[N], norm2[N], slow2[N], most[N];
} glance_sums;

/* One row of the state: s = decay s + k write. */
KVB_WIDE static void row_step(double *restrict s, const double *restrict decay, const double *restrict write, double k,
                              double q, double slow, glance_sums *restrict to)
{
    for (uint32_t c = 0; c < N; c++) {
        const double was = s[c], is = decay[c] * was + k * write[c], size = fabs(is);
        s[c] = is;
        to->out[c] += q * is;
        to->norm2[c] += is * is;
        to->slow2[c] += fabs(is - was) < slow * size ? is * is : 0;
        to->most[c] = to->most[c] > size ? to->most[c] : size;
    }
}

/* One row of the state: read += k s. */
KVB_WIDE static void row_read(const double *restrict s, double k, double *restrict read)
{
    for (uint32_t c = 0; c < N; c++)
        read[c] += k * s[c];
}

/* Norms of q and k; DELTA: along and grow. */
static void keys_take(const kvb_scan_problem *p, const kvb_recurrence_token *t, kvb_glance_row *row)
{
    double q2 = 0, k2 = 0, most = 0;
    for (uint32_t i = 0; i < p->d_k; i++) {
        q2 += (double)t->q[i] * (double)t->q[i];
        k2 += (double)t->k[i] * (double)t->k[i];
        most = fmax(most, fabs((double)t->k[i]));
    }
    row->q_norm = above(sqrt(q2));
    row->k_norm = above(sqrt(k2));
    row->k_most = above(most);
    if (p->kind == KVB_SCAN_DELTA) {
        row->along = above((double)*t->beta * sqrt(k2));
        row->grow = above(fmax(1, fabs(1 - (double)*t->beta * k2)));
    }
}

/* MAMBA1: the decays of a row of the state. Updates each column's slowest decay and largest exponent. */
static void decays_take(const kvb_scan_problem *p, const kvb_recurrence_token *t, uint32_t i, double *decay,
                        kvb_glance_row *row)
{
    for (uint32_t c = 0; c < p->d_v; c++) {
        const double log_decay = (double)t->gate[c] * (double)row_of_a(p, t, i)[c];
        decay[c] = exp(log_decay);
        row->decay[c] = fmaxf(row->decay[c], above(decay[c]));
        row->size[c] = fmaxf(row->size[c], above(fabs(log_decay)));
    }
}

static void state_take(const kvb_scan_problem *p, const kvb_recurrence_token *t, double *state, kvb_glance_row *row)
{
    const bool delta = p->kind == KVB_SCAN_DELTA, each = p->kind == KVB_SCAN_MAMBA1;
    const double log_decay = each                         ? 0
                             : delta                      ? (double)*t->gate
                             : p->kind == KVB_SCAN_MAMBA2 ? (double)*t->gate * (double)*t->a
                                                          : (double)*t->a;
    const double scalar = exp(log_decay), slow = slow_of(p->state_elem);
    double decay[N], write[N] = {0}, read[N] = {0};
    glance_sums all = {{0}, {0}, {0}, {0}};
    keys_take(p, t, row);
    for (uint32_t i = 0; delta && i < p->d_k; i++)
        row_read(state + i * N, (double)t->k[i], read);
    for (uint32_t c = 0; c < N; c++)
        decay[c] = scalar;
    for (uint32_t c = 0; c < p->d_v; c++) {
        const double v = (double)t->v[c];
        write[c] = each                         ? (double)t->gate[c] * v
                   : p->kind == KVB_SCAN_MAMBA2 ? (double)*t->gate * v
                   : delta                      ? (double)*t->beta * (v - scalar * read[c])
                                                : v;
        row->write[c] = above(fabs(write[c]));
        row->v[c] = above(fabs(v));
        row->decay[c] = each ? 0 : above(scalar);
        row->size[c] = above(fabs(log_decay));
    }
    for (uint32_t i = 0; i < p->d_k; i++) {
        if (each)
            decays_take(p, t, i, decay, row);
        row_step(state + i * N, decay, write, (double)t->k[i], (double)t->q[i], slow, &all);
    }
    memcpy(row->out, all.out, sizeof row->out);
    for (uint32_t c = 0; c < N; c++) {
        row->norm[c] = above(sqrt(all.norm2[c]));
        row->slow[c] = above(sqrt(all.slow2[c]));
        row->most[c] = above(all.most[c]);
    }
}

static void inputs_take(const kvb_scan_problem *p, const kvb_recurrence_token *t, double *state, kvb_glance_row *row)
{
    for (uint32_t c = 0; c < p->d_v; c++) {
        const double v = (double)t->v[c];
        double z = t->bias ? (double)t->bias[c] : 0, mass = fabs(z), taps = 0;
        for (uint32_t i = 0; i <= p->d_k; i++) {
            const double tap = (double)row_of_a(p, t, i)[c], x = i < p->d_k ? state[i * N + c] : v, term = tap * x;
            z += term;
            mass += fabs(term);
            taps += fabs(tap);
            if (i > 0)
                state[(i - 1) * N + c] = x;
        }
        row->norm[c] = above(mass);
        row->most[c] = above(taps);
        row->out[c] = p->silu ? z / (1 + exp(-z)) : z;
    }
}

void kvb_glance_take(const kvb_scan_problem *p, const kvb_recurrence_token *t, double *state, kvb_glance_row *row)
{
    if (p->kind == KVB_SCAN_CONV)
        inputs_take(p, t, state, row);
    else
        state_take(p, t, state, row);
}

/* ---- the bound --------------------------------------------------------------------------------------------------- */

/* The end of a chunk, as chunk_end(), by column. */
static void glance_chunk_end(kvb_glance *g, const kvb_scan_problem *p, const kvb_scan_arithmetic *a, kvb_elem narrow)
{
    const kvb_glance_row *row = g->last;
    const double u = narrow == KVB_F32 ? 0 : kvb_unit_roundoff(narrow),
                 least = narrow == KVB_F32 ? 0 : kvb_smallest_subnormal(narrow), slow = slow_of(p->state_elem),
                 root = sqrt(p->d_k), chain = a->state_chain, relative = relative_of(a), steps = sqrt(chain) * U,
                 most_steps = gamma_worst(chain);
    const bool known = g->taken == 1 && slow_of(narrow) <= slow; /* row->slow holds the elements that hardly changed */
    double bulk = 0;
    for (uint32_t c = 0; c < p->d_v; c++) {
        const double norm = (double)row->norm[c], most = (double)row->most[c],
                     still = known ? (double)row->slow[c] : norm, off = still > 0 ? g->worst[c] : 0,
                     size = g->mass[c] + g->worst[c];
        const double always = relative * size + U * a->exponent_chain * g->reach[c] +
                              root * (a->exp_floor * g->bulk + (chain + 1) * TINY);
        const double random = steps * (g->most[c] + g->worst[c]), rounded = u * (most + g->worst[c]) + least;
        /* terms of an element that hardly changed are hardly more than it is: |d s| + |s' - d s| <= |s'| + 2 |s' - s|
         */
        g->linear[c] += always + most_steps * (known ? (1 + 2 * slow) * still + off : size) +
                        (still > 0 ? u * (still + off) + root * least : 0);
        g->worst[c] += always + most_steps * size + u * (norm + g->worst[c]) + root * least;
        g->variance[c] += random * random + rounded * rounded;
        g->mass[c] = norm;
        g->most[c] = most;
        g->reach[c] = 0;
        bulk = fmax(bulk, most);
    }
    g->bulk = bulk;
    g->taken = 0;
}

/* Errors decay, and so do the magnitudes that they are relative to. */
static void column_decay(kvb_glance *g, uint32_t c, const kvb_glance_row *row)
{
    const double d = (double)row->decay[c];
    g->reach[c] = d * (g->reach[c] + (double)row->size[c] * g->mass[c]);
    g->mass[c] *= d;
    g->most[c] *= d;
    g->worst[c] *= d;
    g->linear[c] *= d;
    g->variance[c] *= d * d;
}

/* DELTA: adds the error of the write. */
static void write_add(kvb_glance *g, uint32_t c, const kvb_scan_arithmetic *a, const kvb_glance_row *row)
{
    const double k = (double)row->k_norm, grow = (double)row->grow, along = (double)row->along;
    const double mass = (double)row->v[c] + k * (g->mass[c] + g->worst[c]);
    const double always = relative_of(a) * mass + U * a->exponent_chain * k * g->reach[c] + a->solve_chain * TINY;
    const double random = along * sqrt(a->solve_chain) * U * mass;
    g->worst[c] = grow * g->worst[c] + along * (always + gamma_worst(a->solve_chain) * mass);
    g->linear[c] = grow * g->linear[c] + along * always;
    g->variance[c] = grow * grow * g->variance[c] + random * random;
}

/* CONV: inputs that came out of a slot are rounded. */
static void glance_inputs_step(const kvb_glance *g, const kvb_scan_problem *p, const kvb_scan_arithmetic *a,
                               const kvb_glance_row *row, kvb_recurrence_want *want)
{
    const bool rounded = p->state_elem != KVB_F32 && g->stored && g->taken < p->d_k;
    const double u = rounded ? kvb_unit_roundoff(p->state_elem) : 0,
                 least = rounded ? kvb_smallest_subnormal(p->state_elem) : 0;
    for (uint32_t c = 0; c < p->d_v; c++) {
        const double mass = (double)row->norm[c];
        const double stored = u * mass + least * (double)row->most[c];
        want[c] = want_of_sum(row->out[c], relative_of(a) * (mass + stored) + a->read_chain * TINY, mass + stored,
                              a->read_chain, stored, stored, 0);
        if (p->silu)
            want_silu(a, mass, &want[c]);
        want_round(p->out_elem, &want[c]);
    }
}

void kvb_glance_step(kvb_glance *g, const kvb_scan_problem *p, const kvb_scan_arithmetic *a, const kvb_glance_row *row,
                     kvb_recurrence_want *want)
{
    if (p->kind == KVB_SCAN_CONV) {
        if (want)
            glance_inputs_step(g, p, a, row, want);
        g->taken++;
        return;
    }
    if (g->taken == a->chunk)
        glance_chunk_end(g, p, a, a->carried);
    const double q = (double)row->q_norm, root = sqrt(p->d_k);
    float write = 0;
    for (uint32_t c = 0; c < p->d_v; c++)
        write = row->write[c] > write ? row->write[c] : write;
    const double bulk = g->bulk + (double)row->k_most * (double)write;
    for (uint32_t c = 0; c < p->d_v; c++) {
        column_decay(g, c, row);
        if (p->kind == KVB_SCAN_DELTA)
            write_add(g, c, a, row);
        g->mass[c] += (double)row->k_norm * (double)row->write[c];
        g->most[c] += (double)row->k_most * (double)row->write[c];
    }
    for (uint32_t c = 0; c < p->d_v && want; c++) {
        const double mass = q * (g->mass[c] + g->worst[c]);
        const double always = relative_of(a) * mass + U * a->exponent_chain * q * g->reach[c] +
                              q * root * (a->exp_floor * bulk + a->read_chain * TINY) + a->read_chain * TINY;
        want[c] = want_of_sum(row->out[c], always, mass, a->read_chain, q * g->worst[c], q * g->linear[c],
                              q * q * g->variance[c]);
        want_round(p->out_elem, &want[c]);
    }
    g->bulk = bulk;
    g->last = row;
    g->taken++;
}

void kvb_glance_rest(kvb_glance *g, const kvb_scan_problem *p, const kvb_scan_arithmetic *a, bool stored)
{
    if (p->kind != KVB_SCAN_CONV)
        glance_chunk_end(g, p, a, stored ? p->state_elem : a->carried);
    g->stored |= stored;
    g->taken = stored || p->kind != KVB_SCAN_CONV ? 0 : g->taken;
}
