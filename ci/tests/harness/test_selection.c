/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows which combinations a run has: a combination that two parts of a suite have runs once, in the first part, also
 * if their names are different strings; few combinations cover all pairs; every value of a setting meets every part
 * that can take it; and --no-staging refuses pools that none of the chosen kernels reads.
 */
#include "ci/tests/tests.h"
#include "harness/selection/kernel_support.h"
#include "harness/selection/pairs.h"

static kvb_registry registry;
static kvb_workload files[2] = {{.name = "a", .path = "x/a.jsonl"}, {.name = "b", .path = "x/b.jsonl"}};
static const kvb_workloads workloads = {.at = files, .n = 2, .folder = "x"};
static const char *const every[] = {"*", NULL}, *const only_b[] = {"b", NULL}, *const only_seq[] = {"seq", NULL};
static const char *const two_pools[] = {"f16", "q4_0", NULL}, *const one_pool[] = {"f16", NULL};
static char why[1536];

static int setup(void **state)
{
    kvb_registry_init(&registry);
    return 0;
}

static CMFixtureFunction tests_setup = setup;

static void words_of(kvb_words *words, const char **at, size_t n)
{
    *words = (kvb_words){.at = at, .n = n};
}

static void select_part(const kvb_selection_words *words, const kvb_suite_part *part, kvb_selection *selection)
{
    if (kvb_select(words, part, &registry, &workloads, false, selection, why, sizeof why))
        fail_msg("%s", why);
}

TEST(common_combinations_are_run_once)
{
    char own[] = "llama", typed[] = "llama"; /* the same name at two places */
    const char *first_values[] = {"own", own, NULL}, *second_values[] = {"own", typed, NULL};
    kvb_suite_part first = {.workloads = every, .pools = one_pool, .values = first_values};
    kvb_suite_part second = {.workloads = only_b, .caches = only_seq, .pools = two_pools, .values = second_values};
    kvb_selection_words words = {0};
    kvb_selection s[3];
    words_of(&words.kernels, (const char *[]){"reference", "witness"}, 2);
    select_part(&words, &first, &s[0]);
    select_part(&words, &second, &s[1]);
    select_part(&words, &second, &s[2]);
    assert_int_equal(kvb_selection_deal(&s[0], s, 0), 0);
    assert_int_equal(kvb_selection_deal(&s[1], s, 1), 0);
    assert_int_equal(kvb_selection_deal(&s[2], s, 0), 0);
    /* 2 workloads x f16 x every cache: reference over own values and llama, witness once; then b x (f16, q4_0) x seq
     * the same, of which f16 was run */
    assert_int_equal(s[0].n_has, 2 * 3 * registry.n[KVB_CACHES]);
    assert_int_equal(s[2].n_has, 2 * 3);
    assert_int_equal(s[1].n_has, 3);
    for (int i = 0; i < 3; i++) {
        size_t has = 0;
        for (size_t c = 0; c < kvb_matrix_size(&s[i]); c++)
            has += s[i].has[c];
        assert_int_equal(has, s[i].n_has);
        kvb_selection_free(&s[i]);
    }
}

TEST(growths_multiply)
{
    kvb_suite_part part = {.workloads = only_b, .caches = only_seq, .pools = one_pool};
    kvb_selection_words words = {0};
    kvb_selection s;
    words_of(&words.kernels, (const char *[]){"reference"}, 1);
    words_of(&words.growths, (const char *[]){"*"}, 1);
    select_part(&words, &part, &s);
    assert_int_equal(kvb_selection_deal(&s, NULL, 0), 0);
    assert_int_equal(s.n_has, KVB_GROWTHS);
    kvb_selection_free(&s);
}

/* No workload here has layers that scan. */
TEST(kernels_that_only_scan_are_there_when_named)
{
    const kvb_suite_part part = {.workloads = only_b, .caches = only_seq, .pools = one_pool};
    kvb_selection_words words = {0};
    kvb_selection s;
    words_of(&words.kernels, (const char *[]){"reference", "scan-reference"}, 2);
    select_part(&words, &part, &s);
    assert_int_equal(s.n_kernels, 2);
    kvb_selection_free(&s);
    words_of(&words.kernels, (const char *[]){"reference", "scan*"}, 2);
    select_part(&words, &part, &s);
    assert_int_equal(s.n_kernels, 1);
    kvb_selection_free(&s);
}

/* ---- pairs ---- */

#define MOST 2000u

/* All combinations of these sizes. Every `hole`-th cannot run, nor can those with `sick` in the last dimension. */
static size_t field_make(kvb_candidate *at, const uint32_t sizes[KVB_PAIRS_DIMS], unsigned hole, uint32_t sick)
{
    size_t n = 1;
    for (size_t d = 0; d < KVB_PAIRS_DIMS; d++)
        n *= sizes[d];
    assert_true(n <= MOST);
    for (size_t i = 0; i < n; i++) {
        at[i] = (kvb_candidate){.cost = 1};
        for (size_t d = KVB_PAIRS_DIMS, left = i; d-- > 0; left /= sizes[d])
            at[i].at[d] = (uint32_t)(left % sizes[d]);
        if ((hole && i % hole == 0) || at[i].at[KVB_PAIRS_DIMS - 1] == sick)
            at[i].cost = NAN;
    }
    return n;
}

static bool together(const kvb_candidate *a, const kvb_candidate *b, size_t d, size_t e)
{
    return a->at[d] == b->at[d] && a->at[e] == b->at[e];
}

TEST(every_pair_that_can_be_is_chosen)
{
    static const struct {
        uint32_t sizes[KVB_PAIRS_DIMS], sick, most; /* most: twice the larger two dimensions' product */
        unsigned hole;
    } cases[] = {
        {{5, 4, 1, 3, 2}, UINT32_MAX, 40, 0}, {{2, 3, 2, 4, 5}, 1, 40, 2},   {{7, 9, 1, 5, 6}, UINT32_MAX, 126, 0},
        {{7, 9, 1, 5, 6}, 5, 126, 3},         {{1, 1, 1, 1, 1}, 0, 1, 0},    {{1, 1, 1, 6, 1}, UINT32_MAX, 6, 0},
        {{1, 8, 1, 9, 1}, UINT32_MAX, 72, 0}, {{4, 12, 1, 2, 7}, 0, 168, 2}, {{3, 2, 12, 4, 2}, UINT32_MAX, 96, 5},
    };
    static kvb_candidate at[MOST], again[MOST];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        size_t n = field_make(at, cases[c].sizes, cases[c].hole, cases[c].sick), chosen = 0;
        memcpy(again, at, sizeof at);
        assert_int_equal(kvb_pairs_cover(at, n, KVB_PAIRS_ALL, KVB_PAIRS_ALL), 0);
        assert_int_equal(kvb_pairs_cover(again, n, KVB_PAIRS_ALL, KVB_PAIRS_ALL), 0);
        assert_memory_equal(at, again, n * sizeof *at);
        for (size_t i = 0; i < n; i++) {
            chosen += at[i].chosen;
            for (size_t d = 0; d < KVB_PAIRS_DIMS && !isnan(at[i].cost); d++)
                for (size_t e = d + 1; e < KVB_PAIRS_DIMS; e++) {
                    size_t j = 0;
                    while (j < n && !(at[j].chosen && !isnan(at[j].cost) && together(&at[i], &at[j], d, e)))
                        j++;
                    assert_true(j < n);
                }
            for (size_t d = 0; d < KVB_PAIRS_DIMS; d++) { /* every value is chosen, too */
                size_t j = 0;
                while (j < n && !(at[j].chosen && at[j].at[d] == at[i].at[d]))
                    j++;
                assert_true(j < n);
            }
        }
        assert_in_range(chosen, 1, cases[c].most);
    }
}

/* Expensive combinations are chosen only if needed; values of other dimensions are chosen evenly. */
TEST(the_cheap_and_the_rare_are_preferred)
{
    static const uint32_t sizes[KVB_PAIRS_DIMS] = {8, 2, 8, 3, 3};
    static kvb_candidate at[MOST];
    size_t n = field_make(at, sizes, 0, UINT32_MAX), dear = 0, uses[3] = {0};
    for (size_t i = 0; i < n; i++)
        if (at[i].at[0] == 7 && at[i].at[2] == 2)
            at[i].cost = 1000;
    assert_int_equal(kvb_pairs_cover(at, n, KVB_PAIRS_ALL, KVB_PAIRS_ALL), 0);
    for (size_t i = 0; i < n; i++) {
        dear += at[i].chosen && at[i].cost > 1;
        uses[at[i].at[3]] += at[i].chosen;
    }
    assert_int_equal(dear, 1);
    for (size_t k = 0; k < 3; k++)
        assert_in_range(uses[k], 64 / 3 - 3, 64 / 3 + 6);
}

/* Only some dimensions are covered. Combinations chosen before count, and no other dimension is covered. */
TEST(some_dimensions_are_covered_and_no_others)
{
    static const uint32_t sizes[KVB_PAIRS_DIMS] = {4, 2, 30, 3, 2};
    static kvb_candidate at[MOST];
    size_t n = field_make(at, sizes, 0, UINT32_MAX), chosen = 0, earlier = 0;
    bool pools[30] = {false}, met[4][3] = {{false}};
    at[0].chosen = at[n - 1].chosen = true;
    assert_int_equal(kvb_pairs_cover(at, n, KVB_PAIRS_HISTORY | KVB_PAIRS_CACHE, KVB_PAIRS_ALL), 0);
    for (size_t i = 0; i < n; i++) {
        earlier += at[i].chosen;
        met[at[i].at[0]][at[i].at[3]] |= at[i].chosen;
    }
    assert_int_equal(earlier, 4 * 3);
    for (size_t i = 0; i < 12; i++)
        assert_true(met[i / 3][i % 3]);
    assert_int_equal(kvb_pairs_cover(at, n, KVB_PAIRS_POOLS, KVB_PAIRS_ALL), 0);
    for (size_t i = 0; i < n; i++) {
        chosen += at[i].chosen;
        pools[at[i].at[2]] |= at[i].chosen;
    }
    for (size_t i = 0; i < 30; i++)
        assert_true(pools[i]);
    assert_in_range(chosen, 30, 30 + earlier - 2);
}

/* With a hub, each value of the other dimensions meets each of the hub's values; they need not meet one another. */
TEST(what_meets_a_hub_is_few)
{
    static const uint32_t sizes[KVB_PAIRS_DIMS] = {12, 3, 6, 4, 2};
    static kvb_candidate at[MOST];
    size_t n = field_make(at, sizes, 0, UINT32_MAX), chosen = 0;
    assert_int_equal(kvb_pairs_cover(at, n, KVB_PAIRS_ALL, KVB_PAIRS_KERNEL), 0);
    for (size_t i = 0; i < n; i++) {
        chosen += at[i].chosen;
        for (size_t d = 0; d < 4; d++) {
            size_t j = 0;
            while (j < n && !(at[j].chosen && together(&at[i], &at[j], d, 4)))
                j++;
            assert_true(j < n);
        }
    }
    assert_int_equal(chosen, 12 * 2);
}

TEST(pairs_are_usual_where_nothing_is_named)
{
    static const char *const parts[] = {"reference"}, *const best[] = {"best"};
    kvb_words named = {.at = (const char **)(uintptr_t)parts, .n = 1}, fastest = {(const char **)(uintptr_t)best, 1};
    const kvb_suite *quick = kvb_suite_find("quick"), *full = kvb_suite_find("full");
    kvb_selection_words none = {0},
                        with[] = {{.workloads = named}, {.caches = named}, {.pools = named}, {.kernels = named}};
    assert_true(kvb_pairs_usual(quick, false, &none));
    assert_true(kvb_pairs_usual(quick, true, &none));
    assert_true(kvb_pairs_usual(quick, false, &(kvb_selection_words){.threads = named}));
    assert_false(kvb_pairs_usual(full, true, &none));
    assert_false(kvb_pairs_usual(quick, true, &(kvb_selection_words){.kernels = fastest}));
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        assert_false(kvb_pairs_usual(quick, false, &with[i]));
        assert_true(kvb_pairs_usual(quick, true, &with[i]));
    }
}

/* ---- formats that are read without staging ---- */

static bool f32_only(const kvb_problem *p, char *text, size_t bytes)
{
    (void)text, (void)bytes;
    return p->k_format->elem == KVB_F32 && p->v_format->elem == KVB_F32 && !p->k_format->transform;
}

/* Combinations of 3 histories, 4 kernels, 3 caches, 2 pairs of pools. Cache 1 cannot have the second axis, kernel 2 not
 * the third. */
TEST(each_part_meets_each_value_of_a_setting)
{
    enum { SIZES = 4, N = 3 * 4 * 3 * 2 };
    static const uint32_t sizes[SIZES] = {3, 4, 3, 2};
    static kvb_setting_choice choices[2][N];
    kvb_settled list[N];
    for (int again = 0; again < 2; again++) {
        for (uint32_t i = 0; i < N; i++) {
            list[i] = (kvb_settled){.block = i / 12, .allowed = UINT64_MAX, .choice = choices[again][i]};
            const uint32_t number[SIZES] = {i / 24, i % 4, i / 4 % 3, i / 12 % 2};
            memcpy(list[i].parts, number, sizeof number);
            for (size_t v = 1; v <= KVB_SETTING_WORDS; v++)
                list[i].allowed &=
                    ~((number[2] == 1 ? kvb_setting_bit(1, v) : 0) | (number[1] == 2 ? kvb_setting_bit(2, v) : 0));
            for (size_t a = 0; a < KVB_SETTING_AXES; a++)
                for (size_t v = 1; v <= KVB_SETTING_WORDS; v++)
                    if (!kvb_setting_axes[a].words[v - 1])
                        list[i].allowed &= ~kvb_setting_bit(a, v);
        }
        assert_int_equal(kvb_settings_cover(list, N), 0);
    }
    assert_memory_equal(choices[0], choices[1], sizeof choices[0]);
    for (size_t a = 0; a < KVB_SETTING_AXES; a++)
        for (uint8_t v = 1; v <= KVB_SETTING_WORDS && kvb_setting_axes[a].words[v - 1]; v++)
            for (size_t part = 0; part < SIZES; part++)
                for (uint32_t number = 0; number < sizes[part]; number++) {
                    bool met = false, could = false;
                    for (size_t i = 0; i < N; i++) {
                        bool is_this = list[i].parts[part] == number;
                        could |= is_this && list[i].allowed & kvb_setting_bit(a, v);
                        met |= is_this && list[i].choice[a] == v;
                    }
                    assert_int_equal(met, could);
                }
}

/* A block with a dear oracle has one value of each axis that the oracle depends on. */
TEST(dear_oracles_are_shared)
{
    enum { N = 24, EACH = 12 };
    kvb_setting_choice choices[N] = {{0}};
    kvb_settled list[N];
    for (uint32_t i = 0; i < N; i++)
        list[i] = (kvb_settled){.parts = {i / EACH, i % 4, i / 4 % 3, 0},
                                .block = i / EACH,
                                .allowed = UINT64_MAX,
                                .dear = i < EACH,
                                .choice = choices[i]};
    assert_int_equal(kvb_settings_cover(list, N), 0);
    bool differ[2] = {false, false};
    for (uint32_t i = 0; i < N; i++)
        for (size_t a = 0; a < KVB_SETTING_AXES; a++)
            if (kvb_setting_axes[a].traits & KVB_AXIS_TRUTH)
                differ[i / EACH] |= choices[i][a] != choices[i / EACH * EACH][a];
    assert_true(!differ[0] && differ[1]);
}

/* Each word of each axis changes the setting that it names. */
TEST(settings_are_what_their_words_say)
{
    const kvb_setting usual = {.page_cells = 16, .min_chunk = 256};
    for (size_t a = 0; a < KVB_SETTING_AXES; a++)
        for (uint8_t v = 1; v <= KVB_SETTING_WORDS && kvb_setting_axes[a].words[v - 1]; v++) {
            kvb_setting_choice choice = {0};
            char text[128] = "";
            choice[a] = v;
            const kvb_setting set = kvb_setting_apply(&usual, choice);
            assert_memory_not_equal(&set, &usual, sizeof set);
            kvb_setting_words(choice, true, text, sizeof text);
            if (a)
                assert_contains(text, kvb_setting_axes[a].words[v - 1]);
        }
    const kvb_setting same = kvb_setting_apply(&usual, NULL);
    assert_memory_equal(&same, &usual, sizeof same);
}

static int none(const kvb_attend *args)
{
    (void)args;
    return 0;
}

TEST(pools_that_nobody_reads)
{
    static const kvb_kernel plain = {
        .name = "plain", .attend = none, .masks = KVB_MASK_BIT(KVB_MASK_NONE), .supports = f32_only};
    kvb_suite_part part = {.workloads = only_b, .caches = only_seq, .pools = two_pools};
    kvb_selection_words words = {0};
    kvb_selection s;
    words_of(&words.kernels, (const char *[]){"reference"}, 1);
    select_part(&words, &part, &s);
    assert_int_equal(kvb_native_check(&s, &registry, why, sizeof why), 0);
    s.kernels[0] = &plain;
    assert_int_equal(kvb_native_check(&s, &registry, why, sizeof why), -EINVAL);
    assert_contains(why, "no selected kernel reads pool k=f16,v=f16; kernels that do: reference, openblas");
    assert_contains(why, "pools that the selected kernels read: f32");
    kvb_selection_free(&s);
}
