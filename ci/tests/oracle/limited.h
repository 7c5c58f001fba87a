/* SPDX-License-Identifier: Apache-2.0 */
/* A model of layers with and without limits, for the oracle's tests. */
#ifndef KVB_TEST_LIMITED_H
#define KVB_TEST_LIMITED_H

#include "workloads/trace.h"

static const float limited_logits[4] = {-3, 0.5f, 2, -1};
enum { LAYERS = 4, DIM = 48 }; /* dims are no longer: beside 32 channels that are summed together, some */
static const kvb_model limited_model = {
    .n_layers = LAYERS,
    .n_groups = 3,
    .group_of = {0, 1, 0, 2},
    .groups = {{.heads = 6, .kv_heads = 2, .k_dim = 10, .v_dim = 6, .scale = 0.3},
               {.heads = 4,
                .kv_heads = 4,
                .k_dim = 6,
                .v_dim = 10,
                .scale = 0.5,
                .window = 4,
                .sinks = 1,
                .softcap = 0.75f,
                .sink_logits = limited_logits},
               {.heads = 3, .kv_heads = 1, .k_dim = DIM, .v_dim = 8, .scale = 0.2, .latent = true, .chunk = 4}}};

#endif
