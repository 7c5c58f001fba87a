/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that appears complete or not at all: it is written beside its target as path.tmp, and renamed at the end.
 *
 * The writer locks path.tmp (flock); a second writer gets -EBUSY. What a killed writer left there is overwritten, or
 * continued on request. A target that is not a regular file (a pipe, /dev/stdout) is written directly.
 */
#ifndef KVB_ATOMIC_FILE_H
#define KVB_ATOMIC_FILE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct kvb_atomic_file {
    int file;        /* descriptor to write to */
    char *target;    /* NULL: written directly */
    char *temporary; /* NULL: the same, or it has been renamed */
} kvb_atomic_file;

/* resume: keeps what path.tmp holds; writing starts at its beginning. -ENOENT: there is no path.tmp; -EINVAL: the
 * target is not a regular file. 0, or a negative errno with nothing open. */
int kvb_atomic_file_open(const char *path, bool resume, kvb_atomic_file *f);

/* Writes all bytes. 0 or a negative errno. */
int kvb_atomic_file_write(kvb_atomic_file *f, const char *bytes, size_t n);

/* Replaces the target. 0, or a negative errno with everything as before. The file must still be closed. */
int kvb_atomic_file_commit(kvb_atomic_file *f);
/* Frees and closes in any case. commit: replaces the target, if that has not been done. Otherwise, and on an error, the
 * target stays as it was and path.tmp is removed. 0 or a negative errno. */
int kvb_atomic_file_close(kvb_atomic_file *f, bool commit);
/* Frees and closes. The target stays as it was, and path.tmp stays to be resumed. */
void kvb_atomic_file_leave(kvb_atomic_file *f);

#endif
