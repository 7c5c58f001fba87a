/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that appears whole or not at all: written as path.tmp, synced, renamed to path. A target that
 * exists and is no regular file (a pipe, /dev/stdout) is written directly: renaming would replace it.
 */
#ifndef KVB_OUTPUT_FILE_H
#define KVB_OUTPUT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct kvb_output_file {
    FILE *stream;
    char *path;
    char *temporary; /* NULL: written directly */
} kvb_output_file;

/* 0, or what open says, with "path: reason" in why. */
int kvb_output_file_open(const char *path, kvb_output_file *file, char *why, size_t why_bytes);

/* commit: flush, sync, rename. Otherwise, and on failure, the temporary file is removed and an old target
 * stays as it was. A write that failed earlier (ferror) is found here. Frees all but the struct. */
int kvb_output_file_close(kvb_output_file *file, bool commit, char *why, size_t why_bytes);

#endif
