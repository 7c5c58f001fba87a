/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread team that kernels and the oracle run their parts on: n threads, the caller being number 0,
 * each bound to a core of its own with hwloc. Threads spin for a moment and then sleep between runs.
 * A team lives within one process: end it before fork().
 */
#ifndef KVB_TEAM_H
#define KVB_TEAM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct hwloc_topology;

/* This machine's topology as hwloc sees it (HWLOC_XMLFILE shows another one). The caller destroys it by
 * hwloc_topology_destroy(). 0, -ENOMEM, or -EINVAL: it cannot be read. */
int kvb_topology_open(struct hwloc_topology **topology);

/* Prints a tree of text, two columns deeper for each level: "L2 L#0 (2048KB)". */
void kvb_topology_tree_print(struct hwloc_topology *topology, FILE *out);
/* Loads and prints the topology: as that tree, or as hwloc's own XML. 0, -ENOMEM, -EINVAL (not loaded), -EIO. */
int kvb_topology_print(bool as_xml, FILE *out);

typedef struct kvb_team kvb_team; /* kernels/view.h */

typedef struct kvb_threads kvb_threads;

/* Cores of this machine that this process may use. At least 1. */
uint32_t kvb_cores(void);

/* NUMA nodes of this machine. At least 1. */
uint32_t kvb_numa_nodes(void);

/* bind: one thread a core, also the caller. false: the system places threads, which sleep between runs, since other
 * processes may want their cores. kvb_threads_end() restores the caller's binding, since threads and processes that it
 * starts later inherit it.
 * 0, -ENOMEM, -EAGAIN, or -EINVAL when there are fewer cores than threads to bind. */
int kvb_threads_start(uint32_t n, bool bind, kvb_threads **threads);
const kvb_team *kvb_threads_team(const kvb_threads *threads);
void kvb_threads_end(kvb_threads *threads);

#endif
