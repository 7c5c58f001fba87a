/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pages hold which beginning of a prompt. A page whose tokens are all known, and follow known ones from the first
 * on, is keyed: by the page before it (the first: by the sequence's extra key) and its own tokens, so that its key
 * stands for the whole prefix. Keys are looked up by hash; what is found is compared, token by token. A page that is
 * keyed and that no table names is cached: it stays until room is needed or the budget is passed, and the one let go of
 * longest ago goes first.
 *
 * All memory is taken at open; nothing else here can fail.
 */
#ifndef KVB_PREFIX_H
#define KVB_PREFIX_H

#include "caches/bookkeeping/account.h"

#define KVB_NO_PAGE UINT32_MAX

/* What a key is made of. A part of it that is left out lets two prompts share rows: planted faults and tests replace
 * these. */
typedef struct kvb_prefix_rules {
    uint64_t (*root)(uint64_t extra_key);                /* what stands before the first page */
    uint64_t (*before)(uint64_t before, uint32_t entry); /* id of the page before, or a root, as keys have it */
    uint64_t (*hash)(uint64_t before, const int32_t *tokens, uint32_t n);
    bool (*same)(const int32_t *a, const int32_t *b, uint32_t n);
} kvb_prefix_rules;
extern kvb_prefix_rules kvb_prefix_by;

typedef struct kvb_prefix_page {
    uint64_t id;           /* of its key, which pages of equal prefixes share; 0: it has none */
    uint64_t before;       /* id of the page before; of a first one its root */
    uint32_t entry;        /* how many pages come before */
    uint32_t known;        /* so many of its first tokens are known */
    uint32_t next;         /* in its bucket; the page that is found under its key is there */
    uint32_t older, newer; /* of cached pages, while it is one; else where it was */
    bool found, cached;
} kvb_prefix_page;

typedef struct kvb_prefix {
    uint32_t n_pages, page_cells, n_ids, n_buckets, budget, n_cached; /* budget: most cached pages */
    uint64_t hash_mask;                                               /* bits of hashes that count */
    kvb_prefix_page *pages; /* [n_pages + 1], the last: both ends of the list */
    int32_t *tokens;        /* [n_pages][page_cells] */
    uint64_t *ordinals;     /* of its tokens */
    uint32_t *buckets;      /* [n_buckets] */
    uint64_t *extra_keys;   /* [n_ids] */
    uint64_t last_id;
} kvb_prefix;

/* hash_bits: as in kvb_cache_options. 0, or -ENOMEM, to be closed as well. */
int kvb_prefix_open(kvb_prefix *prefix, kvb_allocator *allocator, uint32_t n_pages, uint32_t page_cells, uint32_t n_ids,
                    uint32_t budget, uint32_t hash_bits);
void kvb_prefix_close(kvb_prefix *prefix, kvb_allocator *allocator);

/* A cached page is named by a table, and (undo, the last such call first) is cached again as if it had never been
 * named. */
void kvb_prefix_take(kvb_prefix *prefix, uint32_t page);
void kvb_prefix_untake(kvb_prefix *prefix, uint32_t page);
/* No table names the page any more: it is cached if it is found under its key; else its tokens are forgotten. */
void kvb_prefix_release(kvb_prefix *prefix, uint32_t page);
/* Forgets a cached page for which the budget has no room, and names it; KVB_NO_PAGE: there is none. */
uint32_t kvb_prefix_trim(kvb_prefix *prefix);
/* The cached page that goes first, or KVB_NO_PAGE. */
uint32_t kvb_prefix_oldest(const kvb_prefix *prefix);
/* A whole page gets its key. */
void kvb_prefix_key(kvb_prefix *prefix, uint32_t page, uint64_t before, uint32_t entry);

#endif
