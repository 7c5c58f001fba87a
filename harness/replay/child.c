/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/replay/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/rounds.h"
#include "harness/counters/counters.h"
#include "harness/program.h"
#include "harness/machine/team.h"
#include "harness/matrix/ground_truth.h"
#include "harness/replay/guard.h"
#include "harness/replay/heap_watch.h"
#include "harness/replay/kernel_io.h"
#include "harness/replay/replay.h"
#include "harness/replay/verdict.h"
#include "kernels/blas.h"
#include "kernels/kernels.h"
#include "workloads/files.h"

/* Child processes with a time limit. */

pid_t kvb_process_start(void (*main)(void *ctx), void *ctx)
{
    int bound[2]; /* the child closes it once it will die with its parent; stopped earlier, it would not die */
    char none;
    if (pipe2(bound, O_CLOEXEC) != 0)
        return -errno;
    fflush(NULL); /* else the child would write buffered output again */
    pid_t parent = getpid(), pid = fork();
    if (pid) {
        int error = errno;
        close(bound[1]);
        while (pid > 0 && read(bound[0], &none, 1) < 0 && errno == EINTR)
            ;
        close(bound[0]);
        return pid < 0 ? -error : pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(bound[0]);
    close(bound[1]);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    if (getppid() == parent)
        main(ctx);
    _exit(0);
}

bool kvb_process_ended(pid_t pid)
{
    siginfo_t end = {.si_pid = 0};
    return waitid(P_PID, (id_t)pid, &end, WEXITED | WNOHANG | WNOWAIT) < 0 || end.si_pid == pid;
}

bool kvb_process_wait(pid_t pid, double seconds, int *status)
{
    int fd = pidfd_open(pid, 0);
    bool in_time = fd < 0 || kvb_wait_readable(fd, seconds);
    if (fd >= 0)
        close(fd);
    for (double end = kvb_now_seconds() + seconds;
         fd < 0 && seconds >= 0 && in_time && !kvb_stopped && !kvb_process_ended(pid);
         in_time = kvb_now_seconds() < end)
        poll(NULL, 0, KVB_LOOK_MS);
    if (!in_time)
        kill(pid, SIGKILL);
    while (waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
    return in_time;
}

/* Work for a child, which exits with DONE after it: any other exit came from a plug-in. */
typedef struct errand {
    void (*work)(void *ctx);
    void *ctx;
} errand;

#define DONE 41 /* exit status */

static void errand_run(void *ctx)
{
    const errand *e = ctx;
    e->work(e->ctx);
    _exit(DONE);
}

int kvb_apart(void (*work)(void *ctx), void *ctx, double seconds)
{
    errand e = {work, ctx};
    int status = 0;
    pid_t pid = kvb_process_start(errand_run, &e);
    if (pid < 0)
        return (int)pid;
    bool in_time = kvb_process_wait(pid, seconds > 0 ? seconds : -1, &status);
    return in_time && WIFEXITED(status) && WEXITSTATUS(status) == DONE ? 0 : -ECHILD;
}

/* Memory that parent and child share. */
typedef struct kvb_child_shared {
    kvb_result result;
    kvb_replay_place place;
    volatile bool done;
    kvb_slot_files slots;       /* for a trace that saves: the parent removes the files of a killed child */
    char fault[KVB_GUARD_TEXT]; /* the guard's report of a fault; empty: none */
} kvb_child_shared;

static bool is_unbound(const kvb_child_options *options)
{
    return options->replay.knobs->oversubscribe || options->replay.untimed;
}

/* Says that the child is ready for its next pass (or has made its last), and waits until it is its turn. */
static bool turn_take(void *ctx)
{
    int fd = *(const int *)ctx;
    char token = 0;
    return send(fd, &token, 1, MSG_NOSIGNAL) == 1 && recv(fd, &token, 1, 0) == 1;
}

/* Judges pools by themselves; a failure goes into the result. */
static int pools_judge(const kvb_replay_options *replay, kvb_result *result)
{
    const kvb_pool_type *const pools[] = {replay->judges_k ? replay->k_pool : NULL,
                                          replay->judges_v ? replay->v_pool : NULL};
    char why[KVB_REASON];
    int error = 0;
    for (int side = 0; side < 2 && !error; side++)
        if (pools[side] && !(side && pools[1] == pools[0]))
            error = kvb_pool_alone(pools[side], result->reason, sizeof result->reason, why, sizeof why);
    result->reason[0] = '\0';
    if (error != -EILSEQ)
        return error;
    if (kvb_check_is_off(KVB_CHECK_POOL))
        return 0;
    result->check = KVB_CHECK_POOL;
    snprintf(result->reason, sizeof result->reason, "%s", why);
    return error;
}

/* Finds out whether a failed combination's cache or kernel is at fault. Replays the same cache and pools once with the
 * witness as the kernel, and adds its finding to the reason: the token that was wrongly seen or missed, or that all were
 * right. Adds nothing if a witness cannot read the pools' rows. */
static void second_look(const kvb_replay_options *failed, kvb_result *result)
{
    const kvb_model *model = &failed->trace->header.model;
    kvb_replay_options look = *failed;
    kvb_replay_place place = {0};
    kvb_own_counts counts = {0};
    kvb_values *tags = NULL;
    const float **k_amax = NULL, **v_amax = NULL;
    kvb_result found;
    char why[256], said[KVB_REASON + 32] = "";
    kvb_result_init(&found);
    if (kvb_values_open(failed->trace, "tags", 0, NULL, NULL, &tags, why, sizeof why) ||
        kvb_calibrate(model, tags, KVB_ROWS_K, failed->k_pool->format, &k_amax) ||
        kvb_calibrate(model, tags, KVB_ROWS_V, failed->v_pool->format, &v_amax))
        goto out;
    look.oracle = NULL;
    look.kernel = &kvb_kernel_witness;
    look.out_elem = KVB_F32;
    look.values = tags;
    look.k_amax = k_amax;
    look.v_amax = v_amax;
    look.untimed = true;
    look.turn = NULL;
    look.counters = NULL;
    look.timeline = NULL;
    look.counts = &counts;
    if (!kvb_replay_run(&look, &place, &found) && found.status != KVB_STATUS_SKIP)
        snprintf(said, sizeof said, "; the witness: %s",
                 found.status == KVB_STATUS_PASS ? "each query saw the right tokens" : found.reason);
    snprintf(result->where.witness, sizeof result->where.witness, "%s", *said ? strstr(said, ": ") + 2 : "");
    kvb_reason_add(said, result);
out:
    free(k_amax);
    free(v_amax);
    kvb_values_free(tags);
}

/* turns: the child's end of the socket, or -1. */
static void child_main(const kvb_child_options *options, int turns, kvb_child_shared *s)
{
    kvb_replay_options replay = options->replay;
    if (turns >= 0) {
        replay.turn = turn_take;
        replay.turn_ctx = &turns;
    }
    kvb_threads *threads;
    kvb_own_counts counts = {0};
    replay.slots = *s->slots.folder ? s->slots.folder : NULL;
    if (replay.untimed)
        (void)!nice(5); /* the parent makes what later children wait for */
    kvb_guard_install(s->fault);
    kvb_heap_watch_excuse(kvb_blas_inside());
    replay.counts = &counts;
    int error =
        options->enter ? options->enter(options->enter_ctx, &replay, s->result.reason, sizeof s->result.reason) : 0;
    error = error ? error : pools_judge(&replay, &s->result);
    if (!error && !replay.untimed)
        error = kvb_counters_open(replay.knobs->events.at, &counts, &replay.counters);
    if (!error)
        error = kvb_threads_start(options->threads, !is_unbound(options), &threads);
    if (!error) {
        replay.team = kvb_threads_team(threads);
        kvb_first_touch(options->replay.knobs->first_touch ? replay.team : NULL);
        snprintf(s->result.placement, sizeof s->result.placement,
                 "%u thread%s %s; %u NUMA node%s; memory first touched by %s", options->threads,
                 options->threads > 1 ? "s" : "", is_unbound(options) ? "unbound" : "bound to cores from 0 on (hwloc)",
                 kvb_numa_nodes(), kvb_numa_nodes() > 1 ? "s" : "",
                 options->replay.knobs->first_touch ? "the team in equal parts"
                                                    : "the thread that writes it, number 0");
        kvb_count_open();
        error = kvb_replay_run(&replay, &s->place, &s->result);
        s->done = !error; /* the result stands even if the second look crashes */
        if (!error && s->result.status == KVB_STATUS_FAIL &&
            (s->result.rho > 1 || s->result.check == KVB_CHECK_TOLERANCE))
            second_look(&replay, &s->result);
        kvb_threads_end(threads);
    }
    if (error) {
        s->result.status = KVB_STATUS_FAIL;
        if (!*s->result.reason)
            snprintf(s->result.reason, sizeof s->result.reason, "%s", strerror(-error));
    }
    kvb_counters_close(replay.counters);
    if (replay.timeline)
        fflush(replay.timeline);
    s->done = true;
}

/* Status and reason of a child that did not finish. */
static void ending_report(const kvb_child_options *options, const kvb_child_shared *s, bool in_time, int status,
                          kvb_result *result)
{
    const kvb_replay_place *place = &s->place;
    char how[96], where[256] = "before the replay";
    if (!in_time)
        snprintf(how, sizeof how, "no end within %g s", options->seconds);
    else if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "SIG%s (%s)", sigabbrev_np(WTERMSIG(status)), strsignal(WTERMSIG(status)));
    else
        snprintf(how, sizeof how, "exit %d", WEXITSTATUS(status));
    bool known = place->doing && place->event < options->replay.trace->n_events;
    if (known)
        snprintf(where, sizeof where, "%s, line %llu, layer %u", place->doing,
                 (unsigned long long)options->replay.trace->events[place->event].line, place->layer);
    else if (!place->doing && *s->result.reason)
        snprintf(where, sizeof where, "in %.*s", (int)sizeof where - 4, s->result.reason);
    result->status = in_time ? KVB_STATUS_CRASH : KVB_STATUS_TIMEOUT;
    result->check = in_time ? KVB_CHECK_CRASH : KVB_CHECK_TIMEOUT;
    snprintf(result->reason, sizeof result->reason, "%s%s%s %s", s->fault, *s->fault ? ": " : "", how, where);
    if (known)
        kvb_event_add(&options->replay.trace->events[place->event], result);
}

bool kvb_child_hung_in_kernel(const kvb_result *result)
{
    return result->status == KVB_STATUS_TIMEOUT &&
           strstr(result->reason, " in the kernel's "); /* see ending_report() */
}

/* Bytes from one child's part of the shared memory to the next: whole pages, as each is unmapped alone. */
static size_t shared_stride(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (sizeof(kvb_child_shared) + page - 1) / page * page;
}

typedef struct birth {
    const kvb_child_options *options;
    int turns;
    kvb_child_shared *shared;
} birth;

static void child_begin(void *ctx)
{
    const birth *b = ctx;
    child_main(b->options, b->turns, b->shared);
}

static int child_start(const kvb_child_options *options, bool takes_turns, kvb_child_shared *s, kvb_child *child)
{
    int ends[2] = {-1, -1};
    if (takes_turns && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return -errno;
    char why[320];
    int error = kvb_replay_saves(&options->replay) ? kvb_slot_files_open(&s->slots, why, sizeof why) : 0;
    birth b = {options, ends[1], s};
    pid_t pid = error ? error : kvb_process_start(child_begin, &b);
    error = pid < 0 ? (int)pid : 0;
    if (takes_turns)
        close(ends[1]); /* the child has the last copy: its end closes the socket */
    if (error && takes_turns)
        close(ends[0]);
    if (error)
        kvb_slot_files_close(&s->slots);
    *child = (kvb_child){options, s, pid, ends[0]};
    return error;
}

int kvb_children_start(const kvb_child_options *options, const kvb_result *results, size_t n, bool take_turns,
                       kvb_child *children)
{
    size_t stride = shared_stride();
    char *shared = mmap(NULL, n * stride, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return -errno;
    size_t made = 0;
    int error = 0;
    for (; made < n && !error; made += !error) {
        kvb_child_shared *s = (kvb_child_shared *)(void *)(shared + made * stride);
        s->result = results[made];
        error = child_start(&options[made], take_turns, s, &children[made]);
    }
    for (size_t i = 0; i < made && error; i++) {
        kvb_result lost;
        kvb_child_end(&children[i], 0, &lost);
    }
    if (error)
        munmap(shared + made * stride, (n - made) * stride);
    return error;
}

void kvb_child_end(kvb_child *child, double seconds, kvb_result *result)
{
    kvb_child_shared *s = child->shared;
    int status = 0;
    if (child->turns >= 0) {
        shutdown(child->turns, SHUT_RDWR); /* no more turns; other children hold this end too */
        close(child->turns);
    }
    bool in_time = kvb_process_wait(child->pid, seconds, &status);
    if (s->done)
        *result = s->result;
    else
        ending_report(child->options, s, in_time, status, result);
    kvb_slot_files_close(&s->slots);
    kvb_count_read(child->pid, result);
    munmap(s, shared_stride());
}

int kvb_child_run(const kvb_child_options *options, kvb_result *result)
{
    kvb_child child;
    int error = kvb_children_start(options, result, 1, false, &child);
    if (!error)
        kvb_child_end(&child, options->seconds > 0 ? options->seconds : -1, result);
    return error;
}
