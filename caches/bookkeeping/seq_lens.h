/* SPDX-License-Identifier: Apache-2.0 */
/* What there is to know about each sequence without looking at its tokens; and the admission of a step. */
#ifndef KVB_SEQ_LENS_H
#define KVB_SEQ_LENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVB_SEQ_LENS_MAX 64u /* sequence ids are 0 .. 63: one bit each in a set */

typedef struct kvb_seq_lens {
    uint32_t next[KVB_SEQ_LENS_MAX];  /* next position: largest + 1, 0 when empty */
    uint32_t count[KVB_SEQ_LENS_MAX]; /* tokens; fewer than next when positions are missing */
    uint64_t alive;                   /* set of sequences that hold a token */
} kvb_seq_lens;

static inline uint64_t kvb_seq_bit(uint32_t seq)
{
    return (uint64_t)1 << seq;
}

/* The lowest sequence of a set that is not empty. */
static inline uint32_t kvb_seq_lowest(uint64_t set)
{
    return (uint32_t)__builtin_ctzll(set);
}

/* A token at this position joins these sequences. */
void kvb_seq_lens_add(kvb_seq_lens *lens, uint64_t seqs, uint32_t pos);
uint32_t kvb_seq_lens_alive(const kvb_seq_lens *lens); /* sequences that hold a token */

/* Arguments that name sequences: 0, or -EINVAL with why. A source must be alive, a destination empty. */
int kvb_seq_lens_check_source(const kvb_seq_lens *lens, uint32_t seq, char *why, size_t why_bytes);
int kvb_seq_lens_check_copy(const kvb_seq_lens *lens, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1, char *why,
                            size_t why_bytes);
int kvb_seq_lens_check_range(uint32_t p0, uint32_t p1, char *why, size_t why_bytes);

/* What bounds a step. */
typedef struct kvb_step_limits {
    uint32_t free_cells;   /* capacity less cells in use */
    uint32_t seq_capacity; /* longest sequence */
    uint32_t max_seqs;     /* most alive at once */
} kvb_step_limits;

/*
 * Would this step fit? seq_ids [n], or NULL for n tokens of sequence 0. 0 with *step_seqs, the set of
 * sequences in the step; -EINVAL or -ENOSPC with why. Then the positions [n] of its tokens.
 */
int kvb_step_check(const kvb_seq_lens *lens, const uint32_t *seq_ids, uint32_t n, const kvb_step_limits *limits,
                   uint64_t *step_seqs, char *why, size_t why_bytes);
void kvb_step_positions(const kvb_seq_lens *lens, const uint32_t *seq_ids, uint32_t n, uint32_t *positions);

#endif
