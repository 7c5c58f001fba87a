/* SPDX-License-Identifier: Apache-2.0 */
/* Where what save keeps lies while a trace is made or replayed: a private folder of temporary files, one for each slot.
 */
#ifndef KVB_SLOT_FILES_H
#define KVB_SLOT_FILES_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvb_slot_files {
    char folder[PATH_MAX - 64]; /* empty: there is none */
    char path[PATH_MAX];
} kvb_slot_files;

/* Makes a folder in TMPDIR, else in memory (/dev/shm) where that can be, else in /tmp: 0, or a negative errno with why.
 */
int kvb_slot_files_open(kvb_slot_files *files, char *why, size_t why_bytes);
/* The file of a slot, there or not; valid until the next call. */
const char *kvb_slot_files_path(kvb_slot_files *files, uint32_t slot);
/* Removes the files and the folder, if there is one. */
void kvb_slot_files_close(kvb_slot_files *files);

#endif
