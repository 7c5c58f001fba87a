/* SPDX-License-Identifier: Apache-2.0 */
/* Two builds of the whole program against each other: short runs of each in turns, joined to one set of results a side.
 */
#ifndef KVB_DUEL_PROGRAMS_H
#define KVB_DUEL_PROGRAMS_H

#include "harness/duel/plugins.h"

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
