/* SPDX-License-Identifier: Apache-2.0 */
/* The program as a process: facts of its build, the folders of its files, the signals that stop it, its progress. The
 * Makefile writes the facts of the build to build/version-facts.h. */
#ifndef KVB_PROGRAM_H
#define KVB_PROGRAM_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

extern const char kvb_version[];      /* "0.1.0" */
extern const char kvb_build_commit[]; /* git commit, with "-dirty" if the tree had changes; "unknown" outside git */
extern const char kvb_compiler[];     /* "gcc 12.2.0" */
extern const char kvb_flags[];        /* compiler flags */

/* Finds a folder that comes with the program. The value of the environment variable comes first. Else the folders above
 * the program (PREFIX/bin/kvbench, build/kvbench or build/asan/kvbench) are searched for `installed` (its path below the
 * prefix) and `source` (its path in the source tree); the result is the first that exists, else `source`. The caller
 * frees it. NULL: no memory. */
char *kvb_folder_find(const char *variable, const char *installed, const char *source);

/* ---- signals that ask the program to stop: the first one sets kvb_stopped, a later one ends the program at once ---- */

/* The signal that asked to stop, or 0. Code that takes longer than a moment checks it, and returns -EINTR. */
extern volatile sig_atomic_t kvb_stopped;

void kvb_stop_catch(void); /* from now on SIGINT, SIGTERM and SIGHUP set kvb_stopped */
void kvb_stop_die(void);   /* ends the program by the signal that asked to stop */

/* Signals within so many seconds count as one: timeout(1) sends one to the program and one to its group. */
#define KVB_ASKED_ONCE 0.2

/* Seconds after which a wait checks kvb_stopped again: a signal that comes just before a wait does not end it. */
#define KVB_LONGEST_WAIT 0.5

/* Waits until fd can be read, at most `seconds` (below 0: for ever), or until a signal asks to stop. Can it be read? */
bool kvb_wait_readable(int fd, double seconds);

/*
 * ---- progress ----
 * Shows the program's progress on stderr. On a terminal, one line is rewritten every second. Elsewhere, a new line comes
 * every ten seconds, so short runs show none; the environment variable KVB_PROGRESS sets another number of seconds (0: no
 * lines). A timer prints the lines, even while a single step takes long. There is one progress for the process; child
 * processes show none.
 */

/* total: steps to be done, such as combinations; 0: not known yet. A second start counts anew. */
void kvb_progress_start(const char *command, size_t total);
void kvb_progress_expect(size_t more); /* adds to the total */
/* The last n steps take about `each` times as long as the others; the remaining time is estimated accordingly. */
void kvb_progress_weigh(size_t n, double each);
/* Sets the text of the current work: "oracle of plain-decode, f16". */
void kvb_progress_now(const char *format, ...) __attribute__((format(printf, 1, 2)));
void kvb_progress_step(bool good); /* counts a step as done; good false: as not passed */
/* Prints "kvbench run: note: …". With KVB_PROGRESS=0: nothing. */
void kvb_progress_note(const char *text);
void kvb_progress_end(void);       /* no more lines; clears the line of a terminal */
double kvb_progress_seconds(void); /* since start */

#endif
