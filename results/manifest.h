/* SPDX-License-Identifier: Apache-2.0 */
/* Two runs by their manifests: are they parts of one run, were they made on the same machine, in what do they differ?
 */
#ifndef KVB_MANIFEST_H
#define KVB_MANIFEST_H

#include "results/result.h"

/* Keys of a manifest, ending with NULL: what was run (but for its command), and what it ran on. */
extern const char *const kvb_program_keys[], *const kvb_machine_keys[];

/* The first of these keys in which a and b differ, with both values as JSON in `text` and `other`, cut to `bytes`.
 * NULL: they do not differ. */
const char *kvb_manifest_difference(const kvb_manifest *a, const kvb_manifest *b, const char *const *keys, char *text,
                                    char *other, size_t bytes);

/* Blanks each fact about the machine that is different in `from`: texts become "several", numbers 0, and the measured
 * rates are dropped. */
void kvb_manifest_blend(kvb_manifest *into, const kvb_manifest *from);

/* Copies the command without the options that say where results go, how they are shown, --resume and --shard. What is
 * left decides what is measured, and how. essence must be as large as the command. */
void kvb_command_essence(const char *command, char *essence);

/* Prints a table of facts for people: what was run, when, by which build, on which machine. 0, -ENOMEM or -EIO. */
int kvb_manifest_print(const kvb_manifest *manifest, kvb_table_format format, FILE *out);

#define KVB_FINGERPRINT_TEXT 112u
/* "intel-r-xeon-r-processor-2c-24g-0123abcd": processor, cores, memory in GiB, and a hash of these and of the
 * processor's features. Fit for a file name. Two runs on one machine have the same, whatever level of instructions they
 * were limited to. */
void kvb_fingerprint(const kvb_manifest *manifest, char text[KVB_FINGERPRINT_TEXT]);

#define KVB_NOTES     16u
#define KVB_NOTE_TEXT 640u
/* Writes a line for each fact in which two runs differ ("compiler: gcc 12.2.0, then gcc 13.1.0"). Returns how many. */
size_t kvb_manifest_notes(const kvb_manifest *base, const kvb_manifest *new, char notes[KVB_NOTES][KVB_NOTE_TEXT]);

#endif
