/* SPDX-License-Identifier: Apache-2.0 */
/* One line on stderr, rewritten as a run goes on, with the time left; nothing where stderr is no terminal. */
#ifndef KVB_PROGRESS_H
#define KVB_PROGRESS_H

#include <stddef.h>

typedef struct kvb_progress {
    size_t done, total;
    double started; /* seconds */
    int shown;      /* stderr is a terminal */
} kvb_progress;

void kvb_progress_start(kvb_progress *progress, size_t total);
void kvb_progress_step(kvb_progress *progress, const char *what); /* one more is done */
void kvb_progress_end(kvb_progress *progress);                    /* wipes the line */
double kvb_progress_seconds(const kvb_progress *progress);        /* since start */

#endif
