/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: a call states the problem truly, turns masks a kernel does not take into bit rows, once for each plan of a
 * group. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
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

static const float sink_logits[6];
static const kvb_group plain = {.heads = 1, .kv_heads = 1, .k_dim = 16, .v_dim = 24, .scale = 1};
static const kvb_group other = {.heads = 1, .kv_heads = 1, .k_dim = 16, .v_dim = 24, .scale = 1, .window = 2};
static const kvb_group capped = {.heads = 1, .kv_heads = 1, .k_dim = 16, .v_dim = 24, .scale = 1, .softcap = 5};
static const kvb_group rich = {
    .heads = 6, .kv_heads = 2, .k_dim = 24, .v_dim = 16, .scale = 0.25, .latent = true, .sink_logits = sink_logits};

static kvb_attend_spec spec_of(const kvb_group *group, uint32_t cells)
{
    return (kvb_attend_spec){.group = group,
                             .k = {.cells = cells, .dim = group->k_dim, .format = &f32},
                             .v = {.cells = cells, .dim = group->v_dim, .format = &f16}};
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
        uint32_t pages[] = {n - 1, 0, 1,
                            n / 2}; /* of one cell; the first query's are all four, the others' from the second on */
        kvb_run seen[] = {{2, 4}, {0, 0}, {1, 3}};
        kvb_mask mask = {.bits = source,
                         .row_words = 5,
                         .row_start = row_start,
                         .runs = runs,
                         .pages = pages,
                         .seen = seen,
                         .page_cells = 1,
                         .sinks = 1};
        for (size_t w = 0; w < 15; w++)
            source[w] = UINT64_C(0x84210000f00f0001);
        for (int kind = 0; kind < KVB_MASK_KINDS; kind++) {
            mask.kind = (kvb_mask_kind)kind;
            memset(bits, 0xff, sizeof bits);
            kvb_mask_expand(&mask, 3, n, bits, 6);
            kvb_mask out = {.bits = bits, .row_words = 6};
            for (uint32_t t = 0; t < 3; t++)
                for (uint32_t c = 0; c < 6 * 64; c++) {
                    bool sees = kind == KVB_MASK_NONE              ? true
                                : kind == KVB_MASK_CAUSAL          ? c <= n - 3 + t
                                : kind == KVB_MASK_EXPLICIT        ? c < n && bit(&mask, t, c)
                                : kind == KVB_MASK_PAGES && t == 0 ? c == n - 1 || c == 1 || c == n / 2
                                : kind == KVB_MASK_PAGES && t == 2 ? c == 0 || c == 1 || c == n / 2
                                : t == 0                           ? true
                                : t == 1                           ? false
                                                                   : c == 1 || c == n - 1;
                    assert_int_equal(bit(&out, t, c), c < n && sees);
                }
        }
    }
}

static void problem_is_stated(void **state)
{
    float q[1] = {0}, out, lse;
    char why[80] = "";
    kvb_call call = {.kernel = &picky, .team = &team, .out_elem = KVB_BF16};
    kvb_attend_spec spec = spec_of(&rich, 70);
    const kvb_problem *p = &call.args.problem;
    (void)state;

    for (int deterministic = 0; deterministic < 2; deterministic++) {
        call.deterministic = deterministic;
        assert_int_equal(kvb_call_prepare(&call, &spec, q, 3, why, sizeof why), 0);
        assert_int_equal(p->deterministic, deterministic);
    }
    const uint32_t sizes[] = {p->n_tok, p->n_heads, p->n_kv_heads, p->k_dim, p->v_dim, p->n_cells};
    assert_memory_equal(sizes, ((uint32_t[]){3, 6, 2, 24, 16, 70}), sizeof sizes);
    assert_true(p->scale == 0.25f && p->softcap == 0.0f);
    assert_true(p->has_sinks && p->v_in_k);
    assert_int_equal(p->out_elem, KVB_BF16);
    assert_int_equal(p->mask, KVB_MASK_NONE);
    assert_ptr_equal(p->k_format, &f32);
    assert_ptr_equal(p->v_format, &f16);
    assert_ptr_equal(call.args.q, q);
    assert_ptr_equal(call.args.sinks, sink_logits);
    assert_int_equal((uintptr_t)call.args.scratch % 64, 0);

    assert_int_equal(kvb_call_run(&call, &out, &lse), -EDOM); /* the kernel's own result */
    assert_ptr_equal(given.out, &out);
    assert_ptr_equal(given.lse, &lse);
    assert_int_equal(kvb_call_run(&call, &out, NULL), -EDOM);
    assert_null(given.lse);

    spec = spec_of(&plain, 70); /* another group of the same model: nothing is left of the first */
    assert_int_equal(kvb_call_prepare(&call, &spec, q, 3, why, sizeof why), 0);
    assert_true(!p->has_sinks && !p->v_in_k && !call.args.sinks);
    assert_int_equal(p->n_heads, 1);
    spec = spec_of(&capped, 10); /* what the kernel says where it refuses */
    assert_int_equal(kvb_call_prepare(&call, &spec, q, 1, why, sizeof why), -ENOTSUP);
    assert_string_equal(why, "no softcap here");
    assert_true(p->softcap == 5.0f);
    kvb_call_free(&call);
    assert_null(call.scratch);
}

/* Calls one after the other, with bit 0 of the group's mask cleared in between: it is clear if, and only if, the bits
 * of the call before were taken again. A mask is known by group and generation, whatever its size. */
static void a_mask_is_expanded_once(void **state)
{
    static const struct {
        const kvb_group *group;
        uint64_t generation;
        uint32_t n_tok, cells;
        bool again;
    } calls[] = {
        {&plain, 7, 2, 100, false},  {&plain, 7, 2, 100, true},  /* the next layer */
        {&other, 8, 2, 100, false},  {&plain, 7, 2, 100, true},  /* layers of two groups in turns */
        {&other, 8, 2, 100, true},   {&plain, 9, 2, 100, false}, /* the next step is of the same size */
        {&other, 8, 2, 100, true},   {&plain, 7, 2, 100, false}, /* only the last mask is kept */
        {&plain, 10, 5, 301, false}, {&plain, 11, 1, 3, false},  {&plain, 11, 1, 3, true},
        {&plain, 0, 1, 3, false},    {&plain, 0, 1, 3, false}, /* 0 says nothing */
    };
    char why[80] = "";
    kvb_call call = {.kernel = &picky, .team = &team};
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        uint32_t n = calls[i].n_tok, cells = calls[i].cells;
        kvb_attend_spec spec = spec_of(calls[i].group, cells);
        spec.mask.kind = KVB_MASK_CAUSAL;
        spec.generation = calls[i].generation;
        assert_int_equal(kvb_call_prepare(&call, &spec, NULL, n, why, sizeof why), 0);
        assert_int_equal(call.args.problem.mask, KVB_MASK_EXPLICIT);
        assert_int_equal(call.args.mask.kind, KVB_MASK_EXPLICIT);
        if (bit(&call.args.mask, 0, 0) == calls[i].again)
            fail_msg("call %zu: the mask is %s", i, calls[i].again ? "expanded again" : "an old one");
        for (uint32_t t = 0; t < n; t++)
            assert_true(bit(&call.args.mask, t, cells - n + t) && (t + 1 == n || !bit(&call.args.mask, t, cells - 1)));
        kvb_call_run(&call, NULL, NULL); /* writes all of its scratch */
        ((uint64_t *)(uintptr_t)call.args.mask.bits)[0] &= ~UINT64_C(1);
    }
    size_t held = call.expanded_bytes;
    kvb_attend_spec spec = spec_of(&plain, 100);
    assert_int_equal(kvb_call_prepare(&call, &spec, NULL, 5, why, sizeof why), 0);
    assert_int_equal(call.args.mask.kind, KVB_MASK_NONE); /* taken as it is */
    assert_true(held > 0 && call.expanded_bytes == held);
    kvb_call_free(&call);
    assert_int_equal(call.expanded_bytes, 0);
}

/* For a kernel that takes RUNS page tables become those, in the order of positions; for another one bits. */
static void pages_become_what_is_taken(void **state)
{
    static const uint32_t pages[] = {7, 2, 3, 0}, row_start[] = {0, 0, 3};
    static const kvb_run seen[] = {{3, 11}, {9, 12}, {0, 4}},
                         want[] = {{28, 29}, {31, 32}, {8, 15}, {28, 29}, {13, 16}, {0, 4}};
    static const uint32_t starts[] = {0, 3, 5, 6};
    char why[80] = "";
    (void)state;
    for (uint32_t masks = KVB_MASK_BIT(KVB_MASK_RUNS); masks <= KVB_MASKS_ALL; masks = 2 * masks + 1) {
        kvb_kernel kernel = picky;
        kernel.masks = masks;
        kvb_call call = {.kernel = &kernel, .team = &team};
        kvb_attend_spec spec = spec_of(&plain, 32);
        spec.mask = (kvb_mask){
            .kind = KVB_MASK_PAGES, .row_start = row_start, .pages = pages, .seen = seen, .page_cells = 4, .sinks = 1};
        for (uint64_t layer = 0; layer < 3; layer++) {
            spec.generation = 5 + layer / 2;
            assert_int_equal(kvb_call_prepare(&call, &spec, NULL, 3, why, sizeof why), 0);
            assert_int_equal(call.args.mask.kind, call.args.problem.mask);
            assert_int_equal(call.args.mask.kind, masks & 1u << KVB_MASK_PAGES ? KVB_MASK_PAGES : KVB_MASK_RUNS);
            if (call.args.mask.kind == KVB_MASK_PAGES) {
                assert_ptr_equal(call.args.mask.pages, pages);
                continue;
            }
            assert_memory_equal(call.args.mask.row_start, starts, sizeof starts);
            assert_memory_equal(call.args.mask.runs, want, sizeof want);
        }
        kvb_call_free(&call);
    }
}

/* More groups than a model has: those of a second one find a place, too. */
static void groups_of_another_model_find_a_place(void **state)
{
    static kvb_group groups[2 * KVB_MODEL_GROUPS];
    char why[80] = "";
    kvb_call call = {.kernel = &picky, .team = &team};
    (void)state;
    for (uint32_t i = 0; i < 2 * KVB_MODEL_GROUPS; i++)
        for (int again = 0; again < 2; again++) {
            groups[i] = plain;
            kvb_attend_spec spec = spec_of(&groups[i], 70);
            spec.mask.kind = KVB_MASK_CAUSAL;
            spec.generation = i + 1;
            assert_int_equal(kvb_call_prepare(&call, &spec, NULL, 2, why, sizeof why), 0);
            assert_int_equal(bit(&call.args.mask, 0, 0), !again);
            ((uint64_t *)(uintptr_t)call.args.mask.bits)[0] &= ~UINT64_C(1);
        }
    kvb_call_free(&call);
}

/* A witness reads no rows of others' making: what lies in two regions is declined, with the reason. */
static void two_regions_are_declined(void **state)
{
    char why[80] = "";
    kvb_kernel witness = picky;
    kvb_call call = {.kernel = &witness, .team = &team};
    kvb_attend_spec spec = spec_of(&plain, 70);
    const kvb_view front = spec.k;
    (void)state;
    spec.k.front = &front;
    witness.flags = KVB_KERNEL_WITNESS;
    assert_int_equal(kvb_call_prepare(&call, &spec, NULL, 2, why, sizeof why), -ENOTSUP);
    assert_string_equal(why, "kernel picky reads no rows in two regions");
    kvb_call_free(&call);
}

/* ---- scans ------------------------------------------------------------------------------------------------------- */

static kvb_scan scanned;
static size_t memory_left;

static bool scan_supports(const kvb_scan_problem *p, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "no silu here");
    return !p->silu;
}

static size_t scan_scratch(const kvb_scan_problem *p, uint32_t n_threads)
{
    return (size_t)64 * p->run * n_threads;
}

static int scan_run(const kvb_scan *args)
{
    scanned = *args;
    memset(args->scratch, 0, scan_scratch(&args->problem, args->team->n));
    return -EDOM;
}

static const kvb_scan_face picky_face = {.supports = scan_supports, .scratch_bytes = scan_scratch, .scan = scan_run};
static const kvb_kernel scan_picky = {.name = "picky", .scan = &picky_face};

static void *little_take(const char *name, size_t bytes)
{
    assert_string_equal(name, "scratch");
    if (bytes > memory_left)
        return NULL;
    memory_left -= bytes;
    return malloc(bytes);
}

static void little_give(void *block, size_t bytes)
{
    memory_left += block ? bytes : 0;
    free(block);
}

static const kvb_memory_source little = {little_take, little_give};

/* States and convolution of a layer in turns, each with its own slots, problem and scratch. */
static void a_scan_is_called(void **state)
{
    static char slots[2];
    static const uint32_t from[] = {KVB_SCAN_ZERO, 0, KVB_SCAN_PREVIOUS, KVB_SCAN_PREVIOUS, 3},
                          to[] = {0, KVB_SCAN_NONE, KVB_SCAN_NONE, 1, 2};
    const kvb_group group = {.kind = KVB_GROUP_SCAN,
                             .scan = {KVB_SCAN_DELTA, 4, 2, 16, 32, 4, 48, false, KVB_BF16, KVB_F16}};
    kvb_group silu = group;
    kvb_scan_spec spec = {
        .group = &group, .n_tok = 5, .states = {slots, 1, 4}, .conv = {slots + 1, 1, 4}, .from = from, .to = to};
    const float q = 1;
    const kvb_scan inputs = {.q = &q};
    char why[80] = "";
    kvb_scan_call call = {.kernel = &scan_picky, .team = &team, .out_elem = KVB_BF16, .source = &little};
    (void)state;

    memory_left = 383; /* one byte too little for the longest run, of three tokens */
    assert_int_equal(kvb_scan_call_prepare(&call, &spec, false, &inputs, why, sizeof why), -ENOMEM);
    assert_string_equal(why, "out of memory for the scratch of kernel picky");
    memory_left = 768;
    for (int conv = 0; conv < 2; conv++) {
        assert_int_equal(kvb_scan_call_prepare(&call, &spec, conv, &inputs, why, sizeof why), 0);
        assert_int_equal(kvb_scan_call_run(&call, slots), -EDOM);
        const kvb_scan_problem *p = &scanned.problem;
        assert_int_equal(p->kind, conv ? KVB_SCAN_CONV : KVB_SCAN_DELTA);
        assert_int_equal(p->n_tok, 5);
        assert_int_equal(p->run, 3);
        assert_int_equal(p->heads, conv ? 1 : 4);
        assert_int_equal(p->groups, conv ? 1 : 2);
        assert_int_equal(p->d_k, conv ? 3 : 16);
        assert_int_equal(p->d_v, conv ? 48 : 32);
        assert_int_equal(p->state_elem, conv ? KVB_F16 : KVB_BF16);
        assert_int_equal(p->out_elem, conv ? KVB_F32 : KVB_BF16);
        assert_ptr_equal(scanned.states.base, slots + conv);
        assert_ptr_equal(scanned.q, &q);
        assert_ptr_equal(scanned.from, from);
        assert_ptr_equal(scanned.to, to);
        assert_ptr_equal(scanned.team, &team);
        assert_ptr_equal(scanned.out, slots);
    }
    assert_int_equal(memory_left, 0);
    spec.n_tok = 1; /* less is no reason to take memory anew */
    assert_int_equal(kvb_scan_call_prepare(&call, &spec, true, &inputs, why, sizeof why), 0);
    silu.scan.silu = true;
    spec.group = &silu;
    assert_int_equal(kvb_scan_call_prepare(&call, &spec, false, &inputs, why, sizeof why), 0);
    assert_int_equal(kvb_scan_call_prepare(&call, &spec, true, &inputs, why, sizeof why), -ENOTSUP);
    assert_string_equal(why, "no silu here");
    kvb_scan_call_free(&call);
    assert_int_equal(memory_left, 768);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_expands),
        cmocka_unit_test(problem_is_stated),
        cmocka_unit_test(a_mask_is_expanded_once),
        cmocka_unit_test(pages_become_what_is_taken),
        cmocka_unit_test(groups_of_another_model_find_a_place),
        cmocka_unit_test(two_regions_are_declined),
        cmocka_unit_test(a_scan_is_called),
    };
    return cmocka_run_group_tests_name("call", tests, NULL, NULL);
}
