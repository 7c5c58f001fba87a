/* SPDX-License-Identifier: Apache-2.0 */
/* What is fed to a cache, in order: the same history is predicted and replayed. */
#ifndef KVB_SIZE_HISTORY_H
#define KVB_SIZE_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#define KVB_SIZE_SEQUENCES 64u /* as KVB_MAX_SEQS */
#define KVB_SIZE_DRAFTS    64u /* most roots of a proposal */

/* One kind of step, several times over. */
typedef struct kvb_size_step {
    uint32_t first, n_seqs; /* sequences first .. first + n_seqs - 1 */
    uint32_t tokens;        /* of each; 1 where there are several sequences */
    uint32_t drafts;        /* a tree's one token is chosen among so many proposed roots; 0: it is just fed */
    uint32_t times;
} kvb_size_step;

/* Every sequence is prefilled in chunks, one sequence after the other; its last tokens come one by one, all sequences
 * together. */
typedef struct kvb_size_history {
    uint32_t sequences; /* 1 .. 64 */
    uint32_t context;   /* tokens of each, at least 1 */
    uint32_t chunk;     /* most tokens of a prefill step, at least 1 */
    uint32_t singles;   /* tokens of each that come one by one; more than context: all */
    uint32_t drafts;    /* of each of those, in a tree */
} kvb_size_history;

#define KVB_SIZE_STEPS (2 * KVB_SIZE_SEQUENCES + 1)

/* Its steps, fewest entries; the number of entries. */
size_t kvb_size_steps(const kvb_size_history *history, kvb_size_step steps[KVB_SIZE_STEPS]);

#endif
