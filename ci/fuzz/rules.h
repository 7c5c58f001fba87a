/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The right answer of a cache to a control call, and how many cells the cache may use. The history
 * (workloads/history.h) knows which calls are legal and what queries see. The capacity rules of the built-in caches are
 * here: which tokens they drop, which pages, fronts and states they share, and when they are full. If a call breaks
 * several rules, the cache may answer with the errno of any of them.
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
    bool divides;               /* SHIFT: seq_div in place of seq_add */
    uint32_t divisor;           /* of seq_div */
    uint32_t ids[16], srcs[16]; /* REORDER: ids are the destinations */
    int32_t parents[16];
    bool known; /* EXTEND, STEP: toks has the tokens' ids */
    int32_t toks[16];
    uint32_t key; /* extra key of a prompt, and of the step with the tokens that were not found */
} call;

typedef struct rules_token {
    uint64_t ordinal, row; /* row: number of its rows, which sequences may share. A shift makes new rows */
    uint32_t pos, page[RULES_GROUPS];
    uint8_t gone; /* bit g: the cache has dropped its row in group g */
    bool frozen;  /* cache shared-prefix: its row lies in the sequence's front */
} rules_token;

typedef struct rules_account {
    struct rules_seq {
        uint32_t n, front, front_cells; /* front: cache shared-prefix: number of its front, from 1 on; 0: none */
        uint32_t states;                /* models that scan: so many of its last tokens have their states kept */
        rules_token token[RULES_LEN];   /* [n] in the order of positions */
    } seq[RULES_SEQS];
    uint64_t moved;
    uint32_t fronts, pages, n_nodes; /* fronts and pages made so far; pending nodes */
    struct rules_node {              /* in order of admission */
        uint64_t ordinal;
        uint32_t seq, page[RULES_GROUPS];
        int32_t parent; /* its number among the nodes of its sequence */
    } node[RULES_LEN];
} rules_account;

typedef struct rules {
    const kvb_cache_type *type;
    const kvb_model *model;
    uint32_t capacity, seq_capacity, n_ids, max_seqs, rollback, step, page_cells, state_depth; /* of the cache */
    bool residual; /* a pool has residual cells: no defrag, and no save or load of a single sequence */
    kvb_history *history;
    rules_account *now, *after, accounts[2]; /* after: what the call that was asked about last would leave */
    struct rules_slot {
        bool all;
        rules_account held; /* not all: the saved sequence is sequence 0 */
    } slot[RULES_SLOTS];
    uint32_t pos[RULES_TOKENS]; /* [ordinal] position at admission */
    uint64_t next;              /* ordinal of the next token */
    struct rules_word {         /* [ordinal] */
        bool whole;             /* its id is known, and those of all tokens before it */
        int32_t tok;
        uint64_t key;
        uint32_t page[RULES_GROUPS]; /* in which it was written */
    } word[RULES_TOKENS];
    bool fed_only[RULES_SEQS]; /* all tokens of the sequence came by steps and prompts */
    bool valid, tree;          /* there is a step in force; it is a tree */
    uint32_t n_new, ids[RULES_LEN];
    uint64_t first;  /* ordinal of the first new token */
    call last, save; /* event and saving point into these; the history reads an event until the next one */
    kvb_event event, saving;
} rules;

/* Settings are read from *r; sets all other fields. 0 or -ENOMEM. */
int kvb_rules_open(rules *r);
void kvb_rules_close(rules *r);

/* The right answer to any call but MATCH: 0 or a negative errno; `got`, if that is one of several right answers. */
int kvb_rules_answer(rules *r, const call *c, int got);
/* Applies the call that was asked about last and is legal. Returns its event, valid until the next one. */
const kvb_event *kvb_rules_take(rules *r, const call *c);
/* kvb_rules_answer(), then kvb_rules_take() if the answer is 0. */
int kvb_rules_call(rules *r, const call *c);
/* The right answer to a MATCH that returned `got` and found these tokens; 0: applies it. *wrong: wrong tokens. */
int kvb_rules_match(rules *r, const call *c, int got, uint32_t found, const uint64_t *ordinals, bool *wrong);
/* Is there room for the tokens of a STEP or EXTEND, or the nodes of a PROPOSE? */
bool kvb_rules_room(rules *r, const call *c);

uint32_t kvb_rules_length(const rules *r, uint32_t seq); /* the sequence's next position */
uint32_t kvb_rules_pending(const rules *r, uint32_t seq);
uint32_t kvb_rules_live(const rules *r, uint32_t g);  /* cells of group g in use */
uint32_t kvb_rules_cells(const rules *r, uint32_t g); /* most cells of group g */
bool kvb_rules_attend(const rules *r);                /* does any layer attend? */

/* A token fed under the plan in force: the tokens of its sequence up to it, in order, itself last, into path
 * [RULES_LEN]. Returns their number; 0: the token is not fed. */
uint32_t kvb_rules_path(const rules *r, uint64_t ordinal, rules_token *path);
/* Ordinals that a fed token must see in the group, ascending, into want [RULES_LEN]. Returns their number. */
uint32_t kvb_rules_visible(const rules *r, const kvb_group *group, uint64_t ordinal, uint64_t *want);

#endif
