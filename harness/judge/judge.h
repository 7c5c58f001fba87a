/* SPDX-License-Identifier: Apache-2.0 */
/* Judges recorded outputs of calls and of traces by the oracle's bound. For wrong calls other readings are tried. */
#ifndef KVB_JUDGE_H
#define KVB_JUDGE_H

#include "harness/judge/recorded.h"
#include "kernels/attend.h"
#include "results/result.h"

typedef struct kvb_judge_options {
    /* Multiply-adds that the oracle may spend on a call. A larger call has its rows sampled; other rows get a second
     * opinion. */
    double products;
    uint64_t seed; /* of the sample */
} kvb_judge_options;

/* The same rows, by other rules in use. */
typedef struct kvb_usual {
    uint64_t elements, beyond_default, beyond_loose; /* elements that fail torch's default tolerance; that fail 1e-2 */
    double error2, exact2, got2, cross;              /* sums of squares and products */
} kvb_usual;
void kvb_usual_take(kvb_usual *usual, kvb_elem elem, const void *out, const double *exact, size_t n);
double kvb_usual_cosine(const kvb_usual *usual);
double kvb_usual_nmse(const kvb_usual *usual); /* sum of squared errors / sum of squared exact outputs */

#define KVB_JUDGED_READINGS 3u
typedef struct kvb_recorded_verdict {
    kvb_result result; /* workload: FILE:CALL; cache: recorded; kernel: the arithmetic */
    kvb_usual usual;
    char shape[192];              /* "2 sequences, 32 query heads over 8 KV heads x 128, 2 tokens, up to 4,096 cells" */
    uint64_t rows, judged, blind; /* query rows: of the call; judged; chosen, but they see no cell */
    uint64_t glanced;             /* other rows that got a second opinion (oracle/opinion.h) */
    uint64_t unsaid;              /* judged rows where other outputs, such as 0, would also pass (oracle/claim.h) */
    char first[256];              /* the first element that fails, in words */
    char pattern[256];            /* sequences, heads and queries that fail */
    char many[192];               /* findings of the matched filter over all rows */
    char reads[KVB_JUDGED_READINGS][96]; /* other readings with which the failing rows pass; "": none */
} kvb_recorded_verdict;

/* Judges a call. 0; -EINVAL with why: bad input; -ENOMEM; -EINTR: stopped by a signal. */
int kvb_recorded_judge(const kvb_recorded *call, const kvb_judge_options *options, kvb_recorded_verdict *judged,
                       char *why, size_t why_bytes);

/* Judges the outputs beside a recorded trace (kvb_trace_outputs): rows of its events, over decode(encode(K and V)) in
 * the format that its header names. The verdict has no other readings. The same returns; no outputs: -EINVAL. */
int kvb_outputs_judge(const char *path, const kvb_judge_options *options, kvb_recorded_verdict *judged, char *why,
                      size_t why_bytes);

/*
 * Writes inputs of calls to path, a safetensors file, and their reading to FILE.json beside it. The kernel makes the
 * calls in this process; its outputs, log-sum-exps, final states and declared arithmetic are written, too, and *rho is
 * that of its outputs. Calls that it declines, or has no face for, are left out. 0, or a negative errno with why.
 * kernel NULL: inputs only, and the reading has no arithmetic.
 */
int kvb_judge_make(const char *path, const kvb_kernel *kernel, uint64_t seed, double *rho, char *why, size_t why_bytes);

#endif
