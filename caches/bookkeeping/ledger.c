/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger of live tokens. */
#include "caches/bookkeeping/ledger.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "caches/bookkeeping/grow.h"

void kvb_ledger_open(kvb_ledger *ledger, kvb_allocator *allocator)
{
    memset(ledger, 0, sizeof *ledger);
    ledger->allocator = allocator;
}

void kvb_ledger_close(kvb_ledger *ledger)
{
    kvb_free(ledger->allocator, ledger->ordinal, ledger->ordinal_room * sizeof *ledger->ordinal);
    kvb_free(ledger->allocator, ledger->pos, ledger->pos_room * sizeof *ledger->pos);
    kvb_free(ledger->allocator, ledger->seqs, ledger->seqs_room * sizeof *ledger->seqs);
    kvb_ledger_open(ledger, ledger->allocator);
}

int kvb_ledger_reserve(kvb_ledger *ledger, uint32_t n)
{
    kvb_allocator *a = ledger->allocator;
    size_t need = (size_t)ledger->n + n;
    void *p = kvb_grow(a, ledger->ordinal, &ledger->ordinal_room, need, sizeof *ledger->ordinal);
    if (!p)
        return -ENOMEM;
    ledger->ordinal = p;
    p = kvb_grow(a, ledger->pos, &ledger->pos_room, need, sizeof *ledger->pos);
    if (!p)
        return -ENOMEM;
    ledger->pos = p;
    p = kvb_grow(a, ledger->seqs, &ledger->seqs_room, need, sizeof *ledger->seqs);
    if (!p)
        return -ENOMEM;
    ledger->seqs = p;
    return 0;
}

void kvb_ledger_add(kvb_ledger *ledger, uint64_t ordinal, uint32_t pos, uint32_t seq)
{
    assert(ledger->n < ledger->seqs_room);
    ledger->ordinal[ledger->n] = ordinal;
    ledger->pos[ledger->n] = pos;
    ledger->seqs[ledger->n] = kvb_seq_bit(seq);
    kvb_seq_lens_add(&ledger->lens, kvb_seq_bit(seq), pos);
    ledger->n++;
}

/* Close the gaps that tokens without a sequence leave, and count again. */
static void compact(kvb_ledger *ledger)
{
    uint32_t n = 0;
    memset(&ledger->lens, 0, sizeof ledger->lens);
    for (uint32_t i = 0; i < ledger->n; i++) {
        if (!ledger->seqs[i])
            continue;
        ledger->ordinal[n] = ledger->ordinal[i];
        ledger->pos[n] = ledger->pos[i];
        ledger->seqs[n] = ledger->seqs[i];
        kvb_seq_lens_add(&ledger->lens, ledger->seqs[n], ledger->pos[n]);
        n++;
    }
    ledger->n = n;
}

void kvb_ledger_share(kvb_ledger *ledger, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1)
{
    for (uint32_t i = 0; i < ledger->n; i++)
        if (ledger->seqs[i] & kvb_seq_bit(src) && ledger->pos[i] >= p0 && ledger->pos[i] < p1)
            ledger->seqs[i] |= kvb_seq_bit(dst);
    compact(ledger);
}

void kvb_ledger_leave(kvb_ledger *ledger, uint32_t seq, uint32_t p0, uint32_t p1)
{
    for (uint32_t i = 0; i < ledger->n; i++)
        if (ledger->pos[i] >= p0 && ledger->pos[i] < p1)
            ledger->seqs[i] &= ~kvb_seq_bit(seq);
    compact(ledger);
}

void kvb_ledger_keep(kvb_ledger *ledger, uint32_t seq)
{
    for (uint32_t i = 0; i < ledger->n; i++)
        ledger->seqs[i] &= kvb_seq_bit(seq);
    compact(ledger);
}

void kvb_ledger_clear(kvb_ledger *ledger)
{
    ledger->n = 0;
    memset(&ledger->lens, 0, sizeof ledger->lens);
}
