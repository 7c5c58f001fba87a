/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: who is started dies with who started it, also when it was stopped in the moment of its start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/replay/child.h"

static void waits(void *ctx)
{
    (void)ctx;
    for (;;)
        pause();
}

/* Starts a child, stops it, tells its pid and is killed. */
static void starts_and_dies(int told)
{
    pid_t pid = kvb_process_start(waits, NULL);
    kill(pid, SIGSTOP);
    if (write(told, &pid, sizeof pid) != sizeof pid)
        _exit(1);
    raise(SIGKILL);
}

static void stopped_dies_too(void **state)
{
    (void)state;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    for (int i = 0; i < 100; i++) {
        int told[2], status = 0;
        pid_t child = 0;
        assert_int_equal(pipe(told), 0);
        pid_t parent = fork();
        if (!parent)
            starts_and_dies(told[1]);
        assert_int_equal(read(told[0], &child, sizeof child), sizeof child);
        close(told[0]);
        close(told[1]);
        assert_true(child > 0);
        assert_int_equal(waitpid(parent, &status, 0), parent);
        assert_true(WIFSIGNALED(status));
        bool in_time = kvb_process_wait(child, 60, &status);
        assert_true(in_time);
        assert_true(WIFSIGNALED(status));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stopped_dies_too)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
