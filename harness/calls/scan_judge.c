/* SPDX-License-Identifier: Apache-2.0 */
/* Makes scan calls, with inputs and slots drawn by a key, and judges them. */

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/calls/subject.h"
#include "harness/calls/pairwise.h"
#include "harness/calls/scan_axes.h"
#include "harness/replay/kernel_io.h"
#include "kernels/convert.h"
#include "oracle/claim.h"
#include "oracle/exact.h"
#include "oracle/oracle.h"
#include "oracle/recurrence.h"
#include "workloads/array.h"
#include "workloads/rng.h"

#define COLUMNS        16u /* most columns of a head's state that are judged at once */
#define NAN_BYTE       0xff
#define EXACT_PRODUCTS 1e6 /* products of the columns that are repeated to the bit */
#define RING           4u  /* slots of states in the middle of a sequence */

/* A scan call: inputs, states in slots, sequences over them, all drawn by a key. */
typedef struct scan_scene {
    kvb_scan_shape shape;
    kvb_scan call; /* out is filled with the NaN of kernel_io.h before each run */
    size_t out_bytes, states_bytes;
    char *before; /* slots before the call: a state in those that it reads, NaN everywhere else */
    /* [slots] */
    bool *read, *written; /* read: before a token of the call writes the slot */
    uint32_t *writer;     /* last token that writes the slot */
    uint32_t *place;      /* slot -> slot for the kernel */
    /* owned by the scene */
    kvb_call_buffers buffers;
    kvb_arena arena;
    uint32_t *from, *to;
} scan_scene;

/* ---- where states lie -------------------------------------------------------------------------------------------- */

/* The slot that a sequence begins with. left: slots with the last states of earlier sequences. */
static uint32_t source_of(const kvb_scan_shape *x, uint32_t sequence, uint32_t own, uint32_t first,
                          const uint32_t *left, uint64_t *rng)
{
    switch (x->from) {
    case KVB_FROM_ZERO:
        return KVB_SCAN_ZERO;
    case KVB_FROM_MIXED:
        return sequence % 2 ? KVB_SCAN_ZERO : own;
    case KVB_FROM_SHARED:
        return first;
    case KVB_FROM_NODE:
        return sequence ? left[kvb_draw_below(rng, sequence)] : own;
    default:
        return own;
    }
}

static int sequences_make(scan_scene *s, uint64_t *rng)
{
    const kvb_scan_shape *x = &s->shape;
    const uint32_t each = (s->call.states.slots - KVB_SCAN_SPARE) / x->sequences;
    uint32_t *left = kvb_arena_take(&s->arena, x->sequences, sizeof *left), t = 0;
    /* numbers of slots, ascending or shuffled */
    uint32_t *slot = kvb_arena_take(&s->arena, s->call.states.slots, sizeof *slot);
    if (s->arena.failed)
        return -ENOMEM;
    kvb_draw_order(rng, x->shuffled, s->call.states.slots, slot);
    for (uint32_t q = 0; q < x->sequences; q++) {
        const uint32_t n = kvb_scan_shape_length(x, q), *own = slot + (size_t)q * each;
        const uint32_t source = source_of(x, q, own[0], slot[0], left, rng);
        left[q] = x->to == KVB_TO_PLACE && source != KVB_SCAN_ZERO ? source : own[1];
        for (uint32_t i = 0, stored = 0; i < n; i++, t++) {
            const uint32_t before = i ? s->to[t - 1] : source;
            /* a token after a stored state may name its slot or PREVIOUS */
            s->from[t] = i && (before == KVB_SCAN_NONE || kvb_draw_below(rng, 2)) ? KVB_SCAN_PREVIOUS : before;
            s->to[t] = !kvb_scan_shape_stores(x, n, i) ? KVB_SCAN_NONE : i + 1 < n ? own[2 + stored++ % RING] : left[q];
        }
    }
    for (t = 0; t < s->call.problem.n_tok; t++) {
        s->from[t] = s->from[t] < KVB_SCAN_ZERO ? s->place[s->from[t]] : s->from[t];
        s->to[t] = s->to[t] == KVB_SCAN_NONE ? KVB_SCAN_NONE : s->place[s->to[t]];
    }
    return 0;
}

/* Notes which slots are read and written. */
static void slots_note(scan_scene *s)
{
    uint32_t longest = 0;
    for (uint32_t t = 0; t < s->call.problem.n_tok; t++) {
        const uint32_t from = s->from[t], to = s->to[t];
        const uint32_t run = kvb_scan_run_end(&s->call, t) - t;
        longest = run > longest ? run : longest;
        if (from < KVB_SCAN_ZERO)
            s->read[from] |= !s->written[from];
        if (to != KVB_SCAN_NONE) {
            s->written[to] = true;
            s->writer[to] = t;
        }
    }
    assert(longest == s->call.problem.run || s->call.problem.run == s->call.problem.n_tok);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

typedef struct values {
    uint64_t key;
    uint64_t i; /* number of the next one */
    const kvb_scan_shape *shape;
} values;

static double unit(values *v)
{
    return kvb_rng_unit((uint32_t)kvb_rng_bits(v->key, v->i++));
}

static double between(values *v, double low, double high)
{
    return low * pow(high / low, unit(v));
}

/* Is this value zero? */
static bool is_zero(values *v)
{
    return v->shape->values == KVB_SCAN_ZEROS && unit(v) < 0.3;
}

static float normal(values *v, double factor)
{
    const double x = kvb_rng_normal((uint32_t)kvb_rng_bits(v->key, v->i++));
    return (float)((is_zero(v) ? 0 : factor) * x);
}

/* The factor on states and v. */
static double size_of(const kvb_scan_shape *x)
{
    return x->values == KVB_SCAN_LARGE ? 1e8 : x->values == KVB_SCAN_TINY ? 1e-41 : 1;
}

/* Minus the exponent of a decay. JUMPS: one decay in eight is near 0. */
static double exponent(values *v)
{
    const double jump = unit(v);
    if (is_zero(v))
        return 0;
    switch (v->shape->values) {
    case KVB_SCAN_REMEMBERS:
        return between(v, 1e-7, 1e-5);
    case KVB_SCAN_FORGETS:
        return between(v, 3, 150);
    case KVB_SCAN_JUMPS:
        return jump < 0.125 ? between(v, 5, 100) : between(v, 1e-4, 1e-2);
    default:
        return between(v, 1e-3, 1);
    }
}

/* Fills rows of q or k. Keys of the delta rule have norm 1, or are zero. */
static void keys_fill(values *v, float *rows, bool k)
{
    const kvb_scan_problem *p = &v->shape->problem;
    const bool one = p->kind == KVB_SCAN_DELTA && k;
    const double size = one ? 1 : k ? (v->shape->values == KVB_SCAN_LARGE ? 100 : 1) : 1 / sqrt(p->d_k);
    for (size_t row = 0; row < (size_t)p->n_tok * p->groups; row++, rows += p->d_k) {
        double norm2 = 0;
        for (uint32_t i = 0; i < p->d_k; i++) {
            rows[i] = normal(v, size);
            norm2 += (double)rows[i] * (double)rows[i];
        }
        for (uint32_t i = 0; i < p->d_k && one && norm2 > 0; i++)
            rows[i] = (float)((double)rows[i] / sqrt(norm2));
    }
}

static void gates_fill(values *v, float *gates, size_t n)
{
    for (size_t i = 0; i < n; i++)
        gates[i] = (float)(exponent(v) * (v->shape->problem.kind == KVB_SCAN_DELTA ? -1 : 0.25));
}

/* Fills the layer's parameters: decays, or taps. */
static void own_fill(values *v, float *a, size_t n)
{
    const kvb_scan_problem *p = &v->shape->problem;
    for (size_t i = 0; i < n; i++)
        a[i] = p->kind == KVB_SCAN_CONV        ? normal(v, 1 / sqrt(p->d_k + 1.0))
               : p->kind == KVB_SCAN_LIGHTNING ? -(float)exponent(v)
               : is_zero(v)                    ? 0
                                               : -(float)between(v, 1, 16);
}

static void betas_fill(values *v, float *betas, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double b = unit(v);
        betas[i] = (float)(v->shape->values != KVB_SCAN_ZEROS ? b : b < 0.3 ? 0 : b < 0.6 ? 1 : 2);
    }
}

/* LARGE: values of every size from 1 to factor. */
static void normals_fill(values *v, float *x, size_t n, double factor)
{
    for (size_t i = 0; i < n; i++)
        x[i] = normal(v, v->shape->values == KVB_SCAN_LARGE ? between(v, 1, factor) : factor);
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

static void *input(scan_scene *s, const char *name, size_t elements)
{
    return kvb_call_buffer(&s->buffers, name, elements * sizeof(float), s->shape.align, true);
}

static int inputs_make(scan_scene *s, values *v)
{
    const kvb_scan_problem *p = &s->call.problem;
    const bool each = p->kind == KVB_SCAN_MAMBA1, conv = p->kind == KVB_SCAN_CONV, delta = p->kind == KVB_SCAN_DELTA;
    const bool gated = each || delta || p->kind == KVB_SCAN_MAMBA2;
    const size_t rows = (size_t)p->n_tok * p->heads, n_v = rows * p->d_v, n_k = (size_t)p->n_tok * p->groups * p->d_k;
    const size_t n_gates = each ? n_v : rows;
    const size_t n_a = each ? (size_t)p->heads * p->d_k * p->d_v : conv ? (size_t)(p->d_k + 1) * p->d_v : p->heads;
    float *q = conv ? NULL : input(s, "q", n_k), *k = conv ? NULL : input(s, "k", n_k), *x = input(s, "v", n_v);
    float *gate = gated ? input(s, "gate", n_gates) : NULL, *beta = delta ? input(s, "beta", rows) : NULL;
    float *a = delta ? NULL : input(s, "a", n_a), *bias = s->shape.bias ? input(s, "bias", p->d_v) : NULL;
    if ((!conv && (!q || !k)) || !x || (gated && !gate) || (delta && !beta) || (!delta && !a) ||
        (s->shape.bias && !bias))
        return -ENOMEM;
    if (!conv) {
        keys_fill(v, q, false);
        keys_fill(v, k, true);
    }
    normals_fill(v, x, n_v, size_of(&s->shape));
    gates_fill(v, gate, gate ? n_gates : 0);
    betas_fill(v, beta, beta ? rows : 0);
    own_fill(v, a, a ? n_a : 0);
    normals_fill(v, bias, bias ? p->d_v : 0, 0.1 * size_of(&s->shape));
    s->call.q = q, s->call.k = k, s->call.v = x, s->call.gate = gate, s->call.beta = beta, s->call.a = a;
    s->call.bias = bias;
    return 0;
}

/* States in the slots that are read, NaN in all others and behind states. */
static int states_fill(scan_scene *s, values *v)
{
    const kvb_scan_problem *p = &s->call.problem;
    const size_t n = (size_t)p->heads * p->d_k * p->d_v;
    float *state = kvb_arena_take(&s->arena, n, sizeof *state);
    s->before = kvb_arena_take(&s->arena, s->states_bytes, 1);
    if (s->arena.failed)
        return -ENOMEM;
    memset(s->before, 0xff, s->states_bytes);
    for (uint32_t slot = 0; slot < s->call.states.slots; slot++)
        if (s->read[s->place[slot]]) {
            normals_fill(v, state, n, size_of(&s->shape));
            kvb_elems_encode(p->state_elem, s->before + s->place[slot] * s->call.states.slot_bytes, state, n);
        }
    return 0;
}

/* ---- the scene ------------------------------------------------------------------------------------------------- */

/* Gives the call this team, and scratch for it. 0 or -ENOMEM. */
static int scene_team(scan_scene *s, const kvb_kernel *kernel, const kvb_team *team)
{
    const size_t bytes = kernel->scan->scratch_bytes ? kernel->scan->scratch_bytes(&s->call.problem, team->n) : 0;
    const int error = kvb_call_scratch(&s->buffers, bytes);
    s->call.scratch = s->buffers.scratch;
    s->call.team = team;
    return error;
}

/* Makes the call. 0 or -ENOMEM. elsewhere: states lie in other slots. The caller closes the scene even after an error.
 */
static int scene_open(const kvb_scan_shape *shape, const kvb_kernel *kernel, const kvb_team *team, uint64_t key,
                      bool elsewhere, scan_scene *s)
{
    const kvb_scan_problem *p = &shape->problem;
    const uint32_t slots = kvb_scan_shape_slots(shape);
    uint64_t rng = kvb_rng_key(key, 1), places = kvb_rng_key(key, 3);
    values v = {.key = kvb_rng_key(key, 2), .shape = &s->shape};
    *s = (scan_scene){.shape = *shape};
    s->call.problem = *p;
    s->call.states = (kvb_scan_states){.slot_bytes = kvb_scan_shape_bytes(shape), .slots = slots};
    s->states_bytes = slots * s->call.states.slot_bytes;
    s->out_bytes = (size_t)p->n_tok * p->heads * p->d_v * kvb_elem_bytes(p->out_elem);
    s->call.states.base = kvb_call_buffer(&s->buffers, "states", s->states_bytes, 64, false);
    s->call.out = kvb_call_buffer(&s->buffers, "out", s->out_bytes, shape->align, false);
    s->call.from = s->from = input(s, "from", p->n_tok);
    s->call.to = s->to = input(s, "to", p->n_tok);
    s->read = kvb_arena_take(&s->arena, slots, sizeof *s->read);
    s->written = kvb_arena_take(&s->arena, slots, sizeof *s->written);
    s->writer = kvb_arena_take(&s->arena, slots, sizeof *s->writer);
    s->place = kvb_arena_take(&s->arena, slots, sizeof *s->place);
    if (!s->call.states.base || !s->call.out || !s->from || !s->to || s->arena.failed)
        return -ENOMEM;
    kvb_draw_order(&places, elsewhere, slots, s->place);
    int error = sequences_make(s, &rng);
    if (error)
        return error;
    slots_note(s);
    error = inputs_make(s, &v);
    if (!error)
        error = states_fill(s, &v);
    if (!error)
        error = kvb_call_buffers_keep(&s->buffers);
    return error ? error : scene_team(s, kernel, team);
}

static void scene_close(scan_scene *s)
{
    kvb_call_buffers_free(&s->buffers);
    kvb_arena_free(&s->arena);
    *s = (scan_scene){.before = NULL};
}

/* Resets out and the slots before a call. hidden: the byte that fills slots that the call must not read. */
static void scene_reset(scan_scene *s, int hidden)
{
    const kvb_scan_states *states = &s->call.states;
    const size_t elem = kvb_elem_bytes(s->call.problem.out_elem);
    kvb_outputs_fill(s->call.out, s->out_bytes / elem, elem);
    for (uint32_t slot = 0; slot < states->slots; slot++) {
        char *at = (char *)states->base + slot * states->slot_bytes;
        if (s->read[slot])
            memcpy(at, s->before + slot * states->slot_bytes, states->slot_bytes);
        else
            memset(at, hidden, states->slot_bytes);
    }
}

/* ---- the trial ------------------------------------------------------------------------------------------------- */

/* The call under judgement. */
typedef struct trial {
    const kvb_kernel *kernel;
    scan_scene scene;
    char *made; /* out of the first run, then its slots */
    kvb_call_verdict *verdict;
    kvb_call_teams *teams;
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
    const size_t bytes = kvb_elem_bytes(p->out_elem), n = x->scene.out_bytes / bytes;
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

/* Checks that the slots to write hold finite states, and that no other byte has changed. hidden: as in scene_reset().
 */
static void slots_check(trial *x, int hidden)
{
    const scan_scene *s = &x->scene;
    const kvb_scan_problem *p = &s->call.problem;
    const size_t bytes = s->call.states.slot_bytes, n = (size_t)p->heads * p->d_k * p->d_v,
                 used = n * kvb_elem_bytes(p->state_elem);
    for (uint32_t slot = 0; slot < s->call.states.slots; slot++) {
        const char *at = (const char *)s->call.states.base + slot * bytes, *was = s->before + slot * bytes;
        const size_t kept = s->written[slot] ? used : 0; /* bytes from here on must not have changed */
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
    return x->kernel->scan->scan(&x->scene.call);
}

/* Makes the call, and checks what needs no oracle. */
static void kernel_run(trial *x, int hidden)
{
    scene_reset(&x->scene, hidden);
    kvb_call_watch(&x->scene.buffers, "scan()", call_make, x, false, x->verdict);
    slots_check(x, hidden);
    written_check(x);
}

/* ---- comparing with the oracle ----------------------------------------------------------------------------------- */

/* Some columns of one head, which the oracle follows through the call. */
typedef struct lane {
    uint32_t head, first, n;
    kvb_scan_problem problem; /* with n columns */
    const kvb_scan_arithmetic *arithmetic;
    kvb_recurrence *now, **left; /* left: [slots] state that the call left there so far; NULL: none */
    double *given;               /* [d_k][n] */
    kvb_recurrence_want *want;   /* [d_k + 1][n] */
    kvb_arena arena;
} lane;

static int lane_open(const trial *x, lane *l)
{
    const kvb_scan *call = &x->scene.call;
    const kvb_scan_problem *p = &call->problem;
    l->problem = *p;
    l->problem.d_v = l->n;
    l->now = kvb_recurrence_open(&l->problem, l->arithmetic);
    l->left = kvb_arena_take(&l->arena, call->states.slots, sizeof(kvb_recurrence *));
    l->given = kvb_arena_take(&l->arena, (size_t)p->d_k * l->n, sizeof *l->given);
    l->want = kvb_arena_take(&l->arena, ((size_t)p->d_k + 1) * l->n, sizeof *l->want);
    return l->now && !l->arena.failed ? 0 : -ENOMEM;
}

static void lane_close(const trial *x, lane *l)
{
    for (uint32_t slot = 0; l->left && slot < x->scene.call.states.slots; slot++)
        kvb_recurrence_close(l->left[slot]);
    kvb_recurrence_close(l->now);
    kvb_arena_free(&l->arena);
}

/* Begins a run with this slot: the state that the call left there, or the one from before the call. */
static void lane_begin(const trial *x, lane *l, uint32_t slot)
{
    const scan_scene *s = &x->scene;
    const kvb_scan_problem *p = &s->call.problem;
    const size_t bytes = kvb_elem_bytes(p->state_elem);
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

/* Byte offset of the lane's columns: of token t in out; of row i of a slot's state from the states' base. */
static size_t out_at(const kvb_scan_problem *p, const lane *l, uint32_t t)
{
    return (((size_t)t * p->heads + l->head) * p->d_v + l->first) * kvb_elem_bytes(p->out_elem);
}

static size_t state_at(const kvb_scan *call, const lane *l, uint32_t slot, uint32_t i)
{
    const kvb_scan_problem *p = &call->problem;
    return slot * call->states.slot_bytes +
           (((size_t)l->head * p->d_k + i) * p->d_v + l->first) * kvb_elem_bytes(p->state_elem);
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

/* Takes the lane's n elements at a place, whose exact values are in l->want: in out, or (place->row > 0) in a state.
 * at: byte offset in out, or from the states' base. */
typedef void lane_take(void *ctx, const lane *l, const kvb_diff_place *place, size_t at);

/* Calls take for the outputs of all tokens, then for the states in slots. */
static int lane_follow(const trial *x, lane *l, lane_take *take, void *ctx)
{
    const kvb_scan *call = &x->scene.call;
    const kvb_scan_problem *p = &call->problem;
    kvb_diff_place place = {.head = l->head, .channel = l->first};
    int error = lane_open(x, l);
    for (uint32_t t = 0, end; t < p->n_tok && !error; t = end) {
        end = kvb_scan_run_end(call, t);
        lane_begin(x, l, kvb_scan_source(call, t));
        for (uint32_t u = t; u < end; u++) {
            const kvb_recurrence_token token = kvb_recurrence_token_of(call, u, l->head, l->first);
            kvb_recurrence_step(l->now, &token, l->want);
            place.query = u;
            take(ctx, l, &place, out_at(p, l, u));
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
            take(ctx, l, &place, state_at(call, l, slot, i));
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

/* How the columns of a call are cut into lanes. */
typedef struct lanes {
    uint32_t width, each; /* columns of a lane, lanes of a head */
    uint64_t n;
    double cost; /* element steps of a column */
    kvb_scan_arithmetic arithmetic;
} lanes;

static lanes lanes_of(const trial *x)
{
    const kvb_scan_problem *p = &x->scene.call.problem;
    lanes all = {.width = COLUMNS, .cost = (double)p->n_tok * p->d_k};
    while (all.width > 1 && all.cost * all.width > KVB_SCAN_JUDGED / 3)
        all.width /= 2;
    all.each = (p->d_v + all.width - 1) / all.width;
    all.n = (uint64_t)all.each * p->heads;
    x->kernel->scan->arithmetic(p, &all.arithmetic);
    return all;
}

static lane lane_of(const trial *x, const lanes *all, uint64_t i)
{
    lane l = {.head = (uint32_t)(i / all->each),
              .first = (uint32_t)(i % all->each) * all->width,
              .arithmetic = &all->arithmetic};
    const uint32_t left = x->scene.call.problem.d_v - l.first;
    l.n = left < all->width ? left : all->width;
    return l;
}

/* Outputs and states compared with exact ones. */
typedef struct judging {
    const kvb_scan *call;
    kvb_diff out, states;
} judging;

static void diff_take(void *ctx, const lane *l, const kvb_diff_place *place, size_t at)
{
    judging *j = ctx;
    const kvb_scan_problem *p = &j->call->problem;
    if (place->row)
        kvb_diff_take(&j->states, place, l->want + (size_t)(place->row - 1) * l->n, l->n, p->state_elem,
                      (const char *)j->call->states.base + at);
    else
        kvb_diff_take(&j->out, place, l->want, l->n, p->out_elem, (const char *)j->call->out + at);
}

/* Judges the last run. A large call is sampled: the first lane, the last, then random ones. */
static int outputs_judge(trial *x)
{
    const kvb_scan_problem *p = &x->scene.call.problem;
    const lanes all = lanes_of(x);
    const bool sampled = (double)p->heads * p->d_v * all.cost > 2 * KVB_SCAN_JUDGED;
    judging j = {.call = &x->scene.call};
    double judged = 0;
    int error = 0;
    char why[256];
    if (kvb_claim_check_scan(&all.arithmetic, p, why, sizeof why)) {
        kvb_call_wrong(x->verdict, KVB_CHECK_DECLARATION, "%s", why);
        return 0;
    }
    for (uint64_t i = 0; i < all.n && !error && (i < 3 || judged < (sampled ? 1 : 2) * KVB_SCAN_JUDGED); i++) {
        const uint64_t any = (kvb_rng_key(x->key, i) >> 16) % all.n, at = !sampled ? i
                                                                          : i == 0 ? 0
                                                                          : i == 1 ? all.n - 1
                                                                                   : any;
        lane l = lane_of(x, &all, at);
        error = lane_follow(x, &l, diff_take, &j);
        judged += all.cost * l.n;
        x->verdict->judged += p->n_tok;
    }
    x->verdict->rows += all.n * p->n_tok;
    diff_tell(x, &j.out, KVB_CHECK_BOUND);
    diff_tell(x, &j.states, KVB_CHECK_STATE);
    return error;
}

/* Compares right outputs, to the bit, with the order that the kernel declares. A large call is sampled: columns at
 * equal distances. */
static int exact_judge(trial *x)
{
    const kvb_scan *call = &x->scene.call;
    const kvb_scan_problem *p = &call->problem;
    const size_t all = (size_t)p->heads * p->d_v, most = (size_t)(EXACT_PRODUCTS / ((double)p->n_tok * p->d_k + 1)) + 2,
                 n = all < most ? all : most;
    kvb_scan_order order;
    char why[256];
    if (!x->kernel->scan->order || !x->kernel->scan->order(p, &order))
        return 0;
    for (size_t i = 0; i < n; i++) {
        const size_t column = n < 2 ? 0 : i * (all - 1) / (n - 1);
        const int alike = kvb_exact_scan(call, &order, x->scene.before, (uint32_t)(column / p->d_v),
                                         (uint32_t)(column % p->d_v), why, sizeof why);
        if (alike < 0)
            return alike == -EDOM ? 0 : alike;
        if (!alike) {
            kvb_call_wrong(x->verdict, KVB_CHECK_EXACT, "%s", why);
            return 0;
        }
    }
    x->verdict->exact = true;
    return 0;
}

/* ---- the checks, one after the other ----------------------------------------------------------------------------- */

static bool outputs_differ(const trial *x)
{
    const scan_scene *s = &x->scene;
    return memcmp(x->made, s->call.out, s->out_bytes) ||
           memcmp(x->made + s->out_bytes, s->call.states.base, s->states_bytes);
}

/* Another team must give the same bits. */
static int team_check(trial *x)
{
    scan_scene *s = &x->scene;
    const kvb_team *own = s->call.team, *other = kvb_call_team(x->teams, own->n == 1 ? 3 : 1);
    const int error = other ? scene_team(s, x->kernel, other) : -ENOMEM;
    if (error)
        return error;
    kernel_run(x, NAN_BYTE);
    if (outputs_differ(x))
        kvb_call_wrong(x->verdict, KVB_CHECK_DETERMINISTIC, "%u and %u threads give other bits", own->n, other->n);
    return scene_team(s, x->kernel, own);
}

/* Makes another call of the same kernel, of a larger or smaller shape, before the judged one. */
static int other_call(const trial *x, bool larger)
{
    kvb_scan_shape shape = x->scene.shape;
    scan_scene s;
    char why[256];
    shape.tokens = larger ? shape.tokens * 2 : (shape.tokens + 1) / 2;
    kvb_scan_shape_count(&shape);
    if (kvb_scan_cost(&shape) > KVB_SCAN_COST ||
        (x->kernel->scan->supports && !x->kernel->scan->supports(&shape.problem, why, sizeof why)))
        shape = x->scene.shape;
    const int error = scene_open(&shape, x->kernel, x->scene.call.team, kvb_rng_key(x->key, 7), false, &s);
    if (!error) {
        scene_reset(&s, NAN_BYTE);
        x->kernel->scan->scan(&s.call);
    }
    scene_close(&s);
    return error;
}

/* ---- the same bits in other ways? -------------------------------------------------------------------------------- */

/* Tokens first .. end-1 of the call, repeated in a scene. */
typedef struct again {
    trial *x;
    const scan_scene *scene;
    kvb_same_kind kind;
    uint32_t first, end;
} again;

/* Does the place belong to these tokens? *was, *now: its judged elements and its repeated ones. at: as in lane_take. */
static bool again_at(const again *a, const kvb_diff_place *place, size_t at, const char **was, const char **now)
{
    const scan_scene *s = &a->x->scene;
    const size_t bytes = s->call.states.slot_bytes;
    *was = a->x->made + (place->row ? s->out_bytes : 0) + at;
    *now = !place->row ? (const char *)a->scene->call.out + at
                       : (const char *)a->scene->call.states.base + a->scene->place[at / bytes] * bytes + at % bytes;
    return place->query >= a->first && place->query < a->end;
}

/* Are the lane's bits the same? Records that this kind was tried. */
static bool lane_is_same(const again *a, const lane *l)
{
    const scan_scene *s = &a->x->scene;
    const kvb_scan_problem *p = &s->call.problem;
    const size_t bytes = l->n * kvb_elem_bytes(p->out_elem), row = l->n * kvb_elem_bytes(p->state_elem);
    const char *was, *now;
    bool same = true;
    for (uint32_t t = a->first; t < a->end && same; t++)
        same = !again_at(a, &(kvb_diff_place){.query = t}, out_at(p, l, t), &was, &now) ||
               kvb_call_same_bits(a->x->verdict, a->kind, was, now, bytes);
    for (uint32_t slot = 0; slot < s->call.states.slots; slot++)
        for (uint32_t i = 0; i < p->d_k && s->written[slot] && same; i++)
            same = !again_at(a, &(kvb_diff_place){.query = s->writer[slot], .row = 1}, state_at(&s->call, l, slot, i),
                             &was, &now) ||
                   kvb_call_same_bits(a->x->verdict, a->kind, was, now, row);
    return same;
}

/* Records the differences of elements. */
static void again_take(void *ctx, const lane *l, const kvb_diff_place *place, size_t at)
{
    const again *a = ctx;
    const kvb_scan_problem *p = &a->x->scene.call.problem;
    const kvb_elem elem = place->row ? p->state_elem : p->out_elem;
    const kvb_recurrence_want *want = l->want + (size_t)(place->row ? place->row - 1 : 0) * l->n;
    const char *was, *now;
    if (again_at(a, place, at, &was, &now))
        for (uint32_t i = 0; i < l->n; i++)
            kvb_call_same_off(a->x->verdict, a->kind, kvb_output_value(elem, was, i), kvb_output_value(elem, now, i),
                              want[i].bound);
}

/* Records whether all bits are the same. Some lanes that differ, at least the first, are followed for their differences
 * in units of the bound. */
static int same_note(trial *x, kvb_same_kind kind, const scan_scene *scene, uint32_t first, uint32_t end)
{
    again a = {.x = x, .scene = scene, .kind = kind, .first = first, .end = end};
    const lanes all = lanes_of(x);
    double judged = 0;
    int error = 0;
    for (uint64_t i = 0; i < all.n && judged < KVB_SCAN_JUDGED && !error; i++) {
        lane l = lane_of(x, &all, i);
        if (lane_is_same(&a, &l))
            continue;
        error = lane_follow(x, &l, again_take, &a);
        judged += all.cost * l.n;
    }
    return error;
}

/* Makes the scene's call, and compares all of it. */
static int same_make(trial *x, kvb_same_kind kind, scan_scene *s)
{
    scene_reset(s, NAN_BYTE);
    return x->kernel->scan->scan(&s->call) ? 0 : same_note(x, kind, s, 0, s->call.problem.n_tok);
}

/* A call of the tokens from t on. from, to: of these tokens. */
static kvb_scan tokens_of(const kvb_scan *whole, const kvb_scan_problem *part, uint32_t t, const uint32_t *from,
                          const uint32_t *to)
{
    const kvb_recurrence_token token = kvb_recurrence_token_of(whole, t, 0, 0);
    kvb_scan call = *whole;
    call.problem = *part;
    call.q = token.q, call.k = token.k, call.v = token.v, call.gate = token.gate, call.beta = token.beta;
    call.from = from, call.to = to;
    call.out = (char *)whole->out + (size_t)t * part->heads * part->d_v * kvb_elem_bytes(part->out_elem);
    return call;
}

/* Repeats tokens first .. end-1, a sequence, without the others, in one call. STEPS: a call for each token; between
 * them the state lies in a slot that the judged call does not use. */
static int sequence_make(trial *x, kvb_same_kind kind, uint32_t first, uint32_t end)
{
    scan_scene *s = &x->scene;
    const kvb_scan whole = s->call;
    const uint32_t n = end - first, each = kind == KVB_SAME_STEPS ? 1 : n;
    kvb_scan_problem part = whole.problem;
    kvb_arena arena = {0};
    uint32_t spare = 0, *from = kvb_arena_take(&arena, n, sizeof *from), *to = kvb_arena_take(&arena, n, sizeof *to);
    int error = arena.failed ? -ENOMEM : 0;
    bool made = false;
    char why[256];
    while (s->read[spare] || s->written[spare])
        spare++;
    part.n_tok = each;
    part.run = whole.problem.run < each ? whole.problem.run : each;
    for (uint32_t i = 0; i < n && !error; i++) {
        from[i] = whole.from[first + i];
        to[i] = whole.to[first + i];
        if (i && i % each == 0) {
            to[i - 1] = to[i - 1] == KVB_SCAN_NONE ? spare : to[i - 1];
            from[i] = from[i] == KVB_SCAN_PREVIOUS ? to[i - 1] : from[i];
        }
    }
    if (!error && (!x->kernel->scan->supports || x->kernel->scan->supports(&part, why, sizeof why))) {
        scene_reset(s, NAN_BYTE);
        s->call.problem = part;
        error = scene_team(s, x->kernel, whole.team);
        made = !error;
        for (uint32_t i = 0; i < n && made; i += each) {
            kvb_scan call = tokens_of(&whole, &part, first + i, from + i, to + i);
            call.scratch = s->call.scratch;
            made = !x->kernel->scan->scan(&call);
        }
    }
    s->call = whole;
    kvb_arena_free(&arena);
    error = error ? error : scene_team(s, x->kernel, whole.team);
    return error || !made ? error : same_note(x, kind, s, first, end);
}

/* Does the sequence begin without a state that an earlier token of the call left? */
static bool begins_alone(const kvb_scan *call, uint32_t first)
{
    bool alone = true;
    for (uint32_t t = 0; t < first; t++)
        alone &= call->to[t] == KVB_SCAN_NONE || call->to[t] != call->from[first];
    return alone;
}

/* Repeats the first sequence, and the last that begins alone. */
static int sequences_again(trial *x, kvb_same_kind kind)
{
    const kvb_scan_shape *shape = &x->scene.shape;
    uint32_t last = 0, last_end = 0, first_end = 0;
    for (uint32_t q = 0, t = 0, n; q < shape->sequences; q++, t += n) {
        n = kvb_scan_shape_length(shape, q);
        if (q == 0)
            first_end = n;
        if (begins_alone(&x->scene.call, t))
            last = t, last_end = t + n;
    }
    const uint32_t least = kind == KVB_SAME_STEPS ? 2 : 1; /* fewest tokens of a sequence */
    int error = first_end >= least ? sequence_make(x, kind, 0, first_end) : 0;
    if (!error && last && last_end - last >= least)
        error = sequence_make(x, kind, last, last_end);
    return error;
}

static int same_team(void *ctx, const kvb_team *team)
{
    trial *x = ctx;
    return scene_team(&x->scene, x->kernel, team);
}

static int same_before(void *ctx)
{
    return other_call(ctx, false);
}

static int same_whole(void *ctx, kvb_same_kind kind)
{
    trial *x = ctx;
    return same_make(x, kind, &x->scene);
}

static int same_otherwise(void *ctx, kvb_same_kind kind)
{
    trial *x = ctx;
    kvb_scan_shape shape = x->scene.shape;
    const bool steps =
        shape.problem.state_elem == KVB_F32 || shape.to == KVB_TO_EVERY; /* steps round no state more often */
    if (kind == KVB_SAME_BATCH || kind == KVB_SAME_STEPS)
        return (kind == KVB_SAME_BATCH ? shape.sequences > 1 : steps) ? sequences_again(x, kind) : 0;
    scan_scene s;
    if (kind == KVB_SAME_ALIGNMENT)
        shape.align = shape.align == 64 ? 16 : 64;
    int error = scene_open(&shape, x->kernel, x->scene.call.team, x->key, kind == KVB_SAME_PAGES, &s);
    error = error ? error : same_make(x, kind, &s);
    scene_close(&s);
    return error;
}

static const kvb_call_ways same_ways = {same_team, same_before, same_whole, same_otherwise};

/* A wrong call is made again with zeros in slots that it must not read. If it is right then, reading them was the
 * fault. */
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

static int checks_run(trial *x)
{
    const kvb_scan_shape *shape = &x->scene.shape;
    const scan_scene *s = &x->scene;
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
    if (!error && !has_failed(x))
        error = exact_judge(x);
    if (!error && !has_failed(x) && shape->order == KVB_SCAN_REPEATED) {
        kernel_run(x, NAN_BYTE);
        if (outputs_differ(x))
            kvb_call_wrong(x->verdict, KVB_CHECK_DETERMINISTIC, "called again, it gives other bits");
    }
    if (!error && !has_failed(x))
        error = team_check(x);
    return error || has_failed(x) ? error : kvb_call_same(&same_ways, x, x->key, s->call.team, x->teams, x->verdict);
}

/* Makes and judges the call of a shape that the kernel takes. key: for its values and layout. 0 with the verdict, or
 * -ENOMEM. A crash of the kernel ends the process. */
static int scan_call_judge(const kvb_kernel *kernel, const kvb_scan_shape *shape, uint64_t key, kvb_call_teams *teams,
                           kvb_call_verdict *verdict)
{
    const kvb_team *team = kvb_call_team(teams, shape->threads);
    trial x = {.kernel = kernel, .verdict = verdict, .teams = teams, .key = key};
    *verdict = (kvb_call_verdict){.check = KVB_CHECK_NONE};
    int error = team ? scene_open(shape, kernel, team, key, false, &x.scene) : -ENOMEM;
    if (!error) {
        x.made = kvb_arena_take(&x.scene.arena, x.scene.out_bytes + x.scene.states_bytes, 1);
        error = x.made ? checks_run(&x) : -ENOMEM;
    }
    scene_close(&x.scene);
    return error;
}

/* ---- as a subject ------------------------------------------------------------------------------------------------ */

static bool subject_fits(const kvb_call_subject *s, const kvb_point *point, char *why, size_t why_bytes)
{
    const kvb_kernel *kernel = s->definition;
    kvb_scan_shape shape;
    return kvb_scan_shape_of(point, &shape, why, why_bytes) &&
           (!kernel->scan->supports || kernel->scan->supports(&shape.problem, why, why_bytes));
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
    return scan_call_judge(s->definition, &shape, kvb_point_key(s->space, point, seed), teams, verdict);
}

kvb_call_subject kvb_scan_subject(const kvb_kernel *kernel)
{
    return (kvb_call_subject){.kernel = kernel->name,
                              .space = &kvb_scan_space,
                              .definition = kernel,
                              .fits = subject_fits,
                              .cost = subject_cost,
                              .judge = subject_judge};
}
