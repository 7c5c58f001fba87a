/* SPDX-License-Identifier: Apache-2.0 */
/* Seats for children, and a queue of results of which the first are handed on as soon as they are final. */
#include "harness/matrix/crew.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/clock.h"
#include "harness/interrupt.h"
#include "harness/progress.h"
#include "harness/replay/apart.h"
#include "workloads/array.h"

#define WAIT_EACH    4u  /* children that may wait for quiet, for each that works: what they hold lies in memory */
#define PATIENCE     1.0 /* seconds that one waits at most while others work */
#define NULL_SECONDS 0.8 /* no null comparison of what took longer for its first pass */

typedef struct entry {
    const kvb_kernel *kernel; /* with `scan` beside it, or that beside `kernel`; NULL: it has no child */
    const kvb_scan_kernel *scan;
    kvb_result named; /* as it was added */
    kvb_result result;
    bool done;     /* the result is there, but for what a null comparison adds */
    bool held;     /* children of it are still being made */
    bool is_final; /* nothing will be added */
    struct entry *next;
} entry;

typedef struct seat {
    kvb_child_options options;
    kvb_child child;
    entry *of;       /* NULL: free */
    bool again;      /* its child is a null comparison */
    bool waits;      /* for quiet; else it works */
    int ended;       /* descriptor that tells the child's end */
    double started;  /* working */
    double deadline; /* of one that works; infinite: none */
    double since;    /* of one that waits */
} seat;

/* Kernels that had no end in so many combinations whose results were handed on. */
typedef struct hanging {
    const kvb_kernel *kernel;
    const kvb_scan_kernel *scan;
    uint32_t n;
} hanging;

struct kvb_crew {
    kvb_crew_options options;
    entry *first, *last; /* results in order */
    hanging *hanging;
    size_t n_hanging, room_hanging;
    uint32_t n_seats;
    seat seats[];
};

int kvb_crew_open(const kvb_crew_options *options, kvb_crew **crew)
{
    const uint32_t n = options->jobs * (1 + WAIT_EACH);
    kvb_crew *c = calloc(1, sizeof *c + n * sizeof *c->seats);
    if (c) {
        c->options = *options;
        c->n_seats = n;
    }
    *crew = c;
    return c ? 0 : -ENOMEM;
}

/* ---- kernels that hang ------------------------------------------------------------------------------------------ */

/* The place of an entry's kernels among those that hang, or behind them. */
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

/* Did the entry's kernel hang often enough in combinations before it? Which results come first does not change the answer: it is true
 * as soon as it is known to be, and is asked once more when all of them are there. */
static bool is_hopeless(const kvb_crew *c, const entry *e)
{
    const size_t at = hanging_find(c, e);
    uint32_t n = at < c->n_hanging ? c->hanging[at].n : 0;
    for (const entry *before = c->first; before && before != e; before = before->next)
        n += has_hung(before) && before->kernel == e->kernel && before->scan == e->scan;
    return e->kernel && n >= KVB_CREW_HANGS;
}

/* The first entry's result is due: counted if its kernel hung, skipped if it did so before. */
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
    while (c->first && c->first->is_final && !error) {
        entry *e = c->first;
        error = hanging_count(c, e);
        error = error ? error : c->options.take(c->options.ctx, &e->result);
        c->first = e->next;
        if (!c->first)
            c->last = NULL;
        free(e);
    }
    return error;
}

static bool works(const seat *s)
{
    return s->of && !s->waits;
}

/* The seat of one of the entry's two children; NULL: it has none, or none any more. */
static seat *seat_of(kvb_crew *c, const entry *e, bool again)
{
    for (uint32_t i = 0; i < c->n_seats; i++)
        if (c->seats[i].of == e && c->seats[i].again == again)
            return &c->seats[i];
    return NULL;
}

static void entry_settle(kvb_crew *c, entry *e)
{
    e->is_final = e->done && !e->held && !seat_of(c, e, true);
}

/* The larger difference counts, this one or that between the passes of one process. */
static void null_add(const kvb_result *again, kvb_result *result)
{
    const double inside = result->time.null_difference;
    if (again->status == KVB_STATUS_PASS)
        result->time.null_difference =
            fmax(isnan(inside) ? 0 : inside, fabs(again->time.all.median / result->time.all.median - 1));
}

/* Takes what the child has left, when it ends or its time is up. One that fails is not run again. */
static void seat_clear(kvb_crew *c, seat *s, double seconds)
{
    entry *e = s->of;
    kvb_result got = e->result;
    kvb_child_end(&s->child, seconds, &got);
    close(s->ended);
    s->of = NULL;
    s->waits = false;
    if (s->again) {
        null_add(&got, &e->result);
    } else {
        e->result = got;
        e->done = !kvb_stopped; /* a child that did not live to its end has no result */
        seat *again = seat_of(c, e, true);
        if (again && got.status != KVB_STATUS_PASS)
            seat_clear(c, again, 0);
    }
    entry_settle(c, e);
}

/* Ends children whose results will not count. */
static void hopeless_end(kvb_crew *c)
{
    for (uint32_t i = 0; i < c->n_seats; i++)
        if (c->seats[i].of && is_hopeless(c, c->seats[i].of))
            seat_clear(c, &c->seats[i], 0);
}

/* A child has made its first pass. */
static void seat_wait(kvb_crew *c, seat *s)
{
    seat *again = s->again ? NULL : seat_of(c, s->of, true);
    s->waits = true;
    s->since = kvb_now_seconds();
    if (again && s->since - s->started > NULL_SECONDS)
        seat_clear(c, again, 0);
}

/* Returns when a child that works has ended, has made its first pass, or has used up its time; or after KVB_LONGEST_WAIT. */
static void workers_wait(kvb_crew *c)
{
    const uint32_t n = c->n_seats;
    struct pollfd ends[2 * n], *asks = ends + n;
    double deadline = INFINITY, left = INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        const seat *s = &c->seats[i];
        ends[i] = (struct pollfd){.fd = works(s) ? s->ended : -1, .events = POLLIN};
        asks[i] = (struct pollfd){.fd = works(s) ? s->child.turns : -1, .events = POLLIN};
        if (works(s))
            deadline = fmin(deadline, s->deadline);
        if (works(s) && s->ended < 0)
            left = 1e-3 * KVB_LOOK_MS;
    }
    left = fmin(left, fmax(0, deadline - kvb_now_seconds()));
    int ready = poll(ends, 2 * n, (int)ceil(1000 * fmin(left, KVB_LONGEST_WAIT)));
    double now = kvb_now_seconds();
    for (uint32_t i = 0; i < n && ready >= 0; i++) {
        seat *s = &c->seats[i];
        char byte;
        if (!works(s))
            continue;
        if (asks[i].revents && recv(s->child.turns, &byte, 1, MSG_DONTWAIT) == 1)
            seat_wait(c, s);
        else if (ends[i].revents || asks[i].revents || s->deadline <= now ||
                 (s->ended < 0 && kvb_process_ended(s->child.pid)))
            seat_clear(c, s, !asks[i].revents ? 0 : isinf(s->deadline) ? -1 : fmax(0, s->deadline - now));
    }
    hopeless_end(c);
}

/* Stops those that work, or lets them go on: `late` seconds later than they would have. */
static void workers_signal(kvb_crew *c, int signal_number, double late)
{
    for (uint32_t i = 0; i < c->n_seats; i++)
        if (works(&c->seats[i])) {
            kill(c->seats[i].child.pid, signal_number);
            c->seats[i].started += late;
            c->seats[i].deadline += late;
        }
}

static void progress_tell(const entry *e)
{
    const kvb_result *r = &e->result;
    kvb_progress_now("%s, %s, %s, %s, %s", r->workload, r->cache, r->pool_k, r->pool_v, r->kernel);
}

/* The next child to have the machine: in the order of results, null comparisons behind all else. */
static seat *seat_next(kvb_crew *c)
{
    for (int again = 0; again < 2; again++)
        for (const entry *e = c->first; e; e = e->next) {
            seat *s = seat_of(c, e, again);
            if (s && s->waits && (!again || e->done))
                return s;
        }
    return NULL;
}

/* Gives the machine to each child that waits for it, until it has ended. 0, or what take() returned. */
static int waiting_time(kvb_crew *c)
{
    const double started = kvb_now_seconds();
    int error = 0;
    workers_signal(c, SIGSTOP, 0);
    for (seat *s; !error && !kvb_stopped && (s = seat_next(c));) {
        const char byte = 0;
        progress_tell(s->of);
        send(s->child.turns, &byte, 1, MSG_NOSIGNAL); /* who has died meanwhile is told by its end */
        seat_clear(c, s, s->options.seconds > 0 ? s->options.seconds : -1);
        hopeless_end(c);
        error = final_take(c);
    }
    workers_signal(c, SIGCONT, kvb_now_seconds() - started);
    if (c->first)
        progress_tell(c->first);
    return error;
}

/* A free seat, and fewer than `jobs` at work; with all: when all seats are free. What is final meanwhile is handed on. 0, -EINTR,
 * or what take() returned. */
static int seat_free(kvb_crew *c, bool all, seat **free_one)
{
    for (;;) {
        uint32_t n_free = 0, at_work = 0;
        double since = INFINITY;
        int error = final_take(c);
        if (error)
            return error;
        for (uint32_t i = 0; i < c->n_seats; i++) {
            seat *s = &c->seats[i];
            at_work += works(s);
            since = s->of && s->waits && !s->again ? fmin(since, s->since) : since;
            n_free += !s->of;
            *free_one = s->of ? *free_one : s;
        }
        if (kvb_stopped)
            return -EINTR;
        if (all ? n_free == c->n_seats : n_free && at_work < c->options.jobs)
            return 0;
        if (!at_work || (!n_free && at_work < c->options.jobs) || kvb_now_seconds() - since > PATIENCE)
            error = waiting_time(c);
        else
            workers_wait(c);
        if (error)
            return error;
    }
}

static int child_seat(kvb_crew *c, entry *e, const kvb_child_options *child, bool again)
{
    seat *s = NULL;
    int error = seat_free(c, false, &s);
    if (error)
        return error;
    if (is_hopeless(c, e)) {
        e->done = true;
        return 0;
    }
    const seat *first = seat_of(c, e, false);
    if (again && (!first || (first->waits && first->since - first->started > NULL_SECONDS)))
        return 0;
    s->options = *child;
    s->options.replay.unjudged = again; /* what is timed was judged the first time */
    s->options.replay.timeline = again ? NULL : child->replay.timeline;
    error = kvb_children_start(&s->options, &e->result, 1, child->beside && !child->replay.untimed, &s->child);
    if (error)
        return error;
    s->of = e;
    s->again = again;
    s->ended = pidfd_open(s->child.pid, 0);
    s->started = kvb_now_seconds();
    s->deadline = child->seconds > 0 ? s->started + child->seconds : INFINITY;
    return 0;
}

int kvb_crew_add(kvb_crew *c, const kvb_child_options *child, bool null, const kvb_result *result)
{
    entry *e = malloc(sizeof *e);
    if (!e)
        return -ENOMEM;
    *e = (entry){.named = *result, .result = *result, .done = !child, .held = true};
    if (child) {
        e->kernel = child->replay.kernel;
        e->scan = child->replay.scan;
    }
    *(c->last ? &c->last->next : &c->first) = e;
    c->last = e;
    int error = child ? child_seat(c, e, child, false) : 0;
    if (!error && child && null && !child->replay.untimed)
        error = child_seat(c, e, child, true);
    e->held = false;
    entry_settle(c, e);
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
            seat_clear(c, &c->seats[i], 0);
    for (entry *e = c->first, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    free(c->hanging);
    free(c);
}
