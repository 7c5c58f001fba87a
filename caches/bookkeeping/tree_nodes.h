/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pending nodes of a speculative tree, numbered in the order in which they came. A parent has a lower
 * number than its children, so the path from a root to any node ascends.
 */
#ifndef KVB_TREE_NODES_H
#define KVB_TREE_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "caches/allocator.h"

typedef struct kvb_tree_nodes {
    kvb_allocator *allocator;
    uint32_t n;
    bool chain;      /* every node is the child of the one before it, the first a root */
    int32_t *parent; /* [n]; -1: a root */
    uint32_t *depth; /* [n]; 0: a root */
    uint32_t *path;  /* room for a path of n nodes */
    size_t parent_room, depth_room, path_room;
} kvb_tree_nodes;

void kvb_tree_nodes_open(kvb_tree_nodes *nodes, kvb_allocator *allocator);
void kvb_tree_nodes_close(kvb_tree_nodes *nodes);

/* May these be added? 0, or -EINVAL with why. */
int kvb_tree_nodes_check(const kvb_tree_nodes *nodes, const int32_t *parents, uint32_t n, char *why, size_t why_bytes);
/* Room for n more: 0 or -ENOMEM. */
int kvb_tree_nodes_reserve(kvb_tree_nodes *nodes, uint32_t n);
/* Add n checked nodes in the room reserved; drop all from number n on. */
void kvb_tree_nodes_add(kvb_tree_nodes *nodes, const int32_t *parents, uint32_t n);
void kvb_tree_nodes_cut(kvb_tree_nodes *nodes, uint32_t n);

/* The path from a root to the node, both included, in nodes->path. Returns its length. */
uint32_t kvb_tree_nodes_path(kvb_tree_nodes *nodes, uint32_t node);
/* Is this a path from a root, each the child of the one before? 0, or -EINVAL with why. */
int kvb_tree_nodes_check_path(const kvb_tree_nodes *nodes, const uint32_t *accepted, uint32_t n, char *why,
                              size_t why_bytes);

#endif
