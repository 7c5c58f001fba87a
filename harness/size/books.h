/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables that caches keep beside their pools, by the room in each. Tables that always grow together are one here,
 * with the bytes of an item of all of them.
 */
#ifndef KVB_SIZE_BOOKS_H
#define KVB_SIZE_BOOKS_H

#include "caches/cache.h"
#include "harness/size/history.h"

enum { KVB_BOOK_FED, KVB_BOOK_ROW_STARTS, KVB_BOOK_RUNS, KVB_BOOKS_OF_PLAN };
enum {
    KVB_BOOK_LEDGER,   /* recompute: tokens alive */
    KVB_BOOK_FED_SEQS, /* recompute: sequences of each fed token */
    KVB_BOOK_CELLS,    /* seq: the table of cells */
    KVB_BOOK_SEGMENTS, /* recompute, seq: neighbouring cells of a sequence */
    KVB_BOOK_NODES,    /* tree: pending nodes */
    KVB_BOOK_MOVES,    /* tree: cells of an accepted path */
    KVB_BOOKS_OF_CACHE
};

typedef struct kvb_books {
    uint64_t plan[2][KVB_BOOKS_OF_PLAN]; /* the one in force and the one being made take turns */
    uint64_t own[KVB_BOOKS_OF_CACHE];
    uint32_t turn;   /* of the plans */
    uint64_t tokens; /* alive */
    uint64_t cells;  /* most that the pools were asked for */
    uint32_t oldest; /* sequence: the first that came to life */
    struct {
        uint64_t tokens, segments, end; /* end: last cell + 1 */
    } seq[KVB_SIZE_SEQUENCES];
} kvb_books;

/* How one cache keeps them. */
typedef struct kvb_bookkeeping {
    const kvb_cache_type *cache;
    bool preallocated; /* pools have room for every row at open */
    bool at_once;      /* `times` equal steps of one sequence may be taken in one go */
    void (*take)(kvb_books *books, const kvb_size_step *step, uint64_t times);
} kvb_bookkeeping;

extern const kvb_bookkeeping kvb_bookkeepings[]; /* ends with cache NULL */

uint64_t kvb_books_bytes(const kvb_books *books);

#endif
