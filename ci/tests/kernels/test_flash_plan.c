/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that blocks hold the cells that the mask shows, for every kind of mask; that the shares of all parts hold each
 * block of each unit once, at about equal cost; and that the shares of a split unit are found for merging. */
#include "ci/tests/kernels/fixture.h"
#include "kernels/flash/plan.h"

static uint32_t cost_of(uint32_t rows, uint32_t cells)
{
    return 3 + cells * (2 + rows);
}

static const struct shape plain = {
    .n_tok = 3, .n_kv_heads = 3, .group = 2, .k_dim = 4, .v_dim = 4, .n_cells = 700, .threads = 1, .seed = 1};

static bool spans_alike(const kvb_block *block)
{
    for (uint32_t i = 0; i < block->n; i++)
        if (block->seen[i].word != UINT64_MAX)
            return false;
    return true;
}

/* Checks a block against the table that the mask was made from, and clears the block's cells in `left`. */
static void block_check(const struct fixture *f, const kvb_block *block, uint32_t tok, uint32_t n, bool *left)
{
    const uint32_t n_cells = f->args.problem.n_cells;
    uint64_t any = 0;
    assert_true(block->first % BLOCK == 0 && block->n > 0);
    assert_true(block->span == 1 || (block->span > 1 && block->any == UINT64_MAX && spans_alike(block)));
    for (uint32_t i = 0; i < block->n; i++) {
        const kvb_seen *seen = &block->seen[i];
        assert_true(seen->tok < n && seen->word != 0 && (i == 0 || seen->tok > seen[-1].tok));
        for (uint32_t c = 0; c < block->span * BLOCK; c++)
            if (seen->word >> c % BLOCK & 1) {
                bool *there = &left[(size_t)(tok + seen->tok) * n_cells + block->first + c];
                assert_true(block->first + c < n_cells && *there);
                *there = false;
            }
        assert_int_equal(seen->cells, __builtin_popcountll(seen->word));
        any |= seen->word;
    }
    assert_true(any == block->any);
    for (uint32_t i = 0, same; i < block->n; i += same) {
        same = block->seen[i].same;
        for (uint32_t k = i; k < i + same; k++)
            assert_true(block->seen[k].word == block->seen[i].word);
        assert_true(i + same == block->n || block->seen[i + same].word != block->seen[i].word);
    }
}

/* Walks all blocks; checks each after the next one was read. Returns the number of blocks. */
static uint32_t walk_check(const struct fixture *f, kvb_blocks *blocks, uint32_t tok, uint32_t n)
{
    const kvb_problem *p = &f->args.problem;
    bool *left = exact_alloc((size_t)p->n_tok * p->n_cells + 1, 0);
    kvb_block block[2];
    uint32_t walked = 0;

    memcpy(left, f->visible, (size_t)p->n_tok * p->n_cells);
    kvb_blocks_start(blocks, p->n_tok, tok, n);
    bool more = kvb_blocks_next(blocks, &block[0]);
    for (; more; walked++) {
        const kvb_block *at = &block[walked % 2], *next = &block[(walked + 1) % 2];
        more = kvb_blocks_next(blocks, &block[(walked + 1) % 2]);
        assert_true(!more || next->first >= at->first + at->span * BLOCK);
        block_check(f, at, tok, n, left);
    }
    for (uint32_t t = tok; t < tok + n; t++)
        for (uint32_t c = 0; c < p->n_cells; c++)
            assert_false(left[(size_t)t * p->n_cells + c]);
    free(left);
    return walked;
}

/* Walks a tile's blocks after an abandoned walk, then again. Returns whether their words were kept. */
static bool tile_check(const struct fixture *f, const kvb_mask *mask, uint32_t tok, uint32_t n)
{
    const kvb_problem *p = &f->args.problem;
    kvb_blocks blocks;
    kvb_block block;

    kvb_blocks_open(&blocks, mask, p->n_cells, cost_of, 2);
    kvb_blocks_start(&blocks, p->n_tok, tok, n);
    for (uint32_t i = 0; i < 3; i++)
        kvb_blocks_next(&blocks, &block);
    const uint32_t walked = walk_check(f, &blocks, tok, n);
    const bool kept = blocks.known;
    assert_int_equal(walk_check(f, &blocks, tok, n), walked);
    assert_true(blocks.known == kept);
    if (n > 1) /* another tile must not use the kept words */
        walk_check(f, &blocks, tok + 1, n - 1);
    return kept;
}

TEST(blocks_hold_what_is_visible)
{
    uint32_t kept = 0, walked = 0;
    for (uint32_t i = 0; i < 96; i++) {
        struct shape s = plain;
        struct fixture f;
        s.mask = (kvb_mask_kind)(i % KVB_MASK_KINDS);
        s.n_tok = (uint32_t[]){1, 3, 26, 70}[i % 4];
        s.n_cells = (uint32_t[]){70, 128, 130, 3000, 1, 9000}[i / 16] + s.n_tok;
        s.empty = 3;
        s.seed = 100 + i;
        fixture_build(&f, &s);
        kvb_mask mask = f.args.mask;
        uint64_t *bits = exact_alloc(kvb_mask_bits_bytes(s.n_tok, s.n_cells), 0x55);
        kvb_mask_ascend(&mask, s.n_tok, s.n_cells, bits);
        const bool many = s.mask == KVB_MASK_RUNS && f.row_start[s.n_tok] > s.n_tok * ((s.n_cells + 63) / 64);
        assert_int_equal(mask.kind, s.mask == KVB_MASK_PAGES || many ? KVB_MASK_EXPLICIT : s.mask);
        kept += tile_check(&f, &mask, 0, s.n_tok);
        kept += tile_check(&f, &mask, s.n_tok / 2, s.n_tok - s.n_tok / 2);
        walked += 2;
        free(bits);
        fixture_free(&f);
    }
    assert_true(kept > walked / 2 && kept < walked); /* both cases occurred */
}

/* Runs that do not ascend, or outnumber the words, become bits of the declared size. Other masks stay, and nothing is
 * written. */
TEST(runs_in_any_order_are_told_by_bits)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < 40; i++) {
        struct shape s = plain;
        struct fixture f;
        s.mask = KVB_MASK_RUNS;
        s.any_order = i % 2;
        s.n_tok = (uint32_t[]){1, 3, 26}[i / 2 % 3];
        s.n_cells = 60 + 29 * i;
        s.empty = 3;
        s.seed = 300 + i;
        fixture_build(&f, &s);
        size_t bytes = kvb_mask_bits_bytes(s.n_tok, s.n_cells);
        uint64_t *bits = exact_alloc(bytes, 0x55);
        kvb_mask mask = f.args.mask;
        bool stay = f.row_start[s.n_tok] <= s.n_tok * ((s.n_cells + 63) / 64);
        for (uint32_t t = 0; t < s.n_tok; t++)
            for (uint32_t r = f.row_start[t] + 1; r < f.row_start[t + 1]; r++)
                stay &= f.runs[r].begin > f.runs[r - 1].begin;
        assert_int_equal(bytes, s.n_tok * ((s.n_cells + 63) / 64) * 8);
        kvb_mask_ascend(&mask, s.n_tok, s.n_cells, bits);
        assert_int_equal(mask.kind, stay ? KVB_MASK_RUNS : KVB_MASK_EXPLICIT);
        kept += stay;
        for (size_t b = 0; stay && b < bytes; b++)
            assert_int_equal(((char *)bits)[b], 0x55);
        tile_check(&f, &mask, 0, s.n_tok);
        free(bits);
        fixture_free(&f);
    }
    assert_true(kept > 0 && kept < 20);
}

/* A window that wraps around: two runs, the later one first. */
TEST(a_wrapped_window_is_told_by_bits)
{
    static const kvb_run runs[] = {{0, 3}, {100, 130}, {5, 64}};
    static const uint32_t row_start[] = {0, 1, 3};
    uint64_t bits[6];
    kvb_mask mask = {.kind = KVB_MASK_RUNS, .row_start = row_start, .runs = runs};
    kvb_mask_ascend(&mask, 2, 130, bits);
    assert_int_equal(mask.kind, KVB_MASK_EXPLICIT);
    assert_int_equal(mask.row_words, 3);
    assert_true(bits[0] == 7 && bits[1] == 0 && bits[2] == 0);
    assert_true(bits[3] == ~UINT64_C(31) && bits[4] == ~UINT64_C(0) << 36 && bits[5] == 3);
}

/* Checks that shares cover each unit's cost once, and that merging finds all slots. */
static void plan_check(const struct fixture *f, uint32_t parts, bool deterministic)
{
    kvb_attend args = f->args;
    kvb_team team = {.n = parts};
    kvb_work_plan plan;
    uint64_t tile_end[64], done = 0;
    uint32_t used[2 * 64] = {0}, n_used = 0;

    args.team = &team;
    args.problem.deterministic = deterministic;
    assert_true(kvb_plan_tiles(&args.problem) <= 64);
    kvb_plan_make(&plan, &args, cost_of, tile_end);
    assert_int_equal(plan.n_parts, deterministic ? FIXED_PARTS : parts);
    uint64_t head_cost = tile_end[plan.n_tiles - 1], all = head_cost * args.problem.n_kv_heads;
    for (uint32_t part = 0; part < plan.n_parts; part++) {
        uint64_t cursor = 0;
        kvb_share share;
        while (kvb_plan_share(&plan, part, &cursor, &share)) {
            uint64_t before = share.kv_head * head_cost + (share.tile ? tile_end[share.tile - 1] : 0);
            assert_true(before + share.begin == done && share.end > share.begin);
            done = before + share.end;
            assert_true(share.whole == (share.begin == 0 && done == share.kv_head * head_cost + tile_end[share.tile]));
            if (!share.whole)
                used[n_used++] = share.slot;
        }
        assert_true(cursor <= all / plan.n_parts + 1);
    }
    assert_true(done == all);
    for (uint32_t part = 1, at = 0; part <= plan.n_parts; part++) { /* all slots again, in the same order */
        uint32_t cursor = 0;
        kvb_share share;
        while (part < plan.n_parts && kvb_plan_split(&plan, part, &cursor, &share))
            assert_int_equal(share.slot, used[at++]);
        if (part == plan.n_parts)
            assert_int_equal(at, n_used);
    }
    for (uint32_t i = 0; i < n_used; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_true(used[i] != used[k]);
}

/* A long sequence is one span, until another sequence begins in between; from runs, and from bits. */
TEST(spans_are_long)
{
    static const kvb_run runs[] = {{40, 1000}, {300, 320}};
    static const uint32_t row_start[] = {0, 1, 2}, row_words = 16;
    static const uint32_t expected[][3] = {
        {0, 1, 1}, {64, 3, 1}, {256, 1, 2}, {320, 10, 1}, {960, 1, 1}}; /* cell, span, tokens */
    uint64_t bits[2 * 16] = {0};
    for (uint32_t t = 0; t < 2; t++)
        for (uint32_t c = runs[t].begin; c < runs[t].end; c++)
            bits[t * row_words + c / 64] |= UINT64_C(1) << c % 64;
    const kvb_mask masks[] = {{.kind = KVB_MASK_RUNS, .row_start = row_start, .runs = runs},
                              {.kind = KVB_MASK_EXPLICIT, .bits = bits, .row_words = row_words}};
    for (uint32_t m = 0; m < 2; m++) {
        kvb_blocks blocks;
        kvb_block block;
        uint32_t n = 0;
        kvb_blocks_open(&blocks, &masks[m], 1000, cost_of, 1);
        kvb_blocks_start(&blocks, 2, 0, 2);
        for (; kvb_blocks_next(&blocks, &block); n++) {
            assert_int_equal(block.first, expected[n][0]);
            assert_int_equal(block.span, expected[n][1]);
            assert_int_equal(block.n, expected[n][2]);
        }
        assert_int_equal(n, 5);
    }
}

TEST(parts_share_everything)
{
    for (uint32_t i = 0; i < 24; i++) {
        struct shape s = plain;
        struct fixture f;
        s.mask = (kvb_mask_kind)(i % KVB_MASK_KINDS);
        s.n_tok = (uint32_t[]){1, 26, 300}[i / 4 % 3];
        s.n_cells = s.n_tok + (i < 12 ? 500 : 0);
        s.n_kv_heads = i % 2 ? 1 : 3;
        s.group = i % 3 ? 2 : 7;
        s.seed = 500 + i;
        fixture_build(&f, &s);
        void *bits = malloc(kvb_mask_bits_bytes(s.n_tok, s.n_cells));
        assert_non_null(bits);
        kvb_mask_ascend(&f.args.mask, s.n_tok, s.n_cells, bits); /* blocks take no pages, and no runs in any order */
        for (uint32_t parts = 1; parts <= 24; parts++)
            plan_check(&f, parts, false);
        plan_check(&f, 3, true);
        free(bits);
        fixture_free(&f);
    }
}

/* Queries of 16 sequences whose cells alternate are not multiplied together; a common trunk is. */
TEST(groups_follow_the_cost)
{
    kvb_seen seen[16];
    kvb_block block = {.seen = seen, .n = 16, .any = UINT64_MAX};
    for (uint32_t i = 0; i < 16; i++)
        seen[i] = (kvb_seen){.word = UINT64_C(0x0001000100010001) << i, .tok = (uint16_t)i, .cells = 4};
    kvb_block_weigh(&block, seen, cost_of, 4);
    assert_false(block.together);
    assert_int_equal(block.cost, 16 * cost_of(4, 4));
    for (uint32_t i = 0; i < 16; i++)
        seen[i] = (kvb_seen){.word = UINT64_MAX, .tok = (uint16_t)i, .cells = BLOCK};
    kvb_block_weigh(&block, seen, cost_of, 4);
    assert_int_equal(seen->same, 16);
    assert_true(block.together);
    assert_int_equal(block.cost, cost_of(64, 64));
}
