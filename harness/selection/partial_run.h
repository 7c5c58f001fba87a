/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of some of their combinations only: a shard, or those that an earlier run has not finished. */
#ifndef KVB_PARTIAL_RUN_H
#define KVB_PARTIAL_RUN_H

#include "harness/command_line.h"
#include "results/result.h"

/* ---- shards: every n-th combination, counted in the order of the matrix, skipped ones included ---- */

typedef struct kvb_shard {
    uint32_t index; /* from 0 */
    uint32_t of;    /* 1: the whole */
} kvb_shard;

/* "2/3" is {1, 3}; NULL or "" is the whole. 0, or -EINVAL with why. */
int kvb_shard_parse(const char *text, kvb_shard *shard, char *why, size_t why_bytes);

/* Is combination `number`, from 0, of this shard? */
bool kvb_shard_has(kvb_shard shard, size_t number);

/* How many of `total` combinations are in this shard? */
size_t kvb_shard_count(kvb_shard shard, size_t total);

/* ---- resuming. Records are written in the order of the matrix, each as soon as it is final. So a file holds the first
 * combinations of its run, or of its shard, without gaps. ---- */

/*
 * Looks for the records that a run with this output and manifest left: in path.tmp, else in path itself, which is then
 * complete. *kept (for kvb_result_free): the finished ones; NULL if there are none. *writer writes the rest; NULL if
 * path is complete or there is nothing. inputs [n]: words; those that are files must be as they were when that run
 * began. 0; -EINVAL with why if the run is of another version, machine or command; other negative errnos with why.
 */
int kvb_resume_open(const char *path, const kvb_manifest *manifest, const kvb_words *inputs, size_t n,
                    kvb_result_file **kept, kvb_result_writer **writer, char *why, size_t why_bytes);

/* Is the combination of these names, number `n` of its run, finished? 1 or 0; -EINVAL when another one is in its place.
 */
int kvb_resume_has(const kvb_result_file *kept, size_t n, const kvb_result *names, char *why, size_t why_bytes);

#endif
