/* SPDX-License-Identifier: Apache-2.0 */
/* Towards the simplest call that still fails. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/calls/calls.h"
#include "harness/interrupt.h"
#include "harness/replay/apart.h"

#define DEATHS  60u /* children that may crash meanwhile */
#define HANGS   8u  /* that may hang: each is waited for */
#define SECONDS 5.0 /* for a call, at most */

/* In memory that the child shares with its parent. */
typedef struct shrinking {
    const kvb_calls_options *options;
    const kvb_call_subject *subject;
    kvb_call_place place;
    kvb_point best, now;      /* now: the call under way */
    kvb_call_verdict verdict; /* of best */
} shrinking;

static bool still_fails(shrinking *s, const kvb_point *p, kvb_call_teams *teams)
{
    kvb_call_verdict verdict;
    char why[256];
    if (!s->subject->fits(s->subject, p, why, sizeof why))
        return false;
    s->now = *p;
    kvb_call_child_next(&s->place, 1, fmin(SECONDS, s->options->seconds));
    const int error = s->subject->judge(s->subject, p, s->options->seed, teams, &verdict, why, sizeof why);
    kvb_call_child_next(&s->place, 0, 0);
    if (error || verdict.check == KVB_CHECK_NONE)
        return false;
    s->best = *p;
    s->verdict = verdict;
    return true;
}

/* Each axis: the simplest value with which the call still fails. Returns whether anything became simpler. */
static bool round_make(shrinking *s, kvb_call_teams *teams)
{
    bool simpler = false;
    for (uint32_t a = 0; a < s->subject->space->n_axes; a++)
        for (uint8_t v = 0; v < s->best.at[a]; v++) {
            kvb_point p = s->best;
            p.at[a] = v;
            if (still_fails(s, &p, teams)) {
                simpler = true;
                break;
            }
        }
    return simpler;
}

static void child_main(void *ctx)
{
    shrinking *s = ctx;
    kvb_call_teams teams = {{NULL}};
    kvb_call_child_begin(&s->place);
    while (round_make(s, &teams))
        ;
    kvb_call_teams_end(&teams);
}

void kvb_call_shrink(const kvb_calls_options *options, const kvb_call_subject *subject, kvb_point *point,
                     kvb_call_verdict *verdict)
{
    shrinking *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED)
        return;
    *s = (shrinking){.options = options, .subject = subject, .best = *point, .verdict = *verdict};
    for (uint32_t deaths = 0, hangs = 0; deaths < DEATHS && hangs < HANGS && !kvb_stopped; deaths++) {
        kvb_call_verdict died;
        const pid_t pid = kvb_process_start(child_main, s);
        if (pid < 0 || !kvb_call_child_wait(pid, SECONDS, &s->place, &died))
            break;
        if (died.check == KVB_CHECK_TIMEOUT && verdict->check != KVB_CHECK_TIMEOUT)
            break; /* waiting for it again and again would take minutes */
        hangs += died.check == KVB_CHECK_TIMEOUT;
        s->best = s->now;
        s->verdict = died;
    }
    *point = s->best;
    *verdict = s->verdict;
    munmap(s, sizeof *s);
}
