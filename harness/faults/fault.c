/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/faults/fault.h"

#include <string.h>

const kvb_fault *const kvb_fault_tables[] = {kvb_kernel_faults,
                                             kvb_input_faults,
                                             kvb_output_faults,
                                             kvb_conduct_faults,
                                             kvb_claim_faults,
                                             kvb_cache_faults,
                                             kvb_shift_faults,
                                             kvb_plan_faults,
                                             kvb_pool_faults,
                                             kvb_byte_faults,
                                             kvb_prompt_faults,
                                             kvb_save_faults,
                                             kvb_tree_faults,
                                             kvb_front_faults,
                                             kvb_scan_faults,
                                             kvb_call_faults,
                                             kvb_alone_faults,
                                             kvb_holder_faults,
                                             NULL};

kvb_honest kvb_fault_honest;

uint32_t kvb_fault_dim, kvb_fault_heads;

static const kvb_fault *planted;

#define MASK_WORDS (1u << 18) /* of a changed mask; a call that needs more is left as it is */

/* In place of the kernel's attend(). */
static int attend(const kvb_attend *call)
{
    static uint64_t bits[MASK_WORDS]; /* attend() may not allocate */
    kvb_attend x = *call;
    size_t words = x.problem.n_tok * x.mask.row_words;

    if (planted->sight && words <= MASK_WORDS) {
        memcpy(bits, x.mask.bits, words * sizeof *bits);
        for (uint32_t t = 0; t < x.problem.n_tok; t++)
            planted->sight(&x, t, bits + t * x.mask.row_words);
        x.mask.bits = bits;
    }
    if (planted->before)
        planted->before(&x);
    int error = kvb_fault_honest.kernel->attend(&x);
    return error || !planted->after ? error : planted->after(call);
}

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

int kvb_fault_plant(const void *fault, kvb_replay_options *replay, char *why, size_t why_bytes)
{
    static kvb_kernel kernel;
    static kvb_kernel scanner;
    static kvb_scan_face scan;
    static kvb_cache_type cache;

    (void)why;
    (void)why_bytes;
    planted = fault;
    if (planted->sight || planted->before || planted->after || planted->kernel) {
        kernel = *(kvb_fault_honest.kernel = replay->kernel);
        kernel.attend = attend;
        if (planted->sight)
            kernel.masks = KVB_MASK_BIT(KVB_MASK_EXPLICIT);
        if (planted->kernel)
            planted->kernel(&kernel);
        replay->kernel = &kernel;
    }
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
