/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A setting: how a combination runs, besides its history, shape, pools, cache and kernel. Most runs have one setting,
 * from their options. In an untimed run by pairs each combination has its own setting, so that every value of every axis
 * meets every kernel, cache and pair of pools that can take it.
 */
#ifndef KVB_SELECTION_H
#define KVB_SELECTION_H

#include <string.h>

#include "caches/store.h"
#include "harness/command_line.h"
#include "harness/selection/registry.h"
#include "harness/selection/suite.h"
#include "results/result.h"
#include "workloads/trace.h"

typedef struct kvb_setting {
    uint32_t threads;      /* 0: the selection's */
    uint32_t page_cells;   /* for caches of pages */
    uint32_t min_chunk;    /* cells */
    uint32_t hash_bits;    /* for caches that find prompts; 0: all */
    uint32_t prefix_bytes; /* for caches that find prompts; 0: the knob's */
    bool restart;          /* half way the cache is saved, closed and loaded */
    kvb_growth growth;     /* of pools; KVB_GROWTH_DOUBLE: the selection's */
    kvb_elem out_elem;     /* of the outputs: KVB_F32, KVB_F16 or KVB_BF16 */
    bool deterministic;
    kvb_logit_changes logits;
    const char *values; /* profile; NULL: the selection's */
} kvb_setting;

/* Element types of outputs: "f32", "f16", "bf16". */
bool kvb_out_parse(const char *name, kvb_elem *elem);
const char *kvb_out_name(kvb_elem elem);

#define KVB_SETTING_WORDS 3u
#define KVB_SETTING_BITS  64u /* all values of all axes fit into a set of so many bits */

/* Traits of an axis, as bits. */
#define KVB_AXIS_FIELD   1u  /* the record has a field for it */
#define KVB_AXIS_DEAR    2u  /* it repeats a combination's calls: chosen rarely once its values have met everything */
#define KVB_AXIS_TRUTH   4u  /* the oracle depends on it: if possible, combinations with one oracle share a value */
#define KVB_AXIS_KERNEL  8u  /* a kernel may refuse it: supports() is asked */
#define KVB_AXIS_OUTPUTS 16u /* it does not concern a witness */
#define KVB_AXIS_ATTENDS 32u /* it does not concern a model without layers that attend */
#define KVB_AXIS_FILE    64u /* the cache is saved to a file: not all pools can be, and histories must be short */

/* An axis of settings. A combination's value on it: 0 is the run's own value, n is words[n - 1]. */
typedef struct kvb_setting_axis {
    const char *option;                   /* of `kvbench run` */
    const char *words[KVB_SETTING_WORDS]; /* its values, as typed; "": a flag; NULL: no more */
    enum {
        KVB_SETS_COUNT,
        KVB_SETS_FLAG,
        KVB_SETS_FLOAT,
        KVB_SETS_DOUBLE,
        KVB_SETS_OUT,
        KVB_SETS_PROFILE,
        KVB_SETS_GROWTH
    } sets;
    size_t member;                    /* the one that it sets, of that type: its offset in kvb_setting */
    uint32_t traits;                  /* KVB_AXIS_… */
    uint32_t cache_has, cache_has_no; /* KVB_CACHE_… flags of the caches that it concerns */
} kvb_setting_axis;

#define KVB_SETTING_AXES 14u
extern const kvb_setting_axis kvb_setting_axes[KVB_SETTING_AXES];
typedef uint8_t kvb_setting_choice[KVB_SETTING_AXES];

/* Can a word of the axis matter to this history over this cache and these pools? */
bool kvb_setting_matters(const kvb_setting_axis *axis, const char *word, const kvb_trace *trace,
                         const kvb_cache_type *cache, const kvb_pool_pair *pools);

/* The usual setting with the chosen values. choice NULL: unchanged. */
kvb_setting kvb_setting_apply(const kvb_setting *usual, const uint8_t *choice);
/* Appends the chosen values to a text, as options of `kvbench run`. Left out: --threads, which is a name of the
 * combination, and, unless all, axes with a field in the record. */
void kvb_setting_words(const uint8_t *choice, bool all, char *text, size_t bytes);
/* The bit of a value in the set of all values of all axes. */
uint64_t kvb_setting_bit(size_t axis, size_t value);

#define KVB_SETTLED_PARTS  4u
#define KVB_SETTLED_KERNEL 1u

/* A combination that needs a setting. */
typedef struct kvb_settled {
    uint32_t parts[KVB_SETTLED_PARTS]; /* history, kernel, cache, pair of pools: each counted from 0 */
    size_t block;     /* same number: same workload, values and pair of pools; such combinations are consecutive */
    uint64_t allowed; /* set of values that it can take; the bits of the run's own values are ignored */
    bool dear;        /* its oracle takes long: the whole block shares one, where it can */
    uint8_t *choice;  /* filled in */
} kvb_settled;

/*
 * Chooses settings, one combination after the other: on each axis the value that meets the most parts and values of
 * other axes for the first time. Once all have met, half of the combinations keep the run's own value. 0 or -ENOMEM.
 */
int kvb_settings_cover(kvb_settled *list, size_t n);

/*
 * A selection: lists of workloads, parts and thread counts from the words of the command line. It is the product of its
 * lists, or enough of its combinations to cover every pair (pairs.h). A run has one for each part of its suite.
 */

/* When does a witness run, besides being named? It runs once for each workload, cache, pools and growth. */
typedef enum kvb_witness_rule {
    KVB_WITNESS_NAMED,  /* like any other kernel: if none are named */
    KVB_WITNESS_BESIDE, /* always */
    KVB_WITNESS_NONE    /* never */
} kvb_witness_rule;

/* The words as typed. An empty list stands for the suite's list, or for everything. */
typedef struct kvb_selection_words {
    kvb_words workloads, caches, pools, kernels, threads, values, growths;
    kvb_witness_rule witness;
} kvb_selection_words;

#define KVB_MAX_POOL_PAIRS    256u
#define KVB_MAX_THREAD_COUNTS 16u
#define KVB_MAX_PROFILES      16u

typedef struct kvb_selection {
    kvb_workload *workloads; /* names and paths are the selection's own */
    size_t n_workloads;
    const kvb_cache_type *caches[KVB_REGISTRY_MAX];
    const kvb_kernel *kernels[KVB_REGISTRY_MAX + 1]; /* may include &kvb_kernel_best */
    kvb_pool_pair pools[KVB_MAX_POOL_PAIRS];
    const char *values[KVB_MAX_PROFILES]; /* profiles; NULL: the workload's own */
    uint32_t threads[KVB_MAX_THREAD_COUNTS];
    kvb_growth growths[KVB_GROWTHS];
    size_t n_caches, n_kernels, n_pools, n_values, n_threads, n_growths;
    uint8_t *layers; /* [workloads] KVB_LAYERS_…: a kernel without layers in a workload makes no combination with it.
                      * NULL: kernels are named, and it makes one that is skipped */
    bool *has;       /* [combinations] is it to be run? NULL until kvb_selection_deal */
    size_t n_has;    /* combinations to be run */
    size_t n_left_out;           /* combinations that could run but are not needed for pairs */
    kvb_setting_choice *choices; /* [combinations]; NULL: all have the run's own setting */
} kvb_selection;

/* Is one of the words this name? */
bool kvb_is_named(const kvb_words *words, const char *name);

/* Are two profiles the same? NULL: the workload's own values. */
static inline bool kvb_is_profile(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

/* Are all workload words files, so that no folder of workloads is needed? */
bool kvb_select_only_files(const kvb_words *workloads);

/*
 * Makes a selection without `has`. Globs match names (fnmatch); a workload word with a slash or the ending .jsonl is a
 * file; the kernel word "best" is no glob. -EINVAL with why: a word matches nothing (why lists the known names), or there
 * are more threads than cores without oversubscribe.
 */
int kvb_select(const kvb_selection_words *words, const kvb_suite_part *part, const kvb_registry *registry,
               const kvb_workloads *workloads, bool oversubscribe, kvb_selection *selection, char *why,
               size_t why_bytes);
void kvb_selection_free(kvb_selection *selection);

/* ---- combinations of a selection: threads change fastest, then growths, kernels, caches, pools, values, workloads  */

/* The place of a combination in its selection: an index into each list. */
typedef struct kvb_spot {
    size_t workload, values, pools, cache, kernel, growth, threads;
} kvb_spot;

size_t kvb_block_size(const kvb_selection *selection);  /* combinations of one workload, values and pair of pools */
size_t kvb_matrix_size(const kvb_selection *selection); /* all combinations */

kvb_spot kvb_spot_of(const kvb_selection *selection, size_t i);

/* The setting chosen for the i-th combination. NULL: the run's own. */
const uint8_t *kvb_choice_of(const kvb_selection *selection, size_t i);

/* Fills in `has`: all combinations except those of an earlier selection, and those of a witness with other than the
 * first values and thread count, as it replays tags and runs alone. 0 or -ENOMEM. */
int kvb_selection_deal(kvb_selection *selection, const kvb_selection *earlier, size_t n_earlier);

/* ---- all parts of a suite ---- */

typedef struct kvb_selections {
    kvb_selection *at; /* [n]; in the order of the suite's parts */
    size_t n;
} kvb_selections;

typedef struct kvb_selections_options {
    const kvb_selection_words *words;
    const kvb_suite *suite;
    const kvb_registry *registry;
    const char *folder; /* of workloads; NULL: the usual one */
    bool oversubscribe, no_staging;
    const struct kvb_pairs_options *pairs; /* choose combinations that cover every pair; NULL: the product */
} kvb_selections_options;

/* The command that runs one combination alone, quoted for a shell: the typed options, without those that choose
 * combinations or outputs, and then the options that choose this combination. */

/* The beginning, common to all combinations of a suite's part: program, command, typed options, and the part's numbers
 * that differ from the default suite's. argv [argc]: what kvb_options_parse took. Empty: it does not fit. */
void kvb_replay_begin(const kvb_command *command, int argc, char **argv, const kvb_suite_part *part, bool untimed,
                      char *text, size_t bytes);

/* Fills names->replay for the i-th combination, which has these names. Empty: it does not fit. */
void kvb_replay_command(const char *begin, const kvb_selection *selection, size_t i, kvb_result *names);

#endif
