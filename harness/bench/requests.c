/* SPDX-License-Identifier: Apache-2.0 */
/* How many requests of a chat service are alive at once in a fixed number of cells, by cache. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "caches/cache.h"
#include "harness/bench/caches.h"
#include "harness/interrupt.h"
#include "harness/progress.h"
#include "workloads/array.h"

enum {
    CELLS = 262144, /* of the memory */
    SHARED = 512,   /* tokens with which every request begins: one block of the recording */
    CHUNK = 4096,   /* tokens of a step */
    DIM = 16        /* of rows, in one head: what is counted are cells */
};

/* Tokens of prompt and answer of the first 40 requests of FAST25-release/traces/conversation_trace.jsonl of
 * kvcache-ai/Mooncake @3b5a5941 (Apache-2.0), in order of arrival. All begin with the same block. */
static const struct {
    uint32_t prompt, answer;
} requests[] = {
    {6758, 500},  {7322, 490},  {7236, 794},  {2290, 316},  {6760, 3},    {4834, 173},  {23141, 453}, {26888, 458},
    {10498, 402}, {17450, 610}, {13544, 71},  {87169, 402}, {6324, 548},  {2012, 354},  {7324, 14},   {9418, 145},
    {915, 355},   {12846, 466}, {20506, 929}, {16609, 349}, {26353, 370}, {6059, 475},  {5954, 420},  {11339, 848},
    {15172, 80},  {45922, 265}, {1053, 26},   {5710, 745},  {7238, 11},   {10355, 584}, {1477, 615},  {15366, 344},
    {3806, 309},  {8772, 1},    {26156, 238}, {16635, 449}, {2293, 31},   {1110, 240},  {3628, 555},  {2038, 524},
};
enum { REQUESTS = sizeof requests / sizeof *requests };

static uint32_t length_of(uint32_t request)
{
    return requests[request].prompt + requests[request].answer;
}

/* A cache that is being filled with requests. */
typedef struct filling {
    kvb_cache *cache;
    kvb_frozen *beginning; /* of caches that freeze; NULL: not yet, or another cache */
    uint32_t flags;
    int32_t *tokens; /* of the request; ids of the beginning are the same for all, the others are a request's own */
    uint32_t seqs[CHUNK], positions[CHUNK];
    float rows[CHUNK * DIM]; /* zeros: no row is read */
} filling;

/* Stores the tokens of a request from `from` to `to`. 0; -ENOSPC: no room; else what the cache said. */
static int tokens_store(filling *f, uint32_t request, uint32_t from, uint32_t to)
{
    int error = 0;
    for (uint32_t n; from < to && !error; from += n) {
        kvb_attend_spec spec;
        n = to - from < CHUNK ? to - from : CHUNK;
        for (uint32_t i = 0; i < n; i++) {
            f->seqs[i] = request;
            f->positions[i] = from + i;
        }
        error = kvb_cache_can_extend(f->cache, f->seqs, n) ? 0 : -ENOSPC;
        if (!error)
            error = kvb_cache_begin_step_tokens(f->cache, f->seqs,
                                                f->flags & KVB_CACHE_PREFIX ? f->tokens + from : NULL, n);
        if (!error)
            error = kvb_cache_update_and_fetch(f->cache, 0, f->positions, f->rows, f->rows, n, &spec);
    }
    return error;
}

/* The request's beginning, as far as the cache has it: *found tokens. */
static int beginning_find(filling *f, uint32_t request, uint32_t *found)
{
    const uint64_t *ordinals;
    *found = 0;
    if (f->flags & KVB_CACHE_PREFIX)
        return kvb_cache_seq_match(f->cache, request, f->tokens, requests[request].prompt, 0, found, &ordinals);
    if (!f->beginning)
        return 0;
    *found = SHARED;
    return kvb_cache_seq_over(f->cache, request, f->beginning);
}

/* One request from its first token to its last. */
static int request_store(filling *f, uint32_t request)
{
    const uint32_t length = length_of(request);
    uint32_t found;
    for (uint32_t i = 0; i < length; i++)
        f->tokens[i] = (int32_t)(i < SHARED ? i : (request + 1) << 20 | i);
    int error = beginning_find(f, request, &found);
    if (!error)
        error = tokens_store(f, request, found, length);
    if (!error && f->flags & KVB_CACHE_FREEZES && !f->beginning)
        error = kvb_cache_freeze(f->cache, request, SHARED, NULL, &f->beginning);
    return error;
}

/* Fills a cache with requests until one does not fit. */
static int cache_fill(filling *f, const kvb_cache_type *type, kvb_caches_row *row, char *why, size_t why_bytes)
{
    static const kvb_model model = {
        .n_layers = 1,
        .n_groups = 1,
        .groups = {{.heads = 1, .kv_heads = 1, .k_dim = DIM, .v_dim = DIM, .scale = 0.25}},
    };
    kvb_allocator allocator = {.source = NULL};
    uint32_t longest = 0;
    for (uint32_t i = 0; i < REQUESTS; i++)
        longest = length_of(i) > longest ? length_of(i) : longest;
    const kvb_cache_type *const slab = &kvb_cache_slab;
    kvb_cache_options options = {.capacity = CELLS,
                                 .seq_capacity = longest,
                                 .seq_ids = REQUESTS,
                                 .max_seqs = type == slab ? CELLS / longest : REQUESTS,
                                 .step = CHUNK,
                                 .min_chunk = 256,
                                 .page_cells = 16,
                                 .growth = KVB_GROWTH_RESERVE,
                                 .allocator = &allocator};
    for (const kvb_pool_type *const *p = kvb_builtin_pools; *p; p++)
        if (!strcmp((*p)->name, "f16"))
            options.k_pool = options.v_pool = *p;
    f->flags = type->flags;
    int error = kvb_cache_open(type, &model, &options, &f->cache, why, why_bytes);
    for (uint32_t i = 0; i < REQUESTS && !error && !kvb_stopped; i++) {
        error = request_store(f, i);
        if (error == -ENOSPC)
            kvb_cache_seq_rm(f->cache, i, 0, KVB_POS_END); /* its first part was stored */
        row->alive += !error;
        row->tokens += error ? 0 : length_of(i);
    }
    if (f->cache) {
        kvb_cache_usage usage;
        kvb_cache_usage_of(f->cache, 0, &usage);
        row->used = usage.cells_live;
    }
    if (error && error != -ENOSPC && f->cache)
        snprintf(why, why_bytes, "%s: %s", type->name, kvb_cache_why(f->cache));
    kvb_frozen_release(f->beginning);
    f->beginning = NULL;
    kvb_cache_close(f->cache);
    f->cache = NULL;
    return error == -ENOSPC ? 0 : error;
}

int kvb_caches_requests(kvb_caches *rows, char *why, size_t why_bytes)
{
    static const kvb_cache_type *const caches[] = {&kvb_cache_slab, &kvb_cache_paged, &kvb_cache_paged_prefix,
                                                   &kvb_cache_shared_prefix};
    filling *f = calloc(1, sizeof *f);
    int error = f && (f->tokens = calloc(CELLS, sizeof *f->tokens)) ? 0 : -ENOMEM;
    for (size_t i = 0; i < sizeof caches / sizeof *caches && !error; i++) {
        kvb_caches_row row = {.cells = CELLS, .rows = NAN, .pairs = NAN, .live_bytes = NAN, .moved_bytes = NAN};
        kvb_result *r = &row.result;
        kvb_result_init(r);
        kvb_progress_now("chat requests, %s", caches[i]->name);
        error = cache_fill(f, caches[i], &row, why, why_bytes);
        r->status = KVB_STATUS_COUNTED;
        snprintf(r->workload, sizeof r->workload, KVB_CACHES_CHAT);
        snprintf(r->cache, sizeof r->cache, "%s", caches[i]->name);
        if (!error && !kvb_array_reserve(&rows->at, &rows->room, rows->n + 1, sizeof *rows->at))
            rows->at[rows->n++] = row;
    }
    if (f)
        free(f->tokens);
    free(f);
    return kvb_stopped ? -EINTR : error;
}
