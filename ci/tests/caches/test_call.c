/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: a call states the problem truly, turns masks a kernel does not take into bit rows, and keeps them for reuse. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "caches/call.h"

static void team_run(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    for (uint32_t i = 0; i < team->n; i++)
        part(ctx, i, team->n);
}
static const kvb_team team = {.n = 2, .run = team_run};

/* A kernel that only takes EXPLICIT and NONE, notes what it is given, and uses its scratch to the last byte. */
static kvb_attend given;

static bool picky_supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    if (p->softcap == 0.0f)
        return true;
    snprintf(why, why_bytes, "no softcap here");
    return false;
}

static size_t picky_scratch(const kvb_problem *p, uint32_t n_threads)
{
    return 100u * p->n_tok * n_threads;
}

static int picky_attend(const kvb_attend *args)
{
    given = *args;
    memset(args->scratch, 0, picky_scratch(&args->problem, args->team->n));
    return -EDOM;
}

static const kvb_kernel picky = {.name = "picky",
                                 .masks = KVB_MASK_BIT(KVB_MASK_NONE) | KVB_MASK_BIT(KVB_MASK_EXPLICIT),
                                 .supports = picky_supports,
                                 .scratch_bytes = picky_scratch,
                                 .attend = picky_attend};

static const kvb_format f32 = {.name = "f32", .elem = KVB_F32}, f16 = {.name = "f16", .elem = KVB_F16};

static bool bit(const kvb_mask *m, uint32_t t, uint32_t c)
{
    return m->bits[t * m->row_words + c / 64] >> c % 64 & 1;
}

static kvb_attend_spec spec_of(uint32_t cells)
{
    return (kvb_attend_spec){.k = {.cells = cells, .dim = 16, .format = &f32},
                             .v = {.cells = cells, .dim = 24, .format = &f16}};
}

/* Each kind, at cell counts around a word's end, against the definition; stray bits are cleared. */
static void every_kind_expands(void **state)
{
    static const uint32_t counts[] = {3, 63, 64, 65, 127, 128, 200};
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        uint32_t n = counts[i];
        kvb_run runs[] = {{0, n}, {1, 2}, {n - 1, n}};
        uint32_t row_start[] = {0, 1, 1, 3};
        uint64_t source[3 * 5], bits[3 * 6];
        kvb_mask mask = {.bits = source, .row_words = 5, .row_start = row_start, .runs = runs};
        for (size_t w = 0; w < 15; w++)
            source[w] = UINT64_C(0x84210000f00f0001);
        for (int kind = 0; kind < KVB_MASK_KINDS; kind++) {
            mask.kind = (kvb_mask_kind)kind;
            memset(bits, 0xff, sizeof bits);
            kvb_mask_expand(&mask, 3, n, bits, 6);
            kvb_mask out = {.bits = bits, .row_words = 6};
            for (uint32_t t = 0; t < 3; t++)
                for (uint32_t c = 0; c < 6 * 64; c++) {
                    bool sees = kind == KVB_MASK_NONE       ? true
                                : kind == KVB_MASK_CAUSAL   ? c <= n - 3 + t
                                : kind == KVB_MASK_EXPLICIT ? c < n && bit(&mask, t, c)
                                : t == 0                    ? true
                                : t == 1                    ? false
                                                            : c == 1 || c == n - 1;
                    assert_int_equal(bit(&out, t, c), c < n && sees);
                }
        }
    }
}

static void problem_is_stated(void **state)
{
    uint32_t table[1] = {0};
    float sinks[6] = {0}, q[1] = {0};
    char why[80] = "";
    kvb_call call = {.kernel = &picky,
                     .team = &team,
                     .n_heads = 6,
                     .n_kv_heads = 2,
                     .scale = 0.25f,
                     .sinks = sinks,
                     .out_elem = KVB_BF16};
    kvb_attend_spec spec = spec_of(70);
    (void)state;

    spec.v.block_table = table;
    spec.v_in_k = true;
    assert_int_equal(kvb_call_prepare(&call, &spec, q, 3, false, why, sizeof why), 0);
    const kvb_problem *p = &call.args.problem;
    assert_int_equal(p->n_tok, 3);
    assert_int_equal(p->n_heads, 6);
    assert_int_equal(p->n_kv_heads, 2);
    assert_int_equal(p->k_dim, 16);
    assert_int_equal(p->v_dim, 24);
    assert_int_equal(p->n_cells, 70);
    assert_true(p->scale == 0.25f && p->softcap == 0.0f && !p->deterministic);
    call.deterministic = true;
    assert_int_equal(kvb_call_prepare(&call, &spec, q, 3, false, why, sizeof why), 0);
    assert_true(call.args.problem.deterministic);
    assert_true(p->has_sinks && p->paged && p->v_in_k);
    assert_int_equal(p->out_elem, KVB_BF16);
    assert_int_equal(p->mask, KVB_MASK_NONE);
    assert_ptr_equal(p->k_format, &f32);
    assert_ptr_equal(p->v_format, &f16);
    assert_ptr_equal(call.args.q, q);
    assert_ptr_equal(call.args.sinks, sinks);
    assert_int_equal((uintptr_t)call.args.scratch % 64, 0);

    float out, lse;
    assert_int_equal(kvb_call_run(&call, &out, &lse), -EDOM); /* the kernel's own result */
    assert_ptr_equal(given.out, &out);
    assert_ptr_equal(given.lse, &lse);
    assert_int_equal(kvb_call_run(&call, &out, NULL), -EDOM);
    assert_null(given.lse);
    kvb_call_free(&call);
    assert_null(call.scratch);
}

/* CAUSAL becomes EXPLICIT; another layer reuses the rows; a new step does not. Scratch grows with the step. */
static void expansion_is_reused(void **state)
{
    char why[80] = "";
    kvb_call call = {.kernel = &picky, .team = &team, .n_heads = 1, .n_kv_heads = 1, .scale = 1};
    kvb_attend_spec spec = spec_of(100);
    (void)state;

    spec.mask.kind = KVB_MASK_CAUSAL;
    assert_int_equal(kvb_call_prepare(&call, &spec, NULL, 2, true, why, sizeof why), 0); /* nothing to reuse yet */
    assert_int_equal(call.args.problem.mask, KVB_MASK_EXPLICIT);
    assert_int_equal(call.args.mask.kind, KVB_MASK_EXPLICIT);
    assert_true(bit(&call.args.mask, 0, 98) && !bit(&call.args.mask, 0, 99) && bit(&call.args.mask, 1, 99));
    kvb_call_run(&call, NULL, NULL);

    call.bits[0] = 0; /* seen again if, and only if, the rows are reused */
    assert_int_equal(kvb_call_prepare(&call, &spec, NULL, 2, true, why, sizeof why), 0);
    assert_false(bit(&call.args.mask, 0, 0));
    assert_int_equal(kvb_call_prepare(&call, &spec, NULL, 2, false, why, sizeof why), 0);
    assert_true(bit(&call.args.mask, 0, 0));

    call.bits[0] = 0; /* another shape cannot be the same mask, whatever the caller says */
    spec.k.cells = spec.v.cells = 101;
    assert_int_equal(kvb_call_prepare(&call, &spec, NULL, 5, true, why, sizeof why), 0);
    assert_true(bit(&call.args.mask, 0, 0) && bit(&call.args.mask, 4, 100));
    kvb_call_run(&call, NULL, NULL);

    spec.mask.kind = KVB_MASK_NONE; /* taken as it is */
    assert_int_equal(kvb_call_prepare(&call, &spec, NULL, 5, false, why, sizeof why), 0);
    assert_int_equal(call.args.mask.kind, KVB_MASK_NONE);
    kvb_call_free(&call);
}

static void refusal_has_the_kernels_reason(void **state)
{
    char why[80] = "";
    kvb_call call = {.kernel = &picky, .team = &team, .n_heads = 1, .n_kv_heads = 1, .scale = 1, .softcap = 5};
    kvb_attend_spec spec = spec_of(10);
    (void)state;
    assert_int_equal(kvb_call_prepare(&call, &spec, NULL, 1, false, why, sizeof why), -ENOTSUP);
    assert_string_equal(why, "no softcap here");
    kvb_call_free(&call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_expands),
        cmocka_unit_test(problem_is_stated),
        cmocka_unit_test(expansion_is_reused),
        cmocka_unit_test(refusal_has_the_kernels_reason),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("call", tests, NULL, NULL);
}
