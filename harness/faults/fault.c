/* SPDX-License-Identifier: Apache-2.0 */
/* For each kind of part its verbs: each calls the honest one, and the hooks of the planted fault. */
#include "harness/faults/fault.h"

#include <string.h>

const kvb_fault *const kvb_fault_tables[] = {
    kvb_kernel_faults, kvb_conduct_faults, kvb_cache_faults,  kvb_shift_faults,  kvb_plan_faults,
    kvb_pool_faults,   kvb_byte_faults,    kvb_prompt_faults, kvb_save_faults,   kvb_tree_faults,
    kvb_front_faults,  kvb_scan_faults,    kvb_alone_faults,  kvb_holder_faults, NULL};

kvb_fault_site kvb_fault_here;
kvb_honest kvb_fault_honest;

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

#define MASK_WORDS (1u << 18) /* of a changed mask; a call that needs more is not changed */

static const kvb_wrong_kernel *wrong_kernel;

static int attend(const kvb_attend *call)
{
    static uint64_t bits[MASK_WORDS]; /* attend() may not allocate */
    static uint32_t calls;
    kvb_attend x = *call;
    const size_t words = x.problem.n_tok * x.mask.row_words;

    if (++calls && wrong_kernel->every && calls % wrong_kernel->every != wrong_kernel->at)
        return kvb_fault_here.kernel->attend(call);
    if (wrong_kernel->sight && words <= MASK_WORDS) {
        memcpy(bits, x.mask.bits, words * sizeof *bits);
        for (uint32_t t = 0; t < x.problem.n_tok; t++)
            wrong_kernel->sight(&(kvb_fault_row){&x, t, bits + t * x.mask.row_words});
        x.mask.bits = bits;
    }
    if (wrong_kernel->before)
        wrong_kernel->before(&x);
    const int error = kvb_fault_here.kernel->attend(&x);
    if (!error && wrong_kernel->after)
        wrong_kernel->after(call);
    return error ? error : wrong_kernel->returns;
}

static bool supports(const kvb_problem *problem, char *why, size_t why_bytes)
{
    wrong_kernel->supports();
    return !kvb_fault_here.kernel->supports || kvb_fault_here.kernel->supports(problem, why, why_bytes);
}

static size_t scratch_bytes(const kvb_problem *problem, uint32_t n_threads)
{
    return kvb_fault_here.kernel->scratch_bytes(problem, n_threads) >> wrong_kernel->scratch_halvings;
}

static void arithmetic(const kvb_problem *problem, kvb_arithmetic *a)
{
    kvb_fault_here.kernel->arithmetic(problem, a);
    wrong_kernel->declares(a);
}

static int round_query(const kvb_problem *problem, const kvb_view *k, uint32_t head, const float *q, double *rounded)
{
    for (uint32_t c = 0; c < problem->k_dim; c++)
        rounded[c] = (double)q[c];
    kvb_query_round *honest = kvb_fault_here.kernel->round_query;
    const int error = honest ? honest(problem, k, head, q, rounded) : 0;
    wrong_kernel->rounds(problem, q, rounded);
    return error;
}

static const kvb_kernel *kernel_plant(const kvb_kernel *honest, const kvb_wrong_kernel *fault)
{
    static kvb_kernel planted;
    wrong_kernel = fault;
    planted = *(kvb_fault_here.kernel = honest);
    planted.attend = attend;
    planted.supports = fault->supports ? supports : honest->supports;
    planted.scratch_bytes = honest->scratch_bytes ? scratch_bytes : NULL;
    planted.arithmetic = fault->declares ? arithmetic : honest->arithmetic;
    planted.round_query = fault->rounds ? round_query : honest->round_query;
    planted.masks = fault->bits || fault->sight ? KVB_MASK_BIT(KVB_MASK_EXPLICIT) : honest->masks;
    planted.flags |= fault->flags;
    planted.tolerance = fault->tolerance.kind != KVB_TOLERANCE_NONE ? fault->tolerance : honest->tolerance;
    return &planted;
}

uint32_t kvb_fault_dim, kvb_fault_heads;

int kvb_fault_pool_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool)
{
    kvb_fault_dim = options->dim;
    kvb_fault_heads = options->n_kv_heads;
    return kvb_pool_passing.open(type, options, pool);
}

/* The type with a fault in it. */
static const kvb_pool_type *pool_plant(const kvb_pool_type *honest, void (*wrong)(kvb_pool_type *type))
{
    static kvb_pool_wrap pool;
    pool = kvb_pool_wrap_of(kvb_fault_honest.pool = honest);
    pool.type.open = kvb_fault_pool_open;
    wrong(&pool.type);
    return &pool.type;
}

/* ------------------------------------------------------------------------------------------------------------------ */

int kvb_fault_plant(const void *fault, kvb_replay_options *replay, char *why, size_t why_bytes)
{
    static kvb_kernel scanner;
    static kvb_scan_face scan;
    static kvb_cache_type cache;
    const kvb_fault *planted = fault;
    (void)why;
    (void)why_bytes;
    kvb_fault_here.by = planted->by;
    if (planted->kernel)
        replay->kernel = kernel_plant(replay->kernel, planted->kernel);
    if (planted->scan) {
        scan = *(kvb_fault_honest.scan = replay->scan->scan);
        scan.scan = planted->scan;
        if (planted->scan_arithmetic)
            scan.arithmetic = planted->scan_arithmetic;
        scanner = *replay->scan;
        scanner.scan = &scan;
        replay->scan = &scanner;
    }
    if (planted->cache) {
        cache = *(kvb_fault_honest.cache = replay->cache);
        planted->cache(&cache);
        replay->cache = &cache;
    }
    if (planted->k_pool)
        replay->k_pool = pool_plant(replay->k_pool, planted->k_pool);
    if (planted->v_pool)
        replay->v_pool = pool_plant(replay->v_pool, planted->v_pool);
    return 0;
}
