/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How this machine's memory is best read, found by measuring: settings of kernels/prefetch.h that change no result.
 * Candidates take turns over rows that no cache holds, by CPU time of the threads, so that a busy machine blurs little.
 * A class of rows is measured as they lie there. What is within 3 % of the built-in setting is the built-in setting.
 *
 * The winners lie in a file of JSON for each machine and level of instructions, in $XDG_CACHE_HOME/kvbench
 * (~/.cache/kvbench). Two settings are not measured, because results depend on them: from how many places a sequence is
 * read, and from how many query rows on blocks are packed (kernels/prefetch.h, flash/).
 */
#ifndef KVB_TUNING_H
#define KVB_TUNING_H

#include "kernels/prefetch.h"
#include "results/result.h"

#define KVB_TUNING_PATH 256u

/* Of the classes of readings the one at place 0 .. KVB_READINGS - 1. */
typedef struct kvb_class {
    kvb_spread spread;
    uint32_t size, rows;
} kvb_class;

static inline kvb_class kvb_class_at(uint32_t i)
{
    return (kvb_class){i / KVB_READING_ROWS / KVB_READING_SIZES, i / KVB_READING_ROWS % KVB_READING_SIZES,
                       i % KVB_READING_ROWS};
}

extern const char *const kvb_spread_names[KVB_SPREADS]; /* file.c */

typedef struct kvb_tuning {
    kvb_prefetch prefetch;     /* the winners */
    double gain[KVB_READINGS]; /* time of the built-in setting over that of the winner, 1: itself */
    double steadily_gain;
} kvb_tuning;

/* ---- measuring: measure.c ---------------------------------------------------------------------------------------- */

/* What is measured, in about so many seconds: everything, or with `few` rows of 16-bit floats alone. */
typedef struct kvb_tuning_options {
    double seconds;
    bool few;
    uint32_t threads; /* at most one a core */
} kvb_tuning_options;

/* 0, -ENOMEM, -EINTR (a signal), or what kvb_threads_start() says. What is not measured is built in, with gain 1. */
int kvb_tuning_measure(const kvb_tuning_options *options, kvb_tuning *tuning);

/* ---- files: file.c ----------------------------------------------------------------------------------------------- */

/* Where this machine's file lies; -ENOENT: neither XDG_CACHE_HOME nor HOME is set. */
int kvb_tuning_path(const kvb_manifest *machine, char path[KVB_TUNING_PATH]);
/* Can a file be written there? Folders on the way are made. 0, or a negative errno with why. */
int kvb_tuning_writable(const char *path, char *why, size_t why_bytes);
/* The same, and writes it. */
int kvb_tuning_write(const char *path, const kvb_manifest *machine, const kvb_tuning *tuning, char *why,
                     size_t why_bytes);
/* 0; -ENOENT: there is none; -EINVAL: it is none, or of another machine or level; why says the file and what was
 * expected. */
int kvb_tuning_read(const char *path, const kvb_manifest *machine, kvb_tuning *tuning, char *why, size_t why_bytes);

/* ---- what commands do: use.c ------------------------------------------------------------------------------------- */

typedef struct kvb_tuning_choice {
    const char *path; /* --tuning F, or NULL */
    bool none;        /* --no-tuning */
    bool measures;    /* without a file, the choices that matter most are measured now, in two seconds, and kept */
} kvb_tuning_choice;

/* Has kernels use the file of the user's choice (an option, else KVB_TUNING: a path, or "none"), or else this
 * machine's, and says in the manifest which. machine: described. An exit code; a file that is no good and was not named
 * is noted and not used. */
int kvb_tuning_use(const char *command, const kvb_tuning_choice *choice, kvb_manifest *machine);

#endif
