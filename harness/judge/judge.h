/* SPDX-License-Identifier: Apache-2.0 */
/* Judges recorded outputs by the oracle's bound: of a call, and where it is wrong which other reading is right; of a trace. */
#ifndef KVB_JUDGE_H
#define KVB_JUDGE_H

#include "harness/judge/recorded.h"
#include "kernels/attend.h"
#include "results/result.h"

typedef struct kvb_judge_options {
    double
        products; /* multiply-adds that the oracle may spend on a call: beyond them rows are sampled, and more get a second opinion */
    uint64_t seed; /* of the sample */
} kvb_judge_options;

/* What other rules say of the same rows. */
typedef struct kvb_usual {
    uint64_t elements, beyond_default, beyond_loose; /* elements that fail torch's default for the type; 1e-2 */
    double error2, exact2, got2, cross;              /* sums of squares and products */
} kvb_usual;
void kvb_usual_take(kvb_usual *usual, kvb_elem elem, const void *out, const double *exact, size_t n);
double kvb_usual_cosine(const kvb_usual *usual);
double kvb_usual_nmse(const kvb_usual *usual); /* sum of squared errors over that of exact outputs */

#define KVB_JUDGED_READINGS 3u
typedef struct kvb_recorded_verdict {
    kvb_result result; /* workload: FILE:CALL; cache: recorded; kernel: the arithmetic */
    kvb_usual usual;
    char shape[192];              /* "2 sequences, 32 query heads over 8 KV heads x 128, 2 tokens, up to 4,096 cells" */
    uint64_t rows, judged, blind; /* query rows of the call; judged; of those chosen, that see nothing */
    uint64_t glanced;             /* rows beside the judged that got a second opinion (oracle/opinion.h) */
    uint64_t unsaid;              /* of the judged: other outputs, such as 0, would pass, too (oracle/claim.h) */
    char first[256];              /* the first element that fails, in words */
    char pattern[256];            /* sequences, heads and queries that fail */
    char many[192];               /* what the matched filter finds in all rows together */
    char reads[KVB_JUDGED_READINGS][96]; /* other readings by which the failing rows pass; empty: none */
} kvb_recorded_verdict;

/* 0; -EINVAL with why: bad input; -ENOMEM; -EINTR: asked to stop. */
int kvb_recorded_judge(const kvb_recorded *call, const kvb_judge_options *options, kvb_recorded_verdict *judged,
                       char *why, size_t why_bytes);

/* The same of the outputs beside a recorded trace (kvb_trace_outputs): rows of its events, over decode(encode(K and V)) in the format
 * that its header names. The verdict's readings are empty. -EINVAL with why: also a trace without outputs. */
int kvb_outputs_judge(const char *path, const kvb_judge_options *options, kvb_recorded_verdict *judged, char *why,
                      size_t why_bytes);

/*
 * Writes the inputs of each call to path, a safetensors file, and into FILE.json beside it how they are to be read. kernel: it runs
 * here, and its outputs, log-sum-exps, final states and declared arithmetic are written, too. Calls that it declines, or has no face
 * for, are left out. NULL: no kernel, and arithmetic is left unsaid. *rho: of its outputs, by the oracle in this process. 0, or a
 * negative errno with why.
 */
int kvb_judge_make(const char *path, const kvb_kernel *kernel, uint64_t seed, double *rho, char *why, size_t why_bytes);

#endif
