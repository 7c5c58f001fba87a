/* SPDX-License-Identifier: Apache-2.0 */
/* Child processes. */
#include "harness/replay/child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/machine/team.h"

/* What parent and child share. */
typedef struct shared {
    kvb_result result;
    kvb_replay_place place;
    volatile bool done;
} shared;

static void counter_add(kvb_result *result, const char *name, double value)
{
    kvb_counter *c = &result->counters[result->n_counters++];
    snprintf(c->name, sizeof c->name, "%s", name);
    c->value = value;
}

/* What getrusage counts, between two looks. */
static void counters_report(const struct rusage *before, const struct rusage *after, kvb_result *result)
{
    const struct timeval *u0 = &before->ru_utime, *u1 = &after->ru_utime;
    const struct timeval *s0 = &before->ru_stime, *s1 = &after->ru_stime;
    result->n_counters = 0;
    counter_add(result, "user_ns", 1e9 * (double)(u1->tv_sec - u0->tv_sec) + 1e3 * (double)(u1->tv_usec - u0->tv_usec));
    counter_add(result, "system_ns",
                1e9 * (double)(s1->tv_sec - s0->tv_sec) + 1e3 * (double)(s1->tv_usec - s0->tv_usec));
    counter_add(result, "page_faults_minor", (double)(after->ru_minflt - before->ru_minflt));
    counter_add(result, "page_faults_major", (double)(after->ru_majflt - before->ru_majflt));
    counter_add(result, "switches_voluntary", (double)(after->ru_nvcsw - before->ru_nvcsw));
    counter_add(result, "switches_involuntary", (double)(after->ru_nivcsw - before->ru_nivcsw));
}

static void child_main(const kvb_child_options *options, shared *s)
{
    kvb_replay_options replay = options->replay;
    kvb_threads *threads;
    struct rusage before, after;
    int error = kvb_threads_start(options->threads, true, &threads);
    if (!error) {
        replay.team = kvb_threads_team(threads);
        getrusage(RUSAGE_SELF, &before);
        error = kvb_replay_run(&replay, &s->place, &s->result);
        getrusage(RUSAGE_SELF, &after);
        counters_report(&before, &after, &s->result);
        kvb_threads_end(threads);
    }
    if (error) {
        s->result.status = KVB_STATUS_FAIL;
        snprintf(s->result.reason, sizeof s->result.reason, "%s", strerror(-error));
    }
    s->done = true;
}

/* Waits until the child has ended or its time is up (then it is killed). Returns whether it was in time. */
static bool child_wait(pid_t pid, double seconds, int *status)
{
    int fd = seconds > 0 ? pidfd_open(pid, 0) : -1;
    bool in_time = true;
    if (fd >= 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready;
        while ((ready = poll(&p, 1, (int)(seconds * 1000))) < 0 && errno == EINTR)
            ;
        in_time = ready != 0;
        close(fd);
    }
    if (!in_time)
        kill(pid, SIGKILL);
    while (waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
    return in_time;
}

/* Status and reason of a child that did not finish. */
static void ending_report(const kvb_child_options *options, const shared *s, bool in_time, int status,
                          kvb_result *result)
{
    const kvb_replay_place *place = &s->place;
    char how[96], where[128] = "before the replay";
    if (!in_time)
        snprintf(how, sizeof how, "no end within %g s", options->seconds);
    else if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "SIG%s (%s)", sigabbrev_np(WTERMSIG(status)), strsignal(WTERMSIG(status)));
    else
        snprintf(how, sizeof how, "exit %d", WEXITSTATUS(status));
    if (place->doing)
        snprintf(where, sizeof where, "%s, line %llu, layer %u", place->doing,
                 (unsigned long long)options->replay.trace->events[place->event].line, place->layer);
    result->status = in_time ? KVB_STATUS_CRASH : KVB_STATUS_TIMEOUT;
    snprintf(result->reason, sizeof result->reason, "%s %s", how, where);
}

int kvb_child_run(const kvb_child_options *options, kvb_result *result)
{
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED)
        return -errno;
    s->result = *result;
    fflush(NULL); /* or the child's exit would write it again */
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        int error = -errno;
        munmap(s, sizeof *s);
        return error;
    }
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        if (getppid() == parent)
            child_main(options, s);
        _exit(0);
    }
    int status = 0;
    bool in_time = child_wait(pid, options->seconds, &status);
    if (in_time && s->done)
        *result = s->result;
    else
        ending_report(options, s, in_time, status, result);
    munmap(s, sizeof *s);
    return 0;
}
