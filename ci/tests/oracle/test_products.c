/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the oracle's loops give the same bits at every level that this CPU has, NaN or not, and sums of a plain loop
 * but for rounding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "oracle/products.h"

enum { ROWS = 40, MOST = 192, CELLS = 13 };
#define THERE 0.5

static double k[ROWS * MOST], sizes[ROWS * MOST], q[MOST];
static uint32_t at[CELLS];

static void inputs_make(void)
{
    uint32_t state = 1;
    for (size_t i = 0; i < (size_t)ROWS * MOST; i++) {
        state = state * 1664525u + 1013904223u;
        k[i] = (double)(int32_t)state * 0x1p-31;
        sizes[i] = fabs(k[i]) * (i % 3 ? 1.25 : 0.5);
        q[i % MOST] = k[i] - 0.25;
    }
    for (uint32_t i = 0; i < CELLS; i++)
        at[i] = (i * 17 + 5) % ROWS;
}

typedef struct outcome {
    double dots[2][CELLS], masses[2][CELLS], squares[CELLS], outputs[MOST], mass[2][MOST], v_max[2][MOST],
        spread[4][MOST];
} outcome;

static void all_run(const kvb_products *p, uint32_t dim, outcome *to)
{
    kvb_tile_rows rows = {k, k, at, dim, CELLS, q, q + 20, q + 40, q + 60};
    memset(to, 0, sizeof *to);
    for (uint32_t c = 0; c < dim; c++) { /* sums are added to what is there */
        to->outputs[c] = to->mass[0][c] = to->mass[1][c] = to->v_max[0][c] = to->v_max[1][c] = THERE;
        for (int s = 0; s < 4; s++)
            to->spread[s][c] = THERE;
    }
    p->dots(q, k, at, CELLS, dim, to->dots[0]);
    p->masses(q, k, at, CELLS, dim, to->masses[0]);
    p->dots_and_masses(q, k, at, CELLS, dim, to->dots[1], to->masses[1]);
    p->squares(q, k, at, CELLS, dim, to->squares);
    p->output_sums(&rows, dim, to->outputs);
    p->mass_sums(&rows, dim, to->mass[0], to->v_max[0]);
    p->spread_sums(&rows, dim, q, (double *[4]){to->spread[0], to->spread[1], to->spread[2], to->spread[3]});
    rows.sizes = sizes;
    p->mass_sums(&rows, dim, to->mass[1], to->v_max[1]);
}

static void close_to(double a, double b)
{
    assert_true(fabs(a - b) < 1e-12);
}

static void plain_agrees(const outcome *o, uint32_t dim)
{
    for (uint32_t i = 0; i < CELLS; i++) {
        double dot = 0, mass = 0, square = 0;
        for (uint32_t d = 0; d < dim; d++) {
            const double x = k[at[i] * dim + d];
            dot += q[d] * x;
            mass += fabs(q[d] * x);
            square += x * x;
        }
        for (int s = 0; s < 2; s++) {
            close_to(o->dots[s][i], dot);
            close_to(o->masses[s][i], mass);
        }
        close_to(o->squares[i], square);
    }
    for (uint32_t c = 0; c < dim; c++) {
        double out = THERE, mass[2] = {THERE, THERE}, most[2] = {THERE, THERE},
               spread[4] = {THERE, THERE, THERE, THERE};
        for (uint32_t i = 0; i < CELLS; i++) {
            const double v = k[at[i] * dim + c], off = q[i] * fabs(v - q[c]);
            const double size[2] = {fabs(v), fmax(fabs(v), sizes[at[i] * dim + c])};
            out += q[i] * v;
            for (int s = 0; s < 2; s++) {
                mass[s] += q[i] * size[s];
                most[s] = fmax(most[s], size[s]);
            }
            for (int s = 0; s < 4; s++)
                spread[s] += s ? off * q[20 * s + (int)i] : off;
        }
        close_to(o->outputs[c], out);
        for (int s = 0; s < 2; s++) {
            close_to(o->mass[s][c], mass[s]);
            close_to(o->v_max[s][c], most[s]);
        }
        for (int s = 0; s < 4; s++)
            close_to(o->spread[s][c], spread[s]);
    }
}

static void levels_agree_on(uint32_t dim, bool finite)
{
    static outcome portable, other;
    all_run(kvb_products_at(0), dim, &portable);
    if (finite)
        plain_agrees(&portable, dim);
    for (unsigned level = 1; kvb_products_at(level); level++) {
        all_run(kvb_products_at(level), dim, &other);
        assert_memory_equal(&portable, &other, sizeof other);
    }
}

static void levels_agree(void **state)
{
    static const uint32_t dims[] = {1, 3, 8, 16, 20, 31, 64, 80, 127, 128, 129, 192};
    (void)state;
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
        inputs_make();
        levels_agree_on(dims[d], true);
        sizes[at[1] * dims[d]] = k[at[2] * dims[d] + dims[d] / 2] = NAN; /* which of two numbers is the larger now? */
        levels_agree_on(dims[d], false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(levels_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
