/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the settings are those for the CPU's maker, unless others were set; a prefetch in parts goes on by the wanted
 * parts, never twice and never past the end; rows are read by the class of their spread. A reading changes no bit of a
 * result: every class (bytes of a row, query rows) of every element that is read in place is tried with every reading,
 * at every level, in turns and behind them, and each loop with both makers' orders of cells.
 */
#include "ci/tests/kernels/fixture.h"
#include "ci/tests/kernels/levels.h"
#include "kernels/flash/flash.h"
#include "kernels/kernels.h"

/* ---- settings ---- */

/* Reads maker and family from Linux, not from CPUID as the code under test does. */
static const kvb_prefetch *of_this_cpu(void)
{
    char line[4096];
    bool amd = false;
    int family = 0;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !family && fgets(line, sizeof line, f)) { /* the maker's line comes first */
        amd |= strstr(line, "AuthenticAMD") != NULL;
        sscanf(line, "cpu family : %d", &family);
    }
    if (f)
        fclose(f);
    return !amd ? &kvb_prefetch_intel : family == 0x19 ? &kvb_prefetch_zen4 : &kvb_prefetch_amd;
}

TEST(follows_the_maker)
{
    assert_ptr_equal(kvb_prefetch_here(), of_this_cpu());
}

TEST(others_may_be_set)
{
    const kvb_prefetch *own = kvb_prefetch_here();
    kvb_prefetch_set(own == &kvb_prefetch_amd ? &kvb_prefetch_intel : &kvb_prefetch_amd);
    assert_ptr_not_equal(kvb_prefetch_here(), own);
    kvb_prefetch_set(NULL);
    assert_ptr_equal(kvb_prefetch_here(), own);
}

TEST(readings_are_by_spread_bytes_and_rows)
{
    static kvb_prefetch p;
    static const uint32_t bytes[][2] = {{1, 128}, {129, 256}, {257, 512}, {513, 4096}},
                          rows[][2] = {{1, 1}, {2, 2}, {3, 4}, {5, 10}};
    uint32_t at = 0;
    for (kvb_spread spread = 0; spread < KVB_SPREADS; spread++)
        for (uint32_t b = 0; b < KVB_READING_SIZES; b++)
            for (uint32_t r = 0; r < KVB_READING_ROWS; r++, at++)
                for (uint32_t i = 0; i < 4; i++)
                    assert_ptr_equal(kvb_reading_of(&p, spread, bytes[b][i % 2], rows[r][i / 2]), &p.reading[at]);
}

/* A group is read by the setting of its class; only turns prefetch as far ahead as the setting says. */
TEST(a_group_is_read_as_its_rows_are_spread)
{
    enum { EACH = KVB_READINGS / KVB_SPREADS };
    static kvb_prefetch p;
    static const struct {
        bool turn, neighbours;
        kvb_spread spread;
    } groups[] = {{true, true, KVB_SPREAD_LONG},     /* a long run */
                  {true, false, KVB_SPREAD_LONG},    /* in turns from several places */
                  {false, true, KVB_SPREAD_SHORT},   /* a page */
                  {false, false, KVB_SPREAD_APART}}; /* filled in steps */
    for (uint32_t i = 0; i < KVB_READINGS; i++)
        p.reading[i] = (kvb_reading){
            .ahead = 1 + i, .near = i / EACH == KVB_SPREAD_SHORT, .by_cells = i / EACH == KVB_SPREAD_APART};
    const kvb_flash flash = {.prefetch = &p};
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (uint32_t rows = 1; rows <= 8; rows *= 2) {
            const kvb_view rows_apart = {.cell_stride = 1000};
            const kvb_side side = {.view = &rows_apart, .row_bytes = 256};
            const kvb_row_group group = {.n_rows = rows,
                                         .turn = groups[g].turn,
                                         .neighbours = groups[g].neighbours,
                                         .ahead = 777,
                                         .runs = 1,
                                         .run = 64};
            const kvb_reading *r = kvb_reading_of(&p, groups[g].spread, 256, rows);
            const kvb_row_ahead ahead = kvb_group_row_ahead(&flash, &group, &side);
            assert_int_equal(ahead.bytes, (groups[g].turn ? r->ahead : 777) * rows_apart.cell_stride);
            assert_int_equal(ahead.near, r->near);
            assert_int_equal(ahead.by_cells, r->by_cells);
        }
}

/* ---- pages ---- */

/* Neighbouring rows touch each page once, at the row in which it begins, and wake the next page. */
TEST(each_page_is_woken_once)
{
    for (size_t bytes = 64; bytes <= 2 * KVB_PAGE_BYTES / 3; bytes += 48) {
        uintptr_t woken = 5 * KVB_PAGE_BYTES;
        for (uintptr_t row = woken - bytes / 2; row < 40 * KVB_PAGE_BYTES; row += bytes) {
            const uintptr_t page = kvb_page_behind(row, bytes);
            const bool begins = (row + bytes - 1) / KVB_PAGE_BYTES != (row - 1) / KVB_PAGE_BYTES;
            assert_int_equal(page != 0, begins);
            if (page) {
                assert_int_equal(page, woken + KVB_PAGE_BYTES);
                woken = page;
            }
        }
    }
    assert_int_equal(kvb_page_behind(4096, 0), 0);
}

/* ---- lookahead ---- */

static char stored[4096];
static const uint32_t cells[16];
static const kvb_view view = {.base = stored, .cell_stride = 16, .scales = stored, .scale_cell_stride = 2};

static kvb_lookahead lookahead_of(uint32_t n, uint32_t run, bool steadily)
{
    return (kvb_lookahead){.view = &view, .cells = cells, .n = n, .run = run, .steadily = steadily};
}

TEST(runs_in_two_halves)
{
    kvb_lookahead next = lookahead_of(16, 4, false);
    kvb_lookahead_step(&next);
    assert_int_equal(next.done, 0);
    kvb_lookahead_until(&next, 1, 2);
    assert_int_equal(next.done, 8);
    kvb_lookahead_until(&next, 2, 2);
    assert_int_equal(next.done, 16);
}

TEST(one_run_all_along)
{
    kvb_lookahead next = lookahead_of(1, 64, true);
    for (uint32_t i = 1; i <= 4; i++) {
        kvb_lookahead_step(&next);
        assert_int_equal(next.done, 8 * i);
    }
    kvb_lookahead_until(&next, 1, 4); /* done already */
    assert_int_equal(next.done, 32);
    for (uint32_t i = 0; i < 20; i++)
        kvb_lookahead_step(&next);
    assert_int_equal(next.done, 64);
}

TEST(fewer_than_eight)
{
    kvb_lookahead next = lookahead_of(1, 5, true);
    kvb_lookahead_step(&next);
    assert_int_equal(next.done, 0);
    kvb_lookahead_until(&next, 1, 2);
    assert_int_equal(next.done, 2);
    kvb_lookahead_until(&next, 2, 2);
    assert_int_equal(next.done, 5);
}

TEST(nothing_is_nothing)
{
    kvb_lookahead_step(NULL);
    kvb_lookahead_until(NULL, 1, 2);
}

/* ---- readings ---- */

/* Kernels and the loops that they use. A kernel is tried at levels that have their own such loops. */
static const struct {
    const kvb_kernel *kernel;
    size_t loops;
} kernels[] = {{&kvb_kernel_flash, offsetof(kvb_loops, vector)},
               {&kvb_kernel_flash_bf16, offsetof(kvb_loops, bf16)},
               {&kvb_kernel_flash_int8, offsetof(kvb_loops, vector)},
               {&kvb_kernel_flash_f16, offsetof(kvb_loops, f16)}};

/* Dims of rows of each size, by element. q8_0 is read in tiles, where only `steadily` matters. */
static const struct {
    kvb_elem elem;
    uint32_t dim[KVB_READING_SIZES];
} rows[] = {{KVB_F32, {32, 64, 128, 192}},
            {KVB_F16, {64, 128, 192, 320}},
            {KVB_BF16, {64, 128, 192, 320}},
            {KVB_E4M3, {128, 256, 384, 640}},
            {KVB_Q8_0, {128, 128, 128, 128}}};

static const uint32_t query_rows[] = {1, 2, 4, 8, 16};

/* Blocks in turns and one that is half visible; single cells; pages of several queries, the last one not in a turn. */
static const struct {
    kvb_mask_kind mask;
    enum scatter scatter;
    uint32_t n_tok, cells, most_rows; /* most_rows: query rows of each token */
} sights[] = {{KVB_MASK_NONE, SCATTER_ANY, 1, 4 * 64 + 30, 16},
              {KVB_MASK_RUNS, SCATTER_SINGLES, 1, 3 * 64, 16},
              {KVB_MASK_RUNS, SCATTER_PAGES, 4, 4 * 64, 4}};

/* Classes that were tried. */
static bool met[KVB_READING_SIZES][KVB_READING_ROWS];

/* Half of the settings read short runs unlike long ones: the sums of one group may stay behind, not the next one's. */
static void readings_set(kvb_prefetch *p, kvb_reading reading)
{
    for (uint32_t i = 0; i < KVB_READINGS; i++) {
        p->reading[i] = reading;
        p->reading[i].beside ^= reading.near && i / (KVB_READING_SIZES * KVB_READING_ROWS) == KVB_SPREAD_SHORT;
    }
}

/* Puts the bits of a result at `at`. Returns their number of bytes. */
static size_t bits_of(struct fixture *f, const kvb_kernel *kernel, char *at)
{
    const kvb_problem *p = &f->args.problem;
    const size_t n = (size_t)p->n_tok * p->n_heads, out = n * p->v_dim * sizeof(float), lse = n * sizeof(float);
    fixture_attend(f, kernel);
    memcpy(at, f->out, out);
    memcpy(at + out, f->lse, lse);
    return out + lse;
}

static void all_readings(struct fixture *f, const kvb_kernel *kernel, const kvb_prefetch *maker)
{
    static const uint32_t aheads[] = {0, 64, KVB_READING_AHEAD};
    static char plain[1 << 16], other[1 << 16];
    kvb_prefetch p = *maker;

    kvb_prefetch_set(&p);
    readings_set(&p, (kvb_reading){.ahead = 32});
    const size_t bytes = bits_of(f, kernel, plain);
    for (uint32_t i = 0; i < 3 * 64; i++) {
        const kvb_reading reading = {aheads[i / 64], i & 1, i & 2, i & 4, i & 8, i & 16, i & 32};
        readings_set(&p, reading);
        p.steadily = !p.steadily;
        bits_of(f, kernel, other);
        if (memcmp(plain, other, bytes))
            fail_msg("%s at %s, %s of %u, %u query rows: other bits with ahead %u, near %d, again %d, by_cells %d, "
                     "sums_by_cells %d, pages %d, beside %d",
                     kernel->name, kvb_cpu_level_names[kvb_cpu()], f->args.k.format->name, f->args.k.dim,
                     f->args.problem.n_heads, reading.ahead, reading.near, reading.again, reading.by_cells,
                     reading.sums_by_cells, reading.pages, reading.beside);
    }
    kvb_prefetch_set(NULL);
}

static void each_kernel(struct fixture *f, const kvb_prefetch *maker)
{
    const kvb_problem *p = &f->args.problem;
    char why[160];
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        const kvb_kernel *kernel = kernels[k].kernel;
        if (!kvb_loops_own(kvb_cpu(), kernels[k].loops) || !kernel->supports(p, why, sizeof why))
            continue;
        all_readings(f, kernel, maker);
    }
}

static void shape_read(const struct shape *s)
{
    static const kvb_prefetch table, *const settings[] = {&kvb_prefetch_amd, &kvb_prefetch_intel, &kvb_prefetch_zen4};
    const kvb_reading *class = kvb_reading_of(&table, KVB_SPREAD_LONG, row_bytes(s->k_elem, s->k_dim), s->group);
    const size_t at = (size_t)(class - table.reading);
    struct fixture f;

    fixture_build(&f, s);
    for (int level = 0; level < KVB_CPU_LEVELS; level++)
        if (level_tried((kvb_cpu_level)level)) {
            kvb_cpu_limit((kvb_cpu_level)level);
            each_kernel(&f, settings[at % 3]);
        }
    kvb_cpu_limit(KVB_CPU_LEVELS - 1);
    fixture_free(&f);
    met[at / KVB_READING_ROWS][at % KVB_READING_ROWS] = true;
}

TEST(no_reading_changes_a_bit)
{
    for (size_t e = 0; e < sizeof rows / sizeof *rows; e++)
        for (uint32_t size = 0; size < KVB_READING_SIZES; size++)
            for (size_t r = 0; r < sizeof query_rows / sizeof *query_rows; r++)
                for (size_t m = 0; m < sizeof sights / sizeof *sights && query_rows[r] <= sights[m].most_rows; m++)
                    shape_read(&(struct shape){.n_tok = sights[m].n_tok,
                                               .n_kv_heads = 1,
                                               .group = query_rows[r],
                                               .k_dim = rows[e].dim[size],
                                               .v_dim = rows[e].dim[size],
                                               .n_cells = sights[m].cells,
                                               .mask = sights[m].mask,
                                               .scatter = sights[m].scatter,
                                               .k_elem = rows[e].elem,
                                               .v_elem = rows[e].elem,
                                               .threads = 1,
                                               .seed = 7});
    for (uint32_t s = 0; s < KVB_READING_SIZES; s++)
        for (uint32_t r = 0; r < KVB_READING_ROWS; r++)
            assert_true(met[s][r]);
}
