/* SPDX-License-Identifier: Apache-2.0 */
/* Child processes with a time limit. */
#include "harness/replay/apart.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/clock.h"
#include "harness/interrupt.h"

pid_t kvb_process_start(void (*main)(void *ctx), void *ctx)
{
    int bound[2]; /* the child closes it when it will die with its parent: stopped earlier, it would not */
    char none;
    if (pipe2(bound, O_CLOEXEC) != 0)
        return -errno;
    fflush(NULL); /* or the child's exit would write it again */
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

/* The work, and that it was done: an exit is no end. */
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
