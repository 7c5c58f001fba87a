/* SPDX-License-Identifier: Apache-2.0 */
/* All calls of one kernel. One child chooses them; then several children make them. Each takes the next call in turn. */
#include "harness/calls/calls.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "harness/program.h"
#include "harness/replay/child.h"
#include "harness/replay/guard.h"
#include "harness/replay/heap_watch.h"
#include "kernels/blas.h"
#include "workloads/files.h"
#include "workloads/rng.h"

/* ---- children that make calls: a timer ends a child in a call without end -------------------------------------- */

/* The call that a child makes, in memory that its parent can read. */
typedef struct call_place {
    volatile uint64_t at;       /* number of the call under way */
    char fault[KVB_GUARD_TEXT]; /* the guard's description of a fault; "": none */
} call_place;

#define HEAP_BLOCK (32 << 20) /* bytes; a larger block has a mapping of its own */
#define HEAP_KEPT  (512 << 20)

/* Begins a child that makes calls. The guard writes its description of a fault into the place. */
static void call_child_begin(call_place *place)
{
    place->fault[0] = '\0';
    signal(SIGALRM, SIG_DFL);
    kvb_guard_install(place->fault);
    kvb_guard_reuse();
    mallopt(M_MMAP_THRESHOLD, HEAP_BLOCK); /* memory stays with the child: page faults took a sixth of its time */
    mallopt(M_TRIM_THRESHOLD, HEAP_KEPT);
    kvb_heap_watch_excuse(kvb_blas_inside());
}

/* Begins the call of this number with a time limit. 0 seconds: the last call has ended. */
static void call_child_next(call_place *place, uint64_t number, double seconds)
{
    const struct itimerval timer = {
        .it_value = {.tv_sec = (time_t)seconds, .tv_usec = (suseconds_t)(1e6 * (seconds - (double)(time_t)seconds))}};
    place->at = number;
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* Waits for the child. Did it die in a call? Then *verdict is that call's. */
static bool call_child_wait(int pid, double seconds, const call_place *place, kvb_call_verdict *verdict)
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

/* ---- shrinking: towards the simplest call that still fails ------------------------------------------------------ */

#define DEATHS  60u /* most children that crash */
#define HANGS   8u  /* most children that hang: each costs the time limit */
#define SECONDS 5.0 /* time limit of a call */

/* In memory that the child shares with its parent. */
typedef struct shrinking {
    const kvb_calls_options *options;
    const kvb_call_subject *subject;
    call_place place;
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
    call_child_next(&s->place, 1, fmin(SECONDS, s->options->seconds));
    const int error = kvb_call_judge(s->subject, p, s->options->seed, teams, &verdict, why, sizeof why);
    call_child_next(&s->place, 0, 0);
    if (error || verdict.check == KVB_CHECK_NONE)
        return false;
    s->best = *p;
    s->verdict = verdict;
    return true;
}

/* Sets each axis to the simplest value with which the call still fails. If no axis changes, it sets two axes at once to
 * their simplest values. Did any axis change? */
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
    for (uint32_t a = 0; a < s->subject->space->n_axes; a++)
        for (uint32_t b = 0; b < a && !simpler && s->best.at[a]; b++) {
            kvb_point p = s->best;
            p.at[a] = p.at[b] = 0;
            simpler = s->best.at[b] && still_fails(s, &p, teams);
        }
    return simpler;
}

static void child_main(void *ctx)
{
    shrinking *s = ctx;
    kvb_call_teams teams = {{NULL}};
    call_child_begin(&s->place);
    while (round_make(s, &teams))
        ;
    kvb_call_teams_end(&teams);
}

/* Makes a failing point simpler, in children: sets each axis to the simplest value with which the call still fails, until
 * no axis changes. *verdict: of the simplest point found. A crash or a hang is a failure, too. */
static void point_shrink(const kvb_calls_options *options, const kvb_call_subject *subject, kvb_point *point,
                         kvb_call_verdict *verdict)
{
    shrinking *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED)
        return;
    *s = (shrinking){.options = options, .subject = subject, .best = *point, .verdict = *verdict};
    for (uint32_t deaths = 0, hangs = 0; deaths < DEATHS && hangs < HANGS && !kvb_stopped; deaths++) {
        kvb_call_verdict died;
        const pid_t pid = kvb_process_start(child_main, s);
        if (pid < 0 || !call_child_wait(pid, SECONDS, &s->place, &died))
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

#define PART_DEATHS 3u /* after so many crashes and time-outs a part makes no more calls */

#define POINTS_MOST ((size_t)1 << 20)

/* The chosen calls. */
typedef struct choice {
    bool made;
    atomic_uint_fast64_t begun; /* calls that some part has begun: the next call's number */
    kvb_point_cover cover;      /* its points are these: */
    kvb_point points[POINTS_MOST];
} choice;

/* One child's share of the calls, in memory that it shares with its parent. */
typedef struct part {
    const kvb_calls_options *options;
    const kvb_call_subject *subject;
    choice *chosen; /* shared by all parts */
    uint32_t index, of;
    call_place place;
    bool begun; /* has it begun a call? */
    uint64_t made, silent, exact, again;
    double same[KVB_SAME_KINDS];
    uint64_t wrong; /* wrong calls */
    uint64_t rows, judged;
    double rho;
    volatile uint64_t first; /* number of the first wrong call, UINT64_MAX: none; read by other parts, too */
    kvb_point first_point, now;
    kvb_call_verdict verdict; /* of the first wrong call */
    int error;
    char why[256];
    /* used by the parent */
    pid_t pid;
    uint32_t deaths;
} part;

/* ---- in the child ---------------------------------------------------------------------------------------------- */

static void wrong_note(part *t, uint64_t number, const kvb_point *p, const kvb_call_verdict *verdict)
{
    if (t->wrong++)
        return;
    t->first = number;
    t->first_point = *p;
    t->verdict = *verdict;
}

static void call_make(part *t, uint64_t number, const kvb_point *p, kvb_call_teams *teams)
{
    kvb_call_verdict verdict;
    char why[256];
    t->now = *p;
    t->begun = true;
    call_child_next(&t->place, number, t->options->seconds);
    const int error = kvb_call_judge(t->subject, p, t->options->seed, teams, &verdict, why, sizeof why);
    if (error == -ENOTSUP) /* nothing can judge this format */
        return;
    if (error) {
        t->error = error;
        snprintf(t->why, sizeof t->why, "%s", *why ? why : strerror(-error));
        return;
    }
    t->made++;
    t->silent += verdict.judged > 0 && verdict.silent == verdict.judged;
    t->exact += verdict.exact;
    t->again += verdict.made_again;
    for (uint32_t i = 0; i < KVB_SAME_KINDS && verdict.made_again; i++)
        t->same[i] = fmax(t->same[i], verdict.same[i]);
    t->rows += verdict.rows;
    t->judged += verdict.judged;
    t->rho = fmax(t->rho, verdict.rho);
    if (verdict.check != KVB_CHECK_NONE)
        wrong_note(t, number, p, &verdict);
}

/* Is one wrong call enough, and has any part found one before this number? The first of all is reported, whichever part is
 * faster. */
static bool is_enough(const part *t, uint64_t number)
{
    bool enough = false;
    for (uint32_t i = 0; i < t->of && t->options->only_first; i++)
        enough |= (t - t->index)[i].first < number;
    return enough;
}

/* Keeps the points that have all values of `least` other than the simplest ones. */
static void points_keep(kvb_point_cover *cover, const kvb_point *least)
{
    size_t n = 0;
    for (size_t i = 0; i < cover->n; i++) {
        bool has = true;
        for (uint32_t a = 0; a < KVB_CALL_AXES; a++)
            has &= !least->at[a] || least->at[a] == cover->points[i].at[a];
        if (has)
            cover->points[n++] = cover->points[i];
    }
    cover->n = n;
}

/* Makes the chosen calls, the cheapest first, then random ones. */
static void calls_make(part *t, kvb_call_teams *teams)
{
    const kvb_point_cover *cover = &t->chosen->cover;
    const uint64_t all = cover->n + t->options->random;
    for (uint64_t i; !t->error && (i = atomic_fetch_add(&t->chosen->begun, 1)) < all && !is_enough(t, i);) {
        uint64_t state = kvb_rng_key(kvb_rng_key(t->options->seed, 11), i - cover->n);
        kvb_point p;
        if (i < cover->n)
            call_make(t, i, &cover->points[i], teams);
        else if (kvb_point_draw(t->subject, &state, &p))
            call_make(t, i, &p, teams);
    }
}

static void choice_child_main(void *ctx)
{
    part *t = ctx;
    const kvb_calls_options *o = t->options;
    kvb_point_cover cover;
    call_child_begin(&t->place);
    t->error = kvb_points_choose(t->subject, kvb_rng_key(o->seed, 3), o->most, o->only_cheap, &cover);
    if (!t->error && o->among) {
        kvb_point least;
        t->error = kvb_point_parse(t->subject->space, o->among, &least, t->why, sizeof t->why);
        points_keep(&cover, &least);
    }
    if (!t->error && cover.n > POINTS_MOST)
        t->error = -ENOMEM;
    if (!t->error) {
        for (size_t i = 0; i < cover.n; i++)
            t->chosen->points[i] = cover.points[i];
        t->chosen->cover = cover;
        t->chosen->cover.points = t->chosen->points;
        t->chosen->made = true;
    }
    free(cover.points);
}

static void calls_child_main(void *ctx)
{
    part *t = ctx;
    kvb_call_teams teams = {{NULL}};
    call_child_begin(&t->place);
    if (t->options->call) {
        kvb_point p;
        t->error = kvb_point_parse(t->subject->space, t->options->call, &p, t->why, sizeof t->why);
        if (!t->error && !t->subject->fits(t->subject, &p, t->why, sizeof t->why))
            t->error = -EINVAL;
        if (!t->error && !t->begun)
            call_make(t, 0, &p, &teams);
    } else
        calls_make(t, &teams);
    call_child_next(&t->place, 0, 0);
    kvb_call_teams_end(&teams);
}

/* ---- in the parent --------------------------------------------------------------------------------------------- */

static int part_start(part *t, void (*child)(void *))
{
    t->pid = kvb_process_start(child, t);
    return t->pid < 0 ? (int)t->pid : 0;
}

/* Waits for a part. After a call that ended its process, the part is started again behind that call. */
static int part_finish(part *t)
{
    int error = 0;
    kvb_call_verdict died;
    while (!error && !kvb_stopped && call_child_wait(t->pid, t->options->seconds, &t->place, &died)) {
        if (!t->begun) { /* in supports(), before the first call */
            kvb_list_add(died.words, sizeof died.words, ", ", "while it was asked which calls it takes");
            t->deaths = PART_DEATHS;
        }
        t->made++;
        wrong_note(t, t->place.at, &t->now, &died);
        if (++t->deaths >= PART_DEATHS || t->options->only_first)
            return 0;
        error = part_start(t, calls_child_main);
    }
    return error ? error : kvb_stopped ? -EINTR : t->error;
}

/* "softcap=30,5 out=f16": values in this state. */
static void axes_list(const kvb_space *space, const kvb_point_cover *cover, uint8_t state, char *text, size_t bytes)
{
    text[0] = '\0';
    for (uint32_t a = 0; a < space->n_axes; a++) {
        const kvb_call_axis *axis = &space->axes[a];
        bool named = false;
        for (uint32_t i = 0; axis->values[i]; i++) {
            if (cover->state[a][i] != state)
                continue;
            if (named)
                kvb_list_add(text, bytes, ",", "%s", axis->values[i]);
            else
                kvb_list_add(text, bytes, " ", "%s=%s", axis->name, axis->values[i]);
            named = true;
        }
    }
}

static void choice_fill(const kvb_calls_options *o, const kvb_call_subject *s, const choice *chosen, kvb_result *r)
{
    const kvb_point_cover *cover = &chosen->cover;
    r->axes.chosen = o->call ? 1 : cover->n + o->random;
    if (o->call)
        return;
    r->axes.values = cover->values;
    r->axes.values_of = cover->values_of;
    r->axes.pairs = cover->pairs;
    r->axes.pairs_of = cover->pairs_of;
    axes_list(s->space, cover, 0, r->axes.declined, sizeof r->axes.declined);
    axes_list(s->space, cover, 1, r->axes.uncovered, sizeof r->axes.uncovered);
}

static void result_fill(const kvb_calls_options *o, const kvb_call_subject *s, part *parts, uint32_t n, kvb_result *r)
{
    part *first = NULL;
    uint64_t wrong = 0, deaths = 0;
    char text[KVB_CALL_TEXT];
    r->status = KVB_STATUS_PASS;
    r->rho = 0;
    for (uint32_t i = 0; i < n; i++) {
        part *t = &parts[i];
        r->axes.calls += t->made;
        r->axes.silent += t->silent;
        r->axes.exact += t->exact;
        r->same.calls += t->again;
        for (uint32_t k = 0; k < KVB_SAME_KINDS; k++)
            r->same.by[k] = fmax(r->same.by[k], t->same[k]);
        r->error.checked_rows += t->judged;
        r->error.total_rows += t->rows;
        r->error.looked.scanned += t->rows;
        r->error.looked.opinion += t->judged;
        r->rho = fmax(r->rho, t->rho);
        wrong += t->wrong;
        deaths += t->deaths >= PART_DEATHS;
        if (!first || t->first < first->first)
            first = t;
    }
    if (o->call || parts->chosen->made)
        choice_fill(o, s, parts->chosen, r);
    r->axes.wrong = wrong;
    if (r->axes.calls == 0 && !wrong) {
        r->status = KVB_STATUS_SKIP;
        snprintf(r->reason, sizeof r->reason, "%s takes no call unchanged: every format or mask would be turned",
                 s->kernel->name);
        r->rho = NAN;
        return;
    }
    if (!wrong)
        return;
    if (!o->as_found && (first->deaths < PART_DEATHS || first->begun))
        point_shrink(o, s, &first->first_point, &first->verdict);
    kvb_point_text(s->space, &first->first_point, text);
    if (o->found)
        snprintf(o->found, KVB_CALL_TEXT, "%s", text);
    r->status = first->verdict.check == KVB_CHECK_CRASH     ? KVB_STATUS_CRASH
                : first->verdict.check == KVB_CHECK_TIMEOUT ? KVB_STATUS_TIMEOUT
                                                            : KVB_STATUS_FAIL;
    r->check = first->verdict.check;
    snprintf(r->reason, sizeof r->reason, "%.560s: %s", *text ? text : "the simplest call", first->verdict.words);
    if (!o->only_first)
        kvb_list_add(r->reason, sizeof r->reason, "; ", "%" PRIu64 " of %" PRIu64 " calls are wrong%s", wrong,
                     r->axes.calls, deaths == n ? ", the rest is left out after three that ended their process" : "");
    if (!*text) /* --call needs a word */
        snprintf(text, sizeof text, "%s=%s", s->space->axes[0].name, s->space->axes[0].values[0]);
    if (*o->command)
        snprintf(r->replay, sizeof r->replay, "%s --call '%s'", o->command, text);
}

/* Starts children of the first n parts and waits for them. */
static int parts_run(part *parts, uint32_t n, void (*child)(void *), char *why, size_t why_bytes)
{
    uint32_t begun = 0;
    int error = 0;
    for (; begun < n && !error; begun += !error)
        error = part_start(&parts[begun], child);
    for (uint32_t i = 0; i < begun; i++) {
        const int ended = part_finish(&parts[i]);
        if (ended && !error) {
            error = ended;
            snprintf(why, why_bytes, "%s", parts[i].why);
        }
    }
    return error;
}

int kvb_calls_judge(const kvb_calls_options *o, const kvb_call_subject *s, kvb_result *result, char *why,
                    size_t why_bytes)
{
    typedef struct sharing {
        choice chosen;
        part parts[];
    } sharing; /* memory that children share with their parent */
    const uint32_t n = o->call || o->jobs == 0 ? 1 : o->jobs;
    const size_t bytes = sizeof(sharing) + n * sizeof(part);
    sharing *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (x == MAP_FAILED)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        x->parts[i] =
            (part){.options = o, .subject = s, .chosen = &x->chosen, .index = i, .of = n, .first = UINT64_MAX};
        for (uint32_t k = 0; k < KVB_SAME_KINDS; k++)
            x->parts[i].same[k] = NAN;
    }
    kvb_tall_prepare();
    int error = o->call ? 0 : parts_run(x->parts, 1, choice_child_main, why, why_bytes);
    if (!error && (o->call || x->chosen.made))
        error = parts_run(x->parts, n, calls_child_main, why, why_bytes);
    if (!error)
        result_fill(o, s, x->parts, n, result);
    munmap(x, bytes);
    return error;
}
