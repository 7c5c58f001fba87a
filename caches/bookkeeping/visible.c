/* SPDX-License-Identifier: Apache-2.0 */
/* Segments of sequences, and the runs that a query sees of them. */
#include "caches/bookkeeping/visible.h"

#include <errno.h>
#include <string.h>

#include "caches/bookkeeping/grow.h"

void kvb_visible_open(kvb_visible *visible, kvb_allocator *allocator)
{
    memset(visible, 0, sizeof *visible);
    visible->allocator = allocator;
}

void kvb_visible_close(kvb_visible *visible)
{
    kvb_free(visible->allocator, visible->segments, visible->room * sizeof *visible->segments);
    kvb_visible_open(visible, visible->allocator);
}

static int segment_add(kvb_visible *visible, uint32_t cell, uint32_t pos)
{
    void *p =
        kvb_grow(visible->allocator, visible->segments, &visible->room, visible->n + 1, sizeof *visible->segments);
    if (!p)
        return -ENOMEM;
    visible->segments = p;
    visible->segments[visible->n++] = (kvb_segment){cell, cell + 1, pos};
    return 0;
}

static int sequence_cut(kvb_visible *visible, const uint32_t *pos, const uint64_t *seqs, uint32_t n_cells, uint32_t seq)
{
    visible->first[seq] = visible->n;
    for (uint32_t c = 0; c < n_cells; c++) {
        if (!(seqs[c] & kvb_seq_bit(seq)))
            continue;
        kvb_segment *last = visible->n > visible->first[seq] ? &visible->segments[visible->n - 1] : NULL;
        if (last && last->end == c && pos[c] == pos[c - 1] + 1) {
            last->end++;
            continue;
        }
        int error = segment_add(visible, c, pos[c]);
        if (error)
            return error;
    }
    visible->last[seq] = visible->n;
    return 0;
}

int kvb_visible_cut(kvb_visible *visible, const uint32_t *pos, const uint64_t *seqs, uint32_t n_cells, uint64_t wanted)
{
    visible->n = 0;
    for (; wanted; wanted &= wanted - 1) {
        int error = sequence_cut(visible, pos, seqs, n_cells, kvb_seq_lowest(wanted));
        if (error)
            return error;
    }
    return 0;
}

int kvb_visible_see(const kvb_visible *visible, uint32_t seq, uint32_t pos, kvb_plan *plan)
{
    for (size_t i = visible->first[seq]; i < visible->last[seq]; i++) {
        const kvb_segment *s = &visible->segments[i];
        if (s->pos > pos)
            continue;
        uint32_t seen = pos - s->pos < s->end - s->begin ? pos - s->pos + 1 : s->end - s->begin;
        int error = kvb_plan_see(plan, s->begin, s->begin + seen);
        if (error)
            return error;
    }
    kvb_plan_next_query(plan);
    return 0;
}
