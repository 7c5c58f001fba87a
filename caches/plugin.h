/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.h: all that a plug-in with caches or pools needs. It is built against the installed headers (-I
 * PREFIX/include/kvbench) and loaded with `--plugin ./yours.so`. It exports one symbol, kvb_plugin (attend.h), and
 * defines a kvb_cache_type (store.h) or a kvb_pool_type (pools/pool.h).
 *
 * It may call these functions of the program, and no others:
 *
 *   kvb_realloc, and on it kvb_alloc, kvb_free        memory that is counted
 *   kvb_grow_items, and on it kvb_grow                an array that grows
 *   kvb_reserve, kvb_commit, kvb_unreserve            address space; its pages are counted when they are committed
 *   kvb_spans_reserve, kvb_spans_append, kvb_spans_add, kvb_spans_cut, kvb_spans_free
 *                                                     a sequence as spans: which position lies in which cell
 *   kvb_plan_attend                                   what a query sees, from spans and the group's limits
 *   kvb_store_fail, kvb_store_move, kvb_store_turn    why a call failed; a row to copy; a row to turn (SHIFT)
 *
 * A plug-in that needs another function of the program is refused when it is loaded. harness/exports.map is the same
 * list; a test compares them. Examples: caches/example-plugin.
 */
#ifndef KVB_CACHES_PLUGIN_H
#define KVB_CACHES_PLUGIN_H

#include "caches/pools/pool.h"
#include "caches/store.h"
#include "kernels/attend.h"
#include "kernels/model.h"

#endif
