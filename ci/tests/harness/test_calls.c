/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: which single calls of attention and scans are made, and how they are judged. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "ci/tests/tests.h"
#include "ci/tests/whole/scan_rig.h"
#include "harness/calls/attend_axes.h"
#include "harness/calls/calls.h"
#include "kernels/convert.h"
#include "kernels/kernels.h"

/*
 * Shows: calls are chosen so that any two values that a call can have meet in one; points are written and read back. A
 * mistake of a kernel, a crash and a hang are found by single calls, which shrink to just the values that the mistake
 * needs. Calls for which zeros are right cover no other axis.
 */

/* ---- the choice -------------------------------------------------------------------------------------------------- */

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const kvb_call_axis small_axes[] = {{"a", "", WORDS("0", "1", "2", "3", "4")},
                                           {"b", "", WORDS("0", "1", "2")},
                                           {"c", "", WORDS("0", "1", "2", "3")},
                                           {"d", "", WORDS("0", "1")}};
static const kvb_space small = {"small", small_axes, 4, NULL};

/* c = 3 needs d = 1 and excludes a = 4; no call has b = 2. */
static bool small_fits(const kvb_call_subject *s, const kvb_point *p, char *why, size_t why_bytes)
{
    (void)s, (void)why, (void)why_bytes;
    return (p->at[2] != 3 || (p->at[3] == 1 && p->at[0] != 4)) && p->at[1] != 2;
}

static double small_cost(const kvb_call_subject *s, const kvb_point *p)
{
    (void)s;
    return 1e6 * (1 + p->at[0]);
}

static const kvb_call_subject small_subject = {.space = &small, .fits = small_fits, .cost = small_cost};

/* Do these two values meet in one of the first n points? */
static bool meet(const kvb_point_cover *cover, size_t n, uint32_t a, uint32_t i, uint32_t b, uint32_t j)
{
    for (size_t p = 0; p < n; p++)
        if (cover->points[p].at[a] == i && cover->points[p].at[b] == j)
            return true;
    return false;
}

TEST(pairs_meet)
{
    kvb_point_cover cover, again, few;
    uint64_t pairs = 0;
    assert_int_equal(kvb_points_choose(&small_subject, 1, 0, false, &cover), 0);
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
        assert_true(small_fits(NULL, &cover.points[p], NULL, 0));
    assert_int_equal(cover.pairs, pairs);
    assert_int_equal(cover.pairs_of, pairs);
    assert_int_equal(cover.values_of, 5 + 2 + 4 + 2);
    assert_int_equal(cover.state[1][2], 0);
    assert_true(cover.n >= 19 && cover.n < 40); /* 5 x 4 pairs but one need 19 points */

    assert_int_equal(kvb_points_choose(&small_subject, 1, 0, false, &again), 0);
    assert_int_equal(again.n, cover.n);
    assert_memory_equal(again.points, cover.points, cover.n * sizeof *cover.points);

    assert_int_equal(kvb_points_choose(&small_subject, 1, 7, false, &few), 0);
    assert_int_equal(few.n, 7);
    assert_int_equal(few.values, few.values_of);
    assert_int_equal(few.pairs_of, pairs);
    assert_true(few.pairs < pairs);
    free(cover.points);
    free(again.points);
    free(few.points);
}

/* c = 2 makes zeros right. */
static uint32_t small_mutes(const kvb_call_subject *s, const kvb_point *p)
{
    (void)s;
    return p->at[2] == 2 ? 1u << 2 : 0;
}

/* Values that meet only in calls for which zeros are right do not count as met. */
TEST(mute_calls_cover_nothing_else)
{
    kvb_call_subject subject = small_subject;
    kvb_point_cover cover;
    subject.mutes = small_mutes;
    assert_int_equal(kvb_points_choose(&subject, 1, 0, false, &cover), 0);
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

TEST(draws_fit)
{
    uint64_t rng = 3, of[4][5] = {{0}};
    for (int i = 0; i < 2000; i++) {
        kvb_point p;
        assert_true(kvb_point_draw(&small_subject, &rng, &p));
        assert_true(small_fits(NULL, &p, NULL, 0));
        for (uint32_t a = 0; a < 4; a++)
            of[a][p.at[a]]++;
    }
    for (uint32_t a = 0; a < 4; a++)
        for (uint32_t i = 0; i < kvb_axis_values(&small_axes[a]); i++)
            assert_int_equal(of[a][i] > 0, a != 1 || i != 2);
}

TEST(words_of_points)
{
    kvb_point p, back;
    char text[KVB_CALL_TEXT], why[256];
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
static kvb_tolerance tolerance; /* of the kernel */

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

/* The result of single calls over the reference kernel with this mistake. */
static kvb_result judge_by(const kvb_calls_options *options, bool (*at)(const kvb_attend *x),
                           void (*wrong)(const kvb_attend *x))
{
    static kvb_attend_space space;
    static kvb_registry registry;
    char why[512] = "";
    kvb_kernel kernel = kvb_kernel_reference;
    kvb_result result;
    kernel.attend = attend;
    kernel.tolerance = tolerance;
    is_wrong_at = at;
    goes_wrong = wrong;
    kvb_registry_init(&registry);
    kvb_attend_space_make(&registry, &space);
    kvb_result_init(&result);
    const kvb_call_subject subject = kvb_attend_subject(&space, &kernel);
    assert_int_equal(kvb_calls_judge(options, &subject, &result, why, sizeof why), 0);
    return result;
}

/* Its calls, up to the first wrong one if wrong calls do not end the process. */
static kvb_result judge(bool (*at)(const kvb_attend *x), void (*wrong)(const kvb_attend *x), double seconds)
{
    const kvb_calls_options options = {
        .most = 150, .only_first = wrong == first_cleared, .seconds = seconds, .jobs = 2, .command = "again"};
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

TEST(honest_passes)
{
    const kvb_result r = judge(never, first_cleared, 60);
    assert_int_equal(r.status, KVB_STATUS_PASS);
    assert_true(r.axes.calls == 150 && r.axes.wrong == 0 && r.axes.pairs > r.axes.pairs_of / 3);
    assert_true(r.error.checked_rows > 1000);
}

TEST(shrinks_to_what_it_needs)
{
    kvb_result r = judge(at_three_heads, first_cleared, 60);
    assert_int_equal(r.status, KVB_STATUS_FAIL);
    assert_int_equal(r.check, KVB_CHECK_BOUND);
    assert_string_equal(r.replay, "again --call 'kv_heads=3'");
    r = judge(at_40_cells, first_cleared, 60);
    assert_string_equal(r.replay, "again --call 'tokens=3,cells=63'");
    assert_contains(r.reason, "out of query 0, head 0, channel 0 is 0");
}

static void all_cleared(const kvb_attend *x)
{
    const kvb_problem *p = &x->problem;
    memset(x->out, 0, (size_t)p->n_tok * p->n_heads * p->v_dim * kvb_elem_bytes(p->out_elem));
}

/* A kernel with a rule of its project is judged by this rule. Zeros have errors as large as the outputs. */
TEST(a_projects_rule_decides)
{
    const kvb_calls_options options = {.most = 150, .only_first = true, .seconds = 60, .jobs = 2, .command = "again"};
    tolerance = (kvb_tolerance){KVB_TOLERANCE_NMSE, 0.5, 0, "by hand"};
    const kvb_result honest = judge_by(&options, never, all_cleared),
                     wrong = judge_by(&options, at_three_heads, all_cleared);
    tolerance.limit = 2;
    const kvb_result lax = judge_by(&options, at_three_heads, all_cleared);
    tolerance = (kvb_tolerance){.kind = KVB_TOLERANCE_NONE};
    assert_int_equal(honest.status, KVB_STATUS_PASS);
    assert_int_equal(wrong.check, KVB_CHECK_TOLERANCE);
    assert_string_equal(wrong.replay, "again --call 'kv_heads=3'");
    assert_int_equal(lax.status, KVB_STATUS_PASS);
}

/* In memory shared with children: the first of two that makes a call, and which of them waits in its calls. */
static struct {
    _Atomic pid_t first;
    bool first_waits, other_waits;
} * race;

static bool at_three_heads_in_a_race(const kvb_attend *x)
{
    pid_t none = 0;
    atomic_compare_exchange_strong(&race->first, &none, getpid());
    if (race->first == getpid() ? race->first_waits : race->other_waits)
        usleep(5000);
    return at_three_heads(x);
}

/* The first wrong call of all is reported, whichever of two children comes to its own first. */
TEST(first_wrong_call_is_reported)
{
    char one[KVB_CALL_TEXT], two[KVB_CALL_TEXT];
    kvb_calls_options options = {
        .most = 150, .only_first = true, .as_found = true, .seconds = 60, .jobs = 1, .found = one, .command = "again"};
    race = mmap(NULL, sizeof *race, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(race != MAP_FAILED);
    judge_by(&options, at_three_heads_in_a_race, first_cleared);
    options.jobs = 2;
    options.found = two;
    for (int other = 0; other < 2; other++) {
        race->first = 0;
        race->first_waits = !other;
        race->other_waits = other;
        judge_by(&options, at_three_heads_in_a_race, first_cleared);
        assert_string_equal(two, one);
    }
    munmap(race, sizeof *race);
}

TEST(two_values_together)
{
    const kvb_calls_options options = {
        .call = "head_dim=80,tokens=9,kv_heads=3,softcap=30,cells=129,threads=3", .seconds = 60, .command = "again"};
    const kvb_result r = judge_by(&options, at_dim_80_with_softcap, first_cleared);
    assert_int_equal(r.status, KVB_STATUS_FAIL);
    assert_string_equal(r.replay, "again --call 'head_dim=80,softcap=30'");
}

TEST(crashes_are_told)
{
    const kvb_result r = judge(at_three_heads, crash, 60);
    assert_int_equal(r.status, KVB_STATUS_CRASH);
    assert_string_equal(r.replay, "again --call 'kv_heads=3'");
    assert_contains(r.reason, "SIGSEGV");
}

TEST(hangs_are_told)
{
    const kvb_result r = judge(at_three_heads, hang, 0.25);
    assert_int_equal(r.status, KVB_STATUS_TIMEOUT);
    assert_contains(r.reason, "no end within");
    assert_contains(r.reason, "the rest is left out after three");
}

/* The first element that is not finite, at each place; a byte that differs, at each place. */
TEST(outputs_are_searched)
{
    static const float not_finite[] = {NAN, INFINITY, -INFINITY};
    enum { MANY = 37 };
    float x[MANY], block[MANY];
    unsigned char bytes[MANY];
    for (int i = 0; i < MANY; i++)
        x[i] = i % 3 ? -65504 : 0;
    for (kvb_elem elem = KVB_F32; elem <= KVB_BF16; elem++)
        for (size_t at = 0; at <= MANY; at++)
            for (int k = 0; k < 3; k++) {
                const float was = at < MANY ? x[at] : 0;
                if (at < MANY)
                    x[at] = not_finite[k];
                kvb_elems_encode(elem, block, x, MANY);
                assert_int_equal(kvb_call_finite(elem, block, MANY), at);
                if (at < MANY)
                    x[at] = was;
            }
    memset(bytes, 0xff, sizeof bytes);
    assert_true(kvb_call_filled(bytes, MANY, 0xff) && kvb_call_filled(bytes, 0, 1) && !kvb_call_filled(bytes, MANY, 0));
    for (int i = 0; i < MANY; i++) {
        bytes[i] = 0;
        assert_false(kvb_call_filled(bytes, MANY, 0xff));
        bytes[i] = 0xff;
    }
}

/* ---- where zeros are right --------------------------------------------------------------------------------------- */

/* The axes that are mute at a call, and whether outputs of 0 pass in all of its judged rows. */
TEST(zeros_are_right_where_axes_are_mute)
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
    kvb_registry_init(&registry);
    kvb_attend_space_make(&registry, &space);
    const kvb_call_subject subject = kvb_attend_subject(&space, &kvb_kernel_reference);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        kvb_point p;
        char why[256];
        assert_int_equal(kvb_point_parse(&space.space, calls[i].call, &p, why, sizeof why), 0);
        assert_int_equal(kvb_attend_mutes(&subject, &p), calls[i].mutes);
        const kvb_calls_options options = {.call = calls[i].call, .seconds = 60, .command = ""};
        const kvb_result r = judge_by(&options, never, first_cleared);
        assert_true(r.status == KVB_STATUS_PASS && r.axes.calls == 1);
        assert_int_equal(r.axes.silent, calls[i].silent);
    }
}

/*
 * Shows: a mistake of a scan kernel is found by single calls, in each recurrence to which it applies; the call shrinks
 * to the simplest that shows it. Calls of honest kernels pass. Bits that depend on how a call is made are noted.
 */

#define SEED 5
#define MOST 200u /* calls: half of the quick suite */

/* ---- mistakes around the honest kernel --------------------------------------------------------------------------- */

/* X(name, kinds, the simplest call that shows it, what is wrong). The call is NULL if there are several. */
#define AROUND(X)                                                                                                      \
    X(WINDOW, KIND(CONV), "recurrence=conv,sequences=2", "the first sequence's window for all")                        \
    X(RESET, ALL_KINDS, "from=zero", "a sequence that begins anew begins with what lies in its slot")                  \
    X(SHORT, KIND(CONV), "recurrence=conv", "a prompt shorter than the convolution leaves the wrong rows")             \
    X(ROWS, STATES, "d_k=1", "rows of a state beyond the last 16 are left out")                                        \
    X(LAST, ALL_KINDS, "", "the last row of a state is left at 0")                                                     \
    X(COLUMNS, ALL_KINDS, "d_v=1", "columns beyond the last 16 are read as zeros")                                     \
    X(TOKENS, ALL_KINDS, "tokens=2", "all tokens of a run have the first one's v")                                     \
    X(DECAYS, GATED, "tokens=2", "decays of a chunk are those of its first token")                                     \
    X(LONG, ALL_KINDS, "tokens=257", "what is behind 256 tokens begins with zeros")                                    \
    X(GAP, ALL_KINDS, NULL, "slots lie one behind the other, without gaps")                                            \
    X(TEAM, ALL_KINDS, "", "bits depend on the team")                                                                  \
    X(AGAIN, ALL_KINDS, "", "bits depend on the call before")                                                          \
    X(INPUT, ALL_KINDS, "", "v is written to")

#define AROUND_ENUM(NAME, KINDS, CALL, TEXT) AROUND_##NAME,
enum around { AROUND(AROUND_ENUM) AROUND_COUNT };
#define AROUND_ROW(NAME, KINDS, CALL, TEXT) {#NAME, KINDS, CALL},
static const struct {
    const char *name;
    uint32_t kinds;
    const char *call;
} arounds[AROUND_COUNT] = {AROUND(AROUND_ROW)};

static enum around around_now = AROUND_COUNT;

/* The way of making a call on which the last bit of an output depends; KVB_SAME_KINDS: none. */
static kvb_same_kind way_now = KVB_SAME_KINDS;

static bool way_shows(const kvb_scan *x)
{
    static uint32_t before[2]; /* tokens of the last two calls */
    const kvb_scan_problem p = x->problem;
    const bool between = before[0] == p.n_tok && before[1] < p.n_tok; /* after the same call and a smaller one */
    before[0] = before[1];
    before[1] = p.n_tok;
    switch (way_now) {
    case KVB_SAME_BATCH:
        return p.n_tok > p.run;
    case KVB_SAME_STEPS:
        return p.n_tok == 1;
    case KVB_SAME_THREADS:
        return x->team->n > 1;
    case KVB_SAME_PAGES:
        return x->from[0] % 2;
    case KVB_SAME_ALIGNMENT:
        return (uintptr_t)x->v % 64;
    case KVB_SAME_AGAIN:
        return between;
    default:
        return false;
    }
}

#define ROOM (1u << 21) /* most elements of an input */
static float copies[3][ROOM];
static uint32_t tokens[ROOM];

static float *copy_of(int i, const float *from, size_t n)
{
    assert_true(n <= ROOM);
    memcpy(copies[i], from, n * sizeof *from);
    return copies[i];
}

/* In each of n rows, clears the elements behind the last whole 16. */
static void tails_clear(float *rows, size_t n, uint32_t width)
{
    for (size_t r = 0; r < n; r++)
        memset(rows + r * width + width / 16 * 16, 0, width % 16 * sizeof *rows);
}

/* Makes sequences begin wrongly. */
static void sources_change(kvb_scan *x, const kvb_scan *from)
{
    memcpy(tokens, from->from, x->problem.n_tok * sizeof *tokens);
    for (uint32_t t = 0, end; t < x->problem.n_tok; t = end) {
        end = kvb_scan_run_end(from, t);
        const uint32_t to = from->to[end - 1];
        if (around_now == AROUND_WINDOW && from->problem.kind == KVB_SCAN_CONV)
            tokens[t] = from->from[0];
        if (around_now == AROUND_RESET && from->from[t] == KVB_SCAN_ZERO && to != KVB_SCAN_NONE)
            tokens[t] = to;
        if (around_now == AROUND_LONG && end - t > 256)
            tokens[t + 256] = KVB_SCAN_ZERO;
    }
    x->from = tokens;
}

static void gates_change(kvb_scan *x)
{
    const kvb_scan_problem *p = &x->problem;
    const size_t row = p->heads * (p->kind == KVB_SCAN_MAMBA1 ? p->d_v : 1);
    if (!x->gate)
        return;
    float *gates = copy_of(0, x->gate, p->n_tok * row);
    for (uint32_t t = 0, end; t < p->n_tok; t = end) {
        end = kvb_scan_run_end(x, t);
        for (uint32_t u = t; u < end; u++)
            memcpy(gates + u * row, x->gate + (t + (u - t) / WRONG_CHUNK * WRONG_CHUNK) * row, row * sizeof *gates);
    }
    x->gate = gates;
}

static void values_repeat(kvb_scan *x)
{
    const kvb_scan_problem *p = &x->problem;
    const size_t row = (size_t)p->heads * p->d_v;
    float *values = copy_of(2, x->v, p->n_tok * row);
    for (uint32_t t = 0, end; t < p->n_tok; t = end) {
        end = kvb_scan_run_end(x, t);
        for (uint32_t u = t; u < end; u++)
            memcpy(values + u * row, x->v + t * row, row * sizeof *values);
    }
    x->v = values;
}

/* Loses rows of the first head's states: the older ones if a run has fewer inputs than rows, or the last one. */
static void rows_lose(const kvb_scan *x, bool last)
{
    const kvb_scan_problem *p = &x->problem;
    const size_t row = p->d_v * kvb_elem_bytes(p->state_elem);
    for (uint32_t t = 0, end; t < p->n_tok; t = end) {
        end = kvb_scan_run_end(x, t);
        if (x->to[end - 1] == KVB_SCAN_NONE)
            continue;
        char *state = kvb_scan_state(x, x->to[end - 1], 0);
        if (last)
            memset(state + (p->d_k - 1) * row, 0, row);
        else if (end - t < p->d_k)
            memset(state, 0, (p->d_k - (end - t)) * row);
    }
}

static int around_scan(const kvb_scan *args)
{
    static uint32_t calls;
    const kvb_scan_problem *p = &args->problem;
    const size_t keys = (size_t)p->n_tok * p->groups, values = (size_t)p->n_tok * p->heads;
    kvb_scan x = *args;
    if (around_now == AROUND_WINDOW || around_now == AROUND_RESET || around_now == AROUND_LONG)
        sources_change(&x, args);
    if (around_now == AROUND_ROWS) {
        tails_clear(copy_of(0, x.q, keys * p->d_k), keys, p->d_k);
        tails_clear(copy_of(1, x.k, keys * p->d_k), keys, p->d_k);
        x.q = copies[0];
        x.k = copies[1];
    }
    if (around_now == AROUND_COLUMNS) {
        tails_clear(copy_of(2, x.v, values * p->d_v), values, p->d_v);
        x.v = copies[2];
    }
    if (around_now == AROUND_TOKENS)
        values_repeat(&x);
    if (around_now == AROUND_DECAYS)
        gates_change(&x);
    if (around_now == AROUND_GAP)
        x.states.slot_bytes = ((size_t)p->heads * p->d_k * p->d_v * kvb_elem_bytes(p->state_elem) + 63) / 64 * 64;
    kvb_kernel_scan_reference.scan->scan(&x);
    if (around_now == AROUND_LAST || (around_now == AROUND_SHORT && p->kind == KVB_SCAN_CONV))
        rows_lose(args, around_now == AROUND_LAST);
    if ((around_now == AROUND_TEAM && args->team->n > 2) || (around_now == AROUND_AGAIN && ++calls % 2))
        *(uint16_t *)args->out ^= 1;
    float *out = args->out;
    if (p->out_elem == KVB_F32 && way_shows(args))
        out[0] = nextafterf(out[0], 0);
    if (around_now == AROUND_INPUT)
        ((float *)(uintptr_t)args->v)[0] += 1;
    return 0;
}

static const kvb_kernel *const reference = &kvb_kernel_scan_reference;

static size_t around_scratch(const kvb_scan_problem *p, uint32_t n_threads)
{
    return reference->scan->scratch_bytes(p, n_threads);
}

static const kvb_scan_face around_face = {
    .supports = wrong_supports, .scratch_bytes = around_scratch, .arithmetic = wrong_arithmetic, .scan = around_scan};
static const kvb_kernel around_kernel = {
    .name = "around", .summary = "one mistake around the honest kernel", .scan = &around_face};

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static kvb_point_cover cover_of(const kvb_kernel *kernel)
{
    const kvb_call_subject s = kvb_scan_subject(kernel);
    kvb_point_cover cover;
    assert_int_equal(kvb_points_choose(&s, SEED, MOST, false, &cover), 0);
    assert_int_equal(cover.values, cover.values_of);
    return cover;
}

static kvb_scan_kind kind_of(const kvb_point *p)
{
    kvb_scan_kind kind = 0;
    while (strcmp(kvb_point_word(&kvb_scan_space, p, 0), kvb_scan_kind_name(kind)))
        kind++;
    return kind;
}

/* The first call of these recurrences that is wrong. No thread runs afterwards. */
static const kvb_point *first_wrong(const kvb_kernel *kernel, const kvb_point_cover *cover, uint32_t kinds,
                                    kvb_call_verdict *verdict)
{
    const kvb_call_subject s = kvb_scan_subject(kernel);
    kvb_call_teams teams = {{NULL}};
    const kvb_point *found = NULL;
    char why[256];
    for (size_t i = 0; i < cover->n && !found; i++) {
        if (!(kinds >> kind_of(&cover->points[i]) & 1) || !s.fits(&s, &cover->points[i], why, sizeof why))
            continue;
        assert_int_equal(kvb_call_judge(&s, &cover->points[i], SEED, &teams, verdict, why, sizeof why), 0);
        found = verdict->check != KVB_CHECK_NONE ? &cover->points[i] : NULL;
    }
    kvb_call_teams_end(&teams);
    return found;
}

/* Calls of each recurrence must find the mistake and shrink to this call; NULL: to a few axes. */
static void mistake_is_found(const kvb_kernel *kernel, const kvb_point_cover *cover, const char *name, uint32_t kinds,
                             const char *call)
{
    const kvb_call_subject s = kvb_scan_subject(kernel);
    char text[KVB_CALL_TEXT], why[512];
    const kvb_calls_options options = {.call = text, .seed = SEED, .seconds = 60, .found = text, .command = ""};
    for (kvb_scan_kind kind = 0; kind < KVB_SCAN_KINDS; kind++) {
        kvb_call_verdict verdict;
        kvb_result result;
        uint32_t axes = 0;
        kvb_point p;
        if (!(kinds >> kind & 1))
            continue;
        const kvb_point *found = first_wrong(kernel, cover, 1u << kind, &verdict);
        if (!found)
            fail_msg("%s, %s: no call finds it", name, kvb_scan_kind_name(kind));
        kvb_result_init(&result);
        kvb_point_text(s.space, found, text);
        assert_int_equal(kvb_calls_judge(&options, &s, &result, why, sizeof why), 0);
        assert_int_equal(kvb_point_parse(s.space, text, &p, why, sizeof why), 0);
        for (uint32_t a = 0; a < s.space->n_axes; a++)
            axes += p.at[a] > 0;
        if (call ? strcmp(text, call) != 0 : axes > 3)
            fail_msg("%s, %s shrinks to '%s'", name, kvb_scan_kind_name(kind), text);
    }
}

TEST(mistakes_are_found)
{
    kvb_point_cover cover = cover_of(&wrong_kernel);
    for (enum wrong w = WRONG_NOTHING + 1; w < WRONG_COUNT; w++) {
        wrong_now = w;
        mistake_is_found(&wrong_kernel, &cover, wrongs[w].name, wrongs[w].kinds, NULL);
    }
    wrong_now = WRONG_NOTHING;
    for (enum around w = 0; w < AROUND_COUNT; w++) {
        around_now = w;
        mistake_is_found(&around_kernel, &cover, arounds[w].name, arounds[w].kinds, arounds[w].call);
    }
    free(cover.points);
}

TEST(honest_calls_pass)
{
    const kvb_kernel *const kernels[] = {&wrong_kernel, &kvb_kernel_scan};
    for (size_t i = 0; i < 2; i++) {
        kvb_call_verdict verdict;
        char text[KVB_CALL_TEXT];
        kvb_point_cover cover = cover_of(kernels[i]);
        cover.n -= cover.n / 4; /* expensive calls are left to the suites */
        const kvb_point *found = first_wrong(kernels[i], &cover, UINT32_MAX, &verdict);
        if (found)
            kvb_point_text(&kvb_scan_space, found, text);
        if (found)
            fail_msg("%s: %s: %s", kernels[i]->name, text, verdict.words);
        free(cover.points);
    }
}

/* by[way]: the largest difference between calls made in this way, with last bits that depend on `planted`. Stops at the
 * first difference in that way. planted KVB_SAME_KINDS: no dependence. */
static void ways_note(const kvb_point_cover *cover, kvb_same_kind planted, double *by)
{
    const kvb_call_subject s = kvb_scan_subject(&around_kernel);
    kvb_call_teams teams = {{NULL}};
    char why[256];
    way_now = planted;
    for (kvb_same_kind way = 0; way < KVB_SAME_KINDS; way++)
        by[way] = NAN;
    for (size_t i = 0; i < cover->n && (planted == KVB_SAME_KINDS || !(by[planted] > 0)); i++) {
        kvb_call_verdict verdict;
        assert_int_equal(kvb_call_judge(&s, &cover->points[i], SEED, &teams, &verdict, why, sizeof why), 0);
        if (verdict.check != KVB_CHECK_NONE)
            fail_msg("%s", verdict.words);
        for (kvb_same_kind way = 0; way < KVB_SAME_KINDS && verdict.made_again; way++)
            by[way] = fmax(by[way], verdict.same[way]);
    }
    kvb_call_teams_end(&teams);
    way_now = KVB_SAME_KINDS;
}

TEST(ways_are_noted)
{
    kvb_point_cover cover = cover_of(&around_kernel);
    double honest[KVB_SAME_KINDS], planted[KVB_SAME_KINDS];
    around_now = AROUND_COUNT;
    kvb_checks_off = UINT32_C(1) << KVB_CHECK_DETERMINISTIC; /* it would refuse two of the ways */
    ways_note(&cover, KVB_SAME_KINDS, honest);
    for (kvb_same_kind way = 0; way < KVB_SAME_KINDS; way++) {
        ways_note(&cover, way, planted);
        if (honest[way] != 0 || !(planted[way] > 0 && planted[way] < 2))
            fail_msg("%s: %g of the bound without a plant, %g with it", kvb_same_names[way], honest[way], planted[way]);
    }
    kvb_checks_off = 0;
    free(cover.points);
}
