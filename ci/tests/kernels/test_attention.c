/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the reference and openblas kernels compute attention, whatever the shape, mask, format, layout, team. */
#include "ci/tests/kernels/fixture.h"
#include "kernels/kernels.h"

static const kvb_kernel *const kernels[] = {&kvb_kernel_reference, &kvb_kernel_openblas, &kvb_kernel_flash};
#define N_KERNELS (sizeof kernels / sizeof *kernels)

static const struct shape plain = {
    .n_tok = 3, .n_kv_heads = 2, .group = 2, .k_dim = 16, .v_dim = 16, .n_cells = 37, .threads = 1, .seed = 1};

static void all_check(const struct shape *s)
{
    for (size_t i = 0; i < N_KERNELS; i++)
        shape_check(kernels[i], s);
}

/* Every mask kind with one query, a few, and more than a tile of them. */
static void masks_hold(void **state)
{
    static const uint32_t n_tok[] = {1, 2, 3, 64, 65, 130};
    (void)state;
    for (int mask = 0; mask < KVB_MASK_KINDS; mask++)
        for (size_t i = 0; i < sizeof n_tok / sizeof *n_tok; i++)
            for (uint32_t cells = 0; cells < 3; cells++) {
                struct shape s = plain;
                s.mask = (kvb_mask_kind)mask;
                s.n_tok = n_tok[i];
                s.n_cells = n_tok[i] + (uint32_t[]){0, 1, 173}[cells];
                s.empty = 3;
                s.seed = (uint64_t)mask * 1000 + i * 10 + cells;
                all_check(&s);
            }
}

static void runs_in_any_order_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 24; i++) {
        struct shape s = plain;
        s.mask = KVB_MASK_RUNS;
        s.any_order = true;
        s.n_tok = (uint32_t[]){1, 2, 5, 66}[i % 4];
        s.n_cells = 20 + 23 * i;
        s.empty = 4;
        s.sinks = i % 3 == 0;
        s.seed = 4000 + i;
        all_check(&s);
    }
}

/* The bits are those of the same rows laid down in the order of the runs, all of them visible. */
static void reference_sums_in_the_order_of_runs(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        struct shape s = plain;
        struct fixture f;
        uint32_t n = 0;
        s.mask = KVB_MASK_RUNS;
        s.any_order = true;
        s.n_tok = s.n_kv_heads = s.group = 1;
        s.n_cells = 150;
        s.seed = 4100 + i;
        fixture_build(&f, &s);
        fixture_attend(&f, &kvb_kernel_reference);
        float out[16], lse = f.lse[0], k[150 * 16], v[150 * 16];
        memcpy(out, f.out, sizeof out);
        for (uint32_t r = 0; r < f.row_start[1]; r++)
            for (uint32_t c = f.runs[r].begin; c < f.runs[r].end; c++, n++) {
                memcpy(k + n * 16, (float *)f.k + c * 16, 16 * sizeof *k);
                memcpy(v + n * 16, (float *)f.v + c * 16, 16 * sizeof *v);
            }
        f.args.k.base = k;
        f.args.v.base = v;
        f.args.k.cells = f.args.v.cells = f.args.problem.n_cells = n;
        f.args.mask = (kvb_mask){.kind = KVB_MASK_NONE};
        f.args.problem.mask = KVB_MASK_NONE;
        fixture_attend(&f, &kvb_kernel_reference);
        assert_memory_equal(out, f.out, sizeof out);
        assert_true(lse == f.lse[0]);
        fixture_free(&f);
    }
}

static void head_ratios_and_dims_hold(void **state)
{
    static const uint32_t groups[] = {1, 2, 3, 4, 8};
    static const uint32_t dims[][2] = {{16, 16}, {20, 20}, {64, 64}, {128, 128}, {20, 64}, {128, 16}, {1, 1}};
    (void)state;
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            for (uint32_t n_tok = 1; n_tok <= 3; n_tok += 2) {
                struct shape s = plain;
                s.mask = (kvb_mask_kind)((g + d) % KVB_MASK_RUNS);
                s.group = groups[g];
                s.k_dim = dims[d][0];
                s.v_dim = dims[d][1];
                s.n_tok = n_tok;
                s.seed = 5000 + g * 100 + d * 10 + n_tok;
                all_check(&s);
            }
}

/* K and V formats are independent of each other and of the output dtype. */
static void formats_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 48 * 2; i++) {
        struct shape s = plain;
        s.k_elem = test_elems[i % TEST_ELEMS];
        s.v_elem = test_elems[i / 4 % TEST_ELEMS];
        s.out_elem = (kvb_elem)(i / 16 % 3);
        s.n_tok = i < 48 ? 1 : 5;
        s.mask = i % 2 ? KVB_MASK_EXPLICIT : KVB_MASK_CAUSAL;
        s.k_dim = s.v_dim = 20;
        s.seed = 6000 + i;
        all_check(&s);
    }
}

static void softcap_and_sinks_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 24; i++) {
        struct shape s = plain;
        s.softcap = i % 2 ? 1.5f : 0.0f;
        s.sinks = i / 2 % 2;
        s.mask = (kvb_mask_kind)(i / 4 % KVB_MASK_KINDS);
        s.n_tok = i < 16 ? 4 : 1;
        s.empty = 2; /* with a sink, a query that sees nothing has its sink as lse */
        s.seed = 7000 + i;
        all_check(&s);
    }
}

/* Block tables, V inside the K row, gaps between rows. */
static void layouts_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 64; i++) {
        struct shape s = plain;
        s.v_in_k = i / 2 % 2;
        s.gap = i / 4 % 2 ? 4 : 0;
        s.k_elem = s.v_elem = test_elems[i / 8 % TEST_ELEMS];
        s.n_tok = i < 32 ? 1 : 6;
        s.k_dim = 24;
        s.mask = i % 3 ? KVB_MASK_EXPLICIT : KVB_MASK_NONE;
        s.seed = 8000 + i;
        all_check(&s);
    }
}

/* Any team gives the bits of one thread. */
static void teams_agree(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_KERNELS; k++)
        for (uint32_t i = 0; i < 6; i++) {
            struct shape s = plain;
            struct fixture f;
            s.mask = (kvb_mask_kind)(i % KVB_MASK_RUNS);
            s.n_tok = i < 3 ? 1 : 70;
            s.n_cells = 90;
            s.n_kv_heads = 5;
            s.k_elem = KVB_F16;
            s.deterministic = true;
            s.seed = 9000 + i;
            fixture_build(&f, &s);
            teams_judge(&f, kernels[k], &s);
            fixture_free(&f);
        }
}

/* Threads in BLAS at once do not spoil each other's products. Chance decides whether a missing lock shows. */
static void busy_teams_agree(void **state)
{
    struct shape s = plain;
    struct fixture one, three;
    (void)state;

    s.n_tok = 64;
    s.n_cells = 96;
    s.n_kv_heads = 12;
    s.k_dim = s.v_dim = 256;
    s.mask = KVB_MASK_CAUSAL;
    fixture_build(&one, &s);
    fixture_attend(&one, &kvb_kernel_openblas);
    s.threads = 3;
    fixture_build(&three, &s);
    for (int i = 0; i < 40; i++) {
        fixture_attend(&three, &kvb_kernel_openblas);
        assert_memory_equal(one.out, three.out, (size_t)s.n_tok * s.n_kv_heads * s.group * s.v_dim * sizeof(float));
    }
    fixture_free(&one);
    fixture_free(&three);
}

/* A cache without a cell, and no lse asked for. */
static void nothing_to_see_is_zero(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_KERNELS; k++)
        for (uint32_t n_tok = 1; n_tok <= 2; n_tok++) {
            struct shape s = plain;
            struct fixture f;
            s.n_cells = 0;
            s.mask = KVB_MASK_EXPLICIT;
            s.n_tok = n_tok;
            fixture_build(&f, &s);
            fixture_attend(&f, kernels[k]);
            fixture_judge(&f, kernels[k], &s);
            assert_true(f.lse[0] == -INFINITY);
            assert_true(((float *)f.out)[0] == 0.0f && !signbit(((float *)f.out)[0]));
            memset(f.lse, 0x5a, sizeof *f.lse);
            f.args.lse = NULL;
            fixture_attend(&f, kernels[k]);
            assert_int_equal(*(unsigned char *)f.lse, 0x5a);
            fixture_free(&f);
        }
}

/* A NaN that is visible is not lost. */
static void visible_nan_shows(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_KERNELS; k++)
        for (int side = 0; side < 2; side++) {
            struct shape s = plain;
            struct fixture f;
            s.n_cells = 1;
            s.n_tok = 1;
            fixture_build(&f, &s);
            memset(side ? f.v : f.k, 0xff, sizeof(float));
            fixture_attend(&f, kernels[k]);
            assert_true(isnan(((float *)f.out)[0]));
            fixture_free(&f);
        }
}

static void unfit_problems_are_declined(void **state)
{
    static const kvb_format mute = {.name = "e4m3", .elem = KVB_E4M3}; /* with read() it would do */
    struct fixture f;
    char why[80];
    (void)state;

    fixture_build(&f, &plain);
    for (const kvb_kernel *const *k = kvb_builtin_kernels; *k; k++) {
        kvb_problem p = f.args.problem;
        if (!(*k)->attend || *k == &kvb_kernel_flash_int8 || *k == &kvb_kernel_flash_bf16 ||
            *k == &kvb_kernel_flash_f16) /* take no f32 */
            continue;
        assert_true((*k)->supports(&p, why, sizeof why));
        p.v_format = &mute;
        assert_false((*k)->supports(&p, why, sizeof why));
        assert_non_null(strstr(why, "e4m3"));
        p = f.args.problem;
        p.k_format = &mute;
        assert_false((*k)->supports(&p, why, sizeof why));
        p = f.args.problem;
        p.out_elem = KVB_E5M2;
        assert_false((*k)->supports(&p, why, sizeof why));
        p = f.args.problem;
        p.n_heads = 3;
        assert_false((*k)->supports(&p, why, sizeof why));
        assert_non_null(strstr(why, "3 query heads"));
    }
    fixture_free(&f);
}

/* What decoding rounds is in the declared chains; where V lies in K's rows, it is decoded with them. */
static void decoding_is_declared(void **state)
{
    static const kvb_format turned = {
        .name = "turned", .elem = KVB_F32, .transform = KVB_TRANSFORM_HADAMARD, .read = rows_read};
    (void)state;
    for (size_t k = 0; k < N_KERNELS; k++) {
        kvb_problem p = {.n_tok = 1, .n_heads = 1, .n_kv_heads = 1, .k_dim = 48, .v_dim = 64, .n_cells = 100};
        kvb_arithmetic bare, more;
        p.k_format = p.v_format = &test_formats[KVB_F16];
        kernels[k]->arithmetic(&p, &bare);
        p.k_format = &test_formats[KVB_UINT8];
        p.v_format = &turned;
        kernels[k]->arithmetic(&p, &more);
        assert_int_equal(more.dot_chain, bare.dot_chain + 2);   /* scale, zero */
        assert_int_equal(more.cell_chain, bare.cell_chain + 7); /* 6 stages of 64, and the factor */
        p.k_format = &turned;
        p.v_in_k = true;
        p.v_dim = 32;
        kernels[k]->arithmetic(&p, &more);
        assert_int_equal(more.dot_chain, bare.dot_chain + 5); /* 48 is made of blocks of 16 */
        assert_int_equal(more.cell_chain, bare.cell_chain + 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_hold),
        cmocka_unit_test(runs_in_any_order_hold),
        cmocka_unit_test(reference_sums_in_the_order_of_runs),
        cmocka_unit_test(head_ratios_and_dims_hold),
        cmocka_unit_test(formats_hold),
        cmocka_unit_test(softcap_and_sinks_hold),
        cmocka_unit_test(layouts_hold),
        cmocka_unit_test(teams_agree),
        cmocka_unit_test(busy_teams_agree),
        cmocka_unit_test(nothing_to_see_is_zero),
        cmocka_unit_test(visible_nan_shows),
        cmocka_unit_test(unfit_problems_are_declined),
        cmocka_unit_test(decoding_is_declared),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
