/* SPDX-License-Identifier: Apache-2.0 */
/* A sequence stored in the real pools of a contiguous cache, and the oracle's rows of its last step. */
#ifndef KVB_TEST_FILLED_H
#define KVB_TEST_FILLED_H

#include "ci/tests/tests.h"
#include "caches/cache.h"
#include "caches/call.h"
#include "ci/tests/whole/parts.h"
#include "oracle/window.h"

enum { FILLED_LAYERS = 3 }; /* most layers */

typedef struct filled {
    uint32_t cells, queries; /* queries: tokens of the last step */
    kvb_trace *trace;
    kvb_values *values;
    kvb_oracle *oracle; /* all rows */
    kvb_window *window; /* the account of writes; NULL: no residual cells */
    kvb_allocator allocator;
    kvb_cache *cache;
    kvb_attend_spec spec[FILLED_LAYERS]; /* [layer] of the last step */
    kvb_call call;
} filled;

/* Makes a step of n tokens from a position on, and stores it. Cells are positions. */
static inline void filled_step(filled *f, uint32_t from, uint32_t n)
{
    const uint64_t *fed;
    uint32_t *positions = malloc(n * sizeof *positions);
    for (uint32_t i = 0; i < n; i++)
        positions[i] = from + i;
    assert_int_equal(kvb_cache_begin_step(f->cache, NULL, n), 0);
    assert_int_equal(kvb_cache_feed(f->cache, &fed), n);
    for (uint32_t layer = 0; layer < f->trace->header.model.n_layers; layer++) {
        assert_int_equal(
            kvb_cache_update_and_fetch(f->cache, layer, positions, kvb_values_rows(f->values, KVB_ROWS_K, layer, from),
                                       kvb_values_rows(f->values, KVB_ROWS_V, layer, from), n, &f->spec[layer]),
            0);
        for (int is_v = 0; f->window && is_v < (f->spec[layer].group->latent ? 1 : 2); is_v++)
            assert_int_equal(kvb_window_write(f->window, layer, is_v, positions, n, fed), 0);
    }
    free(positions);
}

/* model: as for trace_of(). profile: of the values; NULL: Gaussian. */
static inline void filled_open(filled *f, const char *model, uint32_t cells, uint32_t queries,
                               const kvb_pool_type *k_pool, const kvb_pool_type *v_pool, const char *profile)
{
    static const float amax[] = {5, 4.5f}; /* of two KV heads, rounded: head scales are computed from these */
    static const float *const layers_amax[FILLED_LAYERS] = {amax, amax, amax};
    char why[256], events[4096], positions[2048] = "", sequences[1024] = "";
    for (uint32_t i = 0, at = 0; i < queries; i++) {
        at += (uint32_t)snprintf(positions + at, sizeof positions - at, "%s%u", i ? "," : "", cells - queries + i);
        strcat(sequences, i ? ",0" : "0");
    }
    snprintf(events, sizeof events, "{'fill':{'seq':0,'n':%u}}\n{'step':{'pos':[%s],'seq':[%s]}}", cells - queries,
             positions, sequences);
    *f = (filled){.cells = cells, .queries = queries, .trace = trace_of(model, events)};
    assert_int_equal(kvb_values_open(f->trace, profile, 0, NULL, NULL, &f->values, why, sizeof why), 0);
    const kvb_oracle_options options = {.k_format = k_pool->format,
                                        .v_format = v_pool->format,
                                        .k_amax = layers_amax,
                                        .v_amax = layers_amax,
                                        .max_pairs = UINT64_MAX};
    assert_int_equal(kvb_oracle_open(f->trace, f->values, &options, &f->oracle, why, sizeof why), 0);
    if (kvb_oracle_needs_writes(f->oracle))
        assert_int_equal(kvb_window_open(f->oracle, &f->window), 0);
    const kvb_cache_options cache = {.capacity = cells,
                                     .seq_capacity = cells,
                                     .max_seqs = 1,
                                     .min_chunk = 64,
                                     .k_pool = k_pool,
                                     .v_pool = v_pool,
                                     .k_amax = layers_amax,
                                     .v_amax = layers_amax,
                                     .allocator = &f->allocator};
    assert_int_equal(kvb_cache_open(&kvb_cache_contiguous, &f->trace->header.model, &cache, &f->cache, why, sizeof why),
                     0);
    filled_step(f, 0, cells - queries);
    filled_step(f, cells - queries, queries);
}

static inline void filled_close(filled *f)
{
    kvb_call_free(&f->call);
    kvb_cache_close(f->cache);
    assert_int_equal(f->allocator.current_bytes, 0);
    kvb_window_free(f->window);
    kvb_oracle_free(f->oracle);
    kvb_values_free(f->values);
    kvb_trace_free(f->trace);
}

/* The queries of the last step in a layer. */
static inline const float *filled_q(const filled *f, uint32_t layer)
{
    return kvb_values_rows(f->values, KVB_ROWS_Q, layer, f->cells - f->queries);
}

/* Attends the last step. false: the kernel does not take it. */
static inline bool filled_attend(filled *f, const kvb_kernel *kernel, const kvb_attend_spec *spec, const float *q,
                                 kvb_elem out_elem, void *out, float *lse)
{
    char why[256];
    f->call.kernel = kernel;
    f->call.team = &team_of_one;
    f->call.no_staging = true;
    f->call.out_elem = out_elem;
    int error = kvb_call_prepare(&f->call, spec, q, f->queries, why, sizeof why);
    if (error == -ENOTSUP)
        return false;
    assert_int_equal(error, 0);
    assert_int_equal(kvb_call_run(&f->call, out, lse), 0);
    return true;
}

#endif
