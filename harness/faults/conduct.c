/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that compute the right outputs but also do harm, leave work undone, or declare wrongly; witnesses that report
 * wrongly. */
#include "harness/faults/fault.h"
#include "kernels/convert.h"
#include "kernels/witness.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Combinations that many faults are planted in. */
#define FLASH "plain-decode seq f32 flash"
#define INT8  "plain-decode-2x128 seq q8_0 flash-int8"
#define BF16  "plain-decode seq bf16 flash-bf16"

#define BY kvb_fault_here.by

/* ---- memory, threads and the process ----------------------------------------------------------------------------- */

KVB_HOOK(write_past_end, const kvb_attend *x,
         ((volatile char *)x->out)[(size_t)x->problem.n_tok * x->problem.n_heads * x->problem.v_dim *
                                   kvb_elem_bytes(x->problem.out_elem)] = 1)
KVB_HOOK(write_before_begin, const kvb_attend *x, *((volatile char *)x->out - 1) = 1)

static void write_past_lse(const kvb_attend *x)
{
    volatile float *lse = x->lse;
    const size_t n = (size_t)x->problem.n_tok * x->problem.n_heads;
    if (lse && n % 16) /* else the guard page follows at once */
        lse[n] = 1;
}

static void write_past_scratch(const kvb_attend *x)
{
    const kvb_kernel *honest = kvb_fault_here.kernel;
    if (x->scratch)
        ((volatile char *)x->scratch)[honest->scratch_bytes ? honest->scratch_bytes(&x->problem, x->team->n) : 0] = 1;
}

/* The memory is writable, although the call is const. */
KVB_HOOK(write_to_q, const kvb_attend *x, *(volatile float *)(uintptr_t)x->q += 1)
KVB_HOOK(write_to_k, const kvb_attend *x, *(volatile unsigned char *)(uintptr_t)x->k.base ^= 0xff)
KVB_HOOK(read_past_v, const kvb_attend *x,
         (void)((const volatile char *)x->v.base)[x->problem.n_kv_heads * x->v.head_stride + (1u << 20)])

static void allocate(const kvb_attend *x)
{
    void *volatile block = malloc(64 + x->problem.n_tok);
    free(block);
}

static void *thread_nothing(void *ctx)
{
    return ctx;
}

/* Starts a thread once, outside attend(): its memory does not count as allocated there. */
static void thread_start(void)
{
    static bool started;
    pthread_t id;
    if (!started && !pthread_create(&id, NULL, thread_nothing, NULL))
        pthread_detach(id);
    started = true;
}

KVB_HOOK(leave, const kvb_attend *x, _exit(0))
KVB_HOOK(give_up, const kvb_attend *x, abort())

static void follow_null(const kvb_attend *x)
{
    static const volatile int *volatile nowhere;
    (void)*nowhere;
}

static void hang(const kvb_attend *x)
{
    while (x)
        pause();
}

/* ---- the team ---------------------------------------------------------------------------------------------------- */

static struct {
    const kvb_team *team;
    void (*part)(void *ctx, uint32_t i, uint32_t n);
    void *ctx;
} work;

static void part_but_last(void *ctx, uint32_t i, uint32_t n)
{
    if (i + 1 < n)
        work.part(work.ctx, i, n);
}

static void run_but_last(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    work.part = part;
    work.ctx = ctx;
    work.team->run(work.team, part_but_last, NULL);
}

static void last_thread_idle(kvb_attend *x)
{
    static kvb_team team;
    work.team = x->team;
    team = (kvb_team){.n = x->team->n, .run = run_but_last};
    x->team = &team;
}

KVB_HOOK_IF(bit_by_team, const kvb_attend *x, x->problem.out_elem == KVB_F32 && x->team->n > 1,
            *(uint32_t *)x->out ^= 1)

/* ---- declarations ------------------------------------------------------------------------------------------------ */

KVB_HOOK(exact, kvb_arithmetic *a, a->exp_error = a->dot_chain = a->cell_chain = a->rescales = 0)
KVB_HOOK(exact_query, kvb_arithmetic *a, a->query = (kvb_rounding){.step = 0})
KVB_HOOK(exact_sums, kvb_arithmetic *a, a->sums = (kvb_rounding){.step = 0})

/* ---- the declared q ---------------------------------------------------------------------------------------------- */

static void round_too_far(const kvb_problem *problem, const float *q, double *rounded)
{
    rounded[0] = 1.5 * (double)q[0] + 1;
}

static void round_in_other_order(const kvb_problem *problem, const float *q, double *rounded)
{
    const double first = rounded[0];
    rounded[0] = rounded[1];
    rounded[1] = first;
}

static void round_but_one(const kvb_problem *problem, const float *q, double *rounded)
{
    rounded[0] = (double)q[0];
}

/* Rounds q to steps of by * (its largest element), as the fault declares. */
static float coarse(float value, float largest)
{
    const double step = BY * (double)largest;
    return (float)(step > 0 ? step * round((double)value / step) : 0);
}

static void round_coarse(const kvb_problem *problem, const float *q, double *rounded)
{
    float largest = 0;
    for (uint32_t d = 0; d < problem->k_dim; d++)
        largest = fmaxf(largest, fabsf(q[d]));
    for (uint32_t d = 0; d < problem->k_dim; d++)
        rounded[d] = (double)coarse(q[d], largest);
}

/* ---- witnesses --------------------------------------------------------------------------------------------------- */

/* The number of cells that the last query saw at the last KV head; below, the cells. */
static uint32_t *last_count(const kvb_attend *x)
{
    return (uint32_t *)(uintptr_t)kvb_witness_count(x->scratch, &x->problem, x->problem.n_tok - 1,
                                                    x->problem.n_kv_heads - 1);
}

static uint32_t *last_seen(const kvb_attend *x)
{
    return (uint32_t *)(uintptr_t)kvb_witness_seen(x->scratch, &x->problem, x->problem.n_tok - 1,
                                                   x->problem.n_kv_heads - 1);
}

KVB_HOOK(one_untold, const kvb_attend *x, --*last_count(x))

static void first_told_twice(const kvb_attend *x)
{
    uint32_t *seen = last_seen(x), n = *last_count(x);
    seen[2 * n - 2] = seen[0];
    seen[2 * n - 1] = seen[1];
}

KVB_HOOK(k_told_as_v, const kvb_attend *x, last_seen(x)[1] = last_seen(x)[0])

const kvb_fault kvb_conduct_faults[] = {
    {"writes-past-out", "a byte is written past the end of out", KVB_CHECK_CRASH, FLASH,
     .kernel.after = write_past_end},
    {"writes-before-out", "a byte is written before out", KVB_CHECK_CRASH, FLASH, .kernel.after = write_before_begin},
    {"writes-past-scratch", "a byte is written past the scratch", KVB_CHECK_CRASH, FLASH,
     .kernel.after = write_past_scratch},
    {"writes-past-lse", "a float is written past the end of lse", KVB_CHECK_MARGINS, FLASH,
     .kernel.after = write_past_lse},
    {"scratch-half", "half of the scratch that is used is asked for", KVB_CHECK_CRASH, FLASH,
     .kernel.scratch_halvings = 1},
    {"writes-q", "q is written to", KVB_CHECK_INPUTS, FLASH, .kernel.after = write_to_q},
    {"writes-k", "K is written to", KVB_CHECK_CRASH, FLASH ", agent-fork slab f16 openblas",
     .kernel.after = write_to_k},
    {"reads-past-v", "what lies behind V is read", KVB_CHECK_CRASH, FLASH, .kernel.after = read_past_v},
    {"allocates", "attend() allocates", KVB_CHECK_ALLOCATIONS, FLASH ", plain-decode seq f32 openblas",
     .kernel.after = allocate},
    {"starts-thread", "supports() starts a thread, which works beside the team's", KVB_CHECK_ALLOCATIONS,
     FLASH ", plain-decode seq f32 reference", .kernel.supports = thread_start},
    {"returns-error", "an error is returned", KVB_CHECK_RETURN, FLASH, .kernel.returns = -EINVAL},
    {"returns-count", "a count is returned where 0 is due", KVB_CHECK_RETURN, FLASH, .kernel.returns = 1},
    {"exits", "the process ends, as if all were well", KVB_CHECK_CRASH, FLASH, .kernel.after = leave},
    {"aborts", "abort() is called", KVB_CHECK_CRASH, FLASH, .kernel.after = give_up},
    {"follows-null", "a null pointer is followed", KVB_CHECK_CRASH, FLASH, .kernel.after = follow_null},
    {"hangs", "attend() does not return", KVB_CHECK_TIMEOUT, FLASH, .kernel.after = hang},
    {"declares-exact", "no rounding is declared", KVB_CHECK_BOUND, FLASH ", plain-decode seq f32 reference",
     .kernel.declares = exact},
    {"query-undeclared", "that q is rounded is not declared", KVB_CHECK_DECLARATION, INT8 ", " BF16,
     .kernel.declares = exact_query},
    {"sums-undeclared", "that weights are rounded is not declared", KVB_CHECK_BOUND, INT8 ", " BF16,
     .kernel.declares = exact_sums},
    {"declares-endless-steps", "weights are said to be rounded to steps of 1e9", KVB_CHECK_DECLARATION,
     "plain-decode seq f32 reference", .by = 1e9, .kernel.declares_by = offsetof(kvb_arithmetic, sums.step)},
    {"declares-wide-steps", "weights are said to be rounded to steps of 0.9", KVB_CHECK_DECLARATION,
     INT8 ", batched-multi-seq seq f32 flash", .by = 0.9, .kernel.declares_by = offsetof(kvb_arithmetic, sums.step)},
    {"declares-wide-floor", "sums are said to be off by 10 times the largest weight", KVB_CHECK_DECLARATION, BF16,
     .by = 10, .kernel.declares_by = offsetof(kvb_arithmetic, sums.floor)},
    {"declares-wide-exp-floor", "all weights are said to be 0, perhaps", KVB_CHECK_DECLARATION, FLASH, .by = 1,
     .kernel.declares_by = offsetof(kvb_arithmetic, exp_floor)},
    {"declares-wide-query-steps", "q is said to be rounded to steps of half of its largest element",
     KVB_CHECK_DECLARATION, "plain-decode seq f32 reference, eagle-tree tree f16 openblas", .by = 0.5,
     .kernel.declares_by = offsetof(kvb_arithmetic, query.step)},
    {"rounds-otherwise", "q is said to be rounded further than is declared", KVB_CHECK_DECLARATION, INT8 ", " FLASH,
     .kernel.rounds = round_too_far},
    {"rounds-in-other-order", "the rounded q is said with two channels swapped", KVB_CHECK_DECLARATION, INT8 ", " BF16,
     .kernel.rounds = round_in_other_order},
    {"rounds-one-more", "one channel of q is rounded and said not to be", KVB_CHECK_BOUND, INT8 ", " BF16,
     .kernel.rounds = round_but_one},
    {"rounds-to-nothing", "q is rounded to steps of 0.9 of its largest element, as is declared and told",
     KVB_CHECK_DECLARATION, "plain-decode seq f32 reference, batched-multi-seq seq f32 flash, calls none any flash",
     .by = 0.9, .kernel.declares_by = offsetof(kvb_arithmetic, query.step), .kernel.rounds = round_coarse,
     .kernel.q_element = coarse},
    {"thread-idle", "the last thread does no work", KVB_CHECK_WRITTEN,
     "batched-multi-seq seq f32 flash 2, eagle-tree tree f16 openblas 2, plain-decode seq f32 reference 2",
     .kernel.before = last_thread_idle},
    {"bit-by-team", "the last bit of an output depends on the number of threads", KVB_CHECK_DETERMINISTIC,
     "plain-decode seq f32 flash deterministic, eagle-tree tree f16 openblas 2 deterministic",
     .kernel.after = bit_by_team},
    {"witness-untold", "a witness does not tell one of the cells that a query saw", KVB_CHECK_WITNESS,
     "plain-decode seq f32 witness", .kernel.after = one_untold},
    {"witness-twice", "a witness tells one cell twice and another not at all", KVB_CHECK_WITNESS,
     "agent-fork seq f16 witness", .kernel.after = first_told_twice},
    {"witness-k-as-v", "a witness tells K's row for V's", KVB_CHECK_WITNESS, "plain-decode seq f32 witness",
     .kernel.after = k_told_as_v},
    {.name = NULL},
};
