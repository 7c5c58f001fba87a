/* SPDX-License-Identifier: Apache-2.0 */
/* Turns masks of any kind into words of 64 cells. */
#include "kernels/flash/mask_blocks.h"

#include <string.h>

/* A word with bits begin .. end-1 set; end may lie beyond the word. */
static uint64_t bits_between(uint32_t begin, uint32_t end)
{
    return (end < 64 ? (UINT64_C(1) << end) - 1 : UINT64_MAX) & (UINT64_MAX << begin);
}

/* ---- runs in any order ------------------------------------------------------------------------------------------- */

static size_t row_words(uint32_t n_cells)
{
    return ((size_t)n_cells + BLOCK - 1) / BLOCK;
}

size_t kvb_mask_bits_bytes(uint32_t n_tok, uint32_t n_cells)
{
    return n_tok * row_words(n_cells) * sizeof(uint64_t);
}

static bool ascending(const kvb_mask *mask, uint32_t n_tok)
{
    for (uint32_t t = 0; t < n_tok; t++)
        for (uint32_t i = mask->row_start[t] + 1; i < mask->row_start[t + 1]; i++)
            if (mask->runs[i].begin < mask->runs[i - 1].begin)
                return false;
    return true;
}

static void run_add(uint64_t *row, kvb_run run)
{
    for (uint32_t c = run.begin; c < run.end; c += BLOCK - c % BLOCK) {
        uint32_t first = c / BLOCK * BLOCK;
        row[c / BLOCK] |= bits_between(c - first, run.end - first);
    }
}

void kvb_mask_ascend(kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, void *bits)
{
    const bool runs = mask->kind == KVB_MASK_RUNS;
    uint64_t *row = bits;
    if (!runs && mask->kind != KVB_MASK_PAGES)
        return;
    if (runs && mask->row_start[n_tok] - mask->row_start[0] <= n_tok * row_words(n_cells) && ascending(mask, n_tok))
        return;
    memset(bits, 0, kvb_mask_bits_bytes(n_tok, n_cells));
    for (uint32_t t = 0; t < n_tok; t++, row += row_words(n_cells)) {
        uint32_t cursor = 0;
        for (uint32_t i = runs ? mask->row_start[t] : 0; runs && i < mask->row_start[t + 1]; i++)
            run_add(row, mask->runs[i]);
        for (kvb_run run; !runs && kvb_mask_next(mask, n_tok, n_cells, t, &cursor, &run);)
            run_add(row, run);
    }
    *mask = (kvb_mask){.kind = KVB_MASK_EXPLICIT, .bits = bits, .row_words = row_words(n_cells)};
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static uint32_t seen_same(const kvb_seen *seen, uint32_t n)
{
    uint32_t same = 1;
    while (same < n && seen[same].word == seen->word)
        same++;
    return same;
}

void kvb_block_weigh(kvb_block *block, kvb_seen *seen, kvb_group_cost *cost, uint32_t heads)
{
    const uint64_t together = cost(block->n * heads, kvb_word_cells(block->any));
    uint64_t apart = 0;
    for (uint32_t i = 0; i < block->n; i += seen[i].same) {
        seen[i].same = (uint16_t)seen_same(seen + i, block->n - i);
        apart += cost(seen[i].same * heads, seen[i].cells);
    }
    block->together = together <= apart;
    block->cost = block->together ? together : apart;
}

void kvb_blocks_open(kvb_blocks *b, const kvb_mask *mask, uint32_t n_cells, kvb_group_cost *cost, uint32_t heads)
{
    b->mask = mask;
    b->n_cells = n_cells;
    b->cost = cost;
    b->heads = heads;
    b->known = false;
}

void kvb_blocks_start(kvb_blocks *b, uint32_t n_tok, uint32_t tok, uint32_t n)
{
    const kvb_mask *mask = b->mask;
    b->given = 0;
    if (b->known && b->tok == tok && b->n == n)
        return;
    b->n_seen = b->n_kept = 0;
    b->lost = b->known = false;
    b->tok = tok;
    b->n = n;
    b->at = b->live = 0;
    for (uint32_t i = 0; i < n && mask->kind == KVB_MASK_RUNS; i++) {
        b->next[i] = mask->runs + mask->row_start[tok + i];
        b->end[i] = mask->runs + mask->row_start[tok + i + 1];
    }
    for (uint32_t i = 0; i < n && (mask->kind == KVB_MASK_NONE || mask->kind == KVB_MASK_CAUSAL); i++) {
        b->run[i] = (kvb_run){0, mask->kind == KVB_MASK_NONE ? b->n_cells : b->n_cells - n_tok + tok + i + 1};
        b->next[i] = &b->run[i];
        b->end[i] = b->next[i] + (b->run[i].end > 0);
    }
}

/* What token i sees of the block at cell `first`. Moves on past the runs that end there. */
static uint64_t word_of_runs(kvb_blocks *b, uint32_t i, uint32_t first)
{
    const kvb_run *run = b->next[i], *end = b->end[i];
    uint64_t word = 0;
    while (run < end && run->begin < first + BLOCK) {
        word |= bits_between(run->begin > first ? run->begin - first : 0, run->end - first);
        if (run->end > first + BLOCK)
            break;
        run++;
    }
    b->next[i] = run;
    return word;
}

static uint64_t word_of_bits(const kvb_blocks *b, uint32_t i, uint32_t first)
{
    uint64_t word = b->mask->bits[(b->tok + i) * b->mask->row_words + first / BLOCK];
    return b->n_cells - first < BLOCK ? word & bits_between(0, b->n_cells - first) : word;
}

static void word_add(kvb_block *block, kvb_seen *seen, uint32_t i, uint64_t word)
{
    if (!word)
        return;
    seen[block->n++] = (kvb_seen){word, kvb_word_cells(word), (uint16_t)i, 0};
    block->any |= word;
}

/* Blocks, from this one on, that its tokens see whole and the tile's other tokens not at all; at least 1. */
static uint32_t span_of_runs(const kvb_blocks *b, const kvb_block *block)
{
    uint32_t limit = b->n_cells / BLOCK * BLOCK;
    for (uint32_t i = b->live, k = 0; i < b->n; i++) {
        bool seen = k < block->n && block->seen[k].tok == i;
        if (seen &&
            (block->seen[k++].word != UINT64_MAX || b->next[i] == b->end[i] || b->next[i]->begin > block->first))
            return 1;
        if (b->next[i] == b->end[i])
            continue;
        uint32_t until = seen ? b->next[i]->end : b->next[i]->begin;
        limit = until < limit ? until : limit;
    }
    return limit > block->first + BLOCK ? (limit - block->first) / BLOCK : 1;
}

/* The same under EXPLICIT. */
static uint32_t span_of_bits(const kvb_blocks *b, const kvb_block *block)
{
    uint32_t span = 1;
    for (uint32_t k = 0; k < block->n; k++)
        if (block->seen[k].word != UINT64_MAX)
            return 1;
    for (uint32_t first = block->first + BLOCK; first + BLOCK <= b->n_cells; first += BLOCK, span++)
        for (uint32_t i = 0, k = 0; i < b->n; i++) {
            bool seen = k < block->n && block->seen[k].tok == i;
            if (word_of_bits(b, i, first) != (seen ? UINT64_MAX : 0))
                return span;
            k += seen;
        }
    return span;
}

static bool next_of_bits(kvb_blocks *b, kvb_block *block, kvb_seen *seen)
{
    for (; b->at < b->n_cells && !block->n; b->at += block->span * BLOCK) {
        block->first = b->at;
        for (uint32_t i = 0; i < b->n; i++)
            word_add(block, seen, i, word_of_bits(b, i, b->at));
        block->span = block->n ? span_of_bits(b, block) : 1;
    }
    return block->n;
}

static bool next_of_runs(kvb_blocks *b, kvb_block *block, kvb_seen *seen)
{
    while (b->live < b->n && b->next[b->live] == b->end[b->live])
        b->live++;
    uint32_t next = UINT32_MAX;
    for (uint32_t i = b->live; i < b->n && next > b->at; i++)
        if (b->next[i] < b->end[i] && b->next[i]->begin < next)
            next = b->next[i]->begin;
    if (next == UINT32_MAX)
        return false;
    next = next > b->at ? next : b->at;
    block->first = next / BLOCK * BLOCK;
    for (uint32_t i = b->live; i < b->n; i++)
        word_add(block, seen, i, word_of_runs(b, i, block->first));
    block->span = span_of_runs(b, block);
    b->at = block->first + block->span * BLOCK;
    for (uint32_t k = 0; k < block->n && block->span > 1; k++) {
        const uint32_t tok = seen[k].tok;
        b->next[tok] += b->next[tok]->end == b->at;
    }
    return true;
}

bool kvb_blocks_next(kvb_blocks *b, kvb_block *block)
{
    if (b->known) {
        if (b->given < b->n_kept)
            *block = b->kept[b->given];
        return b->given++ < b->n_kept;
    }
    if (b->n_seen + b->n > KEPT_SEEN) {
        b->n_seen = 0;
        b->lost = true;
    }
    kvb_seen *seen = b->seen + b->n_seen;
    *block = (kvb_block){.seen = seen, .span = 1};
    if (!(b->mask->kind == KVB_MASK_EXPLICIT ? next_of_bits(b, block, seen) : next_of_runs(b, block, seen))) {
        b->known = !b->lost;
        return false;
    }
    kvb_block_weigh(block, seen, b->cost, b->heads);
    b->n_seen += block->n;
    b->lost |= b->n_kept == KEPT_BLOCKS;
    if (!b->lost)
        b->kept[b->n_kept++] = *block;
    return true;
}
