/* SPDX-License-Identifier: Apache-2.0 */
/* The referee of children that take turns. */
#include "harness/duel/interleave.h"

#include <errno.h>
#include <math.h>
#include <sys/socket.h>

#include "harness/clock.h"
#include "harness/interrupt.h"

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

static void turn_give(side *s)
{
    char token = 0;
    if (s->plays && send(s->child.turns, &token, 1, MSG_NOSIGNAL) == 1)
        ask_wait(s);
}

/* Is there to be another round? Not if a side's time limit would end it on the way. */
static bool goes_on(const side *sides, size_t n, size_t rounds, double seconds)
{
    bool fits = true;
    double used = 0;
    for (size_t i = 0; i < n; i++) {
        used += sides[i].used;
        fits = fits && sides[i].plays && sides[i].used + 2 * sides[i].longest < sides[i].limit;
    }
    return fits && (rounds < KVB_INTERLEAVE_LEAST || used < (double)n * seconds);
}

size_t kvb_interleave_turn(size_t n, size_t round, size_t i)
{
    size_t first = round % n;
    return (first + (round / n & 1 ? n - i : i)) % n;
}

int kvb_interleave_run(const kvb_child_options *options, kvb_result *results, size_t n)
{
    kvb_child children[KVB_INTERLEAVE_SIDES];
    side sides[KVB_INTERLEAVE_SIDES];
    int error = n <= KVB_INTERLEAVE_SIDES ? kvb_children_start(options, results, n, true, children) : -E2BIG;
    if (error)
        return error;
    for (size_t i = 0; i < n; i++) {
        sides[i] = (side){.child = children[i], .limit = options[i].seconds > 0 ? options[i].seconds : INFINITY};
        ask_wait(&sides[i]); /* until it is ready for its first pass */
    }
    for (size_t rounds = 0; rounds == 0 || goes_on(sides, n, rounds, options[0].replay.seconds); rounds++)
        for (size_t i = 0; i < n; i++)
            turn_give(&sides[kvb_interleave_turn(n, rounds, i)]);
    for (size_t i = 0; i < n; i++) /* one after the other: the last probes of the bandwidth are for one process */
        kvb_child_end(&sides[i].child, isinf(sides[i].limit) ? -1 : fmax(0, sides[i].limit - sides[i].used),
                      &results[i]);
    return 0;
}
