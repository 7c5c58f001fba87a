/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that is there whole or not at all: written beside its target as path.tmp and renamed when all is well.
 *
 * path.tmp is locked (flock) while somebody has it: a second writer gets -EBUSY, and what a killed one left is gone on
 * with where that is asked for, and else begun anew. A target that is no regular file (a pipe, /dev/stdout) is written
 * directly.
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
/* The same with what path.tmp holds already; writing starts at its beginning. -ENOENT: there is none; -EINVAL: the target
 * is no regular file. */
int kvb_whole_file_reopen(const char *path, kvb_whole_file *whole);

/* All of the bytes; 0 or a negative errno. */
int kvb_whole_file_write(kvb_whole_file *whole, const char *bytes, size_t n);

/* The target is what was written. 0, or a negative errno and all is as it was. To be closed in any case. */
int kvb_whole_file_commit(kvb_whole_file *whole);
/* commit: as above, unless that is done; else the target stays as it was. 0 or a negative errno, and then too it stays as
 * it was. Nothing is left beside it. Frees and closes in any case. */
int kvb_whole_file_close(kvb_whole_file *whole, bool commit);
/* Neither: the target stays as it was, and path.tmp for kvb_whole_file_reopen. Frees and closes. */
void kvb_whole_file_leave(kvb_whole_file *whole);

#endif
