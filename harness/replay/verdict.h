/* SPDX-License-Identifier: Apache-2.0 */
/* From measured differences to pass or fail, with the place and the numbers in the reason. */
#ifndef KVB_VERDICT_H
#define KVB_VERDICT_H

#include "harness/replay/pass.h"
#include "oracle/filter.h"
#include "oracle/oracle.h"
#include "results/result.h"

/* Fills rho, error and status. It fails, with the reason, if rho is above 1 or if rows were not compared in every pass.
 * Here and below: a bound that does not decide is reported and fails nothing. */
void kvb_diff_judge(const kvb_diff *diff, const kvb_oracle *oracle, size_t rows, uint64_t passes,
                    const kvb_trace *trace, bool decides, kvb_result *result);

/* The same of second opinions (oracle/opinion.h), after the others: of what they find only what fails is told. */
void kvb_opinion_judge(const kvb_diff *diff, const kvb_trace *trace, bool decides, kvb_result *result);
/* Of layers that scan, after those that attend: `rows` were to be compared. Their kernel has no tolerance, whatever
 * stands beside it. */
void kvb_scan_judge(const kvb_diff *diff, const kvb_diff *attended, size_t rows, const kvb_trace *trace,
                    kvb_result *result);
/* And of what slots hold (oracle/descent.h). */
void kvb_states_judge(const kvb_diff *diff, const kvb_trace *trace, kvb_result *result);
/* Fills error.filter. A result that has passed fails, and one that fails does so for one reason more, if a z is above
 * the limit. */
void kvb_filter_judge(const kvb_filter *filter, bool decides, kvb_result *result);
/* Fills error.unsaid. A result fails, or for one reason more, if the kernel declares too much to be judged
 * (oracle/claim.h). */
void kvb_claim_judge(const kvb_claim *claim, uint64_t rows, bool decides, kvb_result *result);
/* Fills `foreign` of a kernel that is. A result that has passed fails where the kernel's own project would not pass it.
 */
void kvb_foreign_judge(const kvb_foreign_calls *calls, const kvb_kernel *kernel, const kvb_trace *trace,
                       kvb_result *result);

/* A result that is judged fails, or fails for one reason more: what its kernel did beside its work. */
void kvb_misdeed_judge(const char *misdeed, kvb_result *result);
/* Adds these words to the reason, before what it says of the worst error. */
void kvb_reason_add(const char *words, kvb_result *result);
/* Appends "; line 12: step of 8 tokens in sequences 0 to 7" to the reason. The first one is where it fails, unless more
 * is known. */
void kvb_event_add(const kvb_event *event, kvb_result *result);

#endif
