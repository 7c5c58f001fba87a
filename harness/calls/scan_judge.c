/* SPDX-License-Identifier: Apache-2.0 */
/* Scan calls: the table of their axes; a point as a shape; a call with inputs and slots drawn by a key; its checks. */

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/calls/subject.h"
#include "harness/replay/kernel_io.h"
#include "kernels/convert.h"
#include "oracle/claim.h"
#include "oracle/exact.h"
#include "oracle/oracle.h"
#include "oracle/recurrence.h"
#include "oracle/single.h"
#include "workloads/array.h"
#include "workloads/files.h"
#include "workloads/rng.h"

#define COLUMNS  16u /* most columns of a head's state that are judged at once */
#define NAN_BYTE 0xff
#define RING     4u /* slots of states in the middle of a sequence */
#define SPARE    3u /* slots of a call without a sequence */

#define MOST_STATES 8e6   /* bytes */
#define MOST_COST   6e6   /* a call that costs more is not made */
#define MOST_JUDGED 200e3 /* element steps of the oracle for one call; a larger call has its columns sampled */

/* ---- axes ---------------------------------------------------------------------------------------------------------- */

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const kvb_scan_kind kinds[] = {KVB_SCAN_MAMBA2, KVB_SCAN_MAMBA1, KVB_SCAN_LIGHTNING, KVB_SCAN_DELTA,
                                      KVB_SCAN_CONV};

/* The axes: a name here, the name in a text, what it is, and its values, the simplest first. */
#define AXES_OF(A)                                                                                                     \
    A(KIND, "recurrence", "kind of the layer", "mamba2", "mamba1", "lightning", "delta", "conv")                       \
    A(GROUPS, "groups", "groups of heads, which share q and k", "1", "2", "3", "4", "8")                               \
    A(EACH, "group", "heads of each of these", "1", "2", "3", "5", "8", "16")                                          \
    A(D_K, "d_k", "rows of a head's state", "16", "64", "128", "1", "2", "3", "7", "8", "15", "17", "32", "48", "80",  \
      "96", "256")                                                                                                     \
    A(D_V, "d_v", "elements of such a row; of mamba1 and conv all channels", "16", "64", "128", "1", "3", "7", "15",   \
      "17", "32", "48", "80", "96", "112", "192", "256", "1536")                                                       \
    A(WIDTH, "width", "of a convolution, the token itself included", "4", "2", "3", "8", "16")                         \
    A(N_TOK, "tokens", "of the longest sequence", "1", "2", "3", "4", "7", "8", "9", "15", "16", "17", "31", "32",     \
      "33", "63", "64", "65", "127", "128", "129", "255", "256", "257", "513", "1025")                                 \
    A(SEQUENCES, "sequences", "of the call", "1", "2", "3", "7", "16", "33")                                           \
    A(LENGTHS, "lengths", "of the sequences; one: one has all tokens, the others have one each", "equal", "mixed",     \
      "one")                                                                                                           \
    A(FROM, "from", "where sequences begin; shared: all with one slot; node: with what an earlier one left", "slot",   \
      "zero", "mixed", "shared", "node")                                                                               \
    A(TO, "to", "where states are left; middle: in the middle, too; every: after each token", "place", "other",        \
      "none", "middle", "every")                                                                                       \
    A(SLOTS, "slots", "order of the slots", "ordered", "shuffled")                                                     \
    A(GAP, "slot_gap", "bytes between slots, beyond the least", "0", "64", "4096")                                     \
    A(RUN, "run", "the longest run as the call has it, or all of its tokens", "exact", "all")                          \
    A(STATE, "state", "element of the states", "f32", "f16", "bf16")                                                   \
    A(OUT, "out", "element of the outputs", "f32", "f16", "bf16")                                                      \
    A(SILU, "silu", "behind a convolution", "no", "yes")                                                               \
    A(BIAS, "bias", "of a convolution", "no", "yes")                                                                   \
    A(VALUES, "values", "decays near 1 (remembers), near 0 (forgets), both (jumps); large, subnormal and zero inputs", \
      "usual", "remembers", "forgets", "jumps", "large", "tiny", "zeros")                                              \
    A(THREADS, "threads", "of the team; another team must give the same bits", "1", "2", "3", "8")                     \
    A(ALIGN, "align", "bytes by which inputs and out are aligned, and no more", "64", "16", "4")                       \
    A(ORDER, "order", "calls of the kernel before this one", "first", "repeated", "after-larger", "after-smaller")
#define NUMBER(name, ...)          name,
#define ROW(name, word, what, ...) {word, what, WORDS(__VA_ARGS__)},
enum { AXES_OF(NUMBER) AXES };
static const kvb_call_axis axes[AXES] = {AXES_OF(ROW)};

static const char *const bases[] = {"recurrence=conv,tokens=3,sequences=3",
                                    "recurrence=mamba1,tokens=3,sequences=3",
                                    "recurrence=delta,tokens=65,sequences=2",
                                    "tokens=33,sequences=3,groups=2,group=2",
                                    "recurrence=conv,tokens=257",
                                    NULL};

const kvb_space kvb_scan_space = {"scan", axes, AXES, bases};

/* ---- shapes -------------------------------------------------------------------------------------------------------- */

/* A point as numbers. */
typedef struct scan_shape {
    kvb_scan_problem problem;
    uint32_t tokens, sequences; /* tokens of the longest sequence; sequences of the call, one behind the other */
    enum { KVB_LENGTHS_EQUAL, KVB_LENGTHS_MIXED, KVB_LENGTHS_ONE } lengths; /* ONE: the others have one token */
    enum { KVB_FROM_SLOT, KVB_FROM_ZERO, KVB_FROM_MIXED, KVB_FROM_SHARED, KVB_FROM_NODE } from;
    enum { KVB_TO_PLACE, KVB_TO_OTHER, KVB_TO_NONE, KVB_TO_MIDDLE, KVB_TO_EVERY } to;
    enum {
        KVB_SCAN_USUAL,
        KVB_SCAN_REMEMBERS,
        KVB_SCAN_FORGETS,
        KVB_SCAN_JUMPS,
        KVB_SCAN_LARGE,
        KVB_SCAN_TINY,
        KVB_SCAN_ZEROS
    } values;
    bool shuffled; /* slots lie in any order */
    bool bias;
    uint32_t gap;   /* unused bytes between slots */
    uint32_t align; /* bytes: inputs and out begin at a multiple of this and of no larger power of two below 64 */
    uint32_t threads;
    kvb_call_order order;
} scan_shape;

/* Tokens of a sequence. */
static uint32_t shape_length(const scan_shape *x, uint32_t sequence)
{
    if (x->lengths == KVB_LENGTHS_EQUAL || sequence == x->sequences / 2)
        return x->tokens;
    return x->lengths == KVB_LENGTHS_ONE ? 1 : 1 + (sequence * 5 + 2) * x->tokens / 7 % x->tokens;
}

/* Does token t of a sequence store the state? MIDDLE: two tokens in a row do. */
static bool shape_stores(const scan_shape *x, uint32_t length, uint32_t t)
{
    if (x->to == KVB_TO_NONE)
        return false;
    return t + 1 == length || x->to == KVB_TO_EVERY ||
           (x->to == KVB_TO_MIDDLE && (t == length / 3 || t == length / 3 + 1));
}

/* Updates n_tok and run of the problem after a change of `tokens`. */
static void shape_count(scan_shape *x)
{
    uint32_t most = 0;
    x->problem.n_tok = 0;
    for (uint32_t s = 0; s < x->sequences; s++) {
        const uint32_t n = shape_length(x, s), third = n / 3 + 1;
        const uint32_t behind = n > third + 1 ? n - third - 1 : 0;
        const uint32_t run = x->to == KVB_TO_EVERY ? 1 : x->to != KVB_TO_MIDDLE ? n : behind > third ? behind : third;
        x->problem.n_tok += n;
        most = run > most ? run : most;
    }
    x->problem.run = most;
}

/* Slots of a call. A sequence has one to begin with, one for its last state, and a ring for states in the middle. */
static uint32_t shape_slots(const scan_shape *x)
{
    return x->sequences * (x->to >= KVB_TO_MIDDLE ? 6 : 2) + SPARE;
}

/* Bytes of a slot. */
static size_t shape_bytes(const scan_shape *x)
{
    const kvb_scan_problem *p = &x->problem;
    const size_t state = (size_t)p->heads * p->d_k * p->d_v * kvb_elem_bytes(p->state_elem);
    return (state + 63) / 64 * 64 + x->gap;
}

#define SUBNORMAL_STEPS 6 /* element steps that take as long as one over subnormal numbers (measured) */

/* Estimated cost of a call: element steps of the kernel and of the oracle. */
static double shape_cost(const scan_shape *x)
{
    const kvb_scan_problem *p = &x->problem;
    const double elements = (double)p->n_tok * p->heads * p->d_k * p->d_v;
    const double steps = elements * (x->values == KVB_SCAN_TINY ? SUBNORMAL_STEPS : 1);
    const double judged = elements < MOST_JUDGED ? elements : MOST_JUDGED;
    const double inputs = (double)p->n_tok * (p->heads * p->d_v + p->groups * p->d_k);
    return 60e3 + steps + 3 * judged + 2 * inputs + (double)shape_slots(x) * (double)shape_bytes(x) / 2;
}

/* Why these values do not go together; NULL: they do. */
static const char *misfit_of(const kvb_point *p, const scan_shape *x)
{
    const bool conv = x->problem.kind == KVB_SCAN_CONV;
    if (conv && (p->at[GROUPS] || p->at[EACH] || p->at[D_K]))
        return "a convolution has one head, and width - 1 rows";
    if (!conv && (p->at[WIDTH] || p->at[SILU] || p->at[BIAS]))
        return "only convolutions have width, silu and bias";
    if (conv && x->values >= KVB_SCAN_REMEMBERS && x->values <= KVB_SCAN_JUMPS)
        return "a convolution has no decays";
    if (x->sequences == 1 && (p->at[LENGTHS] || x->from >= KVB_FROM_MIXED))
        return "one sequence has no others";
    if (x->from == KVB_FROM_NODE && x->to == KVB_TO_NONE)
        return "nodes leave states";
    if (x->values == KVB_SCAN_LARGE && (x->problem.state_elem == KVB_F16 || x->problem.out_elem == KVB_F16))
        return "large values are none of f16";
    if (shape_cost(x) > MOST_COST)
        return "the call would take too long";
    if ((double)shape_slots(x) * (double)shape_bytes(x) > MOST_STATES)
        return "its states would take too much memory";
    return NULL;
}

static uint32_t whole(const kvb_point *p, uint32_t axis)
{
    return (uint32_t)kvb_point_number(&kvb_scan_space, p, axis);
}

/* Reads a point. False with why: no call has these values together, whatever the kernel. */
static bool shape_of(const kvb_point *p, scan_shape *x, char *why, size_t why_bytes)
{
    static const kvb_elem elems[] = {KVB_F32, KVB_F16, KVB_BF16};
    const kvb_scan_kind kind = kinds[p->at[KIND]];
    const uint32_t groups = whole(p, GROUPS);
    *x = (scan_shape){
        .problem = {.kind = kind,
                    .heads = groups * whole(p, EACH),
                    .groups = groups,
                    .d_k = kind == KVB_SCAN_CONV ? whole(p, WIDTH) - 1 : whole(p, D_K),
                    .d_v = whole(p, D_V),
                    .state_elem = elems[p->at[STATE]],
                    .out_elem = elems[p->at[OUT]],
                    .silu = p->at[SILU] > 0},
        .tokens = whole(p, N_TOK),
        .sequences = whole(p, SEQUENCES),
        .lengths = p->at[LENGTHS],
        .from = p->at[FROM],
        .to = p->at[TO],
        .values = p->at[VALUES],
        .shuffled = p->at[SLOTS] > 0,
        .bias = p->at[BIAS] > 0,
        .gap = whole(p, GAP),
        .align = whole(p, ALIGN),
        .threads = whole(p, THREADS),
        .order = p->at[ORDER],
    };
    shape_count(x);
    if (p->at[RUN])
        x->problem.run = x->problem.n_tok;
    const char *misfit = misfit_of(p, x);
    return !misfit || kvb_why_set(false, why, why_bytes, "%s", misfit);
}

/* ---- the call ------------------------------------------------------------------------------------------------------ */

/* A scan call: inputs, states in slots, sequences over them, all drawn by a key. */
typedef struct scan_scene {
    scan_shape shape;
    kvb_scan call; /* out is filled with the NaN of kernel_io.h before each run */
    size_t out_bytes, states_bytes;
    char *before;         /* slots before the call: those that it reads, NaN behind the state; others are not used */
    int hidden;           /* the byte that fills slots that the call must not read */
    kvb_scan_order order; /* declared */
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
static uint32_t source_of(const scan_shape *x, uint32_t sequence, uint32_t own, uint32_t first, const uint32_t *left,
                          uint64_t *rng)
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
    const scan_shape *x = &s->shape;
    const uint32_t each = (s->call.states.slots - SPARE) / x->sequences;
    uint32_t *left = kvb_arena_take(&s->arena, x->sequences, sizeof *left), t = 0;
    /* numbers of slots, ascending or shuffled */
    uint32_t *slot = kvb_arena_take(&s->arena, s->call.states.slots, sizeof *slot);
    if (s->arena.failed)
        return -ENOMEM;
    kvb_draw_order(rng, x->shuffled, s->call.states.slots, slot);
    for (uint32_t q = 0; q < x->sequences; q++) {
        const uint32_t n = shape_length(x, q), *own = slot + (size_t)q * each;
        const uint32_t source = source_of(x, q, own[0], slot[0], left, rng);
        left[q] = x->to == KVB_TO_PLACE && source != KVB_SCAN_ZERO ? source : own[1];
        for (uint32_t i = 0, stored = 0; i < n; i++, t++) {
            const uint32_t before = i ? s->to[t - 1] : source;
            /* a token after a stored state may name its slot or PREVIOUS */
            s->from[t] = i && (before == KVB_SCAN_NONE || kvb_draw_below(rng, 2)) ? KVB_SCAN_PREVIOUS : before;
            s->to[t] = !shape_stores(x, n, i) ? KVB_SCAN_NONE : i + 1 < n ? own[2 + stored++ % RING] : left[q];
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
    const scan_shape *shape;
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
static double size_of(const scan_shape *x)
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
    return kvb_call_buffer(&s->buffers, name, elements * sizeof(float), s->shape.align, KVB_CALL_INPUT);
}

static int inputs_make(scan_scene *s, values *v)
{
    static const char *const names[KVB_SCAN_INPUTS] = {"q", "k", "v", "gate", "beta", "a", "bias"};
    enum { IN_Q, IN_K, IN_V, IN_GATE, IN_BETA, IN_A, IN_BIAS };
    size_t n[KVB_SCAN_INPUTS];
    float *x[KVB_SCAN_INPUTS] = {NULL};
    kvb_scan_inputs(&s->call.problem, n);
    n[IN_BIAS] = s->shape.bias ? n[IN_BIAS] : 0;
    for (uint32_t i = 0; i < KVB_SCAN_INPUTS; i++)
        if (n[i] && !(x[i] = input(s, names[i], n[i])))
            return -ENOMEM;
    if (x[IN_Q])
        keys_fill(v, x[IN_Q], false);
    if (x[IN_K])
        keys_fill(v, x[IN_K], true);
    normals_fill(v, x[IN_V], n[IN_V], size_of(&s->shape));
    gates_fill(v, x[IN_GATE], n[IN_GATE]);
    betas_fill(v, x[IN_BETA], n[IN_BETA]);
    own_fill(v, x[IN_A], n[IN_A]);
    normals_fill(v, x[IN_BIAS], n[IN_BIAS], 0.1 * size_of(&s->shape));
    s->call.q = x[IN_Q], s->call.k = x[IN_K], s->call.v = x[IN_V], s->call.gate = x[IN_GATE], s->call.beta = x[IN_BETA];
    s->call.a = x[IN_A], s->call.bias = x[IN_BIAS];
    return 0;
}

/* States in the slots that are read, and NaN behind states. */
static int states_fill(scan_scene *s, values *v)
{
    const kvb_scan_problem *p = &s->call.problem;
    const size_t n = (size_t)p->heads * p->d_k * p->d_v, bytes = s->call.states.slot_bytes;
    const size_t used = n * kvb_elem_bytes(p->state_elem);
    float *state = kvb_arena_take(&s->arena, n, sizeof *state);
    s->before = kvb_arena_take(&s->arena, s->states_bytes, 1);
    if (s->arena.failed)
        return -ENOMEM;
    for (uint32_t slot = 0; slot < s->call.states.slots; slot++)
        if (s->read[s->place[slot]]) {
            char *at = s->before + s->place[slot] * bytes;
            normals_fill(v, state, n, size_of(&s->shape));
            kvb_elems_encode(p->state_elem, at, state, n);
            memset(at + used, 0xff, bytes - used);
        }
    return 0;
}

/* ---- the scene ------------------------------------------------------------------------------------------------- */

static int scene_team(void *scene, const kvb_kernel *kernel, const kvb_team *team)
{
    scan_scene *s = scene;
    const size_t bytes = kernel->scan->scratch_bytes ? kernel->scan->scratch_bytes(&s->call.problem, team->n) : 0;
    const int error = kvb_call_scratch(&s->buffers, bytes);
    s->call.scratch = s->buffers.scratch;
    s->call.team = team;
    return error;
}

/* Makes the call. 0 or -ENOMEM. elsewhere: states lie in other slots. The caller closes the scene even after an error.
 */
static int scene_open(const scan_shape *shape, const kvb_kernel *kernel, const kvb_team *team, uint64_t key,
                      bool elsewhere, scan_scene *s)
{
    const kvb_scan_problem *p = &shape->problem;
    const uint32_t slots = shape_slots(shape);
    uint64_t rng = kvb_rng_key(key, 1), places = kvb_rng_key(key, 3);
    values v = {.key = kvb_rng_key(key, 2), .shape = &s->shape};
    *s = (scan_scene){.shape = *shape, .hidden = NAN_BYTE};
    s->call.problem = *p;
    s->call.states = (kvb_scan_states){.slot_bytes = shape_bytes(shape), .slots = slots};
    s->states_bytes = slots * s->call.states.slot_bytes;
    s->out_bytes = (size_t)p->n_tok * p->heads * p->d_v * kvb_elem_bytes(p->out_elem);
    s->call.states.base = kvb_call_buffer(&s->buffers, "states", s->states_bytes, 64, KVB_CALL_OUTPUT);
    s->call.out = kvb_call_buffer(&s->buffers, "out", s->out_bytes, shape->align, KVB_CALL_OUTPUT);
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
    return error ? error : scene_team(s, kernel, team);
}

static void scene_close(void *scene)
{
    scan_scene *s = scene;
    kvb_call_buffers_free(&s->buffers);
    kvb_arena_free(&s->arena);
}

/* Resets out and the slots before a call. */
static void scene_reset(scan_scene *s)
{
    const kvb_scan_states *states = &s->call.states;
    const size_t elem = kvb_elem_bytes(s->call.problem.out_elem);
    kvb_outputs_fill(s->call.out, s->out_bytes / elem, elem);
    for (uint32_t slot = 0; slot < states->slots; slot++) {
        char *at = (char *)states->base + slot * states->slot_bytes;
        if (s->read[slot])
            memcpy(at, s->before + slot * states->slot_bytes, states->slot_bytes);
        else
            memset(at, s->hidden, states->slot_bytes);
    }
}

/* ---- one run of the kernel --------------------------------------------------------------------------------------- */

static void written_check(kvb_call_trial *x)
{
    const scan_scene *s = x->scene;
    const kvb_scan_problem *p = &s->call.problem;
    const size_t bytes = kvb_elem_bytes(p->out_elem), n = s->out_bytes / bytes;
    const size_t left = kvb_outputs_left(s->call.out, n, bytes), row = left / p->d_v;
    if (left < n)
        kvb_call_wrong(x->verdict, KVB_CHECK_WRITTEN, "out of token %zu, head %zu, channel %zu is left unwritten",
                       row / p->heads, row % p->heads, left % p->d_v);
    const size_t i = kvb_call_finite(p->out_elem, s->call.out, n);
    if (i < n)
        kvb_call_wrong(x->verdict, KVB_CHECK_FINITE, "out of token %zu, head %zu, channel %zu is not finite",
                       i / p->d_v / p->heads, i / p->d_v % p->heads, i % p->d_v);
}

/* Checks that the slots to write hold finite states, and that no other byte has changed. */
static void slots_check(kvb_call_trial *x)
{
    const scan_scene *s = x->scene;
    const kvb_scan_problem *p = &s->call.problem;
    const size_t bytes = s->call.states.slot_bytes, n = (size_t)p->heads * p->d_k * p->d_v,
                 used = n * kvb_elem_bytes(p->state_elem);
    for (uint32_t slot = 0; slot < s->call.states.slots; slot++) {
        const char *at = (const char *)s->call.states.base + slot * bytes, *was = s->before + slot * bytes;
        const size_t kept = s->written[slot] ? used : 0; /* bytes from here on must not have changed */
        const size_t i = s->written[slot] ? kvb_call_finite(p->state_elem, at, n) : n;
        if (i < n) {
            kvb_call_wrong(x->verdict, KVB_CHECK_FINITE,
                           "the state of slot %u, head %zu, row %zu, channel %zu is not finite", slot,
                           i / p->d_v / p->d_k, i / p->d_v % p->d_k, i % p->d_v);
            return;
        }
        if (s->read[slot] ? memcmp(at + kept, was + kept, bytes - kept) != 0
                          : !kvb_call_filled(at + kept, bytes - kept, s->hidden))
            kvb_call_wrong(x->verdict, KVB_CHECK_MARGINS, "scan() wrote %s slot %u%s", kept ? "behind" : "to", slot,
                           kept ? "'s state" : ", which no token leaves its state in");
    }
}

static void begin(kvb_call_trial *x)
{
    scene_reset(x->scene);
}

static int run(kvb_call_trial *x)
{
    const scan_scene *s = x->scene;
    return x->kernel->scan->scan(&s->call);
}

static void look(kvb_call_trial *x)
{
    slots_check(x);
    written_check(x);
}

static int hide(kvb_call_trial *x, bool hidden)
{
    ((scan_scene *)x->scene)->hidden = hidden ? NAN_BYTE : 0;
    return 0;
}

/* ---- comparing with the oracle ----------------------------------------------------------------------------------- */

static void diff_tell(kvb_call_trial *x, const kvb_diff *diff, kvb_check check)
{
    const scan_scene *s = x->scene;
    const kvb_diff_place *at = &diff->first;
    char row[64] = "out";
    x->verdict->rho = fmax(x->verdict->rho, diff->rho);
    if (at->row)
        snprintf(row, sizeof row, "row %u of the state in slot %u, left", at->row - 1u, s->call.to[at->query]);
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

static lanes lanes_of(const kvb_call_trial *x)
{
    const scan_scene *s = x->scene;
    const kvb_scan_problem *p = &s->call.problem;
    lanes all = {.width = COLUMNS, .cost = (double)p->n_tok * p->d_k};
    while (all.width > 1 && all.cost * all.width > MOST_JUDGED / 3)
        all.width /= 2;
    all.each = (p->d_v + all.width - 1) / all.width;
    all.n = (uint64_t)all.each * p->heads;
    x->kernel->scan->arithmetic(p, &all.arithmetic);
    return all;
}

static kvb_lane lane_of(const scan_scene *s, const lanes *all, uint64_t i)
{
    kvb_lane l = {.head = (uint32_t)(i / all->each), .first = (uint32_t)(i % all->each) * all->width};
    const uint32_t left = s->call.problem.d_v - l.first;
    l.n = left < all->width ? left : all->width;
    return l;
}

/* Judges the last run. A large call is sampled: the first lane, the last, then random ones. */
static int outputs_judge(kvb_call_trial *x, const char *when)
{
    const scan_scene *s = x->scene;
    const kvb_scan_problem *p = &s->call.problem;
    const lanes all = lanes_of(x);
    const bool sampled = (double)p->heads * p->d_v * all.cost > 2 * MOST_JUDGED;
    kvb_diff out = {0}, states = {0};
    double judged = 0;
    int error = 0;
    char why[256];
    (void)when;
    if (kvb_claim_check_scan(&all.arithmetic, p, why, sizeof why)) {
        kvb_call_wrong(x->verdict, KVB_CHECK_DECLARATION, "%s", why);
        return 0;
    }
    for (uint64_t i = 0; i < all.n && !error && (i < 3 || judged < (sampled ? 1 : 2) * MOST_JUDGED); i++) {
        const uint64_t any = (kvb_rng_key(x->key, i) >> 16) % all.n, at = !sampled ? i
                                                                          : i == 0 ? 0
                                                                          : i == 1 ? all.n - 1
                                                                                   : any;
        const kvb_lane l = lane_of(s, &all, at);
        error = kvb_lane_judge(&s->call, s->before, &all.arithmetic, &l, &out, &states);
        judged += all.cost * l.n;
        x->verdict->judged += p->n_tok;
    }
    x->verdict->rows += all.n * p->n_tok;
    diff_tell(x, &out, KVB_CHECK_BOUND);
    diff_tell(x, &states, KVB_CHECK_STATE);
    return error;
}

static bool order_of(kvb_call_trial *x)
{
    scan_scene *s = x->scene;
    return x->kernel->scan->order && x->kernel->scan->order(&s->call.problem, &s->order);
}

static int column_exact(kvb_call_trial *x, size_t column, char *why, size_t why_bytes)
{
    const scan_scene *s = x->scene;
    const uint32_t d_v = s->call.problem.d_v;
    return kvb_exact_scan(&s->call, &s->order, s->before, (uint32_t)(column / d_v), (uint32_t)(column % d_v), why,
                          why_bytes);
}

static int other_call(kvb_call_trial *x, bool larger)
{
    const scan_scene *judged = x->scene;
    scan_shape shape = judged->shape;
    scan_scene s;
    char why[256];
    shape.tokens = larger ? shape.tokens * 2 : (shape.tokens + 1) / 2;
    shape_count(&shape);
    if (shape_cost(&shape) > MOST_COST ||
        (x->kernel->scan->supports && !x->kernel->scan->supports(&shape.problem, why, sizeof why)))
        shape = judged->shape;
    const int error = scene_open(&shape, x->kernel, x->team, kvb_rng_key(x->key, 7), false, &s);
    if (!error) {
        scene_reset(&s);
        x->kernel->scan->scan(&s.call);
    }
    scene_close(&s);
    return error;
}

/* ---- the same bits in other ways? -------------------------------------------------------------------------------- */

/* Tokens first .. end-1 of the call, repeated in a scene. */
typedef struct repeated {
    kvb_call_verdict *verdict;
    const scan_scene *judged, *scene;
    kvb_same_kind way;
    uint32_t first, end;
} repeated;

/* Does the place belong to these tokens? *was, *now: its judged elements and its repeated ones. at: as in kvb_lane_take. */
static bool place_find(const repeated *a, const kvb_diff_place *place, size_t at, const char **was, const char **now)
{
    const scan_scene *s = a->judged;
    const size_t bytes = s->call.states.slot_bytes;
    *was = kvb_call_first(&s->buffers, place->row ? s->call.states.base : s->call.out) + at;
    *now = !place->row ? (const char *)a->scene->call.out + at
                       : (const char *)a->scene->call.states.base + a->scene->place[at / bytes] * bytes + at % bytes;
    return place->query >= a->first && place->query < a->end;
}

/* Are the lane's bits the same? Records that this way was tried. */
static bool lane_is_same(const repeated *a, const kvb_lane *l)
{
    const scan_scene *s = a->judged;
    const kvb_scan_problem *p = &s->call.problem;
    const size_t bytes = l->n * kvb_elem_bytes(p->out_elem), row = l->n * kvb_elem_bytes(p->state_elem);
    const char *was, *now;
    bool same = true;
    for (uint32_t t = a->first; t < a->end && same; t++)
        same = !place_find(a, &(kvb_diff_place){.query = t}, kvb_lane_out_at(&s->call, l, t), &was, &now) ||
               kvb_call_same_bits(a->verdict, a->way, was, now, bytes);
    for (uint32_t slot = 0; slot < s->call.states.slots; slot++)
        for (uint32_t i = 0; i < p->d_k && s->written[slot] && same; i++)
            same = !place_find(a, &(kvb_diff_place){.query = s->writer[slot], .row = 1},
                               kvb_lane_state_at(&s->call, l, slot, i), &was, &now) ||
                   kvb_call_same_bits(a->verdict, a->way, was, now, row);
    return same;
}

/* Records the differences of elements. */
static void repeated_take(void *ctx, const kvb_lane *l, const kvb_diff_place *place, const kvb_recurrence_want *want,
                          size_t at)
{
    const repeated *a = ctx;
    const kvb_scan_problem *p = &a->judged->call.problem;
    const kvb_elem elem = place->row ? p->state_elem : p->out_elem;
    const char *was, *now;
    if (place_find(a, place, at, &was, &now))
        for (uint32_t i = 0; i < l->n; i++)
            kvb_call_same_off(a->verdict, a->way, kvb_output_value(elem, was, i), kvb_output_value(elem, now, i),
                              want[i].bound);
}

/* Records whether all bits are the same. Some lanes that differ, at least the first, are followed for their differences
 * in units of the bound. */
static int same_note(kvb_call_trial *x, kvb_same_kind way, const scan_scene *scene, uint32_t first, uint32_t end)
{
    const scan_scene *s = x->scene;
    repeated a = {.verdict = x->verdict, .judged = s, .scene = scene, .way = way, .first = first, .end = end};
    const lanes all = lanes_of(x);
    double judged = 0;
    int error = 0;
    for (uint64_t i = 0; i < all.n && judged < MOST_JUDGED && !error; i++) {
        const kvb_lane l = lane_of(s, &all, i);
        if (lane_is_same(&a, &l))
            continue;
        error = kvb_lane_follow(&s->call, s->before, &all.arithmetic, &l, repeated_take, &a);
        judged += all.cost * l.n;
    }
    return error;
}

/* Makes the scene's call, and compares all of it. */
static int same_make(kvb_call_trial *x, kvb_same_kind way, scan_scene *s)
{
    scene_reset(s);
    return x->kernel->scan->scan(&s->call) ? 0 : same_note(x, way, s, 0, s->call.problem.n_tok);
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
static int sequence_make(kvb_call_trial *x, kvb_same_kind way, uint32_t first, uint32_t end)
{
    scan_scene *s = x->scene;
    const kvb_scan whole = s->call;
    const uint32_t n = end - first, each = way == KVB_SAME_STEPS ? 1 : n;
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
        scene_reset(s);
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
    return error || !made ? error : same_note(x, way, s, first, end);
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
static int sequences_again(kvb_call_trial *x, kvb_same_kind way)
{
    const scan_scene *s = x->scene;
    const scan_shape *shape = &s->shape;
    uint32_t last = 0, last_end = 0, first_end = 0;
    for (uint32_t q = 0, t = 0, n; q < shape->sequences; q++, t += n) {
        n = shape_length(shape, q);
        if (q == 0)
            first_end = n;
        if (begins_alone(&s->call, t))
            last = t, last_end = t + n;
    }
    const uint32_t least = way == KVB_SAME_STEPS ? 2 : 1; /* fewest tokens of a sequence */
    int error = first_end >= least ? sequence_make(x, way, 0, first_end) : 0;
    if (!error && last && last_end - last >= least)
        error = sequence_make(x, way, last, last_end);
    return error;
}

static int again(kvb_call_trial *x, kvb_same_kind way)
{
    scan_scene *judged = x->scene, s;
    scan_shape shape = judged->shape;
    const bool steps =
        shape.problem.state_elem == KVB_F32 || shape.to == KVB_TO_EVERY; /* steps round no state more often */
    judged->hidden = NAN_BYTE;
    if (way == KVB_SAME_THREADS || way == KVB_SAME_AGAIN)
        return same_make(x, way, judged);
    if (way == KVB_SAME_BATCH || way == KVB_SAME_STEPS)
        return (way == KVB_SAME_BATCH ? shape.sequences > 1 : steps) ? sequences_again(x, way) : 0;
    if (way == KVB_SAME_ALIGNMENT)
        shape.align = shape.align == 64 ? 16 : 64;
    int error = scene_open(&shape, x->kernel, x->team, x->key, way == KVB_SAME_PAGES, &s);
    error = error ? error : same_make(x, way, &s);
    scene_close(&s);
    return error;
}

/* ---- as a subject ------------------------------------------------------------------------------------------------ */

static int open_call(kvb_call_trial *x, const kvb_call_subject *subject, const kvb_point *point)
{
    scan_scene *s = x->scene;
    scan_shape shape;
    const kvb_scan_problem *p = &shape.problem;
    (void)subject;
    if (!shape_of(point, &shape, x->why, x->why_bytes))
        return -EINVAL;
    x->team = kvb_call_team(x->teams, shape.threads);
    x->buffers = &s->buffers;
    x->order = shape.order;
    x->same_bits = x->hides = true;
    x->rows = (size_t)p->heads * p->d_v;
    x->row_products = (double)p->n_tok * p->d_k + 1;
    return x->team ? scene_open(&shape, x->kernel, x->team, x->key, false, s) : -ENOMEM;
}

static const kvb_trial_kind kind = {"scan()",      "slots that it must not read",
                                    true,          sizeof(scan_scene),
                                    open_call,     scene_close,
                                    scene_team,    other_call,
                                    hide,          begin,
                                    run,           look,
                                    outputs_judge, order_of,
                                    column_exact,  again,
                                    NULL};

static bool subject_fits(const kvb_call_subject *s, const kvb_point *point, char *why, size_t why_bytes)
{
    const kvb_scan_face *scan = s->kernel->scan;
    scan_shape shape;
    return shape_of(point, &shape, why, why_bytes) &&
           (!scan->supports || scan->supports(&shape.problem, why, why_bytes));
}

static double subject_cost(const kvb_call_subject *s, const kvb_point *point)
{
    scan_shape shape;
    char why[256];
    (void)s;
    shape_of(point, &shape, why, sizeof why);
    return shape_cost(&shape);
}

kvb_call_subject kvb_scan_subject(const kvb_kernel *kernel)
{
    return (kvb_call_subject){&kvb_scan_space, kernel, &kind, NULL, subject_fits, subject_cost, NULL};
}
