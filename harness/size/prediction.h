/* SPDX-License-Identifier: Apache-2.0 */
/* What a prediction keeps count of: room of tables, and where tokens lie. Private to this folder. */
#ifndef KVB_SIZE_PREDICTION_H
#define KVB_SIZE_PREDICTION_H

#include "harness/size/layout.h"
#include "harness/size/pages.h"
#include "harness/size/room.h"

/* Of a group that scans. */
typedef struct kvb_size_slot {
    uint64_t held, taken;     /* by sequences: before a step, and by its tokens */
    uint64_t readers, leaves; /* in the step in hand: sequences that are yet to begin with it; that let go of it */
    uint64_t below;           /* of those that can be written again, + 1 */
} kvb_size_slot;

typedef struct kvb_size_states {
    kvb_size_slot *slot; /* [room] */
    size_t room;
    uint64_t again, lowest;          /* of the step in hand: the slot to be written again, + 1; no free one is below */
    uint64_t tokens, uses, links[2]; /* room of tables */
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
    NODE_CELL = 4,
    ORDINAL = 8, /* or an extra key */
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
    uint64_t left;         /* states that it lets go of in the step in hand; pieces of pages before it */
} kvb_size_group_sequence;

/* One group's tables. The plan in force and the one being made take turns. */
typedef struct kvb_size_group_tables {
    uint64_t cells[2], row_starts[2], runs[2], path[2], seen[2]; /* room, in items */
    uint64_t moves, refs, row_cells;
    uint64_t copies, shifted, turns, pending, turned, scratch; /* of shifts and defrags; shifted: of spans, too */
    bool compacts;                                             /* there are lists for a defrag */
    bool turning;                                              /* K rows are yet to be turned */
    bool gaps; /* cells may be free below others, or held by several sequences: where each lies is looked up */
    uint64_t nodes, node_cells, page_pieces,
        keys;                           /* room; nodes: of two lists of seq and states; the others: of paged */
    uint64_t spans;                     /* of all sequences */
    uint64_t pages[2], tables, changes; /* paged: of plans, of all sequences, of a call */
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
    kvb_size_pieces fed;       /* of the step in hand, where histories are fed: position -> place */
    bool loaded;               /* its tokens are not known by what they are */
    kvb_size_pieces fresh;     /* likewise, of its old tokens: all but those that a sequence before it brings */
    uint64_t len, front;       /* tokens; of them in the front, from the first on */
} kvb_size_sequence;

typedef struct kvb_size_prediction {
    const kvb_size_subject *subject;
    uint32_t n_ids;
    kvb_size_group_tables group[KVB_MODEL_GROUPS];
    kvb_size_sequence *seq;                                /* [n_ids] */
    uint64_t spans, nodes, feed[2], fed_nodes[2], matched; /* room; spans: of all sequences */
    uint64_t next_ordinal, tokens, shifts;
    uint32_t turn; /* of plans and feeds */
    /* The steps before the one in hand: whatever else is held of a window has been settled since. */
    kvb_size_step last[2];
    kvb_size_pieces scratch;
    bool moved;   /* positions have been, since the last step */
    bool refused; /* the call at hand will be */
} kvb_size_prediction;

static inline bool is(const kvb_size_prediction *p, const kvb_cache_type *cache)
{
    return p->subject->cache == cache;
}

static inline bool kvb_size_has_pages(const kvb_size_prediction *p)
{
    return is(p, &kvb_cache_paged) || is(p, &kvb_cache_paged_prefix);
}

/* Does the cache give back cells of this group? */
static inline bool kvb_size_drops(const kvb_size_prediction *p, const kvb_group *g)
{
    return (is(p, &kvb_cache_window) || is(p, &kvb_cache_paged)) && (g->window || g->chunk);
}

static inline uint64_t kvb_size_page_cells(const kvb_size_prediction *p)
{
    return p->subject->options.page_cells ? p->subject->options.page_cells : 16;
}

static inline void kvb_size_cells_ask(kvb_size_group_tables *t, uint64_t cells)
{
    t->most = t->most > cells ? t->most : cells;
}

static inline void kvb_size_plan_start(kvb_size_group_tables *t, uint32_t turn, uint64_t n)
{
    need(&t->cells[turn], n);
    need(&t->row_starts[turn], n + 1);
}

uint64_t kvb_size_row_free(const kvb_size_prediction *p, const kvb_size_group_tables *t); /* slab: the lowest */
uint64_t kvb_size_pool_cells(const kvb_size_prediction *p, const kvb_group *g);

/* ---- a step: one group's share. Lengths and ordinals are still those before it ----------------------------------------- */

/* The cells that n tokens take, in pieces, into p->scratch: caches whose sequences share cells, or take them in turns. */
int kvb_size_cells_find(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint64_t n);
/* Before and after it in a group with limits: room to cut off what sequences keep no more, which is then let go of. */
void kvb_size_drop_prepare(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_size_step *s);
int kvb_size_drop(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s);

/* Cache paged: the entries of tables that a step lets go of; *changes more. The entry is to be written by the sequence from position
 * `until` on: a page of its own, with copies of what it holds there; *copies more. */
int kvb_size_pages_leave(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint64_t *changes);
int kvb_size_page_own(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, uint32_t seq,
                      uint64_t entry, uint64_t until, uint64_t *changes, uint64_t *copies);
/* Where in its pages a sequence's tokens lie, page by page: so many pieces, which may be joined in *lies. 0 or -ENOMEM. */
int kvb_size_pages_lie(const kvb_size_prediction *p, const kvb_size_group_tables *t, const kvb_group *g, uint32_t seq,
                       kvb_size_pieces *lies, uint64_t *pieces);
/* Before sequences let go of pages: which will stay by their key. Afterwards: which are in use. 0 or -ENOMEM. */
int kvb_size_pages_key(kvb_size_prediction *p, kvb_size_group_tables *t);
int kvb_size_pages_count(kvb_size_prediction *p, kvb_size_group_tables *t);
/* Sequences have let go of what was in n tables, one after the other: pages that nobody holds stay, a table's last one goes first. 0 or
 * -ENOMEM. */
int kvb_size_pages_let_go(kvb_size_prediction *p, kvb_size_group_tables *t, kvb_size_pieces *was, uint32_t n);
/* The whole cache is loaded as it lies: what is held has no key any more, and what nobody holds, if rows hang together. 0 or -ENOMEM. */
int kvb_size_pages_overwrite(kvb_size_prediction *p, kvb_size_group_tables *t);
/* Stretches of positions of which a sequence has pages. */
uint64_t kvb_size_page_stretches(const kvb_size_pieces *table);
uint64_t kvb_size_page_cell(const kvb_size_prediction *p, const kvb_size_group_tables *t, uint32_t seq, uint64_t pos);

/* Cache recompute. First, once for all groups: which old tokens a step feeds, and where each sequence's lie in the feed. */
int kvb_size_fed_find(kvb_size_prediction *p, const kvb_size_step *s);
uint64_t kvb_size_fed_old(const kvb_size_prediction *p, const kvb_size_step *s); /* old tokens */
uint64_t kvb_size_fed_queries(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g,
                              const kvb_size_step *s); /* theirs: their runs */
int kvb_size_fed_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s);

int kvb_size_paged_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s);
int kvb_size_paged_drafts(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s);
/* What the nodes of sequence q see: the prefix, their path, and themselves. cells: of nodes. pieces.end: in how many the cache has the
 * prefix, of which so many are there still: pieces.begin. *runs more. */
int kvb_size_nodes_query(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s,
                         uint32_t q, const kvb_size_pieces *prefix, kvb_run pieces, const uint64_t *cells,
                         uint64_t *runs);
int kvb_size_drafts_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g, const kvb_size_step *s);

/* Where layers scan: a step; a copy to an empty sequence; bytes; slots at most; who holds which, counted anew. */
int kvb_size_states_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_size_step *s);
int kvb_size_states_share(kvb_size_group_tables *t, uint32_t src, uint32_t dst);
int kvb_size_states_add_up(const kvb_size_prediction *p, uint32_t group, uint64_t *sum); /* 0 or -EOVERFLOW */
uint64_t kvb_size_states_slots(const kvb_size_subject *s);
int kvb_size_states_count(const kvb_size_prediction *p, kvb_size_group_tables *t);

/* ---- other calls: all of it, or one group's share -------------------------------------------------------------------------- */

int kvb_size_call_take(kvb_size_prediction *p, const kvb_size_step *s); /* whichever it is */
/* dst, which lets go of what it has, finds the whole pages of src's first tokens; a SHARE of such. */
int kvb_size_prompt_find(kvb_size_prediction *p, uint32_t src, uint32_t dst, uint64_t tokens);
int kvb_size_prompts_share(kvb_size_prediction *p, const kvb_size_step *s);

int kvb_size_copy_take(kvb_size_prediction *p, const kvb_size_step *s);

/* All cells that some sequence holds, into *cells; and how many sequences hold one. */
int kvb_size_cells_held(const kvb_size_prediction *p, const kvb_size_group_tables *t, kvb_size_cells *cells);
uint64_t kvb_size_cell_holders(const kvb_size_prediction *p, const kvb_size_group_tables *t, uint64_t cell);
/* Room of a list of spans that is made token by token: for one more than there are, each time. */
void kvb_size_list_make(uint64_t *room, const kvb_size_pieces *made, uint64_t *all);

/* What only shifts and defrags make. */
uint64_t kvb_size_moves_bytes(const kvb_size_group_tables *t, uint32_t n_ids);

/* A shift or a division of a sequence's positions, before they are moved. Where a call moves what lies at pos. */
int kvb_size_shift_take(kvb_size_prediction *p, const kvb_size_step *s);
uint64_t kvb_size_moved(const kvb_size_step *s, uint64_t pos);
/* A defrag: what seq and window make of it. The others have nothing to do. */
int kvb_size_defrag_take(kvb_size_prediction *p, kvb_size_group_tables *t, const kvb_group *g);

#endif
