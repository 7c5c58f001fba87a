/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares an old build with a new one, base and new: two plug-ins with parts of the same names, or two programs.
 */
#ifndef KVB_DUEL_DUEL_H
#define KVB_DUEL_DUEL_H

#include "harness/replay/replay.h"
#include "harness/selection/registry.h"
#include "results/result.h"

enum { KVB_DUEL_BASE, KVB_DUEL_NEW, KVB_DUEL_SIDES };

typedef struct kvb_duel {
    kvb_registry side[KVB_DUEL_SIDES]; /* the built-in parts and those of that plug-in */
    kvb_registry all;                  /* the parts of both, for selections; the base's part if both have the name */
    kvb_registry built_in;
    int copy[KVB_DUEL_SIDES]; /* descriptors of copies of the plug-ins' files in memory */
} kvb_duel;

/* Loads both plug-ins. -EINVAL with why: kvb_registry_load failed, or the base has no parts; or why a file could not be
 * copied. The caller closes the duel in either case. */
int kvb_duel_load(kvb_duel *duel, const char *base, const char *new, char *why, size_t why_bytes);
void kvb_duel_close(kvb_duel *duel);

/* The part of that name in the registry of a side, a pool's transformed form included, or NULL. */
const void *kvb_duel_part(const kvb_registry *registry, kvb_registry_kind sort, const char *name);

/* Does a combination with these names have a part of the plug-ins? */
bool kvb_duel_concerns(const kvb_duel *duel, const kvb_result *names);

/* One side of a duel, for kvb_child_options.enter. */
typedef struct kvb_duel_corner {
    const kvb_duel *duel;
    int side;
} kvb_duel_corner;

/*
 * Loads the side's plug-in once more, in the child, and puts its parts into the replay. Two plug-ins in one process lie
 * at different addresses, which alone made the same code 2 to 6 % faster or slower. A child that loads its plug-in itself
 * has it at the same address on either side. corner: a kvb_duel_corner.
 */
int kvb_duel_enter(const void *corner, kvb_replay_options *replay, char *why, size_t why_bytes);

/* ---- the comparison ------------------------------------------------------------------------------------ */

/* The difference between the medians of two series that were made in turns. Neighbours are compared, so that drift
 * cancels. NaN: a series is missing. */
double kvb_duel_null(const kvb_result *a, const kvb_result *b);

/* Two builds of the whole program: short runs of each in turns, joined to one set of results for each side. */
typedef struct kvb_programs_options {
    const char *program[KVB_DUEL_SIDES];
    const char *const *words; /* after "PROGRAM run", ends with NULL; without a file to write */
    size_t rounds;            /* runs of the new program; the base runs twice as often, for the null comparison */
} kvb_programs_options;

/*
 * Gives the results of each side: those of its first run, but with status and reason of the first run that did not pass,
 * and the medians of the rounds as time.series. -EINVAL with why: a program cannot be run, refuses the words, or writes
 * unreadable results; -EIO: its machine could not do it; -EINTR: stopped; -ENOMEM.
 */
int kvb_programs_run(const kvb_programs_options *options, kvb_results *base, kvb_results *new, char *why,
                     size_t why_bytes);

#endif
