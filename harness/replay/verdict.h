/* SPDX-License-Identifier: Apache-2.0 */
/* Turns measured differences into pass or fail, with the place and the numbers in the reason. */
#ifndef KVB_VERDICT_H
#define KVB_VERDICT_H

#include "harness/replay/pass.h"
#include "oracle/filter.h"
#include "oracle/oracle.h"
#include "results/result.h"

/* Judges layers that attend, first of all. Fills rho, error and status. The result fails, with a reason, if rho is above
 * 1 or if a pass did not compare `rows` rows. Here and below, a bound that does not decide is only reported. */
void kvb_diff_judge(const kvb_diff *diff, const kvb_oracle *oracle, size_t rows, uint64_t passes,
                    const kvb_trace *trace, bool decides, kvb_result *result);

/* Fills rho and the place of the worst element. */
void kvb_worst_note(const kvb_diff *diff, kvb_result *result);

/* Judges second opinions (oracle/opinion.h). Only failures are reported. */
void kvb_opinion_judge(const kvb_diff *diff, const kvb_trace *trace, bool decides, kvb_result *result);
/* Judges layers that scan, after those that attend: `rows` rows had to be compared. Bounds always decide, as scans have
 * no tolerance. */
void kvb_scan_judge(const kvb_diff *diff, const kvb_diff *attended, size_t rows, const kvb_trace *trace,
                    kvb_result *result);
/* Judges states in slots (oracle/descent.h). */
void kvb_states_judge(const kvb_diff *diff, const kvb_trace *trace, kvb_result *result);
/* Fills error.filter. If a z is above the limit, a passed result fails, and a failed one gets another reason. */
void kvb_filter_judge(const kvb_filter *filter, bool decides, kvb_result *result);
/* Fills error.unsaid. If the kernel declares too much to be judged (oracle/claim.h), the result fails or gets another
 * reason. */
void kvb_claim_judge(const kvb_claim *claim, uint64_t rows, bool decides, kvb_result *result);
/* Fills `foreign` for a foreign kernel. A passed result fails if the kernel's own project would not pass it. */
void kvb_foreign_judge(const kvb_foreign_calls *calls, const kvb_kernel *kernel, const kvb_trace *trace,
                       kvb_result *result);

/* A kernel that allocated memory or started a thread: the result fails or gets another reason. */
void kvb_misdeed_judge(const char *misdeed, kvb_result *result);
/* Inserts words into the reason, before its part on the worst error. */
void kvb_reason_add(const char *words, kvb_result *result);
/* Appends "; line 12: step of 8 tokens in sequences 0 to 7" to the reason. The first such event also becomes
 * where.line, unless that is set. */
void kvb_event_add(const kvb_event *event, kvb_result *result);

#endif
