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

/* Columns that are taken together. Those beyond the last have no meaning. */
enum { ABREAST = 8 };

/* Errors of lanes. A lane is an element of the state, or a column of it (DELTA). */
typedef struct lanes {
    double worst[ABREAST], linear[ABREAST], variance[ABREAST];
} lanes;

/* Elements of one row of the state. */
typedef struct elements {
    double s[ABREAST];      /* exact */
    double before[ABREAST]; /* at the begin of the chunk */
    double mass[ABREAST];   /* M */
    double reach[ABREAST];  /* X */
} elements;

struct kvb_recurrence {
    kvb_scan_problem p;
    kvb_scan_arithmetic a;
    uint32_t blocks; /* of ABREAST columns */
    uint32_t taken;  /* tokens of the chunk */
    double relative; /* r */
    double bulk;     /* the largest element at the begin of the chunk, and the largest product of each token since */
    lanes *lanes;    /* [d_k][blocks]; DELTA: [blocks] */
    elements *state; /* [d_k][blocks] */
};

static size_t elements_of(const kvb_recurrence *r)
{
    return (size_t)r->p.d_k * r->blocks;
}

static size_t lanes_of(const kvb_recurrence *r)
{
    return r->p.kind == KVB_SCAN_DELTA ? r->blocks : elements_of(r);
}

static elements *elements_at(const kvb_recurrence *r, uint32_t i, uint32_t block)
{
    return &r->state[(size_t)i * r->blocks + block];
}

static lanes *lanes_at(const kvb_recurrence *r, uint32_t i, uint32_t block)
{
    return &r->lanes[r->p.kind == KVB_SCAN_DELTA ? block : (size_t)i * r->blocks + block];
}

static uint32_t columns_of(const kvb_recurrence *r, uint32_t block)
{
    const uint32_t rest = r->p.d_v - block * ABREAST;
    return rest < ABREAST ? rest : ABREAST;
}

kvb_recurrence *kvb_recurrence_open(const kvb_scan_problem *problem, const kvb_scan_arithmetic *arithmetic)
{
    kvb_recurrence *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->p = *problem;
    r->blocks = (problem->d_v + ABREAST - 1) / ABREAST;
    kvb_recurrence_declare(r, arithmetic);
    r->lanes = calloc(lanes_of(r) + 1, sizeof *r->lanes);
    r->state = calloc(elements_of(r) + 1, sizeof *r->state);
    if (r->lanes && r->state)
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
    memset(r->state, 0, elements_of(r) * sizeof *r->state);
    r->taken = 0;
    r->bulk = 0;
    for (uint32_t i = 0; i < r->p.d_k; i++)
        for (uint32_t c = 0; c < r->p.d_v; c++, state++) {
            elements *x = elements_at(r, i, c / ABREAST);
            x->s[c % ABREAST] = x->before[c % ABREAST] = *state;
            x->mass[c % ABREAST] = fabs(*state);
            r->bulk = fmax(r->bulk, fabs(*state));
        }
}

/* ---- the end of a chunk: what rounding adds ---------------------------------------------------------------------- */

/* An error that is added: the worst; the part that may point the same way each time; the variance of the rest. */
typedef lanes added;

/* Factors of what is added. */
typedef struct roundings {
    double relative, reach, floor, tiny; /* of M + W, of X, and constants */
    double most, random, slow;           /* of sums: gamma, square root; slow_of() */
    double u, least, narrow_slow;        /* where the state is rounded to a narrow type; otherwise 0 */
} roundings;

/* Fills *to with what is added to elements, begins their next chunk, and raises most to their magnitudes. */
KVB_WIDE static void elements_end(elements *restrict x, const lanes *restrict l, const roundings *restrict r,
                                  added *restrict to, double *restrict most)
{
    for (uint32_t c = 0; c < ABREAST; c++) {
        const double size = x->mass[c] + l->worst[c], s = fabs(x->s[c]), moved = fabs(x->s[c] - x->before[c]);
        const double always = r->relative * size + r->reach * x->reach[c] + r->floor + r->tiny;
        const double worst = r->most * size, rounded = r->u * (s + l->worst[c]) + r->least;
        const bool slow = moved < r->slow * s, narrow_slow = moved < r->narrow_slow * s;
        const double random = r->random * (slow ? 0 : size), rounded_at_random = narrow_slow ? 0 : rounded;
        to->worst[c] = always + worst + rounded;
        to->linear[c] = always + (slow ? worst : 0) + (narrow_slow ? rounded : 0);
        to->variance[c] = random * random + rounded_at_random * rounded_at_random;
        x->before[c] = x->s[c];
        x->mass[c] = s;
        x->reach[c] = 0;
        most[c] = s > most[c] ? s : most[c];
    }
}

/* narrow: the type that the state is rounded to; KVB_F32: it is not rounded. */
static void chunk_end(kvb_recurrence *r, kvb_elem narrow)
{
    const kvb_scan_arithmetic *a = &r->a;
    const bool rounded = narrow != KVB_F32;
    const roundings all = {.relative = r->relative,
                           .reach = U * a->exponent_chain,
                           .floor = a->exp_floor * r->bulk,
                           .tiny = (a->state_chain + 1) * TINY,
                           .most = gamma_worst(a->state_chain),
                           .random = sqrt(a->state_chain) * U,
                           .slow = slow_of(KVB_F32),
                           .u = rounded ? kvb_unit_roundoff(narrow) : 0,
                           .least = rounded ? kvb_smallest_subnormal(narrow) : 0,
                           .narrow_slow = rounded ? slow_of(narrow) : 0};
    const bool columns = r->p.kind == KVB_SCAN_DELTA;
    double most[ABREAST] = {0};
    for (uint32_t b = 0; b < r->blocks; b++) {
        added column = {{0}, {0}, {0}}, more; /* column: squares of norms; the largest variance */
        for (uint32_t i = 0; i < r->p.d_k; i++) {
            lanes *l = lanes_at(r, i, b);
            elements_end(elements_at(r, i, b), l, &all, &more, most);
            for (uint32_t c = 0; c < ABREAST; c++)
                if (columns) {
                    column.worst[c] += more.worst[c] * more.worst[c];
                    column.linear[c] += more.linear[c] * more.linear[c];
                    column.variance[c] = more.variance[c] > column.variance[c] ? more.variance[c] : column.variance[c];
                } else {
                    l->worst[c] += more.worst[c];
                    l->linear[c] += more.linear[c];
                    l->variance[c] += more.variance[c];
                }
        }
        for (uint32_t c = 0; c < ABREAST && columns; c++) {
            r->lanes[b].worst[c] += sqrt(column.worst[c]);
            r->lanes[b].linear[c] += sqrt(column.linear[c]);
            r->lanes[b].variance[c] += column.variance[c];
        }
    }
    r->bulk = 0;
    for (uint32_t c = 0; c < ABREAST; c++)
        r->bulk = fmax(r->bulk, most[c]);
    r->taken = 0;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* A token's factors for the elements of a row: decays, the magnitudes of their exponents, and what k is multiplied by. */
typedef struct factors {
    double decay[ABREAST], size[ABREAST], write[ABREAST];
    double fade[ABREAST]; /* decays of the lanes */
} factors;

/* The sums over the state for elements of out. */
typedef struct sums {
    double value[ABREAST], mass[ABREAST], reach[ABREAST], size[ABREAST], worst[ABREAST], linear[ABREAST],
        variance[ABREAST];
} sums;

static inline void sum_take(const elements *x, const lanes *l, uint32_t c, double q, sums *to)
{
    to->value[c] += q * x->s[c];
    to->mass[c] += fabs(q) * (x->mass[c] + l->worst[c]);
    to->reach[c] += fabs(q) * x->reach[c];
    to->size[c] += fabs(q);
    to->worst[c] += fabs(q) * l->worst[c];
    to->linear[c] += fabs(q) * l->linear[c];
    to->variance[c] += q * q * l->variance[c];
}

/* Elements decay, k times what is written is added, and the sums take q times the elements. */
KVB_WIDE static void elements_step(elements *restrict x, lanes *restrict l, const factors *restrict f, double k,
                                   double q, sums *restrict to)
{
    for (uint32_t c = 0; c < ABREAST; c++) {
        const double d = f->decay[c], fade = f->fade[c], write = k * f->write[c];
        l->worst[c] *= fade;
        l->linear[c] *= fade;
        l->variance[c] *= fade * fade;
        x->reach[c] = d * (x->reach[c] + f->size[c] * x->mass[c]);
        x->mass[c] = d * x->mass[c] + fabs(write);
        x->s[c] = d * x->s[c] + write;
        sum_take(x, l, c, q, to);
    }
}

static kvb_recurrence_want want_of(const kvb_recurrence *r, const sums *s, uint32_t c)
{
    const double always = r->relative * s->mass[c] + U * r->a.exponent_chain * s->reach[c] +
                          s->size[c] * (r->a.exp_floor * r->bulk + r->a.read_chain * TINY) + r->a.read_chain * TINY;
    return want_of_sum(s->value[c], always, s->mass[c], r->a.read_chain, s->worst[c], s->linear[c], s->variance[c]);
}

static double norm2_of(const float *x, uint32_t n)
{
    double norm2 = 0;
    for (uint32_t i = 0; i < n; i++)
        norm2 += (double)x[i] * x[i];
    return norm2;
}

/* DELTA: the state decays, write = beta (v - k^T S), and the lanes take the error of write. v: n columns. */
static void delta_step(kvb_recurrence *r, const kvb_recurrence_token *t, uint32_t block, const float *v, uint32_t n,
                       double *write)
{
    const double alpha = exp((double)*t->gate), size = fabs((double)*t->gate), beta = (double)*t->beta,
                 norm2 = norm2_of(t->k, r->p.d_k), solve = r->a.solve_chain, grow = fmax(1, fabs(1 - beta * norm2)),
                 along = beta * sqrt(norm2);
    lanes *l = &r->lanes[block];
    factors f = {.write = {0}};
    sums read = {.size = {0}};
    for (uint32_t c = 0; c < ABREAST; c++) {
        f.decay[c] = alpha;
        f.size[c] = size;
        f.fade[c] = 1;
        read.mass[c] = c < n ? fabs((double)v[c]) : 0;
        l->worst[c] *= alpha;
        l->linear[c] *= alpha;
        l->variance[c] *= alpha * alpha;
    }
    for (uint32_t i = 0; i < r->p.d_k; i++)
        elements_step(elements_at(r, i, block), l, &f, 0, (double)t->k[i], &read);
    for (uint32_t c = 0; c < n; c++) {
        const double mass = read.mass[c],
                     always = r->relative * mass + U * r->a.exponent_chain * read.reach[c] + solve * TINY,
                     random = along * sqrt(solve) * U * mass;
        l->worst[c] = l->worst[c] * grow + along * (always + gamma_worst(solve) * mass);
        l->linear[c] = l->linear[c] * grow + along * always;
        l->variance[c] = l->variance[c] * (grow * grow) + random * random;
        write[c] = beta * ((double)v[c] - read.value[c]);
    }
}

/* The columns of a block. Returns the largest magnitude of what is written. */
static double block_step(kvb_recurrence *r, const kvb_recurrence_token *t, uint32_t block, kvb_recurrence_want *out)
{
    const bool delta = r->p.kind == KVB_SCAN_DELTA, each = r->p.kind == KVB_SCAN_MAMBA1;
    const uint32_t first = block * ABREAST, n = columns_of(r, block);
    const double gate = r->p.kind == KVB_SCAN_MAMBA2 ? (double)*t->gate : 1,
                 log_decay = delta || each ? 0 : gate * (double)*t->a, decay = exp(log_decay);
    factors f = {.write = {0}};
    sums all = {.size = {0}};
    double most = 0;

    for (uint32_t c = 0; c < ABREAST; c++) {
        f.decay[c] = f.fade[c] = decay;
        f.size[c] = fabs(log_decay);
    }
    for (uint32_t c = 0; c < n && !delta; c++)
        f.write[c] = (each ? (double)t->gate[first + c] : gate) * (double)t->v[first + c];
    if (delta)
        delta_step(r, t, block, t->v + first, n, f.write);
    for (uint32_t i = 0; i < r->p.d_k; i++) {
        for (uint32_t c = 0; c < n && each; c++) {
            const double log_each = (double)t->gate[first + c] * (double)row_of_a(&r->p, t, i)[first + c];
            f.decay[c] = f.fade[c] = exp(log_each);
            f.size[c] = fabs(log_each);
        }
        elements_step(elements_at(r, i, block), lanes_at(r, i, block), &f, (double)t->k[i], (double)t->q[i], &all);
    }
    const double q_norm2 = delta ? norm2_of(t->q, r->p.d_k) : 0;
    for (uint32_t c = 0; c < n; c++) {
        if (delta) { /* errors of a column: by the norm of q */
            all.worst[c] = sqrt(q_norm2) * r->lanes[block].worst[c];
            all.linear[c] = sqrt(q_norm2) * r->lanes[block].linear[c];
            all.variance[c] = q_norm2 * r->lanes[block].variance[c];
        }
        most = fmax(most, fabs(f.write[c]));
        out[first + c] = want_of(r, &all, c);
        want_round(r->p.out_elem, &out[first + c]);
    }
    return most;
}

static void state_step(kvb_recurrence *r, const kvb_recurrence_token *t, kvb_recurrence_want *out)
{
    double most_v = 0;
    float most_k = 0;
    for (uint32_t i = 0; i < r->p.d_k; i++)
        most_k = fmaxf(most_k, fabsf(t->k[i]));
    for (uint32_t b = 0; b < r->blocks; b++)
        most_v = fmax(most_v, block_step(r, t, b, out));
    r->bulk += (double)most_k * most_v;
}

/* CONV: the columns of a block. A row of inputs moves to the row before. */
static void inputs_step(kvb_recurrence *r, const kvb_recurrence_token *t, uint32_t block, kvb_recurrence_want *out)
{
    const uint32_t rows = r->p.d_k, first = block * ABREAST, n = columns_of(r, block);
    elements last = {.s = {0}};
    sums all = {.size = {0}};
    for (uint32_t c = 0; c < n; c++) {
        const double tap = (double)row_of_a(&r->p, t, rows)[first + c], v = (double)t->v[first + c],
                     bias = t->bias ? (double)t->bias[first + c] : 0;
        all.value[c] = bias + tap * v;
        all.mass[c] = fabs(bias) + fabs(tap * v);
        last.s[c] = v;
        last.mass[c] = fabs(v);
    }
    for (uint32_t i = 0; i < rows; i++) {
        elements *x = elements_at(r, i, block);
        lanes *l = lanes_at(r, i, block);
        for (uint32_t c = 0; c < n; c++)
            sum_take(x, l, c, (double)row_of_a(&r->p, t, i)[first + c], &all);
        *x = i + 1 < rows ? *elements_at(r, i + 1, block) : last;
        *l = i + 1 < rows ? *lanes_at(r, i + 1, block) : (lanes){.worst = {0}};
    }
    for (uint32_t c = 0; c < n; c++) {
        kvb_recurrence_want *w = &out[first + c];
        *w = want_of(r, &all, c);
        if (r->p.silu) {
            const double z = w->value;
            w->value = z / (1 + exp(-z));
            want_silu(&r->a, fabs(z), w);
        }
        want_round(r->p.out_elem, w);
    }
}

/* Inputs in a slot are rounded once, however often they are written again. */
static void inputs_store(kvb_recurrence *r)
{
    const double u = r->p.state_elem == KVB_F32 ? 0 : kvb_unit_roundoff(r->p.state_elem);
    for (size_t at = 0; at < elements_of(r) && u > 0; at++)
        for (uint32_t c = 0; c < ABREAST; c++)
            r->lanes[at].worst[c] = r->lanes[at].linear[c] =
                u * fabs(r->state[at].s[c]) + kvb_smallest_subnormal(r->p.state_elem);
}

void kvb_recurrence_step(kvb_recurrence *r, const kvb_recurrence_token *token, kvb_recurrence_want *out)
{
    if (r->p.kind == KVB_SCAN_CONV) {
        for (uint32_t b = 0; b < r->blocks; b++)
            inputs_step(r, token, b, out);
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
            const lanes *l = lanes_at(r, i, c / ABREAST);
            const uint32_t at = c % ABREAST;
            const double worst = l->worst[at], likely = l->linear[at] + KVB_LAMBDA * sqrt(l->variance[at]);
            *state++ = (kvb_recurrence_want){elements_at(r, i, c / ABREAST)->s[at], fmin(worst, likely), worst};
        }
}

/* ---- a kernel's inputs and outputs ------------------------------------------------------------------------------- */

void kvb_scan_inputs(const kvb_scan_problem *p, size_t n[KVB_SCAN_INPUTS])
{
    const size_t keys = (size_t)p->n_tok * p->groups * p->d_k, rows = (size_t)p->n_tok * p->heads,
                 values = rows * p->d_v;
    const size_t of[KVB_SCAN_KINDS][KVB_SCAN_INPUTS] = {
        [KVB_SCAN_MAMBA1] = {keys, keys, values, values, 0, (size_t)p->heads * p->d_k * p->d_v},
        [KVB_SCAN_MAMBA2] = {keys, keys, values, rows, 0, p->heads},
        [KVB_SCAN_LIGHTNING] = {keys, keys, values, 0, 0, p->heads},
        [KVB_SCAN_DELTA] = {keys, keys, values, rows, rows},
        [KVB_SCAN_CONV] = {0, 0, values, 0, 0, (size_t)(p->d_k + 1) * p->d_v, p->d_v}};
    memcpy(n, of[p->kind], sizeof of[p->kind]);
}

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
