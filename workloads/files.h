/* SPDX-License-Identifier: Apache-2.0 */
/* Files that workloads write, the one line that explains a failure, and lists of names in it. */
#ifndef KVB_WORKLOADS_FILES_H
#define KVB_WORKLOADS_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Formats into why (may be NULL when why_bytes is 0) and returns error, so that callers can return it. Quoted text may
 * come from a hostile file, so control characters become '?': why stays one line on any terminal. */
__attribute__((format(printf, 4, 5))) int kvb_why_set(int error, char *why, size_t why_bytes, const char *format, ...);

/* A text that is being read. The first error stays. Reading may go on after it, but what is read then is not used. */
typedef struct kvb_parsing {
    int error;
    char where[112]; /* text before that of an error: "header: group 3: " */
    char text[400];  /* of the error, without the "file:line: " that callers put before it */
} kvb_parsing;

/* Notes an error, if none is noted; returns the one noted. */
__attribute__((format(printf, 3, 4))) int kvb_parsing_fail(kvb_parsing *reading, int error, const char *format, ...);

/* Appends formatted text to a list in text [bytes], after `between` if the list is not empty: "a, b, c". False: the
 * list was cut. */
__attribute__((format(printf, 4, 5))) bool kvb_list_add(char *text, size_t bytes, const char *between,
                                                        const char *format, ...);

/* Is the name one of those in a list "a b c"? */
bool kvb_names_have(const char *names, const char *name);

/*
 * A file that appears whole or not at all: it is written beside its target as path.tmp, synced, and renamed at the end.
 *
 * The writer locks path.tmp (flock); a second writer gets -EBUSY. What a killed writer left there is overwritten, or
 * continued on request. A target that is no regular file (a pipe, /dev/stdout) is written directly.
 */
typedef struct kvb_output_file {
    FILE *stream;
    char *path;      /* as the caller named it, for messages */
    char *target;    /* behind links; NULL: written directly */
    char *temporary; /* NULL: written directly, or it has been renamed */
} kvb_output_file;

/* resume: keeps what path.tmp holds; writing starts at its beginning. -ENOENT: there is no path.tmp; -EINVAL: the
 * target is not a regular file. 0, or a negative errno with "path: reason" in why and nothing open. */
int kvb_output_file_open(const char *path, bool resume, kvb_output_file *file, char *why, size_t why_bytes);
/* Replaces the target: flush, sync, rename. A write that failed earlier (ferror) is found here. 0, or a negative errno
 * with the target as before and why. The file must still be closed. */
int kvb_output_file_commit(kvb_output_file *file, char *why, size_t why_bytes);
/* Closes in any case, and frees all but the struct. commit: replaces the target first, if that has not been done.
 * Otherwise, and on an error, the target stays as it was and path.tmp is removed. 0, or a negative errno with why. */
int kvb_output_file_close(kvb_output_file *file, bool commit, char *why, size_t why_bytes);
/* The same without commit, but path.tmp stays to be resumed. */
void kvb_output_file_leave(kvb_output_file *file);

/* The slots of save while a trace is made or replayed: a private folder of temporary files, one for each slot,
 * and one more, number KVB_TRACE_SLOTS. */
typedef struct kvb_slot_files {
    char folder[PATH_MAX - 64]; /* empty: there is none */
    char path[PATH_MAX];
} kvb_slot_files;

/* Makes a folder in TMPDIR, else in memory (/dev/shm) if possible, else in /tmp: 0, or a negative errno with why. */
int kvb_slot_files_open(kvb_slot_files *files, char *why, size_t why_bytes);
/* The file of a slot, there or not; valid until the next call. */
const char *kvb_slot_files_path(kvb_slot_files *files, uint32_t slot);
/* Removes the files and the folder, if there is one. */
void kvb_slot_files_close(kvb_slot_files *files);

#endif
