/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An old build against a new one, base and new. Of two plug-ins that bring parts of the same names: each side's parts,
 * and all of them.
 */
#ifndef KVB_DUEL_DUEL_H
#define KVB_DUEL_DUEL_H

#include "harness/replay/replay.h"
#include "harness/selection/registry.h"
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

/* Two builds of the whole program against each other: short runs of each in turns, joined to one set of results a side.
 */
typedef struct kvb_programs_options {
    const char *program[KVB_DUEL_SIDES];
    const char *const *words; /* after "PROGRAM run", ends with NULL; without a file to write */
    size_t rounds;            /* runs of the new one; of the base twice as many, for the null comparison */
} kvb_programs_options;

/*
 * Results of each side: those of its first run, with status and reason of the first run that did not pass, and as
 * time.series the medians of the rounds. -EINVAL with why: a program cannot be run, refuses the words, or writes
 * results that cannot be read here; -EIO: its machine could not do it; -EINTR: stopped; -ENOMEM.
 */
int kvb_programs_run(const kvb_programs_options *options, kvb_results *base, kvb_results *new, char *why,
                     size_t why_bytes);

#endif
