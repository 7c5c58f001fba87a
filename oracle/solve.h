/* SPDX-License-Identifier: Apache-2.0 */
/* Works out the rows of an oracle: one KV head of one layer at a time, on the team. Inside the oracle only. */
#ifndef KVB_SOLVE_H
#define KVB_SOLVE_H

#include "oracle/census.h"
#include "oracle/state.h"

/* Fills oracle->rows (places, q, row.step and terms are set) and, unless it is NULL, format_rows [n_rows]. visible_max:
 * of the gathered queries. 0, -ENOMEM, or -EINTR: options->stop. */
int kvb_solve(kvb_oracle *oracle, const kvb_census *census, uint32_t visible_max, const kvb_oracle_options *options,
              kvb_format_row *format_rows);

#endif
