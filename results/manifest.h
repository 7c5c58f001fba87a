/* SPDX-License-Identifier: Apache-2.0 */
/* What two result files must have in common to be parts of one run. */
#ifndef KVB_MANIFEST_H
#define KVB_MANIFEST_H

#include "results/result.h"

/* Keys of a manifest, ending with NULL: what was run, apart from its command, and what it ran on. */
extern const char *const kvb_program_keys[], *const kvb_machine_keys[];

/* The first of these keys in which a and b differ, with both values as JSON text ("text" and "other", cut to fit);
 * NULL: none. */
const char *kvb_manifest_difference(const kvb_manifest *a, const kvb_manifest *b, const char *const *keys, char *text,
                                    char *other, size_t bytes);

/* Takes out of `into` each fact about the machine that is another in `from`: texts become "several", numbers 0, the
 * measured rates none. */
void kvb_manifest_blend(kvb_manifest *into, const kvb_manifest *from);

/* Of a manifest's command the words that decide what is measured, and how: without where results go and in which form
 * they are shown, and without --resume and --shard. essence: as large as the command. */
void kvb_command_essence(const char *command, char *essence);

#endif
