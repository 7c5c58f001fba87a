/* SPDX-License-Identifier: Apache-2.0 */
/* The progress line. */
#include "harness/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "harness/clock.h"

void kvb_progress_start(kvb_progress *p, size_t total)
{
    *p = (kvb_progress){.total = total, .started = kvb_now_seconds(), .shown = isatty(STDERR_FILENO)};
}

double kvb_progress_seconds(const kvb_progress *p)
{
    return kvb_now_seconds() - p->started;
}

void kvb_progress_step(kvb_progress *p, const char *what)
{
    p->done++;
    if (!p->shown)
        return;
    double passed = kvb_progress_seconds(p), left = passed / (double)p->done * (double)(p->total - p->done);
    fprintf(stderr, "\r\033[K[%zu/%zu] %.0f s, about %.0f s left  %.90s", p->done, p->total, passed, left, what);
}

void kvb_progress_end(kvb_progress *p)
{
    if (p->shown)
        fprintf(stderr, "\r\033[K");
}
