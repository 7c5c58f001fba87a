/* SPDX-License-Identifier: Apache-2.0 */
/* Which machine a run was made on, and in what else two runs differ. */
#ifndef KVB_FINGERPRINT_H
#define KVB_FINGERPRINT_H

#include "results/result.h"

#define KVB_FINGERPRINT_TEXT 112u
#define KVB_NOTES            16u
#define KVB_NOTE_TEXT        640u

/* "intel-r-xeon-r-processor-2c-24g-0123abcd": processor, cores, memory in GiB, and a hash of these and of what the processor
 * can. Fit for a file name; the same for two runs on one machine, whatever level of instructions they were held to. */
void kvb_fingerprint(const kvb_manifest *manifest, char text[KVB_FINGERPRINT_TEXT]);

/* One line for each fact that differs between two runs ("compiler: gcc 12.2.0, then gcc 13.1.0"). Returns how many. */
size_t kvb_manifest_notes(const kvb_manifest *base, const kvb_manifest *new, char notes[KVB_NOTES][KVB_NOTE_TEXT]);

#endif
