/* SPDX-License-Identifier: Apache-2.0 */
/* One scan call made real: inputs, states in slots, sequences over them, all by a key. */
#ifndef KVB_CALLS_SCAN_SCENE_H
#define KVB_CALLS_SCAN_SCENE_H

#include "harness/calls/buffers.h"
#include "harness/calls/scan_axes.h"

typedef struct kvb_scan_scene {
    kvb_scan_shape shape;
    kvb_scan call; /* out is filled with the NaN of kernel_io.h before each run */
    size_t out_bytes, states_bytes;
    char *before; /* slots as they are before the call: a state in those that it reads, NaN everywhere else */
    /* [slots] */
    bool *read, *written; /* read: before a token of the call writes it */
    uint32_t *writer;     /* last token that writes it */
    /* its own */
    kvb_call_buffers buffers;
    uint32_t *from, *to;
} kvb_scan_scene;

/* 0 or -ENOMEM. To be closed in any case. */
int kvb_scan_scene_open(const kvb_scan_shape *shape, const kvb_scan_kernel *kernel, const kvb_team *team, uint64_t key,
                        kvb_scan_scene *scene);
void kvb_scan_scene_close(kvb_scan_scene *scene);

/* Makes out and the slots as they are before a call. hidden: the byte that fills what the call must not read. */
void kvb_scan_scene_reset(kvb_scan_scene *scene, int hidden);
/* The call is made with this team from now on. 0 or -ENOMEM. */
int kvb_scan_scene_team(kvb_scan_scene *scene, const kvb_scan_kernel *kernel, const kvb_team *team);

#endif
