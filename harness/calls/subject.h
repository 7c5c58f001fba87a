/* SPDX-License-Identifier: Apache-2.0 */
/* A single call of a kernel: verdict, buffers, rows that lie apart, and the checks that attention and scans share. */
#ifndef KVB_CALLS_SUBJECT_H
#define KVB_CALLS_SUBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/calls/pairwise.h"
#include "kernels/attend.h"
#include "results/result.h"

/* The result of one call, in memory that a child shares with its parent. */
typedef struct kvb_call_verdict {
    kvb_check check; /* the check that failed; KVB_CHECK_NONE: the call is right */
    char words[320]; /* what is wrong: "out of query 3, head 1, channel 12 is -0.0789, exact 0.1107, bound 2e-7" */
    double rho;      /* largest error / bound of the judged rows */
    uint64_t rows, judged; /* rows of the call; rows that the oracle judged (the others are only searched for NaN) */
    uint64_t silent;       /* judged rows for which outputs of 0 would pass */
    bool exact;            /* rows were also judged to the bit */
    bool made_again;       /* the call was repeated in other ways */
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
const kvb_team *kvb_call_team(kvb_call_teams *teams, uint32_t threads); /* NULL: it cannot be started */
void kvb_call_teams_end(kvb_call_teams *teams);

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

#define KVB_CALL_BUFFERS 16u /* most buffers of a call */

typedef enum kvb_call_use {
    KVB_CALL_INPUT,  /* no call changes it */
    KVB_CALL_OUTPUT, /* its content after the first run is kept */
    KVB_CALL_ROWS    /* rows, which the checks change */
} kvb_call_use;

/* Initialised with zeros. */
typedef struct kvb_call_buffers {
    struct kvb_call_buffer {
        const char *name;
        char *block, *at; /* guarded memory; the kernel's buffer in it, behind a canary that aligns it */
        size_t bytes;
        kvb_call_use use;
        char *was; /* a copy of an input, or of an output after the first run */
    } of[KVB_CALL_BUFFERS];
    uint32_t n;
    void *scratch; /* NULL: none */
    size_t scratch_bytes;
} kvb_call_buffers;

/* Allocates zeros that begin at a multiple of `align` bytes and of no larger power of two below 64. NULL: no memory. */
void *kvb_call_buffer(kvb_call_buffers *buffers, const char *name, size_t bytes, size_t align, kvb_call_use use);
/* Content of the output at this address after the first run. */
const char *kvb_call_first(const kvb_call_buffers *buffers, const void *output);
/* Replaces the scratch. 0 or -ENOMEM. */
int kvb_call_scratch(kvb_call_buffers *buffers, size_t bytes);
void kvb_call_buffers_free(kvb_call_buffers *buffers);

/* ---- the checks of a call ---------------------------------------------------------------------------------------- */

typedef enum kvb_call_order {
    KVB_ORDER_FIRST,
    KVB_ORDER_REPEATED,
    KVB_ORDER_AFTER_LARGER,
    KVB_ORDER_AFTER_SMALLER
} kvb_call_order;

/* A call under judgement. The first members are set by kvb_call_judge(), the others by the kind's open(). */
typedef struct kvb_call_trial {
    const struct kvb_trial_kind *kind;
    const kvb_kernel *kernel;
    kvb_call_verdict *verdict;
    kvb_call_teams *teams;
    uint64_t key; /* of values and layout */
    void *scene;  /* the call, its inputs and outputs */
    char *why;    /* the reason of an error */
    size_t why_bytes;

    const kvb_team *team; /* the call's own */
    kvb_call_buffers *buffers;
    kvb_call_order order;
    bool same_bits;      /* other teams must give the same bits */
    bool hides;          /* memory that the call must not read is filled with NaN */
    bool may_allocate;   /* of foreign kernels */
    size_t rows;         /* that can be judged to the bit */
    double row_products; /* to judge one of them */
} kvb_call_trial;

/* Attention or scans. Functions return 0 or a negative errno. */
typedef struct kvb_trial_kind {
    const char *function; /* "attend()" */
    const char *hidden;   /* in words: what the call must not read */
    bool always_same;     /* bits depend neither on the team nor on earlier calls */
    size_t scene_bytes;
    /* Makes the point's call, but does not run it. -EINVAL with why: no such call; -ENOTSUP with why: nothing can judge
     * it. The scene, zero at first, is closed also after an error. */
    int (*open)(kvb_call_trial *trial, const kvb_call_subject *subject, const kvb_point *point);
    void (*close)(void *scene);
    /* Gives the call this team, and scratch for it. */
    int (*team)(void *scene, const kvb_kernel *kernel, const kvb_team *team);
    /* Makes another call of the same kernel, of a larger or smaller shape. */
    int (*other)(kvb_call_trial *trial, bool larger);
    /* Fills memory that the call must not read with NaN, or (which cannot fail) with finite numbers. */
    int (*hide)(kvb_call_trial *trial, bool hidden);
    void (*begin)(kvb_call_trial *trial); /* marks outputs as unwritten */
    int (*run)(kvb_call_trial *trial);    /* returns what the kernel returns */
    void (*look)(kvb_call_trial *trial);  /* checks without an oracle, after a run */
    /* Judges outputs by the oracle. when: begins messages. */
    int (*judge)(kvb_call_trial *trial, const char *when);
    bool (*order)(kvb_call_trial *trial); /* does the kernel declare an order for this call? */
    /* Is a row, to the bit, what the declared order gives? 1; 0 with why; -EDOM: unknown; -ENOMEM. */
    int (*exact)(kvb_call_trial *trial, size_t row, char *why, size_t why_bytes);
    /* Repeats a right call, or a part of it, in another way, and records differences, which fail no call. Does nothing
     * for a way that the call does not have, or that the kernel declines. THREADS, AGAIN: the whole call. */
    int (*again)(kvb_call_trial *trial, kvb_same_kind way);
    int (*last)(kvb_call_trial *trial); /* a check after all others; NULL: none */
} kvb_trial_kind;

/* Makes and judges the point's call. Called in a child: a crash of the kernel ends the process. 0, or the error of
 * open(), or -ENOMEM. */
int kvb_call_judge(const kvb_call_subject *subject, const kvb_point *point, uint64_t seed, kvb_call_teams *teams,
                   kvb_call_verdict *verdict, char *why, size_t why_bytes);

/* Scan calls: their space, and a kernel as a subject, which the kernel must outlive. Attention: attend_axes.h. */
extern const kvb_space kvb_scan_space;
kvb_call_subject kvb_scan_subject(const kvb_kernel *kernel);

/* For kinds: runs the call and records failures: its return value, writes outside its outputs or into its inputs, memory
 * that it allocates, and what look() finds. Scratch is filled with 0xff. */
void kvb_trial_run(kvb_call_trial *trial);
/* The index of the first of n elements that is not finite; n: all are. */
size_t kvb_call_finite(kvb_elem elem, const void *block, size_t n);
/* Do all bytes have this value? */
bool kvb_call_filled(const void *block, size_t bytes, int byte);
/* Are repeated outputs the same bits as the judged ones? Records that this way was tried. */
bool kvb_call_same_bits(kvb_call_verdict *verdict, kvb_same_kind way, const void *was, const void *now, size_t bytes);
/* Records the difference of an element. bound: the largest error that a right kernel makes there. */
void kvb_call_same_off(kvb_call_verdict *verdict, kvb_same_kind way, double was, double now, double bound);

/* ---- rows that lie apart ----------------------------------------------------------------------------------------- */

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
/* Makes the files now, for all children that will open areas. An error comes again when an area is opened. */
void kvb_tall_prepare(void);

/* Address of a row, to read or write. */
static inline void *kvb_tall_row(const kvb_tall *tall, uint32_t h, uint32_t c)
{
    return tall->base + h * tall->head_stride + c * tall->cell_stride;
}

#endif
