/* SPDX-License-Identifier: Apache-2.0 */
/* Scan calls, judged. */
#include "harness/calls/scan_judge.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/calls/scan_scene.h"
#include "harness/replay/kernel_io.h"
#include "oracle/claim.h"
#include "oracle/oracle.h"
#include "oracle/recurrence.h"
#include "workloads/rng.h"

#define COLUMNS  16u /* of a head's state that are judged at once, at most */
#define NAN_BYTE 0xff

/* The call under judgement. */
typedef struct trial {
    const kvb_scan_kernel *kernel;
    kvb_scan_scene scene;
    char *made; /* out of the first run, and its slots behind it */
    kvb_call_verdict *verdict;
    uint64_t key;
} trial;

static bool has_failed(const trial *x)
{
    return x->verdict->check != KVB_CHECK_NONE;
}

/* ---- one run of the kernel --------------------------------------------------------------------------------------- */

static void written_check(trial *x)
{
    const kvb_scan_problem *p = &x->scene.call.problem;
    const size_t bytes = p->out_elem == KVB_F32 ? 4 : 2, n = x->scene.out_bytes / bytes;
    const size_t left = kvb_outputs_left(x->scene.call.out, n, bytes), row = left / p->d_v;
    if (left < n)
        kvb_call_wrong(x->verdict, KVB_CHECK_WRITTEN, "out of token %zu, head %zu, channel %zu is left unwritten",
                       row / p->heads, row % p->heads, left % p->d_v);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(kvb_output_value(p->out_elem, x->scene.call.out, i))) {
            kvb_call_wrong(x->verdict, KVB_CHECK_FINITE, "out of token %zu, head %zu, channel %zu is not finite",
                           i / p->d_v / p->heads, i / p->d_v % p->heads, i % p->d_v);
            return;
        }
}

/* States in the slots that are to be written; no other byte has changed. hidden: what filled those that are not read.
 */
static void slots_check(trial *x, int hidden)
{
    const kvb_scan_scene *s = &x->scene;
    const kvb_scan_problem *p = &s->call.problem;
    const size_t bytes = s->call.states.slot_bytes, n = (size_t)p->heads * p->d_k * p->d_v,
                 used = n * (p->state_elem == KVB_F32 ? 4 : 2);
    for (uint32_t slot = 0; slot < s->call.states.slots; slot++) {
        const char *at = (const char *)s->call.states.base + slot * bytes, *was = s->before + slot * bytes;
        const size_t kept = s->written[slot] ? used : 0; /* from there on it must be as it was */
        for (size_t i = 0; i < n && s->written[slot]; i++)
            if (!isfinite(kvb_output_value(p->state_elem, at, i))) {
                kvb_call_wrong(x->verdict, KVB_CHECK_FINITE,
                               "the state of slot %u, head %zu, row %zu, channel %zu is not finite", slot,
                               i / p->d_v / p->d_k, i / p->d_v % p->d_k, i % p->d_v);
                return;
            }
        bool same = !s->read[slot] || !memcmp(at + kept, was + kept, bytes - kept);
        for (size_t i = kept; i < bytes && !s->read[slot] && same; i++)
            same = (unsigned char)at[i] == hidden;
        if (!same)
            kvb_call_wrong(x->verdict, KVB_CHECK_MARGINS, "scan() wrote %s slot %u%s", kept ? "behind" : "to", slot,
                           kept ? "'s state" : ", which no token leaves its state in");
    }
}

static int call_make(void *ctx)
{
    const trial *x = ctx;
    return x->kernel->scan(&x->scene.call);
}

/* Makes the call, and checks what needs no oracle. */
static void kernel_run(trial *x, int hidden)
{
    kvb_scan_scene_reset(&x->scene, hidden);
    kvb_call_watch(&x->scene.buffers, "scan()", call_make, x, false, x->verdict);
    slots_check(x, hidden);
    written_check(x);
}

/* ---- comparing with the oracle ----------------------------------------------------------------------------------- */

/* Some columns of one head, followed through the call. */
typedef struct lane {
    uint32_t head, first, n;
    kvb_scan_problem problem; /* of n columns */
    const kvb_scan_arithmetic *arithmetic;
    kvb_recurrence *now, **left; /* left: [slots] what the call left there so far, or NULL */
    float *own, *bias;           /* the layer's, these columns */
    double *given;               /* [d_k][n] */
    kvb_recurrence_want *want;   /* [d_k + 1][n] */
} lane;

static void columns_copy(float *to, const float *from, size_t rows, size_t width, const lane *l)
{
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * l->n, from + r * width + l->first, l->n * sizeof *to);
}

static int lane_open(const trial *x, lane *l)
{
    const kvb_scan *call = &x->scene.call;
    const kvb_scan_problem *p = &call->problem;
    const bool each = p->kind == KVB_SCAN_MAMBA1, conv = p->kind == KVB_SCAN_CONV;
    const size_t rows = p->d_k + (conv ? 1u : 0u);
    l->problem = *p;
    l->problem.d_v = l->n;
    l->now = kvb_recurrence_open(&l->problem, l->arithmetic);
    l->left = calloc(call->states.slots, sizeof(kvb_recurrence *));
    l->own = malloc(rows * l->n * sizeof *l->own);
    l->bias = malloc(l->n * sizeof *l->bias);
    l->given = malloc((size_t)p->d_k * l->n * sizeof *l->given);
    l->want = malloc(((size_t)p->d_k + 1) * l->n * sizeof *l->want);
    if (!l->now || !l->left || !l->own || !l->bias || !l->given || !l->want)
        return -ENOMEM;
    if (each || conv)
        columns_copy(l->own, call->a + (each ? (size_t)l->head * p->d_k * p->d_v : 0), rows, p->d_v, l);
    if (call->bias)
        columns_copy(l->bias, call->bias, 1, p->d_v, l);
    return 0;
}

static void lane_close(const trial *x, lane *l)
{
    for (uint32_t slot = 0; l->left && slot < x->scene.call.states.slots; slot++)
        kvb_recurrence_close(l->left[slot]);
    kvb_recurrence_close(l->now);
    void *const plain[] = {l->left, l->own, l->bias, l->given, l->want};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        free(plain[i]);
}

/* A run begins with this slot: with what the call left there, or what lay there before. */
static void lane_begin(const trial *x, lane *l, uint32_t slot)
{
    const kvb_scan_scene *s = &x->scene;
    const kvb_scan_problem *p = &s->call.problem;
    const size_t bytes = p->state_elem == KVB_F32 ? 4 : 2;
    if (slot != KVB_SCAN_ZERO && l->left[slot]) {
        kvb_recurrence_copy(l->now, l->left[slot]);
        return;
    }
    for (uint32_t i = 0; i < p->d_k; i++)
        for (uint32_t c = 0; c < l->n; c++)
            l->given[(size_t)i * l->n + c] =
                slot == KVB_SCAN_ZERO
                    ? 0
                    : kvb_output_value(p->state_elem,
                                       s->before + slot * s->call.states.slot_bytes +
                                           (((size_t)l->head * p->d_k + i) * p->d_v + l->first) * bytes,
                                       c);
    kvb_recurrence_begin(l->now, l->given);
}

/* The inputs of a token, these columns. */
static kvb_recurrence_token lane_token(const trial *x, const lane *l, uint32_t t)
{
    const kvb_scan *call = &x->scene.call;
    const bool each = call->problem.kind == KVB_SCAN_MAMBA1, conv = call->problem.kind == KVB_SCAN_CONV;
    kvb_recurrence_token token = kvb_recurrence_token_of(call, t, l->head);
    token.v += l->first;
    if (each)
        token.gate += l->first;
    token.a = each || conv ? l->own : token.a;
    token.bias = call->bias ? l->bias : NULL;
    return token;
}

static int lane_leave(lane *l, uint32_t slot)
{
    if (!l->left[slot])
        l->left[slot] = kvb_recurrence_open(&l->problem, l->arithmetic);
    if (!l->left[slot])
        return -ENOMEM;
    kvb_recurrence_copy(l->left[slot], l->now);
    return 0;
}

/* Outputs of all tokens; then what slots hold. */
static int lane_judge(const trial *x, lane *l, kvb_diff *out, kvb_diff *states)
{
    const kvb_scan *call = &x->scene.call;
    const kvb_scan_problem *p = &call->problem;
    const size_t bytes = p->out_elem == KVB_F32 ? 4 : 2, state_bytes = p->state_elem == KVB_F32 ? 4 : 2;
    kvb_diff_place place = {.head = l->head, .channel = l->first};
    int error = lane_open(x, l);
    for (uint32_t t = 0, end; t < p->n_tok && !error; t = end) {
        end = kvb_scan_run_end(call, t);
        lane_begin(x, l, kvb_scan_source(call, t));
        for (uint32_t u = t; u < end; u++) {
            const kvb_recurrence_token token = lane_token(x, l, u);
            const size_t at = ((size_t)u * p->heads + l->head) * p->d_v + l->first;
            kvb_recurrence_step(l->now, &token, l->want);
            place.query = u;
            kvb_diff_take(out, &place, l->want, l->n, p->out_elem, (const char *)call->out + at * bytes);
        }
        const uint32_t to = call->to[end - 1];
        kvb_recurrence_rest(l->now, to != KVB_SCAN_NONE);
        if (to != KVB_SCAN_NONE)
            error = lane_leave(l, to);
    }
    for (uint32_t slot = 0; slot < call->states.slots && !error; slot++) {
        if (!l->left[slot])
            continue;
        kvb_recurrence_state(l->left[slot], l->want);
        place.query = x->scene.writer[slot];
        for (uint32_t i = 0; i < p->d_k; i++) {
            place.row = (uint16_t)(i + 1);
            kvb_diff_take(states, &place, l->want + (size_t)i * l->n, l->n, p->state_elem,
                          (const char *)kvb_scan_state(call, slot, l->head) +
                              ((size_t)i * p->d_v + l->first) * state_bytes);
        }
    }
    lane_close(x, l);
    return error;
}

static void diff_tell(trial *x, const kvb_diff *diff, kvb_check check)
{
    const kvb_diff_place *at = &diff->first;
    char row[64] = "out";
    x->verdict->rho = fmax(x->verdict->rho, diff->rho);
    if (at->row)
        snprintf(row, sizeof row, "row %u of the state in slot %u, left", at->row - 1u, x->scene.call.to[at->query]);
    if (diff->any_failed)
        kvb_call_wrong(x->verdict, check,
                       "%s %s token %u, head %u, channel %u is %.6g, exact %.6g, bound %.2g (%" PRIu64 " of %" PRIu64
                       " elements wrong)",
                       row, at->row ? "by" : "of", at->query, at->head, at->channel, at->got, at->want, at->bound,
                       diff->failed, diff->elements);
}

/* Judges what the last run made. Of a large call a sample of columns: the first, the last, then any. */
static int outputs_judge(trial *x)
{
    const kvb_scan_problem *p = &x->scene.call.problem;
    const double column = (double)p->n_tok * p->d_k;
    kvb_scan_arithmetic arithmetic;
    kvb_diff out = {0}, states = {0};
    uint32_t width = COLUMNS;
    while (width > 1 && column * width > KVB_SCAN_JUDGED / 3)
        width /= 2;
    const uint32_t lanes = (p->d_v + width - 1) / width;
    const uint64_t all = (uint64_t)lanes * p->heads;
    const bool sampled = (double)p->heads * p->d_v * column > 2 * KVB_SCAN_JUDGED;
    double judged = 0;
    int error = 0;
    char why[256];
    x->kernel->arithmetic(p, &arithmetic);
    if (kvb_claim_check_scan(&arithmetic, p, why, sizeof why)) {
        kvb_call_wrong(x->verdict, KVB_CHECK_DECLARATION, "%s", why);
        return 0;
    }
    for (uint64_t i = 0; i < all && !error && (i < 3 || judged < (sampled ? 1 : 2) * KVB_SCAN_JUDGED); i++) {
        const uint64_t any = (kvb_rng_key(x->key, i) >> 16) % all, at = !sampled ? i
                                                                        : i == 0 ? 0
                                                                        : i == 1 ? all - 1
                                                                                 : any;
        lane l = {.head = (uint32_t)(at / lanes), .first = (uint32_t)(at % lanes) * width, .arithmetic = &arithmetic};
        l.n = p->d_v - l.first < width ? p->d_v - l.first : width;
        error = lane_judge(x, &l, &out, &states);
        judged += column * l.n;
        x->verdict->judged += p->n_tok;
    }
    x->verdict->rows += all * p->n_tok;
    diff_tell(x, &out, KVB_CHECK_BOUND);
    diff_tell(x, &states, KVB_CHECK_STATE);
    return error;
}

/* ---- the checks, one after the other ----------------------------------------------------------------------------- */

static bool outputs_differ(const trial *x)
{
    const kvb_scan_scene *s = &x->scene;
    return memcmp(x->made, s->call.out, s->out_bytes) ||
           memcmp(x->made + s->out_bytes, s->call.states.base, s->states_bytes);
}

/* No result depends on the team, nor on earlier calls. */
static int team_check(trial *x, kvb_call_teams *teams)
{
    kvb_scan_scene *s = &x->scene;
    const kvb_team *own = s->call.team, *other = kvb_call_team(teams, own->n == 1 ? 3 : 1);
    const int error = other ? kvb_scan_scene_team(s, x->kernel, other) : -ENOMEM;
    if (error)
        return error;
    kernel_run(x, NAN_BYTE);
    if (outputs_differ(x))
        kvb_call_wrong(x->verdict, KVB_CHECK_DETERMINISTIC, "%u and %u threads give other bits", own->n, other->n);
    return kvb_scan_scene_team(s, x->kernel, own);
}

/* Some call of the same kernel before the one that is judged, of a larger or smaller shape. */
static int other_call(const trial *x, bool larger)
{
    kvb_scan_shape shape = x->scene.shape;
    kvb_scan_scene s;
    char why[256];
    shape.tokens = larger ? shape.tokens * 2 : (shape.tokens + 1) / 2;
    kvb_scan_shape_count(&shape);
    if (kvb_scan_cost(&shape) > KVB_SCAN_COST ||
        (x->kernel->supports && !x->kernel->supports(&shape.problem, why, sizeof why)))
        shape = x->scene.shape;
    const int error = kvb_scan_scene_open(&shape, x->kernel, x->scene.call.team, kvb_rng_key(x->key, 7), &s);
    if (!error) {
        kvb_scan_scene_reset(&s, NAN_BYTE);
        x->kernel->scan(&s.call);
    }
    kvb_scan_scene_close(&s);
    return error;
}

/* The call is wrong. Is it right where slots that it must not read hold zeros? Then that is what is wrong. */
static int hidden_check(trial *x)
{
    const kvb_call_verdict wrong = *x->verdict;
    x->verdict->check = KVB_CHECK_NONE;
    kernel_run(x, 0);
    const int error = has_failed(x) ? 0 : outputs_judge(x);
    const bool right = !has_failed(x);
    *x->verdict = wrong;
    if (right && !error) {
        x->verdict->check = KVB_CHECK_POISON;
        snprintf(x->verdict->words, sizeof x->verdict->words, "only with NaN in slots that it must not read: %.260s",
                 wrong.words);
    }
    return error;
}

static int checks_run(trial *x, kvb_call_teams *teams)
{
    const kvb_scan_shape *shape = &x->scene.shape;
    const kvb_scan_scene *s = &x->scene;
    const bool others = shape->order == KVB_SCAN_AFTER_LARGER || shape->order == KVB_SCAN_AFTER_SMALLER;
    int error = others ? other_call(x, shape->order == KVB_SCAN_AFTER_LARGER) : 0;
    if (error)
        return error;
    kernel_run(x, NAN_BYTE);
    memcpy(x->made, s->call.out, s->out_bytes);
    memcpy(x->made + s->out_bytes, s->call.states.base, s->states_bytes);
    error = has_failed(x) ? 0 : outputs_judge(x);
    const kvb_check check = x->verdict->check;
    if (!error && (check == KVB_CHECK_BOUND || check == KVB_CHECK_STATE || check == KVB_CHECK_FINITE))
        return hidden_check(x);
    if (!error && !has_failed(x) && shape->order == KVB_SCAN_REPEATED) {
        kernel_run(x, NAN_BYTE);
        if (outputs_differ(x))
            kvb_call_wrong(x->verdict, KVB_CHECK_DETERMINISTIC, "called again, it gives other bits");
    }
    return error || has_failed(x) ? error : team_check(x, teams);
}

int kvb_scan_call_judge(const kvb_scan_kernel *kernel, const kvb_scan_shape *shape, uint64_t key, kvb_call_teams *teams,
                        kvb_call_verdict *verdict)
{
    const kvb_team *team = kvb_call_team(teams, shape->threads);
    trial x = {.kernel = kernel, .verdict = verdict, .key = key};
    *verdict = (kvb_call_verdict){.check = KVB_CHECK_NONE};
    int error = team ? kvb_scan_scene_open(shape, kernel, team, key, &x.scene) : -ENOMEM;
    if (!error) {
        x.made = malloc(x.scene.out_bytes + x.scene.states_bytes);
        error = x.made ? checks_run(&x, teams) : -ENOMEM;
    }
    free(x.made);
    kvb_scan_scene_close(&x.scene);
    return error;
}

/* ---- as a subject ------------------------------------------------------------------------------------------------ */

static bool subject_fits(const kvb_call_subject *s, const kvb_point *point, char *why, size_t why_bytes)
{
    const kvb_scan_kernel *kernel = s->definition;
    kvb_scan_shape shape;
    return kvb_scan_shape_of(point, &shape, why, why_bytes) &&
           (!kernel->supports || kernel->supports(&shape.problem, why, why_bytes));
}

static double subject_cost(const kvb_call_subject *s, const kvb_point *point)
{
    kvb_scan_shape shape;
    char why[256];
    (void)s;
    kvb_scan_shape_of(point, &shape, why, sizeof why);
    return kvb_scan_cost(&shape);
}

static int subject_judge(const kvb_call_subject *s, const kvb_point *point, uint64_t seed, kvb_call_teams *teams,
                         kvb_call_verdict *verdict, char *why, size_t why_bytes)
{
    kvb_scan_shape shape;
    if (!kvb_scan_shape_of(point, &shape, why, why_bytes))
        return -EINVAL;
    return kvb_scan_call_judge(s->definition, &shape, kvb_point_key(s->space, point, seed), teams, verdict);
}

kvb_call_subject kvb_scan_subject(const kvb_scan_kernel *kernel)
{
    return (kvb_call_subject){.kernel = kernel->name,
                              .space = &kvb_scan_space,
                              .definition = kernel,
                              .fits = subject_fits,
                              .cost = subject_cost,
                              .judge = subject_judge};
}
