/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An old build against a new one, base and new. Of two plug-ins that bring parts of the same names: each side's parts,
 * and all of them.
 */
#ifndef KVB_DUEL_H
#define KVB_DUEL_H

#include "harness/selection/registry.h"
#include "harness/replay/replay.h"
#include "results/result.h"

enum { KVB_DUEL_BASE, KVB_DUEL_NEW, KVB_DUEL_SIDES };

typedef struct kvb_duel {
    kvb_registry side[KVB_DUEL_SIDES]; /* the built-in parts and those of that plug-in */
    kvb_registry all; /* what a selection is made of: names of both, the base's part where both have it */
    kvb_registry built_in;
    int copy[KVB_DUEL_SIDES]; /* of each plug-in's file, in memory */
} kvb_duel;

/* Loads both. -EINVAL with why: what kvb_registry_load says, or a base that brings nothing; or what keeps a file from
 * being copied. To be closed in any case. */
int kvb_duel_load(kvb_duel *duel, const char *base, const char *new, char *why, size_t why_bytes);
void kvb_duel_close(kvb_duel *duel);

/* This side's part of that name, a pool's transformed form included, or NULL. */
const void *kvb_duel_part(const kvb_duel *duel, int side, kvb_registry_kind sort, const char *name);

/* Does a combination of these names have a part that is not built in? */
bool kvb_duel_concerns(const kvb_duel *duel, const kvb_result *names);

/* Where to run a side's parts: for kvb_child_options.enter. */
typedef struct kvb_duel_corner {
    const kvb_duel *duel;
    int side;
} kvb_duel_corner;

/*
 * Loads the side's plug-in once more, in this process, and puts its parts into the replay. Two plug-ins of one process
 * lie at different addresses, and that alone made the same code 2 to 6 % faster or slower; children that load it
 * themselves have it at the same address, whichever side they are. corner: a kvb_duel_corner.
 */
int kvb_duel_enter(const void *corner, kvb_replay_options *replay, char *why, size_t why_bytes);

/* ---- what comes of it ---------------------------------------------------------------------------------- */

/* How much the medians of two series made in turns differ: neighbours are compared, so that drift cancels. NaN: a
 * series is missing. */
double kvb_duel_null(const kvb_result *a, const kvb_result *b);

#endif
