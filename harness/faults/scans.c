/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults of states, as engines have had them. They are planted between the kernel and the slots that a cache names, so to
 * the checks the cache or the kernel seems to be at fault. A token whose first slot was the first slot of an earlier token
 * goes back: a rollback or a fork.
 */
#include "harness/faults/fault.h"
#include "kernels/convert.h"
#include "oracle/recurrence.h"

#include <math.h>
#include <string.h>

#define TOKENS 4096u
#define SLOTS  4096u
#define NONE   UINT32_MAX

/* The calls of one part of one layer, which share the memory of its slots. */
typedef struct line {
    const void *base;
    uint32_t next[SLOTS], before[SLOTS]; /* [slot] the slot last written from it; the slot that it was written from */
    uint32_t backs;                      /* how often a single sequence went back */
    uint32_t tree[TOKENS], depth[TOKENS], n_tree; /* slots of the nodes of the last tree, and their depths */
} line;

static line *line_of(const kvb_scan *x)
{
    static line lines[64];
    line *l = lines;
    while (l->base && l->base != x->states.base && l + 1 < lines + sizeof lines / sizeof *lines)
        l++;
    if (l->base != x->states.base) {
        l->base = x->states.base;
        memset(l->next, 0xff, sizeof l->next);
        memset(l->before, 0xff, sizeof l->before);
    }
    return l;
}

/* Notes the slots of the call's tokens, as the cache named them. */
static void slots_note(line *l, const kvb_scan *x)
{
    for (uint32_t t = 0; t < x->problem.n_tok; t++) {
        const uint32_t a = x->from[t], b = x->to[t];
        if (b >= SLOTS || a == b)
            continue;
        if (a < SLOTS)
            l->next[a] = b;
        l->before[b] = a < SLOTS ? a : NONE;
        l->next[b] = NONE;
    }
}

static uint32_t newest(const line *l, uint32_t slot)
{
    while (l->next[slot] != NONE)
        slot = l->next[slot];
    return slot;
}

KVB_HOOK_OF(uint32_t, one_too_new, (const line *l, uint32_t slot), l->next[slot])
KVB_HOOK_OF(uint32_t, shifted, (const line *l, uint32_t slot),
            l->backs > 1 && l->before[slot] != NONE ? l->before[slot] : slot)

static uint32_t (*const wrong_slots[])(const line *l, uint32_t slot) = {newest, one_too_new, shifted};

/* If the call has one token, and it goes back, the token begins with a wrong slot. by: which one. */
static void go_back(const kvb_scan *x, uint32_t *from)
{
    line *l = line_of(x);
    if (x->problem.n_tok == 1 && x->from[0] < SLOTS && l->next[x->from[0]] != NONE) {
        l->backs++;
        from[0] = wrong_slots[(size_t)kvb_fault_here.by](l, from[0]);
    }
    slots_note(l, x);
}

/* Two tokens that begin with one slot are forks. The later one begins with the state that the earlier one wrote. */
static void fork_shared(const kvb_scan *x, uint32_t *from)
{
    for (uint32_t t = 1; t < x->problem.n_tok; t++)
        for (uint32_t u = 0; u < t && x->from[t] < SLOTS; u++)
            if (x->from[u] == x->from[t] && x->to[u] != KVB_SCAN_NONE)
                from[t] = x->to[u];
}

/* After a tree the state is taken from the node with index (accepted nodes - 1), whichever nodes were accepted. */
static void accepted_less_one(const kvb_scan *x, uint32_t *from)
{
    line *l = line_of(x);
    for (uint32_t node = 0; node < l->n_tree; node++)
        if (l->tree[node] == x->from[0]) {
            from[0] = l->tree[l->depth[node]];
            break;
        }
    l->n_tree = 0;
    for (uint32_t t = 0; t < x->problem.n_tok; t++) {
        l->tree[t] = x->to[t];
        l->depth[t] = 0;
        for (uint32_t u = 0; u < t; u++)
            if (x->from[t] == x->to[u] && x->to[u] != KVB_SCAN_NONE) {
                l->depth[t] = l->depth[u] + 1;
                l->n_tree = x->problem.n_tok;
            }
    }
}

/* A new sequence begins with the old content of its slot. */
static void slot_not_cleared(const kvb_scan *x, uint32_t *from)
{
    for (uint32_t t = 0; t < x->problem.n_tok; t++)
        from[t] = from[t] == KVB_SCAN_ZERO && x->to[t] != KVB_SCAN_NONE ? x->to[t] : from[t];
}

/* All sequences of a step begin with the convolution's window of the first. */
static void first_window_for_all(const kvb_scan *x, uint32_t *from)
{
    for (uint32_t t = 1; t < x->problem.n_tok && x->problem.kind == KVB_SCAN_CONV && x->from[0] < SLOTS; t++) {
        bool begins = x->from[t] < SLOTS;
        for (uint32_t u = 0; u < t; u++)
            begins = begins && x->to[u] != x->from[t];
        from[t] = begins ? x->from[0] : from[t];
    }
}

/* transformers 46741: if a sequence with a state brings several tokens in one step, all begin with that state. */
static void tokens_as_one(const kvb_scan *x, uint32_t *from)
{
    for (uint32_t t = 0, end; t < x->problem.n_tok; t = end) {
        const uint32_t slot = kvb_scan_source(x, t);
        end = kvb_scan_run_end(x, t);
        for (uint32_t u = t + 1; u < end && slot < SLOTS; u++)
            from[u] = slot;
    }
}

/* One token in the middle of a run, like one at the border of a chunk, does not decay the state. */
static void border_undecayed(kvb_scan *x)
{
    static float gate[1u << 20];
    const size_t heads = x->problem.heads, n = x->problem.n_tok * heads;
    if (x->problem.kind != KVB_SCAN_DELTA || x->problem.run < 8 || n > sizeof gate / sizeof *gate)
        return;
    memcpy(gate, x->gate, n * sizeof *gate);
    memset(gate + x->problem.n_tok / 2 * heads, 0, heads * sizeof *gate);
    x->gate = gate;
}

/* ---- states after the call --------------------------------------------------------------------------------------- */

/* The slot to which the call's last token writes its state, or KVB_SCAN_NONE. */
static uint32_t last_slot(const kvb_scan *x)
{
    return x->to[x->problem.n_tok - 1];
}

static char *slot_at(const kvb_scan *x, uint32_t slot)
{
    return (char *)x->states.base + (size_t)slot * x->states.slot_bytes;
}

/* Runs the last token of a prompt once more, as if the call were padded with it. */
static void padded(const kvb_scan *call)
{
    static float unread[1u << 20]; /* scan() may not allocate */
    const kvb_scan_problem *p = &call->problem;
    const uint32_t last = p->n_tok - 1, slot = last_slot(call);
    const size_t values = (size_t)p->heads * p->d_v;
    if (last == 0 || slot == KVB_SCAN_NONE || values > sizeof unread / sizeof *unread)
        return;
    kvb_scan x = *call;
    x.problem.n_tok = x.problem.run = 1;
    const kvb_recurrence_token token = kvb_recurrence_token_of(call, last, 0, 0);
    x.q = token.q, x.k = token.k, x.v = token.v, x.gate = token.gate, x.beta = token.beta;
    x.from = x.to = &slot;
    x.out = unread;
    kvb_fault_here.scan->scan(&x);
}

/* A prompt shorter than the convolution leaves no inputs in its slot. */
static void short_prompt_lost(const kvb_scan *x)
{
    const kvb_scan_problem *p = &x->problem;
    const uint32_t slot = last_slot(x);
    if (p->kind == KVB_SCAN_CONV && p->n_tok < p->d_k && x->from[0] == KVB_SCAN_ZERO && slot != KVB_SCAN_NONE)
        memset(slot_at(x, slot), 0, x->states.slot_bytes);
}

/* mamba 1027: a convolution's slot holds the newest token's output in place of its input. */
static void output_for_input(const kvb_scan *x)
{
    const kvb_scan_problem *p = &x->problem;
    const bool fits = p->kind == KVB_SCAN_CONV && p->state_elem == KVB_F32 && p->out_elem == KVB_F32;
    for (uint32_t t = 0; t < p->n_tok && fits; t++)
        if (x->to[t] != KVB_SCAN_NONE)
            memcpy((float *)kvb_scan_state(x, x->to[t], 0) + (size_t)(p->d_k - 1) * p->d_v,
                   (const float *)x->out + (size_t)t * p->d_v, p->d_v * sizeof(float));
}

/* The state of a tree's last token is not stored. */
static char state_was[1u << 20];

static bool is_lost(const kvb_scan *x)
{
    return last_slot(x) != KVB_SCAN_NONE && x->problem.n_tok > 4 && x->to[0] != KVB_SCAN_NONE &&
           x->states.slot_bytes <= sizeof state_was;
}

KVB_HOOK_IF(state_keep, kvb_scan *x, is_lost(x), memcpy(state_was, slot_at(x, last_slot(x)), x->states.slot_bytes))
KVB_HOOK_IF(state_lost, const kvb_scan *x, is_lost(x),
            memcpy(slot_at(x, last_slot(x)), state_was, x->states.slot_bytes))

/* The state is also written to the next slot. */
static void slot_beside(const kvb_scan *x)
{
    const uint32_t slot = last_slot(x);
    if (slot != KVB_SCAN_NONE && slot + 1 < x->states.slots)
        memcpy(slot_at(x, slot + 1), slot_at(x, slot), x->states.slot_bytes);
}

/* Changes one output of one call, in a channel that is not always followed. */
static void channel_off(const kvb_scan *x)
{
    static uint32_t calls;
    const kvb_scan_problem *p = &x->problem;
    if (p->kind == KVB_SCAN_CONV && ++calls == 40 && p->out_elem == KVB_F32)
        ((float *)x->out)[(size_t)(p->n_tok - 1) * p->d_v + p->d_v / 2] *= 1 + 0x1p-13f;
}

/* Declares so many roundings that any output passes. */
KVB_HOOK(endless_chain, kvb_scan_arithmetic *a, a->read_chain = 1u << 30)

KVB_HOOK(nothing_read, const kvb_scan *x,
         memset(x->out, 0,
                (size_t)x->problem.n_tok * x->problem.heads * x->problem.d_v * kvb_elem_bytes(x->problem.out_elem)))

/* ---- the order of additions: in single calls ---------------------------------------------------------------------- */

KVB_HOOK(fused_otherwise, kvb_scan_order *o, o->fused = !o->fused)
KVB_HOOK(gate_otherwise, kvb_scan_order *o, o->gate_on_v = !o->gate_on_v)
KVB_HOOK(decay_otherwise, kvb_scan_order *o, o->decay_last = !o->decay_last)

static void last_bit(const kvb_scan *x)
{
    float *out = x->out;
    if (x->problem.out_elem == KVB_F32 && *out != 0)
        *out = nextafterf(*out, INFINITY);
}

static void state_last_bit(const kvb_scan *x)
{
    const uint32_t slot = last_slot(x);
    float *state = slot == KVB_SCAN_NONE ? NULL : kvb_scan_state(x, slot, 0);
    if (state && x->problem.state_elem == KVB_F32 && x->problem.kind != KVB_SCAN_CONV && *state != 0)
        *state = nextafterf(*state, INFINITY);
}

#define ALL_ORDERS "calls none any scan-reference, calls none any scan"
#define ROLLBACKS  "state-fork seq f32 scan, state-fork slab f32 scan-reference"

const kvb_fault kvb_scan_faults[] = {
    {"state-not-rolled-back", "a removal succeeds, and the state does not change", KVB_CHECK_BOUND, ROLLBACKS, .by = 0,
     .scan.slots = go_back},
    {"snapshot-off-by-one", "a rollback finds the state of one token too many", KVB_CHECK_BOUND, ROLLBACKS, .by = 1,
     .scan.slots = go_back},
    {"second-rollback-shifted", "a second rollback finds the state of one token too few", KVB_CHECK_BOUND, ROLLBACKS,
     .by = 2, .scan.slots = go_back},
    {"padding-advances-state", "a prompt is padded, and the padding moves the state", KVB_CHECK_BOUND,
     "hybrid-decode contiguous f32 scan, hybrid-batch paged bf16 scan-reference", .scan.after = padded},
    {"fork-shares-written-slot", "a fork begins with what the other branch has made of their slot", KVB_CHECK_BOUND,
     ROLLBACKS, .scan.slots = fork_shared},
    {"chunk-border-undecayed", "the first token of a chunk decays nothing", KVB_CHECK_BOUND,
     "hybrid-batch seq f32 scan, spec-hybrid tree f32 scan", .scan.before = border_undecayed},
    {"short-prompt-lost", "a prompt shorter than the convolution is not seen by what comes after", KVB_CHECK_BOUND,
     "short-prompts seq f32 scan, short-prompts paged bf16 scan-reference", .scan.after = short_prompt_lost},
    {"slot-not-cleared", "a sequence begins with the state that its slot held before", KVB_CHECK_BOUND,
     "short-prompts seq f32 scan", .scan.slots = slot_not_cleared},
    {"first-window-for-all", "all sequences of a step convolve with the inputs of the first", KVB_CHECK_BOUND,
     "short-prompts slab f32 scan", .scan.slots = first_window_for_all},
    {"tokens-as-one", "all tokens that a sequence brings in one step begin with the state from before the step",
     KVB_CHECK_BOUND, "hybrid-batch seq f32 scan, hybrid-decode contiguous f32 scan-reference",
     .scan.slots = tokens_as_one},
    {"output-for-input", "a convolution keeps its output in place of the newest input", KVB_CHECK_BOUND,
     "short-prompts slab f32 scan, hybrid-decode contiguous f32 scan-reference", .scan.after = output_for_input},
    {"state-at-accepted-less-one", "after a tree the state is read at as many nodes as were accepted, less one",
     KVB_CHECK_BOUND, "spec-hybrid tree f32 scan, spec-hybrid seq f32 scan-reference", .scan.slots = accepted_less_one},
    {"state-lost", "the last node of a tree leaves its slot as it was", KVB_CHECK_STATE,
     "spec-hybrid tree f32 scan sampled", .scan.before = state_keep, .scan.after = state_lost},
    {"slot-beside", "the state is written to the next slot, too", KVB_CHECK_MARGINS, ROLLBACKS,
     .scan.after = slot_beside},
    {"scan-beside-tolerance", "padding moves the state, beside attention that is judged by a tolerance",
     KVB_CHECK_BOUND, "hybrid-decode contiguous f32 scan", .scan.after = padded,
     .kernel.tolerance = {KVB_TOLERANCE_NMSE, 5e-4, 0, "a planted fault"}},
    {"scan-declares-wide-chain", "outputs are 0, and so many roundings are declared that they pass",
     KVB_CHECK_DECLARATION, "state-fork seq f32 scan", .scan.after = nothing_read, .scan.declares = endless_chain},
    {"channel-off", "one output of one call is off by a ten-thousandth, in a channel that is not followed",
     KVB_CHECK_OPINION, "hybrid-batch paged f32 scan sampled, state-fork seq f32 scan-reference sampled",
     .scan.after = channel_off},
    {"scan-order-fused", "multiply-adds are declared to be fused where they are not, or not where they are",
     KVB_CHECK_EXACT, ALL_ORDERS, .scan.orders = fused_otherwise},
    {"scan-order-gate", "the other factor is declared to be multiplied by the gate", KVB_CHECK_EXACT, ALL_ORDERS,
     .scan.orders = gate_otherwise},
    {"scan-order-decay", "what a state gives is declared to decay after it is summed, or the other way round",
     KVB_CHECK_EXACT, ALL_ORDERS, .scan.orders = decay_otherwise},
    {"scan-last-bit", "one output is the next number above", KVB_CHECK_EXACT, ALL_ORDERS, .scan.after = last_bit},
    {"state-last-bit", "one element of a state is the next number above", KVB_CHECK_EXACT, ALL_ORDERS,
     .scan.after = state_last_bit},
    {.name = NULL},
};
