/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of the build, the search for its files, signals that stop the program, and its progress line. */
#include "harness/program.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

#include "harness/rounds.h"
#include "version-facts.h"

const char kvb_version[] = KVB_FACT_VERSION;
const char kvb_build_commit[] = KVB_FACT_COMMIT;
#ifdef __clang__
const char kvb_compiler[] = __VERSION__;
#else
const char kvb_compiler[] = "gcc " __VERSION__;
#endif
const char kvb_flags[] = KVB_FACT_FLAGS;

char *kvb_folder_find(const char *variable, const char *installed, const char *source)
{
    const char *const places[] = {installed, source}, *environment = getenv(variable);
    char program[4096];
    if (environment)
        return strdup(environment);
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    for (char *slash = strrchr(program, '/'); slash; slash = strrchr(program, '/')) {
        *slash = '\0';
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            char *folder = NULL;
            if (asprintf(&folder, "%s/%s", program, places[i]) < 0)
                return NULL;
            if (!access(folder, R_OK))
                return folder;
            free(folder);
        }
    }
    return strdup(source);
}

/* ---- signals that ask to stop, and waits that they end ---- */

volatile sig_atomic_t kvb_stopped;

static double asked_at; /* time of the first one, in seconds */

static void stop_ask(int number)
{
    if (!kvb_stopped) {
        asked_at = kvb_now_seconds();
        kvb_stopped = number;
    } else if (kvb_now_seconds() - asked_at > KVB_ASKED_ONCE) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

void kvb_stop_catch(void)
{
    static const int asking[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction ask = {.sa_handler = stop_ask}; /* waiting is interrupted, not restarted */
    for (size_t i = 0; i < sizeof asking / sizeof *asking; i++) {
        struct sigaction before;
        if (!sigaction(asking[i], NULL, &before) && before.sa_handler != SIG_IGN) /* nohup ignores SIGHUP: kept */
            sigaction(asking[i], &ask, NULL);
    }
}

void kvb_stop_die(void)
{
    signal(kvb_stopped, SIG_DFL);
    raise(kvb_stopped);
}

bool kvb_wait_readable(int fd, double seconds)
{
    double deadline = seconds < 0 ? INFINITY : kvb_now_seconds() + seconds;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int ready = 0;
    while (!kvb_stopped && ready <= 0) {
        double left = fmax(0, deadline - kvb_now_seconds());
        ready = poll(&p, 1, (int)ceil(1000 * fmin(left, KVB_LONGEST_WAIT)));
        if (ready < 0 && errno != EINTR)
            return true; /* the caller's read() will fail with the cause */
        if (ready <= 0 && left <= 0)
            break;
    }
    return ready > 0;
}

/* ---- the progress line: a signal handler writes it, which must not call printf ---- */

#define USUAL_SECONDS 10 /* between lines if stderr is no terminal */

static struct {
    const char *command;
    size_t done, total, bad, heavy; /* heavy: the number of last steps that count as `each` others */
    double each;
    double started, since; /* times, in seconds: of kvb_progress_start, and of the current text */
    bool terminal;
    size_t columns; /* of the terminal */
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

/* Puts "text NUMBER text". */
static void count_put(line *l, const char *before, double number, const char *after)
{
    text_put(l, before);
    number_put(l, number);
    text_put(l, after);
}

/* What the first n take, in units of an ordinary one. */
static double work_of(size_t n)
{
    const size_t light = progress.total - progress.heavy;
    return n <= light ? (double)n : (double)light + (double)(n - light) * progress.each;
}

static void progress_show(void)
{
    double now = kvb_now_seconds(), passed = now - progress.started, done = work_of(progress.done);
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
        count_put(&l, ", about ", passed / done * (work_of(progress.total) - done), " s left");
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
        return; /* a lost line does not matter */
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
    progress.done = progress.bad = progress.heavy = 0;
    progress.total = total;
    progress.started = progress.since = kvb_now_seconds();
    struct winsize size = {.ws_col = 0};
    progress.terminal = isatty(STDERR_FILENO);
    progress.columns = !ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col ? size.ws_col : 80;
    sigaction(SIGALRM, &show, NULL);
    timer_set(progress.terminal ? 1 : asked ? atol(asked) : USUAL_SECONDS);
}

/* Holds back the timer's signal, so that no half-changed line is shown; or lets it through again. */
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

void kvb_progress_weigh(size_t n, double each)
{
    progress.each = each;
    progress.heavy = n < progress.total ? n : progress.total;
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
