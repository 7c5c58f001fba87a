/* SPDX-License-Identifier: Apache-2.0 */
/* This machine's topology as hwloc sees it (HWLOC_XMLFILE shows another one). */
#ifndef KVB_TOPOLOGY_H
#define KVB_TOPOLOGY_H

#include <stdio.h>

struct hwloc_topology;

/* This machine's topology, which the caller gives to hwloc_topology_destroy(). 0, -ENOMEM, or -EINVAL: it cannot be
 * read. */
int kvb_topology_open(struct hwloc_topology **topology);

/* A tree of text, two columns deeper for each level: "L2 L#0 (2048KB)". */
void kvb_topology_tree_print(struct hwloc_topology *topology, FILE *out);
/* Load it and print it: as that tree, or as hwloc's own XML. 0, -ENOMEM, -EINVAL (not loaded), -EIO. */
int kvb_topology_print(FILE *out);
int kvb_topology_xml_print(FILE *out);

#endif
