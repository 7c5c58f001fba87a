/* SPDX-License-Identifier: Apache-2.0 */
/* Scales that are fixed before a replay begins. */
#ifndef KVB_CALIBRATE_H
#define KVB_CALIBRATE_H

#include "kernels/attend.h"
#include "workloads/values.h"

/*
 * Calibration: the largest magnitudes that a workload's K or V rows have, which formats with a fixed scale (of the
 * layer, or of each KV head) are opened with. Engines take it from a calibration set; here the set is the workload
 * itself, the best that a fixed scale can be. *amax: [layers] of [kv_heads], of all tokens' rows (KVB_ROWS_K or
 * KVB_ROWS_V), after the format's transform, one block to be freed; NULL where the format fixes no scale. NaN counts as
 * 0. 0 or -ENOMEM.
 */
int kvb_calibrate(const kvb_model *model, const kvb_values *values, kvb_rows kind, const kvb_format *format,
                  const float ***amax);

#endif
