/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines that give one token to several sequences: the token is of the first one, and copies (seq_cp) behind the event
 * give it to the others. That says the same as long as no token of the event sees what its sequence is yet to get.
 */
#include "workloads/trace_internal.h"
#include "workloads/why.h"

#include <errno.h>
#include <stdlib.h>

typedef struct sharing {
    const kvb_history *history;
    kvb_event_store *store;
    size_t n_shares, n;                /* of the line; of them, checked and joined: the first of store->shares */
    uint32_t last[KVB_TRACE_MAX_SEQS]; /* a sequence's last one, numbered from 1 on; 0: it has none */
    uint32_t own[KVB_TRACE_MAX_SEQS];  /* of the line's tokens so far, those of each sequence */
} sharing;

/* Checks a share, and joins it to those before it. */
static int share_join(sharing *all, kvb_trace_share share, char *why, size_t why_bytes)
{
    kvb_trace_share *last = all->last[share.dst] ? &all->store->shares[all->last[share.dst] - 1] : NULL;
    const uint32_t next = last ? last->p0 + last->n : kvb_history_next(all->history, share.dst) + all->own[share.dst];
    if (share.dst == share.src || (last && last->at == share.at))
        return kvb_why_set(-EINVAL, why, why_bytes, "names sequence %u twice for position %u", share.dst, share.p0);
    if (share.p0 != next)
        return kvb_why_set(-EINVAL, why, why_bytes, "shares position %u with sequence %u, whose next one is %u",
                           share.p0, share.dst, next);
    if (last && last->src == share.src) {
        last->at = share.at;
        last->n += share.n;
        return 0;
    }
    all->store->shares[all->n] = share;
    all->last[share.dst] = (uint32_t)++all->n;
    return 0;
}

/* Looks at the tokens one by one, and at what their sequences have by then. */
static int tokens_share(sharing *all, char *why, size_t why_bytes)
{
    const kvb_event *event = &all->store->event;
    int err = 0;
    for (size_t i = 0, at = 0; i < event->n && !err; i++) {
        const uint32_t s = event->seq[i];
        const uint32_t next = kvb_history_next(all->history, s) + all->own[s]++,
                       pos = event->kind == KVB_EVENT_FILL ? next : event->pos[i];
        if (all->last[s])
            err = kvb_why_set(-EINVAL, why, why_bytes,
                              "position %u of sequence %u would not see what others share with it in the same line",
                              pos, s);
        for (; at < all->n_shares && all->store->shares[at].at == i && !err; at++) {
            kvb_trace_share share = all->store->shares[at];
            share.src = s;
            share.p0 = pos;
            err = share_join(all, share, why, why_bytes);
        }
    }
    return err;
}

int kvb_shares_check(const kvb_history *history, kvb_event_store *store, char *why, size_t why_bytes)
{
    char text[200];
    store->next_copy = 0;
    if (!store->n_shares)
        return 0;
    sharing *all = calloc(1, sizeof *all);
    if (!all)
        return kvb_why_set(-ENOMEM, why, why_bytes, "no memory");
    all->history = history;
    all->store = store;
    all->n_shares = store->n_shares;
    int err = tokens_share(all, text, sizeof text);
    store->n_shares = store->event.error ? 0 : all->n; /* what is refused is not copied */
    free(all);
    return err ? kvb_why_set(err, why, why_bytes, "%s: %s", kvb_event_kind_name(store->event.kind), text) : 0;
}

bool kvb_shares_next(kvb_event_store *store)
{
    if (store->next_copy == store->n_shares)
        return false;
    const kvb_trace_share *share = &store->shares[store->next_copy++];
    store->event = (kvb_event){
        .kind = KVB_EVENT_SEQ_CP, .src = share->src, .dst = share->dst, .p0 = share->p0, .p1 = share->p0 + share->n};
    return true;
}
