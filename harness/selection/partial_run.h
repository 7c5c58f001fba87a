/* SPDX-License-Identifier: Apache-2.0 */
/* Runs with only some of the combinations: a shard, or the ones that an earlier run has not finished. */
#ifndef KVB_PARTIAL_RUN_H
#define KVB_PARTIAL_RUN_H

#include "harness/command_line.h"
#include "results/result.h"

/* ---- shards: every n-th combination in the order of the matrix; skipped ones are counted ---- */

typedef struct kvb_shard {
    uint32_t index; /* from 0 */
    uint32_t of;    /* 1: the whole */
} kvb_shard;

/* "2/3" is {1, 3}; NULL or "" is the whole. 0, or -EINVAL with why. */
int kvb_shard_parse(const char *text, kvb_shard *shard, char *why, size_t why_bytes);

/* Does combination `number`, from 0, belong to this shard? */
bool kvb_shard_has(kvb_shard shard, size_t number);

/* How many of `total` combinations are in this shard? */
size_t kvb_shard_count(kvb_shard shard, size_t total);

/* ---- resuming. Records are written in the order of the matrix, each as soon as it is final. So a file holds the first
 * combinations of its run or shard, without gaps. ---- */

/*
 * Finds the records that an earlier run with this output and manifest left: in path.tmp, else in path itself, which is
 * then complete. *kept: the finished ones, freed by kvb_result_free; NULL if there are none. *writer writes the rest;
 * NULL if path is complete or nothing was found. inputs [n]: words; files among them must be unchanged since the earlier
 * run began. 0; -EINVAL with why if that run had another version, machine or command; other negative errnos with why.
 */
int kvb_resume_open(const char *path, const kvb_manifest *manifest, const kvb_words *inputs, size_t n,
                    kvb_result_file **kept, kvb_result_writer **writer, char *why, size_t why_bytes);

/* Is the combination with these names, number `n` of its run, finished? 1 or 0; -EINVAL: another one is in its place. */
int kvb_resume_has(const kvb_result_file *kept, size_t n, const kvb_result *names, char *why, size_t why_bytes);

#endif
