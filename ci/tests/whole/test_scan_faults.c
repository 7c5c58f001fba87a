/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: errors of wrong scan kernels exceed the oracle's bound, for any recurrence and memory; those of honest ones
 * stay below it, up to 64 k tokens. With --table it prints both as tables (results/recurrence.md).
 */
#define TESTS_OWN_MAIN
#include "ci/tests/tests.h"
#include "ci/tests/whole/scan_rig.h"

enum { SLOTS = 8 };

static kvb_scan_problem problem_of(kvb_scan_kind kind, uint32_t n_tok, kvb_elem state)
{
    const bool one = kind == KVB_SCAN_CONV || kind == KVB_SCAN_MAMBA1;
    return (kvb_scan_problem){.kind = kind,
                              .n_tok = n_tok,
                              .run = n_tok,
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
 * Plays a history in which every mistake shows: a prompt, a fork of it, a few tokens in each, a tree, a rollback.
 * Returns the largest rho.
 */
static double history_rho(kvb_scan_kind kind, kvb_elem state, double memory, enum wrong wrong)
{
    static const uint32_t steps[][2] = {/* from, to of one token each */
                                        {1, 2},
                                        {1, 1},
                                        {2, 2},
                                        {1, 1},
                                        {2, 2}};
    static const uint32_t tree[][2] = {{1, 3}, {3, 4}, {3, 5}, {4, 6}, {5, 7}};
    const kvb_scan_problem p = problem_of(kind, 200, state);
    scan_rig r;

    rig_open(&r, &kvb_kernel_scan_reference, &p, SLOTS, 7);
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
    rig_sequence(&r, 6, 1, 3); /* the accepted path */
    rig_call(&r, 3, 0, &wrong_kernel);
    rig_sequence(&r, 2, 2, 70);
    rig_call(&r, 70, 0, &wrong_kernel);
    wrong_now = WRONG_NOTHING;
    rig_close(&r);
    return fmax(r.rho_out, r.rho_state);
}

static const double memories[] = {10, 1000};

TEST(wrong_kernels_fail)
{
    for (enum wrong w = WRONG_NOTHING; w < WRONG_COUNT; w++)
        for (kvb_scan_kind kind = 0; kind < KVB_SCAN_KINDS; kind++)
            for (size_t m = 0; m < 2; m++) {
                const bool wrong = wrongs[w].kinds >> kind & 1;
                if (!wrong && w != WRONG_NOTHING)
                    continue;
                const double rho = history_rho(kind, KVB_F32, memories[m], w);
                if (wrong != (rho > 1))
                    fail_msg("%s, %s, memory %g: rho %g", wrongs[w].name, kvb_scan_kind_name(kind), memories[m], rho);
            }
}

enum { PROMPT = 512, SPOTS = 4 };
static const uint32_t spots[SPOTS] = {1 << 10, 1 << 12, 1 << 14, 1 << 16};

typedef struct growth {
    double error[SPOTS], bound[SPOTS],
        rho; /* error, bound: of the call that ends there, relative to its largest |out|; rho: of all calls */
} growth;

/* Plays one sequence in calls of PROMPT tokens, up to n_spots lengths. */
static growth growth_of(const kvb_kernel *kernel, kvb_scan_kind kind, kvb_elem state, uint32_t n_spots)
{
    kvb_scan_problem p = problem_of(kind, PROMPT, state);
    growth g = {.rho = 0};
    scan_rig r;
    p.heads = p.groups = 1;
    p.d_k = kind == KVB_SCAN_CONV ? 3 : 16;
    p.d_v = 16;
    rig_open(&r, kernel, &p, 1, 3);
    r.memory = 1000;
    if (kind == KVB_SCAN_LIGHTNING)
        r.inputs[5][0] = -1e-3f;
    for (uint32_t n = 0, spot = 0; spot < n_spots;) {
        rig_sequence(&r, n ? 0 : KVB_SCAN_ZERO, 0, PROMPT);
        rig_call(&r, PROMPT, 0, NULL);
        n += PROMPT;
        if (n == spots[spot]) {
            g.error[spot] = r.error;
            g.bound[spot++] = r.bound;
        }
    }
    g.rho = fmax(r.rho_out, r.rho_state);
    rig_close(&r);
    return g;
}

TEST(honest_kernels_pass_at_length)
{
    for (kvb_scan_kind kind = 0; kind < KVB_SCAN_KINDS; kind++)
        for (int narrow = 0; narrow < 2; narrow++)
            for (const kvb_kernel *const *kernel = scan_kernels; *kernel; kernel++) {
                const growth g = growth_of(*kernel, kind, narrow ? KVB_BF16 : KVB_F32, narrow ? 3 : SPOTS);
                if (!(g.rho < 1 && g.rho > 0))
                    fail_msg("%s, %s: rho %g", (*kernel)->name, kvb_scan_kind_name(kind), g.rho);
            }
}

static void growth_print(void)
{
    printf("\n| recurrence | state | kernel | 1 k: error, bound | 4 k | 16 k | 64 k | rho "
           "|\n|---|---|---|---|---|---|---|---|\n");
    for (kvb_scan_kind kind = 0; kind < KVB_SCAN_KINDS; kind++)
        for (int narrow = 0; narrow < 2; narrow++)
            for (const kvb_kernel *const *kernel = scan_kernels; *kernel; kernel++) {
                const growth g = growth_of(*kernel, kind, narrow ? KVB_BF16 : KVB_F32, SPOTS);
                printf("| %s | %s | %s |", kvb_scan_kind_name(kind), narrow ? "bf16" : "f32", (*kernel)->name);
                for (int spot = 0; spot < SPOTS; spot++)
                    printf(" %.1e, %.1e |", g.error[spot], g.bound[spot]);
                printf(" %.2g |\n", g.rho);
            }
}

static void tables_print(void)
{
    printf("# What the oracle says of recurrent layers\n\n"
           "Made by `make table-recurrence`. rho is the largest error over its bound, for memories of 10 and 1000 "
           "tokens where the\n"
           "recurrence lets one choose: above 1 fails. Each row but the first is a mistake in an honest kernel, states "
           "of f32.\n\n");
    printf("| what is wrong |");
    for (kvb_scan_kind kind = 0; kind < KVB_SCAN_KINDS; kind++)
        printf(" %s |", kvb_scan_kind_name(kind));
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
    printf("\nHonest kernels: one sequence in prompts of 512 tokens, the error of out in the last of them and its "
           "bound, both\n"
           "relative to the largest |out|; rho over all calls and the state. Memories of lightning and delta: 1000 "
           "tokens.\n");
    growth_print();
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--table")) {
        tables_print();
        return 0;
    }
    return tests_run();
}
