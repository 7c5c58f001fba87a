/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the first signal asks and ends waiting, one that comes together with it is the same, a later one ends the
 * program as it would have without; who ignores signals goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/interrupt.h"

static void second_ends(void)
{
    kvb_stop_catch();
    raise(SIGTERM);
    if (kvb_stopped != SIGTERM || kvb_wait_readable(-1, 1e6))
        _exit(1);
    nanosleep(&(struct timespec){.tv_nsec = (long)(1.5e9 * KVB_ASKED_ONCE)}, NULL);
    raise(SIGTERM);
}

static void both_are_one(void)
{
    kvb_stop_catch();
    raise(SIGTERM);
    raise(SIGTERM);
    _exit(kvb_stopped == SIGTERM ? 7 : 1);
}

static void asked_and_dies(void)
{
    kvb_stop_catch();
    raise(SIGINT);
    kvb_stop_die();
}

static void ignored_before(void)
{
    signal(SIGHUP, SIG_IGN);
    kvb_stop_catch();
    raise(SIGHUP);
    _exit(kvb_stopped ? 1 : 7);
}

static int status_of(void (*body)(void))
{
    int status = 0;
    pid_t pid = fork();
    if (!pid) {
        body();
        _exit(2);
    }
    waitpid(pid, &status, 0);
    return status;
}

static void signals_stop(void **state)
{
    (void)state;
    int second = status_of(second_ends), first = status_of(asked_and_dies), ignored = status_of(ignored_before);
    int both = status_of(both_are_one);
    assert_true(WIFSIGNALED(second) && WTERMSIG(second) == SIGTERM);
    assert_true(WIFSIGNALED(first) && WTERMSIG(first) == SIGINT);
    assert_int_equal(WEXITSTATUS(ignored), 7);
    assert_true(WIFEXITED(both) && WEXITSTATUS(both) == 7);
}

static void waiting_ends(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_false(kvb_wait_readable(ends[0], 0));
    assert_false(kvb_wait_readable(ends[0], 0.01));
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_true(kvb_wait_readable(ends[0], 0));
    assert_true(kvb_wait_readable(ends[0], -1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(signals_stop), cmocka_unit_test(waiting_ends)};
    return cmocka_run_group_tests_name("interrupt", tests, NULL, NULL);
}
