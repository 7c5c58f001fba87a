/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that say of themselves what is not so, or leave a part of their work undone; witnesses that report wrongly.
 */
#include "harness/faults/fault.h"

#include <errno.h>
#include <math.h>

#include "kernels/witness.h"

#define HONEST kvb_fault_honest.kernel

/* ---- what is declared -------------------------------------------------------------------------------------------- */

static void exact(const kvb_problem *problem, kvb_arithmetic *a)
{
    HONEST->arithmetic(problem, a);
    a->dot_chain = a->cell_chain = a->rescales = 0;
    a->exp_error = 0;
}

static void exact_query(const kvb_problem *problem, kvb_arithmetic *a)
{
    HONEST->arithmetic(problem, a);
    a->query = (kvb_rounding){.step = 0};
}

static void exact_sums(const kvb_problem *problem, kvb_arithmetic *a)
{
    HONEST->arithmetic(problem, a);
    a->sums = (kvb_rounding){.step = 0};
}

/* Declarations that let anything pass. */
static void endless_steps(const kvb_problem *problem, kvb_arithmetic *a)
{
    HONEST->arithmetic(problem, a);
    a->sums.step = 1e9;
}

static void wide_steps(const kvb_problem *problem, kvb_arithmetic *a)
{
    HONEST->arithmetic(problem, a);
    a->sums.step = 0.9;
}

static void wide_floor(const kvb_problem *problem, kvb_arithmetic *a)
{
    HONEST->arithmetic(problem, a);
    a->sums.floor = 10;
}

static void wide_exp_floor(const kvb_problem *problem, kvb_arithmetic *a)
{
    HONEST->arithmetic(problem, a);
    a->exp_floor = 1;
}

static void wide_query_steps(const kvb_problem *problem, kvb_arithmetic *a)
{
    HONEST->arithmetic(problem, a);
    a->query.step = 0.5;
}

static void steps_endless(kvb_kernel *wrong)
{
    wrong->arithmetic = endless_steps;
}

static void steps_wide(kvb_kernel *wrong)
{
    wrong->arithmetic = wide_steps;
}

static void floor_wide(kvb_kernel *wrong)
{
    wrong->arithmetic = wide_floor;
}

static void exp_floor_wide(kvb_kernel *wrong)
{
    wrong->arithmetic = wide_exp_floor;
}

static void query_steps_wide(kvb_kernel *wrong)
{
    wrong->arithmetic = wide_query_steps;
}

static void declares_exact(kvb_kernel *wrong)
{
    wrong->arithmetic = exact;
}

static void query_undeclared(kvb_kernel *wrong)
{
    wrong->arithmetic = exact_query;
}

static void sums_undeclared(kvb_kernel *wrong)
{
    wrong->arithmetic = exact_sums;
}

/* ---- what q is said to be rounded to ----------------------------------------------------------------------------- */

static int round_honest(const kvb_problem *problem, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    return HONEST->round_query ? HONEST->round_query(problem, k, head, q, rounded) : 0;
}

static int round_too_far(const kvb_problem *problem, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    int error = round_honest(problem, k, head, q, rounded);
    rounded[0] = 1.5 * (double)q[0] + 1;
    return error;
}

static int round_in_other_order(const kvb_problem *problem, const kvb_view *k, uint32_t head, const float *q,
                                double *rounded)
{
    int error = round_honest(problem, k, head, q, rounded);
    double first = rounded[0];
    rounded[0] = rounded[1];
    rounded[1] = first;
    return error;
}

static int round_but_one(const kvb_problem *problem, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    int error = round_honest(problem, k, head, q, rounded);
    rounded[0] = (double)q[0];
    return error;
}

static void rounds_otherwise(kvb_kernel *wrong)
{
    wrong->round_query = round_too_far;
}

static void rounds_in_other_order(kvb_kernel *wrong)
{
    wrong->round_query = round_in_other_order;
}

static void rounds_one_more(kvb_kernel *wrong)
{
    wrong->round_query = round_but_one;
}

#define COARSE_STEP 0.9 /* of the largest element: each other one becomes 0 or 0.9 of it */

/* Rounds q as coarsely as arithmetic() may declare. The kernel declares that, and round_query() gives this q. */
static int round_coarse(const kvb_problem *problem, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    double largest = 0;
    (void)k, (void)head;
    for (uint32_t d = 0; d < problem->k_dim; d++)
        largest = fmax(largest, fabs((double)q[d]));
    const double step = COARSE_STEP * largest;
    for (uint32_t d = 0; d < problem->k_dim; d++)
        rounded[d] = (double)(float)(step > 0 ? step * round((double)q[d] / step) : 0);
    return 0;
}

static void coarse_steps(const kvb_problem *problem, kvb_arithmetic *a)
{
    HONEST->arithmetic(problem, a);
    a->query.step = COARSE_STEP;
}

static int attend_coarse(const kvb_attend *call)
{
    static float rounded[1u << 18];
    static double row[4096];
    kvb_attend x = *call;
    const uint32_t dim = x.problem.k_dim;
    const size_t rows = (size_t)x.problem.n_tok * x.problem.n_heads;
    if (dim > sizeof row / sizeof *row || rows * dim > sizeof rounded / sizeof *rounded)
        return -ENOTSUP;
    for (size_t i = 0; i < rows; i++) {
        round_coarse(&x.problem, &x.k, 0, call->q + i * dim, row);
        for (uint32_t d = 0; d < dim; d++)
            rounded[i * dim + d] = (float)row[d];
    }
    x.q = rounded;
    return HONEST->attend(&x);
}

static void rounds_coarsely(kvb_kernel *wrong)
{
    wrong->arithmetic = coarse_steps;
    wrong->round_query = round_coarse;
    wrong->attend = attend_coarse;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static struct {
    const kvb_team *team;
    void (*part)(void *ctx, uint32_t i, uint32_t n);
    void *ctx;
} work;

static void part_but_last(void *ctx, uint32_t i, uint32_t n)
{
    (void)ctx;
    if (i + 1 < n)
        work.part(work.ctx, i, n);
}

static void run_but_last(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    (void)team;
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

static int bit_by_team(const kvb_attend *x)
{
    if (x->problem.out_elem == KVB_F32 && x->team->n > 1)
        *(uint32_t *)x->out ^= 1;
    return 0;
}

/* ---- witnesses --------------------------------------------------------------------------------------------------- */

/* What the last query saw at the last KV head. */
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

static int one_untold(const kvb_attend *x)
{
    --*last_count(x);
    return 0;
}

static int first_told_twice(const kvb_attend *x)
{
    uint32_t *seen = last_seen(x), n = *last_count(x);
    seen[2 * n - 2] = seen[0];
    seen[2 * n - 1] = seen[1];
    return 0;
}

static int k_told_as_v(const kvb_attend *x)
{
    last_seen(x)[1] = last_seen(x)[0];
    return 0;
}

const kvb_fault kvb_claim_faults[] = {
    {"declares-exact", "no rounding is declared", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash, plain-decode seq f32 reference", .kernel = declares_exact},
    {"query-undeclared", "that q is rounded is not declared", KVB_CHECK_DECLARATION,
     "plain-decode-8x128 seq q8_0 flash-int8, plain-decode seq bf16 flash-bf16", .kernel = query_undeclared},
    {"sums-undeclared", "that weights are rounded is not declared", KVB_CHECK_BOUND,
     "plain-decode-8x128 seq q8_0 flash-int8, plain-decode seq bf16 flash-bf16", .kernel = sums_undeclared},
    {"declares-endless-steps", "weights are said to be rounded to steps of 1e9", KVB_CHECK_DECLARATION,
     "plain-decode seq f32 reference", .kernel = steps_endless},
    {"declares-wide-steps", "weights are said to be rounded to steps of 0.9", KVB_CHECK_DECLARATION,
     "plain-decode-8x128 seq q8_0 flash-int8, batched-multi-seq seq f32 flash", .kernel = steps_wide},
    {"declares-wide-floor", "sums are said to be off by 10 times the largest weight", KVB_CHECK_DECLARATION,
     "plain-decode seq bf16 flash-bf16", .kernel = floor_wide},
    {"declares-wide-exp-floor", "all weights are said to be 0, perhaps", KVB_CHECK_DECLARATION,
     "plain-decode seq f32 flash", .kernel = exp_floor_wide},
    {"declares-wide-query-steps", "q is said to be rounded to steps of half of its largest element",
     KVB_CHECK_DECLARATION, "plain-decode seq f32 reference, eagle-tree tree f16 openblas", .kernel = query_steps_wide},
    {"rounds-otherwise", "q is said to be rounded further than is declared", KVB_CHECK_DECLARATION,
     "plain-decode-8x128 seq q8_0 flash-int8, plain-decode seq f32 flash", .kernel = rounds_otherwise},
    {"rounds-in-other-order", "the rounded q is said with two channels swapped", KVB_CHECK_DECLARATION,
     "plain-decode-8x128 seq q8_0 flash-int8, plain-decode seq bf16 flash-bf16", .kernel = rounds_in_other_order},
    {"rounds-one-more", "one channel of q is rounded and said not to be", KVB_CHECK_BOUND,
     "plain-decode-8x128 seq q8_0 flash-int8, plain-decode seq bf16 flash-bf16", .kernel = rounds_one_more},
    {"rounds-to-nothing", "q is rounded to steps of 0.9 of its largest element, as is declared and told",
     KVB_CHECK_DECLARATION, "plain-decode seq f32 reference, batched-multi-seq seq f32 flash, calls none any reference",
     .kernel = rounds_coarsely},
    {"thread-idle", "the last thread does no work", KVB_CHECK_WRITTEN,
     "batched-multi-seq seq f32 flash 2, eagle-tree tree f16 openblas 2, plain-decode seq f32 reference 2",
     .before = last_thread_idle},
    {"bit-by-team", "the last bit of an output depends on the number of threads", KVB_CHECK_DETERMINISTIC,
     "plain-decode seq f32 flash deterministic, eagle-tree tree f16 openblas 2 deterministic", .after = bit_by_team},
    {"witness-untold", "a witness does not tell one of the cells that a query saw", KVB_CHECK_WITNESS,
     "plain-decode seq f32 witness", .after = one_untold},
    {"witness-twice", "a witness tells one cell twice and another not at all", KVB_CHECK_WITNESS,
     "agent-fork seq f16 witness", .after = first_told_twice},
    {"witness-k-as-v", "a witness tells K's row for V's", KVB_CHECK_WITNESS, "plain-decode seq f32 witness",
     .after = k_told_as_v},
    {.name = NULL},
};
