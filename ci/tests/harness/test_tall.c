/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: a tall area holds the same byte everywhere except where rows were written, and has exact ends, in little
 * memory. Every built-in kernel reads the right rows of views whose cells, pages and byte offsets exceed 2^16, 2^20,
 * 2^31 and 2^32. Kernels with narrower counters fail.
 */
#include <signal.h>
#include <sys/wait.h>

#include "ci/tests/caches/named.h"
#include "harness/calls/subject.h"
#include "kernels/kernels.h"

enum { TOKENS = 2, GROUP = 2, DIM = 64, MOST_SEEN = 256, MOST_HEADS = 5, MOST_CELLS = (1 << 20) + 40 };

/* ---- the area alone -------------------------------------------------------------------------------------------- */

/* KiB of this process's private pages: those that it wrote. */
static long private_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (kib < 0 && fgets(line, sizeof line, f))
        sscanf(line, "RssAnon: %ld", &kib);
    fclose(f);
    return kib;
}

TEST(holds_rows)
{
    static const struct {
        size_t stride;
        uint32_t cells, heads;
    } cases[] = {{4096, (1 << 20) + 3, 1}, {65664, 65539, 1}, {24, 1000, 3}, {3, 1, 1}, {16384, 65540, 5}};
    unsigned char row[65664], other[65664];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t stride = cases[i].stride;
        const uint32_t cells = cases[i].cells, heads = cases[i].heads, step = cells > 1000 ? 997 : 1;
        const long before = private_kib();
        kvb_tall tall;
        memset(row, i % 2 ? 0 : 0xff, stride);
        for (size_t b = 0; b < stride; b++)
            other[b] = (unsigned char)(b * 5 % 249 + 1);
        assert_int_equal(kvb_tall_open(&tall, stride, cells, heads, i % 2), 0);
        for (uint32_t h = 0; h < heads; h++)
            for (uint32_t c = 0; c < cells; c += step)
                assert_memory_equal(kvb_tall_row(&tall, h, c), row, stride);
        for (uint32_t h = 0; h < heads; h++)
            memcpy(kvb_tall_row(&tall, h, cells - 1 - h % cells), other, stride);
        for (uint32_t h = 0; h < heads; h++)
            for (uint32_t c = 0; c < cells; c += step)
                assert_memory_equal(kvb_tall_row(&tall, h, c), c == cells - 1 - h % cells ? other : row, stride);
        assert_memory_equal(kvb_tall_row(&tall, heads - 1, cells - 1 - (heads - 1) % cells), other, stride);
#ifndef __SANITIZE_THREAD__                         /* its shadow memory covers each byte that is read */
        assert_true(private_kib() - before < 4096); /* of up to 5 GiB */
#else
        (void)before;
#endif
        kvb_tall_close(&tall);
        kvb_tall_close(&tall); /* a second close does nothing */
    }
    kvb_tall tall;
    assert_int_equal(kvb_tall_open(&tall, SIZE_MAX / 8, UINT32_MAX, 8, false), -EOVERFLOW);
    assert_null(tall.base);
    assert_int_equal(kvb_tall_open(&tall, 4, 0, 1, false), -EINVAL);
}

/* An access before the first row or behind the last one is a fault. */
TEST(ends_where_it_says)
{
    for (int behind = 0; behind < 2; behind++) {
        kvb_tall tall;
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        assert_int_equal(kvb_tall_open(&tall, page, 700, 2, false), 0);
        assert_int_equal(*tall.base, 0xff);
        const pid_t child = fork();
        if (child == 0) {
            signal(SIGSEGV, SIG_DFL);
            signal(SIGBUS, SIG_DFL);
            const volatile unsigned char *at = behind ? tall.base + 2 * tall.head_stride : tall.base - 1;
            _exit(*at == 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        kvb_tall_close(&tall);
    }
}

/* ---- kernels over such areas ------------------------------------------------------------------------------------- */

/* Codes, scales and zeros have the same stride, so all of them exceed 2^32 bytes. All pages are whole. */
static const struct place {
    uint32_t cells, heads, page_cells;
    size_t stride;
    const char *pools[8];
    uint32_t
        whole; /* openblas takes so many of them: it reads every cell, by a loop for plain rows and one for codes */
} places[] = {
    {(1 << 20) + 20, 1, 1, 4096, {"f32", "q8_0"}, 2},
    {65536 + 32, 1, 3, 65664, {"f32", "f16", "bf16", "e4m3", "int8", "q8_0", "a8g32"}, 2},
    {65536 + 32, MOST_HEADS, 2, 16384, {"f32", "int8"}, 1},
};

/* Visible cells, ascending, in whole pages. The second query sees the later half. */
struct sight {
    uint32_t cells[MOST_SEEN], pages[MOST_SEEN], n, n_pages;
    uint64_t bits[TOKENS][(MOST_CELLS + 63) / 64];
    kvb_run runs[2 * MOST_SEEN], seen[TOKENS];
    uint32_t row_start[TOKENS + 1];
};

static int by_value(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void sight_make(struct sight *s, const struct place *place)
{
    const uint64_t edges[] = {
        0, 256, 65536, 1 << 20, 0x80000000u / place->stride, UINT64_C(0x100000000) / place->stride, place->cells - 2};
    uint32_t pages[MOST_SEEN], n = 0;
    memset(s, 0, sizeof *s);
    for (size_t e = 0; e < sizeof edges / sizeof *edges; e++)
        for (uint64_t c = edges[e] ? edges[e] - 1 : 0; c < edges[e] + 2 && c < place->cells; c++)
            pages[n++] = (uint32_t)c / place->page_cells;
    qsort(pages, n, sizeof *pages, by_value);
    for (uint32_t i = 0; i < n; i++) {
        if (i && pages[i] == pages[i - 1])
            continue;
        s->pages[s->n_pages++] = pages[i];
        for (uint32_t k = 0; k < place->page_cells; k++)
            s->cells[s->n++] = pages[i] * place->page_cells + k;
    }
    assert_true(s->n <= MOST_SEEN && s->cells[s->n - 1] < place->cells && s->cells[s->n - 1] >= place->cells - 3);
    uint32_t run = 0;
    for (uint32_t t = 0; t < TOKENS; t++) {
        s->seen[t] = (kvb_run){t ? s->n / 2 : 0, s->n};
        for (uint32_t i = s->seen[t].begin; i < s->n; i++) {
            s->bits[t][s->cells[i] / 64] |= UINT64_C(1) << s->cells[i] % 64;
            s->runs[run++] = (kvb_run){s->cells[i], s->cells[i] + 1};
        }
        s->row_start[t + 1] = run;
    }
}

/* Rows of one side as a pool stores them, each lane spread over its own area. */
struct side {
    float rows[MOST_HEADS][MOST_SEEN][DIM]; /* as the format reads them */
    kvb_tall codes, scales, zeros;
    kvb_view view;
};

static float noise(uint32_t i)
{
    i = (i + 1) * 0x9e3779b9u;
    i = (i ^ i >> 15) * 0x85ebca6bu;
    return (float)(int32_t)(i ^ i >> 13) * 0x1p-31f;
}

static void lane_spread(kvb_tall *tall, const struct place *place, const struct sight *s, const void *base,
                        size_t head_stride, size_t cell_stride)
{
    *tall = (kvb_tall){0};
    if (!base)
        return;
    assert_int_equal(kvb_tall_open(tall, place->stride, place->cells, place->heads, false), 0);
    for (uint32_t h = 0; h < place->heads; h++)
        for (uint32_t i = 0; i < s->n; i++)
            memcpy(kvb_tall_row(tall, h, s->cells[i]), (const char *)base + h * head_stride + i * cell_stride,
                   cell_stride);
}

static void side_make(struct side *side, const kvb_pool_type *type, const struct place *place, const struct sight *s,
                      uint32_t seed)
{
    kvb_allocator allocator = {0};
    kvb_pool_options options = {
        .n_kv_heads = place->heads, .dim = DIM, .min_chunk = s->n, .capacity = s->n, .allocator = &allocator};
    const size_t elements = (size_t)s->n * place->heads * DIM;
    float *rows = malloc(elements * sizeof *rows);
    kvb_pool *pool;
    assert_non_null(rows);
    for (size_t i = 0; i < elements; i++)
        rows[i] = noise(seed + (uint32_t)i);
    assert_int_equal(type->open(type, &options, &pool), 0);
    assert_int_equal(type->ensure(pool, s->n), 0);
    type->write_run(pool, 0, s->n, rows);
    kvb_view held;
    type->view(pool, s->n, &held);
    for (uint32_t h = 0; h < place->heads; h++)
        held.format->read(&held, h, 0, s->n, side->rows[h][0]);
    lane_spread(&side->codes, place, s, held.base, held.head_stride, held.cell_stride);
    lane_spread(&side->scales, place, s, held.scales, held.scale_head_stride, held.scale_cell_stride);
    lane_spread(&side->zeros, place, s, held.zeros, held.zero_head_stride, held.zero_cell_stride);
    side->view = (kvb_view){.base = side->codes.base,
                            .head_stride = side->codes.head_stride,
                            .cell_stride = side->codes.cell_stride,
                            .cells = place->cells,
                            .dim = DIM,
                            .format = held.format,
                            .scales = side->scales.base,
                            .scale_head_stride = side->scales.head_stride,
                            .scale_cell_stride = side->scales.cell_stride,
                            .zeros = side->zeros.base,
                            .zero_head_stride = side->zeros.head_stride,
                            .zero_cell_stride = side->zeros.cell_stride};
    type->close(pool);
    free(rows);
}

static void side_end(struct side *side)
{
    kvb_tall_close(&side->codes);
    kvb_tall_close(&side->scales);
    kvb_tall_close(&side->zeros);
}

/* The definition, over the written values; computes no address in an area. */
static void expect(const struct sight *s, const struct side *k, const struct side *v, const float *q, uint32_t t,
                   uint32_t h, float scale, double *out)
{
    double weights = 0;
    memset(out, 0, DIM * sizeof *out);
    for (uint32_t i = s->seen[t].begin; i < s->n; i++) {
        double dot = 0;
        for (uint32_t d = 0; d < DIM; d++)
            dot += (double)q[d] * (double)k->rows[h / GROUP][i][d];
        const double weight = exp((double)scale * dot);
        weights += weight;
        for (uint32_t d = 0; d < DIM; d++)
            out[d] += weight * (double)v->rows[h / GROUP][i][d];
    }
    for (uint32_t d = 0; d < DIM; d++)
        out[d] /= weights;
}

static void run_alone(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    for (uint32_t i = 0; i < team->n; i++)
        part(ctx, i, team->n);
}

/* 8-bit products and weights err by less; a missing, additional or wrong row errs by more in some channel. */
#define TOLERANCE 0.02

/* The largest error of a call; infinity for NaN or if the call fails. */
static double call(const kvb_kernel *kernel, const struct place *place, const struct sight *s, const struct side *k,
                   const struct side *v, kvb_mask_kind mask)
{
    static float q[TOKENS * MOST_HEADS * GROUP * DIM], out[sizeof q / sizeof *q];
    const kvb_team team = {.n = 2, .run = run_alone};
    kvb_attend args = {
        .problem = {.n_tok = TOKENS,
                    .n_heads = place->heads * GROUP,
                    .n_kv_heads = place->heads,
                    .k_dim = DIM,
                    .v_dim = DIM,
                    .n_cells = place->cells,
                    .scale = 0.125f,
                    .out_elem = KVB_F32,
                    .mask = mask,
                    .k_format = k->view.format,
                    .v_format = v->view.format},
        .q = q,
        .k = k->view,
        .v = v->view,
        .mask = {.kind = mask,
                 .bits = s->bits[0],
                 .row_words = sizeof s->bits[0] / sizeof *s->bits[0],
                 .row_start = s->row_start,
                 .runs = s->runs,
                 .pages = s->pages,
                 .seen = s->seen,
                 .page_cells = place->page_cells},
        .out = out,
        .team = &team,
    };
    static const uint32_t one_table[TOKENS];
    char why[256];
    if (mask == KVB_MASK_PAGES)
        args.mask.row_start = one_table;
    if (kernel->supports && !kernel->supports(&args.problem, why, sizeof why))
        return 0;
    for (size_t i = 0; i < sizeof q / sizeof *q; i++)
        q[i] = noise((uint32_t)i + 77777);
    const size_t bytes = kernel->scratch_bytes ? kernel->scratch_bytes(&args.problem, team.n) : 0;
    assert_int_equal(posix_memalign(&args.scratch, 64, bytes + 64), 0);
    const int rc = kernel->attend(&args);
    free(args.scratch);
    double worst = rc ? INFINITY : 0;
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t h = 0; h < args.problem.n_heads; h++) {
            const size_t row = ((size_t)t * args.problem.n_heads + h) * DIM;
            double exact[DIM];
            expect(s, k, v, q + row, t, h, args.problem.scale, exact);
            for (uint32_t d = 0; d < DIM; d++) {
                const double error = fabs((double)out[row + d] - exact[d]);
                worst = error <= worst ? worst : isnan(error) ? INFINITY : error;
            }
        }
    return worst;
}

static struct sight sight;
static struct side k_side, v_side;

TEST(every_kernel_reads_far_rows)
{
    for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        for (const char *const *pool = places[p].pools; *pool; pool++) {
            const struct place *place = &places[p];
            sight_make(&sight, place);
            side_make(&k_side, pool_named(*pool), place, &sight, 1);
            side_make(&v_side, pool_named(*pool), place, &sight, 1u << 30);
            for (const kvb_kernel *const *kernel = kvb_builtin_kernels; *kernel; kernel++) {
                char why[256];
                if (!(*kernel)->attend || (*kernel)->flags & KVB_KERNEL_WITNESS ||
                    (*kernel == &kvb_kernel_openblas && pool >= place->pools + place->whole) ||
                    ((*kernel)->available && !(*kernel)->available(why, sizeof why)))
                    continue;
                for (kvb_mask_kind mask = KVB_MASK_EXPLICIT; mask <= KVB_MASK_PAGES; mask++) {
                    if (!((*kernel)->masks & KVB_MASK_BIT(mask)))
                        continue;
                    const double error = call(*kernel, place, &sight, &k_side, &v_side, mask);
                    if (!(error < TOLERANCE))
                        fail_msg("%s over %s, %u cells of %zu bytes, mask %d: off by %g", (*kernel)->name, *pool,
                                 place->cells, place->stride, (int)mask, error);
                }
            }
            side_end(&k_side);
            side_end(&v_side);
        }
}

/* ---- kernels that count in too few bits -------------------------------------------------------------------------- */

static struct narrow {
    const char *what;
    uint64_t cell_bits, offset_bits, page_bits;
    bool right; /* enough bits for this place */
    size_t place;
} narrow;

/* Takes only f32 rows. */
static int narrow_attend(const kvb_attend *args)
{
    const kvb_problem *p = &args->problem;
    for (uint32_t t = 0; t < p->n_tok; t++)
        for (uint32_t h = 0; h < p->n_heads; h++) {
            double out[DIM] = {0}, weights = 0;
            uint32_t cursor = 0, n = 0;
            kvb_run run;
            while (kvb_mask_next(&args->mask, p->n_tok, p->n_cells, t, &cursor, &run))
                for (uint32_t c = run.begin; c < run.end; c++, n++) {
                    const uint64_t page = c / places[narrow.place].page_cells & narrow.page_bits;
                    const uint64_t cell =
                        (page * places[narrow.place].page_cells + c % places[narrow.place].page_cells) &
                        narrow.cell_bits;
                    const uint64_t at =
                        (h / GROUP * args->k.head_stride + cell * args->k.cell_stride) & narrow.offset_bits;
                    const float *k = (const float *)(const void *)((const char *)args->k.base + at);
                    const float *v = (const float *)(const void *)((const char *)args->v.base + at);
                    double dot = 0;
                    for (uint32_t d = 0; d < DIM; d++)
                        dot += (double)args->q[((size_t)t * p->n_heads + h) * DIM + d] * (double)k[d];
                    const double weight = exp((double)p->scale * dot);
                    weights += weight;
                    for (uint32_t d = 0; d < DIM; d++)
                        out[d] += weight * (double)v[d];
                }
            for (uint32_t d = 0; d < DIM; d++)
                ((float *)args->out)[((size_t)t * p->n_heads + h) * DIM + d] = (float)(out[d] / weights);
        }
    return 0;
}

TEST(narrow_kernels_are_found)
{
    static const struct narrow kinds[] = {
        {"all bits", UINT64_MAX, UINT64_MAX, UINT64_MAX, true, 0},
        {"all bits", UINT64_MAX, UINT64_MAX, UINT64_MAX, true, 1},
        {"all bits", UINT64_MAX, UINT64_MAX, UINT64_MAX, true, 2},
        {"cells of 16 bits", 0xffff, UINT64_MAX, UINT64_MAX, false, 0},
        {"cells of 16 bits", 0xffff, UINT64_MAX, UINT64_MAX, false, 1},
        {"cells of 16 bits", 0xffff, UINT64_MAX, UINT64_MAX, false, 2},
        {"cells of 20 bits", 0xfffff, UINT64_MAX, UINT64_MAX, false, 0},
        {"offsets of 31 bits", UINT64_MAX, 0x7fffffff, UINT64_MAX, false, 0},
        {"offsets of 32 bits", UINT64_MAX, 0xffffffff, UINT64_MAX, false, 0},
        {"offsets of 31 bits", UINT64_MAX, 0x7fffffff, UINT64_MAX, false, 1},
        {"offsets of 32 bits", UINT64_MAX, 0xffffffff, UINT64_MAX, false, 1},
        {"offsets of 32 bits", UINT64_MAX, 0xffffffff, UINT64_MAX, false, 2},
        {"pages of 16 bits", UINT64_MAX, UINT64_MAX, 0xffff, false, 0},
    };
    static const kvb_kernel kernel = {.name = "narrow", .masks = KVB_MASKS_ALL, .attend = narrow_attend};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        narrow = kinds[i];
        const struct place *place = &places[narrow.place];
        sight_make(&sight, place);
        side_make(&k_side, pool_named("f32"), place, &sight, 1);
        side_make(&v_side, pool_named("f32"), place, &sight, 1u << 30);
        for (kvb_mask_kind mask = KVB_MASK_EXPLICIT; mask <= KVB_MASK_PAGES; mask++) {
            const double error = call(&kernel, place, &sight, &k_side, &v_side, mask);
            if ((error < TOLERANCE) != narrow.right)
                fail_msg("%s at place %zu, mask %d: off by %g", narrow.what, narrow.place, (int)mask, error);
        }
        side_end(&k_side);
        side_end(&v_side);
    }
}
