/* SPDX-License-Identifier: Apache-2.0 */
/* The program as a process: what was built, where its files are, which signals stop it, what it shows meanwhile.
 * The Makefile writes the facts of the build to build/version-facts.h. */
#ifndef KVB_PROGRAM_H
#define KVB_PROGRAM_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

extern const char kvb_version[];      /* "0.1.0" */
extern const char kvb_build_commit[]; /* git commit, "-dirty" when the tree had changes; "unknown" outside git */
extern const char kvb_compiler[];     /* "gcc 12.2.0" */
extern const char kvb_flags[];        /* compiler flags */

/* A folder that comes with the program: what the environment variable says; else the first of `installed` (where `make
 * install` puts it, below the prefix) and `source` (its path in the source tree) that lies in a folder above the
 * program, be that PREFIX/bin/kvbench, build/kvbench or build/asan/kvbench; else `source`. From malloc; NULL: no
 * memory. It need not exist. */
char *kvb_folder_find(const char *variable, const char *installed, const char *source);

/* ---- signals that ask the program to stop: the first one is noted, a later one ends the program at once ---- */

/* The signal that asked, or 0. Code that waits or works for longer than a moment looks at it, and returns -EINTR. */
extern volatile sig_atomic_t kvb_stopped;

void kvb_stop_catch(void); /* from now on SIGINT, SIGTERM and SIGHUP ask */
void kvb_stop_die(void);   /* ends the program as the signal that asked would have */

/* Signals that come within so many seconds are one: a stop may reach the program and its group, as timeout(1) does. */
#define KVB_ASKED_ONCE 0.2

/* Seconds after which a wait looks at kvb_stopped: a signal that comes just before the wait does not end it. */
#define KVB_LONGEST_WAIT 0.5

/* Waits until fd can be read, for so long (below 0: for ever), or until a signal asks to stop. Can it be read? */
bool kvb_wait_readable(int fd, double seconds);

/*
 * ---- progress ----
 * Shows on stderr what the program is doing. On a terminal, one line is rewritten every second. Elsewhere, a new line
 * comes every ten seconds, so short runs show none; the environment variable KVB_PROGRESS sets another number of
 * seconds (0: no lines). A timer prints, so a line comes even while one thing takes long. There is one progress for the
 * process; child processes show none.
 */

/* total: combinations, or the like, that are to be done; 0: not known yet. Begun again, it counts anew. */
void kvb_progress_start(const char *command, size_t total);
void kvb_progress_expect(size_t more); /* adds to the total */
/* The last n take `each` times as long as others, about. The time that is left counts them so. */
void kvb_progress_weigh(size_t n, double each);
/* What is being done now: "oracle of plain-decode, f16". */
void kvb_progress_now(const char *format, ...) __attribute__((format(printf, 1, 2)));
void kvb_progress_step(bool good); /* one more is done */
/* "kvbench run: note: …", where lines are shown at all. */
void kvb_progress_note(const char *text);
void kvb_progress_end(void);       /* no more lines; wipes that of a terminal */
double kvb_progress_seconds(void); /* since start */

#endif
