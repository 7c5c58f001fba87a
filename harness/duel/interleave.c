/* SPDX-License-Identifier: Apache-2.0 */
/* The referee of children that take turns. */
#include "harness/duel/interleave.h"

#include <errno.h>
#include <math.h>
#include <sys/socket.h>

#include "harness/clock.h"
#include "harness/interrupt.h"
#include "harness/rounds.h"

typedef struct side {
    kvb_child child;
    bool plays;     /* asks for turns still */
    double limit;   /* seconds of its own that it may use */
    double used;    /* seconds of its own */
    double longest; /* of a turn */
} side;

/* Waits until the side asks for its next turn; when it has ended, or its time is up, it plays no more. */
static void ask_wait(side *s)
{
    double started = kvb_now_seconds(), left = s->limit - s->used, took;
    char token;
    s->plays =
        kvb_wait_readable(s->child.turns, isinf(left) ? -1 : fmax(0, left)) && recv(s->child.turns, &token, 1, 0) == 1;
    took = kvb_now_seconds() - started;
    s->used += took;
    s->longest = fmax(s->longest, took);
}

/* A pass of the child. NAN: it plays no more, or its time limit would end it in the next one. */
static double turn_take(void *ctx)
{
    side *s = ctx;
    char token = 0;
    s->plays = s->plays && send(s->child.turns, &token, 1, MSG_NOSIGNAL) == 1;
    const double before = s->used;
    if (s->plays)
        ask_wait(s);
    return s->plays && s->used + 2 * s->longest < s->limit ? s->used - before : NAN;
}

int kvb_interleave_run(const kvb_child_options *options, kvb_result *results, size_t n)
{
    kvb_child children[KVB_INTERLEAVE_SIDES];
    side sides[KVB_INTERLEAVE_SIDES];
    kvb_contestant contestants[KVB_INTERLEAVE_SIDES];
    int error = n <= KVB_INTERLEAVE_SIDES ? kvb_children_start(options, results, n, true, children) : -E2BIG;
    if (error)
        return error;
    for (size_t i = 0; i < n; i++) {
        sides[i] = (side){.child = children[i], .limit = options[i].seconds > 0 ? options[i].seconds : INFINITY};
        contestants[i] = (kvb_contestant){.take = turn_take, .ctx = &sides[i], .limit = true};
        ask_wait(&sides[i]); /* until it is ready for its first pass */
    }
    const kvb_rounds rounds = {.least = KVB_INTERLEAVE_LEAST,
                               .most = UINT32_MAX,
                               .seconds = 1e-3 * (double)(n * options[0].replay.knobs->sample_ms),
                               .together = true};
    kvb_rounds_run(&rounds, contestants, (uint32_t)n);
    for (size_t i = 0; i < n; i++) /* one after the other: the last probes of the bandwidth are for one process */
        kvb_child_end(&sides[i].child, isinf(sides[i].limit) ? -1 : fmax(0, sides[i].limit - sides[i].used),
                      &results[i]);
    return 0;
}
