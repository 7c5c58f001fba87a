/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the progress line counts steps; the time left counts heavy steps as heavy. */
#include <signal.h>

#include "ci/tests/tests.h"
#include "harness/program.h"

typedef struct shown {
    unsigned done, total, bad, seconds, left;
    char now[32];
} shown;

static void start(void)
{
    kvb_progress_start("test", 10);
}

/* The line that is written next, after a call with stderr redirected: a terminal's line would be another. */
static shown line_after(void (*call)(void))
{
    char line[256] = "";
    shown s = {0};
    int ends[2], err = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    if (call)
        call();
    raise(SIGALRM);
    dup2(err, STDERR_FILENO);
    assert_true(read(ends[0], line, sizeof line - 1) > 0);
    close(ends[0]);
    close(ends[1]);
    close(err);
    if (sscanf(line, "kvbench test: [%u/%u] %u not passed, %u s, about %u s left: %31[^\n]", &s.done, &s.total, &s.bad,
               &s.seconds, &s.left, s.now) < 5 &&
        strcmp(line, "kvbench test: [0/10] 0 s\n") != 0)
        fail_msg("%s", line);
    return s;
}

TEST(heavy_steps_count_more)
{
    setenv("KVB_PROGRESS", "1000", 1); /* no line by itself */
    assert_int_equal(line_after(start).total, 10);
    kvb_progress_expect(2);
    kvb_progress_step(true);
    kvb_progress_step(false);
    usleep(20000);
    kvb_progress_now("part %d", 7);
    shown s = line_after(NULL);
    assert_true(s.done == 2 && s.total == 12 && s.bad == 1 && strcmp(s.now, "part 7") == 0);
    assert_in_range(s.left, 5 * s.seconds, 5 * s.seconds + 5);
    kvb_progress_weigh(3, 1000);
    assert_in_range(line_after(NULL).left, 30, UINT32_MAX); /* 2 are done, 3007 are left: 1503 times 20 ms and more */
    for (int i = 0; i < 9; i++)
        kvb_progress_step(true);
    s = line_after(NULL); /* 2009 are done, 1000 are left */
    assert_true(s.done == 11 && s.left <= s.seconds);
    kvb_progress_end();
}
