/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repeats a kernel's declared order (kvb_order, kvb_scan_order) in f32: the kernel must write the same bits. The code
 * follows the words of the contract, without kernel code. Compilers may not contract or reorder here
 * (-ffp-contract=off, no fast math).
 */
#ifndef KVB_EXACT_H
#define KVB_EXACT_H

#include "kernels/scan.h"
#include "oracle/attention.h"

/* The plain rows of one KV head, as they are stored; each element is a float. */
typedef struct kvb_exact_rows {
    const double *k, *v;       /* [cells][k_width], [cells][v_width] */
    uint32_t k_width, v_width; /* at least the problem's dims */
    uint32_t cells;            /* rows */
    uint32_t apart;            /* cell c >= apart of the call is row c - apart; 0: cell c is row c */
    const kvb_token_run *runs; /* rows that the query sees */
    size_t n_runs;
} kvb_exact_rows;

/* Can rows of this format be judged to the bit? */
static inline bool kvb_exact_takes(const kvb_format *f)
{
    return f->elem <= KVB_BF16 && f->axis == KVB_AXIS_NONE && !f->group && !f->head_scale && !f->transform &&
           !f->residual_cells;
}

/*
 * Repeats query t's head `head`: out [v_dim] before it is rounded to the call's out_elem, and *lse. May overwrite
 * call->scratch. 0; -ENOMEM; -EILSEQ with why: the order has no or too many lanes, or its tiles do not hold each cell
 * that the query sees exactly once.
 */
int kvb_exact_row(const kvb_attend *call, const kvb_order *order, const kvb_exact_rows *rows, uint32_t t, uint32_t head,
                  float *out, float *lse, char *why, size_t why_bytes);

/*
 * Repeats column c of head h through all tokens of a finished call. Compares outputs and slots as numbers. before: the
 * slots before the call, laid out as call->states. 1: equal; 0 with why: different; -EDOM: a number is not finite;
 * -ENOMEM.
 */
int kvb_exact_scan(const kvb_scan *call, const kvb_scan_order *order, const void *before, uint32_t h, uint32_t c,
                   char *why, size_t why_bytes);

#endif
