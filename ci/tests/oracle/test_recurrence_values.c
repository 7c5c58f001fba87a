/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the bound of recurrences is the formula at the head of oracle/recurrence.h: told once more here, in long
 * double, over random tokens, chunks and values of each field of a declaration; and as numbers worked out by hand. And
 * that the bound of oracle/recurrence.h is the same one where all rows of the state are alike, so that norms say no more
 * and no less than elements.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "ci/tests/oracle/hand.h"
#include "oracle/bound.h"
#include "oracle/recurrence.h"

enum { DK = 3, DV = 2, ROWS = 4 };
#define U 0x1p-24L

static uint64_t seed = 5;

static float between(double low, double high)
{
    return (float)(low + (high - low) * hand_uniform(&seed));
}

static uint32_t below(uint32_t n)
{
    return (uint32_t)(hand_uniform(&seed) * n);
}

/* ---- the formula, told anew -------------------------------------------------------------------------------------- */

typedef struct told {
    kvb_scan_problem p;
    kvb_scan_arithmetic a;
    uint32_t taken;
    long double s[DK][DV], before[DK][DV], m[DK][DV], x[DK][DV]; /* exact; at the chunk's begin; M; X */
    long double w[DK][DV], l[DK][DV], v[DK][DV];                 /* W, L, V; DELTA: in row 0, of a column */
    long double largest;                                         /* a term of the chunk before its decay, at most */
} told;

static long double roundoff(kvb_elem elem)
{
    return elem == KVB_F32 ? 0 : (long double)kvb_unit_roundoff(elem);
}

static long double gamma_of(long double n)
{
    return n * U / (1 - n * U);
}

static long double relative(const told *t)
{
    return (long double)t->a.exp_error + (1 + roundoff(t->a.operands)) * (1 + roundoff(t->a.operands)) - 1;
}

static long double least_change(kvb_elem elem)
{
    return elem == KVB_F32 ? 0x1p-18L : powl(roundoff(elem), 2.0L / 3) / 4;
}

/* The end of a chunk, with the state rounded to `narrow`. */
static void told_end(told *t, kvb_elem narrow)
{
    const bool columns = t->p.kind == KVB_SCAN_DELTA;
    const long double n = t->a.state_chain;
    t->taken = 0;
    long double next = 0;
    for (int c = 0; c < DV; c++) {
        long double w2 = 0, l2 = 0, v = 0;
        for (int i = 0; i < DK; i++) {
            const long double s = fabsl(t->s[i][c]), change = fabsl(t->s[i][c] - t->before[i][c]),
                              had = t->w[columns ? 0 : i][c];
            const long double of = t->m[i][c] + had;
            const long double same = relative(t) * of + U * t->a.exponent_chain * t->x[i][c] +
                                     (long double)t->a.exp_floor * t->largest + (n + 1) * 0x1p-149L;
            const long double type =
                narrow == KVB_F32 ? 0 : roundoff(narrow) * (s + had) + (long double)kvb_smallest_subnormal(narrow);
            const bool still = change < least_change(KVB_F32) * s, stuck = change < least_change(narrow) * s;
            const long double w = same + gamma_of(n) * of + type,
                              l = same + (still ? gamma_of(n) * of : 0) + (stuck ? type : 0),
                              var = (still ? 0 : n * U * U * of * of) + (stuck ? 0 : type * type);
            w2 += w * w;
            l2 += l * l;
            v = var > v ? var : v;
            if (!columns) {
                t->w[i][c] += w;
                t->l[i][c] += l;
                t->v[i][c] += var;
            }
            t->before[i][c] = t->s[i][c];
            t->m[i][c] = s;
            t->x[i][c] = 0;
            next = s > next ? s : next;
        }
        if (columns) {
            t->w[0][c] += sqrtl(w2);
            t->l[0][c] += sqrtl(l2);
            t->v[0][c] += v;
        }
    }
    t->largest = next;
}

static long double exponent(const told *t, const kvb_recurrence_token *k, int i, int c)
{
    switch (t->p.kind) {
    case KVB_SCAN_MAMBA1:
        return (long double)k->gate[c] * (long double)k->a[i * DV + c];
    case KVB_SCAN_MAMBA2:
        return (long double)*k->gate * (long double)*k->a;
    case KVB_SCAN_LIGHTNING:
        return *k->a;
    default:
        return *k->gate;
    }
}

static void told_token(told *t, const kvb_recurrence_token *k, kvb_recurrence_want *out)
{
    const bool delta = t->p.kind == KVB_SCAN_DELTA;
    const long double beta = delta ? (long double)*k->beta : 0, c_of = t->a.exponent_chain, r = relative(t);
    long double k2 = 0, q2 = 0, most_k = 0, most_v = 0;
    if (t->taken == t->a.chunk)
        told_end(t, t->a.carried);
    for (int i = 0; i < DK; i++) {
        k2 += (long double)k->k[i] * k->k[i];
        q2 += (long double)k->q[i] * k->q[i];
        most_k = fmaxl(most_k, fabsl((long double)k->k[i]));
    }
    for (int c = 0; c < DV; c++) {
        long double gate = t->p.kind == KVB_SCAN_MAMBA1 ? k->gate[c] : t->p.kind == KVB_SCAN_MAMBA2 ? *k->gate : 1;
        long double write = gate * (long double)k->v[c], read = 0, m = fabsl((long double)k->v[c]), x = 0;
        for (int i = 0; i < DK; i++) {
            const long double e = exponent(t, k, i, c), d = expl(e);
            t->x[i][c] = d * (t->x[i][c] + fabsl(e) * t->m[i][c]);
            t->m[i][c] *= d;
            t->s[i][c] *= d;
            if (!delta || i == 0) {
                t->w[i][c] *= d;
                t->l[i][c] *= d;
                t->v[i][c] *= d * d;
            }
            read += (long double)k->k[i] * t->s[i][c];
            m += fabsl((long double)k->k[i]) * (t->m[i][c] + t->w[0][c]);
            x += fabsl((long double)k->k[i]) * t->x[i][c];
        }
        if (delta) {
            const long double rho = fmaxl(1, fabsl(1 - beta * k2)), along = beta * sqrtl(k2), n = t->a.solve_chain;
            const long double same = along * (r * m + U * c_of * x + n * 0x1p-149L);
            t->w[0][c] = rho * t->w[0][c] + same + along * gamma_of(n) * m;
            t->l[0][c] = rho * t->l[0][c] + same;
            t->v[0][c] = rho * rho * t->v[0][c] + along * along * n * U * U * m * m;
            write = beta * ((long double)k->v[c] - read);
        }
        most_v = fmaxl(most_v, fabsl(write));
        long double value = 0, mass = 0, reach = 0, norm1 = 0, w = 0, l = 0, v = 0;
        for (int i = 0; i < DK; i++) {
            const long double q = fabsl((long double)k->q[i]);
            t->s[i][c] += (long double)k->k[i] * write;
            t->m[i][c] += fabsl((long double)k->k[i] * write);
            value += (long double)k->q[i] * t->s[i][c];
            mass += q * (t->m[i][c] + t->w[delta ? 0 : i][c]);
            reach += q * t->x[i][c];
            norm1 += q;
            w += q * t->w[i][c];
            l += q * t->l[i][c];
            v += q * q * t->v[i][c];
        }
        if (delta)
            w = sqrtl(q2) * t->w[0][c], l = sqrtl(q2) * t->l[0][c], v = q2 * t->v[0][c];
        const long double n = t->a.read_chain;
        const long double same =
            r * mass + U * c_of * reach + norm1 * t->a.exp_floor * t->largest + (norm1 + 1) * n * 0x1p-149L;
        const long double most = same + w + gamma_of(n) * mass,
                          likely = same + l + 7 * sqrtl(v + n * U * U * mass * mass), least = fminl(most, likely);
        const long double u = roundoff(t->p.out_elem), tiny = kvb_smallest_subnormal(t->p.out_elem);
        out[c] = (kvb_recurrence_want){(double)value, (double)(least + u * (fabsl(value) + least) + tiny),
                                       (double)(most + u * (fabsl(value) + most) + tiny)};
    }
    t->largest += most_k * most_v;
    t->taken++;
}

/* ---- both over random tokens ------------------------------------------------------------------------------------- */

static kvb_scan_arithmetic arithmetic_draw(void)
{
    return (kvb_scan_arithmetic){.carried = below(2) ? KVB_F32 : KVB_BF16,
                                 .operands = below(2) ? KVB_F32 : KVB_F16,
                                 .chunk = 1 + below(3),
                                 .state_chain = below(900),
                                 .read_chain = below(900),
                                 .solve_chain = below(900),
                                 .exponent_chain = below(3) ? below(900) : 0,
                                 .exp_error = below(2) ? 0 : (double)between(0, 1e-5),
                                 .exp_floor = below(2) ? 0 : (double)between(0, 1e-5)};
}

static void are_alike(const kvb_recurrence_want *got, double value, double bound, double worst, double within, int draw)
{
    if (!(fabs(got->value - value) <= 1e-9 * (fabs(value) + 1)) || !(fabs(got->bound - bound) <= within * bound) ||
        !(fabs(got->worst - worst) <= within * worst))
        fail_msg("draw %d: %.12g +- %.9g, %.9g in place of %.12g +- %.9g, %.9g", draw, got->value, got->bound,
                 got->worst, value, bound, worst);
}

static void the_formula_is_told_twice(void **state)
{
    static const kvb_scan_kind kinds[] = {KVB_SCAN_MAMBA1, KVB_SCAN_MAMBA2, KVB_SCAN_LIGHTNING, KVB_SCAN_DELTA};
    static const kvb_elem types[] = {KVB_F32, KVB_F16, KVB_BF16};
    (void)state;
    for (int draw = 0; draw < 600; draw++) {
        const bool calm = below(2); /* elements that hardly change */
        told t = {.p = {.kind = kinds[draw % 4], .heads = 1, .groups = 1, .d_k = DK, .d_v = DV},
                  .a = arithmetic_draw()};
        t.p.state_elem = types[below(3)];
        t.p.out_elem = types[below(3)];
        kvb_recurrence *r = kvb_recurrence_open(&t.p, &t.a);
        assert_non_null(r);
        for (int token = 0; token < 30; token++) {
            float q[DK], k[DK], v[DV], gate[DV], beta = between(0, 1.5), a[DK * DV];
            const bool still = calm && token > 2;
            kvb_recurrence_want out[DV], want[DV], all[DK * DV];
            for (int i = 0; i < DK; i++) {
                q[i] = between(-1, 1);
                k[i] = between(-1, 1);
                for (int c = 0; c < DV; c++)
                    a[i * DV + c] = still ? between(-1e-5, 0) : between(-2, 0);
            }
            beta = still ? 1e-4f * beta : beta;
            for (int c = 0; c < DV; c++) {
                v[c] = between(-1, 1) * (still ? (token % 2 ? 1e-3f : 1e-6f) : 1);
                gate[c] = t.p.kind == KVB_SCAN_DELTA ? (still ? 0 : between(-0.5, 0)) : between(0, 1);
            }
            const kvb_recurrence_token x = {.q = q, .k = k, .v = v, .gate = gate, .beta = &beta, .a = a};
            kvb_recurrence_step(r, &x, out);
            told_token(&t, &x, want);
            for (int c = 0; c < DV; c++)
                are_alike(&out[c], want[c].value, want[c].bound, want[c].worst, 1e-9, draw);
            if (below(3) == 0) {
                const bool stored = below(2);
                kvb_recurrence_rest(r, stored);
                told_end(&t, stored ? t.p.state_elem : t.a.carried);
            }
            kvb_recurrence_state(r, all);
            for (int i = 0; i < DK * DV; i++) {
                const int row = t.p.kind == KVB_SCAN_DELTA ? 0 : i / DV, c = i % DV;
                const long double likely = t.l[row][c] + 7 * sqrtl(t.v[row][c]);
                are_alike(&all[i], (double)t.s[i / DV][c], (double)fminl(t.w[row][c], likely), (double)t.w[row][c],
                          1e-9, draw);
            }
        }
        kvb_recurrence_close(r);
    }
}

/* ---- the glance: the same bound over norms ----------------------------------------------------------------------- */

/* MOVING: each element changes much with each token. CALM: hardly, after the first few. ANY: chunks of several tokens,
 * of which the glance cannot say what changed, so that its bound is the wider. */
enum { MOVING, CALM, ANY, MODES, TOKENS = 160 };

static void glance_is_alike(kvb_scan_kind kind, int mode, uint32_t rows, int draw)
{
    static const kvb_elem types[] = {KVB_F32, KVB_F16, KVB_BF16};
    static kvb_glance_row row[TOKENS];
    kvb_scan_problem p = {.kind = kind, .heads = 1, .groups = 1, .d_k = rows, .d_v = DV};
    kvb_scan_arithmetic a = arithmetic_draw();
    p.state_elem = types[below(3)];
    p.out_elem = types[below(3)];
    a.chunk = mode == ANY ? a.chunk : 1;
    a.carried = mode == ANY ? a.carried : mode == CALM ? p.state_elem : KVB_F32;
    if (kind == KVB_SCAN_DELTA &&
        rows > 1) { /* where W is much of M, the glance, which counts it once, is the narrower */
        p.state_elem = a.carried = a.operands = KVB_F32;
    }
    kvb_recurrence *r = kvb_recurrence_open(&p, &a);
    kvb_glance g = {.last = NULL};
    double lane[ROWS * KVB_LANE_COLUMNS] = {0}, was[DV] = {0};
    const double within = rows > 1 ? 0.03 : 1e-3; /* W of a column is not that of its elements */
    bool moves = true;
    assert_non_null(r);
    for (int token = 0; token < TOKENS && moves; token++) {
        const bool calm = mode == CALM && token > 2;
        const float key = between(0.1, 1), query = between(-1, 1), beta = between(0, 2.2 / rows) * (calm ? 1e-8f : 1);
        float q[ROWS], k[ROWS], v[DV], gate[DV], rate[ROWS * DV];
        kvb_recurrence_want out[DV], want[DV];
        for (uint32_t c = 0; c < DV; c++) {
            v[c] = (token % 2 ? -1 : 1) * between(0.5, 1) * (calm ? 1e-8f : 1);
            gate[c] = kind == KVB_SCAN_DELTA ? between(-0.5, -0.1) * (calm ? 1e-8f : 1) : between(0.2, 1);
            rate[c] = between(-2, -0.5) * (calm ? 1e-8f : 1);
        }
        for (uint32_t i = 0; i < rows; i++) {
            q[i] = query;
            k[i] = key;
            memcpy(rate + i * DV, rate, i ? DV * sizeof *rate : 0);
        }
        const kvb_recurrence_token x = {.q = q, .k = k, .v = v, .gate = gate, .beta = &beta, .a = rate};
        row[token] = (kvb_glance_row){.q_norm = 0};
        kvb_recurrence_step(r, &x, out);
        kvb_glance_take(&p, &x, lane, &row[token]);
        kvb_glance_step(&g, &p, &a, &row[token], want);
        /* it counts the token's own product among those that a decay may take for 0 */
        const double floor = a.exp_floor * rows * fabs((double)query) * (double)row[token].k_most *
                             fmax((double)row[token].write[0], (double)row[token].write[1]);
        for (uint32_t c = 0; c < DV; c++) {
            const double least = mode != MOVING ? fmin(want[c].bound, out[c].worst + floor) : out[c].bound + floor;
            are_alike(&want[c], out[c].value, least, out[c].worst + floor, within, draw);
            assert_true(want[c].bound >= (1 - within) * (out[c].bound + floor));
            moves &= calm || mode == ANY || fabs(lane[c] - was[c]) > 0.01 * fabs(lane[c]);
            was[c] = lane[c];
        }
        if (below(3) == 0) {
            const bool stored = below(2);
            kvb_recurrence_rest(r, stored);
            kvb_glance_rest(&g, &p, &a, stored);
        }
    }
    assert_true(g.worst[DV] == 0 && g.linear[DV] == 0); /* the lane has no more columns */
    kvb_recurrence_close(r);
}

static void norms_of_equal_rows_say_the_same(void **state)
{
    static const kvb_scan_kind kinds[] = {KVB_SCAN_MAMBA1, KVB_SCAN_MAMBA2, KVB_SCAN_LIGHTNING, KVB_SCAN_DELTA};
    (void)state;
    for (int draw = 0; draw < 480; draw++)
        glance_is_alike(kinds[draw % 4], draw / 4 % MODES, draw / 12 % 2 ? ROWS : 1, draw);
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

static void is_about(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want)))
        fail_msg("%.17g in place of %.17g", got, want);
}

static kvb_recurrence_want stepped(kvb_recurrence *r, float q, float v)
{
    const float one = 1, none = 0;
    kvb_recurrence_want out;
    kvb_recurrence_step(
        r, &(kvb_recurrence_token){.q = &q, .k = &one, .v = &v, .a = &none, .gate = &none, .beta = &one}, &out);
    return out;
}

static void one_element_by_hand(void **state)
{
    /* 10,000 roundings on the way into the state, 22,500 on the way out: roots 100 and 150. No decay; 1 is written,
     * then 0. */
    const kvb_scan_problem p = {.kind = KVB_SCAN_LIGHTNING, .heads = 1, .groups = 1, .d_k = 1, .d_v = 1};
    const kvb_scan_arithmetic a = {.chunk = 2, .state_chain = 10000, .read_chain = 22500};
    const double u = 0x1p-24, into = 10000 * u / (1 - 10000 * u), from = 22500 * u / (1 - 22500 * u);
    kvb_recurrence *r = kvb_recurrence_open(&p, &a);
    kvb_recurrence_want out = stepped(r, 3, 1), all;
    (void)state;
    is_about(out.value, 3);
    is_about(out.bound, 7 * 150 * u * 3);
    is_about(out.worst, from * 3);
    kvb_recurrence_rest(r, false);
    kvb_recurrence_state(r, &all);
    is_about(all.bound, 700 * u);
    is_about(all.worst, into);
    /* q = -3: variances 9 * 100^2 u^2 of the state, and 150^2 u^2 of 3 (1 + W) */
    out = stepped(r, -3, 0);
    is_about(out.value, -3);
    is_about(out.bound, 7 * 3 * u * sqrt(10000 + 22500 * (1 + into) * (1 + into)));
    is_about(out.worst, 3 * into + from * 3 * (1 + into));
    /* the element is what it was: what is rounded now may be what was rounded before, and adds up */
    kvb_recurrence_rest(r, false);
    kvb_recurrence_state(r, &all);
    is_about(all.bound, into * (1 + into) + 700 * u);
    is_about(all.worst, into + into * (1 + into));
    kvb_recurrence_close(r);
    /* a chunk of two tokens: 1 and -1/4, M = 5/4, S = 3/4; the third token ends it */
    r = kvb_recurrence_open(&p, &a);
    stepped(r, 1, 1);
    stepped(r, 1, -0.25f);
    stepped(r, 1, 0);
    kvb_recurrence_state(r, &all);
    is_about(all.value, 0.75);
    is_about(all.bound, 1.25 * 700 * u);
    is_about(all.worst, 1.25 * into);
    kvb_recurrence_close(r);
    /* zeros: the smallest number of the accumulator for each rounding, of q = 3 four times as often, and that of out */
    r = kvb_recurrence_open(&p, &a);
    out = stepped(r, 3, 0);
    assert_true(out.bound == (4 * 22500 + 1) * 0x1p-149 && out.worst == out.bound);
    kvb_recurrence_rest(r, false);
    kvb_recurrence_state(r, &all);
    assert_true(all.worst == 10001 * 0x1p-149);
    kvb_recurrence_close(r);
}

/* k = 3, no decay: I - k k^T is 1 - 9, so that errors grow eightfold, and a write counts threefold. */
static void one_column_by_hand(void **state)
{
    const kvb_scan_problem p = {.kind = KVB_SCAN_DELTA, .heads = 1, .groups = 1, .d_k = 1, .d_v = 1};
    const kvb_scan_arithmetic a = {.chunk = 9, .solve_chain = 10000};
    const double u = 0x1p-24, solve = 10000 * u / (1 - 10000 * u);
    const float k = 3, q = 2, none = 0, one = 1, v[2] = {2, 0};
    const kvb_recurrence_token token[2] = {{.q = &q, .k = &k, .v = &v[0], .gate = &none, .beta = &one},
                                           {.q = &q, .k = &k, .v = &v[1], .gate = &none, .beta = &one}};
    kvb_recurrence *r = kvb_recurrence_open(&p, &a);
    kvb_recurrence_want out;
    (void)state;
    /* S = 3 * 2 = 6, off by 3 * 2 of 10,000 roundings */
    kvb_recurrence_step(r, &token[0], &out);
    is_about(out.value, 12);
    is_about(out.bound, 2 * 7 * 6 * 100 * u);
    is_about(out.worst, 2 * 6 * solve);
    /* k^T S = 18, S = 6 - 3 * 18 = -48; m = 3 (6 + W), W = 6 solve; a variance of (8 * 600)^2 and of (9 (6 + W) 100)^2
     */
    const double w = 6 * solve;
    kvb_recurrence_step(r, &token[1], &out);
    is_about(out.value, -96);
    is_about(out.bound, 2 * 7 * u * sqrt(4800.0 * 4800 + 900 * (6 + w) * 900 * (6 + w)));
    is_about(out.worst, 2 * (8 * w + 9 * (6 + w) * solve));
    kvb_recurrence_close(r);
}

/* Taps 1, -2, 4 and a bias of 8, over states of f16: 2^-11 of an input that lay in a slot, and at least 2^-24. */
static void inputs_by_hand(void **state)
{
    const kvb_scan_problem p = {.kind = KVB_SCAN_CONV,
                                .heads = 1,
                                .groups = 1,
                                .d_k = 2,
                                .d_v = 1,
                                .state_elem = KVB_F16},
                           silu = {.kind = KVB_SCAN_CONV, .heads = 1, .groups = 1, .d_k = 2, .d_v = 1, .silu = true};
    const kvb_scan_arithmetic a = {.chunk = 1, .read_chain = 10000, .exp_error = 0x1p-10, .exp_floor = 0x1p-12},
                              plain = {.chunk = 1, .read_chain = 10000};
    const double u = 0x1p-24, half = 0x1p-11, least = 0x1p-24;
    const float tap[3] = {1, -2, 4}, bias = 8, v[6] = {1, 3, 2, 5, -1, 0};
    static const double z[6] = {12, 8 - 2 + 12, 8 + 1 - 6 + 8, 8 + 3 - 4 + 20, 8 + 2 - 10 - 4, 8 + 5 + 2},
                        mass[6] = {12, 8 + 2 + 12, 8 + 1 + 6 + 8, 8 + 3 + 4 + 20, 8 + 2 + 10 + 4, 8 + 5 + 2};
    /* the inputs of token 1 and before lie in a slot: x = 1, 3 of token 2, which reads them by 1 and -2, and x = 3 of
     * token 3 */
    const double stored[6] = {0, 0, 7 * half + 3 * least, 3 * half + least, 0, 0};
    kvb_recurrence *r = kvb_recurrence_open(&p, &plain), *s = kvb_recurrence_open(&silu, &a);
    kvb_glance g = {.last = NULL};
    double lane[2 * KVB_LANE_COLUMNS] = {0};
    (void)state;
    for (int t = 0; t < 6; t++) {
        const kvb_recurrence_token token = {.v = &v[t], .a = tap, .bias = &bias};
        kvb_recurrence_want out, all[2];
        kvb_glance_row row = {.q_norm = 0};
        kvb_recurrence_step(r, &token, &out);
        is_about(out.value, z[t]);
        is_about(out.bound, stored[t] + 700 * u * (mass[t] + stored[t]));
        is_about(out.worst, stored[t] + 10000 * u / (1 - 10000 * u) * (mass[t] + stored[t]));
        /* the glance takes all of both tokens after for stored, taps and bias */
        const double most = t == 2 || t == 3 ? half * mass[t] + 7 * least : 0;
        kvb_glance_take(&p, &token, lane, &row);
        kvb_glance_step(&g, &p, &plain, &row, &out);
        is_about(out.value, z[t]);
        if (!(fabs(out.bound / (most + 700 * u * (mass[t] + most)) - 1) < 1e-6)) /* made of floats that are above */
            fail_msg("token %d: %.9g", t, out.bound);
        if (!(fabs(out.worst / (most + 10000 * u / (1 - 10000 * u) * (mass[t] + most)) - 1) < 1e-6))
            fail_msg("token %d: %.9g", t, out.worst);
        if (t == 1) {
            kvb_recurrence_rest(r, true);
            kvb_glance_rest(&g, &p, &plain, true);
            kvb_recurrence_state(r, all);
            is_about(all[0].bound, half + least);
            is_about(all[1].worst, 3 * half + least);
        } else if (t == 4) { /* not stored: nothing is rounded */
            kvb_recurrence_rest(r, false);
            kvb_glance_rest(&g, &p, &plain, false);
        }
        /* behind silu: 1.0998 (1 + own) times that, own = 2^-10 + 2u; floor |z|; own of the value. exp_error also
         * counts in the sum */
        kvb_recurrence_step(s, &token, &out);
        const double own = 0x1p-10 + 2 * u, value = z[t] / (1 + exp(-z[t])),
                     sum = 0x1p-10 * mass[t] + 700 * u * mass[t];
        is_about(out.value, value);
        is_about(out.bound, 1.0998 * (1 + own) * sum + 0x1p-12 * fabs(z[t]) + own * fabs(value));
        is_about(out.worst, 1.0998 * (1 + own) * (0x1p-10 + 10000 * u / (1 - 10000 * u)) * mass[t] +
                                0x1p-12 * fabs(z[t]) + own * fabs(value));
    }
    kvb_recurrence_close(r);
    kvb_recurrence_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_formula_is_told_twice),
        cmocka_unit_test(norms_of_equal_rows_say_the_same),
        cmocka_unit_test(one_element_by_hand),
        cmocka_unit_test(one_column_by_hand),
        cmocka_unit_test(inputs_by_hand),
    };
    return cmocka_run_group_tests_name("values of the recurrences' bounds", tests, NULL, NULL);
}
