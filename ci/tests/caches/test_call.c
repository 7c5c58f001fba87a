/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: calls of kernels, and rows that are staged for them. */
#include "ci/tests/caches/named.h"
#include "caches/call.h"
#include "kernels/convert.h"
#include "kernels/kernels.h"

/* Shows: a call states the right problem, and expands masks that the kernel does not take into bits, once for each plan
 * of a group. */

/* Runs the last part first: no part may wait for another. */
static void team_run(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    for (uint32_t i = team->n; i-- > 0;)
        part(ctx, i, team->n);
}
static const kvb_team two = {.n = 2, .run = team_run}, three = {.n = 3, .run = team_run};

/* A kernel that takes only EXPLICIT and NONE, records its arguments, and uses its scratch to the last byte. */
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

static const kvb_kernel call_picky = {.name = "picky",
                                      .masks = KVB_MASK_BIT(KVB_MASK_NONE) | KVB_MASK_BIT(KVB_MASK_EXPLICIT),
                                      .supports = picky_supports,
                                      .scratch_bytes = picky_scratch,
                                      .attend = picky_attend};

static const kvb_format call_f32 = {.name = "f32", .elem = KVB_F32}, call_f16 = {.name = "f16", .elem = KVB_F16};

static bool bit(const kvb_mask *m, uint32_t t, uint32_t c)
{
    return m->bits[t * m->row_words + c / 64] >> c % 64 & 1;
}

static const float sink_logits[6];
static const kvb_group call_plain = {.heads = 1, .kv_heads = 1, .k_dim = 16, .v_dim = 24, .scale = 1};
static const kvb_group other = {.heads = 1, .kv_heads = 1, .k_dim = 16, .v_dim = 24, .scale = 1, .window = 2};
static const kvb_group capped = {.heads = 1, .kv_heads = 1, .k_dim = 16, .v_dim = 24, .scale = 1, .softcap = 5};
static const kvb_group rich = {
    .heads = 6, .kv_heads = 2, .k_dim = 24, .v_dim = 16, .scale = 0.25, .latent = true, .sink_logits = sink_logits};

static kvb_attend_spec spec_of(const kvb_group *group, uint32_t cells)
{
    return (kvb_attend_spec){.group = group,
                             .k = {.cells = cells, .dim = group->k_dim, .format = &call_f32},
                             .v = {.cells = cells, .dim = group->v_dim, .format = &call_f16}};
}

/* Each kind of mask, at cell counts around a word's end, against the definition; bits past the cells are cleared. */
TEST(every_kind_expands)
{
    static const uint32_t counts[] = {3, 63, 64, 65, 127, 128, 200};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        uint32_t n = counts[i];
        kvb_run runs[] = {{0, n}, {1, 2}, {n - 1, n}};
        uint32_t row_start[] = {0, 1, 1, 3};
        uint64_t source[3 * 5], bits[3 * 6];
        uint32_t pages[] = {n - 1, 0, 1,
                            n / 2}; /* pages of one cell; query 0 has all four, the others those from the second on */
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

TEST(problem_is_stated)
{
    float q[1] = {0}, out, lse;
    char why[80] = "";
    kvb_call call = {.kernel = &call_picky, .team = &two, .out_elem = KVB_BF16};
    kvb_attend_spec spec = spec_of(&rich, 70);
    const kvb_problem *p = &call.args.problem;
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
    assert_ptr_equal(p->k_format, &call_f32);
    assert_ptr_equal(p->v_format, &call_f16);
    assert_ptr_equal(call.args.q, q);
    assert_ptr_equal(call.args.sinks, sink_logits);
    assert_int_equal((uintptr_t)call.args.scratch % 64, 0);

    assert_int_equal(kvb_call_run(&call, &out, &lse), -EDOM); /* the kernel's own result */
    assert_ptr_equal(given.out, &out);
    assert_ptr_equal(given.lse, &lse);
    assert_int_equal(kvb_call_run(&call, &out, NULL), -EDOM);
    assert_null(given.lse);

    spec = spec_of(&call_plain, 70); /* another group of the same model */
    assert_int_equal(kvb_call_prepare(&call, &spec, q, 3, why, sizeof why), 0);
    assert_true(!p->has_sinks && !p->v_in_k && !call.args.sinks);
    assert_int_equal(p->n_heads, 1);
    spec = spec_of(&capped, 10); /* the kernel's own reason */
    assert_int_equal(kvb_call_prepare(&call, &spec, q, 1, why, sizeof why), -ENOTSUP);
    assert_string_equal(why, "no softcap here");
    assert_true(p->softcap == 5.0f);
    kvb_call_free(&call);
    assert_null(call.scratch);
}

/* Calls one after the other. Bit 0 of the group's expanded mask is cleared in between: it stays clear if, and only if,
 * the call uses the same bits again. Group and generation identify a mask, whatever its size. */
TEST(a_mask_is_expanded_once)
{
    static const struct {
        const kvb_group *group;
        uint64_t generation;
        uint32_t n_tok, cells;
        bool again;
    } calls[] = {
        {&call_plain, 7, 2, 100, false},  {&call_plain, 7, 2, 100, true},  /* the next layer */
        {&other, 8, 2, 100, false},       {&call_plain, 7, 2, 100, true},  /* layers of two groups in turns */
        {&other, 8, 2, 100, true},        {&call_plain, 9, 2, 100, false}, /* the next step is of the same size */
        {&other, 8, 2, 100, true},        {&call_plain, 7, 2, 100, false}, /* only the last mask is kept */
        {&call_plain, 10, 5, 301, false}, {&call_plain, 11, 1, 3, false},  {&call_plain, 11, 1, 3, true},
        {&call_plain, 0, 1, 3, false},    {&call_plain, 0, 1, 3, false}, /* 0 identifies no mask */
    };
    char why[80] = "";
    kvb_call call = {.kernel = &call_picky, .team = &two};
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
        kvb_call_run(&call, NULL, NULL); /* the kernel writes all of its scratch */
        ((uint64_t *)(uintptr_t)call.args.mask.bits)[0] &= ~UINT64_C(1);
    }
    size_t held = call.expanded_bytes;
    kvb_attend_spec spec = spec_of(&call_plain, 100);
    assert_int_equal(kvb_call_prepare(&call, &spec, NULL, 5, why, sizeof why), 0);
    assert_int_equal(call.args.mask.kind, KVB_MASK_NONE); /* not expanded */
    assert_true(held > 0 && call.expanded_bytes == held);
    kvb_call_free(&call);
    assert_int_equal(call.expanded_bytes, 0);
}

/* Page tables become RUNS, in the order of positions, for a kernel that takes these; for another kernel bits. */
TEST(pages_become_what_is_taken)
{
    static const uint32_t pages[] = {7, 2, 3, 0}, row_start[] = {0, 0, 3};
    static const kvb_run seen[] = {{3, 11}, {9, 12}, {0, 4}},
                         want[] = {{28, 29}, {31, 32}, {8, 15}, {28, 29}, {13, 16}, {0, 4}};
    static const uint32_t starts[] = {0, 3, 5, 6};
    char why[80] = "";
    for (uint32_t masks = KVB_MASK_BIT(KVB_MASK_RUNS); masks <= KVB_MASKS_ALL; masks = 2 * masks + 1) {
        kvb_kernel kernel = call_picky;
        kernel.masks = masks;
        kvb_call call = {.kernel = &kernel, .team = &two};
        kvb_attend_spec spec = spec_of(&call_plain, 32);
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

/* More groups than one model can have: the masks of a second model's groups find a place, too. */
TEST(groups_of_another_model_find_a_place)
{
    static kvb_group groups[2 * KVB_MODEL_GROUPS];
    char why[80] = "";
    kvb_call call = {.kernel = &call_picky, .team = &two};
    for (uint32_t i = 0; i < 2 * KVB_MODEL_GROUPS; i++)
        for (int again = 0; again < 2; again++) {
            groups[i] = call_plain;
            kvb_attend_spec spec = spec_of(&groups[i], 70);
            spec.mask.kind = KVB_MASK_CAUSAL;
            spec.generation = i + 1;
            assert_int_equal(kvb_call_prepare(&call, &spec, NULL, 2, why, sizeof why), 0);
            assert_int_equal(bit(&call.args.mask, 0, 0), !again);
            ((uint64_t *)(uintptr_t)call.args.mask.bits)[0] &= ~UINT64_C(1);
        }
    kvb_call_free(&call);
}

/* A witness cannot read a view with a front: the call is refused with a reason. */
TEST(two_regions_are_declined)
{
    char why[80] = "";
    kvb_kernel witness = call_picky;
    kvb_call call = {.kernel = &witness, .team = &two};
    kvb_attend_spec spec = spec_of(&call_plain, 70);
    const kvb_view front = spec.k;
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

/* Scans states and convolution of a layer in turns, each with its own slots, problem and scratch. */
TEST(a_scan_is_called)
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
    kvb_scan_call call = {.kernel = &scan_picky, .team = &two, .out_elem = KVB_BF16, .source = &little};
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
        assert_ptr_equal(scanned.team, &two);
        assert_ptr_equal(scanned.out, slots);
    }
    assert_int_equal(memory_left, 0);
    spec.n_tok = 1; /* a smaller call needs no new memory */
    assert_int_equal(kvb_scan_call_prepare(&call, &spec, true, &inputs, why, sizeof why), 0);
    silu.scan.silu = true;
    spec.group = &silu;
    assert_int_equal(kvb_scan_call_prepare(&call, &spec, false, &inputs, why, sizeof why), 0);
    assert_int_equal(kvb_scan_call_prepare(&call, &spec, true, &inputs, why, sizeof why), -ENOTSUP);
    assert_string_equal(why, "no silu here");
    kvb_scan_call_free(&call);
    assert_int_equal(memory_left, 768);
}

/*
 * Shows: a kernel that reads only f32 gets the rows of any pool as f32, as the pool's format reads them, and computes
 * the same bits as a kernel that reads the format. It is refused with a reason if staging is off or does not help.
 */

enum { HEADS = 4, KV_HEADS = 2, K_DIM = 128, V_DIM = 64, CELLS = 70, N_TOK = 3 };

/* ---- kernels that read f32 only: on both sides, of K, of V ---- */

static bool f32_k, f32_v; /* sides that the picky kernel reads as f32 only */

static bool is_f32(const kvb_format *f)
{
    return f->elem == KVB_F32 && !f->transform;
}

static bool staging_picky_supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    if (p->softcap == 0 && (!f32_k || is_f32(p->k_format)) && (!f32_v || is_f32(p->v_format)))
        return true;
    snprintf(why, why_bytes, "not for me");
    return false;
}

static size_t staging_picky_scratch(const kvb_problem *p, uint32_t n_threads)
{
    return kvb_kernel_reference.scratch_bytes(p, n_threads);
}

static void picky_arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    kvb_kernel_reference.arithmetic(p, a);
}

static int staging_picky_attend(const kvb_attend *args)
{
    return kvb_kernel_reference.attend(args);
}

static kvb_kernel picky_kernel(void)
{
    return (kvb_kernel){.name = "picky",
                        .masks = kvb_kernel_reference.masks,
                        .supports = staging_picky_supports,
                        .scratch_bytes = staging_picky_scratch,
                        .arithmetic = picky_arithmetic,
                        .attend = staging_picky_attend};
}

/* ---- rows in real pools ---- */

static kvb_allocator allocator;

static float number(uint32_t i)
{
    uint32_t x = (i + 1) * 0x9e3779b9u;
    x = (x ^ x >> 15) * 0x85ebca6bu;
    return (float)(x >> 8) * 0x1p-23f - 1.0f;
}

/* Opens a pool and fills cells 0 .. CELLS-1. hidden [CELLS]: these hold NaN; NULL: none. */
static kvb_pool *pool_fill(const kvb_pool_type *type, uint32_t dim, const bool *hidden, kvb_view *view)
{
    static float row[KV_HEADS * K_DIM];
    kvb_pool_options options = {
        .n_kv_heads = KV_HEADS, .dim = dim, .min_chunk = 16, .capacity = 2 * CELLS, .allocator = &allocator};
    kvb_pool *pool;
    assert_int_equal(type->open(type, &options, &pool), 0);
    assert_int_equal(type->ensure(pool, CELLS), 0);
    for (uint32_t c = 0; c < CELLS; c++) {
        for (uint32_t i = 0; i < KV_HEADS * dim; i++)
            row[i] = hidden && hidden[c] ? NAN : number(c * 1000 + i + dim);
        type->write_run(pool, c, 1, row);
    }
    type->view(pool, CELLS, view);
    return pool;
}

static kvb_call call_of(const kvb_kernel *kernel)
{
    return (kvb_call){.kernel = kernel, .team = &three, .out_elem = KVB_F32};
}

static const kvb_group whole = {.heads = HEADS, .kv_heads = KV_HEADS, .k_dim = K_DIM, .v_dim = V_DIM, .scale = 0.1};
static const kvb_group latent = {
    .heads = HEADS, .kv_heads = KV_HEADS, .k_dim = K_DIM, .v_dim = V_DIM, .latent = true, .scale = 0.1};
static const kvb_group staging_capped = {
    .heads = HEADS, .kv_heads = KV_HEADS, .k_dim = K_DIM, .v_dim = V_DIM, .scale = 0.1, .softcap = 5};

/* Staged rows of a side must be those that its format reads. */
static void rows_are_those_of(const kvb_view *staged, const kvb_view *view, uint32_t first)
{
    float *row = malloc(view->dim * sizeof *row);
    assert_non_null(row);
    assert_ptr_equal(staged->format, &kvb_format_staged);
    assert_int_equal(staged->cells, view->cells);
    assert_null(staged->scales);
    for (uint32_t h = 0; h < KV_HEADS; h++)
        for (uint32_t c = 0; c < view->cells; c++) {
            view->format->read(view, h, c, 1, row);
            assert_memory_equal(kvb_view_row(staged, h, c), row, (first ? first : view->dim) * sizeof *row);
        }
    free(row);
}

/* Both kernels must give the same out and lse over the spec. Leaves the picky kernel's call prepared. */
static void both_agree(kvb_call *picky, const kvb_attend_spec *spec)
{
    static float q[N_TOK * HEADS * K_DIM], out[2][N_TOK * HEADS * V_DIM], lse[2][N_TOK * HEADS];
    kvb_call reference = call_of(&kvb_kernel_reference);
    char why[200] = "";
    for (uint32_t i = 0; i < N_TOK * HEADS * K_DIM; i++)
        q[i] = number(i + 77);
    if (kvb_call_prepare(picky, spec, q, N_TOK, why, sizeof why))
        fail_msg("%s: %s", spec->k.format->name, why);
    assert_int_equal(kvb_call_run(picky, out[0], lse[0]), 0);
    assert_int_equal(kvb_call_prepare(&reference, spec, q, N_TOK, why, sizeof why), 0);
    assert_false(reference.staged_k || reference.staged_v);
    assert_int_equal(kvb_call_run(&reference, out[1], lse[1]), 0);
    for (uint32_t i = 0; i < N_TOK * HEADS * V_DIM; i++)
        assert_false(isnan(out[0][i]));
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    assert_memory_equal(lse[0], lse[1], sizeof lse[0]);

    kvb_arithmetic own, a, own_reads;
    kvb_kernel_reference.arithmetic(&picky->args.problem, &own);
    kvb_call_arithmetic(picky, &a);
    kvb_call_arithmetic(&reference, &own_reads); /* it decodes the rows itself */
    assert_int_equal(a.dot_chain, own_reads.dot_chain);
    assert_int_equal(a.cell_chain, own_reads.cell_chain);
    assert_int_equal(a.dot_chain - own.dot_chain, picky->k_roundings);
    kvb_call_free(&reference);
}

static void pool_check(const kvb_pool_type *type, kvb_mask_kind mask)
{
    static const kvb_run runs[] = {{0, 3}, {5, 40}, {66, 70}, {41, 50}};
    static const uint32_t row_start[] = {0, 3, 3, 4},
                          pages[] = {6, 0, 2, 5};            /* of 10 cells; the third query's table: 5 */
    static const kvb_run seen[] = {{5, 23}, {0, 0}, {0, 4}}; /* cells 65 to 69, 0 to 9, 20 to 22; 50 to 53 */
    static const uint64_t bits[] = {0xffff0000f000fff1, 0x21, 0, 0, 0xf0, 0x3f};
    bool hidden[CELLS];
    kvb_attend_spec spec = {.group = &whole,
                            .mask = {.kind = mask,
                                     .bits = bits,
                                     .row_words = 2,
                                     .runs = runs,
                                     .row_start = row_start,
                                     .pages = pages,
                                     .seen = seen,
                                     .page_cells = 10}};
    kvb_kernel kernel = picky_kernel();
    kvb_call call = call_of(&kernel);
    for (uint32_t c = 0; c < CELLS; c++)
        hidden[c] = mask == KVB_MASK_RUNS       ? !((c < 3) || (c >= 5 && c < 50 && c != 40) || c >= 66)
                    : mask == KVB_MASK_EXPLICIT ? !((bits[c / 64] | bits[c / 64 + 2] | bits[c / 64 + 4]) >> c % 64 & 1)
                    : mask == KVB_MASK_PAGES
                        ? !(c < 10 || (c >= 20 && c < 23) || (c >= 50 && c < 54) || (c >= 65 && c < 70))
                        : false;
    f32_k = f32_v = true;
    kvb_pool *k = pool_fill(type, K_DIM, hidden, &spec.k), *v = pool_fill(type, V_DIM, hidden, &spec.v);
    both_agree(&call, &spec);
    bool staged = !is_f32(type->format);
    assert_int_equal(call.staged_k, staged);
    assert_int_equal(call.staged_v, staged);
    if (staged) {
        rows_are_those_of(&call.args.k, &spec.k, 0);
        rows_are_those_of(&call.args.v, &spec.v, 0);
        assert_ptr_equal(call.args.problem.k_format, &kvb_format_staged);
        assert_ptr_equal(call.args.problem.v_format, &kvb_format_staged);
    }
    assert_int_equal(call.staged_bytes, staged ? KV_HEADS * CELLS * (K_DIM + V_DIM) * sizeof(float) : 0);
    kvb_call_free(&call);
    assert_int_equal(call.staged_bytes, 0);
    type->close(k);
    type->close(v);
}

TEST(every_pool_is_staged)
{
    char why[200];
    for (uint32_t i = 0; kvb_builtin_pools[i]; i++)
        for (int turned = 0; turned < 2; turned++) {
            const kvb_pool_type *type = turned ? kvb_builtin_pools[i]->rotated : kvb_builtin_pools[i];
            if (type && type->supports(type, K_DIM, why, sizeof why) && type->supports(type, V_DIM, why, sizeof why))
                for (int mask = 0; mask < KVB_MASK_KINDS; mask++)
                    pool_check(type, (kvb_mask_kind)mask);
        }
}

/* Only the side that the kernel does not read is staged; the next call may need none. */
TEST(one_side_is_staged)
{
    kvb_kernel kernel = picky_kernel();
    kvb_call call = call_of(&kernel);
    kvb_attend_spec spec = {.group = &whole}, plain = {.group = &whole};
    const kvb_pool_type *int8 = pool_named("int8-asym"), *f32 = pool_named("f32");
    kvb_pool *k = pool_fill(int8, K_DIM, NULL, &spec.k), *v = pool_fill(int8, V_DIM, NULL, &spec.v);
    kvb_pool *pk = pool_fill(f32, K_DIM, NULL, &plain.k), *pv = pool_fill(f32, V_DIM, NULL, &plain.v);
    f32_k = true, f32_v = false;
    both_agree(&call, &spec);
    assert_true(call.staged_k && !call.staged_v);
    assert_ptr_equal(call.args.v.base, spec.v.base);
    assert_int_equal(call.v_roundings, 0);
    assert_int_equal(call.staged_bytes, KV_HEADS * CELLS * K_DIM * sizeof(float));
    f32_k = false, f32_v = true;
    both_agree(&call, &spec);
    assert_true(!call.staged_k && call.staged_v);
    assert_ptr_equal(call.args.k.base, spec.k.base);
    assert_int_equal(call.k_roundings, 0);
    f32_k = true;
    both_agree(&call, &plain);
    assert_true(!call.staged_k && !call.staged_v);
    assert_int_equal(call.k_roundings + call.v_roundings, 0);
    kvb_call_free(&call);
    int8->close(k);
    int8->close(v);
    f32->close(pk);
    f32->close(pv);
}

/* V that lies in K's rows is decoded once, with them. */
TEST(v_in_k_is_staged)
{
    static const char *const names[] = {"f16", "int8-asym", "q8_0"};
    f32_k = f32_v = true;
    for (size_t i = 0; i < 6; i++) {
        const kvb_pool_type *type = pool_named(names[i / 2]);
        if (i % 2)
            type = type->rotated;
        kvb_kernel kernel = picky_kernel();
        kvb_call call = call_of(&kernel);
        kvb_attend_spec spec = {.group = &latent};
        kvb_pool *k = pool_fill(type, K_DIM, NULL, &spec.k);
        spec.v = spec.k;
        spec.v.dim = V_DIM;
        both_agree(&call, &spec);
        assert_true(call.staged_k && call.staged_v);
        assert_ptr_equal(call.args.v.base, call.args.k.base);
        assert_int_equal(call.args.v.dim, V_DIM);
        assert_int_equal(call.args.v.cell_stride, K_DIM * sizeof(float));
        rows_are_those_of(&call.args.v, &spec.k, V_DIM);
        assert_int_equal(call.v_roundings, kvb_format_roundings(type->format, K_DIM));
        assert_int_equal(call.staged_bytes, KV_HEADS * CELLS * K_DIM * sizeof(float));
        kvb_call_free(&call);
        type->close(k);
    }
}

/* Each call decodes its rows anew, and makes room for more of them. */
TEST(rows_are_decoded_anew)
{
    static const float row[KV_HEADS * K_DIM] = {42};
    kvb_kernel kernel = picky_kernel();
    kvb_call call = call_of(&kernel);
    kvb_attend_spec spec = {.group = &whole};
    const kvb_pool_type *f16 = pool_named("f16");
    kvb_pool *k = pool_fill(f16, K_DIM, NULL, &spec.k), *v = pool_fill(f16, V_DIM, NULL, &spec.v);
    f32_k = f32_v = true;
    const size_t held = KV_HEADS * CELLS * (K_DIM + V_DIM) * sizeof(float);
    for (int again = 0; again < 2; again++) { /* as many rows as before need no more room */
        both_agree(&call, &spec);
        assert_int_equal(call.staged_bytes, held);
    }
    assert_int_equal(f16->ensure(k, CELLS + 9), 0);
    assert_int_equal(f16->ensure(v, CELLS + 9), 0);
    f16->write_run(k, 5, 1, row);
    for (uint32_t c = CELLS; c < CELLS + 9; c++) {
        f16->write_run(k, c, 1, row);
        f16->write_run(v, c, 1, row);
        f16->view(k, c + 1, &spec.k);
        f16->view(v, c + 1, &spec.v);
        both_agree(&call, &spec);
        rows_are_those_of(&call.args.k, &spec.k, 0);
        rows_are_those_of(&call.args.v, &spec.v, 0);
        assert_int_equal(call.staged_bytes, held + held / 4); /* one row more makes room for a quarter more */
    }
    assert_true(*(const float *)kvb_view_row(&call.args.k, 0, 5) == 42);
    kvb_call_free(&call);
    f16->close(k);
    f16->close(v);
}

/* A question about no cells says which sides would be staged. It decodes nothing, so a team that cannot run is enough. */
TEST(a_question_needs_no_team)
{
    static const kvb_team none = {.n = 1};
    static const float q[HEADS * K_DIM];
    kvb_kernel kernel = picky_kernel();
    kvb_call call = call_of(&kernel);
    kvb_attend_spec spec = {.group = &whole};
    const kvb_pool_type *f16 = pool_named("f16");
    kvb_pool *k = pool_fill(f16, K_DIM, NULL, &spec.k), *v = pool_fill(f16, V_DIM, NULL, &spec.v);
    char why[200];
    f16->view(k, 0, &spec.k);
    f16->view(v, 0, &spec.v);
    call.team = &none;
    f32_k = f32_v = true;
    assert_int_equal(kvb_call_prepare(&call, &spec, q, 1, why, sizeof why), 0);
    assert_true(call.staged_k && call.staged_v);
    kvb_call_free(&call);
    f16->close(k);
    f16->close(v);
}

static void refused(kvb_call *call, const kvb_attend_spec *spec, const char *reason)
{
    static const float q[HEADS * K_DIM];
    char why[200] = "";
    assert_int_equal(kvb_call_prepare(call, spec, q, 1, why, sizeof why), -ENOTSUP);
    assert_string_equal(why, reason);
    assert_false(call->staged_k || call->staged_v);
    assert_int_equal(call->staged_bytes, 0);
}

TEST(refusals_say_why)
{
    kvb_kernel kernel = picky_kernel();
    kvb_call call = call_of(&kernel);
    kvb_attend_spec spec = {.group = &whole};
    const kvb_pool_type *f16 = pool_named("f16"), *int8 = pool_named("int8");
    kvb_pool *k = pool_fill(f16, K_DIM, NULL, &spec.k), *v = pool_fill(int8, V_DIM, NULL, &spec.v);
    call.no_staging = true;
    f32_k = f32_v = true;
    refused(&call, &spec, "kernel picky reads no f16 and int8 rows and staging is off; --pool f32 would work");
    f32_v = false;
    refused(&call, &spec, "kernel picky reads no f16 rows and staging is off; --pool k=f32,v=int8 would work");
    f32_k = false, f32_v = true;
    refused(&call, &spec, "kernel picky reads no int8 rows and staging is off; --pool k=f16,v=f32 would work");
    call.no_staging = false;
    spec.group = &staging_capped; /* refused, whatever the format */
    refused(&call, &spec, "not for me");
    call.no_staging = true;
    refused(&call, &spec, "not for me");
    call.no_staging = false;
    spec.group = &whole;
    kernel.flags = KVB_KERNEL_WITNESS; /* rows that a witness cannot read are not staged */
    refused(&call, &spec, "not for me");
    kvb_call_free(&call);
    f16->close(k);
    int8->close(v);
}

/* A call is refused if a side needs staging whose rows no reader decodes; staging the other side would not help. */
TEST(one_side_is_refused)
{
    kvb_kernel kernel = picky_kernel();
    kvb_call call = call_of(&kernel);
    kvb_attend_spec spec = {.group = &whole};
    const kvb_pool_type *f16 = pool_named("f16");
    kvb_pool *k = pool_fill(f16, K_DIM, NULL, &spec.k), *v = pool_fill(f16, V_DIM, NULL, &spec.v);
    kvb_format opaque = *f16->format;
    opaque.read = NULL;
    for (int sides = 1; sides <= 3; sides++) {
        kvb_attend_spec closed = spec;
        closed.k.format = sides & 1 ? &opaque : spec.k.format;
        closed.v.format = sides & 2 ? &opaque : spec.v.format;
        f32_k = f32_v = true;
        refused(&call, &closed, "not for me");
        f32_k = sides & 1, f32_v = sides & 2; /* the other side needs no staging */
        refused(&call, &closed, "not for me");
        f32_k = !(sides & 1), f32_v = !(sides & 2); /* only the other side is staged */
        if (sides < 3) {
            char why[200] = "";
            static const float q[HEADS * K_DIM];
            assert_int_equal(kvb_call_prepare(&call, &closed, q, 1, why, sizeof why), 0);
            assert_true(call.staged_k == f32_k && call.staged_v == f32_v);
            kvb_call_free(&call);
            call = call_of(&kernel);
        }
    }
    kvb_call_free(&call);
    f16->close(k);
    f16->close(v);
}

/* A call takes memory from its own source, and fails whole if there is none. */
static int taken, left;
static size_t held_bytes; /* of all blocks that are not freed */
static const char *names[8];

static void *some_take(const char *name, size_t bytes)
{
    if (taken >= left)
        return NULL;
    names[taken++] = name;
    held_bytes += bytes;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void some_give(void *block, size_t bytes)
{
    held_bytes -= bytes;
    free(block);
}

TEST(memory_is_the_sources)
{
    static const kvb_memory_source source = {.take = some_take, .give = some_give};
    static const float q[HEADS * K_DIM];
    kvb_kernel kernel = picky_kernel();
    kvb_attend_spec spec = {.group = &whole};
    const kvb_pool_type *f16 = pool_named("f16");
    kvb_pool *k = pool_fill(f16, K_DIM, NULL, &spec.k), *v = pool_fill(f16, V_DIM, NULL, &spec.v);
    char why[200] = "";
    f32_k = f32_v = true;
    kernel.masks = KVB_MASK_BIT(KVB_MASK_EXPLICIT);
    for (left = 0; left <= 4; left++) {
        kvb_call call = call_of(&kernel);
        call.source = &source;
        taken = 0;
        assert_int_equal(kvb_call_prepare(&call, &spec, q, 1, why, sizeof why), left < 4 ? -ENOMEM : 0);
        assert_true((held_bytes > 0) == (left > 0));
        for (int again = 0; again < 2; again++) { /* all of it is freed, once */
            kvb_call_free(&call);
            assert_int_equal(held_bytes, 0);
            assert_int_equal(call.staged_bytes + call.expanded_bytes + call.scratch_bytes, 0);
        }
    }
    assert_string_equal(names[0], "mask");
    assert_string_equal(names[2], "staged K rows");
    assert_string_equal(names[3], "staged V rows");
    f16->close(k);
    f16->close(v);
}
