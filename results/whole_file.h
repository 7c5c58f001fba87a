/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that is there whole or not at all: written beside its target as path.tmp and renamed when all is well.
 *
 * path.tmp is locked (flock) while somebody has it: a second writer gets -EBUSY, and what a killed one left is taken
 * over. A target that is no regular file (a pipe, /dev/stdout) is written directly.
 */
#ifndef KVB_WHOLE_FILE_H
#define KVB_WHOLE_FILE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct kvb_whole_file {
    int file;        /* to write to */
    char *target;    /* NULL: written directly */
    char *temporary; /* NULL likewise */
} kvb_whole_file;

/* 0, or a negative errno and nothing is open. */
int kvb_whole_file_open(const char *path, kvb_whole_file *whole);

/* All of the bytes; 0 or a negative errno. */
int kvb_whole_file_write(kvb_whole_file *whole, const char *bytes, size_t n);

/* commit: the target is what was written; else it stays as it was. 0 or a negative errno, and then too it stays as it
 * was. Frees and closes in any case. */
int kvb_whole_file_close(kvb_whole_file *whole, bool commit);

#endif
