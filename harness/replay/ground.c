/* SPDX-License-Identifier: Apache-2.0 */
/* What every part of a pass stands on: the clock, the failure of a call, rows, traffic. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/clock.h"
#include "harness/counters/count.h"
#include "harness/replay/checks.h"
#include "harness/replay/meter.h"
#include "harness/replay/verdict.h"

/* Adds the pending counts to those that counters see. */
static void counts_add(kvb_own_counts *counts, kvb_own_counts *pending)
{
    counts->cells_read += pending->cells_read;
    counts->bytes_read += pending->bytes_read;
    counts->bytes_walk += pending->bytes_walk;
    counts->mask_words += pending->mask_words;
    counts->rescales += pending->rescales;
    *pending = (kvb_own_counts){0};
}

double kvb_pass_clock(kvb_pass *p)
{
    if (p->number == kvb_pass_counted(p) && p->options->counters)
        kvb_counters_start(p->options->counters);
    counts_add(p->options->counts, &p->meter.pending);
    kvb_count_turn();
    return kvb_now_ns();
}

void kvb_pass_charge(kvb_pass *p, double started, kvb_time_account account)
{
    double ns = kvb_now_ns() - started;
    kvb_count_turn();
    if (p->number == kvb_pass_counted(p) && p->options->counters)
        kvb_counters_stop(p->options->counters);
    p->meter.step_ns += ns;
    p->meter.account_ns[account] += ns;
    p->meter.intervals++;
}

int kvb_pass_refuse(kvb_pass *p, int error, const char *what, const char *why)
{
    const kvb_event *event = &p->trace->events[p->place->event];
    p->ended = true;
    p->result->status = error == -ENOTSUP ? KVB_STATUS_SKIP : KVB_STATUS_FAIL;
    p->result->check = KVB_CHECK_PROTOCOL;
    snprintf(p->result->reason, sizeof p->result->reason, "line %" PRIu64 ": %s: %s", event->line, what,
             why && *why ? why : strerror(-error));
    if (p->result->status == KVB_STATUS_FAIL)
        kvb_event_add(event, p->result);
    return error;
}

int kvb_pass_fail(kvb_pass *p, kvb_check check, const char *why)
{
    if (kvb_check_is_off(check))
        return 0;
    int error = kvb_pass_refuse(p, -EILSEQ, check == KVB_CHECK_WITNESS ? "visible set" : p->who, why);
    p->result->check = check;
    return error;
}

double kvb_cell_bytes(const kvb_replay_options *o, uint32_t group)
{
    const kvb_model *m = &o->trace->header.model;
    const kvb_group *g = &m->groups[group];
    double row = o->k_pool->row_bytes(o->k_pool, g->k_dim);
    if (!g->latent)
        row += o->v_pool->row_bytes(o->v_pool, g->v_dim);
    return row * g->kv_heads * kvb_model_layers_of(m, group);
}

const float *kvb_pass_rows(kvb_pass *p, kvb_rows kind, uint32_t layer, const uint64_t *tokens, uint32_t n)
{
    size_t row = kvb_values_floats(kvb_model_group(&p->trace->header.model, layer), kind);
    bool together = true;
    for (uint32_t i = 1; i < n && together; i++)
        together = tokens[i] == tokens[0] + i;
    if (together || !row)
        return kvb_values_rows(p->options->values, kind, layer, tokens[0]);
    for (uint32_t i = 0; i < n; i++)
        memcpy(p->feeding.rows[kind] + i * row, kvb_values_rows(p->options->values, kind, layer, tokens[i]),
               row * sizeof(float));
    return p->feeding.rows[kind];
}

/* ---- traffic ----------------------------------------------------------------------------------------------------- */

/* Counts what a mask lets its queries read. */
static int mask_count(kvb_pass *p, const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, kvb_traffic *t)
{
    size_t words = ((size_t)n_cells + 63) / 64;
    if (words > p->meter.seen_words) {
        free(p->meter.seen);
        p->meter.seen = malloc(words * sizeof *p->meter.seen);
        p->meter.seen_words = p->meter.seen ? words : 0;
        if (!p->meter.seen)
            return -ENOMEM;
    }
    kvb_traffic_count(mask, n_tok, n_cells, p->meter.seen, t);
    return 0;
}

/* At the first layer of a group: adds what all layers of the group will read. Refuses a step
 * that is too large to attend. */
int kvb_traffic_add(kvb_pass *p, kvb_made *made)
{
    const kvb_attend_spec *spec = made->spec;
    const uint32_t n_tok = made->fed->n;
    kvb_step_traffic *step = made->traffic;
    const kvb_replay_options *o = p->options;
    const kvb_model *m = &p->trace->header.model;
    uint32_t index = m->group_of[made->layer];
    const kvb_group *g = &m->groups[index];
    kvb_traffic t;
    if (p->number > kvb_pass_counted(p) || step->counted[index])
        return 0;
    step->counted[index] = true;
    int error = mask_count(p, &spec->mask, n_tok, spec->k.cells, &t);
    if (error)
        return error;
    if (t.pairs > o->knobs->max_pairs) {
        char why[128];
        snprintf(why, sizeof why,
                 "%u queries would attend %" PRIu64 " cells in a layer, above --set max-pairs=%" PRIu64, n_tok, t.pairs,
                 o->knobs->max_pairs);
        return kvb_pass_refuse(p, -ENOTSUP, "step", why);
    }
    double cell = kvb_cell_bytes(o, index);
    uint64_t unique = (uint64_t)((double)t.unique_cells * cell);
    p->meter.pending.cells_read += (long long)t.unique_cells;
    p->meter.pending.bytes_read += (long long)unique;
    p->meter.pending.bytes_walk += (long long)((double)t.pairs * cell / g->kv_heads * g->heads);
    step->cells = step->cells > (double)t.unique_cells ? step->cells : (double)t.unique_cells;
    step->bytes += (double)unique;
    step->flops +=
        2.0 * (double)t.pairs * g->heads * (g->k_dim + g->v_dim) * kvb_model_layers_of(&p->trace->header.model, index);
    return 0;
}

/* Words of the mask as the kernel gets it, and rescales as it declares them. */
int kvb_traffic_of_call(kvb_pass *p, kvb_made *made)
{
    const kvb_problem *problem = &p->call.args.problem;
    kvb_arithmetic arithmetic;
    kvb_traffic t;
    (void)made;
    if (p->number > kvb_pass_counted(p))
        return 0;
    int error = mask_count(p, &p->call.args.mask, problem->n_tok, problem->n_cells, &t);
    if (error)
        return error;
    kvb_call_arithmetic(&p->call, &arithmetic);
    p->meter.pending.mask_words += (long long)t.mask_words;
    p->meter.pending.rescales += (long long)arithmetic.rescales * problem->n_tok * problem->n_heads;
    p->meter.staged_k |= p->call.staged_k;
    p->meter.staged_v |= p->call.staged_v;
    return 0;
}
