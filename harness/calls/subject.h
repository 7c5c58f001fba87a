/* SPDX-License-Identifier: Apache-2.0 */
/* A single call of a kernel: verdict, buffers, rows that lie apart, and the subject, a kernel with its space of calls.
 */
#ifndef KVB_CALLS_SUBJECT_H
#define KVB_CALLS_SUBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/calls/pairwise.h"
#include "results/result.h"

/* The result of one call, in memory that a child shares with its parent. */
typedef struct kvb_call_verdict {
    kvb_check check; /* the check that failed; KVB_CHECK_NONE: the call is right */
    char words[320]; /* what is wrong: "out of query 3, head 1, channel 12 is -0.0789, exact 0.1107, bound 2e-7" */
    double rho;      /* largest error / bound of the judged rows */
    uint64_t rows, judged; /* rows of the call; rows that the oracle judged (the others are only searched for NaN) */
    uint64_t silent;       /* judged rows for which outputs of 0 would pass */
    bool exact;            /* rows were also judged to the bit */
    bool made_again;       /* kvb_call_same() repeated the call */
    double same[KVB_SAME_KINDS]; /* kvb_result.same.by */
} kvb_call_verdict;

/* Records a failure. The first one is kept. */
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
 * The same bits? One right call in four, attention or scan, is repeated in other ways (kvb_same_kind). The difference
 * of outputs is recorded and fails no call.
 */

/* How one kind of call is repeated. trial: the judged call with its outputs. The functions return 0 or a negative
 * errno. A repetition that the kernel declines is left out. */
typedef struct kvb_call_ways {
    int (*team)(void *trial, const struct kvb_team *team); /* gives the call this team from now on */
    int (*before)(void *trial);                            /* makes another call of the same kernel */
    int (*whole)(void *trial, kvb_same_kind kind);         /* repeats the call and records differences */
    /* Repeats a part of the call, or all of it in other memory. kind: any but THREADS and AGAIN. Does nothing for a
     * kind that the call does not have. */
    int (*otherwise)(void *trial, kvb_same_kind kind);
} kvb_call_ways;

/* Repeats one call in four, by key. key, own: the call's key and team. */
int kvb_call_same(const kvb_call_ways *ways, void *trial, uint64_t key, const struct kvb_team *own,
                  kvb_call_teams *teams, kvb_call_verdict *verdict);

/* Are repeated outputs the same bits as the judged ones? Records that this kind was tried. */
bool kvb_call_same_bits(kvb_call_verdict *verdict, kvb_same_kind kind, const void *was, const void *now, size_t bytes);
/* Records the difference of an element. bound: the largest error that a right kernel makes there. */
void kvb_call_same_off(kvb_call_verdict *verdict, kvb_same_kind kind, double was, double now, double bound);

/*
 * The buffers of a single call, attention or scan, and the watched call: its return value, writes outside its outputs
 * or into its inputs, memory that it allocates.
 */

#define KVB_CALL_BUFFERS 16u /* most buffers of a call */

/* Initialised with zeros. */
typedef struct kvb_call_buffers {
    struct kvb_call_buffer {
        const char *name;
        char *block, *at; /* guarded memory; the kernel's buffer in it, behind a canary that aligns it */
        size_t bytes;
        bool constant;
        char *was; /* constant: a copy of the content */
    } of[KVB_CALL_BUFFERS];
    uint32_t n;
    void *scratch; /* NULL: none */
    size_t scratch_bytes;
} kvb_call_buffers;

/* Allocates zeros that begin at a multiple of `align` bytes and of no larger power of two below 64. constant: an input.
 * NULL: no memory. */
void *kvb_call_buffer(kvb_call_buffers *buffers, const char *name, size_t bytes, size_t align, bool constant);
/* Copies the constant buffers, which are filled; no call may change them from now on. 0 or -ENOMEM. */
int kvb_call_buffers_keep(kvb_call_buffers *buffers);
/* Replaces the scratch. 0 or -ENOMEM. */
int kvb_call_scratch(kvb_call_buffers *buffers, size_t bytes);
void kvb_call_buffers_free(kvb_call_buffers *buffers);

/* Makes a call and records failures in *verdict. Scratch is filled with 0xff. function: its name in messages,
 * "attend()". may_allocate: true for foreign kernels. */
void kvb_call_watch(const kvb_call_buffers *buffers, const char *function, int (*make)(void *ctx), void *ctx,
                    bool may_allocate, kvb_call_verdict *verdict);

/*
 * More rows than fit into memory. The cells of a tall area are one file of a few MiB, mapped again and again, so byte
 * offsets pass 2^32 while the area takes little more memory than the file. All bytes are the same at first. Chosen rows
 * can be written: a written page becomes a copy and takes memory, a page that is only read does not.
 *
 * Rows lie as in a view: codes, scales and zeros each have an area. On both sides of an area lies address space that
 * faults; between the last row and the area's end lies less than a page.
 */

/* The row of KV head h in cell c: base + h * head_stride + c * cell_stride. */
typedef struct kvb_tall {
    unsigned char *base; /* aligned to a page */
    size_t head_stride;  /* cells * cell_stride */
    size_t cell_stride;
    void *mapping; /* the area with the address space that faults */
    size_t mapping_bytes;
} kvb_tall;

/*
 * Opens an area of n_kv_heads * cells rows. All bytes are 0xff (NaN in every type of float), or zeros, until they are
 * written. 0, or a negative errno and {0}: -ENOMEM, -EOVERFLOW (more than half of the address space), or an error of the
 * system. After fork() a child sees earlier writes; later ones are separate.
 */
int kvb_tall_open(kvb_tall *tall, size_t cell_stride, uint32_t cells, uint32_t n_kv_heads, bool zeros);
void kvb_tall_close(kvb_tall *tall); /* {0}: does nothing */

/* Address of a row, to read or write. */
static inline void *kvb_tall_row(const kvb_tall *tall, uint32_t h, uint32_t c)
{
    return tall->base + h * tall->head_stride + c * tall->cell_stride;
}

/* A kernel that attends or scans, and how its single calls are made and judged. */
typedef struct kvb_call_subject {
    const char *kernel; /* its name */
    const kvb_space *space;
    const void *definition, *shapes; /* for the functions below */
    /* Does the kernel take the point's call? Else why. Called in a child: supports() may crash. */
    bool (*fits)(const struct kvb_call_subject *subject, const kvb_point *point, char *why, size_t why_bytes);
    double (*cost)(const struct kvb_call_subject *subject, const kvb_point *point);
    uint32_t (*mutes)(const struct kvb_call_subject *subject,
                      const kvb_point *point); /* as in kvb_point_rules, or NULL */
    /* Makes and judges the call. 0, or a negative errno with why: it cannot be judged. */
    int (*judge)(const struct kvb_call_subject *subject, const kvb_point *point, uint64_t seed, kvb_call_teams *teams,
                 kvb_call_verdict *verdict, char *why, size_t why_bytes);
} kvb_call_subject;

#endif
