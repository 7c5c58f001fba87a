/* SPDX-License-Identifier: Apache-2.0 */
/* The state of window.c and of what it keeps in slots (window_slots.c), which no other file includes. */
#ifndef KVB_WINDOW_STATE_H
#define KVB_WINDOW_STATE_H

#include "oracle/state.h"
#include "oracle/window.h"
#include "workloads/trace.h"

#define KVB_WINDOW_NOBODY UINT64_MAX

typedef struct block {
    uint64_t held;    /* bits of its cells that were ever written */
    uint64_t written; /* when last: of open blocks the least gives way */
    uint64_t stale;   /* bits of cells that changed since it was solved */
    bool open;        /* its rows are f16 */
    bool solved_open; /* they were, when it was solved */
} block;

/* K or V of a layer. */
typedef struct side {
    const kvb_storages *storages; /* [heads] */
    bool is_v;
    uint32_t layer, heads, dim;
    uint32_t width;     /* cells of a block; 1: each row is stored by itself */
    uint32_t cells;     /* there is room for: whole blocks */
    uint64_t *token;    /* [cells] whose row it is; NOBODY */
    bool *own;          /* [cells] `half` is that row, not what was decoded of it */
    float *half;        /* [cells][heads][dim] as the codec encodes it; NULL where width is 1 */
    block *blocks;      /* [cells / width] */
    kvb_stored *stored; /* [heads] of [cells] */
    uint64_t clock;
} side;

struct kvb_window {
    struct kvb_window_slot *slots[KVB_TRACE_SLOTS]; /* NULL: nothing was saved */
    const kvb_oracle_state *state;
    side *sides;             /* [layers][2] K, V; V of latent rows has no heads */
    kvb_opinion_head *heads; /* [layers][most heads] */
    double **k_norm;         /* [layers][most heads] of [cells of K] */
    uint32_t most_heads;
    kvb_token_run *runs; /* seen by the query in hand, in cells of the pools */
    uint32_t visible;    /* so many */
    size_t n_runs, room_runs, room_scratch;
    double q[KVB_MODEL_WIDTH];
    double *scratch;       /* of an attention */
    kvb_bound_term *terms; /* [KVB_MODEL_WIDTH] */
    double *o;             /* likewise */
    double *coding;        /* a codec's scratch, then a block's rows and sizes */
    size_t coding_scratch, coding_block;
};

void kvb_window_slots_free(kvb_window *window);

#endif
