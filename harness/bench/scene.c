/* SPDX-License-Identifier: Apache-2.0 */
/* Queries, and which cells each of them sees. */
#include "harness/bench/bench.h"

#include <errno.h>
#include <stdlib.h>

#include "workloads/live/eagle.h"

enum { SEQUENCES = 16, BRANCHES = 8, TAIL = 64, CHUNK = 512 };

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Query t sees cells begin .. end-1 too. Ascending. */
static void see(kvb_bench_sight *s, uint32_t t, uint32_t begin, uint32_t end)
{
    uint32_t *n = &s->row_start[t + 1];
    if (*n > s->row_start[t] && s->runs[*n - 1].end == begin)
        s->runs[*n - 1].end = end;
    else if (begin < end)
        s->runs[(*n)++] = (kvb_run){begin, end};
}

/* Cells begin .. end-1, or of a window their first and last ones. */
static void window_see(kvb_bench_sight *s, uint32_t t, uint32_t begin, uint32_t end, uint32_t window, uint32_t sinks)
{
    const uint32_t from = window && end - begin > window ? end - window : begin;
    see(s, t, begin, smaller(begin + sinks, from));
    see(s, t, from, end);
}

/* EAGLE's tree: the pending token and the draft's behind a prefix. A node sees itself and those it descends from. */
static void tree_see(kvb_bench_sight *s, uint32_t t)
{
    const kvb_eagle_shape *tree = &kvb_eagle_shape_25;
    uint32_t prefix = s->cells - tree->n;
    uint64_t path = 1;
    for (uint32_t node = t; node; node = tree->parents[node])
        path |= UINT64_C(1) << node;
    see(s, t, 0, prefix);
    for (uint32_t node = 0; node < tree->n; node++)
        if (path >> node & 1)
            see(s, t, prefix + node, prefix + node + 1);
}

/* Cells first + k * stride for k < n. */
static void steps_see(kvb_bench_sight *s, uint32_t t, uint32_t first, uint32_t n, uint32_t stride)
{
    for (uint32_t k = 0; k < n; k++)
        see(s, t, first + k * stride, first + k * stride + 1);
}

static void query_see(const kvb_bench_work *work, kvb_bench_sight *s, uint32_t n_tok, uint32_t t)
{
    uint32_t each = s->cells / n_tok, tail = smaller(TAIL, s->cells / (2 * BRANCHES));
    uint32_t trunk = s->cells - BRANCHES * tail;
    switch (work->shape) {
    case KVB_BENCH_VERIFY:
        tree_see(s, t);
        break;
    case KVB_BENCH_BATCH:
        window_see(s, t, t * each, (t + 1) * each, work->window, work->window_sinks);
        break;
    case KVB_BENCH_STEPS:
        steps_see(s, t, t, each, n_tok);
        break;
    case KVB_BENCH_FORK:
        see(s, t, 0, trunk);
        steps_see(s, t, trunk + t, tail, BRANCHES);
        break;
    case KVB_BENCH_PREFILL:
    case KVB_BENCH_CHUNK:
        window_see(s, t, 0, s->cells - n_tok + t + 1, work->window, work->window_sinks);
        break;
    case KVB_BENCH_PAGED: /* has page tables */
    case KVB_BENCH_DECODE:
        break; /* NONE and CAUSAL need no runs */
    }
}

static uint32_t tokens_of(const kvb_bench_work *work, uint32_t cells)
{
    switch (work->shape) {
    case KVB_BENCH_VERIFY:
        return kvb_eagle_shape_25.n;
    case KVB_BENCH_BATCH:
    case KVB_BENCH_STEPS:
    case KVB_BENCH_PAGED:
        return work->batch ? work->batch : SEQUENCES;
    case KVB_BENCH_FORK:
        return BRANCHES;
    case KVB_BENCH_PREFILL:
        return cells;
    case KVB_BENCH_CHUNK:
        return smaller(CHUNK, cells / 2);
    case KVB_BENCH_DECODE:
        break;
    }
    return 1;
}

static kvb_mask_kind mask_kind(const kvb_bench_work *work)
{
    switch (work->shape) {
    case KVB_BENCH_DECODE:
        return KVB_MASK_NONE;
    case KVB_BENCH_PAGED:
        return KVB_MASK_PAGES;
    case KVB_BENCH_PREFILL:
    case KVB_BENCH_CHUNK:
        return work->window ? KVB_MASK_RUNS : KVB_MASK_CAUSAL;
    case KVB_BENCH_VERIFY:
    case KVB_BENCH_BATCH:
    case KVB_BENCH_STEPS:
    case KVB_BENCH_FORK:
        break;
    }
    return KVB_MASK_RUNS;
}

/* Counted from the mask itself. */
static int sights_count(kvb_bench_sight *s, uint32_t n_tok)
{
    size_t words = ((size_t)s->cells + 63) / 64;
    uint64_t *seen = calloc(words, sizeof *seen);
    if (!seen)
        return -ENOMEM;
    for (uint32_t t = 0; t < n_tok; t++) {
        uint32_t cursor = 0;
        kvb_run run;
        while (kvb_mask_next(&s->mask, n_tok, s->cells, t, &cursor, &run)) {
            s->pairs += run.end - run.begin;
            kvb_bits_set(seen, run.begin, run.end);
        }
    }
    for (size_t w = 0; w < words; w++)
        s->unique += (uint64_t)__builtin_popcountll(seen[w]);
    free(seen);
    return 0;
}

static int runs_make(const kvb_bench_work *work, kvb_bench_sight *s, uint32_t n_tok)
{
    /* no query has more runs than a trunk and tail or a path; those of a batch share the cells */
    s->runs = calloc(s->cells + n_tok * (size_t)(TAIL + 1), sizeof *s->runs);
    s->row_start = calloc((size_t)n_tok + 1, sizeof *s->row_start);
    if (!s->runs || !s->row_start)
        return -ENOMEM;
    for (uint32_t t = 0; t < n_tok; t++) {
        s->row_start[t + 1] = s->row_start[t];
        query_see(work, s, n_tok, t);
    }
    s->mask.runs = s->runs;
    s->mask.row_start = s->row_start;
    return 0;
}

/* Tables of SEQUENCES that hold as many whole pages each, shuffled. Sequences are at most as long as those of a batch.
 */
static int pages_make(const kvb_bench_work *work, kvb_bench_sight *s, uint32_t n_tok)
{
    const uint32_t page = smaller(work->page, s->cells / n_tok), each = s->cells / n_tok / page, n = each * n_tok;
    uint64_t random = 1;
    s->pages = calloc(n, sizeof *s->pages);
    s->row_start = calloc((size_t)n_tok + 1, sizeof *s->row_start);
    s->runs = calloc(n_tok, sizeof *s->runs);
    if (!s->pages || !s->row_start || !s->runs)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) { /* Knuth's MMIX generator */
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint32_t at = (uint32_t)((random >> 33) % (i + 1));
        s->pages[i] = s->pages[at];
        s->pages[at] = i;
    }
    for (uint32_t t = 0; t < n_tok; t++) {
        s->row_start[t + 1] = s->row_start[t] + each;
        s->runs[t].end = each * page;
    }
    s->mask.row_start = s->row_start;
    s->mask.pages = s->pages;
    s->mask.seen = s->runs;
    s->mask.page_cells = page;
    return 0;
}

static int sight_open(kvb_bench_scene *scene, kvb_bench_sight *s, const kvb_bench_work *work, uint32_t cells)
{
    *s = (kvb_bench_sight){
        .group = kvb_bench_group(work), .out = work->out, .cells = cells, .mask.kind = mask_kind(work)};
    s->group.softcap = work->softcap;
    if (work->sinks)
        s->group.sink_logits = scene->sink_logits;
    int error = s->mask.kind == KVB_MASK_RUNS    ? runs_make(work, s, scene->n_tok)
                : s->mask.kind == KVB_MASK_PAGES ? pages_make(work, s, scene->n_tok)
                                                 : 0;
    return error ? error : sights_count(s, scene->n_tok);
}

static void sight_close(kvb_bench_sight *s)
{
    free(s->runs);
    free(s->row_start);
    free(s->pages);
}

/* The same without what the work is about. Of a batch: as many cells as are seen. */
static int plain_open(kvb_bench_scene *s)
{
    kvb_bench_work plain = *s->work;
    plain.shape = plain.shape == KVB_BENCH_PAGED ? KVB_BENCH_BATCH : plain.shape;
    plain.window = 0;
    plain.sinks = false;
    plain.softcap = 0;
    plain.out = KVB_F32;
    return sight_open(s, &s->plain, &plain, plain.shape == KVB_BENCH_BATCH ? (uint32_t)s->own.unique : s->cells);
}

static int bits_make(kvb_bench_scene *s)
{
    size_t row_words = ((size_t)s->cells + 63) / 64;
    s->words = malloc(s->n_tok * row_words * sizeof *s->words);
    if (!s->words)
        return -ENOMEM;
    kvb_mask_expand(&s->own.mask, s->n_tok, s->cells, s->words, row_words);
    s->bits = (kvb_mask){.kind = KVB_MASK_EXPLICIT, .bits = s->words, .row_words = row_words};
    return 0;
}

int kvb_bench_scene_open(kvb_bench_scene *s, const kvb_team *team, const kvb_bench_work *work, uint32_t cells)
{
    const kvb_group group = kvb_bench_group(work);
    *s = (kvb_bench_scene){.work = work, .cells = cells, .n_tok = tokens_of(work, cells), .heads = group.heads};
    for (uint32_t h = 0; h < s->heads; h++)
        s->sink_logits[h] = (float)(h % 5) - 2;
    int error = sight_open(s, &s->own, work, cells);
    for (uint32_t e = 0; e < KVB_BENCH_ENTRIES && !error; e++) {
        if (work->entry[e].way == KVB_BENCH_BITS)
            error = bits_make(s);
        if (work->entry[e].way == KVB_BENCH_PLAIN && !s->plain.cells)
            error = plain_open(s);
    }
    size_t q_bytes = (size_t)s->n_tok * s->heads * group.k_dim * sizeof *s->q;
    s->q = error ? NULL : kvb_memory_take(NULL, "q", q_bytes);
    if (!error && !s->q)
        error = -ENOMEM;
    if (error)
        kvb_bench_scene_close(s);
    else
        kvb_bench_queries_make(team, work, s->q, s->n_tok);
    return error;
}

void kvb_bench_scene_close(kvb_bench_scene *s)
{
    sight_close(&s->own);
    sight_close(&s->plain);
    free(s->words);
    kvb_memory_give(NULL, s->q, 0);
    *s = (kvb_bench_scene){0};
}
