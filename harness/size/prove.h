/* SPDX-License-Identifier: Apache-2.0 */
/* One cache, opened for real through the counting allocator and fed a history: does it hold what was predicted? */
#ifndef KVB_SIZE_PROVE_H
#define KVB_SIZE_PROVE_H

#include "harness/size/predict.h"

/* What was found: at the first difference, else at the end. */
typedef struct kvb_size_proof {
    uint64_t lengths;   /* places in the history at which bytes were compared: open, and before and after each step */
    uint64_t cells;     /* tokens that were fed, and accepted, up to the last of them */
    uint64_t predicted; /* bytes */
    uint64_t allocated; /* bytes */
} kvb_size_proof;

/* Rows to hand in, shared by many proofs; zero at first. */
typedef struct kvb_proof_rows {
    float *at;
    size_t n;
} kvb_proof_rows;
void kvb_proof_rows_free(kvb_proof_rows *rows);

/*
 * The prediction is made first; the run does not see it. rows NULL: steps are begun, which is when memory is allocated, but
 * nothing is stored. Returns 0, equal or not; or a negative errno with why: what kvb_size_predict refuses, -ENOMEM, or what the
 * cache itself returned.
 */
int kvb_size_prove(const kvb_size_subject *subject, const kvb_size_step *steps, size_t n, kvb_proof_rows *rows,
                   kvb_size_proof *proof, char *why, size_t why_bytes);

#endif
