/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that ask the program to stop: the first one is noted, a later one ends the program at once. */
#ifndef KVB_INTERRUPT_H
#define KVB_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

/* The signal that asked, or 0. Whoever waits or works for longer than a moment looks at it, and returns -EINTR. */
extern volatile sig_atomic_t kvb_stopped;

void kvb_stop_catch(void); /* from now on SIGINT, SIGTERM and SIGHUP ask */
void kvb_stop_die(void);   /* ends the program as the signal that asked would have */

/* Signals that come within so many seconds are one: a stop may reach the program and its group, as timeout(1) does.
 */
#define KVB_ASKED_ONCE 0.2

/* Seconds after which a wait looks whether someone asked to stop: a signal that comes just before the wait does not end
 * it. */
#define KVB_LONGEST_WAIT 0.5

/* Waits until fd can be read, for so long (below 0: for ever), or until someone asks to stop. Can it be read? */
bool kvb_wait_readable(int fd, double seconds);

#endif
