/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: whatever a problem may ask for, each kernel takes, at every level of instruction sets that this CPU has, and
 * computes within its bound of double arithmetic: softcap, sinks, V in K's rows, K rows longer and shorter than V's,
 * outputs of 16 bits, 128 query heads for one KV head, and all of these together; and the same where the first cells of
 * K and V lie elsewhere, by the kernels that read two regions.
 */
#include "ci/tests/kernels/fixture.h"
#include "ci/tests/kernels/levels.h"
#include "ci/tests/kernels/split.h"
#include "kernels/kernels.h"

/* A kernel and the rows that it must take as they are. */
static const struct taker {
    const kvb_kernel *kernel;
    kvb_elem elems[5];
    uint32_t n;
} takers[] = {
    {&kvb_kernel_reference, {KVB_F32, KVB_F16, KVB_BF16, KVB_Q8_0, TEST_HADAMARD}, 5},
    {&kvb_kernel_openblas, {KVB_F32, KVB_F16, KVB_BF16, KVB_Q8_0, TEST_HADAMARD}, 5},
    {&kvb_kernel_flash, {KVB_F32, KVB_F16, KVB_BF16, KVB_Q8_0, TEST_HADAMARD}, 5},
    {&kvb_kernel_flash_int8, {KVB_Q8_0}, 1},
    {&kvb_kernel_flash_bf16, {KVB_BF16, KVB_E4M3}, 2},
    {&kvb_kernel_flash_f16, {KVB_F16, KVB_E4M3, KVB_Q8_0}, 3},
};
enum { TAKERS = sizeof takers / sizeof *takers };

static const struct shape plain = {
    .n_tok = 2, .n_kv_heads = 1, .group = 2, .k_dim = 64, .v_dim = 64, .n_cells = 150, .threads = 2, .seed = 1};

/* Has a kernel loops of its own at this level? */
static bool differs(const kvb_kernel *kernel, uint32_t level)
{
    char why[160];
    if (kernel->available) { /* at its own level alone */
        kvb_cpu_limit((kvb_cpu_level)(level ? level - 1 : 0));
        bool below = kernel->available(why, sizeof why);
        kvb_cpu_limit((kvb_cpu_level)level);
        return !below && kernel->available(why, sizeof why);
    }
    kvb_cpu_limit((kvb_cpu_level)level);
    return level == 0 ||
           (kernel->flags & KVB_KERNEL_VECTOR && kvb_loops_own((kvb_cpu_level)level, offsetof(kvb_loops, vector)));
}

/* Once more, with the first cells elsewhere: some, whole blocks, all. The answer is that of one region. */
static void fronts_check(struct fixture *f, const kvb_kernel *kernel, const struct shape *s)
{
    const uint32_t n = s->n_cells, cuts[] = {1, 63, 64, n / 2, n / 2 / 64 * 64 + 1, n - 1, n};
    const uint32_t front = cuts[s->seed % (sizeof cuts / sizeof *cuts)];
    struct split split;
    split_make(&split, f, front < n ? front : n);
    fixture_attend(f, kernel);
    fixture_judge(f, kernel, s);
    split_undo(&split, f);
}

/* Every kernel that is here, at every level that makes a difference to it, with each kind of rows. */
static void check(const struct shape *shape)
{
    for (const struct taker *t = takers; t < takers + TAKERS; t++)
        for (uint32_t e = 0; e < t->n && t->kernel->masks & KVB_MASK_BIT(shape->mask); e++) {
            struct shape s = *shape;
            struct fixture f;
            s.k_elem = s.v_elem = t->elems[e];
            fixture_build(&f, &s);
            for (uint32_t level = 0; level < KVB_CPU_LEVELS; level++) {
                if (!level_tried((kvb_cpu_level)level) || !differs(t->kernel, level))
                    continue;
                fixture_attend(&f, t->kernel); /* fails where the kernel declines */
                fixture_judge(&f, t->kernel, &s);
                if (t->kernel->flags & KVB_KERNEL_FRONTS)
                    fronts_check(&f, t->kernel, &s);
            }
            kvb_cpu_limit(KVB_CPU_LEVELS - 1);
            fixture_free(&f);
        }
}

static void softcap_holds(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        struct shape s = plain;
        s.softcap = i % 2 ? 1.5f : 30;
        s.mask = (kvb_mask_kind)(i % KVB_MASK_KINDS);
        s.n_tok = i < 4 ? 1 : 13;
        s.seed = 100 + i;
        check(&s);
    }
}

static void sinks_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        struct shape s = plain;
        s.sinks = true;
        s.group = i % 2 ? 3 : 1;
        s.mask = (kvb_mask_kind)(i % KVB_MASK_KINDS);
        s.n_tok = i < 4 ? 1 : 13;
        s.empty = 3; /* such a query has its sink as log-sum-exp */
        s.seed = 200 + i;
        check(&s);
    }
}

static void v_in_k_holds(void **state)
{
    static const uint32_t dims[][2] = {{64, 64}, {128, 64}, {576, 512}, {192, 64}};
    (void)state;
    for (uint32_t i = 0; i < 16; i++) {
        struct shape s = plain;
        s.v_in_k = true;
        s.k_dim = dims[i % 4][0];
        s.v_dim = dims[i % 4][1];
        s.group = i % 3 ? 16 : 3;
        s.n_tok = i < 8 ? 1 : 5;
        s.mask = (kvb_mask_kind)(i / 4 % KVB_MASK_KINDS);
        s.seed = 300 + i;
        check(&s);
    }
}

/* Blocks in turns, before, across and behind the border. */
static void long_fronts_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 28; i++) {
        struct shape s = plain;
        s.n_cells = 1100 + 37 * i;
        s.n_tok = (uint32_t[]){1, 3, 20}[i % 3];
        s.mask = (kvb_mask_kind)(i / 7 % KVB_MASK_KINDS);
        s.deterministic = i % 2;
        s.threads = 1 + i % TEAM_MAX;
        s.seed = 800 + i;
        check(&s);
    }
}

static void unlike_dims_hold(void **state)
{
    static const uint32_t dims[][2] = {{128, 64}, {64, 128}, {192, 128}, {64, 256}};
    (void)state;
    for (uint32_t i = 0; i < 16; i++) {
        struct shape s = plain;
        s.k_dim = dims[i % 4][0];
        s.v_dim = dims[i % 4][1];
        s.group = 1 + i % 5;
        s.n_tok = i < 8 ? 1 : 6;
        s.mask = (kvb_mask_kind)(i / 2 % KVB_MASK_KINDS);
        s.seed = 400 + i;
        check(&s);
    }
}

static void outputs_of_16_bits_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        struct shape s = plain;
        s.out_elem = i % 2 ? KVB_BF16 : KVB_F16;
        s.n_tok = i < 4 ? 1 : 20;
        s.mask = (kvb_mask_kind)(i % KVB_MASK_KINDS);
        s.seed = 500 + i;
        check(&s);
    }
}

/* MLA as it is absorbed: one latent row for all heads. */
static void heads_128_over_one_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        struct shape s = plain;
        s.group = 128;
        s.v_in_k = i % 2;
        s.k_dim = s.v_in_k ? 576 : 64;
        s.v_dim = s.v_in_k ? 512 : 128;
        s.n_tok = i < 4 ? 1 : 2;
        s.n_cells = 65 + i;
        s.mask = (kvb_mask_kind)(i / 2 % KVB_MASK_KINDS);
        s.seed = 600 + i;
        check(&s);
    }
}

static void all_together_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 64; i++) {
        struct shape s = plain;
        s.softcap = i % 2 ? 5 : 0;
        s.sinks = i / 2 % 2;
        s.out_elem = (kvb_elem)(i % 3);
        s.v_in_k = i / 4 % 2;
        s.k_dim = 64 * (2 + i % 3);
        s.v_dim = 64 * (1 + i / 3 % (s.v_in_k ? 2 : 4));
        s.group = (uint32_t[]){1, 7, 16, 128}[i / 8 % 4];
        s.n_kv_heads = s.group < 10 ? 2 : 1;
        s.n_tok = (uint32_t[]){1, 2, 9}[i / 5 % (s.group < 128 ? 3 : 2)];
        s.mask = (kvb_mask_kind)(i / 7 % KVB_MASK_KINDS);
        s.any_order = i % 3 == 0;
        s.deterministic = i / 9 % 2;
        s.n_cells = 20 + (s.group < 128 ? 3 * i : i / 2);
        s.empty = 6;
        s.threads = 1 + i % TEAM_MAX;
        s.seed = 700 + i;
        check(&s);
    }
}

/* A scale for a whole K row says nothing of the part of it that is V. */
static void one_scale_for_k_and_v_is_declined(void **state)
{
    static const kvb_format int8 = {.name = "int8",
                                    .elem = KVB_INT8,
                                    .axis = KVB_AXIS_CHANNELS,
                                    .group = KVB_GROUP_ROW,
                                    .scale_elem = KVB_F32,
                                    .read = rows_read};
    kvb_problem p = {.n_tok = 1,
                     .n_heads = 1,
                     .n_kv_heads = 1,
                     .k_dim = 128,
                     .v_dim = 64,
                     .n_cells = 9,
                     .k_format = &int8,
                     .v_format = &int8};
    char why[160];
    (void)state;
    assert_true(kvb_kernel_flash_int8.supports(&p, why, sizeof why));
    p.v_in_k = true;
    assert_false(kvb_kernel_flash_int8.supports(&p, why, sizeof why));
    assert_non_null(strstr(why, "V in K's rows"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softcap_holds),
        cmocka_unit_test(sinks_hold),
        cmocka_unit_test(v_in_k_holds),
        cmocka_unit_test(unlike_dims_hold),
        cmocka_unit_test(long_fronts_hold),
        cmocka_unit_test(outputs_of_16_bits_hold),
        cmocka_unit_test(heads_128_over_one_hold),
        cmocka_unit_test(all_together_hold),
        cmocka_unit_test(one_scale_for_k_and_v_is_declined),
    };
    return cmocka_run_group_tests_name("what a problem may ask", tests, NULL, NULL);
}
