/* SPDX-License-Identifier: Apache-2.0 */
/* A single call of a kernel: its verdict, its buffers, its rows, and the kernel as the subject of calls. */
#ifndef KVB_CALLS_SUBJECT_H
#define KVB_CALLS_SUBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/calls/pairwise.h"
#include "results/result.h"

/* What came of one call, in memory that a child shares with its parent. */
typedef struct kvb_call_verdict {
    kvb_check check; /* that failed; KVB_CHECK_NONE: the call is right */
    char words[320]; /* what is wrong: "out of query 3, head 1, channel 12 is -0.0789, exact 0.1107, bound 2e-7" */
    double rho;      /* largest error over its bound, of the rows that were judged */
    uint64_t rows, judged;       /* of the call; of those, that the oracle judged (the others are looked at for NaN) */
    uint64_t silent;             /* of the judged: rows for which outputs of 0 pass */
    bool exact;                  /* rows were judged to the bit, too */
    bool made_again;             /* kvb_call_same() made the call again */
    double same[KVB_SAME_KINDS]; /* kvb_result.same.by */
} kvb_call_verdict;

/* Notes what is wrong; what was noted first stays. */
__attribute__((format(printf, 3, 4))) void kvb_call_wrong(kvb_call_verdict *verdict, kvb_check check,
                                                          const char *format, ...);

/* Thread teams by size, started once and kept. */
#define KVB_CALL_TEAM 16u /* most threads */
typedef struct kvb_call_teams {
    struct kvb_threads *of[KVB_CALL_TEAM + 1];
} kvb_call_teams;
const struct kvb_team *kvb_call_team(kvb_call_teams *teams, uint32_t threads); /* NULL: it cannot be started */
void kvb_call_teams_end(kvb_call_teams *teams);

/*
 * The same bits? One call in four that are right is made again in other ways (kvb_same_kind), of either kind of call. What
 * its outputs differ by is noted, and fails no call.
 */

/* How one kind of call is made again. trial: the call under judgement, with the outputs that were judged. Functions
 * return 0 or a negative errno; what the kernel declines is left out. */
typedef struct kvb_call_ways {
    int (*team)(void *trial, const struct kvb_team *team); /* the call has this team from now on */
    int (*before)(void *trial);                            /* makes another call of the same kernel */
    int (*whole)(void *trial, kvb_same_kind kind);         /* makes the call and notes its outputs */
    /* Makes a part of the call, or all of it in other memory: any way but THREADS and AGAIN. Nothing where the call has
     * no such way. */
    int (*otherwise)(void *trial, kvb_same_kind kind);
} kvb_call_ways;

/* key, own: of the call. */
int kvb_call_same(const kvb_call_ways *ways, void *trial, uint64_t key, const struct kvb_team *own,
                  kvb_call_teams *teams, kvb_call_verdict *verdict);

/* Notes bytes that were made again, beside those that were judged. Are the bits the same? */
bool kvb_call_same_bits(kvb_call_verdict *verdict, kvb_same_kind kind, const void *was, const void *now, size_t bytes);
/* Notes how far an element differs. bound: the largest error that an honest kernel makes there. */
void kvb_call_same_off(kvb_call_verdict *verdict, kvb_same_kind kind, double was, double now, double bound);

/*
 * The buffers that a single call is handed, of either kind of call, and the call itself, watched: what it returns, what
 * it writes beside its outputs and into its inputs, what memory it takes.
 */

#define KVB_CALL_BUFFERS 16u /* most buffers of a call */

/* Zero at first. */
typedef struct kvb_call_buffers {
    struct kvb_call_buffer {
        const char *name;
        char *block, *at; /* guarded; what the kernel is handed, behind a canary that aligns it */
        size_t bytes;
        bool constant;
        char *was; /* a constant one's content */
    } of[KVB_CALL_BUFFERS];
    uint32_t n;
    void *scratch; /* NULL: none */
    size_t scratch_bytes;
} kvb_call_buffers;

/* Zeros whose start is a multiple of `align` bytes and of no larger power of two below 64. constant: an input. NULL: no
 * memory. */
void *kvb_call_buffer(kvb_call_buffers *buffers, const char *name, size_t bytes, size_t align, bool constant);
/* The constant ones are filled; no call may change them from now on. 0 or -ENOMEM. */
int kvb_call_buffers_keep(kvb_call_buffers *buffers);
/* Scratch of so many bytes instead of what there was. 0 or -ENOMEM. */
int kvb_call_scratch(kvb_call_buffers *buffers, size_t bytes);
void kvb_call_buffers_free(kvb_call_buffers *buffers);

/* Makes a call, with scratch that holds 0xff bytes. function: "attend()"; may_allocate: a foreign kernel may. */
void kvb_call_watch(const kvb_call_buffers *buffers, const char *function, int (*make)(void *ctx), void *ctx,
                    bool may_allocate, kvb_call_verdict *verdict);

/*
 * More rows than fit into memory. The cells of a tall area are one block of a few MiB, mapped again and again, so that
 * byte offsets pass 2^32 while the area takes little more than that block. All cells hold the same bytes at first. A
 * write gives its page a copy of its own, so chosen rows may differ: each page written to takes memory, each page read
 * does not.
 *
 * The rows lie as a view says, codes, scales and zeros each in an area of their own. Beside an area lies address space
 * that must not be touched; between the last row and its end lies less than a page.
 */

/* The row of KV head h in cell c: base + h * head_stride + c * cell_stride. */
typedef struct kvb_tall {
    unsigned char *base; /* aligned to a page */
    size_t head_stride;  /* cells * cell_stride */
    size_t cell_stride;
    void *mapping; /* with what must not be touched */
    size_t mapping_bytes;
} kvb_tall;

/*
 * An area of n_kv_heads * cells rows, each of which holds `row` [cell_stride bytes] until it is written; NULL: bytes
 * 0xff, NaN in every type of float. 0 or a negative errno: -ENOMEM, -EOVERFLOW (more than half of the address space),
 * or what the system refuses. The area is then {0}. Fork shares what is written before it, and keeps apart what is
 * written later.
 */
int kvb_tall_open(kvb_tall *tall, size_t cell_stride, uint32_t cells, uint32_t n_kv_heads, const void *row);
void kvb_tall_close(kvb_tall *tall); /* or one that is {0} */

/* Where a row lies, for writing too. */
static inline void *kvb_tall_row(const kvb_tall *tall, uint32_t h, uint32_t c)
{
    return tall->base + h * tall->head_stride + c * tall->cell_stride;
}

/* A kernel, of either kind, and how its single calls are made and judged. */
typedef struct kvb_call_subject {
    const char *kernel; /* its name */
    const kvb_space *space;
    const void *definition, *shapes; /* for the functions below */
    /* Is the point a call that the kernel takes? Else why. Asked in a process of its own. */
    bool (*fits)(const struct kvb_call_subject *subject, const kvb_point *point, char *why, size_t why_bytes);
    double (*cost)(const struct kvb_call_subject *subject, const kvb_point *point);
    uint32_t (*mutes)(const struct kvb_call_subject *subject,
                      const kvb_point *point); /* as in kvb_point_rules, or NULL */
    /* Makes and judges the call. 0; or a negative errno with why: it could not be judged. */
    int (*judge)(const struct kvb_call_subject *subject, const kvb_point *point, uint64_t seed, kvb_call_teams *teams,
                 kvb_call_verdict *verdict, char *why, size_t why_bytes);
} kvb_call_subject;

#endif
