/* SPDX-License-Identifier: Apache-2.0 */
/* One attention call made real: rows in a pool, sequences in pages, a mask, queries, all by a key. */
#ifndef KVB_CALLS_ATTEND_SCENE_H
#define KVB_CALLS_ATTEND_SCENE_H

#include "caches/pools/pool.h"
#include "harness/calls/attend_axes.h"
#include "harness/calls/buffers.h"
#include "harness/calls/tall.h"
#include "oracle/single.h"

typedef struct kvb_attend_scene {
    kvb_attend_shape shape;
    kvb_attend call; /* out and lse are filled with the NaN of kernel_io.h before each run */
    kvb_single_rows rows;
    uint64_t *seen; /* bits of cells that some query sees */
    uint32_t *ends; /* [n_tok] positions of its sequence up to a query's own; 0: it sees nothing */
    /* its own */
    kvb_model model;
    kvb_allocator allocator;
    kvb_pool *pools[2];
    const float **amax[2];
    kvb_view fronts[2];
    kvb_tall tall[2]; /* of rows that lie apart */
    float *rows_of[2];
    kvb_token_run *runs;
    size_t *first;
    uint32_t *tables, *table_first,
        *lengths; /* page tables, one behind the other; [batch + 1]; positions of a sequence */
    uint64_t *bits;
    kvb_run *mask_runs, *windows;
    uint32_t *row_start;
    size_t n_runs, runs_room;
    kvb_call_buffers buffers;
    size_t out_bytes, lse_bytes;
} kvb_attend_scene;

/* 0; -ENOMEM; -ENOTSUP with why. team: the call's; scratch is as large as its size needs. To be closed in any case. */
int kvb_attend_scene_open(const kvb_attend_shape *shape, const kvb_kernel *kernel, const kvb_team *team, uint64_t key,
                          kvb_attend_scene *scene, char *why, size_t why_bytes);
void kvb_attend_scene_close(kvb_attend_scene *scene);

/* Bits of the cells that query t sees. */
void kvb_attend_scene_sight(const kvb_attend_scene *scene, uint32_t t, uint64_t *bits);
size_t kvb_attend_scene_words(const kvb_attend_scene *scene); /* of such bits */

/* Bytes of a row of one side, as its pool counts them. */
size_t kvb_attend_scene_row_bytes(const kvb_attend_scene *scene, bool v);

/* Makes outputs as they are before a call. */
void kvb_attend_scene_reset(kvb_attend_scene *scene);
/* The call is made with this team from now on. 0 or -ENOMEM. */
int kvb_attend_scene_team(kvb_attend_scene *scene, const kvb_kernel *kernel, const kvb_team *team);
/* May K and V rows be written? */
void kvb_attend_scene_protect(const kvb_attend_scene *scene, bool read_only);

#endif
