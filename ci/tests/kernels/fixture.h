/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention problems for kernel tests, and their answers in double precision. From kernels/ only attend.h is used: a
 * table of booleans holds what a query sees, and elements are decoded here. All that a kernel must not read or must
 * overwrite is NaN: hidden cells, gaps, scratch, out, lse. Buffers have their exact size.
 */
#ifndef KVB_TEST_FIXTURE_H
#define KVB_TEST_FIXTURE_H

#include <pthread.h>

#include "ci/tests/tests.h"
#include "kernels/attend.h"

/* ---- elements, independent of kernels/convert.c ---- */

static inline size_t elem_bytes(kvb_elem elem)
{
    return elem == KVB_F32 ? 4 : elem == KVB_F16 || elem == KVB_BF16 ? 2 : 1;
}

/* Bytes of a row. q8_0 has blocks. */
static inline size_t row_bytes(kvb_elem elem, uint32_t dim)
{
    return elem == KVB_Q8_0 ? dim / 32 * 34 : dim * elem_bytes(elem);
}

static inline double elem_value(kvb_elem elem, const void *src)
{
    uint16_t h;
    uint32_t b;
    float x;

    if (elem == KVB_F32) {
        memcpy(&x, src, sizeof x);
        return (double)x;
    }
    if (elem == KVB_E4M3) {
        int code = *(const unsigned char *)src, magnitude = code & 127;
        double value = magnitude == 127 ? (double)NAN
                       : magnitude < 8  ? magnitude * 0x1p-9
                                        : (8 + magnitude % 8) * (1 << magnitude / 8) * 0x1p-10;
        return code & 128 ? -value : value;
    }
    if (elem == KVB_E5M2)
        h = (uint16_t)(*(const unsigned char *)src << 8);
    else
        memcpy(&h, src, sizeof h);
    if (elem == KVB_BF16) {
        b = (uint32_t)h << 16;
        memcpy(&x, &b, sizeof x);
        return (double)x;
    }
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double value = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                   : exponent     ? (1024.0 + fraction) * (1 << exponent) * 0x1p-25
                                  : fraction * 0x1p-24;
    return h & 0x8000 ? -value : value;
}

/* Stores any element near x: rounding does not matter, since the answer is computed from the stored element. */
static inline void elem_store(kvb_elem elem, void *dst, float x)
{
    uint32_t b;
    uint16_t h;

    memcpy(&b, &x, sizeof b);
    if (elem == KVB_F32) {
        memcpy(dst, &x, sizeof x);
        return;
    }
    if (elem == KVB_BF16)
        h = (uint16_t)(b >> 16);
    else if (isnan(x))
        h = 0x7e00;
    else if (fabsf(x) < 0x1p-14f)
        h = (uint16_t)(b >> 16 & 0x8000);
    else
        h = (uint16_t)((b >> 16 & 0x8000) | ((b & 0x7fffffff) - 0x38000000) >> 13);
    if (elem == KVB_E5M2)
        h >>= 8;
    if (elem == KVB_E4M3) /* the exponent has one bit less than f16's, and its bias is 8 less */
        h = (uint16_t)((h >> 8 & 0x80) | ((h & 0x7fff) < 0x2400   ? h >> 9 & 7
                                          : (h & 0x7fff) > 0x5f00 ? 126
                                                                  : ((h & 0x7fff) - 0x2000) >> 7));
    memcpy(dst, &h, elem_bytes(elem));
}

/* ---- formats ---- */

#define TEST_WINDOW   4u           /* cells of a window */
#define TEST_HADAMARD KVB_CODEBOOK /* stands for f32 behind a transform in test_formats[] */

/* The f16 row of a cell whose window is not encoded yet, or NULL. */
static inline const uint16_t *recent_row(const kvb_view *v, uint32_t h, uint32_t at)
{
    uint32_t slot = v->recent_slot[at / TEST_WINDOW];
    return slot == KVB_SLOT_NONE ? NULL
                                 : (const uint16_t *)v->recent + slot * v->recent_slot_stride / 2 +
                                       h * v->recent_head_stride / 2 + at % TEST_WINDOW * v->dim;
}

/* Element d of head h's row in cell c; a transform is not undone. */
static inline double row_elem(const kvb_view *v, uint32_t h, uint32_t c, uint32_t d)
{
    const char *row = (const char *)v->base + h * v->head_stride + c * v->cell_stride;

    if (v->format->elem == KVB_Q8_0)
        return elem_value(KVB_F16, row + d / 32 * 34) * (signed char)row[d / 32 * 34 + 2 + d % 32];
    if (v->format->elem != KVB_UINT8)
        return elem_value(v->format->elem, row + d * elem_bytes(v->format->elem));
    const uint16_t *recent = recent_row(v, h, c);
    float scale, zero;
    memcpy(&scale, (const char *)v->scales + h * v->scale_head_stride + c * v->scale_cell_stride, sizeof scale);
    memcpy(&zero, (const char *)v->zeros + h * v->zero_head_stride + c * v->zero_cell_stride, sizeof zero);
    return recent ? elem_value(KVB_F16, &recent[d]) : (unsigned char)row[d] * (double)scale + (double)zero;
}

static inline void rows_read(const kvb_view *v, uint32_t h, uint32_t c, uint32_t n, float *rows)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t d = 0; d < v->dim; d++)
            *rows++ = (float)row_elem(v, h, c + i, d);
}

/* A row with the transform undone. sizes: instead, for each element the sum of its terms' magnitudes, which bounds its
 * roundings. Scale and zero of a windowed row must have the same sign. */
static inline void row_values(const kvb_view *v, uint32_t h, uint32_t c, bool sizes, double *row)
{
    const uint32_t block = v->format->transform ? kvb_transform_block(v->dim) : 1;
    for (uint32_t d = 0; d < v->dim; d++) {
        const double x = row_elem(v, h, c, d) / sqrt(block);
        row[d] = sizes ? fabs(x) : x;
    }
    for (uint32_t apart = 1; apart < block; apart *= 2)
        for (uint32_t d = 0; d < v->dim; d++)
            if (!(d & apart)) {
                const double a = row[d], b = row[d + apart];
                row[d] = a + b;
                row[d + apart] = sizes ? a + b : a - b;
            }
    for (uint32_t d = 0; d < v->dim && v->format->transform && !sizes; d++)
        row[d] = kvb_sign_flip(d) ? -row[d] : row[d];
}

static inline void hadamard_read(const kvb_view *v, uint32_t h, uint32_t c, uint32_t n, float *rows)
{
    double *row = malloc(v->dim * sizeof *row);
    assert_non_null(row);
    for (uint32_t i = 0; i < n; i++) {
        row_values(v, h, c + i, false, row);
        for (uint32_t d = 0; d < v->dim; d++)
            *rows++ = (float)row[d];
    }
    free(row);
}

static const kvb_format test_formats[] = {
    [KVB_F32] = {.name = "f32", .elem = KVB_F32, .read = rows_read},
    [KVB_F16] = {.name = "f16", .elem = KVB_F16, .read = rows_read},
    [KVB_BF16] = {.name = "bf16", .elem = KVB_BF16, .read = rows_read},
    [KVB_E4M3] = {.name = "e4m3", .elem = KVB_E4M3, .read = rows_read},
    [KVB_E5M2] = {.name = "e5m2",
                  .elem = KVB_E5M2,
                  .axis = KVB_AXIS_CHANNELS,
                  .read = rows_read}, /* no loop reads it */
    [KVB_UINT8] = {.name = "windowed",
                   .elem = KVB_UINT8,
                   .axis = KVB_AXIS_CHANNELS,
                   .group = KVB_GROUP_ROW,
                   .residual_cells = TEST_WINDOW,
                   .residual_blocks = UINT32_MAX,
                   .read = rows_read},
    [KVB_Q8_0] = {.name = "q8_0", .elem = KVB_Q8_0, .axis = KVB_AXIS_CHANNELS, .group = 32, .read = rows_read},
    [TEST_HADAMARD] = {.name = "f32+had",
                       .elem = KVB_F32,
                       .transform = KVB_TRANSFORM_SIGNED_HADAMARD,
                       .read = hadamard_read},
};
static const kvb_elem test_elems[] = {KVB_F32, KVB_F16, KVB_BF16, KVB_UINT8, KVB_E4M3, KVB_E5M2};
enum { TEST_ELEMS = sizeof test_elems / sizeof *test_elems };

/* ---- the answer ---- */

/* What the bounds of one query row are computed from: each the largest of all visible cells. */
struct answer_row {
    double lse;
    double reach;   /* sum |q||k| */
    double shift;   /* largest |q| times sum |k| */
    double q;       /* largest |q| */
    double logit;   /* |s| */
    double product; /* weight / sum of the weights, times the largest |v| of all channels */
    uint32_t seen;
};

struct answer {
    struct answer_row *rows; /* [n_tok][n_heads] */
    double *out, *mass;      /* [n_tok][n_heads][v_dim]: sum p v, sum p |v| */
};

/* Rows of a view that any query sees, as doubles [n_kv_heads][cells][2][dim]: values and sizes. Hidden rows are 0. */
static inline double *answer_rows(const kvb_view *view, const kvb_problem *p, const bool *visible)
{
    double *rows = calloc((size_t)p->n_kv_heads * view->cells * 2 * view->dim + 1, sizeof *rows);
    assert_non_null(rows);
    for (uint32_t c = 0; c < view->cells; c++) {
        bool seen = false;
        for (uint32_t t = 0; t < p->n_tok; t++)
            seen |= visible[(size_t)t * p->n_cells + c];
        for (uint32_t h = 0; h < p->n_kv_heads && seen; h++)
            for (int sizes = 0; sizes < 2; sizes++)
                row_values(view, h, c, sizes, rows + (((size_t)h * view->cells + c) * 2 + sizes) * view->dim);
    }
    return rows;
}

/* k [n_cells][2][k_dim], v [n_cells][2][v_stride]: rows of the query row's KV head; s [n_cells]: scratch. */
static inline void answer_row_solve(const kvb_attend *args, const bool *visible, uint32_t t, uint32_t h,
                                    const double *k, const double *v, size_t v_stride, double *s, struct answer *a)
{
    const kvb_problem *p = &args->problem;
    size_t at = (size_t)t * p->n_heads + h;
    const float *q = args->q + at * p->k_dim;
    const bool *sees = visible + (size_t)t * p->n_cells;
    double sink = p->has_sinks ? (double)args->sinks[h] : -INFINITY, max = sink, sum = 0, q_largest = 0;
    double *out = a->out + at * p->v_dim, *mass = a->mass + at * p->v_dim;
    struct answer_row row = {0};

    for (uint32_t d = 0; d < p->k_dim; d++)
        q_largest = fmax(q_largest, fabs((double)q[d]));
    for (uint32_t c = 0; c < p->n_cells; c++) {
        const double *key = k + (size_t)c * 2 * p->k_dim;
        double dot = 0, reach = 0, size = 0;
        if (!sees[c])
            continue;
        for (uint32_t d = 0; d < p->k_dim; d++) {
            dot += (double)q[d] * key[d];
            reach += fabs((double)q[d]) * key[p->k_dim + d];
            size += key[p->k_dim + d];
        }
        s[c] = dot * (double)p->scale;
        if (p->softcap > 0)
            s[c] = (double)p->softcap * tanh(s[c] / (double)p->softcap);
        max = fmax(max, s[c]);
        row.seen++;
        row.reach = fmax(row.reach, reach);
        row.shift = fmax(row.shift, q_largest * size);
        row.q = q_largest;
        row.logit = fmax(row.logit, fabs(s[c]));
    }
    if (sink > -INFINITY)
        sum = exp(sink - max);
    for (uint32_t c = 0; c < p->n_cells; c++)
        if (sees[c])
            sum += s[c] = exp(s[c] - max);
    double p_largest = 0, v_largest = 0;
    for (uint32_t c = 0; c < p->n_cells; c++) {
        const double *value = v + (size_t)c * 2 * v_stride, weight = sees[c] ? s[c] / sum : 0;
        p_largest = fmax(p_largest, weight);
        for (uint32_t d = 0; d < p->v_dim && sees[c]; d++) {
            const double size = value[v_stride + d];
            out[d] += weight * value[d];
            mass[d] += weight * size;
            v_largest = size > v_largest ? size : v_largest;
        }
    }
    row.product = p_largest * v_largest;
    row.lse = sum == 0 ? -INFINITY : max + log(sum);
    a->rows[at] = row;
}

/* visible: [n_tok][n_cells]. */
static inline void answer_solve(struct answer *a, const kvb_attend *args, const bool *visible)
{
    const kvb_problem *p = &args->problem;
    size_t rows = (size_t)p->n_tok * p->n_heads;
    double *k = answer_rows(&args->k, p, visible), *v = p->v_in_k ? k : answer_rows(&args->v, p, visible);
    size_t v_stride = p->v_in_k ? p->k_dim : p->v_dim;
    double *s = calloc((size_t)p->n_cells + 1, sizeof *s);

    a->rows = calloc(rows, sizeof *a->rows);
    a->out = calloc(rows * p->v_dim, sizeof *a->out);
    a->mass = calloc(rows * p->v_dim, sizeof *a->mass);
    assert_true(s && a->rows && a->out && a->mass);
    for (uint32_t t = 0; t < p->n_tok; t++)
        for (uint32_t h = 0; h < p->n_heads; h++) {
            size_t first = (size_t)(h / (p->n_heads / p->n_kv_heads)) * p->n_cells * 2;
            answer_row_solve(args, visible, t, h, k + first * p->k_dim, v + first * v_stride, v_stride, s, a);
        }
    free(s);
    if (v != k)
        free(v);
    free(k);
}

static inline void answer_free(struct answer *a)
{
    free(a->rows);
    free(a->out);
    free(a->mass);
    *a = (struct answer){0};
}

/*
 * The largest error of a kernel with this arithmetic (Higham, Accuracy and Stability, section 3.1), the sum of:
 * - a dot product of chain m: g(m) sum|q||k|, g(m) = mu / (1 - mu); g of its roundings to f16 (q's, too); q's steps;
 *   its floor; the logit: 6u of itself more (scale, cap, subtraction);
 * - weights, relative: expm1(2 * all this), exp and rescales; sums over cells: g(chain), g of their roundings to f16,
 *   steps and floor of the weights; the division, and the rounding to the output type.
 */
#define WIDE 0x1p60 /* a bound that excludes nothing */

static inline double answer_half_error(uint32_t chain)
{
    return chain * 0x1p-11 / (1 - chain * 0x1p-11);
}

static inline double answer_bf16_error(kvb_elem rounded)
{
    return rounded == KVB_BF16 ? 0x1p-8 : 0;
}

static inline double answer_weight_error(const kvb_problem *p, const kvb_arithmetic *a, const struct answer_row *row)
{
    double u = 0x1p-24, g_dot = a->dot_chain * u / (1 - a->dot_chain * u),
           g_cell = (a->cell_chain + 1) * u / (1 - a->cell_chain * u);
    g_dot += 1.01 * answer_half_error(a->scores.chain + (a->query.rounding == KVB_F16)) +
             1.01 * answer_bf16_error(a->query.rounding);
    double slack =
        fabs((double)p->scale) * (g_dot * row->reach + (a->query.step / 2 + a->query.floor) * (1 + g_dot) * row->shift +
                                  a->scores.floor * row->q) +
        6 * u * (row->logit + (double)p->softcap);
    return fmin(expm1(2 * slack), WIDE) + 2 * (a->exp_error + a->rescales * (a->exp_error + u)) + 2 * g_cell + 4 * u;
}

/*
 * For query rows begin .. end-1 every element of out, and of lse if there is one, must lie within its bound of the
 * answer, and be finite. A query that sees nothing must give +0. `note` is for the message.
 */
static inline void answer_judge_rows(const struct answer *answer, const kvb_attend *args, const kvb_kernel *kernel,
                                     const char *note, size_t begin, size_t end)
{
    const kvb_problem *p = &args->problem;
    double u = 0x1p-24, u_out = p->out_elem == KVB_F16 ? 0x1p-11 : p->out_elem == KVB_BF16 ? 0x1p-8 : u;
    double tiny = p->out_elem == KVB_F16 ? 0x1p-25 : 0x1p-120; /* half an ulp of a subnormal f16 */
    kvb_arithmetic a;

    kernel->arithmetic(p, &a);
    for (size_t r = begin; r < end; r++) {
        const struct answer_row *row = &answer->rows[r];
        double rel = answer_weight_error(p, &a, row);
        double steps = a.sums.step / 2 * row->seen * row->product * (1 + rel) + a.sums.floor * row->seen * (1 + rel);
        double halves =
            (answer_half_error(a.sums.chain + (a.sums.rounding == KVB_F16)) + answer_bf16_error(a.sums.rounding)) *
            (1 + rel);
        for (uint32_t d = 0; d < p->v_dim; d++) {
            size_t i = r * p->v_dim + d;
            double got = elem_value(p->out_elem, (const char *)args->out + i * elem_bytes(p->out_elem));
            double bound = (rel + halves) * answer->mass[i] + steps + u_out * fabs(answer->out[i]) + tiny;
            bool right = row->seen ? isfinite(got) && fabs(got - answer->out[i]) <= bound
                                   : got == 0 && (!signbit(got) || p->v_format->transform);
            if (!right)
                fail_msg("%s %s: out[%zu][%zu][%u] = %.9g, exact %.9g, bound %.3g", kernel->name, note, r / p->n_heads,
                         r % p->n_heads, d, got, answer->out[i], bound);
        }
        double lse = args->lse ? (double)args->lse[r] : row->lse;
        double slack = (rel < WIDE ? rel : 0.01 * fabs(row->lse)) + 4 * u * (1 + fabs(row->lse));
        if (!(row->seen ? fabs(lse - row->lse) <= slack : lse == row->lse))
            fail_msg("%s %s: lse[%zu][%zu] = %.9g, exact %.9g", kernel->name, note, r / p->n_heads, r % p->n_heads, lse,
                     row->lse);
    }
}

static inline void answer_judge(const struct answer *answer, const kvb_attend *args, const kvb_kernel *kernel,
                                const char *note)
{
    answer_judge_rows(answer, args, kernel, note, 0, (size_t)args->problem.n_tok * args->problem.n_heads);
}

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

/* Uniform in -2 .. 2. */
static inline float random_value(uint64_t *state)
{
    return (float)(random_bits(state) >> 40) * 0x1p-22f - 2.0f;
}

/* ---- a team of threads, which are started once and wait for the next run ---- */

#define TEAM_MAX 4u

static struct crew {
    pthread_mutex_t lock;
    pthread_cond_t begins, ends;
    void (*part)(void *ctx, uint32_t i, uint32_t n);
    void *ctx;
    uint32_t n, started, busy;
    uint64_t run; /* counts runs */
} crew = {.lock = PTHREAD_MUTEX_INITIALIZER, .begins = PTHREAD_COND_INITIALIZER, .ends = PTHREAD_COND_INITIALIZER};

static inline void *crew_thread(void *arg)
{
    const uint32_t i = (uint32_t)(uintptr_t)arg;
    uint64_t made = 0;
    pthread_mutex_lock(&crew.lock);
    for (;;) {
        while (crew.run == made || i >= crew.n)
            pthread_cond_wait(&crew.begins, &crew.lock);
        made = crew.run;
        pthread_mutex_unlock(&crew.lock);
        crew.part(crew.ctx, i, crew.n);
        pthread_mutex_lock(&crew.lock);
        if (--crew.busy == 0)
            pthread_cond_signal(&crew.ends);
    }
    return NULL;
}

static inline void team_run(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    pthread_mutex_lock(&crew.lock);
    crew.part = part;
    crew.ctx = ctx;
    crew.n = team->n;
    crew.busy = team->n - 1;
    crew.run++;
    for (pthread_t thread; crew.started < crew.busy; crew.started++)
        assert_int_equal(pthread_create(&thread, NULL, crew_thread, (void *)(uintptr_t)(crew.started + 1)), 0);
    pthread_cond_broadcast(&crew.begins);
    pthread_mutex_unlock(&crew.lock);
    part(ctx, 0, team->n);
    pthread_mutex_lock(&crew.lock);
    while (crew.busy)
        pthread_cond_wait(&crew.ends, &crew.lock);
    pthread_mutex_unlock(&crew.lock);
}

/* ---- a problem ---- */

/* Where the cells lie that an EXPLICIT or RUNS mask shows. */
enum scatter {
    SCATTER_ANY,     /* anywhere */
    SCATTER_SINGLES, /* every second one: no two are neighbours */
    SCATTER_PAGES,   /* of four queries: 64 cells of one, 16 of each, 64 of one, 64 of another, and so on */
    SCATTER_BLOCKS   /* in every 11th block of 64 cells; one query in three also in every 7th */
};

struct shape {
    uint32_t n_tok, n_kv_heads, group, k_dim, v_dim, n_cells;
    kvb_mask_kind mask;
    kvb_elem k_elem, v_elem, out_elem;
    float softcap;
    bool sinks, v_in_k, deterministic;
    bool any_order; /* some runs are cut in two, and all are shuffled */
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
    struct answer answer; /* filled by answer_solve(), from the rows as they then are */
};

static inline void *exact_alloc(size_t bytes, int fill)
{
    void *block = NULL;
    assert_int_equal(posix_memalign(&block, 64, bytes ? bytes : 1), 0);
    memset(block, fill, bytes);
    return block;
}

/* Does the scatter let query t see cell c? */
static inline bool scatter_allows(enum scatter scatter, uint32_t t, uint32_t c)
{
    if (scatter == SCATTER_SINGLES)
        return (t + c) % 2 == 0;
    if (scatter == SCATTER_PAGES)
        return (c / 64 % 3 == 1 ? c / 16 : c / 64) % 4 == t % 4;
    return scatter == SCATTER_ANY || c / 64 % 11 == 3 || (c / 64 % 7 == 2 && t % 3 == 1);
}

/* Page tables of a few sequences, which begin alike, and the part that each query sees: a window, first positions, or
 * nothing. */
static inline void pages_draw(struct fixture *f, const struct shape *s, uint64_t *rng)
{
    static const uint32_t sizes[] = {1, 3, 4, 16, 64};
    uint32_t size = sizes[random_below(rng, 5)];
    size = size < s->n_cells ? size : 1;
    const uint32_t n = s->n_cells / size; /* pages; no query sees the cells behind the last one */

    f->page_cells = size;
    f->page_sinks = random_below(rng, 2) * random_below(rng, 7);
    f->pages = exact_alloc((size_t)s->n_tok * n * sizeof *f->pages, 0);
    f->seen = exact_alloc(s->n_tok * sizeof *f->seen, 0);
    f->row_start = exact_alloc((s->n_tok + 1) * sizeof *f->row_start, 0);
    for (uint32_t t = 0; t < s->n_tok; t++) {
        const bool again = t > 0 && random_below(rng, 2); /* has the sequence of the query before it */
        uint32_t *table = f->pages + (size_t)t * n, shared = t ? random_below(rng, n + 1) : 0;
        f->row_start[t] = again ? f->row_start[t - 1] : t * n;
        for (uint32_t i = 0; i < n; i++)
            table[i] = i;
        for (uint32_t i = 0; i < n; i++) { /* begins like the first table; the rest is in any order */
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
    for (uint32_t i = 0; i < s->n_tok * n; i++) { /* entries that no query sees lead nowhere */
        bool needed = false;
        for (uint32_t t = 0; t < s->n_tok && !needed; t++) {
            const uint32_t entry = i - f->row_start[t], first = entry * size, end = first + size;
            needed = i >= f->row_start[t] && entry < n && first < f->seen[t].end &&
                     (end > f->seen[t].begin || first < f->page_sinks);
        }
        f->pages[i] = needed ? f->pages[i] : UINT32_MAX;
    }
}

/* Draws the cells that each query sees. A few cells stay hidden from all queries. */
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

/* Cuts some of n runs in two, and shuffles all. Returns their new number. */
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
    uint64_t rng = s->seed;                            /* its own: the order of runs changes no other draw */
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
        f->bits[t * words + words - 1] = UINT64_MAX; /* past the cells: to be ignored */
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

/* Draws the code of channel d, and for the first of a block its scale. */
static inline void q8_0_draw(char *row, uint32_t d, uint64_t *rng)
{
    char *block = row + d / 32 * 34;
    if (d % 32 == 0)
        elem_store(KVB_F16, block, fabsf(random_value(rng)) / 128);
    block[2 + d % 32] = (char)random_below(rng, 256);
}

/* Builds the rows of one side. Cells that no query sees, and gaps, hold NaN. */
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
            if (scales) { /* scale and zero have the same sign: |code * scale| + |zero| is the element's size */
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

/* Runs the kernel once. Scratch has exactly the size that it asks for; scratch, out and lse start full of NaN. */
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

#endif
