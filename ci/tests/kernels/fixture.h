/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random attention problems for kernel tests. The mask is made from a table of booleans; the answer (answer.h) takes
 * what is visible from that. Everything that a kernel must not touch or must overwrite is NaN: hidden cells, gaps,
 * scratch, out, lse. Buffers have their exact size.
 */
#ifndef KVB_TEST_FIXTURE_H
#define KVB_TEST_FIXTURE_H

#include "answer.h"
#include "kernels/attend.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- random numbers: splitmix64 ---- */

static inline uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint32_t random_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(random_bits(state) >> 33) % n;
}

/* About -2 .. 2, never 0 on the whole. */
static inline float random_value(uint64_t *state)
{
    return (float)(random_bits(state) >> 40) * 0x1p-22f - 2.0f;
}

/* ---- a team of threads that are started for each run ---- */

#define TEAM_MAX 4u

struct team_part {
    void (*part)(void *ctx, uint32_t i, uint32_t n);
    void *ctx;
    uint32_t i, n;
};

static inline void *team_thread(void *arg)
{
    struct team_part *p = arg;
    p->part(p->ctx, p->i, p->n);
    return NULL;
}

static inline void team_run(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    pthread_t threads[TEAM_MAX];
    struct team_part parts[TEAM_MAX];

    for (uint32_t i = 1; i < team->n; i++) {
        parts[i] = (struct team_part){part, ctx, i, team->n};
        assert_int_equal(pthread_create(&threads[i], NULL, team_thread, &parts[i]), 0);
    }
    part(ctx, 0, team->n);
    for (uint32_t i = 1; i < team->n; i++)
        pthread_join(threads[i], NULL);
}

/* ---- a problem ---- */

/* Where the cells lie that an EXPLICIT or RUNS mask shows. */
enum scatter {
    SCATTER_ANY,     /* anywhere */
    SCATTER_SINGLES, /* every second one: no two are neighbours */
    SCATTER_PAGES,   /* of four queries: 64 cells of one, 16 of each, 64 of one, 64 of another, and so on */
    SCATTER_BLOCKS   /* in few blocks of 64 cells, and of those few in the others that only some queries see */
};

struct shape {
    uint32_t n_tok, n_kv_heads, group, k_dim, v_dim, n_cells;
    kvb_mask_kind mask;
    kvb_elem k_elem, v_elem, out_elem;
    float softcap;
    bool sinks, v_in_k, deterministic;
    bool any_order; /* of runs: cut here and there, and shuffled */
    enum scatter scatter;
    uint32_t gap;   /* elements between the rows of neighbouring cells */
    uint32_t empty; /* one query in `empty` sees nothing (EXPLICIT and RUNS); 0: none */
    uint32_t threads;
    uint64_t seed;
};

struct fixture {
    kvb_attend args;
    kvb_team team;
    bool *visible; /* [n_tok][n_cells] */
    void *k, *v, *k_side, *v_side;
    uint32_t *pages, *row_start;
    uint64_t *bits;
    kvb_run *runs, *seen;
    uint32_t page_cells, page_sinks;
    float *q, *sinks, *lse;
    void *out;
    struct answer answer; /* worked out when first judged: what a test changes before counts */
};

static inline void *exact_alloc(size_t bytes, int fill)
{
    void *block = NULL;
    assert_int_equal(posix_memalign(&block, 64, bytes ? bytes : 1), 0);
    memset(block, fill, bytes);
    return block;
}

/* May query t see cell c, as far as the scatter goes? */
static inline bool scatter_allows(enum scatter scatter, uint32_t t, uint32_t c)
{
    if (scatter == SCATTER_SINGLES)
        return (t + c) % 2 == 0;
    if (scatter == SCATTER_PAGES)
        return (c / 64 % 3 == 1 ? c / 16 : c / 64) % 4 == t % 4;
    return scatter == SCATTER_ANY || c / 64 % 11 == 3 || (c / 64 % 7 == 2 && t % 3 == 1);
}

/* Page tables of a few sequences, which begin alike, and what each query sees of one: windows, first positions,
 * nothing. */
static inline void pages_draw(struct fixture *f, const struct shape *s, uint64_t *rng)
{
    static const uint32_t sizes[] = {1, 3, 4, 16, 64};
    uint32_t size = sizes[random_below(rng, 5)];
    size = size < s->n_cells ? size : 1;
    const uint32_t n = s->n_cells / size; /* pages; the cells behind the last one are nobody's */

    f->page_cells = size;
    f->page_sinks = random_below(rng, 2) * random_below(rng, 7);
    f->pages = exact_alloc((size_t)s->n_tok * n * sizeof *f->pages, 0);
    f->seen = exact_alloc(s->n_tok * sizeof *f->seen, 0);
    f->row_start = exact_alloc((s->n_tok + 1) * sizeof *f->row_start, 0);
    for (uint32_t t = 0; t < s->n_tok; t++) {
        const bool again = t > 0 && random_below(rng, 2); /* of the sequence of the query before */
        uint32_t *table = f->pages + (size_t)t * n, shared = t ? random_below(rng, n + 1) : 0;
        f->row_start[t] = again ? f->row_start[t - 1] : t * n;
        for (uint32_t i = 0; i < n; i++)
            table[i] = i;
        for (uint32_t i = 0; i < n; i++) { /* begins as the first table does; the rest in any order */
            uint32_t k = i;
            while (i < shared && table[k] != f->pages[i])
                k++;
            if (i >= shared)
                k = i + random_below(rng, n - i);
            const uint32_t taken = table[k];
            table[k] = table[i];
            table[i] = taken;
        }
        if (n == 0 || (s->empty && random_below(rng, s->empty) == 0))
            continue;
        kvb_run *seen = &f->seen[t];
        seen->end = 1 + random_below(rng, n * size);
        seen->begin = random_below(rng, 2) ? random_below(rng, seen->end) : 0;
        for (uint32_t pos = 0; pos < seen->end; pos++)
            if (pos >= seen->begin || pos < f->page_sinks)
                f->visible[(size_t)t * s->n_cells + f->pages[f->row_start[t] + pos / size] * size + pos % size] = true;
    }
    for (uint32_t i = 0; i < s->n_tok * n; i++) { /* entries that nobody sees lead nowhere */
        bool needed = false;
        for (uint32_t t = 0; t < s->n_tok && !needed; t++) {
            const uint32_t entry = i - f->row_start[t], first = entry * size, end = first + size;
            needed = i >= f->row_start[t] && entry < n && first < f->seen[t].end &&
                     (end > f->seen[t].begin || first < f->page_sinks);
        }
        f->pages[i] = needed ? f->pages[i] : UINT32_MAX;
    }
}

/* Which cells each query sees. A few cells stay hidden from all. */
static inline void visible_draw(struct fixture *f, const struct shape *s, uint64_t *rng)
{
    bool *hidden = exact_alloc(s->n_cells, 0);
    uint32_t eighths = 1 + random_below(rng, 7);

    for (uint32_t c = 0; c < s->n_cells && s->scatter == SCATTER_ANY; c++)
        hidden[c] = random_below(rng, 6) == 0 || (c > 70 && c < 140); /* whole words of bits too */
    f->visible = exact_alloc((size_t)s->n_tok * s->n_cells, 0);
    if (s->mask == KVB_MASK_PAGES)
        pages_draw(f, s, rng);
    for (uint32_t t = 0; t < s->n_tok && s->mask != KVB_MASK_PAGES; t++) {
        bool blind = s->empty && random_below(rng, s->empty) == 0;
        for (uint32_t c = 0; c < s->n_cells; c++) {
            bool *seen = &f->visible[(size_t)t * s->n_cells + c];
            if (s->mask == KVB_MASK_NONE)
                *seen = true;
            else if (s->mask == KVB_MASK_CAUSAL)
                *seen = c <= s->n_cells - s->n_tok + t;
            else if (s->scatter == SCATTER_SINGLES || s->scatter == SCATTER_PAGES)
                *seen = !blind && scatter_allows(s->scatter, t, c);
            else
                *seen = !blind && !hidden[c] && random_below(rng, 8) < eighths && scatter_allows(s->scatter, t, c);
        }
    }
    free(hidden);
}

/* Cuts some of n runs in two, and shuffles them. Returns how many there are then. */
static inline uint32_t runs_shuffle(kvb_run *runs, uint32_t n, uint64_t *rng)
{
    for (uint32_t i = 0, old = n; i < old; i++)
        if (runs[i].end - runs[i].begin > 1 && random_below(rng, 3)) {
            uint32_t at = runs[i].begin + 1 + random_below(rng, runs[i].end - runs[i].begin - 1);
            runs[n++] = (kvb_run){at, runs[i].end};
            runs[i].end = at;
        }
    for (uint32_t i = n; i > 1; i--) {
        uint32_t k = random_below(rng, i);
        kvb_run last = runs[i - 1];
        runs[i - 1] = runs[k];
        runs[k] = last;
    }
    return n;
}

static inline void mask_build(struct fixture *f, const struct shape *s)
{
    uint64_t rng = s->seed;                            /* of its own: the order of runs changes nothing else */
    size_t words = ((size_t)s->n_cells + 63) / 64 + 1; /* one more than needed: row_words must be honoured */
    uint32_t n = 0;

    f->args.mask = (kvb_mask){.kind = s->mask};
    if (s->mask == KVB_MASK_PAGES) {
        f->args.mask = (kvb_mask){.kind = KVB_MASK_PAGES,
                                  .row_start = f->row_start,
                                  .pages = f->pages,
                                  .seen = f->seen,
                                  .page_cells = f->page_cells,
                                  .sinks = f->page_sinks};
        return;
    }
    f->bits = exact_alloc(s->n_tok * words * sizeof *f->bits, 0);
    f->row_start = exact_alloc((s->n_tok + 1) * sizeof *f->row_start, 0);
    f->runs = exact_alloc(s->n_tok * ((size_t)s->n_cells + 1) * sizeof *f->runs, 0);
    for (uint32_t t = 0; t < s->n_tok; t++) {
        f->bits[t * words + words - 1] = UINT64_MAX; /* past the cells: means nothing */
        for (uint32_t c = s->n_cells; c % 64; c++)
            f->bits[t * words + c / 64] |= UINT64_C(1) << c % 64;
        for (uint32_t c = 0; c < s->n_cells; c++) {
            if (!f->visible[(size_t)t * s->n_cells + c])
                continue;
            f->bits[t * words + c / 64] |= UINT64_C(1) << c % 64;
            if (n > f->row_start[t] && f->runs[n - 1].end == c)
                f->runs[n - 1].end++;
            else
                f->runs[n++] = (kvb_run){c, c + 1};
        }
        if (s->any_order)
            n = f->row_start[t] + runs_shuffle(f->runs + f->row_start[t], n - f->row_start[t], &rng);
        f->row_start[t + 1] = n;
    }
    if (s->mask == KVB_MASK_EXPLICIT) {
        f->args.mask.bits = f->bits;
        f->args.mask.row_words = words;
    } else if (s->mask == KVB_MASK_RUNS) {
        f->args.mask.row_start = f->row_start;
        f->args.mask.runs = f->runs;
    }
}

/* Any code of channel d; with the first of a block its scale. */
static inline void q8_0_draw(char *row, uint32_t d, uint64_t *rng)
{
    char *block = row + d / 32 * 34;
    if (d % 32 == 0)
        elem_store(KVB_F16, block, fabsf(random_value(rng)) / 128);
    block[2 + d % 32] = (char)random_below(rng, 256);
}

/* Rows of one side; cells no query sees, gaps hold NaN. */
static inline void *rows_build(struct fixture *f, const struct shape *s, kvb_elem format, uint32_t dim, kvb_view *view,
                               void **side, uint64_t *rng)
{
    kvb_elem elem = test_formats[format].elem;
    const uint32_t stored = s->n_cells;
    size_t bytes = elem_bytes(elem), cell = row_bytes(elem, dim) + s->gap * bytes;
    char *rows = exact_alloc(s->n_kv_heads * stored * cell, 0xff);
    uint32_t windows = (stored + TEST_WINDOW - 1) / TEST_WINDOW, slots = 0;
    size_t table = (size_t)s->n_kv_heads * stored, recent = (size_t)TEST_WINDOW * dim;
    /* scales and zeros f32 [heads][stored], slots u32 [windows], recent f16 [windows][heads][window][dim] */
    float *scales = *side =
        elem == KVB_UINT8 ? exact_alloc((2 * table + windows) * 4 + windows * s->n_kv_heads * recent * 2, 0xff) : NULL;
    float *zeros = scales ? scales + table : NULL;
    uint32_t *slot = scales ? (uint32_t *)(void *)(zeros + table) : NULL;
    uint16_t *recents = scales ? (uint16_t *)(void *)(slot + windows) : NULL;

    *view = (kvb_view){.base = rows,
                       .head_stride = stored * cell,
                       .cell_stride = cell,
                       .cells = s->n_cells,
                       .dim = dim,
                       .format = &test_formats[format],
                       .scales = scales,
                       .scale_head_stride = stored * sizeof *scales,
                       .scale_cell_stride = sizeof *scales,
                       .zeros = zeros,
                       .zero_head_stride = stored * sizeof *zeros,
                       .zero_cell_stride = sizeof *zeros,
                       .recent = recents,
                       .recent_slot = slot,
                       .recent_slot_stride = s->n_kv_heads * recent * 2,
                       .recent_head_stride = recent * 2};
    for (uint32_t w = 0; w < windows && slot; w++) /* one in three is not encoded yet */
        slot[w] = w % 3 == 1 ? slots++ : KVB_SLOT_NONE;
    for (uint32_t c = 0; c < s->n_cells; c++) {
        bool seen = false;
        for (uint32_t t = 0; t < s->n_tok; t++)
            seen |= f->visible[(size_t)t * s->n_cells + c];
        for (uint32_t h = 0; h < s->n_kv_heads && seen; h++) {
            char *row = rows + (h * (size_t)stored + c) * cell;
            if (scales) { /* scale and zero of one sign: |code * scale| + |zero| is then the element's size */
                scales[h * stored + c] = fabsf(random_value(rng)) / 256;
                zeros[h * stored + c] = fabsf(random_value(rng)) / 2;
            }
            for (uint32_t d = 0; d < dim; d++) {
                uint16_t *held = scales ? (uint16_t *)(uintptr_t)recent_row(view, h, c) : NULL;
                if (held)
                    elem_store(KVB_F16, held + d, random_value(rng));
                else if (scales)
                    row[d] = (char)random_below(rng, 256);
                else if (elem == KVB_Q8_0)
                    q8_0_draw(row, d, rng);
                else
                    elem_store(elem, row + d * bytes, random_value(rng));
            }
        }
    }
    return rows;
}

static inline void fixture_build(struct fixture *f, const struct shape *s)
{
    uint64_t rng = s->seed;
    uint32_t n_heads = s->n_kv_heads * s->group;
    kvb_problem *p = &f->args.problem;

    memset(f, 0, sizeof *f);
    *p = (kvb_problem){.n_tok = s->n_tok,
                       .n_heads = n_heads,
                       .n_kv_heads = s->n_kv_heads,
                       .k_dim = s->k_dim,
                       .v_dim = s->v_dim,
                       .n_cells = s->n_cells,
                       .scale = 1.0f / sqrtf((float)s->k_dim),
                       .softcap = s->softcap,
                       .has_sinks = s->sinks,
                       .v_in_k = s->v_in_k,
                       .out_elem = s->out_elem,
                       .mask = s->mask,
                       .deterministic = s->deterministic,
                       .k_format = &test_formats[s->k_elem],
                       .v_format = &test_formats[s->v_in_k ? s->k_elem : s->v_elem]};
    f->team = (kvb_team){.n = s->threads, .run = team_run};
    f->args.team = &f->team;
    visible_draw(f, s, &rng);
    mask_build(f, s);
    f->k = rows_build(f, s, s->k_elem, s->k_dim, &f->args.k, &f->k_side, &rng);
    if (s->v_in_k) {
        f->args.v = f->args.k;
        f->args.v.dim = s->v_dim;
    } else {
        f->v = rows_build(f, s, s->v_elem, s->v_dim, &f->args.v, &f->v_side, &rng);
    }
    size_t rows = (size_t)s->n_tok * n_heads;
    f->q = exact_alloc(rows * s->k_dim * sizeof *f->q, 0);
    for (size_t i = 0; i < rows * s->k_dim; i++)
        f->q[i] = random_value(&rng);
    f->sinks = exact_alloc(n_heads * sizeof *f->sinks, 0);
    for (uint32_t h = 0; h < n_heads; h++)
        f->sinks[h] = random_value(&rng);
    f->args.q = f->q;
    f->args.sinks = s->sinks ? f->sinks : NULL;
    f->args.out = f->out = exact_alloc(rows * s->v_dim * elem_bytes(s->out_elem), 0xff);
    f->args.lse = f->lse = exact_alloc(rows * sizeof *f->lse, 0xff);
}

static inline void fixture_free(struct fixture *f)
{
    void *blocks[] = {f->visible, f->k,    f->v,    f->k_side, f->v_side, f->pages, f->row_start,
                      f->bits,    f->runs, f->seen, f->q,      f->sinks,  f->lse,   f->out};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
    answer_free(&f->answer);
}

/* Run the kernel once, on scratch of exactly the size it asks for, full of NaN, as are out and lse. */
static inline void fixture_attend(struct fixture *f, const kvb_kernel *kernel)
{
    const kvb_problem *p = &f->args.problem;
    char why[160] = "";
    size_t bytes = kernel->scratch_bytes ? kernel->scratch_bytes(p, f->team.n) : 0;
    size_t rows = (size_t)p->n_tok * p->n_heads;

    if (!kernel->supports(p, why, sizeof why))
        fail_msg("%s: %s", kernel->name, why);
    memset(f->out, 0xff, rows * p->v_dim * elem_bytes(p->out_elem));
    if (f->args.lse)
        memset(f->args.lse, 0xff, rows * sizeof *f->args.lse);
    f->args.scratch = exact_alloc(bytes, 0xff);
    assert_int_equal(kernel->attend(&f->args), 0);
    free(f->args.scratch);
    f->args.scratch = NULL;
}

/* Every element of out and lse within its bound of the answer. */
static inline void fixture_judge(struct fixture *f, const kvb_kernel *kernel, const struct shape *s)
{
    char note[64];
    snprintf(note, sizeof note, "seed %llu mask %d team %u", (unsigned long long)s->seed, (int)s->mask, f->team.n);
    if (!f->answer.rows)
        answer_solve(&f->answer, &f->args, f->visible);
    answer_judge(&f->answer, &f->args, kernel, note);
}

/* Teams of 1 to TEAM_MAX threads, each within the bound; where the problem is to be deterministic, with the same bits.
 */
static inline void teams_judge(struct fixture *f, const kvb_kernel *kernel, const struct shape *s)
{
    const kvb_problem *p = &f->args.problem;
    size_t rows = (size_t)p->n_tok * p->n_heads, bytes = rows * p->v_dim * elem_bytes(p->out_elem);
    void *out = exact_alloc(bytes, 0);
    float *lse = exact_alloc(rows * sizeof *lse, 0);

    for (f->team.n = 1; f->team.n <= TEAM_MAX; f->team.n++) {
        fixture_attend(f, kernel);
        fixture_judge(f, kernel, s);
        if (f->team.n == 1) {
            memcpy(out, f->out, bytes);
            memcpy(lse, f->lse, rows * sizeof *lse);
        } else if (p->deterministic && (memcmp(out, f->out, bytes) || memcmp(lse, f->lse, rows * sizeof *lse))) {
            fail_msg("%s seed %llu: a team of %u has other bits than one thread", kernel->name,
                     (unsigned long long)s->seed, f->team.n);
        }
    }
    f->team.n = s->threads;
    free(out);
    free(lse);
}

static inline void shape_check(const kvb_kernel *kernel, const struct shape *s)
{
    struct fixture f;

    if (!(kernel->masks & KVB_MASK_BIT(s->mask)))
        return;
    fixture_build(&f, s);
    fixture_attend(&f, kernel);
    fixture_judge(&f, kernel, s);
    fixture_free(&f);
}

#endif
