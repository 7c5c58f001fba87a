/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows on stderr what the program is doing. On a terminal, one line is rewritten every second. Elsewhere, a new line
 * comes every ten seconds, so short runs show none; the environment variable KVB_PROGRESS sets another number of
 * seconds (0: no lines). A timer prints, so a line comes even while one thing takes long. There is one progress for the
 * process; child processes show none.
 */
#ifndef KVB_PROGRESS_H
#define KVB_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

/* total: combinations, or the like, that are to be done; 0: not known yet. Begun again, it counts anew. */
void kvb_progress_start(const char *command, size_t total);
void kvb_progress_expect(size_t more); /* adds to the total */
/* What is being done now: "oracle of plain-decode, f16". */
void kvb_progress_now(const char *format, ...) __attribute__((format(printf, 1, 2)));
void kvb_progress_step(bool good); /* one more is done */
/* "kvbench run: note: …", where lines are shown at all. */
void kvb_progress_note(const char *text);
void kvb_progress_end(void);       /* no more lines; wipes that of a terminal */
double kvb_progress_seconds(void); /* since start */

#endif
