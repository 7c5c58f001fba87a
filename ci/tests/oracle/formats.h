/* SPDX-License-Identifier: Apache-2.0 */
/* Formats for the oracle's tests. */
#ifndef KVB_TEST_ORACLE_FORMATS_H
#define KVB_TEST_ORACLE_FORMATS_H

#include "ci/tests/tests.h"
#include "kernels/view.h"

#define A_ROW  .axis = KVB_AXIS_CHANNELS, .group = KVB_GROUP_ROW, .scale_elem = KVB_F32
#define HALVES .group = 32, .scale_elem = KVB_F16, .zero_elem = KVB_F16, .residual_cells = 32, .residual_blocks = 1
static const kvb_format f32 = {.name = "f32", .elem = KVB_F32}, f16 = {.name = "f16", .elem = KVB_F16},
                        bf16 = {.name = "bf16", .elem = KVB_BF16},
                        int8_asym = {.name = "int8-asym", .elem = KVB_UINT8, .zero_elem = KVB_F32, A_ROW},
                        int8_had = {.name = "int8+had", .elem = KVB_INT8, .transform = KVB_TRANSFORM_HADAMARD, A_ROW},
                        kivi_k = {.name = "kivi4-k", .elem = KVB_UINT4, .axis = KVB_AXIS_TOKENS, HALVES};

#endif
