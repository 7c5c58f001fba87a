/* SPDX-License-Identifier: Apache-2.0 */
/* Scenes of scan calls. */
#include "harness/calls/scan_scene.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/calls/draw.h"
#include "harness/replay/kernel_io.h"
#include "kernels/convert.h"
#include "workloads/rng.h"

#define RING 4u /* slots of states in the middle of a sequence */

/* ---- where states lie -------------------------------------------------------------------------------------------- */

/* The slot that a sequence begins with. left: those in which earlier ones left their states. */
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

static int sequences_make(kvb_scan_scene *s, uint64_t *rng)
{
    const kvb_scan_shape *x = &s->shape;
    const uint32_t each = (s->call.states.slots - KVB_SCAN_SPARE) / x->sequences;
    uint32_t *left = calloc(x->sequences, sizeof *left), t = 0;
    uint32_t *slot = malloc(s->call.states.slots * sizeof *slot); /* of a number: itself, or another one */
    const int error = left && slot ? 0 : -ENOMEM;
    if (slot)
        kvb_draw_order(rng, x->shuffled, s->call.states.slots, slot);
    for (uint32_t q = 0; q < x->sequences && !error; q++) {
        const uint32_t n = kvb_scan_shape_length(x, q), *own = slot + (size_t)q * each;
        const uint32_t source = source_of(x, q, own[0], slot[0], left, rng);
        left[q] = x->to == KVB_TO_PLACE && source != KVB_SCAN_ZERO ? source : own[1];
        for (uint32_t i = 0, stored = 0; i < n; i++, t++) {
            const uint32_t before = i ? s->to[t - 1] : source;
            /* a state that was stored may be named either way */
            s->from[t] = i && (before == KVB_SCAN_NONE || kvb_draw_below(rng, 2)) ? KVB_SCAN_PREVIOUS : before;
            s->to[t] = !kvb_scan_shape_stores(x, n, i) ? KVB_SCAN_NONE : i + 1 < n ? own[2 + stored++ % RING] : left[q];
        }
    }
    free(left);
    free(slot);
    return error;
}

/* Which slots are read and written. */
static void slots_note(kvb_scan_scene *s)
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

/* Is this one of those that are zero? */
static bool is_zero(values *v)
{
    return v->shape->values == KVB_SCAN_ZEROS && unit(v) < 0.3;
}

static float normal(values *v, double factor)
{
    const double x = kvb_rng_normal((uint32_t)kvb_rng_bits(v->key, v->i++));
    return (float)((is_zero(v) ? 0 : factor) * x);
}

/* What states and v are multiplied by. */
static double size_of(const kvb_scan_shape *x)
{
    return x->values == KVB_SCAN_LARGE ? 1e8 : x->values == KVB_SCAN_TINY ? 1e-41 : 1;
}

/* The exponent of a decay, its sign turned. In a layer whose decays jump one in eight is near 0. */
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

/* Rows of q or k; keys of the delta rule have norm 1, or are zero. */
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

/* What is the layer's own: decays; taps. */
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

/* Large ones are of every size from 1 on. */
static void normals_fill(values *v, float *x, size_t n, double factor)
{
    for (size_t i = 0; i < n; i++)
        x[i] = normal(v, v->shape->values == KVB_SCAN_LARGE ? between(v, 1, factor) : factor);
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

static void *input(kvb_scan_scene *s, const char *name, size_t elements)
{
    return kvb_call_buffer(&s->buffers, name, elements * sizeof(float), s->shape.align, true);
}

static int inputs_make(kvb_scan_scene *s, values *v)
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
static int states_fill(kvb_scan_scene *s, values *v)
{
    const kvb_scan_problem *p = &s->call.problem;
    const size_t n = (size_t)p->heads * p->d_k * p->d_v;
    float *state = malloc(n * sizeof *state);
    s->before = malloc(s->states_bytes);
    if (!state || !s->before) {
        free(state);
        return -ENOMEM;
    }
    memset(s->before, 0xff, s->states_bytes);
    for (uint32_t slot = 0; slot < s->call.states.slots; slot++)
        if (s->read[slot]) {
            normals_fill(v, state, n, size_of(&s->shape));
            kvb_elems_encode(p->state_elem, s->before + slot * s->call.states.slot_bytes, state, n);
        }
    free(state);
    return 0;
}

int kvb_scan_scene_open(const kvb_scan_shape *shape, const kvb_scan_kernel *kernel, const kvb_team *team, uint64_t key,
                        kvb_scan_scene *s)
{
    const kvb_scan_problem *p = &shape->problem;
    const uint32_t slots = kvb_scan_shape_slots(shape);
    uint64_t rng = kvb_rng_key(key, 1);
    values v = {.key = kvb_rng_key(key, 2), .shape = &s->shape};
    *s = (kvb_scan_scene){.shape = *shape};
    s->call.problem = *p;
    s->call.states = (kvb_scan_states){.slot_bytes = kvb_scan_shape_bytes(shape), .slots = slots};
    s->states_bytes = slots * s->call.states.slot_bytes;
    s->out_bytes = (size_t)p->n_tok * p->heads * p->d_v * kvb_elem_bytes(p->out_elem);
    s->call.states.base = kvb_call_buffer(&s->buffers, "states", s->states_bytes, 64, false);
    s->call.out = kvb_call_buffer(&s->buffers, "out", s->out_bytes, shape->align, false);
    s->call.from = s->from = input(s, "from", p->n_tok);
    s->call.to = s->to = input(s, "to", p->n_tok);
    s->read = calloc(slots, sizeof *s->read);
    s->written = calloc(slots, sizeof *s->written);
    s->writer = calloc(slots, sizeof *s->writer);
    if (!s->call.states.base || !s->call.out || !s->from || !s->to || !s->read || !s->written || !s->writer)
        return -ENOMEM;
    int error = sequences_make(s, &rng);
    if (error)
        return error;
    slots_note(s);
    error = inputs_make(s, &v);
    if (!error)
        error = states_fill(s, &v);
    if (!error)
        error = kvb_call_buffers_keep(&s->buffers);
    return error ? error : kvb_scan_scene_team(s, kernel, team);
}

void kvb_scan_scene_close(kvb_scan_scene *s)
{
    kvb_call_buffers_free(&s->buffers);
    free(s->before);
    free(s->read);
    free(s->written);
    free(s->writer);
    *s = (kvb_scan_scene){.before = NULL};
}

void kvb_scan_scene_reset(kvb_scan_scene *s, int hidden)
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

int kvb_scan_scene_team(kvb_scan_scene *s, const kvb_scan_kernel *kernel, const kvb_team *team)
{
    const size_t bytes = kernel->scratch_bytes ? kernel->scratch_bytes(&s->call.problem, team->n) : 0;
    const int error = kvb_call_scratch(&s->buffers, bytes);
    s->call.scratch = s->buffers.scratch;
    s->call.team = team;
    return error;
}
