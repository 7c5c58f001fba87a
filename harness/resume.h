/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an earlier run of the same command has finished. Records are written in the order of the matrix, each as soon as it
 * is final; so what a file holds are the first combinations of its run, or of its shard, and the next one is the next.
 */
#ifndef KVB_RESUME_H
#define KVB_RESUME_H

#include "harness/options.h"
#include "results/result.h"

/*
 * Looks for what a run with this output and manifest left: in path.tmp, else in path itself, which is then whole. *kept
 * (for kvb_result_free) is what is finished, NULL when there is nothing; *writer writes the rest, NULL where path is whole
 * or there is nothing. inputs [n]: words of which those that are files must be as they were when that run began. 0; -EINVAL
 * when it is of another version, machine or command, and other negative errnos: with why.
 */
int kvb_resume_open(const char *path, const kvb_manifest *manifest, const kvb_words *inputs, size_t n,
                    kvb_result_file **kept, kvb_result_writer **writer, char *why, size_t why_bytes);

/* Is the combination of these names, number `n` of its run, finished? 1 or 0; -EINVAL when another one is in its place. */
int kvb_resume_has(const kvb_result_file *kept, size_t n, const kvb_result *names, char *why, size_t why_bytes);

#endif
