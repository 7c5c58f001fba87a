/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cache must answer a control call, and how many cells it may use. The history (workloads/history.h) says which
 * calls are legal and what queries see; beside it stand the rules of capacity of the built-in caches: which tokens they
 * drop, which pages, fronts and states they share, and when they are full. A cache that breaks several rules at once may
 * answer any of them.
 */
#ifndef KVB_FUZZ_RULES_H
#define KVB_FUZZ_RULES_H

#include "caches/cache.h"
#include "workloads/history.h"

enum { RULES_TOKENS = 8192, RULES_SEQS = KVB_SEQ_IDS, RULES_LEN = 512, RULES_GROUPS = 3, RULES_SLOTS = 4 };

typedef enum call_kind {
    EXTEND,
    STEP,
    COPY,
    REMOVE,
    KEEP,
    CLEAR,
    PROPOSE,
    COMMIT,
    REWIND,
    REORDER,
    SHIFT,
    DEFRAG,
    SAVE,
    LOAD,
    MATCH,
    CALLS
} call_kind;

typedef struct call {
    call_kind kind;
    uint32_t n, src, dst, p0, p1, slot;
    int32_t delta;
    bool divides;               /* SHIFT: is a seq_div, … */
    uint32_t divisor;           /* … by that */
    uint32_t ids[16], srcs[16]; /* REORDER: ids are the destinations */
    int32_t parents[16];
    bool known; /* EXTEND, STEP: the tokens' ids are */
    int32_t toks[16];
    uint32_t key; /* extra key of a prompt, and of the step with the rest of it */
} call;

typedef struct rules_token {
    uint64_t ordinal, row; /* row: what sequences share. A shift makes others */
    uint32_t pos, page[RULES_GROUPS];
    uint8_t gone; /* groups in which the cache has dropped its row */
    bool frozen;  /* cache shared-prefix: its row lies in the sequence's front */
} rules_token;

typedef struct rules_account {
    struct rules_seq {
        uint32_t n, front, front_cells; /* cache shared-prefix: number of its front, from 1 on; 0: none */
        uint32_t states;                /* of so many of its last tokens, where layers scan */
        rules_token token[RULES_LEN];   /* [n] in the order of positions */
    } seq[RULES_SEQS];
    uint64_t moved;
    uint32_t fronts, pages, n_nodes; /* fronts and pages made so far; */
    struct rules_node {              /* pending nodes, in the order in which they came */
        uint64_t ordinal;
        uint32_t seq, page[RULES_GROUPS];
        int32_t parent; /* its number among the nodes of its sequence */
    } node[RULES_LEN];
} rules_account;

typedef struct rules {
    const kvb_cache_type *type;
    const kvb_model *model;
    uint32_t capacity, seq_capacity, n_ids, max_seqs, rollback, step, page_cells, state_depth; /* of the cache */
    bool residual; /* a pool has residual cells: rows are neither copied as they are, nor saved without all others */
    kvb_history *history;
    rules_account *now, *after, accounts[2]; /* after: the call that was asked about last */
    struct rules_slot {
        bool used, all;
        rules_account held; /* sequence 0 stands for the one */
    } slot[RULES_SLOTS];
    uint32_t pos[RULES_TOKENS]; /* by ordinal: where it was admitted */
    uint64_t next;              /* ordinal */
    struct rules_word {         /* by ordinal */
        bool whole;             /* known, behind known ones from position 0 on */
        int32_t tok;
        uint64_t key;
        uint32_t page[RULES_GROUPS]; /* in which it was written */
    } word[RULES_TOKENS];
    bool fed_only[RULES_SEQS]; /* all that the sequence holds came by steps and prompts */
    bool valid, tree;          /* the step in force */
    uint32_t n_new, ids[RULES_LEN];
    uint64_t first;  /* ordinal of the first new token */
    call last, save; /* the history looks at an event until the next one */
    kvb_event event, saving;
} rules;

/* The settings are those that *r holds, all else is new. 0 or -ENOMEM. */
int kvb_rules_open(rules *r);
void kvb_rules_close(rules *r);

/* All but MATCH: 0, or the errno that the cache must answer: `got`, where that is one of several. */
int kvb_rules_answer(rules *r, const call *c, int got);
/* The call that was asked about last, and that the cache takes, becomes an event: until the next one. */
const kvb_event *kvb_rules_take(rules *r, const call *c);
/* kvb_rules_answer(), and kvb_rules_take() where it is taken. */
int kvb_rules_call(rules *r, const call *c);
/* A MATCH was answered with `got`, and has found tokens. The answer that is right; *wrong: what was found is not. */
int kvb_rules_match(rules *r, const call *c, int got, uint32_t found, const uint64_t *ordinals, bool *wrong);
/* Is there room for the tokens of a STEP or EXTEND, or the nodes of a PROPOSE? */
bool kvb_rules_room(rules *r, const call *c);

uint32_t kvb_rules_length(const rules *r, uint32_t seq); /* its next position */
uint32_t kvb_rules_pending(const rules *r, uint32_t seq);
uint32_t kvb_rules_live(const rules *r, uint32_t g);  /* cells in use in the group, */
uint32_t kvb_rules_cells(const rules *r, uint32_t g); /* and at most */
bool kvb_rules_attend(const rules *r);                /* there is a layer that attends */

/* The plan in force: is the token to be fed, and the tokens of its sequence up to it, in order, itself the last one: how
 * many, 0 where it is not fed. path: [RULES_LEN] */
uint32_t kvb_rules_path(const rules *r, uint64_t ordinal, rules_token *path);
/* The ordinals that a fed token must see in the group, ascending. want: [RULES_LEN] */
uint32_t kvb_rules_visible(const rules *r, const kvb_group *group, uint64_t ordinal, uint64_t *want);

#endif
