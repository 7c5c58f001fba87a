/* SPDX-License-Identifier: Apache-2.0 */
/* One call of a scan kernel in a replay. */
#include "harness/replay/pass.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "caches/call.h"
#include "harness/replay/verdict.h"
#include "kernels/convert.h"
#include "oracle/claim.h"
#include "workloads/array.h"

#define POISON_BYTES ((uint64_t)256 << 20) /* at most so many bytes of slots are saved in the first pass */

/* A kernel's buffers: rows by kind, the layer's constants, and out. */
enum { CONSTANTS = KVB_ROWS_KINDS, OUT = CONSTANTS + KVB_CONSTANTS, BUFFERS };
static const char *const names[BUFFERS] = {"q", "k", "v", "gate", "beta", "v", "a", "a", "bias", "out"};

/* Slots as they were before the call. */
typedef struct aside {
    char *bytes;
    size_t room;
    bool *read, *written; /* [slots] by the call */
    size_t read_room, written_room;
    bool poisoned; /* in the current call */
} aside;

struct kvb_scans {
    const kvb_replay_options *options;
    const kvb_memory_source *source;
    kvb_scan_call call;
    kvb_heirs *heirs; /* NULL: nothing is judged */
    kvb_buffer buffers[BUFFERS];
    const float *given[OUT]; /* sources of the inputs; NULL: the call has no such input */
    aside aside;
    uint64_t budget;               /* bytes left */
    kvb_diff out, states, opinion; /* of the first pass: later ones give the same bits */
    uint64_t *digest;              /* [n_digests] of the first pass' calls, in order */
    size_t n_digests, room_digests, next;
    uint64_t passes, found;
    double *known; /* [2][n_tok][heads][d_v] for a dump: the call's exact outputs, and their bounds */
    size_t known_room;
    uint64_t scanned; /* rows searched for NaN and infinity */
};

int kvb_scans_open(const kvb_replay_options *o, kvb_scans **scans)
{
    *scans = NULL;
    if (!kvb_model_scans(&o->trace->header.model))
        return 0;
    kvb_scans *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->options = o;
    s->source = !o->knobs->no_guard ? &kvb_guarded_source : &kvb_plain_source;
    s->call = (kvb_scan_call){.kernel = o->scan, .team = o->team, .out_elem = o->out_elem, .source = s->source};
    s->budget = o->dump ? UINT64_MAX : POISON_BYTES; /* a dump shows the states before the call */
    *scans = s;
    return 0;
}

void kvb_scans_close(kvb_scans *s)
{
    if (!s)
        return;
    kvb_heirs_free(s->heirs);
    kvb_scan_call_free(&s->call);
    for (int i = 0; i < BUFFERS; i++)
        kvb_buffer_free(&s->buffers[i], s->source);
    free(s->aside.bytes);
    free(s->aside.read);
    free(s->aside.written);
    free(s->digest);
    free(s->known);
    free(s);
}

int kvb_scans_begin(kvb_scans *s)
{
    if (!s)
        return 0;
    kvb_heirs_free(s->heirs);
    s->heirs = NULL;
    s->next = 0;
    s->passes++;
    const kvb_replay_options *o = s->options;
    const bool judged = o->oracle && !o->unjudged && s->passes == 1;
    return judged ? kvb_heirs_open(o->oracle->descent, &s->heirs) : 0;
}

size_t kvb_scans_scratch(const kvb_scans *s)
{
    return s ? s->call.scratch_bytes[0] + s->call.scratch_bytes[1] : 0;
}

void kvb_scans_found(kvb_scans *s, uint32_t n)
{
    if (s && s->passes == 1)
        s->found += n;
}

/* Rows that must be compared. */
static size_t rows_due(const kvb_scans *s)
{
    const kvb_replay_options *o = s->options;
    const kvb_descent *d = o->oracle->descent;
    size_t due = 0, lanes = 0;
    for (uint32_t layer = 0; layer < o->trace->header.model.n_layers; layer++)
        lanes += kvb_descent_lanes(d, layer);
    for (uint32_t i = 0; i < o->trace->n_events; i++)
        for (uint32_t layer = 0;
             o->trace->events[i].kind <= KVB_EVENT_PROPOSE && layer < o->trace->header.model.n_layers; layer++)
            if (!o->only || kvb_only_has(o->only, o->trace, i, layer))
                due += kvb_descent_lanes(d, layer) * o->trace->events[i].n;
    return due - s->found * lanes;
}

/* ---- the kernel's buffers ---------------------------------------------------------------------------------------- */

/* Copies n floats into buffer i; from NULL: *to is NULL. False: no memory. */
static bool buffer_fill(kvb_scans *s, int i, const float *from, size_t n, const float **to)
{
    s->given[i] = from && n ? from : NULL;
    *to = NULL;
    if (!s->given[i])
        return true;
    float *block = kvb_buffer_fit(&s->buffers[i], s->source, names[i], n * sizeof *from);
    if (block)
        memcpy(block, from, n * sizeof *from);
    *to = block;
    return block != NULL;
}

/* Copies the inputs of the part. */
static int inputs_take(kvb_pass *p, const kvb_made *m, kvb_scan *inputs)
{
    const uint32_t layer = m->layer;
    const kvb_fed *fed = m->fed;
    const kvb_scan_part part = m->part;
    kvb_scans *s = p->scans;
    const kvb_group *g = kvb_model_group(&p->trace->header.model, layer);
    const kvb_values *values = p->options->values;
    const bool conv = part == KVB_PART_CONV;
    const float **to[OUT] = {&inputs->q, &inputs->k, &inputs->v, &inputs->gate, &inputs->beta,
                             &inputs->v, &inputs->a, &inputs->a, &inputs->bias};
    bool fits = true;
    *inputs = (kvb_scan){.q = NULL};
    for (int i = 0; i < OUT; i++) {
        const bool of_conv = i == KVB_ROWS_X || i > CONSTANTS + KVB_CONSTANT_A;
        uint64_t shape[3];
        s->given[i] = NULL;
        if (of_conv != conv)
            continue;
        if (i < CONSTANTS)
            fits = fits && buffer_fill(s, i, kvb_pass_rows(p, (kvb_rows)i, layer, fed),
                                       fed->n * kvb_values_floats(g, (kvb_rows)i), to[i]);
        else if (kvb_constant_shape(g, (kvb_constant)(i - CONSTANTS), shape))
            fits = fits &&
                   buffer_fill(s, i, values->constant[i - CONSTANTS][layer], shape[0] * shape[1] * shape[2], to[i]);
    }
    return fits ? 0 : -ENOMEM;
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

int kvb_scans_slots(kvb_pass *p, const kvb_scan_spec *spec)
{
    aside *a = &p->scans->aside;
    const uint32_t slots = spec->states.slots;
    char why[160] = "";
    if (kvb_array_reserve(&a->read, &a->read_room, slots, sizeof *a->read) ||
        kvb_array_reserve(&a->written, &a->written_room, slots, sizeof *a->written))
        return -ENOMEM;
    memset(a->read, 0, slots);
    memset(a->written, 0, slots);
    for (uint32_t t = 0; t < spec->n_tok && !*why; t++) {
        const uint32_t from = spec->from[t], to = spec->to[t];
        const bool slot = from != KVB_SCAN_PREVIOUS && from != KVB_SCAN_ZERO;
        if ((slot && from >= slots) || (t == 0 && from == KVB_SCAN_PREVIOUS) || (to != KVB_SCAN_NONE && to >= slots)) {
            snprintf(why, sizeof why, "token %u begins with slot %u and leaves its state in slot %u, of %u", t, from,
                     to, slots);
            return kvb_pass_refuse(p, -EPROTO, "fetch_states", why);
        }
        if (slot)
            a->read[from] |= !a->written[from];
        if (to != KVB_SCAN_NONE)
            a->written[to] = true;
    }
    return 0;
}

/* In the first pass, until POISON_BYTES are spent: writes NaN into slots that the call does not read. */
static int slots_poison(kvb_pass *p, kvb_made *m)
{
    kvb_scans *s = p->scans;
    const kvb_scan_states *states = &s->call.args.states;
    aside *a = &s->aside;
    (void)m;
    const size_t bytes = states->slots * states->slot_bytes;
    a->poisoned = s->heirs && bytes <= s->budget;
    if (!a->poisoned)
        return 0;
    s->budget -= bytes;
    if (kvb_array_reserve(&a->bytes, &a->room, bytes, 1))
        return -ENOMEM;
    memcpy(a->bytes, states->base, bytes);
    for (uint32_t slot = 0; slot < states->slots; slot++)
        if (!a->read[slot])
            memset((char *)states->base + slot * states->slot_bytes, 0xff, states->slot_bytes);
    return 0;
}

/* Checks that slots are unchanged that the call may not write, and restores them. */
static int slots_restore(kvb_pass *p, kvb_made *m)
{
    const kvb_scan_states *states = &p->scans->call.args.states;
    aside *a = &p->scans->aside;
    (void)m;
    const uint32_t none = UINT32_MAX;
    uint32_t touched = none;
    for (uint32_t slot = 0; a->poisoned && slot < states->slots; slot++) {
        char *at = (char *)states->base + slot * states->slot_bytes, *was = a->bytes + slot * states->slot_bytes;
        if (a->written[slot])
            continue;
        bool same = a->read[slot] ? !memcmp(at, was, states->slot_bytes) : true;
        for (size_t i = 0; !a->read[slot] && same && i < states->slot_bytes; i++)
            same = (unsigned char)at[i] == 0xff;
        touched = same || touched != none ? touched : slot;
        memcpy(at, was, states->slot_bytes);
    }
    char why[96];
    snprintf(why, sizeof why, "scan() wrote to slot %u, which no token leaves its state in", touched);
    return touched == none ? 0 : kvb_pass_fail(p, KVB_CHECK_MARGINS, why);
}

/* Prepares the processor's caches: the knob cache-state. */
static int state_prepare(kvb_pass *p, kvb_made *m)
{
    kvb_scans *s = p->scans;
    const kvb_scan_states *states = &s->call.args.states;
    const kvb_cache_state wanted = s->options->knobs->cache_state;
    for (uint32_t slot = 0; slot < states->slots; slot++) {
        const char *at = (const char *)states->base + slot * states->slot_bytes;
        if (wanted == KVB_STATE_COLD)
            kvb_block_flush(at, states->slot_bytes);
        for (size_t i = 0; wanted == KVB_STATE_HOT && s->aside.read[slot] && i < states->slot_bytes; i += 64)
            (void)*(const volatile char *)(at + i); /* a call made twice would move states twice */
    }
    for (int i = 0; i < OUT && wanted == KVB_STATE_COLD; i++)
        if (s->given[i])
            kvb_block_flush(s->buffers[i].block, s->buffers[i].bytes);
    (void)m;
    return 0;
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

/* Adds the bytes of states that a call reads and writes, and its operations: a multiply-add to decay and write an
 * element, one to read it, and for DELTA one more to read it by the key. */
static void traffic_add(kvb_pass *p, const kvb_scan *call, kvb_step_traffic *step)
{
    const kvb_scan_problem *problem = &call->problem;
    const double elements = (double)problem->heads * problem->d_k * problem->d_v,
                 bytes = elements * (double)kvb_elem_bytes(problem->state_elem);
    double moved = 0;
    for (uint32_t t = 0; t < problem->n_tok; t++)
        moved += bytes * ((call->from[t] < KVB_SCAN_ZERO) + (call->to[t] != KVB_SCAN_NONE));
    if (p->number > kvb_pass_counted(p))
        return;
    p->meter.pending.bytes_read += (long long)moved;
    p->meter.pending.bytes_walk += (long long)moved;
    step->bytes += moved;
    step->flops += problem->n_tok * (problem->kind == KVB_SCAN_CONV    ? 2 * (elements + problem->d_v)
                                     : problem->kind == KVB_SCAN_DELTA ? 6 * elements
                                                                       : 4 * elements);
}

/* Checks that every output of the event's own tokens is finite. f16 is exempt: an output may exceed its range. */
static int finite_check(kvb_pass *p, uint32_t layer, const kvb_fed *fed)
{
    kvb_scans *s = p->scans;
    const kvb_scan *call = &s->call.args;
    const kvb_scan_problem *problem = &call->problem;
    const size_t row = (size_t)problem->heads * problem->d_v, first = (fed->n - fed->own) * row;
    char why[160];
    for (size_t i = first; i < fed->n * row && problem->out_elem != KVB_F16; i++)
        if (!isfinite(kvb_output_value(problem->out_elem, call->out, i))) {
            snprintf(why, sizeof why,
                     "the output is not finite, as it must be, at layer %u, %s, token %zu, head %zu, channel %zu",
                     layer, problem->kind == KVB_SCAN_CONV ? "convolution" : "recurrence",
                     fed->query + (i - first) / row, i % row / problem->d_v, i % problem->d_v);
            return kvb_pass_fail(p, KVB_CHECK_FINITE, why);
        }
    s->scanned += fed->own * (uint64_t)problem->heads * ((problem->d_v + KVB_LANE_COLUMNS - 1) / KVB_LANE_COLUMNS);
    return 0;
}

/* Checks that a later pass gives the bits of the first. */
static int digest_compare(kvb_pass *p, kvb_made *m)
{
    const kvb_fed *fed = m->fed;
    kvb_scans *s = p->scans;
    const kvb_scan *call = &s->call.args;
    const size_t row = s->buffers[OUT].bytes / fed->n;
    uint64_t digest =
        kvb_digest_bytes((const char *)call->out + (fed->n - fed->own) * row, fed->own * row, KVB_DIGEST_START);
    if (p->number == 0) {
        p->judging.digest = kvb_digest_bytes(&digest, sizeof digest, p->judging.digest);
        int error = kvb_array_reserve(&s->digest, &s->room_digests, s->n_digests + 1, sizeof *s->digest);
        if (!error)
            s->digest[s->n_digests++] = digest;
        return error;
    }
    const bool same = s->next < s->n_digests && s->digest[s->next] == digest;
    s->next++;
    return same ? 0 : kvb_pass_fail(p, KVB_CHECK_BOUND, "scan() gave other bits than in the first pass");
}

static int inputs_compare(kvb_pass *p, kvb_made *m)
{
    const kvb_scans *s = p->scans;
    char why[64];
    int error = 0;
    (void)m;
    for (int i = 0; i < OUT && !error; i++)
        if (s->given[i] && memcmp(s->buffers[i].block, s->given[i], s->buffers[i].bytes)) {
            snprintf(why, sizeof why, "scan() wrote to %s", names[i]);
            error = kvb_pass_fail(p, KVB_CHECK_INPUTS, why);
        }
    return error;
}

/* Elements of a token in out. */
static size_t row_of(const kvb_scan_problem *problem)
{
    return (size_t)problem->heads * problem->d_v;
}

static int outputs_fill(kvb_pass *p, kvb_made *m)
{
    const kvb_scan_problem *problem = &p->scans->call.args.problem;
    kvb_outputs_fill(p->scans->buffers[OUT].block, m->fed->n * row_of(problem), kvb_elem_bytes(problem->out_elem));
    return 0;
}

static int outputs_written(kvb_pass *p, kvb_made *m)
{
    const kvb_scan *call = &p->scans->call.args;
    const kvb_scan_problem *problem = &call->problem;
    const size_t row = row_of(problem),
                 left = kvb_outputs_left(call->out, m->fed->n * row, kvb_elem_bytes(problem->out_elem));
    char why[128];
    if (left == m->fed->n * row)
        return 0;
    snprintf(why, sizeof why, "scan() left out unwritten at token %zu, head %zu, channel %zu", left / row,
             left % row / problem->d_v, left % problem->d_v);
    return kvb_pass_fail(p, KVB_CHECK_WRITTEN, why);
}

static int judged_ask(kvb_pass *p, kvb_made *m)
{
    (void)m;
    return p->options->unjudged ? KVB_ENOUGH : 0;
}

/* In the first pass the oracle follows the call. */
static int call_follow(kvb_pass *p, kvb_made *m)
{
    kvb_scans *s = p->scans;
    const kvb_replay_options *o = p->options;
    const kvb_fed *fed = m->fed;
    const kvb_scan *call = &s->call.args;
    const bool looks = !o->only || kvb_only_has(o->only, o->trace, p->place->event, m->layer);
    kvb_scan_arithmetic arithmetic;
    char why[256];
    if (p->number > 0)
        return 0;
    s->call.kernel->scan->arithmetic(&call->problem, &arithmetic);
    if (kvb_claim_check_scan(&arithmetic, &call->problem, why, sizeof why))
        return kvb_pass_fail(p, KVB_CHECK_DECLARATION, why);
    const kvb_scan_made made = {.event = p->place->event,
                                .layer = m->layer,
                                .part = m->part,
                                .call = call,
                                .tokens = fed->tokens,
                                .n_own = fed->own,
                                .query = fed->query,
                                .arithmetic = &arithmetic};
    kvb_scan_diffs diffs = {.out = &s->out, .states = &s->states, .opinion = &s->opinion};
    if (o->dump) {
        diffs.exact = s->known;
        diffs.bound = s->known + fed->n * row_of(&call->problem);
    }
    const int error = kvb_heirs_follow(s->heirs, &made, looks ? &diffs : &(kvb_scan_diffs){.out = NULL});
    if (error == -EILSEQ)
        return kvb_pass_refuse(p, -EPROTO, "feed", "the cache asks for a token before the one that it follows");
    return error || s->out.any_failed || s->opinion.any_failed ? error : finite_check(p, m->layer, fed);
}

/* Marks all outputs of the current call as unknown. */
static int known_clear(kvb_scans *s, size_t n_out)
{
    int error = kvb_array_reserve(&s->known, &s->known_room, 2 * n_out, sizeof *s->known);
    for (size_t i = 0; i < 2 * n_out && !error; i++)
        s->known[i] = NAN;
    return error;
}

int kvb_scans_prepare(kvb_pass *p, kvb_made *m)
{
    kvb_scans *s = p->scans;
    kvb_scan inputs;
    char why[256] = "";
    int error = inputs_take(p, m, &inputs);
    if (error)
        return error;
    double started = kvb_pass_clock(p);
    error = kvb_scan_call_prepare(&s->call, m->states, m->part == KVB_PART_CONV, &inputs, why, sizeof why);
    kvb_pass_charge(p, started, KVB_IN_HARNESS);
    if (error)
        return kvb_pass_refuse(p, error, p->callee, why);
    const kvb_scan *call = &s->call.args;
    const size_t n_out = m->fed->n * row_of(&call->problem);
    if (!kvb_buffer_fit(&s->buffers[OUT], s->source, names[OUT], n_out * kvb_elem_bytes(call->problem.out_elem)))
        return -ENOMEM;
    traffic_add(p, call, m->traffic);
    return p->options->dump ? known_clear(s, n_out) : 0;
}

int kvb_scans_run(kvb_pass *p)
{
    return kvb_scan_call_run(&p->scans->call, p->scans->buffers[OUT].block);
}

static int call_dump(kvb_pass *p, kvb_made *m)
{
    const kvb_scans *s = p->scans;
    if (p->options->dump && p->number == 0 &&
        (p->ended || s->out.any_failed || s->opinion.any_failed || s->states.any_failed || *p->misdeed))
        kvb_dump_scan(p, m->layer, &s->call.args, s->aside.poisoned ? s->aside.bytes : NULL, s->known);
    return 0;
}

const kvb_check_row kvb_scan_rows[] = {
    {"cache-state", .before = state_prepare},
    {"conduct", .after = kvb_pass_conduct},
    {"guards", .before = slots_poison, .after = slots_restore, .always = true},
    {"inputs", .after = inputs_compare},
    {"written", .before = outputs_fill, .after = outputs_written},
    {"margins", .after = kvb_pass_margins},
    {"judged", .after = judged_ask},
    {"bound", .after = call_follow},
    {"bits", .after = digest_compare},
    {"dump", .after = call_dump, .always = true},
    {.name = NULL},
};

void kvb_scans_judge(const kvb_scans *s, const kvb_diff *attended, kvb_result *result)
{
    if (!s)
        return;
    const uint64_t rows = result->error.checked_rows;
    const bool all = !s->options->oracle->opinions; /* rows of attention were compared */
    result->error.looked.scanned += s->scanned + (all ? rows : 0);
    result->error.looked.opinion += s->out.rows + s->opinion.rows + (all ? rows : 0);
    kvb_scan_judge(&s->out, attended, rows_due(s), s->options->trace, result);
    kvb_opinion_judge(&s->opinion, s->options->trace, true, result);
    kvb_states_judge(&s->states, s->options->trace, result);
}
