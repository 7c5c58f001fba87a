/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: calls are chosen so that every two values which a call can have meet in one; points are written and read back;
 * a wrong kernel is found by single calls and shrunk to the values that its mistake needs, and to no other; a crash and
 * a hang, too. Calls that zeros answer count for no other axis.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/calls/attend_axes.h"
#include "harness/calls/calls.h"
#include "kernels/kernels.h"

/* ---- the choice -------------------------------------------------------------------------------------------------- */

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const kvb_call_axis small_axes[] = {{"a", "", WORDS("0", "1", "2", "3", "4")},
                                           {"b", "", WORDS("0", "1", "2")},
                                           {"c", "", WORDS("0", "1", "2", "3")},
                                           {"d", "", WORDS("0", "1")}};
static const kvb_space small = {"small", small_axes, 4, NULL};

/* c = 3 needs d = 1, and never goes with a = 4; b = 2 is no call's. */
static bool small_fits(const void *ctx, const kvb_point *p)
{
    (void)ctx;
    return (p->at[2] != 3 || (p->at[3] == 1 && p->at[0] != 4)) && p->at[1] != 2;
}

static double small_cost(const void *ctx, const kvb_point *p)
{
    (void)ctx;
    return 1e6 * (1 + p->at[0]);
}

static const kvb_point_rules small_rules = {small_fits, small_cost, NULL, NULL};

/* Do these two values meet in one of the first n points? */
static bool meet(const kvb_point_cover *cover, size_t n, uint32_t a, uint32_t i, uint32_t b, uint32_t j)
{
    for (size_t p = 0; p < n; p++)
        if (cover->points[p].at[a] == i && cover->points[p].at[b] == j)
            return true;
    return false;
}

static void pairs_meet(void **state)
{
    kvb_point_cover cover, again, few;
    uint64_t pairs = 0;
    (void)state;
    assert_int_equal(kvb_points_choose(&small, &small_rules, 1, 0, false, &cover), 0);
    for (uint32_t a = 0; a < 4; a++)
        for (uint32_t i = 0; i < kvb_axis_values(&small_axes[a]); i++)
            for (uint32_t b = a + 1; b < 4; b++)
                for (uint32_t j = 0; j < kvb_axis_values(&small_axes[b]); j++) {
                    const bool never = (a == 1 && i == 2) || (b == 1 && j == 2) ||
                                       (a == 0 && i == 4 && b == 2 && j == 3) || (a == 2 && i == 3 && b == 3 && j == 0);
                    assert_int_equal(meet(&cover, cover.n, a, i, b, j), !never);
                    pairs += !never;
                }
    for (size_t p = 0; p < cover.n; p++)
        assert_true(small_fits(NULL, &cover.points[p]));
    assert_int_equal(cover.pairs, pairs);
    assert_int_equal(cover.pairs_of, pairs);
    assert_int_equal(cover.values_of, 5 + 2 + 4 + 2);
    assert_int_equal(cover.state[1][2], 0);
    assert_true(cover.n >= 19 && cover.n < 40); /* 5 x 4 pairs but one need as many */

    assert_int_equal(kvb_points_choose(&small, &small_rules, 1, 0, false, &again), 0);
    assert_int_equal(again.n, cover.n);
    assert_memory_equal(again.points, cover.points, cover.n * sizeof *cover.points);

    assert_int_equal(kvb_points_choose(&small, &small_rules, 1, 7, false, &few), 0);
    assert_int_equal(few.n, 7);
    assert_int_equal(few.values, few.values_of);
    assert_int_equal(few.pairs_of, pairs);
    assert_true(few.pairs < pairs);
    free(cover.points);
    free(again.points);
    free(few.points);
}

/* c = 2 makes zeros right. */
static uint32_t small_mutes(const void *ctx, const kvb_point *p)
{
    (void)ctx;
    return p->at[2] == 2 ? 1u << 2 : 0;
}

/* What meets only where zeros are right has not met. */
static void mute_calls_cover_nothing_else(void **state)
{
    const kvb_point_rules rules = {small_fits, small_cost, small_mutes, NULL};
    kvb_point_cover cover;
    (void)state;
    assert_int_equal(kvb_points_choose(&small, &rules, 1, 0, false, &cover), 0);
    size_t loud = 0;
    for (size_t p = 0; p < cover.n; p++)
        if (cover.points[p].at[2] != 2)
            cover.points[loud++] = cover.points[p];
    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t j = 0; j < 2; j++)
            assert_true(meet(&cover, loud, 0, i, 1, j) && meet(&cover, loud, 0, i, 3, j));
    assert_true(loud < cover.n);
    assert_int_equal(cover.pairs, cover.pairs_of);
    free(cover.points);
}

static void draws_fit(void **state)
{
    uint64_t rng = 3, of[4][5] = {{0}};
    (void)state;
    for (int i = 0; i < 2000; i++) {
        kvb_point p;
        assert_true(kvb_point_draw(&small, &small_rules, &rng, &p));
        assert_true(small_fits(NULL, &p));
        for (uint32_t a = 0; a < 4; a++)
            of[a][p.at[a]]++;
    }
    for (uint32_t a = 0; a < 4; a++)
        for (uint32_t i = 0; i < kvb_axis_values(&small_axes[a]); i++)
            assert_int_equal(of[a][i] > 0, a != 1 || i != 2);
}

static void words_of_points(void **state)
{
    kvb_point p, back;
    char text[KVB_CALL_TEXT], why[256];
    (void)state;
    assert_int_equal(kvb_point_parse(&small, "c=3,a=2", &p, why, sizeof why), 0);
    assert_true(p.at[0] == 2 && p.at[1] == 0 && p.at[2] == 3 && p.at[3] == 0);
    kvb_point_text(&small, &p, text);
    assert_string_equal(text, "a=2,c=3");
    assert_int_equal(kvb_point_parse(&small, text, &back, why, sizeof why), 0);
    assert_memory_equal(&p, &back, sizeof p);
    assert_int_equal(kvb_point_parse(&small, "", &p, why, sizeof why), 0);
    assert_true(kvb_point_key(&small, &p, 1) != kvb_point_key(&small, &back, 1));
    assert_true(kvb_point_key(&small, &p, 1) != kvb_point_key(&small, &p, 2));
    assert_true(kvb_point_parse(&small, "e=1", &p, why, sizeof why) < 0 && strstr(why, "'e'"));
    assert_true(kvb_point_parse(&small, "a=9", &p, why, sizeof why) < 0 && strstr(why, "0, 1, 2, 3, 4"));
    assert_true(kvb_point_parse(&small, "a", &p, why, sizeof why) < 0 && strstr(why, "AXIS=VALUE"));
}

/* ---- wrong kernels ----------------------------------------------------------------------------------------------- */

static bool (*is_wrong_at)(const kvb_attend *x);
static void (*goes_wrong)(const kvb_attend *x);

static int attend(const kvb_attend *x)
{
    const int error = kvb_kernel_reference.attend(x);
    if (is_wrong_at(x))
        goes_wrong(x);
    return error;
}

static void first_cleared(const kvb_attend *x)
{
    memset(x->out, 0, 4);
}

static void crash(const kvb_attend *x)
{
    (void)x;
    raise(SIGSEGV);
}

static void hang(const kvb_attend *x)
{
    (void)x;
    for (;;)
        pause();
}

/* What single calls say of the reference kernel with this mistake. */
static kvb_result judge_by(const kvb_calls_options *options, bool (*at)(const kvb_attend *x),
                           void (*wrong)(const kvb_attend *x))
{
    static kvb_attend_space space;
    static kvb_registry registry;
    char why[512] = "";
    kvb_kernel kernel = kvb_kernel_reference;
    kvb_result result;
    kernel.attend = attend;
    is_wrong_at = at;
    goes_wrong = wrong;
    kvb_registry_init(&registry);
    kvb_attend_space_make(&registry, &space);
    kvb_result_init(&result);
    const kvb_call_subject subject = kvb_attend_subject(&space, &kernel);
    assert_int_equal(kvb_calls_judge(options, &subject, &result, why, sizeof why), 0);
    return result;
}

static kvb_result judge(bool (*at)(const kvb_attend *x), void (*wrong)(const kvb_attend *x), double seconds)
{
    const kvb_calls_options options = {.most = 150, .seconds = seconds, .jobs = 2, .command = "again"};
    return judge_by(&options, at, wrong);
}

static bool never(const kvb_attend *x)
{
    (void)x;
    return false;
}

static bool at_dim_80_with_softcap(const kvb_attend *x)
{
    return x->problem.k_dim == 80 && x->problem.softcap > 0;
}

static bool at_40_cells(const kvb_attend *x)
{
    return x->problem.n_cells >= 40 && x->problem.n_tok >= 3;
}

static bool at_three_heads(const kvb_attend *x)
{
    return x->problem.n_kv_heads == 3;
}

static void honest_passes(void **state)
{
    (void)state;
    const kvb_result r = judge(never, first_cleared, 60);
    assert_int_equal(r.status, KVB_STATUS_PASS);
    assert_true(r.axes.calls == 150 && r.axes.wrong == 0 && r.axes.pairs > r.axes.pairs_of / 3);
    assert_true(r.error.checked_rows > 1000);
}

static void shrinks_to_what_it_needs(void **state)
{
    (void)state;
    kvb_result r = judge(at_three_heads, first_cleared, 60);
    assert_int_equal(r.status, KVB_STATUS_FAIL);
    assert_int_equal(r.check, KVB_CHECK_BOUND);
    assert_string_equal(r.replay, "again --call 'kv_heads=3'");
    r = judge(at_40_cells, first_cleared, 60);
    assert_string_equal(r.replay, "again --call 'tokens=3,cells=63'");
    assert_non_null(strstr(r.reason, "out of query 0, head 0, channel 0 is 0"));
}

static void two_values_together(void **state)
{
    (void)state;
    const kvb_result r = judge(at_dim_80_with_softcap, first_cleared, 60);
    if (r.status == KVB_STATUS_PASS)
        return; /* so few calls do not hold every pair */
    assert_string_equal(r.replay, "again --call 'head_dim=80,softcap=30'");
}

static void crashes_are_told(void **state)
{
    (void)state;
    const kvb_result r = judge(at_three_heads, crash, 60);
    assert_int_equal(r.status, KVB_STATUS_CRASH);
    assert_string_equal(r.replay, "again --call 'kv_heads=3'");
    assert_non_null(strstr(r.reason, "SIGSEGV"));
}

static void hangs_are_told(void **state)
{
    (void)state;
    const kvb_result r = judge(at_three_heads, hang, 1);
    assert_int_equal(r.status, KVB_STATUS_TIMEOUT);
    assert_non_null(strstr(r.reason, "no end within"));
    assert_non_null(strstr(r.reason, "the rest is left out after three"));
}

/* ---- where zeros are right --------------------------------------------------------------------------------------- */

/* The axes that are mute at a call, and whether outputs of 0 pass for all of its rows that are judged. */
static void zeros_are_right_where_axes_are_mute(void **state)
{
    const uint32_t blind = 1u << KVB_AT_BLIND, values = 1u << KVB_AT_VALUES, sinks = 1u << KVB_AT_SINKS;
    const struct {
        const char *call;
        uint32_t mutes;
        bool silent;
    } calls[] = {
        {"head_dim=64", 0, false},
        {"mask=explicit,blind=first", blind, true},
        {"mask=runs,blind=last", blind, true},
        {"mask=pages,blind=some", blind, true},
        {"tokens=2,mask=explicit,blind=first", 0, false},
        {"tokens=2,mask=explicit,blind=last", 0, false},
        {"tokens=9,mask=explicit,blind=some", 0, false},
        {"values=subnormal", 0, false},
        {"values=subnormal,k=bf16", 0, false},
        {"values=subnormal,out=bf16", 0, false},
        {"values=subnormal,k=f16,v=f32", 0, false},
        {"values=subnormal,k=f16", values, true},
        {"values=subnormal,v=q8_0", values, true},
        {"values=subnormal,out=f16,tokens=9,cells=33", values, true},
        {"mask=explicit,blind=first,values=subnormal,v=f16", blind | values, true},
        {"values=far-below", 0, false},
        {"values=far-below,sinks=1", values | sinks, true},
        {"values=far-below,sinks=60", values | sinks, true},
        {"sinks=1", 0, false},
    };
    static kvb_attend_space space;
    static kvb_registry registry;
    (void)state;
    kvb_registry_init(&registry);
    kvb_attend_space_make(&registry, &space);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        kvb_point p;
        char why[256];
        assert_int_equal(kvb_point_parse(&space.space, calls[i].call, &p, why, sizeof why), 0);
        assert_int_equal(kvb_attend_mutes(&space, &p), calls[i].mutes);
        const kvb_calls_options options = {.call = calls[i].call, .seconds = 60, .command = ""};
        const kvb_result r = judge_by(&options, never, first_cleared);
        assert_true(r.status == KVB_STATUS_PASS && r.axes.calls == 1);
        assert_int_equal(r.axes.silent, calls[i].silent);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_meet),          cmocka_unit_test(mute_calls_cover_nothing_else),
        cmocka_unit_test(draws_fit),           cmocka_unit_test(words_of_points),
        cmocka_unit_test(honest_passes),       cmocka_unit_test(shrinks_to_what_it_needs),
        cmocka_unit_test(two_values_together), cmocka_unit_test(crashes_are_told),
        cmocka_unit_test(hangs_are_told),      cmocka_unit_test(zeros_are_right_where_axes_are_mute),
    };
    return cmocka_run_group_tests_name("single calls", tests, NULL, NULL);
}
