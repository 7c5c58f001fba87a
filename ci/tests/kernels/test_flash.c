/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the vector kernels compute attention at every level of instruction sets that this CPU has: every length, head
 * ratio, dim and number of tokens around a block's and a tile's borders, scattered and empty splits, logits of any
 * size.
 */
#include "ci/tests/kernels/fixture.h"
#include "ci/tests/kernels/levels.h"
#include "kernels/kernels.h"
#include "kernels/prefetch.h"

static const kvb_kernel *const kernels[] = {&kvb_kernel_reference, &kvb_kernel_flash, &kvb_kernel_flash_bf16,
                                            &kvb_kernel_flash_f16};
#define N_KERNELS (sizeof kernels / sizeof *kernels)
static kvb_cpu_level levels[KVB_CPU_LEVELS];
static uint32_t n_levels;

static const struct shape plain = {
    .n_tok = 2, .n_kv_heads = 1, .group = 2, .k_dim = 32, .v_dim = 16, .n_cells = 70, .threads = 1, .seed = 1};

/* ---- one problem, every kernel at every level ---- */

/* The loops that a kernel is made of. It is tried at levels that have such of their own; without any, at the lowest. */
static size_t loops_of(const kvb_kernel *kernel)
{
    return kernel == &kvb_kernel_flash_bf16  ? offsetof(kvb_loops, bf16)
           : kernel == &kvb_kernel_flash_f16 ? offsetof(kvb_loops, f16)
                                             : offsetof(kvb_loops, vector);
}

static bool fits(const struct fixture *f, const kvb_kernel *kernel)
{
    char why[160];
    if (kernel->flags & KVB_KERNEL_VECTOR ? !kvb_loops_own(kvb_cpu(), loops_of(kernel)) : kvb_cpu() != KVB_CPU_PORTABLE)
        return false;
    bool takes = kernel->supports(&f->args.problem, why, sizeof why);
    assert_true(takes || loops_of(kernel) != offsetof(kvb_loops, vector)); /* the others take few types of elements */
    return takes;
}

typedef void judge(struct fixture *f, const kvb_kernel *kernel, const struct shape *s);

static void attend_judge(struct fixture *f, const kvb_kernel *kernel, const struct shape *s)
{
    char note[96];
    fixture_attend(f, kernel);
    snprintf(note, sizeof note, "%s, seed %llu mask %d", kvb_cpu_level_names[kvb_cpu()], (unsigned long long)s->seed,
             (int)s->mask);
    if (!f->answer.rows)
        answer_solve(&f->answer, &f->args, f->visible);
    answer_judge(&f->answer, &f->args, kernel, note);
}

static void fixture_check(struct fixture *f, const struct shape *s, judge *by)
{
    for (size_t k = 0; k < N_KERNELS; k++)
        for (uint32_t l = 0; l < n_levels && kernels[k]->masks & KVB_MASK_BIT(s->mask); l++) {
            kvb_cpu_limit(levels[l]);
            assert_int_equal(kvb_cpu(), levels[l]);
            if (fits(f, kernels[k]))
                by(f, kernels[k], s);
        }
    kvb_cpu_limit(KVB_CPU_LEVELS - 1);
}

static void check_as_it_is(const struct shape *s)
{
    struct fixture f;
    fixture_build(&f, s);
    fixture_check(&f, s, attend_judge);
    fixture_free(&f);
}

/* And where it is of f32, with the rows of those kernels that take no f32. */
static void check(const struct shape *s)
{
    static const kvb_elem others[] = {KVB_BF16, KVB_E4M3, KVB_F16};
    struct shape narrow = *s;
    check_as_it_is(s);
    for (size_t i = 0; i < 3 && s->k_elem == KVB_F32 && s->v_elem == KVB_F32; i++) {
        struct fixture f;
        narrow.k_elem = narrow.v_elem = others[i];
        fixture_build(&f, &narrow);
        for (uint32_t l = 0; l < n_levels; l++) {
            kvb_cpu_limit(levels[l]);
            for (size_t k = 0; k < N_KERNELS; k++)
                if (loops_of(kernels[k]) != offsetof(kvb_loops, vector) && fits(&f, kernels[k]))
                    attend_judge(&f, kernels[k], &narrow);
        }
        kvb_cpu_limit(KVB_CPU_LEVELS - 1);
        fixture_free(&f);
    }
}

/* ---- lengths, tokens, heads, dims ---- */

/* Every remainder of a block of 64 and of any width of vector. */
static void lengths_hold(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 130; n++)
        for (int mask = 0; mask < KVB_MASK_KINDS; mask++)
            for (uint32_t n_tok = 1; n_tok <= 3 && n_tok <= n; n_tok += 2) {
                struct shape s = plain;
                s.mask = (kvb_mask_kind)mask;
                s.n_cells = n;
                s.n_tok = n_tok;
                s.empty = 5;
                s.seed = n * 100 + (uint32_t)mask * 10 + n_tok;
                check(&s);
            }
}

/* Blocks that are seen whole go by turns, of fewer cells for few narrow rows: what turns leave over, too. */
static void whole_blocks_hold(const kvb_prefetch *prefetch)
{
    kvb_prefetch_set(prefetch);
    for (uint32_t n = 128; n <= 64 * 7; n += 32)
        for (uint32_t group = 1; group <= 7; group += 2)
            for (uint32_t elem = 0; elem < TEST_ELEMS; elem++) {
                struct shape s = plain;
                s.mask = (kvb_mask_kind)(n / 32 % KVB_MASK_KINDS);
                s.n_cells = n;
                s.n_tok = 1;
                s.group = group;
                s.k_elem = s.v_elem = test_elems[elem];
                s.k_dim = n % 64 ? plain.k_dim : 1; /* rows of few bytes: long runs of cells */
                s.seed = 10000 + n * 20 + group * 4 + elem;
                check(&s);
            }
    kvb_prefetch_set(NULL);
}
static void whole_blocks_of_many_places_hold(void **state)
{
    (void)state;
    whole_blocks_hold(&kvb_prefetch_intel);
}
static void whole_blocks_of_one_place_hold(void **state)
{
    (void)state;
    whole_blocks_hold(&kvb_prefetch_amd);
}

static void token_counts_hold(void **state)
{
    static const uint32_t n_tok[] = {1, 2, 7, 26, 63, 64, 65, 130};
    (void)state;
    for (size_t i = 0; i < sizeof n_tok / sizeof *n_tok; i++)
        for (int mask = 0; mask < KVB_MASK_KINDS; mask++)
            for (uint32_t more = 0; more <= 70; more += 70) {
                struct shape s = plain;
                s.mask = (kvb_mask_kind)mask;
                s.n_tok = n_tok[i];
                s.n_cells = n_tok[i] + more;
                s.group = 3;
                s.k_dim = 16;
                s.empty = 4;
                s.seed = 20000 + i * 100 + (uint32_t)mask * 10 + more;
                check(&s);
            }
}

static void head_ratios_hold(void **state)
{
    (void)state;
    for (uint32_t group = 1; group <= 8; group++)
        for (uint32_t heads = 1; heads <= 5; heads += 2)
            for (uint32_t n_tok = 1; n_tok <= 9; n_tok += 4) {
                struct shape s = plain;
                s.group = group;
                s.n_kv_heads = heads;
                s.n_tok = n_tok;
                s.mask = (kvb_mask_kind)((group + heads + n_tok) % KVB_MASK_KINDS);
                s.seed = 30000 + group * 100 + heads * 10 + n_tok;
                check(&s);
            }
}

static void dims_hold(void **state)
{
    static const uint32_t dims[][2] = {{64, 64},  {80, 80}, {96, 96}, {128, 128}, {192, 192}, {256, 256},
                                       {1, 1},    {20, 20}, {33, 33}, {72, 72},   {192, 128}, {64, 128},
                                       {128, 64}, {33, 80}, {1, 20},  {20, 1},    {72, 33}};
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (uint32_t elem = 0; elem < TEST_ELEMS; elem++)
            for (uint32_t n_tok = 1; n_tok <= 5; n_tok += 4) {
                struct shape s = plain;
                s.k_dim = dims[i][0];
                s.v_dim = dims[i][1];
                s.k_elem = test_elems[elem];
                s.v_elem = test_elems[(elem + i) % TEST_ELEMS];
                s.n_tok = n_tok;
                s.mask = n_tok == 1 ? KVB_MASK_NONE : KVB_MASK_EXPLICIT;
                s.seed = 40000 + i * 100 + elem * 10 + n_tok;
                check(&s);
            }
}

/* One latent row for all heads, V the first part of it. */
static void latent_rows_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4 * TEST_ELEMS; i++) {
        struct shape s = plain;
        s.group = i / 2 % 2 ? 4 : 16; /* read in registers, or packed */
        s.k_dim = 576;
        s.v_dim = i / 2 % 2 ? 80 : 512;
        s.v_in_k = true;
        s.n_tok = i % 2 ? 3 : 1;
        s.n_cells = 130;
        s.k_elem = test_elems[i / 4];
        s.mask = i % 2 ? KVB_MASK_CAUSAL : KVB_MASK_RUNS;
        s.seed = 50000 + i;
        check(&s);
    }
}

/* ---- where cells lie ---- */

static void scattered_cells_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 12; i++) {
        struct shape s = plain;
        s.mask = i % 2 ? KVB_MASK_EXPLICIT : KVB_MASK_RUNS;
        s.scatter = SCATTER_SINGLES;
        s.n_tok = (uint32_t[]){1, 4, 70}[i / 2 % 3];
        s.n_cells = i < 6 ? 65 : 200;
        s.seed = 60000 + i;
        check(&s);
    }
}

/* Runs as a cache hands them out that fills cells as they become free: cells of one block come in several runs. */
static void runs_in_any_order_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 48; i++) {
        struct shape s = plain;
        s.mask = KVB_MASK_RUNS;
        s.any_order = true;
        s.scatter = (enum scatter)(i % 3);
        s.n_tok = (uint32_t[]){1, 3, 12, 70}[i / 3 % 4];
        s.n_cells = 30 + 41 * i;
        s.empty = 5;
        s.threads = 1 + i % TEAM_MAX;
        s.deterministic = i % 2;
        s.seed = 60500 + i;
        check(&s);
    }
}

/* Most blocks of 64 are hidden from all queries, some from some; with `empty` whole queries are blind. */
static void empty_splits_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 12; i++) {
        struct shape s = plain;
        s.mask = i % 2 ? KVB_MASK_EXPLICIT : KVB_MASK_RUNS;
        s.scatter = SCATTER_BLOCKS;
        s.n_tok = (uint32_t[]){1, 5, 34}[i / 2 % 3];
        s.n_cells = 3000;
        s.n_kv_heads = 2;
        s.k_dim = 16;
        s.empty = i < 6 ? 0 : 2;
        s.threads = 1 + i % TEAM_MAX;
        s.seed = 61000 + i;
        check(&s);
    }
}

static void blind_queries_are_zero(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 16; i++) {
        struct shape s = plain;
        struct fixture f;
        s.mask = i % 2 ? KVB_MASK_EXPLICIT : KVB_MASK_RUNS;
        s.empty = 1;
        s.sinks = i / 2 % 2;
        s.n_tok = i / 4 % 2 ? 1 : 70;
        s.n_cells = i < 8 ? 70 : 0;
        s.seed = 62000 + i;
        fixture_build(&f, &s);
        fixture_check(&f, &s, attend_judge);
        for (size_t c = 0; c < (size_t)s.n_tok * s.group * s.v_dim; c++)
            assert_true(((float *)f.out)[c] == 0.0f && !signbit(((float *)f.out)[c]));
        for (size_t r = 0; r < (size_t)s.n_tok * s.group; r++)
            assert_true(s.sinks ? f.lse[r] == f.sinks[r % s.group] : f.lse[r] == -INFINITY);
        fixture_free(&f);
    }
}

/* Block tables, V inside the K row, gaps between rows, formats. */
static void layouts_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 64; i++) {
        struct shape s = plain;
        s.v_in_k = i / 2 % 2;
        s.gap = i / 4 % 2 ? 4 : 0;
        s.k_elem = test_elems[i / 8 % TEST_ELEMS];
        s.v_elem = test_elems[i / 3 % TEST_ELEMS];
        s.n_tok = i < 32 ? 1 : 6;
        s.n_kv_heads = 3;
        s.mask = (kvb_mask_kind)(i / 5 % KVB_MASK_KINDS);
        s.seed = 63000 + i;
        check(&s);
    }
}

/* ---- logits ---- */

/* All keys of a fixture of f32 or f16 share a large part: logits are about base + slope * cell. NaN stays NaN. */
static void logits_shift(struct fixture *f, double base, double slope)
{
    const kvb_problem *p = &f->args.problem;
    for (size_t i = 0; i < (size_t)p->n_tok * p->n_heads * p->k_dim; i++)
        f->q[i] = (i % p->k_dim % 3 ? 1.0f : -1.0f) + f->q[i] / 128;
    for (uint32_t h = 0; h < p->n_kv_heads; h++)
        for (uint32_t c = 0; c < p->n_cells; c++) {
            kvb_elem elem = p->k_format->elem;
            double part = (base + slope * c) / ((double)p->scale * p->k_dim);
            for (uint32_t d = 0; d < p->k_dim; d++) {
                char *key = (char *)f->k + (((size_t)h * p->n_cells + c) * p->k_dim + d) * elem_bytes(elem);
                elem_store(elem, key, (float)(elem_value(elem, key) + (d % 3 ? part : -part)));
            }
        }
}

/* Large, the same for all cells; rising and falling by up to 800 along the cells, so that maxima change often. */
static void logits_of_any_size_hold(void **state)
{
    static const double bases[][2] = {{1e4, 0}, {-1e4, 0}, {0, 4}, {0, -4}, {-300, 0.5}, {300, -0.5}};
    (void)state;
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        for (uint32_t way = 0; way < 16; way++) {
            struct shape s = plain;
            struct fixture f;
            s.k_dim = 64;
            s.k_elem = s.v_elem = way < 8 ? KVB_F32 : KVB_F16;
            s.n_cells = 200;
            s.n_tok = way % 2 ? 66 : 1;
            s.mask = (kvb_mask_kind)(way / 2 % 4);
            s.seed = 70000 + i * 20 + way;
            fixture_build(&f, &s);
            logits_shift(&f, bases[i][0], bases[i][1]);
            fixture_check(&f, &s, attend_judge);
            fixture_free(&f);
        }
}

/* Which cell is the largest is then lost in rounding, but some cell is: the log-sum-exp is that of the logits. */
static void huge_judge(struct fixture *f, const kvb_kernel *kernel, const struct shape *s)
{
    const size_t rows = (size_t)s->n_tok * s->group;
    fixture_attend(f, kernel);
    for (size_t r = 0; r < rows; r++)
        if (!(fabs(fabs((double)f->args.lse[r]) - 1e18) < 1e16))
            fail_msg("%s, %s: lse[%zu] = %g", kernel->name, kvb_cpu_level_names[kvb_cpu()], r, (double)f->args.lse[r]);
    for (size_t i = 0; i < rows * s->v_dim; i++)
        assert_true(isfinite(((const float *)f->args.out)[i]));
}

/* Logits far above where floats are whole numbers. */
static void huge_logits_hold(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 8; way++) {
        struct shape s = plain;
        struct fixture f;
        s.k_dim = 64;
        s.n_cells = 200;
        s.n_tok = way % 2 ? 66 : 1;
        s.mask = way / 2 % 2 ? KVB_MASK_CAUSAL : KVB_MASK_NONE;
        s.seed = 72000 + way;
        fixture_build(&f, &s);
        logits_shift(&f, way / 4 ? 1e18 : -1e18, 0);
        fixture_check(&f, &s, huge_judge);
        fixture_free(&f);
    }
}

/* Elements near f16's largest, and below its normal numbers, of V, or of K for logits of any size: sums of f16 pass
 * their range. */
static void values_of_any_size_hold(void **state)
{
    static const float sizes[] = {30000, 1e-3f, 1e-6f};
    (void)state;
    for (uint32_t i = 0; i < 24; i++) {
        struct shape s = plain;
        struct fixture f;
        s.k_elem = s.v_elem = KVB_F16;
        s.k_dim = s.v_dim = 48;
        s.group = i % 2 ? 5 : 1;
        s.mask = (kvb_mask_kind)(i / 2 % 4);
        s.seed = 75000 + i;
        fixture_build(&f, &s);
        for (size_t at = 0; i % 4 < 2 && at < (size_t)s.n_tok * s.group * s.k_dim; at++)
            f.q[at] /= sizes[i / 8];
        for (size_t at = 0; at < (size_t)s.n_cells * s.k_dim; at++) {
            uint16_t *x = (uint16_t *)(i % 4 < 2 ? f.k : f.v) + at;
            elem_store(KVB_F16, x, sizes[i / 8] / 2 * (float)elem_value(KVB_F16, x));
        }
        fixture_check(&f, &s, attend_judge);
        fixture_free(&f);
    }
}

/* Softcap, and sinks among the logits, -infinite, above and far above all logits; blind queries too. */
static void softcap_and_sinks_hold(void **state)
{
    static const float sinks[] = {0, -INFINITY, 40, 300};
    (void)state;
    for (uint32_t i = 0; i < 64; i++) {
        struct shape s = plain;
        struct fixture f;
        uint32_t kind = i / 4 % 4;
        s.sinks = i % 2 || kind > 0;
        s.softcap = i / 2 % 2 ? 1.5f : 0;
        s.n_tok = i / 16 % 2 ? 9 : 1;
        s.mask = i / 32 ? KVB_MASK_CAUSAL : KVB_MASK_EXPLICIT;
        s.n_kv_heads = 2;
        s.empty = 2;
        s.seed = 71000 + i;
        fixture_build(&f, &s);
        for (uint32_t h = 0; h < 4 && kind; h++)
            f.sinks[h] = h == 3 ? f.sinks[h] : sinks[kind] + f.sinks[h];
        fixture_check(&f, &s, attend_judge);
        fixture_free(&f);
    }
}

/* ---- what is written ---- */

static void out_types_hold(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 18; i++) {
        struct shape s = plain;
        s.out_elem = (kvb_elem)(i % 3);
        s.n_tok = i / 3 % 2 ? 65 : 1;
        s.v_dim = (uint32_t[]){16, 20, 33}[i / 6];
        s.mask = KVB_MASK_CAUSAL;
        s.seed = 80000 + i;
        check(&s);
    }
}

static void no_lse_is_fine(void **state)
{
    (void)state;
    for (uint32_t n_tok = 1; n_tok <= 65; n_tok += 64) {
        struct shape s = plain;
        struct fixture f;
        s.n_tok = n_tok;
        s.seed = 81000 + n_tok;
        fixture_build(&f, &s);
        memset(f.lse, 0x5a, sizeof *f.lse);
        f.args.lse = NULL;
        fixture_check(&f, &s, attend_judge);
        assert_int_equal(*(unsigned char *)f.lse, 0x5a);
        fixture_free(&f);
    }
}

/* ---- teams ---- */

/* Fewer heads than threads, many cells; fewer cells than threads; many tokens; many heads. */
static void teams_agree(void **state)
{
    static const struct shape shapes[] = {
        {.n_tok = 1, .n_kv_heads = 1, .group = 4, .n_cells = 2500},
        {.n_tok = 1, .n_kv_heads = 3, .group = 1, .n_cells = 700, .mask = KVB_MASK_RUNS, .scatter = SCATTER_BLOCKS},
        {.n_tok = 1, .n_kv_heads = 1, .group = 1, .n_cells = 2},
        {.n_tok = 26, .n_kv_heads = 1, .group = 5, .n_cells = 300, .mask = KVB_MASK_EXPLICIT, .empty = 3},
        {.n_tok = 130, .n_kv_heads = 2, .group = 2, .n_cells = 140, .mask = KVB_MASK_CAUSAL},
        {.n_tok = 3, .n_kv_heads = 7, .group = 3, .n_cells = 90, .mask = KVB_MASK_CAUSAL},
    };
    (void)state;
    for (uint32_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        struct shape s = shapes[i / 2];
        struct fixture f;
        s.k_dim = 32;
        s.v_dim = 16;
        s.k_elem = s.v_elem = KVB_F16;
        s.sinks = i / 2 % 2;
        s.deterministic = i % 2;
        s.threads = 1;
        s.seed = 90000 + i;
        fixture_build(&f, &s);
        fixture_check(&f, &s, teams_judge);
        fixture_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_hold),
        cmocka_unit_test(whole_blocks_of_many_places_hold),
        cmocka_unit_test(whole_blocks_of_one_place_hold),
        cmocka_unit_test(token_counts_hold),
        cmocka_unit_test(head_ratios_hold),
        cmocka_unit_test(dims_hold),
        cmocka_unit_test(latent_rows_hold),
        cmocka_unit_test(scattered_cells_hold),
        cmocka_unit_test(runs_in_any_order_hold),
        cmocka_unit_test(empty_splits_hold),
        cmocka_unit_test(blind_queries_are_zero),
        cmocka_unit_test(layouts_hold),
        cmocka_unit_test(logits_of_any_size_hold),
        cmocka_unit_test(huge_logits_hold),
        cmocka_unit_test(values_of_any_size_hold),
        cmocka_unit_test(softcap_and_sinks_hold),
        cmocka_unit_test(out_types_hold),
        cmocka_unit_test(no_lse_is_fine),
        cmocka_unit_test(teams_agree),
    };
    for (int l = 0; l < KVB_CPU_LEVELS; l++)
        if (level_tried((kvb_cpu_level)l))
            levels[n_levels++] = (kvb_cpu_level)l;
    return cmocka_run_group_tests_name("flash", tests, NULL, NULL);
}
