/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the fastest settings of kernels/prefetch.h for this machine by measuring. These settings change no result.
 * Candidates take turns over rows that no cache holds. Threads' CPU time counts, so that a busy machine disturbs little.
 * Each class is measured over rows that are spread as in the class. A winner must beat the built-in setting by 3 %.
 *
 * The winners are stored in a JSON file for each machine and level of instructions, in $XDG_CACHE_HOME/kvbench
 * (~/.cache/kvbench). Two settings are not measured, because results depend on them: the number of places from which a
 * sequence is read, and the number of query rows from which blocks are packed (kernels/prefetch.h, flash/).
 */
#ifndef KVB_TUNING_H
#define KVB_TUNING_H

#include "kernels/prefetch.h"
#include "results/result.h"

#define KVB_TUNING_PATH 256u

/* A class of readings; kvb_class_at() gives the class at place 0 .. KVB_READINGS - 1. */
typedef struct kvb_class {
    kvb_spread spread;
    uint32_t size, rows;
} kvb_class;

static inline kvb_class kvb_class_at(uint32_t i)
{
    return (kvb_class){i / KVB_READING_ROWS / KVB_READING_SIZES, i / KVB_READING_ROWS % KVB_READING_SIZES,
                       i % KVB_READING_ROWS};
}

extern const char *const kvb_spread_names[KVB_SPREADS]; /* use.c */

typedef struct kvb_tuning {
    kvb_prefetch prefetch;     /* the winners */
    double gain[KVB_READINGS]; /* time of the built-in setting over the winner's; 1: the built-in setting won */
    double steadily_gain;
} kvb_tuning;

/* ---- measuring: measure.c ---------------------------------------------------------------------------------------- */

typedef struct kvb_tuning_options {
    double seconds;   /* about so long in all */
    bool few;         /* only rows of 16-bit floats, with the most important settings */
    uint32_t threads; /* at most one a core */
} kvb_tuning_options;

/* Fills *tuning; settings that are not measured stay built in, with gain 1. 0, -ENOMEM, -EINTR (a signal), or an error of
 * kvb_threads_start(). */
int kvb_tuning_measure(const kvb_tuning_options *options, kvb_tuning *tuning);

/* ---- files: use.c ------------------------------------------------------------------------------------------------ */

/* The path of this machine's file. 0, or -ENOENT: neither XDG_CACHE_HOME nor HOME is set. */
int kvb_tuning_path(const kvb_manifest *machine, char path[KVB_TUNING_PATH]);
/* Can this file be written? Makes its folders. 0, or a negative errno with why. */
int kvb_tuning_writable(const char *path, char *why, size_t why_bytes);
/* Writes the file, and makes its folders. 0, or a negative errno with why. */
int kvb_tuning_write(const char *path, const kvb_manifest *machine, const kvb_tuning *tuning, char *why,
                     size_t why_bytes);
/* 0; -ENOENT: there is no file; -EINVAL: no tuning file, or one of another machine or level. why names the file and what
 * was expected. */
int kvb_tuning_read(const char *path, const kvb_manifest *machine, kvb_tuning *tuning, char *why, size_t why_bytes);

/* ---- tuning for a command: use.c --------------------------------------------------------------------------------- */

typedef struct kvb_tuning_choice {
    const char *path; /* --tuning F; NULL: none */
    bool none;        /* --no-tuning */
    bool measures;    /* without a file, measure the most important settings now, in two seconds, and keep them */
} kvb_tuning_choice;

/* Has kernels use the file of the user's choice (an option, else KVB_TUNING: a path, or "none"), else this machine's, and
 * names it in the manifest. machine: described. Returns an exit code. If this machine's file is invalid, a note says so
 * and it is not used. */
int kvb_tuning_use(const char *command, const kvb_tuning_choice *choice, kvb_manifest *machine);

#endif
