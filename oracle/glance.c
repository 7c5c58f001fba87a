/* SPDX-License-Identifier: Apache-2.0 */
/* Exact values of a lane, column by column, and a bound from above. */
#include "oracle/glance.h"

#include <string.h>

#include "oracle/recurrence_parts.h"
#include "oracle/wide.h"

#define N KVB_LANE_COLUMNS

/* ---- exact values ------------------------------------------------------------------------------------------------ */

/* A float that is not below x >= 0, though x was itself rounded. */
static float above(double x)
{
    return (float)(x * (1 + 0x1p-22));
}

/* What a row sums up over the state's rows. */
typedef struct sums {
    double out[N], norm2[N], slow2[N], most[N];
} sums;

/* One row of the state: s = decay s + k write. */
WIDE static void row_step(double *restrict s, const double *restrict decay, const double *restrict write, double k,
                          double q, double slow, sums *restrict to)
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

/* What k reads of it. */
WIDE static void row_read(const double *restrict s, double k, double *restrict read)
{
    for (uint32_t c = 0; c < N; c++)
        read[c] += k * s[c];
}

/* Norms of q and k, and beta's part of a DELTA. */
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

/* MAMBA1: decays of a row of the state; the slowest of each column so far, and the largest exponent. */
static void decays_take(const kvb_scan_problem *p, const kvb_recurrence_token *t, uint32_t i, double *decay,
                        kvb_glance_row *row)
{
    for (uint32_t c = 0; c < p->d_v; c++) {
        const double log_decay = (double)t->gate[c] * (double)t->a[i * p->d_v + c];
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
    sums all = {{0}, {0}, {0}, {0}};
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
            const double x = i < p->d_k ? state[i * N + c] : v, term = (double)t->a[i * p->d_v + c] * x;
            z += term;
            mass += fabs(term);
            taps += fabs((double)t->a[i * p->d_v + c]);
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

/* The end of a chunk, as oracle/recurrence.c has it for elements. */
static void chunk_end(kvb_glance *g, const kvb_scan_problem *p, const kvb_scan_arithmetic *a, kvb_elem narrow)
{
    const kvb_glance_row *row = g->last;
    const double u = narrow == KVB_F32 ? 0 : kvb_unit_roundoff(narrow),
                 least = narrow == KVB_F32 ? 0 : kvb_smallest_subnormal(narrow), slow = slow_of(p->state_elem),
                 root = sqrt(p->d_k), chain = a->state_chain, relative = relative_of(a), steps = sqrt(chain) * U,
                 most_steps = gamma_worst(chain);
    const bool known = g->taken == 1 && slow_of(narrow) <= slow; /* is it known which elements hardly changed? */
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

/* Errors and what they are relative to decay. */
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

/* DELTA: what the write is off by. */
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

/* Roundings of the sum of an output: always, at worst, at random; of what it is relative to. */
static kvb_recurrence_want want_of(double value, double always, double mass, double chain, double worst, double linear,
                                   double variance)
{
    const double random = sqrt(chain) * U * mass, most = always + worst + gamma_worst(chain) * mass;
    return (kvb_recurrence_want){value, fmin(most, always + linear + KVB_LAMBDA * sqrt(variance + random * random)),
                                 most};
}

/* Inputs were rounded if they came out of a slot. */
static void inputs_step(const kvb_glance *g, const kvb_scan_problem *p, const kvb_scan_arithmetic *a,
                        const kvb_glance_row *row, kvb_recurrence_want *want)
{
    const bool rounded = p->state_elem != KVB_F32 && g->stored && g->taken < p->d_k;
    const double u = rounded ? kvb_unit_roundoff(p->state_elem) : 0,
                 least = rounded ? kvb_smallest_subnormal(p->state_elem) : 0;
    for (uint32_t c = 0; c < p->d_v; c++) {
        const double mass = (double)row->norm[c];
        const double stored = u * mass + least * (double)row->most[c];
        want[c] = want_of(row->out[c], relative_of(a) * (mass + stored) + a->read_chain * TINY, mass + stored,
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
            inputs_step(g, p, a, row, want);
        g->taken++;
        return;
    }
    if (g->taken == a->chunk)
        chunk_end(g, p, a, a->carried);
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
        want[c] = want_of(row->out[c], always, mass, a->read_chain, q * g->worst[c], q * g->linear[c],
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
        chunk_end(g, p, a, stored ? p->state_elem : a->carried);
    g->stored |= stored;
    g->taken = stored || p->kind != KVB_SCAN_CONV ? 0 : g->taken;
}
