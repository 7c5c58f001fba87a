/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences by length and number, and the admission of a step. */
#include "caches/bookkeeping/seq_lens.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void kvb_seq_lens_add(kvb_seq_lens *lens, uint64_t seqs, uint32_t pos)
{
    lens->alive |= seqs;
    for (; seqs; seqs &= seqs - 1) {
        uint32_t s = kvb_seq_lowest(seqs);
        lens->count[s]++;
        if (lens->next[s] <= pos)
            lens->next[s] = pos + 1;
    }
}

uint32_t kvb_seq_lens_alive(const kvb_seq_lens *lens)
{
    return (uint32_t)__builtin_popcountll(lens->alive);
}

static int seq_check_id(uint32_t seq, char *why, size_t why_bytes)
{
    if (seq < KVB_SEQ_LENS_MAX)
        return 0;
    snprintf(why, why_bytes, "sequence %u is out of range: 0 .. %u", seq, KVB_SEQ_LENS_MAX - 1);
    return -EINVAL;
}

int kvb_seq_lens_check_source(const kvb_seq_lens *lens, uint32_t seq, char *why, size_t why_bytes)
{
    int error = seq_check_id(seq, why, why_bytes);
    if (!error && !(lens->alive & kvb_seq_bit(seq))) {
        snprintf(why, why_bytes, "sequence %u is empty", seq);
        error = -EINVAL;
    }
    return error;
}

int kvb_seq_lens_check_range(uint32_t p0, uint32_t p1, char *why, size_t why_bytes)
{
    if (p0 <= p1)
        return 0;
    snprintf(why, why_bytes, "positions %u .. %u are no range", p0, p1);
    return -EINVAL;
}

int kvb_seq_lens_check_copy(const kvb_seq_lens *lens, uint32_t src, uint32_t dst, uint32_t p0, uint32_t p1, char *why,
                            size_t why_bytes)
{
    int error = kvb_seq_lens_check_source(lens, src, why, why_bytes);
    if (!error)
        error = seq_check_id(dst, why, why_bytes);
    if (!error)
        error = kvb_seq_lens_check_range(p0, p1, why, why_bytes);
    if (!error && lens->alive & kvb_seq_bit(dst)) {
        snprintf(why, why_bytes, "sequence %u is not empty", dst);
        error = -EINVAL;
    }
    return error;
}

int kvb_step_check(const kvb_seq_lens *lens, const uint32_t *seq_ids, uint32_t n, const kvb_step_limits *limits,
                   uint64_t *step_seqs, char *why, size_t why_bytes)
{
    uint32_t adds[KVB_SEQ_LENS_MAX] = {0};
    uint64_t seqs = 0;
    if (n == 0) {
        snprintf(why, why_bytes, "a step needs at least one token");
        return -EINVAL;
    }
    for (uint32_t i = 0; seq_ids && i < n; i++) {
        int error = seq_check_id(seq_ids[i], why, why_bytes);
        if (error)
            return error;
        adds[seq_ids[i]]++;
        seqs |= kvb_seq_bit(seq_ids[i]);
    }
    if (!seq_ids) {
        adds[0] = n;
        seqs = kvb_seq_bit(0);
    }
    if (n > limits->free_cells) {
        snprintf(why, why_bytes, "no room for %u tokens: %u cells are free", n, limits->free_cells);
        return -ENOSPC;
    }
    uint32_t alive = (uint32_t)__builtin_popcountll(lens->alive | seqs);
    if (alive > limits->max_seqs) {
        snprintf(why, why_bytes, "no room for %u sequences: at most %u may be alive", alive, limits->max_seqs);
        return -ENOSPC;
    }
    for (uint64_t left = seqs; left; left &= left - 1) {
        uint32_t s = kvb_seq_lowest(left);
        if (adds[s] > limits->seq_capacity || lens->next[s] > limits->seq_capacity - adds[s]) {
            snprintf(why, why_bytes, "sequence %u would pass its %u positions", s, limits->seq_capacity);
            return -ENOSPC;
        }
    }
    *step_seqs = seqs;
    return 0;
}

void kvb_step_positions(const kvb_seq_lens *lens, const uint32_t *seq_ids, uint32_t n, uint32_t *positions)
{
    uint32_t next[KVB_SEQ_LENS_MAX];
    memcpy(next, lens->next, sizeof next);
    for (uint32_t i = 0; i < n; i++)
        positions[i] = next[seq_ids ? seq_ids[i] : 0]++;
}
