/* SPDX-License-Identifier: Apache-2.0 */
/* What a prediction keeps count of: room of tables, and where tokens lie. Private to predict.c, moves.c, fronts.c and states.c. */
#ifndef KVB_SIZE_PREDICTION_H
#define KVB_SIZE_PREDICTION_H

#include "harness/size/layout.h"
#include "harness/size/pages.h"

/* Of a group that scans. */
typedef struct kvb_size_slot {
    uint64_t held, taken;     /* by sequences: before a step, and by its tokens */
    uint64_t readers, leaves; /* in the step in hand: sequences that are yet to begin with it; that let go of it */
    uint64_t below;           /* of those that can be written again, + 1 */
} kvb_size_slot;

typedef struct kvb_size_states {
    kvb_size_slot *slot; /* [room] */
    size_t room;
    uint64_t again, lowest; /* of the step in hand: the slot to be written again, + 1; no free one is below */
    uint64_t tokens, uses, links[2], nodes; /* room of tables */
} kvb_size_states;

/* Of cache shared-prefix: room for what sequences read of fronts, for what a call makes, and for what queries see. */
typedef struct kvb_size_fronts {
    uint64_t cells, spans; /* of the front; of all sequences */
    uint64_t seen, raw, holding, picked;
} kvb_size_fronts;

enum {
    SPAN = 16,
    TURN = 8,
    DELTA = 4,  /* of a cell */
    SPANS = 32, /* a list of them, by sequence id */
    NODE = 24,
    FEED_ITEM = 8 + 4 + 4,
    CELL = 4,
    ROW_START = 4,
    RUN = 8,
    PATH = 4,
    MOVE = 8,
    REF = 2,
    PAGE = 4, /* a table's entry, or a count */
    PAGE_TABLE = 16,
    PAGE_CHANGE = 12,
    ID = 4 /* of a sequence, and what else is kept by it */
};         /* bytes */

/* One sequence's share of a group's tables. */
typedef struct kvb_size_group_sequence {
    uint64_t spans, pages; /* room */
    uint64_t compacted;    /* seq: room of the spans that a defrag makes */
    kvb_size_pieces held;  /* paged: the entries of its table, and their pages */
    uint64_t left;         /* states that it lets go of in the step in hand */
} kvb_size_group_sequence;

/* One group's tables. The plan in force and the one being made take turns. */
typedef struct kvb_size_group_tables {
    uint64_t cells[2], row_starts[2], runs[2], path[2], seen[2]; /* room, in items */
    uint64_t moves, refs, row_cells;
    uint64_t copies, shifted, turns, pending, turned, scratch; /* of shifts and defrags; shifted: of spans, too */
    bool compacts;                                             /* there are lists for a defrag */
    bool turning;                                              /* K rows are yet to be turned */
    uint64_t spans;                                            /* of all sequences */
    uint64_t pages[2], tables, changes;                        /* paged: of plans, of all sequences, of a call */
    kvb_size_pages pages_in_use;
    kvb_size_group_sequence *seq;
    uint64_t rows;         /* slab: that sequences have */
    kvb_size_cells in_use; /* window, shared-prefix */
    uint64_t most;         /* cells that the pools were asked for */
    kvb_size_fronts fronts;
    kvb_size_states states;
} kvb_size_group_tables;

/* One sequence's share of the other tables. */
typedef struct kvb_size_sequence {
    uint64_t account, seen[2]; /* room */
    kvb_size_pieces ordinals;  /* position -> ordinal */
    bool joins;                /* of the step in hand: its tokens' ordinals go on those before */
    uint64_t len, front;       /* tokens; of them in the front, from the first on */
} kvb_size_sequence;

typedef struct kvb_size_prediction {
    const kvb_size_subject *subject;
    uint32_t n_ids;
    kvb_size_group_tables group[KVB_MODEL_GROUPS];
    kvb_size_sequence *seq;         /* [n_ids] */
    uint64_t spans, nodes, feed[2]; /* room; spans: of all sequences */
    uint64_t next_ordinal, tokens;
    uint32_t turn; /* of plans and feeds */
    /* The steps before the one in hand: whatever else is held of a window has been settled since. */
    kvb_size_step last[2];
    kvb_size_pieces scratch;
} kvb_size_prediction;

static inline bool is(const kvb_size_prediction *p, const kvb_cache_type *cache)
{
    return p->subject->cache == cache;
}

/* One group's share of a step, of a copy to an empty sequence, where layers scan; its bytes; slots at most. */
int kvb_size_states_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_size_step *s);
int kvb_size_states_share(kvb_size_group_tables *t, uint32_t src, uint32_t dst);
int kvb_size_states_add_up(const kvb_size_prediction *p, uint32_t group, uint64_t *sum); /* 0 or -EOVERFLOW */
uint64_t kvb_size_states_slots(const kvb_size_subject *s);

/* What only shifts and defrags make. */
uint64_t kvb_size_moves_bytes(const kvb_size_group_tables *t, uint32_t n_ids);

/* One group's share of a shift of a sequence by one position, before its positions are moved: caches seq and slab. */
int kvb_size_shift_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint32_t seq);
/* One group's share of a defrag: what seq makes of it. The others have nothing to do. */
int kvb_size_defrag_take(kvb_size_prediction *p, kvb_size_group_tables *t);

#endif
