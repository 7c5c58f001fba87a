/* SPDX-License-Identifier: Apache-2.0 */
/* Seats for children, and a queue of results of which the first are handed on as soon as they are final. */
#include "harness/matrix/crew.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "harness/clock.h"
#include "harness/interrupt.h"
#include "harness/replay/apart.h"

typedef struct entry {
    kvb_result result;
    bool is_final;
    struct entry *next;
} entry;

typedef struct seat {
    kvb_child_options options;
    kvb_child child;
    entry *of;       /* NULL: free */
    int ended;       /* descriptor that tells the child's end */
    double deadline; /* infinite: none */
} seat;

struct kvb_crew {
    kvb_crew_options options;
    entry *first, *last; /* results in order */
    seat seats[];
};

int kvb_crew_open(const kvb_crew_options *options, kvb_crew **crew)
{
    kvb_crew *c = calloc(1, sizeof *c + options->jobs * sizeof *c->seats);
    if (c)
        c->options = *options;
    *crew = c;
    return c ? 0 : -ENOMEM;
}

static int final_take(kvb_crew *c)
{
    int error = 0;
    while (c->first && c->first->is_final && !error) {
        entry *e = c->first;
        error = c->options.take(c->options.ctx, &e->result);
        c->first = e->next;
        if (!c->first)
            c->last = NULL;
        free(e);
    }
    return error;
}

static void seat_clear(seat *s, double seconds)
{
    kvb_child_end(&s->child, seconds, &s->of->result);
    s->of->is_final = true;
    s->of = NULL;
    close(s->ended);
}

/* Waits until a child has ended, or its time is up; no longer than KVB_LONGEST_WAIT. */
static void seats_wait(kvb_crew *c)
{
    struct pollfd polled[c->options.jobs];
    double deadline = INFINITY, left = INFINITY;
    for (uint32_t i = 0; i < c->options.jobs; i++) {
        const seat *s = &c->seats[i];
        polled[i] = (struct pollfd){.fd = s->of ? s->ended : -1, .events = POLLIN};
        if (s->of)
            deadline = fmin(deadline, s->deadline);
        if (s->of && s->ended < 0)
            left = 1e-3 * KVB_LOOK_MS;
    }
    left = fmin(left, fmax(0, deadline - kvb_now_seconds()));
    int ready = poll(polled, c->options.jobs, (int)ceil(1000 * fmin(left, KVB_LONGEST_WAIT)));
    double now = kvb_now_seconds();
    for (uint32_t i = 0; i < c->options.jobs && ready >= 0; i++)
        if (c->seats[i].of && (polled[i].revents || c->seats[i].deadline <= now ||
                               (c->seats[i].ended < 0 && kvb_process_ended(c->seats[i].child.pid))))
            seat_clear(&c->seats[i], 0);
}

/* A free seat; with all: when all are free. What is final meanwhile is handed on. 0, -EINTR, or what take() returned. */
static int seat_free(kvb_crew *c, bool all, seat **free_one)
{
    for (;;) {
        seat *found = NULL;
        uint32_t n = 0;
        int error = final_take(c);
        if (error)
            return error;
        for (uint32_t i = 0; i < c->options.jobs; i++)
            if (!c->seats[i].of) {
                found = &c->seats[i];
                n++;
            }
        if (kvb_stopped)
            return -EINTR;
        *free_one = found;
        if (n == c->options.jobs || (n && !all))
            return 0;
        seats_wait(c);
    }
}

int kvb_crew_add(kvb_crew *c, const kvb_child_options *child, const kvb_result *result)
{
    seat *s = NULL;
    int error = child ? seat_free(c, false, &s) : 0;
    if (error)
        return error;
    entry *e = malloc(sizeof *e);
    if (!e)
        return -ENOMEM;
    *e = (entry){.result = *result, .is_final = !child};
    if (child) {
        s->options = *child;
        error = kvb_children_start(&s->options, result, 1, false, &s->child);
        if (error) {
            free(e);
            return error;
        }
        s->of = e;
        s->ended = pidfd_open(s->child.pid, 0);
        s->deadline = child->seconds > 0 ? kvb_now_seconds() + child->seconds : INFINITY;
    }
    *(c->last ? &c->last->next : &c->first) = e;
    c->last = e;
    return final_take(c);
}

int kvb_crew_finish(kvb_crew *c)
{
    seat *any;
    return seat_free(c, true, &any);
}

void kvb_crew_close(kvb_crew *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->options.jobs; i++)
        if (c->seats[i].of)
            seat_clear(&c->seats[i], 0);
    for (entry *e = c->first, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    free(c);
}
