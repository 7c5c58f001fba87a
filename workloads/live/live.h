/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live runs: a scenario is a script of prompts, forks, speculation and so on, played by the live model over any cache
 * that has the calls it needs. Played with a recorder it makes a workload. Played over two caches it shows whether the
 * model generates the same tokens over both.
 */
#ifndef KVB_LIVE_H
#define KVB_LIVE_H

#include <stdint.h>

#include "caches/cache.h"
#include "workloads/live/recorder.h"
#include "workloads/live/weights.h"

typedef struct kvb_live_options {
    const kvb_weights *weights; /* NULL: seeded, of the scenario's geometry */
    uint64_t seed;              /* of weights that are not given, prompts, and the draft model */
    const kvb_cache_type *cache;
    const kvb_pool_type *pool; /* of K and V */
    const struct kvb_kernel *kernel;
    const struct kvb_kernel *scan; /* of layers that scan */
    kvb_recorder *recorder;        /* opened for the scenario's model, or NULL */
    uint32_t n_greedy;             /* kvb_scenario_eagle_greedy only: tokens to generate */
    const kvb_model *twin;         /* layers of the seeded twin; NULL: the scenario's */
    const char *twin_name;         /* with `twin`: its name, behind the scenario's name and a hyphen */
} kvb_live_options;

/* The tokens that the model generated. */
typedef struct kvb_live_outcome {
    int32_t *tokens; /* in order of generation; owned */
    size_t n, max;
    uint32_t rounds; /* speculation: passes of the target over a tree */
    uint32_t spoken; /* tokens from these passes: accepted draft tokens and bonus tokens */
} kvb_live_outcome;

struct kvb_scene;

/* A quarter of Llama 3 8B's heads, as one rank of four has them: the shape of cheaper twins. */
extern const kvb_group kvb_live_rank;

typedef struct kvb_scenario {
    const char *name;
    const char *summary; /* one line; the "source" of the trace */
    const char *note;    /* of the trace, or NULL */
    const char *cache;   /* the natural cache to record over */
    /* KVB_CACHE_ flags of the calls that it needs. With _SHIFT its trace states K's rope, which needs version 2; other
     * traces stay at version 1, which every reader takes. */
    uint32_t needs;
    uint32_t layers;                            /* of seeded weights; 0: as the default model */
    void (*geometry)(kvb_model_config *config); /* further changes of the default model; NULL: none */
    const kvb_group *real;                      /* heads, dims and scale of the seeded twin; NULL: Llama 3 8B's */
    const kvb_group *small;                     /* those of a second, cheaper twin; NULL: there is none */
    const kvb_group_scan *real_scan;            /* the twin's layer that scans; NULL: none */
    uint32_t full_every;                        /* one layer of so many has no limits; 0: all have limits */
    kvb_group limits;                           /* window, sinks, chunk of the others */
    uint32_t rollback;                          /* with limits: most positions by which a sequence is cut back */
    uint32_t capacity;                          /* cells */
    uint32_t seq_capacity;                      /* tokens of the longest sequence */
    uint32_t max_seqs;                          /* alive at once */
    const struct kvb_scenario *greedy; /* speculative: plain decoding, which must give the same tokens; else NULL */
    void (*play)(struct kvb_scene *scene);
} kvb_scenario;

/* Defines kvb_scenario_NAME; behind the name stand its fields. */
#define KVB_SCENARIO(NAME, ...) const kvb_scenario kvb_scenario_##NAME = {__VA_ARGS__}

extern const kvb_scenario kvb_scenario_plain_decode, kvb_scenario_batched_multi_seq, kvb_scenario_agent_fork,
    kvb_scenario_eagle_tree, kvb_scenario_parallel_sample, kvb_scenario_sliding_window, kvb_scenario_sink_window,
    kvb_scenario_mla_decode, kvb_scenario_gpt_oss_like, kvb_scenario_gemma_like, kvb_scenario_chunked_local,
    kvb_scenario_beam_search, kvb_scenario_context_shift, kvb_scenario_evict_rollback, kvb_scenario_prefix_reuse,
    kvb_scenario_paged_sharing, kvb_scenario_continuous_admission, kvb_scenario_spec_batch, kvb_scenario_save_restore,
    kvb_scenario_preempt_resume, kvb_scenario_shared_prompt, kvb_scenario_self_extend, kvb_scenario_hybrid_decode,
    kvb_scenario_hybrid_batch, kvb_scenario_spec_hybrid, kvb_scenario_state_fork;

/* The prompt of eagle-tree, continued by plain greedy decoding: eagle-tree must give the same tokens. Not listed. */
extern const kvb_scenario kvb_scenario_eagle_greedy;
/* The same for spec-batch. */
extern const kvb_scenario kvb_scenario_spec_greedy;

extern const kvb_scenario *const kvb_scenarios[];        /* ends with NULL */
const kvb_scenario *kvb_scenario_find(const char *name); /* or NULL */

#define KVB_LIVE_MIN_VOCAB 32u /* forks start with different tokens: there must be enough */

/* Does this cache have the calls that the scenario needs? */
bool kvb_scenario_fits(const kvb_scenario *scenario, const kvb_cache_type *cache);

/* Plays a scenario: 0 or a negative errno with why. outcome is overwritten; free it whatever the result. */
int kvb_live_play(const kvb_scenario *scenario, const kvb_live_options *options, kvb_live_outcome *outcome, char *why,
                  size_t why_bytes);
void kvb_live_outcome_free(kvb_live_outcome *outcome);

/* The seeded weights of a scenario: their config, and the weights. */
void kvb_scenario_config(const kvb_scenario *scenario, kvb_model_config *config);
int kvb_scenario_weights(const kvb_scenario *scenario, uint64_t seed, kvb_weights **weights, char *why,
                         size_t why_bytes);

/* The layers of these weights in groups, with the limits of the scenario (NULL: none). Sink logits point into the
 * weights; there are none if weights->layers is NULL (weights not made yet). */
void kvb_live_model(const kvb_scenario *scenario, const kvb_weights *weights, kvb_model *model);

/* The suffix of the name of a scenario's seeded twin, twin 0 or 1: "-KVHEADSxDIM"; if layers scan "-HEADSxKDIMxVDIM" of
 * these. false: the scenario has no such twin. */
bool kvb_live_twin_suffix(const kvb_scenario *scenario, unsigned twin, char *suffix, size_t bytes);

/*
 * Plays a scenario and writes directory/NAME.jsonl with its .safetensors, and its twin NAME-8x128.jsonl, the same
 * events with seeded values at a realistic geometry; some have a second, cheaper twin. With options->twin there is one
 * twin, NAME-TWIN.jsonl. options->recorder is ignored. 0 or a negative errno.
 */
int kvb_live_record(const kvb_scenario *scenario, const kvb_live_options *options, const char *directory,
                    kvb_live_outcome *outcome, char *why, size_t why_bytes);

/* Writes two synthetic workloads, for which no model runs: long-decode fills 32768 cells and decodes 17 steps,
 * long-decode-2x128 does the same with one rank's heads. With options->twin, writes one: the twin's layers and name. */
#define KVB_LONG_DECODE      "long-decode"
#define KVB_LONG_DECODE_RANK KVB_LONG_DECODE "-2x128"
int kvb_live_write_long_decode(const kvb_live_options *options, const char *directory, char *why, size_t why_bytes);

/*
 * Rounds of speculative decoding with trees: a draft model proposes breadth first, the target verifies the whole tree
 * in one forward pass, both caches commit the longest path that agrees with greedy decoding, and the target's own next
 * token is the bonus. After Li et al., EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty, ICML 2024.
 */

/* Nodes in breadth-first order; node 0 is the pending token, the others are the draft's. Child k of a node is
 * the draft's k-th best token there. */
typedef struct kvb_eagle_shape {
    uint32_t n;              /* nodes, node 0 included */
    const uint32_t *parents; /* [n]; parents[i] < i; parents[0] is not used */
} kvb_eagle_shape;

/* EAGLE's tree of 25 draft nodes. */
extern const kvb_eagle_shape kvb_eagle_shape_25;

#endif
