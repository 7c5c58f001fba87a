/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: what wrong scan kernels do passes the oracle's bound, whatever the recurrence and its memory, and what honest ones do stays
 * below it, to 64 k tokens. With --table it prints both as tables (results/recurrence.md).
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "ci/tests/whole/scan_wrong.h"

enum { SLOTS = 8 };

static kvb_scan_problem problem_of(kvb_scan_kind kind, uint32_t n_tok, kvb_elem state)
{
    const bool one = kind == KVB_SCAN_CONV || kind == KVB_SCAN_MAMBA1;
    return (kvb_scan_problem){.kind = kind,
                              .n_tok = n_tok,
                              .heads = one ? 1 : 4,
                              .groups = one ? 1 : 2,
                              .d_k = kind == KVB_SCAN_CONV     ? 3
                                     : kind == KVB_SCAN_MAMBA1 ? 16
                                                               : 32,
                              .d_v = one ? 64 : 16,
                              .state_elem = state,
                              .out_elem = KVB_F32,
                              .silu = true};
}

/*
 * A prompt, a fork of it, a few tokens in each, a tree, a rollback: what a mistake needs in order to show. Returns the largest rho.
 */
static double history_rho(kvb_scan_kind kind, kvb_elem state, double memory, enum wrong wrong)
{
    static const uint32_t steps[][2] = {/* from, to: of one token each */
                                        {1, 2},
                                        {1, 1},
                                        {2, 2},
                                        {1, 1},
                                        {2, 2}};
    static const uint32_t tree[][2] = {{1, 3}, {3, 4}, {3, 5}, {4, 6}, {5, 7}};
    const kvb_scan_problem p = problem_of(kind, 200, state);
    scan_rig r;

    rig_open(&r, &kvb_scan_kernel_reference, &p, SLOTS, 7);
    r.memory = memory;
    if (kind == KVB_SCAN_CONV && !r.bias)
        r.args.bias = r.bias = calloc(p.d_v, sizeof *r.bias);
    for (uint32_t c = 0; r.bias && c < p.d_v; c++)
        r.bias[c] = rig_gauss(&r);
    for (uint32_t h = 0; kind == KVB_SCAN_LIGHTNING && h < p.heads; h++)
        r.inputs[5][h] = -1 / (float)memory;
    wrong_now = wrong;
    rig_sequence(&r, KVB_SCAN_ZERO, 0, 150);
    rig_call(&r, 150, 0, &wrong_kernel);
    rig_sequence(&r, KVB_SCAN_ZERO, 1, 200);
    rig_call(&r, 200, 0, &wrong_kernel);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        rig_sequence(&r, steps[i][0], steps[i][1], 1);
        rig_call(&r, 1, 0, &wrong_kernel);
    }
    for (uint32_t t = 0; t < 5; t++) {
        r.from[t] = tree[t][0];
        r.to[t] = tree[t][1];
    }
    rig_call(&r, 5, 0, &wrong_kernel);
    rig_sequence(&r, 6, 1, 3); /* the path that was accepted */
    rig_call(&r, 3, 0, &wrong_kernel);
    rig_sequence(&r, 2, 2, 70);
    rig_call(&r, 70, 0, &wrong_kernel);
    wrong_now = WRONG_NOTHING;
    rig_close(&r);
    return fmax(r.rho_out, r.rho_state);
}

static const double memories[] = {10, 1000};

static void wrong_kernels_fail(void **state)
{
    (void)state;
    for (enum wrong w = WRONG_NOTHING; w < WRONG_COUNT; w++)
        for (kvb_scan_kind kind = 0; kind < KVB_SCAN_KINDS; kind++)
            for (size_t m = 0; m < 2; m++) {
                const bool wrong = wrongs[w].kinds >> kind & 1;
                if (!wrong && w != WRONG_NOTHING)
                    continue;
                const double rho = history_rho(kind, KVB_F32, memories[m], w);
                if (wrong != (rho > 1))
                    fail_msg("%s, %s, memory %g: rho %g", wrongs[w].name, scan_kind_names[kind], memories[m], rho);
            }
}

static void tables_print(void)
{
    printf("| what is wrong |");
    for (kvb_scan_kind kind = 0; kind < KVB_SCAN_KINDS; kind++)
        printf(" %s |", scan_kind_names[kind]);
    printf("\n|---|---|---|---|---|---|\n");
    for (enum wrong w = WRONG_NOTHING; w < WRONG_COUNT; w++) {
        printf("| %s |", wrongs[w].what);
        for (kvb_scan_kind kind = 0; kind < KVB_SCAN_KINDS; kind++) {
            if (w == WRONG_NOTHING || wrongs[w].kinds >> kind & 1)
                printf(" %.2g, %.2g |", history_rho(kind, KVB_F32, 10, w), history_rho(kind, KVB_F32, 1000, w));
            else
                printf(" |");
        }
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_kernels_fail),
    };
    if (argc > 1 && !strcmp(argv[1], "--table")) {
        tables_print();
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
