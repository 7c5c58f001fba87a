/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Knobs: rarely used numbers and switches of a replay, `--set KEY=VALUE`. One struct goes unchanged from the command line
 * to its readers. One table has the names, defaults, readers and help (`kvbench list knobs`). A new knob is a member and
 * a row.
 */
#ifndef KVB_KNOBS_H
#define KVB_KNOBS_H

#include "harness/command_line.h"

/*
 * The state of the processor's caches when a kernel is timed:
 *   natural  layer after layer, as in a real model: the caches hold data left over from the last step
 *   hot      the same call was made once just before
 *   cold     K, V and q were flushed to memory just before
 */
typedef enum kvb_cache_state { KVB_STATE_NATURAL, KVB_STATE_HOT, KVB_STATE_COLD, KVB_CACHE_STATES } kvb_cache_state;
extern const char *const kvb_cache_state_names[KVB_CACHE_STATES];
bool kvb_cache_state_parse(const char *word, kvb_cache_state *state);

typedef struct kvb_knobs {
    /* caches and pools; capacity 0: what the trace needs; hash_bits 0: all */
    uint64_t capacity, page_cells, min_chunk, prefix_bytes, hash_bits;
    kvb_words growths;
    /* properties of calls */
    const char *out, *softcap, *scale;
    bool sinks, before_rope, deterministic, no_staging;
    /* single calls; calls 0: the suite's number */
    uint64_t calls, random;
    kvb_words require_axes, require_invariant;
    /* judging; oracle_pairs 0: the suite's number */
    uint64_t max_pairs, oracle_pairs, opinion_pairs, seed;
    bool pairs, exhaustive, strict, no_witness, no_guard, gdb, restart;
    /* measuring; sample_ms 0: the suite's number */
    uint64_t timeout, sample_ms, width;
    kvb_cache_state cache_state;
    const char *cache_state_name, *tuning, *openblas_core, *timeline, *workloads;
    bool no_tuning, no_null, machine, no_machine, oversubscribe, first_touch, counters;
    kvb_words events;
} kvb_knobs;

extern const kvb_knob kvb_knobs_table[]; /* ends with a row without a name */

/* All knobs with their defaults. */
kvb_knobs kvb_knobs_usual(void);

#endif
