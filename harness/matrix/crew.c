/* SPDX-License-Identifier: Apache-2.0 */
/* Seats for children, and a queue of results. The first results are passed on as soon as they are there. */
#include "harness/matrix/crew.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "harness/rounds.h"
#include "harness/program.h"
#include "workloads/array.h"

#define NULL_SECONDS 0.8 /* no null comparison if a pass takes longer */

typedef struct entry {
    const kvb_kernel *kernel; /* for layers that attend; NULL: no child */
    const kvb_kernel *scan;   /* for layers that scan */
    kvb_result named;         /* as it was added */
    kvb_result result;
    bool done; /* the result is there */
    struct entry *next;
} entry;

typedef struct seat {
    kvb_child_options options;
    kvb_child child;
    entry *of;       /* NULL: free */
    int ended;       /* descriptor that becomes readable when the child ends; -1: the system has none */
    double deadline; /* infinite: none */
} seat;

/* Kernels that hung in n combinations, counted when their results are passed on. */
typedef struct hanging {
    const kvb_kernel *kernel;
    const kvb_kernel *scan;
    uint32_t n;
} hanging;

struct kvb_crew {
    int (*take)(void *ctx, const kvb_result *result);
    void *ctx;
    entry *first, *last; /* results in order */
    hanging *hanging;
    size_t n_hanging, room_hanging;
    uint32_t n_seats;
    seat seats[];
};

int kvb_crew_open(uint32_t jobs, int (*take)(void *ctx, const kvb_result *result), void *ctx, kvb_crew **crew)
{
    kvb_crew *c = calloc(1, sizeof *c + jobs * sizeof *c->seats);
    if (c) {
        c->take = take;
        c->ctx = ctx;
        c->n_seats = jobs;
    }
    *crew = c;
    return c ? 0 : -ENOMEM;
}

/* ---- kernels that hang ------------------------------------------------------------------------------------------ */

/* Index of an entry's kernels in `hanging`; n_hanging: not there. */
static size_t hanging_find(const kvb_crew *c, const entry *e)
{
    size_t i = 0;
    while (i < c->n_hanging && (c->hanging[i].kernel != e->kernel || c->hanging[i].scan != e->scan))
        i++;
    return i;
}

static bool has_hung(const entry *e)
{
    return e->done && kvb_child_hung_in_kernel(&e->result);
}

/* Has the entry's kernel hung in KVB_CREW_HANGS combinations before it? The answer can only turn true as children end,
 * and is asked again once all earlier results are there: the order in which children end does not matter. */
static bool is_hopeless(const kvb_crew *c, const entry *e)
{
    const size_t at = hanging_find(c, e);
    uint32_t n = at < c->n_hanging ? c->hanging[at].n : 0;
    for (const entry *before = c->first; before && before != e; before = before->next)
        n += has_hung(before) && before->kernel == e->kernel && before->scan == e->scan;
    return e->kernel && n >= KVB_CREW_HANGS;
}

/* Skips the first entry if its kernel is hopeless; else counts it if its kernel hung. */
static int hanging_count(kvb_crew *c, entry *e)
{
    if (is_hopeless(c, e)) {
        e->result = e->named;
        e->result.status = KVB_STATUS_SKIP;
        snprintf(e->result.reason, sizeof e->result.reason,
                 "kernel %.64s had no end in %u combinations before this one", e->named.kernel, KVB_CREW_HANGS);
        return 0;
    }
    if (!has_hung(e))
        return 0;
    const size_t at = hanging_find(c, e);
    int error = kvb_array_reserve(&c->hanging, &c->room_hanging, at + 1, sizeof *c->hanging);
    if (error)
        return error;
    if (at == c->n_hanging)
        c->hanging[c->n_hanging++] = (hanging){e->kernel, e->scan, 0};
    c->hanging[at].n++;
    return 0;
}

/* ---- results in order ------------------------------------------------------------------------------------------- */

static int final_take(kvb_crew *c)
{
    int error = 0;
    while (c->first && c->first->done && !error) {
        entry *e = c->first;
        error = hanging_count(c, e);
        error = error ? error : c->take(c->ctx, &e->result);
        c->first = e->next;
        if (!c->first)
            c->last = NULL;
        free(e);
    }
    return error;
}

/* Takes the result of a child that has ended. One that runs is killed. */
static void seat_clear(seat *s)
{
    entry *e = s->of;
    kvb_child_end(&s->child, 0, &e->result);
    if (s->ended >= 0)
        close(s->ended);
    s->of = NULL;
    e->done = !kvb_stopped; /* a child that was killed early has no result */
}

/* Waits until a child has ended or reached its deadline, at most KVB_LONGEST_WAIT. */
static void children_wait(kvb_crew *c)
{
    const uint32_t n = c->n_seats;
    struct pollfd ends[n];
    double left = KVB_LONGEST_WAIT;
    for (uint32_t i = 0; i < n; i++) {
        const seat *s = &c->seats[i];
        ends[i] = (struct pollfd){.fd = s->of ? s->ended : -1, .events = POLLIN};
        if (s->of)
            left = fmin(left, s->ended < 0 ? 1e-3 * KVB_LOOK_MS : fmax(0, s->deadline - kvb_now_seconds()));
    }
    const int ready = poll(ends, n, (int)ceil(1000 * left));
    const double now = kvb_now_seconds();
    for (uint32_t i = 0; i < n && ready >= 0; i++) {
        seat *s = &c->seats[i];
        if (s->of && (ends[i].revents || s->deadline <= now || (s->ended < 0 && kvb_process_ended(s->child.pid))))
            seat_clear(s);
    }
    for (seat *s = c->seats; s < c->seats + n; s++)
        if (s->of && is_hopeless(c, s->of))
            seat_clear(s);
}

/* Waits for a free seat, or with `all` until all seats are free. Passes on results meanwhile. 0, -EINTR, or what take()
 * returned. */
static int seat_free(kvb_crew *c, bool all, seat **free_one)
{
    for (;;) {
        uint32_t n_free = 0;
        int error = final_take(c);
        if (error)
            return error;
        for (uint32_t i = 0; i < c->n_seats; i++) {
            n_free += !c->seats[i].of;
            *free_one = c->seats[i].of ? *free_one : &c->seats[i];
        }
        if (kvb_stopped)
            return -EINTR;
        if (all ? n_free == c->n_seats : n_free > 0)
            return 0;
        children_wait(c);
    }
}

/* Repeats the replay in another process, unjudged. The null difference is the larger one: between the two processes, or
 * between the passes of one. */
static int null_run(const kvb_child_options *child, kvb_result *result)
{
    const double inside = result->time.null_difference;
    kvb_child_options options = *child;
    kvb_result again = *result;
    options.replay.unjudged = true;
    options.replay.timeline = NULL;
    int error = kvb_child_run(&options, &again);
    if (!error && again.status == KVB_STATUS_PASS)
        result->time.null_difference =
            fmax(isnan(inside) ? 0 : inside, fabs(again.time.all.median / result->time.all.median - 1));
    return error;
}

/* Runs a timed child alone on the machine. */
static int child_time(kvb_crew *c, entry *e, const kvb_child_options *child, bool null)
{
    seat *any;
    int error = seat_free(c, true, &any);
    const double started = kvb_now_seconds();
    if (!error)
        error = kvb_child_run(child, &e->result);
    const double each = (kvb_now_seconds() - started) / fmax(1, (double)e->result.time.passes);
    if (!error && !kvb_stopped && null && e->result.status == KVB_STATUS_PASS && each < NULL_SECONDS)
        error = null_run(child, &e->result);
    e->done = !kvb_stopped;
    return error;
}

static int child_seat(kvb_crew *c, entry *e, const kvb_child_options *child)
{
    seat *s = NULL;
    int error = seat_free(c, false, &s);
    if (error)
        return error;
    s->options = *child;
    error = kvb_children_start(&s->options, &e->result, 1, false, &s->child);
    if (error)
        return error;
    s->of = e;
    s->ended = pidfd_open(s->child.pid, 0);
    s->deadline = child->seconds > 0 ? kvb_now_seconds() + child->seconds : INFINITY;
    return 0;
}

int kvb_crew_add(kvb_crew *c, const kvb_child_options *child, bool null, const kvb_result *result)
{
    entry *e = malloc(sizeof *e);
    if (!e)
        return -ENOMEM;
    *e = (entry){.named = *result, .result = *result, .done = !child};
    if (child) {
        e->kernel = child->replay.kernel;
        e->scan = child->replay.scan;
    }
    *(c->last ? &c->last->next : &c->first) = e;
    c->last = e;
    e->done |= is_hopeless(c, e);
    int error = e->done ? 0 : child->replay.untimed ? child_seat(c, e, child) : child_time(c, e, child, null);
    return error ? error : final_take(c);
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
    for (uint32_t i = 0; i < c->n_seats; i++)
        if (c->seats[i].of)
            seat_clear(&c->seats[i]);
    for (entry *e = c->first, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    free(c->hanging);
    free(c);
}
