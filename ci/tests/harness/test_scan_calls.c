/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: single calls of scan kernels that make one mistake are found, in each recurrence that the mistake is one in,
 * and shrink to the simplest that shows it; those of honest kernels are right; bits that depend on how a
 * call is made are noted, in each way.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/whole/scan_rig.h"
#include "harness/calls/calls.h"
#include "harness/calls/scan_axes.h"

#define SEED 5
#define MOST 200u /* calls: half of the quick suite */

/* ---- mistakes around the honest kernel --------------------------------------------------------------------------- */

/* X(name, kinds, the simplest call that shows it, or NULL: there are several, what is wrong) */
#define AROUND(X)                                                                                                      \
    X(WINDOW, KIND(CONV), "recurrence=conv,sequences=2", "the first sequence's window for all")                        \
    X(RESET, ALL_KINDS, "from=zero", "a sequence that begins anew begins with what lies in its slot")                  \
    X(SHORT, KIND(CONV), "recurrence=conv", "a prompt shorter than the convolution leaves the wrong rows")             \
    X(ROWS, STATES, "d_k=1", "rows of a state beyond the last 16 are left out")                                        \
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

/* The last bit of an output depends on one way to make a call. */
static kvb_same_kind way_now = KVB_SAME_KINDS;

static bool way_shows(const kvb_scan *x)
{
    static uint32_t before[2]; /* tokens of the last two calls */
    const kvb_scan_problem p = x->problem;
    const bool between = before[0] == p.n_tok && before[1] < p.n_tok; /* the same call, a smaller one, and this */
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

#define ROOM (1u << 21) /* elements of an input at most */
static float copies[3][ROOM];
static uint32_t tokens[ROOM];

static float *copy_of(int i, const float *from, size_t n)
{
    assert_true(n <= ROOM);
    memcpy(copies[i], from, n * sizeof *from);
    return copies[i];
}

/* Zeros behind the last whole 16 of n rows. */
static void tails_clear(float *rows, size_t n, uint32_t width)
{
    for (size_t r = 0; r < n; r++)
        memset(rows + r * width + width / 16 * 16, 0, width % 16 * sizeof *rows);
}

/* Where sequences begin, wrongly. */
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

/* Where the inputs of a run are fewer than rows, older rows are lost. */
static void rows_lose(const kvb_scan *x)
{
    const kvb_scan_problem *p = &x->problem;
    const size_t row = p->d_v * kvb_elem_bytes(p->state_elem);
    for (uint32_t t = 0, end; t < p->n_tok; t = end) {
        end = kvb_scan_run_end(x, t);
        if (end - t < p->d_k && x->to[end - 1] != KVB_SCAN_NONE)
            memset(kvb_scan_state(x, x->to[end - 1], 0), 0, (p->d_k - (end - t)) * row);
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
    if (around_now == AROUND_SHORT && p->kind == KVB_SCAN_CONV)
        rows_lose(args);
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
    assert_int_equal(kvb_calls_choose(&s, SEED, MOST, false, &cover), 0);
    assert_int_equal(cover.values, cover.values_of);
    return cover;
}

static kvb_scan_kind kind_of(const kvb_point *p)
{
    kvb_scan_shape shape;
    char why[256];
    kvb_scan_shape_of(p, &shape, why, sizeof why);
    return shape.problem.kind;
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
        assert_int_equal(s.judge(&s, &cover->points[i], SEED, &teams, verdict, why, sizeof why), 0);
        found = verdict->check != KVB_CHECK_NONE ? &cover->points[i] : NULL;
    }
    kvb_call_teams_end(&teams);
    return found;
}

/* Each recurrence finds the mistake. It shrinks to this call, or, where none is named, to few axes. */
static void mistake_is_found(const kvb_kernel *kernel, const kvb_point_cover *cover, const char *name, uint32_t kinds,
                             const char *call)
{
    const kvb_call_subject s = kvb_scan_subject(kernel);
    const kvb_calls_options options = {.seed = SEED, .seconds = 60};
    for (kvb_scan_kind kind = 0; kind < KVB_SCAN_KINDS; kind++) {
        kvb_call_verdict verdict;
        char text[KVB_CALL_TEXT];
        uint32_t axes = 0;
        if (!(kinds >> kind & 1))
            continue;
        const kvb_point *found = first_wrong(kernel, cover, 1u << kind, &verdict);
        if (!found)
            fail_msg("%s, %s: no call finds it", name, kvb_scan_kind_name(kind));
        kvb_point p = *found;
        kvb_call_shrink(&options, &s, &p, &verdict);
        for (uint32_t a = 0; a < s.space->n_axes; a++)
            axes += p.at[a] > 0;
        kvb_point_text(s.space, &p, text);
        if (call ? strcmp(text, call) != 0 : axes > 3)
            fail_msg("%s, %s shrinks to '%s'", name, kvb_scan_kind_name(kind), text);
    }
}

static void mistakes_are_found(void **state)
{
    kvb_point_cover cover = cover_of(&wrong_kernel);
    (void)state;
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

static void honest_calls_pass(void **state)
{
    const kvb_kernel *const kernels[] = {&wrong_kernel, &kvb_kernel_scan};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        kvb_call_verdict verdict;
        char text[KVB_CALL_TEXT];
        kvb_point_cover cover = cover_of(kernels[i]);
        cover.n -= cover.n / 4; /* dear ones are left to the suites */
        const kvb_point *found = first_wrong(kernels[i], &cover, UINT32_MAX, &verdict);
        if (found)
            kvb_point_text(&kvb_scan_space, found, text);
        if (found)
            fail_msg("%s: %s: %s", kernels[i]->name, text, verdict.words);
        free(cover.points);
    }
}

/* The largest difference by way of calls in which last bits depend on one, up to the first that shows; KVB_SAME_KINDS: on
 * none. */
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
        assert_int_equal(s.judge(&s, &cover->points[i], SEED, &teams, &verdict, why, sizeof why), 0);
        if (verdict.check != KVB_CHECK_NONE)
            fail_msg("%s", verdict.words);
        for (kvb_same_kind way = 0; way < KVB_SAME_KINDS && verdict.made_again; way++)
            by[way] = fmax(by[way], verdict.same[way]);
    }
    kvb_call_teams_end(&teams);
    way_now = KVB_SAME_KINDS;
}

static void ways_are_noted(void **state)
{
    kvb_point_cover cover = cover_of(&around_kernel);
    double honest[KVB_SAME_KINDS], planted[KVB_SAME_KINDS];
    (void)state;
    around_now = AROUND_COUNT;
    kvb_checks_off = UINT32_C(1) << KVB_CHECK_DETERMINISTIC; /* which fails two of them */
    ways_note(&cover, KVB_SAME_KINDS, honest);
    for (kvb_same_kind way = 0; way < KVB_SAME_KINDS; way++) {
        ways_note(&cover, way, planted);
        if (honest[way] != 0 || !(planted[way] > 0 && planted[way] < 2))
            fail_msg("%s: %g of the bound without a plant, %g with it", kvb_same_names[way], honest[way], planted[way]);
    }
    kvb_checks_off = 0;
    free(cover.points);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_calls_pass),
        cmocka_unit_test(mistakes_are_found),
        cmocka_unit_test(ways_are_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
