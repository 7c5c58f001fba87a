/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger: which tokens are alive, by ordinal, in the order in which they were admitted. No cells.
 * Within one sequence that order is also the order of positions, since a new token always takes the
 * position after the largest one.
 */
#ifndef KVB_LEDGER_H
#define KVB_LEDGER_H

#include "caches/allocator.h"
#include "caches/bookkeeping/seq_lens.h"

typedef struct kvb_ledger {
    kvb_allocator *allocator;
    uint32_t n; /* tokens alive */
    kvb_seq_lens lens;
    uint64_t *ordinal; /* [n], ascending */
    uint32_t *pos;     /* [n] */
    uint64_t *seqs;    /* [n] sets of sequences, none empty */
    size_t ordinal_room, pos_room, seqs_room;
} kvb_ledger;

void kvb_ledger_open(kvb_ledger *ledger, kvb_allocator *allocator);
void kvb_ledger_close(kvb_ledger *ledger);

/* Room for n more: 0 or -ENOMEM. */
int kvb_ledger_reserve(kvb_ledger *ledger, uint32_t n);
/* Admit a token, in the room reserved. */
void kvb_ledger_add(kvb_ledger *ledger, uint64_t ordinal, uint32_t pos, uint32_t seq);

/* As for cells: positions p0 <= p < p1. A token leaves the ledger with its last sequence. */
void kvb_ledger_share(kvb_ledger *ledger, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1);
void kvb_ledger_leave(kvb_ledger *ledger, uint32_t seq, uint32_t p0, uint32_t p1);
void kvb_ledger_keep(kvb_ledger *ledger, uint32_t seq);
void kvb_ledger_clear(kvb_ledger *ledger);

#endif
