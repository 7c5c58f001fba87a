/* SPDX-License-Identifier: Apache-2.0 */
/* Pending nodes of a speculative tree. */
#include "caches/bookkeeping/tree_nodes.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "caches/bookkeeping/grow.h"

void kvb_tree_nodes_open(kvb_tree_nodes *nodes, kvb_allocator *allocator)
{
    memset(nodes, 0, sizeof *nodes);
    nodes->allocator = allocator;
    nodes->chain = true;
}

void kvb_tree_nodes_close(kvb_tree_nodes *nodes)
{
    kvb_free(nodes->allocator, nodes->parent, nodes->parent_room * sizeof *nodes->parent);
    kvb_free(nodes->allocator, nodes->depth, nodes->depth_room * sizeof *nodes->depth);
    kvb_free(nodes->allocator, nodes->path, nodes->path_room * sizeof *nodes->path);
    kvb_tree_nodes_open(nodes, nodes->allocator);
}

int kvb_tree_nodes_check(const kvb_tree_nodes *nodes, const int32_t *parents, uint32_t n, char *why, size_t why_bytes)
{
    if (n == 0 || !parents) {
        snprintf(why, why_bytes, "a proposal needs at least one node");
        return -EINVAL;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (parents[i] >= -1 && parents[i] < (int64_t)nodes->n + i)
            continue;
        snprintf(why, why_bytes, "parent %d of node %u is not an earlier node", (int)parents[i], nodes->n + i);
        return -EINVAL;
    }
    return 0;
}

int kvb_tree_nodes_reserve(kvb_tree_nodes *nodes, uint32_t n)
{
    kvb_allocator *a = nodes->allocator;
    size_t need = (size_t)nodes->n + n;
    void *p = kvb_grow(a, nodes->parent, &nodes->parent_room, need, sizeof *nodes->parent);
    if (!p)
        return -ENOMEM;
    nodes->parent = p;
    p = kvb_grow(a, nodes->depth, &nodes->depth_room, need, sizeof *nodes->depth);
    if (!p)
        return -ENOMEM;
    nodes->depth = p;
    p = kvb_grow(a, nodes->path, &nodes->path_room, need, sizeof *nodes->path);
    if (!p)
        return -ENOMEM;
    nodes->path = p;
    return 0;
}

void kvb_tree_nodes_add(kvb_tree_nodes *nodes, const int32_t *parents, uint32_t n)
{
    assert((size_t)nodes->n + n <= nodes->parent_room);
    for (uint32_t i = 0; i < n; i++) {
        int32_t parent = parents[i];
        nodes->chain = nodes->chain && parent == (int32_t)nodes->n - 1;
        nodes->parent[nodes->n] = parent;
        nodes->depth[nodes->n] = parent < 0 ? 0 : nodes->depth[parent] + 1;
        nodes->n++;
    }
}

void kvb_tree_nodes_cut(kvb_tree_nodes *nodes, uint32_t n)
{
    assert(n <= nodes->n);
    nodes->n = n;
    nodes->chain = true;
    for (uint32_t i = 0; i < n; i++)
        nodes->chain = nodes->chain && nodes->parent[i] == (int32_t)i - 1;
}

uint32_t kvb_tree_nodes_path(kvb_tree_nodes *nodes, uint32_t node)
{
    uint32_t n = nodes->depth[node] + 1;
    int32_t at = (int32_t)node;
    for (uint32_t i = n; i-- > 0; at = nodes->parent[at])
        nodes->path[i] = (uint32_t)at;
    return n;
}

int kvb_tree_nodes_check_path(const kvb_tree_nodes *nodes, const uint32_t *accepted, uint32_t n, char *why,
                              size_t why_bytes)
{
    int64_t parent = -1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t node = accepted[i];
        if (node >= nodes->n) {
            snprintf(why, why_bytes, "accepted node %u is not pending: there are %u", node, nodes->n);
            return -EINVAL;
        }
        if (nodes->parent[node] != parent) {
            snprintf(why, why_bytes, "accepted node %u is the child of %d, not of %d", node, (int)nodes->parent[node],
                     (int)parent);
            return -EINVAL;
        }
        parent = node;
    }
    return 0;
}
