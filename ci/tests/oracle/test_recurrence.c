/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: recurrences and their bounds agree with their definitions and headers. */
#include "ci/tests/tests.h"
#include "ci/tests/oracle/hand.h"
#include "oracle/bound.h"
#include "oracle/oracle.h"
#include "oracle/recurrence.h"

/*
 * Judges the oracle's recurrences. Shows that they agree with the definitions in another form, which shares no code
 * with them: sums over all earlier tokens in long double (MAMBA1, MAMBA2, LIGHTNING), products of matrices (DELTA), a
 * sum over inputs (CONV).
 */

enum { TOKENS = 60, DK = 5, DV = 3 };

static const kvb_scan_arithmetic honest = {.chunk = 1, .state_chain = 3, .read_chain = 9, .solve_chain = 9};

static uint64_t seed = 5;

static float between(double low, double high)
{
    return (float)(low + (high - low) * hand_uniform(&seed));
}

static uint32_t below(uint32_t n)
{
    return (uint32_t)(hand_uniform(&seed) * n);
}

static kvb_elem type_draw(void)
{
    return (const kvb_elem[]){KVB_F32, KVB_F16, KVB_BF16}[below(3)];
}

/* All kinds but the convolution. */
static const kvb_scan_kind kinds[] = {KVB_SCAN_MAMBA1, KVB_SCAN_MAMBA2, KVB_SCAN_LIGHTNING, KVB_SCAN_DELTA};

/* The exponent of a token's decay of element (i, c). */
static long double exponent(kvb_scan_kind kind, const kvb_recurrence_token *t, int i, int c, int d_v)
{
    switch (kind) {
    case KVB_SCAN_MAMBA1:
        return (long double)t->gate[c] * (long double)t->a[i * d_v + c];
    case KVB_SCAN_MAMBA2:
        return (long double)*t->gate * (long double)*t->a;
    case KVB_SCAN_LIGHTNING:
        return *t->a;
    default:
        return *t->gate;
    }
}

/* An additional factor of a token's key and value. */
static long double gate_of(kvb_scan_kind kind, const kvb_recurrence_token *t, int c)
{
    return kind == KVB_SCAN_MAMBA1 ? t->gate[c] : kind == KVB_SCAN_MAMBA2 ? *t->gate : 1;
}

/* ---- definitions, written anew ----------------------------------------------------------------------------------- */

typedef struct stream {
    kvb_scan_kind kind;
    bool silu;
    float q[TOKENS][DK], k[TOKENS][DK], v[TOKENS][DV], gate[TOKENS][DV], beta[TOKENS], a[(DK + 1) * DV], bias[DV];
} stream;

static void stream_draw(stream *s, kvb_scan_kind kind)
{
    const bool delta = kind == KVB_SCAN_DELTA;
    s->kind = kind;
    s->silu = between(0, 1) < 0.5f;
    for (int t = 0; t < TOKENS; t++) {
        float norm2 = 0;
        for (int i = 0; i < DK; i++) {
            s->q[t][i] = between(-1, 1);
            s->k[t][i] = between(-1, 1);
            norm2 += s->k[t][i] * s->k[t][i];
        }
        for (int i = 0; i < DK && delta; i++)
            s->k[t][i] /= sqrtf(norm2);
        for (int c = 0; c < DV; c++) {
            s->v[t][c] = between(-1, 1);
            s->gate[t][c] = delta ? between(-0.2f, 0) : between(0, 0.3f);
        }
        s->beta[t] = between(0, 2);
    }
    for (int i = 0; i < (DK + 1) * DV; i++)
        s->a[i] = kind == KVB_SCAN_CONV ? between(-1, 1) : between(-1, 0);
    for (int c = 0; c < DV; c++)
        s->bias[c] = between(-1, 1);
}

static kvb_recurrence_token token_of(const stream *s, int t)
{
    return (kvb_recurrence_token){s->q[t], s->k[t], s->v[t], s->gate[t], &s->beta[t], s->a, .bias = s->bias};
}

/* S[i][c] after token t: the sum of each token's write, decayed by all later tokens. */
static long double summed(const stream *s, int t, int i, int c)
{
    long double sum = 0, since = 0;
    for (int j = t; j >= 0; j--) {
        const kvb_recurrence_token token = token_of(s, j);
        sum += expl(since) * gate_of(s->kind, &token, c) * (long double)s->k[j][i] * (long double)s->v[j][c];
        since += exponent(s->kind, &token, i, c, DV);
    }
    return sum;
}

/* S <- alpha (I - beta k k^T) S + beta k v^T, with the matrix written out: equation 10 of the paper, transposed. */
static void multiplied(const stream *s, int t, long double state[DK][DV])
{
    long double next[DK][DV];
    for (int i = 0; i < DK; i++)
        for (int c = 0; c < DV; c++) {
            next[i][c] = (long double)s->beta[t] * s->k[t][i] * s->v[t][c];
            for (int j = 0; j < DK; j++)
                next[i][c] +=
                    expl(s->gate[t][0]) * ((i == j) - (long double)s->beta[t] * s->k[t][i] * s->k[t][j]) * state[j][c];
        }
    memcpy(state, next, sizeof next);
}

static long double convolved(const stream *s, int t, int c)
{
    long double z = s->bias[c];
    for (int i = 0; i <= DK; i++)
        if (t - DK + i >= 0)
            z += (long double)s->a[i * DV + c] * s->v[t - DK + i][c];
    return s->silu ? z / (1 + expl(-z)) : z;
}

/* ---- the oracle over a stream ------------------------------------------------------------------------------------ */

static kvb_scan_problem one_head(kvb_scan_kind kind, uint32_t d_k, uint32_t d_v)
{
    return (kvb_scan_problem){.kind = kind, .heads = 1, .groups = 1, .d_k = d_k, .d_v = d_v, .state_elem = KVB_F32};
}

static void close_to(double got, long double want, double size, const char *what, int t)
{
    if (!(fabsl((long double)got - want) <= 64 * TOKENS * 0x1p-53L * (long double)size))
        fail_msg("%s, token %d: %.17g in place of %.17Lg", what, t, got, want);
}

TEST(agrees_with_definitions)
{
    static stream s;
    for (int i = 0; i < 20 * KVB_SCAN_KINDS; i++) {
        long double matrix[DK][DV] = {{0}};
        kvb_recurrence_want out[DV], all[DK * DV];
        stream_draw(&s, (kvb_scan_kind)(i % KVB_SCAN_KINDS));
        kvb_scan_problem p = one_head(s.kind, DK, DV);
        p.silu = s.silu;
        kvb_recurrence *r = kvb_recurrence_open(&p, &honest);
        for (int t = 0; t < TOKENS; t++) {
            const kvb_recurrence_token token = token_of(&s, t);
            kvb_recurrence_step(r, &token, out);
            if (t % 7 == 0)
                kvb_recurrence_rest(r, true);
            kvb_recurrence_state(r, all);
            if (s.kind == KVB_SCAN_DELTA)
                multiplied(&s, t, matrix);
            for (int c = 0; c < DV; c++) {
                long double want = s.kind == KVB_SCAN_CONV ? convolved(&s, t, c) : 0;
                for (int j = 0; j < DK && s.kind != KVB_SCAN_CONV; j++) {
                    const long double x = s.kind == KVB_SCAN_DELTA ? matrix[j][c] : summed(&s, t, j, c);
                    close_to(all[j * DV + c].value, x, TOKENS, "state", t);
                    want += (long double)s.q[t][j] * x;
                }
                close_to(out[c].value, want, TOKENS, "out", t);
                for (int j = 0; j < DK && s.kind == KVB_SCAN_CONV; j++)
                    assert_true(all[j * DV + c].value == (t - DK + 1 + j < 0 ? 0 : (double)s.v[t - DK + 1 + j][c]));
            }
        }
        kvb_recurrence_close(r);
    }
}

/* ---- the bound --------------------------------------------------------------------------------------------------- */

static void is_near(double got, double want, double within)
{
    if (!(fabs(got - want) <= within * fabs(want)))
        fail_msg("%.17g in place of %.17g", got, want);
}

/* A given state is exact, with any errors before it; sums and floors begin with it. */
TEST(given_states_are_exact)
{
    for (kvb_scan_kind kind = 0; kind < KVB_SCAN_KINDS; kind++) {
        kvb_scan_problem p = one_head(kind, DK, DV);
        p.state_elem = KVB_BF16;
        const kvb_scan_arithmetic floors = {.chunk = 100, .exp_floor = 0.25, .exp_error = 0.5};
        const float ones[(DK + 1) * DV] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                                    none[4 * DK * DV] = {0};
        const kvb_recurrence_token token = {.q = ones, .k = ones, .v = ones, .gate = none, .beta = none, .a = none};
        kvb_recurrence *r = kvb_recurrence_open(&p, &floors);
        kvb_recurrence_want out[DV], all[DK * DV];
        double given[DK * DV];
        for (int t = 0; t < 3; t++)
            kvb_recurrence_step(r, &token, out);
        kvb_recurrence_rest(r, true);
        for (int i = 0; i < DK * DV; i++)
            given[i] = i % 2 ? i : -i;
        kvb_recurrence_begin(r, given);
        kvb_recurrence_state(r, all);
        for (int i = 0; i < DK * DV; i++)
            assert_true(all[i].value == given[i] && all[i].bound == 0 && all[i].worst == 0);
        kvb_recurrence_step(r, &token, out);
        if (kind != KVB_SCAN_CONV) /* decays are 1: 0 + 3 - 6 + 9 - 12; only lightning writes, 1 in each row */
            assert_true(out[0].value == (kind == KVB_SCAN_LIGHTNING ? -1 : -6));
        if (kind != KVB_SCAN_CONV) /* in each row the floor of the largest element; exp_error of all that is added */
            is_near(out[0].bound, DK * 0.25 * 14 + 0.5 * (30 + DK * (kind == KVB_SCAN_LIGHTNING)), 1e-6);
        kvb_recurrence_close(r);
    }
}

TEST(forks_are_apart)
{
    static stream s;
    kvb_recurrence_want out[DV], all[2][DK * DV], again[DK * DV];
    for (int kind = 0; kind < KVB_SCAN_KINDS; kind++) {
        stream_draw(&s, (kvb_scan_kind)kind);
        kvb_scan_problem p = one_head(s.kind, DK, DV);
        p.state_elem = KVB_F16;
        kvb_recurrence *r[2] = {kvb_recurrence_open(&p, &honest), kvb_recurrence_open(&p, &honest)};
        for (int t = 0; t < 20; t++) {
            const kvb_recurrence_token token = token_of(&s, t);
            kvb_recurrence_step(r[0], &token, out);
            if (t == 9)
                kvb_recurrence_copy(r[1], r[0]);
            if (t >= 9)
                kvb_recurrence_state(r[1], all[t == 9 ? 0 : 1]);
        }
        assert_memory_equal(all[0], all[1], sizeof all[0]);
        for (int t = 10; t < 20; t++) {
            const kvb_recurrence_token token = token_of(&s, t);
            kvb_recurrence_step(r[1], &token, out);
        }
        kvb_recurrence_state(r[0], all[0]);
        kvb_recurrence_state(r[1], again);
        assert_memory_equal(all[0], again, sizeof again);
        kvb_recurrence_close(r[0]);
        kvb_recurrence_close(r[1]);
    }
}

TEST(rho_is_the_largest_share)
{
    const kvb_recurrence_want want[3] = {{1, 0.5, 1}, {2, 0.25, 1}, {3, 0, 1}};
    const struct {
        float got[3];
        double rho;
        uint32_t at;
    } rows[] = {{{1.25f, 2.0f, 3.0f}, 0.5, 0},
                {{1.25f, 2.5f, 3.0f}, 2, 1},
                {{1.25f, 2.5f, 3.5f}, INFINITY, 2},
                {{NAN, 2.5f, 3.0f}, INFINITY, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kvb_diff diff = {0};
        kvb_diff_take(&diff, &(kvb_diff_place){0}, want, 3, KVB_F32, rows[i].got);
        assert_true(diff.rho == rows[i].rho && diff.worst.channel == rows[i].at);
    }
}

/* A call's token is found by its place, its head, and the head's group; gates and decays depend on the kind. */
TEST(tokens_of_a_call)
{
    static const float q[96], k[96], v[96], gate[96], beta[96], a[96], bias[96];
    kvb_scan x = {.problem = {.kind = KVB_SCAN_MAMBA2, .heads = 4, .groups = 2, .d_k = 3, .d_v = 5},
                  .q = q,
                  .k = k,
                  .v = v,
                  .gate = gate,
                  .beta = beta,
                  .a = a,
                  .bias = bias};
    /* token 2, head 3: row 2 * 4 + 3 of heads, row 2 * 2 + 1 of groups */
    kvb_recurrence_token t = kvb_recurrence_token_of(&x, 2, 3, 0);
    assert_true(t.q == q + 15 && t.k == k + 15 && t.v == v + 55 && t.gate == gate + 11 && t.beta == beta + 11);
    assert_true(t.a == a + 3 && t.bias == bias);
    x.problem.kind = KVB_SCAN_MAMBA1; /* gates and decays for each channel */
    x.problem.heads = x.problem.groups = 1;
    t = kvb_recurrence_token_of(&x, 2, 0, 0);
    assert_true(t.q == q + 6 && t.k == k + 6 && t.v == v + 10 && t.gate == gate + 10 && t.a == a);
    x.problem.heads = 4;
    assert_true(kvb_recurrence_token_of(&x, 0, 1, 0).a == a + 15);
    x.problem.kind = KVB_SCAN_CONV; /* one row more of taps than of states */
    assert_true(kvb_recurrence_token_of(&x, 0, 1, 0).a == a + 20);
    x = (kvb_scan){.problem = x.problem, .v = v};
    t = kvb_recurrence_token_of(&x, 1, 0, 0);
    assert_true(!t.q && !t.k && !t.gate && !t.beta && !t.a && !t.bias && t.v == v + 20);
}

/*
 * Shows that the bound of recurrences is the formula at the head of oracle/recurrence.h: computed once more here, in
 * long double, over random tokens, chunks and values of each field of a declaration; and as numbers computed by hand.
 * And that the glance's bound over norms is the same one if all rows of the state are alike.
 */

enum { FEW_K = 3, FEW_V = 2 };
#define U 0x1p-24L

/* ---- the formula, written anew ----------------------------------------------------------------------------------- */

typedef struct told {
    kvb_scan_problem p;
    kvb_scan_arithmetic a;
    uint32_t taken;
    long double s[FEW_K][FEW_V], before[FEW_K][FEW_V], m[FEW_K][FEW_V],
        x[FEW_K][FEW_V];                                           /* exact; at the chunk's begin; M; X */
    long double w[FEW_K][FEW_V], l[FEW_K][FEW_V], v[FEW_K][FEW_V]; /* W, L, V; DELTA: of a column, in row 0 */
    long double largest;                                           /* largest term of the chunk before its decay */
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
    for (int c = 0; c < FEW_V; c++) {
        long double w2 = 0, l2 = 0, v = 0;
        for (int i = 0; i < FEW_K; i++) {
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

static void told_token(told *t, const kvb_recurrence_token *k, kvb_recurrence_want *out)
{
    const bool delta = t->p.kind == KVB_SCAN_DELTA;
    const long double beta = delta ? (long double)*k->beta : 0, c_of = t->a.exponent_chain, r = relative(t);
    long double k2 = 0, q2 = 0, most_k = 0, most_v = 0;
    if (t->taken == t->a.chunk)
        told_end(t, t->a.carried);
    for (int i = 0; i < FEW_K; i++) {
        k2 += (long double)k->k[i] * k->k[i];
        q2 += (long double)k->q[i] * k->q[i];
        most_k = fmaxl(most_k, fabsl((long double)k->k[i]));
    }
    for (int c = 0; c < FEW_V; c++) {
        long double write = gate_of(t->p.kind, k, c) * (long double)k->v[c], read = 0, m = fabsl((long double)k->v[c]),
                    x = 0;
        for (int i = 0; i < FEW_K; i++) {
            const long double e = exponent(t->p.kind, k, i, c, FEW_V), d = expl(e);
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
        for (int i = 0; i < FEW_K; i++) {
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

TEST(the_formula_is_told_twice)
{
    for (int draw = 0; draw < 600; draw++) {
        const bool calm = below(2); /* elements change very little */
        told t = {.p = one_head(kinds[draw % 4], FEW_K, FEW_V), .a = arithmetic_draw()};
        t.p.state_elem = type_draw();
        t.p.out_elem = type_draw();
        kvb_recurrence *r = kvb_recurrence_open(&t.p, &t.a);
        assert_non_null(r);
        for (int token = 0; token < 30; token++) {
            float q[FEW_K], k[FEW_K], v[FEW_V], gate[FEW_V], beta = between(0, 1.5), a[FEW_K * FEW_V];
            const bool still = calm && token > 2;
            kvb_recurrence_want out[FEW_V], want[FEW_V], all[FEW_K * FEW_V];
            for (int i = 0; i < FEW_K; i++) {
                q[i] = between(-1, 1);
                k[i] = between(-1, 1);
                for (int c = 0; c < FEW_V; c++)
                    a[i * FEW_V + c] = still ? between(-1e-5, 0) : between(-2, 0);
            }
            beta = still ? 1e-4f * beta : beta;
            for (int c = 0; c < FEW_V; c++) {
                v[c] = between(-1, 1) * (still ? (token % 2 ? 1e-3f : 1e-6f) : 1);
                gate[c] = t.p.kind == KVB_SCAN_DELTA ? (still ? 0 : between(-0.5, 0)) : between(0, 1);
            }
            const kvb_recurrence_token x = {.q = q, .k = k, .v = v, .gate = gate, .beta = &beta, .a = a};
            kvb_recurrence_step(r, &x, out);
            told_token(&t, &x, want);
            for (int c = 0; c < FEW_V; c++)
                are_alike(&out[c], want[c].value, want[c].bound, want[c].worst, 1e-9, draw);
            if (below(3) == 0) {
                const bool stored = below(2);
                kvb_recurrence_rest(r, stored);
                told_end(&t, stored ? t.p.state_elem : t.a.carried);
            }
            kvb_recurrence_state(r, all);
            for (int i = 0; i < FEW_K * FEW_V; i++) {
                const int row = t.p.kind == KVB_SCAN_DELTA ? 0 : i / FEW_V, c = i % FEW_V;
                const long double likely = t.l[row][c] + 7 * sqrtl(t.v[row][c]);
                are_alike(&all[i], (double)t.s[i / FEW_V][c], (double)fminl(t.w[row][c], likely), (double)t.w[row][c],
                          1e-9, draw);
            }
        }
        kvb_recurrence_close(r);
    }
}

/* ---- recurrence and glance, side by side ------------------------------------------------------------------------- */

enum { DRAWN = 401, LANE_ROWS = 4 };

typedef struct pair {
    kvb_scan_problem p;
    kvb_scan_arithmetic a;
    kvb_recurrence *r;
    kvb_glance g;
    double lane[LANE_ROWS * KVB_LANE_COLUMNS];
    kvb_glance_row row[DRAWN]; /* [token] */
    uint32_t tokens;
    kvb_recurrence_want out[FEW_V], glance[FEW_V]; /* of the last token */
} pair;

static void pair_open(pair *x, kvb_scan_problem p, kvb_scan_arithmetic a)
{
    *x = (pair){.p = p, .a = a, .r = kvb_recurrence_open(&p, &a)};
    assert_non_null(x->r);
}

static void pair_step(pair *x, kvb_recurrence_token token)
{
    kvb_glance_row *row = &x->row[x->tokens++];
    kvb_recurrence_step(x->r, &token, x->out);
    kvb_glance_take(&x->p, &token, x->lane, row);
    kvb_glance_step(&x->g, &x->p, &x->a, row, x->glance);
}

static void pair_rest(pair *x, bool stored)
{
    kvb_recurrence_rest(x->r, stored);
    kvb_glance_rest(&x->g, &x->p, &x->a, stored);
}

/* ---- the glance: the same bound over norms ----------------------------------------------------------------------- */

/* MOVING: each element changes much with each token. CALM: very little, after the first few. ANY: chunks of several
 * tokens; the glance does not know what changed in a chunk, so its bound is the wider. */
enum { MOVING, CALM, ANY, MODES, TAKEN = 160 };

static void glance_is_alike(kvb_scan_kind kind, int mode, uint32_t rows, int draw)
{
    static pair x;
    kvb_scan_problem p = one_head(kind, rows, FEW_V);
    kvb_scan_arithmetic a = arithmetic_draw();
    p.state_elem = type_draw();
    p.out_elem = type_draw();
    a.chunk = mode == ANY ? a.chunk : 1;
    a.carried = mode == ANY ? a.carried : mode == CALM ? p.state_elem : KVB_F32;
    if (kind == KVB_SCAN_DELTA &&
        rows > 1) /* if W is a large part of M, the glance is narrower, because it counts W once */
        p.state_elem = a.carried = a.operands = KVB_F32;
    pair_open(&x, p, a);
    double was[FEW_V] = {0};
    const double within = rows > 1 ? 0.03 : 1e-3; /* W of a column differs from W of its elements */
    bool moves = true;
    for (int token = 0; token < TAKEN && moves; token++) {
        const bool calm = mode == CALM && token > 2;
        const float key = between(0.1, 1), query = between(-1, 1), beta = between(0, 2.2 / rows) * (calm ? 1e-8f : 1);
        float q[LANE_ROWS], k[LANE_ROWS], v[FEW_V], gate[FEW_V], rate[LANE_ROWS * FEW_V];
        for (uint32_t c = 0; c < FEW_V; c++) {
            v[c] = (token % 2 ? -1 : 1) * between(0.5, 1) * (calm ? 1e-8f : 1);
            gate[c] = kind == KVB_SCAN_DELTA ? between(-0.5, -0.1) * (calm ? 1e-8f : 1) : between(0.2, 1);
            rate[c] = between(-2, -0.5) * (calm ? 1e-8f : 1);
        }
        for (uint32_t i = 0; i < rows; i++) {
            q[i] = query;
            k[i] = key;
            memcpy(rate + i * FEW_V, rate, i ? FEW_V * sizeof *rate : 0);
        }
        pair_step(&x, (kvb_recurrence_token){.q = q, .k = k, .v = v, .gate = gate, .beta = &beta, .a = rate});
        const kvb_glance_row *row = &x.row[token];
        /* the glance assumes that a decay may also take the token's own product for 0 */
        const double floor = a.exp_floor * rows * fabs((double)query) * (double)row->k_most *
                             fmax((double)row->write[0], (double)row->write[1]);
        for (uint32_t c = 0; c < FEW_V; c++) {
            const kvb_recurrence_want *want = &x.glance[c], *out = &x.out[c];
            const double least = mode != MOVING ? fmin(want->bound, out->worst + floor) : out->bound + floor;
            are_alike(want, out->value, least, out->worst + floor, within, draw);
            assert_true(want->bound >= (1 - within) * (out->bound + floor));
            moves &= calm || mode == ANY || fabs(x.lane[c] - was[c]) > 0.01 * fabs(x.lane[c]);
            was[c] = x.lane[c];
        }
        if (below(3) == 0)
            pair_rest(&x, below(2));
    }
    assert_true(x.g.worst[FEW_V] == 0 && x.g.linear[FEW_V] == 0); /* the lane has no more columns */
    kvb_recurrence_close(x.r);
}

TEST(norms_of_equal_rows_say_the_same)
{
    for (int draw = 0; draw < 480; draw++)
        glance_is_alike(kinds[draw % 4], draw / 4 % MODES, draw / 12 % 2 ? LANE_ROWS : 1, draw);
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

static void is_close(double got, double want)
{
    is_near(got, want, 1e-12);
}

/* Taps 1, -2, 4 and a bias of 8, over states of f16: 2^-11 of an input that lay in a slot, and at least 2^-24. */
TEST(inputs_by_hand)
{
    static pair x;
    kvb_scan_problem p = one_head(KVB_SCAN_CONV, 2, 1), silu = p;
    const kvb_scan_arithmetic a = {.chunk = 1, .read_chain = 10000, .exp_error = 0x1p-10, .exp_floor = 0x1p-12};
    const double u = 0x1p-24, half = 0x1p-11, least = 0x1p-24, chain = 10000 * u / (1 - 10000 * u);
    const float tap[3] = {1, -2, 4}, bias = 8, v[6] = {1, 3, 2, 5, -1, 0};
    static const double z[6] = {12, 8 - 2 + 12, 8 + 1 - 6 + 8, 8 + 3 - 4 + 20, 8 + 2 - 10 - 4, 8 + 5 + 2},
                        mass[6] = {12, 8 + 2 + 12, 8 + 1 + 6 + 8, 8 + 3 + 4 + 20, 8 + 2 + 10 + 4, 8 + 5 + 2};
    /* the inputs up to token 1 lie in a slot: token 2 reads x = 1, 3 by taps 1 and -2, token 3 reads x = 3 */
    const double stored[6] = {0, 0, 7 * half + 3 * least, 3 * half + least, 0, 0};
    p.state_elem = KVB_F16;
    silu.silu = true;
    pair_open(&x, p, (kvb_scan_arithmetic){.chunk = 1, .read_chain = 10000});
    kvb_recurrence *s = kvb_recurrence_open(&silu, &a);
    for (int t = 0; t < 6; t++) {
        const kvb_recurrence_token token = {.v = &v[t], .a = tap, .bias = &bias};
        kvb_recurrence_want out, all[2];
        pair_step(&x, token);
        is_close(x.out->value, z[t]);
        is_close(x.out->bound, stored[t] + 700 * u * (mass[t] + stored[t]));
        is_close(x.out->worst, stored[t] + chain * (mass[t] + stored[t]));
        /* for the two next tokens the glance counts all inputs and the bias as stored; its floats are rounded up */
        const double most = t == 2 || t == 3 ? half * mass[t] + 7 * least : 0;
        is_close(x.glance->value, z[t]);
        is_near(x.glance->bound, most + 700 * u * (mass[t] + most), 1e-6);
        is_near(x.glance->worst, most + chain * (mass[t] + most), 1e-6);
        if (t == 1) {
            pair_rest(&x, true);
            kvb_recurrence_state(x.r, all);
            is_close(all[0].bound, half + least);
            is_close(all[1].worst, 3 * half + least);
        } else if (t == 4) { /* not stored: nothing is rounded */
            pair_rest(&x, false);
        }
        /* behind silu: 1.0998 (1 + own) times the sum's bound, own = 2^-10 + 2u; and floor |z|; and own of the value.
         * exp_error also counts in the sum */
        kvb_recurrence_step(s, &token, &out);
        const double own = 0x1p-10 + 2 * u, value = z[t] / (1 + exp(-z[t])),
                     sum = 0x1p-10 * mass[t] + 700 * u * mass[t], besides = 0x1p-12 * fabs(z[t]) + own * fabs(value);
        is_close(out.value, value);
        is_close(out.bound, 1.0998 * (1 + own) * sum + besides);
        is_close(out.worst, 1.0998 * (1 + own) * (0x1p-10 + chain) * mass[t] + besides);
    }
    kvb_recurrence_close(x.r);
    kvb_recurrence_close(s);
}

/* Shows, by numbers computed by hand, what a row of the second opinion on scans keeps of a token. Tests of its bound
 * are above. */

enum { GLANCE_ROWS = 3, COLUMNS = 2 };

/* A float must not be below the number, and at most 2^-20 of it above. */
static void is_above(float got, double want)
{
    if (!((double)got >= want && (double)got <= want * (1 + 0x1p-20)))
        fail_msg("%.9g in place of %.9g", (double)got, want);
}

/* Puts the columns (3, 4, 0) and (1, 2, 2) of a state into a lane and takes one token. Returns the token's row. */
static kvb_glance_row taken(kvb_scan_kind kind, kvb_recurrence_token token, double *lane)
{
    static const double columns[COLUMNS][GLANCE_ROWS] = {{3, 4, 0}, {1, 2, 2}};
    const kvb_scan_problem p = one_head(kind, GLANCE_ROWS, COLUMNS);
    kvb_glance_row row = {.q_norm = 0};
    for (uint32_t i = 0; i < GLANCE_ROWS * KVB_LANE_COLUMNS; i++)
        lane[i] = i % KVB_LANE_COLUMNS < COLUMNS ? columns[i % KVB_LANE_COLUMNS][i / KVB_LANE_COLUMNS] : 0;
    kvb_glance_take(&p, &token, lane, &row);
    return row;
}

TEST(written_to)
{
    /* k = (0, 0, -6), v = (-2, 1): the third row becomes 12 and -4, the rows above it stay. No decay. */
    const float q[] = {2, -1, 2}, k[] = {0, 0, -6}, v[] = {-2, 1}, none = 0;
    double lane[GLANCE_ROWS * KVB_LANE_COLUMNS];
    const kvb_glance_row row =
        taken(KVB_SCAN_LIGHTNING, (kvb_recurrence_token){.q = q, .k = k, .v = v, .a = &none}, lane);
    assert_true(lane[2 * KVB_LANE_COLUMNS] == 12 && lane[2 * KVB_LANE_COLUMNS + 1] == -4 && lane[0] == 3);
    assert_true(row.out[0] == 2 * 3 - 4 + 2 * 12 && row.out[1] == 2 - 2 - 2 * 4);
    is_above(row.q_norm, 3);
    is_above(row.k_norm, 6);
    is_above(row.k_most, 6);
    is_above(row.norm[0], 13);
    is_above(row.norm[1], sqrt(21));
    is_above(row.slow[0], 5);
    is_above(row.slow[1], sqrt(5));
    is_above(row.most[0], 12);
    is_above(row.most[1], 4);
    is_above(row.write[0], 2);
    is_above(row.write[1], 1);
    is_above(row.decay[1], 1);
    assert_true(row.size[0] == 0);
}

TEST(decayed)
{
    const float q[] = {0, 0, 1}, k[] = {1, 0, 0}, v[] = {4, -4, 9}, gate[] = {0.5f, 0.25f, 9};
    const float a[] = {-1, -2, -3, -0.5f, -2, -1, -9}, one = -2;
    double lane[GLANCE_ROWS * KVB_LANE_COLUMNS];
    kvb_recurrence_token token = {.q = q, .k = k, .v = v, .gate = gate, .a = a};
    /* column 0 decays by e^-1/2, e^-3/2, e^-1; column 1 by e^-1/2, e^-1/8, e^-1/4; writes are 2 and -1 */
    kvb_glance_row row = taken(KVB_SCAN_MAMBA1, token, lane);
    is_above(row.decay[0], exp(-0.5));
    assert_true(row.decay[COLUMNS] == 0 && row.size[COLUMNS] == 0 && row.write[COLUMNS] == 0 && row.v[COLUMNS] == 0);
    is_above(row.decay[1], exp(-0.125));
    is_above(row.size[0], 1.5);
    is_above(row.size[1], 0.5);
    is_above(row.write[0], 2);
    is_above(row.write[1], 1);
    is_above(row.most[0], 3 * exp(-0.5) + 2);
    assert_true(fabs(row.out[1] - 2 * exp(-0.25)) < 1e-15 && row.slow[0] == 0);
    /* all decay by the gate of 1/2 times -2: e^-1; writes are 2 and -2 */
    token.a = &one;
    row = taken(KVB_SCAN_MAMBA2, token, lane);
    is_above(row.decay[0], exp(-1));
    is_above(row.size[1], 1);
    is_above(row.write[1], 2);
    is_above(row.norm[1], sqrt((exp(-1) - 2) * (exp(-1) - 2) + 8 * exp(-2)));
}

TEST(read_first)
{
    /* DELTA with k = (0, 2, 0), beta 1/2, alpha e^-1: reads e^-1 of 8 and 4; beta (v - read); 1 - beta k.k = -1, beta
     * ||k|| = 1 */
    const float q[] = {0, 1, 0}, k[] = {0, 2, 0}, v[] = {-4, 6}, gate = -1, beta = 0.5f, large = 2;
    double lane[GLANCE_ROWS * KVB_LANE_COLUMNS];
    kvb_recurrence_token token = {.q = q, .k = k, .v = v, .gate = &gate, .beta = &beta};
    kvb_glance_row row = taken(KVB_SCAN_DELTA, token, lane);
    is_above(row.write[0], 0.5 * (4 + 8 * exp(-1)));
    is_above(row.write[1], 0.5 * (6 - 4 * exp(-1)));
    is_above(row.v[0], 4);
    is_above(row.v[1], 6);
    is_above(row.along, 1);
    is_above(row.grow, 1);
    is_above(row.decay[0], exp(-1));
    is_above(row.size[0], 1);
    assert_true(fabs(row.out[0] - (4 * exp(-1) - (4 + 8 * exp(-1)))) < 1e-14);
    token.beta = &large;
    row = taken(KVB_SCAN_DELTA, token, lane);
    is_above(row.along, 4);
    is_above(row.grow, 7); /* 1 - 2 * 4 */
}

/* With zeros only, an error is the smallest number of the accumulator for each of 22,500 roundings, and that of out.
 * The glance multiplies by the norm of q = (3, 4) and the root of 2 elements, the recurrence by the sum of |q|. A state
 * has 10,000 roundings. */
TEST(zeros)
{
    static pair x;
    const float q[] = {3, 4}, k[] = {0, 0}, none = 0;
    kvb_recurrence_want all[2];
    pair_open(&x, one_head(KVB_SCAN_LIGHTNING, 2, 1),
              (kvb_scan_arithmetic){.chunk = 1, .state_chain = 10000, .read_chain = 22500});
    pair_step(&x, (kvb_recurrence_token){.q = q, .k = k, .v = &none, .a = &none});
    is_near(x.glance->bound, ((5 * sqrt(2) + 1) * 22500 + 1) * 0x1p-149, 1e-5);
    assert_true(x.out->bound == (8 * 22500 + 1) * 0x1p-149 && x.out->worst == x.out->bound);
    kvb_recurrence_rest(x.r, false);
    kvb_recurrence_state(x.r, all);
    assert_true(all[1].worst == 10001 * 0x1p-149);
    kvb_recurrence_close(x.r);
}

/* DELTA in addition: k = 3 and beta 1 write 3 times the error of 10,000 roundings of zeros, and q = 2 doubles it when
 * read. The glance has the same bound as the recurrence. */
TEST(zeros_that_are_solved_for)
{
    static pair x;
    const float q = 2, k = 3, none = 0, one = 1;
    pair_open(&x, one_head(KVB_SCAN_DELTA, 1, 1), (kvb_scan_arithmetic){.chunk = 1, .solve_chain = 10000});
    pair_step(&x, (kvb_recurrence_token){.q = &q, .k = &k, .v = &none, .gate = &none, .beta = &one});
    assert_true(x.out->bound == 60001 * 0x1p-149 && x.out->worst == x.out->bound);
    is_near(x.glance->bound, 60001 * 0x1p-149, 1e-5);
    kvb_recurrence_close(x.r);
}

/* An element of 4 moves up by `by` with one token, and down with the next. If it returns at the end of each chunk, or
 * moves by less than its type can show, all roundings may be alike: the bound must allow it. The glance's bound must
 * not be below the recurrence's. */
static void stays_about_where_it_is(kvb_scan_arithmetic a, float by)
{
    static pair x;
    const float one = 1, none = 0;
    pair_open(&x, one_head(KVB_SCAN_LIGHTNING, 1, 1), a);
    for (int t = 0; t <= 400; t++) {
        const float v = t == 0 ? 4 : t % 2 ? by : -by;
        pair_step(&x, (kvb_recurrence_token){.q = &one, .k = &one, .v = &v, .a = &none});
        if (t == 0)
            pair_rest(&x, false);
    }
    assert_true(x.out->bound > 0.5 * x.out->worst); /* not that of independent roundings */
    assert_true(x.glance->bound >= (1 - 1e-3) * x.out->bound && x.glance->bound <= (1 + 1e-3) * x.out->worst);
    kvb_recurrence_close(x.r);
}

TEST(what_hardly_changes)
{
    stays_about_where_it_is((kvb_scan_arithmetic){.chunk = 2, .state_chain = 10000}, 1);
    /* bf16: by less than 0.0062 of itself */
    stays_about_where_it_is((kvb_scan_arithmetic){.chunk = 1, .carried = KVB_BF16}, 0.004f);
}
