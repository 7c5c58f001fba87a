/* SPDX-License-Identifier: Apache-2.0 */
/* The progress line. It is written by a signal handler: by hand, since printf may not be called there. */
#include "harness/progress.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

#include "harness/rounds.h"

#define USUAL_SECONDS 10 /* between lines where stderr is no terminal */

static struct {
    const char *command;
    size_t done, total, bad;
    double started, since; /* seconds: the whole, and what is done now */
    bool terminal;
    size_t columns; /* of it */
    char now[128];
} progress;

typedef struct line {
    char text[256];
    size_t used;
} line;

static void text_put(line *l, const char *text)
{
    while (*text && l->used < sizeof l->text - 1)
        l->text[l->used++] = *text++;
}

static void number_put(line *l, double number)
{
    char digits[24], *at = digits + sizeof digits - 1;
    unsigned long long n = number > 0 ? (unsigned long long)number : 0;
    *at = '\0';
    do
        *--at = (char)('0' + n % 10);
    while (n /= 10);
    text_put(l, at);
}

/* Puts what is there: "text NUMBER text". */
static void count_put(line *l, const char *before, double number, const char *after)
{
    text_put(l, before);
    number_put(l, number);
    text_put(l, after);
}

static void progress_show(void)
{
    double now = kvb_now_seconds(), passed = now - progress.started, left = (double)(progress.total - progress.done);
    line l = {.used = 0};
    text_put(&l, progress.terminal ? "\r\033[K" : "kvbench ");
    text_put(&l, progress.terminal ? "" : progress.command);
    text_put(&l, progress.terminal ? "" : ": ");
    if (progress.total) {
        count_put(&l, "[", (double)progress.done, "/");
        count_put(&l, "", (double)progress.total, "] ");
    }
    if (progress.bad)
        count_put(&l, "", (double)progress.bad, " not passed, ");
    count_put(&l, "", passed, " s");
    if (progress.done)
        count_put(&l, ", about ", passed / (double)progress.done * left, " s left");
    if (*progress.now) {
        text_put(&l, ": ");
        text_put(&l, progress.now);
    }
    if (now - progress.since >= 10)
        count_put(&l, ", for ", now - progress.since, " s");
    if (progress.terminal && l.used > progress.columns + 3) /* a line that wraps could not be wiped; 3: of "\033[K" */
        l.used = progress.columns + 3;
    if (!progress.terminal)
        text_put(&l, "\n");
    if (write(STDERR_FILENO, l.text, l.used) < 0)
        return; /* whoever cannot be told is not */
}

static void on_alarm(int number)
{
    (void)number;
    progress_show();
}

static void timer_set(long seconds)
{
    struct itimerval every = {{seconds, 0}, {seconds, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
}

void kvb_progress_start(const char *command, size_t total)
{
    const char *asked = getenv("KVB_PROGRESS");
    struct sigaction show = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    timer_set(0);
    progress.command = command;
    progress.done = progress.bad = 0;
    progress.total = total;
    progress.started = progress.since = kvb_now_seconds();
    struct winsize size = {.ws_col = 0};
    progress.terminal = isatty(STDERR_FILENO);
    progress.columns = !ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col ? size.ws_col : 80;
    sigaction(SIGALRM, &show, NULL);
    timer_set(progress.terminal ? 1 : asked ? atol(asked) : USUAL_SECONDS);
}

/* Alone with the progress: the line is not shown half changed. */
static void alarm_hold(bool hold)
{
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &alarm, NULL);
}

void kvb_progress_expect(size_t more)
{
    progress.total += more;
}

void kvb_progress_now(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    alarm_hold(true);
    vsnprintf(progress.now, sizeof progress.now, format, args);
    progress.since = kvb_now_seconds();
    alarm_hold(false);
    va_end(args);
    if (progress.terminal)
        progress_show();
}

void kvb_progress_step(bool good)
{
    progress.done++;
    progress.bad += !good;
}

void kvb_progress_end(void)
{
    timer_set(0);
    *progress.now = '\0';
    if (progress.terminal)
        fputs("\r\033[K", stderr);
    progress.terminal = false;
}

void kvb_progress_note(const char *text)
{
    const char *asked = getenv("KVB_PROGRESS");
    if (asked && !atol(asked))
        return;
    fprintf(stderr, "%skvbench %s: note: %s\n", progress.terminal ? "\r\033[K" : "", progress.command, text);
}

double kvb_progress_seconds(void)
{
    return kvb_now_seconds() - progress.started;
}
