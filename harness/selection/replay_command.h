/* SPDX-License-Identifier: Apache-2.0 */
/* The command that runs one combination of a run alone, as it can be pasted into a shell: what was typed, but for the
 * options that choose combinations or say where results go, and then the words that choose this one. */
#ifndef KVB_REPLAY_COMMAND_H
#define KVB_REPLAY_COMMAND_H

#include "harness/selection/selection.h"

/* What all combinations of one part of a suite have in common: program, command, options that stay, and what the part
 * says of itself and another suite would not. argv [argc] is what kvb_options_parse took, part one of a suite. Empty:
 * it does not fit. */
void kvb_replay_begin(const kvb_usage *usage, int argc, char **argv, const kvb_suite_part *part, bool untimed,
                      char *text, size_t bytes);

/* Fills names->replay for the i-th combination, which has these names. Empty: it does not fit. */
void kvb_replay_command(const char *begin, const kvb_selection *selection, size_t i, kvb_result *names);

#endif
