/* SPDX-License-Identifier: Apache-2.0 */
/* Compares runs by their manifests: are they parts of one run, of one machine, in which facts do they differ? */
#ifndef KVB_MANIFEST_H
#define KVB_MANIFEST_H

#include "results/result.h"

/* Keys of a manifest, ending with NULL: facts of the program (without the command), facts of the machine. */
extern const char *const kvb_program_keys[], *const kvb_machine_keys[];

#define KVB_MANIFEST_TEXT 1024u
/* The value of a key, a text or a whole number, as text. */
void kvb_manifest_text(const kvb_manifest *manifest, const char *key, char text[KVB_MANIFEST_TEXT]);

/* The first of these keys in which a and b differ. text, other: both values as JSON, cut to `bytes`. NULL: no
 * difference. */
const char *kvb_manifest_difference(const kvb_manifest *a, const kvb_manifest *b, const char *const *keys, char *text,
                                    char *other, size_t bytes);

/* Blanks each fact about the machine that differs in `from`: texts become "several", numbers 0; measured rates are
 * dropped. */
void kvb_manifest_blend(kvb_manifest *into, const kvb_manifest *from);

/* Copies the command without --resume, --shard, and options on where results go or how they are shown. The rest decides
 * what is measured, and how. essence: as large as the command. */
void kvb_command_essence(const char *command, char *essence);

/* Prints a table of facts for people: command, date, build, machine. 0, -ENOMEM or -EIO. */
int kvb_manifest_print(const kvb_manifest *manifest, kvb_table_format format, FILE *out);

#define KVB_FINGERPRINT_TEXT 112u
/* "intel-r-xeon-r-processor-2c-24g-0123abcd": processor, cores, memory in GiB, and a hash of these and of the
 * processor's features; good as a file name. All runs on one machine have the same, at any level of instructions. */
void kvb_fingerprint(const kvb_manifest *manifest, char text[KVB_FINGERPRINT_TEXT]);

#define KVB_NOTES     16u
#define KVB_NOTE_TEXT 640u
/* Writes a line for each fact in which two runs differ ("compiler: gcc 12.2.0, then gcc 13.1.0"). Returns how many. */
size_t kvb_manifest_notes(const kvb_manifest *base, const kvb_manifest *new, char notes[KVB_NOTES][KVB_NOTE_TEXT]);

#endif
