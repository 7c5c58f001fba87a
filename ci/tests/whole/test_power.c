/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows what the oracle finds: honest kernels pass, and a key dropped at any place, a stale row, a scale off by a thousandth,
 * two heads swapped and an output of 0 fail, in every kernel. A wrong row of V alone fails where weights are not rounded.
 *
 *     test_power --table CELLS [FORMAT]     the same for every format, with what other projects' rules let pass: JSON lines
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fnmatch.h>

#include "ci/tests/whole/parts.h"
#include "ci/tests/whole/power_rules.h"
#include "kernels/kernels.h"

/* ---- mistakes ---------------------------------------------------------------------------------------------------- */

static void first_dropped(power_call *c)
{
    power_hide(c, 0);
}

static void middle_dropped(power_call *c)
{
    power_hide(c, c->at->cells / 2);
}

static void last_dropped(power_call *c)
{
    power_hide(c, c->at->cells - 1);
}

static void row_stale(power_call *c)
{
    power_replace(c, false, c->at->cells / 2, 3);
    power_replace(c, true, c->at->cells / 2, 3);
}

static void v_of_a_neighbour(power_call *c)
{
    power_replace(c, true, c->at->cells / 2, c->at->cells / 2 + 1);
}

static void scaled_by_101(power_call *c)
{
    c->group.scale *= 1.01;
}

static void scaled_by_1001(power_call *c)
{
    c->group.scale *= 1.001;
}

static void heads_swapped(power_call *c)
{
    float head[DIM];
    memcpy(head, c->q, sizeof head);
    memcpy(c->q, c->q + DIM, sizeof head);
    memcpy(c->q + DIM, head, sizeof head);
}

static void output_zero(power_call *c)
{
    c->zero = true;
}

typedef struct mistake {
    const char *name;
    power_spoil *spoil;
    bool of_one_cell; /* what it changes is of the size of one weight, … */
    bool of_v;        /* … and the log-sum-exp not at all */
} mistake;

static const mistake mistakes[] = {
    {"first key dropped", first_dropped, true, false},
    {"middle key dropped", middle_dropped, true, false},
    {"last key dropped", last_dropped, true, false},
    {"stale row", row_stale, true, false},
    {"V of a neighbour", v_of_a_neighbour, true, true},
    {"scale * 1.01", scaled_by_101, false, false},
    {"scale * 1.001", scaled_by_1001, false, false},
    {"heads swapped", heads_swapped, false, false},
    {"output 0", output_zero, false, false},
};
enum { MISTAKES = sizeof mistakes / sizeof *mistakes };

static bool is_here(const kvb_kernel *kernel)
{
    char why[256];
    return kernel->attend && !(kernel->flags & KVB_KERNEL_WITNESS) &&
           (!kernel->available || kernel->available(why, sizeof why));
}

static power_call call; /* large */

/* ---- the test ---------------------------------------------------------------------------------------------------- */

typedef struct scene {
    const char *pool, *profile;
    uint32_t cells;
} scene;

static const scene scenes[] = {{"f32", "gaussian", 64},        {"bf16", "gaussian", 64},     {"a4g64", "gaussian", 64},
                               {"e4m3-head", "gaussian", 512}, {"q4_0", "gaussian", 512},    {"int8", "llama", 512},
                               {"f16", "gaussian", 4096},      {"bf16", "gaussian", 4096},   {"q8_0", "gaussian", 4096},
                               {"a4g32", "needle", 4096},      {"int8+had", "gaussian", 512}};
enum { SCENES = sizeof scenes / sizeof *scenes };

static void mistakes_fail(void **state)
{
    const scene *s = *state;
    const kvb_pool_type *pool = pool_named(s->pool);
    static power_judge judge;
    filled r;
    power_open(&r, s->cells, pool, s->profile);
    for (size_t k = 0; kvb_builtin_kernels[k]; k++) {
        const kvb_kernel *kernel = kvb_builtin_kernels[k];
        if (!is_here(kernel) || !power_attend(&r, kernel, KVB_F32, NULL, &call))
            continue;
        power_judge_open(&r, kernel, &judge);
        double rho = power_rho(&r, &judge, &call, true);
        print_message("# %s, %s, %u cells, %s: %.3g", s->pool, s->profile, s->cells, kernel->name, rho);
        assert_true(rho <= 1 && rho > 0);
        const double found = sums_in_f16(kernel->name) ? fmin(1, 2 * rho) : 1;
        bool uniform = strcmp(s->profile, "gaussian") == 0; /* each cell has a weight that matters */
        for (const mistake *m = mistakes; m < mistakes + MISTAKES; m++) {
            if (!power_attend(&r, kernel, KVB_F32, m->spoil, &call))
                continue;
            rho = power_rho(&r, &judge, &call, true);
            print_message(", %s %.3g", m->name, rho);
            /* one cell of a sink's or a needle's decides little; one V row hides among rounded weights */
            if ((uniform || !m->of_one_cell) && (!kernel->round_query || !m->of_v))
                assert_true(rho > found);
        }
        print_message("\n");
        kvb_rounded_free(judge.rounded);
    }
    filled_close(&r);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The smallest relative error of all outputs alike that `fails`, by bisection. */
static double smallest_failing(bool (*fails)(const void *ctx, const power_call *spoilt), const void *ctx,
                               const power_call *honest)
{
    static power_call spoilt;
    double low = 1e-9, high = 100;
    if (fails(ctx, honest))
        return 0;
    while (high / low > 1.02) {
        double e = sqrt(low * high);
        spoilt = *honest;
        for (size_t i = 0; i < ELEMENTS; i++)
            spoilt.out[i] = (float)((double)honest->out[i] * (1 + e));
        if (fails(ctx, &spoilt))
            high = e;
        else
            low = e;
    }
    return high;
}

typedef struct by_bound {
    const filled *at;
    const power_judge *judge;
} by_bound;

static bool bound_fails(const void *ctx, const power_call *c)
{
    const by_bound *b = ctx;
    return power_rho(b->at, b->judge, c, false) > 1;
}

typedef struct by_rule {
    const power_rule *rule;
    power_outputs outputs;
} by_rule;

static bool rule_fails(const void *ctx, const power_call *c)
{
    const by_rule *b = ctx;
    power_outputs o = b->outputs;
    o.got = c->out;
    return !b->rule->passes(&o);
}

static void number_print(const char *key, double x)
{
    printf(", \"%s\": ", key);
    if (isfinite(x))
        printf("%.4g", x);
    else
        printf("null");
}

/* One line: a kernel over a format and a length. */
static void row_print(filled *r, const kvb_kernel *kernel, const kvb_pool_type *pool, kvb_elem out_elem,
                      const double *low)
{
    static const char *const outs[] = {[KVB_F32] = "f32", [KVB_F16] = "f16", [KVB_BF16] = "bf16"};
    static power_judge judge;
    static power_call honest;
    double rho[ROWS], error = 0, largest = 0, error2 = 0, exact2 = 0;
    if (!power_attend(r, kernel, out_elem, NULL, &honest))
        return;
    power_judge_open(r, kernel, &judge);
    for (size_t row = 0; row < ROWS; row++)
        rho[row] = power_row_diff(r, &judge, row, honest.out + row * DIM, out_elem, &honest.lse[row]).rho;
    for (size_t i = 0; i < ELEMENTS; i++) {
        double off = fabs((double)honest.out[i] - judge.exact[i]);
        error = fmax(error, off);
        largest = fmax(largest, fabs(judge.exact[i]));
        error2 += off * off;
        exact2 += judge.exact[i] * judge.exact[i];
    }
    qsort(rho, ROWS, sizeof *rho, by_size);
    printf("{\"kernel\": \"%s\", \"format\": \"%s\", \"out\": \"%s\", \"cells\": %u, \"rounds\": %s", kernel->name,
           pool->name, outs[out_elem], r->cells, kernel->round_query ? "true" : "false");
    number_print("rho_median", rho[ROWS / 2]);
    number_print("rho_max", rho[ROWS - 1]);
    number_print("own_error", error / largest);
    number_print("own_l2", sqrt(error2 / exact2));
    number_print("smallest", smallest_failing(bound_fails, &(by_bound){r, &judge}, &honest));

    by_rule rules[RULES];
    for (size_t i = 0; i < RULES; i++) {
        const kvb_elem elem = pool->format->elem;
        rules[i] = (by_rule){&power_rules[i],
                             {.exact = judge.exact,
                              .low_precision = low,
                              .type = elem == KVB_F32 || elem == KVB_F16 ? elem : KVB_BF16,
                              .fp8 = elem == KVB_E4M3 || elem == KVB_E5M2}};
        number_print(power_rules[i].name, smallest_failing(rule_fails, &rules[i], &honest));
    }
    printf(", \"mistakes\": {");
    for (size_t m = 0, n = 0; m < MISTAKES; m++) {
        if (!power_attend(r, kernel, out_elem, mistakes[m].spoil, &call))
            continue;
        printf("%s\"%s\": {\"rho\": %.4g, \"out\": %.4g", n++ ? ", " : "", mistakes[m].name,
               fmin(power_rho(r, &judge, &call, true), 1e300), fmin(power_rho(r, &judge, &call, false), 1e300));
        for (size_t i = 0; i < RULES; i++)
            printf(", \"%s\": %s", power_rules[i].name, rule_fails(&rules[i], &call) ? "true" : "false");
        printf("}");
    }
    printf("}}\n");
    fflush(stdout);
    kvb_rounded_free(judge.rounded);
}

static int table_print(uint32_t cells, const char *pattern)
{
    double *low = malloc(ELEMENTS * sizeof *low);
    for (size_t i = 0; i < RULES; i++)
        printf("{\"rule\": \"%s\", \"source\": \"%s\"}\n", power_rules[i].name, power_rules[i].source);
    for (const kvb_pool_type *const *p = kvb_builtin_pools; *p; p++)
        for (const kvb_pool_type *pool = *p; pool; pool = pool->rotated) {
            filled r;
            if (fnmatch(pattern, pool->name, 0) != 0 || strcmp(pool->format->name, "f32+had") == 0 ||
                pool->format->residual_cells) /* rows depend on their neighbours */
                continue;
            power_open(&r, cells, pool, "gaussian");
            power_low_precision(&r, pool->format->elem == KVB_F16 ? KVB_F16 : KVB_BF16, low);
            for (size_t k = 0; kvb_builtin_kernels[k]; k++)
                for (size_t out = 0; out < 3; out++) {
                    static const kvb_elem outs[] = {KVB_F32, KVB_F16, KVB_BF16};
                    bool wanted = out == 0 || (kvb_builtin_kernels[k] == &kvb_kernel_flash && pool == *p &&
                                               pool->format->elem == outs[out]);
                    if (wanted && is_here(kvb_builtin_kernels[k]))
                        row_print(&r, kvb_builtin_kernels[k], pool, outs[out], low);
                }
            filled_close(&r);
        }
    free(low);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--table") == 0)
        return table_print((uint32_t)strtoul(argv[2], NULL, 10), argc > 3 ? argv[3] : "*");
    struct CMUnitTest tests[SCENES];
    char names[SCENES][64];
    for (size_t i = 0; i < SCENES; i++) {
        snprintf(names[i], sizeof names[i], "%s_%s_%u", scenes[i].pool, scenes[i].profile, scenes[i].cells);
        tests[i] = (struct CMUnitTest){
            .name = names[i], .test_func = mistakes_fail, .initial_state = (void *)(uintptr_t)&scenes[i]};
    }
    return cmocka_run_group_tests_name("power", tests, NULL, NULL);
}
