/* SPDX-License-Identifier: Apache-2.0 */
/* The table of axes of a scan call; a point as a shape. */
#include "harness/calls/scan_axes.h"
#include "kernels/convert.h"
#include "workloads/files.h"

#include <stdio.h>

#define WORDS(...)  ((const char *const[]){__VA_ARGS__, NULL})
#define MOST_STATES 8e6 /* bytes */

enum {
    KIND,
    GROUPS,
    EACH,
    D_K,
    D_V,
    WIDTH,
    N_TOK,
    SEQUENCES,
    LENGTHS,
    FROM,
    TO,
    SLOTS,
    GAP,
    RUN,
    STATE,
    OUT,
    SILU,
    BIAS,
    VALUES,
    THREADS,
    ALIGN,
    ORDER,
    AXES
};

static const kvb_scan_kind kinds[] = {KVB_SCAN_MAMBA2, KVB_SCAN_MAMBA1, KVB_SCAN_LIGHTNING, KVB_SCAN_DELTA,
                                      KVB_SCAN_CONV};

static const kvb_call_axis axes[AXES] = {
    [KIND] = {"recurrence", "kind of the layer", WORDS("mamba2", "mamba1", "lightning", "delta", "conv")},
    [GROUPS] = {"groups", "groups of heads, which share q and k", WORDS("1", "2", "3", "4", "8")},
    [EACH] = {"group", "heads of each of these", WORDS("1", "2", "3", "5", "8", "16")},
    [D_K] = {"d_k", "rows of a head's state",
             WORDS("16", "64", "128", "1", "2", "3", "7", "8", "15", "17", "32", "48", "80", "96", "256")},
    [D_V] = {"d_v", "elements of such a row; of mamba1 and conv all channels",
             WORDS("16", "64", "128", "1", "3", "7", "15", "17", "32", "48", "80", "96", "112", "192", "256", "1536")},
    [WIDTH] = {"width", "of a convolution, the token itself included", WORDS("4", "2", "3", "8", "16")},
    [N_TOK] = {"tokens", "of the longest sequence",
               WORDS("1", "2", "3", "4", "7", "8", "9", "15", "16", "17", "31", "32", "33", "63", "64", "65", "127",
                     "128", "129", "255", "256", "257", "513", "1025")},
    [SEQUENCES] = {"sequences", "of the call", WORDS("1", "2", "3", "7", "16", "33")},
    [LENGTHS] = {"lengths", "of the sequences; one: one has all tokens, the others have one each",
                 WORDS("equal", "mixed", "one")},
    [FROM] = {"from", "where sequences begin; shared: all with one slot; node: with what an earlier one left",
              WORDS("slot", "zero", "mixed", "shared", "node")},
    [TO] = {"to", "where states are left; middle: in the middle, too; every: after each token",
            WORDS("place", "other", "none", "middle", "every")},
    [SLOTS] = {"slots", "order of the slots", WORDS("ordered", "shuffled")},
    [GAP] = {"slot_gap", "bytes between slots, beyond the least", WORDS("0", "64", "4096")},
    [RUN] = {"run", "the longest run as the call has it, or all of its tokens", WORDS("exact", "all")},
    [STATE] = {"state", "element of the states", WORDS("f32", "f16", "bf16")},
    [OUT] = {"out", "element of the outputs", WORDS("f32", "f16", "bf16")},
    [SILU] = {"silu", "behind a convolution", WORDS("no", "yes")},
    [BIAS] = {"bias", "of a convolution", WORDS("no", "yes")},
    [VALUES] = {"values", "decays near 1 (remembers), near 0 (forgets), both (jumps); large, subnormal and zero inputs",
                WORDS("usual", "remembers", "forgets", "jumps", "large", "tiny", "zeros")},
    [THREADS] = {"threads", "of the team; another team must give the same bits", WORDS("1", "2", "3", "8")},
    [ALIGN] = {"align", "bytes by which inputs and out are aligned, and no more", WORDS("64", "16", "4")},
    [ORDER] = {"order", "calls of the kernel before this one",
               WORDS("first", "repeated", "after-larger", "after-smaller")},
};

static const char *const bases[] = {"recurrence=conv,tokens=3,sequences=3",
                                    "recurrence=mamba1,tokens=3,sequences=3",
                                    "recurrence=delta,tokens=65,sequences=2",
                                    "tokens=33,sequences=3,groups=2,group=2",
                                    "recurrence=conv,tokens=257",
                                    NULL};

const kvb_space kvb_scan_space = {"scan", axes, AXES, bases};

static bool refuse(char *why, size_t why_bytes, const char *what)
{
    return kvb_why_set(false, why, why_bytes, "%s", what);
}

uint32_t kvb_scan_shape_length(const kvb_scan_shape *x, uint32_t sequence)
{
    if (x->lengths == KVB_LENGTHS_EQUAL || sequence == x->sequences / 2)
        return x->tokens;
    return x->lengths == KVB_LENGTHS_ONE ? 1 : 1 + (sequence * 5 + 2) * x->tokens / 7 % x->tokens;
}

/* MIDDLE: two tokens in a row. */
bool kvb_scan_shape_stores(const kvb_scan_shape *x, uint32_t length, uint32_t t)
{
    if (x->to == KVB_TO_NONE)
        return false;
    return t + 1 == length || x->to == KVB_TO_EVERY ||
           (x->to == KVB_TO_MIDDLE && (t == length / 3 || t == length / 3 + 1));
}

void kvb_scan_shape_count(kvb_scan_shape *x)
{
    uint32_t most = 0;
    x->problem.n_tok = 0;
    for (uint32_t s = 0; s < x->sequences; s++) {
        const uint32_t n = kvb_scan_shape_length(x, s), third = n / 3 + 1;
        const uint32_t behind = n > third + 1 ? n - third - 1 : 0;
        const uint32_t run = x->to == KVB_TO_EVERY ? 1 : x->to != KVB_TO_MIDDLE ? n : behind > third ? behind : third;
        x->problem.n_tok += n;
        most = run > most ? run : most;
    }
    x->problem.run = most;
}

/* Slots of a sequence: one to begin with, one for its last state, and a ring for states in the middle. */
uint32_t kvb_scan_shape_slots(const kvb_scan_shape *x)
{
    return x->sequences * (x->to >= KVB_TO_MIDDLE ? 6 : 2) + KVB_SCAN_SPARE;
}

size_t kvb_scan_shape_bytes(const kvb_scan_shape *x)
{
    const kvb_scan_problem *p = &x->problem;
    const size_t state = (size_t)p->heads * p->d_k * p->d_v * kvb_elem_bytes(p->state_elem);
    return (state + 63) / 64 * 64 + x->gap;
}

/* Do these values go together? */
static bool is_call(const kvb_point *p, const kvb_scan_shape *x, char *why, size_t why_bytes)
{
    const bool conv = x->problem.kind == KVB_SCAN_CONV;
    if (conv && (p->at[GROUPS] || p->at[EACH] || p->at[D_K]))
        return refuse(why, why_bytes, "a convolution has one head, and width - 1 rows");
    if (!conv && (p->at[WIDTH] || p->at[SILU] || p->at[BIAS]))
        return refuse(why, why_bytes, "only convolutions have width, silu and bias");
    if (conv && x->values >= KVB_SCAN_REMEMBERS && x->values <= KVB_SCAN_JUMPS)
        return refuse(why, why_bytes, "a convolution has no decays");
    if (x->sequences == 1 && (p->at[LENGTHS] || x->from >= KVB_FROM_MIXED))
        return refuse(why, why_bytes, "one sequence has no others");
    if (x->from == KVB_FROM_NODE && x->to == KVB_TO_NONE)
        return refuse(why, why_bytes, "nodes leave states");
    if (x->values == KVB_SCAN_LARGE && (x->problem.state_elem == KVB_F16 || x->problem.out_elem == KVB_F16))
        return refuse(why, why_bytes, "large values are none of f16");
    if (kvb_scan_cost(x) > KVB_SCAN_COST)
        return refuse(why, why_bytes, "the call would take too long");
    if ((double)kvb_scan_shape_slots(x) * (double)kvb_scan_shape_bytes(x) > MOST_STATES)
        return refuse(why, why_bytes, "its states would take too much memory");
    return true;
}

static uint32_t whole(const kvb_point *p, uint32_t axis)
{
    return (uint32_t)kvb_point_number(&kvb_scan_space, p, axis);
}

bool kvb_scan_shape_of(const kvb_point *p, kvb_scan_shape *x, char *why, size_t why_bytes)
{
    static const kvb_elem elems[] = {KVB_F32, KVB_F16, KVB_BF16};
    const kvb_scan_kind kind = kinds[p->at[KIND]];
    const uint32_t groups = whole(p, GROUPS);
    *x = (kvb_scan_shape){
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
    kvb_scan_shape_count(x);
    if (p->at[RUN])
        x->problem.run = x->problem.n_tok;
    return is_call(p, x, why, why_bytes);
}

double kvb_scan_cost(const kvb_scan_shape *x)
{
    const kvb_scan_problem *p = &x->problem;
    const double elements = (double)p->n_tok * p->heads * p->d_k * p->d_v;
    const double judged = elements < KVB_SCAN_JUDGED ? elements : KVB_SCAN_JUDGED;
    const double inputs = (double)p->n_tok * (p->heads * p->d_v + p->groups * p->d_k);
    return 10e3 + elements + 3 * judged + 2 * inputs +
           (double)kvb_scan_shape_slots(x) * (double)kvb_scan_shape_bytes(x) / 2;
}
