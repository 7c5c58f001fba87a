/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that the filter is the formulas at the head of oracle/filter.h: told once more here, in double, over rows,
 * weights and residuals that are made up. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/oracle/made_rows.h"

static uint64_t seed = 9;

static double between(double low, double high)
{
    return low + (high - low) * hand_uniform(&seed);
}

static uint32_t token_at(uint32_t place)
{
    return (place + 10) % CELLS;
}

static void made_draw(made *m, uint32_t dim)
{
    made_connect(m, dim);
    for (uint32_t u = 0; u < UNITS; u++) {
        for (uint32_t c = 0; c < dim; c++)
            m->inverse[u][c] = c == 2 ? 0 : between(0.5, 2); /* channel 2 is always the same, and does not count */
        for (uint32_t i = 0; i < CELLS; i++) {
            m->norm2[u][i] = 0;
            m->magnitude[u][i] = (float)between(0.5, 2);
            for (uint32_t c = 0; c < dim; c++) {
                float x = (float)(hand_gauss(&seed) * (m->inverse[u][c] > 0));
                m->v[u][i * dim + c] = x;
                m->norm2[u][i] += x * x;
            }
        }
    }
    for (uint32_t r = 0; r < ROWS; r++) {
        const uint32_t u = m->row[r].unit;
        double sum = r % 5 ? 0 : 0.3, most = 0; /* a sink's */
        for (uint32_t i = 0; i < SEEN; i++)
            sum += m->p[r][i] = (float)exp(2 * hand_gauss(&seed));
        m->row[r].weight = 0;
        for (uint32_t i = 0; i < SEEN; i++) {
            m->p[r][i] /= (float)sum;
            m->row[r].weight += (double)m->p[r][i];
            most = fmax(most, (double)m->p[r][i]);
        }
        m->row[r].apart = between(0, 1);
        m->row[r].cap = r % 3 ? INFINITY : most * between(1, 1.01); /* some rows' largest weight is just below it */
        for (kvb_elem e = KVB_F16; e <= KVB_BF16; e++)
            m->row[r].alike[e] = between(0, 1);
        m->row[r].spread = between(0, 0.2);
        m->expect[r].row = (kvb_bound_row){.p_max = most, .v_largest = r % 11 == 10 ? 0x1p-15 : between(1, 2)};
        for (uint32_t c = 0; c < dim; c++) {
            double o = 0;
            for (uint32_t i = 0; i < SEEN; i++)
                o += (double)m->p[r][i] * (double)m->v[u][token_at(i) * dim + c];
            m->o[r][c] = (float)o;
            m->terms[r][c].o = m->inverse[u][c] > 0 ? o / m->inverse[u][c] : 1;
            m->slope[r][c] = (float)hand_gauss(&seed);
        }
    }
}

/* What went wrong, by so much; beside noise. */
typedef struct wrong {
    double size, scale, token, first, last, heads, noise;
} wrong;

static void made_err(made *m, const wrong *w)
{
    for (uint32_t r = 0; r < ROWS; r++) {
        const uint32_t u = m->row[r].unit, dim = m->dim;
        for (uint32_t c = 0; c < dim; c++) {
            const double o = (double)m->o[r][c], other = (double)m->o[r % HEADS == 0   ? r + 2
                                                                      : r % HEADS == 2 ? r - 2
                                                                                       : r][c];
            double e =
                w->size * o + w->scale * (double)m->slope[r][c] + w->heads * (other - o) + w->noise * hand_gauss(&seed);
            for (uint32_t i = 0; i < SEEN; i++) {
                const double t = (double)m->p[r][i] * ((double)m->v[u][token_at(i) * dim + c] - o);
                e +=
                    t * ((token_at(i) == 3 && u == 1) * w->token + (i == 3) * w->first + (i == SEEN - 1 - 5) * w->last);
            }
            m->out[r][c] = (float)(m->terms[r][c].o + (m->inverse[u][c] > 0 ? e / m->inverse[u][c] : 3));
        }
    }
}

/* ---- the formulas, told anew ------------------------------------------------------------------------------------- */

typedef struct told {
    double x, x2, su, s2, honest, d;
} told;

static const double matters[] = {[KVB_FILTER_HEADS] = 1,      [KVB_FILTER_SIZE] = 2e-6,   [KVB_FILTER_TOKEN] = 1,
                                 [KVB_FILTER_FROM_FIRST] = 1, [KVB_FILTER_FROM_LAST] = 1, [KVB_FILTER_SCALE] = 0.001},
                    least[] = {
                        [KVB_FILTER_HEADS] = 0.75,      [KVB_FILTER_SIZE] = 2e-6,      [KVB_FILTER_TOKEN] = 0.25,
                        [KVB_FILTER_FROM_FIRST] = 0.25, [KVB_FILTER_FROM_LAST] = 0.25, [KVB_FILTER_SCALE] = 0.0005};

/* A row with residual e in the direction t. */
static void told_add(told *to, double a0, uint32_t dim, const double *e, const double *t, double honest,
                     double channels)
{
    double et = 0, e2 = 0, t2 = 0;
    for (uint32_t c = 0; c < dim; c++) {
        et += e[c] * t[c];
        e2 += e[c] * e[c];
        t2 += t[c] * t[c];
    }
    const double u = sqrt(channels) * et / sqrt(e2 * t2), s = sqrt(channels * t2 / e2);
    const double x = fmin(a0 * s, 1) * fmax(-2, fmin(2, u));
    to->x += x;
    to->x2 += x * x;
    to->su += s * u;
    to->s2 += s * s;
    to->honest += s * s * honest;
    to->d += channels;
}

static int by_size(const void *a, const void *b)
{
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

static double middle(double *x, size_t n)
{
    qsort(x, n, sizeof *x, by_size);
    return x[n / 2];
}

/* z of direction `at` of n, whatever a is. */
static double told_z(const told *all, size_t n, size_t at)
{
    double score[CELLS] = {0}, away[CELLS], median = 0, sigma = 1;
    size_t used = 0;
    for (size_t i = 0; i < n && n >= 16; i++)
        if (all[i].x2 > 0)
            score[used++] = all[i].su / sqrt(all[i].s2);
    if (used >= 16) {
        median = middle(score, used);
        for (size_t i = 0; i < used; i++)
            away[i] = fabs(score[i] - median);
        sigma = fmax(1, 1.4826 * middle(away, used));
    }
    const told *x = &all[at];
    const double t = x->su / sqrt(x->s2) - median;
    return fmin(fabs(x->x) / sqrt(x->x2), sqrt(-x->d * log(1 - fmin(t * t / x->d, 1 - 1e-9))) / sigma);
}

static void is_near(double got, double want, const char *what, int kind)
{
    if (!(fabs(got - want) <= 2e-3 * fabs(want)))
        fail_msg("kind %d, %s: %.7g in place of %.7g", kind, what, got, want);
}

/* The peak is one of the n directions from `all` on, as large as the largest that counts. A |a| near the least may
 * count or not. */
static void peak_is(const kvb_filter_peak *peak, int kind, const told *all, size_t n, size_t lists)
{
    double surely = 0, perhaps = 0, own = NAN;
    for (size_t i = 0; i < n * lists; i++) {
        const told *x = &all[i], *list = all + i / n * n;
        const double a = x->su / x->s2, room = fabs(a) - least[kind] - x->honest / x->s2;
        const double z = x->x2 > 0 ? told_z(list, n, i % n) : 0;
        if (z > 0 && room > -1e-3 * fabs(a))
            perhaps = fmax(perhaps, z);
        if (z > 0 && room > 1e-3 * fabs(a))
            surely = fmax(surely, z);
        if (peak->z > 0 && i == (lists > 1 ? peak->layer * n + peak->at : peak->at)) {
            own = z;
            is_near(peak->a, a, "a", kind);
        }
    }
    if (!(peak->z <= perhaps * (1 + 2e-3) && peak->z >= surely * (1 - 2e-3)))
        fail_msg("kind %d: z %.7g is not between %.7g and %.7g", kind, peak->z, surely, perhaps);
    if (peak->z > 0)
        is_near(peak->z, own, "z", kind);
}

static bool is_narrow(const kvb_rounding *r)
{
    return r->rounding != KVB_F32 || r->step > 0;
}

/* The filter over what was made, and what its header says of it. Returns the rows that counted. */
static uint64_t filter_is_told(made *m, const kvb_arithmetic *a, uint32_t seen)
{
    static told token[UNITS * CELLS], first[CELLS], last[CELLS], size[1], scale[1], pair[HEADS * HEADS];
    kvb_filter *filter;
    kvb_filter_peak peaks[KVB_FILTER_KINDS + 1] = {[KVB_FILTER_KINDS] = {.z = 1e9}}; /* the last is no kind */
    uint64_t rows = 0;
    memset(token, 0, sizeof token), memset(first, 0, sizeof first), memset(last, 0, sizeof last);
    memset(size, 0, sizeof size), memset(scale, 0, sizeof scale), memset(pair, 0, sizeof pair);
    assert_int_equal(kvb_filter_open(&m->oracle, &filter), 0);
    for (uint32_t r = 0; r < ROWS; r++) {
        const kvb_filter_row *row = &m->row[r];
        const uint32_t u = row->unit, dim = m->dim;
        const double half = fmax(fmax(a->sums.step, a->sums.floor), a->exp_floor) / 2 * m->expect[r].row.p_max *
                            m->expect[r].row.v_largest;
        double e[MOST], t[MOST], o2 = 0, lost = 0, unclear = 0, e2 = 0;
        m->expect[r].visible = seen;
        kvb_filter_add(filter, &m->expect[r], &m->expect[r], a, KVB_F32, m->out[r]);
        for (uint32_t c = 0; c < dim; c++) {
            e[c] = ((double)m->out[r][c] - m->terms[r][c].o) * m->inverse[u][c];
            e2 += e[c] * e[c];
            o2 += (double)m->o[r][c] * (double)m->o[r][c];
        }
        const double step = fmax(2 * kvb_unit_roundoff(a->sums.rounding), a->sums.step),
                     u_p = kvb_unit_roundoff(a->sums.rounding), u_a = kvb_unit_roundoff(a->accumulator);
        double capped = 0, near = 0; /* weight within a rounding of the cap, and within 8 steps */
        for (uint32_t i = 0; i < SEEN; i++) {
            capped += (double)m->p[r][i] >= row->cap * exp(-u_p) ? (double)m->p[r][i] : 0;
            near += (double)m->p[r][i] >= row->cap * exp(-8 * step) ? (double)m->p[r][i] : 0;
        }
        for (uint32_t i = 0; i < SEEN && half > 0; i++) {
            const double p = (double)m->p[r][i], product = p * (double)m->magnitude[u][token_at(i)];
            lost += product < half ? p : 0;
            unclear += product < 2 * half ? p : 0;
        }
        const double beside = row->weight - m->expect[r].row.p_max;
        if (m->number[r] == UINT32_MAX || beside < 0.01 * row->weight || lost > 0.25 * beside || e2 == 0 ||
            m->expect[r].row.v_largest < 0x1p-14)
            continue;
        rows++;
        const double channels = dim - 1;
        const double may = u_a * (sqrt(a->cell_chain) / 2 + sqrt(a->rescales)) + 2 * a->exp_error +
                           u_p * ((u_p > 0x1p-20 ? row->alike[a->sums.rounding] : 0) + capped + 0.425 * row->apart) +
                           (is_narrow(&a->sums) ? u_p * a->sums.chain : 0) + a->sums.step / 2 + unclear / row->weight;
        double fourth = 0;
        for (uint32_t c = 0; c < dim; c++) {
            t[c] = (double)m->o[r][c];
            fourth += t[c] * t[c] * t[c] * t[c];
        }
        const double rounded = may + 0x1p-24 * sqrt(fourth) / o2;
        told_add(size, matters[KVB_FILTER_SIZE] + rounded, dim, e, t, rounded, channels);
        if (!is_narrow(&a->query) && !is_narrow(&a->scores) && !is_narrow(&a->sums) && seen <= 4096)
            continue;
        for (uint32_t c = 0; c < dim; c++)
            t[c] = (double)m->slope[r][c];
        if (row->spread >= 8 * step && near == 0)
            told_add(scale, matters[KVB_FILTER_SCALE] + a->sums.step / 4, dim, e, t, a->sums.step / 4, channels);
        for (uint32_t i = 0; i < SEEN; i++) {
            const double p = (double)m->p[r][i], product = p * (double)m->magnitude[u][token_at(i)];
            if (!(product > half))
                continue;
            double apart2 = 0;
            for (uint32_t c = 0; c < dim; c++) {
                t[c] = p * ((double)m->v[u][token_at(i) * dim + c] - (double)m->o[r][c]);
                apart2 += t[c] * t[c] / (p * p);
            }
            if (apart2 <= 1e-3 * (double)m->norm2[u][token_at(i)]) /* the cell is nearly all of the row */
                continue;
            told_add(&token[u * CELLS + token_at(i)], 1, dim, e, t, half / product, channels);
            told_add(&first[i], 1, dim, e, t, half / product, channels);
            told_add(&last[SEEN - 1 - i], 1, dim, e, t, half / product, channels);
        }
        for (uint32_t h = 0; h < HEADS; h++) {
            const uint32_t head = r % HEADS, other = r - head + h;
            for (uint32_t c = 0; c < dim; c++)
                t[c] = (m->terms[other][c].o - m->terms[r][c].o) * m->inverse[u][c];
            if (h != head)
                told_add(&pair[(h < head ? h : head) * HEADS + (h < head ? head : h)], 1, dim, e, t, 0, channels);
        }
    }
    const double z = kvb_filter_peaks(filter, peaks);
    double most = 0;
    peak_is(&peaks[KVB_FILTER_TOKEN], KVB_FILTER_TOKEN, token, CELLS, UNITS);
    peak_is(&peaks[KVB_FILTER_FROM_FIRST], KVB_FILTER_FROM_FIRST, first, CELLS, 1);
    peak_is(&peaks[KVB_FILTER_FROM_LAST], KVB_FILTER_FROM_LAST, last, CELLS, 1);
    peak_is(&peaks[KVB_FILTER_SIZE], KVB_FILTER_SIZE, size, 1, 1);
    peak_is(&peaks[KVB_FILTER_SCALE], KVB_FILTER_SCALE, scale, 1, 1);
    kvb_filter_peak heads = peaks[KVB_FILTER_HEADS];
    assert_true(heads.z == 0 || heads.at < heads.other);
    heads.at = heads.at * HEADS + heads.other;
    peak_is(&heads, KVB_FILTER_HEADS, pair, HEADS * HEADS, 1);
    for (int kind = 0; kind < KVB_FILTER_KINDS; kind++)
        most = fmax(most, peaks[kind].z);
    assert_true(rows ? z == most : isnan(z));
    assert_int_equal(kvb_filter_rows(filter), rows);
    kvb_filter_free(filter);
    return rows;
}

static void the_formulas_are_told_twice(void **state)
{
    static const kvb_arithmetic bf16 = {.cell_chain = CELLS, .sums = {.rounding = KVB_BF16, .chain = 2}},
                                steps = {.cell_chain = CELLS, .rescales = 3, .sums.step = 0.004},
                                floors = {.exp_error = 1e-4, .sums.floor = 0.05, .query.step = 0.1},
                                drops = {.exp_floor = 0.02, .scores.rounding = KVB_F16},
                                wide = {.cell_chain = CELLS, .sums.chain = 5};
    static const struct {
        const kvb_arithmetic *a;
        uint32_t seen;
        wrong w;
    } cases[] = {
        {&bf16, CELLS, {.noise = 0.1}},
        {&bf16, CELLS, {.size = 0.3, .noise = 0.1}},
        {&wide, 4096, {.size = 1e-4, .noise = 1e-5}},
        {&wide, 4097, {.size = 1e-4, .noise = 1e-5}},
        {&steps, CELLS, {.scale = -0.05, .noise = 0.1}},
        {&bf16, CELLS, {.scale = 0.05, .noise = 0.1}},
        {&bf16, CELLS, {.token = -1, .noise = 0.01}},
        {&steps, CELLS, {.token = 1, .noise = 0.05}},
        {&floors, CELLS, {.first = -1, .noise = 0.02}},
        {&drops, CELLS, {.last = 0.6, .noise = 0.02}},
        {&drops, CELLS, {.heads = 1, .noise = 0.1}},
        {&steps, CELLS, {.size = 0.1, .heads = 0.3, .token = 1, .first = 1, .last = -1, .noise = 1}},
    };
    static made m;
    (void)state;
    for (uint32_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        made_draw(&m, i % 2 ? 7 : MOST);
        made_err(&m, &cases[i / 2].w);
        assert_in_range(filter_is_told(&m, cases[i / 2].a, cases[i / 2].seen), 20, ROWS);
        for (uint32_t r = 0; r < ROWS; r++) /* rows of queries 0, 1, 4, 5, … alone */
            m.number[r] = r / HEADS % 4 < 2 ? r : UINT32_MAX;
        assert_in_range(filter_is_told(&m, cases[i / 2].a, cases[i / 2].seen), 10, ROWS / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_formulas_are_told_twice),
    };
    return cmocka_run_group_tests_name("values of the filter", tests, NULL, NULL);
}
