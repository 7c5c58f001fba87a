/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a cache as the prediction counts them: room in items, and what decides it. For predict.c and fronts.c alone. */
#ifndef KVB_SIZE_TABLES_H
#define KVB_SIZE_TABLES_H

#include "harness/size/layout.h"
#include "harness/size/pages.h"

/* Of cache shared-prefix: room for what sequences read of fronts, for what a call makes, and for what queries see. */
typedef struct kvb_size_fronts {
    uint64_t cells, spans; /* of the front; of all sequences */
    uint64_t lies, seen, raw, holding, picked;
} kvb_size_fronts;

enum {
    SPAN = 16,
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
typedef struct group_sequence {
    uint64_t spans, pages; /* room */
    kvb_size_pieces held;  /* paged: the entries of its table, and their pages */
} group_sequence;

/* One group's tables. The plan in force and the one being made take turns. */
typedef struct group_tables {
    uint64_t cells[2], row_starts[2], runs[2], path[2], seen[2]; /* room, in items */
    uint64_t moves, refs, row_cells;
    uint64_t spans;                     /* of all sequences */
    uint64_t pages[2], tables, changes; /* paged: of plans, of all sequences, of a call */
    kvb_size_pages pages_in_use;
    group_sequence *seq;
    uint64_t rows;         /* slab: that sequences have */
    kvb_size_cells in_use; /* window, shared-prefix */
    uint64_t most;         /* cells that the pools were asked for */
    kvb_size_fronts fronts;
} group_tables;

/* One sequence's share of the other tables. */
typedef struct sequence {
    uint64_t account, seen[2]; /* room */
    kvb_size_pieces ordinals;  /* position -> ordinal */
    bool joins;                /* of the step in hand: its tokens' ordinals go on those before */
    uint64_t len, front;       /* tokens; of them in the front, from the first on */
} sequence;

typedef struct prediction {
    const kvb_size_subject *subject;
    uint32_t n_ids;
    group_tables group[KVB_MODEL_GROUPS];
    sequence *seq;                  /* [n_ids] */
    uint64_t spans, nodes, feed[2]; /* room; spans: of all sequences */
    uint64_t next_ordinal, tokens;
    uint32_t turn; /* of plans and feeds */
    /* The steps before the one in hand: whatever else is held of a window has been settled since. */
    kvb_size_step last[2];
    kvb_size_pieces scratch;
} prediction;

#endif
