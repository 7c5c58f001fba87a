/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A setting: what a combination runs with besides its history, shape, pools, cache and kernel. Most runs have one
 * setting, which their options give. Where pairs are chosen and nothing is timed, each combination carries a setting of
 * its own, so that every value of every axis meets every kernel, cache and pair of pools that can take it.
 */
#ifndef KVB_SELECTION_H
#define KVB_SELECTION_H

#include "caches/store.h"
#include "harness/command_line.h"
#include "harness/selection/registry.h"
#include "harness/selection/suite.h"
#include "results/result.h"
#include "workloads/trace.h"

typedef struct kvb_setting {
    uint32_t threads;    /* 0: as the selection has it */
    uint32_t page_cells; /* of caches of pages */
    uint32_t min_chunk;  /* cells */
    uint32_t hash_bits;  /* of caches that find prompts; 0: all */
    kvb_elem out_elem;   /* of the outputs: KVB_F32, KVB_F16 or KVB_BF16 */
    bool deterministic;
    kvb_logit_changes logits;
    const char *values; /* profile; NULL: as the selection has it */
} kvb_setting;

/* "f32", "f16", "bf16": of outputs. */
bool kvb_out_parse(const char *name, kvb_elem *elem);
const char *kvb_out_name(kvb_elem elem);

#define KVB_SETTING_WORDS 3u
#define KVB_SETTING_BITS  64u /* all values of all axes fit into a set of so many bits */

/* What a combination has on an axis: 0 is the run's own value, n the word n - 1. */
typedef struct kvb_setting_axis {
    const char *option;                   /* of `kvbench run` */
    const char *words[KVB_SETTING_WORDS]; /* its values, as typed; "": a flag; NULL: no more */
    bool has_field;                       /* the record has a field of its own for it */
    bool dear;       /* the calls of a combination are made again: rare, once its values have met everything */
    bool of_truth;   /* the oracle has to know it: one value for a workload and pair of pools, where that can be */
    bool of_kernel;  /* kernels may refuse it: supports() is asked */
    bool of_outputs; /* a witness has none of it */
    /* Can it matter to this model over this cache? NULL: always. */
    bool (*matters)(const kvb_model *model, const kvb_cache_type *cache, const char *word);
    void (*set)(kvb_setting *setting, const char *word);
} kvb_setting_axis;

#define KVB_SETTING_AXES 11u
extern const kvb_setting_axis kvb_setting_axes[KVB_SETTING_AXES];
typedef uint8_t kvb_setting_choice[KVB_SETTING_AXES];

/* The usual setting but for what was chosen; NULL: nothing was. */
kvb_setting kvb_setting_apply(const kvb_setting *usual, const uint8_t *choice);
/* Appends the words of what was chosen, as `kvbench run` takes them, to a text; but for --threads, which is a name of
 * the combination, and, unless all, for what the record has a field for. */
void kvb_setting_words(const uint8_t *choice, bool all, char *text, size_t bytes);
/* The bit of a value among those of all axes. */
uint64_t kvb_setting_bit(size_t axis, size_t value);

#define KVB_SETTLED_PARTS  4u
#define KVB_SETTLED_KERNEL 1u

/* A combination that is to get a setting. */
typedef struct kvb_settled {
    uint32_t parts[KVB_SETTLED_PARTS]; /* history, kernel, cache, pair of pools: each counted from 0 */
    size_t block;     /* combinations of one number have one workload, values and pair of pools, and stand together */
    uint64_t allowed; /* values that it can take, as bits; that of an axis' own value is ignored */
    uint8_t *choice;  /* filled in */
} kvb_settled;

/*
 * Chooses settings, one combination after the other: on each axis the value that meets the most parts and values of
 * other axes for the first time. Where all have met, half of the combinations keep the run's own value. 0 or -ENOMEM.
 */
int kvb_settings_cover(kvb_settled *list, size_t n);

/*
 * What a run covers: words of the command line turned into lists of workloads, parts and thread counts. A selection is
 * the product of its lists, or as many combinations of it as cover every pair (pairs.h); a run has one for each part of
 * its suite.
 */

/* Does the witness run beside the kernels, once for each workload, cache, pools and growth? */
typedef enum kvb_witness_rule {
    KVB_WITNESS_NAMED,  /* as any other kernel */
    KVB_WITNESS_BESIDE, /* also where other kernels are named */
    KVB_WITNESS_NONE    /* only where it is named */
} kvb_witness_rule;

/* The words as typed; an empty list means what the suite says, or everything. */
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
    const kvb_kernel *kernels[KVB_REGISTRY_MAX + 1]; /* &kvb_kernel_best among them */
    kvb_pool_pair pools[KVB_MAX_POOL_PAIRS];
    const char *values[KVB_MAX_PROFILES]; /* NULL: the workload's own */
    uint32_t threads[KVB_MAX_THREAD_COUNTS];
    kvb_growth growths[KVB_GROWTHS];
    size_t n_caches, n_kernels, n_pools, n_values, n_threads, n_growths;
    uint8_t *layers;   /* [workloads] KVB_LAYERS_…: what has none for a kernel is no combination. NULL: kernels are
                        * named, and it is one that is skipped */
    bool *has;         /* of each combination: is it one to be run? NULL until kvb_selection_deal */
    size_t n_has;      /* how many are */
    size_t n_left_out; /* how many could run, but pairs are enough */
    kvb_setting_choice *choices; /* of each combination; NULL: each has the run's own setting */
} kvb_selection;

/* Are all workload words files, so that no folder of workloads is needed? */
bool kvb_select_only_files(const kvb_words *workloads);

/*
 * Globs match names (fnmatch); a workload word with a slash or ending in .jsonl is a file. A word that
 * matches nothing is -EINVAL, and why says what is known. The kernel word "best" is no glob. More threads than cores
 * are refused unless oversubscribe.
 */
int kvb_select(const kvb_selection_words *words, const kvb_suite_part *part, const kvb_registry *registry,
               const kvb_workloads *workloads, bool oversubscribe, kvb_selection *selection, char *why,
               size_t why_bytes);
/* Does the selection hold this combination, whatever the threads and growth? values NULL: own. */
void kvb_selection_free(kvb_selection *selection);

/* ---- combinations of a selection: threads change fastest, then growths, kernels, caches, pools, values, workloads  */

/* Where a combination lies in its selection. */
typedef struct kvb_spot {
    size_t workload, values, pools, cache, kernel, growth, threads;
} kvb_spot;

size_t kvb_block_size(const kvb_selection *selection);  /* of one workload, values and pair of pools */
size_t kvb_matrix_size(const kvb_selection *selection); /* of all */

/* The i-th combination of all. */
kvb_spot kvb_spot_of(const kvb_selection *selection, size_t i);

/* What pairs have chosen for the i-th combination besides its parts; NULL: nothing. */
const uint8_t *kvb_choice_of(const kvb_selection *selection, size_t i);

/* Fills in `has`: all but what is left to the first values and the first thread count (a witness sees tags, whatever
 * they are, and alone), or to an earlier selection. 0 or -ENOMEM. */
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
    const char *folder; /* of workloads; NULL: where they usually are */
    bool oversubscribe, no_staging;
    const struct kvb_pairs_options *pairs; /* only as many combinations as cover every pair; NULL: the product */
} kvb_selections_options;

/* The command that runs one combination of a run alone, as it can be pasted into a shell: what was typed, but for the
 * options that choose combinations or say where results go, and then the words that choose this one. */

/* What all combinations of one part of a suite have in common: program, command, options that stay, and what the part
 * says of itself and another suite would not. argv [argc] is what kvb_options_parse took, part one of a suite. Empty:
 * it does not fit. */
void kvb_replay_begin(const kvb_usage *usage, int argc, char **argv, const kvb_suite_part *part, bool untimed,
                      char *text, size_t bytes);

/* Fills names->replay for the i-th combination, which has these names. Empty: it does not fit. */
void kvb_replay_command(const char *begin, const kvb_selection *selection, size_t i, kvb_result *names);

#endif
