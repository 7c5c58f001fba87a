/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that compute what is right and do something else besides. */
#include "harness/faults/fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t out_bytes(const kvb_attend *x)
{
    size_t element = x->problem.out_elem == KVB_F32 ? 4 : 2;
    return (size_t)x->problem.n_tok * x->problem.n_heads * x->problem.v_dim * element;
}

static int write_past_end(const kvb_attend *x)
{
    *(volatile char *)((char *)x->out + out_bytes(x)) = 1;
    return 0;
}

static int write_before_begin(const kvb_attend *x)
{
    *(volatile char *)((char *)x->out - 1) = 1;
    return 0;
}

static int write_past_lse(const kvb_attend *x)
{
    volatile float *lse = x->lse;
    size_t n = (size_t)x->problem.n_tok * x->problem.n_heads;
    if (lse && n % 16) /* else the guard page follows at once */
        lse[n] = 1;
    return 0;
}

static int write_past_scratch(const kvb_attend *x)
{
    size_t bytes =
        kvb_fault_honest.kernel->scratch_bytes ? kvb_fault_honest.kernel->scratch_bytes(&x->problem, x->team->n) : 0;
    if (x->scratch)
        *(volatile char *)((char *)x->scratch + bytes) = 1;
    return 0;
}

/* An honest attend() is handed memory that may be written to: the compiler is told nothing else. */
static int write_to_q(const kvb_attend *x)
{
    *(volatile float *)(uintptr_t)x->q += 1;
    return 0;
}

static int write_to_k(const kvb_attend *x)
{
    volatile char *k = (volatile char *)(uintptr_t)x->k.base;
    *k = (char)~*k;
    return 0;
}

static int read_past_v(const kvb_attend *x)
{
    const volatile char *v = (const volatile char *)x->v.base + x->problem.n_kv_heads * x->v.head_stride;
    (void)v[1u << 20];
    return 0;
}

static int allocate(const kvb_attend *x)
{
    void *volatile block = malloc(64 + x->problem.n_tok);
    free(block);
    return 0;
}

static void *thread_nothing(void *ctx)
{
    return ctx;
}

/* Once, and for all calls to come: memory that it takes is not taken in attend(). */
static bool thread_start(const kvb_problem *problem, char *why, size_t why_bytes)
{
    static bool started;
    pthread_t id;
    if (!started && !pthread_create(&id, NULL, thread_nothing, NULL))
        pthread_detach(id);
    started = true;
    return kvb_fault_honest.kernel->supports(problem, why, why_bytes);
}

static void thread_of_its_own(kvb_kernel *wrong)
{
    wrong->supports = thread_start;
}

static int return_error(const kvb_attend *x)
{
    (void)x;
    return -EINVAL;
}

static int return_count(const kvb_attend *x)
{
    return (int)x->problem.n_tok;
}

static int leave(const kvb_attend *x)
{
    (void)x;
    _exit(0);
}

static int give_up(const kvb_attend *x)
{
    (void)x;
    abort();
}

static int follow_null(const kvb_attend *x)
{
    static const volatile int *volatile nowhere;
    (void)x;
    return *nowhere;
}

static int hang(const kvb_attend *x)
{
    while (x)
        pause();
    return 0;
}

static size_t half_bytes(const kvb_problem *problem, uint32_t n_threads)
{
    size_t bytes = kvb_fault_honest.kernel->scratch_bytes(problem, n_threads);
    return bytes / 2;
}

static void scratch_half(kvb_kernel *wrong)
{
    if (wrong->scratch_bytes)
        wrong->scratch_bytes = half_bytes;
}

const kvb_fault kvb_conduct_faults[] = {
    {"writes-past-out", "a byte is written past the end of out", KVB_CHECK_CRASH, "plain-decode seq f32 flash",
     .after = write_past_end},
    {"writes-before-out", "a byte is written before out", KVB_CHECK_CRASH, "plain-decode seq f32 flash",
     .after = write_before_begin},
    {"writes-past-scratch", "a byte is written past the scratch", KVB_CHECK_CRASH, "plain-decode seq f32 flash",
     .after = write_past_scratch},
    {"writes-past-lse", "a float is written past the end of lse", KVB_CHECK_MARGINS, "plain-decode seq f32 flash",
     .after = write_past_lse},
    {"scratch-half", "half of the scratch that is used is asked for", KVB_CHECK_CRASH, "plain-decode seq f32 flash",
     .kernel = scratch_half},
    {"writes-q", "q is written to", KVB_CHECK_INPUTS, "plain-decode seq f32 flash", .after = write_to_q},
    {"writes-k", "K is written to", KVB_CHECK_CRASH, "plain-decode seq f32 flash, agent-fork slab f16 openblas",
     .after = write_to_k},
    {"reads-past-v", "what lies behind V is read", KVB_CHECK_CRASH, "plain-decode seq f32 flash", .after = read_past_v},
    {"allocates", "attend() allocates", KVB_CHECK_ALLOCATIONS,
     "plain-decode seq f32 flash, plain-decode seq f32 openblas", .after = allocate},
    {"starts-thread", "supports() starts a thread, which works beside the team's", KVB_CHECK_ALLOCATIONS,
     "plain-decode seq f32 flash, plain-decode seq f32 reference", .kernel = thread_of_its_own},
    {"returns-error", "an error is returned", KVB_CHECK_RETURN, "plain-decode seq f32 flash", .after = return_error},
    {"returns-count", "a count is returned where 0 is due", KVB_CHECK_RETURN, "plain-decode seq f32 flash",
     .after = return_count},
    {"exits", "the process ends, as if all were well", KVB_CHECK_CRASH, "plain-decode seq f32 flash", .after = leave},
    {"aborts", "abort() is called", KVB_CHECK_CRASH, "plain-decode seq f32 flash", .after = give_up},
    {"follows-null", "a null pointer is followed", KVB_CHECK_CRASH, "plain-decode seq f32 flash", .after = follow_null},
    {"hangs", "attend() does not return", KVB_CHECK_TIMEOUT, "plain-decode seq f32 flash", .after = hang},
    {.name = NULL},
};
