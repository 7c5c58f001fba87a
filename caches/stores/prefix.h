/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the pages that hold the beginning of a prompt. A page gets a key if all its tokens and all tokens before it are
 * known. The key is the id of the page before (for the first page the sequence's extra key) and the page's own tokens,
 * so it stands for the whole prefix. Keys are looked up by hash, then compared token by token. A keyed page that no
 * table names is cached: it stays until its room is needed or the budget is exceeded. The page released longest ago is
 * evicted first.
 *
 * All memory is taken at open; nothing else here can fail.
 */
#ifndef KVB_PREFIX_H
#define KVB_PREFIX_H

#include "caches/bookkeeping/account.h"

#define KVB_NO_PAGE UINT32_MAX

/* How keys are made. Planted faults and tests replace these functions: a key without one of its parts lets different
 * prompts share rows. */
typedef struct kvb_prefix_rules {
    uint64_t (*root)(uint64_t extra_key);                /* in place of the id before the first page */
    uint64_t (*before)(uint64_t before, uint32_t entry); /* the id before, or root, as it enters the key */
    uint64_t (*hash)(uint64_t before, const int32_t *tokens, uint32_t n);
    bool (*same)(const int32_t *a, const int32_t *b, uint32_t n);
} kvb_prefix_rules;
extern kvb_prefix_rules kvb_prefix_by;

typedef struct kvb_prefix_page {
    uint64_t id;           /* of its key; pages of equal prefixes share it; 0: no key */
    uint64_t before;       /* id of the page before; first page: root */
    uint32_t entry;        /* number of pages before */
    uint32_t known;        /* number of first tokens that are known */
    uint32_t next;         /* in its bucket, if `found` */
    uint32_t older, newer; /* neighbours in the list of cached pages; if not cached, those that it last had there */
    bool found, cached;    /* found: the page that a lookup of its key finds */
} kvb_prefix_page;

typedef struct kvb_prefix {
    uint32_t n_pages, page_cells, n_ids, n_buckets, budget, n_cached; /* budget: most cached pages */
    uint64_t hash_mask;                                               /* bits of hashes that count */
    kvb_prefix_page *pages; /* [n_pages + 1], the last: both ends of the list of cached pages */
    int32_t *tokens;        /* [n_pages][page_cells] */
    uint64_t *ordinals;     /* the same, of these tokens */
    uint32_t *buckets;      /* [n_buckets] */
    uint64_t *extra_keys;   /* [n_ids] */
    uint64_t last_id;
} kvb_prefix;

/* hash_bits: as in kvb_cache_options. 0, or -ENOMEM: to be closed as well. */
int kvb_prefix_open(kvb_prefix *prefix, kvb_allocator *allocator, uint32_t n_pages, uint32_t page_cells, uint32_t n_ids,
                    uint32_t budget, uint32_t hash_bits);
void kvb_prefix_close(kvb_prefix *prefix, kvb_allocator *allocator);

/* take: a table names a page, which is cached no more. untake puts it back at its old place in the list; the last page
 * taken is put back first. */
void kvb_prefix_take(kvb_prefix *prefix, uint32_t page);
void kvb_prefix_untake(kvb_prefix *prefix, uint32_t page);
/* No table names the page any more: caches it if a lookup of its key finds it, else forgets its tokens. */
void kvb_prefix_release(kvb_prefix *prefix, uint32_t page);
/* Evicts and returns a cached page if there are more than the budget; KVB_NO_PAGE: there are not. */
uint32_t kvb_prefix_trim(kvb_prefix *prefix);
/* The cached page to be evicted first, or KVB_NO_PAGE. */
uint32_t kvb_prefix_oldest(const kvb_prefix *prefix);
/* Gives a page without a key, all of whose tokens are known, its key. before: id of the page before, or a root. */
void kvb_prefix_key(kvb_prefix *prefix, uint32_t page, uint64_t before, uint32_t entry);

#endif
