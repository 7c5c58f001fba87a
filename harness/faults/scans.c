/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes wrong with states, as engines have had it: planted where a kernel meets the slots that a cache names, so
 * that it looks to the checks as if the cache or the kernel had done it. A token that begins with a slot which another
 * token has begun with before goes back: a rollback, or a fork.
 */
#include <string.h>

#include "harness/faults/fault.h"

#define TOKENS 4096u
#define SLOTS  4096u
#define NONE   UINT32_MAX

/* Calls of one part of one layer: they share the memory of its slots. */
typedef struct line {
    const void *base;
    uint32_t next[SLOTS], before[SLOTS]; /* of a slot: which was written from it last; which it was written from */
    uint32_t backs;                      /* how often a sequence alone went back */
    uint32_t tree[TOKENS], depth[TOKENS], n_tree; /* slots of the nodes of the last tree, and their depths */
} line;

static line lines[64];
static uint32_t from[TOKENS], to[TOKENS];

static line *line_of(const kvb_scan *x)
{
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

/* Is the call one that these faults can be planted in? Then its slots are copied, so that they can be changed. */
static bool slots_copy(kvb_scan *x)
{
    if (x->problem.n_tok > TOKENS || x->states.slots > SLOTS)
        return false;
    memcpy(from, x->from, x->problem.n_tok * sizeof *from);
    memcpy(to, x->to, x->problem.n_tok * sizeof *to);
    x->from = from;
    x->to = to;
    return true;
}

/* The call's tokens, as the cache named their slots. */
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

/* A sequence alone that goes back: where a slot that was gone on from is gone on from again. */
static bool goes_back(const line *l, const kvb_scan *x)
{
    return x->problem.n_tok == 1 && x->from[0] < SLOTS && l->next[x->from[0]] != NONE;
}

/* Scans with `wrong` in place of the slot that the token begins with, once it is known. */
static int scan_from(const kvb_scan *call, uint32_t (*wrong)(line *l, uint32_t slot))
{
    kvb_scan x = *call;
    if (!slots_copy(&x))
        return kvb_fault_honest.scan->scan(call);
    line *l = line_of(call);
    const bool back = goes_back(l, call);
    l->backs += back;
    if (back)
        from[0] = wrong(l, from[0]);
    slots_note(l, call);
    return kvb_fault_honest.scan->scan(&x);
}

static uint32_t newest(line *l, uint32_t slot)
{
    while (l->next[slot] != NONE)
        slot = l->next[slot];
    return slot;
}

static uint32_t one_too_new(line *l, uint32_t slot)
{
    return l->next[slot];
}

static uint32_t shifted(line *l, uint32_t slot)
{
    return l->backs > 1 && l->before[slot] != NONE ? l->before[slot] : slot;
}

static int not_rolled_back(const kvb_scan *call)
{
    return scan_from(call, newest);
}

static int off_by_one(const kvb_scan *call)
{
    return scan_from(call, one_too_new);
}

static int second_shifted(const kvb_scan *call)
{
    return scan_from(call, shifted);
}

/* The last token of a prompt once more, as if the call had been padded with it. */
static int padded(const kvb_scan *call)
{
    static float unread[1u << 20]; /* scan() may not allocate */
    const kvb_scan_problem *p = &call->problem;
    const uint32_t last = p->n_tok - 1, slot = call->to[last];
    const size_t keys = (size_t)p->groups * p->d_k, values = (size_t)p->heads * p->d_v,
                 gates = p->kind == KVB_SCAN_MAMBA1 ? values : p->heads;
    int error = kvb_fault_honest.scan->scan(call);
    if (error || last == 0 || slot == KVB_SCAN_NONE || values > sizeof unread / sizeof *unread)
        return error;
    kvb_scan x = *call;
    x.problem.n_tok = x.problem.run = 1;
    x.q = x.q ? x.q + last * keys : NULL;
    x.k = x.k ? x.k + last * keys : NULL;
    x.v += last * values;
    x.gate = x.gate ? x.gate + last * gates : NULL;
    x.beta = x.beta ? x.beta + (size_t)last * p->heads : NULL;
    x.from = x.to = &slot;
    x.out = unread;
    return kvb_fault_honest.scan->scan(&x);
}

/* Of two tokens that begin with one slot, forks of one another, the later one begins with what the earlier one made of
 * it. */
static int fork_shared(const kvb_scan *call)
{
    kvb_scan x = *call;
    if (!slots_copy(&x))
        return kvb_fault_honest.scan->scan(call);
    for (uint32_t t = 1; t < x.problem.n_tok; t++)
        for (uint32_t u = 0; u < t && call->from[t] < SLOTS; u++)
            if (call->from[u] == call->from[t] && to[u] != KVB_SCAN_NONE)
                from[t] = to[u];
    return kvb_fault_honest.scan->scan(&x);
}

/* In the middle of a run, as at the border of a chunk, nothing decays. */
static int border_undecayed(const kvb_scan *call)
{
    static float gate[1u << 20];
    kvb_scan x = *call;
    const size_t n = (size_t)x.problem.n_tok * x.problem.heads;
    const uint32_t border = x.problem.n_tok / 2;
    if (x.problem.kind != KVB_SCAN_DELTA || x.problem.run < 8 || n > sizeof gate / sizeof *gate)
        return kvb_fault_honest.scan->scan(call);
    memcpy(gate, x.gate, n * sizeof *gate);
    memset(gate + (size_t)border * x.problem.heads, 0, x.problem.heads * sizeof *gate);
    x.gate = gate;
    return kvb_fault_honest.scan->scan(&x);
}

/* After a tree: the state is looked for at as many nodes as were accepted, less one, whichever these were. */
static int accepted_less_one(const kvb_scan *call)
{
    kvb_scan x = *call;
    if (!slots_copy(&x))
        return kvb_fault_honest.scan->scan(call);
    line *l = line_of(call);
    for (uint32_t node = 0; node < l->n_tree; node++)
        if (l->tree[node] == call->from[0]) {
            from[0] = l->tree[l->depth[node]];
            break;
        }
    l->n_tree = 0;
    for (uint32_t t = 0; t < call->problem.n_tok; t++) {
        l->tree[t] = call->to[t];
        l->depth[t] = 0;
        for (uint32_t u = 0; u < t; u++)
            if (call->from[t] == call->to[u] && call->to[u] != KVB_SCAN_NONE) {
                l->depth[t] = l->depth[u] + 1;
                l->n_tree = call->problem.n_tok;
            }
    }
    return kvb_fault_honest.scan->scan(&x);
}

/* A prompt shorter than the convolution leaves no inputs behind. */
static int short_prompt_lost(const kvb_scan *call)
{
    const kvb_scan_problem *p = &call->problem;
    const uint32_t slot = call->to[p->n_tok - 1];
    const int error = kvb_fault_honest.scan->scan(call);
    if (p->kind == KVB_SCAN_CONV && p->n_tok < p->d_k && call->from[0] == KVB_SCAN_ZERO && slot != KVB_SCAN_NONE)
        memset((char *)call->states.base + slot * call->states.slot_bytes, 0, call->states.slot_bytes);
    return error;
}

/* A sequence that begins does so with what its slot held before. */
static int slot_not_cleared(const kvb_scan *call)
{
    kvb_scan x = *call;
    if (!slots_copy(&x))
        return kvb_fault_honest.scan->scan(call);
    for (uint32_t t = 0; t < x.problem.n_tok; t++)
        from[t] = from[t] == KVB_SCAN_ZERO && to[t] != KVB_SCAN_NONE ? to[t] : from[t];
    return kvb_fault_honest.scan->scan(&x);
}

/* Sequences of one step all begin with the window of the first. */
static int first_window_for_all(const kvb_scan *call)
{
    kvb_scan x = *call;
    if (x.problem.kind != KVB_SCAN_CONV || call->from[0] >= SLOTS || !slots_copy(&x))
        return kvb_fault_honest.scan->scan(call);
    for (uint32_t t = 1; t < x.problem.n_tok; t++) {
        bool begins = call->from[t] < SLOTS;
        for (uint32_t u = 0; u < t; u++)
            begins = begins && call->to[u] != call->from[t];
        from[t] = begins ? call->from[0] : from[t];
    }
    return kvb_fault_honest.scan->scan(&x);
}

/* transformers 46741: the tokens that a sequence which has a state brings in one step all begin with that state. */
static int tokens_as_one(const kvb_scan *call)
{
    kvb_scan x = *call;
    if (!slots_copy(&x))
        return kvb_fault_honest.scan->scan(call);
    for (uint32_t t = 0, end; t < x.problem.n_tok; t = end) {
        const uint32_t slot = kvb_scan_source(call, t);
        end = kvb_scan_run_end(call, t);
        for (uint32_t u = t + 1; u < end && slot < SLOTS; u++)
            from[u] = slot;
    }
    return kvb_fault_honest.scan->scan(&x);
}

/* mamba 1027: a convolution's slot has the newest token's output where its input belongs. */
static int output_for_input(const kvb_scan *call)
{
    const kvb_scan_problem *p = &call->problem;
    const int error = kvb_fault_honest.scan->scan(call);
    const bool fits = p->kind == KVB_SCAN_CONV && p->state_elem == KVB_F32 && p->out_elem == KVB_F32;
    for (uint32_t t = 0; t < p->n_tok && fits; t++)
        if (call->to[t] != KVB_SCAN_NONE)
            memcpy((float *)kvb_scan_state(call, call->to[t], 0) + (size_t)(p->d_k - 1) * p->d_v,
                   (const float *)call->out + (size_t)t * p->d_v, p->d_v * sizeof(float));
    return error;
}

/* The last token leaves its state not where it is to, but nowhere. */
static int state_lost(const kvb_scan *call)
{
    static char was[1u << 20];
    const uint32_t slot = call->to[call->problem.n_tok - 1];
    char *at = (char *)call->states.base + (size_t)slot * call->states.slot_bytes;
    const bool fits = slot != KVB_SCAN_NONE && call->problem.n_tok > 4 && call->to[0] != KVB_SCAN_NONE &&
                      call->states.slot_bytes <= sizeof was;
    if (fits)
        memcpy(was, at, call->states.slot_bytes);
    int error = kvb_fault_honest.scan->scan(call);
    if (fits)
        memcpy(at, was, call->states.slot_bytes);
    return error;
}

/* The state goes into the next slot, too. */
static int slot_beside(const kvb_scan *call)
{
    const uint32_t slot = call->to[call->problem.n_tok - 1];
    int error = kvb_fault_honest.scan->scan(call);
    if (slot != KVB_SCAN_NONE && slot + 1 < call->states.slots)
        memcpy((char *)call->states.base + (slot + 1) * call->states.slot_bytes,
               (char *)call->states.base + slot * call->states.slot_bytes, call->states.slot_bytes);
    return error;
}

/* One output of one call, in a channel between those that are always followed. */
static int channel_off(const kvb_scan *call)
{
    static uint32_t calls;
    const kvb_scan_problem *p = &call->problem;
    const int error = kvb_fault_honest.scan->scan(call);
    if (p->kind == KVB_SCAN_CONV && ++calls == 40 && p->out_elem == KVB_F32)
        ((float *)call->out)[(size_t)(p->n_tok - 1) * p->d_v + p->d_v / 2] *= 1 + 0x1p-13f;
    return error;
}

/* So many roundings that any output passes, which is none of the right ones. */
static void endless_chain(const kvb_scan_problem *problem, kvb_scan_arithmetic *a)
{
    kvb_fault_honest.scan->arithmetic(problem, a);
    a->read_chain = 1u << 30;
}

static int nothing_read(const kvb_scan *call)
{
    const kvb_scan_problem *p = &call->problem;
    const int error = kvb_fault_honest.scan->scan(call);
    memset(call->out, 0, (size_t)p->n_tok * p->heads * p->d_v * (p->out_elem == KVB_F32 ? 4 : 2));
    return error;
}

#define ROLLBACKS "state-fork seq f32 scan, state-fork slab f32 scan-reference"

const kvb_fault kvb_scan_faults[] = {
    {"state-not-rolled-back", "a removal says yes, and the state stays as it is", KVB_CHECK_BOUND, ROLLBACKS,
     .scan = not_rolled_back},
    {"snapshot-off-by-one", "a rollback finds the state of one token too many", KVB_CHECK_BOUND, ROLLBACKS,
     .scan = off_by_one},
    {"second-rollback-shifted", "a second rollback finds the state of one token too few", KVB_CHECK_BOUND, ROLLBACKS,
     .scan = second_shifted},
    {"padding-advances-state", "a prompt is padded, and the padding moves the state", KVB_CHECK_BOUND,
     "hybrid-decode contiguous f32 scan, hybrid-batch paged bf16 scan-reference", .scan = padded},
    {"fork-shares-written-slot", "a fork begins with what the other branch has made of their slot", KVB_CHECK_BOUND,
     ROLLBACKS, .scan = fork_shared},
    {"chunk-border-undecayed", "the first token of a chunk decays nothing", KVB_CHECK_BOUND,
     "hybrid-batch seq f32 scan, spec-hybrid tree f32 scan", .scan = border_undecayed},
    {"short-prompt-lost", "a prompt shorter than the convolution is not seen by what comes after", KVB_CHECK_BOUND,
     "short-prompts seq f32 scan, short-prompts paged bf16 scan-reference", .scan = short_prompt_lost},
    {"slot-not-cleared", "a sequence begins with the state that its slot held before", KVB_CHECK_BOUND,
     "short-prompts seq f32 scan", .scan = slot_not_cleared},
    {"first-window-for-all", "all sequences of a step convolve with the inputs of the first", KVB_CHECK_BOUND,
     "short-prompts slab f32 scan", .scan = first_window_for_all},
    {"tokens-as-one", "all tokens that a sequence brings in one step begin with the state from before the step",
     KVB_CHECK_BOUND, "hybrid-batch seq f32 scan, hybrid-decode contiguous f32 scan-reference", .scan = tokens_as_one},
    {"output-for-input", "a convolution keeps its output in place of the newest input", KVB_CHECK_BOUND,
     "short-prompts slab f32 scan, hybrid-decode contiguous f32 scan-reference", .scan = output_for_input},
    {"state-at-accepted-less-one", "after a tree the state is read at as many nodes as were accepted, less one",
     KVB_CHECK_BOUND, "spec-hybrid tree f32 scan, spec-hybrid seq f32 scan-reference", .scan = accepted_less_one},
    {"state-lost", "the last node of a tree leaves its slot as it was", KVB_CHECK_STATE,
     "spec-hybrid tree f32 scan sampled", .scan = state_lost},
    {"slot-beside", "the state is written to the next slot, too", KVB_CHECK_MARGINS, ROLLBACKS, .scan = slot_beside},
    {"scan-beside-tolerance", "padding moves the state, beside attention that is judged by a tolerance",
     KVB_CHECK_BOUND, "hybrid-decode contiguous f32 scan",
     KVB_IN(kernel, .tolerance = {KVB_TOLERANCE_NMSE, 5e-4, 0, "a planted fault"}), .scan = padded},
    {"scan-declares-wide-chain", "outputs are 0, and so many roundings are declared that they pass",
     KVB_CHECK_DECLARATION, "state-fork seq f32 scan", .scan = nothing_read, .scan_arithmetic = endless_chain},
    {"channel-off", "one output of one call is off by a ten-thousandth, in a channel that is not followed",
     KVB_CHECK_OPINION, "hybrid-batch paged f32 scan sampled, state-fork seq f32 scan-reference sampled",
     .scan = channel_off},
    {.name = NULL},
};
