/* SPDX-License-Identifier: Apache-2.0 */
/* The progress line. */
#include "harness/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void kvb_progress_start(kvb_progress *p, size_t total)
{
    *p = (kvb_progress){.total = total, .started = now_seconds(), .shown = isatty(STDERR_FILENO)};
}

double kvb_progress_seconds(const kvb_progress *p)
{
    return now_seconds() - p->started;
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
