/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calibration: the largest magnitudes that a workload's K or V rows have, which formats with a fixed scale (of the
 * layer, or of each KV head) are opened with. Engines take it from a calibration set; here the set is the
 * workload itself, the best that a fixed scale can be.
 */
#ifndef KVB_CALIBRATE_H
#define KVB_CALIBRATE_H

#include "kernels/attend.h"
#include "workloads/values.h"

/*
 * *amax: [layers][kv_heads] of all tokens' rows (KVB_ROWS_K or KVB_ROWS_V), after the format's transform, to be freed;
 * NULL where the format fixes no scale. NaN counts as 0. 0 or -ENOMEM.
 */
int kvb_calibrate(const kvb_trace_model *model, const kvb_values *values, kvb_rows kind, const kvb_format *format,
                  float **amax);

#endif
