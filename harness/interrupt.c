/* SPDX-License-Identifier: Apache-2.0 */
/* Signal handlers, and waiting that they end. */
#include "harness/interrupt.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stddef.h>

#include "harness/rounds.h"

volatile sig_atomic_t kvb_stopped;

static double asked; /* when, in seconds */

static void stop_ask(int number)
{
    if (!kvb_stopped) {
        asked = kvb_now_seconds();
        kvb_stopped = number;
    } else if (kvb_now_seconds() - asked > KVB_ASKED_ONCE) {
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
        if (!sigaction(asking[i], NULL, &before) && before.sa_handler != SIG_IGN) /* nohup's wish stays */
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
            return true; /* whoever reads will see what is wrong */
        if (ready <= 0 && left <= 0)
            break;
    }
    return ready > 0;
}
