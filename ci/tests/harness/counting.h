/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of counters share: work that counts, and processes of their own to do it in. */
#ifndef KVB_TEST_COUNTING_H
#define KVB_TEST_COUNTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/counters/counters.h"

/* NULL: the result has no counter of that name. */
static inline const kvb_counter *find(const kvb_result *r, const char *name)
{
    for (uint32_t i = 0; i < r->n_counters; i++)
        if (!strcmp(r->counters[i].name, name))
            return &r->counters[i];
    return NULL;
}

/* So long on the CPU. */
static inline void milliseconds_spin(double ms)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    double end = 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec + ms;
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    while (1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec < end);
}

/* A few pages of memory, the number behind n, taken and touched. */
static inline void *pages_touch(void *n)
{
    size_t bytes = *(size_t *)n * 4096;
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    madvise(at, bytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < bytes; i += 4096)
        at[i] = 1;
    munmap(at, bytes);
    return NULL;
}

/* What body returns in a process of its own. */
static inline int forked(int (*body)(void))
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid)
        _exit(body());
    assert_true(waitpid(pid, &status, 0) == pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#endif
