/* SPDX-License-Identifier: Apache-2.0 */
/* Suites: the combinations of a run without further options. Also finds the shipped workloads. */
#ifndef KVB_SUITE_H
#define KVB_SUITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of a suite: a matrix of its own. Lists end with NULL. An absent list stands for everything of its kind. */
typedef struct kvb_suite_part {
    const char *const *workloads; /* globs over workload names */
    const char *const *caches;    /* globs */
    const char *const *pools;     /* words of --pool */
    const char *const *values;    /* value profiles; "own": the trace's; absent: the trace's alone */
    uint32_t sample_ms;           /* for the passes of one combination */
    uint64_t oracle_pairs;        /* (query, head, cell) visits of the oracle for each workload and pool */
} kvb_suite_part;

/* A combination of two parts is run once, by the first. */
typedef struct kvb_suite {
    const char *name, *summary;
    const kvb_suite_part *parts;
    size_t n_parts;
    bool by_pairs;  /* usually only enough combinations to cover every pair (pairs.h) */
    uint32_t calls; /* single calls of each kernel (harness/calls); 0: none */
} kvb_suite;

extern const kvb_suite *const kvb_suites[]; /* ends with NULL */
/* For `kvbench check`, not in the list: all shipped histories except the long ones. */
extern const kvb_suite kvb_suite_check;
#define KVB_SUITE_WORDS "quick, default, full, calls"
const kvb_suite *kvb_suite_find(const char *name); /* or NULL */

/* A workload: its name (file name without .jsonl) and its file. */
typedef struct kvb_workload {
    char *name, *path;
    bool is_file; /* named by its path */
} kvb_workload;

typedef struct kvb_workloads {
    kvb_workload *at; /* sorted by name */
    size_t n;
    char *folder;
} kvb_workloads;

/* Length of a file's name or a word without the ending ".jsonl". */
size_t kvb_workload_name_bytes(const char *word);
/* Adds a workload to the list `at` of *n. name: of a file, its ending is left out. 0 or -ENOMEM. */
int kvb_workload_add(kvb_workload **at, size_t *n, const char *name, const char *path, bool is_file);

/*
 * Lists the workloads of a folder. NULL: $KVB_WORKLOADS, else workloads/recorded beside the program's folder, else the
 * folder of `make install`. 0, or a negative errno with why.
 */
int kvb_workloads_find(const char *folder, kvb_workloads *workloads, char *why, size_t why_bytes);
void kvb_workloads_free(kvb_workloads *workloads);

#endif
