/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A setting: what a combination runs with besides its history, shape, pools, cache and kernel. Most runs have one
 * setting, which their options give. Where pairs are chosen and nothing is timed, each combination carries a setting of
 * its own, so that every value of every axis meets every kernel, cache and pair of pools that can take it.
 */
#ifndef KVB_SETTING_H
#define KVB_SETTING_H

#include "caches/store.h"
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

#define KVB_SETTING_AXES 10u
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

#endif
