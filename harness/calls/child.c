/* SPDX-License-Identifier: Apache-2.0 */
/* Children that make calls. A timer in the child ends one whose call hangs. */
#include <cblas.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "harness/calls/calls.h"
#include "harness/replay/apart.h"
#include "harness/replay/guard.h"
#include "harness/replay/heap_watch.h"

static kvb_call_place *of_child;

/* In a signal handler. */
static void fault_report(const char *what)
{
    const size_t n = strnlen(what, sizeof of_child->fault - 1);
    memcpy(of_child->fault, what, n);
    of_child->fault[n] = '\0';
}

void kvb_call_child_begin(kvb_call_place *place)
{
    of_child = place;
    place->fault[0] = '\0';
    signal(SIGALRM, SIG_DFL);
    kvb_guard_install(fault_report);
    kvb_heap_watch_excuse((const void *)(uintptr_t)openblas_get_corename);
}

void kvb_call_child_next(kvb_call_place *place, uint64_t number, double seconds)
{
    const struct itimerval timer = {
        .it_value = {.tv_sec = (time_t)seconds, .tv_usec = (suseconds_t)(1e6 * (seconds - (double)(time_t)seconds))}};
    place->at = number;
    setitimer(ITIMER_REAL, &timer, NULL);
}

bool kvb_call_child_wait(int pid, double seconds, const kvb_call_place *place, kvb_call_verdict *verdict)
{
    int status = 0;
    kvb_process_wait(pid, -1, &status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return false;
    const bool hangs = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    *verdict = (kvb_call_verdict){.check = hangs ? KVB_CHECK_TIMEOUT : KVB_CHECK_CRASH};
    if (hangs)
        snprintf(verdict->words, sizeof verdict->words, "no end within %g s", seconds);
    else if (WIFSIGNALED(status))
        snprintf(verdict->words, sizeof verdict->words, "%s%sSIG%s in the kernel", place->fault,
                 *place->fault ? ": " : "", sigabbrev_np(WTERMSIG(status)));
    else
        snprintf(verdict->words, sizeof verdict->words, "exit %d in the kernel", WEXITSTATUS(status));
    return true;
}
