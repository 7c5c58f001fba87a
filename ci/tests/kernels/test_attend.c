/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: each kernel, at each level of instruction sets that this CPU has, computes attention within its bound, and
 * keeps attend.h's rules: any team, two regions, hidden cells that hold NaN or infinity, outputs of each type, queries
 * that see nothing. Problems are drawn from a table of scenes; a scene gives the values of some axes.
 */
#define TESTS_OWN_MAIN
#include "ci/tests/kernels/fixture.h"
#include "ci/tests/kernels/levels.h"
#include "kernels/flash/flash.h"
#include "kernels/kernels.h"
#include "kernels/prefetch.h"

/* ---- kernels ---- */

/* A kernel, the loops that it uses, and elements of rows that it takes, if it takes no f32. */
static const struct contestant {
    const kvb_kernel *kernel;
    size_t loops;
    kvb_elem narrow[3];
    uint32_t n_narrow, alike; /* alike: so many contestants from this one on take the same rows */
} contestants[] = {
    {&kvb_kernel_reference, offsetof(kvb_loops, vector), {0}, 0, 0},
    {&kvb_kernel_openblas, offsetof(kvb_loops, vector), {0}, 0, 0},
    {&kvb_kernel_flash, offsetof(kvb_loops, vector), {0}, 0, 0},
    {&kvb_kernel_flash_int8, offsetof(kvb_loops, vector), {KVB_Q8_0}, 1, 1},
    {&kvb_kernel_flash_f16, offsetof(kvb_loops, f16), {KVB_F16, KVB_E4M3, KVB_Q8_0}, 3, 1},
    {&kvb_kernel_flash_bf16, offsetof(kvb_loops, bf16), {KVB_BF16, KVB_E4M3, KVB_E5M2}, 3, 2},
    {&kvb_kernel_flash_amx, offsetof(kvb_loops, amx), {KVB_BF16, KVB_E4M3, KVB_E5M2}, 3, 1},
};
enum { CONTESTANTS = sizeof contestants / sizeof *contestants };

/* Does the kernel have its own loops at the current level? Plain C is tried at the lowest level. */
static bool tried_here(const struct contestant *c)
{
    char why[160];
    return (c->kernel->flags & KVB_KERNEL_VECTOR ? kvb_loops_own(kvb_cpu(), c->loops)
                                                 : kvb_cpu() == KVB_CPU_PORTABLE) &&
           (!c->kernel->available || c->kernel->available(why, sizeof why));
}

/* ---- problems ---- */

enum axis {
    TOK,   /* queries */
    HEADS, /* of K and V */
    GROUP, /* query heads for each */
    DIMS,  /* of K and V rows: BOTH(), or one for both */
    MORE,  /* cells beyond the number of queries, or NO_CELLS */
    MASK,
    K, /* formats */
    V,
    OUT,
    SOFTCAP, /* of softcaps[] */
    SINKS,
    V_IN_K,
    GAP,   /* elements between rows */
    EMPTY, /* one query in so many sees nothing; 0: none */
    THREADS,
    FIXED,   /* deterministic */
    SHUFFLE, /* runs in any order */
    SCATTER,
    VALUES, /* of values[] */
    PREFETCH,
    LSE, /* 1: lse is wanted */
    JUDGE,
    AXES
};

#define LIST(...)                                                                                                      \
    (const uint32_t[])                                                                                                 \
    {                                                                                                                  \
        sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), __VA_ARGS__                                              \
    }
#define RANGE(from, to)                                                                                                \
    (const uint32_t[])                                                                                                 \
    {                                                                                                                  \
        0, from, to                                                                                                    \
    }
#define BOTH(k, v) ((k) << 16 | (v))
#define MASKS      LIST(KVB_MASK_NONE, KVB_MASK_CAUSAL, KVB_MASK_EXPLICIT, KVB_MASK_RUNS, KVB_MASK_PAGES)
#define PLAIN_ROWS LIST(KVB_F32, KVB_F16, KVB_BF16) /* others are slow to read */
#define BY_TABLE   LIST(KVB_MASK_EXPLICIT, KVB_MASK_RUNS, KVB_MASK_PAGES)
enum { NO_CELLS = 1 << 30 };

static const float softcaps[] = {0, 1.5f, 5, 30};

/* Logits are about base + slope * cell, if K is f32 or has 16 bits. k, v: factors for K and V; 0: none. sink: added. */
static const struct values {
    double base, slope;
    float k, v, sink;
} values[] = {{0, 0, 0, 0, 0},     {1e4, 0, 0, 0, 0},    {-1e4, 0, 0, 0, 0},
              {0, 4, 0, 0, 0}, /* maxima change often */
              {0, -4, 0, 0, 0},    {-300, 0.5, 0, 0, 0}, {300, -0.5, 0, 0, 0},
              {1e18, 0, 0, 0, 0},                       /* rounding hides which cell is the largest */
              {-1e18, 0, 0, 0, 0}, {0, 0, 30000, 0, 0}, /* f16 sums overflow; or (below) are subnormal */
              {0, 0, 1e-3f, 0, 0}, {0, 0, 1e-6f, 0, 0},  {0, 0, 0, 30000, 0},
              {0, 0, 0, 1e-3f, 0}, {0, 0, 0, 1e-6f, 0},  {0, 0, 0, 0, -INFINITY},
              {0, 0, 0, 0, 40}, /* above and far above all logits */
              {0, 0, 0, 0, 300}};

/* How a problem is tried: see judges[]. */
enum { ONCE, TEAMS, FRONT, HIDDEN_NAN, HIDDEN_INFINITE, SEEN_NAN };

static const uint32_t *const usual[AXES] = {
    [TOK] = LIST(1, 1, 2, 3, 5, 9),
    [HEADS] = LIST(1, 2, 3),
    [GROUP] = LIST(1, 2, 3, 4, 7),
    [DIMS] = LIST(64, 64, 16, 32, 20, BOTH(64, 128), BOTH(128, 64)),
    [MORE] = LIST(0, 1, 17, 30, 70, 173),
    [MASK] = MASKS,
    [K] = LIST(KVB_F32, KVB_F32, KVB_F16, KVB_BF16, KVB_E4M3, KVB_E5M2, KVB_UINT8, KVB_Q8_0, TEST_HADAMARD),
    [V] = LIST(KVB_F32, KVB_F32, KVB_F16, KVB_BF16, KVB_E4M3, KVB_E5M2, KVB_UINT8, KVB_Q8_0, TEST_HADAMARD),
    [OUT] = LIST(KVB_F32, KVB_F32, KVB_F16, KVB_BF16),
    [SOFTCAP] = LIST(0, 0, 0, 1, 2, 3),
    [SINKS] = LIST(0, 0, 1),
    [V_IN_K] = LIST(0, 0, 0, 1),
    [GAP] = LIST(0, 4),
    [EMPTY] = LIST(0, 3),
    [THREADS] = LIST(1, 2, 3, 4),
    [FIXED] = LIST(0, 1),
    [SHUFFLE] = LIST(0, 1),
    [SCATTER] = LIST(SCATTER_ANY),
    [VALUES] = LIST(0),
    [PREFETCH] = LIST(0, 1),
    [LSE] = LIST(1, 1, 1, 0),
    [JUDGE] = LIST(ONCE, ONCE, ONCE, TEAMS, FRONT, HIDDEN_NAN, HIDDEN_INFINITE, SEEN_NAN),
};

static const struct scene {
    const char *name;
    uint32_t draws;
    const uint32_t *at[AXES]; /* NULL: as usual */
} scenes[] = {
    {"any problem", 400, {0}},
    {"every length around blocks and vectors", 262, {[TOK] = LIST(1, 3), [MORE] = RANGE(0, 130), [JUDGE] = LIST(ONCE)}},
    {"blocks in turns, and what they leave over",
     160,
     {[TOK] = LIST(1),
      [MORE] = RANGE(127, 449),
      [GROUP] = LIST(1, 3, 5, 7),
      [DIMS] = LIST(1, 32, 64),
      [EMPTY] = LIST(0)}},
    {"tokens around a tile",
     96,
     {[TOK] = LIST(2, 7, 26, 63, 64, 65, 66, 130), [DIMS] = LIST(16, 32), [GROUP] = LIST(1, 3), [HEADS] = LIST(1)}},
    {"ratios of heads", 120, {[HEADS] = LIST(1, 2, 3, 5, 7), [GROUP] = RANGE(1, 8)}},
    {"dims",
     192,
     {[DIMS] = LIST(80, 96, 128, 192, 256, 1, 20, 33, 72, BOTH(192, 128), BOTH(64, 256), BOTH(33, 80), BOTH(1, 20),
                    BOTH(20, 1), BOTH(72, 33), BOTH(128, 16)),
      [TOK] = LIST(1, 5)}},
    {"latent rows",
     50,
     {[DIMS] = LIST(BOTH(576, 512), BOTH(576, 80), BOTH(128, 64), 64),
      [V_IN_K] = LIST(1),
      [GROUP] = LIST(3, 4, 16), /* read in registers, or packed */
      [HEADS] = LIST(1)}},
    {"128 query heads over one",
     16,
     {[GROUP] = LIST(128),
      [HEADS] = LIST(1),
      [TOK] = LIST(1, 2),
      [DIMS] = LIST(BOTH(576, 512), BOTH(64, 128)),
      [V_IN_K] = LIST(0, 1),
      [MORE] = LIST(64, 70)}},
    {"cells apart",
     60,
     {[K] = PLAIN_ROWS,
      [V] = PLAIN_ROWS,
      [SCATTER] = LIST(SCATTER_SINGLES, SCATTER_PAGES),
      [MASK] = LIST(KVB_MASK_EXPLICIT, KVB_MASK_RUNS),
      [TOK] = LIST(1, 4, 12, 70),
      [MORE] = LIST(65, 200)}},
    {"few blocks seen",
     36,
     {[K] = PLAIN_ROWS,
      [V] = PLAIN_ROWS,
      [SCATTER] = LIST(SCATTER_BLOCKS),
      [MASK] = LIST(KVB_MASK_EXPLICIT, KVB_MASK_RUNS),
      [TOK] = LIST(1, 5, 34),
      [MORE] = LIST(3000),
      [DIMS] = LIST(16),
      [HEADS] = LIST(1, 2),
      [GROUP] = LIST(2),
      [EMPTY] = LIST(0, 2)}},
    {"runs in any order",
     60,
     {[K] = PLAIN_ROWS,
      [V] = PLAIN_ROWS,
      [MASK] = LIST(KVB_MASK_RUNS),
      [SHUFFLE] = LIST(1),
      [SCATTER] = LIST(SCATTER_ANY, SCATTER_SINGLES, SCATTER_BLOCKS),
      [TOK] = LIST(1, 3, 12, 70),
      [MORE] = LIST(20, 300, 900, 1900),
      [DIMS] = LIST(32),
      [HEADS] = LIST(1)}},
    {"long, cut in two",
     40,
     {[K] = PLAIN_ROWS,
      [V] = PLAIN_ROWS,
      [MORE] = LIST(1100, 1537, 2111),
      [TOK] = LIST(1, 3, 20),
      [HEADS] = LIST(1),
      [GROUP] = LIST(2),
      [JUDGE] = LIST(FRONT)}},
    {"teams",
     28,
     {[K] = PLAIN_ROWS,
      [V] = PLAIN_ROWS,
      [TOK] = LIST(1, 1, 26, 70),
      [HEADS] = LIST(1, 3, 7),
      [GROUP] = LIST(1, 4),
      [MORE] = LIST(1, 90, 700, 1800),
      [DIMS] = LIST(BOTH(32, 16)),
      [JUDGE] = LIST(TEAMS)}},
    {"hidden cells",
     96,
     {[TOK] = LIST(2, 5, 66),
      [MORE] = LIST(30, 180),
      [DIMS] = LIST(64),
      [HEADS] = LIST(1, 2),
      [GROUP] = LIST(1, 2),
      [MASK] = LIST(KVB_MASK_CAUSAL, KVB_MASK_EXPLICIT, KVB_MASK_RUNS, KVB_MASK_PAGES),
      [JUDGE] = LIST(HIDDEN_NAN, HIDDEN_INFINITE)}},
    {"queries that see nothing",
     40,
     {[EMPTY] = LIST(1),
      [MASK] = BY_TABLE,
      [SINKS] = LIST(0, 1),
      [TOK] = LIST(1, 2, 70),
      [MORE] = LIST(0, 70, NO_CELLS),
      [JUDGE] = LIST(ONCE, TEAMS)}},
    {"logits of any size",
     128,
     {[VALUES] = RANGE(1, 8),
      [K] = LIST(KVB_F32, KVB_F16, KVB_BF16),
      [DIMS] = LIST(64),
      [TOK] = LIST(1, 1, 5, 66),
      [MORE] = LIST(134, 200),
      [SOFTCAP] = LIST(0),
      [V_IN_K] = LIST(0),
      [JUDGE] = LIST(ONCE)}},
    {"values of any size",
     60,
     {[VALUES] = RANGE(9, 14),
      [K] = LIST(KVB_F16),
      [V] = LIST(KVB_F16),
      [DIMS] = LIST(48),
      [GROUP] = LIST(1, 5),
      [OUT] = LIST(KVB_F32),
      [V_IN_K] = LIST(0),
      [GAP] = LIST(0),
      [JUDGE] = LIST(ONCE)}},
    {"sinks of any size",
     36,
     {[VALUES] = RANGE(15, 17), [SINKS] = LIST(1), [EMPTY] = LIST(0, 2), [JUDGE] = LIST(ONCE, TEAMS)}},
};

/* Values of an axis in random order: all come once before any comes again. */
struct deck {
    const uint32_t *values;
    uint32_t n, left, order[512];
};

static uint32_t deck_next(struct deck *d, uint64_t *rng)
{
    for (; d->left == 0; d->left = d->n)
        for (uint32_t i = 0; i < d->n; i++) {
            uint32_t k = random_below(rng, i + 1);
            d->order[i] = d->order[k];
            d->order[k] = i;
        }
    const uint32_t at = d->order[--d->left];
    return d->values[0] ? d->values[1 + at] : d->values[1] + at;
}

struct problem {
    struct shape shape;
    uint32_t at[AXES];
};

static void problem_draw(struct problem *p, struct deck *decks, uint64_t seed, uint64_t *rng)
{
    uint32_t *at = p->at;
    for (uint32_t a = 0; a < AXES; a++)
        at[a] = deck_next(&decks[a], rng);
    p->shape = (struct shape){.n_tok = at[TOK],
                              .n_kv_heads = at[HEADS],
                              .group = at[GROUP],
                              .k_dim = at[DIMS] >> 16 ? at[DIMS] >> 16 : at[DIMS],
                              .v_dim = at[DIMS] & 0xffff,
                              .n_cells = at[MORE] == NO_CELLS ? 0 : at[TOK] + at[MORE],
                              .mask = (kvb_mask_kind)at[MASK],
                              .k_elem = (kvb_elem)at[K],
                              .v_elem = (kvb_elem)at[V],
                              .out_elem = (kvb_elem)at[OUT],
                              .softcap = softcaps[at[SOFTCAP]],
                              .sinks = at[SINKS],
                              .v_in_k = at[V_IN_K],
                              .deterministic = at[FIXED],
                              .any_order = at[SHUFFLE],
                              .scatter = (enum scatter)at[SCATTER],
                              .gap = at[GAP],
                              .empty = at[EMPTY],
                              .threads = at[THREADS],
                              .seed = seed};
    struct shape *s = &p->shape;
    s->v_in_k &= s->k_dim >= s->v_dim;
    if (s->k_dim % 32) /* blocks of 32 */
        s->k_elem = s->k_elem == KVB_Q8_0 ? KVB_F32 : s->k_elem;
    if (s->v_dim % 32)
        s->v_elem = s->v_elem == KVB_Q8_0 ? KVB_F16 : s->v_elem;
}

/* Changes logits and sizes as values[] says, if the elements can hold them; the answer is computed from stored rows. */
static void fixture_shift(struct fixture *f, const struct shape *s, const struct values *x)
{
    const kvb_problem *p = &f->args.problem;
    const kvb_elem elem = p->k_format->elem;
    const bool moves = x->base != 0 || x->slope != 0;
    const size_t n_q = (size_t)p->n_tok * p->n_heads * p->k_dim;

    if (elem == KVB_F16 && fabs(x->base) > 1e5) /* out of its range */
        return;
    for (uint32_t h = 0; h < p->n_heads && x->sink != 0; h += 1 + h % 3)
        f->sinks[h] += x->sink;
    for (size_t i = 0; i < n_q && moves && elem <= KVB_BF16; i++)
        f->q[i] = (i % p->k_dim % 3 ? 1.0f : -1.0f) + f->q[i] / 128;
    for (size_t i = 0; i < n_q && x->k > 0 && elem == KVB_F16; i++)
        f->q[i] /= x->k;
    for (size_t at = 0; at < (size_t)p->n_kv_heads * p->n_cells && elem <= KVB_BF16 && (moves || elem == KVB_F16);
         at++) {
        const double part = (x->base + x->slope * (double)(at % p->n_cells)) / ((double)p->scale * p->k_dim);
        for (uint32_t d = 0; d < p->k_dim; d++) {
            char *key = (char *)f->k + at * f->args.k.cell_stride + d * elem_bytes(elem);
            const double was = elem_value(elem, key);
            elem_store(elem, key, (float)(x->k > 0 ? was * (double)x->k / 2 : was + (d % 3 ? part : -part)));
        }
        for (uint32_t d = 0; d < s->v_dim && x->v > 0; d++) {
            char *v = (char *)f->v + at * f->args.v.cell_stride + d * elem_bytes(elem);
            elem_store(elem, v, (float)(elem_value(elem, v) * (double)x->v / 2));
        }
    }
}

/* ---- judges ---- */

/* Fills a row with 0xff bytes, NaN in every format; or with infinity, in the scale if the format has one. */
static void row_spoil(const kvb_view *v, uint32_t h, uint32_t c, bool infinite)
{
    const kvb_elem elem = v->format->elem;
    char *row = (char *)(uintptr_t)v->base + h * v->head_stride + c * v->cell_stride;

    if (!infinite)
        memset(row, 0xff, row_bytes(elem, v->dim));
    for (uint32_t d = 0; d < v->dim && infinite; d++)
        if (elem == KVB_Q8_0)
            elem_store(KVB_F16, row + d / 32 * 34, INFINITY);
        else if (elem != KVB_UINT8 && elem != KVB_E4M3) /* e4m3 has no infinity */
            elem_store(elem, row + d * elem_bytes(elem), INFINITY);
    if (elem != KVB_UINT8)
        return;
    float *scale =
        (float *)(void *)((char *)(uintptr_t)v->scales + h * v->scale_head_stride + c * v->scale_cell_stride);
    float *zero = (float *)(void *)((char *)(uintptr_t)v->zeros + h * v->zero_head_stride + c * v->zero_cell_stride);
    uint16_t *recent = (uint16_t *)(uintptr_t)recent_row(v, h, c);
    *scale = *zero = infinite ? INFINITY : NAN;
    for (uint32_t d = 0; d < v->dim && recent; d++)
        elem_store(KVB_F16, recent + d, infinite ? INFINITY : NAN);
}

/* Spoils the cells that query t does not see; or K of the first and V of the last cell that it sees. */
static void fixture_spoil(struct fixture *f, uint32_t t, uint32_t judge)
{
    const kvb_problem *p = &f->args.problem;
    const bool *sees = f->visible + (size_t)t * p->n_cells;
    uint32_t first = p->n_cells, last = 0;
    for (uint32_t c = 0; c < p->n_cells; c++) {
        first = sees[c] && first == p->n_cells ? c : first;
        last = sees[c] ? c : last;
    }
    for (uint32_t c = 0; c < p->n_cells; c++)
        for (uint32_t h = 0; h < p->n_kv_heads; h++) {
            if (judge == SEEN_NAN ? c == first && h % 2 == 0 : !sees[c])
                row_spoil(&f->args.k, h, c, judge == HIDDEN_INFINITE);
            if (judge == SEEN_NAN ? c == last && sees[c] && h % 2 : !sees[c])
                row_spoil(&f->args.v, h, c, judge == HIDDEN_INFINITE);
        }
}

struct subject {
    struct fixture *f;
    const struct problem *p;
    const kvb_kernel *kernel;
    char note[200];
};

static void once(struct subject *x)
{
    fixture_attend(x->f, x->kernel);
    answer_judge(&x->f->answer, &x->f->args, x->kernel, x->note);
}

/* Teams of 1 to TEAM_MAX threads are right; a deterministic problem gives the same bits. */
static void teams(struct subject *x)
{
    struct fixture *f = x->f;
    const kvb_problem *p = &f->args.problem;
    const size_t rows = (size_t)p->n_tok * p->n_heads, bytes = rows * p->v_dim * elem_bytes(p->out_elem);
    void *out = exact_alloc(bytes, 0);
    float *lse = exact_alloc(rows * sizeof *lse, 0);

    for (f->team.n = 1; f->team.n <= TEAM_MAX; f->team.n++) {
        once(x);
        if (f->team.n == 1) {
            memcpy(out, f->out, bytes);
            memcpy(lse, f->lse, rows * sizeof *lse);
        } else if (p->deterministic && (memcmp(out, f->out, bytes) || memcmp(lse, f->lse, rows * sizeof *lse))) {
            fail_msg("%s %s: a team of %u has other bits than one thread", x->kernel->name, x->note, f->team.n);
        }
    }
    f->team.n = x->p->shape.threads;
    free(out);
    free(lse);
}

/* Copies cells c .. c+n-1 of all heads to new rows, which the caller frees. */
static void *view_part(const kvb_view *v, uint32_t heads, uint32_t c, uint32_t n, kvb_view *part)
{
    char *rows = exact_alloc(heads * (size_t)n * v->cell_stride, 0xff);
    for (uint32_t h = 0; h < heads && n; h++)
        memcpy(rows + h * (size_t)n * v->cell_stride, kvb_view_row(v, h, c), n * v->cell_stride);
    *part = *v;
    part->base = rows;
    part->head_stride = n * v->cell_stride;
    part->cells = n;
    return rows;
}

/* The first cells of K and V become a front: one, whole blocks, all. The answer is that for one region. */
static void front(struct subject *x)
{
    kvb_view *views[] = {&x->f->args.k, &x->f->args.v}, whole[2], fronts[2];
    const uint32_t n = x->p->shape.n_cells, heads = x->p->shape.n_kv_heads,
                   cuts[] = {1, 63, 64, n / 2, n / 2 / 64 * 64 + 1, n - 1, n},
                   cut = cuts[x->p->shape.seed % (sizeof cuts / sizeof *cuts)],
                   cells = cut > n ? n
                           : cut   ? cut
                                   : 1;
    void *blocks[4];
    for (int v = 0; v < 2; v++) {
        whole[v] = *views[v];
        blocks[2 * v] = view_part(&whole[v], heads, 0, cells, &fronts[v]);
        blocks[2 * v + 1] = view_part(&whole[v], heads, cells, n - cells, views[v]);
        views[v]->cells = n;
        views[v]->front = &fronts[v];
    }
    if (x->p->shape.v_in_k) { /* the same rows */
        fronts[1].base = fronts[0].base;
        views[1]->base = views[0]->base;
    }
    once(x);
    for (int v = 0; v < 2; v++)
        *views[v] = whole[v];
    for (int i = 0; i < 4; i++)
        free(blocks[i]);
}

/* Judges only query n_tok / 2, whose hidden cells are spoiled. */
static void hidden(struct subject *x)
{
    const size_t heads = x->f->args.problem.n_heads, row = x->p->shape.n_tok / 2 * heads;
    fixture_attend(x->f, x->kernel);
    answer_judge_rows(&x->f->answer, &x->f->args, x->kernel, x->note, row, row + heads);
}

/* A visible NaN reaches the output. */
static void seen(struct subject *x)
{
    const kvb_problem *p = &x->f->args.problem;
    const size_t row = (size_t)p->n_tok / 2 * p->n_heads, bytes = elem_bytes(p->out_elem);
    fixture_attend(x->f, x->kernel);
    for (size_t i = row * p->v_dim; i < (row + p->n_heads) * p->v_dim && x->f->answer.rows[row].seen; i++)
        if (!isnan(elem_value(p->out_elem, (const char *)x->f->out + i * bytes)))
            fail_msg("%s %s: a NaN that query %u sees is lost", x->kernel->name, x->note, p->n_tok / 2);
}

static void (*const judges[])(struct subject *) = {
    [ONCE] = once,    [TEAMS] = teams, [FRONT] = front, [HIDDEN_NAN] = hidden, [HIDDEN_INFINITE] = hidden,
    [SEEN_NAN] = seen};

/* Does the judge apply? Only some kernels read two regions, and only rows without side tables. */
static bool judge_fits(const struct subject *x)
{
    return x->p->at[JUDGE] != FRONT || (x->kernel->flags & KVB_KERNEL_FRONTS && x->p->shape.n_cells &&
                                        x->p->shape.k_elem != KVB_UINT8 && x->p->shape.v_elem != KVB_UINT8);
}

/* ---- the loop ---- */

/* Tries a problem with all kernels that take it; or with `alone` and those alike, which must take 64 channels. */
static void problem_try(const char *scene, const struct problem *p, const struct contestant *alone)
{
    const struct contestant *from = alone ? alone : contestants,
                            *to = alone ? alone + alone->alike : contestants + CONTESTANTS;
    const struct shape *s = &p->shape;
    struct fixture f;
    fixture_build(&f, s);
    fixture_shift(&f, s, &values[p->at[VALUES]]);
    answer_solve(&f.answer, &f.args, f.visible);
    if (p->at[JUDGE] >= HIDDEN_NAN)
        fixture_spoil(&f, s->n_tok / 2, p->at[JUDGE]);
    if (!p->at[LSE] && p->at[JUDGE] != TEAMS)
        f.args.lse = NULL;
    for (int level = 0; level < KVB_CPU_LEVELS; level++) {
        if (!level_tried((kvb_cpu_level)level))
            continue;
        kvb_cpu_limit((kvb_cpu_level)level);
        for (const struct contestant *c = from; c < to; c++) {
            struct subject x = {.f = &f, .p = p, .kernel = c->kernel};
            char why[160];
            if (!tried_here(c) || !(c->kernel->masks & KVB_MASK_BIT(s->mask)))
                continue;
            const bool takes = c->kernel->supports(&f.args.problem, why, sizeof why);
            assert_true(takes || (c->n_narrow && (!alone || s->k_dim % 64 || s->v_dim % 64)));
            snprintf(x.note, sizeof x.note, "at %s, %s, seed %llu, %u x %u queries, %u cells, mask %d, %s %s, judge %u",
                     kvb_cpu_level_names[level], scene, (unsigned long long)s->seed, s->n_tok, s->group, s->n_cells,
                     (int)s->mask, f.args.k.format->name, f.args.v.format->name, p->at[JUDGE]);
            memset(f.lse, 0xff, (size_t)s->n_tok * f.args.problem.n_heads * sizeof *f.lse);
            if (takes)
                judges[judge_fits(&x) ? p->at[JUDGE] : ONCE](&x);
            for (size_t i = 0; !f.args.lse && i < (size_t)s->n_tok * f.args.problem.n_heads; i++)
                assert_true(isnan(f.lse[i])); /* must not be written */
        }
    }
    kvb_cpu_limit(KVB_CPU_LEVELS - 1);
    fixture_free(&f);
}

static void scene_check(void **state)
{
    const struct scene *scene = *state;
    uint64_t rng = (uint64_t)(scene - scenes) + 1;
    static struct deck decks[AXES];
    for (uint32_t a = 0; a < AXES; a++) {
        const uint32_t *list = scene->at[a] ? scene->at[a] : usual[a];
        decks[a] = (struct deck){.values = list, .n = list[0] ? list[0] : list[2] - list[1] + 1};
    }
    for (uint32_t i = 0; i < scene->draws; i++) {
        struct problem p;
        problem_draw(&p, decks, (uint64_t)(scene - scenes) * 10000 + i, &rng);
        kvb_prefetch_set(p.at[PREFETCH] ? &kvb_prefetch_amd : &kvb_prefetch_intel);
        problem_try(scene->name, &p, NULL);
        const struct contestant *c = &contestants[3 + i % 3]; /* once more with rows for this kernel */
        p.shape.k_elem = p.shape.v_elem = c->narrow[i / 3 % c->n_narrow];
        if (p.shape.k_elem != KVB_Q8_0 || (p.shape.k_dim % 32 == 0 && p.shape.v_dim % 32 == 0))
            problem_try(scene->name, &p, c);
        kvb_prefetch_set(NULL);
    }
}

/* ---- beside the scenes ---- */

static const struct shape plain = {
    .n_tok = 1, .n_kv_heads = 1, .group = 1, .k_dim = 16, .v_dim = 16, .n_cells = 150, .threads = 1, .seed = 1};

/* The reference gives the same bits for the same rows copied in the order of the runs, all visible. */
TEST(reference_sums_in_the_order_of_runs)
{
    for (uint32_t i = 0; i < 8; i++) {
        struct shape s = plain;
        struct fixture f;
        uint32_t n = 0;
        s.mask = KVB_MASK_RUNS;
        s.any_order = true;
        s.seed = 4100 + i;
        fixture_build(&f, &s);
        fixture_attend(&f, &kvb_kernel_reference);
        float out[16], lse = f.lse[0], k[150 * 16], v[150 * 16];
        memcpy(out, f.out, sizeof out);
        for (uint32_t r = 0; r < f.row_start[1]; r++)
            for (uint32_t c = f.runs[r].begin; c < f.runs[r].end; c++, n++) {
                memcpy(k + n * 16, (float *)f.k + c * 16, 16 * sizeof *k);
                memcpy(v + n * 16, (float *)f.v + c * 16, 16 * sizeof *v);
            }
        f.args.k.base = k;
        f.args.v.base = v;
        f.args.k.cells = f.args.v.cells = f.args.problem.n_cells = n;
        f.args.mask = (kvb_mask){.kind = KVB_MASK_NONE};
        f.args.problem.mask = KVB_MASK_NONE;
        fixture_attend(&f, &kvb_kernel_reference);
        assert_memory_equal(out, f.out, sizeof out);
        assert_true(lse == f.lse[0]);
        fixture_free(&f);
    }
}

/* Threads that use BLAS at the same time do not spoil each other's products. A missing lock shows only by chance. */
TEST(busy_teams_agree)
{
    struct shape s = plain;
    struct fixture one, three;
    s.n_tok = 64;
    s.n_cells = 96;
    s.n_kv_heads = 12;
    s.group = 2;
    s.k_dim = s.v_dim = 256;
    s.mask = KVB_MASK_CAUSAL;
    fixture_build(&one, &s);
    fixture_attend(&one, &kvb_kernel_openblas);
    s.threads = 3;
    fixture_build(&three, &s);
    for (int i = 0; i < 40; i++) {
        fixture_attend(&three, &kvb_kernel_openblas);
        assert_memory_equal(one.out, three.out, (size_t)s.n_tok * s.n_kv_heads * s.group * s.v_dim * sizeof(float));
    }
    fixture_free(&one);
    fixture_free(&three);
}

int main(void)
{
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        tests_add(__LINE__,
                  (struct CMUnitTest){scenes[i].name, scene_check, NULL, NULL, (void *)(uintptr_t)&scenes[i]});
    return tests_run();
}
